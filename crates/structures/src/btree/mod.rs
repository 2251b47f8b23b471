//! One B+-tree for all layouts: generic over the layout of its leaves, the layout of its inner nodes, and the
//! placement of the inner nodes (dissertation 3.2.2). The designs of the papers are [instances](instances) of
//! it.
//!
//! ```text
//!  part           file            responsibility
//!  layouts        ../node         changes of one node, failure-atomically
//!  placement      placement.rs    inner nodes in the pool or in DRAM
//!  the tree       the others      changes of several nodes
//!
//!            root ── inner ── inner ── ...          pool, or DRAM and rebuilt at open
//!                      │        │
//!  header ── first leaf ── leaf ── leaf ── ... ── 0     pool, linked in key order
//! ```
//!
//! Invariants:
//! 1. Every leaf is in the chain from the header once, and below the root once, in the same order.
//! 2. A leaf but the first has a *low key*, which is the separator above it. Its keys are not below its low
//!    key and are below that of the next leaf.
//! 3. A separator is beside the child with the keys from it on; the child before the first separator is the
//!    node's *leftmost*. All leaves have the same depth.
//!
//! **After a crash.** Every change of a single node is that layout's own ([`crate::node`]). A split, merge,
//! balance, growth or loss of a root prepares its nodes without changing their entries and commits all of
//! them, the links and the allocations in one publication: recovery finds the tree before it or after it, and
//! has nothing to repair. A split of several levels is one such step a level, from the top down: full inner
//! nodes are split first, which changes no range. A merge of several levels goes from the bottom up: in
//! between there is an inner node with few entries, or a root with one child, which is allowed and harmless.
//! In DRAM the inner nodes change after the publication; at open they are rebuilt from the leaves' low keys.
//!
//! **Concurrency.** Readers validate versions (optimistic lock coupling) and never write. A writer latches
//! its one leaf. Splits and merges hold it, and change inner nodes one operation at a time (`structure`); the
//! holder of that mutex only tries further leaf latches, and leaves a node with few entries as it is if that
//! fails. Latches are in DRAM.
//!
//! Memory: inner nodes in DRAM, if they are there, reserved in the pool's memory budget; 128 KiB of latches for
//! persistent ones. The latches of leaves are the pool's, which all of its trees share.

mod apply_many;
mod batch;
mod check;
mod estimates;
pub mod instances;
mod lifecycle;
mod load;
mod placement;
mod scan;
mod structure;
mod underflow;

pub use placement::{Dram, Persistent, Placement};

use crate::Inserted;
use crate::error::{Error, Result};
use crate::latch::{self, LatchStripes};
use crate::node::{FixedKey, Layout, Medium, Node};
use entresol_memory::{Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use placement::{ChildRef, check_offset};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bound on the levels of a sound tree.
const LEVELS_MAX: usize = 32;

/// Type parameters of a tree, without values of them.
type TreeTypes<K, L, I> = PhantomData<fn() -> (K, L, I)>;

/// A persistent ordered map from keys to words; see the [module](self). `L` is the layout of leaves, `I` that
/// of inner nodes, and `P` the placement of inner nodes.
pub struct BTree<K: FixedKey, L: Layout, I: Layout, P: Placement> {
    pool: Arc<Pool>,
    header: PoolOffset,
    root: AtomicU64,
    root_latch: AtomicU64,
    placement: P,
    latches: LatchStripes,
    /// Locked while inner nodes change. A thread that waits for it may hold a leaf latch; its holder only
    /// tries them.
    structure: Mutex<()>,
    handles_underflow: AtomicBool,
    kinds: TreeTypes<K, L, I>,
}

/// Sizes of a [`BTree`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BTreeStats {
    /// Keys.
    pub keys: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Inner levels.
    pub levels: u32,
    /// Bytes of nodes in the pool.
    pub pool_bytes: u64,
    /// Bytes of nodes in DRAM.
    pub dram_bytes: u64,
}

/// Leaf at the end of a descent, its version then, and its low key, if it has one.
struct LeafTarget<K> {
    leaf: PoolOffset,
    version: u64,
    low: Option<K>,
}

/// Leaf whose latch this thread holds; dropping it releases the latch.
struct LeafGuard<'t> {
    node: Node<'t>,
    offset: PoolOffset,
    latch: &'t AtomicU64,
}

impl Drop for LeafGuard<'_> {
    fn drop(&mut self) {
        latch::unlock(self.latch);
    }
}

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Returns the pool offset of the tree's header, for [`BTree::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.header
    }

    /// Returns the pool of the tree.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sets if leaves and inner nodes with less than half of their entries are merged or balanced with a
    /// neighbour. Without (the default), empty ones are freed. May be changed at any time.
    pub fn set_underflow_handling(&self, on: bool) {
        self.handles_underflow.store(on, Ordering::Relaxed);
    }

    #[inline]
    fn leaf(&self, offset: PoolOffset) -> Result<Node<'_>> {
        check_offset(&self.pool, offset, L::BYTES)?;
        Ok(Node::new(self.pool.words(offset, L::BYTES / 8), offset))
    }

    /// Returns a leaf to prefetch: a modelled pool charges its lines when they are read.
    #[inline]
    fn leaf_to_prefetch(&self, offset: PoolOffset) -> Result<Node<'_>> {
        check_offset(&self.pool, offset, L::BYTES)?;
        Ok(Node::new(self.pool.view(offset, L::BYTES / 8), offset))
    }

    #[inline]
    fn inner(&self, reference: u64) -> Result<Node<'_>> {
        self.placement.node(&self.pool, reference)
    }

    #[inline]
    fn inner_latch<'t>(&'t self, node: Node<'t>, reference: u64) -> &'t AtomicU64 {
        self.placement.latch(node, reference, I::geometry::<K>().spare + 1)
    }

    #[inline]
    fn leaf_latch(&self, offset: PoolOffset) -> &AtomicU64 {
        self.latches.numbered(offset.block_number(L::BYTES as u64))
    }

    /// Returns the medium of changes of inner nodes.
    fn inner_medium<'m, 'p>(&'p self, with: &'m mut Publication<'p>) -> Medium<'m, 'p> {
        if P::PERSISTENT { Medium::Pool(&self.pool, with) } else { Medium::Dram }
    }

    /// Returns the child of an inner node for a key, and the separator beside it.
    #[inline]
    fn child_for(node: Node<'_>, key: K) -> (u64, Option<K>) {
        let geometry = I::geometry::<K>();
        match I::floor(node, key) {
            Some(slot) => (node.value(geometry, slot), Some(node.key(geometry, slot))),
            None => (node.load(geometry.spare), None),
        }
    }

    /// Returns the leaf for a key. It was the key's leaf when its version was read.
    #[inline]
    fn descend(&self, key: K) -> Result<LeafTarget<K>> {
        let mut spins = 0;
        loop {
            if let Some(found) = self.try_descend(key)? {
                return Ok(found);
            }
            latch::pause(&mut spins);
        }
    }

    /// One attempt of [`BTree::descend`]; none on a conflict with a writer.
    #[inline]
    fn try_descend(&self, key: K) -> Result<Option<LeafTarget<K>>> {
        let mut parent = &self.root_latch;
        let mut parent_version = latch::read(parent);
        let mut word = self.root.load(Ordering::Relaxed);
        let mut low = None;
        for _ in 0..LEVELS_MAX {
            if !latch::validate(parent, parent_version) {
                return Ok(None);
            }
            match ChildRef::decode(word) {
                ChildRef::Leaf(leaf) => {
                    L::prefetch(self.leaf_to_prefetch(leaf)?, key);
                    let version = latch::read(self.leaf_latch(leaf));
                    // A leaf's range changes under its latch and its parent's: both versions agree.
                    let found = LeafTarget { leaf, version, low };
                    return Ok(latch::validate(parent, parent_version).then_some(found));
                }
                ChildRef::Inner(reference) => {
                    let node = self.inner(reference)?;
                    let own = self.inner_latch(node, reference);
                    let version = latch::read(own);
                    if !latch::validate(parent, parent_version) {
                        return Ok(None);
                    }
                    let (child, separator) = Self::child_for(node, key);
                    (word, low) = (child, separator.or(low));
                    (parent, parent_version) = (own, version);
                }
            }
        }
        // Words read during a write may lead to a wrong node; a sound tree is not that deep.
        if !latch::validate(parent, parent_version) {
            return Ok(None);
        }
        Err(Error::Corrupt { offset: self.header, message: format!("it has more than {LEVELS_MAX} levels") })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: K) -> Result<Option<u64>> {
        let _pinned = self.pool.pin();
        self.get_pinned(key)
    }

    #[inline]
    fn get_pinned(&self, key: K) -> Result<Option<u64>> {
        let mut spins = 0;
        loop {
            let found = self.descend(key)?;
            let node = self.leaf(found.leaf)?;
            let value = L::find(node, key).map(|slot| node.value(L::geometry::<K>(), slot));
            if latch::validate(self.leaf_latch(found.leaf), found.version) {
                return Ok(value);
            }
            latch::pause(&mut spins);
        }
    }

    /// Latches the leaf of a key.
    fn lock_leaf(&self, key: K) -> Result<LeafGuard<'_>> {
        let mut spins = 0;
        loop {
            let found = self.descend(key)?;
            let latch = self.leaf_latch(found.leaf);
            if latch::try_lock_at(latch, found.version) {
                let latched = LeafGuard { node: self.leaf(found.leaf)?, offset: found.leaf, latch };
                return Ok(latched);
            }
            latch::pause(&mut spins);
        }
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped.
    pub fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.insert_at(self.lock_leaf(key)?, key, with, |_| value)
    }

    /// Same as [`BTree::insert`], with the key's leaf latched; `value` is called once the key is known to be new.
    #[inline]
    fn insert_at<'p>(
        &'p self,
        mut latched: LeafGuard<'p>,
        key: K,
        mut with: Publication<'p>,
        value: impl FnOnce(&mut Publication<'p>) -> u64,
    ) -> Result<Inserted> {
        loop {
            let node = latched.node;
            if let Some(slot) = L::find(node, key) {
                return Ok(Inserted::Exists(node.value(L::geometry::<K>(), slot)));
            }
            if !L::is_full::<K>(node) {
                let value = value(&mut with);
                L::insert(node, key, value, &mut Medium::Pool(&self.pool, &mut with))?;
                with.publish()?;
                return Ok(Inserted::New);
            }
            self.split_leaf(&latched, key)?;
            drop(latched);
            latched = self.lock_leaf(key)?;
        }
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one. If the key is
    /// missing, `with` is dropped.
    pub fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.update_at(&self.lock_leaf(key)?, key, value, with)
    }

    /// Same as [`BTree::update`], with the key's leaf latched.
    #[inline]
    fn update_at<'p>(
        &'p self,
        latched: &LeafGuard<'p>,
        key: K,
        value: u64,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let node = latched.node;
        let Some(slot) = L::find(node, key) else { return Ok(None) };
        let old = node.value(L::geometry::<K>(), slot);
        L::update::<K>(node, slot, value, &mut Medium::Pool(&self.pool, &mut with));
        with.publish()?;
        Ok(Some(old))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped.
    pub fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool.wait_for_room();
        let _pinned = self.pool.pin();
        self.remove_at(self.lock_leaf(key)?, key, with)
    }

    /// Same as [`BTree::remove`], with the key's leaf latched.
    #[inline]
    fn remove_at<'p>(
        &'p self,
        latched: LeafGuard<'p>,
        key: K,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let node = latched.node;
        let Some(slot) = L::find(node, key) else { return Ok(None) };
        let old = node.value(L::geometry::<K>(), slot);
        L::erase::<K>(node, slot, &mut Medium::Pool(&self.pool, &mut with))?;
        with.publish()?;
        if L::has_fewer::<K>(node, self.entries_min::<L>())
            && let Err(error) = self.leaf_underflow(latched, key)
        {
            // The key is removed all the same; the leaf stays as it is.
            tracing::warn!(%error, "a leaf with few entries could not be merged with its neighbour");
        }
        Ok(Some(old))
    }

    /// Least number of entries of a node of this layout that does not underflow.
    fn entries_min<N: Layout>(&self) -> usize {
        let half = N::geometry::<K>().capacity / 2;
        if self.handles_underflow.load(Ordering::Relaxed) { half } else { 1 }
    }
}
