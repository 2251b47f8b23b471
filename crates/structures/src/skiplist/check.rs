//! Sizes and invariants of a list. No damage causes a panic.

use super::{Content, LEVELS_MAX, LOW, META, SkipList, SkipListStats, Towers, descent::meta};
use crate::error::{Error, Result};
use crate::node::{Entries, FixedKey};
use entresol_memory::PoolOffset;
use std::sync::atomic::Ordering::Acquire;

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<SkipListStats> {
        self.walk(|_| {})
    }

    /// Verifies all invariants of the list; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the list consists of (not those that its values may refer to).
    pub fn check(&self, object: impl FnMut(PoolOffset)) -> Result<()> {
        self.walk(object).map(|_| ())
    }

    fn walk(&self, mut object: impl FnMut(PoolOffset)) -> Result<SkipListStats> {
        let _pinned = self.pool.pin();
        object(self.header);
        let mut stats = SkipListStats::default();
        // Expected next tower of each level.
        let mut expected = [0; LEVELS_MAX];
        for (level, expected) in expected.iter_mut().enumerate().skip(1) {
            *expected = self.forward(self.head_tower(), level)?;
        }
        let (mut node, mut low) = (self.head, K::MIN);
        loop {
            object(node);
            let next = self.next_of(node);
            let below = if next.is_null() { None } else { Some(self.sound_low(next)?) };
            if below.is_some_and(|below| below < low || (below == low && node != self.head)) {
                let message = format!("its low key {below:?} is not above that of the node before, {low:?}");
                return Err(Error::Corrupt { offset: next, message });
            }
            self.walk_entries(node, (low, below), &mut stats)?;
            if node != self.head {
                stats.nodes += 1;
                stats.tower_links += self.walk_tower(node, low, &mut expected)?;
            }
            match below {
                Some(below) => (node, low) = (next, below),
                None => break,
            }
        }
        if let Some(level) = (1..LEVELS_MAX).find(|level| expected[*level] != 0) {
            let message = format!("level {level} leads to {:#x}, which is not on level 0", expected[level]);
            return Err(Error::Corrupt { offset: self.head, message });
        }
        stats.levels = self.levels_in_use()? as u32;
        stats.dram_bytes = if T::PERSISTENT { 0 } else { self.arena.bytes() };
        Ok(stats)
    }

    /// Returns the low key of a node whose head is sound.
    fn sound_low(&self, node: PoolOffset) -> Result<K> {
        let head = self.head_words(node)?;
        let (found, low) = (head.load(META), head.load_key::<K>(LOW));
        let height = (found & 0xFF) as usize;
        let most = if T::PERSISTENT { LEVELS_MAX } else { 1 };
        if found != meta(low, height) || !(1..=most).contains(&height) {
            let message = format!("its first word {found:#018x} does not match its low key {low:?}");
            return Err(Error::Corrupt { offset: node, message });
        }
        if self.pool.try_words(node, (C::head_bytes(height) + C::BYTES) / 8).is_none() {
            let message = "the offset cannot hold a node of its height".to_string();
            return Err(Error::Corrupt { offset: node, message });
        }
        Ok(low)
    }

    fn walk_entries(
        &self,
        node: PoolOffset,
        (low, below): (K, Option<K>),
        stats: &mut SkipListStats,
    ) -> Result<()> {
        let parts = self.parts(node);
        C::check::<K>(parts).map_err(|message| Error::Corrupt { offset: node, message })?;
        let mut entries = Entries::<K>::new();
        C::append_sorted(parts, &mut entries);
        if entries.is_empty() && node != self.head {
            return Err(Error::Corrupt { offset: node, message: "it is empty".to_string() });
        }
        for (key, _) in &entries {
            if *key < low || below.is_some_and(|below| *key >= below) {
                let message = format!("its key {key:?} is out of its range");
                return Err(Error::Corrupt { offset: node, message });
            }
            if C::find(parts, *key).is_none() {
                let message = format!("a search does not find its key {key:?}");
                return Err(Error::Corrupt { offset: node, message });
            }
        }
        stats.keys += entries.len() as u64;
        let height = parts.head.load(META) & 0xFF;
        stats.pool_bytes += (C::head_bytes(height as usize) + C::BYTES) as u64;
        Ok(())
    }

    /// Verifies that a node is in the levels of its height, and in no others. Returns the number of those
    /// above 0.
    fn walk_tower(&self, node: PoolOffset, low: K, expected: &mut [u64; LEVELS_MAX]) -> Result<u64> {
        let leads_there = |tower: u64| tower != 0 && self.node_of(tower) == node;
        let tower = expected[1];
        let height = 1 + (1..LEVELS_MAX).take_while(|level| leads_there(expected[*level])).count();
        let stored = self.pool.word(node.word(META)).load(Acquire) & 0xFF;
        if T::PERSISTENT && stored != height as u64 {
            let message = format!("it has {stored} levels, but is linked on {height}");
            return Err(Error::Corrupt { offset: node, message });
        }
        if !T::PERSISTENT && height > 1 && self.arena.low::<K>(tower) != low {
            let message = "its tower has another low key".to_string();
            return Err(Error::Corrupt { offset: node, message });
        }
        for (level, expected) in expected.iter_mut().enumerate().take(height).skip(1) {
            *expected = self.forward(tower, level)?;
        }
        Ok(height as u64 - 1)
    }

    /// Returns the number of levels on which the head leads to a node.
    pub(super) fn levels_in_use(&self) -> Result<usize> {
        let mut levels = 1;
        for level in 1..LEVELS_MAX {
            if self.forward(self.head_tower(), level)? != 0 {
                levels = level + 1;
            }
        }
        Ok(levels)
    }
}
