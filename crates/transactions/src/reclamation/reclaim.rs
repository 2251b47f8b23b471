//! Reclaiming space that no snapshot needs any more, in slices, while others write.
//!
//! A deleted key keeps its object until no snapshot can see a version of it; then one publication removes the
//! key from the index and frees the object. That is done under the stripes of the keys
//! ([`crate::context::group`]), some keys at a time, so that writers of other keys go on, and no pause of
//! writers is waited for. Versions that have ended go with the next write of their key; objects that grew for
//! old snapshots are made small when a range of dead keys is visited.
//!
//! Threads with time do it: a thread of its own ([`crate::reclamation::reclaimer`]), commits when there is no
//! thread or it does not keep up, and [`vacuum`](StateContext::vacuum).
//!
//! A crash leaves each key either with its object or gone; nothing is lost that a snapshot could see, nothing
//! leaks.

use crate::context::StateContext;
use crate::context::state::State;
use crate::mvcc::chain::Chain;
use crate::mvcc::object::VersionedObject;
use crate::points::DEAD_OBJECT_WITH_ITS_KEY;
use crate::reclamation::dead_keys::{DeadKey, SweepResult};
use crate::reclamation::vacuum::VacuumStats;
use crate::visibility::active::Snapshots;
use crate::visibility::snapshot::Snapshot;
use crate::{Result, StateId, Timestamp};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::ops::Bound;
use std::sync::Arc;

/// Number of keys that are held at a time.
const SLICE_KEYS: usize = 32;
/// Number of slots from which on an object with one version is made small again.
const SHRINK_SLOTS_MIN: usize = 8;
/// Number of dead keys from which on commits help the thread.
const HELP_FROM: u64 = 32_768;
/// Number of dead keys that a commit takes at least, and at most.
const TIDY_KEYS_MIN: usize = 16;
const TIDY_KEYS_MAX: usize = 1024;

/// Maximum number of dead keys that a commit without room takes.
const ROOM_KEYS: u64 = 65_536;

/// Outcome for a key that was visited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    Removed,
    /// There is a current version, or no such key.
    Alive,
    /// Deleted at this timestamp, but a snapshot may still see a version, or have to know of the deletion.
    NotYet(Timestamp),
}

/// The outcome of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slice {
    load_each: usize,
    removed: u64,
    shrunk: u64,
    /// Dead keys that have to wait, and the oldest of their deletion timestamps.
    waiting: u64,
    waits_for: Option<Timestamp>,
}

/// The outcome of visiting one leaf.
struct LeafPass {
    slice: Slice,
    /// Dead keys that have to wait.
    waiting: Vec<DeadKey>,
    /// The key that comes next in the index.
    next: Option<KeyBytes>,
}

impl Slice {
    fn add(&mut self, other: Slice) {
        self.load_each += other.load_each;
        self.removed += other.removed;
        self.shrunk += other.shrunk;
        self.waiting += other.waiting;
        self.waits_for = [self.waits_for, other.waits_for].into_iter().flatten().min();
    }

    fn note(self, stats: &mut VacuumStats) {
        stats.keys_seen += self.load_each as u64;
        stats.keys_removed += self.removed;
        stats.objects_shrunk += self.shrunk;
        stats.keys_waiting += self.waiting;
    }
}

/// Policy towards an exclusive holder of a group: to wait for it or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPolicy {
    Waits,
    /// Its keys come another time.
    Never,
}

impl StateContext {
    /// Works on some dead keys of some state: the one after `last`, round and round. False: nothing can be
    /// done now.
    pub(crate) fn reclaim_step(
        &self,
        last: &mut Option<StateId>,
        patience: WaitPolicy,
        stats: &mut VacuumStats,
    ) -> Result<bool> {
        let snapshots = self.active.snapshots();
        let all_see = |deleted_at| snapshots.all_see(deleted_at);
        for id in self.reclaim.states_after(*last) {
            let Some(state) = self.state(id).filter(|state| state.dead.is_pending()) else {
                let is_pending = || self.state(id).is_some_and(|state| state.dead.is_pending());
                self.reclaim.remove_unless(id, is_pending);
                continue;
            };
            if !state.dead.is_ready(all_see) {
                self.store_dead_keys(&state, patience);
                continue;
            }
            *last = Some(id);
            let slice = self.reclaim_of(&state, all_see, patience)?;
            slice.note(stats);
            return Ok(slice.load_each > 0);
        }
        *last = None;
        Ok(false)
    }

    /// A slice of one state: keys of its list, else a leaf of its sweep. Keys that not all snapshots see
    /// deleted have to wait.
    fn reclaim_of(
        &self,
        state: &Arc<State>,
        all_see: impl Fn(Timestamp) -> bool,
        patience: WaitPolicy,
    ) -> Result<Slice> {
        self.check_accepts_commits()?;
        let keys = state.dead.take_keys(&all_see, SLICE_KEYS);
        let slice = if keys.is_empty() {
            match state.dead.sweep_at(&all_see) {
                Some(at) => self.sweep_leaf(state, &at, patience)?,
                None => return Ok(Slice::default()),
            }
        } else {
            self.reclaim_keys(state, &keys, patience)?
        };
        state.dead.note_pass(slice.removed, self.pool().env().now_ns());
        self.store_dead_keys(state, patience);
        Ok(slice)
    }

    /// Visits keys that were taken from the list. Keys that were not reached go back to it.
    fn reclaim_keys(&self, state: &State, keys: &[DeadKey], patience: WaitPolicy) -> Result<Slice> {
        let mut back: SmallVec<[(Timestamp, &KeyBytes); SLICE_KEYS]> = SmallVec::new();
        let looked = self.with_keys(state, keys.iter().map(|dead| &dead.key), patience, |at, removal| {
            // A key that was deleted again since then is in the list once more.
            if let Removal::NotYet(deleted_at) = removal
                && deleted_at <= keys[at].deleted_at
            {
                back.push((deleted_at, &keys[at].key));
            }
        });
        let slice = match &looked {
            Ok(Some(slice)) => *slice,
            Ok(None) | Err(_) => {
                back = keys.iter().map(|dead| (dead.deleted_at, &dead.key)).collect();
                Slice::default()
            }
        };
        back.into_iter().for_each(|(deleted_at, key)| state.dead.push(deleted_at, key));
        looked.map(|_| slice)
    }

    /// Visits the next leaf of a sweep.
    fn sweep_leaf(&self, state: &State, at: &Bound<KeyBytes>, patience: WaitPolicy) -> Result<Slice> {
        let from = at.as_ref().map(|key| &key[..]);
        let Some(LeafPass { slice, next, .. }) = self.visit_leaf(state, from, patience)? else {
            return Ok(Slice::default());
        };
        let Slice { removed, waiting, waits_for, .. } = slice;
        state.dead.swept(at, SweepResult { removed, waiting, waits_for }, next);
        Ok(Slice { load_each: slice.load_each.max(1), ..slice })
    }

    /// Visits the leaf of the index at `from`. None: the state is gone, or the caller would have to wait.
    fn visit_leaf(
        &self,
        state: &State,
        from: Bound<&[u8]>,
        patience: WaitPolicy,
    ) -> Result<Option<LeafPass>> {
        let (mut entries, mut candidates) = (Vec::new(), Vec::<KeyBytes>::new());
        let visible = self.active.newest();
        let next = {
            // The guard first: if the state is dropped from here on, its leaves stay until the guard is gone.
            let _guard = state.pool().pin();
            if state.is_dropped() {
                return Ok(None);
            }
            let next = state.index.scan_batch(from, &mut entries)?;
            let wanted = entries
                .iter()
                .filter(|(_, word)| self.may_be_reclaimable(state, PoolOffset::from_word(*word), visible));
            candidates.extend(wanted.map(|(key, _)| key.clone()));
            next
        };
        let mut slice = Slice { load_each: entries.len() - candidates.len(), ..Slice::default() };
        let mut waiting = Vec::new();
        for keys in candidates.chunks(SLICE_KEYS) {
            let looked = self.with_keys(state, keys.iter(), patience, |at, removal| {
                if let Removal::NotYet(deleted_at) = removal {
                    waiting.push(DeadKey { deleted_at, key: keys[at].clone() });
                }
            })?;
            let Some(looked) = looked else { return Ok(None) };
            slice.add(looked);
        }
        Ok(Some(LeafPass { slice, waiting, next }))
    }

    /// Tells whether it is worth holding the key of an object. Nothing is held, and what is there may change
    /// meanwhile.
    fn may_be_reclaimable(&self, state: &State, offset: PoolOffset, visible: Snapshot) -> bool {
        let invalid = &state.group.invalid;
        if state.is_chained() {
            let chain = Chain::at(state.pool(), offset);
            return chain.seems_dead(visible, invalid) || chain.has_several();
        }
        VersionedObject::try_open(state.pool(), offset).is_none_or(|object| {
            object.seems_dead(visible, invalid) || object.layout().slots() >= SHRINK_SLOTS_MIN
        })
    }

    /// Holds keys and reclaims the space of each that is dead; None if the state is gone, or the caller would
    /// have to wait.
    fn with_keys<'k>(
        &self,
        state: &State,
        keys: impl ExactSizeIterator<Item = &'k KeyBytes> + Clone,
        patience: WaitPolicy,
        mut load_each: impl FnMut(usize, Removal),
    ) -> Result<Option<Slice>> {
        let of_state = || keys.clone().map(|key| (state.id, &key[..]));
        let held = state.group.hold_keys(of_state, patience);
        let Some(_held) = held.filter(|_| !state.is_dropped()) else { return Ok(None) };
        self.check_accepts_commits()?;
        // After the keys are held: keys deleted later are not visited here.
        let snapshots = self.active.snapshots();
        let mut slice = Slice { load_each: keys.len(), ..Slice::default() };
        for (at, key) in keys.enumerate() {
            let removal = self.remove_if_dead(state, key, &snapshots)?;
            match removal {
                Removal::Removed => slice.removed += 1,
                Removal::NotYet(deleted_at) => {
                    slice.waiting += 1;
                    slice.waits_for = Some(slice.waits_for.map_or(deleted_at, |at| at.min(deleted_at)));
                }
                Removal::Alive => slice.shrunk += u64::from(self.shrink(state, key, &snapshots)?),
            }
            load_each(at, removal);
        }
        Ok(Some(slice))
    }

    /// Visits all of a state, whatever is known of its dead keys.
    pub(crate) fn vacuum_state(
        &self,
        state: &Arc<State>,
        stats: &mut VacuumStats,
        mut progress: impl FnMut(&VacuumStats) -> Result<()>,
    ) -> Result<()> {
        let expected = state.dead.count();
        state.dead.forget();
        let mut from: Option<KeyBytes> = None;
        let mut step = || -> Result<()> {
            loop {
                self.check_accepts_commits()?;
                let lower = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
                let Some(LeafPass { slice, waiting, next }) =
                    self.visit_leaf(state, lower, WaitPolicy::Waits)?
                else {
                    return Ok(());
                };
                waiting.iter().for_each(|dead| state.dead.push(dead.deleted_at, &dead.key));
                state.dead.note_pass(slice.removed, self.pool().env().now_ns());
                slice.note(stats);
                progress(stats)?;
                match next {
                    Some(key) => from = Some(key),
                    None => return Ok(()),
                }
            }
        };
        let done = step();
        if done.is_err() {
            // Keys that were not reached are not forgotten.
            state.dead.expect(expected);
        }
        self.store_dead_keys(state, WaitPolicy::Waits);
        done
    }

    /// Stores the number of dead keys, if the stored one is far from it. A hint: a crash may take it back.
    pub(crate) fn store_dead_keys(&self, state: &State, patience: WaitPolicy) {
        if !state.dead.is_stored_count_far() {
            return;
        }
        let Some(_held) = state.group.hold_shared(patience).filter(|_| !state.is_dropped()) else { return };
        if let Some(count) = state.dead.to_store() {
            state.index.set_note(count);
        }
    }

    /// The caller holds the key.
    fn remove_if_dead(&self, state: &State, key: &[u8], snapshots: &Snapshots) -> Result<Removal> {
        let Some(word) = state.index.get(key)? else { return Ok(Removal::Alive) };
        let offset = PoolOffset::from_word(word);
        if state.is_chained() {
            return self.remove_chain_if_dead(state, key, offset, snapshots);
        }
        let object = VersionedObject::try_open(state.pool(), offset)
            .ok_or_else(|| state.damaged(key, "a damaged MVCC object"))?;
        let census = object.census(&state.group.invalid, snapshots);
        if census.current.is_some() {
            return Ok(Removal::Alive);
        }
        // Not only no snapshot that needs a version, but none that does not see the deletion: it would have
        // to find the conflict when it writes the key.
        if census.needed != 0 || !snapshots.all_see(census.newest) {
            return Ok(Removal::NotYet(census.newest));
        }
        self.note_removed(state);
        let mut publication = state.pool().publication();
        publication.free(offset);
        publication.barrier(DEAD_OBJECT_WITH_ITS_KEY);
        let removed = state.index.remove(key, publication)?;
        assert_eq!(removed, Some(word), "the key that goes led to the object that is freed");
        Ok(Removal::Removed)
    }

    /// Notes that a key is about to be removed from the index: its earlier versions are in the history alone,
    /// and a reader of the history finds this noted.
    fn note_removed(&self, state: &State) {
        if let Some(history) = state.history() {
            // Not by the object: versions that ended later may have given their slots to commits that failed.
            history.note_removed(self.active.newest_assigned());
        }
    }

    /// The same for a key with a chain; versions of a living one that no snapshot needs are freed as well.
    fn remove_chain_if_dead(
        &self,
        state: &State,
        key: &[u8],
        offset: PoolOffset,
        snapshots: &Snapshots,
    ) -> Result<Removal> {
        let chain = Chain::at(state.pool(), offset);
        let census = chain.census(&state.group.invalid, snapshots);
        let census = census.map_err(|_| state.damaged(key, "a damaged chain of versions"))?;
        if census.lives || census.needed != 0 || !snapshots.all_see(census.newest) {
            if !census.pruned.is_empty() {
                let mut publication = state.pool().publication();
                census.pruned.add_to(&mut publication);
                publication.publish()?;
            }
            return Ok(if census.lives { Removal::Alive } else { Removal::NotYet(census.newest) });
        }
        self.truncate_chain(state.pool(), chain)?;
        self.note_removed(state);
        let mut publication = state.pool().publication();
        publication.free(offset);
        let removed = state.index.remove(key, publication)?;
        assert_eq!(removed, Some(offset.to_word()), "the key that goes led to the chain that is freed");
        Ok(Removal::Removed)
    }

    /// Frees all versions behind the first.
    pub(crate) fn truncate_chain(&self, pool: &Pool, chain: Chain<'_>) -> Result<()> {
        loop {
            let mut publication = pool.publication();
            let last = chain.unlink_behind_first(&mut publication);
            publication.publish()?;
            if last {
                return Ok(());
            }
        }
    }

    /// Makes the object of a living key small again. The caller holds the key.
    fn shrink(&self, state: &State, key: &[u8], snapshots: &Snapshots) -> Result<bool> {
        let (slots, pool): (usize, &Pool) = (state.version_slots(self.options()), state.pool());
        if state.is_chained() {
            return Ok(false);
        }
        let Some(word) = state.index.get(key)? else { return Ok(false) };
        let offset = PoolOffset::from_word(word);
        let Some(old) = VersionedObject::try_open(pool, offset) else {
            return Err(state.damaged(key, "a damaged MVCC object"));
        };
        if old.layout().slots() < SHRINK_SLOTS_MIN.max(slots + 1) {
            return Ok(false);
        }
        let census = old.census(&state.group.invalid, snapshots);
        if census.current.is_none() || census.needed.count_ones() > 1 {
            return Ok(false);
        }
        let reservation = pool.reserve(old.layout().shrunk(slots).bytes())?;
        let layout = old.layout().shrunk(slots).filling(reservation.bytes());
        assert!(
            layout.bytes() <= reservation.bytes() && layout.slots() < old.layout().slots(),
            "an object of {} slots gets small in {} bytes",
            old.layout().slots(),
            reservation.bytes()
        );
        VersionedObject::initialise(pool, reservation.offset(), layout).build(Some((&old, &census)), None);
        let mut publication = pool.publication();
        let new = publication.allocate(reservation);
        publication.free(offset);
        let replaced = state.index.replace(key, new.to_word(), publication)?;
        assert_eq!(replaced, Some(word), "the key led to the object that is freed");
        Ok(true)
    }

    /// Reclaims space, up to a number of keys, for a commit that found no room. Returns true if anything came
    /// of it.
    pub(crate) fn reclaim_room(&self) -> bool {
        let (mut stats, mut last) = (VacuumStats::default(), None);
        let mut step = || -> Result<()> {
            while stats.keys_removed < ROOM_KEYS
                && self.reclaim_step(&mut last, WaitPolicy::Waits, &mut stats)?
            {}
            while self.destroy_step(&mut stats)? {}
            Ok(())
        };
        if let Err(error) = step() {
            tracing::warn!(%error, "reclaiming space for a commit failed");
        }
        let old = self.old_versions.bytes();
        self.old_versions.prune(&self.active.snapshots());
        stats.keys_removed > 0 || stats.states_destroyed > 0 || old > self.old_versions.bytes()
    }

    /// A small step of cleaning after a commit of `keys` keys, if no thread does it or it has fallen behind.
    /// Never waits for a holder of a group; errors are left for the next commit to report.
    pub(crate) fn tidy(&self, keys: usize) {
        let has_thread = self.reclaim.has_thread();
        let (help_dead, help_history) = if has_thread {
            (self.reclaim.dead() >= HELP_FROM, self.prune_is_late())
        } else {
            (true, self.keeps_history())
        };
        if !help_dead && !help_history {
            return;
        }
        let step = || -> Result<()> {
            let (mut stats, mut last) = (VacuumStats::default(), self.reclaim.last_helped());
            let keys_max = (2 * keys).clamp(TIDY_KEYS_MIN, TIDY_KEYS_MAX) as u64;
            while help_dead
                && stats.keys_seen < keys_max
                && self.reclaim.dead() > 0
                && self.reclaim_step(&mut last, WaitPolicy::Never, &mut stats)?
            {}
            self.reclaim.set_last_helped(last);
            if help_history {
                self.prune_behind(keys)?;
            }
            if !has_thread && self.has_dropping() {
                self.destroy_step(&mut stats)?;
            }
            Ok(())
        };
        if let Err(error) = step() {
            tracing::warn!(%error, "cleaning up after a commit failed");
        }
    }
}
