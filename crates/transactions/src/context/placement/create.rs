//! Creating states in their pools.
//!
//! A state is one publication where the main pool has it. Beside the main pool the index comes first, and
//! durably where anything is durable; then the directory names the state.

use super::{PoolRole, StateOptions, TierChoice};
use crate::context::StateContext;
use crate::context::directory::{HOT_UNIT_BYTES, StateEntry};
use crate::context::state::State;
use crate::mvcc::object::VERSION_SLOTS_MAX;
use crate::points::DISK_STATE_BEFORE_ITS_NAME;
use crate::protocol::VERSION_SLOTS_MIN;
use crate::{Error, GroupId, Protocol, Result};
use entresol_memory::order::step;
use entresol_memory::{Pool, PoolOffset, Publication};
use entresol_structures::{HotMemory, KeyWidth, OrderedIndex};
use std::sync::Arc;

impl StateContext {
    /// Creates an empty state in a group. It survives a crash with the next commit that does.
    pub fn create_state(&self, group: GroupId, width: KeyWidth) -> Result<Arc<State>> {
        self.create_state_with(StateOptions::new(group, width, TierChoice::Auto))
    }

    /// The same in a tier, with the structure of its index, which the index's header stores. An error if the
    /// structure has no keys of the width. [`Error::NoSuchTier`] if the database has no such tier. The content of a state in
    /// [`Tier::Dram`] is gone when the database is opened again, and the state is there, empty; until then
    /// commits over it and others are atomic as all are.
    pub fn create_state_with(&self, options: StateOptions) -> Result<Arc<State>> {
        let StateOptions { group, width, tier, structure, node_bytes, version_slots, hot_bytes } = options;
        let node_bytes = structure.chosen_node_bytes(node_bytes)?;
        let _ddl = self.ddl.lock();
        let group = self.group(group).ok_or(Error::NoSuchGroup(group))?;
        check_slots(group.protocol, version_slots)?;
        let pool = self.pools.choose(tier)?;
        let id = self.directory.free_state()?;
        let entry = StateEntry {
            id,
            group: group.id,
            width,
            pool,
            version_slots,
            structure,
            node_bytes,
            hot_bytes: hot_bytes.map_or(0, rounded_hot_bytes),
            root: PoolOffset::NULL,
            dropping: false,
            history: false,
        };
        let hot = hot_memory(self.pools.of(pool)?, &entry)?;
        let entry = self.create_index(entry, |entry, with| self.directory.add_state(entry, with))?;
        if pool != PoolRole::Volatile {
            // Before any commit into it: a commit that moves `LastCTS` over that one finds it set.
            group.add_durable_state();
        }
        let state =
            State::open(self.pools.of(pool)?, (&entry, hot), group, &self.old_versions, &self.reclaim)?;
        state.live.begin();
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
        let design = (entry.structure, entry.node_bytes);
        let root = OrderedIndex::create_sized(pool, design, entry.width, &mut publication)?;
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

/// Bytes for hot entries in the unit in which the directory stores them.
fn rounded_hot_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(HOT_UNIT_BYTES).min(u64::from(u32::MAX)) * HOT_UNIT_BYTES
}

/// Reserves the memory for the hot entries that a state asks for.
pub(crate) fn hot_memory(pool: &Pool, entry: &StateEntry) -> Result<Option<HotMemory>> {
    let wanted = (entry.hot_bytes > 0).then(|| HotMemory::reserve(pool, entry.width, entry.hot_bytes));
    Ok(wanted.transpose()?)
}

/// Validates the number of version slots that a state asks for.
fn check_slots(protocol: Protocol, version_slots: Option<u8>) -> Result<()> {
    let Some(slots) = version_slots else { return Ok(()) };
    let possible = VERSION_SLOTS_MIN..=VERSION_SLOTS_MAX;
    if !possible.contains(&usize::from(slots)) {
        let (min, max) = (possible.start(), possible.end());
        return Err(Error::Invalid(format!("{slots} versions; possible are {min} to {max}")));
    }
    match protocol {
        Protocol::MvccInPlace => Ok(()),
        Protocol::MvccOutOfPlace => {
            Err(Error::Invalid(format!("{slots} versions: {} has a chain of any length", protocol.name())))
        }
        Protocol::S2pl | Protocol::Bocc => {
            let name = protocol.name();
            Err(Error::Invalid(format!(
                "{slots} versions: with {name} transactions read the newest one only"
            )))
        }
    }
}

/// Frees an empty index that nothing leads to.
fn free_index(pool: &Arc<Pool>, root: PoolOffset) -> Result<()> {
    while !OrderedIndex::destroy_step(pool, root, true, 1)? {}
    let mut publication = pool.publication();
    publication.free(root);
    Ok(publication.publish()?)
}
