//! Bloom filters of one cache line a key: a negative lookup costs one wait for DRAM.
//!
//! The bits of a key are in one line of 512, so a filter of ten bits an entry has about 1.5% false positives
//! instead of the 0.9% of one without lines. A filter may be created for more entries than are added:
//! neighbouring lines are then folded together, which yields the smaller filter.

use crate::node::FixedKey;

const LINE_WORDS: usize = 8;
const LINE_BITS: u64 = 512;
/// Maximum of bits that a key sets: 0.7 times the bits an entry would be best; more cost time.
const PROBES_MAX: u32 = 6;
/// Maximum number of times a filter can be folded in two.
const FOLDS: usize = 4;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct FilterLine([u64; LINE_WORDS]);

/// Hash of a key for all filters and buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHash(pub(crate) u64);

impl KeyHash {
    #[inline]
    pub(crate) fn of<K: FixedKey>(key: K) -> KeyHash {
        let mut hash = 0x6A09_E667_F3BC_C909u64;
        for index in 0..K::WORDS {
            hash = (hash ^ key.word(index)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            hash ^= hash >> 32;
        }
        hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        KeyHash(hash ^ hash >> 32)
    }
}

/// Approximate set of keys with false positives.
pub(crate) struct Filter {
    lines: Vec<FilterLine>,
    bits: u32,
    probes: u32,
}

impl Filter {
    /// Creates a filter for `entries` entries with `bits` bits each.
    pub(crate) fn new(entries: u64, bits: u32) -> Filter {
        let lines = (entries * u64::from(bits)).div_ceil(LINE_BITS).max(1) as usize;
        let probes = (bits * 7 / 10).clamp(1, PROBES_MAX);
        Filter { lines: vec![FilterLine([0; LINE_WORDS]); lines.next_multiple_of(1 << FOLDS)], bits, probes }
    }

    /// Returns the line of a hash: the upper half is its position among all lines. Half the lines: half the
    /// number.
    #[inline]
    fn line(&self, hash: KeyHash) -> usize {
        (((hash.0 >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// Returns the bits of a hash: nine bits of it for each.
    #[inline]
    fn places(&self, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let spread = hash.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..self.probes).map(move |probe| {
            let bit = spread >> (10 + 9 * probe) & (LINE_BITS - 1);
            (bit as usize / 64, 1 << (bit % 64))
        })
    }

    #[inline]
    pub(crate) fn add(&mut self, hash: KeyHash) {
        let line = self.line(hash);
        for (word, bit) in self.places(hash) {
            self.lines[line].0[word] |= bit;
        }
    }

    #[inline]
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        let line = &self.lines[self.line(hash)].0;
        self.places(hash).all(|(word, bit)| line[word] & bit != 0)
    }

    /// Shrinks the filter to the size for `entries` entries.
    pub(crate) fn shrink(&mut self, entries: u64) {
        let needed = (entries * u64::from(self.bits)).div_ceil(LINE_BITS).max(1) as usize;
        while self.lines.len().is_multiple_of(2) && self.lines.len() / 2 >= needed {
            for line in 0..self.lines.len() / 2 {
                let (left, right) = (self.lines[2 * line].0, self.lines[2 * line + 1].0);
                self.lines[line] = FilterLine(std::array::from_fn(|word| left[word] | right[word]));
            }
            self.lines.truncate(self.lines.len() / 2);
        }
        self.lines.shrink_to_fit();
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<FilterLine>()
    }

    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| line.0)
    }

    /// Restores the filter of [`Filter::words`]; none if these words are no filter.
    pub(crate) fn of_words(words: &[u64], bits: u32) -> Option<Filter> {
        let is_whole = !words.is_empty() && words.len().is_multiple_of(LINE_WORDS);
        let line = |words: &[u64]| FilterLine(std::array::from_fn(|word| words[word]));
        is_whole.then(|| Filter {
            lines: words.chunks_exact(LINE_WORDS).map(line).collect(),
            bits,
            probes: (bits * 7 / 10).clamp(1, PROBES_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: std::ops::Range<u64>, room: u64) -> Filter {
        let mut filter = Filter::new(room, 10);
        keys.for_each(|key| filter.add(KeyHash::of(key)));
        filter
    }

    fn passes(filter: &Filter, keys: std::ops::Range<u64>) -> usize {
        keys.filter(|key| filter.may_have(KeyHash::of(*key))).count()
    }

    #[test]
    fn all_members_pass_and_few_others() {
        let filter = of(0..50_000, 50_000);
        assert_eq!(passes(&filter, 0..50_000), 50_000);
        let wrong = passes(&filter, 1_000_000..1_100_000);
        assert!(wrong < 2_500, "{wrong} of 100,000 absent keys pass");
        assert!(filter.bytes() < 50_000 * 11 / 8, "{} bytes", filter.bytes());
    }

    #[test]
    fn a_filter_with_too_much_room_is_folded_and_still_right() {
        let mut filter = of(0..20_000, 100_000);
        filter.shrink(20_000);
        assert_eq!(passes(&filter, 0..20_000), 20_000);
        assert!(filter.bytes() < 20_000 * 20 / 8, "{} bytes", filter.bytes());
        let wrong = passes(&filter, 1_000_000..1_100_000);
        assert!(wrong < 2_500, "{wrong} of 100,000 absent keys pass");
        let words: Vec<u64> = filter.words().collect();
        let again = Filter::of_words(&words, filter.bits()).unwrap();
        assert_eq!(passes(&again, 0..20_000), 20_000);
    }
}
