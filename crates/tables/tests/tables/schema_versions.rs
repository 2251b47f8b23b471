//! Schema changes: rows of every schema version, entries of the catalog of every version, over restarts.
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::{
    Catalog, Check, Column, DataType, Error, ScanRange, Schema, TableDefinition, TableOptions, Value, Verify,
    check,
};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;

fn open(directory: &Path) -> Arc<Catalog> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn schema() -> Schema {
    let columns = vec![
        Column::new("id", DataType::Int),
        Column::new("flag", DataType::Boolean),
        Column::new("text", DataType::Varchar),
    ];
    Schema::new(columns, &["id"]).unwrap()
}

fn insert(catalog: &Catalog, row: Vec<Value>) {
    let tx = catalog.begin().unwrap();
    catalog.table("t").unwrap().insert(&tx, &row).unwrap();
    tx.commit(Durability::Sync).unwrap();
}

fn rows(catalog: &Catalog) -> Vec<Vec<Value>> {
    catalog.table("t").unwrap().scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap()
}

fn redefine(
    catalog: &Catalog,
    change: impl FnOnce(&mut TableDefinition) -> Result<(), Error>,
) -> Result<(), Error> {
    catalog.redefine("t", None::<Verify<'_, Error>>, change).map(drop)
}

fn add(catalog: &Catalog, column: Column, missing: Value) -> Result<(), Error> {
    redefine(catalog, |definition| {
        definition.schema = Arc::new(definition.schema.with_column(column, missing)?);
        definition.defaults.push(None);
        Ok(())
    })
}

fn remove(catalog: &Catalog, column: usize) -> Result<(), Error> {
    redefine(catalog, |definition| {
        definition.schema = Arc::new(definition.schema.without_column(column)?);
        definition.defaults.remove(column);
        Ok(())
    })
}

const LONG: DataType = DataType::Decimal { precision: 30, scale: 2 };

#[test]
fn rows_of_every_shape_are_read_as_the_table_is_now() {
    let directory = tempfile::TempDir::new().unwrap();
    let values = [
        (DataType::Boolean, Value::Boolean(true)),
        (DataType::Int, Value::Int(-7)),
        (DataType::BigInt, Value::BigInt(i64::MIN)),
        (DataType::Double, Value::Double(-0.5)),
        (LONG, Value::Decimal(-12_345_678_901_234_567_890_123)),
        (DataType::Decimal { precision: 5, scale: 1 }, Value::Decimal(-15)),
        (DataType::Date, Value::Date(-1)),
        (DataType::Timestamp, Value::Timestamp(1)),
        (DataType::Varchar, Value::from("a\0ä")),
        (DataType::Varchar, Value::Null),
    ];
    let mut expected = vec![vec![Value::Int(0), Value::Boolean(true), Value::from("zero")]];
    {
        let catalog = open(directory.path());
        catalog.create_table("t", schema(), TableOptions::default()).unwrap();
        insert(&catalog, expected[0].clone());
    }
    for (at, (data_type, missing)) in values.iter().enumerate() {
        let catalog = open(directory.path());
        add(&catalog, Column::new(format!("c{at}"), *data_type), missing.clone()).unwrap();
        expected.iter_mut().for_each(|row| row.push(missing.clone()));
        let mut row = vec![Value::Int(at as i32 + 1), Value::Null, Value::from("new")];
        row.extend(values[..=at].iter().map(|_| Value::Null));
        insert(&catalog, row.clone());
        expected.push(row);
        assert_eq!(rows(&catalog), expected, "{data_type}");
    }
    let catalog = open(directory.path());
    assert_eq!(rows(&catalog), expected);
    // A column of the middle and one of the first version are dropped; a new one has the old name.
    remove(&catalog, 5).unwrap();
    remove(&catalog, 1).unwrap();
    add(&catalog, Column::new("flag", DataType::BigInt), Value::BigInt(3)).unwrap();
    for row in &mut expected {
        row.remove(5);
        row.remove(1);
        row.push(Value::BigInt(3));
    }
    assert_eq!(rows(&catalog), expected);
    drop(catalog);
    let catalog = open(directory.path());
    assert_eq!(rows(&catalog), expected);
    // Writing a row stores it in the current schema version.
    let tx = catalog.begin().unwrap();
    let table = catalog.table("t").unwrap();
    expected[0][1] = Value::from("written again");
    table.upsert(&tx, &expected[0]).unwrap();
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(rows(&catalog), expected);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn shapes_are_bounded_and_used_again() {
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = open(directory.path());
    catalog.create_table("t", schema(), TableOptions::default()).unwrap();
    let column = || Column::new("c", DataType::Int);
    let mut added = 0;
    let error = loop {
        match add(&catalog, column(), Value::Null) {
            Err(error) => break error,
            Ok(()) => added += 1,
        }
        // Without the column rows have the first schema version again.
        remove(&catalog, 3).unwrap();
    };
    assert_eq!(added, entresol_tables::SCHEMA_VERSIONS_MAX - 1);
    assert!(error.to_string().contains("CREATE TABLE AS"), "{error}");
    insert(&catalog, vec![Value::Int(1), Value::Null, Value::Null]);
    drop(catalog);
    assert_eq!(rows(&open(directory.path())).len(), 1);
}

#[test]
fn old_objects_of_a_table_end_when_its_rows_change_shape() {
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = open(directory.path());
    let old = catalog.create_table("t", schema(), TableOptions::default()).unwrap();
    insert(&catalog, vec![Value::Int(1), Value::Null, Value::Null]);
    let before = catalog.begin().unwrap();
    let version = catalog.version();
    add(&catalog, Column::new("c", DataType::Int), Value::Int(5)).unwrap();
    assert!(catalog.version() > version);
    let row = vec![Value::Int(2), Value::Null, Value::Null];
    assert_eq!(old.get(&before, &[Value::Int(1)]).unwrap().unwrap().len(), 3);
    let after = catalog.begin().unwrap();
    for error in [
        old.insert(&after, &row).unwrap_err(),
        old.get(&after, &[Value::Int(1)]).unwrap_err(),
        old.scan(ScanRange::full()).rows(&after).unwrap_err(),
        catalog.table("t").unwrap().delete(&before, &[Value::Int(1)]).unwrap_err(),
    ] {
        assert!(matches!(error, Error::TableChanged { .. }), "{error}");
    }
    old.insert(&before, &row).unwrap();
    assert!(before.commit(Durability::Sync).is_err_and(|error| error.is_retryable()));
    // Every transaction reads the new one.
    let tx = catalog.begin().unwrap();
    assert_eq!(catalog.table("t").unwrap().get(&tx, &[Value::Int(1)]).unwrap().unwrap()[3], Value::Int(5));
}

#[test]
fn a_rule_that_rows_break_leaves_the_table_as_it_was() {
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = open(directory.path());
    catalog.create_table("t", schema(), TableOptions::default()).unwrap();
    insert(&catalog, vec![Value::Int(1), Value::Null, Value::Null]);
    let refuse: Verify<'_, Error> = &|table, tx| match table.get(tx, &[Value::Int(1)])? {
        Some(_) => Err(Error::NoSuchKey { table: table.name().into(), key: "1".into() }),
        None => Ok(()),
    };
    let rule = |definition: &mut TableDefinition| {
        definition.checks.push(Check { name: "c".into(), expression: "id > 1".into() });
        Ok(())
    };
    assert!(catalog.redefine("t", Some(refuse), rule).is_err());
    assert!(catalog.table("t").unwrap().is_plain());
    let tx = catalog.begin().unwrap();
    catalog.table("t").unwrap().delete(&tx, &[Value::Int(1)]).unwrap();
    tx.commit(Durability::Sync).unwrap();
    catalog.redefine("t", Some(refuse), rule).unwrap();
    drop((tx, catalog));
    let catalog = open(directory.path());
    assert_eq!(catalog.table("t").unwrap().definition().checks[0].expression, "id > 1");
    catalog.rename_table("t", "s").unwrap();
    assert!(matches!(catalog.rename_table("s", "s"), Err(Error::RelationExists { .. })));
    assert_eq!(catalog.table("s").unwrap().definition().key_constraint("s"), "t_pkey");
}

/// Entry of a table as earlier versions wrote it.
fn old_entry(version: u8, name: &str, state: u32, group: u32, schema: &Schema) -> Vec<u8> {
    let mut bytes = vec![version];
    bytes.extend_from_slice(&state.to_le_bytes());
    bytes.extend_from_slice(&group.to_le_bytes());
    let schema = schema.to_bytes();
    if version == 2 {
        let crc =
            crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), &bytes), &schema);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    bytes.extend_from_slice(&schema);
    bytes
}

#[test]
fn entries_of_earlier_versions_are_read_and_can_be_changed() {
    for version in [1, 2] {
        let directory = tempfile::TempDir::new().unwrap();
        {
            let catalog = open(directory.path());
            let table = catalog.create_table("t", schema(), TableOptions::default()).unwrap();
            insert(&catalog, vec![Value::Int(1), Value::Null, Value::from("x")]);
            let entry = old_entry(version, "t", table.state().id().0, table.group().0, &schema());
            let states = catalog.context().states();
            let own = states.iter().find(|state| state.id() != table.state().id()).unwrap();
            let tx = catalog.begin().unwrap();
            tx.write(own, b"t", Some(&entry)).unwrap();
            tx.commit(Durability::Sync).unwrap();
        }
        let catalog = open(directory.path());
        assert_eq!(rows(&catalog), [[Value::Int(1), Value::Null, Value::from("x")]], "version {version}");
        assert_eq!(*catalog.table("t").unwrap().definition(), TableDefinition::plain(schema()));
        add(&catalog, Column::new("c", DataType::Int), Value::Int(9)).unwrap();
        drop(catalog);
        let catalog = open(directory.path());
        assert_eq!(rows(&catalog), [[Value::Int(1), Value::Null, Value::from("x"), Value::Int(9)]]);
    }
}
