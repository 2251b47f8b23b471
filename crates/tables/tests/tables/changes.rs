//! Changes of tables from their logs: beside a model, over new schema versions, and over restarts.
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    Catalog, ChangeBatchBuilder, ChangeKind, Column, DataType, Error, IndexDefinition, Retention, Row,
    Schema, Table, TableDefinition, TableLayout, TableOptions, Value, check,
};
use entresol_transactions::{INFINITY, LogPosition, StateContext, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Changed = (Timestamp, ChangeKind, Option<Row>, Option<Row>);

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn definition(changes: Option<Retention>) -> TableDefinition {
    let columns = vec![
        Column::new("id", DataType::Int),
        Column::new("name", DataType::Varchar),
        Column::new("age", DataType::Int),
    ];
    let mut definition = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    definition.indexes.push(IndexDefinition {
        name: "by_age".into(),
        columns: vec![2],
        unique: false,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    });
    definition.changes = changes;
    definition
}

fn person(id: i32, name: &str, age: Option<i32>) -> Row {
    vec![Value::Int(id), Value::from(name), age.map_or(Value::Null, Value::Int)]
}

fn commit(catalog: &Catalog, work: impl FnOnce(&entresol_transactions::Transaction)) -> Timestamp {
    let tx = catalog.begin().unwrap();
    work(&tx);
    tx.commit(Durability::Sync).unwrap().cts
}

fn changes(catalog: &Catalog, table: &Table, from: LogPosition) -> Result<Vec<Changed>, Error> {
    let (tx, mut found) = (catalog.begin().unwrap(), Vec::new());
    table.logged_changes(&tx, from, INFINITY, |change, _| {
        let row = |view: Option<entresol_tables::RowView<'_>>| view.map(|view| view.to_row());
        found.push((change.cts, change.kind, row(change.old), row(change.new)));
        true
    })?;
    Ok(found)
}

fn start() -> LogPosition {
    LogPosition::after(Timestamp::START)
}

fn assert_sound(catalog: &Arc<Catalog>) {
    assert_eq!(check(catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn changes_are_those_of_a_model() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = catalog
        .create_table_as("people", definition(Some(Retention::Forever)), TableOptions::default())
        .unwrap();
    let mut seed = 11_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let (mut rows, mut expected): (BTreeMap<i32, Row>, Vec<Changed>) = Default::default();
    for round in 0..200 {
        let mut changed: BTreeMap<i32, Option<Row>> = BTreeMap::new();
        for _ in 0..1 + below(8) {
            let id = below(40) as i32;
            let row = person(id, &"é".repeat(below(30) as usize), (below(3) > 0).then_some(round));
            changed.insert(id, (below(4) > 0).then_some(row));
        }
        let cts = commit(&catalog, |tx| {
            for (id, row) in &changed {
                match row {
                    Some(row) => table.upsert(tx, row).map(drop).unwrap(),
                    None => table.delete(tx, &[Value::Int(*id)]).map(drop).unwrap(),
                }
            }
        });
        for (id, new) in changed {
            let old = match &new {
                Some(row) => rows.insert(id, row.clone()),
                None => rows.remove(&id),
            };
            let kind = match (&old, &new) {
                (None, None) => continue,
                (None, Some(_)) => ChangeKind::Insert,
                (Some(_), Some(_)) => ChangeKind::Update,
                (Some(_), None) => ChangeKind::Delete,
            };
            expected.push((cts, kind, old, new));
        }
    }
    assert!(changes(&catalog, &table, start()).unwrap() == expected);
    let mut builder = ChangeBatchBuilder::new(&table, "UTC");
    let tx = catalog.begin().unwrap();
    table
        .logged_changes(&tx, start(), INFINITY, |change, _| {
            builder.push(&change);
            true
        })
        .unwrap();
    let batch = builder.finish().unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (expected.len(), 8));
    let rows = entresol_tables::rows_of(&batch).unwrap();
    for (row, (cts, kind, old, new)) in rows.iter().zip(&expected) {
        let shown = new.as_ref().or(old.as_ref()).unwrap();
        let before = old.clone().unwrap_or_else(|| vec![Value::Null; 3]);
        assert_eq!((&row[..3], &row[3..6]), (&shown[..], &before[..]));
        assert_eq!(row[6..], [Value::from(kind.name()), Value::BigInt(cts.bigint())]);
    }
    drop(tx);
    assert_sound(&catalog);
}

/// The changes of an open transaction are those that its commit logs, whatever the layout.
#[test]
fn open_changes_are_those_that_the_commit_logs() {
    for layout in [TableLayout::Rows, TableLayout::Columns] {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let catalog = open(&pool);
        let definition = TableDefinition { layout, ..definition(Some(Retention::Forever)) };
        let table = catalog.create_table_as("people", definition, TableOptions::default()).unwrap();
        commit(&catalog, |tx| {
            table.insert_many(tx, &[person(1, "Ada", Some(36)), person(2, "Alan", None)]).unwrap();
            table.insert(tx, &person(3, "Grace", Some(85))).unwrap();
        });
        let mut shown = Vec::new();
        let cts = commit(&catalog, |tx| {
            table.upsert(tx, &person(1, "Ada", Some(36))).unwrap();
            table.delete(tx, &[Value::Int(2)]).unwrap();
            table.delete(tx, &[Value::Int(3)]).unwrap();
            table.insert(tx, &person(3, "Edsger", None)).unwrap();
            table.insert(tx, &person(4, "Barbara", None)).unwrap();
            table.insert(tx, &person(5, "Tony", Some(1))).unwrap();
            table.delete(tx, &[Value::Int(5)]).unwrap();
            // Without the last column of the table.
            shown = entresol_tables::rows_of(&table.open_changes(tx, 2).unwrap()).unwrap();
        });
        let mut logged = changes(&catalog, &table, start()).unwrap();
        logged.retain(|(of, ..)| *of == cts);
        let row = |(_, kind, old, new): &Changed| {
            let row = new.as_ref().or(old.as_ref()).unwrap();
            let before = old.clone().unwrap_or_else(|| vec![Value::Null; 3]);
            [&row[..2], &before[..2], &[Value::from(kind.name()), Value::Null]].concat()
        };
        assert_eq!(shown, logged.iter().map(row).collect::<Vec<_>>(), "{layout:?}");
        let kinds: Vec<ChangeKind> = logged.iter().map(|(_, kind, ..)| *kind).collect();
        let expected = [ChangeKind::Update, ChangeKind::Delete, ChangeKind::Update, ChangeKind::Insert];
        assert_eq!(kinds, expected, "{layout:?}");
        assert_sound(&catalog);
    }
}

#[test]
fn earlier_changes_have_the_columns_of_today() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = catalog
        .create_table_as("people", definition(Some(Retention::Forever)), TableOptions::default())
        .unwrap();
    let first = commit(&catalog, |tx| table.insert(tx, &person(1, "Ada", Some(36))).map(drop).unwrap());
    let table = catalog
        .redefine("people", None::<entresol_tables::Verify<'_, Error>>, |definition| {
            let schema = definition.schema.without_column(1)?;
            let schema = schema.with_column(Column::new("city", DataType::Varchar), Value::from("London"))?;
            definition.schema = Arc::new(schema);
            definition.defaults = vec![None; 3];
            definition.indexes[0].columns = vec![1];
            Ok(())
        })
        .unwrap();
    let row = |age: i32, city: &str| vec![Value::Int(1), Value::Int(age), Value::from(city)];
    let second = commit(&catalog, |tx| table.upsert(tx, &row(37, "Paris")).map(drop).unwrap());
    let expected = [
        (first, ChangeKind::Insert, None, Some(row(36, "London"))),
        (second, ChangeKind::Update, Some(row(36, "London")), Some(row(37, "Paris"))),
    ];
    assert_eq!(changes(&catalog, &table, start()).unwrap(), expected);
}

#[test]
fn a_log_is_added_dropped_and_there_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::create(dir.path(), &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let mut table = catalog.create_table_as("people", definition(None), TableOptions::default()).unwrap();
    let insert = |catalog: &Catalog, id| {
        let table = catalog.table("people").unwrap();
        commit(catalog, |tx| table.insert(tx, &person(id, "x", None)).map(drop).unwrap())
    };
    let before = insert(&catalog, 1);
    let refused = changes(&catalog, &table, start()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "table people logs no changes; ALTER TABLE people SET (changes = '1 hour') makes it"
    );
    catalog.set_changes("people", Some(Retention::For(Duration::from_secs(3600)))).unwrap();
    table = catalog.table("people").unwrap();
    let after = insert(&catalog, 2);
    let too_old = changes(&catalog, &table, LogPosition::after(before)).unwrap_err();
    assert!(too_old.to_string().contains("change log of table people"), "{too_old}");
    let log = table.change_log().unwrap().unwrap();
    let horizon = log.horizon(&catalog.begin().unwrap()).unwrap();
    let from = LogPosition::after(horizon);
    let inserted = |cts, id| (cts, ChangeKind::Insert, None, Some(person(id, "x", None)));
    assert_eq!(changes(&catalog, &table, from).unwrap(), [inserted(after, 2)]);
    assert_sound(&catalog);
    drop((log, table, catalog));
    pool.close().unwrap();

    drop(pool);
    let pool = Pool::open(dir.path(), &PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = catalog.table("people").unwrap();
    assert_eq!(table.definition().changes, Some(Retention::For(Duration::from_secs(3600))));
    let third = insert(&catalog, 3);
    assert_eq!(changes(&catalog, &table, from).unwrap(), [inserted(after, 2), inserted(third, 3)]);
    assert_sound(&catalog);
    let states = catalog.context().states().len();
    catalog.set_changes("people", None).unwrap();
    let table = catalog.table("people").unwrap();
    assert!(matches!(changes(&catalog, &table, from), Err(Error::NoChangeLog { .. })));
    insert(&catalog, 4);
    assert_eq!(catalog.context().states().len(), states - 1);
    catalog.set_changes("people", Some(Retention::Forever)).unwrap();
    drop(table);
    catalog.drop_table("people").unwrap();
    assert_eq!(catalog.context().states().len(), states - 3, "rows, index and log are dropped");
    catalog.context().vacuum().unwrap();
    assert_sound(&catalog);
    drop(catalog);
    pool.close().unwrap();
}
