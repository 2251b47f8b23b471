//! Time from opening a database until a topology with many groups has processed its first tuples, and has committed them.
//!
//! `cargo run --example resume -- [groups] [rounds] [rows, pages or running]`

use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, TimestampMicrosecondArray};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_streams::{
    Aggregate, Boundary, GROUPS_IN_DRAM_MAX, GeneratorSource, RunningGroups, StateForm, TimeWindow, ToTable,
    Topology, TopologyBuilder,
};
use entresol_tables::{Catalog, Column, DataType, arrow_schema};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tuples of a transaction behind the restart.
const EVERY: usize = 1000;
/// Window that is never closed.
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[derive(Clone, Copy, Debug)]
enum State {
    Window(StateForm),
    Running,
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("meter", DataType::Int).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double).not_null(),
    ]
}

/// Readings by position: all groups come in turn, not in their order.
fn readings(groups: u64) -> impl FnMut(u64, usize) -> RecordBatch + Send + 'static {
    let schema = arrow_schema(&columns(), "UTC");
    move |first, tuples_max| {
        let range = first..first + tuples_max as u64;
        let meters = range.clone().map(|n| (n.wrapping_mul(7919) % groups) as i32);
        let meters: ArrayRef = Arc::new(Int32Array::from_iter_values(meters));
        let times = Arc::new(TimestampMicrosecondArray::from_iter_values(range.clone().map(|n| n as i64)));
        let powers = Arc::new(Float64Array::from_iter_values(range.map(|n| n as f64)));
        RecordBatch::try_new(Arc::clone(&schema), vec![meters, times, powers]).expect("arrays of the columns")
    }
}

fn topology(catalog: &Arc<Catalog>, state: State, groups: u64, every: usize) -> TopologyBuilder {
    let topology = Topology::builder("t", catalog);
    let topology = topology.boundary(Boundary::Every(every)).durability(Durability::None);
    let source = topology.source("readings", GeneratorSource::batches(columns(), readings(groups)));
    let aggregates = vec![Aggregate::count(), Aggregate::sum("power"), Aggregate::avg("power")];
    match state {
        State::Window(form) => {
            let grouped = source.window(TimeWindow::tumbling("at", FOREVER)).group_by(&["meter"]);
            let results = grouped.state_form(form).aggregate(&aggregates, "open");
            results.to_table(ToTable::upsert("windows"));
        }
        State::Running => {
            let running = RunningGroups {
                groups: vec![0],
                aggregates,
                state_table: "open".to_owned(),
                life: None,
                interval: None,
                late: None,
                groups_in_dram: GROUPS_IN_DRAM_MAX,
            };
            source.running(running).to_table("meters");
        }
    }
    topology
}

/// Clock and processor time since some time.
struct Lap(Instant, f64);

impl Lap {
    fn begin() -> Lap {
        Lap(Instant::now(), processor_ms())
    }

    fn end(&self) -> String {
        let elapsed = self.0.elapsed().as_secs_f64() * 1e3;
        format!("{elapsed:.1} ms ({:.1} of processor)", processor_ms() - self.1)
    }
}

/// Processor time of the threads that run.
fn processor_ms() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_threads = threads.filter_map(|thread| {
        let usage = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        usage.split_whitespace().next()?.parse::<f64>().ok()
    });
    of_threads.sum::<f64>() / 1e6
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn open(directory: &Path) -> Outcome<Arc<Catalog>> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options)?;
    Ok(Catalog::open_or_create(StateContext::open_or_create(pool)?)?)
}

/// Makes a database whose topology has the state of all groups, and ends without closing it.
fn fill(directory: &Path, state: State, groups: u64) -> Outcome<()> {
    let catalog = open(directory)?;
    let running = topology(&catalog, state, groups, groups.min(100_000) as usize).build()?.start()?;
    while running.progress().snapshot().tuples < groups && !running.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.stop();
    running.join()?;
    catalog.context().pool().sync()?;
    Ok(())
}

fn resume(directory: &Path, state: State, groups: u64) -> Outcome<()> {
    let all = Lap::begin();
    let lap = Lap::begin();
    let catalog = open(directory)?;
    println!("  opened: {}", lap.end());
    let lap = Lap::begin();
    let topology = topology(&catalog, state, groups, EVERY).build()?;
    println!("  built: {}", lap.end());
    let lap = Lap::begin();
    let running = topology.start()?;
    let before = running.progress().snapshot().tuples;
    while running.progress().snapshot().tuples == before && !running.is_finished() {
        std::thread::sleep(Duration::from_micros(50));
    }
    println!("  first tuples: {}", lap.end());
    while running.progress().snapshot().transactions == 0 && !running.is_finished() {
        std::thread::sleep(Duration::from_micros(50));
    }
    println!("  first commit: {}, {} since the begin of opening", lap.end(), all.end());
    running.stop();
    running.join()?;
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (groups, rounds): (u64, u64) = (number(0, 1_000_000), number(1, 3));
    let states = [
        ("rows", State::Window(StateForm::Rows)),
        ("pages", State::Window(StateForm::Pages)),
        ("running", State::Running),
    ];
    let is_asked = |name: &str| arguments.get(2).is_none_or(|asked| asked == name);
    for (_, state) in states.into_iter().filter(|(name, _)| is_asked(name)) {
        let directory = tempfile::TempDir::new()?;
        fill(directory.path(), state, groups)?;
        for round in 0..rounds {
            println!("{groups} groups, {state:?}, round {round}");
            resume(directory.path(), state, groups)?;
        }
    }
    Ok(())
}
