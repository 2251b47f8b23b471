//! Descents: from the head's highest level down to the node of a key.
//!
//! Links of a level are read without latches. A removed node keeps its links, so a reader on one still
//! reaches greater keys; but it may miss nodes linked since, so the final node is validated.

use super::{Content, FORWARD, LEVELS_MAX, LOW, META, SkipList, Towers};
use crate::error::{DescentError, Error, Result};
use crate::latch;
use crate::node::{FixedKey, Node};
use entresol_memory::PoolOffset;
use std::sync::atomic::Ordering::Acquire;

/// Last tower before a key on each level, its successor, and the node of level 0 with its version.
pub(super) struct TowerPath {
    /// From level 1 on: towers.
    pub(super) before: [u64; LEVELS_MAX],
    /// From level 1 on: towers; on level 0 the word of a node.
    pub(super) after: [u64; LEVELS_MAX],
    pub(super) node: PoolOffset,
    pub(super) version: u64,
}

/// Returns word 0 of a node's head: never 0.
pub(super) fn meta<K: FixedKey>(low: K, height: usize) -> u64 {
    let words = (0..K::WORDS).map(|i| low.word(i));
    let hash = words.chain([height as u64]).fold(0x005E_A1ED_u64, |hash, word| {
        let mixed = (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    });
    (hash & !0xFF) | height as u64
}

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Returns the tower of the head.
    pub(super) fn head_tower(&self) -> u64 {
        if T::PERSISTENT { self.head.to_word() } else { 0 }
    }

    /// Returns the node of a tower.
    #[inline]
    pub(super) fn node_of(&self, tower: u64) -> PoolOffset {
        if T::PERSISTENT { PoolOffset::from_word(tower) } else { self.arena.node(tower) }
    }

    /// Returns the first line of a node, whatever its content.
    #[inline]
    pub(super) fn head_words(&self, node: PoolOffset) -> Result<Node<'_>> {
        let bytes = (C::head_bytes(1) + C::BYTES) as u64;
        if node.is_null() || !node.is_aligned(64) || !self.pool.contains(node, bytes) {
            let message = "the offset cannot hold a node, but a reference leads to it".to_string();
            return Err(Error::Corrupt { offset: node, message });
        }
        self.pool.verify(node, bytes as usize)?;
        Ok(Node::new(self.pool.words(node, 8), node))
    }

    /// Returns the low key of a node. `since`: number of nodes unlinked when the descent began.
    #[inline]
    pub(super) fn low_of(&self, node: PoolOffset, since: u64) -> std::result::Result<K, DescentError> {
        let head = self.head_words(node)?;
        let (found, low) = (head.words()[META].load(Acquire), head.load_key::<K>(LOW));
        if found == meta(low, (found & 0xFF) as usize) {
            return Ok(low);
        }
        // Only descents that began before the removal can find a removed node.
        if self.unlinked.load(Acquire) != since {
            return Err(DescentError::Conflict);
        }
        let message = format!("its first word {found:#018x} does not match its low key {low:?}");
        Err(DescentError::Damage(Error::Corrupt { offset: node, message }))
    }

    /// Returns the pointer of a tower at a level above 0.
    #[inline]
    pub(super) fn forward(&self, tower: u64, level: usize) -> Result<u64> {
        if !T::PERSISTENT {
            return Ok(self.arena.forward(tower, level).load(Acquire));
        }
        let offset = PoolOffset::from_word(tower);
        match self.pool.try_words(offset.word(FORWARD + level), 1) {
            Some(words) => Ok(words[0].load(Acquire)),
            None => Err(Error::Corrupt { offset, message: "the offset cannot hold a node".to_string() }),
        }
    }

    /// Returns the pointer of a node at level 0.
    #[inline]
    pub(super) fn next_of(&self, node: PoolOffset) -> PoolOffset {
        PoolOffset::from_word(self.pool.word(node.word(FORWARD)).load(Acquire))
    }

    /// Returns the low key of the node of a tower that was just read.
    #[inline]
    fn tower_low(&self, tower: u64, level: usize, since: u64) -> std::result::Result<K, DescentError> {
        if !T::PERSISTENT {
            return Ok(self.arena.low(tower));
        }
        let node = PoolOffset::from_word(tower);
        let low = self.low_of(node, since)?;
        let height = self.pool.word(node).load(Acquire) & 0xFF;
        if height <= level as u64 && self.unlinked.load(Acquire) == since {
            let message = format!("it is linked at level {level}, but has {height} levels");
            return Err(DescentError::Damage(Error::Corrupt { offset: node, message }));
        }
        Ok(low)
    }

    /// Returns the path to the last node whose low key is not greater.
    #[inline]
    pub(super) fn descend(&self, key: K) -> Result<TowerPath> {
        self.descend_to(key, false)
    }

    /// Returns the path to the last node whose low key is smaller, or, unless `strictly`, not greater.
    pub(super) fn descend_to(&self, key: K, strictly: bool) -> Result<TowerPath> {
        let mut spins = 0;
        loop {
            match self.try_descend(key, strictly) {
                Ok(path) => return Ok(path),
                Err(DescentError::Conflict) => latch::pause(&mut spins),
                Err(DescentError::Damage(error)) => return Err(error),
            }
        }
    }

    fn try_descend(&self, key: K, strictly: bool) -> std::result::Result<TowerPath, DescentError> {
        let since = self.unlinked.load(Acquire);
        let is_before = |low: K| low < key || (!strictly && low == key);
        let head = self.head_tower();
        let mut path =
            TowerPath { before: [head; LEVELS_MAX], after: [0; LEVELS_MAX], node: self.head, version: 0 };
        let mut tower = head;
        let mut last: Option<K> = None;
        for level in (1..self.levels.load(Acquire)).rev() {
            loop {
                let next = self.forward(tower, level)?;
                path.after[level] = next;
                if next == 0 {
                    break;
                }
                let low = self.tower_low(next, level, since)?;
                self.check_ascends(|| self.node_of(next), last, low)?;
                if !is_before(low) {
                    break;
                }
                (tower, last) = (next, Some(low));
            }
            path.before[level] = tower;
        }
        let mut node = self.node_of(tower);
        loop {
            // The version before the words it covers.
            let version = latch::read(self.latch(node));
            if node != self.head {
                self.low_of(node, since)?;
            }
            let next = self.next_of(node);
            if !next.is_null() {
                let low = self.low_of(next, since)?;
                self.check_ascends(|| next, last, low)?;
                if is_before(low) {
                    (node, last) = (next, Some(low));
                    continue;
                }
            }
            if latch::validate(self.latch(node), version) {
                (path.node, path.version, path.after[0]) = (node, version, next.to_word());
                return Ok(path);
            }
        }
    }

    /// Verifies that links ascend: otherwise they could form a cycle.
    #[inline]
    fn check_ascends(&self, node: impl Fn() -> PoolOffset, last: Option<K>, low: K) -> Result<()> {
        if last.is_some_and(|last| last >= low) {
            let message = format!("its low key {low:?} is not above that of a node before it");
            return Err(Error::Corrupt { offset: node(), message });
        }
        Ok(())
    }
}
