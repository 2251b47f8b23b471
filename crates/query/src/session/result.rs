//! Results of statements.

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use std::sync::Arc;

/// Result of a statement. Its rows are collected, or come as they are computed ([`Outcome`]).
#[derive(Clone)]
pub enum StatementResult<R = CollectedRows> {
    /// Rows of a query.
    Rows(R),
    /// Rows were changed.
    Count {
        /// INSERT, UPDATE, DELETE, MERGE or CREATE TABLE AS; MOVE, for rows that were skipped.
        verb: &'static str,
        /// Number of rows.
        rows: u64,
    },
    /// Rows were changed, and RETURNING computed rows from them.
    Returned {
        /// INSERT, UPDATE, DELETE or MERGE.
        verb: &'static str,
        /// Number of changed rows.
        rows: u64,
        /// Rows of RETURNING.
        returned: R,
    },
    /// Any other statement succeeded.
    Done {
        /// Command tag: CREATE TABLE, COMMIT and the like; empty for an empty query text.
        verb: &'static str,
    },
}

/// Collected rows.
#[derive(Debug, Clone)]
pub struct CollectedRows {
    /// Columns of the rows.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

/// Result of a run of a prepared statement: its rows are computed as the stream is read, and their snapshot
/// lives as long as it does. If the stream fails inside of a block, the block has failed.
pub type Outcome = StatementResult<SendableRecordBatchStream>;

/// Result of a statement on the fast path.
#[derive(Debug)]
pub enum FastPathResult {
    /// Rows of a query: their columns, and a batch if there are any rows.
    Rows(SchemaRef, Option<RecordBatch>),
    /// INSERT, UPDATE or DELETE, and the number of changed rows.
    Count(&'static str, u64),
}

impl CollectedRows {
    /// Converts the rows to a stream.
    pub fn stream(self) -> SendableRecordBatchStream {
        let batches = futures::stream::iter(self.batches.into_iter().map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(self.schema, batches))
    }
}

impl StatementResult {
    /// Converts the result to one with its rows as a stream.
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

impl From<FastPathResult> for StatementResult {
    fn from(result: FastPathResult) -> StatementResult {
        match result {
            FastPathResult::Rows(schema, batch) => {
                StatementResult::Rows(CollectedRows { schema, batches: Vec::from_iter(batch) })
            }
            FastPathResult::Count(verb, rows) => StatementResult::Count { verb, rows },
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
