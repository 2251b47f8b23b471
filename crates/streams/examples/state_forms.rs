//! Processor time of a tumbling aggregate whose groups are stored as rows, or in pages, in turns.
//!
//! `cargo run --example state_forms -- [groups] [tuples] [tuples of a transaction] [rounds]`

use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, TimestampMicrosecondArray};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_streams::{
    Aggregate, Boundary, GeneratorSource, StateForm, TimeWindow, ToTable, Topology, TopologyBuilder,
};
use entresol_tables::{Catalog, Column, DataType, arrow_schema};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TUPLE_US: u64 = 20;

struct Work {
    groups: u64,
    tuples: u64,
    every: usize,
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("meter", DataType::Int).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double).not_null(),
    ]
}

/// Readings by position: all groups come in turn, not in their order.
fn readings(groups: u64, tuples: u64) -> impl FnMut(u64, usize) -> RecordBatch + Send + 'static {
    let schema = arrow_schema(&columns(), "UTC");
    move |first, tuples_max| {
        let range = first..tuples.min(first + tuples_max as u64);
        let meters = range.clone().map(|n| (n.wrapping_mul(7919) % groups) as i32);
        let meters: ArrayRef = Arc::new(Int32Array::from_iter_values(meters));
        let times = range.clone().map(|n| (n * TUPLE_US) as i64);
        let times = Arc::new(TimestampMicrosecondArray::from_iter_values(times));
        let powers = Arc::new(Float64Array::from_iter_values(range.map(|n| n as f64)));
        RecordBatch::try_new(Arc::clone(&schema), vec![meters, times, powers]).expect("arrays of the columns")
    }
}

fn open(directory: &Path) -> Result<Arc<Catalog>, Box<dyn std::error::Error>> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options)?;
    Ok(Catalog::open_or_create(StateContext::open_or_create(pool)?)?)
}

fn topology(
    catalog: &Arc<Catalog>,
    (work, form): (&Work, Option<StateForm>),
    window: Duration,
) -> TopologyBuilder {
    let topology = Topology::builder("t", catalog);
    let topology = topology.boundary(Boundary::Every(work.every)).durability(Durability::None);
    let source = GeneratorSource::batches(columns(), readings(work.groups, work.tuples));
    let windows = topology.source("readings", source).window(TimeWindow::tumbling("at", window));
    let mut grouped = windows.group_by(&["meter"]);
    if let Some(form) = form {
        grouped = grouped.state_form(form);
    }
    let aggregates = [Aggregate::count(), Aggregate::sum("power"), Aggregate::avg("power")];
    grouped.aggregate(&aggregates, "open").to_table(ToTable::upsert("windows"));
    topology
}

/// Processor time of this process.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let mut next = |default| arguments.next().unwrap_or(default);
    let work = Work { groups: next(1000), tuples: next(2_000_000), every: next(1000) as usize };
    for round in 0..next(3) {
        for form in [Some(StateForm::Rows), Some(StateForm::Pages), None] {
            let directory = tempfile::TempDir::new()?;
            let catalog = open(directory.path())?;
            let (begin, processor) = (Instant::now(), processor_s());
            let running = topology(&catalog, (&work, form), Duration::from_secs(10)).build()?.start()?;
            let progress = Arc::clone(running.progress());
            running.join()?;
            let costs = progress.operators().into_iter().find_map(|operator| operator.state_costs);
            println!(
                "round {round}, {form:?}: {:.2} M tuples/s of processor time, {:.2} by the clock; {costs:?}",
                work.tuples as f64 / (processor_s() - processor) / 1e6,
                work.tuples as f64 / begin.elapsed().as_secs_f64() / 1e6,
            );
        }
    }
    Ok(())
}
