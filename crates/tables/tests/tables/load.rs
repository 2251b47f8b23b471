//! Bulk loads of tables: the same rows as inserted one by one, whatever their keys, order and indexes.
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema as ArrowSchema};
use entresol_memory::{Durability, Env, Pool, PoolOptions};
use entresol_tables::{
    Catalog, ClusteringDefinition, Column, ColumnBuilder, DataType, Dimension, Error, IndexDefinition, Row,
    ScanRange, Schema, Table, TableDefinition, TableLayout, TableOptions, Value, arrow_type, check,
};
use entresol_transactions::{StateContext, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const SHORT: DataType = DataType::Decimal { precision: 5, scale: 1 };
const LONG: DataType = DataType::Decimal { precision: 30, scale: 2 };

/// Types of the key columns of each table.
const KEYS: [&[DataType]; 12] = [
    &[DataType::SmallInt],
    &[DataType::Int],
    &[DataType::BigInt],
    &[DataType::Date],
    &[DataType::Timestamp],
    &[SHORT],
    &[LONG],
    &[DataType::Varchar],
    &[DataType::Int, DataType::Int],
    &[DataType::BigInt, DataType::Int],
    &[DataType::Varchar, DataType::BigInt],
    &[DataType::Boolean, DataType::BigInt, DataType::Date],
];

fn catalog() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn index(name: &str, columns: &[usize], unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns: columns.to_vec(),
        unique,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

/// Table with these key columns, a unique number, a text, and indexes on both.
fn create(catalog: &Catalog, name: &str, key: &[DataType]) -> Arc<Table> {
    create_with(catalog, name, key, TableLayout::Rows)
}

/// As [`create`], with a layout; of clustered tables and Elfs by the unique number.
fn create_with(catalog: &Catalog, name: &str, key: &[DataType], layout: TableLayout) -> Arc<Table> {
    let mut columns: Vec<Column> =
        key.iter().enumerate().map(|(at, of)| Column::new(format!("k{at}"), *of)).collect();
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    columns.extend([Column::new("number", DataType::BigInt), Column::new("text", DataType::Varchar)]);
    let mut definition = TableDefinition::plain(Schema::new(columns, &names).unwrap());
    let first = key.len();
    definition.layout = layout;
    match layout {
        TableLayout::Clustered => {
            let dimension = Dimension { column: first, bits: None };
            definition.clustering = Some(ClusteringDefinition::new(vec![dimension]));
        }
        TableLayout::Elf => definition.elf_layout.dimensions = vec![first],
        _ => {}
    }
    let called = |of: &str| format!("{name}_{of}");
    definition.indexes =
        vec![index(&called("number"), &[first], true), index(&called("text"), &[first + 1, first], false)];
    catalog.create_table_as(name, definition, TableOptions::default()).unwrap()
}

fn value(random: &Env, of: DataType, number: i64) -> Value {
    match of {
        DataType::Boolean => Value::Boolean(random.random_u64().is_multiple_of(2)),
        DataType::SmallInt | DataType::Int => Value::Int(number as i32 % 30_000),
        DataType::Date => Value::Date(number as i32),
        DataType::BigInt => Value::BigInt(number),
        DataType::Timestamp => Value::Timestamp(number * 1_000_000),
        SHORT => Value::Decimal(i128::from(number % 90_000)),
        LONG => Value::Decimal(i128::from(number) * 1_000_000_007_000),
        _ => Value::from(&*format!("{}{number}", ["", "ä", "a\0", "a longer prefix "][number as usize % 4])),
    }
}

/// Distinct rows, in the order of their keys or not.
fn random_rows(random: &Env, table: &Table, key: &[DataType], count: usize, sorted: bool) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for number in 0..count as i64 {
        let of_key = (random.random_u64() % 20_000) as i64;
        let mut row: Row = key.iter().map(|of| value(random, *of, of_key)).collect();
        row.push(if number % 7 == 0 { Value::Null } else { Value::BigInt(number * 31 % 10_007) });
        row.push(if number % 5 == 0 { Value::Null } else { Value::from(&*format!("text {}", number % 100)) });
        rows.insert(table.encode_key(&table.key_of(&row)).unwrap(), row);
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    if !sorted {
        (1..rows.len()).for_each(|at| rows.swap(at, (random.random_u64() % (at as u64 + 1)) as usize));
    }
    rows
}

fn batch(table: &Table, rows: &[Row]) -> RecordBatch {
    let columns = table.schema().visible_columns();
    let mut builders: Vec<ColumnBuilder> = Vec::new();
    let mut fields = Vec::new();
    for column in columns {
        let arrow = arrow_type(column.data_type, "UTC");
        builders.push(ColumnBuilder::new(column.data_type, &arrow, rows.len()));
        fields.push(Field::new(&column.name, arrow, true));
    }
    for row in rows {
        builders.iter_mut().zip(row).for_each(|(builder, value)| builder.push(value));
    }
    let arrays: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays).unwrap()
}

/// Loads rows in batches of random sizes.
fn load(random: &Env, table: &Table, tx: &Transaction, rows: &[Row]) -> Result<(), Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + random.random_u64() as usize % 700).min(rest.len()));
        table.load(tx, &batch(table, now))?;
        rest = later;
    }
    table.finish_load(tx)
}

fn rows(catalog: &Catalog, table: &Arc<Table>) -> Vec<Row> {
    table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap()
}

fn by_index(catalog: &Catalog, table: &Arc<Table>, index: &str) -> Vec<Row> {
    let tx = catalog.begin().unwrap();
    let all = vec![(Bound::Unbounded, Bound::Unbounded)];
    let mut cursor =
        table.index_scan(&tx, table.index(&format!("{}_{index}", table.name())).unwrap(), all).unwrap();
    let mut rows = Vec::new();
    while cursor.next_batch(&tx, 100, |row| rows.push(row.to_row())).unwrap() {}
    rows
}

fn assert_same(catalog: &Arc<Catalog>, loaded: &Arc<Table>, inserted: &Arc<Table>) {
    assert_eq!(rows(catalog, loaded), rows(catalog, inserted));
    for index in ["number", "text"] {
        assert_eq!(by_index(catalog, loaded, index), by_index(catalog, inserted, index), "{index}");
    }
    assert_eq!(check(catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_loaded_table_has_what_inserts_give_it() {
    for (seed, key) in (1..).zip(KEYS) {
        for sorted in [true, false] {
            let (catalog, random) = (catalog(), Env::simulated(seed));
            let [loaded, inserted] = ["loaded", "inserted"].map(|name| create(&catalog, name, key));
            let wanted = random_rows(&random, &loaded, key, 3000, sorted);
            let tx = catalog.begin().unwrap();
            assert!(loaded.begin_load(&tx).unwrap(), "{key:?}");
            load(&random, &loaded, &tx, &wanted).unwrap();
            assert!(rows(&catalog, &loaded).is_empty(), "nobody sees it yet");
            tx.commit(Durability::Sync).unwrap();
            let tx = catalog.begin().unwrap();
            wanted.iter().for_each(|row| inserted.insert(&tx, row).unwrap());
            tx.commit(Durability::Sync).unwrap();
            assert_same(&catalog, &loaded, &inserted);
            change(&catalog, &random, &wanted, &[&loaded, &inserted]);
            assert_same(&catalog, &loaded, &inserted);
        }
    }
}

#[test]
fn tables_with_row_groups_are_loaded_too() {
    for (seed, layout) in (1..).zip([TableLayout::Columns, TableLayout::Elf, TableLayout::Clustered]) {
        for (key, sorted) in [(KEYS[1], true), (KEYS[8], false), (KEYS[10], false)] {
            let (catalog, random) = (catalog(), Env::simulated(seed));
            let loaded = create_with(&catalog, "loaded", key, layout);
            let inserted = create(&catalog, "inserted", key);
            let wanted = random_rows(&random, &loaded, key, 3000, sorted);
            let before = catalog.begin().unwrap();
            let tx = catalog.begin().unwrap();
            assert!(loaded.begin_load(&tx).unwrap(), "{layout:?} {key:?}");
            load(&random, &loaded, &tx, &wanted).unwrap();
            loaded.merge(|_| Ok(())).unwrap();
            assert!(rows(&catalog, &loaded).is_empty(), "nobody sees it yet");
            tx.commit(Durability::Sync).unwrap();
            let inserting = catalog.begin().unwrap();
            wanted.iter().for_each(|row| inserted.insert(&inserting, row).unwrap());
            inserting.commit(Durability::Sync).unwrap();
            assert_same(&catalog, &loaded, &inserted);
            loaded.merge(|_| Ok(())).unwrap();
            assert_same(&catalog, &loaded, &inserted);
            assert!(loaded.scan(ScanRange::full()).rows(&before).unwrap().is_empty(), "an older snapshot");
            drop(before);
            let tx = catalog.begin().unwrap();
            let twice = loaded.insert(&tx, &wanted[7]);
            assert!(matches!(&twice, Err(Error::DuplicateKey { .. })), "{twice:?}");
            drop(tx);
            change(&catalog, &random, &wanted, &[&loaded, &inserted]);
            loaded.merge(|_| Ok(())).unwrap();
            assert_same(&catalog, &loaded, &inserted);
        }
    }
}

/// Nothing is left of it in the delta store.
#[test]
fn a_table_whose_rows_are_all_in_row_groups_is_not_loaded() {
    let catalog = catalog();
    let mut definition =
        TableDefinition::plain(Schema::new(vec![Column::new("id", DataType::Int)], &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    let ids: Vec<Row> = (0..900).map(|id| vec![Value::Int(id)]).collect();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    table.load(&tx, &batch(&table, &ids)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    catalog.context().vacuum().unwrap();
    let tx = catalog.begin().unwrap();
    assert!(!table.begin_load(&tx).unwrap());
    assert!(matches!(table.insert(&tx, &ids[7]), Err(Error::DuplicateKey { .. })));
    drop(tx);
    let tx = catalog.begin().unwrap();
    table.delete_many(&tx, &ids).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    catalog.context().vacuum().unwrap();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap(), "it is empty again");
    table.load(&tx, &batch(&table, &ids)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(rows(&catalog, &table), ids);
}

/// The row is in a row group when the load commits.
#[test]
fn a_row_that_was_merged_during_a_load_makes_it_fail() {
    let (catalog, random) = (catalog(), Env::simulated(3));
    let table = create_with(&catalog, "t", &[DataType::Int], TableLayout::Columns);
    let rows_of = |ids: std::ops::Range<i32>| -> Vec<Row> {
        ids.map(|id| vec![Value::Int(id), Value::Null, Value::from("x")]).collect()
    };
    let loading = catalog.begin().unwrap();
    assert!(table.begin_load(&loading).unwrap());
    load(&random, &table, &loading, &rows_of(0..900)).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &rows_of(500..501)[0]).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    catalog.context().vacuum().unwrap();
    let failed = loading.commit(Durability::Sync).unwrap_err();
    assert!(matches!(&failed, entresol_transactions::Error::Conflict { .. }), "{failed}");
    assert_eq!(rows(&catalog, &table), rows_of(500..501));
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Deletes some rows, and gives others a text, the same in all tables.
fn change(catalog: &Catalog, random: &Env, rows: &[Row], tables: &[&Arc<Table>]) {
    for row in rows.iter().filter(|_| random.random_u64().is_multiple_of(3)) {
        let (tx, delete) = (catalog.begin().unwrap(), random.random_u64().is_multiple_of(2));
        for table in tables {
            let key = table.key_of(row);
            if delete {
                assert!(table.delete(&tx, &key).unwrap());
            } else {
                let mut row = row.clone();
                *row.last_mut().unwrap() = Value::from("another text");
                table.update(&tx, &key, &row).unwrap();
            }
        }
        tx.commit(Durability::None).unwrap();
    }
}

#[test]
fn duplicates_name_the_key_or_the_unique_values() {
    let (catalog, random) = (catalog(), Env::simulated(5));
    let table = create(&catalog, "t", &[DataType::Int]);
    let row = |id: i32, number: Option<i64>| -> Row {
        vec![Value::Int(id), number.map_or(Value::Null, Value::BigInt), Value::from("x")]
    };
    for far in [false, true] {
        let mut wanted: Vec<Row> = (0..900).map(|id| row(id, Some(i64::from(id) * 2))).collect();
        wanted.insert(if far { 0 } else { 500 }, row(if far { 400 } else { 499 }, Some(-1)));
        let tx = catalog.begin().unwrap();
        assert!(table.begin_load(&tx).unwrap());
        let failed = load(&random, &table, &tx, &wanted).unwrap_err();
        let key = if far { "400" } else { "499" };
        assert!(matches!(&failed, Error::DuplicateKey { key: found, .. } if found.contains(key)), "{failed}");
        let mut wanted: Vec<Row> = (0..900).map(|id| row(id, Some(i64::from(id) * 2))).collect();
        wanted[if far { 899 } else { 1 }][1] = Value::BigInt(0);
        let tx = catalog.begin().unwrap();
        assert!(table.begin_load(&tx).unwrap());
        let failed = load(&random, &table, &tx, &wanted).unwrap_err();
        assert!(
            matches!(&failed, Error::UniqueViolation { constraint, values, .. }
                if constraint == "t_number" && values.contains('0')),
            "{failed}"
        );
        assert!(rows(&catalog, &table).is_empty());
    }
    let nulls: Vec<Row> = (0..900).map(|id| row(id, None)).collect();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    load(&random, &table, &tx, &nulls).unwrap();
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(rows(&catalog, &table), nulls, "NULLs are distinct");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn rows_without_a_key_get_numbers_and_go_on_behind_a_load() {
    let catalog = catalog();
    let schema = Schema::new(vec![Column::new("text", DataType::Varchar)], &[] as &[&str]).unwrap();
    let table =
        catalog.create_table_as("t", TableDefinition::plain(schema), TableOptions::default()).unwrap();
    let text = |at: usize| vec![Value::from(&*format!("row {at}"))];
    let wanted: Vec<Row> = (0..5000).map(text).collect();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    table.load(&tx, &batch(&table, &wanted)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let tx = catalog.begin().unwrap();
    assert!(!table.begin_load(&tx).unwrap(), "it has rows");
    table.insert(&tx, &text(5000)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    let found: Vec<Value> = rows(&catalog, &table).into_iter().map(|mut row| row.swap_remove(0)).collect();
    assert_eq!(found, (0..5001).map(|at| text(at).swap_remove(0)).collect::<Vec<_>>());
}

#[test]
fn a_batch_that_violates_the_schema_leaves_the_load_as_it_was() {
    let catalog = catalog();
    let table = create(&catalog, "t", &[DataType::Int]);
    let good: Vec<Row> = (0..10).map(|id| vec![Value::Int(id), Value::Null, Value::Null]).collect();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    table.load(&tx, &batch(&table, &good)).unwrap();
    let bad = vec![vec![Value::Null, Value::Null, Value::Null]];
    assert!(matches!(table.load(&tx, &batch(&table, &bad)), Err(Error::NotNull { .. })));
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(rows(&catalog, &table), good);
    // A batch of several parts, of which the first was loaded already.
    let table = create(&catalog, "u", &[DataType::Int]);
    let long = (0..20_000).map(|id| if id < 19_000 { Value::Int(id) } else { Value::Null });
    let long: Vec<Row> = long.map(|id| vec![id, Value::Null, Value::Null]).collect();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    assert!(matches!(table.load(&tx, &batch(&table, &long)), Err(Error::NotNull { .. })));
    assert!(!tx.is_open(), "nothing can take the first part back");
    assert!(rows(&catalog, &table).is_empty());
}
