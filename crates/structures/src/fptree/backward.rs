//! Scans in descending key order; and for planners, cut points that divide a scan among threads, and an
//! estimate of the number of keys.
//!
//! Leaves are linked in ascending order only. A scan descends once for each leaf: from a leaf's low key it
//! goes on with the last leaf below that.

use super::FpTree;
use super::inner::{Child, Inner};
use crate::error::Result;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::{Leaf, bits};
use entresol_memory::Pool;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::Ordering as Memory;

/// Inner nodes of a level that an estimate reads.
const SAMPLED_NODES: usize = 16;
/// Approximate number of leaves of an unopened segment.
const LEAVES_OF_SEGMENT: u64 = 37;

/// End of a scan, where it starts, or its continuation.
enum ScanEnd<'k, K: TreeKey> {
    Bound(Bound<K::Key<'k>>),
    /// Before the low key of a leaf that was visited.
    Before(K::Stored),
}

impl<K: TreeKey> ScanEnd<'_, K> {
    /// Last child with keys before the end.
    fn position(&self, pool: &Pool, node: &Inner<'_, K>) -> usize {
        match self {
            ScanEnd::Bound(Bound::Unbounded) => node.count() - 1,
            ScanEnd::Bound(Bound::Included(key)) => node.position(pool, *key),
            ScanEnd::Bound(Bound::Excluded(key)) => {
                node.position_by(|low| K::compare(pool, low, *key) == Ordering::Less)
            }
            ScanEnd::Before(end) => {
                node.position_by(|low| K::compare_stored(pool, low, *end) == Ordering::Less)
            }
        }
    }

    fn admits(&self, pool: &Pool, stored: K::Stored) -> bool {
        match self {
            ScanEnd::Bound(Bound::Unbounded) => true,
            ScanEnd::Bound(Bound::Included(key)) => K::compare(pool, stored, *key) != Ordering::Greater,
            ScanEnd::Bound(Bound::Excluded(key)) => K::compare(pool, stored, *key) == Ordering::Less,
            ScanEnd::Before(end) => K::compare_stored(pool, stored, *end) == Ordering::Less,
        }
    }
}

impl<K: TreeKey> FpTree<K> {
    /// Calls `visit` with stored keys and values before a key, in descending order, leaf after leaf until
    /// there were at least `enough`; returns the key (exclusive) to continue before, or none at the beginning
    /// of the tree. Otherwise as [`FpTree::visit`](super::FpTree::visit). Cost: a descent for each leaf.
    pub fn visit_back(
        &self,
        before: Bound<K::Key<'_>>,
        enough: usize,
        mut visit: impl FnMut(K::Stored, u64),
    ) -> Result<Option<KeyBytes>> {
        let _pinned = self.pool.pin();
        let mut end = ScanEnd::<K>::Bound(before);
        let mut entries = Vec::with_capacity(Leaf::<K>::CAPACITY);
        let (mut visited, mut spins) = (0, 0);
        loop {
            let found = self.descend(|node| end.position(&self.pool, node))?;
            Leaf::<K>::prefetch_whole(&self.pool, found.leaf);
            let leaf = self.leaf(found.leaf);
            let low = leaf.low();
            entries.clear();
            entries
                .extend(bits(leaf.bitmap() & Leaf::<K>::FULL).map(|slot| (leaf.key(slot), leaf.value(slot))));
            if !latch::validate(self.stripes.of(found.leaf), found.version) {
                latch::pause(&mut spins);
                continue;
            }
            entries.retain(|(stored, _)| end.admits(&self.pool, *stored));
            K::sort(&self.pool, &mut entries);
            entries.iter().rev().for_each(|(stored, value)| visit(*stored, *value));
            visited += entries.len();
            // The first leaf stays the first, and its low key means nothing.
            if found.leaf == self.first_leaf() {
                return Ok(None);
            }
            if visited >= enough {
                return Ok(Some(K::to_bytes(&self.pool, low)));
            }
            end = ScanEnd::Before(low);
        }
    }

    /// Returns the greatest key.
    pub fn last_key(&self) -> Result<Option<KeyBytes>> {
        let mut last = None;
        self.visit_back(Bound::Unbounded, 1, |stored, _| {
            last.get_or_insert(stored);
        })?;
        Ok(last.map(|stored| K::to_bytes(&self.pool, stored)))
    }

    /// Keys that divide the tree into parts of about equal size, in ascending order: those of the highest
    /// inner level with at least `wanted` of them, or of the lowest. Writers may move entries meanwhile.
    pub fn cut_points(&self, wanted: usize) -> Vec<KeyBytes> {
        let _pinned = self.pool.pin();
        let mut level = match Child::decode(self.root.load(Memory::Acquire)) {
            Child::Inner(root) => vec![root],
            Child::Leaf(_) | Child::Segment(_) => return Vec::new(),
        };
        let mut cuts: Vec<KeyBytes> = Vec::new();
        loop {
            let (mut keys, mut below) = (Vec::new(), Vec::new());
            for id in level {
                let node = self.inner.node(id);
                let version = latch::read(node.latch());
                let children: Vec<_> = (0..node.count()).map(|at| (node.key(at), node.child(at))).collect();
                if !latch::validate(node.latch(), version) {
                    // The cuts within this node are lost; those around it are right.
                    continue;
                }
                keys.extend(children[1..].iter().map(|(low, _)| K::to_bytes(&self.pool, *low)));
                below.extend(children.into_iter().filter_map(|(_, child)| match child {
                    Child::Inner(id) => Some(id),
                    Child::Leaf(_) | Child::Segment(_) => None,
                }));
            }
            cuts.append(&mut keys);
            if cuts.len() >= wanted || below.is_empty() {
                cuts.sort_unstable();
                cuts.dedup();
                return cuts;
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

    /// Keys of a leaf as random inserts fill it.
    const USUAL_KEYS: u64 = Leaf::<K>::CAPACITY as u64 * 3 / 4;
}
