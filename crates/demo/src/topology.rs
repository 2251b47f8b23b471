//! The continuous queries (dissertation, figure 5.1).
//!
//! ```text
//!  stream 1  households ── 30 min per meter ──► meter ── sum per feeder ──► household
//!                                                                             │ lookup
//!  stream 2  infrastructure ── 30 min per channel ──► infrastructure ─ ─ ─ ─ join ── join ── out of range ──► alarms
//!                                                └──► latest   TO_STREAM on commit     │ lookup             └► printed
//!  stream 3  revisions ───────────────────────────────────────────────────────► specification
//! ```
//!
//! - Stream 1 is one topology, streams 2 and 3, merged by event time, another: each writes its states
//!   together.
//! - Windows that are open are in `meter_open`, `household_open` and `infrastructure_open`.
//! - A transaction of stream 1 is a number of readings; one of streams 2 and 3 closes one window.

use super::feed::{Feeds, Shares};
use super::live::LiveCounters;
use super::rules::{self, Limits};
use super::sinks::{AlarmSink, ClosedSink, CommittedSink, Reporter, StreamName};
use super::sources;
use crate::error::Result;
use entresol::streams::{
    Aggregate, Boundary, JoinKind, Merge, Report, Running, Stream, TimeWindow, ToTable, Topology,
    TopologyBuilder, Trigger, Tuple,
};
use entresol::tables::{Column, DataType, Value};
use entresol::{Database, Durability};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The topology of stream 1.
pub const HOUSEHOLD_TOPOLOGY: &str = "households";
/// The topology of streams 2 and 3.
pub const INFRASTRUCTURE_TOPOLOGY: &str = "infrastructure";
/// Position of the demand among the columns of `household` that are not of its key.
pub const HOUSEHOLD_DEMAND: usize = 2;

const WINDOW: Duration = Duration::from_secs(30 * 60);

/// Parameters of the topologies.
pub struct Plan {
    /// Durability of commits.
    pub durability: Durability,
    /// Readings per transaction of stream 1.
    pub batch: u32,
    /// Alarms that are printed.
    pub print_alarms: u64,
    /// Callback after commits.
    pub reporter: Option<Reporter>,
}

/// The name of a feeder: the transformer's.
pub fn feeder_name(feeder: u32) -> Value {
    Value::from(format!("transformer-{}", feeder + 1).as_str())
}

/// The running topologies.
pub struct Topologies {
    households: Running,
    infrastructure: Running,
}

impl Topologies {
    /// Builds and starts both; they go on at the stored positions.
    pub fn start(
        database: &Database,
        feeds: Feeds,
        plan: &Plan,
        live: &Arc<LiveCounters>,
    ) -> Result<Topologies> {
        let catalog = database.catalog();
        let Feeds { household, infrastructure, specification, .. } = feeds;
        let committed =
            |stream| CommittedSink { stream, live: live.clone(), reporter: plan.reporter.clone() };

        let households = Topology::builder(HOUSEHOLD_TOPOLOGY, catalog)
            .durability(plan.durability)
            .boundary(Boundary::Every(plan.batch as usize));
        let readings = households.source("household", sources::household(household));
        readings.sink(committed(StreamName::Household));
        household_query(&readings).sink(ClosedSink(live.clone()));
        let households = households.build()?;

        let builder = Topology::builder(INFRASTRUCTURE_TOPOLOGY, catalog)
            .durability(plan.durability)
            .boundary(Boundary::PerWindow)
            .merge(Merge::EventTime);
        // First among the sources: of equal event times, the revision comes before the reading.
        let revisions =
            builder.source("specification", sources::specification(specification)).event_time("valid_from");
        let source = sources::infrastructure(infrastructure, live.clone());
        let readings = builder.source("infrastructure", source).event_time("time");
        readings.sink(committed(StreamName::Infrastructure));
        revisions.sink(committed(StreamName::Specification));
        revisions.to_table(ToTable::upsert("specification").key(&["asset", "quantity"]));
        infrastructure_query(&readings);
        alarm_query(&builder).sink(AlarmSink { live: live.clone(), print_max: plan.print_alarms });
        let infrastructure = builder.build()?;

        Ok(Topologies { households: households.start()?, infrastructure: infrastructure.start()? })
    }

    /// To be called now and then: once stream 1 has ended, the infrastructure waits for it no longer; and if
    /// one topology has ended early, by an error, the other one is stopped.
    pub fn supervise(&self, shares: Shares, live: &LiveCounters) {
        let read = |stream| live.position(stream).load(Ordering::Relaxed);
        if self.households.is_finished() {
            if read(StreamName::Household) < shares.household {
                self.stop();
            }
            live.household_closed_us.store(i64::MAX, Ordering::Release);
        }
        if self.infrastructure.is_finished() && read(StreamName::Infrastructure) < shares.infrastructure {
            self.stop();
        }
    }

    /// True once all streams have ended.
    pub fn is_finished(&self) -> bool {
        self.households.is_finished() && self.infrastructure.is_finished()
    }

    /// Committed transactions.
    pub fn transactions(&self) -> u64 {
        [&self.households, &self.infrastructure].map(|t| t.progress().snapshot().transactions).iter().sum()
    }

    /// Asks both to end soon.
    pub fn stop(&self) {
        self.households.stop();
        self.infrastructure.stop();
    }

    /// Waits for the end of both; returns their reports.
    pub fn join(self) -> Result<(Report, Report)> {
        let (households, infrastructure) = (self.households.join(), self.infrastructure.join());
        Ok((households?, infrastructure?))
    }
}

/// Stream 1: readings to `meter` and `household`. Returns the ends of the closed windows.
fn household_query(readings: &Stream) -> Stream {
    let per_meter =
        readings.window(TimeWindow::tumbling("time", WINDOW)).group_by(&["feeder", "meter"]).aggregate(
            &[
                Aggregate::count().named("readings"),
                Aggregate::count_of("kw").named("measured"),
                Aggregate::avg("kw").named("mean_kw"),
                Aggregate::max("kw").named("max_kw"),
                Aggregate::min("voltage").named("min_voltage"),
                Aggregate::max("voltage").named("max_voltage"),
            ],
            "meter_open",
        );
    per_meter
        .select(&[
            "meter",
            "window_start",
            "feeder",
            "readings",
            "measured",
            "mean_kw",
            "max_kw",
            "min_voltage",
            "max_voltage",
        ])
        .to_table(ToTable::upsert("meter").key(&["meter", "window_start"]));
    let per_feeder = per_meter
        .select(&["feeder", "window_start", "readings", "mean_kw", "min_voltage", "max_voltage"])
        .rename("window_start", "metered_at")
        .window(TimeWindow::tumbling("metered_at", WINDOW))
        .group_by(&["feeder"])
        .aggregate(
            &[
                Aggregate::count().named("meters"),
                Aggregate::sum("readings").named("readings"),
                Aggregate::sum("mean_kw").named("demand_kw"),
                Aggregate::min("min_voltage").named("min_voltage"),
                Aggregate::max("max_voltage").named("max_voltage"),
            ],
            "household_open",
        );
    let mut columns: Vec<Column> = per_feeder.columns().to_vec();
    columns.retain(|column| column.name != "window_end");
    columns[0] = Column::new("feeder", DataType::Varchar).not_null();
    let named = |tuple: &[Value]| -> Tuple {
        let feeder = match tuple[0] {
            Value::Int(feeder) => feeder_name(feeder as u32),
            _ => Value::Null,
        };
        let mut named = vec![feeder, tuple[1].clone()];
        named.extend_from_slice(&tuple[3..]);
        named
    };
    per_feeder.map(columns, named).to_table(ToTable::upsert("household").key(&["feeder", "window_start"]));
    per_feeder.select(&["window_end"])
}

/// Stream 2: readings to `infrastructure` and `latest`.
fn infrastructure_query(readings: &Stream) {
    let windows = readings
        .window(TimeWindow::tumbling("time", WINDOW))
        .group_by(&["asset", "quantity"])
        .aggregate(
            &[
                Aggregate::count().named("readings"),
                Aggregate::count_of("reading").named("measured"),
                Aggregate::avg("reading").named("mean"),
                Aggregate::min("reading").named("minimum"),
                Aggregate::max("reading").named("maximum"),
            ],
            "infrastructure_open",
        )
        .select(&["asset", "quantity", "window_start", "readings", "measured", "mean", "minimum", "maximum"]);
    windows.to_table(ToTable::upsert("infrastructure").key(&["asset", "quantity", "window_start"]));
    windows.to_table(ToTable::upsert("latest").key(&["asset", "quantity"]));
}

/// Judges what is committed to `infrastructure`: to `alarms`.
fn alarm_query(builder: &TopologyBuilder) -> Stream {
    let joined = builder
        .to_stream("infrastructure", Trigger::OnCommit)
        .lookup_join("household", &["asset", "window_start"], JoinKind::Left)
        .lookup_join("specification", &["asset", "quantity"], JoinKind::Inner);
    let place = |name: &str| joined.column(name).unwrap_or_default();
    let [mean, low, high, per_demand_max, revision, demand] =
        ["mean", "low", "high", "per_demand_max", "revision", "demand_kw"].map(place);
    let columns = vec![
        Column::new("asset", DataType::Varchar).not_null(),
        Column::new("quantity", DataType::Varchar).not_null(),
        Column::new("window_start", DataType::Timestamp).not_null(),
        Column::new("mean", DataType::Double).not_null(),
        Column::new("low", DataType::Double).not_null(),
        Column::new("high", DataType::Double).not_null(),
        Column::new("demand_kw", DataType::Double),
        Column::new("reason", DataType::Varchar).not_null(),
        Column::new("revision", DataType::Int).not_null(),
    ];
    let alarms = joined.try_map(columns, move |tuple| {
        let Some(measured) = number(&tuple[mean]) else { return Ok(None) };
        let limits = Limits {
            low: number(&tuple[low]).ok_or("a specification without a lower limit")?,
            high: number(&tuple[high]).ok_or("a specification without an upper limit")?,
            per_demand_max: number(&tuple[per_demand_max]),
        };
        Ok(rules::judge(measured, &limits, number(&tuple[demand])).map(|reason| {
            let mut alarm = tuple[..3].to_vec();
            alarm.extend([&tuple[mean], &tuple[low], &tuple[high], &tuple[demand]].map(Value::clone));
            alarm.extend([Value::from(reason.text()), tuple[revision].clone()]);
            alarm
        }))
    });
    alarms.to_table(ToTable::upsert("alarms").key(&["asset", "quantity", "window_start"]));
    alarms
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        _ => None,
    }
}
