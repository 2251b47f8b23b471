//! Giving space back: dead keys, objects that grew for a long reader, dropped states.
//!
//! A deleted key keeps its object until no snapshot can see a version of it; then one publication takes the key
//! out of the index and frees the object. All of it happens with the group held exclusively, in small steps: after
//! commits ([`TIDY_KEYS_MIN`] keys or twice what was committed) and, over everything, in
//! [`StateContext::vacuum`].
//!
//! A crash leaves each key either with its object or gone; nothing is lost that anybody could see, nothing leaks.

use std::ops::Bound;
use std::sync::Arc;

use entresol_memory::mutants::active;
use entresol_structures::{KeyBytes, OrderedIndex};

use crate::active::Snapshots;
use crate::chain::Chain;
use crate::check::first_leaf;
use crate::context::StateContext;
use crate::group::Group;
use crate::object::VersionedObject;
use crate::state::State;
use crate::{Result, StateId, Timestamp};

/// How many dead keys a commit looks at least at, and at most.
const TIDY_KEYS_MIN: usize = 16;
const TIDY_KEYS_MAX: usize = 1024;
/// How many objects of a dropped state are freed after a commit.
const DESTROY_OBJECTS: usize = 256;
/// From how many slots on an object with one version is made small again.
const SHRINK_SLOTS_MIN: usize = 8;

/// What a vacuum did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumStats {
    /// Keys looked at.
    pub keys_seen: u64,
    /// Dead keys removed from their index.
    pub keys_removed: u64,
    /// Objects that had grown for old snapshots, made small again.
    pub objects_shrunk: u64,
    /// Dropped states whose space is free again.
    pub states_destroyed: u64,
    /// Dropped states that a snapshot may still need.
    pub states_waiting: u64,
    /// Versions that left a history because their time was over.
    pub versions_pruned: u64,
}

/// A dropped state that is not destroyed yet.
pub(crate) struct Dropping {
    pub(crate) id: StateId,
    pub(crate) root: u64,
    /// Older snapshots may still read it.
    pub(crate) dropped_at: Timestamp,
    /// Where its chains are cut next, so that freeing what the index leads to frees all of it; None: they are.
    cut_from: Option<Bound<KeyBytes>>,
}

impl Dropping {
    pub(crate) fn new(id: StateId, root: u64, dropped_at: Timestamp, chained: bool) -> Dropping {
        Dropping { id, root, dropped_at, cut_from: chained.then_some(Bound::Unbounded) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    Removed,
    /// There is a current version, or no such key.
    Alive,
    /// Deleted, but somebody may see a version.
    NotYet,
}

impl StateContext {
    /// Removes all dead keys, shrinks objects, destroys dropped states, as far as no snapshot needs them.
    /// Writers of a group wait while one leaf of one of its states is worked on.
    pub fn vacuum(&self) -> Result<VacuumStats> {
        let mut stats = VacuumStats::default();
        for state in self.states() {
            self.vacuum_state(&state, &mut stats)?;
            stats.versions_pruned += self.prune_all(&state)?;
        }
        while self.destroy_step(DESTROY_OBJECTS, &mut stats)? {}
        stats.states_waiting = self.dropping.lock().len() as u64;
        self.old_versions.prune(&self.active.snapshots());
        Ok(stats)
    }

    fn vacuum_state(&self, state: &State, stats: &mut VacuumStats) -> Result<()> {
        let mut entries: Vec<(KeyBytes, u64)> = Vec::new();
        let mut from: Option<KeyBytes> = None;
        loop {
            let _lock = state.group.hold();
            self.check_accepts_commits()?;
            if state.is_dropped() {
                return Ok(());
            }
            let snapshots = self.active.snapshots();
            let lower = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
            entries.clear();
            let next = state.index.scan_batch(lower, &mut entries)?;
            for (key, offset) in &entries {
                stats.keys_seen += 1;
                if self.remove_if_dead(state, key, &snapshots)? == Removal::Removed {
                    stats.keys_removed += 1;
                } else if self.shrink(state, key, *offset, &snapshots)? {
                    stats.objects_shrunk += 1;
                }
            }
            match next {
                Some(key) => from = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// The caller holds the state's group exclusively.
    fn remove_if_dead(&self, state: &State, key: &[u8], snapshots: &Snapshots) -> Result<Removal> {
        let Some(offset) = state.index.get(key)? else { return Ok(Removal::Alive) };
        if state.is_chained() {
            return self.remove_chain_if_dead(state, key, offset, snapshots);
        }
        let object = VersionedObject::open(self.pool(), offset);
        let census = object.census(&state.group.invalid, snapshots);
        if census.current.is_some() {
            return Ok(Removal::Alive);
        }
        // Not only no snapshot that needs a version, but none older than the deletion: it would have to find the
        // conflict when it writes the key.
        if census.needed != 0 || census.newest > snapshots.oldest() {
            return Ok(Removal::NotYet);
        }
        self.note_gone(state);
        let mut publication = self.pool().publication();
        publication.free(offset);
        if active("dead-object-freed-before-its-key") {
            std::mem::replace(&mut publication, self.pool().publication()).publish()?;
        }
        state.index.remove(key, publication)?;
        Ok(Removal::Removed)
    }

    /// A key is about to be gone from the index: for its past there is the history alone. Whoever looks there finds this
    /// said.
    fn note_gone(&self, state: &State) {
        if let Some(history) = state.history() {
            // Not what the object says: versions that ended later may have given their slots to commits that failed.
            history.note_gone(self.active.drawn());
        }
    }

    /// The same of a key with a chain; what nobody needs of a living one is freed as well.
    fn remove_chain_if_dead(
        &self,
        state: &State,
        key: &[u8],
        offset: u64,
        snapshots: &Snapshots,
    ) -> Result<Removal> {
        let chain = Chain::at(self.pool(), offset);
        let census = chain.census(&state.group.invalid, snapshots);
        let census = census.map_err(|_| state.damaged(key, "a damaged chain of versions"))?;
        if census.lives || census.needed != 0 || census.newest > snapshots.oldest() {
            if !census.pruned.is_empty() {
                let mut publication = self.pool().publication();
                census.pruned.add_to(&mut publication);
                publication.publish()?;
            }
            return Ok(if census.lives { Removal::Alive } else { Removal::NotYet });
        }
        self.cut(chain)?;
        self.note_gone(state);
        let mut publication = self.pool().publication();
        publication.free(offset);
        state.index.remove(key, publication)?;
        Ok(Removal::Removed)
    }

    /// Frees all versions behind the first.
    fn cut(&self, chain: Chain<'_>) -> Result<()> {
        loop {
            let mut publication = self.pool().publication();
            let last = chain.cut_behind_first(&mut publication);
            publication.publish()?;
            if last {
                return Ok(());
            }
        }
    }

    /// Cuts the chains of one leaf of a dropped state.
    fn cut_leaf(&self, root: u64, from: &Bound<KeyBytes>) -> Result<Option<Bound<KeyBytes>>> {
        let index = OrderedIndex::open(self.pool(), root)?;
        let mut entries = Vec::new();
        let next = index.scan_batch(from.as_ref().map(|key| &key[..]), &mut entries)?;
        entries.iter().try_for_each(|&(_, offset)| self.cut(Chain::at(self.pool(), offset)))?;
        Ok(next.map(Bound::Included))
    }

    /// The caller holds the state's group exclusively.
    fn shrink(&self, state: &State, key: &[u8], offset: u64, snapshots: &Snapshots) -> Result<bool> {
        let slots = self.options().version_slots;
        if state.is_chained() {
            return Ok(false);
        }
        let old = VersionedObject::open(self.pool(), offset);
        if old.shape().slots() < SHRINK_SLOTS_MIN.max(slots + 1) {
            return Ok(false);
        }
        let census = old.census(&state.group.invalid, snapshots);
        if census.current.is_none() || census.needed.count_ones() > 1 {
            return Ok(false);
        }
        let reservation = self.pool().reserve(old.shape().shrunk(slots).bytes())?;
        let shape = old.shape().shrunk(slots).filling(reservation.bytes());
        VersionedObject::initialise(self.pool(), reservation.offset(), shape)
            .build(Some((&old, &census)), None);
        let mut publication = self.pool().publication();
        let new = publication.allocate(reservation);
        publication.free(offset);
        state.index.replace(key, new, publication)?;
        Ok(true)
    }

    /// A small step of cleaning after a commit of `keys` keys. Never waits for a lock; errors are left for the
    /// next commit to report.
    pub(crate) fn tidy(&self, groups: &[&Group], keys: usize) {
        let mut stats = VacuumStats::default();
        let mut step = || -> Result<()> {
            for group in groups {
                self.tidy_group(group, (2 * keys).clamp(TIDY_KEYS_MIN, TIDY_KEYS_MAX), &mut stats)?;
            }
            if self.has_dropping() {
                self.destroy_step(DESTROY_OBJECTS, &mut stats)?;
            }
            if self.keeps_history() {
                self.prune_behind(keys)?;
            }
            Ok(())
        };
        if let Err(error) = step() {
            tracing::warn!(%error, "cleaning up after a commit failed");
        }
    }

    fn tidy_group(&self, group: &Group, keys_max: usize, stats: &mut VacuumStats) -> Result<()> {
        if group.dead.try_lock().is_none_or(|dead| dead.len() == 0) {
            return Ok(());
        }
        let Some(_lock) = group.try_hold() else { return Ok(()) };
        self.check_accepts_commits()?;
        let snapshots = self.active.snapshots();
        for _ in 0..keys_max {
            let Some((id, key)) = group.dead.lock().pop() else { return Ok(()) };
            // The number may belong to another state by now, or to one that is being destroyed.
            let live = |state: &Arc<State>| state.group.id == group.id && !state.is_dropped();
            let Some(state) = self.state(id).filter(live) else { continue };
            match self.remove_if_dead(&state, &key, &snapshots)? {
                Removal::Removed => stats.keys_removed += 1,
                Removal::Alive => (),
                Removal::NotYet => {
                    // Those behind it were deleted later: they have to wait too.
                    group.dead.lock().push(id, &key);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Frees up to `objects_max` objects of a dropped state that no snapshot needs; false if there is none.
    fn destroy_step(&self, objects_max: usize, stats: &mut VacuumStats) -> Result<bool> {
        let Some(mut dropping) = self.dropping.try_lock() else { return Ok(false) };
        let oldest = self.active.snapshots().oldest();
        let Some(index) = dropping.iter().position(|state| state.dropped_at <= oldest) else {
            return Ok(false);
        };
        let (id, root) = (dropping[index].id, dropping[index].root);
        if let Some(from) = &dropping[index].cut_from {
            dropping[index].cut_from = match first_leaf(self.pool(), root) != Some(0) {
                true => self.cut_leaf(root, from)?,
                false => None,
            };
            return Ok(true);
        }
        if OrderedIndex::destroy_step(self.pool(), root, true, objects_max)? {
            self.directory.remove_state(id, root)?;
            dropping.swap_remove(index);
            stats.states_destroyed += 1;
        }
        Ok(true)
    }
}
