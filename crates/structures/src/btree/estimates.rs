//! Estimates for planners: split points that divide a scan among threads, and numbers of keys.
//!
//! They validate each inner node, but not the tree: writers may move entries meanwhile, and an estimate stays
//! one.

use super::placement::ChildRef;
use super::{BTree, LEVELS_MAX, Placement};
use crate::fptree::TreeStats;
use crate::latch;
use crate::node::{Entries, FixedKey, Layout};
use std::sync::atomic::Ordering;

/// Inner nodes of a level that an estimate reads.
const SAMPLED_NODES: usize = 16;

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Keys of a leaf as random inserts fill it.
    pub(crate) fn usual_leaf_keys(&self) -> u64 {
        (L::geometry::<K>().capacity * 3 / 4) as u64
    }

    /// Children of an inner node, the leftmost with the least key; none if a writer changes it or it is damaged.
    fn children_of(&self, reference: u64) -> Option<Entries<K>> {
        let node = self.inner(reference).ok()?;
        let own = self.inner_latch(node, reference);
        let version = latch::read(own);
        let mut children = vec![(K::MIN, node.load(I::geometry::<K>().spare))];
        I::append_sorted(node, &mut children);
        latch::validate(own, version).then_some(children)
    }

    /// Returns keys that divide the tree into parts of about equal size, in ascending order: those of the highest
    /// inner level with at least `wanted` of them, or of the lowest.
    pub fn split_points(&self, wanted: usize) -> Vec<K> {
        let _pinned = self.pool.pin();
        let mut splits = Vec::new();
        let mut level = vec![self.root.load(Ordering::Acquire)];
        for _ in 0..LEVELS_MAX {
            let inner = level.iter().filter_map(|word| match ChildRef::decode(*word) {
                ChildRef::Inner(reference) => self.children_of(reference),
                ChildRef::Leaf(_) => None,
            });
            let children: Vec<Entries<K>> = inner.collect();
            splits.extend(children.iter().flat_map(|node| &node[1..]).map(|(key, _)| *key));
            level = children.into_iter().flatten().map(|(_, child)| child).collect();
            if splits.len() >= wanted || level.is_empty() {
                break;
            }
        }
        splits.sort_unstable();
        splits.dedup();
        splits
    }

    /// Estimates the number of keys from some inner nodes of each level; reads a leaf only if it is the only one.
    pub fn estimated_keys(&self) -> u64 {
        let _pinned = self.pool.pin();
        let mut level = match ChildRef::decode(self.root.load(Ordering::Acquire)) {
            ChildRef::Leaf(leaf) => return self.leaf(leaf).map_or(0, |leaf| L::count::<K>(leaf) as u64),
            ChildRef::Inner(root) => vec![root],
        };
        let mut nodes = 1;
        for _ in 0..LEVELS_MAX {
            let sample: Vec<u64> =
                level.iter().copied().step_by(level.len().div_ceil(SAMPLED_NODES)).collect();
            let children: Vec<u64> = sample
                .iter()
                .filter_map(|reference| self.children_of(*reference))
                .flatten()
                .map(|(_, child)| child)
                .collect();
            nodes = children.len() as u64 * nodes / sample.len() as u64;
            let inner = children.iter().filter_map(|word| match ChildRef::decode(*word) {
                ChildRef::Inner(reference) => Some(reference),
                ChildRef::Leaf(_) => None,
            });
            level = inner.collect();
            if level.is_empty() {
                break;
            }
        }
        nodes * self.usual_leaf_keys()
    }

    /// Estimates the share of the keys that lie below `key`, in leaves before that of the key: 0 to 1. Cost: one
    /// descent to the leaf, which is not read.
    pub fn estimated_share_below(&self, key: K) -> f64 {
        let _pinned = self.pool.pin();
        let (mut share, mut width) = (0.0, 1.0);
        let mut word = self.root.load(Ordering::Acquire);
        for _ in 0..LEVELS_MAX {
            let ChildRef::Inner(reference) = ChildRef::decode(word) else { break };
            let Some(children) = self.children_of(reference) else { break };
            let at = children[1..].partition_point(|(separator, _)| *separator <= key);
            width /= children.len() as f64;
            share += at as f64 * width;
            word = children[at].1;
        }
        share
    }

    /// Counts sizes along the leaves. With concurrent writers it is an estimate.
    pub(crate) fn sizes(&self) -> TreeStats {
        let _pinned = self.pool.pin();
        let mut stats = TreeStats { inner_bytes: self.placement.bytes(), ..TreeStats::default() };
        let mut word = self.root.load(Ordering::Acquire);
        while let ChildRef::Inner(reference) = ChildRef::decode(word) {
            let Some(children) = self.children_of(reference) else { break };
            stats.levels += 1;
            word = children[0].1;
        }
        let mut at = self.first_leaf();
        while !at.is_null()
            && let Ok(leaf) = self.leaf(at)
        {
            stats.leaves += 1;
            stats.keys += L::count::<K>(leaf) as u64;
            at = leaf.load_offset(L::geometry::<K>().next);
        }
        stats
    }
}
