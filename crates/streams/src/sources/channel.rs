//! A source that receives elements from a channel: tuples and punctuations, from another thread.
//!
//! - Its position is the number of tuples received; a channel cannot be read again, so after a restart the
//!   sender has to look up the stored position and continue from there.
//! - Memory is bounded by the channel's own capacity, and one received batch.
//! - The stream ends when all senders are dropped.

use crate::element::{Batch, Element, Punctuation, Tuple};
use crate::sources::{Next, Position, Source, SourceBatch};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use entresol_tables::{BatchBuilder, Column};
use std::time::Duration;

const WAIT: Duration = Duration::from_millis(2);

/// Elements from a channel.
pub struct ChannelSource {
    columns: Vec<Column>,
    receiver: Receiver<Element>,
    builder: BatchBuilder,
    /// Rest of a batch that was larger than requested.
    rest: Option<Batch>,
    position: u64,
}

impl ChannelSource {
    /// Creates a source of the elements of `receiver`; the tuples must have these columns.
    pub fn new(columns: Vec<Column>, receiver: Receiver<Element>) -> ChannelSource {
        let builder = BatchBuilder::new(&columns, 0);
        ChannelSource { columns, receiver, builder, rest: None, position: 0 }
    }

    /// Batch of tuples, or the reason why they are none.
    fn batch(&mut self, tuples: &[Tuple]) -> Result<Batch, String> {
        let pushed = tuples.iter().try_for_each(|tuple| self.builder.push(tuple));
        let batch = self.builder.finish();
        pushed.map(|()| batch.into())
    }
}

impl Source for ChannelSource {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> crate::Result<()> {
        self.position = from.unwrap_or_default().offset;
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> crate::Result<Next> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.receiver.recv_timeout(WAIT) {
                Ok(Element::Batch(batch)) => batch,
                Ok(Element::Tuples(tuples)) => match self.batch(&tuples) {
                    Ok(batch) => batch,
                    Err(reason) => {
                        self.position += tuples.len() as u64;
                        return Ok(Next::Invalid(reason));
                    }
                },
                Ok(Element::Punctuation(Punctuation::End)) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Next::End);
                }
                Ok(Element::Punctuation(punctuation)) => return Ok(Next::Punctuation(punctuation)),
                Err(RecvTimeoutError::Timeout) => return Ok(Next::Idle),
            },
        };
        let taken = batch.len().min(tuples_max);
        if taken < batch.len() {
            self.rest = Some(batch.slice(taken..batch.len()));
        }
        let source_batch = SourceBatch::counted(batch.slice(0..taken).rows().clone(), self.position);
        self.position = source_batch.end.offset;
        Ok(Next::Batch(source_batch))
    }
}
