//! Row groups in object stores: beside a table whose row groups are in the pool, over restarts, crashes, copies, and with
//! stores that lose, damage or refuse objects.
mod s3;
mod s3_server;

use arrow_array::RecordBatch;
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, CollectedObjects, Column, ColumnCondition, ColumnFilter,
    DataType, Dimension, Error, NewLayout, Retention, Row, ScanRange, Schema, Table, TableDefinition,
    TableLayout, TableOptions, Value, arrow_schema, batch_to_rows, check,
};
use entresol_transactions::{Cancellation, Isolation, StateContext, Transaction};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", DataType::BigInt),
        Column::new("amount", DataType::Decimal { precision: 20, scale: 2 }),
        Column::new("name", DataType::Varchar),
        Column::new("reading", DataType::Double),
    ]
}

fn row(id: i64, random: u64) -> Row {
    let nullable = |value: Value, share: u64| if random.is_multiple_of(share) { Value::Null } else { value };
    vec![
        Value::BigInt(id),
        nullable(Value::Decimal(i128::from(random % 1_000_000) - 500), 11),
        nullable(Value::from(format!("name {}", random % 40).as_str()), 7),
        nullable(Value::Double((random % 9999) as f64 / 100.0), 13),
    ]
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let mut builder = BatchBuilder::new(&columns(), 0);
    ids.for_each(|id| builder.push(&row(id, (id as u64).wrapping_mul(2_654_435_761) >> 7)).unwrap());
    builder.finish()
}

fn definition(key: &[&str], store: Option<&str>) -> TableDefinition {
    let mut definition = TableDefinition::plain(Schema::new(columns(), key).unwrap());
    definition.layout = TableLayout::Columns;
    definition.object_store = store.map(str::to_owned);
    definition
}

/// Directory with a database, and a store beside it.
struct Place {
    directory: TempDir,
    store: String,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let objects = directory.path().join("objects");
        std::fs::create_dir(&objects).unwrap();
        let store = format!("file://{}", objects.display());
        Place { directory, store }
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("database")
    }

    fn open(&self) -> Arc<Catalog> {
        open(&self.database())
    }

    /// Files of objects, holds among them.
    fn files(&self) -> Vec<PathBuf> {
        files(&self.directory.path().join("objects"))
    }

    fn create(&self, catalog: &Catalog, name: &str, key: &[&str]) -> Arc<Table> {
        catalog.create_table_as(name, definition(key, Some(&self.store)), TableOptions::default()).unwrap()
    }

    /// Catalog with a table of three row groups of 20,000 rows each.
    fn with_facts(&self) -> (Arc<Catalog>, Arc<Table>) {
        let catalog = self.open();
        let table = self.create(&catalog, "facts", &[]);
        for first in [0, 20_000, 40_000] {
            let tx = catalog.begin().unwrap();
            table.append(&tx, &batch(first..first + 20_000)).unwrap();
            tx.commit(Durability::Sync).unwrap();
        }
        assert_eq!(self.files().len(), 3, "an object for each row group");
        (catalog, table)
    }
}

fn open(database: &Path) -> Arc<Catalog> {
    let memory = Some(MemoryBudget::new(256 << 20).unwrap());
    let options = PoolOptions { domain: DomainChoice::Journal, memory, ..PoolOptions::default() };
    let pool = Pool::open_or_create(database, &options).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn try_scanned(table: &Arc<Table>, tx: &Transaction, filters: Vec<ColumnFilter>) -> Result<Vec<Row>, Error> {
    let visible = table.schema().visible_columns();
    let arrow = arrow_schema(visible, "UTC");
    let scan = table.column_scan(tx, (0..visible.len()).collect(), arrow, filters)?.unwrap();
    let mut rows: Vec<Row> = Vec::new();
    for morsel in scan.morsels() {
        if let Some(batch) = scan.read(tx, morsel)? {
            rows.extend(batch_to_rows("facts", visible, &batch).unwrap());
        }
        // Ahead of its readers, as queries do.
        for group in scan.groups_ahead(morsel) {
            scan.load_ahead(tx, group)?;
        }
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(tx)? {
        rows.extend(batch_to_rows("facts", visible, &batch).unwrap());
    }
    rows.sort_by_key(|row| if let Value::BigInt(id) = row[0] { id } else { panic!("an id") });
    Ok(rows)
}

fn scanned(table: &Arc<Table>, tx: &Transaction) -> Vec<Row> {
    try_scanned(table, tx, Vec::new()).unwrap()
}

fn ids(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| if let Value::BigInt(id) = row[0] { id } else { panic!("an id") }).collect()
}

/// Deletes rows of a table by id, and merges it, so that its row groups are written anew.
fn delete_and_merge(catalog: &Catalog, table: &Arc<Table>, ids: std::ops::Range<i64>) {
    let tx = catalog.begin().unwrap();
    let visible = table.schema().visible_columns();
    let mut cursor = table.scan(ScanRange::full());
    let mut keys: Vec<Row> = Vec::new();
    let key = table.schema().key().to_vec();
    while cursor
        .next_batch(&tx, |row| {
            if ids.contains(&row.bigint(0)) {
                keys.push(key.iter().map(|column| row.value(*column)).collect());
            }
        })
        .unwrap()
    {}
    assert!(!keys.is_empty() && !visible.is_empty());
    table.delete_many(&tx, &keys).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
}

fn deleted(catalog: &Catalog) -> (u64, u64) {
    let CollectedObjects { deleted, left } = catalog.collect_objects().unwrap();
    (deleted, left)
}

#[test]
fn rows_are_those_of_a_table_in_the_pool_under_changes_merges_and_restarts() {
    let place = Place::new();
    let mut random = Random(11);
    for run in 0..3 {
        let catalog = place.open();
        if run == 1 {
            catalog.limit_cache(20_000);
        }
        let local = || catalog.create_table_as("local", definition(&["id"], None), TableOptions::default());
        let both = [
            catalog.table("facts").unwrap_or_else(|_| place.create(&catalog, "facts", &["id"])),
            catalog.table("local").unwrap_or_else(|_| local().unwrap()),
        ];
        for _ in 0..6 {
            let tx = catalog.begin().unwrap();
            for _ in 0..3 {
                let first = random.below(50_000) as i64;
                let rows: Vec<Row> = (first..first + 4000).map(|id| row(id, random.below(1 << 30))).collect();
                let gone: Vec<Row> =
                    (first + 9000..first + 11_000).map(|id| vec![Value::BigInt(id)]).collect();
                for table in &both {
                    table.upsert_many(&tx, &rows).unwrap();
                    table.delete_many(&tx, &gone).unwrap();
                }
            }
            if random.below(4) > 0 {
                tx.commit(Durability::Sync).unwrap();
            }
            let before = catalog.begin().unwrap();
            let expected = scanned(&both[1], &before);
            for table in &both {
                table.merge(|_| Ok(())).unwrap();
            }
            assert_eq!(scanned(&both[0], &before), expected, "a snapshot from before the merge");
            let tx = catalog.begin().unwrap();
            assert_eq!(scanned(&both[0], &tx), scanned(&both[1], &tx));
            let filter = ColumnCondition::Between { least: 100, greatest: 500_000 };
            let filters = vec![ColumnFilter { column: 1, condition: filter }];
            let filtered = |table| try_scanned(table, &tx, filters.clone()).unwrap();
            assert_eq!(filtered(&both[0]), filtered(&both[1]));
            let cursor = |table: &Arc<Table>| table.scan(ScanRange::full()).rows(&tx).unwrap();
            assert_eq!(cursor(&both[0]), cursor(&both[1]));
            let keys: Vec<Row> = (0..60).map(|_| vec![Value::BigInt(random.below(60_000) as i64)]).collect();
            assert_eq!(both[0].get_many(&tx, &keys).unwrap(), both[1].get_many(&tx, &keys).unwrap());
            drop((tx, before));
            if random.below(2) == 0 {
                catalog.collect_objects().unwrap();
            }
        }
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "run {run}");
        let stats = catalog.object_store_stats();
        assert!(stats.reads > 0 && stats.read_bytes > 0 && stats.writes > 0, "{stats:?}");
    }
    let catalog = place.open();
    catalog.collect_objects().unwrap();
    let groups = catalog.table("facts").unwrap().row_group_state().unwrap().keys().unwrap();
    let live = groups.iter().filter(|key| key[0] == 2).count();
    assert!(place.files().len() <= live, "{} files of {live} row groups", place.files().len());
    assert!(!place.files().is_empty());
}

#[test]
fn objects_that_a_crash_or_an_abort_leaves_are_deleted_and_no_others() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let aborted = catalog.begin().unwrap();
    table.append(&aborted, &batch(60_000..80_000)).unwrap();
    assert_eq!(place.files().len(), 4, "before the commit");
    assert_eq!(deleted(&catalog), (0, 0), "its transaction is open");
    aborted.abort();
    assert_eq!(deleted(&catalog), (1, 0), "its transaction has ended");
    assert_eq!(place.files().len(), 3);
    drop(aborted);
    // A crash between the object and its publication.
    let tx = catalog.begin().unwrap();
    table.append(&tx, &batch(60_000..80_000)).unwrap();
    drop((tx, table, catalog));
    let catalog = place.open();
    assert_eq!(place.files().len(), 4);
    let table = catalog.table("facts").unwrap();
    let tx = catalog.begin().unwrap();
    table.append(&tx, &batch(60_000..70_000)).unwrap();
    assert_eq!(deleted(&catalog), (1, 0), "that of the run before");
    tx.commit(Durability::Sync).unwrap();
    assert_eq!((deleted(&catalog), place.files().len()), ((0, 0), 4));
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (0..70_000).collect::<Vec<i64>>());
}

#[test]
fn an_object_outlives_the_statements_of_its_transaction() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let tx = catalog.begin_at(Isolation::ReadCommitted).unwrap();
    table.append(&tx, &batch(60_000..70_000)).unwrap();
    // The next statement has a newer snapshot; others commit meanwhile.
    let other = catalog.begin().unwrap();
    table.append(&other, &batch(90_000..90_010)).unwrap();
    other.commit(Durability::None).unwrap();
    let next = tx.next_statement().unwrap();
    drop(tx);
    assert_eq!(deleted(&catalog), (0, 0));
    next.commit(Durability::None).unwrap();
    assert_eq!(deleted(&catalog), (0, 0));
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (0..70_000).chain(90_000..90_010).collect::<Vec<i64>>());
}

#[test]
fn an_object_of_a_removed_row_group_stays_as_long_as_a_transaction_may_read_it() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let before = catalog.begin().unwrap();
    delete_and_merge(&catalog, &table, 0..20_000);
    assert_eq!(deleted(&catalog).0, 0);
    catalog.limit_cache(0);
    assert_eq!(ids(&scanned(&table, &before)), (0..60_000).collect::<Vec<i64>>());
    drop(before);
    let (gone, left) = deleted(&catalog);
    assert!(gone > 0 && left == 0, "{gone} deleted, {left} left");
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (20_000..60_000).collect::<Vec<i64>>());
    assert_eq!(deleted(&catalog), (0, 0), "once");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_removal_that_a_crash_leaves_is_taken_up_by_the_next_run() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    delete_and_merge(&catalog, &table, 0..20_000);
    catalog.context().pool().sync().unwrap();
    drop((table, catalog));
    let catalog = place.open();
    assert!(deleted(&catalog).0 > 0);
    let (table, tx) = (catalog.table("facts").unwrap(), catalog.begin().unwrap());
    assert_eq!(ids(&scanned(&table, &tx)), (20_000..60_000).collect::<Vec<i64>>());
}

#[test]
fn the_objects_of_a_dropped_table_are_deleted_behind_its_readers() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let other = place.create(&catalog, "other", &[]);
    let tx = catalog.begin().unwrap();
    other.append(&tx, &batch(0..10_000)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    drop(tx);
    catalog.limit_cache(0);
    let before = catalog.begin().unwrap();
    assert_eq!(scanned(&table, &before).len(), 60_000);
    catalog.drop_table("facts").unwrap();
    assert_eq!(deleted(&catalog), (0, 3));
    assert_eq!(scanned(&table, &before).len(), 60_000, "a transaction that began before");
    drop(before);
    assert_eq!((deleted(&catalog), place.files().len()), ((3, 0), 1));
    // A crash behind the drop.
    catalog.drop_table("other").unwrap();
    drop((table, other, catalog));
    let catalog = place.open();
    assert_eq!((deleted(&catalog), place.files().len()), ((1, 0), 0));
}

#[test]
fn the_version_history_has_its_objects() {
    let place = Place::new();
    let catalog = place.open();
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let table = catalog.create_table_as("facts", definition(&["id"], Some(&place.store)), options).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &(0..30_000).map(|id| row(id, 7)).collect::<Vec<Row>>()).unwrap();
    tx.commit(Durability::Sync).unwrap();
    drop(tx);
    table.merge(|_| Ok(())).unwrap();
    let then = catalog.context().newest_commit();
    delete_and_merge(&catalog, &table, 0..25_000);
    assert_eq!(deleted(&catalog), (0, 1), "the version history has it");
    drop((table, catalog));
    let catalog = place.open();
    let table = catalog.table("facts").unwrap();
    assert_eq!(deleted(&catalog), (0, 1));
    let past = catalog.begin_as_of(then).unwrap();
    assert_eq!(scanned(&table, &past).len(), 30_000);
    drop(past);
    catalog.drop_history("facts").unwrap();
    assert_eq!(deleted(&catalog), (1, 0));
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (25_000..30_000).collect::<Vec<i64>>());
}

/// Error of a scan of the table after its files were changed; the other row groups can be read.
fn damaged(place: &Place, damage: impl FnOnce(&Path)) -> String {
    let (catalog, table) = place.with_facts();
    let object = place.files().remove(1);
    damage(&object);
    let tx = catalog.begin().unwrap();
    let error = try_scanned(&table, &tx, Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    let text = error.to_string();
    let name = object.file_name().unwrap().to_str().unwrap();
    for part in ["row group 2 of table facts", name] {
        assert!(text.contains(part), "{text}");
    }
    let others = vec![ColumnFilter {
        column: 0,
        condition: ColumnCondition::Between { least: 40_000, greatest: 60_000 },
    }];
    assert_eq!(try_scanned(&table, &tx, others).unwrap().len(), 20_000, "nothing else is lost");
    drop(tx);
    let problems = check(&catalog, |_| {}).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.message == text), "{problems:?}");
    text
}

#[test]
fn a_damaged_short_or_missing_object_is_named_with_its_row_group() {
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        std::fs::write(path, bytes).unwrap();
    };
    assert!(damaged(&Place::new(), flip).contains("is damaged: bytes "));
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 3]).unwrap();
    };
    assert!(damaged(&Place::new(), cut).contains(" bytes of "));
    assert!(damaged(&Place::new(), |path| std::fs::remove_file(path).unwrap()).contains("is missing"));
}

#[test]
fn a_store_that_takes_no_object_fails_the_statement_and_nothing_else() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let directory = place.files()[0].parent().unwrap().to_owned();
    let aside = directory.with_extension("aside");
    std::fs::rename(&directory, &aside).unwrap();
    std::fs::write(&directory, "no directory").unwrap();
    let tx = catalog.begin().unwrap();
    let error = table.append(&tx, &batch(60_000..70_000)).unwrap_err();
    assert!(matches!(error, Error::ObjectStore { .. }), "{error:?}");
    assert!(error.to_string().contains("write object"), "{error}");
    drop(tx);
    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&aside, &directory).unwrap();
    let tx = catalog.begin().unwrap();
    assert_eq!(scanned(&table, &tx).len(), 60_000);
    table.append(&tx, &batch(60_000..70_000)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    drop(table);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Copies the files of a database that is closed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in files(from) {
        std::fs::copy(&file, to.join(file.strip_prefix(from).unwrap())).unwrap();
    }
}

#[test]
fn a_copy_of_the_database_and_its_original_delete_nothing_of_each_other() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    drop((table, catalog));
    let copied = place.directory.path().join("copy");
    copy(&place.database(), &copied);
    let fork = open(&copied);
    assert_eq!(deleted(&fork), (0, 0));
    assert_eq!(place.files().len(), 4, "the hold of the copy");
    let of_fork = fork.table("facts").unwrap();
    // The original removes a row group.
    let catalog = place.open();
    let table = catalog.table("facts").unwrap();
    delete_and_merge(&catalog, &table, 0..20_000);
    let (gone, left) = deleted(&catalog);
    assert!(gone == 0 && left > 0, "the copy reads it: {gone} deleted, {left} left");
    let tx = fork.begin().unwrap();
    assert_eq!(ids(&scanned(&of_fork, &tx)), (0..60_000).collect::<Vec<i64>>());
    drop(tx);
    // The copy writes objects of its own, and drops the table.
    let tx = fork.begin().unwrap();
    of_fork.append(&tx, &batch(70_000..80_000)).unwrap();
    tx.commit(Durability::Sync).unwrap();
    drop(tx);
    fork.drop_table("facts").unwrap();
    assert_eq!(deleted(&fork), (1, 0), "its own one");
    drop((of_fork, fork));
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (20_000..60_000).collect::<Vec<i64>>());
    drop(tx);
    let hold = place.files().into_iter().find(|path| path.display().to_string().contains("holds/copy-"));
    std::fs::remove_file(hold.unwrap()).unwrap();
    assert!(deleted(&catalog).0 > 0, "without the hold");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_backup_names_its_objects_and_holds_them() {
    let place = Place::new();
    let (catalog, table) = place.with_facts();
    let backup = place.directory.path().join("backup");
    catalog.backup(&backup).unwrap();
    delete_and_merge(&catalog, &table, 0..20_000);
    let (gone, left) = deleted(&catalog);
    assert!(gone == 0 && left > 0, "{gone} deleted, {left} left");
    let restored = open(&backup);
    let (of_backup, tx) = (restored.table("facts").unwrap(), restored.begin().unwrap());
    assert_eq!(ids(&scanned(&of_backup, &tx)), (0..60_000).collect::<Vec<i64>>());
    drop(tx);
    assert_eq!(check(&restored, |_| {}).unwrap().problems, []);
    // One that fails leaves no hold.
    let holds = |place: &Place| {
        place.files().iter().filter(|path| path.display().to_string().contains("holds/backup-")).count()
    };
    assert_eq!(holds(&place), 1);
    catalog.backup(&backup).unwrap_err();
    assert_eq!(holds(&place), 1);
}

#[test]
fn row_groups_move_into_a_store_and_back() {
    let place = Place::new();
    let catalog = place.open();
    let table = catalog.create_table_as("facts", definition(&["id"], None), TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &(0..30_000).map(|id| row(id, id as u64 * 77)).collect::<Vec<Row>>()).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    let expected = scanned(&table, &catalog.begin().unwrap());
    let pages = |table: &Arc<Table>| {
        let tx = catalog.begin().unwrap();
        let (state, mut count, mut from) = (table.row_group_state().unwrap(), 0, None);
        let all = entresol_transactions::KeyRange::full();
        while tx.scan_batch(state, &all, &mut from, |key, _| count += usize::from(key[0] == 3)).unwrap() {}
        count
    };
    assert!(pages(&table) > 0);
    for (store, objects) in [(Some(place.store.clone()), 1), (None, 0)] {
        catalog.set_object_store("facts", store.clone()).unwrap();
        let table = catalog.table("facts").unwrap();
        assert!(table.is_merge_due(), "the background moves them");
        table.merge(|_| Ok(())).unwrap();
        assert!(!table.is_merge_due());
        catalog.collect_objects().unwrap();
        assert_eq!(place.files().len(), objects);
        assert_eq!(pages(&table) == 0, store.is_some());
        assert_eq!(scanned(&table, &catalog.begin().unwrap()), expected);
    }
    catalog.set_object_store("facts", Some(place.store.clone())).unwrap();
    catalog.table("facts").unwrap().merge(|_| Ok(())).unwrap();
    assert_eq!(place.files().len(), 1);
    catalog.set_layout(&Cancellation::default(), "facts", TableLayout::Rows, &mut |_| Ok(())).unwrap();
    assert_eq!(catalog.table("facts").unwrap().definition().object_store, None);
    catalog.collect_objects().unwrap();
    assert_eq!(place.files().len(), 0, "rows are in the pool");
}

#[test]
fn clustered_tables_and_elfs_have_their_pages_in_a_store() {
    let place = Place::new();
    let catalog = place.open();
    let table = place.create(&catalog, "facts", &["id"]);
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &(0..30_000).map(|id| row(id, id as u64 * 77)).collect::<Vec<Row>>()).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    let expected = scanned(&table, &catalog.begin().unwrap());
    let dimensions = vec![Dimension { column: 0, bits: None }, Dimension { column: 1, bits: None }];
    let clustered = NewLayout::from(ClusteringDefinition::new(dimensions));
    for layout in [TableLayout::Elf.into(), clustered, TableLayout::Columns.into()] {
        catalog.set_layout(&Cancellation::default(), "facts", layout.clone(), &mut |_| Ok(())).unwrap();
        let table = catalog.table("facts").unwrap();
        catalog.collect_objects().unwrap();
        assert!(!place.files().is_empty(), "{layout:?}");
        assert_eq!(scanned(&table, &catalog.begin().unwrap()), expected, "{layout:?}");
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
        if layout.layout == TableLayout::Clustered {
            let refused = catalog.set_object_store("facts", None).unwrap_err();
            assert!(matches!(refused, Error::ObjectStoreFixed { .. }), "{refused}");
        }
    }
}

#[test]
fn what_cannot_have_objects_is_refused() {
    let place = Place::new();
    let catalog = place.open();
    let create = |definition| catalog.create_table_as("t", definition, TableOptions::default()).unwrap_err();
    let missing = format!("{}/none", place.store);
    assert!(matches!(create(definition(&[], Some(&missing))), Error::ObjectStore { .. }));
    assert!(matches!(create(definition(&[], Some("ftp://x"))), Error::ObjectStoreUrl { .. }));
    let by_row = TableDefinition { layout: TableLayout::Rows, ..definition(&[], Some(&place.store)) };
    assert!(matches!(create(by_row), Error::ObjectStoreOfRows { .. }));
    let volatile = Pool::volatile(&PoolOptions::default()).unwrap();
    let volatile = Catalog::open_or_create(StateContext::open_or_create(volatile).unwrap()).unwrap();
    let created = volatile.create_table_as("t", definition(&[], Some(&place.store)), TableOptions::default());
    assert!(matches!(created, Err(Error::ObjectStoreOfVolatile)), "{created:?}");
}
