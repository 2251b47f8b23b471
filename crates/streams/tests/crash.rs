//! A topology under power failures: after any crash, running it again gives the result of one run.
#![allow(clippy::unwrap_used)]

mod support;

use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check};
use entresol_streams::{
    Aggregate, Boundary, GeneratorSource, RunningGroups, TimeWindow, ToTable, Topology, Trigger, Tuple,
};
use entresol_tables::{Catalog, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use support::*;

const READINGS: u64 = 24;

fn run(pool: &Arc<Pool>, parts: usize) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(5)).parallelism(parts);
    let source =
        GeneratorSource::new(reading_columns(), |n| (n < READINGS).then(|| random_reading(5, n, 2, 0)));
    let readings = topology.source("s", source);
    let aggregates =
        [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")];
    readings
        .window(TimeWindow::tumbling("at", Duration::from_secs(8)))
        .group_by(&["meter"])
        .aggregate(&aggregates, "open")
        .to_table(ToTable::insert("windows"));
    // A TO_STREAM writes a second table: both are of one snapshot after every crash.
    let copy = topology.to_stream("windows", Trigger::OnCommit);
    copy.to_table(ToTable::insert("copies"));
    topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn verify(pool: &Arc<Pool>, parts: usize) -> Result<(), String> {
    let catalog = run(pool, parts)?;
    let readings: Vec<Tuple> = (0..READINGS).map(|n| random_reading(5, n, 2, 0)).collect();
    let windows = rows(&catalog, "windows");
    if as_oracle(&windows) != recompute(&readings, 8, 0).0 {
        return Err(format!("windows {windows:?}"));
    }
    if rows(&catalog, "copies") != windows {
        return Err("the copies differ".to_owned());
    }
    if !rows(&catalog, "open").is_empty() {
        return Err("open windows are left".to_owned());
    }
    let position = rows(&catalog, "streams_positions")[0][2].clone();
    if position == Value::BigInt(READINGS as i64) { Ok(()) } else { Err(format!("position {position}")) }
}

#[test]
fn exactly_once_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    // The run behind the crash may have another number of threads; a simulated environment has one, and all parts.
    for (before, after) in [(1, 1), (3, 2), (1, 3)] {
        let history = |pool: &Arc<Pool>| {
            run(pool, before).unwrap();
            Ok(())
        };
        let report = check(&options, history, move |pool| verify(pool, after)).unwrap();
        println!("{report:?}");
        assert!(report.states > 100);
    }
}

/// Counts of readings per meter, and of meters per count with the least of them: rows that are taken back.
fn run_running(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(5));
    let source =
        GeneratorSource::new(reading_columns(), |n| (n < READINGS).then(|| random_reading(5, n, 4, 0)));
    let readings = topology.source("s", source);
    let running = |groups: Vec<usize>, aggregates: Vec<Aggregate>, table: &str| RunningGroups {
        groups,
        aggregates,
        state_table: table.to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: 2,
    };
    let meter = readings.column("meter").unwrap();
    let counts = readings.running(running(vec![meter], vec![Aggregate::count()], "meters"));
    counts.to_table(ToTable::upsert("counts").key(&["meter"]));
    let spread = [Aggregate::count().named("meters"), Aggregate::min("meter"), Aggregate::sum("meter")];
    let of_counts = counts.running(running(vec![1], spread.to_vec(), "spreads"));
    of_counts.to_table(ToTable::upsert("spread").key(&["count"]));
    topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn verify_running(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = run_running(pool)?;
    let (mut counts, mut spread) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..READINGS {
        let reading = random_reading(5, n, 4, 0);
        let Value::Int(meter) = reading[0] else { return Err(format!("meter {}", reading[0])) };
        *counts.entry(meter).or_insert(0_i64) += 1;
    }
    for (meter, count) in &counts {
        let (meters, least, sum) = spread.entry(*count).or_insert((0_i64, *meter, 0_i64));
        (*meters, *least, *sum) = (*meters + 1, (*least).min(*meter), *sum + i64::from(*meter));
    }
    let counts: Vec<Tuple> =
        counts.iter().map(|(meter, count)| vec![Value::Int(*meter), Value::BigInt(*count)]).collect();
    if rows(&catalog, "counts") != counts {
        return Err(format!("counts {:?}", rows(&catalog, "counts")));
    }
    let spread: Vec<Tuple> = spread
        .iter()
        .map(|(count, (meters, least, sum))| {
            vec![Value::BigInt(*count), Value::BigInt(*meters), Value::Int(*least), Value::BigInt(*sum)]
        })
        .collect();
    if rows(&catalog, "spread") != spread {
        return Err(format!("spread {:?}", rows(&catalog, "spread")));
    }
    let values: i64 = rows(&catalog, "spreads_values")
        .iter()
        .map(|row| if let Some(Value::BigInt(number)) = row.last() { *number } else { i64::MIN })
        .sum();
    if values == counts.len() as i64 { Ok(()) } else { Err(format!("{values} values are stored")) }
}

#[test]
fn rows_that_are_taken_back_count_once_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = |pool: &Arc<Pool>| {
        run_running(pool).unwrap();
        Ok(())
    };
    let report = check(&options, history, verify_running).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}
