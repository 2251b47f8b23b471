//! Creating states in their pools.
//!
//! A state is one publication where the main pool has it. Beside the main pool the index comes first, and
//! durably where anything is durable; then the directory names the state.

use super::{PoolRole, StateOptions, TierChoice};
use crate::context::StateContext;
use crate::context::directory::StateEntry;
use crate::context::state::State;
use crate::points::DISK_STATE_BEFORE_ITS_NAME;
use crate::{Error, GroupId, Result};
use entresol_memory::order::step;
use entresol_memory::{Pool, Publication};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::sync::Arc;

impl StateContext {
    /// Creates an empty state in a group. It survives a crash with the next commit that does.
    pub fn create_state(&self, group: GroupId, width: KeyWidth) -> Result<Arc<State>> {
        self.create_state_with(StateOptions { group, width, tier: TierChoice::Auto })
    }

    /// The same in a tier. [`Error::NoSuchTier`] if the database has no such tier. The content of a state in
    /// [`Tier::Dram`] is gone when the database is opened again, and the state is there, empty; until then
    /// commits over it and others are atomic as all are.
    pub fn create_state_with(&self, options: StateOptions) -> Result<Arc<State>> {
        let StateOptions { group, width, tier } = options;
        let _ddl = self.ddl.lock();
        let group = self.group(group).ok_or(Error::NoSuchGroup(group))?;
        let pool = self.pools.choose(tier)?;
        let id = self.directory.free_state()?;
        let entry = StateEntry { id, group: group.id, width, pool, root: 0, dropping: false, history: false };
        let entry = self.create_index(entry, |entry, with| self.directory.add_state(entry, with))?;
        if pool != PoolRole::Volatile {
            // Before any commit into it: a commit that moves `LastCTS` over that one finds it set.
            group.add_durable_state();
        }
        let state = State::open(self.pools.of(pool)?, &entry, group, &self.old_versions, &self.reclaim)?;
        self.adopt(&state);
        Ok(state)
    }

    /// Makes the empty index of an entry. `name` adds it to the publication that makes it known.
    pub(crate) fn create_index(
        &self,
        entry: StateEntry,
        name: impl FnOnce(&StateEntry, &mut Publication<'_>),
    ) -> Result<StateEntry> {
        let pool = self.pools.of(entry.pool)?;
        let mut publication = pool.publication();
        let root = OrderedIndex::create(pool, entry.width, &mut publication)?;
        let entry = StateEntry { root, ..entry };
        if entry.pool == PoolRole::Main {
            name(&entry, &mut publication);
            publication.publish()?;
            return Ok(entry);
        }
        match entry.pool {
            PoolRole::Disk => {
                self.pools.disk_or_error()?.add(entry.id, root, publication)?;
                step(DISK_STATE_BEFORE_ITS_NAME, || pool.sync())?;
            }
            _ => publication.publish()?,
        }
        let mut publication = self.pool.publication();
        name(&entry, &mut publication);
        if let Err(error) = publication.publish() {
            match entry.pool {
                PoolRole::Disk => self.pools.disk_or_error()?.take_out(entry.id, root)?,
                _ => free_index(pool, root)?,
            }
            return Err(error.into());
        }
        Ok(entry)
    }
}

/// Frees an empty index that nothing leads to.
fn free_index(pool: &Arc<Pool>, root: u64) -> Result<()> {
    while !OrderedIndex::destroy_step(pool, root, true, 1)? {}
    let mut publication = pool.publication();
    publication.free(root);
    Ok(publication.publish()?)
}
