//! Sequences and views under power failures: in every remaining state no value that was committed in a row is
//! handed out again, no view reads a missing relation, and dependents of a table are dropped with it.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    Catalog, Column, DataType, Error, NewSequence, ReadColumn, RelationKind, ScanRange, Schema,
    SequenceDefinition, SequenceType, TableDefinition, TableOptions, Value, ViewDefinition, ViewRead, check,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn create(catalog: &Catalog, table: &str) {
    let schema = Schema::new(vec![Column::new("id", DataType::BigInt)], &["id"]).unwrap();
    let sequence = NewSequence {
        name: format!("{table}_id_seq"),
        definition: SequenceDefinition::ascending(SequenceType::BigInt),
        column: 0,
        identity: None,
    };
    let options = TableOptions::default();
    catalog.create_table_with(table, TableDefinition::plain(schema), options, vec![sequence]).unwrap();
}

/// Takes values and commits them in rows, without waiting for anything.
fn draw(catalog: &Catalog, count: u64) {
    let (table, sequence) = (catalog.table("t").unwrap(), catalog.sequence("t_id_seq").unwrap());
    let tx = catalog.begin().unwrap();
    for value in catalog.next_values(&sequence, count, Durability::None).unwrap() {
        table.insert(&tx, &[Value::BigInt(value)]).unwrap();
    }
    tx.commit(Durability::None).unwrap();
}

fn view_of(relation: &str) -> ViewDefinition {
    let columns = vec![ReadColumn { name: "id".into(), used: true }];
    let reads = vec![ViewRead { relation: relation.into(), columns }];
    ViewDefinition { query: format!("SELECT id FROM {relation}"), columns: vec!["id".into()], reads }
}

fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    create(&catalog, "t");
    draw(&catalog, 1);
    catalog.create_view("v", view_of("t"), None).unwrap();
    draw(&catalog, 2);
    catalog.create_view("w", view_of("v"), None).unwrap();
    draw(&catalog, 40);
    catalog.release_cached_sequences();
    draw(&catalog, 1);
    create(&catalog, "u");
    catalog.drop_relations(&[(RelationKind::Table, "t")], true).unwrap();
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let catalog = open(pool)?;
    let report = check(&catalog, |_| {}).map_err(text)?;
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    for table in ["t", "u"] {
        let sequence = format!("{table}_id_seq");
        if catalog.table(table).is_ok() != catalog.sequence(&sequence).is_ok() {
            return Err(format!("table {table} and its sequence: one is there"));
        }
    }
    for view in catalog.views() {
        for read in &view.definition().reads {
            if catalog.relation_kind(&read.relation).is_none() {
                return Err(format!("view {} reads {}, which is not there", view.name(), read.relation));
            }
        }
    }
    let Ok(table) = catalog.table("t") else { return Ok(()) };
    let tx = catalog.begin().map_err(text)?;
    let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
    let sequence = catalog.sequence("t_id_seq").map_err(text)?;
    for value in catalog.next_values(&sequence, 70, Durability::None).map_err(text)? {
        let row = vec![Value::BigInt(value)];
        if rows.contains(&row) {
            return Err(format!("{value} is handed out again; rows {rows:?}"));
        }
        table.insert(&tx, &row).map_err(text)?;
    }
    tx.commit(Durability::Sync).map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn no_crash_makes_a_sequence_repeat_itself() {
    let report = check_seeds("sequences", 1, |seed| {
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
