//! Rows with a key that their source writes and deletes: targets and aggregates are those of the rows that are there.

use crate::support::*;
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Aggregate, Boundary, DELETED, GeneratorSource, RunningGroups, ToTable, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 7;

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::Int).not_null(),
        Column::new("place", DataType::Int),
        Column::new("v", DataType::BigInt),
        Column::new(DELETED, DataType::Boolean).not_null(),
    ]
}

/// The n-th event: a row is written, again perhaps as it is, or deleted, perhaps one that is not there.
fn event(seed: u64, n: u64) -> Tuple {
    let mut random = Random(seed ^ n.wrapping_mul(0xA076_1D64_78BD_642F));
    let id = Value::Int(random.below(KEYS) as i32);
    if random.below(3) == 0 {
        return vec![id, Value::Null, Value::Null, Value::Boolean(true)];
    }
    let (place, v) = (Value::Int(random.below(3) as i32), Value::BigInt(random.below(4) as i64));
    vec![id, place, v, Value::Boolean(false)]
}

/// Rows that are there behind so many events.
fn rows_after(seed: u64, events: u64) -> BTreeMap<i32, (i32, i64)> {
    let mut rows = BTreeMap::new();
    for n in 0..events {
        match event(seed, n).as_slice() {
            [Value::Int(id), Value::Int(place), Value::BigInt(v), _] => drop(rows.insert(*id, (*place, *v))),
            [Value::Int(id), ..] => drop(rows.remove(id)),
            other => panic!("{other:?}"),
        }
    }
    rows
}

fn run(catalog: &Arc<Catalog>, seed: u64, events: u64, tuples: usize) -> Result<(), String> {
    let topology =
        Topology::builder("t", catalog).boundary(Boundary::Every(tuples)).durability(Durability::Sync);
    let source = GeneratorSource::new(columns(), move |n| (n < events).then(|| event(seed, n)));
    let rows = topology.source("s", source).keyed_rows(DELETED, &["id".to_owned()], "rows_of_s");
    rows.to_table(ToTable::upsert("target"));
    let odd = rows.filter_by(|rows: &arrow_array::RecordBatch| {
        use arrow_array::cast::AsArray;
        let v = rows.column(2).as_primitive::<arrow_array::types::Int64Type>();
        let odd: arrow_array::BooleanArray = v.iter().map(|v| Some(v.unwrap_or(0) % 2 == 1)).collect();
        Ok(Arc::new(odd) as arrow_array::ArrayRef)
    });
    odd.to_table(ToTable::upsert("odd"));
    let groups = RunningGroups {
        groups: vec![1],
        aggregates: vec![Aggregate::count(), Aggregate::sum("v"), Aggregate::min("v")],
        state_table: "places".to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: 2,
    };
    rows.running(groups).to_table(ToTable::upsert("by_place"));
    topology.build().and_then(|topology| topology.run()).map(drop).map_err(|error| error.to_string())
}

fn verify(catalog: &Catalog, seed: u64, events: u64) -> Result<(), String> {
    let wanted = rows_after(seed, events);
    let row =
        |(id, (place, v)): (&i32, &(i32, i64))| vec![Value::Int(*id), Value::Int(*place), Value::BigInt(*v)];
    let all: Vec<Tuple> = wanted.iter().map(row).collect();
    let odd: Vec<Tuple> = wanted.iter().filter(|(_, (_, v))| v % 2 == 1).map(row).collect();
    let mut places = BTreeMap::new();
    for (place, v) in wanted.values() {
        let (count, sum, least) = places.entry(*place).or_insert((0_i64, 0_i64, i64::MAX));
        (*count, *sum, *least) = (*count + 1, *sum + v, (*least).min(*v));
    }
    let by_place: Vec<Tuple> = places
        .iter()
        .map(|(place, (count, sum, least))| {
            vec![Value::Int(*place), Value::BigInt(*count), Value::BigInt(*sum), Value::BigInt(*least)]
        })
        .collect();
    for (table, wanted) in [("target", &all), ("rows_of_s", &all), ("odd", &odd), ("by_place", &by_place)] {
        let found = rows(catalog, table);
        if found != *wanted {
            return Err(format!("{table}: {found:?}, not {wanted:?}"));
        }
    }
    Ok(())
}

#[test]
fn targets_have_the_rows_that_are_there_in_transactions_of_any_length() {
    let seed = seed();
    for (number, tuples) in (0..).zip([1, 2, 5, 37, 1000, 1, 3, 11, 64, 100]) {
        let catalog = volatile();
        let (seed, events) = (seed ^ number, 300 + 17 * number);
        run(&catalog, seed, events, tuples).unwrap();
        verify(&catalog, seed, events).unwrap();
    }
}

#[test]
fn rows_go_on_where_they_were_in_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    for events in [10, 11, 40, 90] {
        let catalog = journal(directory.path());
        run(&catalog, 3, events, 4).unwrap();
        verify(&catalog, 3, events).unwrap();
    }
}

/// Remains of a power failure: running on gives the rows of one run, of which no change counts half or twice.
#[test]
fn rows_and_their_sums_are_together_after_a_power_failure() {
    const EVENTS: u64 = 12;
    let open = |pool: &Arc<Pool>| -> Result<Arc<Catalog>, String> {
        let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
        Catalog::open_or_create(context).map_err(|error| error.to_string())
    };
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = move |pool: &Arc<Pool>| {
        run(&open(pool).unwrap(), 5, EVENTS, 5).unwrap();
        Ok(())
    };
    let verified = move |pool: &Arc<Pool>| {
        let catalog = open(pool)?;
        run(&catalog, 5, EVENTS, 5)?;
        verify(&catalog, 5, EVENTS)
    };
    let report = check(&options, history, verified).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

#[test]
fn what_cannot_take_rows_back_is_refused() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(columns(), |_| None);
    let rows = topology.source("s", source).keyed_rows(DELETED, &["id".to_owned()], "rows_of_s");
    rows.map(vec![Column::new("id", DataType::Int)], |tuple| tuple[..1].to_vec()).to_table("a");
    let error = topology.build().err().unwrap().to_string();
    assert!(error.contains("over a stream whose tuples are taken back"), "{error}");
    for (key, reason) in [("nothing", "the stream has no column nothing"), ("place", "")] {
        let topology = Topology::builder("u", &catalog);
        let source = GeneratorSource::new(columns(), |_| None);
        topology.source("s", source).keyed_rows(DELETED, &[key.to_owned()], "rows_of_u").to_table("b");
        match topology.build() {
            Err(error) => assert!(!reason.is_empty() && error.to_string().contains(reason), "{error}"),
            Ok(_) => assert!(reason.is_empty()),
        }
    }
}
