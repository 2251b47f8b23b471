//! Codes of the values of a column in a row group: numbers that order as the values do.
//!
//! | codes | of |
//! | --- | --- |
//! | 0 | NULL |
//! | value - least + 1 | integers, dates, timestamps and such that span less than 2^31 |
//! | position + 1 among the sorted different values | all others |
//!
//! Doubles are compared as in keys: -0.0 is 0.0, and all NaN are one value, above the others. An Elf that holds rows
//! has each of them as it is; conditions meet both zeros, and are not answered from codes of NaN.

use crate::columns::condition::ColumnCondition;
use crate::columns::doubles::{Precision, double_of, ordered_bits};
use crate::columns::page::{ColumnPage, PageKind, PageValues};
use crate::columns::texts::Dictionary;
use crate::value::normalize_double;
use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use entresol_structures::elf::{CodeCondition, CodeSet, ELF_CODE_MAX};
use std::ops::RangeInclusive;

/// Code of NULL.
pub(crate) const NULL_CODE: u32 = 0;
/// Greatest number of integers among which those of a set are looked for one by one.
const SET_SPAN_MAX: u64 = 1 << 20;

const KIND_OFFSET: u32 = 0;
const KIND_INTEGERS: u32 = 1;
const KIND_DOUBLES: u32 = 2;
const KIND_WIDE: u32 = 3;
const KIND_TEXTS: u32 = 4;

/// Codes of a column in a row group; see the [module](self).
#[derive(Debug, PartialEq)]
pub(crate) enum DimensionCodes {
    /// Integers from the least to the greatest.
    Offset { least: i64, greatest: i64 },
    /// Different integers, sorted.
    Integers(Vec<i64>),
    /// Different doubles, as integers in their order ([`ordered_bits`]).
    Doubles(Vec<i64>),
    /// Different decimals of more than 64 bits, sorted.
    Wide(Vec<i128>),
    /// Different strings, sorted.
    Texts(Dictionary),
}

/// Condition on codes, and the share of the codes that meets it.
#[derive(Debug)]
pub(crate) struct CodedCondition {
    pub(crate) condition: CodeCondition,
    pub(crate) share: f64,
}

/// Integers of all rows of a page.
fn integers_of(page: &ColumnPage) -> Vec<i64> {
    (0..page.blocks().len()).flat_map(|block| page.decoded(block)).collect()
}

/// Tells of each row of a page whether it is not NULL; none if all are.
fn validity_of(page: &ColumnPage) -> Option<Vec<bool>> {
    page.blocks().iter().any(|block| block.nulls > 0).then(|| {
        let bits = |block: usize| {
            let rows = page.blocks()[block].rows;
            page.validity(block).unwrap_or_else(|| BooleanBuffer::new_set(rows))
        };
        (0..page.blocks().len()).flat_map(|block| bits(block).iter().collect::<Vec<_>>()).collect()
    })
}

/// Different values, sorted, and the code of each row.
fn dictionary<T: Ord + Copy>(values: &[T], is_valid: impl Fn(usize) -> bool) -> (Vec<T>, Vec<u32>) {
    let valid = (0..values.len()).filter(|row| is_valid(*row));
    let mut sorted: Vec<T> = valid.map(|row| values[row]).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let code = |row: usize| if is_valid(row) { position(&sorted, &values[row]) + 1 } else { NULL_CODE };
    let codes = (0..values.len()).map(code).collect();
    (sorted, codes)
}

/// Number of values below another one.
fn position<T: Ord>(sorted: &[T], value: &T) -> u32 {
    sorted.partition_point(|known| known < value) as u32
}

impl DimensionCodes {
    /// Codes of the values of a page, and those of its rows; where `is_exact`, -0.0 and each NaN have codes of their
    /// own.
    pub(crate) fn of_page(page: &ColumnPage, is_exact: bool) -> (DimensionCodes, Vec<u32>) {
        let validity = validity_of(page);
        let is_valid = |row: usize| validity.as_ref().is_none_or(|valid| valid[row]);
        match page.kind() {
            PageKind::Integers => DimensionCodes::of_integers(&integers_of(page), is_valid),
            PageKind::Doubles(_) => {
                let doubles = (0..page.blocks().len()).flat_map(|block| page.block_doubles(block));
                let kept = |value: f64| if is_exact { value } else { normalize_double(value) };
                let ordered: Vec<i64> = doubles.map(|value| ordered_bits(kept(value))).collect();
                let (sorted, codes) = dictionary(&ordered, is_valid);
                (DimensionCodes::Doubles(sorted), codes)
            }
            PageKind::Wide => {
                let values: Vec<i128> =
                    (0..page.blocks().len()).flat_map(|block| page.block_wide(block)).collect();
                let (sorted, codes) = dictionary(&values, is_valid);
                (DimensionCodes::Wide(sorted), codes)
            }
            PageKind::Dictionary | PageKind::Texts => DimensionCodes::of_texts(page, is_valid),
        }
    }

    fn of_integers(values: &[i64], is_valid: impl Fn(usize) -> bool) -> (DimensionCodes, Vec<u32>) {
        let valid = || (0..values.len()).filter(|row| is_valid(*row)).map(|row| values[row]);
        let (least, greatest) = (valid().min().unwrap_or(0), valid().max().unwrap_or(0));
        if greatest.wrapping_sub(least) as u64 >= u64::from(ELF_CODE_MAX) {
            let (sorted, codes) = dictionary(values, is_valid);
            return (DimensionCodes::Integers(sorted), codes);
        }
        let code = |row: usize| if is_valid(row) { (values[row] - least) as u32 + 1 } else { NULL_CODE };
        let codes = (0..values.len()).map(code).collect();
        (DimensionCodes::Offset { least, greatest }, codes)
    }

    fn of_texts(page: &ColumnPage, is_valid: impl Fn(usize) -> bool) -> (DimensionCodes, Vec<u32>) {
        if let Some(known) = page.dictionary() {
            let code = |(row, code): (usize, i64)| if is_valid(row) { code as u32 + 1 } else { NULL_CODE };
            let codes = integers_of(page).into_iter().enumerate().map(code).collect();
            return (DimensionCodes::Texts(known.clone()), codes);
        }
        let arrays: Vec<_> = (0..page.blocks().len()).map(|block| page.block_texts(block)).collect();
        let texts: Vec<&str> =
            arrays.iter().flat_map(|texts| (0..texts.len()).map(|row| texts.value(row))).collect();
        let (sorted, codes) = dictionary(&texts, is_valid);
        (DimensionCodes::Texts(Dictionary::of_sorted(&sorted)), codes)
    }

    /// Greatest code.
    pub(crate) fn last(&self) -> u64 {
        self.len() - 1
    }

    /// Number of codes, that of NULL included.
    fn len(&self) -> u64 {
        1 + match self {
            DimensionCodes::Offset { least, greatest } => greatest.wrapping_sub(*least) as u64 + 1,
            DimensionCodes::Integers(sorted) | DimensionCodes::Doubles(sorted) => sorted.len() as u64,
            DimensionCodes::Wide(sorted) => sorted.len() as u64,
            DimensionCodes::Texts(dictionary) => dictionary.len() as u64,
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            DimensionCodes::Offset { .. } => 0,
            DimensionCodes::Integers(sorted) | DimensionCodes::Doubles(sorted) => size_of_val(&sorted[..]),
            DimensionCodes::Wide(sorted) => size_of_val(&sorted[..]),
            DimensionCodes::Texts(dictionary) => dictionary.memory_bytes(),
        }
    }

    /// Condition on codes that exactly the values meet which meet a condition; none if there is no such one.
    pub(crate) fn coded(&self, condition: &ColumnCondition) -> Option<CodedCondition> {
        let last = u32::try_from(self.last()).ok()?;
        match condition {
            ColumnCondition::Null => Some(self.of_range(NULL_CODE..=NULL_CODE)),
            ColumnCondition::NotNull => Some(self.of_range(1..=last)),
            ColumnCondition::Between { least, greatest } => {
                Some(self.of_range(self.integer_range(*least, *greatest)?))
            }
            ColumnCondition::Among(set) => {
                let (least, greatest) = set.bounds();
                let range = self.integer_range(least, greatest)?;
                let span = u64::from(range.end().saturating_sub(*range.start()));
                let is_met = |code: &u32| self.integer(*code).is_some_and(|value| set.contains(value));
                (span <= SET_SPAN_MAX).then(|| self.of_set(range.filter(is_met).collect()))
            }
            ColumnCondition::Texts(is_met) | ColumnCondition::TextsWithin { is_met, .. } => {
                let DimensionCodes::Texts(dictionary) = self else { return None };
                let codes = (0..dictionary.len()).filter(|code| is_met(dictionary.entry(*code)));
                Some(self.of_set(codes.map(|code| code as u32 + 1).collect()))
            }
            ColumnCondition::Doubles { least, greatest } => {
                let DimensionCodes::Doubles(sorted) = self else { return None };
                // Arrow orders NaN by their signs.
                let mut ends = [sorted.first(), sorted.last()].into_iter().flatten();
                let has_nan = ends.any(|end| double_of(*end).is_nan());
                let lowest = |of: f64| if of == 0.0 { -0.0 } else { of };
                let least = ordered_bits(lowest(normalize_double(*least)));
                let greatest = ordered_bits(normalize_double(*greatest));
                (!has_nan).then(|| self.of_range(range_of(sorted, &least, &greatest)))
            }
        }
    }

    /// Codes of the integers between two; none if these are not integers.
    fn integer_range(&self, least: i64, greatest: i64) -> Option<RangeInclusive<u32>> {
        Some(match self {
            DimensionCodes::Offset { least: first, greatest: last } => {
                let (least, greatest) = (least.max(*first), greatest.min(*last));
                if least > greatest {
                    return Some(RangeInclusive::new(1, 0));
                }
                let code = |value: i64| (value - first) as u32 + 1;
                code(least)..=code(greatest)
            }
            DimensionCodes::Integers(sorted) => range_of(sorted, &least, &greatest),
            DimensionCodes::Wide(sorted) => range_of(sorted, &least.into(), &greatest.into()),
            DimensionCodes::Doubles(_) | DimensionCodes::Texts(_) => return None,
        })
    }

    /// Integer of a code.
    fn integer(&self, code: u32) -> Option<i64> {
        let at = (code as usize).checked_sub(1)?;
        match self {
            DimensionCodes::Offset { least, .. } => Some(least + at as i64),
            DimensionCodes::Integers(sorted) => sorted.get(at).copied(),
            DimensionCodes::Wide(sorted) => i64::try_from(*sorted.get(at)?).ok(),
            DimensionCodes::Doubles(_) | DimensionCodes::Texts(_) => None,
        }
    }

    fn of_range(&self, range: RangeInclusive<u32>) -> CodedCondition {
        let (least, greatest) = range.into_inner();
        let condition = CodeCondition::Between { least, greatest };
        CodedCondition { share: self.share(&condition), condition }
    }

    fn of_set(&self, codes: Vec<u32>) -> CodedCondition {
        let condition = CodeCondition::Among(CodeSet::new(codes));
        CodedCondition { share: self.share(&condition), condition }
    }

    /// Share of the codes that satisfies a condition.
    pub(crate) fn share(&self, condition: &CodeCondition) -> f64 {
        let codes = match condition {
            CodeCondition::Any => return 1.0,
            CodeCondition::Between { least, greatest } => {
                (u64::from(*greatest) + 1).saturating_sub((*least).into())
            }
            CodeCondition::Among(set) => set.codes().len() as u64,
        };
        (codes as f64 / self.len() as f64).min(1.0)
    }

    /// Values of rows with these codes, as a page has them, and of each whether it is not NULL; none of those if all
    /// are.
    pub(crate) fn values(&self, codes: &[u32]) -> (PageValues<'_>, Vec<bool>) {
        let has_nulls = codes.contains(&NULL_CODE);
        let valid =
            if has_nulls { codes.iter().map(|code| *code != NULL_CODE).collect() } else { Vec::new() };
        let at = |code: &u32| (*code as usize).saturating_sub(1);
        let longs = |sorted: &[i64]| -> Vec<i64> {
            codes.iter().map(|code| sorted.get(at(code)).copied().unwrap_or_default()).collect()
        };
        let values = match self {
            DimensionCodes::Offset { least, .. } => {
                PageValues::Integers(codes.iter().map(|code| least.wrapping_add(at(code) as i64)).collect())
            }
            DimensionCodes::Integers(sorted) => PageValues::Integers(longs(sorted)),
            DimensionCodes::Doubles(sorted) => {
                let is_single = |bits: &i64| {
                    let double = double_of(*bits);
                    f64::from(double as f32).to_bits() == double.to_bits()
                };
                let is_single = sorted.iter().all(is_single);
                let precision = if is_single { Precision::Single } else { Precision::Double };
                PageValues::Doubles(precision, longs(sorted).into_iter().map(double_of).collect())
            }
            DimensionCodes::Wide(sorted) => PageValues::Wide(
                codes.iter().map(|code| sorted.get(at(code)).copied().unwrap_or_default()).collect(),
            ),
            DimensionCodes::Texts(dictionary) => {
                PageValues::Coded(dictionary, codes.iter().map(|code| at(code) as i64).collect())
            }
        };
        (values, valid)
    }

    /// Encodes the codes: kind, number of values (1 word each), the values.
    pub(crate) fn encode(&self, words: &mut Vec<u32>) {
        let longs = |kind: u32, values: &[i64], words: &mut Vec<u32>| {
            words.extend([kind, values.len() as u32]);
            words.extend(values.iter().flat_map(|value| [*value as u32, (value >> 32) as u32]));
        };
        match self {
            DimensionCodes::Offset { least, greatest } => longs(KIND_OFFSET, &[*least, *greatest], words),
            DimensionCodes::Integers(sorted) => longs(KIND_INTEGERS, sorted, words),
            DimensionCodes::Doubles(sorted) => longs(KIND_DOUBLES, sorted, words),
            DimensionCodes::Wide(sorted) => {
                words.extend([KIND_WIDE, sorted.len() as u32]);
                let parts = |value: &i128| [0, 32, 64, 96].map(|bit| (value >> bit) as u32);
                words.extend(sorted.iter().flat_map(parts));
            }
            DimensionCodes::Texts(dictionary) => {
                words.push(KIND_TEXTS);
                dictionary.encode(words);
            }
        }
    }

    /// Decodes the codes that some words begin with, and gives the other words; none if they are damaged.
    pub(crate) fn decode(words: &[u32]) -> Option<(DimensionCodes, &[u32])> {
        let (&kind, words) = words.split_first()?;
        if kind == KIND_TEXTS {
            let (dictionary, rest) = Dictionary::decode_first(words)?;
            return Some((DimensionCodes::Texts(dictionary), rest));
        }
        let (&count, words) = words.split_first()?;
        let words_each = if kind == KIND_WIDE { 4 } else { 2 };
        let (values, rest) = words.split_at_checked(words_each * count as usize)?;
        let longs = || {
            let values = values.as_chunks::<2>().0.iter();
            values.map(|[low, high]| (u64::from(*high) << 32 | u64::from(*low)) as i64).collect::<Vec<i64>>()
        };
        let codes = match kind {
            KIND_OFFSET => {
                let [least, greatest] = longs().try_into().ok()?;
                let span = greatest.checked_sub(least)?;
                (0..i64::from(ELF_CODE_MAX)).contains(&span).then_some(())?;
                DimensionCodes::Offset { least, greatest }
            }
            KIND_INTEGERS => DimensionCodes::Integers(longs()),
            KIND_DOUBLES => DimensionCodes::Doubles(longs()),
            KIND_WIDE => {
                let value = |of: &[u32; 4]| {
                    of.iter().rev().fold(0_u128, |value, word| value << 32 | u128::from(*word)) as i128
                };
                DimensionCodes::Wide(values.as_chunks::<4>().0.iter().map(value).collect())
            }
            _ => return None,
        };
        Some((codes, rest))
    }
}

/// Codes of the values between two, included.
fn range_of<T: Ord>(sorted: &[T], least: &T, greatest: &T) -> RangeInclusive<u32> {
    let end = sorted.partition_point(|known| known <= greatest) as u32;
    position(sorted, least) + 1..=end
}
