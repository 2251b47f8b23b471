//! Sessions of rows that change: at each commit they are those of the rows that are there, over restarts and power
//! failures.

use crate::support::*;
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Aggregate, Boundary, ChangingSessions, DELETED, GeneratorSource, RunningGroups, ToTable, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 9;
const GAP_US: i64 = 10;

/// Rows by their id: the place, which is a group and may be NULL, and the time, which may be too.
type Rows = BTreeMap<i32, (Option<i32>, Option<i64>)>;

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::Int).not_null(),
        Column::new("place", DataType::Int),
        Column::new("at", DataType::Timestamp),
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
    let place = random.below(3) as i32;
    let place = if place == 2 { Value::Null } else { Value::Int(place) };
    let at = random.below(9) as i64;
    let at = if at == 8 { Value::Null } else { Value::Timestamp(at * 4) };
    vec![id, place, at, Value::Boolean(false)]
}

fn rows_after(seed: u64, events: u64) -> Rows {
    let mut rows = BTreeMap::new();
    for n in 0..events {
        match event(seed, n).as_slice() {
            [Value::Int(id), _, _, Value::Boolean(true)] => drop(rows.remove(id)),
            [Value::Int(id), place, at, _] => {
                let place = if let Value::Int(place) = place { Some(*place) } else { None };
                let at = if let Value::Timestamp(at) = at { Some(*at) } else { None };
                rows.insert(*id, (place, at));
            }
            other => panic!("{other:?}"),
        }
    }
    rows
}

fn run(catalog: &Arc<Catalog>, seed: u64, events: u64, tuples: usize) -> Result<(), String> {
    let topology =
        Topology::builder("t", catalog).boundary(Boundary::Every(tuples)).durability(Durability::Sync);
    let source = GeneratorSource::new(columns(), move |n| (n < events).then(|| event(seed, n)));
    let rows = topology.source("a", source).keyed_rows(DELETED, &["id".to_owned()], "rows");
    let rows = rows.select(&["at", "id", "place"]);
    let sessions = |groups: &[usize], state_table: &str| ChangingSessions {
        groups: groups.to_vec(),
        gap: Duration::from_micros(GAP_US as u64),
        state_table: state_table.to_owned(),
        groups_in_dram: 1,
    };
    let of_each = rows.sessions_of_changes(sessions(&[2], "of_places"));
    of_each
        .select(&["id", "place", "window_start", "window_end"])
        .to_table(ToTable::upsert("placed").key(&["id"]));
    // All rows together, of which the sessions are counted.
    let timed = rows.filter_by(has_time);
    let all = timed.sessions_of_changes(sessions(&[], "of_all")).running(RunningGroups {
        groups: vec![3],
        aggregates: vec![Aggregate::count(), Aggregate::min("id"), Aggregate::max("window_end")],
        state_table: "counts".to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: 2,
    });
    all.to_table(ToTable::upsert("sessions").key(&["window_start"]));
    topology.build().and_then(|topology| topology.run()).map(drop).map_err(|error| error.to_string())
}

fn has_time(rows: &arrow_array::RecordBatch) -> Result<arrow_array::ArrayRef, String> {
    use arrow_array::Array;
    let times = rows.column(0);
    let there = (0..rows.num_rows()).map(|row| Some(times.is_valid(row)));
    Ok(Arc::new(there.collect::<arrow_array::BooleanArray>()))
}

/// Sessions of times: the edges for each of them.
fn sessions_of(times: impl Iterator<Item = i64>) -> BTreeMap<i64, (i64, i64)> {
    let mut sorted: Vec<i64> = times.collect();
    sorted.sort_unstable();
    let (mut found, mut begin) = (BTreeMap::new(), 0);
    for at in 0..sorted.len() {
        if sorted.get(at + 1).is_none_or(|next| next - sorted[at] >= GAP_US) {
            let edges = (sorted[begin], sorted[at] + GAP_US);
            found.extend(sorted[begin..=at].iter().map(|time| (*time, edges)));
            begin = at + 1;
        }
    }
    found
}

fn verify(catalog: &Catalog, seed: u64, events: u64) -> Result<(), String> {
    let there = rows_after(seed, events);
    let int = |value: Option<i32>| value.map_or(Value::Null, Value::Int);
    let mut placed = Vec::new();
    for (id, (place, at)) in &there {
        let of_place = there.values().filter(|(other, _)| other == place).filter_map(|(_, at)| *at);
        let edges = at.map(|at| sessions_of(of_place)[&at]);
        let edge = |edge: Option<i64>| edge.map_or(Value::Null, Value::Timestamp);
        let (start, end) = (edges.map(|edges| edges.0), edges.map(|edges| edges.1));
        placed.push(vec![Value::Int(*id), int(*place), edge(start), edge(end)]);
    }
    let all = sessions_of(there.values().filter_map(|(_, at)| *at));
    let mut counted: BTreeMap<(i64, i64), (i64, i32)> = BTreeMap::new();
    for (id, (_, at)) in &there {
        let Some(at) = at else { continue };
        let counts = counted.entry(all[at]).or_insert((0, *id));
        *counts = (counts.0 + 1, counts.1.min(*id));
    }
    let counted = counted.into_iter().map(|((start, end), (count, id))| {
        vec![Value::Timestamp(start), Value::BigInt(count), Value::Int(id), Value::Timestamp(end)]
    });
    let counted: Vec<Tuple> = counted.collect();
    for (table, wanted) in [("placed", &placed), ("sessions", &counted)] {
        let found = rows(catalog, table);
        if found != *wanted {
            return Err(format!("{table}: {found:?}, not {wanted:?}"));
        }
    }
    let kept: i64 = rows(catalog, "of_places")
        .iter()
        .map(|row| if let Value::BigInt(count) = row[3] { count } else { i64::MIN })
        .sum();
    let timed = there.values().filter(|(_, at)| at.is_some()).count() as i64;
    if kept == timed { Ok(()) } else { Err(format!("{kept} rows are kept, not {timed}")) }
}

#[test]
fn sessions_are_those_of_the_rows_that_are_there_in_transactions_of_any_length() {
    let seed = seed();
    for (number, tuples) in (0..).zip([1, 2, 5, 37, 1000, 1, 3, 11, 64, 100]) {
        let catalog = volatile();
        let (seed, events) = (seed ^ number, 200 + 17 * number);
        run(&catalog, seed, events, tuples).unwrap();
        verify(&catalog, seed, events).unwrap();
    }
}

#[test]
fn rows_of_sessions_are_there_in_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    for events in [1, 10, 11, 40, 90] {
        let catalog = journal(directory.path());
        run(&catalog, 3, events, 4).unwrap();
        verify(&catalog, 3, events).unwrap();
    }
}

/// Remains of a power failure: running on gives the sessions of one run.
#[test]
fn sessions_and_their_rows_are_together_after_a_power_failure() {
    const EVENTS: u64 = 9;
    let open = |pool: &Arc<Pool>| -> Result<Arc<Catalog>, String> {
        let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
        Catalog::open_or_create(context).map_err(|error| error.to_string())
    };
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = move |pool: &Arc<Pool>| {
        run(&open(pool).unwrap(), 5, EVENTS, 6).unwrap();
        Ok(())
    };
    let verified = move |pool: &Arc<Pool>| {
        let catalog = open(pool)?;
        run(&catalog, 5, EVENTS, 6)?;
        verify(&catalog, 5, EVENTS)
    };
    let report = check(&options, history, verified).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

#[test]
fn sessions_without_a_time_or_a_gap_are_refused() {
    let catalog = volatile();
    for (columns, groups, gap_us, reason) in [
        (["id", "at", "place"], vec![2], 10, "the first column, id, is not a TIMESTAMP"),
        (["at", "id", "place"], vec![3], 10, "a column of the groups is not in the stream"),
        (["at", "id", "place"], vec![1], 0, "the gap is not a time"),
    ] {
        let topology = Topology::builder("t", &catalog);
        let source = GeneratorSource::new(self::columns(), |_| None);
        let rows = topology.source("a", source).keyed_rows(DELETED, &["id".to_owned()], "rows");
        let gap = Duration::from_micros(gap_us);
        let state_table = "x".to_owned();
        rows.select(&columns).sessions_of_changes(ChangingSessions {
            groups,
            gap,
            state_table,
            groups_in_dram: 1,
        });
        let error = topology.build().err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
