//! Blocks: the units of runs, in the pool and in files alike.
//!
//! ```text
//! word      content                                    keys of 8 bytes   of 16
//! 0         entries (8 bits), tombstones (from bit 16)
//! 1..       keys, ascending                            15                20 words for 10
//! ..31      values                                     15                10
//! 31        check word over the others and the index in the run
//! ```
//!
//! 256 bytes are the internal access size of Optane, and four lines that are loaded together. A reader copies
//! the block, verifies it and searches the copy: a flipped bit is an error, not a wrong answer.

use crate::node::FixedKey;
use entresol_memory::{Pool, PoolOffset};
use std::sync::atomic::Ordering::Relaxed;

pub(crate) const BLOCK_WORDS: usize = 32;
pub(crate) const BLOCK_BYTES: usize = BLOCK_WORDS * 8;
const CHECK: usize = BLOCK_WORDS - 1;
const TOMBSTONES: u32 = 16;

/// Key with its value, or a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LsmEntry<K> {
    pub(crate) key: K,
    /// 0 in a tombstone.
    pub(crate) value: u64,
    pub(crate) is_tombstone: bool,
}

impl<K> LsmEntry<K> {
    /// Returns the value for readers.
    pub(crate) fn value(&self) -> Option<u64> {
        (!self.is_tombstone).then_some(self.value)
    }
}

/// Entries of a full block.
pub(crate) const fn capacity<K: FixedKey>() -> usize {
    (BLOCK_WORDS - 2) / (K::WORDS + 1)
}

/// A block in DRAM.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Block {
    words: [u64; BLOCK_WORDS],
}

impl Block {
    pub(crate) fn empty() -> Block {
        Block { words: [0; BLOCK_WORDS] }
    }

    /// Copies a block of the pool.
    #[inline]
    pub(crate) fn load(pool: &Pool, offset: PoolOffset) -> Block {
        let mut block = Block::empty();
        for (to, from) in block.words.iter_mut().zip(pool.words(offset, BLOCK_WORDS)) {
            *to = from.load(Relaxed);
        }
        block
    }

    #[inline]
    pub(crate) fn of_words(words: &[u64]) -> Block {
        let mut block = Block::empty();
        block.words.copy_from_slice(words);
        block
    }

    pub(crate) fn words(&self) -> &[u64; BLOCK_WORDS] {
        &self.words
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.words[0] & 0xFF) as usize
    }

    #[inline]
    pub(crate) fn key<K: FixedKey>(&self, slot: usize) -> K {
        K::of_words(&self.words[1 + slot * K::WORDS..][..K::WORDS])
    }

    #[inline]
    pub(crate) fn entry<K: FixedKey>(&self, slot: usize) -> LsmEntry<K> {
        LsmEntry {
            key: self.key(slot),
            value: self.words[1 + capacity::<K>() * K::WORDS + slot],
            is_tombstone: self.words[0] >> (TOMBSTONES as usize + slot) & 1 == 1,
        }
    }

    /// Appends an entry; true if the block is full then. Entries are added in ascending order.
    #[inline]
    pub(crate) fn push<K: FixedKey>(&mut self, entry: &LsmEntry<K>) -> bool {
        let slot = self.len();
        assert!(slot < capacity::<K>(), "a block has {} entries at most", capacity::<K>());
        debug_assert!(
            slot == 0 || self.key::<K>(slot - 1) < entry.key,
            "the keys of a block ascend: entry {slot}"
        );
        for word in 0..K::WORDS {
            self.words[1 + slot * K::WORDS + word] = entry.key.word(word);
        }
        self.words[1 + capacity::<K>() * K::WORDS + slot] = entry.value;
        self.words[0] += 1;
        self.words[0] |= u64::from(entry.is_tombstone) << (TOMBSTONES as usize + slot);
        slot + 1 == capacity::<K>()
    }

    /// Computes the check word: the block has index `place` in the run with this number.
    pub(crate) fn seal(&mut self, run: u64, place: usize) {
        assert!(self.len() > 0, "block {place} of run {run} is sealed with entries");
        self.words[CHECK] = self.checksum(run, place);
    }

    /// Returns true if it is unchanged since it was sealed, at this index.
    #[inline]
    pub(crate) fn is_sound<K: FixedKey>(&self, run: u64, place: usize) -> bool {
        self.words[CHECK] == self.checksum(run, place) && (1..=capacity::<K>()).contains(&self.len())
    }

    /// Checksum that changes if any word changes: each goes into one of four lanes by invertible steps.
    #[inline]
    fn checksum(&self, run: u64, place: usize) -> u64 {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut lanes = [run, place as u64, FACTOR, !FACTOR];
        for (group, words) in self.words.chunks_exact(4).enumerate() {
            for (lane, word) in lanes.iter_mut().zip(words).take(if group == 7 { 3 } else { 4 }) {
                *lane = (*lane ^ word).wrapping_mul(FACTOR).rotate_left(29);
            }
        }
        lanes.iter().fold(0, |sum: u64, lane| (sum.rotate_left(17) ^ lane).wrapping_mul(FACTOR))
    }

    /// Returns the slot of the first entry whose key is not below this one.
    #[inline]
    pub(crate) fn lower_bound<K: FixedKey>(&self, key: K) -> usize {
        (0..self.len()).filter(|slot| self.key::<K>(*slot) < key).count()
    }

    #[inline]
    pub(crate) fn find<K: FixedKey>(&self, key: K) -> Option<LsmEntry<K>> {
        let slot = self.lower_bound(key);
        (slot < self.len() && self.key::<K>(slot) == key).then(|| self.entry(slot))
    }
}

const _: () = {
    assert!(capacity::<u64>() == 15 && capacity::<u128>() == 10);
    assert!(capacity::<u64>() * 2 < CHECK && capacity::<u128>() * 3 < CHECK);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn filled<K: FixedKey>(key: impl Fn(u64) -> K) -> Block {
        let mut block = Block::empty();
        let entry = |n: u64| LsmEntry { key: key(n * 3), value: n, is_tombstone: n.is_multiple_of(4) };
        let full: Vec<bool> = (0..capacity::<K>() as u64).map(|n| block.push(&entry(n))).collect();
        assert_eq!(full.iter().position(|full| *full), Some(capacity::<K>() - 1));
        block.seal(7, 3);
        block
    }

    fn finds_all<K: FixedKey>(key: impl Fn(u64) -> K) {
        let block = filled(&key);
        for n in 0..capacity::<K>() as u64 {
            let found = block.find(key(n * 3)).map(|entry| entry.value());
            assert_eq!(found, Some((n % 4 != 0).then_some(n)));
            assert_eq!(block.find(key(n * 3 + 1)), None);
            assert_eq!(block.lower_bound(key(n * 3 + 1)) as u64, n + 1);
        }
    }

    #[test]
    fn a_block_finds_its_entries() {
        finds_all::<u64>(|n| n);
        finds_all::<u128>(|n| u128::from(n) << 61 | u128::from(n));
    }

    #[test]
    fn every_flipped_bit_and_every_other_place_is_noticed() {
        let block = filled::<u64>(|n| n);
        assert!(block.is_sound::<u64>(7, 3) && !block.is_sound::<u64>(7, 4) && !block.is_sound::<u64>(8, 3));
        for bit in 0..BLOCK_WORDS * 64 {
            let mut damaged = block.clone();
            damaged.words[bit / 64] ^= 1 << (bit % 64);
            assert!(!damaged.is_sound::<u64>(7, 3), "bit {bit}");
        }
    }
}
