//! Keys: their representation in nodes and their order.
//!
//! Every kind of key takes a fixed number of words in a node. Fixed keys are the words themselves,
//! big-endian, so that word order is byte order. A key of variable length is its first eight bytes
//! (order-preserving prefix) and the offset of a record with the complete key:
//!
//! ```text
//! record word   content
//! 0             bytes of the key
//! 1..           the key, zero padded
//! ```
//!
//! A damaged reference may have any target. Such a key equals no other: it is ordered after the keys of up to
//! eight bytes with its prefix and before the longer ones, and is logged at each access; the checks of trees
//! report it.

use crate::error::{Error, Result};
use crate::points::KEY_RECORD;
use crate::simd::{Line, not_greater, sort_by_words};
use entresol_memory::{Pool, PoolOffset, Publication};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An encoded key.
pub type KeyBytes = SmallVec<[u8; 16]>;

/// The longest key of variable length.
pub const KEY_BYTES_MAX: usize = 4096;

/// A kind of key.
pub trait TreeKey: Sized + Send + Sync + 'static {
    /// Words that a key takes in a node.
    const WORDS: usize;
    /// True if the words are the complete key, so that any words may be compared.
    const PLAIN: bool;
    /// Key as stored in a node.
    type Stored: Copy + Send + Sync + Debug;
    /// Key as passed to a search.
    type Key<'k>: Copy;

    /// The key with these bytes.
    fn from_bytes(bytes: &[u8]) -> Result<Self::Key<'_>>;
    /// The stored key's bytes.
    fn to_bytes(pool: &Pool, stored: Self::Stored) -> KeyBytes;
    /// Reads a key from its words.
    fn load(words: &[AtomicU64]) -> Self::Stored;
    /// Writes a key to its words.
    fn store(words: &[AtomicU64], stored: Self::Stored);
    /// Returns one of its words.
    fn word(stored: Self::Stored, index: usize) -> u64;
    /// Returns one byte of hash.
    fn fingerprint(key: Self::Key<'_>) -> u8;
    /// Compares a stored key with a wanted key.
    fn compare(pool: &Pool, stored: Self::Stored, key: Self::Key<'_>) -> Ordering;
    /// Returns the words of a line (as bits) that are not greater, if a word is the complete key.
    #[inline]
    fn line_not_greater(_line: &Line, _key: Self::Key<'_>) -> Option<u64> {
        None
    }
    /// Compares two stored keys.
    fn compare_stored(pool: &Pool, left: Self::Stored, right: Self::Stored) -> Ordering;
    /// Sorts entries by their keys.
    #[inline]
    fn sort(pool: &Pool, entries: &mut [(Self::Stored, u64)]) {
        entries.sort_unstable_by(|a, b| Self::compare_stored(pool, a.0, b.0));
    }
    /// Makes the stored form; objects outside the node are flushed, and allocated by `with`.
    fn place<'p>(pool: &'p Pool, key: Self::Key<'_>, with: &mut Publication<'p>) -> Result<Self::Stored>;
    /// Makes another stored form of the same key, with objects of its own.
    fn duplicate<'p>(
        pool: &'p Pool,
        stored: Self::Stored,
        with: &mut Publication<'p>,
    ) -> Result<Self::Stored>;
    /// Frees the objects outside the node.
    fn release(stored: Self::Stored, with: &mut Publication<'_>);
    /// Verifies a stored key that may be damaged: returns the object outside the node that it needs, as
    /// (offset, bytes), or a description of the damage.
    fn check(_pool: &Pool, _stored: Self::Stored) -> std::result::Result<Option<(PoolOffset, u64)>, String> {
        Ok(None)
    }
    /// Returns the object outside the node, if there is one.
    fn record_offset(_stored: Self::Stored) -> Option<PoolOffset> {
        None
    }
}

/// A multiplicative hash; the top byte is well mixed.
#[inline]
fn mix(word: u64) -> u64 {
    (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns up to eight bytes as a word with the same order.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*word);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

fn check_length(bytes: &[u8], limit_bytes: usize) -> Result<()> {
    if bytes.len() > limit_bytes {
        return Err(Error::KeyTooLong { found_bytes: bytes.len(), limit_bytes });
    }
    Ok(())
}

/// Keys of up to 8 bytes.
#[derive(Debug)]
pub struct WordKey;

impl TreeKey for WordKey {
    const WORDS: usize = 1;
    const PLAIN: bool = true;
    type Stored = u64;
    type Key<'k> = u64;

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Result<u64> {
        check_length(bytes, 8)?;
        Ok(word_of(bytes))
    }

    #[inline]
    fn to_bytes(_pool: &Pool, stored: u64) -> KeyBytes {
        KeyBytes::from_slice(&stored.to_be_bytes())
    }

    #[inline]
    fn load(words: &[AtomicU64]) -> u64 {
        words[0].load(Relaxed)
    }

    #[inline]
    fn store(words: &[AtomicU64], stored: u64) {
        words[0].store(stored, Relaxed);
    }

    #[inline]
    fn word(stored: u64, _index: usize) -> u64 {
        stored
    }

    #[inline]
    fn fingerprint(key: u64) -> u8 {
        (mix(key) >> 56) as u8
    }

    #[inline]
    fn compare(_pool: &Pool, stored: u64, key: u64) -> Ordering {
        stored.cmp(&key)
    }

    #[inline]
    fn line_not_greater(line: &Line, key: u64) -> Option<u64> {
        Some(not_greater(line, key))
    }

    #[inline]
    fn compare_stored(_pool: &Pool, left: u64, right: u64) -> Ordering {
        left.cmp(&right)
    }

    #[inline]
    fn sort(_pool: &Pool, entries: &mut [(u64, u64)]) {
        sort_by_words(entries);
    }

    #[inline]
    fn place<'p>(_pool: &'p Pool, key: u64, _with: &mut Publication<'p>) -> Result<u64> {
        Ok(key)
    }

    fn duplicate<'p>(_pool: &'p Pool, stored: u64, _with: &mut Publication<'p>) -> Result<u64> {
        Ok(stored)
    }

    fn release(_stored: u64, _with: &mut Publication<'_>) {}
}

/// Keys of up to 16 bytes.
#[derive(Debug)]
pub struct PairKey;

impl TreeKey for PairKey {
    const WORDS: usize = 2;
    const PLAIN: bool = true;
    type Stored = [u64; 2];
    type Key<'k> = [u64; 2];

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Result<[u64; 2]> {
        check_length(bytes, 16)?;
        let (first, rest) = bytes.split_at(bytes.len().min(8));
        Ok([word_of(first), word_of(rest)])
    }

    #[inline]
    fn to_bytes(_pool: &Pool, stored: [u64; 2]) -> KeyBytes {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&stored[0].to_be_bytes());
        bytes[8..].copy_from_slice(&stored[1].to_be_bytes());
        KeyBytes::from_slice(&bytes)
    }

    #[inline]
    fn load(words: &[AtomicU64]) -> [u64; 2] {
        [words[0].load(Relaxed), words[1].load(Relaxed)]
    }

    #[inline]
    fn store(words: &[AtomicU64], stored: [u64; 2]) {
        words[0].store(stored[0], Relaxed);
        words[1].store(stored[1], Relaxed);
    }

    #[inline]
    fn word(stored: [u64; 2], index: usize) -> u64 {
        stored[index]
    }

    #[inline]
    fn fingerprint(key: [u64; 2]) -> u8 {
        (mix(key[0].rotate_left(23) ^ mix(key[1])) >> 56) as u8
    }

    #[inline]
    fn compare(_pool: &Pool, stored: [u64; 2], key: [u64; 2]) -> Ordering {
        stored.cmp(&key)
    }

    #[inline]
    fn compare_stored(_pool: &Pool, left: [u64; 2], right: [u64; 2]) -> Ordering {
        left.cmp(&right)
    }

    #[inline]
    fn place<'p>(_pool: &'p Pool, key: [u64; 2], _with: &mut Publication<'p>) -> Result<[u64; 2]> {
        Ok(key)
    }

    fn duplicate<'p>(_pool: &'p Pool, stored: [u64; 2], _: &mut Publication<'p>) -> Result<[u64; 2]> {
        Ok(stored)
    }

    fn release(_stored: [u64; 2], _with: &mut Publication<'_>) {}
}

/// Keys of any length up to [`KEY_BYTES_MAX`].
#[derive(Debug)]
pub struct ByteKey;

/// The stored form of a [`ByteKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBytes {
    prefix: u64,
    record: PoolOffset,
}

impl ByteKey {
    /// Returns the words of a record's bytes, and the length of the key; none if it is not a record.
    #[inline]
    fn record(pool: &Pool, stored: StoredBytes) -> Option<(&[AtomicU64], usize)> {
        let offset = stored.record;
        let head = pool.try_words(offset, 1).filter(|_| !offset.is_null());
        let length = head.map_or(usize::MAX, |words| words[0].load(Relaxed) as usize);
        if length > KEY_BYTES_MAX {
            return ByteKey::wild(offset);
        }
        let words = pool.try_words(offset.plus(8), length.div_ceil(8));
        let begins = |words: &&[AtomicU64]| words.first().map_or(0, |word| word.load(Relaxed).swap_bytes());
        match words.filter(|words| begins(words) == stored.prefix) {
            Some(words) => Some((words, length)),
            None => ByteKey::wild(offset),
        }
    }

    #[cold]
    fn wild<T>(offset: PoolOffset) -> Option<T> {
        tracing::error!("pool offset {offset:#x} does not hold the record of a key: the index is damaged");
        None
    }

    /// Writes a record with these big-endian words.
    fn write_record<'p>(
        pool: &'p Pool,
        length: usize,
        words: impl Iterator<Item = u64>,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        let record = pool.reserve(8 + length.next_multiple_of(8))?;
        let to = pool.words(record.offset(), 1 + length.div_ceil(8));
        to[0].store(length as u64, Relaxed);
        for (to, word) in to[1..].iter().zip(words) {
            to.store(word.swap_bytes(), Relaxed);
        }
        pool.flush_at(record.offset(), 8 + length, KEY_RECORD);
        Ok(with.allocate(record))
    }
}

impl TreeKey for ByteKey {
    const WORDS: usize = 2;
    const PLAIN: bool = false;
    type Stored = StoredBytes;
    type Key<'k> = &'k [u8];

    fn from_bytes(bytes: &[u8]) -> Result<&[u8]> {
        check_length(bytes, KEY_BYTES_MAX)?;
        Ok(bytes)
    }

    fn to_bytes(pool: &Pool, stored: StoredBytes) -> KeyBytes {
        let Some((words, length)) = ByteKey::record(pool, stored) else {
            // Scans that continue from here must get past it.
            let mut bytes = KeyBytes::from_slice(&stored.prefix.to_be_bytes());
            bytes.push(0);
            return bytes;
        };
        let mut bytes = KeyBytes::with_capacity(length.next_multiple_of(8));
        for word in words {
            bytes.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    fn load(words: &[AtomicU64]) -> StoredBytes {
        StoredBytes { prefix: words[0].load(Relaxed), record: PoolOffset::from_word(words[1].load(Relaxed)) }
    }

    fn store(words: &[AtomicU64], stored: StoredBytes) {
        words[0].store(stored.prefix, Relaxed);
        words[1].store(stored.record.to_word(), Relaxed);
    }

    fn word(stored: StoredBytes, index: usize) -> u64 {
        if index == 0 { stored.prefix } else { stored.record.to_word() }
    }

    fn fingerprint(key: &[u8]) -> u8 {
        let hash = key.chunks(8).fold(key.len() as u64, |hash, chunk| mix(hash ^ word_of(chunk)));
        (mix(hash) >> 56) as u8
    }

    fn compare(pool: &Pool, stored: StoredBytes, key: &[u8]) -> Ordering {
        let by_prefix = stored.prefix.cmp(&word_of(key));
        if by_prefix != Ordering::Equal {
            return by_prefix;
        }
        let Some((words, length)) = ByteKey::record(pool, stored) else {
            return if key.len() <= 8 { Ordering::Greater } else { Ordering::Less };
        };
        let rest = key.get(8..).unwrap_or(&[]);
        for (word, chunk) in words.iter().skip(1).zip(rest.chunks(8)) {
            let order = word.load(Relaxed).swap_bytes().cmp(&word_of(chunk));
            if order != Ordering::Equal {
                return order;
            }
        }
        length.cmp(&key.len())
    }

    fn compare_stored(pool: &Pool, left: StoredBytes, right: StoredBytes) -> Ordering {
        if left.prefix != right.prefix {
            return left.prefix.cmp(&right.prefix);
        }
        // A total order of any bytes, since sorting by any other may panic. A missing record is ordered
        // between the keys that end with the prefix and the longer ones.
        match (ByteKey::record(pool, left), ByteKey::record(pool, right)) {
            (Some((left, left_bytes)), Some((right, right_bytes))) => {
                let words = left.iter().zip(right);
                let mut orders = words.map(|(left, right)| {
                    left.load(Relaxed).swap_bytes().cmp(&right.load(Relaxed).swap_bytes())
                });
                let first = orders.find(|order| *order != Ordering::Equal);
                first.unwrap_or_else(|| left_bytes.cmp(&right_bytes))
            }
            (None, None) => Ordering::Equal,
            (Some((_, bytes)), None) => bytes.cmp(&8).then(Ordering::Less),
            (None, Some((_, bytes))) => bytes.cmp(&8).then(Ordering::Less).reverse(),
        }
    }

    fn place<'p>(pool: &'p Pool, key: &[u8], with: &mut Publication<'p>) -> Result<StoredBytes> {
        let record = ByteKey::write_record(pool, key.len(), key.chunks(8).map(word_of), with)?;
        Ok(StoredBytes { prefix: word_of(key), record })
    }

    fn duplicate<'p>(pool: &'p Pool, stored: StoredBytes, with: &mut Publication<'p>) -> Result<StoredBytes> {
        let Some((words, length)) = ByteKey::record(pool, stored) else {
            let message = "the record of a key is missing".to_string();
            return Err(Error::Corrupt { offset: stored.record, message });
        };
        let words = words.iter().map(|word| word.load(Relaxed).swap_bytes());
        let record = ByteKey::write_record(pool, length, words, with)?;
        Ok(StoredBytes { prefix: stored.prefix, record })
    }

    fn release(stored: StoredBytes, with: &mut Publication<'_>) {
        // An invalid record is not freed; it is lost already.
        if ByteKey::record(with.pool(), stored).is_some() {
            with.free(stored.record);
        }
    }

    fn check(pool: &Pool, stored: StoredBytes) -> std::result::Result<Option<(PoolOffset, u64)>, String> {
        let at = stored.record;
        let head = pool.try_words(at, 1).filter(|_| !at.is_null());
        let length =
            head.ok_or_else(|| format!("{at:#x} cannot hold a key record"))?[0].load(Relaxed) as usize;
        let words = pool.try_words(at.plus(8), length.div_ceil(8)).filter(|_| length <= KEY_BYTES_MAX);
        let words = words
            .ok_or_else(|| format!("the key record at {at:#x} has an invalid length of {length} bytes"))?;
        let prefix = words.first().map_or(0, |word| word.load(Relaxed).swap_bytes());
        if prefix != stored.prefix {
            return Err(format!("the key record at {at:#x} does not begin with the prefix in the node"));
        }
        Ok(Some((at, 8 + length as u64)))
    }

    fn record_offset(stored: StoredBytes) -> Option<PoolOffset> {
        Some(stored.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_memory::PoolOptions;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stored_keys_compare_like_their_bytes(
            left in prop::collection::vec(0u8..3, 0..40),
            right in prop::collection::vec(0u8..3, 0..40),
        ) {
            let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..Default::default() }).unwrap();
            let mut with = pool.publication();
            let stored = ByteKey::place(&pool, &left, &mut with).unwrap();
            let other = ByteKey::place(&pool, &right, &mut with).unwrap();
            let copy = ByteKey::duplicate(&pool, stored, &mut with).unwrap();
            prop_assert_eq!(ByteKey::to_bytes(&pool, stored).to_vec(), left.clone());
            prop_assert_eq!(ByteKey::to_bytes(&pool, copy).to_vec(), left.clone());
            prop_assert_eq!(ByteKey::compare(&pool, stored, &right), left.cmp(&right));
            prop_assert_eq!(ByteKey::compare_stored(&pool, stored, other), left.cmp(&right));
        }

        #[test]
        fn pairs_compare_like_their_bytes(left: [u8; 16], right: [u8; 16]) {
            let (a, b) = (PairKey::from_bytes(&left).unwrap(), PairKey::from_bytes(&right).unwrap());
            prop_assert_eq!(a.cmp(&b), left.cmp(&right));
        }
    }

    #[test]
    fn keys_that_are_too_long_are_refused() {
        assert!(WordKey::from_bytes(&[0; 9]).is_err());
        assert!(PairKey::from_bytes(&[0; 17]).is_err());
        assert!(ByteKey::from_bytes(&[0; KEY_BYTES_MAX + 1]).is_err());
    }
}
