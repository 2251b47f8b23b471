//! The sources of a topology, merged into one stream.
//!
//! - Tuples are peeked first ([`Feed::peek`]) and consumed later ([`Feed::take`]), so that the executor can
//!   end a transaction between any two of them; a source's position advances with the tuples consumed.
//! - At most one batch of each source is buffered.
//! - By event time, the source with the earliest next tuple comes first; a source without tuples blocks all
//!   others until it has some, or has ended.

use crate::BATCH_TUPLES;
use crate::boundary::Merge;
use crate::element::{Batch, Punctuation};
use crate::error::{Error, Result};
use crate::graph::GraphSource;
use crate::operators::window_aggregate::event_time;
use crate::positions::{SourceProgress, StoredPosition};
use crate::sources::{Next, Position, Reject, Source};

pub(crate) struct Feed {
    sources: Vec<FeedSource>,
    merge: Merge,
    turn: usize,
}

pub(crate) struct FeedSource {
    name: String,
    source: Box<dyn Source>,
    pub(crate) node: usize,
    pub(crate) event_time: Option<usize>,
    stored: StoredPosition,
    progress: SourceProgress,
    pending: Option<Pending>,
    rejects: Vec<Reject>,
    ended: bool,
    /// True once the source has marked the end of its part of the open transaction: its next elements belong
    /// to another one.
    held: bool,
}

struct Pending {
    batch: Batch,
    positions: Vec<Position>,
    rejects: std::iter::Peekable<std::vec::IntoIter<Reject>>,
    end: Position,
    consumed: usize,
}

/// Next element of the sources.
pub(crate) enum FeedElement {
    /// Tuples of a source, not consumed yet.
    Tuples {
        source: usize,
        batch: Batch,
    },
    Punctuation(usize, Punctuation),
    /// A source has ended.
    Ended(usize),
    /// Nothing for now.
    Idle,
    /// All sources have ended.
    End,
}

impl FeedSource {
    pub(crate) fn new(source: GraphSource, stored: StoredPosition) -> FeedSource {
        FeedSource {
            name: source.name,
            source: source.source,
            node: source.node,
            event_time: source.event_time,
            progress: stored.stored().unwrap_or_default(),
            stored,
            pending: None,
            rejects: Vec::new(),
            ended: false,
            held: false,
        }
    }

    fn open(&mut self) -> Result<()> {
        self.source.open(self.stored.stored().map(|stored| stored.position))
    }

    /// Fills the buffer of a source with tuples; returns the other element if there is one instead.
    fn fill(&mut self, number: usize) -> Result<Option<FeedElement>> {
        while self.pending.is_none() {
            let batch = match self.source.next(BATCH_TUPLES)? {
                Next::Batch(batch) => batch,
                Next::Punctuation(punctuation) => {
                    return Ok(Some(FeedElement::Punctuation(number, punctuation)));
                }
                Next::Idle => return Ok(Some(FeedElement::Idle)),
                Next::End => {
                    self.ended = true;
                    return Ok(Some(FeedElement::Ended(number)));
                }
            };
            if batch.positions.len() != batch.tuples.len() {
                let reason = format!(
                    "source {} returned {} positions for {} tuples",
                    self.name,
                    batch.positions.len(),
                    batch.tuples.len()
                );
                return Err(Error::Tuple { operator: self.name.clone(), reason });
            }
            let mut pending = Pending {
                batch: Batch::new(batch.tuples),
                positions: batch.positions,
                rejects: batch.rejects.into_iter().peekable(),
                end: batch.end,
                consumed: 0,
            };
            if pending.batch.is_empty() {
                self.skip_rejects(&mut pending);
                self.progress.position = pending.end;
                return Ok(Some(FeedElement::Idle));
            }
            self.pending = Some(pending);
        }
        Ok(None)
    }

    /// Counts the bad records before the next tuple (all of them at the end of the batch).
    fn skip_rejects(&mut self, pending: &mut Pending) {
        let all = pending.consumed == pending.batch.len();
        while let Some(reject) =
            pending.rejects.next_if(|reject| all || reject.tuples_before < pending.consumed)
        {
            self.progress.rejected += 1;
            self.rejects.push(reject);
        }
    }

    fn available(&self) -> Option<Batch> {
        self.pending.as_ref().map(|pending| pending.batch.slice(pending.consumed..pending.batch.len()))
    }

    fn take(&mut self, tuples: usize) {
        let Some(mut pending) = self.pending.take() else { return };
        pending.consumed += tuples;
        self.progress.tuples += tuples as u64;
        self.skip_rejects(&mut pending);
        if pending.consumed == pending.batch.len() {
            self.progress.position = pending.end;
            return;
        }
        if pending.consumed > 0 {
            self.progress.position = pending.positions[pending.consumed - 1];
        }
        self.pending = Some(pending);
    }

    /// Returns the event time of a tuple of this source.
    pub(crate) fn time_of(&self, tuple: &[entresol_tables::Value]) -> Result<i64> {
        self.event_time.and_then(|column| event_time(&tuple[column])).ok_or_else(|| Error::Tuple {
            operator: format!("source {}", self.name),
            reason: "a tuple has no event time".to_owned(),
        })
    }
}

impl Feed {
    pub(crate) fn new(sources: Vec<FeedSource>, merge: Merge) -> Feed {
        Feed { sources, merge, turn: 0 }
    }

    /// Opens all sources at their stored positions.
    pub(crate) fn open(&mut self) -> Result<()> {
        self.sources.iter_mut().try_for_each(FeedSource::open)
    }

    pub(crate) fn source(&self, number: usize) -> &FeedSource {
        &self.sources[number]
    }

    /// Returns the nodes of the sources that have not ended.
    pub(crate) fn live_nodes(&self) -> impl Iterator<Item = usize> {
        self.sources.iter().filter(|source| !source.ended).map(|source| source.node)
    }

    pub(crate) fn merges_by_event_time(&self) -> bool {
        self.merge == Merge::EventTime || self.sources.len() == 1
    }

    /// Returns the next element; tuples are not consumed.
    pub(crate) fn peek(&mut self) -> Result<FeedElement> {
        match self.merge {
            Merge::RoundRobin => self.peek_in_turn(),
            Merge::EventTime => self.peek_by_event_time(),
        }
    }

    fn peek_in_turn(&mut self) -> Result<FeedElement> {
        let mut idle = false;
        for _ in 0..self.sources.len() {
            let number = self.turn;
            let source = &mut self.sources[number];
            if !source.ended && !source.held {
                match source.fill(number)? {
                    None => {
                        let batch = source.available().unwrap_or_else(|| Batch::new(Vec::new()));
                        return Ok(FeedElement::Tuples { source: number, batch });
                    }
                    Some(FeedElement::Idle) => idle = true,
                    Some(other) => return Ok(other),
                }
            }
            self.turn = (self.turn + 1) % self.sources.len();
        }
        Ok(if idle { FeedElement::Idle } else { FeedElement::End })
    }

    fn peek_by_event_time(&mut self) -> Result<FeedElement> {
        let mut heads: Vec<(i64, usize, Batch)> = Vec::with_capacity(self.sources.len());
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.ended || source.held {
                continue;
            }
            if let Some(other) = source.fill(number)? {
                return Ok(other);
            }
            if let Some(batch) = source.available() {
                heads.push((source.time_of(batch.tuple(0))?, number, batch));
            }
        }
        heads.sort_by_key(|(time_us, number, _)| (*time_us, *number));
        let next = heads.get(1).map(|(time_us, number, _)| (*time_us, *number));
        let Some((_, number, batch)) = heads.into_iter().next() else { return Ok(FeedElement::End) };
        let mut tuples = 1;
        while tuples < batch.len() {
            let time_us = self.sources[number].time_of(batch.tuple(tuples))?;
            if next.is_some_and(|next| (time_us, number) > next) {
                break;
            }
            tuples += 1;
        }
        Ok(FeedElement::Tuples { source: number, batch: batch.slice(0..tuples) })
    }

    /// Consumes the first tuples that `peek` returned.
    pub(crate) fn take(&mut self, number: usize, tuples: usize) {
        self.sources[number].take(tuples);
        if self.sources[number].pending.is_none() {
            self.turn = (number + 1) % self.sources.len();
        }
    }

    /// Reads nothing more of a source until [`Feed::release`].
    pub(crate) fn hold(&mut self, number: usize) {
        self.sources[number].held = true;
    }

    /// Reads all sources again.
    pub(crate) fn release(&mut self) {
        self.sources.iter_mut().for_each(|source| source.held = false);
    }

    /// Returns true if every source is held or has ended.
    pub(crate) fn all_held(&self) -> bool {
        self.sources.iter().all(|source| source.held || source.ended)
    }

    /// Notes that nothing follows from a source.
    pub(crate) fn end(&mut self, number: usize) {
        self.sources[number].ended = true;
    }

    /// Returns true if nothing follows from a source.
    pub(crate) fn has_ended(&self, number: usize) -> bool {
        self.sources[number].ended
    }

    /// Number of sources, ended ones included.
    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Number of bad records that wait for a commit.
    pub(crate) fn rejects_pending(&self) -> usize {
        self.sources.iter().map(|source| source.rejects.len()).sum()
    }

    /// Returns true if a position has advanced since the last commit.
    pub(crate) fn has_moved(&self) -> bool {
        self.sources.iter().any(|source| source.stored.stored().unwrap_or_default() != source.progress)
    }

    /// Writes all source positions into the transaction.
    pub(crate) fn write_positions(&mut self, tx: &entresol_transactions::Transaction) -> Result<()> {
        for source in &mut self.sources {
            if source.stored.stored().is_none() && source.progress == SourceProgress::default() {
                continue;
            }
            source.stored.write(tx, source.progress)?;
        }
        Ok(())
    }

    /// Hands out bad records after a commit; returns their number.
    pub(crate) fn committed(&mut self) -> Result<u64> {
        let mut rejected = 0;
        for source in &mut self.sources {
            source.stored.committed();
            if !source.rejects.is_empty() {
                rejected += source.rejects.len() as u64;
                source.source.rejected(&source.rejects)?;
                source.rejects.clear();
            }
        }
        Ok(rejected)
    }

    pub(crate) fn aborted(&mut self) {
        self.sources.iter_mut().for_each(|source| source.stored.aborted());
    }
}
