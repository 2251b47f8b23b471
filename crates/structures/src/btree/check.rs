//! Sizes and invariants of a tree. No damage causes a panic.

use super::lifecycle::HEADER_BYTES;
use super::placement::ChildRef;
use super::{BTree, BTreeStats, LEVELS_MAX, Placement};
use crate::error::{Error, Result};
use crate::node::{FixedKey, Layout};
use entresol_memory::{Pool, PoolOffset};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Result of a walk over a sound tree.
struct TreeWalk<K> {
    stats: BTreeStats,
    /// The leaves in the order of the tree, with their low keys.
    leaves: Vec<(Option<K>, PoolOffset)>,
}

/// Makes an error of what is wrong with an object.
fn corrupt_at(offset: PoolOffset) -> impl Fn(String) -> Error {
    move |message| Error::Corrupt { offset, message }
}

/// State of a walk over the tree.
struct Walk<'f, K, F> {
    /// Called with offset and bytes of every pool object before it is read; an error text ends the walk.
    claim: &'f mut F,
    seen: HashSet<u64>,
    stats: BTreeStats,
    /// The leaves in the order of the tree, with their low keys.
    leaves: Vec<(Option<K>, PoolOffset)>,
    leaf_depth: Option<usize>,
    /// References of inner nodes, by depth, with their links to the right neighbour.
    links: Vec<Vec<(u64, u64)>>,
}

/// Range of the keys of a node: from (inclusive), and below (exclusive).
type KeyBounds<K> = (Option<K>, Option<K>);

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<BTreeStats> {
        Ok(self.walk(|_, _| Ok(()))?.stats)
    }

    /// Verifies all invariants of the tree; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the tree consists of (not those that its values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        let claim = |offset, _| {
            object(offset);
            Ok(())
        };
        self.walk(claim).map(|_| ())
    }

    /// Same as [`BTree::check`]. `claim` is called with offset and bytes of every object of the tree, and returns
    /// an error text for a wrong one. Only if all of them are sound, `entry` gets the keys and values.
    pub fn check_damaged(
        &self,
        claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        entry: impl FnMut(K, u64),
    ) -> Result<()> {
        let leaves = self.walk(claim)?.leaves;
        self.for_each_entry(leaves.into_iter().map(|(_, leaf)| leaf), entry)
    }

    /// Same as [`BTree::check_damaged`] for a tree partly freed by [`BTree::destroy_step`].
    pub fn check_remains(
        pool: &Arc<Pool>,
        header: PoolOffset,
        mut claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        entry: impl FnMut(K, u64),
    ) -> Result<()> {
        let tree = Self::attach(pool, header)?;
        claim(header, HEADER_BYTES as u64).map_err(corrupt_at(header))?;
        let mut leaves = Vec::new();
        if P::PERSISTENT {
            let root = pool.word(tree.root_word_offset()).load(Ordering::Acquire);
            if root != 0 {
                tree.claim_below(root, 0, &mut claim, &mut leaves)?;
            }
        } else {
            tree.claim_chain(&mut claim, &mut leaves)?;
        }
        tree.for_each_entry(leaves.into_iter(), entry)
    }

    /// Claims the chain of leaves.
    fn claim_chain(
        &self,
        claim: &mut impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        leaves: &mut Vec<PoolOffset>,
    ) -> Result<()> {
        let mut at = self.first_leaf();
        while !at.is_null() {
            // A cycle ends here: its first leaf is claimed a second time.
            claim(at, L::BYTES as u64).map_err(corrupt_at(at))?;
            let leaf = self.leaf(at)?;
            L::check::<K>(leaf).map_err(corrupt_at(at))?;
            leaves.push(at);
            at = leaf.load_offset(L::geometry::<K>().next);
        }
        Ok(())
    }

    /// Claims the nodes of a persistent tree from a child word down.
    fn claim_below(
        &self,
        word: u64,
        depth: usize,
        claim: &mut impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
        leaves: &mut Vec<PoolOffset>,
    ) -> Result<()> {
        let reference = match ChildRef::decode(word) {
            ChildRef::Leaf(leaf) => {
                claim(leaf, L::BYTES as u64).map_err(corrupt_at(leaf))?;
                L::check::<K>(self.leaf(leaf)?).map_err(corrupt_at(leaf))?;
                leaves.push(leaf);
                return Ok(());
            }
            ChildRef::Inner(reference) => reference,
        };
        if depth > LEVELS_MAX {
            return Err(corrupt_at(self.header)(format!("it has more than {LEVELS_MAX} levels")));
        }
        let offset = PoolOffset::from_word(reference);
        claim(offset, I::BYTES as u64).map_err(corrupt_at(offset))?;
        let node = self.inner(reference)?;
        I::check::<K>(node).map_err(corrupt_at(offset))?;
        let leftmost = node.load(I::geometry::<K>().spare);
        if leftmost != 0 {
            self.claim_below(leftmost, depth + 1, claim, leaves)?;
        }
        I::sorted::<K>(node)
            .into_iter()
            .try_for_each(|(_, child)| self.claim_below(child, depth + 1, claim, leaves))
    }

    /// Calls `entry` with the keys and values of sound leaves.
    fn for_each_entry(
        &self,
        leaves: impl Iterator<Item = PoolOffset>,
        mut entry: impl FnMut(K, u64),
    ) -> Result<()> {
        for leaf in leaves {
            L::sorted::<K>(self.leaf(leaf)?).into_iter().for_each(|(key, value)| entry(key, value));
        }
        Ok(())
    }

    fn walk<F>(&self, mut claim: F) -> Result<TreeWalk<K>>
    where
        F: FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    {
        let _pinned = self.pool.pin();
        claim(self.header, HEADER_BYTES as u64).map_err(corrupt_at(self.header))?;
        let mut walk = Walk {
            claim: &mut claim,
            seen: HashSet::new(),
            stats: BTreeStats::default(),
            leaves: Vec::new(),
            leaf_depth: None,
            links: Vec::new(),
        };
        self.walk_node(self.root_word(), 0, (None, None), &mut walk)?;
        self.check_chain(&walk.leaves)?;
        if I::LINKS_INNER && P::PERSISTENT {
            check_links(&walk.links)?;
        }
        let mut stats = walk.stats;
        stats.levels = walk.leaf_depth.unwrap_or(0) as u32;
        stats.pool_bytes = stats.leaves * L::BYTES as u64;
        if P::PERSISTENT {
            stats.pool_bytes += stats.inner_nodes * I::BYTES as u64;
        }
        stats.dram_bytes = self.placement.bytes() as u64;
        Ok(TreeWalk { stats, leaves: walk.leaves })
    }

    fn walk_node<F: FnMut(PoolOffset, u64) -> std::result::Result<(), String>>(
        &self,
        word: u64,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
        if !walk.seen.insert(word) || depth > LEVELS_MAX {
            let offset = PoolOffset::from_word(word & !1);
            return Err(Error::Corrupt { offset, message: "two references lead to it".into() });
        }
        match ChildRef::decode(word) {
            ChildRef::Leaf(leaf) => self.walk_leaf(leaf, depth, bounds, walk),
            ChildRef::Inner(reference) => self.walk_inner(reference, depth, bounds, walk),
        }
    }

    fn walk_leaf<F: FnMut(PoolOffset, u64) -> std::result::Result<(), String>>(
        &self,
        leaf: PoolOffset,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
        (walk.claim)(leaf, L::BYTES as u64).map_err(corrupt_at(leaf))?;
        let node = self.leaf(leaf)?;
        L::check::<K>(node).map_err(|message| Error::Corrupt { offset: leaf, message })?;
        if *walk.leaf_depth.get_or_insert(depth) != depth {
            return Err(Error::Corrupt {
                offset: leaf,
                message: "its depth differs from that of other leaves".into(),
            });
        }
        let entries = L::sorted::<K>(node);
        check_bounds(leaf, entries.iter().map(|(key, _)| *key), bounds)?;
        for (key, _) in &entries {
            if L::find(node, *key).is_none() {
                let message = format!("a search does not find its key {key:?}");
                return Err(Error::Corrupt { offset: leaf, message });
            }
        }
        walk.stats.leaves += 1;
        walk.stats.keys += entries.len() as u64;
        walk.leaves.push((bounds.0, leaf));
        Ok(())
    }

    fn walk_inner<F: FnMut(PoolOffset, u64) -> std::result::Result<(), String>>(
        &self,
        reference: u64,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
        let geometry = I::geometry::<K>();
        let offset = PoolOffset::from_word(reference);
        if P::PERSISTENT {
            (walk.claim)(offset, I::BYTES as u64).map_err(corrupt_at(offset))?;
        }
        let node = self.inner(reference)?;
        I::check::<K>(node).map_err(|message| Error::Corrupt { offset, message })?;
        walk.stats.inner_nodes += 1;
        if walk.links.len() <= depth {
            walk.links.resize_with(depth + 1, Vec::new);
        }
        walk.links[depth].push((reference, node.load(geometry.next)));
        let entries = I::sorted::<K>(node);
        check_bounds(offset, entries.iter().map(|(key, _)| *key), bounds)?;
        let above = |index: usize| entries.get(index).map(|(key, _)| *key).or(bounds.1);
        self.walk_node(node.load(geometry.spare), depth + 1, (bounds.0, above(0)), walk)?;
        for (index, (key, child)) in entries.iter().enumerate() {
            self.walk_node(*child, depth + 1, (Some(*key), above(index + 1)), walk)?;
        }
        Ok(())
    }

    /// Verifies that the chain of leaves has the tree's order, and low keys equal the separators.
    fn check_chain(&self, leaves: &[(Option<K>, PoolOffset)]) -> Result<()> {
        let geometry = L::geometry::<K>();
        let mut expected = self.first_leaf();
        for (separator, leaf) in leaves {
            if *leaf != expected {
                let message = format!("the chain of leaves has {expected:#x} instead of it");
                return Err(Error::Corrupt { offset: *leaf, message });
            }
            let node = self.leaf(*leaf)?;
            let low = node.load_key::<K>(geometry.spare);
            if separator.is_some_and(|separator| separator != low) {
                let message = format!("its low key {low:?} differs from the separator {separator:?}");
                return Err(Error::Corrupt { offset: *leaf, message });
            }
            expected = node.load_offset(geometry.next);
        }
        if !expected.is_null() {
            let message = "it follows the last leaf in the chain of leaves".into();
            return Err(Error::Corrupt { offset: expected, message });
        }
        Ok(())
    }
}

/// Verifies that keys are in their node's range.
fn check_bounds<K: FixedKey>(
    offset: PoolOffset,
    mut keys: impl Iterator<Item = K>,
    (from, below): KeyBounds<K>,
) -> Result<()> {
    let outside = |key: &K| from.is_some_and(|from| *key < from) || below.is_some_and(|below| *key >= below);
    match keys.find(outside) {
        Some(key) => Err(Error::Corrupt { offset, message: format!("its key {key:?} is out of its range") }),
        None => Ok(()),
    }
}

/// Verifies that inner nodes of a depth are linked from left to right.
fn check_links(links: &[Vec<(u64, u64)>]) -> Result<()> {
    for level in links {
        let neighbours = level.iter().skip(1).map(|(reference, _)| reference | 1).chain([0]);
        for ((reference, next), expected) in level.iter().zip(neighbours) {
            if *next != expected {
                let message =
                    format!("its right neighbour is {expected:#x}, but its link leads to {next:#x}");
                return Err(Error::Corrupt { offset: PoolOffset::from_word(*reference), message });
            }
        }
    }
    Ok(())
}
