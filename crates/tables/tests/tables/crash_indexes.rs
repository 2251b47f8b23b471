//! Indexes and changed tables under power failures: in every remaining state each index agrees with its
//! table, no state is orphaned, and rows are those of one snapshot.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{Durability, Pool};
use entresol_tables::{
    Catalog, Column, DataType, Error, IndexDefinition, ScanRange, Schema, TableDefinition, TableOptions,
    Value, Verify, check,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn index(name: &str, column: usize, unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns: vec![column],
        unique,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

fn definition() -> TableDefinition {
    let columns = vec![Column::new("id", DataType::Int), Column::new("v", DataType::Varchar)];
    let mut definition = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    definition.indexes = vec![index("u", 1, true)];
    definition
}

fn value(id: i32) -> Value {
    Value::from(format!("value {id}").as_str())
}

fn write(catalog: &Catalog, ids: &[i32], delete: Option<i32>) {
    let table = catalog.table("t").unwrap();
    let tx = catalog.begin().unwrap();
    for &id in ids {
        let mut row = vec![Value::Int(id), value(id)];
        row.resize(table.schema().columns().len(), Value::Int(id));
        table.upsert(&tx, &row).unwrap();
    }
    if let Some(id) = delete {
        table.delete(&tx, &[Value::Int(id)]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

fn redefine(catalog: &Catalog, change: impl FnOnce(&mut TableDefinition) -> Result<(), Error>) {
    catalog.redefine("t", None::<Verify<'_, Error>>, change).unwrap();
}

/// Rows and indexes are added, a column is added and dropped, an index is dropped, the table is renamed.
fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    catalog.create_table_as("t", definition(), TableOptions::default()).unwrap();
    write(&catalog, &[1, 2, 3], None);
    catalog.create_index("t", index("i", 1, false)).unwrap();
    write(&catalog, &[4], Some(2));
    redefine(&catalog, |definition| {
        let column = Column::new("c", DataType::Int);
        definition.schema = Arc::new(definition.schema.with_column(column, Value::Int(-1))?);
        definition.defaults.push(None);
        Ok(())
    });
    write(&catalog, &[5], Some(1));
    catalog.create_index("t", index("j", 2, false)).unwrap();
    catalog.drop_index("j").unwrap();
    redefine(&catalog, |definition| {
        definition.schema = Arc::new(definition.schema.without_column(2)?);
        definition.defaults.pop();
        Ok(())
    });
    write(&catalog, &[6], None);
    catalog.drop_index("i").unwrap();
    catalog.rename_table("t", "s").unwrap();
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let catalog = open(pool)?;
    let states: usize = 1 + catalog.tables().iter().map(|table| 1 + table.indexes().len()).sum::<usize>();
    if catalog.context().states().len() != states {
        return Err(format!("{} states instead of {states}", catalog.context().states().len()));
    }
    let report = check(&catalog, |_| {}).map_err(text)?;
    // Reserved and unpublished objects are free again, so nothing is allocated without a reference.
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    let [table] = &catalog.tables()[..] else {
        return if catalog.tables().is_empty() { Ok(()) } else { Err("two tables".into()) };
    };
    let tx = catalog.begin().map_err(text)?;
    let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
    let ids: Vec<i32> = rows.iter().map(|row| if let Value::Int(id) = row[0] { id } else { -1 }).collect();
    let legal_states: [&[i32]; 5] = [&[], &[1, 2, 3], &[1, 3, 4], &[3, 4, 5], &[3, 4, 5, 6]];
    if !legal_states.contains(&&ids[..]) {
        return Err(format!("rows {ids:?}"));
    }
    for row in &rows {
        let Value::Int(id) = row[0] else { return Err("no id".into()) };
        let older = id <= 4;
        let expected = if older { Value::Int(-1) } else { Value::Int(id) };
        if row[1] != value(id) || row.get(2).is_some_and(|found| *found != expected) {
            return Err(format!("row {row:?}"));
        }
    }
    // And it goes on.
    let mut row = vec![Value::Int(99), Value::from("new")];
    row.resize(table.schema().columns().len(), Value::Null);
    table.insert(&tx, &row).map_err(text)?;
    tx.commit(Durability::Sync).map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn every_crash_leaves_indexes_that_agree_with_their_table() {
    let report = check_seeds("indexes", 1, |seed| {
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
