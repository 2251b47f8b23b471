//! A source that receives elements from a channel: tuples and punctuations, from another thread.
//!
//! - Its position is the number of tuples received; a channel cannot be read again, so after a restart the
//!   sender has to look up the stored position and continue from there.
//! - Memory is bounded by the channel's own capacity, and one received batch.
//! - The stream ends when all senders are dropped.

use crate::element::{Element, Punctuation, Tuple};
use crate::error::Result;
use crate::sources::{Next, Position, Source, SourceBatch};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use entresol_tables::Column;
use std::time::Duration;

const WAIT: Duration = Duration::from_millis(2);

/// Elements from a channel.
pub struct ChannelSource {
    columns: Vec<Column>,
    receiver: Receiver<Element>,
    /// Rest of a batch that was larger than requested.
    rest: std::vec::IntoIter<Tuple>,
    position: u64,
}

impl ChannelSource {
    /// Creates a source of the elements of `receiver`; the tuples must have these columns.
    pub fn new(columns: Vec<Column>, receiver: Receiver<Element>) -> ChannelSource {
        ChannelSource { columns, receiver, rest: Vec::new().into_iter(), position: 0 }
    }
}

impl Source for ChannelSource {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.position = from.unwrap_or_default().offset;
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        if self.rest.len() == 0 {
            match self.receiver.recv_timeout(WAIT) {
                Ok(Element::Batch(tuples)) => self.rest = tuples.into_iter(),
                Ok(Element::Punctuation(Punctuation::End)) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Next::End);
                }
                Ok(Element::Punctuation(punctuation)) => return Ok(Next::Punctuation(punctuation)),
                Err(RecvTimeoutError::Timeout) => return Ok(Next::Idle),
            }
        }
        let tuples: Vec<Tuple> = self.rest.by_ref().take(tuples_max).collect();
        let first = self.position;
        self.position += tuples.len() as u64;
        let positions = (first + 1..=self.position).map(|offset| Position { offset, line: 0 }).collect();
        let end = Position { offset: self.position, line: 0 };
        Ok(Next::Batch(SourceBatch { tuples, positions, rejects: Vec::new(), end }))
    }
}
