//! Estimates for planners: numbers of keys, and keys that divide a scan among threads.
//!
//! A trie has no count that survives: the first estimate of an opened one follows random paths, and weighs a leaf at a
//! depth by the nodes of a complete tree at that depth (Knuth 1975); writers count on from there, in DRAM.

use super::{Patricia, bit, child_slot, first_difference, is_inner, node_of};
use crate::error::Result;
use crate::key::KeyBytes;
use crate::trie::frame::Attempt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Subtrees among which paths are chosen.
const FRONTIER: usize = 256;
/// Paths in each of them.
const PATHS: u32 = 4;
/// Count that is not known.
const UNKNOWN: i64 = i64::MIN;

/// Estimated number of keys.
pub(super) struct KeyCount(AtomicI64);

impl Default for KeyCount {
    fn default() -> KeyCount {
        KeyCount(AtomicI64::new(UNKNOWN))
    }
}

impl KeyCount {
    /// Counts keys that were added or, if negative, removed.
    #[inline]
    pub(super) fn add(&self, keys: i64) {
        if self.0.load(Relaxed) != UNKNOWN {
            self.0.fetch_add(keys, Relaxed);
        }
    }
}

impl Patricia {
    /// Returns the children of an inner node; none if it was removed meanwhile or is damaged.
    fn children(&self, word: u64) -> Option<[u64; 2]> {
        let (frame, inner) = (&self.frame, node_of(word));
        self.number(inner, frame.since()).ok()?;
        Some(frame.stable(inner, || [0, 1].map(|side| frame.load(child_slot(inner, side)))))
    }

    /// Returns the subtrees of the first level that has so many, or of the last one, in the order of their keys.
    fn frontier(&self, wanted: usize) -> Vec<u64> {
        let frame = &self.frame;
        let root = frame.stable(frame.header, || frame.load(frame.root_slot()));
        let mut level: Vec<u64> = (root != 0).then_some(root).into_iter().collect();
        while level.len() < wanted && level.iter().any(|word| is_inner(*word)) {
            let below = |word: u64| {
                let children = if is_inner(word) { self.children(word) } else { None };
                children.unwrap_or([word, 0]).into_iter().filter(|word| *word != 0)
            };
            let next: Vec<u64> = level.iter().flat_map(|word| below(*word)).collect();
            if next.len() == level.len() {
                break;
            }
            level = next;
        }
        level
    }

    /// Estimates the number of keys of a subtree by random paths.
    fn estimated_below(&self, word: u64, seed: &AtomicU64) -> f64 {
        if !is_inner(word) {
            return 1.0;
        }
        let mut keys = 0.0;
        for _ in 0..PATHS {
            let (mut at, mut weight) = (word, 1.0);
            while is_inner(at)
                && let Some(children) = self.children(at)
            {
                at = children[(random(seed) & 1) as usize];
                weight *= 2.0;
            }
            keys += weight;
        }
        keys / f64::from(PATHS)
    }

    /// Estimates the number of keys.
    pub(super) fn estimated_keys(&self) -> u64 {
        let known = self.count.0.load(Relaxed);
        if known != UNKNOWN {
            return known.max(0) as u64;
        }
        let _pinned = self.frame.pool.pin();
        let seed = AtomicU64::new(self.frame.header.to_word());
        let keys: f64 =
            self.frontier(FRONTIER).into_iter().map(|word| self.estimated_below(word, &seed)).sum();
        // Keys that another thread adds meanwhile may be missing: it is an estimate.
        let _ = self.count.0.compare_exchange(UNKNOWN, keys as i64, Relaxed, Relaxed);
        keys as u64
    }

    /// Estimates the share of the keys below a key, as if the children of each node had equally many.
    pub(super) fn estimated_share_below(&self, key: &[u8]) -> f64 {
        let _pinned = self.frame.pool.pin();
        let attempt = || -> Attempt<f64> {
            let since = self.frame.since();
            let steps = self.path(key)?;
            let leaf = node_of(steps.last().expect("the root's").word);
            if leaf.is_null() {
                return Ok(0.0);
            }
            let differs = first_difference(&self.leaf_key(leaf, since)?, key);
            let above = match differs {
                Some(number) => self.step_before(&steps, number, since)?,
                None => steps.len() - 1,
            };
            let (mut share, mut reached) = (0.0, 1.0);
            for step in &steps[1..=above] {
                reached /= 2.0;
                share += if step.side == 1 { reached } else { 0.0 };
            }
            let is_behind = differs.is_some_and(|number| bit(key, number) == 1);
            Ok(if is_behind { share + reached } else { share })
        };
        self.frame.retry_conflicts(attempt).unwrap_or(0.5)
    }

    /// Returns keys that divide the trie into parts of about equal size, in ascending order.
    pub(super) fn split_points(&self, wanted: usize) -> Result<Vec<KeyBytes>> {
        let _pinned = self.frame.pool.pin();
        let mut keys = Vec::new();
        for subtree in self.frontier(wanted).into_iter().skip(1) {
            let mut word = subtree;
            while is_inner(word) {
                match self.children(word) {
                    Some([first, _]) => word = first,
                    None => break,
                }
            }
            if !is_inner(word)
                && let Ok(key) = self.leaf_key(node_of(word), self.frame.since())
            {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Draws a number.
fn random(seed: &AtomicU64) -> u64 {
    let drawn = seed.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
    let mixed = (drawn ^ drawn >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
