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
//! Deletes are omitted. With the rows before they are tuples too: each has the columns of the table, those of the row before,
//! the change type, and NULL in place of the timestamp of the commit. Of `OnCommit` these changes are those that the change log
//! of the table gets at the commit: a key that was inserted and deleted has none, one that was written with the values that it
//! had is an update. Watermarks of an `OnCommit` stream are delayed until its tuples were sent.

use crate::UTC;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::written_rows::SentForm;
use crate::operators::{Context, Operator, Output, current_of, extends};
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, DataType};
use arrow_select::filter::filter_record_batch;
use entresol_tables::{BatchBuilder, ChangeKind, Column, Table, arrow_schema};
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
    /// True if rows before, change types and deletes are sent.
    pub(crate) with_before: bool,
    /// Form of the tuples that it receives.
    pub(crate) received: SentForm,
    pub(crate) held_watermark: Option<EventTime>,
}

impl ToStream {
    /// Changes of the transaction.
    fn changed(&self, context: &Context<'_>) -> Result<Batch> {
        let transaction = context.transaction()?;
        if self.with_before {
            return Ok(self.table.open_changes(transaction, self.width)?.into());
        }
        let mut tuples = BatchBuilder::new(&self.columns, 0);
        for mut tuple in self.table.changes(transaction)?.into_iter().filter_map(|change| change.row) {
            tuple.truncate(self.width);
            let pushed = tuples.push(&tuple);
            pushed.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(tuples.finish().into())
    }

    /// Tuples of this stream, of what TO_TABLE has sent.
    fn written(&self, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<usize> = (0..self.width).collect();
        if self.received != SentForm::Changes {
            return rows.project(&columns);
        }
        let kind = rows.num_columns() - 1;
        if !self.with_before {
            let is_written = rows.column(kind).as_string::<i32>().iter();
            let is_written: BooleanArray =
                is_written.map(|kind| Some(kind != Some(ChangeKind::Delete.name()))).collect();
            return filter_record_batch(&rows.project(&columns)?, &is_written);
        }
        columns.extend(kind / 2..kind / 2 + self.width);
        columns.push(kind);
        let mut changes = rows.project(&columns)?.columns().to_vec();
        changes.push(new_null_array(&DataType::Int64, rows.num_rows()));
        RecordBatch::try_new(arrow_schema(&self.columns, UTC), changes)
    }
}

impl Operator for ToStream {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    /// Receives what TO_TABLE has written; only with `EachTuple`.
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
