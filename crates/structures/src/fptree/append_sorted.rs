//! Building bottom-up: entries behind all others fill new leaves.
//!
//! Leaves are written while nothing leads to them. One publication allocates as many of them as its updates
//! have room for, with the objects that their entries lead to, and links the first to the last leaf of the
//! chain. So a crash leaves a tree with all leaves of some publications, and nothing of the next one; what it
//! costs is a flush a leaf and a publication for hundreds of entries, where objects lie side by side.
//!
//! Memory: offset and low key of the leaves of a publication.

use super::FpTree;
use crate::error::Result;
use crate::key::TreeKey;
use crate::leaf::{LEAF_BYTES, Leaf, NEXT_WORD};
use crate::points::{BUILT_LEAF, BUILT_LEAVES_WITH_THEIR_LINK};
use entresol_memory::{PUBLICATION_WORDS_MAX, PoolOffset, Publication};

/// Maximum number of keys of one publication, whatever the number of its updates.
const KEYS_MAX: usize = 512;
/// Maximum number of updates that an entry adds: its object and a record of its key, a leaf and a record of the
/// low key of that; beside them the link.
const ENTRY_UPDATES_MAX: usize = 5;

/// Leaf that nothing leads to yet, with its entries so far.
struct FreshLeaf<'p, K: TreeKey> {
    leaf: Leaf<'p, K>,
    offset: PoolOffset,
    low: K::Stored,
    bitmap: u64,
}

impl<K: TreeKey> FpTree<K> {
    /// Entries of a leaf that is built: keys that come between later have room.
    const BUILT_ENTRIES: usize = Leaf::<K>::CAPACITY - Leaf::<K>::CAPACITY / 8;

    /// Adds keys that ascend, all above those of the tree, which has no other user. `carried` is called with the
    /// index of each key, in order; it returns the value and adds an allocation to the publication. After an
    /// error the first keys are added.
    pub fn append_sorted<'p>(
        &'p self,
        keys: &[K::Key<'_>],
        mut carried: impl FnMut(usize, &mut Publication<'p>) -> u64,
    ) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            self.pool.wait_for_room();
            let _pinned = self.pool.pin();
            let ahead = &keys[done..keys.len().min(done + KEYS_MAX)];
            done += self.append_some(ahead, done, &mut carried)?;
        }
        Ok(())
    }

    /// Adds a prefix of the keys, the first of which has index `place`; returns their number.
    fn append_some<'p>(
        &'p self,
        keys: &[K::Key<'_>],
        place: usize,
        carried: &mut impl FnMut(usize, &mut Publication<'p>) -> u64,
    ) -> Result<usize> {
        let pool = &*self.pool;
        let last = self.descend(|node| node.count() - 1)?.leaf;
        let before = self.leaf(last);
        assert_eq!(before.next(), PoolOffset::NULL, "leaves are built behind the last one");
        let mut with = pool.publication();
        let mut built: Vec<(K::Stored, PoolOffset)> = Vec::new();
        let mut fresh: Option<FreshLeaf<'p, K>> = None;
        let (mut added, mut previous) = (0, None);
        for &key in keys {
            if with.len() + ENTRY_UPDATES_MAX > PUBLICATION_WORDS_MAX {
                break;
            }
            assert!(
                previous.is_none_or(|previous| K::compare(pool, previous, key).is_lt()),
                "keys that are appended ascend"
            );
            let stored = K::place(pool, key, &mut with)?;
            let full = |leaf: &FreshLeaf<'p, K>| leaf.bitmap.count_ones() as usize >= Self::BUILT_ENTRIES;
            if fresh.as_ref().is_none_or(full) {
                let next = self.fresh_leaf(stored, &mut with)?;
                fresh.take().into_iter().for_each(|leaf| leaf.finish(next.offset));
                built.push((next.low, next.offset));
                fresh = Some(next);
            }
            let leaf = fresh.as_mut().expect("there is a leaf with room");
            let value = carried(place + added, &mut with);
            leaf.bitmap = leaf.leaf.put_fresh(leaf.bitmap, (stored, K::fingerprint(key)), value);
            previous = Some(stored);
            added += 1;
        }
        fresh.into_iter().for_each(|leaf| leaf.finish(PoolOffset::NULL));
        with.barrier(BUILT_LEAVES_WITH_THEIR_LINK);
        with.set(before.word_offset(NEXT_WORD), built[0].1.to_word());
        with.publish()?;
        built.into_iter().for_each(|(low, leaf)| self.add_separator(low, leaf));
        Ok(added)
    }

    fn fresh_leaf<'p>(&'p self, first: K::Stored, with: &mut Publication<'p>) -> Result<FreshLeaf<'p, K>> {
        let low = K::duplicate(&self.pool, first, with)?;
        let reservation = self.pool.reserve(LEAF_BYTES)?;
        let leaf = Leaf::<K>::at(&self.pool, reservation.offset());
        leaf.clear();
        let offset = with.allocate(reservation);
        Ok(FreshLeaf { leaf, offset, low, bitmap: 0 })
    }
}

impl<K: TreeKey> FreshLeaf<'_, K> {
    fn finish(self, next: PoolOffset) {
        debug_assert_ne!(self.bitmap, 0, "a leaf that is built has entries");
        self.leaf.complete_fresh(self.bitmap, self.low, next);
        self.leaf.flush_whole(BUILT_LEAF);
    }
}
