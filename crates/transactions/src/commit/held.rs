//! What a commit holds while it writes.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;

use crate::context::StateContext;
use crate::group::{Group, KeysHeld, STRIPED_KEYS_MAX};
use crate::predicate_locks::{PredicateHeld, PredicateLock};
use crate::reads::ReadSet;
use crate::write_set::WriteSet;

/// See the module. Until it is dropped nobody else writes what the commit writes, nor what it has read.
pub(super) enum Held<'g> {
    /// Its keys, and its groups shared.
    Keys { _keys: KeysHeld<'g> },
    /// Its keys and ranges, by name.
    Named { _lock: PredicateHeld<'g> },
    /// All of its groups.
    Groups { _groups: SmallVec<[RwLockWriteGuard<'g, ()>; 4]> },
}

impl Held<'_> {
    /// Waits for whoever holds any of it. `alone`: no writer of its groups can go on meanwhile anyway.
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
            return Held::Keys { _keys: waiting(context, || Group::hold_keys_of(groups, keys)) };
        }
        if alone {
            return Held::Groups { _groups: groups.iter().map(|group| group.hold()).collect() };
        }
        let lock = Arc::new(PredicateLock::new(groups, writes, reads));
        Held::Named { _lock: waiting(context, || Group::hold_predicate(groups, &lock)) }
    }
}

/// Tries until nobody has to be waited for.
fn waiting<H>(context: &StateContext, hold: impl Fn() -> Result<H, Arc<PredicateLock>>) -> H {
    loop {
        match hold() {
            Ok(held) => return held,
            Err(lock) => context.wait(|| lock.wait_until_released()),
        }
    }
}
