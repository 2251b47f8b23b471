//! Positions of values that meet a condition, found with vector instructions.
//!
//! With AVX-512 sixteen values are tested and their positions moved together, each by an instruction or a few. A set of
//! up to [`REGISTER_BITS`] bits is looked up in registers, a larger one in memory. The portable twins have no branch
//! that depends on a value.

/// Bits of a set that vector registers hold.
const REGISTER_BITS: u64 = 2048;

/// Set of 32-bit values, of which those that are not far from each other have a bit each: that of a value is the one
/// numbered by its sum with a shift, modulo 2^64.
#[derive(Debug, Clone, Copy)]
pub struct BitSet<'b> {
    words: &'b [u64],
    bits: u64,
    shift: u64,
}

impl<'b> BitSet<'b> {
    /// Set of so many bits, behind which there is a bit that is not set.
    ///
    /// # Panics
    ///
    /// If there are fewer bits in `words`, or the one behind them is set.
    pub fn new(words: &'b [u64], bits: u64, shift: u64) -> BitSet<'b> {
        let behind = words.get((bits / 64) as usize).map(|word| word >> (bits % 64) & 1);
        assert_eq!(behind, Some(0), "a set of {bits} bits ends with a zero");
        BitSet { words, bits, shift }
    }

    /// Tells whether a value is in the set. One that has no bit reads the one behind the last: no branch depends on
    /// the value.
    #[inline(always)]
    pub fn contains(&self, value: u32) -> bool {
        let bit = u64::from(value).wrapping_add(self.shift).min(self.bits);
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Least value that has a bit, and the number of those above it; none if there is no such value.
    fn bounds(&self) -> Option<(u32, u32)> {
        let is_negative = self.shift.cast_signed() < 0;
        let (low, skipped) = if is_negative { (self.shift.wrapping_neg(), 0) } else { (0, self.shift) };
        let last = self.bits.checked_sub(skipped)?.checked_sub(1)?;
        let low = u32::try_from(low).ok()?;
        Some((low, u32::try_from(last).unwrap_or(u32::MAX).min(u32::MAX - low)))
    }
}

/// Writes to `out` the positions, counted from `first`, of the values of which `low` is at most `width` less;
/// returns their number. `out` has room for as many as there are values.
///
/// # Panics
///
/// If `out` is shorter than `values`.
#[inline]
pub fn append_positions_within(values: &[u32], bounds: (u32, u32), first: u32, out: &mut [u32]) -> usize {
    let out = &mut out[..values.len()];
    #[cfg(target_arch = "x86_64")]
    if super::compares_lines() {
        // SAFETY: the processor has AVX-512 (just asked).
        return unsafe { wide::append_within(values, bounds, first, out) };
    }
    let (low, width) = bounds;
    append_one_by_one(values, first, out, |value| value.wrapping_sub(low) <= width)
}

/// Writes to `out` the positions, counted from `first`, of the values that are in a set; returns their number. `out` has
/// room for as many as there are values.
///
/// # Panics
///
/// If `out` is shorter than `values`.
#[inline]
pub fn append_positions_in(values: &[u32], set: &BitSet<'_>, first: u32, out: &mut [u32]) -> usize {
    let out = &mut out[..values.len()];
    #[cfg(target_arch = "x86_64")]
    if super::compares_lines() && set.bits <= u64::from(u32::MAX) {
        let Some(bounds) = set.bounds() else { return 0 };
        if set.bits <= REGISTER_BITS {
            // SAFETY: the processor has AVX-512 (just asked).
            return unsafe { wide::append_in_registers(values, set, bounds, first, out) };
        }
        // SAFETY: as above; values within the bounds have a bit.
        return unsafe { wide::append_in_memory(values, set, bounds, first, out) };
    }
    append_one_by_one(values, first, out, |value| set.contains(value))
}

/// Positions of the values that meet a condition, without a branch that depends on a value.
#[inline(always)]
fn append_one_by_one(values: &[u32], first: u32, out: &mut [u32], is_met: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    for (at, value) in values.iter().enumerate() {
        out[count] = first + at as u32;
        count += usize::from(is_met(*value));
    }
    count
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{BitSet, append_one_by_one};
    use std::arch::x86_64::{
        __m512i, __mmask16, _mm512_add_epi32, _mm512_and_si512, _mm512_cmple_epu32_mask, _mm512_loadu_si512,
        _mm512_mask_blend_epi32, _mm512_mask_i32gather_epi32, _mm512_mask_test_epi32_mask,
        _mm512_maskz_compress_epi32, _mm512_permutex2var_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
        _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
        _mm512_test_epi32_mask,
    };

    /// Same number in all lanes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn all(number: u32) -> __m512i {
        _mm512_set1_epi32(number.cast_signed())
    }

    /// Positions of the values that meet a condition on sixteen of them, and one by one of the rest.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn append(
        values: &[u32],
        first: u32,
        out: &mut [u32],
        is_met: impl Fn(u32) -> bool,
        are_met: impl Fn(__m512i) -> __mmask16,
    ) -> usize {
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut positions = _mm512_add_epi32(all(first), lanes);
        let (sixteens, rest) = values.as_chunks::<16>();
        let mut count = 0;
        for sixteen in sixteens {
            // SAFETY: reads the 64 bytes of an array.
            let met = are_met(unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) });
            // At most as many were found as values were read, so sixteen have room.
            let place: &mut [u32] = &mut out[count..count + 16];
            let found = _mm512_maskz_compress_epi32(met, positions);
            // SAFETY: writes the 64 bytes of a slice of sixteen.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), found) };
            count += met.count_ones() as usize;
            positions = _mm512_add_epi32(positions, all(16));
        }
        let read = 16 * sixteens.len();
        count + append_one_by_one(rest, first + read as u32, &mut out[count..], is_met)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn append_within(
        values: &[u32],
        (low, width): (u32, u32),
        first: u32,
        out: &mut [u32],
    ) -> usize {
        let is_met = |value: u32| value.wrapping_sub(low) <= width;
        let (low, width) = (all(low), all(width));
        append(values, first, out, is_met, |values| {
            _mm512_cmple_epu32_mask(_mm512_sub_epi32(values, low), width)
        })
    }

    /// Positions of values in a set whose bits lie in four registers.
    #[target_feature(enable = "avx512f")]
    pub(super) fn append_in_registers(
        values: &[u32],
        set: &BitSet<'_>,
        (low, width): (u32, u32),
        first: u32,
        out: &mut [u32],
    ) -> usize {
        let mut eights = [[0; 8]; 4];
        eights.as_flattened_mut().iter_mut().zip(set.words).for_each(|(to, word)| *to = *word);
        // SAFETY: reads the 64 bytes of an array.
        let tables = eights.map(|eight| unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) });
        let (low, width, shift) = (all(low), all(width), all(set.shift as u32));
        append(
            values,
            first,
            out,
            |value| set.contains(value),
            |values| {
                let within = _mm512_cmple_epu32_mask(_mm512_sub_epi32(values, low), width);
                let bits = _mm512_add_epi32(values, shift);
                let places = _mm512_srli_epi32::<5>(bits);
                let below = _mm512_permutex2var_epi32(tables[0], places, tables[1]);
                let above = _mm512_permutex2var_epi32(tables[2], places, tables[3]);
                let words = _mm512_mask_blend_epi32(_mm512_test_epi32_mask(places, all(32)), below, above);
                _mm512_mask_test_epi32_mask(within, words, bit_in_word(bits))
            },
        )
    }

    /// Positions of values in a set whose bits are gathered.
    ///
    /// # Safety
    ///
    /// Values of which `low` is at most `width` less have a bit.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn append_in_memory(
        values: &[u32],
        set: &BitSet<'_>,
        (low, width): (u32, u32),
        first: u32,
        out: &mut [u32],
    ) -> usize {
        let (low, width, shift) = (all(low), all(width), all(set.shift as u32));
        append(
            values,
            first,
            out,
            |value| set.contains(value),
            |values| {
                let within = _mm512_cmple_epu32_mask(_mm512_sub_epi32(values, low), width);
                let bits = _mm512_add_epi32(values, shift);
                let (places, none) = (_mm512_srli_epi32::<5>(bits), _mm512_setzero_si512());
                // SAFETY: lanes that are not masked out have a bit, whose half of a word is read.
                let words = unsafe {
                    _mm512_mask_i32gather_epi32::<4>(none, within, places, set.words.as_ptr().cast())
                };
                _mm512_mask_test_epi32_mask(within, words, bit_in_word(bits))
            },
        )
    }

    /// Mask of a bit in the 32 of its half of a word.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn bit_in_word(bits: __m512i) -> __m512i {
        _mm512_sllv_epi32(all(1), _mm512_and_si512(bits, all(31)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear congruential numbers.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
            self.0 >> 16
        }
    }

    #[test]
    fn positions_within_bounds_are_those_of_a_filter() {
        let mut numbers = Numbers(0x0123_4567_89AB_CDEF);
        for count in (0..70).chain([1000, 1024]) {
            for (low, width) in [(0, 0), (3, 2), (1, u32::MAX), (u32::MAX - 1, 1), (0, u32::MAX)] {
                // Small ones, large ones, and many that are alike.
                let random = |_| ((numbers.next() >> 45) as u32).wrapping_sub(2);
                let values: Vec<u32> = (0..count).map(random).collect();
                let is_within = |at: &u32| values[*at as usize].wrapping_sub(low) <= width;
                let expected: Vec<u32> = (0..count).filter(is_within).map(|at| 7 + at).collect();
                let mut found = vec![0; values.len()];
                let length = append_positions_within(&values, (low, width), 7, &mut found);
                assert_eq!(&found[..length], expected, "{count} values from {low}, width {width}");
                let is_met = |value: u32| value.wrapping_sub(low) <= width;
                let length = append_one_by_one(&values, 7, &mut found, is_met);
                assert_eq!(&found[..length], expected, "{count} values from {low}, width {width}");
            }
        }
    }

    #[test]
    fn positions_in_a_set_are_those_of_a_filter() {
        let mut numbers = Numbers(0x0123_4567_89AB_CDEF);
        for bits in [0, 1, 63, 64, 1000, 2047, 2048, 2049, 70_000] {
            let mut words = vec![0_u64; bits as usize / 64 + 1];
            (0..bits)
                .filter(|_| numbers.next().is_multiple_of(3))
                .for_each(|bit| words[bit as usize / 64] |= 1 << (bit % 64));
            let far = u64::from(u32::MAX);
            for shift in [0, 1, 700, 3_000, far, far + 9, 1 << 40] {
                for shift in [shift, shift.wrapping_neg()] {
                    let set = BitSet::new(&words, bits, shift);
                    for count in [0, 1, 15, 16, 17, 1024] {
                        // Near the bits, and anywhere.
                        let value = |at: usize| match at % 3 {
                            0 => numbers.next() as u32,
                            _ => (numbers.next() % (2 * bits + 64)).wrapping_sub(shift) as u32,
                        };
                        let values: Vec<u32> = (0..count).map(value).collect();
                        let is_in = |at: &u32| set.contains(values[*at as usize]);
                        let expected: Vec<u32> = (0..count as u32).filter(is_in).collect();
                        let mut found = vec![0; values.len()];
                        let length = append_positions_in(&values, &set, 0, &mut found);
                        assert_eq!(
                            &found[..length],
                            expected,
                            "{count} values, {bits} bits, shift {shift:#x}"
                        );
                        let length = append_one_by_one(&values, 0, &mut found, |value| set.contains(value));
                        assert_eq!(
                            &found[..length],
                            expected,
                            "{count} values, {bits} bits, shift {shift:#x}"
                        );
                    }
                }
            }
        }
    }
}
