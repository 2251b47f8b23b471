//! Topologies on several threads: the same results as on one, at every commit, whatever fails and whatever number of
//! threads a run has.

use crate::support::*;
use arrow_array::ArrayRef;
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, AggregateFunction, Boundary, Error, GeneratorSource, GroupState, OnError, POSITIONS_TABLE,
    Report, TimeWindow, ToTable, Topology, TopologyBuilder, Trigger, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Row, TableDefinition, TableOptions, Value};
use entresol_transactions::{BeforeCommit, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const READINGS: u64 = 12_000;
const METERS: u64 = 300;

/// Reading number `n`, with its meter as a text, too.
fn named_reading(seed: u64, n: u64) -> Tuple {
    let mut tuple = random_reading(seed, n, METERS, 60);
    let Value::Int(meter) = tuple[0] else { unreachable!() };
    tuple.push(Value::from(format!("meter {meter}").as_str()));
    tuple
}

fn named_columns() -> Vec<Column> {
    let mut columns = reading_columns();
    columns.push(Column::new("name", DataType::Varchar).not_null());
    columns
}

fn four_aggregates() -> [Aggregate; 4] {
    [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")]
}

/// Tables that [`metering`] writes, with the windows that may still be corrected.
const TARGETS: [&str; 7] = ["windows", "late", "corrected", "hops", "copies", "open_names", "latest"];

/// Windows by numbers and texts, with late rows, corrections and overlaps; changes of a table; the latest readings.
fn metering(catalog: &Arc<Catalog>, seed: u64, boundary: Boundary, threads: usize) -> TopologyBuilder {
    let topology = Topology::builder("metering", catalog)
        .boundary(boundary)
        .durability(Durability::None)
        .parallelism(threads);
    let source =
        GeneratorSource::new(named_columns(), move |n| (n < READINGS).then(|| named_reading(seed, n)));
    let readings = topology.source("readings", source);
    let tumbling = || TimeWindow::tumbling("at", Duration::from_secs(300)).lateness(Duration::from_secs(30));
    let by_meter = readings.window(tumbling()).group_by(&["meter"]).late_into("late", named_columns());
    by_meter
        .aggregate(&four_aggregates(), "open")
        .to_table(ToTable::insert("windows").key(&["meter", "window_start"]));
    let by_name =
        readings.window(tumbling()).group_by(&["name", "meter"]).corrected_for(Duration::from_secs(600));
    by_name.aggregate(&four_aggregates(), "open_names").to_table(ToTable::upsert("corrected"));
    let hops = TimeWindow::hopping("at", Duration::from_secs(100), Duration::from_secs(400))
        .lateness(Duration::from_secs(60));
    let hops = readings.filter(|tuple| tuple[0] != Value::Int(7)).window(hops).group_by(&["name"]);
    hops.groups_in_dram(200).aggregate(&four_aggregates(), "open_hops").to_table(ToTable::upsert("hops"));
    topology.to_stream("windows", Trigger::OnCommit).to_table(ToTable::insert("copies"));
    readings.to_table(ToTable::upsert("latest").key(&["meter"]));
    topology
}

/// Rows of tables; those of late readings without their hidden key, which counts what was rolled back, too.
fn tables(catalog: &Catalog, names: &[&str]) -> Vec<Vec<Row>> {
    let visible = |name: &str, mut row: Row| {
        row.truncate(if name == "late" { named_columns().len() } else { row.len() });
        row
    };
    let rows_of = |name: &&str| rows(catalog, name).into_iter().map(|row| visible(name, row)).collect();
    names.iter().map(rows_of).collect()
}

fn check_oracle(catalog: &Catalog, seed: u64) {
    let readings: Vec<Tuple> = (0..READINGS).map(|n| random_reading(seed, n, METERS, 60)).collect();
    let (expected, late) = recompute(&readings, 300, 30);
    assert_eq!(as_oracle(&rows(catalog, "windows")), expected);
    assert_eq!(rows(catalog, "late").len() as u64, late);
    for open in ["open", "open_hops"] {
        assert!(rows(catalog, open).is_empty(), "{open}");
    }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let seed = seed();
    for boundary in [Boundary::Every(700), Boundary::Every(50), Boundary::PerWindow, Boundary::Every(50_000)]
    {
        let mut expected: Option<(Vec<Vec<Row>>, Report)> = None;
        for threads in [1, 2, 3, 8] {
            let catalog = volatile();
            let topology = metering(&catalog, seed, boundary, threads).build().unwrap();
            assert_eq!(topology.overlaps(), threads > 1);
            let report = topology.run().unwrap();
            let (found, counted) = (tables(&catalog, &TARGETS), |report: &Report| {
                (report.tuples, report.transactions, report.late, report.aborts, report.retries)
            });
            let (tables, first) = expected.get_or_insert_with(|| (found.clone(), report));
            assert!(&found == tables, "{boundary:?} on {threads} threads");
            assert_eq!(counted(&report), counted(first), "{boundary:?} on {threads} threads");
            check_oracle(&catalog, seed);
        }
    }
}

/// A crash at any time, and another number of threads in each run.
#[test]
fn each_run_may_have_another_number_of_threads() {
    let seed = seed();
    let mut random = Random(seed);
    let whole = volatile();
    metering(&whole, seed, Boundary::Every(700), 1).build().unwrap().run().unwrap();
    for boundary in [Boundary::Every(700), Boundary::PerWindow] {
        let directory = tempfile::TempDir::new().unwrap();
        for _ in 0..6 {
            let catalog = journal(directory.path());
            let topology = metering(&catalog, seed, boundary, 1 + random.below(4) as usize);
            let running = topology.build().unwrap().start().unwrap();
            let enough = 1 + random.below(READINGS / 4);
            while running.progress().snapshot().tuples < enough && !running.is_finished() {
                std::thread::yield_now();
            }
            running.stop();
            running.join().unwrap();
            let position = rows(&catalog, POSITIONS_TABLE)[0][2].clone();
            // What is stored is of one epoch: each reading up to the position is in a window that is open, closed, or late.
            let mut counted = rows(&catalog, "late").len() as i64;
            for (table, at) in [("open", 2), ("windows", 3)] {
                let count = |row: &Row| if let Value::BigInt(count) = row[at] { count } else { 0 };
                counted += rows(&catalog, table).iter().map(count).sum::<i64>();
            }
            assert_eq!(Value::BigInt(counted), position);
            catalog.context().pool().sync().unwrap();
        }
        let catalog = journal(directory.path());
        metering(&catalog, seed, boundary, 3).build().unwrap().run().unwrap();
        check_oracle(&catalog, seed);
        for table in TARGETS {
            let (found, expected) = (tables(&catalog, &[table]), tables(&whole, &[table]));
            let lacks = |rows: &[Vec<Row>], others: &[Vec<Row>]| -> Vec<Row> {
                rows[0].iter().filter(|row| !others[0].contains(row)).take(5).cloned().collect()
            };
            let differences = (lacks(&found, &expected), lacks(&expected, &found));
            assert!(found == expected, "{table}, {boundary:?}: found and expected {differences:?}");
        }
    }
}

/// Transactions with a reading that cannot be processed are dropped, and no others.
#[test]
fn an_epoch_is_dropped_alone() {
    let run = |threads: usize, tuples: usize| {
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog)
            .boundary(Boundary::Every(tuples))
            .on_error(OnError::Abort)
            .durability(Durability::None)
            .parallelism(threads);
        let source = GeneratorSource::new(reading_columns(), |n| {
            (n < READINGS).then(|| random_reading(5, n, METERS, 0))
        });
        let readings = topology.source("s", source);
        let counted =
            readings.window(TimeWindow::tumbling("at", Duration::from_secs(2000))).group_by(&["meter"]);
        let counted = counted.aggregate(&four_aggregates(), "open");
        counted.to_table(ToTable::upsert("windows"));
        let checked = readings.try_map(reading_columns(), |tuple| match tuple {
            [Value::Int(meter), _, Value::Double(power)] if *meter < 3 && *power > 110.0 => {
                Err("too much".to_owned())
            }
            tuple => Ok(Some(tuple.to_vec())),
        });
        checked.to_table(ToTable::upsert("latest").key(&["meter"]));
        let report = topology.build().unwrap().run().unwrap();
        (report.aborts, report.tuples, tables(&catalog, &["windows", "latest", "open"]))
    };
    for tuples in [300, 1100] {
        let one = run(1, tuples);
        assert!(one.0 > 2 && one.1 > 0, "{} dropped, {} counted", one.0, one.1);
        for threads in [2, 3] {
            assert!(run(threads, tuples) == one, "{threads} threads, transactions of {tuples}");
        }
    }
}

/// Work before each commit that wrote a table.
struct Meddler {
    calls: AtomicU64,
    meddle: Box<dyn Fn(u64) -> Result<(), String> + Send + Sync>,
}

impl BeforeCommit for Meddler {
    fn before_commit(
        &self,
        transaction: &Arc<Transaction>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // Those that it commits itself write a single key.
        if transaction.written_states().len() == 1 {
            return Ok(());
        }
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        (self.meddle)(call).map_err(Into::into)
    }
}

/// Runs [`metering`] where something happens before the commit with a number; the table is there before.
fn meddled(
    threads: usize,
    meddle: impl Fn(&Arc<Catalog>, u64) -> Result<(), String> + Send + Sync + 'static,
) -> (Arc<Catalog>, Result<Report, Error>) {
    let catalog = volatile();
    let schema = entresol_tables::Schema::new(named_columns(), &["meter"]).unwrap();
    let latest =
        catalog.create_table_as("latest", TableDefinition::plain(schema), TableOptions::default()).unwrap();
    let other = Arc::downgrade(&catalog);
    let meddle = Box::new(move |call| meddle(&other.upgrade().unwrap(), call));
    catalog.context().set_before_commit(Arc::new(Meddler { calls: AtomicU64::new(0), meddle }));
    catalog.context().watch(latest.state());
    let topology = metering(&catalog, 3, Boundary::Every(700), threads).build().unwrap();
    let result = topology.start().unwrap().join();
    (catalog, result)
}

/// Commits a row of its own into the table of the latest readings.
fn overtake(catalog: &Arc<Catalog>, meter: i32) {
    let tx = catalog.begin().unwrap();
    let row = [Value::Int(meter), Value::Timestamp(0), Value::Double(-1.0), Value::from("overtaken")];
    catalog.table("latest").unwrap().upsert(&tx, &row).unwrap();
    tx.commit(Durability::None).unwrap();
}

#[test]
fn a_commit_that_is_overtaken_is_retried_before_the_next_epoch() {
    let (whole, report) = meddled(1, |_, _| Ok(()));
    let (written, latest) = TARGETS.split_at(TARGETS.len() - 1);
    let last_readings = rows(&whole, latest[0]);
    let transactions = report.unwrap().transactions;
    for threads in [1, 2, 3] {
        let (catalog, report) = meddled(threads, |catalog, call| {
            // Twice in a row, so that the first retry is overtaken, too.
            if call % 5 < 2 {
                (0..METERS as i32).for_each(|meter| overtake(catalog, meter));
            }
            Ok(())
        });
        let report = report.unwrap();
        assert!(report.retries > 4, "{} retries", report.retries);
        assert_eq!((report.tuples, report.transactions), (READINGS, transactions), "{threads} threads");
        assert!(tables(&catalog, written) == tables(&whole, written), "{threads} threads");
        // Of some meters nothing has come since they were overtaken.
        let is_last = |(row, last): (&Row, &Row)| row == last || row[3] == Value::from("overtaken");
        assert!(rows(&catalog, "latest").iter().zip(&last_readings).all(is_last), "{threads} threads");
        check_oracle(&catalog, 3);
    }
}

#[test]
fn an_error_of_a_commit_ends_the_topology_with_what_was_committed_before() {
    for threads in [1, 2, 3] {
        let (catalog, report) =
            meddled(threads, |_, call| if call == 6 { Err("the seventh commit".to_owned()) } else { Ok(()) });
        let error = report.unwrap_err().to_string();
        assert!(error.contains("the seventh commit"), "{error}");
        assert_eq!(rows(&catalog, POSITIONS_TABLE)[0][2], Value::BigInt(6 * 700), "{threads} threads");
    }
}

#[test]
fn a_panic_while_a_transaction_commits_ends_the_topology() {
    for threads in [1, 2, 3] {
        let (catalog, report) = meddled(threads, |_, call| {
            assert!(call != 6, "a test panics in the seventh commit");
            Ok(())
        });
        assert!(matches!(report, Err(Error::Panicked { .. })), "{report:?}");
        assert_eq!(rows(&catalog, POSITIONS_TABLE)[0][2], Value::BigInt(6 * 700), "{threads} threads");
    }
}

/// A count that fails, or panics, at one value.
#[derive(Debug, Clone)]
struct Stumbling {
    panics: bool,
}

#[derive(Debug)]
struct StumblingGroup {
    count: i64,
    panics: bool,
}

const STUMBLES_AT: f64 = 124.875;

impl AggregateFunction for Stumbling {
    fn result_type(&self) -> DataType {
        DataType::BigInt
    }

    fn state_columns(&self) -> Vec<Column> {
        vec![Column::new("count", DataType::BigInt)]
    }

    fn group(&self) -> Result<Box<dyn GroupState>, String> {
        Ok(Box::new(StumblingGroup { count: 0, panics: self.panics }))
    }
}

impl GroupState for StumblingGroup {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String> {
        use arrow_array::cast::AsArray;
        use arrow_array::types::Float64Type;
        let values = columns[0].as_primitive::<Float64Type>().values();
        if values.contains(&STUMBLES_AT) {
            assert!(!self.panics, "a test panics in a part");
            return Err("it stumbles".to_owned());
        }
        self.count += values.len() as i64;
        Ok(())
    }

    fn store(&mut self) -> Result<Vec<ArrayRef>, String> {
        Ok(vec![Arc::new(arrow_array::Int64Array::from(vec![self.count]))])
    }

    fn merge(&mut self, stored: &[ArrayRef]) -> Result<(), String> {
        use arrow_array::cast::AsArray;
        self.count += stored[0].as_primitive::<arrow_array::types::Int64Type>().value(0);
        Ok(())
    }

    fn result(&mut self) -> Result<ArrayRef, String> {
        Ok(Arc::new(arrow_array::Int64Array::from(vec![self.count])))
    }

    fn bytes(&self) -> usize {
        size_of::<StumblingGroup>()
    }
}

#[test]
fn a_part_that_fails_ends_the_topology_with_its_reason() {
    let run = |threads: usize, panics: bool| {
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog)
            .boundary(Boundary::Every(700))
            .durability(Durability::None)
            .parallelism(threads);
        let source = GeneratorSource::new(reading_columns(), |n| {
            (n < 50_000).then(|| random_reading(5, n, METERS, 0))
        });
        let windows =
            topology.source("s", source).window(TimeWindow::tumbling("at", Duration::from_secs(2000)));
        let function = Aggregate::function(Arc::new(Stumbling { panics }), &["power"]).named("n");
        windows.group_by(&["meter"]).aggregate(&[function], "open").to_table("windows");
        let result = topology.build().unwrap().start().unwrap().join();
        (result.unwrap_err(), rows(&catalog, POSITIONS_TABLE).first().map(|row| row[2].clone()))
    };
    let (_, stored) = run(1, false);
    for threads in [1, 2, 3] {
        let (error, position) = run(threads, false);
        assert_eq!(error.to_string(), "operator window open: it stumbles", "{threads} threads");
        assert_eq!(position, stored, "{threads} threads");
        let (error, position) = run(threads, true);
        assert!(matches!(error, Error::Panicked { .. }), "{error}");
        assert_eq!(position, stored, "{threads} threads");
    }
}

#[test]
fn operators_are_shown_with_their_parts() {
    let catalog = volatile();
    let running = metering(&catalog, 1, Boundary::Every(700), 3).build().unwrap().start().unwrap();
    let progress = Arc::clone(running.progress());
    running.join().unwrap();
    assert_eq!((progress.parallelism(), progress.overlaps()), (3, true));
    for operator in progress.operators() {
        let wanted = if operator.name.starts_with("window ") { 2 } else { 1 };
        assert_eq!(operator.parts, wanted, "{}", operator.name);
    }
}
