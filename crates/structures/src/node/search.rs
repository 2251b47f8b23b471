//! Search primitives over numbered keys (dissertation 3.3, *fine-granular access*).
//!
//! All but the linear ones take sorted keys: `key_at` is called with `0..count`. They return the number of
//! keys that are not greater than the wanted one, so the greatest such key is the one before. Whatever
//! `key_at` returns, they end and stay in range.

use super::{FixedKey, Geometry, Node};
use crate::simd::{self, Line};
use std::sync::atomic::AtomicU64;

/// Returns the index of a key among keys in any order.
#[inline]
pub fn linear<K: FixedKey>(count: usize, key: K, key_at: impl Fn(usize) -> K) -> Option<usize> {
    (0..count).find(|i| key_at(*i) == key)
}

/// Returns the index of a key among the indexes whose bits are set: linear search with bit check.
#[inline]
pub fn linear_with_bits<K: FixedKey>(mut bits: u64, key: K, key_at: impl Fn(usize) -> K) -> Option<usize> {
    while bits != 0 {
        let place = bits.trailing_zeros() as usize;
        if key_at(place) == key {
            return Some(place);
        }
        bits &= bits - 1;
    }
    None
}

/// Binary search, directly or through an indirection. Takes the same number of steps for every key, without a
/// branch that depends on one.
#[inline]
pub fn binary<K: FixedKey>(count: usize, key: K, key_at: impl Fn(usize) -> K) -> usize {
    let (mut base, mut size) = (0, count);
    while size > 1 {
        let half = size / 2;
        base = if key_at(base + half - 1) <= key { base + half } else { base };
        size -= half;
    }
    base + usize::from(size == 1 && key_at(base) <= key)
}

/// Exponential search from the start: for keys near it.
pub fn exponential<K: FixedKey>(count: usize, key: K, key_at: impl Fn(usize) -> K) -> usize {
    let mut bound = 1;
    while bound <= count && key_at(bound - 1) <= key {
        bound *= 2;
    }
    // The keys before `bound / 2` are not greater; the one before `bound` is, if it is there.
    let from = bound / 2;
    from + binary(bound.min(count + 1) - 1 - from.min(count), key, |i| key_at(from + i))
}

/// Interpolation search: few steps if keys are uniformly distributed, and never more than a handful above
/// binary search, which takes over when guesses do not help.
pub fn interpolation<K: FixedKey>(count: usize, key: K, key_at: impl Fn(usize) -> K) -> usize {
    const GUESSES: usize = 4;
    let (mut from, mut to) = (0, count);
    for _ in 0..GUESSES {
        if to - from < 4 {
            break;
        }
        let (low, high) = (key_at(from), key_at(to - 1));
        if key < low {
            return from;
        }
        if high <= key {
            return to;
        }
        let span = high.as_number() - low.as_number();
        let share = (key.as_number() - low.as_number()) as f64 / span as f64;
        let guess = from + (((to - 1 - from) as f64 * share) as usize).min(to - 1 - from);
        if key_at(guess) <= key {
            from = guess + 1;
        } else {
            to = guess;
        }
    }
    from + binary(to - from, key, |i| key_at(from + i))
}

/// Keys that are compared by vector instructions without a binary search before.
const COUNTED_MAX: usize = 64;

/// Returns true if keys are words that this processor compares a line at a time.
#[inline]
pub(super) fn compares_lines<K: FixedKey>() -> bool {
    K::IS_WORD && simd::compares_lines()
}

/// Returns the positions (bits) of up to 64 words for which `compare` is true, a line at a time.
#[inline]
fn lines(words: &[AtomicU64], count: usize, compare: impl Fn(&Line) -> u64) -> u64 {
    let mut bits = 0;
    for (line, words) in words.chunks(LINE_WORDS).take(count.div_ceil(LINE_WORDS)).enumerate() {
        // The words after the last key are in the same node, and masked below.
        let Some(words) = words.first_chunk() else { break };
        bits |= compare(words) << (line * LINE_WORDS);
    }
    if count < 64 { bits & ((1 << count) - 1) } else { bits }
}

const LINE_WORDS: usize = 8;

/// Ranking: counts the sorted keys in the slots from `first` on that are not greater. Where the processor
/// compares a line at a time, binary search continues until 64 keys are left, and these are compared all at
/// once: their lines are loaded in parallel, and no step waits for the one before. Else binary search.
#[inline]
pub(super) fn rank<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    first: usize,
    count: usize,
    key: K,
) -> usize {
    let key_at = |i: usize| node.key::<K>(geometry, first + i);
    if !compares_lines::<K>() {
        return binary(count, key, key_at);
    }
    let (mut base, mut size) = (0, count);
    while size > COUNTED_MAX {
        let half = size / 2;
        base = if key_at(base + half - 1) <= key { base + half } else { base };
        size -= half;
    }
    // Node and count come from an optimistic reader: the slice must be checked, not trusted.
    let words = &node.words()[geometry.keys + first + base..];
    let bits = lines(words, size, |line| simd::not_greater(line, key.word(0)));
    base + bits.trailing_ones() as usize
}

/// Ranking among keys in any order: counts those whose bits are set in `valid` that are not greater. The keys
/// are those in the 64 slots from `first` on. None where the processor does not compare lines: then only a
/// search in order helps.
#[inline]
pub(super) fn rank_unordered<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    first: usize,
    valid: u64,
    key: K,
) -> Option<usize> {
    compares_lines::<K>().then(|| {
        let words = &node.words()[geometry.keys + first..];
        let count = 64 - valid.leading_zeros() as usize;
        let bits = lines(words, count, |line| simd::not_greater(line, key.word(0)));
        (bits & valid).count_ones() as usize
    })
}

/// Returns the slot of a key among up to 64 slots from `first` on, those whose bits are set in `valid`.
#[inline]
pub(super) fn find_valid<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    first: usize,
    valid: u64,
    key: K,
) -> Option<usize> {
    if !compares_lines::<K>() {
        return linear_with_bits(valid, key, |i| node.key(geometry, first + i)).map(|i| first + i);
    }
    let words = &node.words()[geometry.keys + first..];
    let count = 64 - valid.leading_zeros() as usize;
    let found = lines(words, count, |line| simd::equal(line, key.word(0))) & valid;
    (found != 0).then(|| first + found.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_primitives_agree(mut keys in prop::collection::vec(0u64..300, 0..80), wanted in 0u64..300, scale in 0u32..40) {
            keys.sort_unstable();
            let keys: Vec<u64> = keys.into_iter().map(|key| key << scale).collect();
            let wanted = wanted << scale;
            let expected = keys.partition_point(|key| *key <= wanted);
            let at = |i: usize| keys[i];
            prop_assert_eq!(binary(keys.len(), wanted, at), expected);
            prop_assert_eq!(exponential(keys.len(), wanted, at), expected);
            prop_assert_eq!(interpolation(keys.len(), wanted, at), expected);
            let found = linear(keys.len(), wanted, at);
            prop_assert_eq!(found.is_some(), expected > 0 && keys[expected - 1] == wanted);
            let bits = if keys.len() >= 64 { u64::MAX } else { (1 << keys.len()) - 1 };
            if keys.len() <= 64 {
                prop_assert_eq!(linear_with_bits(bits, wanted, at), found);
            }
        }

        #[test]
        fn any_words_are_searched_without_panic(keys in prop::collection::vec(any::<u64>(), 1..80), wanted: u64) {
            for found in [
                binary(keys.len(), wanted, |i| keys[i]),
                exponential(keys.len(), wanted, |i| keys[i]),
            ] {
                prop_assert!(found <= keys.len());
            }
        }
    }
}
