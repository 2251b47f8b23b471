//! Blocks under power failures: a table with the layout `clustered` has the rows of one commit in every state that may
//! be left, by their keys, in key order and block by block, whatever was being loaded, merged or split, and goes on.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    Catalog, ClusteringDefinition, Column, ColumnCondition, ColumnFilter, DataType, Dimension, Row,
    ScanRange, Schema, Table, TableDefinition, TableLayout, TableOptions, Value, arrow_schema, batch_to_rows,
    check,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    Catalog::open_or_create(context).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn columns() -> Vec<Column> {
    let of = |(name, data_type)| Column::new(name, data_type);
    [("id", DataType::Int), ("x", DataType::Int), ("v", DataType::Varchar)].map(of).to_vec()
}

/// Row so wide that a block has eight.
fn row(id: i32, x: i32) -> Row {
    vec![Value::Int(id), Value::Int(x), Value::from(format!("{x}{:500}", "").as_str())]
}

/// Rows after each commit of [`history`]: blocks of the second overlap those of the first, so that both are written anew;
/// the third deletes most of them.
fn states() -> Vec<Vec<Row>> {
    let first: Vec<Row> = (0..16).map(|id| row(id, id * 7 % 16)).collect();
    let mut second: Vec<Row> = first.iter().filter(|row| row[0] != Value::Int(5)).cloned().collect();
    second[3] = row(3, 15);
    second.extend((16..32).map(|id| row(id, id * 5 % 16)));
    let third =
        second.iter().filter(|row| matches!(row[0], Value::Int(id) if id % 4 == 1)).cloned().collect();
    vec![Vec::new(), first, second, third]
}

fn commit(catalog: &Catalog, table: &Arc<Table>, before: &[Row], after: &[Row]) {
    let tx = catalog.begin().unwrap();
    let key = |row: &Row| vec![row[0].clone()];
    let gone: Vec<Row> =
        before.iter().map(key).filter(|id| !after.iter().any(|row| row[0] == id[0])).collect();
    table.delete_many(&tx, &gone).unwrap();
    let changed: Vec<Row> = after.iter().filter(|row| !before.contains(row)).cloned().collect();
    table.upsert_many(&tx, &changed).unwrap();
    tx.commit(Durability::Sync).unwrap();
}

/// Each commit is followed by a merge. In the end the table is dropped.
fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"]).unwrap());
    definition.layout = TableLayout::Clustered;
    let mut clustering = ClusteringDefinition::new(vec![Dimension { column: 1, bits: Some(4) }]);
    clustering.block_bytes = 4096;
    definition.clustering = Some(clustering);
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    let mut rewritten = 0;
    for pair in states().windows(2) {
        commit(&catalog, &table, &pair[0], &pair[1]);
        let merged = table.merge(|_| Ok(())).unwrap().rows;
        rewritten += merged as usize - pair[1].iter().filter(|row| !pair[0].contains(row)).count();
    }
    assert!(rewritten > 20, "blocks are written anew: {rewritten} rows");
    drop(table);
    catalog.drop_table("t").unwrap();
}

fn scanned(catalog: &Catalog, table: &Arc<Table>, filters: Vec<ColumnFilter>) -> Result<Vec<Row>, String> {
    let tx = catalog.begin().map_err(text)?;
    let arrow = arrow_schema(&columns(), "UTC");
    let scan = table.column_scan(&tx, vec![0, 1, 2], arrow, filters).map_err(text)?.unwrap();
    let mut rows = Vec::new();
    for morsel in scan.morsels() {
        let batch = scan.read(&tx, morsel).map_err(text)?;
        rows.extend(batch.iter().flat_map(|batch| batch_to_rows("t", &columns(), batch).unwrap()));
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(&tx).map_err(text)? {
        rows.extend(batch_to_rows("t", &columns(), &batch).unwrap());
    }
    rows.sort_by_key(|row| if let Value::Int(id) = row[0] { id } else { 0 });
    Ok(rows)
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
    for row in &rows {
        if table.get(&tx, &row[..1]).map_err(text)?.as_ref() != Some(row) {
            return Err(format!("the row {row:?} is not found by its key"));
        }
    }
    drop(tx);
    if scanned(&catalog, &table, Vec::new())? != rows {
        return Err("by blocks the rows are others".to_owned());
    }
    let condition = ColumnCondition::Between { least: 3, greatest: 9 };
    let within: Vec<Row> =
        rows.into_iter().filter(|row| matches!(row[1], Value::Int(x) if (3..=9).contains(&x))).collect();
    if scanned(&catalog, &table, vec![ColumnFilter { column: 1, condition }])? != within {
        return Err("pruned blocks have other rows".to_owned());
    }
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

#[test]
fn every_crash_leaves_the_rows_of_one_commit_and_their_places() {
    let report = check_seeds("clustered", 1, |seed| {
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
