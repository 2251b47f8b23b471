//! Sends committed tuples to a channel, one batch after the other. A full channel blocks the topology; that
//! is the backpressure, and the channel's capacity bounds the memory.

use crate::element::{Batch, Element};
use crate::error::{Error, Result};
use crate::sinks::Sink;
use crossbeam_channel::Sender;
use entresol_tables::Column;

/// Sends committed tuples to a channel.
pub struct ChannelSink {
    sender: Sender<Element>,
}

impl ChannelSink {
    /// Sends to `sender`; if the receiver is closed, the topology ends with an error.
    pub fn new(sender: Sender<Element>) -> ChannelSink {
        ChannelSink { sender }
    }
}

impl Sink for ChannelSink {
    fn open(&mut self, _columns: &[Column]) -> Result<()> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        let element = Element::Batch(batch.clone());
        self.sender.send(element).map_err(|_| Error::Disconnected { endpoint: "channel sink".to_owned() })
    }
}
