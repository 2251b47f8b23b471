//! A state group: the states that are written together atomically.
//!
//! Its persistent part (`LastCTS`, announced CTS) lies in the directory; here is what is volatile: the lock of its
//! writers, the commits in work, its invalid timestamps.
//!
//! # Writers
//! A small commit holds its groups *shared* and the stripes of its keys, so commits of different keys
//! run side by side, whatever their groups; so does whoever takes dead keys out ([`crate::reclaim`]). Large commits, those
//! that read a range and must be serializable, a scrub and a drop hold groups *exclusively*. Lock order: groups by number, then
//! stripes by number, then the commits in work of groups by number, then the dead keys; see [`crate::context`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use entresol_memory::mutants::intact;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::in_work::CommitsInWork;
use crate::invalid_ranges::InvalidRanges;
use crate::reclaim::Patience;
use crate::stripes::{Stripes, StripesHeld};
use crate::{GroupId, Protocol, StateId};

/// A commit of more keys takes its groups: beyond, locks cost more than waiting.
pub(crate) const STRIPED_KEYS_MAX: usize = 64;

/// What commits write lies apart from what readers look at, also the counts of references in front of it.
#[repr(align(128))]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) protocol: Protocol,
    /// How many states it has that survive a restart.
    durable_states: AtomicU64,
    /// Of all groups.
    stripes: Arc<Stripes>,
    /// See the module.
    writers: CachePadded<RwLock<()>>,
    pub(crate) in_work: CachePadded<CommitsInWork>,
    pub(crate) invalid: CachePadded<InvalidRanges>,
}

/// Groups held shared, with the keys of a write set.
pub(crate) struct KeysHeld<'g> {
    _stripes: StripesHeld<'g>,
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
            in_work: CachePadded::new(CommitsInWork::new()),
            invalid: CachePadded::new(InvalidRanges::new()),
        }
    }

    /// Whether its timestamps have to survive a crash.
    #[inline]
    pub(crate) fn is_durable(&self) -> bool {
        self.durable_states.load(Ordering::Acquire) > 0 && intact("durable-groups-taken-for-volatile")
    }

    /// It gets a state that survives a restart. What its timestamps were before may be lost in a crash: then they are lower, and
    /// all that lies below them is volatile.
    pub(crate) fn add_durable_state(&self) {
        self.durable_states.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them was dropped. The caller holds the group.
    pub(crate) fn remove_durable_state(&self) {
        let before = self.durable_states.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "{} has no durable state", self.id);
    }

    /// Waits for all writers; nobody else changes an object of the group until it is dropped.
    pub(crate) fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.writers.write()
    }

    /// Nobody holds the group exclusively until it is dropped. None: somebody does, and is not to be waited for.
    pub(crate) fn hold_shared(&self, patience: Patience) -> Option<RwLockReadGuard<'_, ()>> {
        match patience {
            Patience::Waits => Some(self.writers.read()),
            Patience::Never => self.writers.try_read(),
        }
    }

    /// Waits for whoever holds one of the groups, by number and each once, and for holders of the same keys; nobody else
    /// changes their objects until it is dropped. At most [`STRIPED_KEYS_MAX`] keys, all of these groups.
    pub(crate) fn hold_keys_of<'g, 'k>(
        groups: &[&'g Group],
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> KeysHeld<'g> {
        assert!(groups.windows(2).all(|pair| pair[0].id < pair[1].id), "groups are held in their order");
        let held = groups.iter().map(|group| group.writers.read()).collect();
        groups[0].keys_held(held, keys)
    }

    /// The same of keys of this group.
    pub(crate) fn hold_keys<'k>(&self, keys: impl Iterator<Item = (StateId, &'k [u8])>) -> KeysHeld<'_> {
        Group::hold_keys_of(&[self], keys)
    }

    /// The same; None if somebody holds the group.
    pub(crate) fn try_hold_keys<'k>(
        &self,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> Option<KeysHeld<'_>> {
        let held = self.writers.try_read()?;
        Some(self.keys_held(SmallVec::from_iter([held]), keys))
    }

    fn keys_held<'g, 'k>(
        &'g self,
        held: SmallVec<[RwLockReadGuard<'g, ()>; 2]>,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> KeysHeld<'g> {
        KeysHeld { _stripes: self.stripes.hold(keys), _groups: held }
    }
}
