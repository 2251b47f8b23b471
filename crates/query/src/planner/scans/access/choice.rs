//! Choice of an access that can be made again, with other values of the parameters in its filters.

use crate::planner::scans::access::known::FilterColumns;
use crate::planner::scans::access::{Access, Analysis, Coverage, choose};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::Expr;
use entresol_tables::Table;
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
        let is_read = |coverage: &Coverage| *coverage == Coverage::Exact;
        let mut both = self.coverage.iter().zip(&coverage);
        let fits = both.all(|(first, now)| !is_read(first) || is_read(now))
            && is_as_ordered(&access, &self.access)
            && decides(table, &access);
        Ok(fits.then_some(access))
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
