//! Locks of keys and ranges by name, for commits that hold too many keys for stripes
//! ([`crate::locking::stripes`]), or ranges.
//!
//! Ten thousand keys would share stripes with half of all others. So such a commit names its keys and ranges
//! here, and every holder of a key's stripe checks whether the key was named: exact, so that writers of other
//! keys go on, and one load while there is no such commit. Predicate locks (Eswaran and others, 1976), of
//! keys and intervals alone, which are easy to compare.
//!
//! # Completeness
//! A lock is entered first; then the stripes of its keys are passed, one by one: a thread that held one
//! before has released it, and one that takes it later finds the lock. A range has no stripes: its lock is
//! entered while all of its groups are held exclusively, so that a holder of keys has either released them
//! before, or checks later.
//!
//! # No deadlock
//! A commit that finds a key or a range locked releases all that it holds, waits, and begins again. The
//! holder of a lock waits for no other lock, nor for a group. A group that is held exclusively is waited for
//! before locks are entered.
//!
//! Memory: a copy of the keys of each such commit.

use crate::context::group::Group;
use crate::transaction::reads::ReadSet;
use crate::transaction::write_set::WriteSet;
use crate::{GroupId, KeyRange, StateId};
use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ratio of the sizes of two sets from which on the keys of the smaller one are searched for in the larger
/// one by one.
const SEARCH_FACTOR: usize = 16;

/// Keys one behind the other: copied fast, and found by their places.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    /// End of each key.
    ends: Vec<usize>,
}

impl Keys {
    /// Of keys that ascend, each once.
    fn new<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Keys {
        let mut all = Keys::default();
        for key in keys {
            all.bytes.extend_from_slice(key);
            all.ends.push(all.bytes.len());
        }
        all
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn at(&self, place: usize) -> &[u8] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[begin..self.ends[place]]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|place| self.at(place))
    }

    /// The first key that is not before something.
    fn first_not(&self, is_before: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.at(middle)) { low = middle + 1 } else { high = middle }
        }
        (low < self.len()).then(|| self.at(low))
    }

    fn has(&self, key: &[u8]) -> bool {
        self.first_not(|own| own < key) == Some(key)
    }

    fn has_any_of(&self, range: &KeyRange) -> bool {
        self.first_not(|key| !range.begins_before(key)).is_some_and(|key| range.reaches(key))
    }

    /// Cost: that of going through both, or a search in the larger one for each key of the smaller one.
    fn has_common(&self, other: &Keys) -> bool {
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        if few.len() < many.len() / SEARCH_FACTOR {
            return few.iter().any(|key| many.has(key));
        }
        let (mut few, mut many) = (few.iter().peekable(), many.iter().peekable());
        while let (Some(left), Some(right)) = (few.peek(), many.peek()) {
            match left.cmp(right) {
                std::cmp::Ordering::Less => few.next(),
                std::cmp::Ordering::Greater => many.next(),
                std::cmp::Ordering::Equal => return true,
            };
        }
        false
    }
}

/// Locked keys and ranges of a state.
#[derive(Default)]
struct LockedKeys {
    keys: Keys,
    ranges: Vec<KeyRange>,
}

/// All that a commit locks.
pub(crate) struct PredicateLock {
    groups: SmallVec<[GroupId; 4]>,
    states: BTreeMap<StateId, LockedKeys>,
    is_released: Mutex<bool>,
    released: Condvar,
}

impl PredicateLock {
    /// A lock of the written keys, and of everything that was read.
    pub(crate) fn new(groups: &[&Group], writes: &WriteSet, reads: Option<&ReadSet>) -> PredicateLock {
        let mut states = BTreeMap::<StateId, LockedKeys>::new();
        for (id, writes) in writes.states.iter().filter(|(_, writes)| !writes.keys.is_empty()) {
            states.entry(*id).or_default().keys = Keys::new(writes.keys.keys().map(|key| &key[..]));
        }
        for (id, keys, ranges) in reads.into_iter().flat_map(ReadSet::iter) {
            let locked = states.entry(id).or_default();
            if !keys.is_empty() {
                let mut all: Vec<&[u8]> = locked.keys.iter().chain(keys.iter().map(|key| &key[..])).collect();
                all.sort_unstable();
                all.dedup();
                locked.keys = Keys::new(all.into_iter());
            }
            locked.ranges.extend_from_slice(ranges);
        }
        PredicateLock {
            groups: groups.iter().map(|group| group.id).collect(),
            states,
            is_released: Mutex::new(false),
            released: Condvar::new(),
        }
    }

    pub(crate) fn has_ranges(&self) -> bool {
        self.states.values().any(|locked| !locked.ranges.is_empty())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (StateId, &[u8])> {
        self.states.iter().flat_map(|(id, locked)| locked.keys.iter().map(|key| (*id, key)))
    }

    fn has(&self, state: StateId, key: &[u8]) -> bool {
        self.states.get(&state).is_some_and(|locked| {
            locked.keys.has(key) || locked.ranges.iter().any(|range| range.contains(key))
        })
    }

    /// Tells whether both name a key, or one a key of a range of the other. Locks that only read a range do
    /// not conflict over it.
    fn conflicts_with(&self, other: &PredicateLock) -> bool {
        self.states.iter().any(|(state, own)| {
            let Some(theirs) = other.states.get(state) else { return false };
            own.keys.has_common(&theirs.keys)
                || own.ranges.iter().any(|range| theirs.keys.has_any_of(range))
                || theirs.ranges.iter().any(|range| own.keys.has_any_of(range))
        })
    }

    /// Waits until its commit has released it. The caller holds nothing that the commit may need: see the
    /// module.
    pub(crate) fn wait_until_released(&self) {
        let mut is_released = self.is_released.lock();
        while !*is_released {
            self.released.wait(&mut is_released);
        }
    }
}

/// The locks of all commits of a context.
#[derive(Default)]
pub(crate) struct PredicateLocks {
    /// Number of locks.
    count: AtomicUsize,
    locks: RwLock<Vec<Arc<PredicateLock>>>,
    /// Held while a lock is compared with the others, which lookups need not wait for.
    entering: Mutex<()>,
}

/// A lock until it is dropped.
pub(crate) struct PredicateGuard<'l> {
    locks: &'l PredicateLocks,
    lock: Arc<PredicateLock>,
}

impl PredicateLocks {
    /// The lock of one of some keys. The caller holds their stripes.
    #[inline]
    pub(crate) fn of_keys<'k, K: Iterator<Item = (StateId, &'k [u8])>>(
        &self,
        keys: impl Fn() -> K,
    ) -> Option<Arc<PredicateLock>> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.find(keys()) }
    }

    #[cold]
    fn find<'k>(&self, mut keys: impl Iterator<Item = (StateId, &'k [u8])>) -> Option<Arc<PredicateLock>> {
        let locks = self.locks.read();
        keys.find_map(|(state, key)| locks.iter().find(|lock| lock.has(state, key))).cloned()
    }

    /// Some lock of a group.
    pub(crate) fn of_group(&self, group: GroupId) -> Option<Arc<PredicateLock>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.locks.read().iter().find(|lock| lock.groups.contains(&group)).cloned()
    }

    /// Enters a lock, or returns one that it would have to wait for.
    pub(crate) fn enter(&self, lock: Arc<PredicateLock>) -> Result<PredicateGuard<'_>, Arc<PredicateLock>> {
        let _entering = self.entering.lock();
        if let Some(other) = self.locks.read().iter().find(|other| lock.conflicts_with(other)) {
            return Err(Arc::clone(other));
        }
        self.locks.write().push(Arc::clone(&lock));
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(PredicateGuard { locks: self, lock })
    }
}

impl Drop for PredicateGuard<'_> {
    fn drop(&mut self) {
        self.locks.locks.write().retain(|lock| !Arc::ptr_eq(lock, &self.lock));
        self.locks.count.fetch_sub(1, Ordering::AcqRel);
        *self.lock.is_released.lock() = true;
        self.lock.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_structures::KeyBytes;
    use std::ops::Bound;

    fn key(number: u64) -> KeyBytes {
        KeyBytes::from_slice(&number.to_be_bytes())
    }

    fn lock(keys: &[u64], ranges: &[(u64, u64)]) -> Arc<PredicateLock> {
        let range = |&(from, to): &(u64, u64)| KeyRange {
            lower: Bound::Included(key(from)),
            upper: Bound::Excluded(key(to)),
        };
        let locked = LockedKeys {
            keys: Keys::new(
                keys.iter().map(|number| key(*number)).collect::<Vec<_>>().iter().map(|key| &key[..]),
            ),
            ranges: ranges.iter().map(range).collect(),
        };
        Arc::new(PredicateLock {
            groups: SmallVec::from_slice(&[GroupId(1)]),
            states: BTreeMap::from([(StateId(7), locked)]),
            is_released: Mutex::new(false),
            released: Condvar::new(),
        })
    }

    #[test]
    fn locks_conflict_in_keys_and_in_keys_of_ranges() {
        let many: Vec<u64> = (0..100).map(|number| 2 * number).collect();
        for (one, other, conflicts_with) in [
            (lock(&[1, 3, 5], &[]), lock(&[2, 4, 5], &[]), true),
            (lock(&[1, 3, 5], &[]), lock(&[2, 4, 6], &[]), false),
            (lock(&many, &[]), lock(&[7, 198], &[]), true),
            (lock(&many, &[]), lock(&[7, 199], &[]), false),
            (lock(&[1], &[(10, 20)]), lock(&[15], &[]), true),
            (lock(&[1], &[(10, 20)]), lock(&[20], &[]), false),
            (lock(&[1], &[(10, 20)]), lock(&[9], &[(5, 30)]), false),
            (lock(&[], &[(10, 20)]), lock(&many, &[(300, 400)]), true),
        ] {
            assert_eq!(
                (one.conflicts_with(&other), other.conflicts_with(&one)),
                (conflicts_with, conflicts_with)
            );
        }
        let elsewhere = lock(&[1], &[(10, 20)]);
        assert!(!elsewhere.has(StateId(8), &key(1)) && elsewhere.has(StateId(7), &key(1)));
        assert!(elsewhere.has(StateId(7), &key(19)) && !elsewhere.has(StateId(7), &key(20)));
    }

    #[test]
    fn a_lock_is_found_until_it_is_dropped() {
        let locks = PredicateLocks::default();
        let found = |number| {
            let key = key(number);
            locks.of_keys(|| std::iter::once((StateId(7), &key[..]))).is_some()
        };
        let held = locks.enter(lock(&[1], &[(10, 20)])).ok().unwrap();
        assert!(found(1) && found(10) && !found(2) && locks.of_group(GroupId(1)).is_some());
        let waited_for = locks.enter(lock(&[12], &[])).err().unwrap();
        let beside = locks.enter(lock(&[2], &[(12, 14)])).ok().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| waited_for.wait_until_released());
            drop(held);
            waits.join().unwrap();
        });
        assert!(!found(1) && found(2) && locks.of_group(GroupId(2)).is_none());
        drop(beside);
        assert!(!found(2) && locks.of_group(GroupId(1)).is_none());
    }
}
