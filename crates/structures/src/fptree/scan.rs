//! Range scans, a leaf at a time.

use super::FpTree;
use super::inner::Child;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::bits;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::Ordering as Memory;

impl<K: TreeKey> FpTree<K> {
    /// Appends the entries of one leaf from a key on, in key order; returns the key (inclusive) to go on from,
    /// or none at the end of the tree. Leaves without such entries are passed over.
    ///
    /// A key that is there throughout the scan is seen once; one that comes or goes meanwhile may be seen.
    pub fn scan_batch(
        &self,
        from: Bound<K::Key<'_>>,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Option<KeyBytes> {
        let _pinned = self.pool.pin();
        let before = entries.len();
        let mut resume = self.scan_leaf(from, entries);
        while entries.len() == before {
            let next = resume?;
            let key = K::from_bytes(&next).expect("a separator is a key");
            resume = self.scan_leaf(Bound::Included(key), entries);
        }
        resume
    }

    fn scan_leaf(&self, from: Bound<K::Key<'_>>, entries: &mut Vec<(KeyBytes, u64)>) -> Option<KeyBytes> {
        let mut spins = 0;
        loop {
            let (found, upper) = self.descend(
                |node| match from {
                    Bound::Included(key) | Bound::Excluded(key) => node.position(&self.pool, key),
                    Bound::Unbounded => 0,
                },
                // Lower nodes have the tighter bound, if they have one.
                |upper: &mut Option<K::Stored>, node, index| {
                    if index + 1 < node.count() {
                        *upper = Some(node.key(index + 1));
                    }
                },
            );
            let latch = self.stripes.of(found.leaf);
            let leaf = self.leaf(found.leaf);
            let mut slots: Vec<(K::Stored, u64)> =
                bits(leaf.bitmap()).map(|slot| (leaf.key(slot), leaf.value(slot))).collect();
            if !latch::validate(latch, found.version) {
                latch::pause(&mut spins);
                continue;
            }
            slots.retain(|(stored, _)| match from {
                Bound::Included(key) => K::compare(&self.pool, *stored, key) != Ordering::Less,
                Bound::Excluded(key) => K::compare(&self.pool, *stored, key) == Ordering::Greater,
                Bound::Unbounded => true,
            });
            // The leaf may have taken over its right neighbour's range meanwhile; that comes with the next leaf.
            if let Some(upper) = upper {
                slots.retain(|(stored, _)| K::compare_stored(&self.pool, *stored, upper) == Ordering::Less);
            }
            slots.sort_unstable_by(|a, b| K::compare_stored(&self.pool, a.0, b.0));
            entries.extend(slots.iter().map(|(stored, value)| (K::to_bytes(&self.pool, *stored), *value)));
            return upper.map(|stored| K::to_bytes(&self.pool, stored));
        }
    }

    /// The greatest key.
    pub fn last_key(&self) -> Option<KeyBytes> {
        let _pinned = self.pool.pin();
        let mut spins = 0;
        let last_leaf = loop {
            let (found, ()) = self.descend(last_child, |(), _, _| {});
            let leaf = self.leaf(found.leaf);
            let keys: Vec<K::Stored> = bits(leaf.bitmap()).map(|slot| leaf.key(slot)).collect();
            if latch::validate(self.stripes.of(found.leaf), found.version) {
                break keys;
            }
            latch::pause(&mut spins);
        };
        let last = last_leaf.into_iter().max_by(|a, b| K::compare_stored(&self.pool, *a, *b));
        match last {
            Some(stored) => Some(K::to_bytes(&self.pool, stored)),
            // Rare: the last leaf is empty (its release met a busy neighbour). Look at all leaves in order.
            None => self.last_key_by_scan(),
        }
    }

    fn last_key_by_scan(&self) -> Option<KeyBytes> {
        let mut entries = Vec::new();
        let mut last = None;
        let mut resume = self.scan_leaf(Bound::Unbounded, &mut entries);
        loop {
            if let Some((key, _)) = entries.pop() {
                last = Some(key);
            }
            entries.clear();
            let Some(next) = resume else { return last };
            let key = K::from_bytes(&next).expect("a separator is a key");
            resume = self.scan_leaf(Bound::Included(key), &mut entries);
        }
    }

    /// Inner levels above the leaves.
    pub(super) fn levels(&self) -> u32 {
        let mut levels = 0;
        let mut child = Child::decode(self.root.load(Memory::Acquire));
        while let Child::Inner(id) = child {
            levels += 1;
            child = self.inner.node(id).child(0);
        }
        levels
    }
}

fn last_child<K: TreeKey>(node: &super::inner::Inner<'_, K>) -> usize {
    node.count() - 1
}
