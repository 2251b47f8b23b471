//! Batched inserts of many keys with few publications.
//!
//! The keys descend together ([`super::batch`]); then the leaves of as many of them as fit a publication are
//! latched, entries are written to them, and one publication makes all of them valid, with the updates that
//! each carries. So a crash leaves a prefix of the publications, in the order of the keys, each complete.
//!
//! No thread waits for a latch while it holds one: the first may be waited for, the others are latched only
//! if their leaf is as the descent found it. Otherwise, or if the leaf is full, the entries so far are
//! published, and the other keys descend again.

use super::batch::{Descents, Fetch, GROUP, Lookup, go_down};
use super::{FpTree, LatchedLeaf};
use crate::error::Result;
use crate::key::TreeKey;
use crate::leaf::PendingEntries;
use crate::points::BATCH_WITH_ITS_ENTRIES;
use entresol_memory::{PUBLICATION_WORDS_MAX, Publication};
use smallvec::SmallVec;

/// Maximum of updates that a key may carry, its own record included.
const CARRIED_UPDATES_MAX: usize = 3;

/// Latched leaf and the entries that are being added to it.
struct FilledLeaf<'t, K: TreeKey> {
    latched: LatchedLeaf<'t, K>,
    /// Version at which its latch was taken.
    version: Option<u64>,
    filling: PendingEntries,
}

impl<K: TreeKey> FpTree<K> {
    /// Adds distinct keys. `carried` is called with the index of a key once it is known to be new; it returns
    /// the value and adds up to two updates to the publication. `existing` is called with those that exist
    /// already, and their values. After an error some of the keys are added.
    ///
    /// Cost: two flushed ranges a key, a publication for some twenty of them, splits as in
    /// [`FpTree::insert`].
    pub fn insert_many<'p>(
        &'p self,
        keys: &[K::Key<'_>],
        mut carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
        mut existing: impl FnMut(usize, u64),
    ) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            self.pool.wait_for_room();
            let _pinned = self.pool.pin();
            let ahead = &keys[done..keys.len().min(done + GROUP)];
            done += self.insert_some(ahead, done, &mut carried, &mut existing)?;
        }
        Ok(())
    }

    /// Adds a prefix of the keys, the first of which has index `place`; returns their number. That may be 0,
    /// if a leaf was split.
    fn insert_some<'p>(
        &'p self,
        keys: &[K::Key<'_>],
        place: usize,
        carried: &mut impl FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut impl FnMut(usize, u64),
    ) -> Result<usize> {
        let lookups: SmallVec<[Lookup<'p, '_, K>; GROUP]> = keys.iter().map(|&key| (self, key)).collect();
        let mut descents = Descents::new();
        go_down(&lookups, &mut descents, Fetch::SeekEntry);
        // Before the first latch: the holder of a latch must not wait for a version.
        let found: SmallVec<[_; GROUP]> = descents.iter().map(|descent| descent.found(self)).collect();
        let mut with = self.pool.publication();
        let mut leaves: SmallVec<[FilledLeaf<'p, K>; 4]> = SmallVec::new();
        let mut added = 0;
        for (&key, found) in keys.iter().zip(&found) {
            let has = |last: &FilledLeaf<'p, K>| {
                found
                    .as_ref()
                    .is_some_and(|at| at.leaf == last.latched.offset && Some(at.version) == last.version)
            };
            if !leaves.last().is_some_and(has) {
                let taken = found.as_ref().and_then(|at| Some((self.try_lock_found(at)?, Some(at.version))));
                let (latched, version) = match taken {
                    Some(taken) => taken,
                    None if leaves.is_empty() => (self.lock_leaf(key)?, None),
                    None => break,
                };
                let filling = PendingEntries::of(&latched.leaf);
                leaves.push(FilledLeaf { latched, version, filling });
            }
            // Beside the updates of this key, a bitmap for each leaf.
            if with.len() + leaves.len() + CARRIED_UPDATES_MAX > PUBLICATION_WORDS_MAX {
                break;
            }
            let put_before = leaves.iter().any(|filled| filled.filling.has_new());
            let Some(FilledLeaf { latched, filling, .. }) = leaves.last_mut() else { break };
            if let Some(slot) = latched.leaf.find(&self.pool, key) {
                existing(place + added, latched.leaf.value(slot));
                added += 1;
                continue;
            }
            if filling.is_full::<K>() {
                if !put_before {
                    self.split(latched, key)?;
                }
                break;
            }
            let stored = K::place(&self.pool, key, &mut with)?;
            let before = with.len();
            let value = carried(place + added, &mut with);
            assert!(
                with.len() <= before + CARRIED_UPDATES_MAX,
                "a key carries at most {CARRIED_UPDATES_MAX} updates, not {}",
                with.len() - before
            );
            filling.add(&latched.leaf, (stored, K::fingerprint(key)), value, &mut with);
            added += 1;
        }
        with.barrier(BATCH_WITH_ITS_ENTRIES);
        if leaves.iter().any(|filled| filled.filling.has_new()) {
            leaves.iter().for_each(|filled| filled.filling.finish(&filled.latched.leaf, &mut with));
            with.publish()?;
        }
        debug_assert!(added <= keys.len(), "no more keys are added than there are");
        Ok(added)
    }
}
