//! Estimates for planners: split points that divide a scan among threads, and numbers of keys.
//!
//! They read the towers of one level, without latches: writers may link others meanwhile, and an estimate stays one. Every
//! fourth node of a level is in the next one, so the towers of a high level are few, and as good as random nodes.

use super::{Content, LEVELS_MAX, LOW, SkipList, Towers};
use crate::fptree::TreeStats;
use crate::node::FixedKey;
use std::sync::atomic::Ordering::Acquire;

/// Towers of the level that estimates read, at least where there are as many.
const SAMPLED_MIN: usize = 32;
/// Nodes for each tower of the next level.
const NODES_OF_TOWER: u64 = 4;

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Keys of a node as random inserts fill it.
    pub(crate) fn usual_leaf_keys(&self) -> u64 {
        (C::capacity::<K>() * 3 / 4).max(1) as u64
    }

    /// Low keys of the nodes on a level, in order; as far as they can be read.
    fn low_keys(&self, level: usize) -> Vec<K> {
        let mut keys: Vec<K> = Vec::new();
        if level == 0 {
            let mut node = self.next_of(self.head);
            while !node.is_null()
                && let Ok(head) = self.head_words(node)
            {
                keys.push(head.load_key(LOW));
                node = self.next_of(node);
            }
            return keys;
        }
        let mut tower = self.head_tower();
        while let Ok(next) = self.forward(tower, level)
            && next != 0
        {
            keys.push(self.low_of_tower(next));
            tower = next;
        }
        keys
    }

    /// Low key of a tower above level 0.
    fn low_of_tower(&self, tower: u64) -> K {
        if T::PERSISTENT {
            return self.head_words(self.node_of(tower)).map_or(K::MIN, |head| head.load_key(LOW));
        }
        self.arena.low(tower)
    }

    /// Low keys of the highest level that has so many nodes, or of level 0, and the level.
    fn sampled(&self, wanted: usize) -> (usize, Vec<K>) {
        let top = self.levels.load(Acquire).min(LEVELS_MAX);
        for level in (1..top).rev() {
            let keys = self.low_keys(level);
            if keys.len() >= wanted {
                return (level, keys);
            }
        }
        (0, self.low_keys(0))
    }

    /// Returns keys that divide the list into parts of about equal size, in ascending order.
    pub fn split_points(&self, wanted: usize) -> Vec<K> {
        let _pinned = self.pool.pin();
        let mut keys = self.sampled(wanted).1;
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Estimates the number of keys.
    pub fn estimated_keys(&self) -> u64 {
        let _pinned = self.pool.pin();
        let (level, keys) = self.sampled(SAMPLED_MIN);
        let nodes = keys.len() as u64 * NODES_OF_TOWER.pow(level as u32);
        let in_head = if C::IN_HEAD { C::count::<K>(self.parts(self.head)) as u64 } else { 0 };
        if nodes == 0 { in_head } else { nodes * self.usual_leaf_keys() + in_head }
    }

    /// Estimates the share of the keys that lie below `key`: 0 to 1.
    pub fn estimated_share_below(&self, key: K) -> f64 {
        let _pinned = self.pool.pin();
        let (_, keys) = self.sampled(SAMPLED_MIN);
        // The head has keys, too.
        keys.iter().filter(|low| **low <= key).count() as f64 / (keys.len() + 1) as f64
    }

    /// Counts sizes along the nodes. With concurrent writers it is an estimate.
    pub(crate) fn sizes(&self) -> TreeStats {
        let _pinned = self.pool.pin();
        let mut stats = TreeStats {
            levels: self.levels.load(Acquire) as u32,
            inner_bytes: if T::PERSISTENT { 0 } else { self.arena.bytes() as usize },
            ..TreeStats::default()
        };
        let mut node = self.head;
        while !node.is_null() && self.head_words(node).is_ok() {
            stats.leaves += 1;
            stats.keys += C::count::<K>(self.parts(node)) as u64;
            node = self.next_of(node);
        }
        stats
    }
}
