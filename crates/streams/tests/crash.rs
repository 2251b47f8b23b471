//! A topology under power failures: after any crash, running it again gives the result of one run.
#![allow(clippy::unwrap_used)]

mod support;

use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check};
use entresol_streams::{Aggregate, Boundary, GeneratorSource, TimeWindow, ToTable, Topology, Trigger, Tuple};
use entresol_tables::{Catalog, Value};
use entresol_transactions::StateContext;
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
