//! A row group in key order that is written as blocks part by part, under power failures. A merge does so where the memory
//! budget has no room for all of its rows; here its parts have few rows.

use crate::columns::merge::MergeStats;
use crate::schema::clustering::{ClusteringDefinition, Dimension};
use crate::schema::definition::TableDefinition;
use crate::{
    Catalog, Column, DataType, Error, NewLayout, Row, ScanRange, Schema, Table, TableLayout, TableOptions,
    Value, check,
};
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_transactions::{Cancellation, Error as TransactionError, StateContext};
use std::sync::Arc;

/// Rows of a part.
const PART_ROWS: usize = 8;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    Catalog::open_or_create(context).map_err(text)
}

fn row(id: i32) -> Row {
    vec![Value::Int(id), Value::Int(id * 7 % 30), Value::from(format!("row {id}").as_str())]
}

/// Rows after each commit of [`history`]; of the second part most are deleted, of the third all.
fn states() -> Vec<Vec<Row>> {
    let all = || (0..30).map(row);
    let is_left = |row: &Row| matches!(row[0], Value::Int(id) if !(10..24).contains(&id));
    vec![Vec::new(), all().collect(), all().filter(is_left).collect()]
}

fn clustered() -> NewLayout {
    let clustering = ClusteringDefinition::new(vec![Dimension { column: 1, bits: Some(4) }]);
    ClusteringDefinition { block_bytes: 4096, ..clustering }.into()
}

/// Lets new row groups be blocks, and leaves those that are there.
fn cluster_new_rows(catalog: &Catalog) {
    let stop = &mut |_: &MergeStats| Err(TransactionError::Busy("the test stops it").into());
    let stopped = catalog.set_layout(&Cancellation::default(), "t", clustered(), stop);
    assert!(matches!(stopped, Err(Error::Transactions(TransactionError::Busy(_)))), "{stopped:?}");
}

fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let columns = [("id", DataType::Int), ("x", DataType::Int), ("v", DataType::Varchar)];
    let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
    let plain = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    let definition = TableDefinition { layout: TableLayout::Columns, ..plain };
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    let states = states();
    let (first, second) = (&states[1], &states[2]);
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, first).unwrap();
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    let tx = catalog.begin().unwrap();
    let gone: Vec<Row> =
        first.iter().filter(|row| !second.contains(row)).map(|row| vec![row[0].clone()]).collect();
    assert_eq!(table.delete_many(&tx, &gone).unwrap(), gone.len());
    tx.commit(Durability::Sync).unwrap();
    table.merge(|_| Ok(())).unwrap();
    cluster_new_rows(&catalog);
    let table = catalog.table("t").unwrap();
    let columns = table.own_columns().unwrap();
    let group = columns.groups(&catalog.begin().unwrap()).unwrap().remove(0);
    assert_eq!((group.cluster, group.rows), (None, 30));
    let mut stats = MergeStats::default();
    assert!(table.rewrite_by_parts(columns, (&group, PART_ROWS), &mut stats).unwrap());
    assert_eq!(stats.rows as usize, second.len());
    let groups = columns.groups(&catalog.begin().unwrap()).unwrap();
    assert!(groups.len() > 2 && groups.iter().all(|group| group.cluster.is_some()), "{groups:?}");
}

fn check_all(catalog: &Arc<Catalog>, table: &Arc<Table>, expected: &[Row]) -> Result<(), String> {
    let problems = check(catalog, |_| {}).map_err(text)?.problems;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    let tx = catalog.begin().map_err(text)?;
    let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
    if rows != expected {
        return Err(format!("the rows are not those of a commit any more: {rows:?}"));
    }
    for id in 0..30 {
        let found = table.get(&tx, &[Value::Int(id)]).map_err(text)?;
        if found.is_some() != rows.contains(&row(id)) {
            return Err(format!("by the key {id} there is {found:?}"));
        }
    }
    Ok(())
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let Ok(table) = catalog.table("t") else { return Ok(()) };
    let tx = catalog.begin().map_err(text)?;
    let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
    drop(tx);
    if !states().contains(&rows) {
        return Err(format!("rows of no commit: {rows:?}"));
    }
    check_all(&catalog, &table, &rows)?;
    // And it goes on.
    table.merge(|_| Ok(())).map_err(text)?;
    check_all(&catalog, &table, &rows)?;
    let columns = table.own_columns().ok_or("it has no row groups")?;
    let tx = catalog.begin().map_err(text)?;
    let groups = columns.groups(&tx).map_err(text)?;
    if groups.iter().any(|group| group.cluster.is_some() != columns.has_blocks()) {
        return Err(format!("a merge has left row groups of the other kind: {groups:?}"));
    }
    Ok(())
}

#[test]
fn every_crash_between_two_parts_leaves_each_row_once() {
    let report = check_seeds("parts of a row group", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(500), "{report:?}");
}
