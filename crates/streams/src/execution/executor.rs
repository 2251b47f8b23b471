//! Main loop of a topology: divides the stream into transactions, commits, aborts and retries them.
//!
//! # A transaction
//!
//! ```text
//!   begin ─ tuples, watermarks ─ commit punctuation through all operators ─ positions ─ votes ─ commit
//!             │ logged for replay               │ TO_TABLEs vote, TO_STREAMs on commit flow
//!             ▼                                 ▼
//!           error: abort, operators reset.   conflict: abort, reset, replay the input
//! ```
//!
//! - TO_TABLE and windows vote for their states when the commit punctuation reaches them; the last vote is
//!   that of the source positions, and with it the executor becomes the coordinator and commits (lightweight
//!   2PC, dissertation 5.3.3). If some written state has not voted, nothing is committed.
//! - Where sources mark transactions ([`Boundary::Punctuated`]), each has a part in every transaction: it is
//!   complete when all sources have marked theirs. A source that has is not read until then, and one whose
//!   part is aborted, or is not complete when the source begins another or ends, dooms the transaction. Where sources
//!   name transactions, parts of different ones are an error. Where one source leads, the others have no parts of their own: their
//!   tuples are of the transaction that the leader marks next, and with it they end.
//! - A transaction is *doomed* once it contains tuples that cannot be processed (with [`OnError::Abort`]):
//!   the rest of its tuples is skipped, so that the complete transaction is dropped.
//! - A dropped transaction's tuples count as processed: the next commit stores a position after them. If
//!   there is none before a restart, they are read and dropped again.
//!
//! # Limits
//!
//! The input of a transaction is held for replay, within the memory budget of the pool; a longer transaction
//! is an error. [`RETRIES_MAX`] retries, or more within [`RETRY_TIME_MAX`].

use crate::boundary::{Boundary, Merge, OnError};
use crate::element::Punctuation;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::committer::Committer;
use crate::execution::dataflow::{Dataflow, Sqlstates};
use crate::execution::dropped::{DroppedTuples, ErrorTables};
use crate::execution::epoch::{Epoch, Input, SealedEpoch};
use crate::execution::feed::{Feed, FeedElement};
use crate::operators::window::WindowSpan;
use crate::running::{Progress, Report};
use crate::{IDLE_COMMIT_MS, REJECTS_PENDING_MAX};
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{Durability, Env};
use entresol_tables::{Catalog, Table};
use entresol_transactions::Isolation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    pub(crate) boundary: Boundary,
    /// Number of tuples that end a transaction whatever its boundary, unless its sources mark transactions.
    pub(crate) tuples_max: Option<usize>,
    pub(crate) on_error: OnError,
    pub(crate) merge: Merge,
    pub(crate) commit_interval_ns: Option<u64>,
    pub(crate) commits_when_idle: bool,
    /// Threads that the topology may use; at least 1.
    pub(crate) parallelism: usize,
    /// SQLSTATEs of errors of operators.
    pub(crate) sqlstates: Sqlstates,
    /// Memory of operators and of input that is held for replay.
    pub(crate) memory: Option<Arc<MemoryBudget>>,
}

pub(crate) struct Executor {
    pub(super) topology: String,
    pub(super) catalog: Arc<Catalog>,
    pub(super) settings: Settings,
    pub(super) feed: Feed,
    pub(super) dataflow: Dataflow,
    pub(super) positions: Arc<Table>,
    pub(super) progress: Arc<Progress>,
    /// Epoch that is open.
    pub(super) epoch: Epoch,
    /// Epoch before it, while its commit may run.
    pub(super) sealed: Option<SealedEpoch>,
    /// Thread for commits, if the next epoch is computed meanwhile.
    pub(super) committer: Option<Committer>,
    /// Per source, true if it has elements in the open transaction and has not marked its part.
    open_parts: Vec<bool>,
    /// Source that has marked its part of the open transaction first, and the id of that.
    marked: Option<(usize, Arc<str>)>,
    /// Sources that have ended while the transaction was open.
    ended: Vec<usize>,
    /// Per source, the time of its last tuples, and true if it is not waited for.
    heard_ns: Vec<u64>,
    pub(super) quiet: Vec<bool>,
    windows: Vec<WindowSpan>,
    /// Start of the open window, per window operator.
    window_starts: Vec<Option<EventTime>>,
    /// Tables for the tuples of failed transactions, and those of the open epoch, if it failed.
    pub(super) error_tables: ErrorTables,
    pub(super) dropped: Option<DroppedTuples>,
    /// The greatest event time of the input.
    pub(super) event_time: EventTime,
    idle_since_ns: Option<u64>,
    /// Time from which results that are due are committed although nothing comes.
    due_from_ns: u64,
}

impl Executor {
    pub(crate) fn new(
        topology: String,
        catalog: Arc<Catalog>,
        settings: Settings,
        feed: Feed,
        dataflow: Dataflow,
        windows: Vec<WindowSpan>,
        positions: Arc<Table>,
    ) -> Executor {
        let epoch = Epoch::new(settings.memory.as_ref());
        let nodes = dataflow.names_and_parts().into_iter().enumerate();
        let nodes = nodes.map(|(node, found)| found.unwrap_or_else(|| (feed.name_of(node), 1))).collect();
        let has_threads = settings.parallelism > 1 && !catalog.context().pool().env().is_simulated();
        let overlaps = has_threads && dataflow.overlaps();
        let progress = Progress::new(nodes, settings.parallelism, overlaps);
        Executor {
            topology,
            catalog,
            settings,
            dataflow,
            positions,
            progress: Arc::new(progress),
            epoch,
            sealed: None,
            committer: None,
            open_parts: vec![false; feed.sources()],
            marked: None,
            ended: Vec::new(),
            heard_ns: vec![0; feed.sources()],
            quiet: vec![false; feed.sources()],
            feed,
            window_starts: vec![None; windows.len()],
            windows,
            error_tables: ErrorTables::default(),
            dropped: None,
            event_time: EventTime::START,
            idle_since_ns: None,
            due_from_ns: 0,
        }
    }

    /// Sets the tables for the tuples of failed transactions.
    pub(crate) fn errors_into(self, error_tables: ErrorTables) -> Executor {
        Executor { error_tables, ..self }
    }

    pub(crate) fn topology(&self) -> &str {
        &self.topology
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns true if commits have a thread of their own.
    pub(crate) fn overlaps(&self) -> bool {
        self.progress.overlaps()
    }

    pub(crate) fn env(&self) -> &Env {
        self.catalog.context().pool().env()
    }

    /// Runs until the sources end, `stop` is set, or an error occurs.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<Report> {
        let start_ns = self.env().now_ns();
        self.heard_ns.fill(start_ns);
        if let Err(error) =
            self.open().and_then(|()| self.run_until(stop)).and_then(|()| self.acknowledge_all())
        {
            let sqlstate = (self.settings.sqlstates)(&error);
            tracing::error!(topology = self.topology, %error, sqlstate, "topology failed");
            self.end_with_error();
            return Err(error);
        }
        let progress = self.progress.snapshot();
        Ok(Report {
            tuples: progress.tuples,
            transactions: progress.transactions,
            aborts: progress.aborts,
            retries: progress.retries,
            rejected_rows: progress.rejected,
            late: progress.late,
            future: progress.future,
            lost: progress.lost,
            last_cts: progress.last_cts,
            commit_latencies: self.progress.commit_latencies(),
            elapsed_ns: self.env().now_ns().saturating_sub(start_ns),
        })
    }

    /// Opens operators and sources, and starts the thread for commits if there is to be one.
    fn open(&mut self) -> Result<()> {
        self.dataflow.open()?;
        self.feed.open()?;
        if self.overlaps() {
            self.committer = Some(Committer::start(&self.topology, self.env())?);
        }
        Ok(())
    }

    /// Tells the sources that all is committed.
    fn acknowledge_all(&mut self) -> Result<()> {
        self.feed.acknowledge_all(self.catalog.context().pool())
    }

    fn run_until(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match self.feed.peek()? {
                FeedElement::Tuples { source, tuples } => self.tuples(source, tuples)?,
                FeedElement::Invalid(source, error) => {
                    self.open_parts[source] = true;
                    // It would not come again if the open epoch had to be computed again.
                    self.settle()?;
                    self.recover(error)?;
                }
                FeedElement::Punctuation(source, punctuation) => self.punctuation(source, punctuation)?,
                FeedElement::Ended(source) => self.ended(source)?,
                FeedElement::Idle => self.idle()?,
                FeedElement::End => {
                    self.dataflow.ending();
                    self.commit()?;
                    // Results that waited for an interval, a part in each transaction.
                    while !stop.load(Ordering::Relaxed) && self.commit_due()? {}
                    return self.settle().map(drop);
                }
            }
            if self.sealed.as_ref().is_some_and(|sealed| sealed.pending.has_ended()) {
                self.settle()?;
            }
            if self.feed.rejects_pending() + self.dataflow.skipped_pending() >= REJECTS_PENDING_MAX {
                self.check_rejects()?;
            }
        }
        self.finish_open()?;
        self.settle().map(drop)
    }

    /// Ends the open transaction at a stop. One whose end is not marked yet comes again: its tuples are not stored as
    /// dropped, as the positions behind them would be in the middle of it. So may those be of a source whose part has no tuples.
    fn finish_open(&mut self) -> Result<()> {
        if self.settings.boundary == Boundary::Punctuated {
            self.dropped = None;
            return if self.epoch.is_empty() { Ok(()) } else { self.drop_transaction() };
        }
        self.dataflow.ending();
        self.commit()
    }

    /// Stores bad records that wait in a transaction, before there are too many. A transaction that the sources mark is not
    /// divided, and its records may come before its first tuple.
    fn check_rejects(&mut self) -> Result<()> {
        if self.settings.boundary == Boundary::Punctuated {
            let resource = format!("bad records and skipped tuples in a transaction of {}", self.topology);
            return Err(Error::Limit { resource, max: REJECTS_PENDING_MAX });
        }
        self.commit()
    }

    /// Processes those of a source's tuples that belong to the current transaction.
    fn tuples(&mut self, source: usize, available: usize) -> Result<()> {
        self.idle_since_ns = None;
        self.note_quiet_sources(source);
        let taken = match self.settings.boundary {
            Boundary::EachTuple => 1,
            Boundary::Every(tuples) => available.min(tuples - self.epoch.held.tuples()),
            Boundary::Punctuated => available,
            Boundary::PerWindow => {
                let room = self.settings.tuples_max.map_or(available, |max| max - self.epoch.held.tuples());
                self.tuples_before_crossing(source, available.min(room))?
            }
        };
        if taken == 0 {
            return Ok(());
        }
        if self.is_before_commit_of(source, taken) {
            self.commit()?;
        }
        self.note_event_time(source, taken);
        let Some(part) = self.feed.take(source, taken) else { return Ok(()) };
        self.open_parts[source] = true;
        self.epoch.held.add(&part)?;
        self.input(Input::Batch { source, batch: part })?;
        match self.settings.boundary {
            Boundary::EachTuple => self.commit(),
            Boundary::Every(tuples) if self.epoch.held.tuples() >= tuples => self.commit(),
            Boundary::PerWindow
                if self.settings.tuples_max.is_some_and(|max| self.epoch.held.tuples() >= max) =>
            {
                self.commit()
            }
            _ => self.commit_if_due(),
        }
    }

    /// Returns true if the next tuples of a source are of a commit that the open transaction does not see: it would look
    /// up tables as they were before.
    fn is_before_commit_of(&self, source: usize, tuples: usize) -> bool {
        let Some(transaction) = self.epoch.transaction.as_ref().and_then(|epoch| epoch.begun()) else {
            return false;
        };
        let commit = self.feed.source(source).commit_of(tuples);
        self.settings.boundary != Boundary::Punctuated && commit.is_some_and(|cts| !transaction.sees(cts))
    }

    /// Commits the open transaction if it has been open for the interval of commits.
    fn commit_if_due(&mut self) -> Result<()> {
        let Some(interval_ns) = self.settings.commit_interval_ns else { return Ok(()) };
        if self.settings.boundary == Boundary::Punctuated || self.epoch.is_empty() {
            return Ok(());
        }
        let now_ns = self.env().now_ns();
        let begun_ns = *self.epoch.begun_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(begun_ns) < interval_ns {
            return Ok(());
        }
        self.commit()
    }

    /// Notes that tuples have come from a source, and which of the others are not waited for.
    fn note_quiet_sources(&mut self, heard: usize) {
        if self.quiet.len() == 1 {
            return;
        }
        let now_ns = self.env().now_ns();
        self.heard_ns[heard] = now_ns;
        for source in 0..self.quiet.len() {
            let silent_ns = now_ns.saturating_sub(self.heard_ns[source]);
            self.quiet[source] = self.feed.has_ended(source) || silent_ns > self.feed.source(source).idle_ns;
        }
    }

    /// Notes the event time of the last of so many tuples.
    fn note_event_time(&mut self, source: usize, tuples: usize) {
        let source = self.feed.source(source);
        if source.event_time.is_some()
            && let Ok(times) = source.times()
            && let Some(&micros) = times.get(tuples - 1)
        {
            self.event_time = self.event_time.max(EventTime::from_micros(micros));
        }
    }

    /// Returns the number of tuples before the first one whose event time closes a window. If that is the
    /// first of all, ends the transaction with the watermark of this tuple and returns 0.
    fn tuples_before_crossing(&mut self, source: usize, available: usize) -> Result<usize> {
        let now = self.now();
        let mut at = 0;
        while let Some(time) = self.first_crossing(source, &mut at, available, now)? {
            if at > 0 {
                return Ok(at);
            }
            let is_first = self.epoch.is_empty() && self.window_starts.iter().all(Option::is_none);
            for (start, span) in self.window_starts.iter_mut().zip(&self.windows) {
                let reached = span.first_open(span.watermark_after(time));
                *start = Some(start.map_or(reached, |start| start.max(reached)));
            }
            if is_first {
                // The first tuple of a run: no window is open that it could close in this transaction.
                at += 1;
                continue;
            }
            let lateness_us = self.windows.iter().map(|span| span.lateness_us).max().unwrap_or(0);
            self.watermark_from(source, time.minus(lateness_us))?;
            self.commit()?;
            return Ok(0);
        }
        Ok(available)
    }

    /// Event time of the first tuple from `at` on that closes a window; `at` is its place then.
    fn first_crossing(
        &self,
        source: usize,
        at: &mut usize,
        available: usize,
        now: EventTime,
    ) -> Result<Option<EventTime>> {
        let times = &self.feed.source(source).times()?[..available];
        let closes = |micros: &i64| {
            let time = EventTime::from_micros(*micros);
            self.crosses(time) && !self.windows.iter().any(|span| span.is_future(time, now))
        };
        let Some(found) = times[*at..].iter().position(closes) else { return Ok(None) };
        *at += found;
        Ok(Some(EventTime::from_micros(times[*at])))
    }

    fn crosses(&self, time: EventTime) -> bool {
        let starts = self.window_starts.iter().zip(&self.windows);
        starts.into_iter().any(|(start, span)| {
            start.is_none_or(|start| span.first_open(span.watermark_after(time)) > start)
        })
    }

    /// Applies the event time of a source's tuple as a watermark to all sources if they are merged by event
    /// time.
    fn watermark_from(&mut self, source: usize, time: EventTime) -> Result<()> {
        let nodes: Vec<usize> = if self.feed.merges_by_event_time() {
            self.feed.live_nodes().collect()
        } else {
            vec![self.feed.source(source).node]
        };
        nodes.into_iter().try_for_each(|node| self.input(Input::Watermark { node, time }))
    }

    fn punctuation(&mut self, source: usize, punctuation: Punctuation) -> Result<()> {
        let is_marked = self.settings.boundary == Boundary::Punctuated;
        match punctuation {
            Punctuation::Begin | Punctuation::Commit | Punctuation::Abort
                if is_marked && !self.feed.marks(source) =>
            {
                Ok(())
            }
            // A part begins with its first tuple; the open one before it was not marked complete.
            Punctuation::Begin if is_marked && self.open_parts[source] => self.mark(source, false),
            Punctuation::Begin if is_marked => Ok(()),
            Punctuation::Commit if is_marked => {
                self.check_transaction(source)?;
                self.mark(source, true)
            }
            Punctuation::Abort if is_marked => self.mark(source, false),
            Punctuation::Begin | Punctuation::Commit => self.commit(),
            Punctuation::Abort => self.drop_transaction(),
            Punctuation::Watermark(time) => {
                self.open_parts[source] = true;
                let node = self.feed.source(source).node;
                // The end is a punctuation of its own.
                self.input(Input::Watermark { node, time: time.min(EventTime::END.minus(1)) })
            }
            Punctuation::End => {
                self.feed.end(source);
                self.ended(source)
            }
        }
    }

    /// Checks that the parts of the open transaction are of the same one, where sources name it.
    fn check_transaction(&mut self, source: usize) -> Result<()> {
        let Some(id) = self.feed.transaction_of(source) else { return Ok(()) };
        let Some((other, expected)) = self.marked.as_ref().filter(|(_, expected)| *expected != id) else {
            self.marked.get_or_insert((source, id));
            return Ok(());
        };
        let name = |source: usize| self.feed.source(source).name();
        let reason = format!(
            "source {} ends transaction {id}, and source {} transaction {expected} in its place",
            name(source),
            name(*other)
        );
        Err(Error::InvalidTopology { topology: self.topology.clone(), reason })
    }

    /// Ends a source's part of the transaction, and the transaction if all parts have ended.
    fn mark(&mut self, source: usize, is_complete: bool) -> Result<()> {
        if !is_complete && (self.feed.sources() > 1 || !self.epoch.inputs.is_empty()) {
            self.doom()?;
        }
        self.open_parts[source] = false;
        self.feed.hold(source);
        self.finish_marked()
    }

    /// Ends the transaction if no source has an open part or could still get one.
    fn finish_marked(&mut self) -> Result<()> {
        let is_empty = self.epoch.is_empty();
        if !self.feed.all_held() && !is_empty {
            return Ok(());
        }
        if self.feed.all_held() {
            self.feed.release();
            self.marked = None;
            self.commit()?;
        }
        // The last watermark of a source goes into a transaction of its own: it holds whatever became of the
        // parts.
        for source in std::mem::take(&mut self.ended) {
            let node = self.feed.source(source).node;
            self.input(Input::Watermark { node, time: EventTime::END })?;
            self.commit()?;
        }
        Ok(())
    }

    /// Drops what the open transaction has so far, and what will come.
    fn doom(&mut self) -> Result<()> {
        self.abort_transaction()?;
        self.epoch.doomed = true;
        Ok(())
    }

    /// Closes the windows of a source that has ended, in a transaction that ends with it; if that is dropped for its tuples,
    /// in another one: windows that opened before are closed, whatever became of the last tuples.
    fn ended(&mut self, source: usize) -> Result<()> {
        if self.settings.boundary == Boundary::Punctuated {
            if std::mem::take(&mut self.open_parts[source]) && self.feed.marks(source) {
                self.doom()?;
            }
            self.ended.push(source);
            self.finish_marked()?;
            self.feed.end_with_leader();
            return Ok(());
        }
        if self.epoch.doomed {
            self.drop_transaction()?;
        }
        // An abort of the epoch before is not one of this.
        self.settle()?;
        let (has_others, aborts) = (!self.epoch.is_empty(), self.progress.aborts.load(Ordering::Relaxed));
        let node = self.feed.source(source).node;
        let end = Input::Watermark { node, time: EventTime::END };
        self.input(end.clone())?;
        self.commit()?;
        self.settle()?;
        if !has_others || self.progress.aborts.load(Ordering::Relaxed) == aborts {
            return Ok(());
        }
        self.input(end)?;
        self.commit()
    }

    pub(super) fn note_rate(&self) {
        self.progress.note_rates(self.env().now_ns());
    }

    fn idle(&mut self) -> Result<()> {
        self.settle()?;
        self.feed.acknowledge(self.catalog.context().pool())?;
        if self.settings.commits_when_idle && self.settings.boundary != Boundary::Punctuated {
            self.commit()?;
        }
        self.commit_if_due()?;
        let now_ns = self.env().now_ns();
        let is_due = self.commits_by_clock() && self.dataflow.is_due(self.now());
        if is_due && now_ns >= self.due_from_ns && !self.commit_due()? {
            // A condition may hold again and again although nothing comes.
            self.due_from_ns = now_ns + IDLE_COMMIT_MS * 1_000_000;
        }
        self.note_rate();
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let waited = now_ns.saturating_sub(since_ns) >= IDLE_COMMIT_MS * 1_000_000;
        if waited && matches!(self.settings.boundary, Boundary::Every(_)) {
            self.idle_since_ns = None;
            return self.commit();
        }
        Ok(())
    }

    /// Commits results that are due; returns false if there are none, or if the transaction was dropped.
    fn commit_due(&mut self) -> Result<bool> {
        if !self.dataflow.is_due(self.now()) {
            return Ok(false);
        }
        let aborts = self.progress.aborts.load(Ordering::Relaxed);
        self.commit()?;
        Ok(self.progress.aborts.load(Ordering::Relaxed) == aborts)
    }

    /// Returns true if the open transaction may be committed for results that are due: none is open, or it ends anywhere.
    fn commits_by_clock(&self) -> bool {
        match self.settings.boundary {
            Boundary::Punctuated => false,
            Boundary::PerWindow => self.epoch.is_empty(),
            Boundary::EachTuple | Boundary::Every(_) => true,
        }
    }

    /// Adds input to the transaction.
    fn input(&mut self, input: Input) -> Result<()> {
        if self.epoch.doomed {
            return match (&mut self.dropped, &input) {
                (Some(dropped), Input::Batch { source, batch }) => {
                    dropped.add(self.feed.source(*source).name(), batch)
                }
                _ => Ok(()),
            };
        }
        self.epoch.inputs.push(input.clone());
        match self.apply(&input) {
            Ok(()) => Ok(()),
            Err(error) => self.recover(error),
        }
    }
}
