//! The catalog over restarts and crashes.
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_tables::{Catalog, Column, DataType, Error, ScanRange, Schema, TableOptions, Value};
use entresol_transactions::{Protocol, StateContext};
use std::path::Path;
use std::sync::Arc;

fn open(directory: &Path) -> (Arc<Pool>, Arc<Catalog>) {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    (pool, Catalog::open_or_create(context).unwrap())
}

fn schema(name: &str) -> Schema {
    Schema::new(vec![Column::new("id", DataType::Int), Column::new(name, DataType::Varchar)], &["id"])
        .unwrap()
}

#[test]
fn tables_and_rows_are_back_after_a_close_and_after_none() {
    let directory = tempfile::TempDir::new().unwrap();
    for run in 0..6 {
        let (pool, catalog) = open(directory.path());
        assert_eq!(catalog.tables().len(), run);
        for earlier in 0..run {
            let table = catalog.table(&format!("t{earlier}")).unwrap();
            assert_eq!(**table.schema(), schema(&format!("v{earlier}")));
            let tx = catalog.begin().unwrap();
            let rows = table.scan(ScanRange::full()).rows(&tx).unwrap();
            assert_eq!(rows, [[Value::Int(earlier as i32), Value::from("x")]]);
        }
        let table = catalog
            .create_table(&format!("t{run}"), schema(&format!("v{run}")), TableOptions::default())
            .unwrap();
        assert_ne!(table.group(), catalog.default_group());
        let tx = catalog.begin().unwrap();
        table.insert(&tx, &[Value::Int(run as i32), Value::from("x")]).unwrap();
        tx.commit(Durability::Sync).unwrap();
        let tx = catalog.begin().unwrap();
        table.insert(&tx, &[Value::Int(-1), Value::from("not committed")]).unwrap();
        drop(tx);
        if run % 2 == 0 {
            pool.close().unwrap();
        }
    }
}

#[test]
fn dropped_tables_stay_dropped_and_their_names_are_free() {
    let directory = tempfile::TempDir::new().unwrap();
    let (_pool, catalog) = open(directory.path());
    let table = catalog.create_table("t", schema("a"), TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &[Value::Int(1), Value::from("x")]).unwrap();
    tx.commit(Durability::Sync).unwrap();
    catalog.drop_table("t").unwrap();
    assert!(matches!(catalog.table("t"), Err(Error::NoSuchTable { .. })));
    assert!(matches!(catalog.drop_table("t"), Err(Error::NoSuchTable { .. })));
    let again = catalog.create_table("t", schema("b"), TableOptions::default()).unwrap();
    assert_eq!(again.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap().len(), 0);
    drop((table, again, tx, catalog, _pool));
    let (_pool, catalog) = open(directory.path());
    assert_eq!(**catalog.table("t").unwrap().schema(), schema("b"));
    assert_eq!(catalog.tables().len(), 1);
}

#[test]
fn states_without_a_table_are_dropped_at_open() {
    let directory = tempfile::TempDir::new().unwrap();
    let (pool, catalog) = open(directory.path());
    catalog.create_table("t", schema("a"), TableOptions::default()).unwrap();
    // Left by a crash between the two steps of creating a table.
    catalog.context().create_state(catalog.default_group(), KeyWidth::Eight).unwrap();
    assert_eq!(catalog.context().states().len(), 3);
    pool.sync().unwrap();
    drop((catalog, pool));
    let (_pool, catalog) = open(directory.path());
    assert_eq!(catalog.context().states().len(), 2);
    assert_eq!(catalog.tables().len(), 1);
}

#[test]
fn groups_can_be_chosen() {
    let directory = tempfile::TempDir::new().unwrap();
    let (pool, catalog) = open(directory.path());
    let group = catalog.create_group().unwrap();
    let options = TableOptions { group: Some(group), ..TableOptions::default() };
    catalog.create_table("apart", schema("a"), options).unwrap();
    assert_ne!(group, catalog.default_group());
    drop((catalog, pool));
    let (_pool, catalog) = open(directory.path());
    let table = catalog.table("apart").unwrap();
    assert_eq!((table.group(), table.state().group()), (group, group));
}

#[test]
fn each_table_has_a_group_of_its_own_and_leaves_it_to_the_next() {
    let directory = tempfile::TempDir::new().unwrap();
    let (pool, catalog) = open(directory.path());
    let table = |catalog: &Catalog, name: &str| {
        catalog.create_table(name, schema("a"), TableOptions::default()).unwrap().group()
    };
    let first = ["a", "b", "c"].map(|name| table(&catalog, name));
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    catalog.drop_table("b").unwrap();
    assert_eq!(table(&catalog, "d"), first[1]);
    let groups = catalog.context().groups().len();
    for _ in 0..50 {
        table(&catalog, "often");
        catalog.drop_table("often").unwrap();
    }
    assert_eq!(catalog.context().groups().len(), groups + 1);
    catalog.drop_table("d").unwrap();
    let unused = catalog.create_group().unwrap();
    drop((catalog, pool));
    let (_pool, catalog) = open(directory.path());
    let reused = ["x", "y", "z"].map(|name| table(&catalog, name));
    assert!(reused.contains(&first[1]) && reused.contains(&unused));
    assert_eq!(catalog.context().groups().len(), groups + 2, "unused groups are reused after a restart");
}

#[test]
fn groups_with_another_protocol_are_not_given_to_others() {
    let directory = tempfile::TempDir::new().unwrap();
    let (_pool, catalog) = open(directory.path());
    let group = catalog.context().create_group_with(Protocol::S2pl).unwrap();
    let options = TableOptions { group: Some(group), ..TableOptions::default() };
    catalog.create_table("locked", schema("a"), options).unwrap();
    catalog.drop_table("locked").unwrap();
    let table = catalog.create_table("t", schema("a"), TableOptions::default()).unwrap();
    assert_ne!(table.group(), group);
}

#[test]
fn row_numbers_go_on_after_a_restart() {
    let directory = tempfile::TempDir::new().unwrap();
    let hidden = Schema::new(vec![Column::new("n", DataType::Int)], &[] as &[&str]).unwrap();
    for run in 0..4 {
        let (_pool, catalog) = open(directory.path());
        let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
        let table = catalog.create_table("log", hidden.clone(), options).unwrap();
        let tx = catalog.begin().unwrap();
        table.insert_many(&tx, &[[Value::Int(run)], [Value::Int(run)]]).unwrap();
        tx.commit(Durability::Sync).unwrap();
        let rows = table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap();
        let expected: Vec<Vec<Value>> = (0..=run)
            .flat_map(|r| [r, r])
            .zip(1..)
            .map(|(r, id)| vec![Value::Int(r), Value::BigInt(id)])
            .collect();
        assert_eq!(rows, expected);
    }
}
