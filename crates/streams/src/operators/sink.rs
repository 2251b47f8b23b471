//! The operator before an external sink: buffers the tuples of a transaction until it has committed.
//!
//! - An aborted transaction emits nothing; a committed one emits all its tuples, in order.
//! - After a crash between the commit and the emission, the last transaction's tuples may be missing outside:
//!   an external sink gets every tuple at most once. Tuples that must not be lost belong in a table.
//! - A sink that fails loses the tuples of the transaction, which are counted ([`Operator::take_lost`]): they
//!   are committed, and a part of them may be outside already. The topology goes on.
//! - Tuples are held within the memory budget of the pool; more is an error.

use crate::element::Batch;
use crate::error::Result;
use crate::execution::held_batches::HeldBatches;
use crate::operators::{Context, Operator, Output};
use crate::sinks::Sink;

pub(crate) struct SinkOperator<S> {
    name: String,
    sink: S,
    held: Vec<Batch>,
    memory: HeldBatches,
    /// Tuples that it did not get, since they were taken.
    lost: u64,
    /// True if the last transaction's tuples were lost.
    is_failing: bool,
}

impl<S: Sink> SinkOperator<S> {
    pub(crate) fn new(name: String, sink: S, memory: HeldBatches) -> Self {
        SinkOperator { name, sink, held: Vec::new(), memory, lost: 0, is_failing: false }
    }

    /// Emits the held tuples.
    fn emit(&mut self) -> Result<()> {
        for batch in self.held.drain(..) {
            self.sink.emit(&batch)?;
        }
        self.sink.flush()
    }
}

impl<S: Sink> Operator for SinkOperator<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        self.memory.add(batch)?;
        self.held.push(batch.clone());
        Ok(())
    }

    fn committed(&mut self) -> Result<()> {
        let tuples = self.memory.tuples();
        if self.held.is_empty() {
            return Ok(());
        }
        self.memory.clear();
        match self.emit() {
            Ok(()) if self.is_failing => tracing::warn!(sink = self.name, "the sink works again"),
            Ok(()) => {}
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(sink = self.name, %error, tuples, "the sink failed: committed tuples are lost");
                }
                self.lost += tuples as u64;
                self.is_failing = true;
                return Ok(());
            }
        }
        self.is_failing = false;
        Ok(())
    }

    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn aborted(&mut self) {
        self.held.clear();
        self.memory.clear();
    }
}
