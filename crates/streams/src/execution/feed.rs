//! The sources of a topology, merged into one stream.
//!
//! - Tuples are peeked first ([`Feed::peek`]) and consumed later ([`Feed::take`]), so that the executor can
//!   end a transaction between any two of them; a source's position advances with the tuples consumed.
//! - At most one batch of each source is buffered.
//! - Where a source leads, its marks alone end transactions ([`Feed::marks`]); when it ends, nothing more is read of the others.
//! - By event time, the source with the earliest next tuple comes first; a source without tuples blocks all
//!   others until it has some, or has ended.

use crate::boundary::Merge;
use crate::element::{Batch, Punctuation};
use crate::error::{Error, Result};
use crate::execution::acknowledgements::Acknowledgements;
use crate::execution::rejects_table::{self, RejectsTable};
use crate::graph::GraphSource;
use crate::positions::{ChangedSplits, SourceProgress, StoredPosition, StoredSplits};
use crate::sources::{Next, Position, Positions, Reject, Source, SourceBatch, Split, SplitPosition};
use crate::{ACKNOWLEDGED_WITHIN_MS, UTC};
use arrow_array::Array;
use arrow_schema::SchemaRef;
use entresol_memory::{Durability, Pool};
use entresol_tables::arrow_schema;
use entresol_transactions::{Timestamp, Transaction};
use std::sync::Arc;

/// Maximum of tuples of a batch that a source returns, however many were asked for.
const BATCH_TUPLES_MAX: usize = 1 << 20;

pub(crate) struct Feed {
    sources: Vec<FeedSource>,
    /// Source whose marks are those of all.
    leader: Option<usize>,
    merge: Merge,
    turn: usize,
}

pub(crate) struct FeedSource {
    name: String,
    source: Box<dyn Source>,
    pub(crate) node: usize,
    pub(crate) event_time: Option<usize>,
    /// Nanoseconds of silence after which it is not waited for.
    pub(crate) idle_ns: u64,
    stored: StoredPosition,
    progress: SourceProgress,
    /// Positions in its splits, and those that an earlier run stored; none if it has no splits.
    splits: Option<(StoredSplits, Vec<SplitPosition>)>,
    pending: Option<PendingBatch>,
    /// Arrow types of its columns.
    schema: SchemaRef,
    /// Maximum of tuples per call of it.
    batch_tuples: usize,
    rejects: Vec<Reject>,
    rejects_table: Option<RejectsTable>,
    /// Elements of the epoch that was sealed last, until it has its outcome.
    sealed: Option<SourceEpoch>,
    /// Elements behind a sealed epoch that is open again.
    later: Option<SourceEpoch>,
    acknowledgements: Acknowledgements,
    ended: bool,
    /// True once the source has marked the end of its part of the open transaction: its next elements belong
    /// to another one.
    held: bool,
}

/// Elements of a source in an epoch.
struct SourceEpoch {
    /// Progress at its end.
    progress: SourceProgress,
    rejects: Vec<Reject>,
    splits: ChangedSplits,
}

struct PendingBatch {
    batch: Batch,
    positions: Positions,
    rejects: std::iter::Peekable<std::vec::IntoIter<Reject>>,
    end: Position,
    split: Option<Split>,
    consumed: usize,
}

/// Next element of the sources.
pub(crate) enum FeedElement {
    /// A source has so many tuples, which are not consumed yet.
    Tuples {
        source: usize,
        tuples: usize,
    },
    Punctuation(usize, Punctuation),
    /// A source has tuples that are not of its columns.
    Invalid(usize, Error),
    /// A source has ended.
    Ended(usize),
    /// Nothing for now.
    Idle,
    /// All sources have ended.
    End,
}

impl FeedSource {
    pub(crate) fn new(
        source: GraphSource,
        stored: StoredPosition,
        splits: Option<(StoredSplits, Vec<SplitPosition>)>,
        batch_tuples: usize,
        rejects_table: Option<RejectsTable>,
    ) -> FeedSource {
        FeedSource {
            name: source.name,
            source: source.source,
            batch_tuples,
            rejects_table,
            node: source.node,
            event_time: source.event_time,
            idle_ns: u64::try_from(source.idle.as_nanos()).unwrap_or(u64::MAX),
            progress: stored.stored().unwrap_or_default(),
            stored,
            splits,
            pending: None,
            schema: arrow_schema(&source.columns, UTC),
            rejects: Vec::new(),
            sealed: None,
            later: None,
            acknowledgements: Acknowledgements::default(),
            ended: false,
            held: false,
        }
    }

    fn open(&mut self) -> Result<()> {
        let from = self.stored.stored().map(|stored| stored.position);
        match &mut self.splits {
            None => self.source.open(from),
            Some((_, stored)) => self.source.open_splits(from, &std::mem::take(stored)),
        }
    }

    /// Notes the position behind what was consumed.
    fn moved(&mut self, split: Option<&Split>, position: Position) {
        self.progress.position = position;
        if let (Some((splits, _)), Some(split)) = (&mut self.splits, split) {
            splits.moved(split, position);
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn has_moved(&self) -> bool {
        self.stored.stored().unwrap_or_default() != self.progress
            || self.splits.as_ref().is_some_and(|(splits, _)| splits.has_moved())
    }

    /// Fills the buffer of a source with tuples; returns the other element if there is one instead.
    fn fill(&mut self, number: usize) -> Result<Option<FeedElement>> {
        while self.pending.is_none() {
            let batch = match self.source.next(self.batch_tuples)? {
                Next::Batch(batch) => batch,
                Next::Punctuation(punctuation) => {
                    return Ok(Some(FeedElement::Punctuation(number, punctuation)));
                }
                Next::Invalid(reason) => return Ok(Some(self.invalid(number, reason))),
                Next::Idle => return Ok(Some(FeedElement::Idle)),
                Next::End => {
                    self.ended = true;
                    return Ok(Some(FeedElement::Ended(number)));
                }
            };
            if let Err(reason) = self.check(&batch) {
                self.moved(batch.split.as_ref(), batch.end);
                return Ok(Some(self.invalid(number, reason)));
            }
            let mut pending = PendingBatch {
                batch: batch.tuples.into(),
                positions: batch.positions,
                rejects: batch.rejects.into_iter().peekable(),
                end: batch.end,
                split: batch.split,
                consumed: 0,
            };
            if pending.batch.is_empty() {
                self.skip_rejects(&mut pending);
                self.moved(pending.split.as_ref(), pending.end);
                return Ok(Some(FeedElement::Idle));
            }
            self.pending = Some(pending);
        }
        Ok(None)
    }

    fn invalid(&self, number: usize, reason: String) -> FeedElement {
        FeedElement::Invalid(number, Error::Tuple { operator: format!("source {}", self.name), reason })
    }

    /// Returns the reason why a batch is not one of the source's columns, if so.
    fn check(&self, batch: &SourceBatch) -> Result<(), String> {
        let tuples = &batch.tuples;
        if let Positions::Listed(positions) = &batch.positions
            && positions.len() != tuples.num_rows()
        {
            return Err(format!("{} positions for {} tuples", positions.len(), tuples.num_rows()));
        }
        if tuples.num_rows() > BATCH_TUPLES_MAX {
            return Err(format!("a batch of {} tuples; at most {BATCH_TUPLES_MAX}", tuples.num_rows()));
        }
        if tuples.num_columns() != self.schema.fields().len() {
            return Err(format!(
                "expected {} columns, found {}",
                self.schema.fields().len(),
                tuples.num_columns()
            ));
        }
        for (field, array) in self.schema.fields().iter().zip(tuples.columns()) {
            if field.data_type() != array.data_type() {
                let (name, expected, found) = (field.name(), field.data_type(), array.data_type());
                return Err(format!("column {name}: expected an array of {expected}, found one of {found}"));
            }
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(format!("column {}: NULL in a NOT NULL column", field.name()));
            }
        }
        Ok(())
    }

    /// Counts the bad records before the next tuple (all of them at the end of the batch).
    fn skip_rejects(&mut self, pending: &mut PendingBatch) {
        let all = pending.consumed == pending.batch.len();
        while let Some(reject) =
            pending.rejects.next_if(|reject| all || reject.tuples_before < pending.consumed)
        {
            self.progress.rejected += 1;
            self.rejects.push(reject);
        }
    }

    /// Takes what came in the open epoch; the progress goes on from there.
    fn take_epoch(&mut self) -> SourceEpoch {
        let splits = self.splits.as_mut().map(|(splits, _)| splits.take_changed());
        SourceEpoch {
            progress: self.progress,
            rejects: std::mem::take(&mut self.rejects),
            splits: splits.unwrap_or_default(),
        }
    }

    /// Adds what came in an epoch behind what is there.
    fn add_epoch(&mut self, epoch: SourceEpoch) {
        self.progress = epoch.progress;
        self.rejects.extend(epoch.rejects);
        if let Some((splits, _)) = &mut self.splits {
            splits.add_changed(epoch.splits);
        }
    }

    /// Writes the bad records that wait for a commit into their table.
    fn write_rejects(&self, tx: &Transaction) -> Result<()> {
        let Some(table) = self.rejects_table.as_ref().filter(|_| !self.rejects.is_empty()) else {
            return Ok(());
        };
        let row = |reject: &Reject| {
            let place = (reject.line, reject.offset);
            rejects_table::row(&self.name, place, &reject.reason, &reject.raw)
        };
        table.write(tx, &self.rejects.iter().map(row).collect::<Vec<_>>())
    }

    /// Number of tuples that are not consumed.
    fn available(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.batch.len() - pending.consumed)
    }

    /// Event times of the tuples that are not consumed.
    pub(crate) fn times(&self) -> Result<&[i64]> {
        let Some(pending) = &self.pending else { return Ok(&[]) };
        let times = self.event_time.and_then(|column| pending.batch.times(column));
        times.map(|times| &times[pending.consumed..]).ok_or_else(|| Error::Tuple {
            operator: format!("source {}", self.name),
            reason: "a tuple has no event time".to_owned(),
        })
    }

    /// Timestamp of the commit that the last of the next tuples is of, if they are of commits.
    pub(crate) fn commit_of(&self, tuples: usize) -> Option<Timestamp> {
        let pending = self.pending.as_ref().filter(|_| self.source.follows_commits())?;
        Some(Timestamp::from_stored(pending.positions.after(pending.consumed + tuples - 1).offset))
    }

    /// Consumes the first tuples.
    fn take(&mut self, tuples: usize) -> Option<Batch> {
        let mut pending = self.pending.take()?;
        let first = pending.consumed;
        pending.consumed += tuples;
        let taken = pending.batch.slice(first..pending.consumed);
        self.progress.tuples += tuples as u64;
        self.skip_rejects(&mut pending);
        if pending.consumed == pending.batch.len() {
            self.moved(pending.split.as_ref(), pending.end);
            return Some(taken);
        }
        if pending.consumed > 0 {
            self.moved(pending.split.as_ref(), pending.positions.after(pending.consumed - 1));
        }
        self.pending = Some(pending);
        Some(taken)
    }
}

impl Feed {
    pub(crate) fn new(sources: Vec<FeedSource>, leader: Option<&str>, merge: Merge) -> Feed {
        let leader = leader.and_then(|leader| sources.iter().position(|source| source.name == leader));
        Feed { sources, leader, merge, turn: 0 }
    }

    /// Returns true if the marks of a source end transactions.
    pub(crate) fn marks(&self, number: usize) -> bool {
        self.leader.is_none_or(|leader| leader == number)
    }

    /// Opens all sources at their stored positions.
    pub(crate) fn open(&mut self) -> Result<()> {
        self.sources.iter_mut().try_for_each(FeedSource::open)
    }

    /// Name of the source at a node.
    pub(crate) fn name_of(&self, node: usize) -> String {
        let found = self.sources.iter().find(|source| source.node == node);
        found.map_or_else(String::new, |source| format!("source {}", source.name))
    }

    /// Transaction that a source has marked last, if its transactions have ids.
    pub(crate) fn transaction_of(&self, number: usize) -> Option<Arc<str>> {
        self.sources[number].source.transaction()
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
                    None => return Ok(FeedElement::Tuples { source: number, tuples: source.available() }),
                    Some(FeedElement::Idle) => idle = true,
                    Some(other) => return Ok(other),
                }
            }
            self.turn = (self.turn + 1) % self.sources.len();
        }
        Ok(if idle { FeedElement::Idle } else { FeedElement::End })
    }

    fn peek_by_event_time(&mut self) -> Result<FeedElement> {
        let mut heads: Vec<(i64, usize)> = Vec::with_capacity(self.sources.len());
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.ended || source.held {
                continue;
            }
            if let Some(other) = source.fill(number)? {
                return Ok(other);
            }
            heads.extend(source.times()?.first().map(|&time_us| (time_us, number)));
        }
        heads.sort_unstable();
        let Some(&(_, source)) = heads.first() else { return Ok(FeedElement::End) };
        let times = self.sources[source].times()?;
        let Some(&next) = heads.get(1) else {
            return Ok(FeedElement::Tuples { source, tuples: times.len() });
        };
        let later = times.iter().skip(1).position(|&time_us| (time_us, source) > next);
        Ok(FeedElement::Tuples { source, tuples: later.map_or(times.len(), |at| at + 1) })
    }

    /// Consumes the first tuples that `peek` returned.
    pub(crate) fn take(&mut self, number: usize, tuples: usize) -> Option<Batch> {
        let taken = self.sources[number].take(tuples);
        if self.sources[number].pending.is_none() {
            self.turn = (number + 1) % self.sources.len();
        }
        taken
    }

    /// Reads nothing more of a source until [`Feed::release`].
    pub(crate) fn hold(&mut self, number: usize) {
        self.sources[number].held = true;
    }

    /// Reads all sources again.
    pub(crate) fn release(&mut self) {
        self.sources.iter_mut().for_each(|source| source.held = false);
    }

    /// Returns true if every source that marks transactions is held or has ended.
    pub(crate) fn all_held(&self) -> bool {
        let mut marking = self.sources.iter().enumerate().filter(|(number, _)| self.marks(*number));
        marking.all(|(_, source)| source.held || source.ended)
    }

    /// Notes that nothing follows from a source.
    pub(crate) fn end(&mut self, number: usize) {
        self.sources[number].ended = true;
    }

    /// Reads nothing more of any source, if the one that leads has ended.
    pub(crate) fn end_with_leader(&mut self) {
        if self.leader.is_some_and(|leader| self.sources[leader].ended) {
            self.sources.iter_mut().for_each(|source| source.held = true);
        }
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
        self.sources.iter().any(FeedSource::has_moved)
    }

    /// Writes all source positions into the transaction.
    pub(crate) fn write_positions(&mut self, tx: &Transaction) -> Result<()> {
        for source in &mut self.sources {
            if source.stored.stored().is_none() && source.progress == SourceProgress::default() {
                continue;
            }
            if let Some((splits, _)) = &source.splits {
                splits.write(tx)?;
            }
            source.stored.write(tx, source.progress)?;
            source.write_rejects(tx)?;
        }
        Ok(())
    }

    /// Ends the epoch: what comes is of the next one.
    pub(crate) fn sealed(&mut self) {
        for source in &mut self.sources {
            debug_assert!(source.sealed.is_none(), "at most one sealed epoch has no outcome yet");
            source.sealed = Some(source.take_epoch());
        }
    }

    /// Makes the sealed epoch the open one again, until [`Feed::go_on`].
    pub(crate) fn reopen(&mut self) {
        for source in &mut self.sources {
            let Some(sealed) = source.sealed.take() else { continue };
            source.later = Some(source.take_epoch());
            source.add_epoch(sealed);
        }
    }

    /// Goes on with the epoch behind one that was open again.
    pub(crate) fn go_on(&mut self) {
        for source in &mut self.sources {
            if let Some(later) = source.later.take() {
                source.add_epoch(later);
            }
        }
    }

    /// Hands out the bad records of the sealed epoch after its commit; returns their number.
    pub(crate) fn committed(&mut self, pool: &Pool) -> Result<u64> {
        let mut rejected = 0;
        for source in &mut self.sources {
            source.stored.committed();
            let Some(SourceEpoch { rejects, progress, splits }) = source.sealed.take() else { continue };
            if source.source.acknowledges() {
                source.acknowledgements.note(pool, progress.position, splits, rejects.len());
            }
            if !rejects.is_empty() {
                rejected += rejects.len() as u64;
                source.source.rejected(&rejects)?;
            }
        }
        self.acknowledge(pool)?;
        if self.has_waiting() {
            // At `none` the journal would be synced for its own reasons only.
            let soon = Durability::Group { interval_ms: ACKNOWLEDGED_WITHIN_MS };
            pool.persist(soon).map_err(entresol_transactions::Error::from)?;
        }
        Ok(rejected)
    }

    /// Returns true if a source waits until a commit is durable.
    fn has_waiting(&self) -> bool {
        self.sources.iter().any(|source| source.acknowledgements.has_waiting())
    }

    /// Tells the sources what is durable.
    pub(crate) fn acknowledge(&mut self, pool: &Pool) -> Result<()> {
        for source in &mut self.sources {
            if let Some(committed) = source.acknowledgements.take_durable(pool) {
                source.source.committed(&committed)?;
            }
        }
        Ok(())
    }

    /// Makes durable what sources wait for, and tells them.
    pub(crate) fn acknowledge_all(&mut self, pool: &Pool) -> Result<()> {
        if self.has_waiting() {
            pool.sync().map_err(entresol_transactions::Error::from)?;
            self.acknowledge(pool)?;
        }
        Ok(())
    }

    pub(crate) fn aborted(&mut self) {
        self.sources.iter_mut().for_each(|source| source.stored.aborted());
    }
}
