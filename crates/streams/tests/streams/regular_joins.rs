//! Regular joins of streams whose rows change: at each commit they are the joins of the rows that are there, over
//! restarts and power failures.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Aggregate, Boundary, ColumnExpression, DELETED, Expression, GeneratorSource, RegularJoin, RunningGroups,
    Stream, ToTable, Topology, TopologyBuilder, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 7;
/// Seeds of the events of the sides.
const SEEDS: [u64; 2] = [0x11, 0x2222];

/// Row of a side by its id: the place that is joined, which may be NULL, and a number.
type SideRows = BTreeMap<i32, (Option<i32>, i64)>;

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::Int).not_null(),
        Column::new("place", DataType::Int),
        Column::new("v", DataType::BigInt),
        Column::new(DELETED, DataType::Boolean).not_null(),
    ]
}

/// The n-th event of a side: a row is written, again perhaps as it is, or deleted, perhaps one that is not there.
fn event(seed: u64, n: u64) -> Tuple {
    let mut random = Random(seed ^ n.wrapping_mul(0xA076_1D64_78BD_642F));
    let id = Value::Int(random.below(KEYS) as i32);
    if random.below(3) == 0 {
        return vec![id, Value::Null, Value::Null, Value::Boolean(true)];
    }
    let place = random.below(4) as i32;
    let place = if place == 3 { Value::Null } else { Value::Int(place) };
    vec![id, place, Value::BigInt(random.below(4) as i64), Value::Boolean(false)]
}

/// Rows that are there behind so many events.
fn rows_after(seed: u64, events: u64) -> SideRows {
    let mut rows = BTreeMap::new();
    for n in 0..events {
        match event(seed, n).as_slice() {
            [Value::Int(id), _, _, Value::Boolean(true)] => rows.remove(id),
            [Value::Int(id), Value::Int(place), Value::BigInt(v), _] => rows.insert(*id, (Some(*place), *v)),
            [Value::Int(id), Value::Null, Value::BigInt(v), _] => rows.insert(*id, (None, *v)),
            other => panic!("{other:?}"),
        };
    }
    rows
}

/// Rows of a side, which its source changes.
fn side(topology: &TopologyBuilder, name: &str, seed: u64, events: u64) -> Stream {
    let source = GeneratorSource::new(columns(), move |n| (n < events).then(|| event(seed, n)));
    topology.source(name, source).keyed_rows(DELETED, &["id".to_owned()], &format!("rows_of_{name}"))
}

const INNER: [bool; 2] = [false; 2];
const LEFT: [bool; 2] = [true, false];
const FULL: [bool; 2] = [true; 2];

fn by_place(preserved: [bool; 2], state_table: &str) -> RegularJoin {
    let place = || vec![Box::new(ColumnExpression(1)) as Box<dyn Expression>];
    RegularJoin {
        preserved,
        state_table: state_table.to_owned(),
        left_keys: place(),
        right_keys: place(),
        condition: None,
        life: None,
        keys_in_dram: 1,
    }
}

fn counted(groups: Vec<usize>, aggregates: Vec<Aggregate>, state_table: &str) -> RunningGroups {
    RunningGroups {
        groups,
        aggregates,
        state_table: state_table.to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: 2,
    }
}

/// True of pairs of which the numbers differ.
fn differ(rows: &RecordBatch) -> Result<ArrayRef, String> {
    let numbers = |column: usize| rows.column(column).as_primitive::<Int64Type>().iter();
    let differ = numbers(2).zip(numbers(5)).map(|(one, other)| Some(one != other));
    Ok(Arc::new(differ.collect::<BooleanArray>()))
}

/// True of rows with an even id.
fn is_even(rows: &RecordBatch) -> Result<ArrayRef, String> {
    let ids = rows.column(0).as_primitive::<Int32Type>().values().iter();
    Ok(Arc::new(ids.map(|id| Some(id % 2 == 0)).collect::<BooleanArray>()))
}

/// True of rows of which a column is there, or is not.
fn has(rows: &RecordBatch, column: usize, is_there: bool) -> Result<ArrayRef, String> {
    let column = rows.column(column);
    let found = (0..rows.num_rows()).map(|row| Some(column.is_valid(row) == is_there));
    Ok(Arc::new(found.collect::<BooleanArray>()))
}

/// Outer joins with a condition, and of both sides.
fn outer_joins(left: &Stream, right: &Stream, partners: &[Aggregate]) {
    let condition = || Some(Box::new(differ) as Box<dyn Expression>);
    let some = left.regular_join(right, RegularJoin { condition: condition(), ..by_place(LEFT, "some") });
    some.running(counted(vec![0], partners.to_vec(), "some_state"))
        .to_table(ToTable::upsert("some_partners"));
    // Rows of the left side with those that are partners or none, and rows of the right side that have none.
    let full = left.regular_join(right, RegularJoin { condition: condition(), ..by_place(FULL, "full") });
    let with_left = full.filter_by(|rows: &RecordBatch| has(rows, 0, true));
    let of_left = with_left.running(counted(vec![0], partners.to_vec(), "full_state"));
    of_left.to_table(ToTable::upsert("full_partners"));
    let without_left = full.filter_by(|rows: &RecordBatch| has(rows, 0, false));
    let rest = counted(vec![3], vec![Aggregate::count(), Aggregate::min("b_v")], "rest_state");
    without_left.running(rest).to_table(ToTable::upsert("rest"));
    let every =
        left.regular_join(right, by_place(FULL, "every")).filter_by(|rows: &RecordBatch| has(rows, 0, false));
    let every = every.running(counted(vec![3], vec![Aggregate::count()], "every_state"));
    every.to_table(ToTable::upsert("every_rest"));
}

/// Joins of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Some,
    All,
}

fn run(catalog: &Arc<Catalog>, seed: u64, events: u64, tuples: usize, kinds: Kinds) -> Result<(), String> {
    let topology =
        Topology::builder("t", catalog).boundary(Boundary::Every(tuples)).durability(Durability::Sync);
    let left = side(&topology, "a", seed ^ SEEDS[0], events);
    let right = side(&topology, "b", seed ^ SEEDS[1], events);
    let right = right.rename("id", "b_id").rename("place", "b_place").rename("v", "b_v");
    let condition = Some(Box::new(differ) as Box<dyn Expression>);
    let pairs = left.regular_join(&right, RegularJoin { condition, ..by_place(INNER, "inner") });
    pairs.select(&["id", "b_id", "v", "b_v"]).to_table(ToTable::upsert("pairs").key(&["id", "b_id"]));
    let outer = left.regular_join(&right, by_place(LEFT, "outer"));
    let partners = [Aggregate::count().named("rows"), Aggregate::count_of("b_id"), Aggregate::min("b_v")];
    outer.running(counted(vec![0], partners.to_vec(), "outer_state")).to_table(ToTable::upsert("partners"));
    if kinds == Kinds::All {
        outer_joins(&left, &right, &partners);
    }
    // Both inputs of a join are one stream, of which rows with equal numbers are equal.
    let own = left.filter_by(is_even).select(&["place", "v"]);
    let own_keys = || vec![Box::new(ColumnExpression(0)) as Box<dyn Expression>];
    let squares = own.regular_join(
        &own,
        RegularJoin { left_keys: own_keys(), right_keys: own_keys(), ..by_place(INNER, "own") },
    );
    let squares = squares.running(counted(vec![0], vec![Aggregate::count()], "squares_state"));
    squares.to_table(ToTable::upsert("squares"));
    topology.build().and_then(|topology| topology.run()).map(drop).map_err(|error| error.to_string())
}

fn verify(catalog: &Catalog, seed: u64, events: u64, kinds: Kinds) -> Result<(), String> {
    let [left, right] = SEEDS.map(|side| rows_after(seed ^ side, events));
    let (mut pairs, mut partners, mut some) = (Vec::new(), Vec::new(), Vec::new());
    for (id, (place, v)) in &left {
        let of_row: Vec<(&i32, i64)> = right
            .iter()
            .filter(|(_, (other, _))| place.is_some() && place == other)
            .map(|(id, (_, v))| (id, *v))
            .collect();
        let differing = of_row.iter().filter(|(_, other)| v != other);
        let (number, least) = (differing.clone().count() as i64, differing.clone().map(|(_, v)| *v).min());
        let least = least.map_or(Value::Null, Value::BigInt);
        some.push(vec![Value::Int(*id), Value::BigInt(number.max(1)), Value::BigInt(number), least]);
        pairs.extend(differing.map(|(other, b_v)| {
            vec![Value::Int(*id), Value::Int(**other), Value::BigInt(*v), Value::BigInt(*b_v)]
        }));
        let count = of_row.len() as i64;
        let least = of_row.iter().map(|(_, v)| *v).min().map_or(Value::Null, Value::BigInt);
        partners.push(vec![Value::Int(*id), Value::BigInt(count.max(1)), Value::BigInt(count), least]);
    }
    let is_alone = |place: Option<i32>, v: i64, differs: bool| {
        let of_place = left.values().filter(|(other, _)| place.is_some() && *other == place);
        !of_place.into_iter().any(|(_, other)| !differs || *other != v)
    };
    let alone = |differs: bool| {
        right
            .iter()
            .filter(move |(_, (place, v))| is_alone(*place, *v, differs))
            .map(|(id, (_, v))| (*id, *v))
    };
    let one = |(id, v): (i32, i64)| vec![Value::Int(id), Value::BigInt(1), Value::BigInt(v)];
    let rest: Vec<Tuple> = alone(true).map(one).collect();
    let every: Vec<Tuple> = alone(false).map(|(id, _)| vec![Value::Int(id), Value::BigInt(1)]).collect();
    let mut places: BTreeMap<i32, i64> = BTreeMap::new();
    let even = left.iter().filter(|(id, _)| *id % 2 == 0);
    even.filter_map(|(_, (place, _))| *place).for_each(|place| *places.entry(place).or_insert(0) += 1);
    let squares: Vec<Tuple> =
        places.iter().map(|(place, rows)| vec![Value::Int(*place), Value::BigInt(rows * rows)]).collect();
    for (table, wanted) in [
        ("pairs", &pairs),
        ("partners", &partners),
        ("some_partners", &some),
        ("full_partners", &some),
        ("rest", &rest),
        ("every_rest", &every),
        ("squares", &squares),
    ] {
        let is_of_all = ["some_partners", "full_partners", "rest", "every_rest"].contains(&table);
        if is_of_all && kinds == Kinds::Some {
            continue;
        }
        let found = rows(catalog, table);
        if found != *wanted {
            return Err(format!("{table}: {found:?}, not {wanted:?}"));
        }
    }
    let with_place = |rows: &SideRows| rows.values().filter(|(place, _)| place.is_some()).count();
    for state in ["inner", "outer"] {
        let found = rows(catalog, state);
        if found.len() != with_place(&left) + with_place(&right) {
            return Err(format!("{state}: {found:?}"));
        }
    }
    let counts: i64 = rows(catalog, "own")
        .iter()
        .map(|row| if let Value::BigInt(count) = row[3] { count } else { i64::MIN })
        .sum();
    let wanted = 2 * places.values().sum::<i64>();
    if counts == wanted {
        Ok(())
    } else {
        Err(format!("{counts} rows of the join with itself, not {wanted}"))
    }
}

#[test]
fn joins_are_those_of_the_rows_that_are_there_in_transactions_of_any_length() {
    let seed = seed();
    for (number, tuples) in (0..).zip([1, 2, 5, 37, 1000, 1, 3, 11, 64, 100]) {
        let catalog = volatile();
        let (seed, events) = (seed ^ number, 200 + 17 * number);
        run(&catalog, seed, events, tuples, Kinds::All).unwrap();
        verify(&catalog, seed, events, Kinds::All).unwrap();
    }
}

#[test]
fn rows_of_both_sides_are_there_in_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    for events in [1, 10, 11, 40, 90] {
        let catalog = journal(directory.path());
        run(&catalog, 3, events, 4, Kinds::All).unwrap();
        verify(&catalog, 3, events, Kinds::All).unwrap();
    }
}

/// Remains of a power failure: running on gives the rows of one run, and the pairs of these.
#[test]
fn pairs_and_the_rows_of_both_sides_are_together_after_a_power_failure() {
    const EVENTS: u64 = 9;
    let open = |pool: &Arc<Pool>| -> Result<Arc<Catalog>, String> {
        let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
        Catalog::open_or_create(context).map_err(|error| error.to_string())
    };
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = move |pool: &Arc<Pool>| {
        run(&open(pool).unwrap(), 5, EVENTS, 6, Kinds::Some).unwrap();
        Ok(())
    };
    let verified = move |pool: &Arc<Pool>| {
        let catalog = open(pool)?;
        run(&catalog, 5, EVENTS, 6, Kinds::Some)?;
        verify(&catalog, 5, EVENTS, Kinds::Some)
    };
    let report = check(&options, history, verified).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

#[test]
fn joins_without_keys_are_refused() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog);
    let (left, right) = (side(&topology, "a", 1, 0), side(&topology, "b", 2, 0));
    left.regular_join(&right, RegularJoin { left_keys: Vec::new(), ..by_place(INNER, "x") });
    let error = topology.build().err().unwrap().to_string();
    assert!(error.contains("different numbers of them"), "{error}");
}
