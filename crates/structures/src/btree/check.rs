//! Sizes and invariants of a tree. No damage causes a panic.

use super::placement::ChildRef;
use super::{BTree, BTreeStats, LEVELS_MAX, Placement};
use crate::error::{Error, Result};
use crate::node::{FixedKey, Layout};
use std::collections::HashSet;

/// State of a walk over the tree.
struct Walk<'f, K, F> {
    object: &'f mut F,
    seen: HashSet<u64>,
    stats: BTreeStats,
    /// The leaves in the order of the tree, with their low keys.
    leaves: Vec<(Option<K>, u64)>,
    leaf_depth: Option<usize>,
    /// References of inner nodes, by depth, with their links to the right neighbour.
    links: Vec<Vec<(u64, u64)>>,
}

/// Range of the keys of a node: from (inclusive), and below (exclusive).
type KeyBounds<K> = (Option<K>, Option<K>);

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<BTreeStats> {
        self.walk(|_| {})
    }

    /// Verifies all invariants of the tree; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the tree consists of (not those that its values may refer to).
    pub fn check(&self, object: impl FnMut(u64)) -> Result<()> {
        self.walk(object).map(|_| ())
    }

    fn walk(&self, mut object: impl FnMut(u64)) -> Result<BTreeStats> {
        let _pinned = self.pool.pin();
        object(self.header);
        let mut walk = Walk {
            object: &mut object,
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
        Ok(stats)
    }

    fn walk_node<F: FnMut(u64)>(
        &self,
        word: u64,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
        if !walk.seen.insert(word) || depth > LEVELS_MAX {
            return Err(Error::Corrupt { offset: word & !1, message: "two references lead to it".into() });
        }
        match ChildRef::decode(word) {
            ChildRef::Leaf(leaf) => self.walk_leaf(leaf, depth, bounds, walk),
            ChildRef::Inner(reference) => self.walk_inner(reference, depth, bounds, walk),
        }
    }

    fn walk_leaf<F: FnMut(u64)>(
        &self,
        leaf: u64,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
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
        (walk.object)(leaf);
        walk.stats.leaves += 1;
        walk.stats.keys += entries.len() as u64;
        walk.leaves.push((bounds.0, leaf));
        Ok(())
    }

    fn walk_inner<F: FnMut(u64)>(
        &self,
        reference: u64,
        depth: usize,
        bounds: KeyBounds<K>,
        walk: &mut Walk<'_, K, F>,
    ) -> Result<()> {
        let geometry = I::geometry::<K>();
        let node = self.inner(reference)?;
        I::check::<K>(node).map_err(|message| Error::Corrupt { offset: reference, message })?;
        if P::PERSISTENT {
            (walk.object)(reference);
        }
        walk.stats.inner_nodes += 1;
        if walk.links.len() <= depth {
            walk.links.resize_with(depth + 1, Vec::new);
        }
        walk.links[depth].push((reference, node.load(geometry.next)));
        let entries = I::sorted::<K>(node);
        check_bounds(reference, entries.iter().map(|(key, _)| *key), bounds)?;
        let above = |index: usize| entries.get(index).map(|(key, _)| *key).or(bounds.1);
        self.walk_node(node.load(geometry.spare), depth + 1, (bounds.0, above(0)), walk)?;
        for (index, (key, child)) in entries.iter().enumerate() {
            self.walk_node(*child, depth + 1, (Some(*key), above(index + 1)), walk)?;
        }
        Ok(())
    }

    /// Verifies that the chain of leaves has the tree's order, and low keys equal the separators.
    fn check_chain(&self, leaves: &[(Option<K>, u64)]) -> Result<()> {
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
            expected = node.load(geometry.next);
        }
        if expected != 0 {
            let message = "it follows the last leaf in the chain of leaves".into();
            return Err(Error::Corrupt { offset: expected, message });
        }
        Ok(())
    }
}

/// Verifies that keys are in their node's range.
fn check_bounds<K: FixedKey>(
    offset: u64,
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
                return Err(Error::Corrupt { offset: *reference, message });
            }
        }
    }
    Ok(())
}
