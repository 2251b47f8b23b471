//! Merging and balancing nodes with few entries, and removing roots with one child.
//!
//! A node is merged or balanced with a neighbour below the same parent. If that neighbour is latched, or
//! there is none, the node stays as it is until the next time: a node with few entries is a sound one.

use super::placement::{ChildRef, inner_word};
use super::structure::InnerPath;
use super::{BTree, LeafGuard, Placement};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{self, Entries, FixedKey, Layout, Medium, Node};
use crate::points::MERGE_IN_ONE;
use entresol_memory::{PoolOffset, Publication};
use std::sync::atomic::Ordering;

/// Two neighbours below one parent, by their child words, and the separator between them.
struct Siblings<K> {
    left: u64,
    right: u64,
    separator: K,
}

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// A child and its left neighbour, or its right one if it is the leftmost. None if it is alone.
    fn pair_around(&self, parent: u64, child: u64) -> Result<Option<Siblings<K>>> {
        let node = self.inner(parent)?;
        let entries = I::sorted::<K>(node);
        let leftmost = node.load(I::geometry::<K>().spare);
        let words = || std::iter::once(leftmost).chain(entries.iter().map(|(_, word)| *word));
        let Some(index) = words().position(|word| word == child) else {
            let message = format!("the child {child:#x} is missing in its parent node");
            return Err(Error::Corrupt { offset: self.header, message });
        };
        if entries.is_empty() {
            return Ok(None);
        }
        let right = index.max(1);
        let left = words().nth(right - 1).expect("it is before one that is there");
        let (separator, right) = entries[right - 1];
        Ok(Some(Siblings { left, right, separator }))
    }

    /// Removes a separator and the child to its right from a latched inner node.
    fn unlink<'p>(&'p self, parent: u64, separator: K, with: &mut Publication<'p>) -> Result<Option<u64>> {
        let node = self.inner(parent)?;
        let slot = I::find(node, separator).expect("the separator was just read");
        I::erase::<K>(node, slot, &mut self.inner_medium(with))?;
        Ok(None)
    }

    /// Replaces a separator and the child to its right in a latched inner node.
    fn relink<'p>(
        &'p self,
        parent: u64,
        separator: K,
        entry: (K, u64),
        with: &mut Publication<'p>,
    ) -> Result<Option<u64>> {
        let node = self.inner(parent)?;
        let slot = I::find(node, separator).expect("the separator was just read");
        I::replace(node, slot, entry, &mut self.inner_medium(with))?;
        Ok(None)
    }

    /// Merges or balances a latched leaf with few entries with a neighbour.
    pub(super) fn leaf_underflow(&self, latched: LeafGuard<'_>, key: K) -> Result<()> {
        let _structure = self.structure.lock();
        let path = self.path_to(key)?;
        // The root may have few entries.
        let Some(&parent) = path.last() else { return Ok(()) };
        let Some(pair) = self.pair_around(parent, latched.offset.to_word())? else { return Ok(()) };
        let offsets = (PoolOffset::from_word(pair.left), PoolOffset::from_word(pair.right));
        let other = if offsets.0 == latched.offset { offsets.1 } else { offsets.0 };
        let neighbour = self.leaf(other)?;
        let latch = self.leaf_latch(other);
        let shared = std::ptr::eq(latch, latched.latch);
        if !shared && !latch::try_lock(latch) {
            return Ok(());
        }
        // Latched only if it has a latch of its own: dropping it releases the latch.
        let _other = (!shared).then(|| LeafGuard { node: neighbour, offset: other, latch });
        let (left, right) = (self.leaf(offsets.0)?, self.leaf(offsets.1)?);
        if left.load(L::geometry::<K>().next) != pair.right {
            let message =
                format!("its next leaf is not {:#x}, its right neighbour in the inner node", pair.right);
            return Err(Error::Corrupt { offset: offsets.0, message });
        }
        let inner = self.latch_inner(&[parent], false)?;
        if L::count::<K>(left) + L::count::<K>(right) <= L::geometry::<K>().capacity {
            self.merge_leaves(parent, &pair, left, right)?;
        } else if L::SHIFTS_BLOCKS {
            self.balance_leaves(parent, &pair, left, right)?;
        } else {
            self.rewrite_leaves(parent, &pair, left, right)?;
        }
        drop(inner);
        self.inner_underflow(key)
    }

    /// Moves all entries of the right leaf to the left one, and frees the right one.
    fn merge_leaves(&self, parent: u64, pair: &Siblings<K>, left: Node<'_>, right: Node<'_>) -> Result<()> {
        let next = L::geometry::<K>().next;
        debug_assert_eq!(left.load(next), pair.right, "the leaf that goes is the next of the one that stays");
        let mut with = self.pool.publication();
        node::merge::<L, K>(left, right, &mut Medium::Pool(&self.pool, &mut with))?;
        with.barrier(MERGE_IN_ONE);
        with.set(left.word_offset(next), right.load(next));
        with.free(PoolOffset::from_word(pair.right));
        self.publish_with_inner(with, |with| self.unlink(parent, pair.separator, with))
    }

    /// Moves entries between the leaves, and the separator with them.
    fn balance_leaves(&self, parent: u64, pair: &Siblings<K>, left: Node<'_>, right: Node<'_>) -> Result<()> {
        let mut with = self.pool.publication();
        let medium = &mut Medium::Pool(&self.pool, &mut with);
        let Some(separator) = node::balance::<L, K>(left, right, medium)? else { return Ok(()) };
        for i in 0..K::WORDS {
            with.set(right.word_offset(L::geometry::<K>().spare + i), separator.word(i));
        }
        let entry = (separator, pair.right);
        self.publish_with_inner(with, |with| self.relink(parent, pair.separator, entry, with))
    }

    /// Same as [`BTree::balance_leaves`], with a fresh right leaf: for layouts that remove no entries in
    /// front.
    fn rewrite_leaves(&self, parent: u64, pair: &Siblings<K>, left: Node<'_>, right: Node<'_>) -> Result<()> {
        let geometry = L::geometry::<K>();
        let mut all = L::sorted::<K>(left);
        let before = all.len();
        L::append_sorted(right, &mut all);
        let keep = all.len() / 2;
        let separator = all[keep].0;
        let mut with = self.pool.publication();
        let fresh = self.pool.reserve(L::BYTES)?;
        self.fill_leaf(self.leaf(fresh.offset())?, &all[keep..], separator, right.load_offset(geometry.next));
        let fresh = with.allocate(fresh).to_word();
        with.free(PoolOffset::from_word(pair.right));
        let medium = &mut Medium::Pool(&self.pool, &mut with);
        if keep > before {
            L::append(left, &all[before..keep], medium)?;
        } else {
            L::truncate::<K>(left, keep, medium)?;
        }
        with.set(left.word_offset(geometry.next), fresh);
        let entry = (separator, fresh);
        self.publish_with_inner(with, |with| self.relink(parent, pair.separator, entry, with))
    }

    /// Merges or balances inner nodes with few entries above a key's leaf, from the bottom up.
    fn inner_underflow(&self, key: K) -> Result<()> {
        let entries_min = self.entries_min::<I>();
        let mut below = usize::MAX;
        loop {
            let mut path = self.path_to(key)?;
            if self.remove_root(&path)? {
                below = below.saturating_sub(1);
                path.remove(0);
            }
            let mut few = None;
            for (level, reference) in path.iter().enumerate().skip(1) {
                if level < below && I::count::<K>(self.inner(*reference)?) < entries_min {
                    few = Some(level);
                }
            }
            let Some(level) = few else { return Ok(()) };
            self.join_inner(&path, level)?;
            below = level;
            if level == 1 {
                // The root may have lost its last separator.
                self.remove_root(&self.path_to(key)?)?;
                return Ok(());
            }
        }
    }

    /// Makes the only child of an inner root the root.
    fn remove_root(&self, path: &InnerPath) -> Result<bool> {
        let Some(&reference) = path.first() else { return Ok(false) };
        let node = self.inner(reference)?;
        if I::count::<K>(node) > 0 {
            return Ok(false);
        }
        let child = node.load(I::geometry::<K>().spare);
        let _latches = self.latch_inner(&[reference], true)?;
        self.publish_with_inner(self.pool.publication(), |with| {
            self.placement.free(reference, with);
            Ok(Some(self.new_root(child, with)))
        })?;
        Ok(true)
    }

    /// Merges or balances an inner node with a neighbour.
    fn join_inner(&self, path: &InnerPath, level: usize) -> Result<()> {
        let parent = path[level - 1];
        let Some(pair) = self.pair_around(parent, inner_word(path[level]))? else { return Ok(()) };
        let (ChildRef::Inner(left), ChildRef::Inner(right)) =
            (ChildRef::decode(pair.left), ChildRef::decode(pair.right))
        else {
            let message = "an inner node has a leaf as its neighbour".to_string();
            return Err(Error::Corrupt { offset: self.header, message });
        };
        let _latches = self.latch_inner(&[left, right, parent], false)?;
        // All entries, with the separator between the nodes pulled down.
        let mut all = I::sorted::<K>(self.inner(left)?);
        let before = all.len();
        all.push((pair.separator, self.inner(right)?.load(I::geometry::<K>().spare)));
        I::append_sorted(self.inner(right)?, &mut all);
        if all.len() <= I::geometry::<K>().capacity {
            return self.merge_inner(parent, &pair, (left, right), &all[before..]);
        }
        let keep = all.len() / 2;
        if keep == before {
            return Ok(());
        }
        if I::SHIFTS_BLOCKS {
            self.balance_inner(parent, &pair, (left, right), &all, before)
        } else {
            self.rewrite_inner(parent, &pair, (left, right), &all, before)
        }
    }

    fn merge_inner(
        &self,
        parent: u64,
        pair: &Siblings<K>,
        (left, right): (u64, u64),
        moved: &[(K, u64)],
    ) -> Result<()> {
        let next = I::geometry::<K>().next;
        let (left, from) = (self.inner(left)?, self.inner(right)?);
        self.publish_with_inner(self.pool.publication(), |with| {
            let mut medium = self.inner_medium(with);
            I::append(left, moved, &mut medium)?;
            if I::LINKS_INNER {
                medium.set(left, next, from.load(next));
            }
            self.placement.free(right, with);
            self.unlink(parent, pair.separator, with)
        })
    }

    /// Moves entries through the parent: the middle one of all becomes the separator.
    fn balance_inner(
        &self,
        parent: u64,
        pair: &Siblings<K>,
        (left, right): (u64, u64),
        all: &Entries<K>,
        before: usize,
    ) -> Result<()> {
        let keep = all.len() / 2;
        let (separator, leftmost) = all[keep];
        let (left, right) = (self.inner(left)?, self.inner(right)?);
        self.publish_with_inner(self.pool.publication(), |with| {
            let mut medium = self.inner_medium(with);
            if keep > before {
                I::append(left, &all[before..keep], &mut medium)?;
                I::drop_first::<K>(right, keep - before, &mut medium)?;
            } else {
                I::truncate::<K>(left, keep, &mut medium)?;
                I::prepend(right, &all[keep + 1..=before], &mut medium)?;
            }
            medium.set(right, I::geometry::<K>().spare, leftmost);
            self.relink(parent, pair.separator, (separator, pair.right), with)
        })
    }

    /// Same as [`BTree::balance_inner`], with a fresh right node.
    fn rewrite_inner(
        &self,
        parent: u64,
        pair: &Siblings<K>,
        (left, right): (u64, u64),
        all: &Entries<K>,
        before: usize,
    ) -> Result<()> {
        let keep = all.len() / 2;
        let (separator, leftmost) = all[keep];
        let next = I::geometry::<K>().next;
        let (left, from) = (self.inner(left)?, self.inner(right)?);
        self.publish_with_inner(self.pool.publication(), |with| {
            let fresh = self.placement.allocate(&self.pool, with)?;
            self.fill_inner(self.inner(fresh)?, leftmost, &all[keep + 1..], from.load(next));
            let mut medium = self.inner_medium(with);
            if keep > before {
                I::append(left, &all[before..keep], &mut medium)?;
            } else {
                I::truncate::<K>(left, keep, &mut medium)?;
            }
            medium.set(left, next, inner_word(fresh));
            self.placement.free(right, with);
            self.relink(parent, pair.separator, (separator, inner_word(fresh)), with)
        })
    }

    /// Returns the root's word; for checks.
    pub(super) fn root_word(&self) -> u64 {
        self.root.load(Ordering::Acquire)
    }
}
