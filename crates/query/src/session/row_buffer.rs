//! Rows that a statement holds until it goes on with them, counted in the memory of its session.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use crate::error::Result;
use crate::session::core::SessionCore;

/// Batches of rows and the memory that is reserved for them, which goes back when they are dropped.
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

    /// The buffer with the rows of a stream added.
    pub(crate) async fn filled_from(mut self, rows: &mut SendableRecordBatchStream) -> Result<RowBuffer> {
        while let Some(batch) = rows.try_next().await? {
            self.push(batch)?;
        }
        Ok(self)
    }

    /// Adds a batch; an error if it does not fit.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.reservation.try_grow(batch.get_array_memory_size())?;
        self.batches.push(batch);
        Ok(())
    }

    /// The batches, in the order in which they came.
    pub(crate) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The batches, which are not counted any more.
    pub(crate) fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// The rows as a stream, which gives the memory back as they are taken and dropped.
    pub(crate) fn into_stream(self, schema: SchemaRef) -> SendableRecordBatchStream {
        let RowBuffer { batches, reservation } = self;
        let rows = batches.into_iter().map(move |batch| {
            reservation.shrink(batch.get_array_memory_size().min(reservation.size()));
            Ok(batch)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(rows)))
    }
}
