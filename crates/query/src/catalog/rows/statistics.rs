//! Rows of `pg_stats`: statistics of columns, of tables that the session's role may read.

use crate::catalog::cell::Cell;
use crate::catalog::relation::Rows;
use crate::catalog::view::View;
use crate::privileges::Privileges;
use crate::schema_names::SCHEMA;
use datafusion::common::Result as DFResult;
use entresol_tables::statistics::{AnalyzedColumn, AnalyzedTable};
use entresol_tables::{Column, Table, Value};

/// Share of the rows from which on different values are a share of them, as in PostgreSQL.
const DISTINCT_SHARE_MIN: f64 = 0.1;

/// The content of `pg_stats`.
pub(crate) fn columns(view: &View) -> DFResult<Rows> {
    let readable =
        view.tables.iter().filter(|table| view.variables.authority.has(Privileges::SELECT, table.name()));
    let of_table = |table: &std::sync::Arc<Table>| {
        let Some(analyzed) = table.analyzed() else { return Rows::new() };
        let columns = table.schema().visible_columns().iter().enumerate();
        let row = |(at, column): (usize, &Column)| {
            Some(row(table, column, (&analyzed, analyzed.column(table.schema(), at)?)))
        };
        columns.filter_map(row).collect()
    };
    Ok(readable.flat_map(of_table).collect())
}

fn row(table: &Table, column: &Column, (analyzed, of): (&AnalyzedTable, &AnalyzedColumn)) -> Vec<Cell> {
    let shown = |value: &Value| value.display(column.data_type).to_string();
    let list = |values: Vec<String>| if values.is_empty() { Cell::Null } else { Cell::Texts(values) };
    let distinct = if of.distinct > DISTINCT_SHARE_MIN * analyzed.rows {
        -(of.distinct / analyzed.rows.max(1.0)).min(1.0)
    } else {
        of.distinct
    };
    vec![
        SCHEMA.into(),
        table.name().into(),
        column.name.as_str().into(),
        false.into(),
        Cell::Real(of.nulls),
        (of.bytes.round() as i64).into(),
        Cell::Real(distinct),
        list(of.common.iter().map(|(value, _)| shown(value)).collect()),
        list(of.common.iter().map(|(_, share)| format!("{share:.6}")).collect()),
        list(of.bounds.iter().map(shown).collect()),
        of.least.as_ref().map(shown).into(),
        of.greatest.as_ref().map(shown).into(),
    ]
}
