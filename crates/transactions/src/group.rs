//! A state group: the states that are written together atomically.
//!
//! Its persistent part (`LastCTS`, announced CTS) lies in the directory; here is what is volatile: the locks of its
//! writers, the commits in work, its invalid timestamps.
//!
//! # Writers
//! A small commit into one group holds the group *shared* and the stripes of its keys, so commits of different keys
//! run side by side; so does whoever takes dead keys out ([`crate::reclaim`]). Large commits, commits into several groups, a scrub
//! and a drop hold the group *exclusively*. Lock order: groups by number, then stripes by number, then the commits in work,
//! then the dead keys; see [`crate::context`].

use std::sync::OnceLock;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::in_work::CommitsInWork;
use crate::invalid_ranges::InvalidRanges;
use crate::reclaim::Patience;
use crate::{GroupId, Protocol, StateId};

/// Keys share locks if their hashes agree in so many bits. Two commits of ten keys share one in 160 times: then one sleeps, for
/// ten times as long as it would have waited.
const STRIPE_BITS: u32 = 14;

/// A commit of more keys takes the whole group: beyond, locks cost more than waiting.
pub(crate) const STRIPED_KEYS_MAX: usize = 64;

/// The stripes of so many keys are held without an allocation.
const USUAL_KEYS: usize = 16;

/// A lock of some keys; eight to a cache line.
#[repr(align(8))]
struct Stripe(Mutex<()>);

/// What commits write lies apart from what readers look at, also the counts of references in front of it.
#[repr(align(128))]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) protocol: Protocol,
    /// See the module.
    writers: CachePadded<RwLock<()>>,
    /// Made when the first small commit comes: 128 KiB.
    stripes: OnceLock<Box<[Stripe]>>,
    pub(crate) in_work: CachePadded<CommitsInWork>,
    pub(crate) invalid: CachePadded<InvalidRanges>,
}

/// A group held shared, with the keys of a write set.
pub(crate) struct KeysHeld<'g> {
    _stripes: SmallVec<[MutexGuard<'g, ()>; USUAL_KEYS]>,
    _group: RwLockReadGuard<'g, ()>,
}

impl Group {
    pub(crate) fn new(id: GroupId, protocol: Protocol) -> Group {
        Group {
            id,
            protocol,
            writers: CachePadded::default(),
            stripes: OnceLock::new(),
            in_work: CachePadded::new(CommitsInWork::new()),
            invalid: CachePadded::new(InvalidRanges::new()),
        }
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

    /// Waits for whoever holds the group and for holders of the same keys; nobody else changes their objects until
    /// it is dropped. At most [`STRIPED_KEYS_MAX`] keys, all of this group.
    pub(crate) fn hold_keys<'k>(&self, keys: impl Iterator<Item = (StateId, &'k [u8])>) -> KeysHeld<'_> {
        self.hold_keys_in(self.writers.read(), keys)
    }

    /// The same; None if somebody holds the group.
    pub(crate) fn try_hold_keys<'k>(
        &self,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> Option<KeysHeld<'_>> {
        self.writers.try_read().map(|group| self.hold_keys_in(group, keys))
    }

    fn hold_keys_in<'g, 'k>(
        &'g self,
        group: RwLockReadGuard<'g, ()>,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> KeysHeld<'g> {
        let stripes =
            self.stripes.get_or_init(|| (0..1 << STRIPE_BITS).map(|_| Stripe(Mutex::new(()))).collect());
        let mut numbers: SmallVec<[usize; USUAL_KEYS]> =
            keys.map(|(state, key)| stripe(state, key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        KeysHeld {
            _stripes: numbers.into_iter().map(|number| stripes[number].0.lock()).collect(),
            _group: group,
        }
    }
}

/// The stripe of a key: multiplicative hashing of its words.
fn stripe(state: StateId, key: &[u8]) -> usize {
    let mut hash = u64::from(state.0);
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
    }
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - STRIPE_BITS)) as usize
}
