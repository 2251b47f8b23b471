//! Descents: from the head's highest level down to the node of a key.
//!
//! Links of a level are read without latches. A node that is gone keeps its links, so whoever stands on one still
//! comes to greater keys; but it may miss what was linked since, so the one node that counts is validated.

use super::{Content, FORWARD, LEVELS_MAX, LOW, META, SkipList, Towers};
use crate::error::{Error, Result};
use crate::latch;
use crate::node::{FixedKey, Node};
use std::sync::atomic::Ordering::Acquire;

/// The last tower before a key on each level, what it led to, and the node of level 0 with its version.
pub(super) struct Path {
    /// From level 1 on: towers.
    pub(super) before: [u64; LEVELS_MAX],
    /// From level 1 on: towers; on level 0 a node.
    pub(super) after: [u64; LEVELS_MAX],
    pub(super) node: u64,
    pub(super) version: u64,
}

/// Why a descent did not end.
pub(super) enum Trouble {
    /// A node that it met is gone: another try.
    Overtaken,
    Damage(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Damage(error)
    }
}

/// What word 0 of a node's head is: never 0.
pub(super) fn meta<K: FixedKey>(low: K, height: usize) -> u64 {
    let words = (0..K::WORDS).map(|i| low.word(i));
    let hash = words.chain([height as u64]).fold(0x005E_A1ED_u64, |hash, word| {
        let mixed = (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    });
    (hash & !0xFF) | height as u64
}

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// The tower of the head.
    pub(super) fn head_tower(&self) -> u64 {
        if T::PERSISTENT { self.head } else { 0 }
    }

    /// The node of a tower.
    #[inline]
    pub(super) fn node_of(&self, tower: u64) -> u64 {
        if T::PERSISTENT { tower } else { self.arena.node(tower) }
    }

    /// The first line of a node, whatever it holds.
    #[inline]
    pub(super) fn head_words(&self, node: u64) -> Result<Node<'_>> {
        let end = node.checked_add((C::head_bytes(1) + C::BYTES) as u64);
        if node == 0 || !node.is_multiple_of(64) || end.is_none_or(|end| end > self.pool.bytes()) {
            let what = "a reference leads there, and no node can be there".to_string();
            return Err(Error::Corrupt { offset: node, what });
        }
        Ok(Node::new(self.pool.words(node, 8), node))
    }

    /// The low key of a node. `since`: how many nodes had been unlinked when the descent began.
    #[inline]
    pub(super) fn low_of(&self, node: u64, since: u64) -> std::result::Result<K, Trouble> {
        let head = self.head_words(node)?;
        let (found, low) = (head.words()[META].load(Acquire), head.load_key::<K>(LOW));
        if found == meta(low, (found & 0xFF) as usize) {
            return Ok(low);
        }
        // One that is gone is met only by those who came before it went.
        if self.unlinked.load(Acquire) != since {
            return Err(Trouble::Overtaken);
        }
        let what = format!("its first word {found:#018x} does not fit its low key {low:?}");
        Err(Trouble::Damage(Error::Corrupt { offset: node, what }))
    }

    /// The pointer of a tower at a level above 0.
    #[inline]
    pub(super) fn forward(&self, tower: u64, level: usize) -> Result<u64> {
        if !T::PERSISTENT {
            return Ok(self.arena.forward(tower, level).load(Acquire));
        }
        let at = tower + (FORWARD + level) as u64 * 8;
        match self.pool.try_words(at, 1) {
            Some(words) => Ok(words[0].load(Acquire)),
            None => Err(Error::Corrupt { offset: tower, what: "no node can be there".to_string() }),
        }
    }

    /// The pointer of a node at level 0.
    #[inline]
    pub(super) fn next_of(&self, node: u64) -> u64 {
        self.pool.word(node + FORWARD as u64 * 8).load(Acquire)
    }

    /// The low key of the node of a tower that was just named.
    #[inline]
    fn tower_low(&self, tower: u64, level: usize, since: u64) -> std::result::Result<K, Trouble> {
        if !T::PERSISTENT {
            return Ok(self.arena.low(tower));
        }
        let low = self.low_of(tower, since)?;
        let height = self.pool.word(tower).load(Acquire) & 0xFF;
        if height <= level as u64 && self.unlinked.load(Acquire) == since {
            let what = format!("it is linked at level {level} and has {height} levels");
            return Err(Trouble::Damage(Error::Corrupt { offset: tower, what }));
        }
        Ok(low)
    }

    /// The path to the last node whose low key is not greater.
    #[inline]
    pub(super) fn descend(&self, key: K) -> Result<Path> {
        self.descend_to(key, false)
    }

    /// The path to the last node whose low key is smaller, or, unless `strictly`, not greater.
    pub(super) fn descend_to(&self, key: K, strictly: bool) -> Result<Path> {
        let mut spins = 0;
        loop {
            match self.try_descend(key, strictly) {
                Ok(path) => return Ok(path),
                Err(Trouble::Overtaken) => latch::pause(&mut spins),
                Err(Trouble::Damage(error)) => return Err(error),
            }
        }
    }

    fn try_descend(&self, key: K, strictly: bool) -> std::result::Result<Path, Trouble> {
        let since = self.unlinked.load(Acquire);
        let is_before = |low: K| low < key || (!strictly && low == key);
        let head = self.head_tower();
        let mut path =
            Path { before: [head; LEVELS_MAX], after: [0; LEVELS_MAX], node: self.head, version: 0 };
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
                self.check_ascends(next, last, low)?;
                if !is_before(low) {
                    break;
                }
                (tower, last) = (next, Some(low));
            }
            path.before[level] = tower;
        }
        let mut node = self.node_of(tower);
        loop {
            // The version before what it vouches for.
            let version = latch::read(self.latch(node));
            if node != self.head {
                self.low_of(node, since)?;
            }
            let next = self.next_of(node);
            if next != 0 {
                let low = self.low_of(next, since)?;
                self.check_ascends(next, last, low)?;
                if is_before(low) {
                    (node, last) = (next, Some(low));
                    continue;
                }
            }
            if latch::validate(self.latch(node), version) {
                (path.node, path.version, path.after[0]) = (node, version, next);
                return Ok(path);
            }
        }
    }

    /// Links that do not ascend could form a ring.
    #[inline]
    fn check_ascends(&self, node: u64, last: Option<K>, low: K) -> Result<()> {
        if last.is_some_and(|last| last >= low) {
            let what = format!("its low key {low:?} is not above that of a node before it");
            return Err(Error::Corrupt { offset: self.node_of(node), what });
        }
        Ok(())
    }
}
