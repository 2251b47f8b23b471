//! Vacuum: reclaiming all space on demand: dead keys, objects that grew for a long reader, histories, dropped
//! states.
//!
//! It goes in the slices of [`crate::reclamation::reclaim`], so others read and write meanwhile. A dropped
//! state is freed in steps once no snapshot needs it; the next open goes on with it.

use crate::context::StateContext;
use crate::context::placement::PoolRole;
use crate::context::state::State;
use crate::mvcc::chain::Chain;
use crate::{Result, StateId, Timestamp};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{KeyBytes, OrderedIndex};
use std::ops::Bound;
use std::sync::Arc;

/// Number of leaves of a dropped state that are freed in a step.
const DESTROY_LEAVES: usize = 32;

/// Statistics of a vacuum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumStats {
    /// Keys visited.
    pub keys_seen: u64,
    /// Dead keys removed from their index.
    pub keys_removed: u64,
    /// Dead keys that a snapshot may still need.
    pub keys_waiting: u64,
    /// Objects that had grown for old snapshots, made small again.
    pub objects_shrunk: u64,
    /// Dropped states whose space is free again.
    pub states_destroyed: u64,
    /// Dropped states that a snapshot may still need.
    pub states_waiting: u64,
    /// Versions that left a history because their retention was over.
    pub versions_pruned: u64,
    /// States that were visited to their end, in the order in which they were given.
    pub states_done: u64,
}

/// A dropped state that is not destroyed yet.
pub(crate) struct DroppedState {
    pub(crate) pool: Arc<Pool>,
    pub(crate) id: StateId,
    pub(crate) root: PoolOffset,
    /// Older snapshots may still read it.
    pub(crate) dropped_at: Timestamp,
    /// Unlinking of its chains, so that freeing what the index leads to frees all of it; None: they are
    /// unlinked.
    unlinking: Option<ChainUnlinking>,
}

/// Unlinking of the chains of a dropped state, leaf by leaf.
struct ChainUnlinking {
    /// Position at which it goes on.
    from: Bound<KeyBytes>,
    /// Index of the state, open from the first step to the last: some structures read all leaves when they
    /// are opened. Its inner nodes may be in DRAM, within the memory budget.
    index: Option<OrderedIndex>,
}

impl DroppedState {
    pub(crate) fn new(
        pool: &Arc<Pool>,
        id: StateId,
        root: PoolOffset,
        dropped_at: Timestamp,
        chained: bool,
    ) -> DroppedState {
        DroppedState {
            pool: Arc::clone(pool),
            id,
            root,
            dropped_at,
            unlinking: chained.then_some(ChainUnlinking { from: Bound::Unbounded, index: None }),
        }
    }
}

impl StateContext {
    /// Removes all dead keys, shrinks objects, prunes histories, destroys dropped states, as far as no
    /// snapshot needs them. Writers wait while some of their keys are worked on.
    pub fn vacuum(&self) -> Result<VacuumStats> {
        self.vacuum_states(&self.states(), |_| Ok(()))
    }

    /// The same for some states, and all that are dropped. `progress` is told what is done so far, at least
    /// once a state and every few keys; its error ends it.
    pub fn vacuum_states(
        &self,
        states: &[Arc<State>],
        mut progress: impl FnMut(&VacuumStats) -> Result<()>,
    ) -> Result<VacuumStats> {
        let mut stats = VacuumStats::default();
        for state in states {
            progress(&stats)?;
            self.vacuum_state(state, &mut stats, &mut progress)?;
            stats.versions_pruned += self.prune_all(state)?;
            stats.states_done += 1;
        }
        progress(&stats)?;
        while self.destroy_step(&mut stats)? {
            progress(&stats)?;
        }
        stats.states_waiting = self.dropping.lock().len() as u64;
        self.old_versions.prune(&self.active.snapshots());
        Ok(stats)
    }

    /// Unlinks the chains of one more leaf of a dropped state.
    fn unlink_leaf(&self, dropping: &mut DroppedState) -> Result<()> {
        let (pool, root) = (&dropping.pool, dropping.root);
        let Some(ChainUnlinking { from, index }) = &mut dropping.unlinking else { return Ok(()) };
        let index = match index {
            Some(index) => index,
            None => index.insert(OrderedIndex::open(pool, root)?),
        };
        let mut entries = Vec::new();
        let next = index.scan_batch(from.as_ref().map(|key| &key[..]), &mut entries)?;
        let offsets = entries.iter().map(|&(_, word)| PoolOffset::from_word(word));
        offsets.into_iter().try_for_each(|offset| self.truncate_chain(pool, Chain::at(pool, offset)))?;
        match next {
            Some(key) => *from = Bound::Included(key),
            None => dropping.unlinking = None,
        }
        Ok(())
    }

    /// Frees some of a dropped state that no snapshot needs; false if there is none.
    pub(crate) fn destroy_step(&self, stats: &mut VacuumStats) -> Result<bool> {
        let Some(mut dropping) = self.dropping.try_lock() else { return Ok(false) };
        let snapshots = self.active.snapshots();
        let Some(index) = dropping.iter().position(|state| snapshots.all_see(state.dropped_at)) else {
            return Ok(false);
        };
        let DroppedState { id, root, .. } = dropping[index];
        assert!(!root.is_null(), "{id} has an index until it is destroyed");
        debug_assert!(self.state(id).is_none(), "no transaction finds {id}, which is destroyed");
        let pool = Arc::clone(&dropping[index].pool);
        if dropping[index].unlinking.is_some() {
            // Another run had unlinked them all before it began to free the index.
            if OrderedIndex::is_in_destruction(&pool, root)? {
                dropping[index].unlinking = None;
            } else {
                self.unlink_leaf(&mut dropping[index])?;
            }
            return Ok(true);
        }
        if OrderedIndex::destroy_step(&pool, root, true, DESTROY_LEAVES)? {
            match self.pools.role_of(&pool) {
                PoolRole::Main => self.directory.remove_state(id, Some(root))?,
                PoolRole::Volatile => {
                    self.directory.remove_state(id, None)?;
                    let mut publication = pool.publication();
                    publication.free(root);
                    publication.publish()?;
                }
                PoolRole::Disk => {
                    // Its number is free only when it is gone there.
                    self.pools.disk_or_error()?.remove(id, root)?;
                    self.directory.remove_state(id, None)?;
                }
            }
            dropping.swap_remove(index);
            stats.states_destroyed += 1;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::TierChoice;
    use crate::context::placement::StateOptions;
    use crate::protocol::{ContextOptions, Protocol};
    use entresol_memory::{Durability, PoolOptions};
    use entresol_structures::{IndexStructure, KeyWidth};

    /// Keys of the dropped state: several leaves of any structure.
    const KEYS: u64 = 2_000;

    #[test]
    fn a_dropped_state_is_unlinked_through_one_opened_index() {
        for structure in IndexStructure::ALL {
            let protocol = Protocol::MvccOutOfPlace;
            let options = ContextOptions { protocol, ..ContextOptions::default() };
            let pool = Pool::volatile(&PoolOptions::default()).unwrap();
            let context = StateContext::open_or_create_with(pool, options).unwrap();
            let group = context.create_group().unwrap();
            let before = context.pool().stats().allocated_bytes;
            let state_options =
                StateOptions { structure, ..StateOptions::new(group, KeyWidth::Eight, TierChoice::Auto) };
            let state = context.create_state_with(state_options).unwrap();
            let reader = context.begin().unwrap();
            for round in 0..2_u64 {
                let tx = context.begin().unwrap();
                for key in 0..KEYS {
                    tx.write(&state, &key.to_be_bytes(), Some(&round.to_le_bytes())).unwrap();
                }
                tx.commit(Durability::None).unwrap();
            }
            context.drop_state(state.id()).unwrap();
            drop((reader, state));
            let (mut stats, mut leaves) = (VacuumStats::default(), 0);
            while context.destroy_step(&mut stats).unwrap() {
                let dropping = context.dropping.lock();
                let Some(unlinking) = dropping.first().and_then(|state| state.unlinking.as_ref()) else {
                    continue;
                };
                leaves += 1;
                assert!(unlinking.index.is_some(), "{structure}: it stays open after leaf {leaves}");
            }
            assert!(leaves > 2, "{structure}: {leaves} leaves");
            assert_eq!(stats.states_destroyed, 1, "{structure}");
            let left = context.pool().stats().allocated_bytes - before;
            assert!(left <= 8192, "{structure}: {left} bytes");
        }
    }
}
