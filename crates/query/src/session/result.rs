//! What statements give.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

/// What a statement gave. Its rows are collected, or come as they are computed ([`Outcome`]).
#[derive(Clone)]
pub enum StatementResult<R = Collected> {
    /// Rows of a query.
    Rows(R),
    /// Rows were changed.
    Count {
        /// INSERT, UPDATE, DELETE or CREATE TABLE AS; MOVE, for rows that were passed by.
        verb: &'static str,
        /// How many.
        rows: u64,
    },
    /// Rows were changed, and RETURNING asked for something of them.
    Returned {
        /// INSERT, UPDATE or DELETE.
        verb: &'static str,
        /// How many were changed.
        rows: u64,
        /// What is returned.
        returned: R,
    },
    /// Anything else was done.
    Done {
        /// What: CREATE TABLE, COMMIT and the like; empty for a text without a statement.
        verb: &'static str,
    },
}

/// Rows that are there.
#[derive(Debug, Clone)]
pub struct Collected {
    /// Their columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

/// What running a prepared statement gave: its rows are computed as the stream is read, and their snapshot lives as
/// long as it does. If it fails inside of a block, the block has failed.
pub type Outcome = StatementResult<SendableRecordBatchStream>;

/// What a short statement gave.
#[derive(Debug)]
pub enum Short {
    /// Rows of a query: their columns, and the rows if there are any.
    Rows(SchemaRef, Option<RecordBatch>),
    /// INSERT, UPDATE or DELETE, and how many rows were changed.
    Count(&'static str, u64),
}

impl Collected {
    /// The rows as a stream.
    pub fn stream(self) -> SendableRecordBatchStream {
        let batches = futures::stream::iter(self.batches.into_iter().map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(self.schema, batches))
    }
}

impl StatementResult {
    /// The same with its rows as a stream.
    pub fn stream(self) -> Outcome {
        match self {
            StatementResult::Rows(rows) => StatementResult::Rows(rows.stream()),
            StatementResult::Count { verb, rows } => StatementResult::Count { verb, rows },
            StatementResult::Returned { verb, rows, returned } => {
                StatementResult::Returned { verb, rows, returned: returned.stream() }
            }
            StatementResult::Done { verb } => StatementResult::Done { verb },
        }
    }
}

impl From<Short> for StatementResult {
    fn from(short: Short) -> StatementResult {
        match short {
            Short::Rows(schema, batch) => {
                StatementResult::Rows(Collected { schema, batches: Vec::from_iter(batch) })
            }
            Short::Count(verb, rows) => StatementResult::Count { verb, rows },
        }
    }
}

/// Schema of string columns.
pub(crate) fn texts(names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    Arc::new(Schema::new(fields))
}

/// Without the rows, which may be a stream.
impl<R> std::fmt::Debug for StatementResult<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StatementResult::Rows(_) => f.write_str("Rows"),
            StatementResult::Count { verb, rows } => write!(f, "Count({verb} {rows})"),
            StatementResult::Returned { verb, rows, .. } => write!(f, "Returned({verb} {rows})"),
            StatementResult::Done { verb } => write!(f, "Done({verb})"),
        }
    }
}
