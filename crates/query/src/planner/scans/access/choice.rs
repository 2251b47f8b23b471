//! Choice of an access that can be made again, with other values of the parameters in its filters.

use crate::error::{Error, external};
use crate::planner::scans::access::columns::{ColumnAnalysis, column_filters};
use crate::planner::scans::access::known::FilterColumns;
use crate::planner::scans::access::{Access, Analysis, Coverage, choose};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::Expr;
use entresol_tables::{ColumnFilter, IteratorChoice, Table};
use entresol_transactions::Transaction;

/// Filters of a scan, and the access that was chosen for them.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Filters with parameters in the place of values.
    filters: Vec<Expr>,
    columns: FilterColumns,
    /// Coverage of each filter: those that are exact are not applied again.
    coverage: Vec<Coverage>,
    pub(crate) access: Access,
}

impl Choice {
    /// Choice that an analysis of these filters, with some values, came to; `None` for a scan that others than the
    /// access decide about.
    pub(crate) fn new(
        table: &Table,
        columns: FilterColumns,
        filters: &[Expr],
        analysis: &Analysis,
    ) -> Option<Choice> {
        let Analysis { access, coverage } = analysis;
        let choice =
            Choice { filters: filters.to_vec(), columns, coverage: coverage.clone(), access: access.clone() };
        decides(table, access).then_some(choice)
    }

    /// Access for other values; `None` if a plan that relies on the first does not fit it.
    pub(crate) fn again(
        &self,
        table: &Table,
        transaction: &Transaction,
        values: &[ScalarValue],
    ) -> DFResult<Option<Access>> {
        let filters = self.filters.iter().map(|filter| self.columns.with_values(filter, values));
        let filters = filters.collect::<DFResult<Vec<_>>>()?;
        let Analysis { access, coverage } = choose(table, transaction, &filters);
        let fits = covers(&coverage, &self.coverage)
            && is_as_ordered(&access, &self.access)
            && decides(table, &access);
        Ok(fits.then_some(access))
    }
}

/// Filters of a scan by columns, and whether it applies them.
#[derive(Debug)]
pub(crate) struct ColumnChoice {
    /// Filters with parameters in the place of values.
    filters: Vec<Expr>,
    columns: FilterColumns,
    /// Coverage of each filter by the scan's conditions.
    coverage: Vec<Coverage>,
}

impl ColumnChoice {
    /// Choice of the conditions that cover filters so.
    pub(crate) fn new(columns: FilterColumns, filters: &[Expr], coverage: &[Coverage]) -> ColumnChoice {
        ColumnChoice { filters: filters.to_vec(), columns, coverage: coverage.to_vec() }
    }

    /// Conditions for other values, and how a clustered table is read for them; `None` if a plan that relies on the
    /// first ones does not fit them.
    pub(crate) fn again(
        &self,
        table: &Table,
        transaction: &Transaction,
        values: &[ScalarValue],
    ) -> DFResult<Option<(Vec<ColumnFilter>, Option<IteratorChoice>)>> {
        let filters = self.filters.iter().map(|filter| self.columns.with_values(filter, values));
        let filters = filters.collect::<DFResult<Vec<_>>>()?;
        let Analysis { access, .. } = choose(table, transaction, &filters);
        let ColumnAnalysis { filters: conditions, coverage } = column_filters(table.schema(), &filters);
        let iterator = chosen_iterator(table, transaction, &access, &conditions)?;
        let fits = covers(&coverage, &self.coverage)
            && is_by_columns(table, &access, transaction)?
            && !iterator.is_some_and(|iterator| iterator.is_by_places());
        Ok(fits.then_some((conditions, iterator)))
    }
}

/// Returns true if all filters that a scan applied are still applied by it.
fn covers(now: &[Coverage], first: &[Coverage]) -> bool {
    let is_read = |coverage: &Coverage| *coverage == Coverage::Exact;
    first.iter().zip(now).all(|(first, now)| !is_read(first) || is_read(now))
}

/// Returns true if a scan of these rows reads the table column by column.
pub(crate) fn is_by_columns(table: &Table, access: &Access, transaction: &Transaction) -> DFResult<bool> {
    match access {
        Access::Point(_) | Access::Keys(_) => Ok(false),
        Access::Index { name, within } if table.has_row_groups() => match table.index(name) {
            Some(index) => {
                table.finds_few(transaction, index, &within.index_bounds()).map(|few| !few).map_err(external)
            }
            None => Ok(true),
        },
        Access::Full | Access::Ranges(_) | Access::Index { .. } => Ok(table.has_row_groups()),
    }
}

/// Choice of the iterator over ranges of a clustered table.
pub(crate) fn chosen_iterator(
    table: &Table,
    transaction: &Transaction,
    access: &Access,
    conditions: &[ColumnFilter],
) -> DFResult<Option<IteratorChoice>> {
    match access {
        Access::Ranges(_) => table
            .choose_iterator(transaction, &access.scan_ranges(), conditions)
            .map_err(|error| external(Error::from(error))),
        _ => Ok(None),
    }
}

/// Returns true if the access alone decides how the rows are read: those of row groups are read by column otherwise.
fn decides(table: &Table, access: &Access) -> bool {
    !table.has_row_groups() || access.rows_max().is_some() || access.index().is_some()
}

/// Returns true if the rows of an access are in every order in which those of another are.
fn is_as_ordered(access: &Access, other: &Access) -> bool {
    access.rows_max().is_some_and(|rows| rows <= 1)
        || access.index() == other.index()
            && access.within().fixed_columns() >= other.within().fixed_columns()
}
