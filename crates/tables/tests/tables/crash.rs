//! The catalog under power failures: before every fence of a history, every state that may be left opens to a
//! catalog and rows of one snapshot, and can be worked with.
use entresol_memory::crash::{CrashOptions, check, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    Catalog, Column, DataType, Error, Retention, ScanRange, Schema, Table, TableOptions, Value,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn schema() -> Schema {
    Schema::new(vec![Column::new("id", DataType::Int), Column::new("v", DataType::Varchar)], &["id"]).unwrap()
}

fn add(catalog: &Catalog, tables: &[&Arc<Table>], id: i32) {
    let tx = catalog.begin().unwrap();
    for table in tables {
        table.insert(&tx, &[Value::Int(id), Value::from("x")]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

/// `a` is created first and stays; `b`, with a version history, is created, written together with `a`, and
/// dropped.
fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let create = |name: &str| catalog.create_table(name, schema(), TableOptions::default()).unwrap();
    let a = create("a");
    add(&catalog, &[&a], 1);
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let b = catalog.create_table("b", schema(), options).unwrap();
    add(&catalog, &[&a, &b], 2);
    add(&catalog, &[&a, &b], 3);
    catalog.drop_table("b").unwrap();
    add(&catalog, &[&a], 4);
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let read = |name: &str| match catalog.table(name) {
        Err(_) => Ok(None),
        Ok(table) => {
            let tx = catalog.begin().map_err(|error| error.to_string())?;
            let rows = table.scan(ScanRange::full()).rows(&tx).map_err(|error| error.to_string())?;
            Ok::<_, String>(Some(rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()))
        }
    };
    let ids = |ids: &[i32]| Some(ids.iter().map(|id| Value::Int(*id)).collect::<Vec<_>>());
    let (a, b) = (read("a")?, read("b")?);
    let legal_states = [
        (None, None),
        (ids(&[]), None),
        (ids(&[1]), None),
        (ids(&[1]), ids(&[])),
        (ids(&[1, 2]), ids(&[2])),
        (ids(&[1, 2, 3]), ids(&[2, 3])),
        (ids(&[1, 2, 3]), None),
        (ids(&[1, 2, 3, 4]), None),
    ];
    if !legal_states.contains(&(a.clone(), b.clone())) {
        return Err(format!("a = {a:?}, b = {b:?}"));
    }
    let states = catalog.context().states().len();
    if states != 1 + catalog.tables().len() {
        return Err(format!("{states} states for {} tables", catalog.tables().len()));
    }
    if catalog.table("b").is_ok_and(|b| b.history_bounds().is_none()) {
        return Err("b keeps no history".to_owned());
    }
    let reports = catalog.context().check(|_, _, _| Ok(()), |_| ()).map_err(|error| error.to_string())?;
    if let Some(wrong) = reports.iter().find(|report| !report.problems.is_empty()) {
        return Err(format!("{wrong:?}"));
    }
    // And it goes on.
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    let table = catalog.create_table("b", schema(), options).map_err(|error| error.to_string())?;
    let tx = catalog.begin().map_err(|error| error.to_string())?;
    table.insert(&tx, &[Value::Int(99), Value::Null]).map_err(|error| error.to_string())?;
    tx.commit(Durability::Sync).map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn every_crash_leaves_a_catalog_of_one_moment() {
    let report = check_seeds("catalog", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history(pool);
            Ok(())
        };
        check(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(1_000), "{report:?}");
}

/// Owners of two tables change together with a row that names them; a change whose row fails is none.
fn owners_history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let create = |name: &str| catalog.create_table(name, schema(), TableOptions::default()).unwrap();
    let (a, b, log) = (create("a"), create("b"), create("log"));
    add(&catalog, &[&a, &b], 1);
    let change = |id: i32, owners: [Option<&str>; 2]| {
        let owners = ["a", "b"].iter().zip(owners);
        let owners: Vec<_> =
            owners.map(|(name, owner)| ((*name).to_owned(), owner.map(str::to_owned))).collect();
        catalog.set_owners(&owners, |tx| log.insert(tx, &[Value::Int(id), Value::from("x")]))
    };
    let before = catalog.begin().unwrap();
    catalog.table("b").unwrap().insert(&before, &[Value::Int(2), Value::Null]).unwrap();
    change(1, [Some("one"), Some("one")]).unwrap();
    assert!(before.commit(Durability::Sync).is_err(), "a writer that began before the change");
    assert!(matches!(change(1, [None, None]), Err(Error::DuplicateKey { .. })), "the row is there");
    assert_eq!(catalog.table("a").unwrap().definition().owner.as_deref(), Some("one"));
    change(2, [Some("two"), None]).unwrap();
    change(3, [None, None]).unwrap();
    let missing = [("a".to_owned(), Some("three".to_owned())), ("c".to_owned(), None)];
    assert!(catalog.set_owners(&missing, |_| Ok::<(), Error>(())).is_err());
}

fn verify_owners(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let (Ok(a), Ok(b), Ok(log)) = (catalog.table("a"), catalog.table("b"), catalog.table("log")) else {
        return Ok(());
    };
    let tx = catalog.begin().map_err(|error| error.to_string())?;
    let changes = log.scan(ScanRange::full()).rows(&tx).map_err(|error| error.to_string())?.len();
    let owners = [&a, &b].map(|table| table.definition().owner.clone());
    let expected = [[None, None], [Some("one"), Some("one")], [Some("two"), None], [None, None]];
    let expected = expected[changes].map(|owner| owner.map(str::to_owned));
    if owners == expected { Ok(()) } else { Err(format!("{owners:?} behind {changes} changes")) }
}

#[test]
fn owners_change_with_the_rows_of_their_commit() {
    let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        owners_history(pool);
        Ok(())
    };
    let report = check(&options, history, verify_owners).unwrap();
    println!("{report:?}");
    assert!(report.states > 100);
}
