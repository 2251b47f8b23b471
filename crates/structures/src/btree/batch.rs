//! Batched lookups: while one key's cache lines are loaded, those of the other keys are prefetched too.
//!
//! All keys of a group descend level by level, in two steps a level: search the node, then go to the child.
//! Each step prefetches the lines that the next one reads. A key whose path a writer changed is looked up
//! again alone.

use super::placement::ChildRef;
use super::{BTree, LEVELS_MAX, Placement};
use crate::error::Result;
use crate::latch;
use crate::node::{FixedKey, Layout, Node};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in flight. Sixteen cover the latency of DRAM on today's cores; the rest hides the second steps.
pub(super) const GROUP: usize = 32;

/// State of the lookup of one key.
#[derive(Clone, Copy)]
pub(super) struct LookupState<'t> {
    /// Child word of the current node.
    pub(super) word: u64,
    /// The current node, once it was searched.
    node: Option<Node<'t>>,
    /// Index of the word to read there next: a child, or the key's value.
    place: Option<usize>,
    parent: &'t AtomicU64,
    parent_version: u64,
    pub(super) own: &'t AtomicU64,
    pub(super) version: u64,
    pub(super) lost: bool,
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
        let states = self.descend_group(keys);
        for (key, state) in keys.iter().zip(&states) {
            let value = state.place.zip(state.node).map(|(place, node)| node.load(place));
            let found = !state.lost && latch::validate(state.own, state.version);
            values.push(if found { value } else { self.get_pinned(*key)? });
        }
        Ok(())
    }

    /// Searches the leaves of up to [`GROUP`] keys together. A state that is not lost has the latch of the key's
    /// leaf, and its version then.
    pub(super) fn descend_group(&self, keys: &[K]) -> [LookupState<'_>; GROUP] {
        let version = latch::read(&self.root_latch);
        let start = LookupState {
            word: self.root.load(Ordering::Relaxed),
            node: None,
            place: None,
            parent: &self.root_latch,
            parent_version: version,
            own: &self.root_latch,
            version,
            lost: !latch::validate(&self.root_latch, version),
        };
        let mut all = [start; GROUP];
        let states = &mut all[..keys.len()];
        for _ in 0..LEVELS_MAX {
            let mut above_leaves = false;
            for (key, state) in keys.iter().zip(states.iter_mut()) {
                if let (ChildRef::Inner(reference), false) = (ChildRef::decode(state.word), state.lost) {
                    above_leaves = true;
                    state.lost = self.search_inner(*key, reference, state).is_none();
                }
            }
            if !above_leaves {
                break;
            }
            for (key, state) in keys.iter().zip(states.iter_mut()).filter(|(_, state)| !state.lost) {
                state.lost = self.go_down(*key, state).is_none();
            }
        }
        for (key, state) in keys.iter().zip(states.iter_mut()).filter(|(_, state)| !state.lost) {
            state.lost = self.search_leaf(*key, state).is_none();
        }
        all
    }

    /// Searches an inner node and prefetches the child's word. None on a conflict with a writer, or on
    /// damage.
    #[inline]
    fn search_inner<'t>(&'t self, key: K, reference: u64, state: &mut LookupState<'t>) -> Option<()> {
        let node = self.inner(reference).ok()?;
        state.own = self.inner_latch(node, reference);
        state.version = latch::read(state.own);
        if !latch::validate(state.parent, state.parent_version) {
            return None;
        }
        let geometry = I::geometry::<K>();
        let place = I::floor(node, key).map_or(geometry.spare, |slot| geometry.values + slot);
        node.prefetch(place);
        (state.node, state.place) = (Some(node), Some(place));
        Some(())
    }

    /// Goes from a searched inner node to the child, and prefetches the lines that a search reads there. A
    /// leaf stays.
    #[inline]
    fn go_down<'t>(&'t self, key: K, state: &mut LookupState<'t>) -> Option<()> {
        let Some((place, node)) = state.place.take().zip(state.node.take()) else { return Some(()) };
        let word = node.load(place);
        if !latch::validate(state.own, state.version) {
            return None;
        }
        (state.parent, state.parent_version, state.word) = (state.own, state.version, word);
        match ChildRef::decode(word) {
            ChildRef::Inner(reference) => I::prefetch(self.inner(reference).ok()?, key),
            ChildRef::Leaf(leaf) => L::prefetch(self.leaf_to_prefetch(leaf).ok()?, key),
        }
        Some(())
    }

    /// Searches the leaf and prefetches the value.
    #[inline]
    fn search_leaf<'t>(&'t self, key: K, state: &mut LookupState<'t>) -> Option<()> {
        let ChildRef::Leaf(leaf) = ChildRef::decode(state.word) else { return None };
        let node = self.leaf(leaf).ok()?;
        state.own = self.leaf_latch(leaf);
        state.version = latch::read(state.own);
        if !latch::validate(state.parent, state.parent_version) {
            return None;
        }
        state.node = Some(node);
        state.place = L::find(node, key).map(|slot| L::geometry::<K>().values + slot);
        if let Some(place) = state.place {
            node.prefetch(place);
        }
        Some(())
    }
}
