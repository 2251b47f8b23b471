//! Row buffers of statements, reserved in the memory of their session.

use crate::error::Result;
use crate::session::core::SessionCore;
use crate::session::query_memory::bytes_of;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

/// Batches of rows with their memory reservation, which is released when they are dropped.
#[derive(Debug)]
pub(crate) struct RowBuffer {
    batches: Vec<RecordBatch>,
    reservation: MemoryReservation,
}

impl RowBuffer {
    /// An empty buffer of a session.
    pub(crate) fn new(session: &SessionCore) -> RowBuffer {
        let pool = &session.context.runtime_env().memory_pool;
        RowBuffer {
            batches: Vec::new(),
            reservation: MemoryConsumer::new("rows of a statement").register(pool),
        }
    }

    /// The rows of a query; an error if they do not fit into the memory of the session.
    pub(crate) async fn of_query(session: &SessionCore, frame: DataFrame) -> Result<RowBuffer> {
        let mut stream = frame.execute_stream().await?;
        RowBuffer::new(session).filled_from(&mut stream).await
    }

    /// Adds the rows of a stream to the buffer.
    pub(crate) async fn filled_from(mut self, rows: &mut SendableRecordBatchStream) -> Result<RowBuffer> {
        while let Some(batch) = rows.try_next().await? {
            self.push(batch)?;
        }
        Ok(self)
    }

    /// Adds a batch; an error if it does not fit.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.reservation.try_grow(bytes_of(&batch))?;
        self.batches.push(batch);
        Ok(())
    }

    /// Batches in order of arrival.
    pub(crate) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Returns the batches and releases their reservation.
    pub(crate) fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// Converts the rows to a stream, which releases memory as they are taken and dropped.
    pub(crate) fn into_stream(self, schema: SchemaRef) -> SendableRecordBatchStream {
        let RowBuffer { batches, reservation } = self;
        let rows = batches.into_iter().map(move |batch| {
            reservation.shrink(bytes_of(&batch).min(reservation.size()));
            Ok(batch)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(rows)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use std::sync::Arc;

    #[test]
    fn slices_of_a_batch_take_the_memory_of_their_rows() {
        let rows = 1 << 16;
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(rows * 8));
        let reservation = MemoryConsumer::new("rows").register(&pool);
        let mut buffer = RowBuffer { batches: Vec::new(), reservation };
        for at in 0..64 {
            buffer.push(batch.slice(at * rows / 64, rows / 64)).unwrap();
        }
        assert_eq!(pool.reserved(), rows * 8);
        assert!(buffer.push(batch.slice(0, 1)).is_err());
    }
}
