//! Tables with the layout `columns`: beside a model, under merges, over restarts, beside writers, and with
//! columns that come and go.
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, CachePolicy, Catalog, Column, ColumnCondition, ColumnFilter, ColumnMorsel, ColumnScan,
    DataType, Direction, Error, IntegerSet, Retention, Row, ScanRange, Schema, Table, TableDefinition,
    TableLayout, TableOptions, Value, arrow_schema, batch_to_rows, check,
};
use entresol_transactions::{StateContext, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::BigInt),
        Column::new("amount", DataType::Decimal { precision: 20, scale: 2 }),
        Column::new("name", DataType::Varchar),
        Column::new("reading", DataType::Double),
        Column::new("day", DataType::Date),
    ]
}

fn definition(key: &[&str]) -> TableDefinition {
    let mut definition = TableDefinition::plain(Schema::new(columns(), key).unwrap());
    definition.layout = TableLayout::Columns;
    definition
}

fn create(catalog: &Catalog, key: &[&str]) -> Arc<Table> {
    catalog.create_table_as("facts", definition(key), TableOptions::default()).unwrap()
}

fn row(id: i64, random: u64) -> Row {
    let nullable = |value: Value, share: u64| if random.is_multiple_of(share) { Value::Null } else { value };
    vec![
        Value::BigInt(id),
        nullable(Value::Decimal(i128::from(random % 1_000_000) - 500), 11),
        nullable(Value::from(format!("name {}", random % 40).as_str()), 7),
        nullable(Value::Double((random % 9999) as f64 / 100.0), 13),
        Value::Date((random % 3000) as i32),
    ]
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

type Model = BTreeMap<i64, Row>;

/// Rows of a scan by columns, sorted.
fn scanned(table: &Arc<Table>, tx: &Transaction, filters: Vec<ColumnFilter>) -> Vec<Row> {
    let visible = table.schema().visible_columns();
    let arrow = arrow_schema(visible, "UTC");
    let scan = table.column_scan(tx, (0..visible.len()).collect(), arrow, filters).unwrap().unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |batch: RecordBatch| rows.extend(batch_to_rows("facts", visible, &batch).unwrap());
    for morsel in scan.morsels() {
        scan.read(tx, morsel).unwrap().into_iter().for_each(&mut add);
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(tx).unwrap() {
        add(batch);
    }
    rows.sort_by_key(|row| if let Value::BigInt(id) = row[0] { id } else { panic!("an id") });
    rows
}

/// Compares all ways of reading with a model.
fn compare(table: &Arc<Table>, tx: &Transaction, model: &Model, random: &mut Random) {
    let expected: Vec<Row> = model.values().cloned().collect();
    assert_eq!(scanned(table, tx, Vec::new()), expected, "a scan by columns");
    assert_eq!(table.scan(ScanRange::full()).rows(tx).unwrap(), expected, "a cursor");
    let backwards = table.scan(ScanRange::full()).directed(Direction::Backward).rows(tx).unwrap();
    assert!(backwards.iter().rev().eq(&expected), "a cursor backwards");
    let (low, width) = (random.below(60_000) as i64, random.below(9000) as i64);
    let range = ScanRange::between(
        Bound::Included(&[Value::BigInt(low)]),
        Bound::Excluded(&[Value::BigInt(low + width)]),
    );
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = table.scan(range.clone()).directed(direction).rows(tx).unwrap();
        if direction == Direction::Backward {
            rows.reverse();
        }
        let expected: Vec<Row> = model.range(low..low + width).map(|(_, row)| row.clone()).collect();
        assert_eq!(rows, expected, "{direction:?} from {low} to {}", low + width);
    }
    let keys: Vec<Row> = (0..50).map(|_| vec![Value::BigInt(random.below(60_000) as i64)]).collect();
    let found = table.get_many(tx, &keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        let Value::BigInt(id) = key[0] else { panic!("a key") };
        assert_eq!(found.as_ref(), model.get(&id), "key {id}");
    }
    let (least, greatest) = (random.below(3000) as i64, random.below(3000) as i64);
    let names = random.below(40);
    let ids: Vec<i64> = (0..2000).map(|_| random.below(60_000) as i64).collect();
    let set = Arc::new(IntegerSet::new(&ids, 1 << 20).unwrap());
    let filters = [
        ColumnFilter { column: 4, condition: ColumnCondition::Between { least, greatest } },
        ColumnFilter {
            column: 2,
            condition: ColumnCondition::Texts(Arc::new(move |text| text > format!("name {names}").as_str())),
        },
        ColumnFilter { column: 0, condition: ColumnCondition::Among(Arc::clone(&set)) },
        ColumnFilter { column: 1, condition: ColumnCondition::Between { least: -400, greatest: 700_000 } },
    ];
    for count in 0..=filters.len() {
        let is_met = |row: &&Row| {
            let day = matches!(row[4], Value::Date(day) if (least..=greatest).contains(&day.into()));
            let name = matches!(&row[2], Value::Varchar(text) if **text > *format!("name {names}"));
            let id = matches!(row[0], Value::BigInt(id) if set.contains(id));
            let amount = matches!(row[1], Value::Decimal(amount) if (-400..=700_000).contains(&amount));
            [day, name, id, amount][..count].iter().all(|met| *met)
        };
        let expected: Vec<Row> = model.values().filter(is_met).cloned().collect();
        assert_eq!(scanned(table, tx, filters[..count].to_vec()), expected, "{count} filters");
    }
}

#[test]
fn rows_are_those_of_a_model_under_merges_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let mut random = Random(5);
    let mut model = Model::new();
    for run in 0..3 {
        let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        let table = catalog.table("facts").unwrap_or_else(|_| create(&catalog, &["id"]));
        assert_eq!(table.definition().layout, TableLayout::Columns);
        for round in 0..8 {
            let tx = catalog.begin().unwrap();
            let mut changed = model.clone();
            for _ in 0..random.below(4) + 1 {
                change(&table, &tx, &mut changed, &mut random);
            }
            if round % 3 == 0 {
                compare(&table, &tx, &changed, &mut random);
            }
            if random.below(5) > 0 {
                tx.commit(Durability::Sync).unwrap();
                model = changed;
            }
            if random.below(3) == 0 {
                let before = catalog.begin().unwrap();
                let stats = table.merge(|_| Ok(())).unwrap();
                assert_eq!(stats.conflicts, 0);
                compare(&table, &before, &model, &mut random);
            }
            compare(&table, &catalog.begin().unwrap(), &model, &mut random);
        }
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "run {run}");
    }
    assert!(model.len() > 2000, "{} rows", model.len());
}

/// Changes some rows, and the model alike.
fn change(table: &Arc<Table>, tx: &Transaction, model: &mut Model, random: &mut Random) {
    let first = random.below(50_000) as i64;
    let count = [1, 30, 3000, 9000][random.below(4) as usize];
    let ids: Vec<i64> = (first..first + count).filter(|id| (id * 7) % 5 < 3).collect();
    let rows: Vec<Row> = ids.iter().map(|id| row(*id, random.below(1 << 30))).collect();
    let there: Vec<i64> = ids.iter().copied().filter(|id| model.contains_key(id)).collect();
    match random.below(5) {
        0 if there.is_empty() => {
            table.insert_many(tx, &rows).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
        0 => assert!(matches!(table.insert_many(tx, &rows), Err(Error::DuplicateKey { .. }))),
        1 => {
            let keys: Vec<Row> = ids.iter().map(|id| vec![Value::BigInt(*id)]).collect();
            assert_eq!(table.delete_many(tx, &keys).unwrap(), there.len());
            there.iter().for_each(|id| drop(model.remove(id)));
        }
        2 => {
            // New keys for those that are free behind all.
            let keys: Vec<Row> = there.iter().map(|id| vec![Value::BigInt(*id)]).collect();
            let moved = |id: &i64| {
                if id % 11 == 0 && !model.contains_key(&(id + 1_000_000)) { id + 1_000_000 } else { *id }
            };
            let new: Vec<Row> = there.iter().map(|id| row(moved(id), random.below(1 << 30))).collect();
            table.update_many(tx, &keys, &new).unwrap();
            let back = |id: i64| if id > 900_000 { id - 1_000_000 } else { id };
            for row in new {
                let Value::BigInt(id) = row[0] else { panic!("an id") };
                model.remove(&back(id));
                model.insert(id, row);
            }
            // Those behind all are deleted again.
            let far: Vec<i64> = model.range(900_000..).map(|(id, _)| *id).collect();
            for id in far {
                assert!(table.delete(tx, &[Value::BigInt(id)]).unwrap());
                model.remove(&id);
            }
        }
        3 => {
            let mut builder = BatchBuilder::new(&columns(), rows.len());
            rows.iter().for_each(|row| builder.push(row).unwrap());
            table.upsert_batch(tx, &builder.finish()).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
        _ => {
            table.upsert_many(tx, &rows).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
    }
}

fn batch(first: i64, rows: i64) -> RecordBatch {
    let mut builder = BatchBuilder::new(&columns(), rows as usize);
    (first..first + rows)
        .for_each(|id| builder.push(&row(id, (id as u64).wrapping_mul(2_654_435_761) >> 7)).unwrap());
    builder.finish()
}

/// Sum and number of the ids, by columns.
fn sum(table: &Arc<Table>, tx: &Transaction) -> (i64, i64) {
    let arrow = arrow_schema(&table.schema().columns()[..1], "UTC");
    let scan = table.column_scan(tx, vec![0], arrow, Vec::new()).unwrap().unwrap();
    let (mut sum, mut rows) = (0, 0);
    let mut add = |batch: RecordBatch| {
        rows += batch.num_rows() as i64;
        sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    };
    scan.morsels()
        .into_iter()
        .for_each(|morsel| scan.read(tx, morsel).unwrap().into_iter().for_each(&mut add));
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(tx).unwrap() {
        add(batch);
    }
    (sum, rows)
}

#[test]
fn batches_of_new_rows_become_row_groups_at_once() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[]);
    let tx = catalog.begin().unwrap();
    for part in 0..5 {
        table.append(&tx, &batch(part * 40_000, 40_000)).unwrap();
    }
    table.append(&tx, &batch(200_000, 10)).unwrap();
    let expected = ((0..200_010).sum(), 200_010);
    assert_eq!(sum(&table, &tx), expected, "own row groups are seen");
    assert_eq!(sum(&table, &catalog.begin().unwrap()), (0, 0), "others do not see them");
    let mark = tx.mark();
    table.append(&tx, &batch(300_000, 5000)).unwrap();
    tx.rollback_to(mark);
    assert_eq!(sum(&table, &tx), expected);
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(sum(&table, &catalog.begin().unwrap()), expected);
    assert!(table.estimated_rows() >= 200_000);

    // Row numbers go on behind those of the row groups, also in another run.
    let reopened = open(&pool);
    let again = reopened.table("facts").unwrap();
    let before = reopened.begin().unwrap();
    let tx = reopened.begin().unwrap();
    again.insert(&tx, &row(200_010, 5)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let stats = again.merge(|_| Ok(())).unwrap();
    assert!(stats.rows >= 200_011, "small row groups are merged, too: {stats:?}");
    assert_eq!(sum(&again, &before), expected, "an older snapshot");
    let tx = reopened.begin().unwrap();
    assert_eq!(sum(&again, &tx), (expected.0 + 200_010, 200_011));
    let mut cursor = again.scan(ScanRange::full());
    let (mut last, mut rows) = (0, 0);
    while cursor
        .next_batch(&tx, |row| {
            assert!(row.bigint(5) > last, "row numbers ascend");
            (last, rows) = (row.bigint(5), rows + 1);
        })
        .unwrap()
    {}
    assert_eq!(rows, 200_011);
    drop(tx);
    // Most of a row group is deleted: it is merged again.
    let tx = reopened.begin().unwrap();
    let keys: Vec<Row> = (1..=100_000).map(|rowid| vec![Value::BigInt(rowid)]).collect();
    assert_eq!(again.delete_many(&tx, &keys).unwrap(), 100_000);
    tx.commit(Durability::Sync).unwrap();
    let stats = again.merge(|_| Ok(())).unwrap();
    assert_eq!(stats.deleted, 100_000);
    assert_eq!(sum(&again, &reopened.begin().unwrap()).1, 100_011);
    assert_eq!(check(&reopened, |_| {}).unwrap().problems, []);
}

#[test]
fn merges_beside_writers_lose_nothing() {
    const ROWS: i64 = 20_000;
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &["id"]);
    let tx = catalog.begin().unwrap();
    table.append(&tx, &batch(0, ROWS)).unwrap();
    tx.commit(Durability::None).unwrap();
    let stop = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (catalog, table, stop) = (&catalog, &table, &stop);
                scope.spawn(move || {
                    let (mut random, mut commits) = (Random(writer + 77), 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        // Moves a row away and back, or rewrites it: the sum and the number stay.
                        let id = random.below(ROWS as u64) as i64;
                        let tx = catalog.begin().unwrap();
                        let away = [Value::BigInt(id + ROWS)];
                        let done = match table.get(&tx, &[Value::BigInt(id)]).unwrap() {
                            Some(_) => {
                                table.update(&tx, &[Value::BigInt(id)], &row(id + ROWS, random.below(99)))
                            }
                            None => table.update(&tx, &away, &row(id, random.below(99))),
                        };
                        let committed = done.and_then(|()| Ok(tx.commit(Durability::None)?));
                        commits += u64::from(committed.is_ok());
                    }
                    commits
                })
            })
            .collect();
        let mut random = Random(3);
        for _ in 0..12 {
            let before = catalog.begin().unwrap();
            let (expected, rows) = sum(&table, &before);
            assert_eq!(rows, ROWS);
            table.merge(|_| Ok(())).unwrap();
            assert_eq!(sum(&table, &before), (expected, rows), "a snapshot stays");
            let tx = catalog.begin().unwrap();
            let (now, rows) = sum(&table, &tx);
            assert_eq!((now - (0..ROWS).sum::<i64>()) % ROWS, 0, "each id is there once, here or away");
            assert_eq!(rows, ROWS);
            let id = random.below(ROWS as u64) as i64;
            let there = |id: i64| table.get(&tx, &[Value::BigInt(id)]).unwrap().is_some();
            assert_ne!(there(id), there(id + ROWS));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
    });
    assert!(moved > 50, "{moved} commits");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn columns_come_and_go() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[]);
    let write = |table: &Arc<Table>, batch: &RecordBatch| {
        let tx = catalog.begin().unwrap();
        table.append(&tx, batch).unwrap();
        tx.commit(Durability::Sync).unwrap();
    };
    write(&table, &batch(0, 5000));
    let no_check = None::<entresol_tables::Verify<'_, Error>>;
    let table = catalog
        .redefine("facts", no_check, |definition| {
            let schema = definition.schema.without_column(2)?;
            let schema = schema.with_column(Column::new("place", DataType::Varchar), Value::from("here"))?;
            definition.defaults = vec![None; schema.visible_columns().len()];
            definition.schema = Arc::new(schema);
            Ok(())
        })
        .unwrap();
    let mut builder = BatchBuilder::new(table.schema().visible_columns(), 5000);
    for id in 5000..10_000 {
        let mut row = row(id, 17);
        row.remove(2);
        row.push(Value::from("there"));
        builder.push(&row).unwrap();
    }
    write(&table, &builder.finish());
    for merged in [false, true] {
        let rows = scanned(&table, &catalog.begin().unwrap(), Vec::new());
        assert_eq!(rows.len(), 10_000);
        for (id, row) in rows.iter().enumerate() {
            assert_eq!(row.len(), 5);
            assert_eq!(row[4], Value::from(if id < 5000 { "here" } else { "there" }), "row {id}");
        }
        let there = |text: &str| text == "there";
        let filter = ColumnFilter { column: 4, condition: ColumnCondition::Texts(Arc::new(there)) };
        assert_eq!(scanned(&table, &catalog.begin().unwrap(), vec![filter]).len(), 5000);
        if !merged {
            assert_eq!(table.merge(|_| Ok(())).unwrap().rows, 10_000);
        }
    }
}

#[test]
fn a_table_is_read_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::open_or_create(&directory.path().join("p"), &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let table = catalog.create_table_as("facts", definition(&["id"]), options).unwrap();
    let mut points = Vec::new();
    for round in 0..5 {
        let tx = catalog.begin().unwrap();
        let rows: Vec<Row> =
            (round * 500..round * 500 + 6000).map(|id| row(id, (id + round) as u64)).collect();
        table.upsert_many(&tx, &rows).unwrap();
        table.delete(&tx, &[Value::BigInt(round)]).unwrap();
        points.push((tx.commit(Durability::Sync).unwrap().cts, ()));
        table.merge(|_| Ok(())).unwrap();
    }
    for (number, (at, ())) in points.iter().enumerate() {
        let tx = catalog.begin_as_of(*at).unwrap();
        let mut rows = scanned(&table, &tx, Vec::new());
        assert_eq!(rows.len(), 6000 + number * 500 - 1 - number, "as of commit {number}");
        let last = rows.pop().unwrap();
        assert_eq!(last, row(number as i64 * 500 + 5999, (number * 501 + 5999) as u64));
    }
    catalog.drop_history("facts").unwrap();
}

#[test]
fn long_strings_are_merged_to_an_end() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let columns = vec![Column::new("id", DataType::Int), Column::new("text", DataType::Varchar)];
    let mut definition = TableDefinition::plain(Schema::new(columns.clone(), &[""; 0]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("texts", definition, TableOptions::default()).unwrap();
    let mut random = Random(9);
    for part in 0..12 {
        let mut builder = BatchBuilder::new(&columns, 10_000);
        for row in 0..10_000 {
            let text = format!("{:016x}{:016x}-{row:06}", random.below(1 << 31), random.below(1 << 31));
            builder.push(&[Value::Int(part * 10_000 + row), Value::from(text.as_str())]).unwrap();
        }
        let tx = catalog.begin().unwrap();
        table.append(&tx, &builder.finish()).unwrap();
        tx.commit(Durability::None).unwrap();
    }
    let mut steps = 0;
    table
        .merge(|_| {
            steps += 1;
            assert!(steps < 50, "the merge goes on for ever");
            Ok(())
        })
        .unwrap();
    let again = table.merge(|_| Ok(())).unwrap();
    assert_eq!(again.rows, 0, "nothing is left to be merged");
    let mut rows = 0;
    let mut cursor = table.scan(ScanRange::full());
    let tx = catalog.begin().unwrap();
    while cursor.next_batch(&tx, |_| rows += 1).unwrap() {}
    assert_eq!(rows, 120_000);
}

#[test]
fn a_table_of_the_same_states_is_another_one() {
    let memory = MemoryBudget::new(256 << 20).unwrap();
    let pool = Pool::volatile(&PoolOptions { memory: Some(memory), ..PoolOptions::default() }).unwrap();
    let catalog = open(&pool);
    for round in 0..3_i64 {
        let table = create(&catalog, &[]);
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch(round * 100_000, 5000)).unwrap();
        tx.commit(Durability::Sync).unwrap();
        let expected = ((round * 100_000..round * 100_000 + 5000).sum(), 5000);
        assert_eq!(sum(&table, &catalog.begin().unwrap()), expected, "round {round}");
        assert!(catalog.page_cache_stats().entries > 0, "pages are cached");
        drop(table);
        catalog.drop_table("facts").unwrap();
        catalog.context().vacuum().unwrap();
        assert_eq!(catalog.page_cache_stats().bytes, 0, "nothing of a dropped table is cached");
    }
}

#[test]
fn a_scan_looks_a_page_up_once_and_columns_get_their_shares() {
    let memory = MemoryBudget::new(256 << 20).unwrap();
    let pool = Pool::volatile(&PoolOptions { memory: Some(memory), ..PoolOptions::default() }).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[]);
    for part in 0..4 {
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch(part * 40_000, 40_000)).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    let expected = ((0..160_000).sum(), 160_000);
    let id = |catalog: &Catalog| {
        let columns = catalog.cached_columns();
        columns.into_iter().find(|column| column.column == "id")
    };
    assert_eq!(sum(&table, &catalog.begin().unwrap()), expected);
    let cold = id(&catalog).unwrap().counts;
    assert_eq!((cold.hits, cold.misses, cold.pages), (0, 4, 4), "one look-up a page");
    for policy in CachePolicy::ALL {
        catalog.set_cache_policy(policy);
        assert_eq!(catalog.cache_policy(), policy);
        assert_eq!(sum(&table, &catalog.begin().unwrap()), expected, "{policy}");
    }
    let warm = id(&catalog).unwrap().counts;
    assert_eq!((warm.hits, warm.misses), (24, 4), "pages stay when the policy changes");
    // The default is proportional; its thread follows.
    let began = std::time::Instant::now();
    while id(&catalog).unwrap().share.is_none() {
        assert!(began.elapsed().as_secs() < 30, "no share");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let share = id(&catalog).unwrap().share.unwrap();
    assert!((0.0..=1.0).contains(&share.proportion) && share.gain_seconds >= 0.0, "{share:?}");
    assert_eq!(sum(&table, &catalog.begin().unwrap()), expected);
}

/// Table of so many row groups of 20,000 rows on a pool with a memory budget.
fn many_groups(groups: i64) -> (Arc<Catalog>, Arc<Table>, Arc<MemoryBudget>) {
    let memory = MemoryBudget::new(256 << 20).unwrap();
    let options = PoolOptions { memory: Some(Arc::clone(&memory)), ..PoolOptions::default() };
    let catalog = open(&Pool::volatile(&options).unwrap());
    let table = create(&catalog, &[]);
    for group in 0..groups {
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch(group * 20_000, 20_000)).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    (catalog, table, memory)
}

fn ids(scan: &ColumnScan, tx: &Transaction, morsel: ColumnMorsel) -> i64 {
    let batch = scan.read(tx, morsel).unwrap();
    batch.map_or(0, |batch| batch.column(0).as_primitive::<Int64Type>().values().iter().sum())
}

#[test]
fn row_groups_are_loaded_ahead_once_and_their_memory_is_given_back() {
    let (catalog, table, memory) = many_groups(6);
    let queries = || memory.usage().consumers[MemoryConsumer::Queries as usize].used_bytes;
    let tx = catalog.begin().unwrap();
    let arrow = arrow_schema(&columns()[..1], "UTC");
    let scan = table.column_scan(&tx, vec![0], arrow, Vec::new()).unwrap().unwrap();
    let morsels = scan.morsels();
    assert_eq!(scan.groups_ahead(morsels[0]), [0_u32; 0], "no column is known to be needed");
    let (mut sum, mut loaded, mut most) = (0, Vec::new(), 0);
    for (at, morsel) in morsels.into_iter().enumerate() {
        sum += ids(&scan, &tx, morsel);
        for group in scan.groups_ahead(morsel) {
            // A row group has three blocks.
            let read = at as u32 / 3;
            assert!(group > read && group <= read + 2, "{group} ahead of {read}");
            scan.load_ahead(&tx, group).unwrap();
            loaded.push(group);
        }
        most = most.max(queries());
    }
    assert_eq!(sum, (0..120_000).sum::<i64>());
    // The first two were asked for before the scan had a page.
    assert_eq!(loaded, [3, 4, 5]);
    let counts = catalog.cached_columns().into_iter().find(|column| column.column == "id").unwrap().counts;
    assert_eq!((counts.hits, counts.misses), (0, 6), "each page is loaded once");
    assert!(most > 0 && most < 4 * counts.bytes / 6, "three row groups at most, not {most} bytes");
    assert_eq!(queries(), 0, "pages of row groups that were read are released");
    // All is cached: there is nothing to load.
    let arrow = arrow_schema(&columns()[..1], "UTC");
    let scan = table.column_scan(&tx, vec![0], arrow, Vec::new()).unwrap().unwrap();
    for morsel in scan.morsels() {
        ids(&scan, &tx, morsel);
        assert_eq!(scan.groups_ahead(morsel), [0_u32; 0]);
    }
    let prediction = scan.prediction().unwrap();
    assert!((prediction.progress - 1.0).abs() < 1e-9, "{prediction:?}");
    assert!(prediction.seconds > 0.0 && prediction.seconds >= prediction.in_memory_seconds);
}

#[test]
fn readers_and_loaders_share_the_pages_of_a_scan() {
    let (catalog, table, memory) = many_groups(12);
    catalog.limit_cache(0);
    let tx = catalog.begin().unwrap();
    let visible = &columns()[..];
    let scan = table.column_scan(&tx, (0..5).collect(), arrow_schema(visible, "UTC"), Vec::new());
    let (scan, sum) = (scan.unwrap().unwrap(), AtomicI64::new(0));
    let (morsels, next) = (scan.morsels(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = scan.reader();
                while let Some(morsel) = morsels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let batch = scan.read_timed(&tx, *morsel, &mut reader).unwrap().unwrap();
                    let ids: i64 = batch.column(0).as_primitive::<Int64Type>().values().iter().sum();
                    sum.fetch_add(ids, Ordering::Relaxed);
                    let (scan, tx) = (&scan, &tx);
                    for group in scan.groups_ahead(*morsel) {
                        scope.spawn(move || scan.load_ahead(tx, group).unwrap());
                    }
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), (0..240_000).sum::<i64>());
    let counts = catalog.cached_columns();
    let misses: u64 = counts.iter().map(|column| column.counts.misses).sum();
    assert_eq!(misses, 5 * 12, "no page is loaded twice, though nothing is cached");
    assert_eq!(memory.usage().consumers[MemoryConsumer::Queries as usize].used_bytes, 0);
}

#[test]
fn a_cache_smaller_than_a_page_of_each_column_is_slower_and_right() {
    let (catalog, table, memory) = many_groups(4);
    let expected = ((0..80_000).sum(), 80_000);
    let used = || memory.usage().consumers[MemoryConsumer::ColumnPages as usize].used_bytes;
    for policy in CachePolicy::ALL {
        catalog.set_cache_policy(policy);
        catalog.limit_cache(u64::MAX);
        assert_eq!(sum(&table, &catalog.begin().unwrap()), expected, "{policy}");
        let all = used();
        assert!(all > 4 * 256, "{policy}: pages are cached again");
        for bytes_max in [all / 20, 1, 0] {
            catalog.limit_cache(bytes_max);
            assert!(used() <= bytes_max, "{policy}: {} of {bytes_max} bytes at once", used());
            for _ in 0..2 {
                assert_eq!(sum(&table, &catalog.begin().unwrap()), expected, "{policy}, {bytes_max} bytes");
                assert!(used() <= bytes_max, "{policy}: {} of {bytes_max} bytes", used());
            }
            assert_eq!(catalog.page_cache_stats().max_bytes, bytes_max);
        }
    }
}

#[test]
fn writers_of_row_groups_are_cut_off_by_a_new_definition() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[]);
    let writer = catalog.begin().unwrap();
    table.append(&writer, &batch(0, 5000)).unwrap();
    let no_check = None::<entresol_tables::Verify<'_, Error>>;
    let not_null = |definition: &mut TableDefinition| {
        definition.schema = Arc::new(definition.schema.with_changed(1, "amount", false)?);
        Ok::<(), Error>(())
    };
    catalog.redefine("facts", no_check, not_null).unwrap();
    assert!(writer.commit(Durability::None).is_err(), "its rows have NULLs");
}

#[test]
fn negative_zero_stays_what_it_is() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &["id"]);
    let tx = catalog.begin().unwrap();
    for (id, reading) in [(1, -0.0), (2, 0.0), (3, 1.5)] {
        let mut row = row(id, 17);
        row[3] = Value::Double(reading);
        table.insert(&tx, &row).unwrap();
    }
    tx.commit(Durability::None).unwrap();
    table.merge(|_| Ok(())).unwrap();
    let rows = table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap();
    let Value::Double(reading) = rows[0][3] else { panic!("a reading") };
    assert!(reading == 0.0 && reading.is_sign_negative());
}

#[test]
fn row_groups_are_skipped_by_bounds_of_doubles() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = create(&catalog, &[]);
    let reading = |group: i64, id: i64| match id % 500 {
        7 => Value::Double(group as f64 + 1.0 / 3.0),
        8 => Value::Null,
        _ => Value::Double(group as f64 + (id % 90) as f64 / 100.0),
    };
    let nan_group = 3;
    let tx = catalog.begin().unwrap();
    for group in 0..4 {
        let mut builder = BatchBuilder::new(&columns(), 10_000);
        for id in group * 10_000..(group + 1) * 10_000 {
            let mut row = row(id, 17);
            row[3] = reading(group, id);
            if group == nan_group && id % 10_000 == 9_999 {
                row[3] = Value::Double(f64::NAN);
            }
            builder.push(&row).unwrap();
        }
        table.append(&tx, &builder.finish()).unwrap();
    }
    tx.commit(Durability::None).unwrap();
    let tx = catalog.begin().unwrap();
    let filters = |least, greatest| {
        vec![ColumnFilter { column: 3, condition: ColumnCondition::Doubles { least, greatest } }]
    };
    // Groups that are left, of two blocks each: that of the bounds, and that with NaN, which a scan does not judge.
    for (least, greatest, blocks) in [(1.2, 1.4, 4), (-5.0, -1.0, 2), (0.5, 2.1, 8), (9.0, f64::INFINITY, 2)]
    {
        let visible = table.schema().visible_columns();
        let arrow = arrow_schema(visible, "UTC");
        let all = (0..visible.len()).collect();
        let scan = table.column_scan(&tx, all, arrow, filters(least, greatest)).unwrap().unwrap();
        assert_eq!(scan.morsels().len(), blocks, "{least} to {greatest}");
        let is_met = |row: &Row| match row[3] {
            Value::Double(value) => value.is_nan() || (least..=greatest).contains(&value),
            _ => false,
        };
        let expected: Vec<Row> = scanned(&table, &tx, Vec::new()).into_iter().filter(is_met).collect();
        assert_eq!(scanned(&table, &tx, filters(least, greatest)).len(), expected.len());
        assert!(blocks == 2 || expected.len() > 1000, "{} rows", expected.len());
    }
}

#[test]
fn pages_of_a_table_larger_than_memory_are_read_past_those_of_the_pool() {
    const COLUMNS: usize = 10;
    const ROWS: i64 = 100_000;
    let dir = tempfile::TempDir::new().unwrap();
    let memory = Some(MemoryBudget::new(64 << 20).unwrap());
    let options = PoolOptions { domain: DomainChoice::Journal, memory, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let catalog = open(&pool);
    let columns: Vec<Column> =
        (0..COLUMNS).map(|at| Column::new(format!("c{at}"), DataType::BigInt)).collect();
    let mut definition = TableDefinition::plain(Schema::new::<&str>(columns.clone(), &[]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("wide", definition, TableOptions::default()).unwrap();
    let mut expected = [0_i64; COLUMNS];
    for group in 0..8 {
        // Values that no encoding makes smaller.
        let value = |row: i64, at: usize| {
            let number = (((group * ROWS + row) * 31 + at as i64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) as i64
        };
        let arrays = (0..COLUMNS).map(|at| {
            let values = Int64Array::from_iter_values((0..ROWS).map(|row| value(row, at)));
            expected[at] = values.values().iter().fold(expected[at], |sum, value| sum.wrapping_add(*value));
            Arc::new(values) as ArrayRef
        });
        let batch = RecordBatch::try_new(arrow_schema(&columns, "UTC"), arrays.collect()).unwrap();
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    pool.checkpoint().unwrap();
    let tx = catalog.begin().unwrap();
    for _ in 0..3 {
        let arrow = arrow_schema(&columns, "UTC");
        let scan = table.column_scan(&tx, (0..COLUMNS).collect(), arrow, Vec::new()).unwrap().unwrap();
        let mut sums = [0_i64; COLUMNS];
        for batch in scan.morsels().into_iter().filter_map(|morsel| scan.read(&tx, morsel).unwrap()) {
            for (sum, column) in sums.iter_mut().zip(batch.columns()) {
                let values = column.as_primitive::<Int64Type>().values();
                *sum = values.iter().fold(*sum, |sum, value| sum.wrapping_add(*value));
            }
        }
        assert_eq!(sums, expected);
    }
    let stats = pool.stats();
    if !stats.direct_io {
        return eprintln!("skipped: {} has no direct I/O", dir.path().display());
    }
    assert!(stats.direct_read_bytes > 8 << 20, "{stats:?}");
}
