//! Writer of new rows: the one way of INSERT, MERGE, COPY and CREATE TABLE AS into a table.
//!
//! ```text
//!   batches ─▶ types ─▶ defaults ─▶ NOT NULL, checks ─▶ conflicts ─▶ RETURNING ─▶ unique keys, indexes, table
//! ```
//!
//! - Rows come as record batches. The few of VALUES that need no planning are rows of values, and so are those
//!   of ON CONFLICT, which looks at each.
//! - A stage that the table or the statement does not have costs nothing: a plain table's rows are written as
//!   they are.
//! - Rows of a query are written batch by batch, as they are computed; all of them are computed first if the
//!   statement reads its own table, or has subqueries in RETURNING or DO UPDATE, which see the table before
//!   the statement.
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! - A statement that is a transaction of its own loads an empty table outside of the write set
//!   ([`Table::begin_load`]), once it comes with a large first batch.
//!
//! Memory: one batch; the rows that RETURNING returns; for ON CONFLICT the keys of all rows.

use crate::dml::assignment;
use crate::dml::completion::RowCompletion;
use crate::dml::conflict::{OnConflict, ResolvedRows};
use crate::dml::returning::Returning;
use crate::error::Result;
use crate::session::core::SessionCore;
use crate::session::loads::LoadProgress;
use crate::session::query_memory::bytes_of;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::LogicalPlan;
use entresol_tables::{Row, Table, batch_to_rows};
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;

/// Least number of rows of a first batch, or of bytes, with which an empty table is loaded: fewer do not pay for an
/// index of their own.
const LOADED_ROWS_MIN: usize = 4096;
const LOADED_BYTES_MIN: usize = 1 << 20;

/// Writer of new rows into a table; see the [module](self).
pub(crate) struct TableWriter {
    rows: RowCompletion,
    conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
    /// True if the statement is a transaction of its own, so that it may load an empty table.
    alone: bool,
    progress: Arc<LoadProgress>,
    /// Number of rows written so far.
    pub(crate) written: u64,
}

impl TableWriter {
    /// Writer of rows for which a statement gives these columns.
    pub(crate) fn new(session: &SessionCore, table: &Arc<Table>, given: &[usize]) -> Result<TableWriter> {
        Ok(TableWriter {
            rows: RowCompletion::new(|| session.context.state(), &session.zone, table, given)?,
            conflict: None,
            returning: None,
            alone: false,
            progress: Arc::new(LoadProgress::begin(table.name())),
            written: 0,
        })
    }

    /// The same writer for a statement with these clauses.
    pub(crate) fn with(self, conflict: Option<OnConflict>, returning: Option<Returning>) -> TableWriter {
        let rows = self.rows.seen(conflict.is_some() || returning.is_some());
        TableWriter { rows, conflict, returning, ..self }
    }

    /// The same writer for a statement that returns its rows.
    pub(crate) fn returned(self, returned: bool) -> TableWriter {
        TableWriter { rows: self.rows.seen(returned), ..self }
    }

    /// The same writer for a statement that is a transaction of its own, if it is.
    pub(crate) fn alone(self, alone: bool) -> TableWriter {
        TableWriter { alone, ..self }
    }

    /// The same writer, whose progress a session shows.
    pub(crate) fn shown(self, session: &SessionCore) -> TableWriter {
        session.snapshots.show_load(&self.progress);
        self
    }

    /// Writes a complete batch: into the write set, or into the load of an empty table.
    fn put(&self, tx: &Transaction, batch: &RecordBatch) -> Result<()> {
        let is_large = batch.num_rows() >= LOADED_ROWS_MIN || bytes_of(batch) >= LOADED_BYTES_MIN;
        let may_begin = self.alone && is_large && !tx.is_loading();
        let loads = tx.is_loading() || (may_begin && self.table().begin_load(tx)?);
        if loads {
            self.table().load(tx, batch)?;
        } else {
            self.table().append(tx, batch)?;
        }
        self.progress.add(batch.num_rows(), loads);
        Ok(())
    }

    /// Writes what a load has collected.
    pub(crate) fn finish(&self, tx: &Transaction) -> Result<()> {
        if tx.is_loading() { Ok(self.table().finish_load(tx)?) } else { Ok(()) }
    }

    /// Table of the rows.
    pub(crate) fn table(&self) -> &Arc<Table> {
        self.rows.table()
    }

    /// Progress of the statement.
    pub(crate) fn progress(&self) -> &Arc<LoadProgress> {
        &self.progress
    }

    /// Columns that the statement gives.
    pub(crate) fn given(&self) -> &[usize] {
        self.rows.given()
    }

    /// Fills the defaults into rows.
    pub(crate) fn complete(&self, rows: &mut [Row]) -> Result<()> {
        self.rows.fill_defaults(rows)
    }

    /// Inserts rows of the given columns, whose arrays are of exactly their types, without ON CONFLICT and
    /// RETURNING. On an error none of them is written.
    pub(crate) fn insert_given(&self, tx: &Transaction, given: Vec<ArrayRef>, rows: usize) -> Result<()> {
        self.put(tx, &self.rows.checked(given, rows)?)
    }

    /// Arrays of exactly the types of the given columns, or of the first of them.
    fn converted(&self, session: &SessionCore, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let columns = self.table().schema().columns();
        let given = self.given().iter().zip(values);
        let given = given.map(|(&column, array)| {
            assignment::array(self.table().name(), &columns[column], array, &session.zone)
        });
        given.collect()
    }

    /// Batch of the visible columns from computed values of the given ones, complete and checked, for the
    /// caller to write.
    pub(crate) fn checked(
        &self,
        session: &SessionCore,
        values: &[ArrayRef],
        rows: usize,
    ) -> Result<RecordBatch> {
        self.rows.checked(self.converted(session, values)?, rows)
    }

    /// Writes a batch whose columns are the given ones, or the first of them.
    async fn write_batch(
        &mut self,
        session: &SessionCore,
        tx: &Arc<Transaction>,
        batch: &RecordBatch,
    ) -> Result<()> {
        let complete = self.rows.completed(self.converted(session, batch.columns())?, batch.num_rows())?;
        if self.conflict.is_some() {
            let columns = self.table().schema().visible_columns();
            let rows = batch_to_rows(self.table().name(), columns, &complete)?;
            return self.write(session, tx, rows).await;
        }
        self.rows.check_batch(&complete)?;
        if let Some(returning) = &mut self.returning {
            returning.add_batch(session, &complete).await?;
        }
        self.written += complete.num_rows() as u64;
        self.put(tx, &complete)
    }

    /// Inserts complete rows, without ON CONFLICT and RETURNING; returns their number. On an error none of
    /// them is written.
    fn insert(&self, tx: &Transaction, rows: &[Row]) -> Result<u64> {
        self.rows.check(rows)?;
        insert_rows(tx, self.table(), rows)
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
        self.rows.check(&rows)?;
        let resolved = match &mut self.conflict {
            None => ResolvedRows::new(rows),
            Some(conflict) => conflict.resolve(session, tx, self.rows.table(), rows).await?,
        };
        self.rows.check(resolved.changed())?;
        self.written += resolved.len() as u64;
        if let Some(returning) = &mut self.returning {
            returning.add(session, &resolved.in_order()).await?;
        }
        resolved.write(tx, self.table())
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
            let Some(first) = computed.batches().first() else { return Ok(()) };
            let all = concat_batches(&first.schema(), computed.batches())?;
            self.write_batch(session, tx, &all).await?;
            return self.finish(tx);
        }
        let mut stream = if reads(frame.logical_plan(), self.table())? {
            let schema = Arc::clone(frame.schema().inner());
            RowBuffer::of_query(session, frame).await?.into_stream(schema)
        } else {
            frame.execute_stream().await?
        };
        let mut small = SmallBatches::default();
        while let Some(batch) = stream.next().await {
            if let Some(batch) = small.add(batch?)? {
                self.write_batch(session, tx, &batch).await?;
            }
        }
        if let Some(batch) = small.take()? {
            self.write_batch(session, tx, &batch).await?;
        }
        self.finish(tx)
    }

    /// Returns true if ON CONFLICT or RETURNING read tables, so that all rows have to be computed at once.
    fn reads_tables(&self) -> bool {
        self.conflict.as_ref().is_some_and(OnConflict::reads_tables)
            || self.returning.as_ref().is_some_and(Returning::reads_tables)
    }
}

/// Batches of a query that are written together, up to [`LOADED_ROWS_MIN`] rows or [`LOADED_BYTES_MIN`] bytes: a query
/// whose expressions take long begins with small ones.
#[derive(Default)]
struct SmallBatches {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl SmallBatches {
    /// Adds a batch; returns all if they are large enough to be written.
    fn add(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        self.rows += batch.num_rows();
        self.bytes += bytes_of(&batch);
        self.batches.push(batch);
        if self.rows < LOADED_ROWS_MIN && self.bytes < LOADED_BYTES_MIN {
            return Ok(None);
        }
        self.take()
    }

    /// Returns all batches as one.
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        (self.rows, self.bytes) = (0, 0);
        let mut batches = std::mem::take(&mut self.batches);
        if batches.len() <= 1 {
            return Ok(batches.pop());
        }
        Ok(Some(concat_batches(&batches[0].schema(), &batches)?))
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
