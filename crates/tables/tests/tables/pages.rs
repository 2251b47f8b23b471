//! Rows in pages: all readers of the table see the rows of a model, at every snapshot, in both directions, by key and by range.
use arrow_array::RecordBatch;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, Column, DataType, Direction, Error, IndexDefinition, Retention, Row, ScanRange,
    Schema, Table, TableDefinition, TableOptions, Value, Verify, check,
};
use entresol_transactions::{DetachedWrites, StateContext, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Rows by window and group.
type Model = BTreeMap<(i64, i32), Row>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn definition() -> TableDefinition {
    let columns = vec![
        Column::new("id", DataType::Int).not_null(),
        Column::new("window_start", DataType::Timestamp).not_null(),
        Column::new("count", DataType::BigInt),
        Column::new("last", DataType::Varchar),
    ];
    let schema = Schema::new(columns, &["window_start", "id"]).unwrap();
    TableDefinition { pages: true, owner: Some("topology t".to_owned()), ..TableDefinition::plain(schema) }
}

fn row(random: &mut Random, window: i64, id: i32) -> Row {
    let text = "x".repeat(random.below(30) as usize);
    let count = if random.below(5) == 0 { Value::Null } else { Value::BigInt(random.below(1000) as i64) };
    vec![Value::Int(id), Value::Timestamp(window), count, Value::from(text.as_str())]
}

fn batch_of(table: &Table, rows: &[Row]) -> RecordBatch {
    let mut batch = BatchBuilder::new(table.schema().visible_columns(), rows.len());
    rows.iter().for_each(|row| batch.push(row).unwrap());
    batch.finish()
}

fn window_of(start: i64) -> ScanRange {
    ScanRange::prefix(&[Value::Timestamp(start)])
}

/// Writes all rows of a window anew: in pages, or each by itself.
fn write_anew(table: &Arc<Table>, tx: &Arc<Transaction>, model: &Model, window: i64, in_pages: bool) {
    let rows: Vec<Row> =
        model.range((window, i32::MIN)..=(window, i32::MAX)).map(|(_, row)| row.clone()).collect();
    table.delete_entries(tx, &window_of(window)).unwrap();
    if rows.is_empty() {
        return;
    }
    let batch = batch_of(table, &rows);
    let mut encoded = table.encode_known_upsert(&batch).unwrap().unwrap();
    if in_pages {
        let (paged, ends) = table.into_pages(&encoded, &[rows.len()]);
        assert_eq!(ends.last(), Some(&rows.len()));
        encoded = paged;
    }
    let mut writes = DetachedWrites::new(tx.context());
    table.upsert_detached(&mut writes, &[encoded]).unwrap();
    tx.take_over(writes).unwrap();
}

/// Changes rows as one who knows nothing of pages.
fn write_some(table: &Arc<Table>, tx: &Transaction, model: &mut Model, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let window = random.below(4) as i64;
        let first = random.below(300) as i32;
        let ids: Vec<i32> = (0..1 + random.below(40) as i32).map(|n| first + n * 3).collect();
        match random.below(5) {
            0 => {
                let key = |id: &i32| vec![Value::Timestamp(window), Value::Int(*id)];
                let keys: Vec<Row> = ids.iter().map(key).collect();
                let deleted = table.delete_many(tx, &keys).unwrap();
                let known = ids.iter().filter(|id| model.remove(&(window, **id)).is_some()).count();
                assert_eq!(deleted, known);
            }
            1 => {
                let id = ids[0];
                let new = row(random, window, id);
                let is_new = !model.contains_key(&(window, id));
                assert_eq!(table.insert(tx, &new).is_ok(), is_new);
                model.entry((window, id)).or_insert(new);
            }
            2 => {
                let new = row(random, window, ids[0]);
                table.upsert(tx, &new).unwrap();
                model.insert((window, ids[0]), new);
            }
            _ => {
                let rows: Vec<Row> = ids.iter().map(|id| row(random, window, *id)).collect();
                let batch = batch_of(table, &rows);
                table.upsert_batch(tx, &batch).unwrap();
                model.extend(ids.iter().map(|id| (window, *id)).zip(rows));
            }
        }
    }
}

/// Compares all ways to read with a model.
fn compare(table: &Arc<Table>, tx: &Transaction, model: &Model, random: &mut Random) {
    let expected: Vec<Row> = model.values().cloned().collect();
    assert_eq!(table.scan(ScanRange::full()).rows(tx).unwrap(), expected);
    for _ in 0..4 {
        let bound = |random: &mut Random| (random.below(5) as i64 - 1, random.below(320) as i32);
        let (low, high) = (bound(random), bound(random));
        let (low, high) = (low.min(high), low.max(high));
        let values = |(window, id): (i64, i32)| vec![Value::Timestamp(window), Value::Int(id)];
        let (from, to) = (values(low), values(high));
        let (range, within): (ScanRange, (Bound<_>, Bound<_>)) = if random.below(2) == 0 {
            let range = ScanRange::between(Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            (range, (Bound::Included(low), Bound::Excluded(high)))
        } else {
            let range = ScanRange::between(Bound::Excluded(&from[..]), Bound::Included(&to[..]));
            (range, (Bound::Excluded(low), Bound::Included(high)))
        };
        let is_empty = low == high;
        let mut expected: Vec<Row> =
            if is_empty { Vec::new() } else { model.range(within).map(|(_, row)| row.clone()).collect() };
        assert_eq!(table.scan(range.clone()).rows(tx).unwrap(), expected, "{low:?} to {high:?}");
        expected.reverse();
        let backwards = table.scan(range).directed(Direction::Backward);
        assert_eq!(backwards.rows(tx).unwrap(), expected, "{high:?} down to {low:?}");
    }
    let keys: Vec<(i64, i32)> =
        (0..60).map(|_| (random.below(5) as i64 - 1, random.below(320) as i32)).collect();
    let encoded: Vec<Row> =
        keys.iter().map(|(window, id)| vec![Value::Timestamp(*window), Value::Int(*id)]).collect();
    let mut found = BTreeMap::new();
    table.get_many_with(tx, &encoded, |at, view| drop(found.insert(at, view.to_row()))).unwrap();
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(found.get(&at), model.get(key), "{key:?}");
        assert_eq!(table.get(tx, &encoded[at]).unwrap().as_ref(), model.get(key), "{key:?}");
    }
}

/// Compares what a transaction says that it has changed.
fn compare_changes(table: &Table, tx: &Transaction, before: &Model, after: &Model) {
    let mut expected: Vec<(Option<Row>, Option<Row>)> = Vec::new();
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key).cloned(), after.get(key).cloned());
        if old != new {
            expected.push((old, new));
        }
    }
    assert_eq!(table.changed_rows(tx).unwrap(), expected);
    let changes = table.changes(tx).unwrap();
    assert_eq!(changes.len(), expected.len());
    for (change, (old, new)) in changes.iter().zip(&expected) {
        assert_eq!(&change.row, new);
        let row = old.as_ref().or(new.as_ref()).unwrap();
        assert_eq!(change.key, table.key_of(row));
    }
}

#[test]
fn readers_see_the_rows_of_a_model_at_every_snapshot() {
    let seed: u64 = std::env::var("ENTRESOL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(17);
    println!("ENTRESOL_SEED={seed}");
    let mut random = Random(seed);
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let mut opened = Some(open(&pool));
    opened.as_ref().unwrap().create_table_as("open", definition(), TableOptions::default()).unwrap();
    let mut model = Model::new();
    let mut older: Vec<(Arc<Transaction>, Model)> = Vec::new();
    for round in 0..150 {
        if round % 40 == 39 {
            older.clear();
            drop(opened.take());
        }
        let catalog = opened.get_or_insert_with(|| open(&pool));
        let table = catalog.table("open").unwrap();
        let tx = catalog.begin().unwrap();
        let mut after = model.clone();
        for _ in 0..1 + random.below(3) {
            if random.below(3) > 0 {
                write_some(&table, &tx, &mut after, &mut random);
            } else {
                let window = random.below(4) as i64;
                if random.below(4) == 0 {
                    after.retain(|(of, _), _| *of != window);
                }
                write_anew(&table, &tx, &after, window, random.below(4) > 0);
            }
            compare(&table, &tx, &after, &mut random);
        }
        compare_changes(&table, &tx, &model, &after);
        if random.below(4) == 0 {
            tx.abort();
        } else {
            tx.commit(Durability::None).unwrap();
            model = after;
        }
        let reader = catalog.begin().unwrap();
        compare(&table, &reader, &model, &mut random);
        older.push((reader, model.clone()));
        if older.len() > 5 {
            let at = random.below(5) as usize;
            let (reader, of_then) = older.swap_remove(at);
            compare(&table, &reader, &of_then, &mut random);
        }
    }
    older.clear();
    assert_eq!(check(&opened.unwrap(), |_| {}).unwrap().problems, []);
}

#[test]
fn indexes_find_rows_in_pages_and_logs_of_changes_are_refused() {
    let mut random = Random(5);
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = catalog.create_table_as("open", definition(), TableOptions::default()).unwrap();
    let mut model: Model =
        (0..500).map(|id| ((id % 2, id as i32), row(&mut random, id % 2, id as i32))).collect();
    let tx = catalog.begin().unwrap();
    (0..2).for_each(|window| write_anew(&table, &tx, &model, window, true));
    tx.commit(Durability::None).unwrap();
    assert!(table.estimated_rows() >= 250, "{} rows", table.estimated_rows());
    assert!(table.ends_in_page(&catalog.begin().unwrap(), &window_of(1)).unwrap());
    assert!(!table.ends_in_page(&catalog.begin().unwrap(), &window_of(2)).unwrap());
    let error = catalog.redefine("open", None::<Verify<'_, Error>>, |definition| {
        definition.changes = Some(Retention::For(Duration::from_secs(60)));
        Ok::<(), Error>(())
    });
    assert!(error.unwrap_err().to_string().contains("logs no changes"));
    catalog.create_index("open", IndexDefinition::plain("by_count", vec![2])).unwrap();
    let table = catalog.table("open").unwrap();
    let batch = batch_of(&table, &[row(&mut random, 0, 1)]);
    assert!(table.encode_known_upsert(&batch).unwrap().is_none(), "entries of old rows have to be read");
    for _ in 0..20 {
        let tx = catalog.begin().unwrap();
        write_some(&table, &tx, &mut model, &mut random);
        tx.commit(Durability::None).unwrap();
    }
    compare(&table, &catalog.begin().unwrap(), &model, &mut random);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "each row has its entry");
}
