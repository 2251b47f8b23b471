//! Seeks: the first entry at or after a key, alone or for many keys at once.
//!
//! A leaf is not sorted, so all of its keys are read, and only the entry found is copied. Many keys descend
//! together ([`super::batch`]), and complete leaves are prefetched.

use super::FpTree;
use super::batch::{Descents, Fetch, GROUP, Lookup, go_down};
use crate::error::Result;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::{Leaf, bits};
use entresol_memory::PoolOffset;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// An entry: its key and its value.
pub(crate) type SeekEntry = (KeyBytes, u64);

/// Result of searching one leaf.
enum LeafSearch<S> {
    First(S, u64),
    /// The entry is in a later leaf, if this is not the last.
    Behind {
        next: PoolOffset,
    },
    /// A writer changed the leaf meanwhile.
    Changed,
}

impl<K: TreeKey> FpTree<K> {
    /// Returns the first entry at or after a key. Cost: a descent and one leaf, now and then two. An error
    /// where the tree is damaged.
    pub fn first_from(&self, key: K::Key<'_>) -> Result<Option<SeekEntry>> {
        let _pinned = self.pool.pin();
        self.first_from_pinned(key)
    }

    /// Same as [`FpTree::first_from`] for keys in any order; one result for each key is appended to `found`.
    pub fn first_from_each<'k>(
        &self,
        keys: impl Iterator<Item = K::Key<'k>>,
        found: &mut Vec<Option<SeekEntry>>,
    ) -> Result<()> {
        let _pinned = self.pool.pin();
        let mut group: SmallVec<[Lookup<'_, '_, K>; GROUP]> = SmallVec::new();
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            group.clear();
            group.extend(keys.by_ref().take(GROUP).map(|key| (self, key)));
            let mut descents = Descents::new();
            go_down(&group, &mut descents, Fetch::Whole);
            for ((_, key), descent) in group.iter().zip(&descents) {
                let in_leaf = descent.found(self).map(|at| self.first_in_leaf(at.leaf, at.version, *key));
                found.push(match in_leaf {
                    Some(LeafSearch::First(stored, value)) => Some((K::to_bytes(&self.pool, stored), value)),
                    _ => self.first_from_pinned(*key)?,
                });
            }
        }
        Ok(())
    }

    fn first_from_pinned(&self, key: K::Key<'_>) -> Result<Option<SeekEntry>> {
        let mut spins = 0;
        'descend: loop {
            let found = self.descend(|node| node.position(&self.pool, key))?;
            Leaf::<K>::prefetch_whole(&self.pool, found.leaf);
            let (mut at, mut version) = (found.leaf, found.version);
            loop {
                let next = match self.first_in_leaf(at, version, key) {
                    LeafSearch::First(stored, value) => {
                        return Ok(Some((K::to_bytes(&self.pool, stored), value)));
                    }
                    LeafSearch::Behind { next } if next.is_null() => return Ok(None),
                    LeafSearch::Behind { next } => next,
                    LeafSearch::Changed => {
                        latch::pause(&mut spins);
                        continue 'descend;
                    }
                };
                if self.segments_left() > 0 {
                    // The leaf may be in an unopened segment, whose pages are not verified yet.
                    self.sound_leaf(next)?;
                }
                let next_version = latch::read(self.stripes.of(next));
                // It was the next leaf when its version was read.
                if !latch::validate(self.stripes.of(at), version) {
                    continue 'descend;
                }
                (at, version) = (next, next_version);
            }
        }
    }

    fn first_in_leaf(&self, at: PoolOffset, version: u64, key: K::Key<'_>) -> LeafSearch<K::Stored> {
        let (leaf, pool) = (self.leaf(at), &*self.pool);
        let next = leaf.next();
        let slots = bits(leaf.bitmap() & Leaf::<K>::FULL);
        // Copied first: records outside of the leaf are read only if the copy is consistent.
        let entries: SmallVec<[(K::Stored, u64); 56]> =
            slots.map(|slot| (leaf.key(slot), leaf.value(slot))).collect();
        if !latch::validate(self.stripes.of(at), version) {
            return LeafSearch::Changed;
        }
        let reached = entries.iter().filter(|(stored, _)| K::compare(pool, *stored, key) != Ordering::Less);
        match reached.min_by(|a, b| K::compare_stored(pool, a.0, b.0)) {
            Some(&(stored, value)) => LeafSearch::First(stored, value),
            None => LeafSearch::Behind { next },
        }
    }
}
