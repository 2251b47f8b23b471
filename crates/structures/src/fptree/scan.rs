//! Range scans along the leaves.

use super::FpTree;
use super::inner::{Child, InnerWords};
use crate::error::Result;
use crate::key::{KeyBytes, TreeKey};
use crate::latch;
use crate::leaf::{Leaf, bits};
use entresol_memory::Pool;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::Ordering as Memory;

/// Start of a scan or of its continuation.
enum ScanStart<'k, K: TreeKey> {
    Bound(Bound<K::Key<'k>>),
    /// After an entry that was visited.
    After(K::Stored),
}

impl<K: TreeKey> ScanStart<'_, K> {
    fn position(&self, pool: &Pool, node: &InnerWords<'_, K>) -> usize {
        match self {
            ScanStart::Bound(Bound::Unbounded) => 0,
            ScanStart::Bound(Bound::Included(key) | Bound::Excluded(key)) => node.position(pool, *key),
            ScanStart::After(stored) => node.position_of_stored(pool, *stored),
        }
    }

    fn admits(&self, pool: &Pool, stored: K::Stored) -> bool {
        match self {
            ScanStart::Bound(Bound::Unbounded) => true,
            ScanStart::Bound(Bound::Included(key)) => K::compare(pool, stored, *key) != Ordering::Less,
            ScanStart::Bound(Bound::Excluded(key)) => K::compare(pool, stored, *key) == Ordering::Greater,
            ScanStart::After(before) => K::compare_stored(pool, stored, *before) == Ordering::Greater,
        }
    }
}

impl<K: TreeKey> FpTree<K> {
    /// Appends the entries of one leaf from a key on, in key order; returns the key (inclusive) to continue
    /// from, or none at the end of the tree. Leaves without such entries are skipped.
    ///
    /// A key that exists throughout the scan is returned once; one that is inserted or removed meanwhile may
    /// be returned.
    pub fn scan_batch(
        &self,
        from: Bound<K::Key<'_>>,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        self.scan(from, 1, entries)
    }

    /// Same as [`FpTree::scan_batch`], leaf after leaf until there are at least `enough` entries more.
    pub fn scan(
        &self,
        from: Bound<K::Key<'_>>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        self.visit(from, enough, |stored, value| entries.push((K::to_bytes(&self.pool, stored), value)))
    }

    /// Same as [`FpTree::scan`], without copies: calls `visit` with stored keys and values. Records outside
    /// the nodes stay valid while `visit` runs, and longer only under the caller's own
    /// [pin](entresol_memory::Pool::pin). Cost: one descent, then consecutive leaves, the next of which is
    /// prefetched while one is sorted. An error where the tree is damaged: the entries visited before are
    /// right.
    pub fn visit(
        &self,
        from: Bound<K::Key<'_>>,
        enough: usize,
        mut visit: impl FnMut(K::Stored, u64),
    ) -> Result<Option<KeyBytes>> {
        let _pinned = self.pool.pin();
        let mut from = ScanStart::<K>::Bound(from);
        let mut visited = 0;
        let mut entries = Vec::with_capacity(Leaf::<K>::CAPACITY);
        let mut spins = 0;
        'descend: loop {
            let found = self.descend(|node| from.position(&self.pool, node))?;
            Leaf::<K>::prefetch_whole(&self.pool, found.leaf);
            let (mut at, mut version, mut is_first) = (found.leaf, found.version, true);
            loop {
                let (leaf, latch) = (self.leaf(at), self.stripes.of(at));
                let (next, bitmap) = (leaf.next(), leaf.bitmap() & Leaf::<K>::FULL);
                if !next.is_null() && visited + (bitmap.count_ones() as usize) < enough {
                    Leaf::<K>::prefetch_whole(&self.pool, next);
                }
                entries.clear();
                entries.extend(bits(bitmap).map(|slot| (leaf.key(slot), leaf.value(slot))));
                if !latch::validate(latch, version) {
                    latch::pause(&mut spins);
                    continue 'descend;
                }
                if is_first {
                    entries.retain(|(stored, _)| from.admits(&self.pool, *stored));
                }
                K::sort(&self.pool, &mut entries);
                entries.iter().for_each(|(stored, value)| visit(*stored, *value));
                visited += entries.len();
                if let Some((last, _)) = entries.last() {
                    from = ScanStart::After(*last);
                }
                if next.is_null() {
                    return Ok(None);
                }
                if self.segments_left() > 0 {
                    // The leaf may be in an unopened segment, whose pages are not verified yet.
                    self.sound_leaf(next)?;
                }
                // The next leaf's words first, then this one's version: it was the next leaf at that time.
                let resume = (visited >= enough).then(|| self.leaf(next).low());
                let next_version = latch::read(self.stripes.of(next));
                if !latch::validate(latch, version) {
                    continue 'descend;
                }
                if let Some(low) = resume {
                    // It changes under this leaf's latch only: its words belong together.
                    return Ok(Some(K::to_bytes(&self.pool, low)));
                }
                (at, version, is_first) = (next, next_version, false);
            }
        }
    }

    /// Number of inner levels above the leaves.
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
