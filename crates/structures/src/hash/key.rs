//! Hashes of keys, and the uses of their bits.
//!
//! ```text
//! bits     use
//! 63..     the segment: as many bits from the top as it is deep
//! 31..0    the home bucket in the segment (scaled, so mostly by the upper ones)
//! 11..8    tag of a displaced entry
//! 7..0     fingerprint
//! ```
//!
//! A table has a random seed, so chosen keys cannot be made to collide.

use super::segment::BUCKETS;
use crate::key::{PairKey, TreeKey, WordKey};

/// Kind of key that consists of its words, so that equal keys have equal words.
pub trait HashKey: TreeKey {
    /// Returns the key as stored in a bucket.
    fn stored(key: Self::Key<'_>) -> Self::Stored;
}

impl HashKey for WordKey {
    #[inline]
    fn stored(key: u64) -> u64 {
        key
    }
}

impl HashKey for PairKey {
    #[inline]
    fn stored(key: [u64; 2]) -> [u64; 2] {
        key
    }
}

/// The hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(pub(super) u64);

impl Hash {
    #[inline]
    pub(super) fn of<K: HashKey>(stored: K::Stored, seed: u64) -> Hash {
        Hash((0..K::WORDS).fold(seed, |hash, index| scramble(hash ^ K::word(stored, index))))
    }

    /// Returns the home bucket of the key.
    #[inline]
    pub(super) fn home(self) -> usize {
        (((self.0 & 0xFFFF_FFFF) * BUCKETS as u64) >> 32) as usize
    }

    #[inline]
    pub(super) fn fingerprint(self) -> u8 {
        self.0 as u8
    }

    /// Returns four bits for displaced entries.
    #[inline]
    pub(super) fn tag(self) -> u8 {
        (self.0 >> 8) as u8 & 0xF
    }

    /// Returns the first `depth` bits as a number.
    #[inline]
    pub(super) fn prefix(self, depth: u32) -> usize {
        ((self.0 >> 1) >> (63 - depth)) as usize
    }

    /// Returns true if the first `depth` bits are those of `prefix`, which is aligned at the top.
    #[inline]
    pub(super) fn starts_with(self, prefix: u64, depth: u32) -> bool {
        Hash(self.0 ^ prefix).prefix(depth) == 0
    }
}

/// Mixes all bits of a word into all others; words and results correspond one to one.
#[inline]
pub(super) fn scramble(mut word: u64) -> u64 {
    word ^= word >> 32;
    word = word.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^= word >> 32;
    word = word.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_the_first_bits() {
        let hash = Hash(0xA000_0000_0000_0000);
        assert_eq!([0, 1, 2, 3, 4].map(|depth| hash.prefix(depth)), [0, 1, 2, 5, 10]);
        assert!(hash.starts_with(0, 0) && hash.starts_with(0x8000_0000_0000_0000, 2));
        assert!(!hash.starts_with(0x8000_0000_0000_0000, 3));
    }

    #[test]
    fn regular_keys_spread_over_buckets_and_prefixes() {
        let patterns: [fn(u64) -> u64; 4] =
            [|i| i, |i| i << 32, |i| i << 52 | i, |i| (i * 1000).swap_bytes()];
        for pattern in patterns {
            let mut buckets = [0u32; BUCKETS];
            let mut prefixes = [0u32; 64];
            for i in 0..4000 {
                let hash = Hash::of::<WordKey>(pattern(i), 77);
                buckets[hash.home()] += 1;
                prefixes[hash.prefix(6)] += 1;
            }
            // Means 31.5 and 62.5; five deviations.
            assert!(buckets.iter().all(|count| (4..64).contains(count)), "{buckets:?}");
            assert!(prefixes.iter().all(|count| (22..104).contains(count)), "{prefixes:?}");
        }
    }
}
