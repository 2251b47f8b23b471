//! `entresol.workload`: what queries asked of each table, and the rows that were read by key and written; and
//! `entresol.advice`: changes of layouts and indexes that make that cheaper.

use crate::catalog::definitions::quoted;
use crate::error::external;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_tables::advice::{Change, Proposal, advise};
use entresol_tables::cost::{QueryProfile, TableStatistics};
use entresol_tables::workload::{ClassCounts, QueryClass};
use entresol_tables::{Catalog, Table};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Bounds of the selectivity classes, ascending, with their names.
const SELECTIVITIES: [(f64, &str); 4] = [(0.001, "< 0.1%"), (0.01, "< 1%"), (0.1, "< 10%"), (0.5, "< 50%")];

/// Row of `entresol.workload`.
#[derive(Default)]
struct WorkloadRow {
    table: String,
    kind: &'static str,
    conditions: Option<String>,
    columns: Option<String>,
    runs: u64,
    rows: Option<u64>,
    bytes: Option<u64>,
    selectivity: Option<f64>,
    elapsed_ms: Option<f64>,
}

/// Name of the class of a selectivity.
fn selectivity_class(share: f64) -> &'static str {
    SELECTIVITIES.iter().find(|(bound, _)| share < *bound).map_or("many", |(_, name)| name)
}

/// Content of `entresol.workload`.
pub(crate) fn recorded(catalog: &Catalog) -> DFResult<RecordBatch> {
    let tx = catalog.begin().map_err(external)?;
    let mut rows = Vec::new();
    for table in catalog.tables() {
        rows.extend(rows_of(&table, &tx));
    }
    let text = |of: &dyn Fn(&WorkloadRow) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&WorkloadRow) -> Option<u64>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| of(row).map(u64::cast_signed)).collect::<Int64Array>())
    };
    let float = |of: &dyn Fn(&WorkloadRow) -> Option<f64>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Float64Array>())
    };
    let class = |row: &WorkloadRow| row.selectivity.map(|share| selectivity_class(share).to_owned());
    let columns: [(&str, ArrayRef); 10] = [
        ("table", text(&|row| Some(row.table.clone()))),
        ("kind", text(&|row| Some(row.kind.to_owned()))),
        ("conditions", text(&|row| row.conditions.clone())),
        ("columns", text(&|row| row.columns.clone())),
        ("runs", number(&|row| Some(row.runs))),
        ("rows", number(&|row| row.rows)),
        ("bytes", number(&|row| row.bytes)),
        ("selectivity", float(&|row| row.selectivity)),
        ("selectivity_class", text(&class)),
        ("elapsed_ms", float(&|row| row.elapsed_ms)),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))?)
}

/// Rows of a table: its query classes, the operations by key, and uses of indexes.
fn rows_of(table: &Arc<Table>, tx: &Transaction) -> Vec<WorkloadRow> {
    let (mut rows, classes) = (Vec::new(), table.workload().classes());
    if !classes.is_empty() {
        let statistics = readable(table, TableStatistics::of(table, tx));
        rows.extend(classes.iter().map(|class| class_row(table, statistics.as_ref(), class)));
    }
    let counts = table.workload().row_counts();
    let by_key = [
        ("read by key", counts.read),
        ("insert", counts.inserted),
        ("update", counts.updated),
        ("delete", counts.deleted),
    ];
    let of_table = || WorkloadRow { table: table.name().to_owned(), ..WorkloadRow::default() };
    let by_key = by_key.into_iter().filter(|(_, count)| *count > 0);
    rows.extend(by_key.map(|(kind, runs)| WorkloadRow { kind, runs, ..of_table() }));
    let indexes = table.indexes().iter().map(|index| index.name().to_owned());
    let elves = table.definition().elves.iter().map(|elf| elf.name.clone());
    rows.extend(indexes.chain(elves).map(|name| WorkloadRow {
        kind: "index",
        runs: table.workload().index_uses(&name),
        conditions: Some(name),
        ..of_table()
    }));
    rows
}

/// Result about a table; none if the table cannot be read, which the rows of other tables do not suffer from.
fn readable<T>(table: &Table, computed: entresol_tables::Result<T>) -> Option<T> {
    let warn = |error: &entresol_tables::Error| {
        tracing::warn!(table = table.name(), %error, "left out of entresol.workload and entresol.advice");
    };
    computed.inspect_err(warn).ok()
}

fn class_row(
    table: &Table,
    statistics: Option<&TableStatistics>,
    (class, counts): &(QueryClass, ClassCounts),
) -> WorkloadRow {
    let columns = table.schema().visible_columns();
    let name = |column: usize| columns.get(column).map_or("?", |column| column.name.as_str());
    let conditions = class.conditions.iter().map(|(column, kind)| format!("{} {kind}", name(*column)));
    let selectivity = statistics.map(|statistics| {
        let share = |example: &Arc<[entresol_tables::ColumnFilter]>| {
            QueryProfile::new(statistics, example, &class.columns).share()
        };
        counts.examples.iter().map(share).sum::<f64>() / counts.examples.len().max(1) as f64
    });
    let row_bytes = statistics.map(|statistics| {
        let columns = class.columns.iter().filter_map(|column| statistics.columns.get(*column));
        columns.map(|of| of.bytes).sum::<f64>()
    });
    WorkloadRow {
        table: table.name().to_owned(),
        kind: "query",
        conditions: Some(conditions.collect::<Vec<_>>().join(", ")),
        columns: Some(class.columns.iter().map(|column| name(*column)).collect::<Vec<_>>().join(", ")),
        runs: counts.runs,
        rows: Some(counts.rows),
        bytes: row_bytes.map(|bytes| (counts.rows as f64 * bytes) as u64),
        selectivity,
        elapsed_ms: Some(counts.elapsed.as_secs_f64() * 1e3),
    }
}

/// Row of `entresol.advice`.
struct AdviceRow {
    table: String,
    rank: Option<i32>,
    statement: Option<String>,
    gain: Option<f64>,
    before_ms: Option<f64>,
    after_ms: Option<f64>,
    why: String,
}

/// Content of `entresol.advice`.
pub(crate) fn advice(catalog: &Catalog) -> DFResult<RecordBatch> {
    let tx = catalog.begin().map_err(external)?;
    let mut rows = Vec::new();
    for table in catalog.tables() {
        rows.extend(decision(&table));
        rows.extend(chosen_structure(&table));
        let Some(proposals) = readable(&table, advise(&table, &tx)) else { continue };
        let follows = |proposal: &Proposal| {
            let of_layout = matches!(proposal.change, Change::SetLayout(_) | Change::Cluster(_));
            table.definition().auto_layout && of_layout
        };
        let proposals = proposals.iter().filter(|proposal| !follows(proposal));
        rows.extend(proposals.zip(1..).map(|(proposal, rank)| proposed(&table, proposal, rank)));
    }
    let float = |of: &dyn Fn(&AdviceRow) -> Option<f64>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Float64Array>())
    };
    let columns: [(&str, ArrayRef); 7] = [
        ("table", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.table)))),
        ("rank", Arc::new(rows.iter().map(|row| row.rank).collect::<Int32Array>())),
        ("statement", Arc::new(rows.iter().map(|row| row.statement.clone()).collect::<StringArray>())),
        ("gain", float(&|row| row.gain)),
        ("before_ms", float(&|row| row.before_ms)),
        ("after_ms", float(&|row| row.after_ms)),
        ("why", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.why)))),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))?)
}

/// Row about what was decided for a table with the layout `auto`.
fn decision(table: &Table) -> Option<AdviceRow> {
    let decided = table.layout_decision()?;
    let verb = if decided.is_change { "changed to" } else { "stays" };
    Some(AdviceRow {
        table: table.name().to_owned(),
        rank: None,
        statement: None,
        gain: decided.is_change.then(|| 1.0 - decided.after_ms / decided.before_ms),
        before_ms: Some(decided.before_ms),
        after_ms: Some(decided.after_ms),
        why: format!("layout 'auto' {verb} '{}': {}", decided.layout.name(), decided.why),
    })
}

/// Row about the structure that was chosen for a table with the structure `auto`.
fn chosen_structure(table: &Table) -> Option<AdviceRow> {
    let reason = table.definition().structure_reason.as_ref()?;
    Some(AdviceRow {
        table: table.name().to_owned(),
        rank: None,
        statement: None,
        gain: None,
        before_ms: None,
        after_ms: None,
        why: format!("structure 'auto' was chosen when the table was created: {reason}"),
    })
}

fn proposed(table: &Table, proposal: &Proposal, rank: i32) -> AdviceRow {
    AdviceRow {
        table: table.name().to_owned(),
        rank: Some(rank),
        statement: Some(statement(table, &proposal.change)),
        gain: Some(proposal.gain()),
        before_ms: Some(proposal.before_ms),
        after_ms: Some(proposal.after_ms),
        why: proposal.why.clone(),
    }
}

/// Statement that carries out a change.
fn statement(table: &Table, change: &Change) -> String {
    let name = quoted(table.name());
    match change {
        Change::CreateIndex(columns) => format!("CREATE INDEX ON {name} ({})", names(table, columns)),
        Change::CreateElf(columns) => format!("CREATE INDEX ON {name} USING elf ({})", names(table, columns)),
        Change::SetLayout(layout) => format!("ALTER TABLE {name} SET (layout = '{}')", layout.name()),
        Change::DropIndex(index) => format!("DROP INDEX {}", quoted(index)),
        Change::Cluster(dimensions) => {
            let dimensions = names(table, dimensions);
            format!("ALTER TABLE {name} SET (layout = 'clustered', cluster_by = ({dimensions}))")
        }
    }
}

/// Names of columns, quoted where they have to be.
fn names(table: &Table, columns: &[usize]) -> String {
    let names = columns.iter().map(|column| quoted(&table.schema().columns()[*column].name));
    names.collect::<Vec<_>>().join(", ")
}
