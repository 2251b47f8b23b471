//! Placement of tables in tiers: with their indexes and version history, over restarts and crashes.
use entresol_memory::crash::{self, CrashOptions};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::{
    Catalog, Column, DataType, Error, IndexDefinition, Problem, Retention, Row, ScanRange, Schema, Table,
    TableDefinition, TableOptions, Value, check,
};
use entresol_transactions::{ContextOptions, StateContext, Tier, TierChoice};
use std::path::Path;
use std::sync::Arc;

fn open_on(directory: &Path, domain: DomainChoice) -> (Arc<Pool>, Arc<Catalog>) {
    let options = PoolOptions { domain, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    (pool, Catalog::open_or_create(context).unwrap())
}

fn open(directory: &Path) -> (Arc<Pool>, Arc<Catalog>) {
    open_on(directory, DomainChoice::Journal)
}

fn index(name: &str, unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns: vec![1],
        unique,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

/// Table with `id`, `v` and a unique index on `v`.
fn placed(name: &str, placement: TierChoice) -> TableDefinition {
    let columns = vec![Column::new("id", DataType::Int), Column::new("v", DataType::Varchar)];
    let mut definition = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    definition.indexes.push(index(&format!("{name}_v"), true));
    definition.placement = placement;
    definition
}

fn create(catalog: &Catalog, name: &str, placement: TierChoice) -> Arc<Table> {
    catalog.create_table_as(name, placed(name, placement), TableOptions::default()).unwrap()
}

fn add(catalog: &Catalog, tables: &[&Arc<Table>], id: i32) {
    let tx = catalog.begin().unwrap();
    for table in tables {
        table.insert(&tx, &[Value::Int(id), Value::from(format!("value {id}").as_str())]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

fn rows(catalog: &Catalog, table: &Arc<Table>) -> Vec<Row> {
    table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap()
}

fn problems(catalog: &Arc<Catalog>) -> Vec<Problem> {
    check(catalog, |_| ()).unwrap().problems
}

#[test]
fn a_table_in_dram_is_empty_after_a_restart_with_all_that_belongs_to_it() {
    let directory = tempfile::TempDir::new().unwrap();
    for run in 0..4 {
        let (pool, catalog) = open(directory.path());
        if run == 0 {
            create(&catalog, "kept", TierChoice::Auto);
            let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
            catalog.create_table_as("lost", placed("lost", TierChoice::Dram), options).unwrap();
        }
        assert_eq!(problems(&catalog), []);
        let [kept, lost] = ["kept", "lost"].map(|name| catalog.table(name).unwrap());
        assert_eq!((kept.tier(), lost.tier()), (Tier::Disk, Tier::Dram));
        assert!(lost.is_volatile() && lost.definition().placement == TierChoice::Dram);
        assert_eq!(rows(&catalog, &kept).len(), 50 * run);
        assert_eq!(rows(&catalog, &lost), Vec::<Row>::new(), "run {run}");
        for id in 50 * run..50 * run + 50 {
            add(&catalog, &[&kept, &lost], id as i32);
        }
        let then = catalog.context().newest_commit();
        // Its indexes are there: the same value again is refused, in the same run.
        let tx = catalog.begin().unwrap();
        let twice = [Value::Int(-1), Value::from(format!("value {}", 50 * run).as_str())];
        assert!(matches!(lost.insert(&tx, &twice), Err(Error::UniqueViolation { .. })));
        drop(tx);
        let tx = catalog.begin().unwrap();
        assert!(lost.delete(&tx, &[Value::Int(50 * run as i32)]).unwrap());
        tx.commit(Durability::None).unwrap();
        let past = catalog.begin_as_of(then).unwrap();
        assert_eq!(lost.scan(ScanRange::full()).rows(&past).unwrap().len(), 50);
        drop(past);
        assert_eq!(rows(&catalog, &lost).len(), 49);
        assert_eq!(problems(&catalog), []);
        if run % 2 == 0 {
            pool.close().unwrap();
        }
    }
}

#[test]
fn indexes_come_to_a_table_in_dram_and_go() {
    let directory = tempfile::TempDir::new().unwrap();
    {
        let (_pool, catalog) = open(directory.path());
        let table = create(&catalog, "t", TierChoice::Dram);
        (0..300).for_each(|id| add(&catalog, &[&table], id));
        catalog.create_index("t", index("later", false)).unwrap();
        let table = catalog.table("t").unwrap();
        add(&catalog, &[&table], 300);
        assert_eq!(problems(&catalog), []);
        let states = catalog.context().states();
        let volatile = states.iter().filter(|state| state.is_volatile()).count();
        assert_eq!(volatile, 3, "the rows and two indexes");
        catalog.drop_index("t_v").unwrap();
    }
    let (_pool, catalog) = open(directory.path());
    let table = catalog.table("t").unwrap();
    assert_eq!(table.indexes().len(), 1);
    assert!(rows(&catalog, &table).is_empty());
    add(&catalog, &[&table], 1);
    assert_eq!(problems(&catalog), []);
    catalog.drop_table("t").unwrap();
    catalog.context().vacuum().unwrap();
    assert_eq!(problems(&catalog), []);
    assert_eq!(catalog.context().states().len(), 1, "the catalog's own");
    let again = create(&catalog, "t", TierChoice::Auto);
    assert!(!again.is_volatile());
}

#[test]
fn row_numbers_of_an_emptied_table_begin_anew() {
    let directory = tempfile::TempDir::new().unwrap();
    for _ in 0..2 {
        let (_pool, catalog) = open(directory.path());
        let columns = vec![Column::new("v", DataType::Int)];
        let mut definition = TableDefinition::plain(Schema::new(columns, &[""; 0]).unwrap());
        definition.placement = TierChoice::Dram;
        let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
        let table = catalog.create_table_as("t", definition, options).unwrap();
        for v in 0..3 {
            let tx = catalog.begin().unwrap();
            table.insert(&tx, &[Value::Int(v)]).unwrap();
            tx.commit(Durability::Sync).unwrap();
        }
        let numbers: Vec<_> = rows(&catalog, &table).into_iter().map(|row| row[1].clone()).collect();
        assert_eq!(numbers, [1, 2, 3].map(Value::BigInt));
    }
}

#[test]
fn a_placement_that_cannot_be_leaves_nothing_and_one_that_is_stays() {
    let directory = tempfile::TempDir::new().unwrap();
    let (_pool, catalog) = open(directory.path());
    let options = TableOptions::default();
    let refused = catalog.create_table_as("t", placed("t", TierChoice::Pmem), options).unwrap_err();
    assert!(matches!(refused, Error::Transactions(_)), "{refused:?}");
    assert!(refused.to_string().contains("journal"), "{refused}");
    assert!(catalog.tables().is_empty() && catalog.context().states().len() == 1);
    create(&catalog, "t", TierChoice::Disk);
    let moved = catalog.redefine("t", None, |definition| {
        definition.placement = TierChoice::Dram;
        Ok::<_, Error>(())
    });
    let moved = moved.unwrap_err();
    assert!(matches!(moved, Error::PlacementFixed { .. }));
    assert!(moved.to_string().contains("'disk'"), "{moved}");
    assert!(!catalog.table("t").unwrap().is_volatile());
    assert_eq!(problems(&catalog), []);
    let directory = tempfile::TempDir::new().unwrap();
    let (_pool, catalog) = open_on(directory.path(), DomainChoice::DaxEmulated);
    let refused = catalog.create_table_as("t", placed("t", TierChoice::Disk), TableOptions::default());
    assert!(refused.unwrap_err().to_string().contains("'pmem'"));
    assert_eq!(create(&catalog, "t", TierChoice::Pmem).tier(), Tier::Pmem);
}

#[test]
fn a_table_on_a_disk_beside_persistent_memory_is_back_with_all_that_belongs_to_it() {
    let directory = tempfile::TempDir::new().unwrap();
    for run in 0..3 {
        let path = |name: &str| directory.path().join(name);
        let options = |domain| PoolOptions { domain, ..PoolOptions::default() };
        let main = Pool::open_or_create(&path("main"), &options(DomainChoice::DaxEmulated)).unwrap();
        let disk = Pool::open_or_create(&path("disk"), &options(DomainChoice::Journal)).unwrap();
        let context = StateContext::open_or_create_beside(main, Some(disk), ContextOptions::default());
        let catalog = Catalog::open_or_create(context.unwrap()).unwrap();
        if run == 0 {
            create(&catalog, "near", TierChoice::Pmem);
            let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
            catalog.create_table_as("far", placed("far", TierChoice::Disk), options).unwrap();
            catalog.create_index("far", index("later", false)).unwrap();
        }
        let [near, far] = ["near", "far"].map(|name| catalog.table(name).unwrap());
        assert_eq!((near.tier(), far.tier(), far.indexes().len()), (Tier::Pmem, Tier::Disk, 2));
        assert_eq!(rows(&catalog, &near).len(), 100 * run);
        assert_eq!(rows(&catalog, &far), rows(&catalog, &near));
        (100 * run..100 * run + 100).for_each(|id| add(&catalog, &[&near, &far], id as i32));
        assert_eq!(problems(&catalog), []);
    }
}

fn open_in(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

/// `kept` and `lost` are written together; `lost`, in DRAM, gets another index, is dropped, and created
/// again.
fn history(pool: &Arc<Pool>) {
    let catalog = open_in(pool).unwrap();
    let kept = create(&catalog, "kept", TierChoice::Pmem);
    let lost = create(&catalog, "lost", TierChoice::Dram);
    add(&catalog, &[&kept, &lost], 1);
    catalog.create_index("lost", index("later", false)).unwrap();
    let lost = catalog.table("lost").unwrap();
    add(&catalog, &[&kept, &lost], 2);
    catalog.drop_table("lost").unwrap();
    let lost = create(&catalog, "lost", TierChoice::Dram);
    add(&catalog, &[&lost], 3);
    add(&catalog, &[&kept, &lost], 4);
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open_in(pool)?;
    let found = problems(&catalog);
    if !found.is_empty() {
        return Err(format!("{found:?}"));
    }
    let ids = |name: &str| {
        let table = catalog.table(name).ok()?;
        Some(rows(&catalog, &table).into_iter().map(|row| row[0].clone()).collect::<Vec<_>>())
    };
    let (kept, lost) = (ids("kept"), ids("lost"));
    let legal: [&[i32]; 4] = [&[], &[1], &[1, 2], &[1, 2, 4]];
    let is_legal = |kept: &Vec<Value>| {
        legal.iter().any(|legal| legal.iter().copied().map(Value::Int).collect::<Vec<_>>() == *kept)
    };
    if kept.as_ref().is_some_and(|kept| !is_legal(kept)) || lost.as_ref().is_some_and(|lost| !lost.is_empty())
    {
        return Err(format!("kept = {kept:?}, lost = {lost:?}"));
    }
    // And it goes on.
    let options = || TableOptions { if_not_exists: true, ..TableOptions::default() };
    let lost = catalog.create_table_as("lost", placed("lost", TierChoice::Dram), options()).unwrap();
    let tables = [catalog.table("kept").ok(), Some(lost.clone())];
    let tables: Vec<&Arc<Table>> = tables.iter().flatten().collect();
    add(&catalog, &tables, 99);
    match rows(&catalog, &lost).len() {
        1 => Ok(()),
        count => Err(format!("{count} rows after one was added")),
    }
}

#[test]
fn every_crash_leaves_durable_tables_whole_and_tables_in_dram_empty() {
    let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(1) };
    let history = |pool: &Arc<Pool>| {
        history(pool);
        Ok(())
    };
    let report = crash::check(&options, history, verify).unwrap();
    assert!(report.explored(1_000), "{report:?}");
}
