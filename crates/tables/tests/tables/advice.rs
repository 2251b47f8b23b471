//! Advice and the layout `auto`: proposals for workloads that need them and none for others, what carrying one out does to
//! the workload, and predictions that order as they should.
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_structures::IndexStructure;
use entresol_tables::advice::{Change, Proposal, advise};
use entresol_tables::cost::{AccessPath, Design, ElfDesign, IndexDesign, QueryProfile, TableStatistics};
use entresol_tables::workload::RowOperation;
use entresol_tables::{
    Catalog, ClusteringDefinition, Column, ColumnCondition, ColumnFilter, DataType, Dimension, Error,
    IndexDefinition, Interleave, Retention, Row, ScanRange, Schema, Table, TableDefinition, TableLayout,
    TableOptions, Value, check,
};
use entresol_transactions::{Cancellation, Protocol, StateContext};
use std::sync::Arc;
use std::time::Duration;

/// Rows of the table.
const ROWS: i64 = 40_000;
/// Rows of a larger one.
const LARGE_ROWS: i64 = 120_000;

fn open() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

/// Row with a key, a column of 5,000 values in no order, one of 20, one that ascends with the key, and a string.
fn row(id: i64) -> Row {
    let mixed = (id as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    vec![
        Value::BigInt(id),
        Value::Int((mixed % 5_000) as i32),
        Value::Int((mixed / 7 % 20) as i32),
        Value::Int((id / 10) as i32),
        Value::from(format!("name {}", id % 50).as_str()),
    ]
}

fn create(catalog: &Catalog, layout: TableLayout, auto_layout: bool) -> Arc<Table> {
    create_as(catalog, TableOptions::default(), |plain| TableDefinition { layout, auto_layout, ..plain })
}

/// Creates a table with rows and an empty workload.
fn create_as(
    catalog: &Catalog,
    options: TableOptions,
    define: impl Fn(TableDefinition) -> TableDefinition,
) -> Arc<Table> {
    create_with(catalog, options, ROWS, define)
}

/// Creates a table with so many rows that blocks of cluster keys spare ranges of a column about half of their time.
fn create_large(catalog: &Catalog, define: impl Fn(TableDefinition) -> TableDefinition) -> Arc<Table> {
    create_with(catalog, TableOptions::default(), LARGE_ROWS, define)
}

fn create_with(
    catalog: &Catalog,
    options: TableOptions,
    rows: i64,
    define: impl Fn(TableDefinition) -> TableDefinition,
) -> Arc<Table> {
    let columns = vec![
        Column::new("id", DataType::BigInt),
        Column::new("shop", DataType::Int),
        Column::new("kind", DataType::Int),
        Column::new("day", DataType::Int),
        Column::new("name", DataType::Varchar),
    ];
    let definition = define(TableDefinition::plain(Schema::new(columns, &["id"]).unwrap()));
    let table = catalog.create_table_as("t", definition, options).unwrap();
    for first in (0..rows).step_by(10_000) {
        let tx = catalog.begin().unwrap();
        table.insert_many(&tx, &(first..first + 10_000).map(row).collect::<Vec<_>>()).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    if table.has_row_groups() {
        table.merge(|_| Ok(())).unwrap();
    }
    table.workload().reset();
    table
}

fn between(column: usize, least: i64, greatest: i64) -> ColumnFilter {
    ColumnFilter { column, condition: ColumnCondition::Between { least, greatest } }
}

/// Records runs of a query.
fn ask(table: &Table, runs: u64, columns: &[usize], filters: impl Fn(i64) -> Vec<ColumnFilter>) {
    for run in 0..runs {
        let scan = table.workload().scan(&filters(run as i64), columns);
        scan.begin();
        scan.end(1, Duration::ZERO);
    }
}

fn proposals(catalog: &Catalog, table: &Arc<Table>) -> Vec<Proposal> {
    let proposed = advise(table, &catalog.begin().unwrap()).unwrap();
    for proposal in &proposed {
        assert!(proposal.after_ms < proposal.before_ms && proposal.gain() > 0.0, "{proposal:?}");
        assert!(!proposal.why.is_empty());
    }
    proposed
}

fn changes(catalog: &Catalog, table: &Arc<Table>) -> Vec<Change> {
    proposals(catalog, table).into_iter().map(|proposal| proposal.change).collect()
}

fn index(name: &str, columns: &[usize], unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns: columns.to_vec(),
        unique,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

#[test]
fn nothing_is_proposed_where_there_is_nothing_to_gain() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    assert_eq!(changes(&catalog, &table), []);
    // Rows by key and ranges of the key.
    table.workload().note_rows(RowOperation::Read, 100_000);
    table.workload().note_rows(RowOperation::Update, 50_000);
    ask(&table, 50, &[1, 2], |run| vec![between(0, run * 100, run * 100 + 20)]);
    assert_eq!(changes(&catalog, &table), []);
    // Too few queries to learn from.
    table.workload().reset();
    ask(&table, 3, &[0], |run| vec![between(1, run, run)]);
    assert_eq!(changes(&catalog, &table), []);
}

#[test]
fn an_index_is_proposed_for_selective_conditions_and_satisfies() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    table.workload().note_rows(RowOperation::Read, 20_000);
    table.workload().note_rows(RowOperation::Update, 20_000);
    ask(&table, 200, &[0, 4], |run| vec![between(1, run, run), between(2, 3, 10)]);
    let proposed = proposals(&catalog, &table);
    assert_eq!(proposed[0].change, Change::CreateIndex(vec![1, 2]), "{proposed:?}");
    assert!(proposed[0].gain() > 0.5, "{proposed:?}");
    assert!(proposed[0].why.contains("shop (=)") && proposed[0].why.contains("200 queries"), "{proposed:?}");
    catalog.create_index("t", index("t_shop", &[1, 2], false)).unwrap();
    let table = catalog.table("t").unwrap();
    table.workload().note_index("t_shop");
    assert_eq!(changes(&catalog, &table), []);
}

#[test]
fn columns_are_proposed_for_scans_and_rows_for_rows_by_key() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    ask(&table, 30, &[2], |_| Vec::new());
    assert_eq!(changes(&catalog, &table), [Change::SetLayout(TableLayout::Columns)]);
    catalog.set_layout(&Cancellation::default(), "t", TableLayout::Columns, &mut |_| Ok(())).unwrap();
    let table = catalog.table("t").unwrap();
    assert_eq!(changes(&catalog, &table), []);
    table.workload().reset();
    table.workload().note_rows(RowOperation::Read, 100_000);
    assert_eq!(changes(&catalog, &table), [Change::SetLayout(TableLayout::Rows)]);
}

#[test]
fn an_unused_index_is_proposed_to_be_dropped_and_a_needed_one_is_not() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    catalog.create_index("t", index("unused", &[2], false)).unwrap();
    catalog.create_index("t", index("used", &[1], false)).unwrap();
    catalog.create_index("t", index("distinct", &[0, 1], true)).unwrap();
    let table = catalog.table(table.name()).unwrap();
    table.workload().note_rows(RowOperation::Insert, 10_000);
    table.workload().note_index("used");
    assert_eq!(changes(&catalog, &table), [Change::DropIndex("unused".into())]);
    catalog.drop_index("unused").unwrap();
    assert_eq!(changes(&catalog, &catalog.table("t").unwrap()), []);
}

#[test]
fn the_layout_auto_follows_the_workload_once_and_rests() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, true);
    let statement = Cancellation::default;
    assert_eq!(catalog.decide_layout(&statement(), "t").unwrap(), None, "nothing is known yet");
    // What is about as good in both layouts changes nothing.
    table.workload().note_rows(RowOperation::Insert, 10_000);
    let decided = catalog.decide_layout(&statement(), "t").unwrap().unwrap();
    assert!(!decided.is_change && decided.layout == TableLayout::Rows, "{decided:?}");
    ask(&table, 60, &[2], |_| Vec::new());
    let decided = catalog.decide_layout(&statement(), "t").unwrap().unwrap();
    assert!(decided.is_change && decided.layout == TableLayout::Columns, "{decided:?}");
    let table = catalog.table("t").unwrap();
    assert_eq!(table.definition().layout, TableLayout::Columns);
    assert!(table.definition().auto_layout && table.layout_decision() == Some(decided));
    assert!(table.workload().classes().is_empty(), "it begins anew");
    // The same workload again.
    ask(&table, 60, &[2], |_| Vec::new());
    assert!(!catalog.decide_layout(&statement(), "t").unwrap().unwrap().is_change);
    table.workload().reset();
    table.workload().note_rows(RowOperation::Read, 100_000);
    let decided = catalog.decide_layout(&statement(), "t").unwrap().unwrap();
    assert!(decided.is_change && decided.layout == TableLayout::Rows, "{decided:?}");
    let (mut rows, tx) = (0, catalog.begin().unwrap());
    let mut cursor = catalog.table("t").unwrap().scan(ScanRange::full());
    while cursor.next_batch(&tx, |_| rows += 1).unwrap() {}
    assert_eq!(rows, ROWS);
    drop(tx);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_layout_that_was_given_is_left_alone() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    ask(&table, 60, &[2], |_| Vec::new());
    assert_eq!(catalog.decide_layout(&Cancellation::default(), "t").unwrap(), None);
    assert_eq!(catalog.table("t").unwrap().definition().layout, TableLayout::Rows);
}

#[test]
fn a_version_history_is_ended_by_no_advice() {
    let catalog = open();
    let by_columns = |plain| TableDefinition { layout: TableLayout::Columns, auto_layout: true, ..plain };
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let table = create_as(&catalog, options, by_columns);
    let horizon = table.history_bounds().unwrap().horizon;
    table.workload().note_rows(RowOperation::Read, 100_000);
    assert_eq!(changes(&catalog, &table), []);
    assert_eq!(catalog.decide_layout(&Cancellation::default(), "t").unwrap(), None);
    let table = catalog.table("t").unwrap();
    assert_eq!(table.definition().layout, TableLayout::Columns);
    assert_eq!(table.history_bounds().unwrap().horizon, horizon);
}

/// Ranges of a column in which the rows do not lie in order, of which several columns are read.
fn ask_ranges(table: &Table, column: usize) {
    ask(table, 200, &[0, 3, 4], |run| vec![between(column, run * 20, run * 20 + 40)]);
}

#[test]
fn the_layout_auto_is_clustered_where_ranges_ask_for_it() {
    let catalog = open();
    let table = create_large(&catalog, columns);
    ask_ranges(&table, 1);
    let decide = || catalog.decide_layout(&Cancellation::default(), "t").unwrap().unwrap();
    let decided = decide();
    assert_eq!((decided.layout, decided.is_change), (TableLayout::Clustered, true), "{decided:?}");
    assert_eq!(decided.dimensions, [1], "{decided:?}");
    let table = catalog.table("t").unwrap();
    let clustering = table.definition().clustered_by().unwrap();
    assert!(clustering.has(1) && table.definition().auto_layout);
    let rows = table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap();
    assert_eq!(rows.len(), LARGE_ROWS as usize);
    // The same workload asks for nothing else.
    ask_ranges(&table, 1);
    let again = decide();
    assert!(!again.is_change, "{again:?}");
    // Rows by key ask for rows, and the dimensions stay as candidates.
    table.workload().reset();
    table.workload().note_rows(RowOperation::Read, 1_000_000);
    assert_eq!(decide().layout, TableLayout::Rows);
    let table = catalog.table("t").unwrap();
    assert!(table.definition().clustered_by().is_none() && table.definition().clustering.is_some());
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Layout `columns` to begin with.
fn columns(plain: TableDefinition) -> TableDefinition {
    TableDefinition { layout: TableLayout::Columns, auto_layout: true, ..plain }
}

/// Layout `clustered` by the column with 5,000 values to begin with.
fn clustered(plain: TableDefinition) -> TableDefinition {
    let dimension = Dimension { column: 1, bits: None };
    let clustering = Some(ClusteringDefinition::new(vec![dimension]));
    TableDefinition { layout: TableLayout::Clustered, auto_layout: true, clustering, ..plain }
}

/// Share of the time that the change from `clustered` to `columns` spares which ranges and queries that count all rows ask
/// for, as soon as these are enough.
fn gain_of_change(catalog: &Catalog) -> f64 {
    ask_ranges(&catalog.table("t").unwrap(), 1);
    let mut asked = 64;
    for _ in 0..80 {
        // Each time a sixth more, as the cost of a range depends on the storage.
        ask(&catalog.table("t").unwrap(), asked / 6, &[], |_| Vec::new());
        asked += asked / 6;
        let decided = catalog.decide_layout(&Cancellation::default(), "t").unwrap().unwrap();
        if decided.is_change {
            assert_eq!(decided.layout, TableLayout::Columns, "{decided:?}");
            return 1.0 - decided.after_ms / decided.before_ms;
        }
    }
    panic!("nothing asks for columns: {:?}", catalog.table("t").unwrap().layout_decision());
}

#[test]
fn the_layout_auto_goes_back_only_where_that_spares_more() {
    let catalog = open();
    create_large(&catalog, clustered);
    let gain = gain_of_change(&catalog);
    assert!((0.3..0.5).contains(&gain), "{gain}");
    let catalog = open();
    let table = create_large(&catalog, columns);
    ask_ranges(&table, 1);
    let decided = catalog.decide_layout(&Cancellation::default(), "t").unwrap().unwrap();
    assert_eq!((decided.layout, decided.is_change), (TableLayout::Clustered, true), "{decided:?}");
    let gain = gain_of_change(&catalog);
    assert!((0.55..0.75).contains(&gain), "{gain}");
}

#[test]
fn columns_cost_the_same_whether_rows_are_clustered_or_not() {
    let predicted = |catalog: &Catalog| {
        let table = catalog.table("t").unwrap();
        let mut statistics = TableStatistics::of(&table, &catalog.begin().unwrap()).unwrap();
        // The bandwidth of storage is measured, by each of the catalogs for itself.
        statistics.storage = None;
        let dimensions = Vec::new();
        let design = Design { layout: TableLayout::Columns, dimensions, ..Design::of(&table) };
        // Columns in no order, and one that ascends with the key.
        [(1, 1_000, 1_040), (3, 1_000, 1_040)].map(|(column, least, greatest)| {
            let filters = [between(column, least, greatest)];
            design.query_ns(&statistics, &QueryProfile::new(&statistics, &filters, &[]))
        })
    };
    let catalog = open();
    create(&catalog, TableLayout::Columns, false);
    let by_key = predicted(&catalog);
    let catalog = open();
    create_as(&catalog, TableOptions::default(), clustered);
    let beside = predicted(&catalog);
    for (by_key, beside) in by_key.into_iter().zip(beside) {
        assert!((0.75..1.35).contains(&(beside / by_key)), "{beside} ns, where {by_key} ns are right");
    }
}

#[test]
fn declared_dimensions_are_chosen_with_their_options() {
    let catalog = open();
    let dimension = |column, bits| Dimension { column, bits };
    let declared = ClusteringDefinition::new(vec![dimension(1, Some(8))]);
    let declared = ClusteringDefinition { interleave: Interleave::MajorMinor, ..declared };
    let table = create_large(&catalog, |plain| {
        let clustering = Some(declared.clone());
        TableDefinition { clustering, ..columns(plain) }
    });
    ask_ranges(&table, 1);
    let decided = catalog.decide_layout(&Cancellation::default(), "t").unwrap().unwrap();
    assert_eq!(decided.layout, TableLayout::Clustered, "{decided:?}");
    assert_eq!(catalog.table("t").unwrap().definition().clustered_by(), Some(&declared));
}

#[test]
fn a_table_over_another_structure_stays_by_rows() {
    let catalog = open();
    let structure = IndexStructure::WbTree;
    let table = create_as(&catalog, TableOptions::default(), |plain| TableDefinition { structure, ..plain });
    ask(&table, 60, &[2], |_| Vec::new());
    assert_eq!(changes(&catalog, &table), []);
    let refused = |error: Error| {
        let expected = "table t: USING wbtree is for the layout 'rows'; the layout 'auto' has";
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    let follow = |definition: &mut TableDefinition| {
        definition.auto_layout = true;
        Ok(())
    };
    refused(catalog.redefine("t", None, follow).unwrap_err());
    let auto = TableDefinition { auto_layout: true, ..table.definition().clone() };
    catalog.drop_table("t").unwrap();
    refused(catalog.create_table_as("t", auto, TableOptions::default()).unwrap_err());
}

#[test]
fn tables_of_protocols_and_hot_entries_without_row_groups_stay_by_rows() {
    let hot_bytes = Some(1 << 20);
    let hot = TableOptions { hot_bytes, ..TableOptions::default() };
    let of = |protocol| TableOptions { protocol: Some(protocol), ..TableOptions::default() };
    for options in [hot, of(Protocol::S2pl), of(Protocol::Bocc)] {
        let catalog = open();
        let table = create_as(&catalog, options, |plain| plain);
        ask(&table, 60, &[2], |_| Vec::new());
        assert_eq!(changes(&catalog, &table), []);
    }
}

#[test]
fn an_added_column_keeps_the_workload_and_a_dropped_one_ends_it() {
    let catalog = open();
    let table = create(&catalog, TableLayout::Rows, false);
    ask(&table, 20, &[4], |run| vec![between(3, run, run)]);
    let add = |definition: &mut TableDefinition| {
        let added = definition.schema.with_column(Column::new("more", DataType::Int), Value::Null)?;
        definition.schema = Arc::new(added);
        definition.defaults.push(None);
        Ok::<_, entresol_tables::Error>(())
    };
    let table = catalog.redefine("t", None, add).unwrap();
    assert_eq!(table.workload().classes()[0].1.runs, 20);
    let drop = |definition: &mut TableDefinition| {
        definition.schema = Arc::new(definition.schema.without_column(2)?);
        definition.defaults.remove(2);
        Ok::<_, entresol_tables::Error>(())
    };
    let table = catalog.redefine("t", None, drop).unwrap();
    assert!(table.workload().classes().is_empty());
}

#[test]
fn shares_of_rows_and_paths_are_as_they_are() {
    let catalog = open();
    for layout in [TableLayout::Rows, TableLayout::Columns] {
        let table = create(&catalog, layout, false);
        let tx = catalog.begin().unwrap();
        let statistics = TableStatistics::of(&table, &tx).unwrap();
        assert!((ROWS as f64 * 0.7..ROWS as f64 * 1.4).contains(&statistics.rows), "{}", statistics.rows);
        let profile =
            |filters: &[ColumnFilter], columns: &[usize]| QueryProfile::new(&statistics, filters, columns);
        let share = |filters: &[ColumnFilter]| profile(filters, &[0]).share();
        assert_eq!(share(&[]), 1.0);
        // Of a column that ascends, no finer than the runs of the sample.
        assert!((0.3..0.7).contains(&share(&[between(3, 1_000, 2_999)])));
        assert!((0.0001..0.0004).contains(&share(&[between(1, 77, 77)])), "{}", share(&[between(1, 77, 77)]));
        assert!((0.4..0.6).contains(&share(&[between(2, 0, 9)])));
        assert!(share(&[between(2, 0, 9), between(2, 10, 19)]) < 0.001, "none meets both");
        let mut design = Design::of(&table);
        design.indexes.push(IndexDesign { name: "i".into(), columns: vec![1], unique: false, hashed: false });
        design.elves.push(ElfDesign { name: "e".into(), columns: vec![1, 2] });
        let first = |filters: &[ColumnFilter], columns: &[usize]| {
            design.paths(&statistics, &profile(filters, columns)).remove(0).path
        };
        let all = first(&[], &[1]);
        let wide = first(&[between(1, 0, 4_000)], &[1]);
        match layout {
            TableLayout::Rows => {
                assert_eq!((all, wide), (AccessPath::Rows, AccessPath::Rows));
                assert_eq!(first(&[between(0, 7, 7)], &[1]), AccessPath::Keys);
                assert_eq!(first(&[between(1, 5, 5)], &[2]), AccessPath::Index("i".into()));
            }
            _ => assert_eq!((all, wide), (AccessPath::Columns, AccessPath::Columns)),
        }
        catalog.drop_table("t").unwrap();
    }
}
