//! Scans in descending key order.
//!
//! Leaves are linked in ascending order only. A scan descends once for each leaf: from a leaf's low key it
//! goes on with the last leaf below that.

use super::FpTree;
use super::inner::InnerWords;
use crate::error::Result;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::{Leaf, bits};
use entresol_memory::Pool;
use std::cmp::Ordering;
use std::ops::Bound;

/// End of a scan, where it starts, or its continuation.
enum ScanEnd<'k, K: TreeKey> {
    Bound(Bound<K::Key<'k>>),
    /// Before the low key of a leaf that was visited.
    Before(K::Stored),
}

impl<K: TreeKey> ScanEnd<'_, K> {
    /// Last child with keys before the end.
    fn position(&self, pool: &Pool, node: &InnerWords<'_, K>) -> usize {
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
}
