//! Writer of new rows: the one way of INSERT, COPY and CREATE TABLE AS into a table.
//!
//! ```text
//!   rows ─▶ defaults ─▶ checks ─▶ conflicts ─▶ RETURNING ─▶ unique keys, indexes, table
//! ```
//!
//! - A stage that the table or the statement does not have costs nothing: a plain table's rows are written as
//!   they are.
//! - Rows of a query are written batch by batch, as they are computed; all of them are computed first if the
//!   statement reads its own table, or has subqueries in RETURNING or DO UPDATE, which see the table before
//!   the statement.
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: one batch; the rows that RETURNING returns; for ON CONFLICT the keys of all rows.

use crate::dml::assignment;
use crate::dml::checks::Checks;
use crate::dml::conflict::{OnConflict, Resolved};
use crate::dml::defaults::Defaults;
use crate::dml::returning::Returning;
use crate::error::Result;
use crate::session::core::SessionCore;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::LogicalPlan;
use entresol_tables::{Row, Table};
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;

/// Writer of new rows into a table; see the [module](self).
pub(crate) struct TableWriter {
    table: Arc<Table>,
    /// Columns that the statement gives; others have their defaults.
    given: Vec<usize>,
    /// None for a plain table.
    rules: Option<Rules>,
    conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
    /// Number of rows written so far.
    pub(crate) written: u64,
}

/// Rules of a table for new rows.
struct Rules {
    defaults: Defaults,
    checks: Checks,
}

impl TableWriter {
    /// Writer of rows for which a statement gives these columns.
    pub(crate) fn new(session: &SessionCore, table: &Arc<Table>, given: &[usize]) -> Result<TableWriter> {
        let rules = if table.is_plain() {
            None
        } else {
            let state = session.context.state();
            let defaults = Defaults::new(state.clone(), table, given)?;
            Some(Rules { defaults, checks: Checks::new(state, table)? })
        };
        Ok(TableWriter {
            table: Arc::clone(table),
            given: given.to_vec(),
            rules,
            conflict: None,
            returning: None,
            written: 0,
        })
    }

    /// The same writer for a statement with these clauses.
    pub(crate) fn with(self, conflict: Option<OnConflict>, returning: Option<Returning>) -> TableWriter {
        TableWriter { conflict, returning, ..self }
    }

    /// Table of the rows.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Columns that the statement gives.
    pub(crate) fn given(&self) -> &[usize] {
        &self.given
    }

    /// Fills the defaults into rows.
    pub(crate) fn complete(&self, rows: &mut [Row]) -> Result<()> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.defaults.fill(rows))
    }

    fn check(&self, rows: &[Row]) -> Result<()> {
        self.rules.as_ref().map_or(Ok(()), |rules| rules.checks.check(rows))
    }

    /// Inserts complete rows, without ON CONFLICT and RETURNING; returns their number. On an error none of
    /// them is written.
    pub(crate) fn insert(&self, tx: &Transaction, rows: &[Row]) -> Result<u64> {
        self.check(rows)?;
        insert_rows(tx, &self.table, rows)
    }

    /// Writes complete rows.
    pub(crate) async fn write(
        &mut self,
        session: &SessionCore,
        tx: &Arc<Transaction>,
        rows: Vec<Row>,
    ) -> Result<()> {
        if self.conflict.is_none() && self.returning.is_none() {
            self.written += self.insert(tx, &rows)?;
            return Ok(());
        }
        self.check(&rows)?;
        let resolved = match &mut self.conflict {
            None => Resolved::new(rows),
            Some(conflict) => conflict.resolve(session, tx, &self.table, rows).await?,
        };
        self.check(resolved.changed())?;
        self.written += resolved.len() as u64;
        if let Some(returning) = &mut self.returning {
            returning.add(session, &resolved.in_order()).await?;
        }
        resolved.write(tx, &self.table)
    }

    /// Writes the rows of a query, whose columns are the given ones.
    pub(crate) async fn write_query(
        &mut self,
        session: &SessionCore,
        tx: &Arc<Transaction>,
        frame: DataFrame,
    ) -> Result<()> {
        if self.reads_tables() {
            let computed = RowBuffer::of_query(session, frame).await?;
            let mut rows = Vec::new();
            for batch in computed.batches() {
                rows.append(&mut self.rows_of(session, batch)?);
            }
            return self.write(session, tx, rows).await;
        }
        if reads(frame.logical_plan(), &self.table)? {
            for batch in RowBuffer::of_query(session, frame).await?.batches() {
                let rows = self.rows_of(session, batch)?;
                self.write(session, tx, rows).await?;
            }
            return Ok(());
        }
        let mut stream = frame.execute_stream().await?;
        while let Some(batch) = stream.next().await {
            let rows = self.rows_of(session, &batch?)?;
            self.write(session, tx, rows).await?;
        }
        Ok(())
    }

    /// Complete rows of a batch.
    fn rows_of(&self, session: &SessionCore, batch: &RecordBatch) -> Result<Vec<Row>> {
        let given = &self.given[..batch.num_columns()];
        let mut rows = assignment::rows(&self.table, given, batch, &session.zone)?;
        self.complete(&mut rows)?;
        Ok(rows)
    }

    /// Returns true if ON CONFLICT or RETURNING read tables, so that all rows have to be computed at once.
    fn reads_tables(&self) -> bool {
        self.conflict.as_ref().is_some_and(OnConflict::reads_tables)
            || self.returning.as_ref().is_some_and(Returning::reads_tables)
    }
}

/// Inserts complete rows that need no checks; returns their number.
pub(crate) fn insert_rows(tx: &Transaction, table: &Table, rows: &[Row]) -> Result<u64> {
    match rows {
        [row] => table.insert(tx, row)?,
        rows => table.insert_many(tx, rows)?,
    }
    Ok(rows.len() as u64)
}

/// Returns true if a plan scans a table of this name; subqueries count.
fn reads(plan: &LogicalPlan, table: &Table) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.table() == table.name()
        {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
