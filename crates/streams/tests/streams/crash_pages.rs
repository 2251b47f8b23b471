//! Windows in pages under power failures: whatever a crash leaves is of one commit, and running again gives the result of one
//! run, in the same form or the other.

use crate::support::*;
use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check};
use entresol_streams::{
    Aggregate, Boundary, GeneratorSource, StateForm, TimeWindow, ToTable, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Row, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const READINGS: u64 = 24;

/// Columns of readings with a name that is so long that few groups fill a page.
fn named_columns() -> Vec<Column> {
    vec![
        Column::new("name", DataType::Varchar).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double),
    ]
}

fn named_reading(n: u64) -> Tuple {
    let mut tuple = random_reading(5, n, 9, 0);
    let Value::Int(meter) = tuple[0] else { unreachable!("a reading has a meter") };
    tuple[0] = Value::from(format!("{:a<900}", meter).as_str());
    tuple
}

/// Counts of long names in windows, of which each commit writes pages, or rows; some transactions change the form.
fn run_paged(pool: &Arc<Pool>, (form, threads): (StateForm, usize)) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(4)).parallelism(threads);
    let source = GeneratorSource::new(named_columns(), |n| (n < READINGS).then(|| named_reading(n)));
    let windows = topology.source("s", source).window(TimeWindow::tumbling("at", Duration::from_secs(16)));
    windows
        .group_by(&["name"])
        .state_form(form)
        .aggregate(&[Aggregate::count(), Aggregate::max("power")], "open")
        .to_table(ToTable::insert("windows"));
    topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn verify_paged(pool: &Arc<Pool>, after: (StateForm, usize)) -> Result<(), String> {
    // What the crash has left is rows of one commit, for all readers.
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
    let is_there = |table: &str| catalog.table(table).is_ok();
    if is_there("open") && is_there("windows") && is_there("streams_positions") {
        let count = |row: &Row| {
            if let Some(Value::BigInt(count)) = row.iter().find(|value| matches!(value, Value::BigInt(_))) {
                *count
            } else {
                0
            }
        };
        let of = |table: &str| rows(&catalog, table).iter().map(count).sum::<i64>();
        let position = rows(&catalog, "streams_positions")
            .first()
            .map_or(0, |row| if let Value::BigInt(n) = row[2] { n } else { -1 });
        if of("open") + of("windows") != position {
            return Err(format!("{} and {} of {position} readings", of("open"), of("windows")));
        }
    }
    drop(catalog);
    let catalog = run_paged(pool, after)?;
    let mut expected = BTreeMap::new();
    for n in 0..READINGS {
        let reading = named_reading(n);
        let Value::Timestamp(at) = reading[1] else { return Err("no time".to_owned()) };
        *expected.entry((at.div_euclid(16 * SECOND_US), reading[0].to_string())).or_insert(0_i64) += 1;
    }
    let found: BTreeMap<(i64, String), i64> = rows(&catalog, "windows")
        .iter()
        .map(|row| match (&row[0], &row[1], &row[3]) {
            (name, Value::Timestamp(start), Value::BigInt(count)) => {
                ((start.div_euclid(16 * SECOND_US), name.to_string()), *count)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    if found != expected {
        return Err(format!("{} windows of {}", found.len(), expected.len()));
    }
    if rows(&catalog, "open").is_empty() { Ok(()) } else { Err("open windows are left".to_owned()) }
}

#[test]
fn pages_of_groups_are_those_of_a_commit_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    for (before, after) in [
        (StateForm::Pages, (StateForm::Pages, 1)),
        (StateForm::Pages, (StateForm::Rows, 1)),
        (StateForm::Rows, (StateForm::Pages, 1)),
        (StateForm::Pages, (StateForm::Pages, 3)),
    ] {
        let history = |pool: &Arc<Pool>| {
            run_paged(pool, (before, 1)).unwrap();
            Ok(())
        };
        let report = check(&options, history, move |pool| verify_paged(pool, after)).unwrap();
        println!("{report:?}");
        assert!(report.states > 100);
    }
}
