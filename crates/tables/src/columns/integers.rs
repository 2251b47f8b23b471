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

use crate::columns::packing::{bits_of, pack, packed_words, unpack, value_at};

/// Size of the other encodings beside a packed block at which they are chosen, as a fraction.
const SMALLER: (usize, usize) = (3, 4);

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
pub(crate) trait Decoded: Copy {
    fn of(value: i64) -> Self;
    /// Sum of a base and a difference of at most 32 bits.
    fn from_difference(base: i64, difference: u32) -> Self;
}

macro_rules! decoded {
    ($($type:ty)*) => {
        $(impl Decoded for $type {
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

impl Decoded for i128 {
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
    pub(crate) fn decode<T: Decoded>(&self, words: &[u32], values: usize, out: &mut Vec<T>) {
        let start = out.len();
        out.reserve(values);
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
                let mut end_before = 0;
                for (value, end) in of_runs.into_iter().zip(ends) {
                    let end = (end as usize).clamp(end_before, values);
                    out.extend(std::iter::repeat_n(T::of(value), end - end_before));
                    end_before = end;
                }
            }
        }
        // Damaged runs may end early.
        out.resize(start + values, T::of(self.base));
    }

    /// Positions of the values within bounds.
    pub(crate) fn select_between(&self, words: &[u32], values: usize, least: i64, greatest: i64) -> Vec<u32> {
        if least > greatest || greatest < self.base && self.encoding == Encoding::Packed {
            return Vec::new();
        }
        let mut selected = vec![0; values];
        let mut count = 0;
        if self.encoding == Encoding::Packed && self.bits <= 32 {
            // The base is the least value: bounds become those of differences.
            let low = difference(least.max(self.base), self.base);
            let high = difference(greatest, self.base).min(u64::from(u32::MAX));
            if low > high {
                return Vec::new();
            }
            let (low, width) = (low as u32, (high - low) as u32);
            unpack(words, values, self.bits, |first, chunk| {
                for (at, difference) in chunk.iter().enumerate() {
                    selected[count] = (first + at) as u32;
                    count += usize::from(difference.wrapping_sub(low) <= width);
                }
            });
        } else {
            let mut decoded: Vec<i64> = Vec::new();
            self.decode(words, values, &mut decoded);
            for (at, value) in decoded.iter().enumerate() {
                selected[count] = at as u32;
                count += usize::from((least..=greatest).contains(value));
            }
        }
        selected.truncate(count);
        selected
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
    words.push(of_runs.len() as u32);
    pack(&of_runs, bits, words);
    pack(&ends, end_bits, words);
}

#[inline]
fn decode_packed<T: Decoded>(words: &[u32], values: usize, bits: u32, base: i64, out: &mut Vec<T>) {
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
            assert_eq!(block.select_between(data, values.len(), least, greatest), within);
        }
        block.encoding
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
