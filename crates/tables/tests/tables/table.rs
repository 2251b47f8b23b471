//! Tables through transactions: every operation against a model, and the errors of wrong uses.
use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType as ArrowType, Field, Schema as ArrowSchema};
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    Catalog, Column, DataType, Error, Modifier, Row, ScanRange, Schema, Table, TableOptions, Value,
};
use entresol_transactions::StateContext;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

fn catalog() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn meters(catalog: &Catalog) -> Arc<Table> {
    let columns = vec![
        Column::new("city", DataType::Varchar),
        Column::new("meter", DataType::Int),
        Column::new("power", DataType::Double),
    ];
    let schema = Schema::new(columns, &["city", "meter"]).unwrap();
    catalog.create_table("meters", schema, TableOptions::default()).unwrap()
}

fn row(city: &str, meter: i32, power: f64) -> Row {
    vec![Value::from(city), Value::Int(meter), Value::Double(power)]
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(u8, i32, f64),
    InsertMany(Vec<(u8, i32)>),
    Upsert(u8, i32, f64),
    Update(u8, i32, u8, i32),
    Delete(u8, i32),
    Commit,
    Abort,
    Check(u8),
}

const CITIES: [&str; 4] = ["", "a", "a\0", "b"];

fn operation() -> impl Strategy<Value = Operation> {
    let city = 0u8..4;
    let meter = -2i32..3;
    prop_oneof![
        (city.clone(), meter.clone(), any::<f64>()).prop_map(|(c, m, p)| Operation::Insert(c, m, p)),
        proptest::collection::vec((city.clone(), meter.clone()), 1..5).prop_map(Operation::InsertMany),
        (city.clone(), meter.clone(), any::<f64>()).prop_map(|(c, m, p)| Operation::Upsert(c, m, p)),
        (city.clone(), meter.clone(), city.clone(), meter.clone())
            .prop_map(|(c, m, d, n)| Operation::Update(c, m, d, n)),
        (city.clone(), meter).prop_map(|(c, m)| Operation::Delete(c, m)),
        Just(Operation::Commit),
        Just(Operation::Abort),
        city.prop_map(Operation::Check),
    ]
}

type Model = BTreeMap<(Value, Value), Row>;

fn key_of(city: u8, meter: i32) -> (Value, Value) {
    (Value::from(CITIES[usize::from(city)]), Value::Int(meter))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_behave_as_a_map(operations in proptest::collection::vec(operation(), 1..80)) {
        let catalog = catalog();
        let table = meters(&catalog);
        let (mut committed, mut model): (Model, Model) = Default::default();
        let mut tx = catalog.begin().unwrap();
        for operation in operations {
            match operation {
                Operation::Insert(city, meter, power) => {
                    let new = row(CITIES[usize::from(city)], meter, power);
                    let inserted = table.insert(&tx, &new);
                    match model.entry(key_of(city, meter)) {
                        Entry::Occupied(_) => {
                            let expected = matches!(inserted, Err(Error::DuplicateKey { .. }));
                            prop_assert!(expected);
                        }
                        Entry::Vacant(entry) => {
                            inserted.unwrap();
                            entry.insert(new);
                        }
                    }
                }
                Operation::InsertMany(keys) => {
                    let rows: Vec<Row> = keys.iter().map(|(c, m)| row(CITIES[usize::from(*c)], *m, 1.0)).collect();
                    let mut after = model.clone();
                    let fresh = keys.iter().zip(&rows).all(|((c, m), row)| after.insert(key_of(*c, *m), row.clone()).is_none());
                    prop_assert_eq!(table.insert_many(&tx, &rows).is_ok(), fresh);
                    if fresh {
                        model = after;
                    }
                }
                Operation::Upsert(city, meter, power) => {
                    let new = row(CITIES[usize::from(city)], meter, power);
                    table.upsert(&tx, &new).unwrap();
                    model.insert(key_of(city, meter), new);
                }
                Operation::Update(city, meter, to_city, to_meter) => {
                    let (old, new) = (key_of(city, meter), key_of(to_city, to_meter));
                    let values = row(CITIES[usize::from(to_city)], to_meter, 7.0);
                    let updated = table.update(&tx, &[old.0.clone(), old.1.clone()], &values);
                    if !model.contains_key(&old) {
                        let expected = matches!(updated, Err(Error::NoSuchKey { .. }));
                        prop_assert!(expected);
                    } else if old != new && model.contains_key(&new) {
                        let expected = matches!(updated, Err(Error::DuplicateKey { .. }));
                        prop_assert!(expected);
                    } else {
                        updated.unwrap();
                        model.remove(&old);
                        model.insert(new, values);
                    }
                }
                Operation::Delete(city, meter) => {
                    let key = key_of(city, meter);
                    let deleted = table.delete(&tx, &[key.0.clone(), key.1.clone()]).unwrap();
                    prop_assert_eq!(deleted, model.remove(&key).is_some());
                }
                Operation::Commit => {
                    tx.commit(Durability::Sync).unwrap();
                    committed = model.clone();
                    tx = catalog.begin().unwrap();
                }
                Operation::Abort => {
                    tx.abort();
                    model = committed.clone();
                    tx = catalog.begin().unwrap();
                }
                Operation::Check(city) => {
                    let city = Value::from(CITIES[usize::from(city)]);
                    let rows = table.scan(ScanRange::prefix(std::slice::from_ref(&city))).rows(&tx).unwrap();
                    let expected: Vec<Row> = model.iter().filter(|(key, _)| key.0 == city).map(|(_, row)| row.clone()).collect();
                    prop_assert_eq!(rows, expected);
                }
            }
        }
        let rows = table.scan(ScanRange::full()).rows(&tx).unwrap();
        prop_assert_eq!(rows, model.values().cloned().collect::<Vec<_>>());
        let doomed: Vec<Row> = model.keys().step_by(2).map(|(c, m)| vec![c.clone(), m.clone()]).collect();
        let again = [doomed.clone(), vec![vec![Value::from("none"), Value::Int(0)]], doomed.clone()].concat();
        prop_assert_eq!(table.delete_many(&tx, &again).unwrap(), doomed.len());
        model.retain(|(c, m), _| !doomed.contains(&vec![c.clone(), m.clone()]));
        let keys: Vec<Row> = (0..4).flat_map(|c| (-2..3).map(move |m| key_of(c, m))).map(|(c, m)| vec![c, m]).collect();
        let found = table.get_many(&tx, &keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            let expected = model.get(&(key[0].clone(), key[1].clone())).cloned();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(table.get(&tx, key).unwrap(), expected);
        }
    }
}

#[test]
fn ranges_by_key_columns() {
    let catalog = catalog();
    let table = meters(&catalog);
    let tx = catalog.begin().unwrap();
    for city in ["a", "b", "c"] {
        for meter in [i32::MIN, -1, 0, 1, i32::MAX] {
            table.insert(&tx, &row(city, meter, 0.0)).unwrap();
        }
    }
    let count = |range: ScanRange| table.scan(range).rows(&tx).unwrap().len();
    let b = [Value::from("b")];
    let b0 = [Value::from("b"), Value::Int(0)];
    assert_eq!(count(ScanRange::full()), 15);
    assert_eq!(count(ScanRange::point(&b0)), 1);
    assert_eq!(count(ScanRange::prefix(&b)), 5);
    assert_eq!(count(ScanRange::between(Bound::Excluded(&b), Bound::Unbounded)), 5);
    assert_eq!(count(ScanRange::between(Bound::Unbounded, Bound::Excluded(&b0))), 7);
    assert_eq!(count(ScanRange::between(Bound::Included(&b0), Bound::Included(&b))), 3);
    assert_eq!(count(ScanRange::between(Bound::Included(&b0), Bound::Excluded(&b))), 0);
    let wrong = table.scan(ScanRange::prefix(&[Value::Int(1)])).rows(&tx).unwrap_err();
    assert_eq!(wrong.to_string(), "table meters, column city: expected VARCHAR, found INT '1'");
    let many =
        table.scan(ScanRange::prefix(&[b[0].clone(), b0[1].clone(), b[0].clone()])).rows(&tx).unwrap_err();
    assert!(matches!(many, Error::WrongValueCount { expected: 2, found: 3, .. }));
}

#[test]
fn hidden_keys_are_unique_and_grow() {
    let catalog = catalog();
    let schema = Schema::new(vec![Column::new("n", DataType::Int)], &[] as &[&str]).unwrap();
    assert!(schema.hidden_key());
    let table = catalog.create_table("log", schema, TableOptions::default()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (catalog, table) = (Arc::clone(&catalog), Arc::clone(&table));
            std::thread::spawn(move || {
                for n in 0..50 {
                    let tx = catalog.begin().unwrap();
                    table
                        .insert_many(
                            &tx,
                            &[vec![Value::Int(thread * 100 + n)], vec![Value::Null, Value::Null]],
                        )
                        .unwrap();
                    tx.commit(Durability::None).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let tx = catalog.begin().unwrap();
    let rows = table.scan(ScanRange::full()).rows(&tx).unwrap();
    let rowids: Vec<Value> = rows.iter().map(|row| row[1].clone()).collect();
    assert_eq!(rowids, (1..=400).map(Value::BigInt).collect::<Vec<_>>());
    table.upsert(&tx, &[Value::Int(-1), Value::BigInt(7)]).unwrap();
    assert_eq!(table.get(&tx, &[Value::BigInt(7)]).unwrap().unwrap()[0], Value::Int(-1));
    assert_eq!(table.scan(ScanRange::full()).rows(&tx).unwrap().len(), 400);
}

#[test]
fn changes_are_the_last_writes_in_key_order() {
    let catalog = catalog();
    let table = meters(&catalog);
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &row("b", 1, 1.0)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let tx = catalog.begin().unwrap();
    table.upsert(&tx, &row("c", 1, 1.0)).unwrap();
    table.upsert(&tx, &row("c", 1, 2.0)).unwrap();
    table.delete(&tx, &[Value::from("b"), Value::Int(1)]).unwrap();
    let changes = table.changes(&tx).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].key, [Value::from("b"), Value::Int(1)]);
    assert_eq!(changes[0].row, None);
    assert_eq!(changes[1].row, Some(row("c", 1, 2.0)));
}

#[test]
fn mistakes_name_table_column_and_value() {
    let catalog = catalog();
    let table = meters(&catalog);
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &row("a", 1, 1.0)).unwrap();
    let error = table.insert(&tx, &row("a", 1, 2.0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate key value violates the primary key of table \"meters\": key (a, 1) already exists"
    );
    let error = table.insert(&tx, &[Value::from("a"), Value::BigInt(1), Value::Null]).unwrap_err();
    assert_eq!(error.to_string(), "table meters, column meter: expected INT, found BIGINT '1'");
    let error = table.insert(&tx, &[Value::Null, Value::Int(1), Value::Null]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "null value in column \"city\" of relation \"meters\" violates not-null constraint"
    );
    let error = table.get(&tx, &[Value::from("a")]).unwrap_err();
    assert_eq!(error.to_string(), "table meters: expected 2 values, found 1");
    assert_eq!(catalog.table("nope").unwrap_err().to_string(), "relation \"nope\" does not exist");
    let schema = || Schema::new(vec![Column::new("n", DataType::Int)], &["n"]).unwrap();
    let error = catalog.create_table("meters", schema(), TableOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "relation \"meters\" already exists");
    assert!(matches!(
        catalog.create_table("", schema(), TableOptions::default()),
        Err(Error::InvalidName { .. })
    ));
    let existing = TableOptions { if_not_exists: true, ..TableOptions::default() };
    assert!(Arc::ptr_eq(&catalog.create_table("meters", schema(), existing).unwrap(), &table));
}

/// Limits of a declaration hold for all writers, and the blanks of a CHAR(n) are not part of keys.
#[test]
fn limits_of_columns_hold_for_every_writer() {
    let catalog = catalog();
    let columns = vec![
        Column::new("code", DataType::Varchar).with_modifier(Modifier::Char(4)),
        Column::new("name", DataType::Varchar).with_modifier(Modifier::Varchar(3)),
        Column::new("small", DataType::SmallInt),
        Column::new("real", DataType::Real),
    ];
    let schema = Schema::new(columns, &["code"]).unwrap();
    let table = catalog.create_table("limited", schema, TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    let row = |code: &str, name: &str, small: i32, real: f64| {
        vec![Value::from(code), Value::from(name), Value::Int(small), Value::Double(real)]
    };
    table.insert(&tx, &row("ab  ", "äöü  ", -32_768, 0.5)).unwrap();
    let stored = row("ab", "äöü", -32_768, 0.5);
    for code in ["ab", "ab ", "ab      "] {
        assert_eq!(table.get(&tx, &[Value::from(code)]).unwrap(), Some(stored.clone()), "{code}");
    }
    assert!(matches!(table.insert(&tx, &row("ab", "", 0, 0.0)), Err(Error::DuplicateKey { .. })));
    table.update(&tx, &[Value::from("ab ")], &row("ab ", "x", 32_767, 0.25)).unwrap();
    assert_eq!(table.get(&tx, &[Value::from("ab")]).unwrap().unwrap()[1], Value::from("x"));
    let is_too_long = |error: &Error| matches!(error, Error::TooLong { .. });
    for (wrong, too_long) in [
        (row("abcde", "", 0, 0.0), true),
        (row("c", "abcd", 0, 0.0), true),
        (row("c", "", 32_768, 0.0), false),
        (row("c", "", 0, 0.1), false),
    ] {
        for error in [table.insert(&tx, &wrong).unwrap_err(), table.upsert_many(&tx, &[&wrong]).unwrap_err()]
        {
            let out_of_range = matches!(error, Error::OutOfRange { .. } | Error::DigitsLost { .. });
            assert_eq!((is_too_long(&error), out_of_range), (too_long, !too_long), "{error}");
        }
    }
    assert!(table.delete(&tx, &[Value::from("ab  ")]).unwrap());
}

/// Batch of `meters`.
fn batch(cities: &[Option<&str>], meters: &[Option<i32>], power: &[Option<f64>]) -> RecordBatch {
    let arrays: [(&str, ArrayRef); 3] = [
        ("city", Arc::new(StringArray::from(cities.to_vec()))),
        ("meter", Arc::new(Int32Array::from(meters.to_vec()))),
        ("power", Arc::new(Float64Array::from(power.to_vec()))),
    ];
    RecordBatch::try_from_iter_with_nullable(arrays.map(|(name, array)| (name, array, true))).unwrap()
}

/// Batch of `meters` of one city.
fn numbered(range: std::ops::Range<i32>) -> RecordBatch {
    let cities: Vec<_> = range.clone().map(|_| Some("a")).collect();
    let meters: Vec<_> = range.clone().map(Some).collect();
    batch(&cities, &meters, &range.map(|meter| Some(f64::from(meter))).collect::<Vec<_>>())
}

#[test]
fn appended_batches_are_there_whole_or_not_at_all() {
    let catalog = catalog();
    let table = meters(&catalog);
    let tx = catalog.begin().unwrap();
    table.append(&tx, &numbered(0..20_000)).unwrap();
    table.append(&tx, &numbered(0..0)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let tx = catalog.begin().unwrap();
    // Behind all others, then a batch whose last part has a key that is there already.
    table.append(&tx, &numbered(30_000..30_100)).unwrap();
    let error = table.append(&tx, &numbered(20_000..30_001)).unwrap_err();
    assert!(matches!(&error, Error::DuplicateKey { key, .. } if key == "(a, 30000)"), "{error}");
    let twice = batch(&[Some("b"), Some("b")], &[Some(1), Some(1)], &[None, None]);
    assert!(matches!(table.append(&tx, &twice), Err(Error::DuplicateKey { .. })));
    // In front of all others, and in between.
    table.append(&tx, &batch(&[Some(""), Some("a")], &[Some(5), Some(25_000)], &[None, None])).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let tx = catalog.begin().unwrap();
    let rows = table.scan(ScanRange::full()).rows(&tx).unwrap();
    assert_eq!(rows.len(), 20_102);
    assert_eq!(
        (&rows[0], &rows[20_001]),
        (
            &vec![Value::from(""), Value::Int(5), Value::Null],
            &vec![Value::from("a"), Value::Int(25_000), Value::Null]
        )
    );
    assert_eq!(rows[20_101], row("a", 30_099, 30_099.0));
}

#[test]
fn a_key_that_two_transactions_append_is_a_conflict() {
    let catalog = catalog();
    let table = meters(&catalog);
    let (first, second) = (catalog.begin().unwrap(), catalog.begin().unwrap());
    table.append(&first, &numbered(0..200)).unwrap();
    table.append(&second, &numbered(199..400)).unwrap();
    first.commit(Durability::Sync).unwrap();
    let error = second.commit(Durability::Sync).unwrap_err();
    assert!(matches!(error, entresol_transactions::Error::Conflict { .. }), "{error}");
    assert_eq!(table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap().len(), 200);
}

#[test]
fn wrong_batches_are_refused_with_table_and_column() {
    let catalog = catalog();
    let table = meters(&catalog);
    let tx = catalog.begin().unwrap();
    let message = |batch: &RecordBatch| table.append(&tx, batch).unwrap_err().to_string();
    let good = numbered(0..3);
    assert_eq!(message(&good.project(&[0, 1]).unwrap()), "table meters: expected 3 values, found 2");
    assert_eq!(
        message(&good.project(&[0, 2, 1]).unwrap()),
        "table meters, column meter: expected INT, found an array of Float64"
    );
    let null = batch(&[Some("a"), None], &[Some(1), Some(2)], &[None, None]);
    assert_eq!(
        message(&null),
        "null value in column \"city\" of relation \"meters\" violates not-null constraint"
    );
    let long = "x".repeat(30_000);
    assert!(message(&batch(&[Some(&long)], &[Some(1)], &[None])).contains("30"), "the key is too long");
    assert_eq!(table.scan(ScanRange::full()).rows(&tx).unwrap().len(), 0);

    let columns = vec![
        Column::new("name", DataType::Varchar).with_modifier(Modifier::Char(3)),
        Column::new("price", DataType::Decimal { precision: 4, scale: 1 }),
    ];
    let priced = catalog.create_table(
        "priced",
        Schema::new(columns, &[] as &[&str]).unwrap(),
        TableOptions::default(),
    );
    let priced = priced.unwrap();
    let prices = |price: i128, name: &str| {
        let price = Decimal128Array::from(vec![price]).with_precision_and_scale(38, 1).unwrap();
        let arrays: [(&str, ArrayRef); 2] =
            [("name", Arc::new(StringArray::from(vec![name]))), ("price", Arc::new(price))];
        RecordBatch::try_from_iter(arrays).unwrap()
    };
    let message = |batch: &RecordBatch| priced.append(&tx, batch).unwrap_err().to_string();
    assert_eq!(message(&prices(10_000, "a")), "table priced, column price: 1000.0 does not fit DECIMAL(4,1)");
    assert_eq!(
        message(&prices(1, "abcd")),
        "value too long for type character(3) (table priced, column name)"
    );
    for name in ["a ", "abc   "] {
        priced.append(&tx, &prices(9_999, name)).unwrap();
    }
    // Row numbers are given, or drawn; two refused batches drew one each.
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![77]));
    let visible = prices(1, "z");
    let columns = visible.columns().iter().cloned().chain([numbers]);
    let fields = visible
        .schema()
        .fields()
        .iter()
        .cloned()
        .chain([Arc::new(Field::new("rowid_", ArrowType::Int64, false))])
        .collect::<Vec<_>>();
    let with_number = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns.collect()).unwrap();
    priced.append(&tx, &with_number).unwrap();
    let rows = priced.scan(ScanRange::full()).rows(&tx).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[2].clone())).collect();
    let expected = [("a", 3), ("abc", 4), ("z", 77)].map(|(name, at)| (Value::from(name), Value::BigInt(at)));
    assert_eq!(names, expected);
}
