//! Keys of a state whose last version was deleted, waiting for their removal from the index.
//!
//! Known one by one as long as there are not too many; then they become a range of keys that is looked over leaf by leaf. So
//! none is forgotten, however many there are. How many there are is stored beside the index from time to time ([`note`](
//! entresol_structures::OrderedIndex::note)); after opening, a state that had some is a range from end to end.
//!
//! The count is an estimate: a key that was written again counts until somebody looks at it.
//!
//! Memory: [`DEAD_KEYS_MAX`] keys a state, [`QUEUED_KEYS_MAX`] keys all states together.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use entresol_structures::KeyBytes;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::{StateId, Timestamp};

/// How many dead keys a state knows one by one; beyond, it knows between which keys they lie.
pub const DEAD_KEYS_MAX: usize = 65_536;
/// How many all states together know one by one.
pub const QUEUED_KEYS_MAX: u64 = 1 << 18;

/// The dead keys of one state.
pub(crate) struct DeadKeys {
    state: StateId,
    queue: Arc<ReclaimQueue>,
    known: Mutex<Known>,
    /// Keys and those of the range.
    count: AtomicU64,
    has_range: AtomicBool,
    /// The count that is stored beside the index.
    stored: AtomicU64,
    /// Since the state was opened.
    reclaimed: AtomicU64,
    /// When it was last worked on.
    last_pass_ns: AtomicU64,
    /// No snapshot may be older than this before it is worth another look; 0: nothing holds it back.
    held_until: AtomicU64,
}

#[derive(Default)]
struct Known {
    /// In order, so that neighbours in the index go together.
    keys: BTreeSet<KeyBytes>,
    range: Option<DeadRange>,
}

/// Keys among which some are dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadRange {
    pub(crate) from: Bound<KeyBytes>,
    /// The last; None: the end of the index.
    pub(crate) to: Option<KeyBytes>,
    keys: u64,
}

impl DeadRange {
    /// All keys of a state, of which so many are dead.
    pub(crate) fn full(keys: u64) -> DeadRange {
        DeadRange { from: Bound::Unbounded, to: None, keys }
    }
}

/// The states that have dead keys, and whoever is to be woken for them.
#[derive(Default)]
pub(crate) struct ReclaimQueue {
    states: Mutex<BTreeSet<StateId>>,
    /// Keys that all states know one by one.
    keys: AtomicU64,
    /// Dead keys of all states.
    dead: AtomicU64,
    has_thread: AtomicBool,
    is_awake: Mutex<bool>,
    work: Condvar,
}

/// Numbers of one state, for whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadKeyCounts {
    pub(crate) dead: u64,
    pub(crate) reclaimed: u64,
    pub(crate) last_pass_ns: u64,
    pub(crate) held_until: Timestamp,
}

impl DeadKeys {
    pub(crate) fn new(state: StateId, queue: &Arc<ReclaimQueue>) -> DeadKeys {
        DeadKeys {
            state,
            queue: Arc::clone(queue),
            known: Mutex::default(),
            count: AtomicU64::new(0),
            has_range: AtomicBool::new(false),
            stored: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            last_pass_ns: AtomicU64::new(0),
            held_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn push(&self, key: &[u8]) {
        self.push_into(&mut self.known.lock(), KeyBytes::from_slice(key));
    }

    /// The same, if that does not have to wait: for readers.
    pub(crate) fn try_push(&self, key: &[u8]) {
        if let Some(mut known) = self.known.try_lock() {
            self.push_into(&mut known, KeyBytes::from_slice(key));
        }
    }

    fn push_into(&self, known: &mut Known, key: KeyBytes) {
        if !known.keys.insert(key) {
            return;
        }
        self.queue.keys.fetch_add(1, Ordering::Relaxed);
        self.add(1);
        let is_crowded = self.queue.keys.load(Ordering::Relaxed) > QUEUED_KEYS_MAX;
        if known.keys.len() > DEAD_KEYS_MAX || (is_crowded && known.keys.len() > DEAD_KEYS_MAX / 64) {
            self.merge(known);
        }
        if self.count() == 1 {
            self.queue.add(self.state);
        }
    }

    /// Makes a range of what is known one by one, and of the range that there is.
    fn merge(&self, known: &mut Known) {
        let (Some(first), Some(last)) = (known.keys.first().cloned(), known.keys.last().cloned()) else {
            return;
        };
        let mut merged =
            DeadRange { from: Bound::Included(first), to: Some(last), keys: known.keys.len() as u64 };
        if let Some(range) = known.range.take() {
            merged.keys += range.keys;
            merged.to = match (merged.to, range.to) {
                (Some(last), Some(other)) => Some(last.max(other)),
                _ => None,
            };
            merged.from = match (merged.from, range.from) {
                (Bound::Included(first), Bound::Included(other)) => Bound::Included(first.min(other)),
                _ => Bound::Unbounded,
            };
        }
        self.queue.keys.fetch_sub(known.keys.len() as u64, Ordering::Relaxed);
        known.keys.clear();
        known.range = Some(merged);
        self.has_range.store(true, Ordering::Relaxed);
    }

    /// Number of dead keys somewhere in the state, by the stored hint.
    pub(crate) fn expect(&self, keys: u64) {
        self.known.lock().range = Some(DeadRange::full(keys));
        self.has_range.store(true, Ordering::Relaxed);
        self.stored.store(keys, Ordering::Relaxed);
        self.add(keys);
        self.queue.add(self.state);
    }

    /// Takes some that are known one by one, neighbours.
    pub(crate) fn take_keys(&self, keys_max: usize) -> SmallVec<[KeyBytes; 32]> {
        let mut known = self.known.lock();
        let taken: SmallVec<[_; 32]> = std::iter::from_fn(|| known.keys.pop_first()).take(keys_max).collect();
        self.queue.keys.fetch_sub(taken.len() as u64, Ordering::Relaxed);
        self.subtract(taken.len() as u64);
        taken
    }

    /// The range to look over.
    pub(crate) fn range(&self) -> Option<DeadRange> {
        self.known.lock().range.clone()
    }

    /// A part of `range` has been looked over: `removed` dead keys are gone, `next` comes next. If it was changed
    /// meanwhile it stays as it is, and is looked over again.
    pub(crate) fn looked_over(&self, range: &DeadRange, removed: u64, next: Option<KeyBytes>) {
        let mut known = self.known.lock();
        let Some(current) = known.range.as_mut().filter(|current| *current == range) else { return };
        let gone = removed.min(current.keys);
        current.keys -= gone;
        let next = next.filter(|next| current.to.as_ref().is_none_or(|to| next <= to));
        let left = match next {
            Some(next) => {
                current.from = Bound::Included(next);
                0
            }
            // What was expected and not found is not there.
            None => {
                self.has_range.store(false, Ordering::Relaxed);
                known.range.take().map_or(0, |range| range.keys)
            }
        };
        self.subtract(gone + left);
    }

    /// All of the state is being looked over: what is found from now on counts, and no other.
    pub(crate) fn forget(&self) {
        let mut known = self.known.lock();
        self.queue.keys.fetch_sub(known.keys.len() as u64, Ordering::Relaxed);
        *known = Known::default();
        self.has_range.store(false, Ordering::Relaxed);
        self.subtract(self.count());
    }

    fn add(&self, keys: u64) {
        self.count.fetch_add(keys, Ordering::Relaxed);
        self.queue.dead.fetch_add(keys, Ordering::Relaxed);
    }

    fn subtract(&self, keys: u64) {
        self.count.fetch_sub(keys, Ordering::Relaxed);
        self.queue.dead.fetch_sub(keys, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Is there something to look at?
    pub(crate) fn is_pending(&self) -> bool {
        self.count() > 0 || self.has_range.load(Ordering::Relaxed)
    }

    /// The count, if what is stored is too far from it.
    pub(crate) fn to_store(&self) -> Option<u64> {
        let (count, stored) = (self.count(), self.stored.load(Ordering::Relaxed));
        let is_far = count.abs_diff(stored) >= (stored / 8).max(64) || (count == 0 && stored > 0);
        is_far.then(|| {
            self.stored.store(count, Ordering::Relaxed);
            count
        })
    }

    pub(crate) fn note_pass(&self, removed: u64, now_ns: u64, held_until: Timestamp) {
        self.reclaimed.fetch_add(removed, Ordering::Relaxed);
        self.last_pass_ns.store(now_ns, Ordering::Relaxed);
        self.held_until.store(held_until, Ordering::Relaxed);
    }

    pub(crate) fn held_until(&self) -> Timestamp {
        self.held_until.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> DeadKeyCounts {
        DeadKeyCounts {
            dead: self.count(),
            reclaimed: self.reclaimed.load(Ordering::Relaxed),
            last_pass_ns: self.last_pass_ns.load(Ordering::Relaxed),
            held_until: self.held_until(),
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

    /// Takes a state out, unless it has got some meanwhile.
    pub(crate) fn remove_unless(&self, state: StateId, is_pending: impl FnOnce() -> bool) {
        let mut states = self.states.lock();
        if !is_pending() {
            states.remove(&state);
        }
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

    /// There is something to do.
    pub(crate) fn wake(&self) {
        if self.has_thread() {
            *self.is_awake.lock() = true;
            self.work.notify_one();
        }
    }

    /// Waits until somebody has work, or for so long.
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

    fn key(number: u64) -> KeyBytes {
        KeyBytes::from_slice(&number.to_be_bytes())
    }

    #[test]
    fn keys_count_once_and_none_is_forgotten() {
        let queue = Arc::new(ReclaimQueue::default());
        let dead = DeadKeys::new(StateId(1), &queue);
        for _ in 0..3 {
            dead.push(&key(7));
        }
        assert_eq!((dead.count(), queue.dead(), queue.states_after(None)), (1, 1, vec![StateId(1)]));
        assert_eq!(&dead.take_keys(10)[..], [key(7)]);
        assert_eq!((dead.count(), queue.dead(), queue.keys.load(Ordering::Relaxed)), (0, 0, 0));
        let many = DEAD_KEYS_MAX as u64 + 10;
        (0..many).for_each(|number| dead.push(&key(number)));
        assert_eq!((dead.count(), queue.dead()), (many, many));
        let range = dead.range().unwrap();
        assert_eq!(range.from, Bound::Included(key(0)));
        let kept = range.keys;
        dead.looked_over(&range, 100, Some(key(100)));
        assert_eq!(dead.count(), many - 100);
        // A key that comes while the range is looked over may lie before it.
        (0..many).for_each(|number| dead.push(&key(number)));
        let merged = dead.range().unwrap();
        assert_eq!(merged.from, Bound::Included(key(0)));
        dead.looked_over(&range, kept, None);
        assert_eq!(dead.range().unwrap(), merged, "what has changed meanwhile is looked over again");
        dead.looked_over(&merged, 1, None);
        while !dead.take_keys(32).is_empty() {}
        assert_eq!((dead.count(), queue.dead(), dead.is_pending()), (0, 0, false));
        assert_eq!(queue.keys.load(Ordering::Relaxed), 0);
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
}
