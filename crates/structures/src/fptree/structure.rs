//! Splitting, merging and freeing leaves, and the changes of inner nodes.
//!
//! Every writer of a leaf has come through its inner node: no unopened segment is touched, except the one
//! before a leaf that is freed, which is opened first.
//!
//! Inner nodes change one operation at a time, under the `structure` mutex. All nodes of an operation are
//! latched before the first changes and unlatched after the last has: a reader sees all of them before or all
//! after, or starts again.

use super::inner::{Child, InnerWords};
use super::sparse::SparseIndex;
use super::{FpTree, LatchedLeaf, Structure};
use crate::error::Result;
use crate::key::TreeKey;
use crate::latch;
use crate::leaf::{BITMAP_WORD, LEAF_BYTES, Leaf, NEXT_WORD, bits};
use crate::points::{
    MERGED_WITH_ITS_FREEING, NEW_LEAF, NEW_LEAF_LEADS_ON, NEW_LEAF_WITH_ITS_LINK, SPARSE_ENTRY_GOES,
    SPLIT_IN_ONE, UNLINKED_WITH_ITS_FREEING,
};
use entresol_memory::order::{step, value};
use entresol_memory::{PoolOffset, Publication};
use std::sync::atomic::{AtomicU64, Ordering};

/// Inner nodes from the root to the parent of a leaf, with the index of the next child on the path.
pub(super) type ChildPath = Vec<(u32, usize)>;

impl<K: TreeKey> FpTree<K> {
    /// Free slots of a leaf after a merge into it: it is not split soon.
    const ROOM_AFTER_MERGE: usize = Leaf::<K>::CAPACITY / 4;
    /// Entries that move to a new last leaf for a key behind all others.
    const MOVED_AT_THE_END: usize = Leaf::<K>::CAPACITY / 8;

    /// Returns true if a leaf that lost an entry is to be merged into the leaf before: when it is empty, and
    /// twice on the way there, so that removing keys one by one does not read the leaf before each time.
    pub(super) fn is_to_merge(bitmap: u64) -> bool {
        let entries = bitmap.count_ones() as usize;
        [0, Leaf::<K>::CAPACITY / 8, Leaf::<K>::CAPACITY / 4].contains(&entries)
    }

    /// Moves the upper half of a full, latched leaf to a new one: room for a key. A key behind all others of
    /// the tree leaves most of them in place, since more such keys are likely to follow.
    pub(super) fn split(&self, latched: &LatchedLeaf<'_, K>, key: K::Key<'_>) -> Result<()> {
        let (leaf, pool) = (&latched.leaf, &*self.pool);
        let is_last = leaf.next().is_null()
            && bits(leaf.bitmap()).all(|slot| K::compare(pool, leaf.key(slot), key).is_lt());
        let staying =
            if is_last { Leaf::<K>::CAPACITY - Self::MOVED_AT_THE_END } else { Leaf::<K>::CAPACITY / 2 };
        let parted = leaf.parted_slots(pool, staying);
        let (lower, upper) = parted.split_at(staying);
        let keep = lower.iter().fold(0, |bitmap, (_, slot)| bitmap | 1u64 << slot);
        assert!(
            parted.len() == Leaf::<K>::CAPACITY && keep.count_ones() as usize == staying,
            "a full leaf is split: {} entries, of which {staying} stay",
            parted.len()
        );
        let mut publication = pool.publication();
        let low = K::duplicate(pool, upper[0].0, &mut publication)?;
        let reservation = pool.reserve(LEAF_BYTES)?;
        let fresh = Leaf::<K>::at(pool, reservation.offset());
        let next = value(leaf.next(), PoolOffset::NULL, NEW_LEAF_LEADS_ON);
        fresh.fill_from(leaf, upper.iter().map(|(_, slot)| *slot), low, next);
        pool.flush_at(reservation.offset(), LEAF_BYTES, NEW_LEAF);
        // One publication: a crash leaves all entries in the old leaf, or each in its new place.
        let right = publication.allocate(reservation);
        assert_ne!(right, latched.offset, "the new leaf is another one");
        publication.barrier(NEW_LEAF_WITH_ITS_LINK);
        publication.set(leaf.word_offset(NEXT_WORD), right.to_word());
        publication.barrier(SPLIT_IN_ONE);
        publication.set(leaf.word_offset(BITMAP_WORD), keep);
        publication.publish()?;
        self.add_separator(low, right);
        Ok(())
    }

    /// Removes a latched leaf with few entries, or none, from the inner nodes and the chain and frees it; its
    /// entries move to the leaf before. It stays if it is the first, or its predecessor is latched or would
    /// be nearly full.
    pub(super) fn release_leaf(&self, latched: &LatchedLeaf<'_, K>) -> Result<()> {
        if self.first_leaf() == latched.offset {
            return Ok(());
        }
        let mut structure = self.structure.lock();
        let path = self.path_to(latched.leaf.low());
        let Some(before) = self.leaf_before(&mut structure, &path)? else { return Ok(()) };
        assert_ne!(before, latched.offset, "a leaf is not before itself");
        let before_latch = self.stripes.of(before);
        let shared_stripe = std::ptr::eq(before_latch, latched.latch);
        if !shared_stripe && !latch::try_lock(before_latch) {
            return Ok(());
        }
        let released = self.release_into(&self.leaf(before), latched, &path);
        if !shared_stripe {
            latch::unlock(before_latch);
        }
        if let Some((node, place)) = released? {
            node.set_sparse_place(PoolOffset::NULL);
            structure.sparse.add_free(place);
        }
        Ok(())
    }

    /// Same as [`FpTree::release_leaf`], with both leaves latched. Returns the inner node whose entry of the
    /// sparse index becomes free, and the entry's offset.
    fn release_into(
        &self,
        previous: &Leaf<'_, K>,
        latched: &LatchedLeaf<'_, K>,
        path: &ChildPath,
    ) -> Result<Option<(InnerWords<'_, K>, PoolOffset)>> {
        let leaf = &latched.leaf;
        assert_eq!(previous.next(), latched.offset, "the leaf before leads to the leaf");
        let entries = leaf.bitmap().count_ones() as usize;
        if entries > 0 && previous.room() < entries + Self::ROOM_AFTER_MERGE {
            return Ok(None);
        }
        // One publication: a crash leaves all entries in their leaf, or in the one before.
        let mut publication = self.pool.publication();
        publication.set(previous.word_offset(NEXT_WORD), leaf.next().to_word());
        publication.barrier(UNLINKED_WITH_ITS_FREEING);
        K::release(leaf.low(), &mut publication);
        publication.free(latched.offset);
        let freed_place = self.release_sparse(path, &mut publication);
        if entries > 0 {
            let arrived = previous.take_over(leaf, bits(leaf.bitmap()), &mut publication);
            debug_assert!(arrived.count_ones() as usize >= entries, "all entries move to the leaf before");
            publication.barrier(MERGED_WITH_ITS_FREEING);
            publication.set(previous.word_offset(BITMAP_WORD), arrived);
        }
        // Errors of the publication are found before anything changes.
        let publication = publication.ready()?;
        // Unreachable first: the memory may be reused once all guards that the publication preceded are
        // dropped. Readers of the leaf before wait for its latch.
        self.remove_child(path);
        publication.publish();
        Ok(freed_place)
    }

    /// Moves the sparse index entry of the leaf at the end of the path to the next leaf, if that is in the
    /// same inner node, or removes it. Returns the inner node and the entry's offset if it becomes free.
    fn release_sparse(
        &self,
        path: &ChildPath,
        with: &mut Publication<'_>,
    ) -> Option<(InnerWords<'_, K>, PoolOffset)> {
        let &(id, _) = path.last().filter(|(_, index)| *index == 0)?;
        let node = self.inner.node(id);
        let place = node.sparse_place().non_null()?;
        let next = match (node.count() > 1).then(|| node.child(1)) {
            Some(Child::Leaf(leaf)) => Some((node.key(1), leaf)),
            _ => None,
        };
        debug_assert!(
            next.is_none_or(|(_, leaf)| !leaf.is_null() && leaf.is_aligned(64)),
            "an entry of the sparse index names a leaf: {next:?}"
        );
        step(SPARSE_ENTRY_GOES, || SparseIndex::<K>::release(place, next, with));
        if next.is_some() {
            return None;
        }
        Some((node, place))
    }

    fn path_to(&self, key: K::Stored) -> ChildPath {
        self.path_by(|node| node.position_of_stored(&self.pool, key)).0
    }

    /// Descends by `choose`; returns the path and its end: a leaf or a segment. Under the structure lock.
    pub(super) fn path_by(&self, choose: impl Fn(&InnerWords<'_, K>) -> usize) -> (ChildPath, Child) {
        let mut path = ChildPath::new();
        let mut child = Child::decode(self.root.load(Ordering::Acquire));
        while let Child::Inner(id) = child {
            let node = self.inner.node(id);
            let index = choose(&node);
            child = node.child(index);
            path.push((id, index));
        }
        (path, child)
    }

    /// Returns the leaf to the left of the one that the path leads to.
    fn leaf_before(&self, structure: &mut Structure<K>, path: &ChildPath) -> Result<Option<PoolOffset>> {
        let Some(turn) = path.iter().rposition(|(_, index)| *index > 0) else { return Ok(None) };
        let mut before = path[..=turn].to_vec();
        before[turn].1 -= 1;
        loop {
            let (id, index) = before[before.len() - 1];
            match self.inner.node(id).child(index) {
                Child::Leaf(leaf) => return Ok(Some(leaf)),
                Child::Inner(id) => before.push((id, self.inner.node(id).count() - 1)),
                Child::Segment(number) => self.open_locked(structure, &before, number)?,
            }
        }
    }

    /// Makes a new leaf reachable: adds its low key and its offset beside the leaf that was split.
    pub(super) fn add_separator(&self, low: K::Stored, leaf: PoolOffset) {
        debug_assert!(!leaf.is_null() && leaf.is_aligned(64), "{leaf:#x} is not a leaf");
        let mut structure = self.structure.lock();
        let path = self.path_to(low);
        let full = path.iter().rev().take_while(|(id, _)| self.is_full(*id)).count();
        let root_grows = full == path.len();
        debug_assert!(full <= path.len(), "no more nodes are full than there are");
        let touched = path.len() - full - usize::from(!root_grows);
        let latches = self.latch_path(&path[touched..], root_grows);
        let (mut key, mut right) = (low, Child::Leaf(leaf));
        let mut placed = false;
        let mut halved = None;
        for (id, index) in path.iter().rev() {
            let node = self.inner.node(*id);
            if node.count() < self.limits.children_max {
                node.insert_after(*index, key, right);
                placed = true;
                break;
            }
            let (fresh_id, fresh) = self.inner.allocate();
            key = node.split_insert(&fresh, *index, key, right);
            // The first split is that of the leaves' parent.
            halved.get_or_insert((fresh_id, key));
            right = Child::Inner(fresh_id);
        }
        if !placed {
            assert!(root_grows, "only a tree whose nodes on the path are all full gets another level");
            let left = Child::decode(self.root.load(Ordering::Relaxed));
            let (id, node) = self.inner.allocate();
            // The first low key is ignored; any will do.
            node.fill(&[(key, left), (key, right)]);
            self.root.store(Child::Inner(id).encode(), Ordering::Release);
        }
        unlatch(&latches);
        if let Some((fresh, low)) = halved {
            self.add_to_sparse(&mut structure, fresh, low);
        }
    }

    fn is_full(&self, id: u32) -> bool {
        self.inner.node(id).count() >= self.limits.children_max
    }

    /// Removes the leaf at the end of the path from the inner nodes. It is not the first leaf, so some node
    /// on the path has a child to the left of the path.
    fn remove_child(&self, path: &ChildPath) {
        assert!(!path.is_empty(), "a leaf that is removed has an inner node");
        // Nodes that only lead to the leaf are freed as well: the lowest with another child loses one child.
        let lowest = path.iter().rposition(|(id, _)| self.inner.node(*id).count() > 1);
        let lowest = lowest.expect("the tree has another leaf");
        let (id, index) = path[lowest];
        // If the first child is removed, the keys between its low key and the next child's belong to the left
        // neighbour: the separator above must change.
        let above = (index == 0).then(|| {
            let turn = path[..lowest].iter().rposition(|(_, index)| *index > 0);
            turn.expect("only the first leaf has nothing to its left")
        });
        let root_shrinks = self.inner.node(path[0].0).count() == 2 && lowest == 0;
        debug_assert!(index < self.inner.node(id).count(), "the path leads to a child of its last node");
        let mut latches = self.latch_path(&path[above.unwrap_or(lowest)..], root_shrinks);
        let new_low = self.inner.node(id).remove(index);
        if let (Some(above), Some(new_low)) = (above, new_low) {
            let (id, index) = path[above];
            self.inner.node(id).set_key(index, new_low);
        }
        let mut freed: Vec<u32> = path[lowest + 1..].iter().map(|(id, _)| *id).collect();
        if root_shrinks {
            freed.push(path[0].0);
            let mut only = self.inner.node(path[0].0).child(0);
            // Nodes below that have a single child as well are not needed at the top either.
            while let Child::Inner(id) = only
                && self.inner.node(id).count() == 1
            {
                let node = self.inner.node(id);
                latch::lock_alone(node.latch());
                latches.push(node.latch());
                freed.push(id);
                only = node.child(0);
            }
            self.root.store(only.encode(), Ordering::Release);
        }
        unlatch(&latches);
        for id in freed {
            self.inner.free(id);
        }
    }

    fn latch_path(&self, path: &[(u32, usize)], with_root: bool) -> Vec<&AtomicU64> {
        let root = with_root.then_some(&self.root_latch);
        let nodes = path.iter().map(|(id, _)| self.inner.node(*id).latch());
        let latches: Vec<&AtomicU64> = root.into_iter().chain(nodes).collect();
        latches.iter().for_each(|latch| latch::lock_alone(latch));
        latches
    }
}

fn unlatch(latches: &[&AtomicU64]) {
    latches.iter().for_each(|latch| latch::unlock(latch));
}
