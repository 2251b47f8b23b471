//! Keys of a fixed number of words.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A key of one or two words, compared as a number. Byte strings as big-endian numbers have the same order.
pub trait FixedKey: Copy + Ord + Debug + Send + Sync + 'static {
    /// Words of a key.
    const WORDS: usize;
    /// True if a key is its one word and compares as that: then nodes may compare the words of a line at
    /// once, without [`FixedKey::load`].
    const IS_WORD: bool;
    /// The smallest key.
    const MIN: Self;
    /// Reads a key from its words, the most significant first.
    fn load(words: &[AtomicU64]) -> Self;
    /// Reads a key from plain words.
    fn of_words(words: &[u64]) -> Self;
    /// Returns one of its words.
    fn word(self, index: usize) -> u64;
    /// Returns one byte of hash.
    fn fingerprint(self) -> u8;
    /// Returns the next smaller key.
    fn previous(self) -> Option<Self>;
    /// Returns the next greater key.
    fn next(self) -> Option<Self>;
    /// Returns its position among all keys; for interpolation.
    fn as_number(self) -> u128;
}

/// A multiplicative hash; the top byte is well mixed.
#[inline]
fn mix(word: u64) -> u64 {
    (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl FixedKey for u64 {
    const WORDS: usize = 1;
    const IS_WORD: bool = true;
    const MIN: u64 = 0;

    #[inline]
    fn load(words: &[AtomicU64]) -> u64 {
        words[0].load(Relaxed)
    }

    #[inline]
    fn of_words(words: &[u64]) -> u64 {
        words[0]
    }

    #[inline]
    fn word(self, _index: usize) -> u64 {
        self
    }

    #[inline]
    fn fingerprint(self) -> u8 {
        (mix(self) >> 56) as u8
    }

    fn previous(self) -> Option<u64> {
        self.checked_sub(1)
    }

    fn next(self) -> Option<u64> {
        self.checked_add(1)
    }

    fn as_number(self) -> u128 {
        u128::from(self)
    }
}

impl FixedKey for u128 {
    const WORDS: usize = 2;
    const IS_WORD: bool = false;
    const MIN: u128 = 0;

    #[inline]
    fn load(words: &[AtomicU64]) -> u128 {
        u128::from(words[0].load(Relaxed)) << 64 | u128::from(words[1].load(Relaxed))
    }

    #[inline]
    fn of_words(words: &[u64]) -> u128 {
        u128::from(words[0]) << 64 | u128::from(words[1])
    }

    #[inline]
    fn word(self, index: usize) -> u64 {
        if index == 0 { (self >> 64) as u64 } else { self as u64 }
    }

    #[inline]
    fn fingerprint(self) -> u8 {
        (mix(mix((self >> 64) as u64) ^ self as u64) >> 56) as u8
    }

    fn previous(self) -> Option<u128> {
        self.checked_sub(1)
    }

    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }

    fn as_number(self) -> u128 {
        self
    }
}
