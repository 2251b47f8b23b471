//! Blocks of doubles as integers: decimal numbers, or bits in the order of doubles, with exceptions beside them.
//!
//! Most doubles in tables are decimal numbers of few digits, which are integers times a power of ten. This is the
//! idea of ALP (Afroozeh, Kuffó, Boncz, "ALP: Adaptive Lossless Floating-Point Compression", SIGMOD 2023):
//!
//! - A block has one exponent, chosen by a sample: that with which the integers take the fewest bits, counting the
//!   values that are not exact with it. Those are *exceptions*, stored by position beside the integers.
//! - A double is its integer divided by a power of ten, or multiplied with one where the exponent is below zero.
//!   The paper multiplies by inverse powers, which are not exact, and so needs greater exponents and a second
//!   factor. A division is rounded correctly, so the least exponent with all digits is exact.
//! - Where no exponent pays, the integers are the bits of the doubles in their order, without a few values far
//!   from the others, which are exceptions too (patched frame of reference: Zukowski et al., ICDE 2006).
//!
//! | words of exceptions | what |
//! | --- | --- |
//! | 1 | their number |
//! | 1 each | positions, ascending |
//! | 2 each | bits, ordered ([`ordered_bits`]) |
//!
//! Any double comes back bit by bit: NaN with its payload, -0.0, infinities. Values of REAL are the double
//! that has their value; a decimal number need only be right to the precision of REAL.

use crate::columns::integers::IntegerBlock;
use crate::columns::packing::bits_of;

/// Powers of ten that are doubles exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
/// Exponents that are tried.
const EXPONENTS: std::ops::RangeInclusive<i8> = -6..=22;
/// Integers of decimal numbers are at most this large: [`rounded`] and doubles have them exactly.
const DECIMAL_MAX: f64 = (1_u64 << 51) as f64;
/// Sum with which the fraction of a double below [`DECIMAL_MAX`] is rounded away.
const ROUNDING: f64 = 1.5 * (1_u64 << 52) as f64;
/// Integers of decimal numbers that a page may have, those of the first format of pages included.
const EXACT_MAX: i64 = 1 << 53;
/// Values of a page that choose its exponents, and of a block that choose one of them.
const PAGE_SAMPLE: usize = 256;
const BLOCK_SAMPLE: usize = 64;
/// Exponents of a page that are tried for each of its blocks.
const CANDIDATES: usize = 3;
/// Bits of an exception.
const EXCEPTION_BITS: usize = 96;
/// Share of a sample, as a divisor, that may lie outside of the bounds of the others at either end.
const OUTLIERS_SHARE: usize = 16;

/// Precision of the values of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// REAL, as the double with its value.
    Single,
    Double,
}

/// Meaning of the integers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoubleCoding {
    /// Bits, which order as the values do.
    Ordered,
    /// Decimal digits, to be divided by ten to the power of the exponent.
    Decimal { exponent: i8 },
}

/// Block of doubles, apart from its integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DoubleBlock {
    pub(crate) coding: DoubleCoding,
    /// Place of its exceptions in the page; 0: none.
    pub(crate) exceptions: usize,
}

/// Block as it was encoded.
#[derive(Debug)]
pub(super) struct EncodedDoubles {
    pub(super) doubles: DoubleBlock,
    pub(super) integers: IntegerBlock,
    /// Place of the integers.
    pub(super) data: usize,
    /// Least and greatest value, as ordered bits.
    pub(super) least: i64,
    pub(super) greatest: i64,
}

/// Exceptions of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exceptions<'p> {
    pub(crate) positions: &'p [u32],
    values: &'p [u32],
}

/// Maps a double to an integer, in the order of doubles (`total_cmp`).
pub(crate) fn ordered_bits(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Double of such an integer.
pub(crate) fn double_of(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ (((ordered >> 63) as u64) >> 1) as i64) as u64)
}

fn ordered_bits_of_single(value: f32) -> i64 {
    let bits = value.to_bits() as i32;
    (bits ^ (((bits >> 31) as u32) >> 1) as i32).into()
}

fn single_of(ordered: i64) -> f32 {
    let ordered = ordered as i32;
    f32::from_bits((ordered ^ (((ordered >> 31) as u32) >> 1) as i32) as u32)
}

/// Nearest integer of a double whose magnitude is at most [`DECIMAL_MAX`].
fn rounded(value: f64) -> f64 {
    (value + ROUNDING) - ROUNDING
}

/// Power of ten of an exponent that is checked.
fn power(exponent: i8) -> f64 {
    POWERS[usize::from(exponent.unsigned_abs())]
}

impl DoubleCoding {
    pub(super) fn word(self) -> u32 {
        match self {
            DoubleCoding::Ordered => 0,
            DoubleCoding::Decimal { exponent } => 1 | u32::from(exponent as u8) << 8,
        }
    }

    /// Coding of a word; none if there is no such one.
    pub(super) fn of_word(word: u32) -> Option<DoubleCoding> {
        let exponent = (word >> 8) as u8 as i8;
        match word & 0xff {
            0 => Some(DoubleCoding::Ordered),
            1 if usize::from(exponent.unsigned_abs()) < POWERS.len() => {
                Some(DoubleCoding::Decimal { exponent })
            }
            _ => None,
        }
    }

    /// Integer of a double, if exactly its bits come back from it.
    fn integer_of(self, precision: Precision, value: f64) -> Option<i64> {
        let integer = match (self, precision) {
            (DoubleCoding::Ordered, Precision::Double) => return Some(ordered_bits(value)),
            (DoubleCoding::Ordered, Precision::Single) => ordered_bits_of_single(value as f32),
            (DoubleCoding::Decimal { exponent }, _) => {
                let digits = if exponent < 0 { value / power(exponent) } else { value * power(exponent) };
                // NaN is not within bounds either.
                if !(-DECIMAL_MAX..=DECIMAL_MAX).contains(&digits) {
                    return None;
                }
                rounded(digits) as i64
            }
        };
        (self.value_of(precision, integer).to_bits() == value.to_bits()).then_some(integer)
    }

    /// Double of an integer.
    pub(crate) fn value_of(self, precision: Precision, integer: i64) -> f64 {
        match (self, precision) {
            (DoubleCoding::Ordered, Precision::Double) => double_of(integer),
            (DoubleCoding::Ordered, Precision::Single) => single_of(integer).into(),
            (DoubleCoding::Decimal { exponent }, precision) => {
                let digits = integer as f64;
                let value = if exponent < 0 { digits * power(exponent) } else { digits / power(exponent) };
                if precision == Precision::Single { (value as f32).into() } else { value }
            }
        }
    }

    /// Makes doubles of integers, which are given as doubles if they are decimal digits.
    fn finish(exponent: i8, precision: Precision, digits: &mut [f64]) {
        let power = power(exponent);
        if exponent < 0 {
            digits.iter_mut().for_each(|digits| *digits *= power);
        } else if exponent > 0 {
            digits.iter_mut().for_each(|digits| *digits /= power);
        }
        if precision == Precision::Single {
            digits.iter_mut().for_each(|digits| *digits = (*digits as f32).into());
        }
    }

    /// Bounds of the integers of the values within bounds; the second is less than the first if there are none.
    /// NaN are not looked at.
    fn integer_bounds(self, precision: Precision, least: f64, greatest: f64) -> (i64, i64) {
        let (low, high) = match (self, precision) {
            (DoubleCoding::Ordered, Precision::Double) => {
                (ordered_bits(f64::NEG_INFINITY), ordered_bits(f64::INFINITY))
            }
            (DoubleCoding::Ordered, Precision::Single) => {
                (ordered_bits_of_single(f32::NEG_INFINITY), ordered_bits_of_single(f32::INFINITY))
            }
            (DoubleCoding::Decimal { .. }, _) => (-EXACT_MAX, EXACT_MAX),
        };
        // Values ascend with their integers, if not strictly: the numbers that begin what is not below a bound.
        let first = |is_below: &dyn Fn(f64) -> bool| {
            let (mut low, mut end) = (i128::from(low), i128::from(high) + 1);
            while low < end {
                let middle = (low + end).div_euclid(2);
                if is_below(self.value_of(precision, middle as i64)) {
                    low = middle + 1
                } else {
                    end = middle
                }
            }
            low as i64
        };
        (first(&|value| value < least), first(&|value| value <= greatest) - 1)
    }

    /// Exponents that suit a page best, by a sample of it, and the order of bits.
    pub(super) fn candidates(
        values: &[f64],
        precision: Precision,
        is_valid: impl Fn(usize) -> bool,
    ) -> Vec<DoubleCoding> {
        let sample = sample_of(values, PAGE_SAMPLE, is_valid);
        let bits = |coding: DoubleCoding| estimated_bits(coding, precision, &sample);
        let ordered = bits(DoubleCoding::Ordered);
        let decimals = EXPONENTS.map(|exponent| (bits(DoubleCoding::Decimal { exponent }), exponent));
        // An exponent may suit some blocks of a page, so what costs more in all is not left out at once.
        let mut decimals: Vec<(usize, i8)> = decimals.filter(|(bits, _)| *bits < 2 * ordered).collect();
        decimals.sort_by_key(|(bits, exponent)| (*bits, exponent.unsigned_abs()));
        let chosen = decimals.into_iter().take(CANDIDATES);
        let chosen = chosen.map(|(_, exponent)| DoubleCoding::Decimal { exponent });
        chosen.chain([DoubleCoding::Ordered]).collect()
    }
}

/// Valid values at equal distances.
fn sample_of(values: &[f64], count: usize, is_valid: impl Fn(usize) -> bool) -> Vec<f64> {
    let rows = (0..values.len()).step_by(values.len().div_ceil(count).max(1));
    rows.filter(|row| is_valid(*row)).map(|row| values[row]).collect()
}

/// Bits of the values of a sample under a coding.
fn estimated_bits(coding: DoubleCoding, precision: Precision, sample: &[f64]) -> usize {
    let integers = sample.iter().filter_map(|value| coding.integer_of(precision, *value));
    let mut integers: Vec<i64> = integers.collect();
    integers.sort_unstable();
    let (low, high) = sample_bounds(&integers);
    let within = integers.iter().filter(|integer| (low..=high).contains(*integer)).count();
    within * width(low, high) as usize + (sample.len() - within) * EXCEPTION_BITS
}

/// Number of bits of the integers between bounds as differences to the lower one.
fn width(low: i64, high: i64) -> u32 {
    bits_of(high.wrapping_sub(low) as u64)
}

/// Bounds of sorted integers with which they take the fewest bits, if those outside of them are exceptions.
fn sample_bounds(sorted: &[i64]) -> (i64, i64) {
    let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) else { return (0, 0) };
    let outliers_max = sorted.len() / OUTLIERS_SHARE;
    let mut best = (usize::MAX, (*least, *greatest));
    for below in 0..=outliers_max {
        for above in 0..=outliers_max {
            let bounds = (sorted[below], sorted[sorted.len() - 1 - above]);
            let within = sorted.len() - below - above;
            let bits = within * width(bounds.0, bounds.1) as usize + (below + above) * EXCEPTION_BITS;
            if bits < best.0 {
                best = (bits, bounds);
            }
        }
    }
    best.1
}

/// Bounds of the integers of a block that are packed: all of them, or about those that a sample has.
fn packed_bounds(integers: &[i64]) -> (i64, i64) {
    let (least, greatest) = integers.iter().fold((i64::MAX, i64::MIN), |(least, greatest), integer| {
        (least.min(*integer), greatest.max(*integer))
    });
    let step = integers.len().div_ceil(BLOCK_SAMPLE).max(1);
    let mut sample: Vec<i64> = integers.iter().step_by(step).copied().collect();
    sample.sort_unstable();
    let (low, high) = sample_bounds(&sample);
    let all_bits = width(least, greatest);
    let mut best = (integers.len() * all_bits as usize, (least, greatest));
    // Bounds of a sample are narrow: they are tried with up to two bits more, divided among both ends.
    for bits in width(low, high)..(width(low, high) + 3).min(all_bits) {
        let span = ((1_u128 << bits) - 1) as u64;
        let spare = (span - high.wrapping_sub(low) as u64) / 2;
        let to = (i128::from(high) + i128::from(spare)).min(greatest.into());
        let from = (to - i128::from(span)).max(least.into());
        let to = (from + i128::from(span)).min(greatest.into());
        let (from, to) = (from as i64, to as i64);
        let outside = integers.iter().filter(|integer| !(from..=to).contains(*integer)).count();
        let total = (integers.len() - outside) * bits as usize + outside * EXCEPTION_BITS;
        if total < best.0 {
            best = (total, (from, to));
        }
    }
    best.1
}

impl DoubleBlock {
    /// Encodes values, at least one; their words are appended. `valid` is empty if no value is NULL.
    pub(super) fn encode(
        (values, valid): (&[f64], &[bool]),
        precision: Precision,
        candidates: &[DoubleCoding],
        words: &mut Vec<u32>,
    ) -> EncodedDoubles {
        let is_valid = |row: usize| valid.get(row).copied().unwrap_or(true);
        let sample = sample_of(values, BLOCK_SAMPLE, is_valid);
        let bits = |coding: &&DoubleCoding| estimated_bits(**coding, precision, &sample);
        let mut coding = candidates.iter().min_by_key(bits).copied().unwrap_or(DoubleCoding::Ordered);
        let of_coding = |coding: DoubleCoding| -> Vec<Option<i64>> {
            let row = |(row, value): (usize, &f64)| {
                if is_valid(row) { coding.integer_of(precision, *value) } else { None }
            };
            values.iter().enumerate().map(row).collect()
        };
        let mut found = of_coding(coding);
        // A block may be unlike its sample: then the order of bits, which has all values, is smaller.
        let wanted = (0..values.len()).filter(|row| is_valid(*row)).count();
        if found.iter().flatten().count() < wanted / 2 && coding != DoubleCoding::Ordered {
            coding = DoubleCoding::Ordered;
            found = of_coding(coding);
        }
        let known: Vec<i64> = found.iter().copied().flatten().collect();
        let (low, high) = if known.is_empty() { (0, 0) } else { packed_bounds(&known) };
        let is_packed = |integer: &i64| (low..=high).contains(integer);
        let mut last = known.iter().copied().find(|integer| is_packed(integer)).unwrap_or(0);
        let (mut integers, mut exceptions) = (Vec::with_capacity(values.len()), Vec::new());
        for (row, integer) in found.into_iter().enumerate() {
            match integer.filter(is_packed) {
                Some(integer) => last = integer,
                None if is_valid(row) => exceptions.push(row),
                // NULLs have no value: that before costs least.
                None => {}
            }
            integers.push(last);
        }
        assert_eq!(integers.len(), values.len(), "each value has an integer, that of an exception is any");
        let data = words.len();
        let integers = IntegerBlock::encode(&integers, words);
        let exceptions = encode_exceptions(values, &exceptions, words);
        let ordered = (0..values.len()).filter(|row| is_valid(*row)).map(|row| ordered_bits(values[row]));
        let (least, greatest) = ordered
            .fold((i64::MAX, i64::MIN), |(least, greatest), bits| (least.min(bits), greatest.max(bits)));
        let (least, greatest) = if least > greatest { (0, 0) } else { (least, greatest) };
        EncodedDoubles { doubles: DoubleBlock { coding, exceptions }, integers, data, least, greatest }
    }

    /// Exceptions in the words of a page; none if there are none.
    pub(crate) fn exceptions<'p>(&self, words: &'p [u32]) -> Option<Exceptions<'p>> {
        if self.exceptions == 0 {
            return None;
        }
        let (count, rest) = words.get(self.exceptions..)?.split_first()?;
        let (positions, rest) = rest.split_at_checked(*count as usize)?;
        Some(Exceptions { positions, values: rest.get(..2 * positions.len())? })
    }

    /// Tells whether the exceptions lie within the words of a page and within its rows.
    pub(super) fn is_sound(&self, rows: usize, words: &[u32]) -> bool {
        let Some(exceptions) = self.exceptions(words) else { return self.exceptions == 0 };
        let positions = exceptions.positions;
        positions.is_sorted_by(|a, b| a < b) && positions.last().is_none_or(|last| (*last as usize) < rows)
    }

    /// Appends the doubles of a block of so many values whose words these are, or those selected.
    pub(super) fn decode(
        &self,
        (integers, data): (IntegerBlock, &[u32]),
        (precision, exceptions): (Precision, Option<Exceptions<'_>>),
        (values, selection): (usize, Option<&[u32]>),
        out: &mut Vec<f64>,
    ) {
        let start = out.len();
        match self.coding {
            DoubleCoding::Decimal { exponent } => {
                match selection {
                    Some(selected) => integers.decode_at(data, values, selected, out),
                    None => integers.decode(data, values, out),
                }
                DoubleCoding::finish(exponent, precision, &mut out[start..]);
            }
            DoubleCoding::Ordered => {
                let mut ordered: Vec<i64> = Vec::new();
                match selection {
                    Some(selected) => integers.decode_at(data, values, selected, &mut ordered),
                    None => integers.decode(data, values, &mut ordered),
                }
                out.extend(ordered.into_iter().map(|bits| self.coding.value_of(precision, bits)));
            }
        }
        let Some(exceptions) = exceptions else { return };
        match selection {
            None => {
                for (at, position) in exceptions.positions.iter().enumerate() {
                    out[start + *position as usize] = exceptions.value(at);
                }
            }
            Some(selected) => {
                for (value, row) in out[start..].iter_mut().zip(selected) {
                    if let Ok(at) = exceptions.positions.binary_search(row) {
                        *value = exceptions.value(at);
                    }
                }
            }
        }
    }

    /// Bounds of the integers of the values within bounds, apart from those of exceptions.
    pub(crate) fn integer_bounds(&self, precision: Precision, least: f64, greatest: f64) -> (i64, i64) {
        self.coding.integer_bounds(precision, least, greatest)
    }
}

impl Exceptions<'_> {
    /// Value of one of them.
    pub(crate) fn value(&self, at: usize) -> f64 {
        double_of(i64::from(self.values[2 * at]) | i64::from(self.values[2 * at + 1] as i32) << 32)
    }
}

/// Appends exceptions; returns their place.
fn encode_exceptions(values: &[f64], rows: &[usize], words: &mut Vec<u32>) -> usize {
    if rows.is_empty() {
        return 0;
    }
    debug_assert!(rows.is_sorted_by(|row, next| row < next), "exceptions are found by their positions");
    let at = words.len();
    assert!(at > 0, "the place 0 says that there are no exceptions");
    words.push(rows.len() as u32);
    words.extend(rows.iter().map(|row| *row as u32));
    for row in rows {
        let bits = ordered_bits(values[*row]);
        words.extend([bits as u32, (bits >> 32) as u32]);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes and decodes values as a block; returns the coding, the words and the number of exceptions.
    fn check(values: &[f64], valid: &[bool], precision: Precision) -> (DoubleCoding, usize, usize) {
        let is_valid = |row: usize| valid.get(row).copied().unwrap_or(true);
        let candidates = DoubleCoding::candidates(values, precision, is_valid);
        let mut words = vec![0; 5];
        let encoded = DoubleBlock::encode((values, valid), precision, &candidates, &mut words);
        let doubles = encoded.doubles;
        assert!(doubles.is_sound(values.len(), &words));
        let data = (encoded.integers, &words[encoded.data..]);
        let exceptions = doubles.exceptions(&words);
        let mut decoded = vec![7.0];
        doubles.decode(data, (precision, exceptions), (values.len(), None), &mut decoded);
        let rows: Vec<u32> = (0..values.len() as u32).rev().step_by(3).collect();
        let mut selected = Vec::new();
        doubles.decode(data, (precision, exceptions), (values.len(), Some(&rows)), &mut selected);
        for (row, value) in values.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
            assert_eq!(decoded[1 + row].to_bits(), value.to_bits(), "{value} in row {row}");
            let (least, greatest) = (double_of(encoded.least), double_of(encoded.greatest));
            assert!(least.total_cmp(value).is_le() && greatest.total_cmp(value).is_ge(), "{value}");
        }
        for (row, value) in rows.iter().zip(&selected).filter(|(row, _)| is_valid(**row as usize)) {
            assert_eq!(value.to_bits(), values[*row as usize].to_bits());
        }
        check_bounds(doubles.coding, precision, values);
        (doubles.coding, words.len() - 5, exceptions.map_or(0, |exceptions| exceptions.positions.len()))
    }

    /// Bounds of integers have exactly the values within bounds.
    fn check_bounds(coding: DoubleCoding, precision: Precision, values: &[f64]) {
        for pair in values.windows(2).step_by(values.len().div_ceil(13)).filter(|pair| !pair[0].is_nan()) {
            let (least, greatest) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            let (low, high) = coding.integer_bounds(precision, least, greatest);
            for value in values.iter().filter(|value| !value.is_nan()) {
                let Some(integer) = coding.integer_of(precision, *value) else { continue };
                let is_within = (least..=greatest).contains(value);
                assert_eq!((low..=high).contains(&integer), is_within, "{value} in {least} to {greatest}");
            }
        }
    }

    #[test]
    fn decimal_numbers_take_the_bits_of_their_digits() {
        let prices: Vec<f64> = (0..8192).map(|row| f64::from(row * 7919 % 10_000) / 100.0).collect();
        let (coding, words, exceptions) = check(&prices, &[], Precision::Double);
        assert_eq!((coding, exceptions), (DoubleCoding::Decimal { exponent: 2 }, 0));
        assert_eq!(words, 8192 * 14 / 32);
        let thousands: Vec<f64> = (0..8192).map(|row| f64::from(row * 7919 % 100) * 1e6).collect();
        let (coding, words, _) = check(&thousands, &[], Precision::Double);
        assert_eq!((coding, words), (DoubleCoding::Decimal { exponent: -6 }, 8192 * 7 / 32));
    }

    #[test]
    fn a_few_other_values_are_exceptions() {
        let mut prices: Vec<f64> = (0..8192).map(|row| f64::from(row * 7919 % 10_000) / 100.0).collect();
        for (row, value) in
            [f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0 / 3.0, 1e300, 5e-324, -f64::NAN]
                .into_iter()
                .enumerate()
        {
            prices[row * 1000 + 3] = value;
        }
        let (coding, words, exceptions) = check(&prices, &[], Precision::Double);
        assert_eq!((coding, exceptions), (DoubleCoding::Decimal { exponent: 2 }, 8));
        assert_eq!(words, 8192 * 14 / 32 + 1 + 8 * 3);
    }

    #[test]
    fn random_doubles_take_the_bits_of_most_of_them() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let values: Vec<f64> = (0..8192).map(|_| random()).collect();
        let (coding, words, _) = check(&values, &[], Precision::Double);
        assert_eq!(coding, DoubleCoding::Ordered);
        assert!(words < 8192 * 58 / 32, "{} bits a value", words as f64 * 32.0 / 8192.0);
    }

    #[test]
    fn singles_are_decimal_numbers_to_their_precision() {
        let readings: Vec<f64> = (0..8192).map(|row| f64::from((row * 31 % 900) as f32 / 10.0)).collect();
        let (coding, words, _) = check(&readings, &[], Precision::Single);
        assert_eq!((coding, words), (DoubleCoding::Decimal { exponent: 1 }, 8192 * 10 / 32));
        let random = (0..8192_u32).map(|row| f32::from_bits(row.wrapping_mul(2_654_435_769) >> 1));
        let random: Vec<f64> = random.map(|value| if value.is_nan() { 0.5 } else { value.into() }).collect();
        let (_, words, _) = check(&random, &[], Precision::Single);
        assert!(words <= 8192, "{words} words");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_doubles_are_decoded_as_they_were_encoded(
            seed in prop::collection::vec((any::<u64>(), 0_u32..8), 1..400),
            digits in 0_i32..20,
            rows in 1_usize..3000,
            nulls in 0_usize..4,
            is_single in any::<bool>(),
        ) {
            let special = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN, f64::MIN_POSITIVE];
            let values: Vec<f64> = (0..rows).map(|row| {
                let (random, kind) = seed[row % seed.len()];
                let random = random.wrapping_mul(1 + row as u64 / seed.len() as u64);
                let value = match kind {
                    0 => special[(random % 8) as usize],
                    1 => f64::from_bits(random),
                    2 => (random >> 11) as f64 / (1_u64 << 53) as f64,
                    _ => (random % 100_000) as f64 / 10_f64.powi(digits),
                };
                if is_single { f64::from(value as f32) } else { value }
            }).collect();
            let valid: Vec<bool> = if nulls == 0 { Vec::new() } else { (0..rows).map(|row| row % 5 >= nulls).collect() };
            check(&values, &valid, if is_single { Precision::Single } else { Precision::Double });
        }
    }

    #[test]
    fn damaged_exceptions_are_seen() {
        let block = |exceptions| DoubleBlock { coding: DoubleCoding::Ordered, exceptions };
        let words = [9, 2, 3, 7, 1, 0, 1, 0];
        assert!(block(1).is_sound(8, &words) && block(0).is_sound(8, &words));
        assert!(!block(1).is_sound(7, &words), "a position behind the block");
        assert!(!block(1).is_sound(8, &words[..7]), "a value behind the page");
        assert!(!block(9).is_sound(8, &words), "a place behind the page");
        assert!(!block(1).is_sound(8, &[9, 2, 3, 3, 1, 0, 1, 0]), "a position twice");
        assert_eq!(DoubleCoding::of_word(1 | 23 << 8), None);
        assert_eq!(DoubleCoding::of_word(2), None);
        for coding in [DoubleCoding::Ordered, DoubleCoding::Decimal { exponent: -3 }] {
            assert_eq!(DoubleCoding::of_word(coding.word()), Some(coding));
        }
    }
}
