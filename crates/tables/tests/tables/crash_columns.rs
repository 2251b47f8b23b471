//! Row groups under power failures: a table with the layout `columns` has the rows of one commit in every state
//! that may be left, whatever was being merged, and goes on from there.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    BatchBuilder, Catalog, Column, DataType, DimensionOrder, ElfCaching, Row, ScanRange, Schema, Table,
    TableDefinition, TableLayout, TableOptions, Value, arrow_schema, batch_to_rows, check,
};
use entresol_transactions::{Cancellation, StateContext};
use std::sync::Arc;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    Catalog::open_or_create(context).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn columns() -> Vec<Column> {
    vec![Column::new("id", DataType::Int), Column::new("v", DataType::Varchar)]
}

fn row(id: i32, v: i32) -> Row {
    vec![Value::Int(id), Value::from(format!("value {v}").as_str())]
}

/// Rows after each commit of [`history`].
fn states() -> Vec<Vec<Row>> {
    let first: Vec<Row> = (0..20).map(|id| row(id, id)).collect();
    let mut second = first.clone();
    second[3] = row(3, 33);
    second.remove(7);
    second.extend((20..24).map(|id| row(id, 1)));
    let mut third = second.clone();
    third.retain(|row| !matches!(row[0], Value::Int(id) if id < 15));
    vec![Vec::new(), first, second, third]
}

fn commit(catalog: &Catalog, table: &Arc<Table>, before: &[Row], after: &[Row]) {
    let tx = catalog.begin().unwrap();
    let key = |row: &Row| vec![row[0].clone()];
    let gone: Vec<Row> =
        before.iter().map(key).filter(|id| !after.iter().any(|row| row[0] == id[0])).collect();
    table.delete_many(&tx, &gone).unwrap();
    let changed: Vec<Row> = after.iter().filter(|row| !before.contains(row)).cloned().collect();
    let mut builder = BatchBuilder::new(&columns(), changed.len());
    changed.iter().for_each(|row| builder.push(row).unwrap());
    table.upsert_batch(&tx, &builder.finish()).unwrap();
    tx.commit(Durability::Sync).unwrap();
}

/// Each commit is followed by a merge: the second marks rows as deleted, the third makes one row group of two. In
/// the end the table is dropped.
fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    for pair in states().windows(2) {
        commit(&catalog, &table, &pair[0], &pair[1]);
        table.merge(|_| Ok(())).unwrap();
    }
    drop(table);
    catalog.drop_table("t").unwrap();
}

/// As [`history`], of the layout `elf`.
fn history_of_elf(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Elf;
    definition.elf_layout.dimensions = vec![1];
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    for pair in states().windows(2) {
        commit(&catalog, &table, &pair[0], &pair[1]);
        table.merge(|_| Ok(())).unwrap();
    }
    drop(table);
    catalog.drop_table("t").unwrap();
}

/// Each commit is followed by a merge, with an index of both columns that is created after the first and dropped in
/// the end.
fn history_with_elf(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    for (number, pair) in states().windows(2).enumerate() {
        let table = table.current().unwrap();
        commit(&catalog, &table, &pair[0], &pair[1]);
        table.merge(|_| Ok(())).unwrap();
        if number == 0 {
            create_elf(&catalog).unwrap();
        }
    }
    catalog.drop_index("e").unwrap();
}

/// As [`history`], but that the rows of the first commit are loaded.
fn history_of_load(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    let states = states();
    let tx = catalog.begin().unwrap();
    assert!(table.begin_load(&tx).unwrap());
    let mut builder = BatchBuilder::new(&columns(), states[1].len());
    states[1].iter().for_each(|row| builder.push(row).unwrap());
    table.load(&tx, &builder.finish()).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    for pair in states[1..].windows(2) {
        commit(&catalog, &table, &pair[0], &pair[1]);
        table.merge(|_| Ok(())).unwrap();
    }
}

fn create_elf(catalog: &Catalog) -> Result<(), String> {
    let of = (vec![1, 0], DimensionOrder::Auto, ElfCaching::Whole);
    catalog.create_elf(&Cancellation::default(), "t", "e", of).map_err(text)
}

fn check_all(catalog: &Arc<Catalog>) -> Result<(), String> {
    let problems = check(catalog, |_| {}).map_err(text)?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let Ok(table) = catalog.table("t") else { return check_all(&catalog) };
    let tx = catalog.begin().map_err(text)?;
    let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
    if !states().contains(&rows) {
        return Err(format!("rows of no commit: {rows:?}"));
    }
    let scan =
        table.column_scan(&tx, vec![0, 1], arrow_schema(&columns(), "UTC"), Vec::new()).map_err(text)?;
    let (scan, mut scanned) = (scan.unwrap(), Vec::new());
    for morsel in scan.morsels() {
        let batch = scan.read(&tx, morsel).map_err(text)?;
        scanned.extend(batch.iter().flat_map(|batch| batch_to_rows("t", &columns(), batch).unwrap()));
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(&tx).map_err(text)? {
        scanned.extend(batch_to_rows("t", &columns(), &batch).unwrap());
    }
    scanned.sort_by_key(|row| if let Value::Int(id) = row[0] { id } else { 0 });
    if scanned != rows {
        return Err(format!("by columns {scanned:?}, by rows {rows:?}"));
    }
    drop(tx);
    // And it goes on.
    let tx = catalog.begin().map_err(text)?;
    table.upsert(&tx, &row(3, 99)).map_err(text)?;
    tx.commit(Durability::Sync).map_err(text)?;
    table.merge(|_| Ok(())).map_err(text)?;
    let tx = catalog.begin().map_err(text)?;
    if table.get(&tx, &[Value::Int(3)]).map_err(text)? != Some(row(3, 99)) {
        return Err("the row that was written is not there".to_owned());
    }
    drop(tx);
    check_all(&catalog)
}

/// As [`verify`], and an index is there, complete, or can be created.
fn verify_with_elf(pool: &Arc<Pool>) -> Result<(), String> {
    verify(pool)?;
    let catalog = open(pool)?;
    let Ok(table) = catalog.table("t") else { return Ok(()) };
    if table.elf("e").is_none() {
        create_elf(&catalog)?;
    }
    check_all(&catalog)
}

#[test]
fn every_crash_leaves_an_elf_that_is_complete_or_none() {
    let report = check_seeds("columns-elf", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history_with_elf(pool);
            Ok(())
        };
        check_crashes(&options, history, verify_with_elf)
    });
    let report = report.unwrap();
    assert!(report.explored(1_000), "{report:?}");
}

#[test]
fn every_crash_leaves_the_rows_of_one_commit_in_elfs() {
    let report = check_seeds("columns-rows-elf", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history_of_elf(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(1_000), "{report:?}");
}

#[test]
fn every_crash_of_a_load_leaves_the_rows_of_one_commit() {
    let report = check_seeds("columns-load", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history_of_load(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(1_000), "{report:?}");
}

#[test]
fn every_crash_leaves_the_rows_of_one_commit() {
    let report = check_seeds("columns", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(1_000), "{report:?}");
}
