//! The same statements on a table by row and on one by column, or clustered: rows, indexes, unique values, and logs of changes are
//! the same, whatever is merged or converted between them.
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, DataType, Dimension, ElfCaching, ElfLayout, Error,
    IndexDefinition, NewLayout, Retention, Row, ScanRange, Schema, Table, TableDefinition, TableLayout,
    TableOptions, Value, check,
};
use entresol_transactions::{Cancellation, INFINITY, LogPosition, StateContext, Timestamp, Transaction};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::BigInt),
        Column::new("code", DataType::Varchar),
        Column::new("amount", DataType::Int),
    ]
}

fn index(name: &str, columns: Vec<usize>, unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns,
        unique,
        constraint: unique,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

/// Names of the tables: by row, and by column.
const NAMES: [&str; 2] = ["by_row", "by_column"];

fn create(catalog: &Catalog, key: &[&str], changes: Option<Retention>) {
    for (name, layout) in NAMES.into_iter().zip(TableLayout::ALL) {
        let mut definition = TableDefinition::plain(Schema::new(columns(), key).unwrap());
        definition.indexes = vec![
            index(&format!("{name}_code"), vec![1], true),
            index(&format!("{name}_amount"), vec![2], false),
        ];
        (definition.layout, definition.changes) = (layout, changes);
        catalog.create_table_as(name, definition, TableOptions::default()).unwrap();
    }
}

/// Some layout, with some dimensions.
fn new_layout(random: &mut Random) -> NewLayout {
    let columns: &[usize] = match random.below(7) {
        0 => return TableLayout::Rows.into(),
        1 => return TableLayout::Columns.into(),
        2 => return TableLayout::Elf.into(),
        3 => return ElfLayout { dimensions: vec![2, 0], caching: ElfCaching::Whole }.into(),
        4 => &[1],
        _ => &[2, 1],
    };
    let dimension = |column: &usize| Dimension { column: *column, bits: None };
    let clustering = ClusteringDefinition::new(columns.iter().map(dimension).collect());
    ClusteringDefinition { block_bytes: 8192, ..clustering }.into()
}

fn tables(catalog: &Catalog) -> [Arc<Table>; 2] {
    NAMES.map(|name| catalog.table(name).unwrap())
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Row whose code only rows of the same id have, or none, or (seldom) that of another.
fn row(id: i64, random: &mut Random) -> Row {
    let code = match random.below(1000) {
        0 => Value::from(format!("code {}", id + 1).as_str()),
        1..300 => Value::Null,
        _ => Value::from(format!("code {id}").as_str()),
    };
    vec![Value::BigInt(id), code, Value::Int((random.below(50)) as i32)]
}

/// Result of a statement, in words.
fn said<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(done) => format!("{done:?}"),
        Err(Error::UniqueViolation { columns, .. }) => format!("unique {columns}"),
        Err(Error::DuplicateKey { key, .. }) => format!("duplicate {key}"),
        Err(Error::NoSuchKey { key, .. }) => format!("no key {key}"),
        Err(other) => panic!("{other}"),
    }
}

/// Some statement, on a table in a transaction.
fn change(table: &Table, tx: &Transaction, random: &mut Random) -> String {
    let first = random.below(9000) as i64;
    let count = [1, 20, 700, 5000][random.below(4) as usize];
    let ids: Vec<i64> = (first..first + count).filter(|id| (id * 7) % 5 < 3).collect();
    let keys: Vec<Row> = ids.iter().map(|id| vec![Value::BigInt(*id)]).collect();
    let rows: Vec<Row> = ids.iter().map(|id| row(*id, random)).collect();
    match random.below(6) {
        0 => said(table.delete_many(tx, &keys)),
        1 => said(table.update_many(tx, &keys, &rows)),
        2 => said(table.insert_many(tx, &rows)),
        3 => rows.iter().take(20).map(|row| said(table.upsert(tx, row))).collect(),
        4 => {
            let mut builder = BatchBuilder::new(&columns(), 0);
            rows.iter().for_each(|row| builder.push(row).unwrap());
            said(table.append(tx, &builder.finish()))
        }
        _ => said(table.upsert_many(tx, &rows)),
    }
}

fn rows_of(table: &Arc<Table>, tx: &Transaction) -> Vec<Row> {
    table.scan(ScanRange::full()).rows(tx).unwrap()
}

/// Rows that an index finds.
fn found(table: &Arc<Table>, tx: &Transaction, index: usize, value: &Value) -> Vec<Row> {
    let bound = || Bound::Included(vec![value.clone()]);
    let index = &table.indexes()[index];
    let mut cursor = table.index_scan(tx, index, vec![(bound(), bound())]).unwrap();
    let mut rows = Vec::new();
    while cursor.next_batch(tx, usize::MAX, |row| rows.push(row.to_row())).unwrap() {}
    rows
}

fn compare([by_row, by_column]: &[Arc<Table>; 2], tx: &Transaction, random: &mut Random, when: &str) {
    assert_eq!(rows_of(by_row, tx), rows_of(by_column, tx), "{when}: rows");
    for _ in 0..10 {
        let code = Value::from(format!("code {}", random.below(9000)).as_str());
        assert_eq!(found(by_row, tx, 0, &code), found(by_column, tx, 0, &code), "{when}: {code:?}");
        let amount = Value::Int(random.below(50) as i32);
        assert_eq!(found(by_row, tx, 1, &amount), found(by_column, tx, 1, &amount), "{when}: {amount:?}");
    }
    assert_eq!(found(by_row, tx, 0, &Value::Null), found(by_column, tx, 0, &Value::Null), "{when}: NULL");
}

/// Kinds of the logged changes, with the rows before and after; none of `table` by a commit of `before`.
fn logged(table: &Table, tx: &Transaction) -> Vec<String> {
    let mut changes = Vec::new();
    table
        .logged_changes(tx, LogPosition::after(Timestamp::START), INFINITY, |change, _| {
            let text = |row: Option<entresol_tables::RowView<'_>>| row.map(|row| row.to_row());
            changes.push(format!("{:?} {:?} {:?}", change.kind, text(change.old), text(change.new)));
            true
        })
        .unwrap();
    changes
}

fn run(key: &[&str], changes: Option<Retention>, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let mut random = Random(seed);
    let mut changed = 0;
    for run in 0..3 {
        let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        if run == 0 {
            create(&catalog, key, changes);
        }
        for round in 0..12 {
            let when = format!("seed {seed}, run {run}, round {round}");
            let both = tables(&catalog);
            let tx = catalog.begin().unwrap();
            for _ in 0..=random.below(3) {
                let seed = random.below(u64::MAX >> 34);
                let mark = tx.mark();
                let [one, other] = [0, 1].map(|at| change(&both[at], &tx, &mut Random(seed)));
                assert_eq!(one, other, "{when}");
                if random.below(4) == 0 {
                    tx.rollback_to(mark);
                }
            }
            compare(&both, &tx, &mut random, &when);
            if random.below(5) > 0 {
                tx.commit(Durability::Sync).unwrap();
                changed += 1;
            }
            let before = catalog.begin().unwrap();
            if random.below(2) == 0 {
                both[1].merge(|_| Ok(())).unwrap();
            }
            compare(&both, &before, &mut random, &when);
            drop(before);
            if random.below(3) == 0 {
                let (new, statement) = (new_layout(&mut random), Cancellation::default());
                catalog.set_layout(&statement, NAMES[1], new, &mut |_| Ok(())).unwrap();
            }
            let both = tables(&catalog);
            let tx = catalog.begin().unwrap();
            compare(&both, &tx, &mut random, &when);
            if changes.is_some() {
                let [by_row, by_column] = [&both[0], &both[1]].map(|table| logged(table, &tx));
                assert_eq!(by_row.len(), by_column.len(), "{when}: changes");
                for (one, other) in by_row.iter().zip(&by_column) {
                    assert_eq!(one, other, "{when}: a change");
                }
            }
        }
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "run {run}");
    }
    assert!(changed > 15, "{changed} commits");
}

#[test]
fn tables_with_a_key_are_the_same_in_both_layouts() {
    run(&["id"], None, 4);
}

#[test]
fn logs_of_changes_are_the_same_in_both_layouts() {
    run(&["id"], Some(Retention::Forever), 9);
}

#[test]
fn batches_of_rows_without_a_key_have_their_entries() {
    loads_have_their_entries(TableLayout::Columns.into());
    let by_amount = ClusteringDefinition::new(vec![Dimension { column: 2, bits: None }]);
    loads_have_their_entries(by_amount.into());
}

fn loads_have_their_entries(new: NewLayout) {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    create(&catalog, &[], None);
    catalog.set_layout(&Cancellation::default(), NAMES[1], new, &mut |_| Ok(())).unwrap();
    let both = tables(&catalog);
    let batch = |ids: std::ops::Range<i64>| {
        let mut builder = BatchBuilder::new(&columns(), 0);
        for id in ids {
            let code = Value::from(format!("code {id}").as_str());
            builder.push(&[Value::BigInt(id), code, Value::Int((id % 50) as i32)]).unwrap();
        }
        builder.finish()
    };
    let tx = catalog.begin().unwrap();
    for table in &both {
        table.append(&tx, &batch(0..30_000)).unwrap();
        for again in [29_000..34_500, 40_000..40_001] {
            let is_new = again.start >= 30_000;
            let mark = tx.mark();
            assert_eq!(table.append(&tx, &batch(again)).is_ok(), is_new, "one code twice is an error");
            tx.rollback_to(mark);
        }
    }
    compare(&both, &tx, &mut Random(1), "before the commit");
    tx.commit(Durability::Sync).unwrap();
    compare(&both, &catalog.begin().unwrap(), &mut Random(2), "after it");
    assert!(both[1].estimated_rows() >= 30_000);
    let tx = catalog.begin().unwrap();
    let error = both[1].append(&tx, &batch(29_999..35_000)).unwrap_err();
    assert!(matches!(error, Error::UniqueViolation { .. }), "{error}");
    drop(tx);
    // Of two loads with a code in common one gets a conflict.
    let (one, other) = (catalog.begin().unwrap(), catalog.begin().unwrap());
    both[1].append(&one, &batch(50_000..55_000)).unwrap();
    both[1].append(&other, &batch(54_999..60_000)).unwrap();
    one.commit(Durability::Sync).unwrap();
    assert!(other.commit(Durability::Sync).unwrap_err().is_retryable());
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Ends the threads that look at it, also when their test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Indexes, a log and the layout come and go beside writers and merges; afterwards each index has the entries of the
/// rows, and the log leads from the rows of its beginning to those of its end.
#[test]
fn indexes_and_logs_are_made_beside_writers() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    let rows: Vec<Row> = (0..20_000).map(|id| row(id, &mut Random(id as u64 * 3 + 1))).collect();
    catalog.table("t").unwrap().upsert_many(&tx, &rows).unwrap();
    tx.commit(Durability::None).unwrap();
    let stop = AtomicBool::new(false);
    let commits = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (catalog, stop) = (&catalog, &stop);
                scope.spawn(move || {
                    let (mut random, mut commits) = (Random(writer + 5), 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        let table = catalog.table("t").unwrap();
                        let tx = catalog.begin().unwrap();
                        let ids = random.below(20_000) as i64..;
                        let ids: Vec<i64> = ids.take(random.below(20) as usize + 1).collect();
                        let keys: Vec<Row> = ids.iter().map(|id| vec![Value::BigInt(*id)]).collect();
                        let rows: Vec<Row> = ids.iter().map(|id| row(*id, &mut random)).collect();
                        let done = match random.below(3) {
                            0 => table.delete_many(&tx, &keys).map(drop),
                            _ => table.upsert_many(&tx, &rows),
                        };
                        let committed = done.and_then(|()| Ok(tx.commit(Durability::None)?));
                        commits += u64::from(committed.is_ok());
                    }
                    commits
                })
            })
            .collect();
        let _stops = Stops(&stop);
        for round in 0..4 {
            let table = catalog.table("t").unwrap();
            table.merge(|_| Ok(())).unwrap();
            catalog.create_index("t", index(&format!("amount {round}"), vec![2], false)).unwrap();
            catalog.set_changes("t", Some(Retention::Forever)).unwrap();
            let table = catalog.table("t").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30));
            table.merge(|_| Ok(())).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30));
            if round % 2 == 1 {
                let mut random = Random(round + 3);
                for new in [TableLayout::Rows.into(), new_layout(&mut random), new_layout(&mut random)] {
                    catalog.set_layout(&Cancellation::default(), "t", new, &mut |_| Ok(())).unwrap();
                }
            }
            is_told_by_its_log(&catalog);
            catalog.set_changes("t", None).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
    });
    assert!(commits > 50, "{commits} commits");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Undoes the logged changes in the rows of a snapshot, the last first: each must be there as the log says.
fn is_told_by_its_log(catalog: &Catalog) {
    let table = catalog.table("t").unwrap();
    let tx = catalog.begin().unwrap();
    let id = |row: &Row| if let Value::BigInt(id) = row[0] { id } else { panic!("an id") };
    let mut rows: std::collections::BTreeMap<i64, Row> =
        rows_of(&table, &tx).into_iter().map(|row| (id(&row), row)).collect();
    let mut changes = Vec::new();
    let from = table.changes_begin(&tx).unwrap();
    table
        .logged_changes(&tx, from, INFINITY, |change, _| {
            changes.push((change.old.map(|row| row.to_row()), change.new.map(|row| row.to_row())));
            true
        })
        .unwrap();
    assert!(!changes.is_empty(), "there were writers");
    for (old, new) in changes.into_iter().rev() {
        let key = id(old.as_ref().or(new.as_ref()).unwrap());
        assert_eq!(rows.remove(&key), new, "the row {key} after its change");
        rows.extend(old.map(|old| (key, old)));
    }
}
