//! Sizes and invariants of a list. No damage causes a panic.

use super::lifecycle::HEADER_BYTES;
use super::{Content, LEVELS_MAX, LOW, META, SkipList, SkipListStats, Towers, descent::meta};
use crate::error::{Error, Result};
use crate::node::{Entries, FixedKey};
use entresol_memory::{Pool, PoolOffset};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Verdict on an object that a check found.
type Claim = std::result::Result<(), String>;

/// Makes an error of what is wrong with an object.
fn corrupt_at(offset: PoolOffset) -> impl Fn(String) -> Error {
    move |message| Error::Corrupt { offset, message }
}

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<SkipListStats> {
        Ok(self.walk(&mut |_, _| Ok(()))?.0)
    }

    /// Verifies all invariants of the list; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the list consists of (not those that its values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        let mut claim = |offset, _| {
            object(offset);
            Ok(())
        };
        self.walk(&mut claim).map(|_| ())
    }

    /// Same as [`SkipList::check`]. `claim` is called with offset and bytes of every object of the list, and returns
    /// an error text for a wrong one. Only if all of them are sound, `entry` gets the keys and values.
    pub fn check_damaged(
        &self,
        mut claim: impl FnMut(PoolOffset, u64) -> Claim,
        entry: impl FnMut(K, u64),
    ) -> Result<()> {
        let (_, nodes) = self.walk(&mut claim)?;
        self.for_each_entry(&nodes, entry);
        Ok(())
    }

    /// Same as [`SkipList::check_damaged`] for a list partly freed by [`SkipList::destroy_step`].
    pub fn check_remains(
        pool: &Arc<Pool>,
        header: PoolOffset,
        mut claim: impl FnMut(PoolOffset, u64) -> Claim,
        entry: impl FnMut(K, u64),
    ) -> Result<()> {
        let list = Self::attach(pool, header)?;
        claim(header, HEADER_BYTES as u64).map_err(corrupt_at(header))?;
        let (mut node, mut nodes) = (list.head, Vec::new());
        while !node.is_null() {
            // A cycle ends here: its first node is claimed a second time.
            list.claim_node(node, &mut claim)?;
            C::check::<K>(list.parts(node)).map_err(corrupt_at(node))?;
            nodes.push(node);
            node = list.next_of(node);
        }
        list.for_each_entry(&nodes, entry);
        Ok(())
    }

    /// Calls `entry` with the keys and values of sound nodes.
    fn for_each_entry(&self, nodes: &[PoolOffset], mut entry: impl FnMut(K, u64)) {
        let mut entries = Entries::<K>::new();
        for node in nodes {
            C::append_sorted(self.parts(*node), &mut entries);
            entries.drain(..).for_each(|(key, value)| entry(key, value));
        }
    }

    /// Claims a node with the bytes of its height.
    fn claim_node(&self, node: PoolOffset, claim: &mut dyn FnMut(PoolOffset, u64) -> Claim) -> Result<()> {
        let height = (self.head_words(node)?.load(META) & 0xFF) as usize;
        let bytes = C::head_bytes(height.clamp(1, LEVELS_MAX)) + C::BYTES;
        claim(node, bytes as u64).map_err(corrupt_at(node))
    }

    fn walk(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
    ) -> Result<(SkipListStats, Vec<PoolOffset>)> {
        let _pinned = self.pool.pin();
        claim(self.header, HEADER_BYTES as u64).map_err(corrupt_at(self.header))?;
        let (mut stats, mut nodes) = (SkipListStats::default(), Vec::new());
        // Expected next tower of each level.
        let mut expected = [0; LEVELS_MAX];
        for (level, expected) in expected.iter_mut().enumerate().skip(1) {
            *expected = self.forward(self.head_tower(), level)?;
        }
        let (mut node, mut low) = (self.head, K::MIN);
        loop {
            self.claim_node(node, claim)?;
            let next = self.next_of(node);
            let below = if next.is_null() { None } else { Some(self.sound_low(next)?) };
            if below.is_some_and(|below| below < low || (below == low && node != self.head)) {
                let message = format!("its low key {below:?} is not above that of the node before, {low:?}");
                return Err(Error::Corrupt { offset: next, message });
            }
            self.walk_entries(node, (low, below), &mut stats)?;
            nodes.push(node);
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
        Ok((stats, nodes))
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
