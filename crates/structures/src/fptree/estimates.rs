//! Estimates for planners: split points that divide a scan among threads, and numbers of keys.
//!
//! They read inner nodes without their latches: writers may move entries meanwhile, and an estimate stays one.

use super::FpTree;
use super::inner::Child;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::Leaf;
use std::sync::atomic::Ordering as Memory;

/// Inner nodes of a level that an estimate reads.
const SAMPLED_NODES: usize = 16;
/// Approximate number of leaves of an unopened segment.
const LEAVES_OF_SEGMENT: u64 = 37;

/// Levels of inner nodes that a descent follows at most: more than a tree has.
const LEVELS_MAX: usize = 32;

impl<K: TreeKey> FpTree<K> {
    /// Keys that divide the tree into parts of about equal size, in ascending order: those of the highest
    /// inner level with at least `wanted` of them, or of the lowest. Writers may move entries meanwhile.
    pub fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        let _pinned = self.pool.pin();
        let mut level = match Child::decode(self.root.load(Memory::Acquire)) {
            Child::Inner(root) => vec![root],
            Child::Leaf(_) | Child::Segment(_) => return Vec::new(),
        };
        let mut splits: Vec<KeyBytes> = Vec::new();
        loop {
            let (mut keys, mut below) = (Vec::new(), Vec::new());
            for id in level {
                let node = self.inner.node(id);
                let version = latch::read(node.latch());
                let children: Vec<_> = (0..node.count()).map(|at| (node.key(at), node.child(at))).collect();
                if !latch::validate(node.latch(), version) {
                    // The splits within this node are lost; those around it are right.
                    continue;
                }
                keys.extend(children[1..].iter().map(|(low, _)| K::to_bytes(&self.pool, *low)));
                below.extend(children.into_iter().filter_map(|(_, child)| match child {
                    Child::Inner(id) => Some(id),
                    Child::Leaf(_) | Child::Segment(_) => None,
                }));
            }
            splits.append(&mut keys);
            if splits.len() >= wanted || below.is_empty() {
                splits.sort_unstable();
                splits.dedup();
                return splits;
            }
            level = below;
        }
    }

    /// Estimates the number of keys from some inner nodes of each level; reads a leaf only if it is the only
    /// one.
    pub fn estimated_keys(&self) -> u64 {
        let _pinned = self.pool.pin();
        let mut level = match Child::decode(self.root.load(Memory::Acquire)) {
            Child::Inner(root) => vec![root],
            Child::Leaf(leaf) => return u64::from((self.leaf(leaf).bitmap() & Leaf::<K>::FULL).count_ones()),
            Child::Segment(_) => return LEAVES_OF_SEGMENT * Self::USUAL_KEYS,
        };
        let mut nodes = 1;
        loop {
            let sample: Vec<u32> =
                level.iter().copied().step_by(level.len().div_ceil(SAMPLED_NODES)).collect();
            let (mut children, mut below) = (0, Vec::new());
            let mut leaves = 0;
            for id in &sample {
                let node = self.inner.node(*id);
                children += node.count() as u64;
                for at in 0..node.count() {
                    match node.child(at) {
                        Child::Inner(id) => below.push(id),
                        Child::Leaf(_) => leaves += 1,
                        Child::Segment(_) => leaves += LEAVES_OF_SEGMENT,
                    }
                }
            }
            let sampled = sample.len() as u64;
            if below.is_empty() {
                return leaves * nodes / sampled * Self::USUAL_KEYS;
            }
            nodes = children * nodes / sampled;
            level = below;
        }
    }

    /// Estimates the share of the keys that lie below `key`, in leaves before that of the key: 0 to 1. Cost: one
    /// descent to the leaf, which is not read.
    pub fn estimated_share_below(&self, key: K::Key<'_>) -> f64 {
        let _pinned = self.pool.pin();
        let (mut share, mut width) = (0.0, 1.0);
        let mut child = Child::decode(self.root.load(Memory::Acquire));
        for _ in 0..LEVELS_MAX {
            let Child::Inner(id) = child else { break };
            let node = self.inner.node(id);
            let count = node.count().max(1);
            let at = node.position(&self.pool, key).min(count - 1);
            width /= count as f64;
            share += at as f64 * width;
            child = node.child(at);
        }
        share
    }

    /// Keys of a leaf as random inserts fill it.
    pub(crate) fn usual_leaf_keys(&self) -> u64 {
        Self::USUAL_KEYS
    }

    const USUAL_KEYS: u64 = Leaf::<K>::CAPACITY as u64 * 3 / 4;
}
