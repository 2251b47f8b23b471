//! Metrics of topologies, their operators, sources and sinks, and of subscriptions for monitoring: the counters of
//! `entresol.topologies`, `entresol.operators`, `entresol.sources`, `entresol.sinks` and `entresol.subscriptions`.
//!
//! Counters begin again when a topology starts, those of sources and sinks with the topology's creation.

use super::streams::{topology_sources, written_of_sinks};
use crate::error::Result;
use crate::session::snapshots::Sessions;
use crate::session::state_size;
use crate::session::subscriptions::SubscriptionLine;
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

/// The metrics of all topologies of a catalog, and of the subscriptions of sessions. Errors: those of reading the stored
/// positions and states.
pub fn stream_metrics(
    topologies: &Topologies,
    sessions: &Sessions,
    catalog: &Catalog,
) -> Result<Vec<StreamMetric>> {
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
    metrics.push(StreamMetric {
        name: "topology_tuples_per_second",
        help: "Input tuples of committed transactions per second, over the last second or so.",
        is_counter: false,
        values: with_progress()
            .filter(|(status, _)| status.state == "running")
            .map(|(status, progress)| (labelled(status), progress.tuples_per_s as f64))
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
    metrics.extend(state_metrics(&all, catalog)?);
    metrics.extend(sink_metrics(all, catalog)?);
    metrics.extend(subscription_metrics(sessions));
    Ok(metrics)
}

/// Estimated sizes of the states of topologies.
fn state_metrics(all: &[TopologyStatus], catalog: &Catalog) -> Result<[StreamMetric; 2]> {
    let (mut rows, mut bytes) = (Vec::new(), Vec::new());
    for status in all {
        let size = state_size::size_of_topology(catalog, &status.name)?;
        let labels = vec![("topology", status.name.clone())];
        rows.push((labels.clone(), size.rows as f64));
        bytes.push((labels, size.bytes as f64));
    }
    let gauge = |name, help, values| StreamMetric { name, help, is_counter: false, values };
    Ok([
        gauge("topology_state_rows", "Rows of the state tables of a topology, estimated.", rows),
        gauge("topology_state_bytes", "Bytes of the state tables of a topology, estimated.", bytes),
    ])
}

/// Counters of what sinks have written.
fn sink_metrics(all: Vec<TopologyStatus>, catalog: &Catalog) -> Result<[StreamMetric; 2]> {
    let sinks: Vec<TopologyStatus> = all.into_iter().filter(|status| status.sink.is_some()).collect();
    let (mut rows, mut bytes) = (Vec::new(), Vec::new());
    for (sink, written) in sinks.iter().zip(written_of_sinks(&sinks, catalog)?) {
        let Some(written) = written else { continue };
        let labels = vec![("sink", sink.name.clone())];
        rows.extend(written.rows.map(|count| (labels.clone(), count as f64)));
        bytes.extend(written.bytes.map(|count| (labels, count as f64)));
    }
    let counter = |name, help, values| StreamMetric { name, help, is_counter: true, values };
    Ok([
        counter("sink_rows_written_total", "Rows that a sink has written into files.", rows),
        counter("sink_bytes_written_total", "Bytes that a sink has written into files.", bytes),
    ])
}

/// Subscriptions that run: the rows sent to each client, and the time since they began.
fn subscription_metrics(sessions: &Sessions) -> [StreamMetric; 2] {
    let lines = sessions.subscriptions();
    let of = |value: &dyn Fn(&SubscriptionLine) -> f64| {
        let labels = |line: &SubscriptionLine| {
            let session = line.client.process_id.to_string();
            vec![
                ("session", session),
                ("user", line.client.user.clone()),
                ("relations", line.relations.clone()),
            ]
        };
        lines.iter().map(|line| (labels(line), value(line))).collect()
    };
    [
        StreamMetric {
            name: "subscription_rows_total",
            help: "Rows that a subscription has sent.",
            is_counter: true,
            values: of(&|line| line.rows as f64),
        },
        StreamMetric {
            name: "subscription_seconds",
            help: "Time since a subscription began.",
            is_counter: false,
            values: of(&|line| line.elapsed.as_secs_f64()),
        },
    ]
}
