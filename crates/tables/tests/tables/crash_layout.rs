//! Changes of a table's layout under power failures: in every state that may be left the table has the rows of one
//! commit and one of the layouts, and goes on from there.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, DataType, Dimension, ElfCaching, ElfLayout,
    NewLayout, Row, ScanRange, Schema, Table, TableLayout, TableOptions, Value, check,
};
use entresol_transactions::{Cancellation, StateContext};
use std::sync::Arc;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    Catalog::open_or_create(context).map_err(text)
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

fn commit(catalog: &Catalog, before: &[Row], after: &[Row]) {
    let table = catalog.table("t").unwrap();
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

/// Layout `clustered`, with blocks of few rows.
fn clustered() -> NewLayout {
    let clustering = ClusteringDefinition::new(vec![Dimension { column: 1, bits: Some(4) }]);
    ClusteringDefinition { block_bytes: 4096, ..clustering }.into()
}

fn set(catalog: &Catalog, layout: impl Into<NewLayout>) -> Result<(), String> {
    catalog.set_layout(&Cancellation::default(), "t", layout, &mut |_| Ok(())).map_err(text)
}

/// The layout changes after the first commit, and back after the second, when row groups have deleted rows, and the
/// delta store rows and tombstones that override them.
fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let schema = Schema::new(columns(), &["id"]).unwrap();
    catalog.create_table("t", schema, TableOptions::default()).unwrap();
    let states = states();
    commit(&catalog, &states[0], &states[1]);
    set(&catalog, TableLayout::Columns).unwrap();
    commit(&catalog, &states[1], &states[2]);
    set(&catalog, TableLayout::Rows).unwrap();
    commit(&catalog, &states[2], &states[3]);
    set(&catalog, TableLayout::Columns).unwrap();
}

/// As [`history`], from row groups in key order to blocks and back, and to rows.
fn history_of_blocks(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let schema = Schema::new(columns(), &["id"]).unwrap();
    catalog.create_table("t", schema, TableOptions::default()).unwrap();
    let states = states();
    commit(&catalog, &states[0], &states[1]);
    set(&catalog, TableLayout::Columns).unwrap();
    set(&catalog, clustered()).unwrap();
    commit(&catalog, &states[1], &states[2]);
    set(&catalog, TableLayout::Columns).unwrap();
    set(&catalog, clustered()).unwrap();
    commit(&catalog, &states[2], &states[3]);
    set(&catalog, TableLayout::Rows).unwrap();
}

/// Layout `elf` by some dimensions.
fn elf(dimensions: &[usize]) -> NewLayout {
    ElfLayout { dimensions: dimensions.to_vec(), caching: ElfCaching::Whole }.into()
}

/// As [`history`], from pages to Elfs, to other dimensions, back, and to rows.
fn history_of_elfs(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let schema = Schema::new(columns(), &["id"]).unwrap();
    catalog.create_table("t", schema, TableOptions::default()).unwrap();
    let states = states();
    commit(&catalog, &states[0], &states[1]);
    set(&catalog, TableLayout::Columns).unwrap();
    set(&catalog, elf(&[1])).unwrap();
    commit(&catalog, &states[1], &states[2]);
    set(&catalog, elf(&[0, 1])).unwrap();
    set(&catalog, TableLayout::Columns).unwrap();
    commit(&catalog, &states[2], &states[3]);
    set(&catalog, elf(&[])).unwrap();
    set(&catalog, TableLayout::Rows).unwrap();
}

fn rows_of(catalog: &Catalog, table: &Arc<Table>) -> Result<Vec<Row>, String> {
    let tx = catalog.begin().map_err(text)?;
    table.scan(ScanRange::full()).rows(&tx).map_err(text)
}

fn check_all(catalog: &Arc<Catalog>) -> Result<(), String> {
    let problems = check(catalog, |_| {}).map_err(text)?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    check_all(&catalog)?;
    let Ok(table) = catalog.table("t") else { return Ok(()) };
    let rows = rows_of(&catalog, &table)?;
    if !states().contains(&rows) {
        return Err(format!("rows of no commit: {rows:?}"));
    }
    // It has the one layout or the other, and can have either.
    let other: NewLayout = match table.definition().layout {
        TableLayout::Rows => clustered(),
        TableLayout::Columns | TableLayout::Clustered | TableLayout::Elf => TableLayout::Rows.into(),
    };
    set(&catalog, other.clone())?;
    let table = catalog.table("t").map_err(text)?;
    let tx = catalog.begin().map_err(text)?;
    table.upsert(&tx, &row(-1, 99)).map_err(text)?;
    tx.commit(Durability::Sync).map_err(text)?;
    let after = rows_of(&catalog, &table)?;
    if after[0] != row(-1, 99) || after[1..] != rows[..] {
        return Err(format!("after another change: {after:?}, before: {rows:?}"));
    }
    let states = catalog.context().states().len();
    let expected = if other.layout == TableLayout::Clustered { 4 } else { 2 };
    if states != expected {
        return Err(format!("{states} states with layout {}, not {expected}", other.layout.name()));
    }
    check_all(&catalog)
}

fn explore(name: &str, history: fn(&Arc<Pool>)) {
    let report = check_seeds(name, 1, |seed| {
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

#[test]
fn every_crash_leaves_one_of_the_layouts() {
    explore("layout", history);
}

#[test]
fn every_crash_leaves_elfs_or_pages() {
    explore("layout_elf", history_of_elfs);
}

#[test]
fn every_crash_leaves_blocks_or_row_groups_in_key_order() {
    explore("layout_blocks", history_of_blocks);
}
