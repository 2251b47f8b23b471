//! The operator before an external sink: buffers the tuples of a transaction until it has committed.
//!
//! - An aborted transaction emits nothing; a committed one emits all its tuples, in order.
//! - After a crash between the commit and the emission, the last transaction's tuples may be missing outside:
//!   an external sink gets every tuple at most once. Tuples that must not be lost belong in a table.
//! - A sink that fails loses the tuples of the transaction, which are counted ([`Operator::take_lost`]): they
//!   are committed, and a part of them may be outside already. The topology goes on.
//! - At most [`TRANSACTION_TUPLES_MAX`] tuples are buffered; more is an error.

use crate::TRANSACTION_TUPLES_MAX;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output};
use crate::sinks::Sink;

pub(crate) struct SinkOperator<S> {
    name: String,
    sink: S,
    held: Vec<Batch>,
    held_tuples: usize,
    /// Tuples that it did not get, since they were taken.
    lost: u64,
    /// True if the last transaction's tuples were lost.
    is_failing: bool,
}

impl<S: Sink> SinkOperator<S> {
    pub(crate) fn new(name: String, sink: S) -> Self {
        SinkOperator { name, sink, held: Vec::new(), held_tuples: 0, lost: 0, is_failing: false }
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
        self.held_tuples += batch.len();
        if self.held_tuples > TRANSACTION_TUPLES_MAX {
            return Err(Error::Limit {
                resource: format!("tuples buffered by {}", self.name),
                max: TRANSACTION_TUPLES_MAX,
            });
        }
        self.held.push(batch.clone());
        Ok(())
    }

    fn committed(&mut self) -> Result<()> {
        let tuples = std::mem::take(&mut self.held_tuples);
        if self.held.is_empty() {
            return Ok(());
        }
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
        self.held_tuples = 0;
    }
}
