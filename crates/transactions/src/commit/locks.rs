//! Locks that a commit holds while it writes.

use crate::context::StateContext;
use crate::context::group::{Group, KeysGuard, STRIPED_KEYS_MAX};
use crate::locking::predicate_locks::{PredicateGuard, PredicateLock};
use crate::transaction::reads::ReadSet;
use crate::transaction::write_set::WriteSet;
use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// Locks of a commit. Until they are dropped no other commit writes its keys, nor what it has read.
pub(super) enum CommitLocks<'g> {
    /// Its keys, and its groups shared.
    Keys { _keys: KeysGuard<'g> },
    /// Its keys and ranges, by name.
    Named { _lock: PredicateGuard<'g> },
    /// All of its groups.
    Groups { _groups: SmallVec<[RwLockWriteGuard<'g, ()>; 4]> },
}

impl CommitLocks<'_> {
    /// Waits for the holders of any of them. `alone`: no writer of its groups can go on meanwhile anyway.
    #[inline]
    pub(super) fn acquire<'g>(
        context: &StateContext,
        groups: &[&'g Group],
        writes: &WriteSet,
        reads: Option<&ReadSet>,
        alone: bool,
    ) -> CommitLocks<'g> {
        let keys_read = reads.map_or_else(|| Some(Vec::new()), ReadSet::keys);
        if let Some(read) = keys_read.filter(|read| writes.keys() + read.len() <= STRIPED_KEYS_MAX) {
            let written = || writes.iter().map(|(state, key)| (state.id, &key[..]));
            let keys = || written().chain(read.iter().copied());
            loop {
                let locks = Group::hold_keys_of(groups, keys());
                let Some(lock) = groups[0].predicate_lock_of(keys) else {
                    return CommitLocks::Keys { _keys: locks };
                };
                drop(locks);
                context.wait(|| lock.wait_until_released());
            }
        }
        if alone {
            return CommitLocks::Groups { _groups: groups.iter().map(|group| group.hold()).collect() };
        }
        let lock = Arc::new(PredicateLock::new(groups, writes, reads));
        loop {
            match Group::hold_predicate(groups, &lock) {
                Ok(locks) => return CommitLocks::Named { _lock: locks },
                Err(other) => context.wait(|| other.wait_until_released()),
            }
        }
    }
}
