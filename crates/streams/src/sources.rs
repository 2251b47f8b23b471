//! Sources: where tuples come from.
//!
//! - A source tells, for every tuple, the position after it. The topology stores positions in the transaction
//!   of the tuples' effects (`streams_positions`) and gives the stored one back to [`Source::open`]: a source
//!   that can read again from there makes every tuple count exactly once over restarts.
//! - `next` hands out at most the number of tuples asked for, so what a source holds is bounded by its caller.

pub(crate) mod channel;
pub(crate) mod csv;
pub(crate) mod csv_reader;
pub(crate) mod generator;
pub(crate) mod rejects;

use entresol_tables::Column;

use crate::element::{Punctuation, Tuple};
use crate::error::Result;

/// A place in a source: what it means is the source's own affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Byte offset or number of tuples; 0 is the beginning.
    pub offset: u64,
    /// Line number, for messages; 0 where there are no lines.
    pub line: u64,
}

/// A record that is no tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// How many tuples of the batch are before it.
    pub tuples_before: usize,
    /// The line it began at.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
    /// The record as it was read.
    pub raw: String,
}

/// Tuples and where they end.
#[derive(Debug, Default)]
pub struct SourceBatch {
    /// The tuples.
    pub tuples: Vec<Tuple>,
    /// The position after each tuple.
    pub positions: Vec<Position>,
    /// Records that were skipped, in order.
    pub rejects: Vec<Reject>,
    /// The position after the batch, rejects included.
    pub end: Position,
}

/// What a source has next.
#[derive(Debug)]
pub enum Next {
    /// Tuples.
    Batch(SourceBatch),
    /// A mark.
    Punctuation(Punctuation),
    /// Nothing yet; ask again.
    Idle,
    /// Nothing any more.
    End,
}

/// A source of tuples. It runs in the topology's thread.
pub trait Source: Send {
    /// The columns of its tuples.
    fn columns(&self) -> Vec<Column>;

    /// Begins behind a position that it gave out in an earlier run; `None`: at the beginning.
    fn open(&mut self, from: Option<Position>) -> Result<()>;

    /// At most `tuples_max` tuples. Waits a few milliseconds at most.
    fn next(&mut self, tuples_max: usize) -> Result<Next>;

    /// Records skipped in a transaction that has committed.
    fn rejected(&mut self, _rejects: &[Reject]) -> Result<()> {
        Ok(())
    }
}
