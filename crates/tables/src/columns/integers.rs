//! Blocks of integers: frame of reference with bit packing, differences, or runs, whichever is smallest.
//!
//! | encoding | data |
//! | --- | --- |
//! | packed | differences to the least value, the base; none if all are equal |
//! | delta | differences between neighbours: the least (2 words), then the differences to it; the base is the first value |
//! | runs | number of runs (1 word), the values of the runs as differences to the base, the ends of the runs |
//!
//! Arithmetic wraps: any 64-bit integers are encoded and decoded exactly. Packed blocks are decoded fastest, at
//! any position alone; the others have to be at least a quarter smaller.

use crate::columns::packing::{
    CHUNK_VALUES, bits_of, pack, packed_words, short_at, unpack, unpack_one, value_at,
};
use crate::columns::runs::{RUN_LANES, each_of_runs, expand_runs, select_runs};
use entresol_structures::{BitSet, append_positions_in, append_positions_within};
use std::cell::Cell;

/// Size of the other encodings beside a packed block at which they are chosen, as a fraction.
const SMALLER: (usize, usize) = (3, 4);
/// Positions of a chunk of packed values below which they are looked up one by one.
const FEW_OF_CHUNK: usize = 12;
/// Share of a block's positions, as a divisor, below which wide or unsorted ones are looked up one by one.
const FEW_SHARE: usize = 32;

/// Encoding of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Packed,
    Delta,
    Runs,
}

impl Encoding {
    pub(crate) fn code(self) -> u32 {
        match self {
            Encoding::Packed => 0,
            Encoding::Delta => 1,
            Encoding::Runs => 2,
        }
    }

    pub(crate) fn of_code(code: u32) -> Option<Encoding> {
        [Encoding::Packed, Encoding::Delta, Encoding::Runs].into_iter().find(|known| known.code() == code)
    }
}

/// Description of an encoded block of integers; its words lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntegerBlock {
    pub(crate) encoding: Encoding,
    /// Bits of a difference.
    pub(crate) bits: u32,
    /// Bits of the end of a run.
    pub(crate) end_bits: u32,
    pub(crate) base: i64,
}

/// Type of integer that values are decoded to; they fit it.
pub(crate) trait DecodedInteger: Copy {
    fn of(value: i64) -> Self;
    /// Sum of a base and a difference of at most 32 bits.
    fn from_difference(base: i64, difference: u32) -> Self;
}

macro_rules! decoded {
    ($($type:ty)*) => {
        $(impl DecodedInteger for $type {
            #[inline]
            fn of(value: i64) -> $type {
                value as $type
            }

            #[inline]
            fn from_difference(base: i64, difference: u32) -> $type {
                (base as $type).wrapping_add(difference as $type)
            }
        })*
    };
}
decoded!(i16 i32 i64);

/// Digits of decimal numbers, which doubles have exactly.
impl DecodedInteger for f64 {
    #[inline]
    fn of(value: i64) -> f64 {
        value as f64
    }

    #[inline]
    fn from_difference(base: i64, difference: u32) -> f64 {
        base as f64 + f64::from(difference)
    }
}

impl DecodedInteger for i128 {
    #[inline]
    fn of(value: i64) -> i128 {
        value.into()
    }

    #[inline]
    fn from_difference(base: i64, difference: u32) -> i128 {
        base.wrapping_add(difference.into()).into()
    }
}

/// Difference of two integers, which is below 2^64.
fn difference(value: i64, base: i64) -> u64 {
    value.wrapping_sub(base) as u64
}

impl IntegerBlock {
    /// Encodes values, at least one; their words are appended.
    pub(crate) fn encode(values: &[i64], words: &mut Vec<u32>) -> IntegerBlock {
        assert!(!values.is_empty(), "a block has values");
        let start = words.len();
        let block = IntegerBlock::encode_smallest(values, words);
        assert_eq!(
            block.words(values.len(), &words[start..]),
            Some(words.len() - start),
            "a block has the words that its description says: {block:?}"
        );
        debug_assert_eq!(
            block.value(&words[start..], values.len(), 0),
            values[0],
            "the first value comes back: {block:?}"
        );
        block
    }

    /// Encodes values in the way that takes the fewest words.
    fn encode_smallest(values: &[i64], words: &mut Vec<u32>) -> IntegerBlock {
        let (least, greatest) = values.iter().fold((values[0], values[0]), |(least, greatest), &value| {
            (least.min(value), greatest.max(value))
        });
        let bits = bits_of(difference(greatest, least));
        let packed = packed_words(values.len(), bits);
        let is_small = |words: usize| words * SMALLER.1 < packed * SMALLER.0;
        let runs = 1 + values.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let end_bits = bits_of(values.len() as u64);
        let run_words = 1 + packed_words(runs, bits) + packed_words(runs, end_bits);
        let deltas = deltas(values);
        let least_delta = deltas.iter().copied().min().unwrap_or(0);
        let greatest_delta = deltas.iter().copied().max().unwrap_or(0);
        let delta_bits = bits_of(difference(greatest_delta, least_delta));
        let delta_words = 2 + packed_words(deltas.len(), delta_bits);
        if is_small(run_words) && run_words <= delta_words {
            encode_runs(values, least, (bits, end_bits), words);
            return IntegerBlock { encoding: Encoding::Runs, bits, end_bits, base: least };
        }
        if is_small(delta_words) {
            words.extend([least_delta as u32, (least_delta >> 32) as u32]);
            let offsets: Vec<u64> = deltas.iter().map(|delta| difference(*delta, least_delta)).collect();
            pack(&offsets, delta_bits, words);
            return IntegerBlock {
                encoding: Encoding::Delta,
                bits: delta_bits,
                end_bits: 0,
                base: values[0],
            };
        }
        let offsets: Vec<u64> = values.iter().map(|value| difference(*value, least)).collect();
        pack(&offsets, bits, words);
        IntegerBlock { encoding: Encoding::Packed, bits, end_bits: 0, base: least }
    }

    /// Number of words of a block of so many values that begins with these; none if they cannot be one.
    pub(crate) fn words(&self, values: usize, words: &[u32]) -> Option<usize> {
        let needed = match self.encoding {
            Encoding::Packed => packed_words(values, self.bits),
            Encoding::Delta => 2 + packed_words(values - 1, self.bits),
            Encoding::Runs => {
                let runs = *words.first()? as usize;
                if runs == 0 || runs > values {
                    return None;
                }
                1 + packed_words(runs, self.bits) + packed_words(runs, self.end_bits)
            }
        };
        (self.bits <= 64 && self.end_bits <= 32 && needed <= words.len()).then_some(needed)
    }

    /// Appends the values of a block.
    pub(crate) fn decode<T: DecodedInteger>(&self, words: &[u32], values: usize, out: &mut Vec<T>) {
        let start = out.len();
        out.reserve(values + RUN_LANES);
        match self.encoding {
            Encoding::Packed => decode_packed(words, values, self.bits, self.base, out),
            Encoding::Delta => {
                let least = i64::from(words[0]) | i64::from(words[1] as i32) << 32;
                let mut deltas: Vec<i64> = Vec::with_capacity(values);
                decode_packed(&words[2..], values - 1, self.bits, least, &mut deltas);
                let mut value = self.base;
                out.push(T::of(value));
                out.extend(deltas.iter().map(|delta| {
                    value = value.wrapping_add(*delta);
                    T::of(value)
                }));
            }
            Encoding::Runs => {
                let (of_runs, ends) = self.runs(words);
                expand_runs(of_runs.into_iter().map(T::of), &ends, values, out);
            }
        }
        // Damaged runs may end early.
        out.resize(start + values, T::of(self.base));
    }

    /// Returns true if its values are differences of at most 32 bits to the base, on which conditions are checked.
    pub(crate) fn has_differences(&self) -> bool {
        self.encoding != Encoding::Delta && self.bits <= 32
    }

    /// Positions of the values within bounds, in place of those in `rows`.
    pub(crate) fn select_between(
        &self,
        words: &[u32],
        values: usize,
        (least, greatest): (i64, i64),
        rows: &mut Vec<u32>,
    ) {
        rows.clear();
        if least > greatest {
            return;
        }
        if !self.has_differences() {
            return self.select_where(
                words,
                values,
                rows,
                |_| true,
                |value| (least..=greatest).contains(&value),
            );
        }
        let Some((low, width)) = self.bounds_of_differences(least, greatest) else { return };
        if self.encoding == Encoding::Packed {
            rows.resize(values, 0);
            let mut count = 0;
            unpack(words, values, self.bits, |first, chunk| {
                count += append_positions_within(chunk, (low, width), first as u32, &mut rows[count..]);
            });
            return rows.truncate(count);
        }
        let is_met = |difference: u32| difference.wrapping_sub(low) <= width;
        self.select_where(words, values, rows, is_met, |_| false);
    }

    /// Positions of the values that are in a set, in place of those in `rows`: it is that of the differences to the
    /// base, where there are such; else `is_met` tells of a value.
    pub(crate) fn select_in(
        &self,
        words: &[u32],
        values: usize,
        rows: &mut Vec<u32>,
        set: &BitSet<'_>,
        is_met: impl Fn(i64) -> bool,
    ) {
        if self.encoding != Encoding::Packed || !self.has_differences() {
            return self.select_where(words, values, rows, |difference| set.contains(difference), is_met);
        }
        rows.clear();
        rows.resize(values, 0);
        let mut count = 0;
        unpack(words, values, self.bits, |first, chunk| {
            count += append_positions_in(chunk, set, first as u32, &mut rows[count..]);
        });
        rows.truncate(count);
    }

    /// Least difference within bounds of values, and the number of those above it; none if there is none.
    pub(crate) fn bounds_of_differences(&self, least: i64, greatest: i64) -> Option<(u32, u32)> {
        if least > greatest || greatest < self.base {
            return None;
        }
        let low = u32::try_from(difference(least.max(self.base), self.base)).ok()?;
        let high = difference(greatest, self.base).min(u64::from(u32::MAX)) as u32;
        Some((low, high - low))
    }

    /// Positions of the values that meet a condition, in place of those in `rows`: a condition on differences,
    /// where there are such, else on values.
    #[inline]
    pub(crate) fn select_where(
        &self,
        words: &[u32],
        values: usize,
        rows: &mut Vec<u32>,
        is_difference_met: impl Fn(u32) -> bool,
        is_met: impl Fn(i64) -> bool,
    ) {
        rows.clear();
        if self.has_differences() && self.encoding == Encoding::Runs {
            let (differences, ends) = self.differences_of_runs(words);
            return select_runs(&differences, &ends, values, rows, is_difference_met);
        }
        rows.resize(values, 0);
        let mut count = 0;
        if self.has_differences() {
            unpack(words, values, self.bits, |first, chunk| {
                for (at, difference) in chunk.iter().enumerate() {
                    rows[count] = (first + at) as u32;
                    count += usize::from(is_difference_met(*difference));
                }
            });
        } else {
            let mut decoded: Vec<i64> = Vec::new();
            self.decode(words, values, &mut decoded);
            for (at, value) in decoded.iter().enumerate() {
                rows[count] = at as u32;
                count += usize::from(is_met(*value));
            }
        }
        rows.truncate(count);
    }

    /// Leaves those of some positions, which ascend, whose values meet a condition, as
    /// [`IntegerBlock::select_where`] has it.
    #[inline]
    pub(crate) fn refine_where(
        &self,
        words: &[u32],
        values: usize,
        rows: &mut Vec<u32>,
        is_difference_met: impl Fn(u32) -> bool,
        is_met: impl Fn(i64) -> bool,
    ) {
        let mut count = 0;
        // Positions are read ahead of those that are written.
        let cells = Cell::from_mut(&mut rows[..]).as_slice_of_cells();
        let mut note = |at: usize, is_met: bool| {
            cells[count].set(cells[at].get());
            count += usize::from(is_met);
        };
        if self.has_differences() {
            let at = |at: usize| cells[at].get();
            self.each_difference(words, values, (cells.len(), at), |at, difference| {
                note(at, is_difference_met(difference));
            });
        } else {
            let mut decoded: Vec<i64> = Vec::new();
            self.decode(words, values, &mut decoded);
            (0..cells.len()).for_each(|at| note(at, is_met(decoded[cells[at].get() as usize])));
        }
        rows.truncate(count);
    }

    /// Appends the values at some positions; those that ascend are decoded fastest.
    pub(crate) fn decode_at<T: DecodedInteger>(
        &self,
        words: &[u32],
        values: usize,
        rows: &[u32],
        out: &mut Vec<T>,
    ) {
        if self.has_differences() && rows.is_sorted() {
            let start = out.len();
            out.resize(start + rows.len(), T::of(self.base));
            let found = &mut out[start..];
            return self.each_difference(words, values, (rows.len(), |at| rows[at]), |at, difference| {
                found[at] = T::from_difference(self.base, difference);
            });
        }
        if self.encoding == Encoding::Packed && rows.len() < values / FEW_SHARE {
            return out.extend(rows.iter().map(|row| T::of(self.value(words, values, *row as usize))));
        }
        let mut decoded: Vec<T> = Vec::new();
        self.decode(words, values, &mut decoded);
        out.extend(rows.iter().map(|row| decoded[*row as usize]));
    }

    /// Calls `f` with the number of each of some positions, which ascend, and the difference there.
    #[inline]
    fn each_difference(
        &self,
        words: &[u32],
        values: usize,
        (count, row): (usize, impl Fn(usize) -> u32),
        mut f: impl FnMut(usize, u32),
    ) {
        if self.encoding == Encoding::Runs {
            let (differences, ends) = self.differences_of_runs(words);
            return each_of_runs((&differences, &ends), values, (count, row), f);
        }
        let mut unpacked = [0; CHUNK_VALUES];
        let mut at = 0;
        while at < count {
            let chunk = row(at) as usize / CHUNK_VALUES;
            let end = ((chunk + 1) * CHUNK_VALUES) as u32;
            let is_in_chunk = |at: usize| at < count && row(at) < end;
            if is_in_chunk(at + FEW_OF_CHUNK - 1) {
                unpack_one(words, self.bits, chunk, &mut unpacked);
                while is_in_chunk(at) {
                    f(at, unpacked[row(at) as usize % CHUNK_VALUES]);
                    at += 1;
                }
            } else {
                while is_in_chunk(at) {
                    f(at, short_at(words, self.bits, row(at) as usize));
                    at += 1;
                }
            }
        }
    }

    /// Differences to the base of the runs, of at most 32 bits, and the ends of the runs.
    fn differences_of_runs(&self, words: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let runs = words[0] as usize;
        let (mut differences, mut ends) = (Vec::with_capacity(runs), Vec::with_capacity(runs));
        unpack(&words[1..], runs, self.bits, |_, chunk| differences.extend_from_slice(chunk));
        let packed_ends = &words[1 + packed_words(runs, self.bits)..];
        unpack(packed_ends, runs, self.end_bits, |_, chunk| ends.extend_from_slice(chunk));
        (differences, ends)
    }

    fn runs(&self, words: &[u32]) -> (Vec<i64>, Vec<u32>) {
        let runs = words[0] as usize;
        let (mut of_runs, mut ends) = (Vec::with_capacity(runs), Vec::with_capacity(runs));
        decode_packed(&words[1..], runs, self.bits, self.base, &mut of_runs);
        let packed_ends = &words[1 + packed_words(runs, self.bits)..];
        unpack(packed_ends, runs, self.end_bits, |_, chunk| ends.extend_from_slice(chunk));
        (of_runs, ends)
    }

    /// Value at a position, without decoding others if the block is packed or it is the first.
    pub(crate) fn value(&self, words: &[u32], values: usize, at: usize) -> i64 {
        match self.encoding {
            Encoding::Packed => self.base.wrapping_add(value_at(words, values, self.bits, at) as i64),
            Encoding::Delta if at == 0 => self.base,
            Encoding::Delta => {
                let mut decoded: Vec<i64> = Vec::new();
                self.decode(words, values, &mut decoded);
                decoded[at]
            }
            Encoding::Runs => {
                let (of_runs, ends) = self.runs(words);
                let run = ends.partition_point(|end| *end as usize <= at);
                of_runs[run.min(of_runs.len() - 1)]
            }
        }
    }
}

fn deltas(values: &[i64]) -> Vec<i64> {
    values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect()
}

fn encode_runs(values: &[i64], least: i64, (bits, end_bits): (u32, u32), words: &mut Vec<u32>) {
    let (mut of_runs, mut ends) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|value, next| value == next) {
        of_runs.push(difference(run[0], least));
        ends.push(ends.last().copied().unwrap_or(0) + run.len() as u64);
    }
    debug_assert_eq!(ends.last().copied(), Some(values.len() as u64), "the last run ends with the block");
    words.push(of_runs.len() as u32);
    pack(&of_runs, bits, words);
    pack(&ends, end_bits, words);
}

#[inline]
fn decode_packed<T: DecodedInteger>(words: &[u32], values: usize, bits: u32, base: i64, out: &mut Vec<T>) {
    if bits <= 32 {
        unpack(words, values, bits, |_, chunk| {
            out.extend(chunk.iter().map(|difference| T::from_difference(base, *difference)));
        });
        return;
    }
    let high = &words[packed_words(values, 32)..];
    let mut highs = Vec::with_capacity(values);
    unpack(high, values, bits - 32, |_, chunk| highs.extend_from_slice(chunk));
    unpack(words, values, 32, |first, chunk| {
        out.extend(
            chunk.iter().zip(&highs[first..]).map(|(low, high)| {
                T::of(base.wrapping_add((u64::from(*low) | u64::from(*high) << 32) as i64))
            }),
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(values: &[i64]) -> Encoding {
        let mut words = vec![1, 2, 3];
        let block = IntegerBlock::encode(values, &mut words);
        let data = &words[3..];
        assert_eq!(block.words(values.len(), data), Some(data.len()));
        let mut decoded = vec![42];
        block.decode(data, values.len(), &mut decoded);
        assert_eq!(&decoded[1..], values);
        for at in (0..values.len()).step_by(values.len().div_ceil(17)) {
            assert_eq!(block.value(data, values.len(), at), values[at], "at {at}");
            let (least, greatest) = (values[at].min(values[0]), values[at].max(values[0]));
            let within = (0..values.len()).filter(|at| (least..=greatest).contains(&values[*at]));
            let within: Vec<u32> = within.map(|at| at as u32).collect();
            let mut rows = vec![9; 3];
            block.select_between(data, values.len(), (least, greatest), &mut rows);
            assert_eq!(rows, within, "{least} to {greatest}");
            check_conditions(&block, data, values, values[at]);
        }
        block.encoding
    }

    /// Checks selections by a condition that tells values apart, of all positions and of every so-manyth.
    fn check_conditions(block: &IntegerBlock, data: &[u32], values: &[i64], wanted: i64) {
        let is_met = |value: i64| value.wrapping_mul(31) & 6 == wanted.wrapping_mul(31) & 6;
        let is_difference_met = |difference: u32| is_met(block.base.wrapping_add(difference.into()));
        for step in [1, 2, 5, 97, 1500] {
            let positions: Vec<u32> = (0..values.len()).step_by(step).map(|at| at as u32).collect();
            let met = positions.iter().copied().filter(|row| is_met(values[*row as usize]));
            let met: Vec<u32> = met.collect();
            let mut rows = positions.clone();
            block.refine_where(data, values.len(), &mut rows, is_difference_met, is_met);
            assert_eq!(rows, met, "every {step}");
            if step == 1 {
                block.select_where(data, values.len(), &mut rows, is_difference_met, is_met);
                assert_eq!(rows, met);
            }
            let backwards: Vec<u32> = positions.iter().rev().copied().collect();
            for positions in [positions, backwards] {
                let mut found = vec![1_i64];
                block.decode_at(data, values.len(), &positions, &mut found);
                let expected: Vec<i64> = positions.iter().map(|row| values[*row as usize]).collect();
                assert_eq!(&found[1..], expected);
            }
        }
    }

    #[test]
    fn each_encoding_is_chosen_where_it_is_smallest() {
        assert_eq!(check(&[7; 5000]), Encoding::Packed);
        assert_eq!(check(&(0..8192).map(|at| at * 1000).collect::<Vec<_>>()), Encoding::Delta);
        assert_eq!(check(&(0..8192).map(|at| (at / 500) * 70_001).collect::<Vec<_>>()), Encoding::Runs);
        assert_eq!(check(&(0..8192).map(|at| (at * 7919) % 5003).collect::<Vec<_>>()), Encoding::Packed);
        assert_eq!(check(&[i64::MIN, i64::MAX, 0, -1, i64::MAX]), Encoding::Packed);
        check(&[5]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn any_integers_are_decoded_as_they_were_encoded(
            base in any::<i64>(),
            width in 0_u32..64,
            steps in prop::collection::vec((any::<u64>(), 1_usize..40), 1..150),
            ascends in any::<bool>(),
        ) {
            let mut values = Vec::new();
            for (step, run) in steps {
                let step = (step >> (63 - width)) as i64;
                let last = values.last().copied().unwrap_or(base);
                let value = if ascends { i64::wrapping_add(last, step) } else { base.wrapping_add(step) };
                values.extend(std::iter::repeat_n(value, run));
            }
            check(&values);
        }
    }
}
