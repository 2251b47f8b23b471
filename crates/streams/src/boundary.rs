//! Transaction boundaries, and what happens when a transaction fails (dissertation 5.1.2).

use crate::BATCH_TUPLES;

/// Division of a stream into transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Every tuple is a transaction (auto-commit).
    EachTuple,
    /// A transaction takes this number of tuples from all sources together; fewer at the end, at a stop, and
    /// when the sources are idle for [`crate::IDLE_COMMIT_MS`].
    Every(usize),
    /// A transaction holds the tuples up to the one whose event time closes a window, and the results of that
    /// window.
    PerWindow,
    /// The sources mark transactions with punctuations. Each source has a part, perhaps empty, in every
    /// transaction, which is complete when all have sent their Commit: a source that has waits for the
    /// others. An Abort of one, or tuples without a mark before a Begin or the end, drop the parts of all. Marks of one source may be
    /// those of all ([`crate::TopologyBuilder::leader`]).
    Punctuated,
}

impl Boundary {
    /// Tuples that a source is asked for: whole transactions, where several are in a batch.
    pub(crate) fn batch_tuples(&self) -> usize {
        match *self {
            Boundary::Every(tuples) if tuples <= BATCH_TUPLES => BATCH_TUPLES / tuples * tuples,
            _ => BATCH_TUPLES,
        }
    }
}

/// Reaction to tuples that cannot be processed (a wrong value, a duplicate key).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The transaction is aborted and the topology ends with the error.
    Stop,
    /// The transaction is aborted and counted; the topology continues after it.
    Abort,
    /// The tuple is left out by the operator that cannot process it, and counted. Operators that process each
    /// tuple alone can: filters, projections, look-ups, TO_TABLE and MERGE; an error of another stops the topology.
    Skip,
}

/// Order in which the tuples of several sources are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// One batch of each source in turn; sources without tuples are skipped.
    RoundRobin,
    /// By event time (see [`crate::Stream::event_time`]); waits for every source that has not ended.
    EventTime,
}
