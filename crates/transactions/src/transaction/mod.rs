//! A transaction: one snapshot to read, one write set to commit. Groups with another
//! [`Protocol`](crate::Protocol) than MVCC are read by the rules of that one.
//!
//! # Invariants
//! - While a transaction is open its snapshot is registered, so no version that it can see is rewritten or
//!   freed.
//! - A read that overlaps the end of its own transaction is not protected any more; it copies the value first
//!   and then checks that the transaction is still open, so it returns [`Error::Finished`] instead of a torn
//!   value.
//! - Writes stay in DRAM until the commit: aborting discards them, and a crash leaves nothing.
//! - A [`Cancellation`] that was set refuses writes and the commit once it has stopped the statement. The
//!   commit asks it once, before anything is written.
//!
//! Memory: the write set ([`WRITE_SET_BYTES_MAX`](crate::WRITE_SET_BYTES_MAX)); reading allocates nothing for
//! values of up to 256 bytes.

pub(crate) mod cancellation;
pub(crate) mod detached;
mod last_key;
mod lookups;
pub(crate) mod maintenance;
pub(crate) mod reads;
pub(crate) mod scan;
pub(crate) mod state_writes;
pub(crate) mod write_set;

pub use lookups::PlacedValue;

use crate::commit::{self, Commit};
use crate::context::StateContext;
use crate::context::state::{LookupOutcome, State};
use crate::history::as_of::AsOf;
use crate::history::utc;
use crate::isolation::Isolation;
use crate::load::Load;
use crate::locking::locks::{LockTable, TransactionLocks};
use crate::locking::validation_sets::ValidatedReads;
use crate::mvcc::object::VALUE_BYTES_MAX;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::transaction::cancellation::Cancellation;
use crate::transaction::reads::ReadSet;
use crate::transaction::scan::KeyRange;
use crate::transaction::write_set::{Mark, WriteSet};
use crate::visibility::snapshot::{Class, Snapshot, is_idle};
use crate::{Error, Interrupt, Protocol, Result, StateId, Timestamp};
use entresol_memory::Durability;
use entresol_memory::budget::MemoryBudget;
use entresol_structures::KeyBytes;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

/// The status of a state within a transaction (lightweight two-phase commit, dissertation 5.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// The state may still be written; the vote of a state that has not voted.
    Active,
    /// The state is ready to commit.
    Commit,
    /// The transaction must not commit.
    Abort,
}

#[derive(Default)]
struct PendingWrites {
    writes: WriteSet,
    votes: BTreeMap<StateId, Vote>,
    /// Cancellation of the statement that runs.
    cancellation: Option<Arc<Cancellation>>,
    /// References held until the writes are committed or discarded; see [`Transaction::hold`].
    held: Vec<Arc<dyn Send + Sync>>,
}

impl PendingWrites {
    /// Discards the writes, and what was held with them.
    fn discard(&mut self) {
        self.writes.clear();
        self.held.clear();
    }

    /// Returns an error if the statement that runs is stopped.
    fn check_running(&self) -> Result<()> {
        self.cancellation.as_ref().map_or(Ok(()), |statement| statement.check())
    }
}

/// A transaction; see the [module](self). Dropping it aborts it.
///
/// It can be shared: any number of threads may read through it while one writes. The closures that get values
/// are called without locks, so they may use the transaction.
pub struct Transaction {
    context: Arc<StateContext>,
    slot: usize,
    id: u64,
    snapshot: Snapshot,
    open: AtomicBool,
    has_writes: AtomicBool,
    isolation: Isolation,
    /// Set once its next statement has its writes and its locks.
    superseded: AtomicBool,
    pending: RwLock<PendingWrites>,
    /// Reads at the snapshot; recorded by a serializable transaction.
    reads: Option<Mutex<ReadSet>>,
    /// Reads of groups that validate backwards.
    validated: Mutex<ValidatedReads>,
    /// Set if `validated` is not empty.
    has_validated: AtomicBool,
    /// Locks of groups with two-phase locking; made with the first one. Statements of a transaction share
    /// them.
    locks: OnceLock<Arc<TransactionLocks>>,
    /// Number of the first attempt: the age that locks compare.
    age: u64,
    /// Set when its protocol ended it.
    restarts: AtomicBool,
    /// Set when it was ended because its snapshot is too old.
    expired: AtomicBool,
    /// Its point in time if it reads AS OF one, and writes nothing.
    past: Option<AsOf>,
    /// Itself, for work before its commit.
    this: Weak<Transaction>,
    /// Its bulk load, while no thread works on it.
    load: Mutex<Option<Load>>,
    /// Set once it has begun a bulk load.
    is_loading: AtomicBool,
}

/// Snapshot of a transaction; see [`Transaction::sees_all_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotMark(Snapshot);

impl SnapshotMark {
    pub(crate) fn snapshot(self) -> Snapshot {
        self.0
    }
}

impl Transaction {
    pub(crate) fn new(
        context: &Arc<StateContext>,
        (slot, snapshot): (usize, Snapshot),
        id: u64,
        isolation: Isolation,
        age: u64,
        past: Option<AsOf>,
    ) -> Arc<Transaction> {
        Arc::new_cyclic(|this| Transaction {
            context: Arc::clone(context),
            slot,
            id,
            snapshot,
            open: AtomicBool::new(true),
            has_writes: AtomicBool::new(false),
            isolation,
            superseded: AtomicBool::new(false),
            pending: RwLock::new(PendingWrites::default()),
            reads: (isolation == Isolation::Serializable).then(Mutex::default),
            validated: Mutex::default(),
            has_validated: AtomicBool::new(false),
            locks: OnceLock::new(),
            age,
            restarts: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            past,
            this: this.clone(),
            load: Mutex::default(),
            is_loading: AtomicBool::new(false),
        })
    }

    /// The point in time of a transaction that was begun with [`StateContext::begin_as_of`].
    pub fn as_of(&self) -> Option<Timestamp> {
        self.past.as_ref().map(AsOf::at)
    }

    /// Tells whether its protocol ended it; only running it again from its beginning helps.
    pub(crate) fn must_restart(&self) -> bool {
        // A reader that is validated only later may fail for having read two states.
        self.restarts.load(Ordering::Acquire) || self.check_validated().is_err()
    }

    /// Fails if something that has to be validated was written since it was read.
    fn check_validated(&self) -> Result<()> {
        if !self.has_validated.load(Ordering::Acquire) {
            return Ok(());
        }
        self.context.validation_sets.validate(&self.validated.lock())
    }

    /// Notes a read that has to be validated, before it is made.
    fn validated(&self, note: impl FnOnce(&mut ReadSet)) {
        let mut validated = self.validated.lock();
        note(validated.note(self.snapshot.of(Class::Slow)));
        self.has_validated.store(true, Ordering::Release);
    }

    /// Takes a lock.
    fn lock(&self, lock: impl FnOnce(&TransactionLocks, &LockTable) -> Result<()>) -> Result<()> {
        let locks = self.locks.get_or_init(|| Arc::new(TransactionLocks::new(self.age)));
        let locked = lock(locks, &self.context.locks);
        if matches!(locked, Err(Error::Restart { .. })) {
            self.restarts.store(true, Ordering::Release);
        }
        locked
    }

    /// A number that no other transaction of this run has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Timestamp up to which the transaction sees all commits, but for one of many keys that began at that
    /// time, and of later ones those that waited for nothing older; see [`Transaction::sees`]. Of an AS OF
    /// transaction, what was visible when it began.
    pub fn snapshot(&self) -> Timestamp {
        self.snapshot.tells_all_up_to()
    }

    /// Tells whether it sees the commit with this timestamp, or all commits up to a
    /// [snapshot](Transaction::snapshot).
    pub fn sees(&self, commit: Timestamp) -> bool {
        self.snapshot.sees(commit) || (is_idle(commit) && commit <= self.snapshot.tells_all_up_to())
    }

    pub(crate) fn seen(&self) -> Snapshot {
        self.snapshot
    }

    /// Snapshot, to be compared with those of other transactions.
    pub fn snapshot_mark(&self) -> SnapshotMark {
        SnapshotMark(self.snapshot)
    }

    /// Returns true if it sees all commits that another snapshot sees.
    pub fn sees_all_of(&self, other: &SnapshotMark) -> bool {
        self.snapshot.sees_all_of(other.0)
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The transaction for its next statement. At [`Isolation::ReadCommitted`] that is a new one with a new
    /// snapshot and all that was written so far; this one can still be read, without its writes, but neither
    /// written nor committed. An error, with everything as it was, if a key that was written has been
    /// committed by another transaction meanwhile. At the other levels it is this one.
    pub fn next_statement(self: &Arc<Self>) -> Result<Arc<Transaction>> {
        if self.isolation != Isolation::ReadCommitted {
            return Ok(Arc::clone(self));
        }
        self.check_not_loading()?;
        let next = self.context.begin_aged(self.isolation, Some(self.age))?;
        let mut pending = self.pending.write();
        self.check_open()?;
        for (state, key) in pending.writes.iter() {
            state.check_writer(self.snapshot, key)?;
            if state.protocol().reads_snapshots() {
                self.check_not_committed_since(state, key)?;
            }
        }
        // Both protocols promise the same at every level.
        *next.validated.lock() = std::mem::take(&mut *self.validated.lock());
        next.has_validated.store(self.has_validated.swap(false, Ordering::AcqRel), Ordering::Release);
        if let Some(locks) = self.locks.get() {
            next.locks.get_or_init(|| Arc::clone(locks));
        }
        self.superseded.store(true, Ordering::Release);
        *next.pending.write() = std::mem::take(&mut *pending);
        next.has_writes.store(self.has_writes.swap(false, Ordering::AcqRel), Ordering::Release);
        drop(pending);
        Ok(next)
    }

    /// Returns an error if a key was written after this transaction's snapshot.
    fn check_not_committed_since(&self, state: &Arc<State>, key: &KeyBytes) -> Result<()> {
        let _guard = state.pool().pin();
        let Some(newest) = state.newest(key)? else { return Ok(()) };
        if self.snapshot.sees(newest) {
            return Ok(());
        }
        Err(Error::Conflict {
            state: state.id,
            key: key.clone(),
            snapshot: self.snapshot.tells_all_up_to(),
            committed: newest,
        })
    }

    pub(crate) fn note_range(&self, state: &Arc<State>, range: impl FnOnce() -> KeyRange) {
        match state.protocol() {
            Protocol::Bocc => self.validated(|reads| reads.add_range(state, range())),
            // It is locked.
            Protocol::S2pl => (),
            _ => self.reads.as_ref().map_or((), |reads| reads.lock().add_range(state, range())),
        }
    }

    /// Takes the lock that reading a range of the state needs.
    pub(crate) fn lock_range(&self, state: &State) -> Result<()> {
        match state.protocol() {
            Protocol::S2pl => self.lock(|locks, table| locks.read_state(table, state.id)),
            _ => Ok(()),
        }
    }

    /// Reads a key of a state that is not read at snapshots.
    #[cold]
    fn read_newest(&self, state: &Arc<State>, key: &[u8], value: &mut ValueBuffer) -> Result<bool> {
        let key = state.normalise(key)?;
        if state.validates() {
            self.validated(|reads| reads.add_key(state, key.clone()));
        } else {
            self.lock(|locks, table| locks.read_key(table, state.id, &key))?;
        }
        let found = {
            let _guard = state.pool().pin();
            self.check_readable(state)?;
            state.copy_newest(&key, &self.context.active, value)?
        };
        self.check_still_open()?;
        if found == LookupOutcome::Damaged {
            return Err(state.damaged(&key, "a damaged MVCC object"));
        }
        Ok(found == LookupOutcome::Value)
    }

    #[inline]
    fn note_key(&self, state: &Arc<State>, key: &[u8]) -> Result<()> {
        match &self.reads {
            None => Ok(()),
            Some(reads) => Self::note_key_in(reads, state, key),
        }
    }

    #[inline(never)]
    fn note_key_in(reads: &Mutex<ReadSet>, state: &Arc<State>, key: &[u8]) -> Result<()> {
        reads.lock().add_key(state, state.normalise(key)?);
        Ok(())
    }

    /// The context that the transaction belongs to.
    #[inline]
    pub fn context(&self) -> &Arc<StateContext> {
        &self.context
    }

    /// Sets the cancellation of the statement that runs from now on: of its writes, and its commit.
    pub fn set_cancellation(&self, statement: Arc<Cancellation>) {
        self.pending.write().cancellation = Some(statement);
    }

    /// Holds something until the writes of this and all later statements are visible to transactions that begin then, or
    /// discarded. If it is unknown whether they were committed, it is held until the process ends.
    pub fn hold(&self, held: Arc<dyn Send + Sync>) {
        self.pending.write().held.push(held);
    }

    /// Returns an error if the statement that runs is stopped; for loops that do not write.
    pub fn check_running(&self) -> Result<()> {
        self.pending.read().check_running()
    }

    /// Tells whether it is neither committed nor aborted yet.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.finished()) }
    }

    #[cold]
    fn finished(&self) -> Error {
        if self.expired.load(Ordering::Acquire) {
            Error::Interrupted(Interrupt::SnapshotTooOld)
        } else {
            Error::Finished
        }
    }

    /// The flag is set while `pending` is held.
    fn check_not_superseded(&self) -> Result<()> {
        if self.superseded.load(Ordering::Acquire) { Err(Error::SupersededStatement) } else { Ok(()) }
    }

    /// Tells whether it may begin a bulk load: it does nothing else, and reads nothing that its commit validates.
    pub(crate) fn may_load(&self) -> bool {
        let does_more =
            self.past.is_some() || self.reads.is_some() || self.is_loading.load(Ordering::Acquire);
        let is_validated = self.has_validated.load(Ordering::Acquire);
        let is_last = !self.superseded.load(Ordering::Acquire);
        !does_more && !is_validated && is_last && self.pending.read().writes.is_empty()
    }

    /// Returns true once it has begun a bulk load.
    pub fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Acquire)
    }

    fn check_not_loading(&self) -> Result<()> {
        if self.is_loading() {
            let message = "a transaction that loads writes nothing but what it loads";
            return Err(Error::Invalid(message.to_owned()));
        }
        Ok(())
    }

    /// Takes the load, to work on it.
    pub(crate) fn take_load(&self) -> Option<Load> {
        self.load.lock().take()
    }

    /// Puts the load back; if the transaction was ended meanwhile, so is the load.
    pub(crate) fn put_load(&self, load: Load) {
        self.is_loading.store(true, Ordering::Release);
        *self.load.lock() = Some(load);
        if !self.is_open() {
            drop(self.take_load());
        }
    }

    /// Checks that earlier copies were protected by the registered snapshot until now.
    #[inline]
    pub(crate) fn check_still_open(&self) -> Result<()> {
        // Pairs with the release fence of a thread that rewrites a slot: it saw the snapshot gone, so it
        // comes after `open` was cleared; a reader that copied one of its words sees that here.
        fence(Ordering::Acquire);
        if self.open.load(Ordering::Relaxed) { Ok(()) } else { Err(self.finished()) }
    }

    /// Checks that the state may be read. Call it with a guard held: then even if the transaction ends
    /// meanwhile, the memory of the state's index is not used again before the guard is gone.
    #[inline]
    pub(crate) fn check_readable(&self, state: &State) -> Result<()> {
        self.check_open()?;
        state.check_exists(self.snapshot)
    }

    /// The transaction's own write under the key: None if there is none, Some(None) if it deleted the key.
    #[inline]
    fn own_write(&self, state: &State, key: &[u8]) -> Result<Option<Option<ValueBuffer>>> {
        if self.has_writes.load(Ordering::Acquire) { self.find_own_write(state, key) } else { Ok(None) }
    }

    #[inline(never)]
    fn find_own_write(&self, state: &State, key: &[u8]) -> Result<Option<Option<ValueBuffer>>> {
        let key = state.normalise(key)?;
        let pending = self.pending.read();
        let own = pending.writes.get(state.id, &key);
        Ok(own.map(|value| value.map(ValueBuffer::from_slice)))
    }

    /// Copies of the transaction's own writes in a range; see [`WriteSet::range`].
    pub(crate) fn own_range(
        &self,
        state: &State,
        lower: std::ops::Bound<&[u8]>,
        upper: std::ops::Bound<&[u8]>,
        direction: scan::Direction,
        max: usize,
    ) -> Vec<(KeyBytes, Option<Box<[u8]>>)> {
        if !self.has_writes.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.pending.read().writes.range(state.id, lower, upper, direction, max)
    }

    /// Writes a value (None deletes the key) into the write set.
    pub fn write(&self, state: &Arc<State>, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.write_each(state, std::iter::once((key, value)))
    }

    /// Changes what it says of overlays.
    pub(crate) fn note_overlaid(
        &self,
        note: impl FnOnce(&mut WriteSet, Option<&Arc<MemoryBudget>>) -> Result<()>,
    ) -> Result<()> {
        let mut pending = self.pending.write();
        pending.check_running()?;
        self.check_not_superseded()?;
        note(&mut pending.writes, self.context.pool().memory())
    }

    /// Writes values in their order, as by [`Transaction::write`]. After an error some of them are written.
    pub fn write_many<'w>(
        &self,
        state: &Arc<State>,
        mut writes: impl Iterator<Item = (&'w [u8], &'w [u8])>,
    ) -> Result<()> {
        if state.protocol() == Protocol::S2pl {
            // A lock may have to be waited for.
            return writes.try_for_each(|(key, value)| self.write(state, key, Some(value)));
        }
        self.write_each(state, writes.map(|(key, value)| (key, Some(value))))
    }

    /// Writes values; only one of a state that locks its keys.
    #[inline]
    fn write_each<'w>(
        &self,
        state: &Arc<State>,
        writes: impl Iterator<Item = (&'w [u8], Option<&'w [u8]>)>,
    ) -> Result<()> {
        self.context.check_owns(state)?;
        if let Some(past) = &self.past {
            return Err(Error::ReadOnlyAsOf { at: utc(past.at()) });
        }
        self.check_not_loading()?;
        let mut writes = writes.peekable();
        if state.protocol() == Protocol::S2pl
            && let Some((key, _)) = writes.peek()
        {
            let key = state.normalise(key)?;
            self.check_readable(state)?;
            self.lock(|locks, table| locks.write_key(table, state.id, &key))?;
        }
        let mut pending = self.pending.write();
        pending.check_running()?;
        self.check_readable(state)?;
        self.check_not_superseded()?;
        let memory = self.context.pool().memory();
        for (key, value) in writes {
            let bytes = value.map_or(0, <[u8]>::len);
            if bytes > VALUE_BYTES_MAX {
                return Err(Error::ValueLength { bytes, max: VALUE_BYTES_MAX });
            }
            pending.writes.put(memory, state, state.normalise(key)?, value)?;
            self.has_writes.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns true if the key is above all keys of the state and of this transaction's own writes: then it is
    /// new without a look-up. A commit of another transaction that adds it meanwhile is a conflict, as it is
    /// after a look-up.
    pub fn is_above_all(&self, state: &Arc<State>, key: &[u8]) -> Result<bool> {
        if !state.protocol().reads_snapshots() || self.past.is_some() {
            return Ok(false);
        }
        let is_above = |last: &[u8]| last < key;
        if !self.pending.read().writes.last_key(state.id).is_none_or(is_above) {
            return Ok(false);
        }
        Ok(state.last_key()?.is_none_or(|last| is_above(&last)))
    }

    /// Sets a savepoint to roll back to: the beginning of a statement.
    pub fn mark(&self) -> Mark {
        self.pending.write().writes.mark()
    }

    /// Takes back the writes after the savepoint. Savepoints set after it are void. What a transaction [loads](Self::begin_load)
    /// can't be taken back: if it has loaded rows, it is to be aborted.
    pub fn rollback_to(&self, mark: Mark) {
        if self.is_open() {
            self.pending.write().writes.rollback_to(mark);
        }
    }

    /// Sets the status flag of a state. Returns whether all states that this transaction wrote have voted to
    /// commit; the caller that gets `true` is the coordinator and calls [`commit`](Transaction::commit). A
    /// vote to abort cannot be taken back.
    pub fn vote(&self, state: StateId, vote: Vote) -> Result<bool> {
        let mut pending = self.pending.write();
        self.check_open()?;
        let voted = pending.votes.entry(state).or_insert(vote);
        if *voted != Vote::Abort {
            *voted = vote;
        }
        let votes = &pending.votes;
        let aborted = votes.values().any(|&vote| vote == Vote::Abort);
        let written = pending.writes.states.iter().filter(|(_, writes)| !writes.keys.is_empty());
        Ok(!aborted && written.map(|(id, _)| votes.get(id)).all(|vote| vote == Some(&Vote::Commit)))
    }

    /// Makes the writes visible and, as `durability` asks, durable: over all states at once or not at all.
    /// Whatever it returns, the transaction is finished. Costs a constant number of fences for updates of
    /// existing keys, whatever their number.
    pub fn commit(&self, durability: Durability) -> Result<Commit> {
        if let Err(error) = self.maintain() {
            self.abort();
            return Err(error);
        }
        self.commit_maintained(durability)
    }

    /// Same as [`Transaction::commit`], by a caller that has done the work before it.
    pub fn commit_maintained(&self, durability: Durability) -> Result<Commit> {
        let load = if self.is_loading() { Some(self.take_finished_load()?) } else { None };
        let mut pending = self.pending.write();
        self.check_open()?;
        if let Err(error) = self.check_not_superseded() {
            self.finish();
            return Err(error);
        }
        let aborted = pending.votes.iter().find(|&(_, &vote)| vote == Vote::Abort).map(|(&state, _)| state);
        let cancellation = pending.cancellation.clone();
        let stopped = cancellation.as_ref().and_then(|statement| statement.begin_definite().err());
        let result = match (stopped, aborted, &load) {
            (Some(stopped), ..) => {
                self.finish();
                pending.discard();
                return Err(stopped);
            }
            (None, Some(state), _) => Err(Error::VotedAbort(state)),
            (None, None, Some(load)) => {
                commit::commit_load(&self.context, (self.slot, self.snapshot), load, durability)
            }
            (None, None, None) if pending.writes.is_empty() => self.commit_reads(),
            (None, None, None) => {
                let reads = self.reads.as_ref().map(|reads| reads.lock());
                let request = commit::Request {
                    slot: self.slot,
                    snapshot: self.snapshot,
                    writes: &pending.writes,
                    reads: reads.as_deref(),
                    validated: &self.validated.lock(),
                    durability: Some(durability),
                };
                match commit::commit(&self.context, &request) {
                    // Where reads are validated a commit that failed once is not tried again.
                    Err(error)
                        if error.is_out_of_space()
                            && !self.is_validated(&pending.writes)
                            && self.context.reclaim_room() =>
                    {
                        tracing::debug!(%error, "space of dead versions was reclaimed, a commit is retried");
                        commit::commit(&self.context, &request)
                    }
                    committed => committed,
                }
            }
        };
        drop(load);
        self.finish();
        let held = std::mem::take(&mut pending.held);
        if matches!(result, Err(Error::OutcomeUnknown { .. } | Error::Poisoned(_))) {
            // Recovery may find the writes: what they need is never released.
            held.into_iter().for_each(std::mem::forget);
        }
        if let Some(statement) = cancellation {
            // A commit that may be there after all cannot be stopped any more.
            statement.end_definite(matches!(result, Ok(_) | Err(Error::OutcomeUnknown { .. })));
        }
        match &result {
            // The write set stays for `changes`, which does not wait for the tidying.
            Ok(commit) if commit.keys > 0 => {
                drop(pending);
                self.context.tidy(commit.keys);
            }
            Ok(_) => (),
            Err(_) => pending.discard(),
        }
        result
    }

    /// Returns true if the commit validates reads.
    fn is_validated(&self, writes: &WriteSet) -> bool {
        self.has_validated.load(Ordering::Acquire) || writes.iter().any(|(state, _)| state.validates())
    }

    /// The commit of a transaction that wrote nothing.
    fn commit_reads(&self) -> Result<Commit> {
        self.check_validated()?;
        // Locked reads are as they are now; validated ones as they were at the snapshot, too, of which they see the number
        // of slow commits alone.
        let cts = match self.locks.get() {
            Some(_) => self.context.active.visible(Class::Slow),
            None if self.has_validated.load(Ordering::Acquire) => self.snapshot.of(Class::Slow),
            None => self.snapshot.tells_all_up_to(),
        };
        Ok(Commit { cts, states: 0, keys: 0 })
    }

    /// Discards the writes. Does nothing if the transaction is finished.
    pub fn abort(&self) {
        let mut pending = self.pending.write();
        if self.is_open() {
            self.finish();
            pending.discard();
        }
    }

    /// Ends a transaction whose snapshot has held back versions for too long, from any thread: as
    /// [`Transaction::abort`], with an error for later calls that says so. False if it is finished.
    pub fn expire(&self) -> bool {
        let mut pending = self.pending.write();
        let open = self.is_open();
        if open {
            self.expired.store(true, Ordering::Release);
            self.finish();
            pending.discard();
        }
        open
    }

    /// The transaction's writes into the state, in key order; after the commit too. None stands for a
    /// deletion.
    pub fn changes(&self, state: StateId) -> Vec<(KeyBytes, Option<Vec<u8>>)> {
        let pending = self.pending.read();
        let Some(writes) = pending.writes.states.get(&state) else { return Vec::new() };
        writes.keys.iter().map(|(key, value)| (key.clone(), value.map(<[u8]>::to_vec))).collect()
    }

    /// Tells whether the transaction wrote the state.
    pub fn has_writes_of(&self, state: StateId) -> bool {
        self.pending.read().writes.states.get(&state).is_some_and(|writes| !writes.keys.is_empty())
    }

    /// The states that the transaction wrote.
    pub fn written_states(&self) -> Vec<StateId> {
        let pending = self.pending.read();
        let written = pending.writes.states.iter().filter(|(_, writes)| !writes.keys.is_empty());
        let loaded = self.load.lock();
        let loaded = loaded.iter().flat_map(|load| load.states.iter().map(|load| load.state().id));
        written.map(|(&id, _)| id).chain(loaded).collect()
    }

    fn finish(&self) {
        // The caller is alone: it holds `pending`, or has the only reference to the transaction.
        assert!(self.open.load(Ordering::Relaxed), "a transaction is finished once");
        // In this order: a thread that sees the snapshot gone and then rewrites a slot comes after `open` was
        // cleared.
        self.open.store(false, Ordering::Release);
        self.context.active.release(self.slot);
        drop(self.take_load());
        // Strict: what was committed is visible, or nothing was. A superseded statement leaves the locks to
        // the one that followed it.
        let superseded = self.superseded.load(Ordering::Acquire);
        if let Some(locks) = self.locks.get().filter(|locks| !superseded || Arc::strong_count(locks) == 1) {
            locks.release(&self.context.locks);
        }
        if self.context.old_versions.may_serve(self.snapshot) {
            self.context.old_versions.prune(&self.context.active.snapshots());
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if *self.open.get_mut() {
            self.finish();
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({}, snapshot {}, open {})", self.id, self.snapshot(), self.is_open())
    }
}
