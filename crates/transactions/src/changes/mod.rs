//! Change logs: what each commit changed in a state, in the order of commits.
//!
//! ```text
//!   log's keys      CTS | part, big-endian (16 bytes)  ──▶  changes of the commit: kind, key, new, old value
//!                   0   | 0                            ──▶  horizon: changes up to it are gone
//! ```
//! A log is a state of the same group beside the one that it is of. A commit adds the changes of its keys with
//! their values before and after, in parts of some [`PART_BYTES`], as versions of its own timestamp
//! ([`append`]). So they become visible, count after a crash and are declared invalid with the commit itself;
//! opening, checking, dropping and vacuum know nothing of logs.
//!
//! # Invariants
//! - Each commit that is later than the horizon has all its changes in the log, once.
//! - Keys of the log are written by the commit with their timestamp, and ended by pruning; no two writers contend.
//! - The horizon is stored in the transaction that removes the changes up to it.
//!
//! Cost: a copy of the old and new values of a commit, and a new key of the log for each part. Memory: the
//! parts of a commit in flight, about as much as its write set and the values that it replaces.

pub(crate) mod append;
pub(crate) mod overlay;
mod prune;

use crate::changes::append::ChangeReader;
use crate::context::StateContext;
use crate::context::state::State;
use crate::mvcc::object::{STORED_BYTES_MAX, VALUE_BYTES_MAX};
use crate::transaction::Transaction;
use crate::transaction::scan::KeyRange;
use crate::visibility::snapshot::Class;
use crate::{AtomicTimestamp, Error, Result, Timestamp};
use entresol_memory::Durability;
use entresol_structures::{KEY_BYTES_MAX, KeyBytes, KeyWidth};
use parking_lot::{Condvar, Mutex};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of changes after which a commit begins another part.
pub(crate) const PART_BYTES: usize = 16 << 10;
/// Bytes of a part whose last change is the longest that there is.
const PART_BYTES_MAX: usize = PART_BYTES + append::HEAD_BYTES + KEY_BYTES_MAX + 2 * VALUE_BYTES_MAX;
const _: () = assert!(PART_BYTES_MAX <= STORED_BYTES_MAX, "a part that is written can be read");
const KEY_BYTES: usize = 16;
/// Bits of a position's `rest` that count changes in a part, which are fewer than its bytes.
const INDEX_BITS: u32 = 24;
/// Greatest number of a part in a commit.
const PART_MAX: u64 = (1 << (64 - INDEX_BITS)) - 2;
const HORIZON_KEY: [u8; KEY_BYTES] = [0; KEY_BYTES];

/// Change of a key by a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedChange<'a> {
    /// Timestamp of the commit.
    pub cts: Timestamp,
    /// Key, as the state stores it.
    pub key: &'a [u8],
    /// Value before; none if the key is new.
    pub old: Option<&'a [u8]>,
    /// Value after; none if the key was deleted.
    pub new: Option<&'a [u8]>,
}

/// Position in a change log: behind a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Timestamp of the commit of the change.
    pub cts: Timestamp,
    /// Place of the change in its commit: a part and a number of changes in it; the greatest number behind all.
    pub rest: u64,
}

impl LogPosition {
    /// Position behind all commits up to a timestamp.
    pub fn after(cts: Timestamp) -> LogPosition {
        LogPosition { cts, rest: u64::MAX }
    }

    fn part(self) -> u64 {
        self.rest >> INDEX_BITS
    }

    /// Number of changes of its part before it.
    fn within(self) -> u64 {
        self.rest & ((1 << INDEX_BITS) - 1)
    }
}

/// Change log of a state; see the [module](self).
#[derive(Debug)]
pub struct ChangeLog {
    state: Arc<State>,
    retention_ns: AtomicU64,
    /// Timestamp up to which nothing is known of a volatile state, whose log is as empty as itself when it is
    /// opened again.
    begins_at: AtomicTimestamp,
    /// Clock time at which it is pruned next.
    prune_at_ns: AtomicU64,
}

/// Key of a part.
fn key_of(cts: Timestamp, part: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&cts.stored().to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Value of a horizon.
fn horizon_value(horizon: Timestamp) -> [u8; 8] {
    horizon.stored().to_le_bytes()
}

/// Number of the part in a key.
fn part_of(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Timestamp in a key.
fn cts_of(key: &[u8]) -> Timestamp {
    Timestamp::from_stored(key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

impl ChangeLog {
    /// Width of the keys of a log's state.
    pub const KEY_WIDTH: KeyWidth = KeyWidth::Sixteen;

    /// Opens the log in a state, whose keys are [`ChangeLog::KEY_WIDTH`] wide and which nothing else writes.
    /// `retention`: least time that changes are retained; none: for ever.
    pub fn open(state: Arc<State>, retention: Option<Duration>) -> Arc<ChangeLog> {
        assert_eq!(state.width(), ChangeLog::KEY_WIDTH, "keys of a log are a timestamp and a number");
        // Its keys come beside the steps of a commit.
        state.leave_uncounted();
        Arc::new(ChangeLog {
            state,
            retention_ns: AtomicU64::new(nanoseconds(retention)),
            begins_at: AtomicTimestamp::new(Timestamp::START),
            prune_at_ns: AtomicU64::new(0),
        })
    }

    /// State of the log.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Changes the retention.
    pub fn set_retention(&self, retention: Option<Duration>) {
        self.retention_ns.store(nanoseconds(retention), Ordering::Release);
        self.prune_at_ns.store(0, Ordering::Release);
    }

    /// Timestamp up to which changes are gone, or were never logged.
    pub fn horizon(&self, transaction: &Transaction) -> Result<Timestamp> {
        let horizon = transaction.read(&self.state, &HORIZON_KEY, |value| value.first_chunk().copied())?;
        let begins_at = self.begins_at.load(Ordering::Acquire);
        match horizon {
            None => Ok(begins_at),
            Some(Some(bytes)) => Ok(begins_at.max(Timestamp::from_stored(u64::from_le_bytes(bytes)))),
            Some(None) => {
                Err(Error::Corrupt(format!("{}: the horizon of a change log", self.state.holder())))
            }
        }
    }

    /// Calls `f` with the changes behind a position that the transaction sees, of commits not later than
    /// `up_to`, in the order of their timestamps, and with the position behind each; those of a commit in the
    /// order of keys. It ends when `f` returns false. Returns the position that it has reached.
    ///
    /// [`Error::SnapshotTooOld`] if changes behind the position are gone.
    pub fn read(
        &self,
        transaction: &Transaction,
        from: LogPosition,
        up_to: Timestamp,
        mut f: impl FnMut(LoggedChange<'_>, LogPosition) -> bool,
    ) -> Result<LogPosition> {
        let horizon = self.horizon(transaction)?;
        if from < LogPosition::after(horizon) {
            let (at, horizon) = (crate::history::utc(from.cts), crate::history::utc(horizon));
            let of = format!("the {}", self.state.holder());
            return Err(Error::SnapshotTooOld { of, at, horizon });
        }
        let range = KeyRange {
            lower: Bound::Included(KeyBytes::from_slice(&key_of(from.cts, from.part()))),
            upper: Bound::Included(KeyBytes::from_slice(&key_of(up_to, u64::MAX))),
        };
        let (mut next, mut position, mut is_enough, mut damage) = (None, from, false, None);
        loop {
            let more = transaction.scan_batch(&self.state, &range, &mut next, |key, value| {
                if is_enough || damage.is_some() {
                    return;
                }
                let (cts, part) = (cts_of(key), part_of(key));
                let read = if (cts, part) == (from.cts, from.part()) { from.within() } else { 0 };
                let mut changes = ChangeReader::of(cts, value);
                let mut index = 0;
                while let Some(change) = changes.next() {
                    index += 1;
                    if index <= read {
                        continue;
                    }
                    position = LogPosition { cts, rest: part << INDEX_BITS | index };
                    if !f(change, position) {
                        is_enough = true;
                        return;
                    }
                }
                if !changes.is_at_end() {
                    damage = Some(cts);
                }
            })?;
            if let Some(cts) = damage {
                let holder = self.state.holder();
                return Err(Error::Corrupt(format!("{holder}: malformed changes of commit {cts}")));
            }
            if is_enough {
                return Ok(position);
            }
            if !more {
                return Ok(LogPosition::after(up_to).max(position));
            }
        }
    }
}

/// Commits with logged changes that are known to be visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotedChanges {
    /// Number of the commits in this run.
    pub commits: u64,
    /// The greatest of their timestamps.
    pub newest: Timestamp,
}

/// Wakes those that wait for changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotes {
    noted: Mutex<NotedChanges>,
    more: Condvar,
}

impl ChangeNotes {
    /// Notes that a commit with changes is visible.
    pub(crate) fn note(&self, cts: Timestamp) {
        let mut noted = self.noted.lock();
        *noted = NotedChanges { commits: noted.commits + 1, newest: cts.max(noted.newest) };
        drop(noted);
        self.more.notify_all();
    }
}

fn nanoseconds(retention: Option<Duration>) -> u64 {
    retention.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl StateContext {
    /// Makes later commits log their changes of a state, or (None) not any more. Before a first log is
    /// attached to a state that may have changed, its horizon is set: that is a commit.
    pub fn log_changes(self: &Arc<Self>, state: &Arc<State>, log: Option<Arc<ChangeLog>>) -> Result<()> {
        if let Some(log) = &log {
            assert_eq!(log.state.group(), state.group(), "a log is committed with its state");
        }
        let (slot, _) = self.claim()?;
        let from = {
            // No commit into the state is in flight: those before log nothing, those after all.
            let _writer = state.group.hold();
            let stamp = self.active.stamp(slot, Class::Slow);
            let from = stamp.cts();
            state.set_change_log(log.clone());
            stamp.finish();
            from
        };
        self.active.release(slot);
        self.wait_until_visible(from)?;
        let Some(log) = log else { return Ok(()) };
        let transaction = self.begin()?;
        transaction.write(&log.state, &HORIZON_KEY, Some(&horizon_value(from)))?;
        transaction.commit(Durability::None)?;
        self.change_logs.lock().push(Arc::downgrade(&log));
        Ok(())
    }

    /// Attaches the log of a state that has logged its changes since it was made or [`StateContext::log_changes`]
    /// was called, before anything is written in this run.
    pub fn resume_change_log(&self, state: &Arc<State>, log: &Arc<ChangeLog>) {
        debug_assert_eq!(log.state.group(), state.group(), "a log is of the group of its state");
        if state.is_volatile() {
            log.begins_at.store(self.active.newest_assigned(), Ordering::Release);
        }
        state.set_change_log(Some(Arc::clone(log)));
        self.change_logs.lock().push(Arc::downgrade(log));
    }

    /// Commits with logged changes that are known to be visible.
    pub fn noted_changes(&self) -> NotedChanges {
        *self.change_notes.noted.lock()
    }

    /// Waits until there are more commits with logged changes than a former look has found, at most for
    /// `timeout`. Returns true if there are.
    pub fn wait_for_changes(&self, since: NotedChanges, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut noted = self.change_notes.noted.lock();
        while noted.commits <= since.commits {
            if self.change_notes.more.wait_until(&mut noted, deadline).timed_out() {
                return noted.commits > since.commits;
            }
        }
        true
    }

    /// Timestamp up to which all commits are visible to transactions that begin from now on: no later commit
    /// gets one up to there.
    pub fn visible_up_to(&self) -> Timestamp {
        self.active.advanced().all_up_to()
    }
}

#[cfg(test)]
mod tests;
