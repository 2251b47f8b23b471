//! Metrics of topologies, their operators and their sources for monitoring: the counters of `entresol.topologies`,
//! `entresol.operators` and `entresol.sources`.
//!
//! Counters begin again when a topology starts, those of sources with the topology's creation.

use super::streams::topology_sources;
use crate::error::Result;
use crate::session::topologies::{Topologies, TopologyStatus};
use entresol_streams::{OperatorProgress, ProgressSnapshot};
use entresol_tables::Catalog;

/// Metric with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMetric {
    /// Name, without a prefix for the database.
    pub name: &'static str,
    /// Description of a line.
    pub help: &'static str,
    /// True if it only grows while the topology runs.
    pub is_counter: bool,
    /// Values, each with its labels.
    pub values: Vec<(Vec<(&'static str, String)>, f64)>,
}

type OfTopology = fn(&ProgressSnapshot) -> u64;
type OfOperator = fn(&OperatorProgress) -> u64;

/// Counters of topologies.
const TOPOLOGY_COUNTERS: [(&str, &str, OfTopology); 6] = [
    ("topology_tuples_total", "Input tuples of committed transactions.", |of| of.tuples),
    ("topology_commits_total", "Committed transactions.", |of| of.transactions),
    ("topology_aborts_total", "Transactions that were dropped.", |of| of.aborts),
    ("topology_retries_total", "Retries after a conflict.", |of| of.retries),
    ("topology_late_total", "Tuples that came after their window had closed.", |of| of.late),
    ("topology_rejected_total", "Bad records that were skipped.", |of| of.rejected),
];

/// Counters of operators.
const OPERATOR_COUNTERS: [(&str, &str, OfOperator); 4] = [
    ("operator_tuples_in_total", "Tuples into an operator.", |of| of.tuples_in),
    ("operator_tuples_out_total", "Tuples out of an operator.", |of| of.tuples_out),
    ("operator_late_total", "Tuples that came after their window had closed.", |of| of.late),
    ("operator_expired_total", "Tuples that have left a state by its time to live.", |of| of.expired),
];

/// The metrics of all topologies of a catalog. Errors: those of reading the stored positions.
pub fn stream_metrics(topologies: &Topologies, catalog: &Catalog) -> Result<Vec<StreamMetric>> {
    let all = topologies.statuses();
    let now_ns = catalog.context().pool().env().now_ns();
    let labelled = |status: &TopologyStatus| vec![("topology", status.name.clone())];
    let mut metrics = vec![StreamMetric {
        name: "topology_state",
        help: "State of a topology, as a label.",
        is_counter: false,
        values: all
            .iter()
            .map(|status| ([labelled(status), vec![("state", status.state.to_owned())]].concat(), 1.0))
            .collect(),
    }];
    let with_progress = || all.iter().filter_map(|status| Some((status, status.progress.as_ref()?)));
    for (name, help, of) in TOPOLOGY_COUNTERS {
        let values = with_progress().map(|(status, progress)| (labelled(status), of(progress) as f64));
        metrics.push(StreamMetric { name, help, is_counter: true, values: values.collect() });
    }
    metrics.push(StreamMetric {
        name: "topology_watermark_lag_seconds",
        help: "Time from the watermark to now.",
        is_counter: false,
        values: with_progress()
            .filter_map(|(status, progress)| {
                Some((labelled(status), progress.watermark_lag_ms(now_ns)? as f64 / 1e3))
            })
            .collect(),
    });
    let latencies = all.iter().filter_map(|status| Some((status, status.commit_latencies?)));
    metrics.push(StreamMetric {
        name: "topology_commit_seconds",
        help: "Time from a commit's begin until it is visible: median and 99th percentile of the last ones.",
        is_counter: false,
        values: latencies
            .filter(|(_, latencies)| latencies.samples > 0)
            .flat_map(|(status, latencies)| {
                [("0.5", latencies.p50_us), ("0.99", latencies.p99_us)].map(|(quantile, us)| {
                    ([labelled(status), vec![("quantile", quantile.to_owned())]].concat(), us / 1e6)
                })
            })
            .collect(),
    });
    for (name, help, of) in OPERATOR_COUNTERS {
        let values = all.iter().flat_map(|status| {
            status.operators.iter().enumerate().map(move |(number, operator)| {
                let labels = [("number", number.to_string()), ("operator", operator.name.clone())];
                ([labelled(status), labels.to_vec()].concat(), of(operator) as f64)
            })
        });
        metrics.push(StreamMetric { name, help, is_counter: true, values: values.collect() });
    }
    let sources = topology_sources(&all, catalog)?;
    for (at, name, help) in [
        (0, "source_tuples_total", "Tuples that a topology has read of a source."),
        (1, "source_rejected_total", "Bad records of a source that a topology has skipped."),
    ] {
        let values = sources.iter().filter_map(|read| {
            let labels = vec![("topology", read.topology.clone()), ("source", read.source.clone())];
            Some((labels, read.progress?[at] as f64))
        });
        metrics.push(StreamMetric { name, help, is_counter: true, values: values.collect() });
    }
    Ok(metrics)
}
