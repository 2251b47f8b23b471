//! Rules of a table for the rows that a step writes: defaults of columns that it gives no values, and checks.
//!
//! They are expressions of SQL, which another library computes. Rows that are taken back, and those that are deleted, have
//! none.

use crate::error::Result;
use arrow_array::RecordBatch;
use entresol_tables::Table;
use std::sync::Arc;

/// Rules of a table; see [`crate::ToTable::rules`] and [`crate::MergeInto::rules`].
pub trait RowRules: Send {
    /// Completes rows of all visible columns, of which those `given` have values: the others get their defaults. Then checks
    /// the rows; an error of one of them is an error of its tuple.
    fn complete(&mut self, given: &[usize], rows: &RecordBatch) -> Result<RecordBatch>;

    /// Ends a transaction: what is fixed within one, such as its time, is another in the next.
    fn end_transaction(&mut self);

    /// Takes the current definition of the table.
    fn redefined(&mut self, table: &Arc<Table>);
}
