//! Transactions that sources mark: tables have all of one, or nothing, also after a power failure.

use crate::support::*;
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Boundary, ChangeFormat, DELETED, Envelope, FileFormat, FilesSource, ToTable, Topology, TransactionSource,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

const ACCOUNTS: u64 = 4;
const TABLES: [&str; 2] = ["left", "right"];

/// Amounts of the accounts of both tables.
type Amounts = [BTreeMap<i32, i64>; 2];

/// Lines of files: data of both tables, and marks.
#[derive(Default)]
struct Lines {
    data: [String; 2],
    marks: String,
}

fn event(lines: &mut Lines, table: usize, id: i32, amount: i64, transaction: &str) {
    writeln!(
        lines.data[table],
        "{{\"before\": null, \"after\": {{\"id\": {id}, \"amount\": {amount}}}, \"op\": \"u\", \"transaction\": {transaction}}}"
    )
    .unwrap();
}

/// Transactions that move amounts between accounts of both tables, behind rows of a snapshot. Some are of other tables.
fn transfers(seed: u64, transactions: u64) -> (Lines, Amounts) {
    let (mut lines, mut amounts) = (Lines::default(), Amounts::default());
    for (table, amounts) in amounts.iter_mut().enumerate() {
        for id in 0..ACCOUNTS as i32 {
            amounts.insert(id, 100);
            event(&mut lines, table, id, 100, "null");
        }
    }
    let mut random = Random(seed);
    for number in 0..transactions {
        let mut counts = [0_u64; 2];
        writeln!(lines.marks, "{{\"status\": \"BEGIN\", \"id\": \"{number}\", \"event_count\": null}}")
            .unwrap();
        // Each moves from one account to another, so two events; the sum of all stays. The first one is of both tables.
        for _ in 0..random.below(3).max(u64::from(number == 0)) {
            let by = random.below(50) as i64;
            for (side, by) in [by, -by].into_iter().enumerate() {
                let (table, id) = (random.below(2) as usize, random.below(ACCOUNTS) as i32);
                let table = if number == 0 { side } else { table };
                *amounts[table].get_mut(&id).unwrap() += by;
                counts[table] += 1;
                let order = counts[0] + counts[1];
                let transaction = format!("{{\"id\": \"{number}\", \"total_order\": {order}}}");
                event(&mut lines, table, id, amounts[table][&id], &transaction);
            }
        }
        let of = |table: usize| {
            format!("{{\"data_collection\": \"s.{}\", \"event_count\": {}}}", TABLES[table], counts[table])
        };
        let collections: Vec<String> = (0..2).filter(|table| counts[*table] > 0).map(of).collect();
        let (count, collections) = (counts[0] + counts[1] + 3, collections.join(", "));
        writeln!(
            lines.marks,
            "{{\"status\": \"END\", \"id\": \"{number}\", \"event_count\": {count}, \"data_collections\": [{collections}]}}"
        )
        .unwrap();
    }
    (lines, amounts)
}

fn write(directory: &Path, lines: &Lines) {
    for (table, data) in TABLES.iter().zip(&lines.data) {
        std::fs::write(directory.join(table), data).unwrap();
    }
    std::fs::write(directory.join("marks"), &lines.marks).unwrap();
}

fn source(directory: &Path, table: &str) -> TransactionSource {
    let columns = vec![Column::new("id", DataType::Int).not_null(), Column::new("amount", DataType::BigInt)];
    let format = ChangeFormat {
        has_transactions: true,
        ..ChangeFormat::new(Envelope::Debezium, vec!["id".to_owned()])
    };
    let data = FilesSource::new(directory.join(table), columns, FileFormat::Changes(format));
    let marks = directory.join("marks");
    TransactionSource::new(data, marks.to_str().unwrap(), Some(format!("s.{table}")), false)
}

fn run(catalog: &Arc<Catalog>, directory: &Path) -> Result<u64, String> {
    let topology =
        Topology::builder("t", catalog).boundary(Boundary::Punctuated).durability(Durability::Sync);
    for table in TABLES {
        let rows = topology.source(table, source(directory, table));
        let rows = rows.keyed_rows(DELETED, &["id".to_owned()], &format!("rows_of_{table}"));
        rows.to_table(ToTable::upsert(&format!("{table}_copy")));
    }
    let report = topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
    Ok(report.rejected_rows)
}

fn amounts_of(catalog: &Catalog) -> Amounts {
    TABLES.map(|table| {
        let table = format!("{table}_copy");
        if catalog.table(&table).is_err() {
            return BTreeMap::new();
        }
        let amount = |row: &Vec<Value>| match row.as_slice() {
            [Value::Int(id), Value::BigInt(amount)] => (*id, *amount),
            other => panic!("{other:?}"),
        };
        rows(catalog, &table).iter().map(amount).collect()
    })
}

/// Amounts of which no transaction is there in part: their sum is that of the beginning, if there are some.
fn check_sum(amounts: &Amounts) -> Result<(), String> {
    let sum: i64 = amounts.iter().flat_map(BTreeMap::values).sum();
    let is_one = sum == 0 || sum == 200 * ACCOUNTS as i64;
    if is_one { Ok(()) } else { Err(format!("a part of a transaction is there: {amounts:?}")) }
}

#[test]
fn tables_have_each_transaction_as_it_was_over_runs() {
    let seed = seed();
    for round in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let database = tempfile::tempdir().unwrap();
        for transactions in [1, 2, 9, 60] {
            let (lines, amounts) = transfers(seed ^ round, transactions);
            write(directory.path(), &lines);
            let catalog = journal(database.path());
            assert_eq!(run(&catalog, directory.path()), Ok(0));
            assert_eq!(amounts_of(&catalog), amounts, "{transactions} transactions");
        }
    }
}

#[test]
fn nothing_of_a_transaction_is_there_in_part_after_a_power_failure() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, amounts) = transfers(8, 8);
    write(directory.path(), &lines);
    let path = directory.path().to_owned();
    let open = |pool: &Arc<Pool>| -> Result<Arc<Catalog>, String> {
        let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
        Catalog::open_or_create(context).map_err(|error| error.to_string())
    };
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    let (of_history, of_check) = (path.clone(), path);
    let history = move |pool: &Arc<Pool>| {
        run(&open(pool).unwrap(), &of_history).unwrap();
        Ok(())
    };
    let verified = move |pool: &Arc<Pool>| {
        let catalog = open(pool)?;
        check_sum(&amounts_of(&catalog))?;
        run(&catalog, &of_check)?;
        let found = amounts_of(&catalog);
        if found == amounts { Ok(()) } else { Err(format!("{found:?}, not {amounts:?}")) }
    };
    let report = check(&options, history, verified).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}

/// Counts that do not fit, and sources that are not at the same transaction, end the topology with the reason.
#[test]
fn incomplete_transactions_are_not_committed() {
    type Spoil = fn(&mut Lines);
    let cases: [(&str, Spoil); 6] = [
        ("has 0 of its 1 events at the end of the data", |lines| {
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": [{\"data_collection\": \"s.left\", \"event_count\": 1}]}\n";
        }),
        ("before the first of transaction y", |lines| {
            event(lines, 0, 1, 7, "{\"id\": \"y\"}");
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": [{\"data_collection\": \"s.left\", \"event_count\": 1}]}\n";
        }),
        ("data_collection s.left has no event_count", |lines| {
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": [{\"data_collection\": \"s.left\"}]}\n";
        }),
        ("has the event of total_order 4 behind that of 5: they are in another order", |lines| {
            for order in [2, 5, 4] {
                event(lines, 0, 1, 7, &format!("{{\"id\": \"x\", \"total_order\": {order}}}"));
            }
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": [{\"data_collection\": \"s.left\", \"event_count\": 3}]}\n";
        }),
        ("has the event of total_order 1 behind that of 1", |lines| {
            // One that says none is no reason to forget the one before.
            for order in ["1", "null", "1"] {
                event(lines, 0, 1, 7, &format!("{{\"id\": \"x\", \"total_order\": {order}}}"));
            }
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": [{\"data_collection\": \"s.left\", \"event_count\": 3}]}\n";
        }),
        ("data_collections is not an array", |lines| {
            lines.marks += "{\"status\": \"END\", \"id\": \"x\", \"data_collections\": 7}\n";
        }),
    ];
    for (reason, change) in cases {
        let directory = tempfile::tempdir().unwrap();
        let (mut lines, amounts) = transfers(5, 7);
        change(&mut lines);
        write(directory.path(), &lines);
        let catalog = volatile();
        let error = run(&catalog, directory.path()).unwrap_err();
        assert!(error.contains(reason), "{error}");
        assert_eq!(amounts_of(&catalog), amounts, "the transactions before it are there");
    }
}

#[test]
fn sources_that_mark_other_transactions_are_not_aligned() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, _) = transfers(5, 7);
    write(directory.path(), &lines);
    let other = tempfile::tempdir().unwrap();
    write(other.path(), &Lines { marks: lines.marks.replace("\"3\"", "\"three\""), ..Lines::default() });
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Punctuated);
    for (table, of) in [("left", directory.path()), ("none", other.path())] {
        std::fs::write(of.join("none"), "").unwrap();
        let rows = topology.source(table, source(of, table));
        rows.keyed_rows(DELETED, &["id".to_owned()], &format!("rows_of_{table}"))
            .to_table(ToTable::upsert(table));
    }
    let error = topology.build().unwrap().run().unwrap_err().to_string();
    assert!(error.contains("ends transaction") && error.contains("three"), "{error}");
}

/// A line that is no event counts as one, wherever in its transaction it stands.
#[test]
fn rejected_lines_count_as_events() {
    let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut lines = Lines::default();
    let end = |id: &str, count: u64| {
        format!(
            "{{\"status\": \"END\", \"id\": \"{id}\", \"data_collections\": [{{\"data_collection\": \"s.left\", \"event_count\": {count}}}]}}\n"
        )
    };
    for (id, places) in [("a", [true, false, true]), ("b", [false, true, false]), ("c", [true, true, false])]
    {
        for (at, is_event) in (1..).zip(places) {
            if is_event {
                event(&mut lines, 0, at, 1, &format!("{{\"id\": \"{id}\"}}"));
            } else {
                lines.data[0] += "{\"op\": \"m\"}\n";
            }
        }
        lines.marks += "no mark\n";
        lines.marks += &end(id, 3);
        write(directory.path(), &lines);
        let catalog = journal(database.path());
        // Two lines of data, or one, and one of the marks of both sources.
        let rejected = places.iter().filter(|place| !**place).count() as u64 + 2;
        assert_eq!(run(&catalog, directory.path()), Ok(rejected), "{id}");
    }
}
