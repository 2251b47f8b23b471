//! Ends of epochs: commits, retries, aborts.
//!
//! ```text
//!   topology  ─ epoch 1 ─ punctuation ─▶ ─ epoch 2 ─ punctuation ─ waits ─▶ ─ epoch 3 ─
//!                            │ sealed                    │ takes the outcome, hands over
//!   committer                └─ commit of 1, durable ────┘─ commit of 2 ──────
//! ```
//!
//! With a [`Committer`](super::committer::Committer) an epoch of [`OVERLAPPED_TUPLES_MIN`] tuples or more is *sealed* when
//! its commit punctuation has passed all operators, and the next one is computed while the thread commits it. Otherwise it
//! is sealed and committed at once.
//!
//! - Operators know the end of an epoch by [`Operator::sealed`](crate::Operator::sealed): what `committed` confirms is what
//!   was sealed; what `aborted` drops is all that was not confirmed, of both epochs.
//! - Nothing of the open epoch reads a table before the commit has succeeded ([`EpochTransaction`]).
//! - If it fails, both epochs are rolled back, the sealed one is retried as any other, and then the open one is computed
//!   again from its input. So an epoch is committed, or dropped, before the next one in every case.

use crate::boundary::OnError;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::committer::CommitResult;
use crate::execution::dropped::DroppedTuples;
use crate::execution::epoch::{Epoch, Input, SealedEpoch};
use crate::execution::epoch_transaction::EpochTransaction;
use crate::execution::executor::Executor;
use crate::operators::Context;
use crate::{ABORT_RETRIES_MAX, OVERLAPPED_TUPLES_MIN, RETRIES_MAX, RETRY_TIME_MAX};
use entresol_transactions::{Commit, Timestamp, Vote};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Delay before a busy resource is tried again.
const BUSY_WAIT_MS: u64 = 1;
/// Delay before a condition that held is asked again for the first time; it doubles each time.
const ABORT_WAIT_MS: u64 = 10;

/// Outcome of the sealed epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EpochOutcome {
    /// There was none, or it is committed; the open epoch is as it was.
    Before,
    /// Commit that had failed and was retried; the open epoch was computed again.
    Again,
}

impl Executor {
    pub(super) fn apply(&mut self, input: &Input) -> Result<()> {
        let transaction = self.epoch_transaction()?;
        let (counts, quiet, now) = (&self.epoch.counts, &self.quiet[..], self.now());
        let withholds = self.epoch.withheld.is_some();
        let context = Context { epoch: &transaction, counts, source: None, input: 0, now, quiet, withholds };
        match input {
            Input::Batch { source, batch } => {
                let context = Context { source: Some(*source), ..context };
                self.dataflow.batch(&context, self.feed.source(*source).node, batch)
            }
            Input::Watermark { node, time } => self.dataflow.watermark(&context, *node, *time),
        }
    }

    /// Time of the clock.
    pub(super) fn now(&self) -> EventTime {
        EventTime::from_nanoseconds(self.env().now_ns())
    }

    /// Transaction of the open epoch.
    fn epoch_transaction(&mut self) -> Result<Arc<EpochTransaction>> {
        if let Some(transaction) = &self.epoch.transaction {
            return Ok(Arc::clone(transaction));
        }
        let transaction = match &self.committer {
            Some(_) => {
                let before = self.sealed.as_ref().map(|sealed| Arc::clone(&sealed.pending));
                EpochTransaction::behind(&self.catalog, self.settings.isolation, before)
            }
            None => EpochTransaction::now(&self.catalog, self.settings.isolation)?,
        };
        Ok(Arc::clone(self.epoch.transaction.insert(Arc::new(transaction))))
    }

    /// Ends the epoch: commits it, or drops it if it is doomed.
    pub(super) fn commit(&mut self) -> Result<()> {
        if self.epoch.is_empty() {
            self.settle()?;
            if !self.feed.has_moved() && !self.dataflow.is_due(self.now()) {
                return Ok(());
            }
        }
        while !self.epoch.doomed {
            let withheld = self.epoch.withheld.as_ref().map(Error::to_string);
            match self.try_commit() {
                Ok(EpochOutcome::Before) => {
                    return withheld.map_or(Ok(()), |reason| Err(Error::EarlyResultsRefused { reason }));
                }
                Ok(EpochOutcome::Again) => (),
                Err(error) if self.may_be_of_due_results(&error) => self.withhold(error)?,
                Err(error) => self.recover(error)?,
            }
        }
        self.drop_transaction()
    }

    /// Returns true if an error would be taken for one of the open input, though results were sent that had waited for an
    /// interval. What they are of is committed, so dropping the input would not help.
    fn may_be_of_due_results(&self, error: &Error) -> bool {
        self.epoch.counts.has_due() && error.is_tuple_error() && !self.may_ask_again(error)
    }

    /// Computes the epoch again without the results that are due: if it commits then, the error is theirs, and ends the
    /// topology; else it is one of the open input.
    fn withhold(&mut self, error: Error) -> Result<()> {
        if self.settle()? == EpochOutcome::Again {
            return Ok(());
        }
        self.roll_back();
        self.epoch.withheld = Some(self.with_tuple(error));
        match self.replay() {
            Ok(()) => Ok(()),
            Err(error) => self.recover_alone(error),
        }
    }

    /// Passes the commit punctuation through all operators and commits, or hands the commit over. If the epoch was
    /// computed again meanwhile it has to be tried again.
    fn try_commit(&mut self) -> Result<EpochOutcome> {
        let start_ns = self.env().now_ns();
        self.pass_commit()?;
        let transaction = self.epoch_transaction()?;
        if self.settle()? == EpochOutcome::Again {
            return Ok(EpochOutcome::Again);
        }
        let transaction = transaction.get()?;
        self.dataflow.write_skipped(transaction)?;
        self.feed.write_positions(transaction)?;
        if !transaction.vote(self.positions.state().id(), Vote::Commit)? {
            let reason =
                "an operator wrote a state and did not vote for it at the commit punctuation".to_owned();
            return Err(Error::InvalidTopology { topology: self.topology.clone(), reason });
        }
        let durability = self.settings.durability;
        if let Some(committer) = &self.committer
            && self.epoch.held.tuples() >= OVERLAPPED_TUPLES_MIN
        {
            let pending = committer.commit(transaction, durability);
            self.seal();
            let next = Epoch::new(self.settings.memory.as_ref());
            let epoch = std::mem::replace(&mut self.epoch, next);
            let event_time = self.event_time;
            self.sealed = Some(SealedEpoch { epoch, pending, start_ns, event_time });
            return Ok(EpochOutcome::Before);
        }
        let commit = transaction.commit(durability)?;
        self.seal();
        let elapsed_ns = self.env().now_ns().saturating_sub(start_ns);
        let next = Epoch::new(None);
        let mut epoch = std::mem::replace(&mut self.epoch, next);
        let noted = self.note_committed(&epoch, commit, elapsed_ns, self.event_time);
        epoch.clear();
        self.epoch = epoch;
        noted.map(|()| EpochOutcome::Before)
    }

    /// Passes the commit punctuation through all operators.
    fn pass_commit(&mut self) -> Result<()> {
        let transaction = self.epoch_transaction()?;
        let (counts, quiet, now) = (&self.epoch.counts, &self.quiet[..], self.now());
        let withholds = self.epoch.withheld.is_some();
        let context = Context { epoch: &transaction, counts, source: None, input: 0, now, quiet, withholds };
        self.dataflow.commit(&context)
    }

    /// Ends the epoch for operators and sources: what comes is of the next one.
    fn seal(&mut self) {
        self.dataflow.sealed();
        self.feed.sealed();
    }

    /// Waits for the commit of the sealed epoch, and notes it; retries the epoch if it has failed.
    pub(super) fn settle(&mut self) -> Result<EpochOutcome> {
        let Some(sealed) = self.sealed.take() else { return Ok(EpochOutcome::Before) };
        match sealed.pending.take() {
            Ok((commit, end_ns)) => {
                let elapsed_ns = end_ns.saturating_sub(sealed.start_ns);
                self.note_committed(&sealed.epoch, commit, elapsed_ns, sealed.event_time)?;
                Ok(EpochOutcome::Before)
            }
            Err(error) => self.retry_sealed(sealed.epoch, error).map(|()| EpochOutcome::Again),
        }
    }

    /// Retries a sealed epoch whose commit has failed, and computes the open one again.
    fn retry_sealed(&mut self, sealed: Epoch, error: Error) -> Result<()> {
        self.roll_back();
        let open = std::mem::replace(&mut self.epoch, sealed);
        self.feed.reopen();
        let retried = self.recover_alone(error).and_then(|()| {
            // At once: nothing may follow it before.
            let committer = self.committer.take();
            let committed = self.commit();
            self.committer = committer;
            committed
        });
        self.feed.go_on();
        self.epoch = open;
        retried?;
        if self.epoch.doomed {
            return Ok(());
        }
        match self.replay() {
            Ok(()) => Ok(()),
            Err(error) => self.recover_alone(error),
        }
    }

    /// Notes a commit, with operators and sources.
    fn note_committed(
        &mut self,
        epoch: &Epoch,
        commit: Commit,
        elapsed_ns: u64,
        event_time: EventTime,
    ) -> Result<()> {
        let progress = &self.progress;
        if commit.keys > 0 {
            progress.commit_latencies.lock().record(elapsed_ns);
        }
        progress.tuples.fetch_add(epoch.held.tuples() as u64, Ordering::Relaxed);
        progress.late.fetch_add(epoch.counts.late(), Ordering::Relaxed);
        progress.future.fetch_add(epoch.counts.future(), Ordering::Relaxed);
        // The end of a source may find nothing to write.
        if commit.keys > 0 {
            progress.transactions.fetch_add(1, Ordering::Relaxed);
            progress.last_cts.store(commit.cts, Ordering::Relaxed);
        }
        progress.event_time_us.store(event_time.micros(), Ordering::Relaxed);
        let rejected = self.feed.committed(self.catalog.context().pool())? + self.dataflow.take_skipped();
        self.progress.rejected.fetch_add(rejected, Ordering::Relaxed);
        let lost = self.dataflow.committed(&self.progress.operators)?;
        self.progress.lost.fetch_add(lost, Ordering::Relaxed);
        self.note_rate();
        Ok(())
    }

    /// Handles an error within the open epoch: retries it, dooms it, or returns the error.
    pub(super) fn recover(&mut self, error: Error) -> Result<()> {
        if self.settle()? == EpochOutcome::Again {
            // The error may be that the epoch before has failed; any other one comes again.
            return Ok(());
        }
        self.recover_alone(error)
    }

    /// The same, where no other epoch is sealed.
    fn recover_alone(&mut self, mut error: Error) -> Result<()> {
        self.roll_back();
        while error.is_retriable() || error.is_redefinition() || self.may_ask_again(&error) {
            if let Error::Aborted { .. } = error.cause() {
                self.note_condition();
                match self.replay() {
                    Ok(()) => return Ok(()),
                    Err(next) => error = next,
                }
                self.roll_back();
                continue;
            }
            let first = *self.epoch.retried_first.get_or_insert_with(Instant::now);
            if self.epoch.retries >= RETRIES_MAX && first.elapsed() >= RETRY_TIME_MAX {
                return Err(self.of_conflict(error));
            }
            self.epoch.retries += 1;
            let retries = self.epoch.retries;
            self.progress.retries.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topology = self.topology, %error, "transaction is retried");
            if error.is_redefinition() {
                self.dataflow.redefined()?;
            }
            if let Some(cts) = conflicting_commit(&error) {
                // Before that, every snapshot conflicts with it again.
                self.catalog.context().wait_until_visible(cts)?;
            }
            if is_busy(&error) || retries > RETRIES_MAX {
                std::thread::sleep(Duration::from_millis(BUSY_WAIT_MS << (retries % RETRIES_MAX).min(8)));
            }
            match self.replay() {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
            self.roll_back();
        }
        let error = self.with_tuple(error);
        if self.settings.on_error == OnError::Abort && error.is_tuple_error() {
            // A bad record behind others finds the epoch doomed; its tuples are collected with the first reason.
            if std::mem::replace(&mut self.epoch.doomed, true) {
                return Ok(());
            }
            tracing::warn!(topology = self.topology, %error, "transaction is dropped");
            return self.collect_dropped(&error);
        }
        self.fail(error)
    }

    /// Finds the tuple of an error: the epoch, which was rolled back, is computed once more, with the tuples of the failing
    /// batch one at a time, and rolled back again.
    fn with_tuple(&mut self, error: Error) -> Error {
        if !error.lacks_tuple() || !self.dataflow.locate_failure() {
            return error;
        }
        let found = self.replay().and_then(|()| self.pass_commit());
        self.roll_back();
        self.dataflow.end_location();
        match found {
            Err(Error::InStep(found)) if found.tuple.is_some() => Error::InStep(found),
            _ => error,
        }
    }

    /// Error of the last attempt, with the table and key if it is a conflict about one.
    fn of_conflict(&self, error: Error) -> Error {
        let conflict = transaction_error(&error).and_then(|error| self.catalog.conflict_of(error));
        let attempts = self.epoch.retries + 1;
        let Some(conflict) = conflict else { return error };
        error.map_cause(|error| Error::Contended { conflict, attempts, error: Box::new(error) })
    }

    /// Returns true if a condition has aborted the epoch, and is asked again before the topology ends.
    fn may_ask_again(&self, error: &Error) -> bool {
        let would_end = self.settings.on_error != OnError::Abort;
        would_end && matches!(error.cause(), Error::Aborted { .. }) && self.epoch.aborts < ABORT_RETRIES_MAX
    }

    /// Notes that a condition has aborted the epoch, and waits before it is asked again.
    fn note_condition(&mut self) {
        std::thread::sleep(Duration::from_millis(ABORT_WAIT_MS << self.epoch.aborts));
        self.epoch.aborts += 1;
        self.progress.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the topology with an error of its open epoch, whose tuples are stored if there is a table for them.
    fn fail(&mut self, error: Error) -> Result<()> {
        if !error.is_tuple_error() {
            return Err(error);
        }
        let attempts = self.epoch.aborts + 1;
        let error = error.map_cause(|error| match error {
            Error::Aborted { condition, into } => Error::AbortedRepeatedly { condition, into, attempts },
            error => error,
        });
        self.progress.aborts.fetch_add(1, Ordering::Relaxed);
        self.collect_dropped(&error)?;
        self.store_dropped(false)?;
        Err(error)
    }

    /// Begins to collect the tuples of the open epoch, which failed, if there is a table for them.
    fn collect_dropped(&mut self, error: &Error) -> Result<()> {
        self.dropped = self.error_tables.collect(error, self.settings.memory.as_ref());
        let Some(dropped) = &mut self.dropped else { return Ok(()) };
        for input in &self.epoch.inputs {
            if let Input::Batch { source, batch } = input {
                dropped.add(self.feed.source(*source).name(), batch)?;
            }
        }
        Ok(())
    }

    /// Stores the tuples that were collected in a transaction of their own; with the positions behind them if they are
    /// dropped.
    fn store_dropped(&mut self, with_positions: bool) -> Result<()> {
        let Some(dropped) = self.dropped.take() else { return Ok(()) };
        let mut retries = 0;
        while let Err(error) = self.try_store_dropped(&dropped, with_positions) {
            self.feed.aborted();
            if retries >= RETRIES_MAX || !(error.is_retriable() || error.is_redefinition()) {
                return Err(error);
            }
            retries += 1;
            std::thread::sleep(Duration::from_millis(BUSY_WAIT_MS << retries.min(8)));
        }
        if with_positions {
            self.feed.sealed();
            let rejected = self.feed.committed(self.catalog.context().pool())?;
            self.progress.rejected.fetch_add(rejected, Ordering::Relaxed);
        }
        Ok(())
    }

    fn try_store_dropped(&mut self, dropped: &DroppedTuples, with_positions: bool) -> Result<()> {
        let transaction = self.catalog.begin()?;
        dropped.write(&transaction)?;
        if with_positions {
            self.feed.write_positions(&transaction)?;
            transaction.vote(self.positions.state().id(), Vote::Commit)?;
        }
        transaction.commit(self.settings.durability)?;
        Ok(())
    }

    fn replay(&mut self) -> Result<()> {
        let inputs = std::mem::take(&mut self.epoch.inputs);
        let result = inputs.iter().try_for_each(|input| self.apply(input));
        self.epoch.inputs = inputs;
        result
    }

    /// Rolls back all effects of the open epoch; its input stays.
    pub(super) fn abort_transaction(&mut self) -> Result<()> {
        self.settle()?;
        self.roll_back();
        Ok(())
    }

    /// Rolls back all that is not known to be committed.
    fn roll_back(&mut self) {
        debug_assert!(self.sealed.is_none(), "a sealed epoch has its outcome before another is rolled back");
        if let Some(transaction) = self.epoch.transaction.take() {
            transaction.abort();
        }
        self.epoch.counts.clear();
        self.feed.aborted();
        self.dataflow.aborted();
    }

    /// Waits for a commit that runs, and rolls back the rest, behind an error that ends the topology.
    pub(super) fn end_with_error(&mut self) {
        if let Some(sealed) = self.sealed.take() {
            let outcome: CommitResult = sealed.pending.take();
            if let Ok((commit, end_ns)) = outcome {
                let elapsed_ns = end_ns.saturating_sub(sealed.start_ns);
                let noted = self.note_committed(&sealed.epoch, commit, elapsed_ns, sealed.event_time);
                if let Err(error) = noted {
                    tracing::error!(topology = self.topology, %error, "behind the last commit");
                }
            }
        }
        self.roll_back();
    }

    /// Drops the open epoch with its input, and counts it.
    pub(super) fn drop_transaction(&mut self) -> Result<()> {
        if self.epoch.is_empty() {
            return Ok(());
        }
        self.abort_transaction()?;
        self.epoch.clear();
        self.progress.aborts.fetch_add(1, Ordering::Relaxed);
        self.store_dropped(true)
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
    match error.cause() {
        Error::Transactions(error) | Error::Tables(entresol_tables::Error::Transactions(error)) => {
            Some(error)
        }
        _ => None,
    }
}
