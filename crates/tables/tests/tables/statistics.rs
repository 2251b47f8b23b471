//! Statistics of tables: they survive a restart, follow the columns of their table, go with it, and are whole after
//! every crash.
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::statistics::AnalyzedTable;
use entresol_tables::{
    Catalog, Column, DataType, Error, Schema, Table, TableDefinition, TableLayout, TableOptions, Value,
    Verify, check,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

const NO_CHECK: Option<Verify<'_, Error>> = None;

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn create(catalog: &Catalog, name: &str, layout: TableLayout) -> Arc<Table> {
    let columns = vec![
        Column::new("id", DataType::Int),
        Column::new("kind", DataType::Int),
        Column::new("name", DataType::Varchar),
    ];
    let definition =
        TableDefinition { layout, ..TableDefinition::plain(Schema::new(columns, &["id"]).unwrap()) };
    catalog.create_table_as(name, definition, TableOptions::default()).unwrap()
}

fn fill(catalog: &Catalog, table: &Table, ids: std::ops::Range<i32>) {
    let tx = catalog.begin().unwrap();
    for id in ids {
        let name = if id % 4 == 0 { Value::Null } else { Value::varchar(format!("name {id}")) };
        table.insert(&tx, &[Value::Int(id), Value::Int(id % 10), name]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

fn analyze(catalog: &Catalog, name: &str, columns: Option<&[usize]>) -> Arc<AnalyzedTable> {
    let tx = catalog.begin().unwrap();
    catalog.analyze(&catalog.table(name).unwrap(), &tx, columns, Durability::Sync).unwrap()
}

#[test]
fn statistics_describe_the_rows() {
    for layout in [TableLayout::Rows, TableLayout::Columns] {
        let catalog = open(&Pool::volatile(&PoolOptions::default()).unwrap()).unwrap();
        let table = create(&catalog, "t", layout);
        assert!(table.analyzed().is_none());
        fill(&catalog, &table, 100..20_100);
        let before = catalog.version();
        let analyzed = analyze(&catalog, "t", None);
        assert_ne!(catalog.version(), before, "plans are made anew");
        assert!((analyzed.rows - 20_000.0).abs() < 5_000.0, "{}", analyzed.rows);
        let column = |at: usize| analyzed.column(table.schema(), at).unwrap();
        assert_eq!(
            (&column(0).least, &column(0).greatest),
            (&Some(Value::Int(100)), &Some(Value::Int(20_099)))
        );
        assert!((column(0).distinct - 20_000.0).abs() < 5_000.0, "{}", column(0).distinct);
        assert_eq!(column(1).distinct, 10.0);
        assert_eq!(column(1).common.len(), 10);
        assert!(column(1).common.iter().all(|(_, share)| (share - 0.1).abs() < 0.02));
        assert!((column(2).nulls - 0.25).abs() < 0.02, "{}", column(2).nulls);
        assert!(column(0).bounds.len() > 10 && column(0).bounds.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn statistics_follow_columns_and_go_with_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory.path(), &options).unwrap();
    let catalog = open(&pool).unwrap();
    let table = create(&catalog, "t", TableLayout::Rows);
    fill(&catalog, &table, 0..100);
    analyze(&catalog, "t", None);
    catalog
        .redefine("t", NO_CHECK, |definition| {
            let schema = definition.schema.with_column(Column::new("more", DataType::Int), Value::Null)?;
            definition.schema = Arc::new(schema.without_column(1)?);
            Ok(())
        })
        .unwrap();
    catalog.rename_table("t", "u").unwrap();
    let distinct = |catalog: &Catalog| {
        let table = catalog.table("u").unwrap();
        let analyzed = table.analyzed().unwrap();
        let columns = 0..table.schema().visible_columns().len();
        columns
            .map(|at| analyzed.column(table.schema(), at).map(|column| column.distinct))
            .collect::<Vec<_>>()
    };
    // id, name, more.
    let expected = [Some(100.0), Some(75.0), None];
    assert_eq!(distinct(&catalog), expected);
    analyze(&catalog, "u", Some(&[2]));
    let expected = [expected[0], expected[1], Some(1.0)];
    assert_eq!(distinct(&catalog), expected, "those of other columns stay");
    catalog.context().pool().close().unwrap();
    drop((catalog, table, pool));

    let pool = Pool::open_or_create(directory.path(), &options).unwrap();
    let catalog = open(&pool).unwrap();
    assert_eq!(distinct(&catalog), expected, "behind a restart");
    catalog.drop_table("u").unwrap();
    create(&catalog, "u", TableLayout::Rows);
    catalog.context().pool().close().unwrap();
    drop((catalog, pool));

    let pool = Pool::open_or_create(directory.path(), &options).unwrap();
    let catalog = open(&pool).unwrap();
    assert!(catalog.table("u").unwrap().analyzed().is_none(), "another table of the name");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Statistics of many long strings would not fit a value of the catalog.
#[test]
fn statistics_of_wide_tables_have_fewer_strings() {
    const COLUMNS: i32 = 255;
    const STRING_BYTES: usize = 250;
    const STRINGS: i32 = 80;
    let catalog = open(&Pool::volatile(&PoolOptions::default()).unwrap()).unwrap();
    let strings = (0..COLUMNS).map(|at| Column::new(format!("c{at}"), DataType::Varchar));
    let columns: Vec<Column> = std::iter::once(Column::new("id", DataType::Int)).chain(strings).collect();
    let schema = Schema::new(columns, &["id"]).unwrap();
    let table = catalog.create_table("t", schema, TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    for id in 0..800 {
        // A row has not room for strings in all columns.
        let of = |at: i32| {
            let is_there = (at + id * STRINGS).rem_euclid(COLUMNS) < STRINGS;
            if is_there { Value::varchar(format!("{id:0STRING_BYTES$}")) } else { Value::Null }
        };
        let row: Vec<Value> = std::iter::once(Value::Int(id)).chain((0..COLUMNS).map(of)).collect();
        table.insert(&tx, &row).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
    let analyzed = analyze(&catalog, "t", None);
    let column = |at: usize| analyzed.column(table.schema(), at).unwrap();
    assert_eq!(column(0).bounds.len(), entresol_tables::statistics::BOUNDS_MAX, "numbers have all of them");
    for at in 1..=COLUMNS as usize {
        let column = column(at);
        assert!((2..=32).contains(&column.bounds.len()), "{} bounds", column.bounds.len());
        let ends = (column.bounds.first().cloned(), column.bounds.last().cloned());
        assert_eq!(ends, (column.least.clone(), column.greatest.clone()));
    }
}

#[test]
fn a_dropped_table_has_no_statistics() {
    let catalog = open(&Pool::volatile(&PoolOptions::default()).unwrap()).unwrap();
    let table = create(&catalog, "t", TableLayout::Rows);
    fill(&catalog, &table, 0..10);
    let tx = catalog.begin().unwrap();
    catalog.drop_table("t").unwrap();
    let error = catalog.analyze(&table, &tx, None, Durability::Sync).unwrap_err();
    assert!(matches!(error, Error::NoSuchTable { .. }), "{error}");
}

fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    let table = create(&catalog, "t", TableLayout::Rows);
    fill(&catalog, &table, 0..8);
    analyze(&catalog, "t", None);
    fill(&catalog, &table, 8..12);
    analyze(&catalog, "t", Some(&[0]));
    catalog.rename_table("t", "u").unwrap();
    analyze(&catalog, "u", None);
    catalog.drop_table("u").unwrap();
    let table = create(&catalog, "t", TableLayout::Rows);
    fill(&catalog, &table, 0..3);
    analyze(&catalog, "t", None);
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let report = check(&catalog, |_| {}).map_err(|error| error.to_string())?;
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    for table in catalog.tables() {
        let Some(analyzed) = table.analyzed() else { continue };
        let known = [(8.0, Some(8.0)), (12.0, Some(12.0)), (3.0, Some(3.0))];
        let found = (analyzed.rows, analyzed.column(table.schema(), 0).map(|column| column.distinct));
        if !known.contains(&found) {
            return Err(format!("statistics of table {}: {found:?}", table.name()));
        }
        let tx = catalog.begin().map_err(|error| error.to_string())?;
        let rows =
            table.scan(entresol_tables::ScanRange::full()).rows(&tx).map_err(|error| error.to_string())?;
        if (rows.len() as f64) < analyzed.rows {
            return Err(format!(
                "table {} has {} rows and statistics of {}",
                table.name(),
                rows.len(),
                found.0
            ));
        }
    }
    Ok(())
}

#[test]
fn no_crash_leaves_a_part_of_statistics_or_those_of_another_table() {
    let report = check_seeds("statistics", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(300), "{report:?}");
}
