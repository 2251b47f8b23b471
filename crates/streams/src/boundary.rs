//! Where transactions begin and end, and what happens when they fail (dissertation 5.1.2).

/// How a stream is cut into transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Every tuple is a transaction (auto-commit).
    EachTuple,
    /// So many tuples of all sources are a transaction; fewer at the end, at a stop, and when the sources are
    /// idle for [`crate::IDLE_COMMIT_MS`].
    Every(usize),
    /// The tuples up to the one whose event time closes a window, and the window's results, are a transaction.
    PerWindow,
    /// The sources mark transactions with punctuations. Tuples without a commit mark are dropped at the end.
    Punctuated,
}

/// What happens if a transaction's tuples cannot be processed (a wrong value, a duplicate key).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The transaction is aborted and the topology ends with the error.
    Stop,
    /// The transaction is aborted whole and counted; the topology goes on behind it.
    Abort,
}

/// In which order the tuples of several sources are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// A batch of each in turn; sources without tuples are passed over.
    RoundRobin,
    /// By event time (see [`crate::Stream::event_time`]); waits for every source that has not ended.
    EventTime,
}
