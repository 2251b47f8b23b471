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
//!   part is aborted, or is not complete when the source begins another or ends, dooms the transaction.
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
use crate::element::{Batch, Punctuation};
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::dataflow::Dataflow;
use crate::execution::feed::{Feed, FeedElement};
use crate::execution::held_batches::HeldBatches;
use crate::operators::window::WindowSpan;
use crate::operators::{Context, Counts};
use crate::running::{Progress, Report};
use crate::{IDLE_COMMIT_MS, REJECTS_PENDING_MAX, RETRIES_MAX, RETRY_TIME_MAX, SOURCE_IDLE_MS};
use entresol_memory::{Durability, Env};
use entresol_tables::{Catalog, Table};
use entresol_transactions::{Timestamp, Transaction, Vote};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Delay before a busy resource is tried again.
const BUSY_WAIT_MS: u64 = 1;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    pub(crate) boundary: Boundary,
    pub(crate) on_error: OnError,
    pub(crate) merge: Merge,
    pub(crate) commit_interval_ns: Option<u64>,
    pub(crate) commits_when_idle: bool,
}

/// Input of a transaction, logged for replay.
#[derive(Clone)]
enum Input {
    Batch { source: usize, batch: Batch },
    Watermark { node: usize, time: EventTime },
}

pub(crate) struct Executor {
    topology: String,
    catalog: Arc<Catalog>,
    settings: Settings,
    feed: Feed,
    dataflow: Dataflow,
    positions: Arc<Table>,
    counts: Counts,
    progress: Arc<Progress>,
    transaction: Option<Arc<Transaction>>,
    inputs: Vec<Input>,
    /// Counts the tuples of the input.
    held: HeldBatches,
    retries: u32,
    /// Time of the first of the retries.
    retried_first: Option<Instant>,
    /// True if the rest of the transaction is to be skipped.
    doomed: bool,
    /// Per source, true if it has elements in the open transaction and has not marked its part.
    open_parts: Vec<bool>,
    /// Sources that have ended while the transaction was open.
    ended: Vec<usize>,
    /// Per source, the time of its last tuples, and true if it is not waited for.
    heard_ns: Vec<u64>,
    quiet: Vec<bool>,
    windows: Vec<WindowSpan>,
    /// Start of the open window, per window operator.
    window_starts: Vec<Option<EventTime>>,
    /// The greatest event time of the input.
    event_time: EventTime,
    idle_since_ns: Option<u64>,
    /// Time of the first input of the open transaction, if there is an interval of commits.
    begun_ns: Option<u64>,
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
        let held = HeldBatches::new(catalog.context().pool().memory());
        let names = dataflow.names().into_iter().enumerate();
        let names = names.map(|(node, name)| name.unwrap_or_else(|| feed.name_of(node))).collect();
        Executor {
            topology,
            catalog,
            settings,
            dataflow,
            positions,
            counts: Counts::default(),
            progress: Arc::new(Progress::new(names)),
            transaction: None,
            inputs: Vec::new(),
            held,
            retries: 0,
            retried_first: None,
            doomed: false,
            open_parts: vec![false; feed.sources()],
            ended: Vec::new(),
            heard_ns: vec![0; feed.sources()],
            quiet: vec![false; feed.sources()],
            feed,
            window_starts: vec![None; windows.len()],
            windows,
            event_time: EventTime::START,
            idle_since_ns: None,
            begun_ns: None,
        }
    }

    pub(crate) fn topology(&self) -> &str {
        &self.topology
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn env(&self) -> &Env {
        self.catalog.context().pool().env()
    }

    /// Runs until the sources end, `stop` is set, or an error occurs.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<Report> {
        let start_ns = self.env().now_ns();
        self.heard_ns.fill(start_ns);
        let result = self.dataflow.open().and_then(|()| self.feed.open()).and_then(|()| self.run_until(stop));
        if let Err(error) = result {
            tracing::error!(topology = self.topology, %error, "topology failed");
            self.abort_transaction();
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

    fn run_until(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match self.feed.peek()? {
                FeedElement::Tuples { source, tuples } => self.tuples(source, tuples)?,
                FeedElement::Invalid(source, error) => {
                    self.open_parts[source] = true;
                    self.recover(error)?;
                }
                FeedElement::Punctuation(source, punctuation) => self.punctuation(source, punctuation)?,
                FeedElement::Ended(source) => self.ended(source)?,
                FeedElement::Idle => self.idle()?,
                FeedElement::End => {
                    return self.commit();
                }
            }
            if self.feed.rejects_pending() + self.dataflow.skipped_pending() >= REJECTS_PENDING_MAX {
                self.check_rejects()?;
            }
        }
        self.finish_open()
    }

    /// Ends the open transaction at a stop, or before the end of a source whose tuples carry no marks.
    fn finish_open(&mut self) -> Result<()> {
        match self.settings.boundary {
            Boundary::Punctuated if !self.inputs.is_empty() || self.doomed => {
                self.drop_transaction();
                Ok(())
            }
            _ => self.commit(),
        }
    }

    fn check_rejects(&mut self) -> Result<()> {
        if self.settings.boundary == Boundary::Punctuated && !self.inputs.is_empty() {
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
            Boundary::Every(tuples) => available.min(tuples - self.held.tuples()),
            Boundary::Punctuated => available,
            Boundary::PerWindow => self.tuples_before_crossing(source, available)?,
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
        self.held.add(&part)?;
        self.input(Input::Batch { source, batch: part })?;
        match self.settings.boundary {
            Boundary::EachTuple => self.commit(),
            Boundary::Every(tuples) if self.held.tuples() >= tuples => self.commit(),
            _ => self.commit_if_due(),
        }
    }

    /// Returns true if the next tuples of a source are of a commit that the open transaction does not see: it would look
    /// up tables as they were before.
    fn is_before_commit_of(&self, source: usize, tuples: usize) -> bool {
        let Some(transaction) = &self.transaction else { return false };
        let commit = self.feed.source(source).commit_of(tuples);
        self.settings.boundary != Boundary::Punctuated && commit.is_some_and(|cts| !transaction.sees(cts))
    }

    /// Commits the open transaction if it has been open for the interval of commits.
    fn commit_if_due(&mut self) -> Result<()> {
        let Some(interval_ns) = self.settings.commit_interval_ns else { return Ok(()) };
        if self.settings.boundary == Boundary::Punctuated || (self.inputs.is_empty() && !self.doomed) {
            return Ok(());
        }
        let now_ns = self.env().now_ns();
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
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
            self.quiet[source] = self.feed.has_ended(source) || silent_ns > SOURCE_IDLE_MS * 1_000_000;
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
            for (start, span) in self.window_starts.iter_mut().zip(&self.windows) {
                let reached = span.first_open(span.watermark_after(time));
                *start = Some(start.map_or(reached, |start| start.max(reached)));
            }
            if self.inputs.is_empty() && !self.doomed {
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
            // A part begins with its first tuple; the open one before it was not marked complete.
            Punctuation::Begin if is_marked && self.open_parts[source] => self.mark(source, false),
            Punctuation::Begin if is_marked => Ok(()),
            Punctuation::Commit if is_marked => self.mark(source, true),
            Punctuation::Abort if is_marked => self.mark(source, false),
            Punctuation::Begin | Punctuation::Commit => self.commit(),
            Punctuation::Abort => {
                self.drop_transaction();
                Ok(())
            }
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

    /// Ends a source's part of the transaction, and the transaction if all parts have ended.
    fn mark(&mut self, source: usize, is_complete: bool) -> Result<()> {
        if !is_complete && (self.feed.sources() > 1 || !self.inputs.is_empty()) {
            self.doom();
        }
        self.open_parts[source] = false;
        self.feed.hold(source);
        self.finish_marked()
    }

    /// Ends the transaction if no source has an open part or could still get one.
    fn finish_marked(&mut self) -> Result<()> {
        let is_empty = self.inputs.is_empty() && !self.doomed;
        if !self.feed.all_held() && !is_empty {
            return Ok(());
        }
        if self.feed.all_held() {
            self.feed.release();
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
    fn doom(&mut self) {
        self.abort_transaction();
        self.doomed = true;
    }

    /// Closes the windows of a source that has ended, in a transaction that ends with it.
    fn ended(&mut self, source: usize) -> Result<()> {
        if self.settings.boundary == Boundary::Punctuated {
            if std::mem::take(&mut self.open_parts[source]) {
                self.doom();
            }
            self.ended.push(source);
            return self.finish_marked();
        }
        if self.doomed {
            self.drop_transaction();
        }
        let node = self.feed.source(source).node;
        self.input(Input::Watermark { node, time: EventTime::END })?;
        self.commit()
    }

    fn note_rate(&self) {
        self.progress.rate.note(self.env().now_ns(), self.progress.tuples.load(Ordering::Relaxed));
    }

    fn idle(&mut self) -> Result<()> {
        if self.settings.commits_when_idle && self.settings.boundary != Boundary::Punctuated {
            self.commit()?;
        }
        self.commit_if_due()?;
        self.note_rate();
        let now_ns = self.env().now_ns();
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let waited = now_ns.saturating_sub(since_ns) >= IDLE_COMMIT_MS * 1_000_000;
        if waited && matches!(self.settings.boundary, Boundary::Every(_)) {
            self.idle_since_ns = None;
            return self.commit();
        }
        Ok(())
    }

    /// Adds input to the transaction.
    fn input(&mut self, input: Input) -> Result<()> {
        if self.doomed {
            return Ok(());
        }
        self.inputs.push(input.clone());
        match self.apply(&input) {
            Ok(()) => Ok(()),
            Err(error) => self.recover(error),
        }
    }

    fn apply(&mut self, input: &Input) -> Result<()> {
        let transaction = self.transaction()?;
        let (counts, quiet, now) = (&self.counts, &self.quiet[..], self.now());
        let context = Context { transaction: &transaction, counts, source: None, input: 0, now, quiet };
        match input {
            Input::Batch { source, batch } => {
                let context = Context { source: Some(*source), ..context };
                self.dataflow.batch(&context, self.feed.source(*source).node, batch)
            }
            Input::Watermark { node, time } => self.dataflow.watermark(&context, *node, *time),
        }
    }

    /// Time of the clock.
    fn now(&self) -> EventTime {
        EventTime::from_nanoseconds(self.env().now_ns())
    }

    fn transaction(&mut self) -> Result<Arc<Transaction>> {
        if let Some(transaction) = &self.transaction {
            return Ok(Arc::clone(transaction));
        }
        let transaction = self.catalog.begin()?;
        self.transaction = Some(Arc::clone(&transaction));
        Ok(transaction)
    }

    /// Ends the transaction: commits it, or drops it if it is doomed.
    fn commit(&mut self) -> Result<()> {
        if !self.doomed && self.inputs.is_empty() && !self.feed.has_moved() {
            return Ok(());
        }
        while !self.doomed {
            match self.try_commit() {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(error)?,
            }
        }
        self.drop_transaction();
        Ok(())
    }

    fn try_commit(&mut self) -> Result<()> {
        let start_ns = self.env().now_ns();
        let transaction = self.transaction()?;
        let (counts, quiet, now) = (&self.counts, &self.quiet[..], self.now());
        self.dataflow.commit(&Context {
            transaction: &transaction,
            counts,
            source: None,
            input: 0,
            now,
            quiet,
        })?;
        self.dataflow.write_skipped(&transaction)?;
        self.feed.write_positions(&transaction)?;
        if !transaction.vote(self.positions.state().id(), Vote::Commit)? {
            let reason =
                "an operator wrote a state and did not vote for it at the commit punctuation".to_owned();
            return Err(Error::InvalidTopology { topology: self.topology.clone(), reason });
        }
        let commit = transaction.commit(self.settings.durability)?;
        if commit.keys > 0 {
            let elapsed_ns = self.env().now_ns().saturating_sub(start_ns);
            self.progress.commit_latencies.lock().record(elapsed_ns);
        }
        self.transaction = None;
        let progress = &self.progress;
        progress.tuples.fetch_add(self.held.tuples() as u64, Ordering::Relaxed);
        progress.late.fetch_add(self.counts.take_late(), Ordering::Relaxed);
        progress.future.fetch_add(self.counts.take_future(), Ordering::Relaxed);
        // The end of a source may find nothing to write.
        if commit.keys > 0 {
            progress.transactions.fetch_add(1, Ordering::Relaxed);
            progress.last_cts.store(commit.cts, Ordering::Relaxed);
        }
        progress.event_time_us.store(self.event_time.micros(), Ordering::Relaxed);
        self.inputs.clear();
        self.held.clear();
        self.begun_ns = None;
        self.retries = 0;
        self.retried_first = None;
        let rejected = self.feed.committed()? + self.dataflow.take_skipped();
        self.progress.rejected.fetch_add(rejected, Ordering::Relaxed);
        let lost = self.dataflow.committed(&self.progress.operators)?;
        self.progress.lost.fetch_add(lost, Ordering::Relaxed);
        self.note_rate();
        Ok(())
    }

    /// Handles an error within a transaction: retries it, dooms it, or returns the error.
    fn recover(&mut self, mut error: Error) -> Result<()> {
        self.abort_transaction();
        while error.is_retriable() || error.is_redefinition() {
            let first = *self.retried_first.get_or_insert_with(Instant::now);
            if self.retries >= RETRIES_MAX && first.elapsed() >= RETRY_TIME_MAX {
                return Err(error);
            }
            self.retries += 1;
            self.progress.retries.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topology = self.topology, %error, "transaction is retried");
            if error.is_redefinition() {
                self.dataflow.redefined()?;
            }
            if let Some(cts) = conflicting_commit(&error) {
                // Before that, every snapshot conflicts with it again.
                self.catalog.context().wait_until_visible(cts)?;
            }
            if is_busy(&error) || self.retries > RETRIES_MAX {
                std::thread::sleep(std::time::Duration::from_millis(
                    BUSY_WAIT_MS << (self.retries % RETRIES_MAX).min(8),
                ));
            }
            match self.replay() {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
            self.abort_transaction();
        }
        if self.settings.on_error == OnError::Abort && error.is_tuple_error() {
            tracing::warn!(topology = self.topology, %error, "transaction is dropped");
            self.doomed = true;
            return Ok(());
        }
        Err(error)
    }

    fn replay(&mut self) -> Result<()> {
        let inputs = std::mem::take(&mut self.inputs);
        let result = inputs.iter().try_for_each(|input| self.apply(input));
        self.inputs = inputs;
        result
    }

    /// Rolls back all effects of the open transaction; its input stays.
    fn abort_transaction(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            transaction.abort();
        }
        self.counts.take_late();
        self.counts.take_future();
        self.feed.aborted();
        self.dataflow.aborted();
    }

    /// Drops the open transaction with its input, and counts it.
    fn drop_transaction(&mut self) {
        if self.inputs.is_empty() && !self.doomed {
            return;
        }
        self.abort_transaction();
        self.inputs.clear();
        self.held.clear();
        self.begun_ns = None;
        self.retries = 0;
        self.retried_first = None;
        self.doomed = false;
        self.progress.aborts.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_busy(error: &Error) -> bool {
    use entresol_transactions::Error::{Busy, OldVersionsFull};
    matches!(transaction_error(error), Some(Busy(_) | OldVersionsFull { .. }))
}

/// Commit timestamp of the transaction that was first. It may not be durable, and so not visible yet.
fn conflicting_commit(error: &Error) -> Option<Timestamp> {
    use entresol_transactions::Error::{Conflict, ReadConflict};
    match transaction_error(error)? {
        Conflict { committed, .. } | ReadConflict { committed, .. } => Some(*committed),
        _ => None,
    }
}

/// Error of the transaction below an error.
fn transaction_error(error: &Error) -> Option<&entresol_transactions::Error> {
    match error {
        Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error)) => {
            Some(error)
        }
        _ => None,
    }
}
