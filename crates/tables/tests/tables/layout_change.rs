//! Changes of a table's layout: beside a model, with merges and restarts between them, beside writers, for old
//! snapshots and definitions, and in the past.
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, DataType, Dimension, DimensionOrder, ElfCaching,
    ElfLayout, Error, MergeStats, NewLayout, Retention, Row, ScanRange, Schema, Table, TableDefinition,
    TableLayout, TableOptions, Value, check,
};
use entresol_transactions::{Cancellation, Interrupt, StateContext, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Model = BTreeMap<i64, Row>;

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::BigInt),
        Column::new("name", DataType::Varchar),
        Column::new("reading", DataType::Double),
    ]
}

fn create(catalog: &Catalog, key: &[&str], layout: TableLayout) -> Arc<Table> {
    let definition =
        TableDefinition { layout, ..TableDefinition::plain(Schema::new(columns(), key).unwrap()) };
    catalog.create_table_as("t", definition, TableOptions::default()).unwrap()
}

fn row(id: i64, random: u64) -> Row {
    let name = if random.is_multiple_of(7) {
        Value::Null
    } else {
        Value::from(format!("name {}", random % 40).as_str())
    };
    vec![Value::BigInt(id), name, Value::Double((random % 9999) as f64 / 100.0)]
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Transactions(error) => error.is_retryable(),
        error => matches!(error, Error::TableChanged { .. }),
    }
}

/// Layout `clustered` by columns, with small blocks.
fn clustered(columns: &[usize]) -> NewLayout {
    let dimension = |column: &usize| Dimension { column: *column, bits: None };
    let clustering = ClusteringDefinition::new(columns.iter().map(dimension).collect());
    ClusteringDefinition { block_bytes: 8192, ..clustering }.into()
}

/// Some layout, with some dimensions.
fn some_layout(random: &mut Random) -> NewLayout {
    match random.below(8) {
        0 => TableLayout::Rows.into(),
        1 | 2 => TableLayout::Columns.into(),
        3 => clustered(&[1]),
        4 => TableLayout::Elf.into(),
        5 => ElfLayout { dimensions: vec![2, 1, 0], caching: ElfCaching::Whole }.into(),
        _ => clustered(&[2, 0]),
    }
}

fn set(catalog: &Catalog, layout: impl Into<NewLayout>) -> Result<(), Error> {
    catalog.set_layout(&Cancellation::default(), "t", layout, &mut |_| Ok(()))
}

fn rows_of(table: &Arc<Table>, tx: &Transaction) -> Vec<Row> {
    table.scan(ScanRange::full()).rows(tx).unwrap()
}

fn expect(table: &Arc<Table>, tx: &Transaction, model: &Model, what: &str) {
    assert!(rows_of(table, tx).iter().eq(model.values()), "{what}: rows");
    let keys: Vec<Row> = (0..400).map(|at| vec![Value::BigInt(at * 37)]).collect();
    let found = table.get_many(tx, &keys).unwrap();
    for (at, found) in found.iter().enumerate() {
        assert_eq!(found.as_ref(), model.get(&(at as i64 * 37)), "{what}: key {}", at * 37);
    }
}

fn load(catalog: &Catalog, table: &Arc<Table>, ids: impl Iterator<Item = i64>) {
    let mut builder = BatchBuilder::new(&columns(), 0);
    ids.for_each(|id| builder.push(&row(id, id as u64)).unwrap());
    let tx = catalog.begin().unwrap();
    table.append(&tx, &builder.finish()).unwrap();
    tx.commit(Durability::Sync).unwrap();
}

/// Changes some rows, and the model alike.
fn change(table: &Arc<Table>, tx: &Transaction, model: &mut Model, random: &mut Random) {
    let first = random.below(14_000) as i64;
    let count = [1, 40, 900, 5000][random.below(4) as usize];
    let ids: Vec<i64> = (first..first + count).filter(|id| (id * 7) % 5 < 3).collect();
    if random.below(3) == 0 {
        let keys: Vec<Row> = ids.iter().map(|id| vec![Value::BigInt(*id)]).collect();
        let there = ids.iter().filter(|id| model.remove(id).is_some()).count();
        assert_eq!(table.delete_many(tx, &keys).unwrap(), there);
        return;
    }
    let rows: Vec<Row> = ids.iter().map(|id| row(*id, random.below(1 << 30))).collect();
    table.upsert_many(tx, &rows).unwrap();
    model.extend(ids.into_iter().zip(rows));
}

#[test]
fn rows_are_those_of_a_model_over_changes_of_the_layout() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let (mut random, mut model, mut changes) = (Random(11), Model::new(), 0);
    for run in 0..3 {
        let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        let first = catalog.table("t").unwrap_or_else(|_| create(&catalog, &["id"], TableLayout::Rows));
        for round in 0..12 {
            let table = catalog.table("t").unwrap();
            let tx = catalog.begin().unwrap();
            let mut changed = model.clone();
            change(&table, &tx, &mut changed, &mut random);
            change(&first, &tx, &mut changed, &mut random);
            expect(&table, &tx, &changed, "its own writes");
            if random.below(5) > 0 {
                tx.commit(Durability::Sync).unwrap();
                model = changed;
            }
            if random.below(3) == 0 {
                table.merge(|_| Ok(())).unwrap();
            }
            let wanted = some_layout(&mut random);
            let old = catalog.begin().unwrap();
            changes += u64::from(wanted.layout != table.definition().layout);
            set(&catalog, wanted.clone()).unwrap();
            let now = catalog.table("t").unwrap();
            assert_eq!(now.definition().layout, wanted.layout, "run {run}, round {round}");
            assert_eq!(now.definition().clustering, wanted.clustering, "run {run}, round {round}");
            for table in [&table, &now, &first] {
                expect(table, &old, &model, "an old snapshot");
            }
            drop(old);
            for table in [&table, &now, &first] {
                expect(table, &catalog.begin().unwrap(), &model, "a new snapshot");
            }
        }
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "run {run}");
    }
    assert!(model.len() > 2000 && changes > 10, "{} rows, {changes} changes", model.len());
}

#[test]
fn rows_without_a_key_stay_in_their_order_and_get_new_numbers() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[], TableLayout::Columns);
    load(&catalog, &table, 0..20_000);
    let before = rows_of(&table, &catalog.begin().unwrap());
    set(&catalog, TableLayout::Rows).unwrap();
    let table = catalog.table("t").unwrap();
    assert_eq!(rows_of(&table, &catalog.begin().unwrap()), before);
    load(&catalog, &table, 20_000..21_000);
    let rows = rows_of(&table, &catalog.begin().unwrap());
    assert_eq!(rows.len(), 21_000);
    assert_eq!(rows[20_999][0], Value::BigInt(20_999), "its number is behind all");
    set(&catalog, TableLayout::Columns).unwrap();
    let table = catalog.table("t").unwrap();
    assert_eq!(rows_of(&table, &catalog.begin().unwrap()), rows);
    assert!(!table.is_merge_due(), "its rows are in row groups");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Ends the threads that look at it, also when their test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two writers move rows away and back while the layout changes, so the number of rows stays.
#[test]
fn changes_of_the_layout_beside_writers_lose_nothing() {
    const ROWS: i64 = 6000;
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &["id"], TableLayout::Rows);
    load(&catalog, &table, 0..ROWS);
    let stop = AtomicBool::new(false);
    let commits = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (catalog, first, stop) = (&catalog, &table, &stop);
                scope.spawn(move || {
                    let (mut random, mut commits) = (Random(writer + 77), 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        let current = catalog.table("t").unwrap();
                        let table = if random.below(2) == 0 { first } else { &current };
                        let id = random.below(ROWS as u64) as i64;
                        let tx = catalog.begin().unwrap();
                        let there = table.get(&tx, &[Value::BigInt(id)]).unwrap().is_some();
                        let (from, to) = if there { (id, id + ROWS) } else { (id + ROWS, id) };
                        let moved = table
                            .delete(&tx, &[Value::BigInt(from)])
                            .and_then(|there| {
                                assert!(there, "row {from} is here or away");
                                table.insert(&tx, &row(to, random.below(99)))
                            })
                            .and_then(|()| Ok(tx.commit(Durability::None)?));
                        match moved {
                            Ok(_) => commits += 1,
                            Err(error) => {
                                assert!(is_retryable(&error), "{error}");
                            }
                        }
                    }
                    commits
                })
            })
            .collect();
        let _stops = Stops(&stop);
        for round in 0..10 {
            let before = catalog.begin().unwrap();
            let rows = rows_of(&catalog.table("t").unwrap(), &before);
            assert_eq!(rows.len() as i64, ROWS, "round {round}");
            let new = match round % 4 {
                0 => TableLayout::Columns.into(),
                1 => clustered(&[1]),
                2 if round > 4 => TableLayout::Columns.into(),
                _ => TableLayout::Rows.into(),
            };
            set(&catalog, new).unwrap();
            let now = catalog.table("t").unwrap();
            assert_eq!(rows_of(&now, &before), rows, "a snapshot stays, round {round}");
            let after = rows_of(&now, &catalog.begin().unwrap());
            assert_eq!(after.len() as i64, ROWS, "round {round}");
            let id = |row: &Row| if let Value::BigInt(id) = row[0] { id % ROWS } else { panic!("an id") };
            let mut ids: Vec<i64> = after.iter().map(id).collect();
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..ROWS), "each row is here or away, round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
    });
    assert!(commits > 50, "{commits} commits");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_load_in_flight_is_cut_off() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[], TableLayout::Columns);
    load(&catalog, &table, 0..9000);
    let tx = catalog.begin().unwrap();
    let mut builder = BatchBuilder::new(&columns(), 0);
    (0..5000).for_each(|id| builder.push(&row(id, 3)).unwrap());
    table.append(&tx, &builder.finish()).unwrap();
    set(&catalog, TableLayout::Rows).unwrap();
    assert!(is_retryable(&tx.commit(Durability::None).unwrap_err().into()));
    assert_eq!(rows_of(&catalog.table("t").unwrap(), &catalog.begin().unwrap()).len(), 9000);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn the_past_stays_readable_to_columns_and_begins_anew_to_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let table = catalog.create_table_as("t", definition, options).unwrap();
    let mut points = Vec::new();
    let mut write = |catalog: &Catalog, round: u64| {
        let table = catalog.table("t").unwrap();
        let tx = catalog.begin().unwrap();
        let first = round as i64 * 300;
        let rows: Vec<Row> = (first..first + 500).map(|id| row(id, id as u64 + round)).collect();
        table.upsert_many(&tx, &rows).unwrap();
        table.delete(&tx, &[Value::BigInt(first + 2)]).unwrap();
        tx.commit(Durability::Sync).unwrap();
        points.push((catalog.context().newest_commit(), rows_of(&table, &catalog.begin().unwrap())));
        points.clone()
    };
    (0..3).for_each(|round| drop(write(&catalog, round)));
    set(&catalog, TableLayout::Columns).unwrap();
    let ways = [clustered(&[1]), TableLayout::Columns.into(), clustered(&[2, 1]), clustered(&[2])];
    for (round, new) in (3..).zip(ways) {
        write(&catalog, round);
        set(&catalog, new).unwrap();
    }
    let points = write(&catalog, 7);
    catalog.table("t").unwrap().merge(|_| Ok(())).unwrap();
    let read_all = |catalog: &Catalog, table: &Arc<Table>| {
        for (at, rows) in &points {
            assert_eq!(&rows_of(table, &catalog.begin_as_of(*at).unwrap()), rows, "as of {at}");
        }
    };
    read_all(&catalog, &catalog.table("t").unwrap());
    read_all(&catalog, &table);
    drop((table, catalog, pool));
    let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    read_all(&catalog, &catalog.table("t").unwrap());

    let columnar = catalog.table("t").unwrap();
    let open_reader = catalog.begin_as_of(points[1].0).unwrap();
    set(&catalog, TableLayout::Rows).unwrap();
    let by_row = catalog.table("t").unwrap();
    for table in [&columnar, &by_row] {
        for at in points.iter().map(|(at, _)| *at) {
            let error = table.scan(ScanRange::full()).rows(&catalog.begin_as_of(at).unwrap()).unwrap_err();
            let named = ["the version history of", "table t begins at"];
            assert!(named.iter().all(|what| error.to_string().contains(what)), "{error}");
        }
    }
    assert!(columnar.scan(ScanRange::full()).rows(&open_reader).is_err(), "an error, not fewer rows");
    let now = catalog.context().newest_commit();
    let rows = rows_of(&by_row, &catalog.begin().unwrap());
    by_row.delete_many(&catalog.begin().unwrap(), &[[Value::BigInt(900)]]).unwrap();
    let tx = catalog.begin().unwrap();
    assert!(by_row.delete(&tx, &[Value::BigInt(901)]).unwrap());
    tx.commit(Durability::Sync).unwrap();
    drop((open_reader, tx, columnar, by_row, catalog, pool));
    let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = catalog.table("t").unwrap();
    assert_eq!(rows_of(&table, &catalog.begin_as_of(now).unwrap()), rows, "the present of then");
    assert_eq!(rows_of(&table, &catalog.begin().unwrap()).len() + 1, rows.len());
    assert!(table.scan(ScanRange::full()).rows(&catalog.begin_as_of(points[3].0).unwrap()).is_err());
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn what_cannot_change_is_refused_by_name() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[], TableLayout::Columns);
    load(&catalog, &table, 0..5000);
    let of = (vec![1, 0], DimensionOrder::Auto, ElfCaching::Whole);
    catalog.create_elf(&Cancellation::default(), "t", "by_name", of).unwrap();
    let error = set(&catalog, TableLayout::Rows).unwrap_err().to_string();
    assert!(error.contains("by_name"), "{error}");
    catalog.drop_index("by_name").unwrap();

    // It is cancelled between two steps, and nothing has happened.
    let cancelled = Cancellation::default();
    let stopped = catalog.set_layout(&cancelled, "t", TableLayout::Rows, &mut |_| {
        assert!(cancelled.interrupt(Interrupt::Requested));
        Ok(())
    });
    assert!(stopped.unwrap_err().to_string().contains("user request"));
    let table = catalog.table("t").unwrap();
    assert_eq!(table.definition().layout, TableLayout::Columns);
    assert_eq!(rows_of(&table, &catalog.begin().unwrap()).len(), 5000);
    assert_eq!(table.merge(|_| Ok(())).unwrap().rows, 5000, "they are merged again");

    let old = catalog.begin().unwrap();
    set(&catalog, TableLayout::Rows).unwrap();
    let error = set(&catalog, TableLayout::Columns).unwrap_err();
    assert!(matches!(&error, Error::LayoutInUse { table } if table == "t"), "{error}");
    drop(old);
    set(&catalog, TableLayout::Columns).unwrap();

    let owner = Some("topology sums".to_owned());
    let plain = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    let definition = TableDefinition { owner, ..plain };
    catalog.create_table_as("sums", definition, TableOptions::default()).unwrap();
    let changed = catalog.set_layout(&Cancellation::default(), "sums", TableLayout::Columns, &mut |_| Ok(()));
    let error = changed.unwrap_err().to_string();
    assert!(error.contains("sums") && error.contains("topology sums"), "{error}");
    assert!(matches!(
        catalog.set_layout(&Cancellation::default(), "none", TableLayout::Columns, &mut |_| Ok(())),
        Err(Error::NoSuchTable { .. })
    ));
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// A table larger than all memory that there is: no step holds more than a part of it.
#[test]
fn memory_is_that_of_a_step() {
    const ROWS: i64 = 165_000;
    let memory = MemoryBudget::new(64 << 20).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = PoolOptions { memory: Some(memory), ..PoolOptions::default() };
    let pool = Pool::open_or_create(&directory.path().join("pool.entresol"), &options).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &["id"], TableLayout::Rows);
    let mut random = Random(8);
    let mut text =
        move || (0..25).map(|_| format!("{:016x}", random.below(u64::MAX >> 34))).collect::<String>();
    for first in (0..ROWS).step_by(5000) {
        let tx = catalog.begin().unwrap();
        let rows: Vec<Row> = (first..first + 5000)
            .map(|id| vec![Value::BigInt(id), Value::from(text().as_str()), Value::Double(id as f64)])
            .collect();
        table.upsert_many(&tx, &rows).unwrap();
        tx.commit(Durability::None).unwrap();
    }
    let columns: NewLayout = TableLayout::Columns.into();
    for new in [columns.clone(), clustered(&[2]), columns, TableLayout::Rows.into()] {
        let (layout, mut steps) = (new.layout, 0);
        let statement = Cancellation::default();
        let count = &mut |_: &MergeStats| {
            steps += 1;
            Ok(())
        };
        catalog.set_layout(&statement, "t", new, count).unwrap();
        assert!(steps > 1, "{steps} steps to {}", layout.name());
        let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
        let (mut cursor, mut rows, mut sum) = (table.scan(ScanRange::full()), 0, 0.0);
        while cursor
            .next_batch(&tx, |row| {
                (rows, sum) = (rows + 1, sum + row.double(2));
            })
            .unwrap()
        {}
        assert_eq!((rows, sum), (ROWS, (0..ROWS).sum::<i64>() as f64), "with {}", layout.name());
    }
    // In one transaction it would not do.
    let tx = catalog.begin().unwrap();
    let table = catalog.table("t").unwrap();
    let mut rows = Vec::new();
    let mut cursor = table.scan(ScanRange::full());
    let mut written = Ok(());
    let reader = catalog.begin().unwrap();
    while written.is_ok() && cursor.next_batch(&reader, |row| rows.push(row.to_row())).unwrap() {
        written = table.upsert_many(&tx, &rows);
        rows.clear();
    }
    assert!(written.is_err(), "the budget is smaller than the table");
}

/// The space of row groups, and of rows that went into some, comes back.
#[test]
fn space_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let pool =
        Pool::open_or_create(&directory.path().join("pool.entresol"), &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &["id"], TableLayout::Rows);
    load(&catalog, &table, 0..60_000);
    let states = catalog.context().states().len();
    let mut used = Vec::new();
    for _ in 0..3 {
        for layout in [TableLayout::Columns, TableLayout::Rows] {
            set(&catalog, layout).unwrap();
            catalog.context().vacuum().unwrap();
            used.push(pool.stats().allocated_bytes);
        }
    }
    assert_eq!(catalog.context().states().len(), states, "no state is left over");
    assert!(used[0] * 3 < used[1], "by column it is smaller: {used:?}");
    assert!(used[5] * 4 < used[1] * 5 && used[4] * 4 < used[0] * 5, "it does not grow: {used:?}");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}
