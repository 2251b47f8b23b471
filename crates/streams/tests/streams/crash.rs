//! A topology under power failures: after any crash, running it again gives the result of one run.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch};
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Aggregate, Boundary, ColumnExpression, Error, FrameBound, GeneratorSource, JoinKind, MergeInto, OnError,
    RankChanges, RankEmission, RankFunction, RankOrder, Ranking, RowFrame, RowFunction, RowFunctionKind,
    RowWindows, RunningGroups, Stream, TimeWindow, ToTable, Topology, Trigger, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Schema, TableOptions, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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

/// Creates a table of meters with the numbers of some of them, if it is not there.
fn create_numbers(
    catalog: &Catalog,
    table: &str,
    numbers: impl Iterator<Item = (i32, i64)>,
) -> Result<(), String> {
    let columns = vec![
        Column::new("meter", DataType::Int).not_null(),
        Column::new(if table == "factors" { "factor" } else { "n" }, DataType::BigInt),
    ];
    if catalog.table(table).is_ok_and(|_| !rows(catalog, table).is_empty()) {
        return Ok(());
    }
    let text = |error: entresol_tables::Error| error.to_string();
    let schema = Schema::new(columns, &["meter"]).map_err(text)?;
    let if_missing = TableOptions { if_not_exists: true, ..TableOptions::default() };
    catalog.create_table(table, schema, if_missing).map_err(text)?;
    let stored = catalog.table(table).map_err(text)?;
    let transaction = catalog.begin().map_err(text)?;
    for (meter, number) in numbers {
        stored.upsert(&transaction, &[Value::Int(meter), Value::BigInt(number)]).map_err(text)?;
    }
    transaction.commit(Durability::Sync).map_err(|error| error.to_string())?;
    Ok(())
}

/// Ranks counts that change, joins them with a table, and merges them into another.
fn follow_counts(counts: &Stream) {
    let by_count = RankOrder { column: 1, descending: true, nulls_first: false };
    let by_meter = RankOrder { column: 0, descending: false, nulls_first: false };
    let ranked = counts.rank(Ranking {
        function: RankFunction::RowNumber,
        partition: Vec::new(),
        order: vec![by_count, by_meter],
        limit: Some(2),
        changes: RankChanges::OfRanks,
        emission: RankEmission::Commit,
        rank_column: "place".to_owned(),
        state_table: "ranked".to_owned(),
        late: None,
        partitions_in_dram: 1,
    });
    ranked.to_table(ToTable::upsert("first").key(&["place"]));
    let joined = counts.lookup_join_all("factors", &["meter"], JoinKind::Inner, Some("sent"));
    joined.running(counted(vec![3], None, "factors_state")).to_table(ToTable::upsert("factored"));
    let number = |rows: &RecordBatch, at: usize, row: usize| {
        let numbers = rows.column(at).as_primitive::<Int64Type>();
        if numbers.is_null(row) { 0 } else { numbers.value(row) }
    };
    counts.merge_into(MergeInto {
        inserts: Vec::new(),
        rules: None,
        table: "merged".to_owned(),
        on: vec!["meter".to_owned()],
        action: Box::new(|rows: &RecordBatch| -> Result<ArrayRef, String> {
            Ok(Arc::new(Int32Array::from(vec![MergeInto::WRITE; rows.num_rows()])))
        }),
        state_table: Some("before".to_owned()),
        values: vec![
            Box::new(ColumnExpression(0)),
            Box::new(move |rows: &RecordBatch| -> Result<ArrayRef, String> {
                let sum = |row| number(rows, 1, row) + number(rows, 3, row);
                Ok(Arc::new(Int64Array::from_iter_values((0..rows.num_rows()).map(sum))))
            }),
        ],
    });
}

/// Compares what [`follow_counts`] has made with the counts of meters.
fn verify_followed(catalog: &Catalog, counts: &BTreeMap<i32, i64>) -> Result<(), String> {
    let mut ranked: Vec<(i64, i32)> = counts.iter().map(|(meter, count)| (-count, *meter)).collect();
    ranked.sort_unstable();
    let ranked = ranked.into_iter().zip(1..).take(2);
    let ranked = ranked
        .map(|((count, meter), place)| vec![Value::BigInt(place), Value::Int(meter), Value::BigInt(-count)]);
    let mut factored = BTreeMap::new();
    counts.keys().for_each(|meter| *factored.entry(factor_of(*meter)).or_insert(0) += 1);
    let factored =
        factored.into_iter().map(|(factor, meters)| vec![Value::BigInt(factor), Value::BigInt(meters)]);
    let mut merged: BTreeMap<i32, i64> = BEFORE.into_iter().collect();
    counts.iter().for_each(|(meter, count)| *merged.entry(*meter).or_insert(0) += count);
    let merged = merged.into_iter().map(|(meter, count)| vec![Value::Int(meter), Value::BigInt(count)]);
    let of_first = |row: Tuple| vec![row[2].clone(), row[0].clone(), row[1].clone()];
    let mut first: Vec<Tuple> = rows(catalog, "first").into_iter().map(of_first).collect();
    first.sort_unstable();
    let wanted: [(&str, Vec<Tuple>, Vec<Tuple>); 3] = [
        ("first", first, ranked.collect()),
        ("factored", rows(catalog, "factored"), factored.collect()),
        ("merged", rows(catalog, "merged"), merged.collect()),
    ];
    for (table, found, wanted) in wanted {
        if found != wanted {
            return Err(format!("{table}: {found:?} in place of {wanted:?}"));
        }
    }
    for state in ["ranked", "sent", "before"] {
        if rows(catalog, state).len() != counts.len() {
            return Err(format!("{state}: {:?}", rows(catalog, state)));
        }
    }
    Ok(())
}

/// Rows of the table that counts are merged into.
const BEFORE: [(i32, i64); 2] = [(1, 100), (9, 200)];

fn factor_of(meter: i32) -> i64 {
    i64::from(10 + meter % 2)
}

/// Counts of readings per meter, and of meters per count with the least of them: rows that are taken back.
fn run_running(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
    create_numbers(&catalog, "factors", (0..4).map(|meter| (meter, factor_of(meter))))?;
    create_numbers(&catalog, "merged", BEFORE.into_iter())?;
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
    follow_counts(&counts);
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
    verify_followed(&catalog, &counts)?;
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

fn catalog_of(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn counted(groups: Vec<usize>, interval: Option<Duration>, table: &str) -> RunningGroups {
    RunningGroups {
        groups,
        aggregates: vec![Aggregate::count()],
        state_table: table.to_owned(),
        life: None,
        interval,
        late: None,
        groups_in_dram: 2,
    }
}

/// Name of the n-th tuple; one is too long for a key.
fn name_of(n: u64) -> Value {
    let name = if n == 13 { "x".repeat(2000) } else { format!("name {}", n % 5) };
    Value::from(name.as_str())
}

/// Counts per name, at commits and in an interval, with a transaction that is dropped as the rows of its groups cannot be
/// read.
fn run_names(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let catalog = catalog_of(pool)?;
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(4)).on_error(OnError::Abort);
    let columns = vec![Column::new("name", DataType::Varchar).not_null()];
    let source = GeneratorSource::new(columns, |n| (n < READINGS).then(|| vec![name_of(n)]));
    let names = topology.source("s", source);
    names.running(counted(vec![0], None, "now")).to_table(ToTable::upsert("counts_now"));
    names.running(counted(vec![0], Some(Duration::ZERO), "later")).to_table(ToTable::upsert("counts_later"));
    topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn verify_names(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = run_names(pool)?;
    let mut counts = BTreeMap::new();
    for n in (0..READINGS).filter(|n| !(12..16).contains(n)) {
        *counts.entry(name_of(n).to_string()).or_insert(0_i64) += 1;
    }
    for table in ["counts_now", "counts_later"] {
        let found: BTreeMap<String, i64> = rows(&catalog, table)
            .iter()
            .map(|row| (row[0].to_string(), if let Value::BigInt(count) = row[1] { count } else { -1 }))
            .collect();
        if found != counts {
            return Err(format!("{table}: {found:?}"));
        }
    }
    Ok(())
}

#[test]
fn results_of_an_interval_and_dropped_transactions_are_right_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = |pool: &Arc<Pool>| {
        run_names(pool).unwrap();
        Ok(())
    };
    let report = check(&options, history, verify_names).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

/// Counts per meter in an interval, of which the target refuses one: the topology ends, each time that it is started.
fn run_refused(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let catalog = catalog_of(pool)?;
    let columns = vec![Column::new("meter", DataType::SmallInt), Column::new("count", DataType::BigInt)];
    let schema = Schema::new(columns, &["meter"]).map_err(|error| error.to_string())?;
    let if_missing = TableOptions { if_not_exists: true, ..TableOptions::default() };
    catalog.create_table("counts", schema, if_missing).map_err(|error| error.to_string())?;
    // From the refused result on, each run commits one transaction more.
    for _ in 0..6 {
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(4)).on_error(OnError::Abort);
        let source = GeneratorSource::new(reading_columns(), |n| {
            (n < READINGS).then(|| reading(if n == 9 { 100_000 } else { (n % 3) as i32 }, n as i64, 0.0))
        });
        let meters = topology.source("s", source).running(counted(vec![0], Some(Duration::ZERO), "meters"));
        meters.to_table(ToTable::upsert("counts"));
        match topology.build().and_then(|topology| topology.run()) {
            Ok(_) => return Err("the target has taken 100000".to_owned()),
            Err(Error::EarlyResultsRefused { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(catalog)
}

fn verify_refused(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = run_refused(pool)?;
    let counts: Vec<Value> = rows(&catalog, "meters").iter().map(|row| row[2].clone()).collect();
    if counts != [7, 8, 8, 1].map(Value::BigInt) {
        return Err(format!("counts {counts:?}"));
    }
    let position = rows(&catalog, "streams_positions")[0][2].clone();
    if position == Value::BigInt(READINGS as i64) { Ok(()) } else { Err(format!("position {position}")) }
}

#[test]
fn a_result_that_is_refused_loses_no_rows_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = |pool: &Arc<Pool>| {
        run_refused(pool).unwrap();
        Ok(())
    };
    let report = check(&options, history, verify_refused).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

const METERS: u64 = 100;
const METERS_LEFT: i32 = 10;

/// Counts meters, deletes the rows of all but the last ones, and counts the last one twice more.
fn run_deleted(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let catalog = catalog_of(pool)?;
    let text = |error: entresol_tables::Error| error.to_string();
    for end in [METERS, METERS + 2] {
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(METERS as usize));
        let source = GeneratorSource::new(reading_columns(), move |n| {
            (n < end).then(|| reading(n.min(METERS - 1) as i32, n as i64, 0.0))
        });
        topology.source("s", source).running(counted(vec![0], None, "meters"));
        topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
        let meters = catalog.table("meters").map_err(text)?;
        let first = METERS as i32 - METERS_LEFT;
        let is_first = |row: &&Tuple| matches!(row[0], Value::Int(meter) if meter < first);
        let keys: Vec<Tuple> =
            rows(&catalog, "meters").iter().filter(is_first).map(|row| row[..2].to_vec()).collect();
        let transaction = catalog.begin().map_err(text)?;
        meters.delete_many(&transaction, &keys).map_err(text)?;
        transaction.commit(Durability::Sync).map_err(|error| error.to_string())?;
    }
    Ok(catalog)
}

fn verify_deleted(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = run_deleted(pool)?;
    let counts: Vec<Value> = rows(&catalog, "meters").iter().map(|row| row[2].clone()).collect();
    let mut expected = vec![Value::BigInt(1); METERS_LEFT as usize];
    expected[METERS_LEFT as usize - 1] = Value::BigInt(3);
    if counts == expected { Ok(()) } else { Err(format!("counts {counts:?}")) }
}

#[test]
fn groups_behind_deleted_keys_go_on_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = |pool: &Arc<Pool>| {
        run_deleted(pool).unwrap();
        Ok(())
    };
    let report = check(&options, history, verify_deleted).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

/// Numbers, first and previous powers of the readings of each meter, out of order by up to 3 seconds.
fn run_over_rows(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let catalog = catalog_of(pool)?;
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(5));
    let source =
        GeneratorSource::new(reading_columns(), |n| (n < READINGS).then(|| random_reading(5, n, 2, 3)));
    let function = |name: &str, kind: RowFunctionKind, data_type: DataType| RowFunction {
        column: Column::new(name, data_type),
        kind,
        arguments: vec![Box::new(ColumnExpression(2))],
        frame: RowFrame { start: FrameBound::Unbounded, end: FrameBound::Rows(0) },
    };
    let lag = RowFunctionKind::Lag { offset: 2, default: None };
    let over = topology.source("s", source).over_rows(RowWindows {
        functions: vec![
            function("n", RowFunctionKind::RowNumber, DataType::BigInt),
            function("first", RowFunctionKind::First, DataType::Double),
            function("before", lag, DataType::Double),
        ],
        partition: vec![0],
        order: vec![RankOrder { column: 1, descending: false, nulls_first: false }],
        time: 1,
        lateness: Duration::from_secs(4),
        future_limit: Duration::MAX,
        state_table: "open".to_owned(),
        late: None,
        partitions_in_dram: 1,
    });
    over.to_table(ToTable::insert("over_rows").key(&["meter", "n"]));
    topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn verify_over_rows(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = run_over_rows(pool)?;
    let mut readings: Vec<Tuple> = (0..READINGS).map(|n| random_reading(5, n, 2, 3)).collect();
    readings.sort_by_key(|row| match (&row[0], &row[1]) {
        (Value::Int(meter), Value::Timestamp(at)) => (*meter, *at),
        other => panic!("{other:?}"),
    });
    let mut wanted: Vec<String> = Vec::new();
    for of_meter in readings.chunk_by(|one, other| one[0] == other[0]) {
        for (at, row) in of_meter.iter().enumerate() {
            let before = at.checked_sub(2).map_or(Value::Null, |before| of_meter[before][2].clone());
            let values = [Value::BigInt(at as i64 + 1), of_meter[0][2].clone(), before];
            wanted.push(format!("{:?}", row.iter().cloned().chain(values).collect::<Tuple>()));
        }
    }
    let mut found: Vec<String> = rows(&catalog, "over_rows").iter().map(|row| format!("{row:?}")).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    if found != wanted {
        return Err(format!("{found:?} in place of {wanted:?}"));
    }
    let open = rows(&catalog, "open").len();
    if open == 4 { Ok(()) } else { Err(format!("{open} rows are open")) }
}

#[test]
fn rows_are_numbered_once_whatever_a_power_failure_leaves() {
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let history = |pool: &Arc<Pool>| {
        run_over_rows(pool).unwrap();
        Ok(())
    };
    let report = check(&options, history, verify_over_rows).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}
