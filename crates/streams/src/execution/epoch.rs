//! Epochs: what one transaction of a topology takes in, from its first tuple to the commit punctuation.

use crate::element::Batch;
use crate::error::Error;
use crate::event_time::EventTime;
use crate::execution::committer::PendingCommit;
use crate::execution::epoch_transaction::EpochTransaction;
use crate::execution::held_batches::HeldBatches;
use crate::operators::Counts;
use entresol_memory::budget::MemoryBudget;
use std::sync::Arc;
use std::time::Instant;

/// Input of an epoch, logged for replay.
#[derive(Clone)]
pub(super) enum Input {
    Batch { source: usize, batch: Batch },
    Watermark { node: usize, time: EventTime },
}

pub(super) struct Epoch {
    pub(super) transaction: Option<Arc<EpochTransaction>>,
    pub(super) inputs: Vec<Input>,
    /// Counts the tuples of the input.
    pub(super) held: HeldBatches,
    pub(super) counts: Counts,
    pub(super) retries: u32,
    /// Time of the first of the retries.
    pub(super) retried_first: Option<Instant>,
    /// Number of times that a condition has aborted it.
    pub(super) aborts: u32,
    /// True if the rest of the epoch is to be skipped.
    pub(super) doomed: bool,
    /// Error with results that had waited for an interval; they are withheld to find out whether it is of them.
    pub(super) withheld: Option<Error>,
    /// Time of the first input, if there is an interval of commits.
    pub(super) begun_ns: Option<u64>,
}

impl Epoch {
    /// Epoch without input.
    pub(super) fn new(memory: Option<&Arc<MemoryBudget>>) -> Epoch {
        Epoch {
            transaction: None,
            inputs: Vec::new(),
            held: HeldBatches::new(memory),
            counts: Counts::default(),
            retries: 0,
            retried_first: None,
            aborts: 0,
            doomed: false,
            withheld: None,
            begun_ns: None,
        }
    }

    /// Returns true if nothing has come yet.
    pub(super) fn is_empty(&self) -> bool {
        self.inputs.is_empty() && !self.doomed
    }

    /// Forgets all of it, for the next one.
    pub(super) fn clear(&mut self) {
        self.transaction = None;
        self.inputs.clear();
        self.held.clear();
        self.counts.clear();
        self.retries = 0;
        self.retried_first = None;
        self.aborts = 0;
        self.doomed = false;
        self.withheld = None;
        self.begun_ns = None;
    }
}

/// Epoch whose commit punctuation has passed all operators.
pub(super) struct SealedEpoch {
    pub(super) epoch: Epoch,
    /// Commit that was handed over.
    pub(super) pending: Arc<PendingCommit>,
    /// Time of the punctuation.
    pub(super) start_ns: u64,
    /// The greatest event time of the input until then.
    pub(super) event_time: EventTime,
}
