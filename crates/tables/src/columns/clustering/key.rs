//! Cluster keys: the codes of all dimensions, bit by bit, as one number (a BDCC key).
//!
//! ```text
//!   round-robin   a 3 bits, b 2 bits:   a2 b1 a1 b0 a0
//!   major-minor                         a2 a1 a0 b1 b0
//! ```
//!
//! - The bits of one dimension are in the order of its code, so masked keys compare as its codes do.
//! - Keys of rows near each other in all dimensions have a long common beginning. The rows of a block have keys from
//!   one to another; that tells, for each dimension, the bits that the two keys have in common before they differ.

use crate::schema::clustering::Interleave;

/// Maximum number of bits of a key.
pub(crate) const KEY_BITS_MAX: u32 = 64;

/// Maximum number of ranges of a dimension that are boxes of their own.
const EXACT_RANGES_MAX: usize = 16;

/// Order of the bits of all dimensions in a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyBits {
    /// Dimension of each bit, from the most significant on.
    dimensions: Vec<u8>,
    /// Bits of each dimension in a key.
    masks: Vec<u64>,
}

/// Keys whose codes are within bounds in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyBox {
    /// Key of the least codes, and of the greatest ones.
    least: u64,
    greatest: u64,
    /// Further bounds in single dimensions: sorted ranges of masked keys of which one has to be met.
    ranges: Vec<(usize, Vec<(u64, u64)>)>,
    is_empty: bool,
}

impl KeyBits {
    /// Order of dimensions with these numbers of bits, at most [`KEY_BITS_MAX`] together.
    pub(crate) fn new(bits: &[u8], interleave: Interleave) -> KeyBits {
        let total: u32 = bits.iter().map(|bits| u32::from(*bits)).sum();
        assert!(total <= KEY_BITS_MAX, "{total} bits are more than a cluster key has, {KEY_BITS_MAX}");
        let dimensions: Vec<u8> = match interleave {
            Interleave::MajorMinor => {
                let of = |(at, bits): (usize, &u8)| std::iter::repeat_n(at as u8, usize::from(*bits));
                bits.iter().enumerate().flat_map(of).collect()
            }
            Interleave::RoundRobin => {
                let most = bits.iter().copied().max().unwrap_or(0);
                let with = |turn: u8| (0..bits.len()).filter(move |at| bits[*at] > turn).map(|at| at as u8);
                (0..most).flat_map(with).collect()
            }
        };
        let mut masks = vec![0; bits.len()];
        for (at, dimension) in dimensions.iter().rev().enumerate() {
            masks[usize::from(*dimension)] |= 1 << at;
        }
        KeyBits { dimensions, masks }
    }

    /// Number of bits of a key.
    pub(crate) fn len(&self) -> usize {
        self.dimensions.len()
    }

    /// Greatest key.
    pub(crate) fn greatest(&self) -> u64 {
        u64::MAX.checked_shr(KEY_BITS_MAX - self.len() as u32).unwrap_or(0)
    }

    /// Part of a key that the code of a dimension is.
    pub(crate) fn spread(&self, dimension: usize, code: u64) -> u64 {
        let (mut mask, mut code, mut key) = (self.masks[dimension], code, 0);
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            key |= if code & 1 == 1 { lowest } else { 0 };
            (code, mask) = (code >> 1, mask ^ lowest);
        }
        debug_assert_eq!(code, 0, "the code has no more bits than the dimension");
        key
    }

    /// Code of a dimension in a key.
    #[cfg(test)]
    pub(crate) fn code(&self, dimension: usize, key: u64) -> u64 {
        let (mut mask, mut code, mut at) = (self.masks[dimension], 0, 0);
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            code |= u64::from(key & lowest != 0) << at;
            (at, mask) = (at + 1, mask ^ lowest);
        }
        code
    }

    /// Box of all keys.
    pub(crate) fn all(&self) -> KeyBox {
        KeyBox { least: 0, greatest: self.greatest(), ranges: Vec::new(), is_empty: false }
    }

    /// Narrows a box to ranges of codes of a dimension, ascending and without overlaps, of which one has to be met.
    pub(crate) fn narrow(&self, keys: &mut KeyBox, dimension: usize, codes: &[(u64, u64)]) {
        let (Some(first), Some(last)) = (codes.first(), codes.last()) else {
            keys.is_empty = true;
            return;
        };
        let mask = self.masks[dimension];
        let (least, greatest) = (self.spread(dimension, first.0), self.spread(dimension, last.1));
        let least = least.max(keys.least & mask);
        let greatest = greatest.min(keys.greatest & mask);
        keys.is_empty |= least > greatest;
        keys.least = keys.least & !mask | least;
        keys.greatest = keys.greatest & !mask | greatest;
        if codes.len() > 1 {
            let spread = |code: &(u64, u64)| (self.spread(dimension, code.0), self.spread(dimension, code.1));
            keys.ranges.push((dimension, codes.iter().map(spread).collect()));
        }
    }

    /// Tells whether a block with keys from `first` to `last` may have one of a box: first by the bits that both keys
    /// have in common, dimension by dimension, then exactly.
    pub(crate) fn meets(&self, keys: &KeyBox, first: u64, last: u64) -> bool {
        if keys.is_empty {
            return false;
        }
        let unknown = u64::MAX.checked_shr((first ^ last).leading_zeros()).unwrap_or(0);
        let (low, high) = (first & !unknown, first | unknown);
        let is_met = |mask: &u64| low & mask <= keys.greatest & mask && high & mask >= keys.least & mask;
        let ranges_are_met = || {
            keys.ranges.iter().all(|(dimension, ranges)| {
                let mask = self.masks[*dimension];
                let at = ranges.partition_point(|(_, end)| *end < low & mask);
                ranges.get(at).is_some_and(|(begin, _)| *begin <= high & mask)
            })
        };
        self.masks.iter().all(is_met) && ranges_are_met() && self.has_key(keys, first, last)
    }

    /// Tells whether a box has a key from `first` to `last`; each range of the first dimension that has few is a box.
    fn has_key(&self, keys: &KeyBox, first: u64, last: u64) -> bool {
        let has = |keys: &KeyBox| self.next_within(keys, first).is_some_and(|next| next <= last);
        let Some((dimension, ranges)) = keys.ranges.iter().find(|of| of.1.len() <= EXACT_RANGES_MAX) else {
            return has(keys);
        };
        let mask = self.masks[*dimension];
        ranges.iter().any(|(least, greatest)| {
            let (least, greatest) = ((*least).max(keys.least & mask), (*greatest).min(keys.greatest & mask));
            let (least, greatest) = (keys.least & !mask | least, keys.greatest & !mask | greatest);
            least & mask <= greatest & mask
                && has(&KeyBox { least, greatest, ranges: Vec::new(), is_empty: false })
        })
    }

    /// Least key of a box, further ranges left out, that is not below a key (Tropf and Herzog, 1981).
    fn next_within(&self, keys: &KeyBox, key: u64) -> Option<u64> {
        let (mut least, mut greatest, mut found) = (keys.least, keys.greatest, None);
        for (at, dimension) in self.dimensions.iter().enumerate() {
            let bit = 1_u64 << (self.len() - 1 - at);
            // Bits of the dimension below this one.
            let below = self.masks[usize::from(*dimension)] & (bit - 1);
            match (key & bit != 0, least & bit != 0, greatest & bit != 0) {
                (false, false, true) => {
                    found = Some(least & !below | bit);
                    greatest = (greatest & !bit) | below;
                }
                (false, true, _) => return Some(least),
                (true, _, false) => return found,
                (true, false, true) => least = (least & !below) | bit,
                (false, false, false) | (true, true, true) => {}
            }
        }
        Some(key)
    }
}
