//! Splits, and their changes of the inner nodes.
//!
//! All nodes of a step are latched before the first changes and unlatched after the last has: a reader sees
//! all of them before or all after, or starts again.

use super::placement::{ChildRef, inner_word};
use super::{BTree, LEVELS_MAX, LeafGuard, Placement};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{FixedKey, Layout, Medium, Node};
use crate::points::{FILLED_NODE, PARENT_WITH_ITS_SPLIT, ROOT_WITH_ITS_SPLIT, SIBLING_WITH_ITS_SPLIT};
use entresol_memory::{PoolOffset, Publication};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inner nodes from the root to the parent of a leaf.
pub(super) type InnerPath = SmallVec<[u64; 8]>;

/// Latches of inner nodes that this thread holds; dropping them releases them.
pub(super) struct InnerLatches<'t>(SmallVec<[&'t AtomicU64; 4]>);

impl Drop for InnerLatches<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|latch| latch::unlock(latch));
    }
}

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Returns the path to a key's leaf. The caller holds `structure`.
    pub(super) fn path_to(&self, key: K) -> Result<InnerPath> {
        let mut path = InnerPath::new();
        let mut word = self.root.load(Ordering::Acquire);
        while let ChildRef::Inner(reference) = ChildRef::decode(word) {
            if path.len() == LEVELS_MAX {
                let message = format!("it has more than {LEVELS_MAX} levels");
                return Err(Error::Corrupt { offset: self.header, message });
            }
            path.push(reference);
            word = Self::child_for(self.inner(reference)?, key).0;
        }
        Ok(path)
    }

    /// Latches inner nodes, and the root if asked. The caller holds `structure`, so no other thread does.
    pub(super) fn latch_inner(&self, references: &[u64], with_root: bool) -> Result<InnerLatches<'_>> {
        let mut latches: SmallVec<[&AtomicU64; 4]> = SmallVec::new();
        if with_root {
            latches.push(&self.root_latch);
        }
        for reference in references {
            let latch = self.inner_latch(self.inner(*reference)?, *reference);
            // Persistent nodes share latches.
            if !latches.iter().any(|other| std::ptr::eq(*other, latch)) {
                latches.push(latch);
            }
        }
        latches.iter().for_each(|latch| latch::lock_alone(latch));
        Ok(InnerLatches(latches))
    }

    /// Publishes a change of leaves together with a change of inner nodes, or, if those are in DRAM, before
    /// it. The change returns the new root, if there is one.
    pub(super) fn publish_with_inner<'p>(
        &'p self,
        mut with: Publication<'p>,
        change: impl FnOnce(&mut Publication<'p>) -> Result<Option<u64>>,
    ) -> Result<()> {
        let root = if P::PERSISTENT {
            with.barrier(PARENT_WITH_ITS_SPLIT);
            let root = change(&mut with)?;
            with.publish()?;
            root
        } else {
            if !with.is_empty() {
                with.publish()?;
            }
            change(&mut self.pool.publication())?
        };
        if let Some(root) = root {
            assert!(root != 0, "a root is a node");
            self.root.store(root, Ordering::Release);
        }
        Ok(())
    }

    /// Adds a separator and the child to its right, to the parent or as a new root. Returns the new root's
    /// word.
    pub(super) fn link<'p>(
        &'p self,
        parent: Option<u64>,
        left: u64,
        (separator, right): (K, u64),
        with: &mut Publication<'p>,
    ) -> Result<Option<u64>> {
        debug_assert!(left != right && right != 0, "the child {right:#x} is a node beside {left:#x}");
        if let Some(parent) = parent {
            I::insert(self.inner(parent)?, separator, right, &mut self.inner_medium(with))?;
            return Ok(None);
        }
        let reference = self.placement.allocate(&self.pool, with)?;
        self.fill_inner(self.inner(reference)?, left, &[(separator, right)], 0);
        Ok(Some(self.new_root(inner_word(reference), with)))
    }

    /// Fills an unreachable node as an inner node.
    pub(super) fn fill_inner(&self, node: Node<'_>, leftmost: u64, entries: &[(K, u64)], next: u64) {
        let geometry = I::geometry::<K>();
        assert_eq!(node.words().len(), geometry.words, "an inner node has the size of its layout");
        I::fill(node, entries);
        debug_assert_eq!(I::count::<K>(node), entries.len(), "a filled inner node has its entries");
        node.store(geometry.spare, leftmost);
        node.store(geometry.next, next);
        if P::PERSISTENT {
            self.flush_filled::<I>(node, entries.len());
        }
    }

    /// Fills an unreachable node as a leaf.
    pub(super) fn fill_leaf(&self, node: Node<'_>, entries: &[(K, u64)], low: K, next: PoolOffset) {
        let geometry = L::geometry::<K>();
        assert_eq!(node.words().len(), geometry.words, "a leaf has the size of its layout");
        assert!(entries.first().is_none_or(|(key, _)| low <= *key), "no key of a leaf is below its low key");
        L::fill(node, entries);
        node.store_key(geometry.spare, low);
        node.store(geometry.next, next.to_word());
        self.flush_filled::<L>(node, entries.len());
    }

    /// Flushes the used parts of a filled node.
    fn flush_filled<N: Layout>(&self, node: Node<'_>, entries: usize) {
        let geometry = N::geometry::<K>();
        let slots = if N::FILLS_IN_ORDER { entries } else { geometry.capacity };
        debug_assert!(
            !N::FILLS_IN_ORDER || N::count::<K>(node) == slots,
            "the flushed slots are those of the {slots} entries"
        );
        let parts = [
            (node.word_offset(0), geometry.keys * 8),
            (node.word_offset(geometry.keys), slots * K::WORDS * 8),
            (node.word_offset(geometry.values), slots * 8),
        ];
        self.pool.flush_ranges_at(parts, FILLED_NODE);
    }

    /// Sets the root in the header; returns its word.
    pub(super) fn new_root(&self, word: u64, with: &mut Publication<'_>) -> u64 {
        assert!(word != 0, "a root is a node");
        if P::PERSISTENT {
            with.barrier(ROOT_WITH_ITS_SPLIT);
            with.set(self.root_word_offset(), word);
        }
        word
    }

    /// Splits full inner nodes above a key's leaf until one more child fits. The caller holds `structure`.
    pub(super) fn make_room(&self, key: K, at_end: bool) -> Result<InnerPath> {
        loop {
            let path = self.path_to(key)?;
            let mut full = 0;
            for reference in path.iter().rev() {
                if !I::is_full::<K>(self.inner(*reference)?) {
                    break;
                }
                full += 1;
            }
            if full == 0 {
                return Ok(path);
            }
            self.split_inner(&path, path.len() - full, at_end)?;
        }
    }

    /// Splits a full inner node whose parent has room.
    fn split_inner(&self, path: &InnerPath, level: usize, at_end: bool) -> Result<()> {
        let geometry = I::geometry::<K>();
        let reference = path[level];
        let parent = level.checked_sub(1).map(|above| path[above]);
        let node = self.inner(reference)?;
        let entries = I::sorted::<K>(node);
        let keep = split_place(entries.len(), at_end).min(entries.len() - 2);
        let (separator, leftmost) = entries[keep];
        let touched: InnerPath = parent.into_iter().chain([reference]).collect();
        let _latches = self.latch_inner(&touched, parent.is_none())?;
        self.publish_with_inner(self.pool.publication(), |with| {
            let right = self.placement.allocate(&self.pool, with)?;
            let next = if I::LINKS_INNER { node.load(geometry.next) } else { 0 };
            self.fill_inner(self.inner(right)?, leftmost, &entries[keep + 1..], next);
            let mut medium = self.inner_medium(with);
            I::truncate::<K>(node, keep, &mut medium)?;
            if I::LINKS_INNER {
                medium.set(node, geometry.next, inner_word(right));
            }
            self.link(parent, inner_word(reference), (separator, inner_word(right)), with)
        })
    }

    /// Moves the upper half of a full, latched leaf to a new one.
    pub(super) fn split_leaf(&self, latched: &LeafGuard<'_>, key: K) -> Result<()> {
        let geometry = L::geometry::<K>();
        let node = latched.node;
        let entries = L::sorted::<K>(node);
        // A damaged leaf may be full of invalid entries.
        let Some((greatest, _)) = entries.last().filter(|_| entries.len() > 1) else {
            let message = "it is full, but has fewer than two entries".to_string();
            return Err(Error::Corrupt { offset: latched.offset, message });
        };
        let next = node.load_offset(geometry.next);
        let at_end = next.is_null() && *greatest < key;
        let _structure = self.structure.lock();
        let path = self.make_room(key, at_end)?;
        let keep = split_place(entries.len(), at_end);
        let separator = entries[keep].0;
        let mut with = self.pool.publication();
        let fresh = self.pool.reserve(L::BYTES)?;
        self.fill_leaf(self.leaf(fresh.offset())?, &entries[keep..], separator, next);
        let right = with.allocate(fresh).to_word();
        L::truncate::<K>(node, keep, &mut Medium::Pool(&self.pool, &mut with))?;
        with.barrier(SIBLING_WITH_ITS_SPLIT);
        with.set(node.word_offset(geometry.next), right);
        let parent = path.last().copied();
        let _latches = self.latch_inner(parent.as_slice(), parent.is_none())?;
        self.publish_with_inner(with, |with| {
            self.link(parent, latched.offset.to_word(), (separator, right), with)
        })
    }
}

/// Number of entries that stay in the left node. Ascending keys fill the node, which gets no further ones.
fn split_place(entries: usize, at_end: bool) -> usize {
    let keep = if at_end { entries - entries.div_ceil(10) } else { entries / 2 };
    debug_assert!((1..entries).contains(&keep), "both parts of {entries} entries have some, not {keep}");
    keep
}
