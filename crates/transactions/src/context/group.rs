//! A state group: the states that are written together atomically.
//!
//! Its persistent part (`LastCTS`, announced CTS) lies in the directory; here is what is volatile: the lock
//! of its writers, the commits in flight, its invalid timestamps.
//!
//! # Writers
//! A small commit holds its groups *shared* and the stripes of its keys, so commits of different keys run
//! side by side, whatever their groups; so does the removal of dead keys ([`crate::reclamation::reclaim`]).
//! Large commits, and those that read a range and must be serializable, have a predicate lock
//! ([`crate::locking::predicate_locks`]): they hold their groups only while they enter it. A scrub, a drop,
//! and large commits that cannot be declared ([`crate::commit`]) hold groups *exclusively*, without any such
//! lock. Lock order: groups by number, then stripes by number, then the commits in flight of groups by
//! number, then the dead keys; see [`crate::context`].

use crate::locking::predicate_locks::{PredicateGuard, PredicateLock};
use crate::locking::stripes::{Stripes, StripesGuard};
use crate::points::DURABLE_GROUPS;
use crate::reclamation::reclaim::WaitPolicy;
use crate::visibility::in_flight::CommitsInFlight;
use crate::visibility::invalid_ranges::InvalidRanges;
use crate::{GroupId, Protocol, StateId};
use crossbeam_utils::CachePadded;
use entresol_memory::order::value;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of keys in stripes: a commit of more names its keys, since its stripes would keep too many
/// others waiting.
pub(crate) const STRIPED_KEYS_MAX: usize = 64;

/// Fields that commits write lie apart from those that readers load, also from the reference counts in front
/// of it.
#[repr(align(128))]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) protocol: Protocol,
    /// Number of its states that survive a restart.
    durable_states: AtomicU64,
    /// Of all groups.
    stripes: Arc<Stripes>,
    /// See the module.
    writers: CachePadded<RwLock<()>>,
    pub(crate) in_flight: CachePadded<CommitsInFlight>,
    pub(crate) invalid: CachePadded<InvalidRanges>,
}

/// Groups held shared, with the keys of a write set.
pub(crate) struct KeysGuard<'g> {
    _stripes: StripesGuard<'g>,
    _groups: SmallVec<[RwLockReadGuard<'g, ()>; 2]>,
}

impl Group {
    pub(crate) fn new(id: GroupId, protocol: Protocol, stripes: &Arc<Stripes>) -> Group {
        Group {
            id,
            protocol,
            durable_states: AtomicU64::new(0),
            stripes: Arc::clone(stripes),
            writers: CachePadded::default(),
            in_flight: CachePadded::new(CommitsInFlight::new()),
            invalid: CachePadded::new(InvalidRanges::new()),
        }
    }

    /// Tells whether its timestamps have to survive a crash.
    #[inline]
    pub(crate) fn is_durable(&self) -> bool {
        value(self.durable_states.load(Ordering::Acquire) > 0, false, DURABLE_GROUPS)
    }

    /// Adds a state that survives a restart. The earlier timestamps of the group may be lost in a crash: then
    /// they are lower, and all that lies below them is volatile.
    pub(crate) fn add_durable_state(&self) {
        self.durable_states.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them was dropped. The caller holds the group.
    pub(crate) fn remove_durable_state(&self) {
        let before = self.durable_states.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "{} has no durable state", self.id);
    }

    /// Waits for all writers; no other thread changes an object of the group until it is dropped.
    pub(crate) fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        let held = self.writers.write();
        // No new ones come.
        while let Some(lock) = self.stripes.predicates.of_group(self.id) {
            lock.wait_until_released();
        }
        held
    }

    /// Keeps others from holding the group exclusively until it is dropped. None: another thread does, and
    /// the caller does not wait.
    pub(crate) fn hold_shared(&self, patience: WaitPolicy) -> Option<RwLockReadGuard<'_, ()>> {
        match patience {
            WaitPolicy::Waits => Some(self.writers.read()),
            WaitPolicy::Never => self.writers.try_read(),
        }
    }

    /// Waits for exclusive holders of one of the groups, by number and each once, and for holders of the same
    /// keys; no other thread changes their objects until it is dropped, unless it has a [predicate
    /// lock](Group::predicate_lock_of). At most [`STRIPED_KEYS_MAX`] keys, all of these groups.
    pub(crate) fn hold_keys_of<'g, 'k>(
        groups: &[&'g Group],
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> KeysGuard<'g> {
        assert!(groups.windows(2).all(|pair| pair[0].id < pair[1].id), "groups are held in their order");
        let held = groups.iter().map(|group| group.writers.read()).collect();
        groups[0].keys_guard(held, keys)
    }

    /// The predicate lock of one of some keys, of whatever group, whose stripes the caller holds: it has to
    /// release all that it holds, and wait. None: a commit that enters such a lock from now on waits for the
    /// caller.
    #[inline]
    pub(crate) fn predicate_lock_of<'k, K: Iterator<Item = (StateId, &'k [u8])>>(
        &self,
        keys: impl Fn() -> K,
    ) -> Option<Arc<PredicateLock>> {
        self.stripes.predicates.of_keys(keys)
    }

    /// The same for keys of this group; no commit has a predicate lock of one of them.
    pub(crate) fn hold_keys<'k, K: Iterator<Item = (StateId, &'k [u8])>>(
        &self,
        keys: impl Fn() -> K,
        patience: WaitPolicy,
    ) -> Option<KeysGuard<'_>> {
        loop {
            let held = self.keys_guard(SmallVec::from_iter([self.hold_shared(patience)?]), keys());
            let Some(lock) = self.predicate_lock_of(&keys) else { return Some(held) };
            drop(held);
            match patience {
                WaitPolicy::Waits => lock.wait_until_released(),
                WaitPolicy::Never => return None,
            }
        }
    }

    fn keys_guard<'g, 'k>(
        &'g self,
        held: SmallVec<[RwLockReadGuard<'g, ()>; 2]>,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> KeysGuard<'g> {
        KeysGuard { _stripes: self.stripes.hold(keys), _groups: held }
    }

    /// Enters a predicate lock of these groups, by number and each once; no other thread changes what it
    /// names until it is dropped. If another commit has one that conflicts with it, the caller has to wait
    /// for that.
    pub(crate) fn hold_predicate<'g>(
        groups: &[&'g Group],
        lock: &Arc<PredicateLock>,
    ) -> Result<PredicateGuard<'g>, Arc<PredicateLock>> {
        let stripes = &groups[0].stripes;
        if lock.has_ranges() {
            // Holders of keys may hold some of the ranges.
            let _held: SmallVec<[_; 4]> = groups.iter().map(|group| group.writers.write()).collect();
            return stripes.predicates.enter(Arc::clone(lock));
        }
        let held: SmallVec<[_; 4]> = groups.iter().map(|group| group.writers.read()).collect();
        let entered = stripes.predicates.enter(Arc::clone(lock))?;
        drop(held);
        stripes.pass(lock.keys());
        Ok(entered)
    }
}
