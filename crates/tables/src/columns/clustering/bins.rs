//! Bins of a dimension: an order-preserving histogram that maps values to codes of a few bits.
//!
//! - A value is in the last bin whose lower bound is not above it; the first bin has no lower bound and the last no
//!   upper one, so values outside of those that the histogram was made from have codes too: those at the ends.
//! - Bins have about the same number of rows of the sample, and a value that is frequent has one for itself; so bins
//!   are narrow where values are dense. Codes that are left over divide a bin of numbers evenly by its width.
//! - NULL has the code 0, alone if the sample had a NULL and there are two codes at least.
//! - Codes never order against values: `a <= b` implies `code(a) <= code(b)`. NaN is the greatest double, and -0.0 is
//!   0.0.

use crate::batch::ColumnArray;
use crate::columns::doubles::ordered_bits;
use crate::schema::parts::Reader;
use crate::value::normalize_double;
use arrow_array::Array;

/// Maximum number of bins of a dimension.
const BINS_MAX: usize = 1024;
/// Maximum bytes of a bound that is a string: a longer one is truncated, which is a bound still.
const BOUND_BYTES_MAX: usize = 64;
/// Rounds in which the greatest weight of a value is found.
const WEIGHT_ROUNDS: usize = 4;
/// Maximum number of bits of a dimension.
pub(crate) const DIMENSION_BITS_MAX: u8 = 32;

const KIND_NUMBERS: u8 = 0;
const KIND_TEXTS: u8 = 1;

/// Lower bounds of bins, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bounds {
    /// Of all bins, and the greatest value of the sample.
    Numbers(Vec<i128>, i128),
    /// Of all bins but the first.
    Texts(Vec<Box<str>>),
}

/// Histogram of a dimension; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DimensionBins {
    bits: u8,
    /// True if no value but NULL has the code 0.
    is_null_alone: bool,
    bounds: Bounds,
}

/// Order-preserving number of an integer, a decimal, a date, a timestamp or a BOOLEAN is itself; this is that of a
/// double.
pub(crate) fn number_of_double(value: f64) -> i128 {
    ordered_bits(normalize_double(value)).into()
}

/// Calls `f` with the number of each row of an array that has no strings, and none for NULL.
fn for_each_number(array: &ColumnArray<'_>, mut f: impl FnMut(Option<i128>)) {
    macro_rules! each {
        ($array:expr, $number:expr) => {
            for row in 0..$array.len() {
                f((!$array.is_null(row)).then(|| $number($array.value(row))));
            }
        };
    }
    match array {
        ColumnArray::Boolean(array) => each!(array, i128::from),
        ColumnArray::SmallInt(array) => each!(array, i128::from),
        ColumnArray::Int(array) => each!(array, i128::from),
        ColumnArray::BigInt(array) => each!(array, i128::from),
        ColumnArray::Date(array) => each!(array, i128::from),
        ColumnArray::Timestamp(array) => each!(array, i128::from),
        ColumnArray::Decimal(array) => each!(array, i128::from),
        ColumnArray::Real(array) => each!(array, |value| number_of_double(f64::from(value))),
        ColumnArray::Double(array) => each!(array, number_of_double),
        // No dimension has it.
        ColumnArray::Interval(_) | ColumnArray::Varchar(_) => {}
    }
}

/// Beginning of a string, at most as long as a bound.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(BOUND_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// First values of at most `bins` bins with about the same number of sorted values each; a frequent value has one for
/// itself, which does not count among those of the others.
fn firsts<T: Clone + PartialEq>(sorted: &[T], bins: usize) -> Vec<T> {
    let different: Vec<&[T]> = sorted.chunk_by(PartialEq::eq).collect();
    if different.len() <= bins {
        return different.iter().map(|run| run[0].clone()).collect();
    }
    // A value weighs at most as much as a bin, so that the others have the bins that it does not need.
    let mut most = sorted.len();
    let mut total = sorted.len();
    for _ in 0..WEIGHT_ROUNDS {
        most = total.div_ceil(bins).max(1).min(most);
        total = different.iter().map(|run| run.len().min(most)).sum();
    }
    let (mut bounds, mut within, mut left, mut share) = (Vec::new(), 0, total, 0);
    let mut was_frequent = true;
    for run in different {
        let weight = run.len().min(most);
        let is_frequent = weight == most && most > 1;
        if bounds.len() < bins && (was_frequent || is_frequent || within + weight > share) {
            left -= within;
            share = left.div_ceil(bins - bounds.len());
            bounds.push(run[0].clone());
            within = 0;
        }
        within += weight;
        was_frequent = is_frequent;
    }
    bounds
}

impl DimensionBins {
    /// Bins of so many bits for a column of which these arrays are a sample.
    pub(crate) fn of(arrays: &[ColumnArray<'_>], bits: u8) -> DimensionBins {
        assert!(bits <= DIMENSION_BITS_MAX, "a code has at most {DIMENSION_BITS_MAX} bits, not {bits}");
        let has_nulls = arrays.iter().any(|array| array.array().null_count() > 0);
        let is_null_alone = has_nulls && bits > 0;
        let codes = (1_u64 << bits) - u64::from(is_null_alone);
        let bins = codes.min(BINS_MAX as u64) as usize;
        let is_text = arrays.iter().any(|array| matches!(array, ColumnArray::Varchar(_)));
        let bounds = if is_text {
            let mut texts: Vec<&str> = Vec::new();
            for array in arrays {
                if let ColumnArray::Varchar(array) = array {
                    texts.extend(array.iter().flatten().map(shortened));
                }
            }
            texts.sort_unstable();
            Bounds::Texts(firsts(&texts, bins).into_iter().skip(1).map(Box::from).collect())
        } else {
            let mut numbers = Vec::new();
            arrays.iter().for_each(|array| for_each_number(array, |number| numbers.extend(number)));
            numbers.sort_unstable();
            let greatest = numbers.last().copied().unwrap_or(0);
            Bounds::Numbers(firsts(&numbers, bins), greatest)
        };
        DimensionBins { bits, is_null_alone, bounds }
    }

    /// Number of bits of a code.
    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    /// Number of bins.
    pub(crate) fn bins(&self) -> usize {
        match &self.bounds {
            Bounds::Numbers(bounds, _) => bounds.len().max(1),
            Bounds::Texts(bounds) => bounds.len() + 1,
        }
    }

    /// Greatest code.
    pub(crate) fn greatest_code(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Code of NULL, which other values may have too.
    pub(crate) fn null_code(&self) -> u64 {
        0
    }

    /// Least code of a value that is not NULL.
    pub(crate) fn least_code(&self) -> u64 {
        u64::from(self.is_null_alone)
    }

    /// First code of a bin; of the one behind the last bin, the number of codes.
    fn first_code(&self, bin: usize) -> u64 {
        let codes = u128::from(self.greatest_code() + 1 - self.least_code());
        self.least_code() + (codes * bin as u128 / self.bins() as u128) as u64
    }

    /// Code of a number, as [`number_of_double`] has it for doubles; 0 in a dimension of strings.
    pub(crate) fn code_of_number(&self, number: i128) -> u64 {
        let Bounds::Numbers(bounds, greatest) = &self.bounds else { return 0 };
        let bin = bounds.partition_point(|bound| *bound <= number).saturating_sub(1);
        let (first, end) = (self.first_code(bin), self.first_code(bin + 1));
        let Some(&lower) = bounds.get(bin) else { return first };
        if end - first <= 1 || number <= lower {
            return first;
        }
        // Numbers are at most 2^127 apart, and doubles do not order against them.
        let upper = bounds.get(bin + 1).copied().unwrap_or_else(|| greatest.saturating_add(1));
        let width = (upper as f64 - lower as f64).max(1.0);
        let share = ((number as f64 - lower as f64) / width).clamp(0.0, 1.0);
        (first + (share * (end - first) as f64) as u64).min(end - 1)
    }

    /// Code of a string; 0 in a dimension of numbers.
    pub(crate) fn code_of_text(&self, text: &str) -> u64 {
        let Bounds::Texts(bounds) = &self.bounds else { return 0 };
        self.first_code(bounds.partition_point(|bound| **bound <= *text))
    }

    /// Calls `f` with the code of each row of an array.
    pub(crate) fn for_each_code(&self, array: &ColumnArray<'_>, mut f: impl FnMut(u64)) {
        match array {
            ColumnArray::Varchar(array) => {
                array.iter().for_each(|text| f(text.map_or(0, |text| self.code_of_text(text))));
            }
            _ => for_each_number(array, |number| f(number.map_or(0, |number| self.code_of_number(number)))),
        }
    }

    /// Appends the bytes: bits, whether NULL is alone, kind (1 each), number of bounds (4), the bounds.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let (kind, count) = match &self.bounds {
            Bounds::Numbers(bounds, _) => (KIND_NUMBERS, bounds.len()),
            Bounds::Texts(bounds) => (KIND_TEXTS, bounds.len()),
        };
        bytes.extend_from_slice(&[self.bits, u8::from(self.is_null_alone), kind]);
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        match &self.bounds {
            Bounds::Numbers(bounds, greatest) => {
                bounds.iter().chain([greatest]).for_each(|bound| bytes.extend(bound.to_le_bytes()));
            }
            Bounds::Texts(bounds) => {
                bounds.iter().for_each(|bound| crate::schema::parts::put_text(bytes, bound))
            }
        }
    }

    /// Reads the bytes of [`DimensionBins::put`]; none if they are damaged.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<DimensionBins> {
        let (bits, alone, kind) = (reader.byte()?, reader.byte()?, reader.byte()?);
        let count = reader.number()? as usize;
        let is_sound =
            bits <= DIMENSION_BITS_MAX && alone <= 1 && count <= BINS_MAX && (alone == 0 || bits > 0);
        is_sound.then_some(())?;
        let bounds = match kind {
            KIND_NUMBERS => {
                let mut number = || Some(i128::from_le_bytes(reader.take(16)?.try_into().ok()?));
                let bounds: Vec<i128> = (0..count).map(|_| number()).collect::<Option<_>>()?;
                Bounds::Numbers(bounds, number()?)
            }
            KIND_TEXTS => {
                let texts = (0..count).map(|_| reader.text().map(String::into_boxed_str));
                Bounds::Texts(texts.collect::<Option<_>>()?)
            }
            _ => return None,
        };
        let is_sorted = match &bounds {
            Bounds::Numbers(bounds, _) => bounds.is_sorted(),
            Bounds::Texts(bounds) => bounds.is_sorted(),
        };
        let bins = DimensionBins { bits, is_null_alone: alone == 1, bounds };
        let fits = bins.bins() as u64 <= bins.greatest_code() + 1 - bins.least_code();
        (is_sorted && fits).then_some(bins)
    }
}
