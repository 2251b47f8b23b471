//! Row stream that is read incrementally, by cursors and portals.
//!
//! Memory: one batch beside the needs of the query.

use crate::error::Result;
use crate::session::result::CollectedRows;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time that a reader of rows which never end waits for the first.
pub(crate) const ENDLESS_WAIT: Duration = Duration::from_secs(1);

/// Incrementally read rows; see the [module](self).
pub struct ResultCursor {
    schema: SchemaRef,
    /// Rows still to be computed. The lock is never contended: it makes the session `Sync`.
    stream: Option<Mutex<SendableRecordBatchStream>>,
    /// Current batch, and its first row that is left; there is at least one.
    open: Option<(RecordBatch, usize)>,
    /// True if the rows never end: then a reader gets those that are there.
    is_endless: bool,
}

impl ResultCursor {
    /// Reads the rows of a stream as they are computed.
    pub fn new(stream: SendableRecordBatchStream) -> ResultCursor {
        ResultCursor {
            schema: stream.schema(),
            stream: Some(Mutex::new(stream)),
            open: None,
            is_endless: false,
        }
    }

    /// Reads rows that never end, such as those of a subscription: [`ResultCursor::take`] waits up to
    /// [`ENDLESS_WAIT`] for the first, and for no more.
    pub fn endless(stream: SendableRecordBatchStream) -> ResultCursor {
        ResultCursor { is_endless: true, ..ResultCursor::new(stream) }
    }

    /// Reads rows that are computed already.
    pub fn of_batch(schema: SchemaRef, batch: Option<RecordBatch>) -> ResultCursor {
        let open = batch.filter(|batch| batch.num_rows() > 0).map(|batch| (batch, 0));
        ResultCursor { schema, stream: None, open, is_endless: false }
    }

    /// Columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Current batch and its first row that is left, if a row is buffered.
    pub fn at_hand(&self) -> Option<(&RecordBatch, usize)> {
        self.open.as_ref().map(|(batch, from)| (batch, *from))
    }

    /// Returns true if no row is left, as far as is known without reading on.
    pub fn is_over(&self) -> bool {
        self.open.is_none() && self.stream.is_none()
    }

    /// Reads on unless a row is buffered; false if none is left. Dropping the future loses no row.
    pub async fn fill(&mut self) -> Result<bool> {
        while self.open.is_none() {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            match stream.get_mut().next().await {
                Some(batch) => {
                    let batch = batch?;
                    self.open = (batch.num_rows() > 0).then_some((batch, 0));
                }
                None => self.stream = None,
            }
        }
        Ok(true)
    }

    /// Skips `rows` of the buffered rows.
    pub fn consume(&mut self, rows: usize) {
        self.open = self.open.take().and_then(|(batch, from)| {
            let from = from + rows;
            (from < batch.num_rows()).then_some((batch, from))
        });
    }

    /// Returns the next rows, at most `rows_max`.
    pub async fn take(&mut self, rows_max: u64) -> Result<CollectedRows> {
        let mut batches = Vec::new();
        self.pass(rows_max, |part| batches.push(part)).await?;
        Ok(CollectedRows { schema: self.schema.clone(), batches })
    }

    /// Skips the next rows, at most `rows_max`; returns their number.
    pub async fn skip(&mut self, rows_max: u64) -> Result<u64> {
        self.pass(rows_max, drop).await
    }

    async fn pass(&mut self, rows_max: u64, mut each: impl FnMut(RecordBatch)) -> Result<u64> {
        let mut passed = 0;
        while passed < rows_max {
            let wait = if passed == 0 { ENDLESS_WAIT } else { Duration::ZERO };
            let more = if self.is_endless {
                tokio::time::timeout(wait, self.fill()).await.unwrap_or(Ok(false))?
            } else {
                self.fill().await?
            };
            if !more {
                break;
            }
            let Some((batch, from)) = self.at_hand() else { break };
            let left = usize::try_from(rows_max - passed).unwrap_or(usize::MAX);
            let taken = left.min(batch.num_rows() - from);
            each(batch.slice(from, taken));
            self.consume(taken);
            passed += taken as u64;
        }
        Ok(passed)
    }
}

impl std::fmt::Debug for ResultCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResultCursor")
            .field("schema", &self.schema)
            .field("is_over", &self.is_over())
            .finish()
    }
}

/// An open cursor.
pub(crate) struct Cursor {
    pub(crate) rows: ResultCursor,
    /// Number of savepoints of the block when the cursor was declared.
    pub(crate) savepoints: usize,
}

/// The open cursors of a session, by name.
#[derive(Default)]
pub(crate) struct Cursors(pub(crate) BTreeMap<String, Cursor>);

impl Cursors {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Closes those that are younger than the last of so many savepoints.
    pub(crate) fn rollback_to(&mut self, savepoints: usize) {
        self.0.retain(|_, cursor| cursor.savepoints < savepoints);
    }

    /// The columns of a cursor's rows.
    pub(crate) fn columns(&self, name: &str) -> Option<SchemaRef> {
        self.0.get(name).map(|cursor| cursor.rows.schema().clone())
    }
}
