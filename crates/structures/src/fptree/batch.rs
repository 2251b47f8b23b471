//! Many lookups at once: while one key's cache line is on its way, the others' are asked for too.
//!
//! All keys of a group go down level by level, two steps a level: find the part of the node to look at, then
//! the child. Each step asks for the lines that the next one reads. A key whose way was changed by a writer is
//! looked up again alone.

use super::FpTree;
use super::inner::Child;
use crate::error::Result;
use crate::key::TreeKey;
use crate::latch;
use crate::leaf::Leaf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in flight. Sixteen cover the latency of DRAM on today's cores; the rest hides the leaf's two steps.
const GROUP: usize = 32;

/// Where the lookup of one key stands.
#[derive(Clone, Copy)]
struct Way<'t> {
    child: Child,
    parent: &'t AtomicU64,
    parent_version: u64,
    /// Of the node or leaf that is being looked at.
    version: u64,
    /// The group of a node's children, or the candidate slots of a leaf.
    selection: u64,
    lost: bool,
}

impl<K: TreeKey> FpTree<K> {
    /// The values of keys; `values` is cleared first. On real memory several times faster than one by one.
    /// An error where the tree is damaged.
    pub fn get_many<'k>(
        &self,
        keys: impl Iterator<Item = K::Key<'k>>,
        values: &mut Vec<Option<u64>>,
    ) -> Result<()> {
        values.clear();
        let mut group = Vec::with_capacity(GROUP);
        for key in keys {
            group.push(key);
            if group.len() == GROUP {
                self.get_group(&group, values)?;
                group.clear();
            }
        }
        self.get_group(&group, values)
    }

    fn get_group(&self, keys: &[K::Key<'_>], values: &mut Vec<Option<u64>>) -> Result<()> {
        let _pinned = self.pool.pin();
        let version = latch::read(&self.root_latch);
        let start = Way {
            child: Child::decode(self.root.load(Ordering::Relaxed)),
            parent: &self.root_latch,
            parent_version: version,
            version: 0,
            selection: 0,
            lost: !latch::validate(&self.root_latch, version),
        };
        let mut ways = [start; GROUP];
        let ways = &mut ways[..keys.len()];
        while self.step_down(keys, ways) {}
        for (key, way) in keys.iter().zip(ways.iter_mut()) {
            self.look_into_leaf(*key, way);
        }
        for (key, way) in keys.iter().zip(ways.iter()) {
            values.push(self.finish(*key, way)?);
        }
        Ok(())
    }

    /// Moves every key that is still above the leaves one level down; false when none is.
    fn step_down<'t>(&'t self, keys: &[K::Key<'_>], ways: &mut [Way<'t>]) -> bool {
        let mut moved = false;
        for (key, way) in keys.iter().zip(ways.iter_mut()) {
            let (Child::Inner(id), false) = (way.child, way.lost) else { continue };
            moved = true;
            let node = self.inner.node(id);
            way.version = latch::read(node.latch());
            way.lost = !latch::validate(way.parent, way.parent_version);
            let group = node.group_of(&self.pool, *key);
            node.prefetch_group(group);
            way.selection = group as u64;
        }
        for (key, way) in keys.iter().zip(ways) {
            let (Child::Inner(id), false) = (way.child, way.lost) else { continue };
            let node = self.inner.node(id);
            let child = node.child(node.position_of(&self.pool, way.selection as usize, *key));
            if !latch::validate(node.latch(), way.version) {
                way.lost = true;
                continue;
            }
            (way.parent, way.parent_version, way.child) = (node.latch(), way.version, child);
            match child {
                Child::Inner(id) => self.inner.node(id).prefetch(),
                // Whoever looks it up alone opens it.
                Child::Segment(_) => way.lost = true,
                Child::Leaf(leaf) => {
                    self.pool.prefetch(leaf);
                    Leaf::<K>::prefetch_home(&self.pool, leaf, K::fingerprint(*key));
                }
            }
        }
        moved
    }

    /// Searches the fingerprints and asks for the entry.
    fn look_into_leaf(&self, key: K::Key<'_>, way: &mut Way<'_>) {
        let Child::Leaf(offset) = way.child else { return };
        if way.lost {
            return;
        }
        way.version = latch::read(self.stripes.of(offset));
        if !latch::validate(way.parent, way.parent_version) {
            way.lost = true;
            return;
        }
        let leaf = self.leaf(offset);
        way.selection = leaf.candidates(K::fingerprint(key));
        if way.selection != 0 {
            self.pool.prefetch(leaf.entry_offset(way.selection.trailing_zeros() as usize));
        }
    }

    fn finish(&self, key: K::Key<'_>, way: &Way<'_>) -> Result<Option<u64>> {
        if let (Child::Leaf(offset), false) = (way.child, way.lost) {
            let leaf = self.leaf(offset);
            let slot = leaf.confirm(&self.pool, way.selection, key);
            let value = slot.map(|slot| leaf.value(slot));
            if latch::validate(self.stripes.of(offset), way.version) {
                return Ok(value);
            }
        }
        self.get_pinned(key)
    }
}
