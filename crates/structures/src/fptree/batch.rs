//! Batched lookups: while one key's cache line is loaded, those of the other keys are prefetched too.
//!
//! All keys of a group descend level by level, in two steps a level: find the group of children in the node,
//! then the child. Each step prefetches the lines that the next one reads. A key whose path a writer changed
//! is looked up again alone.

use super::inner::Child;
use super::{FpTree, LeafVersion};
use crate::error::Result;
use crate::key::TreeKey;
use crate::latch;
use crate::leaf::Leaf;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in flight. Sixteen cover the latency of DRAM on today's cores; the rest hides the leaf's two steps.
pub(super) const GROUP: usize = 32;

/// Lookup of a key: its tree and the key.
pub(crate) type Lookup<'t, 'k, K> = (&'t FpTree<K>, <K as TreeKey>::Key<'k>);

/// State of the lookup of one key.
#[derive(Clone, Copy)]
pub(super) struct Descent<'t> {
    child: Child,
    parent: &'t AtomicU64,
    parent_version: u64,
    /// Version of the current node or leaf.
    version: u64,
    /// The group of a node's children, or the candidate slots of a leaf.
    selection: u64,
    lost: bool,
}

/// Descents of a group.
pub(super) type Descents<'t> = SmallVec<[Descent<'t>; GROUP]>;

/// Parts of a leaf to prefetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetch {
    /// The lines that the search for one key needs.
    SeekEntry,
    /// All lines.
    Whole,
}

impl<K: TreeKey> FpTree<K> {
    /// Returns the values of keys; `values` is cleared first. On real memory several times faster than one by
    /// one. An error where the tree is damaged.
    pub fn get_many<'k>(
        &self,
        keys: impl Iterator<Item = K::Key<'k>>,
        values: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        FpTree::get_many_of(keys.map(|key| (self, key)), values)
    }

    /// Same as [`FpTree::get_many`] for keys of several trees: few keys of each are as fast as many of one,
    /// as long as those in one pool are consecutive.
    pub(crate) fn get_many_of<'t, 'k>(
        lookups: impl Iterator<Item = Lookup<'t, 'k, K>>,
        values: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        values.clear();
        let mut group: SmallVec<[Lookup<'_, '_, K>; GROUP]> = SmallVec::new();
        for lookup in lookups {
            let is_elsewhere = |(tree, _): &Lookup<'_, '_, K>| !Arc::ptr_eq(&tree.pool, &lookup.0.pool);
            if group.len() == GROUP || group.last().is_some_and(is_elsewhere) {
                get_group(&group, values)?;
                group.clear();
            }
            group.push(lookup);
        }
        get_group(&group, values)
    }

    /// Creates the state of a lookup that has not begun.
    fn start(&self) -> Descent<'_> {
        let version = latch::read(&self.root_latch);
        Descent {
            child: Child::decode(self.root.load(Ordering::Relaxed)),
            parent: &self.root_latch,
            parent_version: version,
            version: 0,
            selection: 0,
            lost: !latch::validate(&self.root_latch, version),
        }
    }

    /// Searches the fingerprints and prefetches the entry. Returns the leaf; if that has changed, the descent
    /// is marked as lost.
    fn search_fingerprints<'t>(&'t self, key: K::Key<'_>, descent: &mut Descent<'t>) -> Option<LeafVersion> {
        let found = descent.found(self);
        let Some(LeafVersion { leaf, version }) = found else {
            descent.lost = true;
            return None;
        };
        descent.version = version;
        let leaf = self.leaf(leaf);
        descent.selection = leaf.candidates(K::fingerprint(key));
        if descent.selection != 0 {
            self.pool.prefetch(leaf.entry_offset(descent.selection.trailing_zeros() as usize));
        }
        found
    }

    /// Same as [`FpTree::search_fingerprints`], for a key to be written: prefetches the slot of a new entry
    /// if no entry can be the key's.
    pub(super) fn search_for_write<'t>(
        &'t self,
        key: K::Key<'_>,
        descent: &mut Descent<'t>,
    ) -> Option<LeafVersion> {
        let found = self.search_fingerprints(key, descent)?;
        let leaf = self.leaf(found.leaf);
        // Read once: other threads fill the leaf meanwhile.
        let bitmap = leaf.bitmap();
        if descent.selection == 0 && bitmap & Leaf::<K>::FULL != Leaf::<K>::FULL {
            let slot = Leaf::<K>::free_slot(bitmap, K::fingerprint(key));
            self.pool.prefetch(leaf.entry_offset(slot));
        }
        Some(found)
    }

    fn finish(&self, key: K::Key<'_>, descent: &Descent<'_>) -> Result<Option<u64>> {
        if let (Child::Leaf(offset), false) = (descent.child, descent.lost) {
            let leaf = self.leaf(offset);
            let slot = leaf.confirm(&self.pool, descent.selection, key);
            let value = slot.map(|slot| leaf.value(slot));
            if latch::validate(self.stripes.of(offset), descent.version) {
                return Ok(value);
            }
        }
        self.get_pinned(key)
    }
}

fn get_group<K: TreeKey>(lookups: &[Lookup<'_, '_, K>], values: &mut Vec<Option<u64>>) -> Result<()> {
    let Some((first, _)) = lookups.first() else { return Ok(()) };
    assert!(
        lookups.iter().all(|(tree, _)| Arc::ptr_eq(&tree.pool, &first.pool)),
        "trees of several pools are not looked up together"
    );
    let _pinned = first.pool.pin();
    let mut descents = Descents::new();
    go_down(lookups, &mut descents, Fetch::SeekEntry);
    for (&(tree, key), descent) in lookups.iter().zip(descents.iter_mut()) {
        tree.search_fingerprints(key, descent);
    }
    for (&(tree, key), descent) in lookups.iter().zip(descents.iter()) {
        values.push(tree.finish(key, descent)?);
    }
    Ok(())
}

impl<'t> Descent<'t> {
    /// Returns the leaf and its version then, as [`FpTree::find_leaf`] does; none if the descent was lost.
    pub(super) fn found<K: TreeKey>(&self, tree: &'t FpTree<K>) -> Option<LeafVersion> {
        let Child::Leaf(leaf) = self.child else { return None };
        if self.lost {
            return None;
        }
        let version = latch::read(tree.stripes.of(leaf));
        latch::validate(self.parent, self.parent_version).then_some(LeafVersion { leaf, version })
    }
}

/// Descends with all keys to their leaves, or marks them as lost. `descents`, which is empty, is filled in
/// place: it is too large to be moved.
pub(super) fn go_down<'t, K: TreeKey>(
    lookups: &[Lookup<'t, '_, K>],
    descents: &mut Descents<'t>,
    fetch: Fetch,
) {
    debug_assert!(descents.is_empty(), "descents begin at the root");
    descents.extend(lookups.iter().map(|(tree, _)| tree.start()));
    debug_assert!(descents.len() <= GROUP, "a group has at most {GROUP} keys");
    while step_down(lookups, descents, fetch) {}
}

/// Moves every key that is still above the leaves one level down; false if there is none.
fn step_down<'t, K: TreeKey>(
    lookups: &[Lookup<'t, '_, K>],
    descents: &mut [Descent<'t>],
    fetch: Fetch,
) -> bool {
    let mut moved = false;
    for (&(tree, key), descent) in lookups.iter().zip(descents.iter_mut()) {
        let (Child::Inner(id), false) = (descent.child, descent.lost) else { continue };
        moved = true;
        let node = tree.inner.node(id);
        descent.version = latch::read(node.latch());
        descent.lost = !latch::validate(descent.parent, descent.parent_version);
        let group = node.group_of(&tree.pool, key);
        node.prefetch_group(group);
        descent.selection = group as u64;
    }
    for (&(tree, key), descent) in lookups.iter().zip(descents) {
        let (Child::Inner(id), false) = (descent.child, descent.lost) else { continue };
        let node = tree.inner.node(id);
        let child = node.child(node.position_of(&tree.pool, descent.selection as usize, key));
        if !latch::validate(node.latch(), descent.version) {
            descent.lost = true;
            continue;
        }
        (descent.parent, descent.parent_version, descent.child) = (node.latch(), descent.version, child);
        match child {
            Child::Inner(id) => tree.inner.node(id).prefetch(),
            // A lookup of this key alone opens the segment.
            Child::Segment(_) => descent.lost = true,
            Child::Leaf(leaf) if fetch == Fetch::Whole => Leaf::<K>::prefetch_whole(&tree.pool, leaf),
            Child::Leaf(leaf) => {
                tree.pool.prefetch(leaf);
                Leaf::<K>::prefetch_home(&tree.pool, leaf, K::fingerprint(key));
            }
        }
    }
    moved
}
