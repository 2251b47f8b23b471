//! TO_STREAM: the changes of a table as a stream (dissertation 5.1.1), by trigger policy.
//!
//! Both policies stay inside the transaction that made the changes, so what the continuation writes commits
//! with its cause, all or nothing, exactly once over crashes:
//!
//! - `EachTuple`: every tuple that a TO_TABLE of this topology writes is sent at once.
//! - `OnCommit`: when the commit punctuation has reached every operator that writes the table, the
//!   transaction's write set of that table is sent: one tuple per changed key, with its last value, in key
//!   order.
//!   This is just before the commit becomes visible, instead of in a follow-up transaction after it: a
//!   follow-up would need a durable queue to be exactly once, and readers would see the cause without its
//!   effect. External sinks behind the continuation still emit only after the commit has succeeded.
//!
//! Deletes are omitted, or (with changes) marked by TRUE in a last column `deleted_`; such tuples have NULL
//! in all columns but the key's. Watermarks of an `OnCommit` stream are delayed until its tuples were sent.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::{Context, Operator, Output, current_of, extends};
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;
use entresol_tables::{BatchBuilder, Column, Table, Value};
use std::sync::Arc;

/// Trigger policy of a TO_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Each change is sent when it is written.
    EachTuple,
    /// At the commit punctuation: the last value of each changed key.
    OnCommit,
}

pub(crate) struct ToStream {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Number of the table's columns when the topology was built: later ones are not sent.
    pub(crate) width: usize,
    pub(crate) trigger: Trigger,
    /// Columns of the output.
    pub(crate) columns: Vec<Column>,
    /// True if deletes are sent too, and tuples have the `deleted_` column.
    pub(crate) with_deletes: bool,
    pub(crate) held_watermark: Option<EventTime>,
}

impl ToStream {
    /// Changes of the transaction.
    fn changed(&self, context: &Context<'_>) -> Result<Batch> {
        let schema = self.table.schema();
        let mut tuples = BatchBuilder::new(&self.columns, 0);
        for change in self.table.changes(context.transaction()?)? {
            let deleted = change.row.is_none();
            if deleted && !self.with_deletes {
                continue;
            }
            let mut tuple = change.row.unwrap_or_else(|| {
                let mut row = vec![Value::Null; schema.columns().len()];
                for (&column, value) in schema.key().iter().zip(change.key) {
                    row[column] = value;
                }
                row
            });
            tuple.truncate(self.width);
            if self.with_deletes {
                tuple.push(Value::Boolean(deleted));
            }
            let pushed = tuples.push(&tuple);
            pushed.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(tuples.finish().into())
    }

    /// Rows that TO_TABLE wrote, with their `deleted_` column, as tuples of this stream.
    fn written(&self, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let deleted = rows.num_columns() - 1;
        let mut columns: Vec<usize> = (0..self.width).collect();
        if self.with_deletes {
            columns.push(deleted);
            return rows.project(&columns);
        }
        let is_written = BooleanArray::new(!rows.column(deleted).as_boolean().values(), None);
        filter_record_batch(&rows.project(&columns)?, &is_written)
    }
}

impl Operator for ToStream {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    /// Receives the rows that TO_TABLE wrote, with their `deleted_` column; only with `EachTuple`.
    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let written = self.written(batch.rows());
        let refused =
            |error: ArrowError| Error::Tuple { operator: self.name.clone(), reason: error.to_string() };
        output.push(written.map_err(refused)?.into());
        Ok(())
    }

    fn watermark(&mut self, _context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        match self.trigger {
            Trigger::EachTuple => output.watermark(time),
            Trigger::OnCommit => self.held_watermark = Some(time),
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> Result<()> {
        if self.trigger == Trigger::OnCommit {
            output.push(self.changed(context)?);
            if let Some(time) = self.held_watermark.take() {
                output.watermark(time);
            }
        }
        Ok(())
    }

    fn aborted(&mut self) {
        self.held_watermark = None;
    }

    fn redefined(&mut self) -> Result<()> {
        self.table = current_of(&self.name, &self.table, extends)?;
        Ok(())
    }
}
