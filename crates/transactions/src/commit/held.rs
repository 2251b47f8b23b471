//! Locks that a commit holds while it writes.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;

use crate::context::StateContext;
use crate::group::{Group, KeysHeld, STRIPED_KEYS_MAX};
use crate::predicate_locks::{PredicateHeld, PredicateLock};
use crate::reads::ReadSet;
use crate::write_set::WriteSet;

/// Locks of a commit. Until they are dropped no other commit writes its keys, nor what it has read.
pub(super) enum Held<'g> {
    /// Its keys, and its groups shared.
    Keys { _keys: KeysHeld<'g> },
    /// Its keys and ranges, by name.
    Named { _lock: PredicateHeld<'g> },
    /// All of its groups.
    Groups { _groups: SmallVec<[RwLockWriteGuard<'g, ()>; 4]> },
}

impl Held<'_> {
    /// Waits for the holders of any of them. `alone`: no writer of its groups can go on meanwhile anyway.
    #[inline]
    pub(super) fn acquire<'g>(
        context: &StateContext,
        groups: &[&'g Group],
        writes: &WriteSet,
        reads: Option<&ReadSet>,
        alone: bool,
    ) -> Held<'g> {
        let keys_read = reads.map_or_else(|| Some(Vec::new()), ReadSet::keys);
        if let Some(read) = keys_read.filter(|read| writes.keys() + read.len() <= STRIPED_KEYS_MAX) {
            let written = || writes.iter().map(|(state, key)| (state.id, &key[..]));
            let keys = || written().chain(read.iter().copied());
            loop {
                let held = Group::hold_keys_of(groups, keys());
                let Some(lock) = groups[0].predicate_lock_of(keys) else {
                    return Held::Keys { _keys: held };
                };
                drop(held);
                context.wait(|| lock.wait_until_released());
            }
        }
        if alone {
            return Held::Groups { _groups: groups.iter().map(|group| group.hold()).collect() };
        }
        let lock = Arc::new(PredicateLock::new(groups, writes, reads));
        loop {
            match Group::hold_predicate(groups, &lock) {
                Ok(held) => return Held::Named { _lock: held },
                Err(other) => context.wait(|| other.wait_until_released()),
            }
        }
    }
}
