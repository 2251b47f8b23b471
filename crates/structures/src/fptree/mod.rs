//! The FPTree (dissertation 3.2.2): hashing leaves in persistent memory, inner nodes in DRAM.
//!
//! ```text
//!            root latch ── inner ── inner ── ...        DRAM, rebuilt when needed
//!                            │        │
//!   header ── first leaf ── leaf ── leaf ── ... ── 0    pool, singly linked in key order
//! ```
//!
//! Invariants:
//! 1. The chain from the header holds every leaf once; each key is in the leaf with the greatest low key that
//!    is not greater than it (the first leaf has no low key: it takes everything below the second's).
//! 2. The separators in the inner nodes are exactly the low keys of all leaves but the first.
//! 3. A leaf's bitmap marks the valid entries; each key is valid once.
//!
//! Persistent changes, each one publication, so a crash leaves the tree before or after it:
//! - insert: entry and fingerprint flushed, then the bit (with the caller's allocations);
//! - replace: the value word; remove: the bit cleared;
//! - entries to a neighbour ([`neighbour`]): the entries flushed, then both bitmaps and the low key between
//!   together;
//! - split: the new leaf flushed, then its allocation, the old leaf's bitmap and next pointer together;
//! - entries behind all others ([`append_sorted`]): their leaves flushed, then all allocations and the link to the
//!   first of them together;
//! - the content of another tree ([`exchange`]): first leaf and sparse index of both headers together;
//! - release of a leaf with few entries, or none: the entries flushed into free slots of the predecessor,
//!   then its bitmap and next pointer, the leaf's entry in the sparse index and the freed leaf together.
//!
//! Opening reads the sparse index ([`sparse`]), which has one leaf of some forty; the inner nodes of the
//! segments in between are lazily loaded on first access, or in the background ([`opening`]).
//!
//! Concurrency: readers validate versions (optimistic lock coupling) and never write. A writer latches the
//! one leaf that it changes; splits and releases hold it until the inner nodes have changed too, and change
//! inner nodes one at a time (`structure`). A leaf's version is a latch from a DRAM stripe. A writer waits
//! for room in the journal before it takes a latch, so that no reader waits for the device.
//!
//! Memory: inner nodes take about 1 KiB for every 40 leaves; the stripes, which all trees of a pool share,
//! 128 KiB.

mod append_sorted;
mod apply_many;
mod backward;
mod batch;
mod check;
mod estimates;
mod exchange;
mod inner;
mod insert_many;
mod lifecycle;
mod neighbour;
mod opening;
mod scan;
mod seek;
mod sparse;
mod structure;
#[cfg(test)]
mod tests;

use crate::Inserted;
use crate::error::Result;
use crate::key::TreeKey;
use crate::latch::{self, LatchStripes};
use crate::leaf::{BITMAP_WORD, Leaf};
use crate::points::REPLACED_VALUE;
use entresol_memory::{DomainKind, Pool, PoolOffset, Publication};
pub(crate) use exchange::TakenContent;
use inner::{Arena, Child, InnerWords};
use opening::LeafSegment;
use parking_lot::Mutex;
use sparse::SparseIndex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A persistent B+-tree from keys to words; see the [module](self).
pub struct FpTree<K: TreeKey> {
    pool: Arc<Pool>,
    header: PoolOffset,
    root: AtomicU64,
    root_latch: AtomicU64,
    inner: Arena<K>,
    stripes: LatchStripes,
    /// Locked while inner nodes change. A thread that waits for it may hold leaf latches; its holder only
    /// tries them.
    structure: Mutex<Structure<K>>,
    /// Number of segments that are not opened. Changed under the structure lock.
    unopened: AtomicU64,
    limits: Limits,
}

/// State under the structure lock besides inner nodes.
struct Structure<K: TreeKey> {
    sparse: SparseIndex<K>,
    /// The segments as they were when the tree was opened, in the order of their keys; none once all are
    /// opened.
    segments: Vec<LeafSegment<K::Stored>>,
    /// Numbers of segments that background opening has still to try, the next last.
    to_open: Vec<u32>,
}

/// Sizes, which tests make small, and choices.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Children of an inner node, at most as many as fit.
    children_max: usize,
    /// A tree with at most this number of segments is loaded completely at open; of a larger one a segment is
    /// loaded, and damage in it found, when it is opened. 32 segments have some 1,200 leaves.
    segments_opened_at_once: usize,
    /// Entries of a page of the sparse index, at most as many as fit.
    page_entries_max: usize,
    /// True if full leaves move entries to neighbours before they are split.
    moves_to_neighbours: bool,
}

impl Limits {
    fn of<K: TreeKey>(domain: DomainKind) -> Limits {
        Limits {
            moves_to_neighbours: neighbour::pays_on(domain),
            children_max: InnerWords::<K>::CAPACITY,
            segments_opened_at_once: 32,
            page_entries_max: usize::MAX,
        }
    }
}

/// Sizes of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Keys.
    pub keys: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner levels.
    pub levels: u32,
    /// Bytes of inner nodes in DRAM.
    pub inner_bytes: usize,
}

/// Leaf at the end of a descent, and its version then.
struct LeafVersion {
    leaf: PoolOffset,
    version: u64,
}

impl<K: TreeKey> FpTree<K> {
    /// Returns the pool offset of the tree's header, for [`FpTree::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.header
    }

    /// Returns the pool of the tree.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    fn leaf(&self, offset: PoolOffset) -> Leaf<'_, K> {
        Leaf::at(&self.pool, offset)
    }

    /// Returns the leaf for a key. It was the key's leaf when its version was read.
    #[inline]
    fn find_leaf(&self, key: K::Key<'_>) -> Result<LeafVersion> {
        let found = self.descend(|node| node.position(&self.pool, key))?;
        Leaf::<K>::prefetch_home(&self.pool, found.leaf, K::fingerprint(key));
        Ok(found)
    }

    /// Descends by `choose`, the index of a node's child. An error if a segment on the path is damaged.
    #[inline]
    fn descend(&self, choose: impl Fn(&InnerWords<'_, K>) -> usize) -> Result<LeafVersion> {
        let mut spins = 0;
        'restart: loop {
            let mut parent_latch = &self.root_latch;
            let mut parent_version = latch::read(parent_latch);
            let mut child = Child::decode(self.root.load(Ordering::Relaxed));
            if !latch::validate(parent_latch, parent_version) {
                continue 'restart;
            }
            loop {
                match child {
                    Child::Leaf(leaf) => {
                        self.pool.prefetch(leaf);
                        let version = latch::read(self.stripes.of(leaf));
                        // The leaf's range changes under its latch and its parent's: both versions agree.
                        if latch::validate(parent_latch, parent_version) {
                            return Ok(LeafVersion { leaf, version });
                        }
                        break;
                    }
                    Child::Segment(_) => {
                        if latch::validate(parent_latch, parent_version) {
                            self.open_at(&choose)?;
                        }
                        break;
                    }
                    Child::Inner(id) => {
                        let node = self.inner.node(id);
                        let version = latch::read(node.latch());
                        if !latch::validate(parent_latch, parent_version) {
                            break;
                        }
                        child = node.child(choose(&node));
                        if !latch::validate(node.latch(), version) {
                            break;
                        }
                        (parent_latch, parent_version) = (node.latch(), version);
                    }
                }
            }
            latch::pause(&mut spins);
        }
    }

    /// Returns the value of a key. Cost: one descent in DRAM, two lines of persistent memory that are mostly
    /// loaded together. An error where the tree is damaged; a part of it that was reached once stays
    /// reachable.
    pub fn get(&self, key: K::Key<'_>) -> Result<Option<u64>> {
        let _pinned = self.pool.pin();
        self.get_pinned(key)
    }

    #[inline]
    fn get_pinned(&self, key: K::Key<'_>) -> Result<Option<u64>> {
        let mut spins = 0;
        loop {
            let found = self.find_leaf(key)?;
            let leaf = self.leaf(found.leaf);
            let value = leaf.find(&self.pool, key).map(|slot| leaf.value(slot));
            if latch::validate(self.stripes.of(found.leaf), found.version) {
                return Ok(value);
            }
            latch::pause(&mut spins);
        }
    }

    /// Latches a leaf, if it is unchanged since it was found.
    #[inline]
    fn try_lock_found(&self, found: &LeafVersion) -> Option<LatchedLeaf<'_, K>> {
        let latch = self.stripes.of(found.leaf);
        let latched = || LatchedLeaf { leaf: self.leaf(found.leaf), offset: found.leaf, latch };
        latch::try_lock_at(latch, found.version).then(latched)
    }

    /// Latches the leaf of a key.
    fn lock_leaf(&self, key: K::Key<'_>) -> Result<LatchedLeaf<'_, K>> {
        let mut spins = 0;
        loop {
            if let Some(latched) = self.try_lock_found(&self.find_leaf(key)?) {
                return Ok(latched);
            }
            latch::pause(&mut spins);
        }
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped. Cost: two
    /// flushed ranges and one publication; every 20 inserts or so entries move to another leaf.
    pub fn insert<'p>(&'p self, key: K::Key<'_>, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.insert_at(self.lock_leaf(key)?, key, value, with)
    }

    /// Same as [`FpTree::insert`], with the key's leaf latched.
    #[inline]
    fn insert_at<'p>(
        &'p self,
        mut latched: LatchedLeaf<'p, K>,
        key: K::Key<'_>,
        value: u64,
        mut with: Publication<'p>,
    ) -> Result<Inserted> {
        loop {
            let leaf = &latched.leaf;
            if let Some(slot) = leaf.find(&self.pool, key) {
                return Ok(Inserted::Exists(leaf.value(slot)));
            }
            let bitmap = leaf.bitmap();
            if bitmap & Leaf::<K>::FULL == Leaf::<K>::FULL {
                if !self.move_to_neighbour(&latched, key)? {
                    self.split(&latched, key)?;
                }
                drop(latched);
                latched = self.lock_leaf(key)?;
                continue;
            }
            let fingerprint = K::fingerprint(key);
            let slot = Leaf::<K>::free_slot(bitmap, fingerprint);
            let stored = K::place(&self.pool, key, &mut with)?;
            // Entry before bit: a crash leaves the entry complete, or without its bit.
            leaf.add_entry(slot, (stored, fingerprint), value, &mut with);
            with.publish()?;
            return Ok(Inserted::New);
        }
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old value. If the key
    /// is missing, `with` is dropped.
    pub fn replace<'p>(&'p self, key: K::Key<'_>, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.replace_at(&self.lock_leaf(key)?, key, value, with)
    }

    /// Same as [`FpTree::replace`], with the key's leaf latched.
    #[inline]
    fn replace_at<'p>(
        &'p self,
        latched: &LatchedLeaf<'p, K>,
        key: K::Key<'_>,
        value: u64,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let leaf = &latched.leaf;
        let Some(slot) = leaf.find(&self.pool, key) else { return Ok(None) };
        let old = leaf.value(slot);
        with.set_at(leaf.value_offset(slot), value, REPLACED_VALUE);
        with.publish()?;
        Ok(Some(old))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped. A leaf that becomes empty is freed; a nearly empty one is merged into the leaf before.
    pub fn remove<'p>(&'p self, key: K::Key<'_>, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.remove_at(&self.lock_leaf(key)?, key, with)
    }

    /// Same as [`FpTree::remove`], with the key's leaf latched.
    #[inline]
    fn remove_at<'p>(
        &'p self,
        latched: &LatchedLeaf<'p, K>,
        key: K::Key<'_>,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let leaf = &latched.leaf;
        let Some(slot) = leaf.find(&self.pool, key) else { return Ok(None) };
        let value = leaf.value(slot);
        let before = leaf.bitmap();
        assert!(before & (1 << slot) != 0, "slot {slot} of {:#x}, which was found, is valid", latched.offset);
        let bitmap = before & !(1 << slot);
        K::release(leaf.key(slot), &mut with);
        with.set(leaf.word_offset(BITMAP_WORD), bitmap);
        with.publish()?;
        if Self::is_to_merge(bitmap)
            && let Err(error) = self.release_leaf(latched)
        {
            // The key is removed all the same; the leaf stays.
            tracing::warn!(%error, "a leaf with few entries could not be freed");
        }
        Ok(Some(value))
    }
}

/// Leaf whose latch this thread holds; dropping it releases the latch.
struct LatchedLeaf<'t, K: TreeKey> {
    leaf: Leaf<'t, K>,
    offset: PoolOffset,
    latch: &'t AtomicU64,
}

impl<K: TreeKey> Drop for LatchedLeaf<'_, K> {
    fn drop(&mut self) {
        latch::unlock(self.latch);
    }
}
