//! Sources of tuples.
//!
//! - A source gives, for every tuple, the position after it. The topology stores positions in the transaction
//!   of the tuples' effects (`streams_positions`) and passes the stored one back to [`Source::open`]: a
//!   source that can read again from there makes every tuple count exactly once over restarts.
//! - A source is told what is committed and durable ([`Source::committed`]), so that it can acknowledge it, or delete it
//!   where it comes from.
//! - `next` returns at most the number of tuples asked for, so the caller bounds the buffer of a source.

mod acknowledged;
pub(crate) mod change_rounds;
pub(crate) mod changes;
pub(crate) mod channel;
pub(crate) mod computed;
pub(crate) mod csv;
pub(crate) mod csv_reader;
pub(crate) mod envelopes;
pub(crate) mod files;
pub(crate) mod generator;
pub(crate) mod included;
pub(crate) mod json;
pub(crate) mod line_reader;
pub(crate) mod lines;
pub(crate) mod mapped;
pub(crate) mod marked;
pub(crate) mod nexmark;
pub(crate) mod paced;
pub(crate) mod rejects;
pub(crate) mod tcp;
pub(crate) mod transactions;

use crate::element::Punctuation;
use crate::error::Result;
use arrow_array::RecordBatch;
use entresol_tables::Column;
use std::sync::Arc;

/// Position in a source; its meaning is private to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Byte offset or number of tuples; 0 is the beginning.
    pub offset: u64,
    /// Line number, for messages; 0 where there are no lines.
    pub line: u64,
}

/// Part of a source that has positions of its own, such as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Name, unique in its source.
    pub name: Arc<str>,
    /// Beginning of its content, by which another of the same name is noticed; of a file of batches its length, and both ends.
    pub head: Head,
}

/// Checksum of the first bytes of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Number of bytes; 0 if nothing is known.
    pub bytes: u64,
    /// Checksum of these bytes.
    pub checksum: u32,
}

/// Position in a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitPosition {
    /// The split.
    pub split: Split,
    /// Position behind the last committed tuple of it.
    pub position: Position,
}

/// Record that is not a valid tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of tuples of the batch before it.
    pub tuples_before: usize,
    /// Line at which it begins.
    pub line: u64,
    /// Bytes of the file before it, if it is of a file of lines.
    pub offset: Option<u64>,
    /// Reason.
    pub reason: String,
    /// The record as it was read.
    pub raw: String,
}

/// Positions after the tuples of a batch.
#[derive(Debug)]
pub enum Positions {
    /// Offsets that count tuples: the one after the first tuple, and so on.
    Counted {
        /// Offset after the first tuple.
        first: u64,
    },
    /// Position after each tuple.
    Listed(Vec<Position>),
}

impl Positions {
    /// Position after tuple number `at`.
    pub(crate) fn after(&self, at: usize) -> Position {
        match self {
            Positions::Counted { first } => Position { offset: first + at as u64, line: 0 },
            Positions::Listed(positions) => positions[at],
        }
    }
}

/// Batch of tuples with their positions.
#[derive(Debug)]
pub struct SourceBatch {
    /// The tuples: one array per column, of its Arrow type ([`entresol_tables::arrow_type`]).
    pub tuples: RecordBatch,
    /// The position after each tuple.
    pub positions: Positions,
    /// Records that were skipped, in order.
    pub rejects: Vec<Reject>,
    /// The position after the batch, rejects included.
    pub end: Position,
    /// Split of the tuples, in which their positions are; none of a source without splits.
    pub split: Option<Split>,
}

impl SourceBatch {
    /// Batch whose positions count tuples; `position` is the one before it.
    pub fn counted(tuples: RecordBatch, position: u64) -> SourceBatch {
        let end = Position { offset: position + tuples.num_rows() as u64, line: 0 };
        SourceBatch {
            tuples,
            positions: Positions::Counted { first: position + 1 },
            rejects: Vec::new(),
            end,
            split: None,
        }
    }
}

/// Next element of a source.
#[derive(Debug)]
pub enum Next {
    /// Tuples.
    Batch(SourceBatch),
    /// A punctuation.
    Punctuation(Punctuation),
    /// Tuples that are not of the source's columns, and the reason: an error of their transaction.
    Invalid(String),
    /// No element yet; ask again.
    Idle,
    /// End of the source.
    End,
}

/// Input of a source whose effects survive every failure: it is not read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommittedInput {
    /// Position behind it; of a source with splits, in the one that was read last.
    pub position: Position,
    /// Positions in the splits that have changed since the last call.
    pub splits: Vec<SplitPosition>,
    /// Number of its records that were rejected in this run.
    pub rejected: u64,
}

/// A source of tuples. It runs in the topology's thread.
pub trait Source: Send {
    /// Returns the columns of its tuples.
    fn columns(&self) -> Vec<Column>;

    /// Starts after a position that it returned in an earlier run; `None`: at the beginning.
    fn open(&mut self, from: Option<Position>) -> Result<()>;

    /// Returns true if its batches have splits.
    fn has_splits(&self) -> bool {
        false
    }

    /// Returns true if its tuples are of commits of this database, and the offsets of its positions their timestamps. A
    /// transaction that looks up tables sees those commits then.
    fn follows_commits(&self) -> bool {
        false
    }

    /// Returns the id of the transaction whose [`Punctuation::Commit`] it returned last, if its transactions have ids: the
    /// parts of several sources are of the same one.
    fn transaction(&self) -> Option<Arc<str>> {
        None
    }

    /// Starts after the positions that it returned for its splits in earlier runs; `from` is the one of a
    /// source without splits that had this name before.
    fn open_splits(&mut self, from: Option<Position>, _splits: &[SplitPosition]) -> Result<()> {
        self.open(from)
    }

    /// Returns at most `tuples_max` tuples. Blocks for a few milliseconds at most.
    fn next(&mut self, tuples_max: usize) -> Result<Next>;

    /// Receives the records skipped in a transaction that has committed.
    fn rejected(&mut self, _rejects: &[Reject]) -> Result<()> {
        Ok(())
    }

    /// Returns true if it wants to know what is committed ([`Source::committed`]).
    fn acknowledges(&self) -> bool {
        false
    }

    /// Learns what is committed *and durable*: no later run, whatever ends this one, opens the source before these positions.
    /// Input before them may be acknowledged, or deleted where it comes from. Positions never decrease. They are those
    /// of some commits, the last one of a run that ends without an error among them; one may come again.
    ///
    /// The position that [`Source::open`] gets is committed, too.
    fn committed(&mut self, _input: &CommittedInput) -> Result<()> {
        Ok(())
    }
}

impl Source for Box<dyn Source> {
    fn columns(&self) -> Vec<Column> {
        (**self).columns()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        (**self).open(from)
    }

    fn has_splits(&self) -> bool {
        (**self).has_splits()
    }

    fn follows_commits(&self) -> bool {
        (**self).follows_commits()
    }

    fn transaction(&self) -> Option<Arc<str>> {
        (**self).transaction()
    }

    fn open_splits(&mut self, from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        (**self).open_splits(from, splits)
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        (**self).next(tuples_max)
    }

    fn rejected(&mut self, rejects: &[Reject]) -> Result<()> {
        (**self).rejected(rejects)
    }

    fn acknowledges(&self) -> bool {
        (**self).acknowledges()
    }

    fn committed(&mut self, input: &CommittedInput) -> Result<()> {
        (**self).committed(input)
    }
}
