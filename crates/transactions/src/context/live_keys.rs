//! Number of the keys of a state that have a value, as commits change it: the count that a scan of all keys would find.
//!
//! # Invariants
//!
//! - A commit is noted once it cannot fail any more, before any snapshot sees it. So of the noted commits, exactly those that
//!   a snapshot does not see are left out of its count: a count belongs to a snapshot, never to the time of the call.
//! - Commits that are no longer noted by themselves are seen by every snapshot that is given a count. A class of commits
//!   becomes visible apart from the others ([`crate::visibility::snapshot`]), so the greatest of them is known by class.
//! - The count is known from the creation of the state on; behind a restart once a reader has counted all keys.
//!
//! The count is volatile: a crash leaves nothing of it. Memory: [`COMMITS_NOTED_MAX`] commits of 16 bytes a state. A snapshot that is
//! older than these is given no count, and reads.

use crate::context::state::State;
use crate::transaction::Transaction;
use crate::transaction::scan::KeyRange;
use crate::visibility::snapshot::{CLASSES, Class, Snapshot};
use crate::{Protocol, Result, Timestamp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of commits that are noted each by itself.
const COMMITS_NOTED_MAX: usize = 1024;

/// Number of live keys of a state; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LiveKeys {
    /// Set for a state whose keys no reader counts.
    is_uncounted: AtomicBool,
    noted: Mutex<NotedCommits>,
}

#[derive(Debug)]
struct NotedCommits {
    /// Number of keys before all commits that were ever noted; none if it is not known.
    before: Option<i64>,
    /// Keys added by all of them.
    added: i64,
    /// The last of them, each with the keys that it has added.
    commits: VecDeque<(Timestamp, i64)>,
    /// Greatest timestamp of the others, by class.
    forgotten: [Timestamp; CLASSES],
}

impl Default for NotedCommits {
    fn default() -> NotedCommits {
        let forgotten = [Timestamp::START; CLASSES];
        NotedCommits { before: None, added: 0, commits: VecDeque::new(), forgotten }
    }
}

impl NotedCommits {
    /// Keys added by the commits that a snapshot sees; none if some of them are not known one by one.
    fn seen(&self, snapshot: Snapshot) -> Option<i64> {
        if !self.forgotten.into_iter().all(|forgotten| snapshot.sees(forgotten)) {
            return None;
        }
        let unseen = self.commits.iter().filter(|(cts, _)| !snapshot.sees(*cts));
        Some(self.added - unseen.map(|(_, added)| added).sum::<i64>())
    }
}

impl LiveKeys {
    /// Notes that the state is new, and has no keys.
    pub(crate) fn begin(&self) {
        self.noted.lock().before = Some(0);
    }

    /// Counts no keys from now on; before the first commit into the state.
    pub(crate) fn leave_uncounted(&self) {
        self.is_uncounted.store(true, Ordering::Release);
        *self.noted.lock() = NotedCommits::default();
    }

    /// Tells whether commits note the keys that they add.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        !self.is_uncounted.load(Ordering::Relaxed)
    }

    /// Notes the keys that a commit has added.
    pub(crate) fn note(&self, cts: Timestamp, added: i64) {
        if added == 0 || !self.is_counted() {
            return;
        }
        let mut noted = self.noted.lock();
        noted.added += added;
        if noted.commits.len() >= COMMITS_NOTED_MAX
            && let Some((oldest, _)) = noted.commits.pop_front()
        {
            let forgotten = &mut noted.forgotten[Class::number_of(oldest)];
            *forgotten = oldest.max(*forgotten);
        }
        noted.commits.push_back((cts, added));
    }

    /// Number of keys for a snapshot, if it is known.
    fn count(&self, snapshot: Snapshot) -> Option<u64> {
        let noted = self.noted.lock();
        let count = noted.before? + noted.seen(snapshot)?;
        debug_assert!(count >= 0, "a state has no fewer keys than none: {count}");
        u64::try_from(count).ok()
    }

    /// Number of keys after all commits, of which the last may not be visible yet; for estimates.
    fn newest(&self) -> Option<u64> {
        let noted = self.noted.lock();
        noted.before.and_then(|before| u64::try_from(before + noted.added).ok())
    }

    /// Learns the number of keys that a snapshot sees, if it is not known.
    fn learn(&self, counted: u64, snapshot: Snapshot) {
        let mut noted = self.noted.lock();
        if noted.before.is_none()
            && let (Some(seen), Ok(counted)) = (noted.seen(snapshot), i64::try_from(counted))
        {
            noted.before = Some(counted - seen);
        }
    }
}

impl State {
    /// Counts no keys of the state: it is for entries that no reader asks the number of. To be called before the first commit
    /// into it.
    pub fn leave_uncounted(&self) {
        self.live.leave_uncounted();
    }

    /// Number of keys that have a value after all commits, if it is known; for estimates. The last of these commits may not be
    /// visible yet.
    pub fn newest_live_keys(&self) -> Option<u64> {
        if has_counts(self) { self.live.newest() } else { None }
    }
}

/// Returns true if commits count the keys of a state.
fn has_counts(state: &State) -> bool {
    state.protocol() == Protocol::MvccInPlace && state.live.is_counted()
}

impl Transaction {
    /// Number of keys of a state that have a value at the transaction's snapshot, if it is known without reading them. None
    /// if the transaction has written the state, or reads AS OF a point in time or not at a snapshot. It counts as a read of
    /// all keys.
    pub fn live_keys(&self, state: &Arc<State>) -> Result<Option<u64>> {
        if !self.may_count(state) {
            return Ok(None);
        }
        self.check_readable(state)?;
        let count = state.live.count(self.seen());
        if count.is_some() {
            self.note_range(state, KeyRange::full);
        }
        self.check_still_open()?;
        Ok(count)
    }

    /// Tells the number of keys of a state that the transaction has found, of all there are. The caller has read all of them
    /// at this snapshot, and the transaction had not written the state when it began to.
    pub fn tell_live_keys(&self, state: &Arc<State>, found: u64) {
        if self.may_count(state) {
            state.live.learn(found, self.seen());
        }
    }

    /// Returns true if the number of keys of a state is the same for all readers at the transaction's snapshot.
    pub fn may_count(&self, state: &State) -> bool {
        has_counts(state) && self.as_of().is_none() && !self.has_writes_of(state.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn a_count_leaves_out_the_commits_that_a_snapshot_does_not_see() {
        let keys = LiveKeys::default();
        let all = Snapshot::at(at(1000));
        assert_eq!(keys.count(all), None, "it was not counted");
        keys.note(at(10), 3);
        keys.note(at(12), -1);
        keys.note(at(11), 5);
        keys.learn(100, Snapshot::at(at(10)));
        let count = |up_to: u64| keys.count(Snapshot::at(at(up_to)));
        assert_eq!([9, 10, 11, 12].map(count), [Some(97), Some(100), Some(105), Some(104)]);
        keys.learn(7, all);
        assert_eq!((count(12), keys.newest()), (Some(104), Some(104)), "it is counted once");
    }

    #[test]
    fn snapshots_before_the_noted_commits_are_given_no_count() {
        let keys = LiveKeys::default();
        keys.begin();
        (1..=COMMITS_NOTED_MAX as u64 + 5).for_each(|cts| keys.note(at(cts), 1));
        let count = |up_to: u64| keys.count(Snapshot::at(at(up_to)));
        assert_eq!([4, 5, 6].map(count), [None, Some(5), Some(6)]);
        assert_eq!(keys.noted.lock().commits.len(), COMMITS_NOTED_MAX);
    }

    /// A commit that waits for a device is younger than the others that are forgotten, and not visible yet.
    #[test]
    fn forgotten_commits_are_seen_by_class() {
        let keys = LiveKeys::default();
        keys.begin();
        let (quick, slow) = (Class::Quick as u64, Class::Slow as u64);
        keys.note(at(400 + slow), 7);
        (0..COMMITS_NOTED_MAX as u64).for_each(|number| keys.note(at(404 + 4 * number + quick), 1));
        keys.note(at(100_000), 1);
        let mut snapshot = Snapshot::at(at(200_000));
        assert_eq!(keys.count(snapshot), Some(7 + COMMITS_NOTED_MAX as u64 + 1));
        snapshot.seen[slow as usize] = at(400);
        assert_eq!(keys.count(snapshot), None, "it does not see the slow one");
    }

    #[test]
    fn an_uncounted_state_notes_nothing() {
        let keys = LiveKeys::default();
        keys.begin();
        keys.leave_uncounted();
        keys.note(at(8), 1);
        assert_eq!((keys.count(Snapshot::at(at(9))), keys.newest()), (None, None));
    }
}
