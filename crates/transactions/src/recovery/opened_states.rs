//! The states that a context finds when it is opened.
//!
//! States of the main pool and on disk are as the last run left them; volatile ones get an empty index.
//! Interrupted creations and drops are finished: states on disk that the directory does not name are removed,
//! and entries whose state is gone become free.

use crate::context::directory::{Directory, StateEntry};
use crate::context::group::Group;
use crate::context::placement::{DiskPool, PoolRole, Pools, hot_memory};
use crate::context::state::State;
use crate::history::History;
use crate::mvcc::old_versions::OldVersions;
use crate::reclamation::dead_keys::ReclaimQueue;
use crate::reclamation::vacuum::DroppedState;
use crate::{Error, GroupId, Result, StateId, Timestamp};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{HotMemory, OrderedIndex};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// States found by opening.
pub(crate) struct OpenedStates {
    pub(crate) states: BTreeMap<StateId, Arc<State>>,
    pub(crate) with_history: Vec<Arc<State>>,
    /// Above every timestamp that belongs to a history.
    pub(crate) next: Timestamp,
    pub(crate) damaged: BTreeMap<StateId, String>,
    pub(crate) dropping: Vec<DroppedState>,
}

/// Opens all states that the directory names, each in its pool. One that is damaged keeps no other from being
/// opened.
pub(crate) fn open_states(
    pools: &Pools,
    directory: &Directory,
    groups: &BTreeMap<GroupId, Arc<Group>>,
    old_versions: &Arc<OldVersions>,
    reclaim: &Arc<ReclaimQueue>,
) -> Result<OpenedStates> {
    let (mut states, mut damaged, mut dropping) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut indexes = BTreeMap::new();
    let entries = directory.states()?;
    if let Some(disk) = pools.disk() {
        remove_unnamed(disk, &entries)?;
    }
    for entry in entries {
        let group = groups.get(&entry.group).ok_or_else(|| {
            Error::Corrupt(format!("{} belongs to {}, which does not exist", entry.id, entry.group))
        })?;
        let pool = pools.of(entry.pool)?;
        let root = match entry.pool {
            PoolRole::Main => Some(entry.root),
            PoolRole::Volatile if entry.dropping => None,
            PoolRole::Volatile => Some(empty_index(pool, &entry)?),
            PoolRole::Disk => pools.disk_or_error()?.root(entry.id)?,
        };
        let entry = match root {
            Some(root) => StateEntry { root, ..entry },
            None if entry.dropping => {
                directory.remove_state(entry.id, None)?;
                continue;
            }
            None => return Err(Error::Corrupt(format!("{} is not on disk", entry.id))),
        };
        if entry.dropping {
            let chained = group.protocol.is_chained() && !entry.history;
            dropping.push(DroppedState::new(pool, entry.id, entry.root, Timestamp::START, chained));
            continue;
        }
        if entry.pool != PoolRole::Volatile && !entry.history {
            group.add_durable_state();
        }
        if entry.history {
            indexes.insert(entry.id, entry);
            continue;
        }
        match State::open(pool, (&entry, hot_entries(pool, &entry)), Arc::clone(group), old_versions, reclaim)
        {
            Ok(state) => {
                states.insert(entry.id, state);
            }
            // The others remain usable.
            Err(error) if error.is_corrupt() => {
                let file = pool.file().map_or("the pool".into(), |file| file.display().to_string());
                let message = format!("{error} (in {file})");
                tracing::error!(state = entry.id.0, error = %message, "a state is damaged");
                damaged.insert(entry.id, message);
            }
            Err(error) => return Err(error),
        }
    }
    let (mut with_history, mut next) = (Vec::new(), Timestamp::START);
    for history in directory.histories()? {
        next = next.max(history.horizon.next());
        let Some(state) = states.get(&history.of).cloned() else { continue };
        let opened = match indexes.get(&history.id) {
            Some(entry) => History::open(pools.of(entry.pool)?, entry, &history, state.width()),
            None => {
                Err(Error::Corrupt(format!("the history {} of {} does not exist", history.id, history.of)))
            }
        };
        match opened {
            Ok(history) => {
                state.set_history(Some(history));
                with_history.push(state);
            }
            // A state that cannot keep its promised history is not written.
            Err(error) if error.is_corrupt() => {
                tracing::error!(state = history.of.0, %error, "a version history is damaged");
                damaged.insert(history.of, format!("its history: {error}"));
                states.remove(&history.of);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(OpenedStates { states, damaged, dropping, with_history, next })
}

/// Memory for the hot entries of a state; without room it is opened without them.
fn hot_entries(pool: &Pool, entry: &StateEntry) -> Option<HotMemory> {
    hot_memory(pool, entry).unwrap_or_else(|error| {
        tracing::warn!(state = entry.id.0, %error, "a state has no hot entries in DRAM until the next open");
        None
    })
}

/// An index in a volatile pool.
fn empty_index(pool: &Arc<Pool>, entry: &StateEntry) -> Result<PoolOffset> {
    let mut publication = pool.publication();
    let design = (entry.structure, entry.node_bytes);
    let root = OrderedIndex::create_sized(pool, design, entry.width, &mut publication)?;
    publication.publish()?;
    Ok(root)
}

/// Removes from the disk states that the directory does not name: creations that a crash interrupted.
fn remove_unnamed(disk: &DiskPool, entries: &[StateEntry]) -> Result<()> {
    let named: HashSet<StateId> =
        entries.iter().filter(|entry| entry.pool == PoolRole::Disk).map(|entry| entry.id).collect();
    for (id, root) in disk.states()?.into_iter().filter(|(id, _)| !named.contains(id)) {
        tracing::info!(state = id.0, "removing a state on disk that the directory does not name");
        disk.take_out(id, root)?;
    }
    Ok(())
}
