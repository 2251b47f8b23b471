//! Aggregates without windows: their groups over restarts and failed transactions, and results that wait for an interval.

use crate::support::*;
use crossbeam_channel::bounded;
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, Boundary, ChannelSource, ColumnExpression, EARLY_RESULTS_BYTES_MAX, EarlyEmission, Element,
    Error as StreamError, Expression, GROUPS_IN_DRAM_MAX, GeneratorSource, GroupLife, OnError, Punctuation,
    RankChanges, RankEmission, RankFunction, RankOrder, Ranking, Report, RunningGroups, Stream, TimeWindow,
    ToTable, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Modifier, Schema, TableOptions, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Groups by columns of a stream, for ever.
fn groups(groups: Vec<usize>, aggregates: Vec<Aggregate>, state_table: &str) -> RunningGroups {
    RunningGroups {
        groups,
        aggregates,
        state_table: state_table.to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: GROUPS_IN_DRAM_MAX,
    }
}

/// Counts of the tuples of each meter, of readings in this order, into `counts`.
fn count_meters(catalog: &Arc<Catalog>, meters: impl Fn(u64) -> Option<i32> + Send + 'static) -> Report {
    let topology = Topology::builder("t", catalog).boundary(Boundary::Every(1000));
    let source =
        GeneratorSource::new(reading_columns(), move |n| Some(reading(meters(n)?, n as i64, n as f64)));
    let readings = topology.source("s", source);
    readings.running(groups(vec![0], vec![Aggregate::count()], "meters")).to_table("counts");
    let by_power = vec![RankOrder { column: 2, descending: true, nulls_first: false }];
    let ranked = readings.rank(Ranking {
        function: RankFunction::RowNumber,
        partition: vec![0],
        order: by_power,
        limit: Some(1),
        changes: RankChanges::OfRanks,
        emission: RankEmission::Commit,
        rank_column: "place".to_owned(),
        state_table: "greatest".to_owned(),
        late: None,
        partitions_in_dram: GROUPS_IN_DRAM_MAX,
    });
    ranked.to_table(ToTable::upsert("ranked"));
    topology.build().unwrap().run().unwrap()
}

/// The result of an aggregate of all tuples is one row of a table without a key, over runs; a table with one is refused.
#[test]
fn a_single_row_takes_the_place_of_the_one_before() {
    let catalog = volatile();
    let count = |up_to: u64, target: &str| {
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(100));
        let tuples = move |n: u64| (n < up_to).then(|| reading(1, n as i64, n as f64));
        let readings = topology.source("s", GeneratorSource::new(reading_columns(), tuples));
        let all = readings.running(groups(Vec::new(), vec![Aggregate::count()], "all_readings"));
        all.to_table(ToTable::single_row(target));
        topology.build().map(|topology| topology.run().unwrap())
    };
    for up_to in [1000, 2500] {
        count(up_to, "total").unwrap();
        let found: Vec<Value> = rows(&catalog, "total").iter().map(|row| row[0].clone()).collect();
        assert_eq!(found, [Value::BigInt(up_to as i64)]);
    }
    let keyed = Schema::new(vec![Column::new("count", DataType::BigInt)], &["count"]).unwrap();
    catalog.create_table("keyed", keyed, TableOptions::default()).unwrap();
    let refused = count(10, "keyed").unwrap_err().to_string();
    assert!(refused.contains("table keyed has a key"), "{refused}");
}

/// The first leaf of an index may have only keys of deleted rows: a batch of a scan has no row then, and others follow.
#[test]
fn groups_behind_deleted_keys_go_on() {
    const METERS: u64 = 4000;
    let catalog = volatile();
    count_meters(&catalog, |n| (n < METERS).then_some(n as i32));
    let (meters, greatest) = (catalog.table("meters").unwrap(), catalog.table("greatest").unwrap());
    // With an older reader, the keys stay.
    let reader = catalog.begin().unwrap();
    let transaction = catalog.begin().unwrap();
    for table in [&meters, &greatest] {
        let keys: Vec<Tuple> = rows(&catalog, table.name())
            .iter()
            .filter(|row| matches!(row[0], Value::Int(meter) if meter < METERS as i32 - 100))
            .map(|row| table.schema().key().iter().map(|at| row[*at].clone()).collect())
            .collect();
        table.delete_many(&transaction, &keys).unwrap();
    }
    transaction.commit(Durability::None).unwrap();
    let last = METERS as i32 - 1;
    count_meters(&catalog, move |n| (n < METERS + 2).then_some(if n < METERS { n as i32 } else { last }));
    assert_eq!(rows(&catalog, "counts").last().unwrap(), &[Value::Int(last), Value::BigInt(3)]);
    let places: Vec<Tuple> =
        rows(&catalog, "ranked").into_iter().filter(|row| row[0] == Value::Int(last)).collect();
    assert_eq!(places.len(), 1, "{places:?}");
    assert_eq!(places[0][2], Value::Double((METERS + 1) as f64));
    drop(reader);
}

fn text_columns() -> Vec<Column> {
    vec![Column::new("name", DataType::Varchar), Column::new("amount", DataType::Int)]
}

fn commit() -> Element {
    Element::Punctuation(Punctuation::Commit)
}

/// Runs marked transactions of names through the steps of `build`.
fn run_names(
    catalog: &Arc<Catalog>,
    transactions: &[Vec<String>],
    build: impl Fn(&Stream),
) -> Result<Report, StreamError> {
    let (sender, receiver) = bounded(2 * transactions.len());
    for names in transactions {
        let tuple = |name: &String| vec![Value::from(name.as_str()), Value::Int(1)];
        sender.send(Element::Tuples(names.iter().map(tuple).collect())).unwrap();
        sender.send(commit()).unwrap();
    }
    drop(sender);
    let topology = Topology::builder("t", catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
    build(&topology.source("s", ChannelSource::new(text_columns(), receiver)));
    topology.build()?.run()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A transaction that fails when the rows of its groups are read leaves none of them in DRAM.
#[test]
fn a_group_whose_row_was_not_read_is_no_new_one() {
    let too_long = "x".repeat(5000);
    let catalog = volatile();
    let build = |stream: &Stream| {
        stream.running(groups(vec![0], vec![Aggregate::count()], "names"));
    };
    run_names(&catalog, &[vec!["a".to_owned(); 100]], build).unwrap();
    let transactions = [names(&["a", &too_long]), names(&["a", "b"])];
    let report = run_names(&catalog, &transactions, build).unwrap();
    assert_eq!((report.aborts, report.tuples), (1, 2));
    let counts: Vec<Tuple> =
        rows(&catalog, "names").into_iter().map(|row| vec![row[0].clone(), row[3].clone()]).collect();
    assert_eq!(
        counts,
        [("a", 101), ("b", 1)].map(|(name, count)| vec![Value::from(name), Value::BigInt(count)])
    );
}

/// Extremes, and what is computed from all values, of changes equal those of the values that stand, after each restart.
#[test]
fn aggregates_over_changes_equal_those_of_the_values() {
    let catalog = volatile();
    let seed = seed();
    let reading_of = move |n: u64| random_reading(seed, n, 7, 0);
    let mut counts: BTreeMap<i32, i64> = BTreeMap::new();
    let mut begin = 0;
    while begin < 80 {
        let end = begin + 1 + begin % 5;
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(3));
        let source = GeneratorSource::new(reading_columns(), move |n| (n < end).then(|| reading_of(n)));
        let readings = topology.source("s", source);
        let counted = readings.running(groups(vec![0], vec![Aggregate::count()], "meters"));
        let columns = counted.columns();
        let halves = counted.project(vec![
            (columns[0].clone(), Box::new(ColumnExpression(0)) as Box<dyn Expression>),
            (columns[1].clone(), Box::new(ColumnExpression(1))),
            (Column::new("half", DataType::Double), Box::new(half)),
        ]);
        let extremes = |column: &&str| [Aggregate::min(column), Aggregate::max(column)];
        let mut all: Vec<Aggregate> = ["count", "half", "meter"].iter().flat_map(extremes).collect();
        all.push(Aggregate::sum("half"));
        halves.running(groups(Vec::new(), all, "all"));
        halves.running(groups(Vec::new(), extremes(&"half").to_vec(), "ends"));
        topology.build().unwrap().run().unwrap();
        for n in begin..end {
            let Value::Int(meter) = reading_of(n)[0] else { panic!("a reading without a meter") };
            *counts.entry(meter).or_default() += 1;
        }
        begin = end;
        let halved: Vec<f64> =
            counts.values().filter(|count| *count % 3 != 0).map(|count| *count as f64 / 2.0).collect();
        let extreme = |pick: fn(f64, f64) -> f64| halved.iter().copied().reduce(pick);
        let double = |value: Option<f64>| value.map_or(Value::Null, Value::Double);
        let ends = [double(extreme(f64::min)), double(extreme(f64::max))];
        let mut expected = vec![
            Value::BigInt(*counts.values().min().unwrap()),
            Value::BigInt(*counts.values().max().unwrap()),
        ];
        expected.extend(ends.clone());
        expected.push(Value::Int(*counts.first_key_value().unwrap().0));
        expected.push(Value::Int(*counts.last_key_value().unwrap().0));
        expected.push(double((!halved.is_empty()).then(|| halved.iter().sum())));
        let found = rows(&catalog, "all").remove(0);
        assert_eq!(found[2..9], expected, "after {end} readings");
        assert_eq!(rows(&catalog, "ends").remove(0)[2..], ends, "after {end} readings");
    }
}

/// Half of a count, NULL of a multiple of three.
fn half(rows: &arrow_array::RecordBatch) -> Result<arrow_array::ArrayRef, String> {
    use arrow_array::cast::AsArray;
    let counts = rows.column(1).as_primitive::<arrow_array::types::Int64Type>();
    let halves =
        counts.iter().map(|count| count.filter(|count| count % 3 != 0).map(|count| count as f64 / 2.0));
    Ok(Arc::new(halves.collect::<arrow_array::Float64Array>()))
}

/// DISTINCT of groups whose lives end sends each life once.
#[test]
fn distinct_groups_come_again_after_their_lives() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(100));
    let source = GeneratorSource::new(reading_columns(), |n| {
        (n < 1000).then(|| reading((n % 2) as i32, n as i64 * 10, 0.0))
    });
    let life = GroupLife {
        time: 1,
        ttl: Duration::from_secs(5),
        lateness: Duration::ZERO,
        future_limit: Duration::MAX,
    };
    let distinct = RunningGroups { life: Some(life), ..groups(vec![0], Vec::new(), "lives") };
    topology.source("s", source).running(distinct).to_table(ToTable::insert("sent").key(&[]));
    topology.build().unwrap().run().unwrap();
    assert_eq!(rows(&catalog, "sent").len(), 1000);
}

/// Counts per meter in an interval, into a table whose keys are SMALLINT.
fn count_into_small_keys(
    catalog: &Arc<Catalog>,
    meters: &'static [i32],
    interval: Duration,
    on_error: OnError,
) -> Result<Report, StreamError> {
    let columns = vec![Column::new("meter", DataType::SmallInt), Column::new("count", DataType::BigInt)];
    let options = || TableOptions { if_not_exists: true, ..TableOptions::default() };
    catalog.create_table("small", Schema::new(columns, &["meter"]).unwrap(), options()).unwrap();
    let topology = Topology::builder("t", catalog).boundary(Boundary::Every(1)).on_error(on_error);
    let source = GeneratorSource::new(reading_columns(), |n| {
        meters.get(n as usize).map(|meter| reading(*meter, n as i64, 0.0))
    });
    let readings = topology.source("s", source);
    let counted =
        RunningGroups { interval: Some(interval), ..groups(vec![0], vec![Aggregate::count()], "meters") };
    readings.running(counted).to_table("small");
    readings.to_table(ToTable::insert("seconds").key(&["at"]));
    topology.build().unwrap().run()
}

fn position(catalog: &Catalog) -> Value {
    rows(catalog, "streams_positions")[0][2].clone()
}

/// A result that the target refuses when its interval is over is of rows that are committed: it ends the topology with its
/// reason, and drops no transaction that has nothing to do with it.
#[test]
fn a_result_that_is_refused_later_ends_the_topology() {
    for on_error in [OnError::Abort, OnError::Stop] {
        let catalog = volatile();
        for _ in 0..2 {
            let error = count_into_small_keys(&catalog, &[1, 100_000, 3], HOUR, on_error).unwrap_err();
            assert!(matches!(error, StreamError::EarlyResultsRefused { .. }), "{error}");
            assert!(error.to_string().contains("100000 is out of range of SMALLINT"), "{error}");
            // All rows have counted, once.
            let counts = rows(&catalog, "meters").iter().map(|row| row[2].clone()).collect::<Vec<_>>();
            assert_eq!(counts, [1, 1, 1].map(Value::BigInt));
            assert_eq!(position(&catalog), Value::BigInt(3));
            assert_eq!(rows(&catalog, "seconds").len(), 3);
            assert_eq!(rows(&catalog, "small"), [[Value::Int(1), Value::BigInt(1)]]);
        }
    }
    // Left out, it holds nothing up.
    let catalog = volatile();
    let report = count_into_small_keys(&catalog, &[1, 100_000, 3], HOUR, OnError::Skip).unwrap();
    assert_eq!((report.rejected_rows, report.aborts), (1, 0));
    assert_eq!(rows(&catalog, "small").len(), 2);
}

/// An error at the commit that is not of the results that are due drops its transaction, as without them.
#[test]
fn an_error_of_the_input_is_not_one_of_results_that_are_due() {
    let catalog = volatile();
    let columns = vec![Column::new("meter", DataType::SmallInt), Column::new("count", DataType::BigInt)];
    let schema = Schema::new(columns, &["meter"]).unwrap();
    catalog.create_table("small", schema, TableOptions::default()).unwrap();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(1)).on_error(OnError::Abort);
    let source = GeneratorSource::new(reading_columns(), |n| {
        [1, 2, 100_000, 1, 100_000, 3].get(n as usize).map(|meter| reading(*meter, n as i64, 0.0))
    });
    let readings = topology.source("s", source);
    let counted = groups(vec![0], vec![Aggregate::count()], "later");
    readings.running(RunningGroups { interval: Some(Duration::ZERO), ..counted }).to_table("counts");
    readings.running(groups(vec![0], vec![Aggregate::count()], "now")).to_table("small");
    let report = topology.build().unwrap().run().unwrap();
    assert_eq!((report.aborts, report.tuples), (2, 4));
    let expected = |meter: fn(i32) -> Value| {
        [(1, 2), (2, 1), (3, 1)].map(|(of, count)| vec![meter(of), Value::BigInt(count)])
    };
    assert_eq!(rows(&catalog, "counts"), expected(Value::Int));
    assert_eq!(rows(&catalog, "small"), expected(Value::Int));
}

/// After a start all results are sent, some in each transaction, and those that change meanwhile behind them.
#[test]
fn all_results_are_sent_over_several_transactions() {
    const NAME_BYTES: usize = 900;
    let groups_of_all = (3 * EARLY_RESULTS_BYTES_MAX / NAME_BYTES / 2) as u64;
    let catalog = volatile();
    let run = |end: u64| {
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(4096));
        let source = GeneratorSource::new(text_columns(), move |n| {
            let name = || format!("{:0width$}", n % groups_of_all, width = NAME_BYTES);
            (n < end).then(|| vec![Value::from(name().as_str()), Value::Int(1)])
        });
        let counted =
            RunningGroups { interval: Some(HOUR), ..groups(vec![0], vec![Aggregate::count()], "names") };
        topology.source("s", source).running(counted).to_table("counts");
        topology.build().unwrap().run().unwrap().transactions
    };
    run(groups_of_all);
    let emptied = catalog.table("counts").unwrap();
    let keys: Vec<Tuple> = rows(&catalog, "counts").into_iter().map(|row| vec![row[0].clone()]).collect();
    assert_eq!(keys.len() as u64, groups_of_all);
    let transaction = catalog.begin().unwrap();
    emptied.delete_many(&transaction, &keys).unwrap();
    transaction.commit(Durability::None).unwrap();
    let transactions = run(groups_of_all + 2);
    assert!(transactions >= 2, "{transactions} transactions");
    let counts = rows(&catalog, "counts");
    assert_eq!(counts.len() as u64, groups_of_all);
    let twice = counts.iter().filter(|row| row[1] == Value::BigInt(2)).count();
    assert_eq!(twice, 2);
}

/// Results of groups that have left DRAM are read for it.
#[test]
fn results_of_groups_that_are_not_in_dram_are_sent() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(1000));
    let source = GeneratorSource::new(reading_columns(), |n| {
        (n < 40_000).then(|| reading((n % 20_000) as i32, n as i64, 0.0))
    });
    let counted = RunningGroups {
        interval: Some(Duration::from_millis(5)),
        groups_in_dram: 100,
        ..groups(vec![0], vec![Aggregate::count()], "meters")
    };
    topology.source("s", source).running(counted).to_table("counts");
    topology.build().unwrap().run().unwrap();
    let counts = rows(&catalog, "counts");
    assert_eq!(counts.len(), 20_000);
    assert!(counts.iter().all(|row| row[1] == Value::BigInt(2)));
}

/// A transaction that ends with a window does not end for results that are due.
#[test]
fn the_clock_ends_no_transaction_of_a_window() {
    let catalog = volatile();
    let (sender, receiver) = bounded(100);
    let topology = Topology::builder("t", &catalog).boundary(Boundary::PerWindow);
    let readings = topology.source("s", ChannelSource::new(reading_columns(), receiver));
    let windows = readings.window(TimeWindow::tumbling("at", Duration::from_secs(10))).group_by(&["meter"]);
    let windows = windows.early(EarlyEmission::Every(Duration::from_millis(1)));
    windows.aggregate(&[Aggregate::count()], "open").to_table("windows");
    readings.to_table(ToTable::upsert("readings").key(&["at"]));
    let running = topology.build().unwrap().start().unwrap();
    sender.send(Element::Tuples(vec![reading(1, 100, 0.0), reading(1, 101, 0.0)])).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rows(&catalog, "readings").len(), 0, "half of a transaction is committed");
    sender.send(Element::Tuples(vec![reading(1, 111, 0.0)])).unwrap();
    while rows(&catalog, "readings").len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(sender);
    running.join().unwrap();
    assert_eq!(rows(&catalog, "windows").len(), 2);
}

/// Rows of a table of which each is refused for its value.
#[test]
fn strings_that_a_column_refuses_are_errors_of_their_tuples() {
    for modifier in [Modifier::Varchar(3), Modifier::Json, Modifier::Jsonb] {
        for on_error in [OnError::Abort, OnError::Skip] {
            let catalog = volatile();
            let mut columns = text_columns();
            columns[0].modifier = modifier;
            let schema = Schema::new(columns, &[] as &[&str]).unwrap();
            catalog.create_table("target", schema, TableOptions::default()).unwrap();
            let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(1)).on_error(on_error);
            let source = GeneratorSource::new(text_columns(), |n| {
                let name = ["1", "no JSON", "2"].get(n as usize)?;
                Some(vec![Value::from(*name), Value::Int(1)])
            });
            topology.source("s", source).to_table(ToTable::insert("target"));
            let report = topology.build().unwrap().run().unwrap();
            let expected = if on_error == OnError::Abort { (1, 0) } else { (0, 1) };
            assert_eq!((report.aborts, report.rejected_rows), expected, "{modifier} {on_error:?}");
            assert_eq!(rows(&catalog, "target").len(), 2);
        }
    }
}

/// Tables in which tuples that are taken back would not be found are refused, new ones too.
#[test]
fn changes_need_a_table_with_their_key() {
    let catalog = volatile();
    let refusal = |build: &dyn Fn(&Stream)| {
        let topology = Topology::builder("t", &catalog);
        let source = GeneratorSource::new(reading_columns(), |_| None);
        build(&topology.source("s", source).running(groups(vec![0], vec![Aggregate::count()], "meters")));
        topology.check().map_err(|error| error.to_string())
    };
    assert_eq!(refusal(&|changes| changes.to_table("counts")), Ok(()));
    assert_eq!(refusal(&|changes| changes.to_table(ToTable::upsert("counts").key(&["meter"]))), Ok(()));
    let error = refusal(&|changes| changes.to_table(ToTable::upsert("counts").key(&["count"]))).unwrap_err();
    assert!(
        error.contains("the key of table counts is (count): tuples that are taken back have the key (meter)"),
        "{error}"
    );
    let error = refusal(&|changes| changes.select(&["count"]).to_table("counts")).unwrap_err();
    assert!(error.contains("table counts has no key"), "{error}");
}

/// Tuples of a marked transaction with bad records are stored with the first reason, all of them; if the topology stops
/// before its end they come again, and are not stored.
#[test]
fn dropped_tuples_are_those_of_whole_transactions() {
    for is_complete in [true, false] {
        let catalog = volatile();
        let (sender, receiver) = bounded(0);
        let topology =
            Topology::builder("t", &catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
        let topology = topology.errors_into("errors");
        topology.source("s", ChannelSource::new(text_columns(), receiver)).to_table("names");
        let running = topology.build().unwrap().start().unwrap();
        let name = |name: &str| Element::Tuples(vec![vec![Value::from(name), Value::Int(1)]]);
        let bad = |value: f64| Element::Tuples(vec![vec![Value::Double(value), Value::Int(1)]]);
        for element in [name("a"), commit(), name("b"), bad(0.5), name("c"), bad(1.5), name("d")] {
            sender.send(element).unwrap();
        }
        if is_complete {
            sender.send(commit()).unwrap();
            drop(sender);
            running.join().unwrap();
            let records: Vec<Value> = rows(&catalog, "errors").iter().map(|row| row[3].clone()).collect();
            assert_eq!(
                records,
                ["b", "c", "d"].map(|name| Value::from(format!("name = {name}, amount = 1").as_str()))
            );
            continue;
        }
        running.stop();
        running.join().unwrap();
        assert_eq!(rows(&catalog, "errors").len(), 0);
        assert_eq!(position(&catalog), Value::BigInt(1), "behind the first transaction");
    }
}
