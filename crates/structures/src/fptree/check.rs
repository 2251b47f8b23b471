//! Sizes and invariants of a tree.

use super::sparse::{PAGE_BYTES, SparseIndex};
use super::{FpTree, TreeStats};
use crate::error::{Error, Result};
use crate::key::TreeKey;
use crate::leaf::{LEAF_BYTES, Leaf, bits};
use entresol_memory::{Pool, PoolOffset};
use std::cmp::Ordering;

impl<K: TreeKey> FpTree<K> {
    /// Counts sizes. Cost: one line of every leaf. With concurrent writers it is an estimate.
    pub fn stats(&self) -> TreeStats {
        let mut stats =
            TreeStats { levels: self.levels(), inner_bytes: self.inner.bytes(), ..TreeStats::default() };
        let _pinned = self.pool.pin();
        let mut at = self.first_leaf();
        while !at.is_null() {
            let leaf = self.leaf(at);
            stats.leaves += 1;
            stats.keys += u64::from(leaf.bitmap().count_ones());
            at = leaf.next();
        }
        stats
    }

    /// Verifies all invariants of the tree; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the tree consists of (not those that its values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        let corrupt = |offset: PoolOffset, message: String| Err(Error::Corrupt { offset, message });
        object(self.header);
        let mut at = self.first_leaf();
        let mut previous: Option<K::Stored> = None;
        let mut is_first = true;
        while !at.is_null() {
            object(at);
            let leaf = self.leaf(at);
            if !is_first {
                self.objects_of_key(leaf.low(), &mut object);
                if previous.is_some_and(|key| self.order(key, leaf.low()) != Ordering::Less) {
                    return corrupt(at, "its low key is not above the keys before".to_string());
                }
            }
            if leaf.bitmap() & !Leaf::<K>::FULL != 0 {
                return corrupt(
                    at,
                    format!("its bitmap {:#x} has bits of slots that do not exist", leaf.bitmap()),
                );
            }
            for (key, slot) in leaf.sorted_slots(&self.pool) {
                self.objects_of_key(key, &mut object);
                if !is_first && self.order(key, leaf.low()) == Ordering::Less {
                    return corrupt(at, format!("the key in slot {slot} is below the leaf's low key"));
                }
                if previous.is_some_and(|before| self.order(before, key) != Ordering::Less) {
                    return corrupt(at, format!("the key in slot {slot} is not above the one before"));
                }
                previous = Some(key);
                let bytes = K::to_bytes(&self.pool, key);
                if self.get_pinned(K::from_bytes(&bytes)?)? != Some(leaf.value(slot)) {
                    return corrupt(at, format!("the key in slot {slot} is not found from the root"));
                }
            }
            is_first = false;
            at = leaf.next();
        }
        self.check_sparse(&mut object)
    }

    /// Verifies all invariants of a tree that may be damaged anywhere; there must be no concurrent writers.
    /// `claim` is called with offset and bytes of every object of the tree, and returns an error text for a
    /// wrong one. Only if all of them are sound, `entry` gets the keys and values.
    pub fn check_damaged(
        &self,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        Self::claim_objects(&self.pool, self.header, claim)?;
        // All references below are verified now.
        self.check(|_| {})?;
        Self::for_each_entry(&self.pool, self.first_leaf(), entry);
        Ok(())
    }

    /// Same as [`FpTree::check_damaged`] for a tree partly freed by [`FpTree::destroy_step`]. It is not
    /// opened for that: opening may add to the sparse index, and a tree in destruction must not grow.
    pub fn check_remains(
        pool: &Pool,
        header: PoolOffset,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        entry: impl FnMut(&[u8], u64),
    ) -> Result<()> {
        Self::claim_objects(pool, header, claim)?;
        Self::for_each_entry(pool, Self::first_leaf_of(pool, header), entry);
        Ok(())
    }

    /// Claims header, leaves, records of keys and pages of the sparse index.
    fn claim_objects(
        pool: &Pool,
        header: PoolOffset,
        mut claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let corrupt = |offset: PoolOffset, message: String| Error::Corrupt { offset, message };
        claim(header, 16).map_err(|message| corrupt(header, message))?;
        let mut at = Self::first_leaf_of(pool, header);
        let mut is_first = true;
        while !at.is_null() {
            // A cycle ends here: its first leaf is claimed a second time.
            claim(at, LEAF_BYTES as u64).map_err(|message| corrupt(at, message))?;
            let leaf = Self::sound_leaf_at(pool, at)?;
            let low = (!is_first).then(|| leaf.low());
            for key in low.into_iter().chain(bits(leaf.bitmap()).map(|slot| leaf.key(slot))) {
                if let Some((record, bytes)) = K::check(pool, key).map_err(|message| corrupt(at, message))? {
                    claim(record, bytes).map_err(|message| corrupt(at, message))?;
                }
            }
            is_first = false;
            at = leaf.next();
        }
        if !Self::has_sparse_index(pool, header) {
            return Ok(());
        }
        SparseIndex::<K>::for_each_page(pool, header, |page, _| {
            claim(page, PAGE_BYTES as u64).map_err(|message| corrupt(page, message))
        })
    }

    /// Calls `entry` with the keys and values of a chain of sound leaves.
    fn for_each_entry(pool: &Pool, first: PoolOffset, mut entry: impl FnMut(&[u8], u64)) {
        let mut at = first;
        while !at.is_null() {
            let leaf = Leaf::<K>::at(pool, at);
            for slot in bits(leaf.bitmap()) {
                entry(&K::to_bytes(pool, leaf.key(slot)), leaf.value(slot));
            }
            at = leaf.next();
        }
    }

    fn order(&self, left: K::Stored, right: K::Stored) -> Ordering {
        K::compare_stored(&self.pool, left, right)
    }

    /// Calls `object` with the objects that a stored key has outside the node.
    fn objects_of_key(&self, key: K::Stored, object: &mut impl FnMut(PoolOffset)) {
        if let Some(record) = K::record_offset(key) {
            object(record);
        }
    }
}
