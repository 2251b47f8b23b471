//! Batched lookups: while one key's cache lines are loaded, those of the other keys are prefetched too.
//!
//! All keys of a group descend level by level, in two steps a level: search the node, then go to the child.
//! Each step prefetches the lines that the next one reads. A key whose path a writer changed is looked up
//! again alone.

use super::placement::Child;
use super::{BTree, LEVELS_MAX, Placement};
use crate::error::Result;
use crate::latch;
use crate::node::{FixedKey, Layout, Node};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in flight. Sixteen cover the latency of DRAM on today's cores; the rest hides the second steps.
const GROUP: usize = 32;

/// State of the lookup of one key.
#[derive(Clone, Copy)]
struct Way<'t> {
    /// Child word of the current node.
    word: u64,
    /// The current node, once it was searched.
    node: Option<Node<'t>>,
    /// Index of the word to read there next: a child, or the key's value.
    place: Option<usize>,
    parent: &'t AtomicU64,
    parent_version: u64,
    own: &'t AtomicU64,
    version: u64,
    lost: bool,
}

impl<K: FixedKey, L: Layout, I: Layout, P: Placement> BTree<K, L, I, P> {
    /// Returns the values of keys; `values` is cleared first. On real memory several times faster than one by
    /// one.
    pub fn get_many(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
        values.clear();
        values.reserve(keys.len());
        let _pinned = self.pool.pin();
        keys.chunks(GROUP).try_for_each(|group| self.get_group(group, values))
    }

    fn get_group(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
        let version = latch::read(&self.root_latch);
        let start = Way {
            word: self.root.load(Ordering::Relaxed),
            node: None,
            place: None,
            parent: &self.root_latch,
            parent_version: version,
            own: &self.root_latch,
            version,
            lost: !latch::validate(&self.root_latch, version),
        };
        let mut ways = [start; GROUP];
        let ways = &mut ways[..keys.len()];
        for _ in 0..LEVELS_MAX {
            let mut above_leaves = false;
            for (key, way) in keys.iter().zip(ways.iter_mut()) {
                if let (Child::Inner(reference), false) = (Child::decode(way.word), way.lost) {
                    above_leaves = true;
                    way.lost = self.search_inner(*key, reference, way).is_none();
                }
            }
            if !above_leaves {
                break;
            }
            for (key, way) in keys.iter().zip(ways.iter_mut()).filter(|(_, way)| !way.lost) {
                way.lost = self.go_down(*key, way).is_none();
            }
        }
        for (key, way) in keys.iter().zip(ways.iter_mut()).filter(|(_, way)| !way.lost) {
            way.lost = self.search_leaf(*key, way).is_none();
        }
        for (key, way) in keys.iter().zip(ways.iter()) {
            let value = way.place.zip(way.node).map(|(place, node)| node.load(place));
            let found = !way.lost && latch::validate(way.own, way.version);
            values.push(if found { value } else { self.get_pinned(*key)? });
        }
        Ok(())
    }

    /// Searches an inner node and prefetches the child's word. None on a conflict with a writer, or on
    /// damage.
    #[inline]
    fn search_inner<'t>(&'t self, key: K, reference: u64, way: &mut Way<'t>) -> Option<()> {
        let node = self.inner(reference).ok()?;
        way.own = self.inner_latch(node, reference);
        way.version = latch::read(way.own);
        if !latch::validate(way.parent, way.parent_version) {
            return None;
        }
        let shape = I::shape::<K>();
        let place = I::floor(node, key).map_or(shape.spare, |slot| shape.values + slot);
        node.prefetch(place);
        (way.node, way.place) = (Some(node), Some(place));
        Some(())
    }

    /// Goes from a searched inner node to the child, and prefetches the lines that a search reads there. A
    /// leaf stays.
    #[inline]
    fn go_down<'t>(&'t self, key: K, way: &mut Way<'t>) -> Option<()> {
        let Some((place, node)) = way.place.take().zip(way.node.take()) else { return Some(()) };
        let word = node.load(place);
        if !latch::validate(way.own, way.version) {
            return None;
        }
        (way.parent, way.parent_version, way.word) = (way.own, way.version, word);
        match Child::decode(word) {
            Child::Inner(reference) => I::prefetch(self.inner(reference).ok()?, key),
            Child::Leaf(leaf) => L::prefetch(self.leaf_to_prefetch(leaf).ok()?, key),
        }
        Some(())
    }

    /// Searches the leaf and prefetches the value.
    #[inline]
    fn search_leaf<'t>(&'t self, key: K, way: &mut Way<'t>) -> Option<()> {
        let Child::Leaf(leaf) = Child::decode(way.word) else { return None };
        let node = self.leaf(leaf).ok()?;
        way.own = self.leaf_latch(leaf);
        way.version = latch::read(way.own);
        if !latch::validate(way.parent, way.parent_version) {
            return None;
        }
        way.node = Some(node);
        way.place = L::find(node, key).map(|slot| L::shape::<K>().values + slot);
        if let Some(place) = way.place {
            node.prefetch(place);
        }
        Some(())
    }
}
