//! Stream elements: batches of tuples, and punctuations between them.
//!
//! - A [`Batch`] is an Arrow record batch: one array per column of its stream, found by its index; names are
//!   those of the stream, not of the batch.
//! - Batches share their arrays: slices, splits at transaction boundaries and fan-out copy no value. A slice
//!   keeps its whole batch alive; batches live no longer than a transaction.
//! - A batch of changes has a change type per tuple: it is inserted, or it takes back an equal one that was inserted
//!   before ([`Batch::of_changes`]). Only operators behind a running aggregate get such batches.
//! - A tuple of values is the form of closures and tests; [`Batch::tuples`] and
//!   [`entresol_tables::BatchBuilder`] convert.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use entresol_tables::{Value, rows_of};
use std::ops::Range;

/// The values of one stream element, in the order of the stream's columns.
pub type Tuple = Vec<Value>;

/// Element of a channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    /// Batch of tuples, in order.
    Batch(Batch),
    /// Tuples, in order, which a source makes a batch of.
    Tuples(Vec<Tuple>),
    /// A mark between tuples.
    Punctuation(Punctuation),
}

/// Punctuations: marks between tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punctuation {
    /// A transaction begins (dissertation 5.1.2: BOT). Optional: a tuple outside a transaction begins one.
    Begin,
    /// The transaction's tuples are complete.
    Commit,
    /// The transaction is to be aborted.
    Abort,
    /// No tuple with an earlier event time follows.
    Watermark(EventTime),
    /// Nothing follows.
    End,
}

/// Batch of tuples that are processed together.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    rows: RecordBatch,
    /// Change type of each tuple, true if it is taken back; none if all are inserted.
    retracted: Option<BooleanArray>,
}

impl From<RecordBatch> for Batch {
    fn from(rows: RecordBatch) -> Batch {
        Batch { rows, retracted: None }
    }
}

impl Batch {
    /// Batch of changes: a tuple is taken back where `retracted` is true, else it is inserted. There is one truth value
    /// for each tuple, and no NULL.
    pub fn of_changes(rows: RecordBatch, retracted: BooleanArray) -> Batch {
        assert_eq!(rows.num_rows(), retracted.len(), "each tuple has a change type");
        let retracted = Some(retracted).filter(|retracted| retracted.true_count() > 0);
        Batch { rows, retracted }
    }

    /// Change types of the tuples, true of those that are taken back; none if all are inserted.
    pub fn retracted(&self) -> Option<&BooleanArray> {
        self.retracted.as_ref()
    }

    /// Batch with other columns for the same changes.
    pub(crate) fn with_rows(&self, rows: RecordBatch) -> Batch {
        Batch { rows, retracted: self.retracted.clone() }
    }

    /// Record batch of the tuples.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// Array of a column.
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.rows.column(index)
    }

    /// Times in microseconds of a TIMESTAMP, TIMESTAMPTZ or BIGINT column; none if it is of another type, or
    /// has NULL.
    pub fn times(&self, index: usize) -> Option<&[i64]> {
        let column = self.column(index);
        if column.null_count() > 0 {
            return None;
        }
        let times = column.as_primitive_opt::<TimestampMicrosecondType>().map(PrimitiveArray::values);
        let times = times.or_else(|| column.as_primitive_opt::<Int64Type>().map(PrimitiveArray::values));
        times.map(|times| &times[..])
    }

    /// Times of such a column with NULLs.
    pub(crate) fn nullable_times(&self, index: usize) -> Option<Vec<Option<i64>>> {
        let column = self.column(index);
        let times = column.as_primitive_opt::<TimestampMicrosecondType>().map(|times| times.iter().collect());
        times.or_else(|| column.as_primitive_opt::<Int64Type>().map(|times| times.iter().collect()))
    }

    /// Number of tuples.
    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Part of the batch.
    pub fn slice(&self, part: Range<usize>) -> Batch {
        if part == (0..self.len()) {
            return self.clone();
        }
        let retracted = self.retracted.as_ref().map(|retracted| retracted.slice(part.start, part.len()));
        let rows = self.rows.slice(part.start, part.len());
        Batch { rows, retracted: retracted.filter(|retracted| retracted.true_count() > 0) }
    }

    /// Tuples in order. Cost: an allocation for each, and for each string.
    pub fn tuples(&self) -> Result<Vec<Tuple>> {
        rows_of(&self.rows).map_err(Error::from)
    }
}
