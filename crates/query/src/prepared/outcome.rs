//! What running a statement gave, and rows that watch over their block.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as EngineResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, TryStreamExt};

use crate::block::Failure;
use crate::error::Result;
use crate::point::Given;
use crate::session::StatementResult;

/// What running a prepared statement gave.
pub enum Outcome {
    /// Rows of a query, as they are computed. The snapshot lives as long as the stream. If it fails inside of a
    /// block, the block has failed.
    Rows(SendableRecordBatchStream),
    /// Rows were changed.
    Count {
        /// INSERT, UPDATE, DELETE or CREATE TABLE AS.
        verb: &'static str,
        /// How many.
        rows: u64,
    },
    /// Rows were changed, and are returned.
    Returned {
        /// INSERT, UPDATE or DELETE.
        verb: &'static str,
        /// How many.
        rows: u64,
        /// The columns that are returned.
        schema: SchemaRef,
        /// What is returned of the rows.
        batches: Vec<RecordBatch>,
    },
    /// Anything else was done.
    Done {
        /// What: CREATE TABLE, COMMIT and the like; empty for a text without a statement.
        verb: &'static str,
    },
}

impl Outcome {
    /// The same with its rows collected.
    pub async fn collect(self) -> Result<StatementResult> {
        Ok(match self {
            Outcome::Rows(stream) => {
                let schema = stream.schema();
                StatementResult::Rows { schema, batches: stream.try_collect().await? }
            }
            Outcome::Returned { schema, batches, .. } => StatementResult::Rows { schema, batches },
            Outcome::Count { verb, rows } => StatementResult::Count { verb, rows },
            Outcome::Done { verb } => StatementResult::Done { verb },
        })
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Rows(stream) => f.debug_tuple("Rows").field(&stream.schema()).finish(),
            Outcome::Count { verb, rows } | Outcome::Returned { verb, rows, .. } => {
                f.debug_struct("Count").field("verb", verb).field("rows", rows).finish()
            }
            Outcome::Done { verb } => f.debug_struct("Done").field("verb", verb).finish(),
        }
    }
}

impl From<StatementResult> for Outcome {
    fn from(result: StatementResult) -> Outcome {
        match result {
            StatementResult::Rows { schema, batches } => Outcome::Rows(stream_of(schema, batches)),
            StatementResult::Count { verb, rows } => Outcome::Count { verb, rows },
            StatementResult::Done { verb } => Outcome::Done { verb },
            StatementResult::Returned { verb, rows, schema, batches } => {
                Outcome::Returned { verb, rows, schema, batches }
            }
        }
    }
}

/// A stream of batches that are there.
pub(super) fn stream_of(
    schema: SchemaRef,
    batches: impl IntoIterator<Item = RecordBatch, IntoIter: Send + 'static>,
) -> SendableRecordBatchStream {
    let batches = futures::stream::iter(batches.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// What a short statement gave.
#[derive(Debug)]
pub enum Short {
    /// Rows of a query: their columns, and the rows if there are any.
    Rows(SchemaRef, Option<RecordBatch>),
    /// INSERT, UPDATE or DELETE, and how many rows were changed.
    Count(&'static str, u64),
}

impl From<Given> for Short {
    fn from(given: Given) -> Short {
        match given {
            Given::Rows(schema, batch) => Short::Rows(schema, batch),
            Given::Count(verb, rows) => Short::Count(verb, rows),
        }
    }
}

/// Rows of a statement of a block, which fails with them.
pub(super) struct Watched {
    pub(super) stream: SendableRecordBatchStream,
    pub(super) failure: Arc<Failure>,
}

impl Stream for Watched {
    type Item = EngineResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.stream.poll_next_unpin(context);
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.failure.set(error.strip_backtrace());
        }
        polled
    }
}

impl RecordBatchStream for Watched {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
