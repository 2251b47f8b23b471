//! Row streams of a block: an error of the stream fails the block.

use crate::session::block::Failure;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as DFResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Row stream of a statement of a block, which fails with it.
pub(crate) struct BlockRows {
    pub(crate) stream: SendableRecordBatchStream,
    pub(crate) failure: Arc<Failure>,
}

impl Stream for BlockRows {
    type Item = DFResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.stream.poll_next_unpin(context);
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.failure.set(error.strip_backtrace());
        }
        polled
    }
}

impl RecordBatchStream for BlockRows {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
