//! Keys of a state whose last version was deleted, waiting for their removal from the index.
//!
//! ```text
//!   deletions ─▶ list, the oldest first ─▶ taken once no snapshot is older than the deletion
//!        └ too many ─▶ count ─▶ sweep: laps over the index, leaf by leaf
//! ```
//!
//! They are listed one by one as long as there are not too many. Those beyond are counted, and a *sweep*
//! finds them: it passes over the entire index, and again as long as keys came or had to wait meanwhile. So
//! none is forgotten, however many there are, and keys that have to wait never block keys that need not.
//! Their number is stored beside the index from time to time
//! ([`note`](entresol_structures::OrderedIndex::note)); after opening, a state that had some is swept.
//!
//! The count is an estimate: a key that was written again counts until it is visited.
//!
//! Memory: [`DEAD_KEYS_MAX`] keys a state, [`QUEUED_KEYS_MAX`] keys all states together.

use crate::{StateId, Timestamp};
use entresol_structures::KeyBytes;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of dead keys that a state lists one by one; those beyond it counts.
pub const DEAD_KEYS_MAX: usize = 65_536;
/// Maximum number that all states together list one by one.
pub const QUEUED_KEYS_MAX: u64 = 1 << 18;
/// Maximum number of dead keys for readers to add those that they find.
const FOUND_KEYS_MAX: u64 = 64;

/// A key, and its deletion timestamp; the start: unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadKey {
    pub(crate) deleted_at: Timestamp,
    pub(crate) key: KeyBytes,
}

/// The dead keys of one state.
pub(crate) struct DeadKeys {
    state: StateId,
    queue: Arc<ReclaimQueue>,
    known: Mutex<ListedKeys>,
    /// Keys of the list and of the sweep.
    count: AtomicU64,
    is_swept: AtomicBool,
    /// The count that is stored beside the index.
    stored: AtomicU64,
    /// Keys removed since the state was opened.
    reclaimed: AtomicU64,
    /// Time of the last pass, in nanoseconds.
    last_pass_ns: AtomicU64,
}

#[derive(Default)]
struct ListedKeys {
    /// In the order of their deletion, but for those of commits side by side.
    list: VecDeque<DeadKey>,
    sweep: Option<Sweep>,
}

/// Laps over the index, for dead keys that are only counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sweep {
    /// Position at which the lap goes on; None: it has not begun.
    at: Option<Bound<KeyBytes>>,
    /// The lap finds nothing to remove as long as a snapshot is older.
    from: Timestamp,
    /// Dead keys that the lap has still to find.
    left: u64,
    /// Dead keys that the next lap has to find: they came meanwhile, or have to wait.
    next: u64,
    /// The oldest deletion among those.
    next_from: Option<Timestamp>,
}

impl Sweep {
    fn expect(&mut self, deleted_at: Timestamp, keys: u64) {
        self.next += keys;
        self.next_from = Some(self.next_from.map_or(deleted_at, |from| from.min(deleted_at)));
    }
}

/// Findings of a sweep in a part of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepResult {
    pub(crate) removed: u64,
    /// Dead keys that have to wait, and the oldest deletion among them.
    pub(crate) waiting: u64,
    pub(crate) waits_for: Option<Timestamp>,
}

/// The states that have dead keys, and the thread to be woken for them.
#[derive(Default)]
pub(crate) struct ReclaimQueue {
    states: Mutex<BTreeSet<StateId>>,
    /// Keys that all states list one by one.
    keys: AtomicU64,
    /// Dead keys of all states.
    dead: AtomicU64,
    /// The state that a commit worked on last, and one more; 0: none.
    last_helped: AtomicU64,
    has_thread: AtomicBool,
    is_awake: Mutex<bool>,
    work: Condvar,
}

/// Dead-key counts of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadKeyCounts {
    pub(crate) dead: u64,
    pub(crate) reclaimed: u64,
    pub(crate) last_pass_ns: u64,
    pub(crate) ready_at: Option<Timestamp>,
}

impl DeadKeys {
    pub(crate) fn new(state: StateId, queue: &Arc<ReclaimQueue>) -> DeadKeys {
        DeadKeys {
            state,
            queue: Arc::clone(queue),
            known: Mutex::default(),
            count: AtomicU64::new(0),
            is_swept: AtomicBool::new(false),
            stored: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            last_pass_ns: AtomicU64::new(0),
        }
    }

    /// Adds a key that was deleted at this timestamp. Each deletion is added, also of a key that is there
    /// already.
    pub(crate) fn push(&self, deleted_at: Timestamp, key: &[u8]) {
        self.push_into(&mut self.known.lock(), DeadKey { deleted_at, key: KeyBytes::from_slice(key) });
    }

    /// Adds a key that a reader has found, if few are listed: one that was forgotten in a crash.
    pub(crate) fn push_found(&self, key: &[u8]) {
        if self.count() < FOUND_KEYS_MAX
            && let Some(mut known) = self.known.try_lock()
        {
            self.push_into(
                &mut known,
                DeadKey { deleted_at: Timestamp::START, key: KeyBytes::from_slice(key) },
            );
        }
    }

    fn push_into(&self, known: &mut ListedKeys, dead: DeadKey) {
        self.add(1);
        let is_crowded = self.queue.keys.load(Ordering::Relaxed) >= QUEUED_KEYS_MAX;
        if known.list.len() >= DEAD_KEYS_MAX || (is_crowded && known.list.len() >= DEAD_KEYS_MAX / 64) {
            known.sweep.get_or_insert_default().expect(dead.deleted_at, 1);
            self.is_swept.store(true, Ordering::Relaxed);
        } else {
            self.queue.keys.fetch_add(1, Ordering::Relaxed);
            known.list.push_back(dead);
        }
        if self.count() == 1 {
            self.queue.add(self.state);
        }
        self.assert_counted(known);
    }

    /// Number of dead keys somewhere in the state, by the stored hint.
    pub(crate) fn expect(&self, keys: u64) {
        let mut known = self.known.lock();
        known.sweep.get_or_insert_default().expect(Timestamp::START, keys);
        self.is_swept.store(true, Ordering::Relaxed);
        self.stored.store(keys, Ordering::Relaxed);
        self.add(keys);
        self.queue.add(self.state);
        self.assert_counted(&known);
    }

    /// Takes some of the list that all snapshots see deleted, and puts them in the order of the index.
    pub(crate) fn take_keys(
        &self,
        all_see: impl Fn(Timestamp) -> bool,
        keys_max: usize,
    ) -> SmallVec<[DeadKey; 32]> {
        let mut known = self.known.lock();
        let next = || known.list.pop_front_if(|dead| all_see(dead.deleted_at));
        let mut taken: SmallVec<[_; 32]> = std::iter::from_fn(next).take(keys_max).collect();
        // Under the lock: `forget` subtracts all that is counted.
        self.queue.keys.fetch_sub(taken.len() as u64, Ordering::Relaxed);
        self.subtract(taken.len() as u64);
        self.assert_counted(&known);
        drop(known);
        taken.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        taken
    }

    /// Position at which the sweep goes on, if there is one that may find something which all snapshots see
    /// deleted.
    pub(crate) fn sweep_at(&self, all_see: impl Fn(Timestamp) -> bool) -> Option<Bound<KeyBytes>> {
        let mut known = self.known.lock();
        let sweep = known.sweep.as_mut()?;
        if sweep.at.is_none() {
            let from = sweep.next_from.unwrap_or(sweep.from);
            if !all_see(from) {
                return None;
            }
            sweep.left += std::mem::take(&mut sweep.next);
            (sweep.at, sweep.from, sweep.next_from) = (Some(Bound::Unbounded), from, None);
        }
        sweep.at.clone()
    }

    /// Notes that the sweep has passed over the index from `at` on; `next` comes next. If another thread was
    /// there as well, its note counts.
    pub(crate) fn swept(&self, at: &Bound<KeyBytes>, swept: SweepResult, next: Option<KeyBytes>) {
        let mut known = self.known.lock();
        let listed = known.list.len() as u64;
        let Some(sweep) = known.sweep.as_mut().filter(|sweep| sweep.at.as_ref() == Some(at)) else { return };
        let before = sweep.left + sweep.next;
        sweep.left = sweep.left.saturating_sub(swept.removed + swept.waiting);
        if let Some(waits_for) = swept.waits_for {
            sweep.expect(waits_for, swept.waiting);
        }
        sweep.at = next.map(Bound::Included);
        let mut after = sweep.left + sweep.next;
        if sweep.at.is_none() {
            // Keys expected and not found do not exist; waiting keys are in the list as well, as far as that
            // goes.
            sweep.left = 0;
            sweep.next = sweep.next.saturating_sub(listed);
            after = sweep.next;
            if after == 0 {
                known.sweep = None;
                self.is_swept.store(false, Ordering::Relaxed);
            }
        }
        self.add(after.saturating_sub(before));
        self.subtract(before.saturating_sub(after));
        self.assert_counted(&known);
    }

    /// Forgets all dead keys, as a full pass over the state begins: its findings from now on count, and no
    /// others.
    pub(crate) fn forget(&self) {
        let mut known = self.known.lock();
        self.queue.keys.fetch_sub(known.list.len() as u64, Ordering::Relaxed);
        *known = ListedKeys::default();
        self.is_swept.store(false, Ordering::Relaxed);
        self.subtract(self.count());
        self.assert_counted(&known);
    }

    /// Tells whether there is something to do that all snapshots see deleted.
    pub(crate) fn is_ready(&self, all_see: impl Fn(Timestamp) -> bool) -> bool {
        self.waits_for().into_iter().flatten().any(all_see)
    }

    /// The commit that all must see before there is something to do; None: there is nothing.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        self.waits_for().into_iter().flatten().min()
    }

    /// The commits that the list and the sweep wait for.
    fn waits_for(&self) -> [Option<Timestamp>; 2] {
        let known = self.known.lock();
        let of_sweep = |sweep: &Sweep| {
            sweep.at.as_ref().map_or(sweep.next_from.unwrap_or(sweep.from), |_| Timestamp::START)
        };
        [known.list.front().map(|dead| dead.deleted_at), known.sweep.as_ref().map(of_sweep)]
    }

    fn add(&self, keys: u64) {
        self.count.fetch_add(keys, Ordering::Relaxed);
        self.queue.dead.fetch_add(keys, Ordering::Relaxed);
    }

    fn subtract(&self, keys: u64) {
        let counted = self.count.fetch_sub(keys, Ordering::Relaxed);
        debug_assert!(counted >= keys, "{keys} of {counted} dead keys of {} are taken", self.state);
        let counted = self.queue.dead.fetch_sub(keys, Ordering::Relaxed);
        debug_assert!(counted >= keys, "{keys} of {counted} dead keys of all states are taken");
    }

    fn assert_counted(&self, known: &ListedKeys) {
        let swept = known.sweep.as_ref().map_or(0, |sweep| sweep.left + sweep.next);
        debug_assert_eq!(
            self.count(),
            known.list.len() as u64 + swept,
            "each dead key of {} is counted in the list or in the sweep",
            self.state
        );
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Tells whether there is something to do.
    pub(crate) fn is_pending(&self) -> bool {
        self.count() > 0 || self.is_swept.load(Ordering::Relaxed)
    }

    /// Tells whether the stored count is too far from the count.
    pub(crate) fn is_stored_count_far(&self) -> bool {
        let (count, stored) = (self.count(), self.stored.load(Ordering::Relaxed));
        count.abs_diff(stored) >= (stored / 8).max(64) || (count == 0 && stored > 0)
    }

    /// The count, if the stored one is too far from it: it is being stored.
    pub(crate) fn to_store(&self) -> Option<u64> {
        self.is_stored_count_far().then(|| {
            let count = self.count();
            self.stored.store(count, Ordering::Relaxed);
            count
        })
    }

    pub(crate) fn note_pass(&self, removed: u64, now_ns: u64) {
        self.reclaimed.fetch_add(removed, Ordering::Relaxed);
        self.last_pass_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> DeadKeyCounts {
        DeadKeyCounts {
            dead: self.count(),
            reclaimed: self.reclaimed.load(Ordering::Relaxed),
            last_pass_ns: self.last_pass_ns.load(Ordering::Relaxed),
            ready_at: self.ready_at(),
        }
    }
}

impl Drop for DeadKeys {
    fn drop(&mut self) {
        self.forget();
    }
}

impl ReclaimQueue {
    fn add(&self, state: StateId) {
        self.states.lock().insert(state);
        self.wake();
    }

    /// The states that have, or had, dead keys; from the one behind `after` on, and round.
    pub(crate) fn states_after(&self, after: Option<StateId>) -> Vec<StateId> {
        let states = self.states.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let to = after.map_or(Bound::Excluded(StateId(0)), Bound::Included);
        states.range((from, Bound::Unbounded)).chain(states.range((Bound::Unbounded, to))).copied().collect()
    }

    /// Removes a state, unless it has got dead keys meanwhile.
    pub(crate) fn remove_unless(&self, state: StateId, is_pending: impl FnOnce() -> bool) {
        let mut states = self.states.lock();
        if !is_pending() {
            states.remove(&state);
        }
    }

    /// The state that a commit worked on last, so that they take turns.
    pub(crate) fn last_helped(&self) -> Option<StateId> {
        let last = self.last_helped.load(Ordering::Relaxed);
        last.checked_sub(1).and_then(|id| u32::try_from(id).ok()).map(StateId)
    }

    pub(crate) fn set_last_helped(&self, last: Option<StateId>) {
        self.last_helped.store(last.map_or(0, |id| u64::from(id.0) + 1), Ordering::Relaxed);
    }

    /// Dead keys of all states.
    pub(crate) fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_thread(&self, has_thread: bool) {
        self.has_thread.store(has_thread, Ordering::Release);
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Acquire)
    }

    /// Wakes the thread: there is something to do.
    pub(crate) fn wake(&self) {
        if self.has_thread() {
            *self.is_awake.lock() = true;
            self.work.notify_one();
        }
    }

    /// Waits until there is work, or for so long.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut is_awake = self.is_awake.lock();
        if !*is_awake {
            self.work.wait_for(&mut is_awake, timeout);
        }
        *is_awake = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    fn key(number: u64) -> KeyBytes {
        KeyBytes::from_slice(&number.to_be_bytes())
    }

    fn dead_keys() -> (Arc<ReclaimQueue>, DeadKeys) {
        let queue = Arc::new(ReclaimQueue::default());
        let dead = DeadKeys::new(StateId(1), &queue);
        (queue, dead)
    }

    fn up_to(oldest: u64) -> impl Fn(Timestamp) -> bool {
        move |deleted_at| deleted_at <= at(oldest)
    }

    fn numbers(keys: &[DeadKey]) -> Vec<u64> {
        let number = |dead: &DeadKey| u64::from_be_bytes(dead.key[..].try_into().unwrap());
        keys.iter().map(number).collect()
    }

    #[test]
    fn keys_that_must_wait_are_not_taken_and_do_not_stand_before_others() {
        let (queue, dead) = dead_keys();
        // The newest deletions have the smallest keys.
        (0..100).for_each(|number| dead.push(at(number), &key(1000 - number)));
        assert_eq!((dead.count(), queue.dead(), queue.states_after(None)), (100, 100, vec![StateId(1)]));
        assert_eq!(dead.ready_at(), Some(at(0)));
        assert_eq!(numbers(&dead.take_keys(up_to(2), 10)), [998, 999, 1000]);
        assert!(dead.take_keys(up_to(2), 10).is_empty());
        assert_eq!(dead.ready_at(), Some(at(3)));
        assert_eq!(dead.take_keys(up_to(1000), 200).len(), 97);
        assert_eq!((dead.count(), queue.dead(), queue.keys.load(Ordering::Relaxed)), (0, 0, 0));
        assert_eq!((dead.is_pending(), dead.ready_at()), (false, None));
    }

    #[test]
    fn keys_beyond_the_list_are_swept_until_none_is_left() {
        let (queue, dead) = dead_keys();
        let many = DEAD_KEYS_MAX as u64 + 10;
        (0..many).for_each(|number| dead.push(at(number), &key(number)));
        assert_eq!((dead.count(), queue.dead()), (many, many));
        let first_beyond = DEAD_KEYS_MAX as u64;
        assert_eq!(dead.sweep_at(up_to(first_beyond - 1)), None, "they all have to wait");
        assert_eq!(dead.sweep_at(up_to(first_beyond)), Some(Bound::Unbounded));
        let nothing = SweepResult { removed: 0, waiting: 0, waits_for: None };
        dead.swept(&Bound::Unbounded, SweepResult { removed: 4, ..nothing }, Some(key(100)));
        assert_eq!(dead.count(), many - 4);
        // Keys that come while a lap goes on leave it where it is.
        (0..5).for_each(|number| dead.push(at(many + number), &key(number)));
        let position = Bound::Included(key(100));
        assert_eq!(dead.sweep_at(up_to(first_beyond)), Some(position.clone()));
        dead.swept(&Bound::Unbounded, nothing, None);
        assert_eq!(dead.sweep_at(up_to(first_beyond)), Some(position.clone()), "somebody else was there");
        while !dead.take_keys(up_to(u64::MAX), 1000).is_empty() {}
        dead.swept(
            &position,
            SweepResult { removed: 3, waiting: 2, waits_for: Some(at(first_beyond + 7)) },
            None,
        );
        assert_eq!(dead.count(), 7, "two that wait and five that came");
        assert_eq!(dead.ready_at(), Some(at(first_beyond + 7)));
        assert_eq!(dead.sweep_at(up_to(first_beyond + 6)), None);
        assert_eq!(dead.sweep_at(up_to(many + 9)), Some(Bound::Unbounded), "another lap");
        dead.swept(&Bound::Unbounded, SweepResult { removed: 7, ..nothing }, None);
        assert_eq!((dead.count(), queue.dead(), dead.is_pending()), (0, 0, false));
        assert_eq!(queue.keys.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_state_is_swept_once_after_opening_whatever_was_noted() {
        for noted in [0, 700] {
            let (queue, dead) = dead_keys();
            dead.expect(noted);
            assert_eq!((dead.is_pending(), dead.ready_at(), queue.dead()), (true, Some(at(0)), noted));
            assert_eq!(dead.sweep_at(up_to(1)), Some(Bound::Unbounded));
            dead.swept(&Bound::Unbounded, SweepResult { removed: 0, waiting: 0, waits_for: None }, None);
            assert_eq!((dead.is_pending(), queue.dead()), (false, 0));
        }
    }

    #[test]
    fn readers_add_only_a_few() {
        let (_, dead) = dead_keys();
        (0..1000).for_each(|number| dead.push_found(&key(number)));
        assert_eq!(dead.count(), FOUND_KEYS_MAX);
        assert_eq!(dead.ready_at(), Some(at(0)));
    }

    #[test]
    fn states_take_turns() {
        let queue = ReclaimQueue::default();
        [2, 5, 9].into_iter().for_each(|id| queue.add(StateId(id)));
        let after =
            |id: Option<u32>| queue.states_after(id.map(StateId)).iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(after(None), [2, 5, 9]);
        assert_eq!(after(Some(2)), [5, 9, 2]);
        assert_eq!(after(Some(9)), [2, 5, 9]);
        assert_eq!(after(Some(6)), [9, 2, 5]);
    }

    #[test]
    fn keys_that_are_taken_while_others_are_forgotten_are_counted_once() {
        let (queue, dead) = dead_keys();
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                for number in 0..300_000 {
                    dead.push(at(1), &key(number)[..]);
                    dead.take_keys(up_to(1), 1);
                    assert!(dead.count() <= 1 && queue.dead() <= 1, "{} after {number}", dead.count());
                }
            });
            while !taking.is_finished() {
                dead.forget();
            }
        });
        assert_eq!((dead.count(), queue.dead()), (0, 0));
    }
}
