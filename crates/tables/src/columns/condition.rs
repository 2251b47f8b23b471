//! Conditions on values of one column, which a scan checks on stored values.

use crate::value::Value;
use entresol_structures::BitSet;
use std::fmt;
use std::sync::Arc;

/// Set of integers: a bit for each from the least to the greatest, and zeros behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegerSet {
    least: i64,
    words: Vec<u64>,
    bits: u64,
    /// Number of its integers.
    len: u64,
}

impl IntegerSet {
    /// Set of these integers; none if they span more than `bits_max`.
    pub fn new(values: &[i64], bits_max: u64) -> Option<IntegerSet> {
        let (Some(least), Some(greatest)) = (values.iter().min(), values.iter().max()) else {
            return Some(IntegerSet { least: 0, words: vec![0], bits: 0, len: 0 });
        };
        let bits = greatest.checked_sub(*least)?.checked_add(1)? as u64;
        if bits > bits_max {
            return None;
        }
        Some(IntegerSet::of_values(*least, bits, values))
    }

    /// Set of codes, which ascend and are not negative.
    pub(crate) fn of_codes(codes: &[i64]) -> IntegerSet {
        let least = codes.first().copied().unwrap_or(0);
        let bits = codes.last().map_or(0, |last| (last - least + 1) as u64);
        IntegerSet::of_values(least, bits, codes)
    }

    fn of_values(least: i64, bits: u64, values: &[i64]) -> IntegerSet {
        let mut words = vec![0; (bits / 64) as usize + 1];
        for value in values {
            let bit = value.wrapping_sub(least) as u64;
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        IntegerSet::of_words(least, words, bits)
    }

    /// Set of the integers from the least to the greatest whose bits are set, counted from the least; none if
    /// there are not enough bits.
    pub fn of_bits(least: i64, greatest: i64, bits: &[u64]) -> Option<IntegerSet> {
        let span = greatest.checked_sub(least)?.checked_add(1)? as u64;
        let mut words = bits.get(..span.div_ceil(64) as usize)?.to_vec();
        words.resize((span / 64) as usize + 1, 0);
        if let Some(last) = words.last_mut() {
            *last &= (1 << (span % 64)) - 1;
        }
        Some(IntegerSet::of_words(least, words, span))
    }

    fn of_words(least: i64, words: Vec<u64>, bits: u64) -> IntegerSet {
        let len = words.iter().map(|word| u64::from(word.count_ones())).sum();
        IntegerSet { least, words, bits, len }
    }

    /// Set as differences to a base.
    pub(crate) fn relative_to(&self, base: i64) -> BitSet<'_> {
        BitSet::new(&self.words, self.bits, base.wrapping_sub(self.least) as u64)
    }

    /// Returns true if it has all integers from its least to its greatest one.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.len == self.bits
    }

    /// Tells whether a value is in the set.
    #[inline]
    pub fn contains(&self, value: i64) -> bool {
        let bit = value.wrapping_sub(self.least) as u64;
        bit < self.bits && self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Returns true if it has no integers.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of its integers.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Its integers, ascending.
    pub(crate) fn values(&self) -> impl Iterator<Item = i64> + '_ {
        let bits = (0..self.bits).filter(|bit| self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1);
        bits.map(|bit| self.least.wrapping_add(bit as i64))
    }

    /// Least and greatest value.
    pub(crate) fn bounds(&self) -> (i64, i64) {
        (self.least, self.least.wrapping_add(self.bits as i64).wrapping_sub(1))
    }
}

/// Condition on the values of a column; NULL meets none but [`ColumnCondition::Null`].
#[derive(Clone)]
pub enum ColumnCondition {
    /// Integers, dates, timestamps, BOOLEAN (0 or 1), unscaled decimals of at most 64 bits within bounds,
    /// included.
    Between {
        /// Least value.
        least: i64,
        /// Greatest value.
        greatest: i64,
    },
    /// Such values in a set.
    Among(Arc<IntegerSet>),
    /// Strings for which a function returns true.
    Texts(Arc<dyn Fn(&str) -> bool + Send + Sync>),
    /// Strings for which a function returns true, which lie within bounds, included.
    TextsWithin {
        /// Least string.
        least: Option<Box<str>>,
        /// Greatest string.
        greatest: Option<Box<str>>,
        /// The function.
        is_met: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    },
    /// Doubles within bounds, included, -0.0 as 0.0; and all NaN, which are for the caller to check.
    Doubles {
        /// Least value, which is not NaN.
        least: f64,
        /// Greatest value, which is not NaN.
        greatest: f64,
    },
    /// NULL.
    Null,
    /// All values but NULL.
    NotNull,
}

impl fmt::Debug for ColumnCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnCondition::Between { least, greatest } => write!(f, "between {least} and {greatest}"),
            ColumnCondition::Among(set) => write!(f, "among a set of {} bits", set.bits),
            ColumnCondition::Texts(_) | ColumnCondition::TextsWithin { .. } => f.write_str("strings"),
            ColumnCondition::Doubles { least, greatest } => {
                write!(f, "doubles between {least} and {greatest}")
            }
            ColumnCondition::Null => f.write_str("null"),
            ColumnCondition::NotNull => f.write_str("not null"),
        }
    }
}

impl ColumnCondition {
    /// Bytes of its set or of its bounds, beside those of the condition itself and of a function on strings.
    pub(crate) fn bytes_of_values(&self) -> usize {
        let text = |bound: &Option<Box<str>>| bound.as_ref().map_or(0, |text| text.len());
        match self {
            ColumnCondition::Among(set) => set.words.len() * 8,
            ColumnCondition::TextsWithin { least, greatest, .. } => text(least) + text(greatest),
            _ => 0,
        }
    }

    /// Condition of a few bytes that all values which meet this one meet: the bounds of a set.
    pub(crate) fn without_values(&self) -> ColumnCondition {
        match self {
            ColumnCondition::Among(set) => {
                let (least, greatest) = set.bounds();
                ColumnCondition::Between { least, greatest }
            }
            ColumnCondition::TextsWithin { .. } => ColumnCondition::NotNull,
            condition => condition.clone(),
        }
    }

    /// Cost of checking it for a row, beside that of comparing an integer.
    pub(crate) fn cost(&self) -> f64 {
        match self {
            ColumnCondition::Texts(_) | ColumnCondition::TextsWithin { .. } => 4.0,
            ColumnCondition::Doubles { .. } => 2.0,
            _ => 1.0,
        }
    }

    /// Bounds of the integers that meet it.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        match self {
            ColumnCondition::Between { least, greatest } => Some((*least, *greatest)),
            ColumnCondition::Among(set) => Some(set.bounds()),
            _ => None,
        }
    }

    pub(crate) fn is_met_by_integer(&self, value: i64) -> bool {
        match self {
            ColumnCondition::Between { least, greatest } => (*least..=*greatest).contains(&value),
            ColumnCondition::Among(set) => set.contains(value),
            _ => false,
        }
    }

    pub(crate) fn is_met_by_double(&self, value: f64) -> bool {
        match self {
            ColumnCondition::Doubles { least, greatest } => {
                value.is_nan() || (*least..=*greatest).contains(&value)
            }
            _ => false,
        }
    }

    /// Tells whether a value meets it.
    pub(crate) fn is_met_by(&self, value: &Value) -> bool {
        if let ColumnCondition::Null | ColumnCondition::NotNull = self {
            return value.is_null() == matches!(self, ColumnCondition::Null);
        }
        match value {
            Value::Null | Value::Interval(_) => false,
            Value::Double(value) => self.is_met_by_double(*value),
            Value::Boolean(value) => self.is_met_by_integer((*value).into()),
            Value::Int(value) | Value::Date(value) => self.is_met_by_integer((*value).into()),
            Value::BigInt(value) | Value::Timestamp(value) => self.is_met_by_integer(*value),
            Value::Decimal(value) => i64::try_from(*value).is_ok_and(|value| self.is_met_by_integer(value)),
            Value::Varchar(text) => match self {
                ColumnCondition::Texts(is_met) | ColumnCondition::TextsWithin { is_met, .. } => is_met(text),
                _ => false,
            },
        }
    }
}

/// Condition on a column of a table.
#[derive(Debug, Clone)]
pub struct ColumnFilter {
    /// Position of the column.
    pub column: usize,
    /// Its condition.
    pub condition: ColumnCondition,
}
