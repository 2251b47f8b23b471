//! Ranges of rows by leading key columns.

use crate::encoding::key;
use crate::error::Result;
use crate::schema::Schema;
use crate::table::Table;
use crate::value::Value;
use entresol_structures::KeyBytes;
use entresol_transactions::KeyRange;
use std::ops::Bound;

/// Range of rows, given by values of the first key columns (any number of them).
///
/// A bound with fewer columns than the key applies to all keys that begin with it: `Included` includes them
/// all, `Excluded` excludes them all.
#[derive(Debug, Clone)]
pub struct ScanRange {
    lower: Bound<Vec<Value>>,
    upper: Bound<Vec<Value>>,
}

impl ScanRange {
    /// Range of all rows.
    pub fn full() -> ScanRange {
        ScanRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Range of the row with this key.
    pub fn point(key: &[Value]) -> ScanRange {
        ScanRange::prefix(key)
    }

    /// Range of the rows whose first key columns have these values.
    pub fn prefix(values: &[Value]) -> ScanRange {
        ScanRange { lower: Bound::Included(values.to_vec()), upper: Bound::Included(values.to_vec()) }
    }

    /// Range of the rows between two bounds.
    pub fn between(lower: Bound<&[Value]>, upper: Bound<&[Value]>) -> ScanRange {
        ScanRange { lower: lower.map(<[Value]>::to_vec), upper: upper.map(<[Value]>::to_vec) }
    }

    /// Range in bytes, always lower-inclusive and upper-exclusive; `None` if it is empty.
    pub(crate) fn encode(&self, table: &str, schema: &Schema) -> Result<Option<KeyRange>> {
        let encode = |values: &[Value]| key::encode_prefix(table, schema, values.iter());
        let pad = |mut bytes: KeyBytes| {
            key::pad(&mut bytes, schema.key_width());
            bytes
        };
        let lower = match &self.lower {
            Bound::Unbounded => None,
            Bound::Included(values) => Some(pad(encode(values)?)),
            Bound::Excluded(values) => match key::successor(&encode(values)?) {
                Some(bytes) => Some(pad(bytes)),
                None => return Ok(None),
            },
        };
        let upper = match &self.upper {
            Bound::Unbounded => None,
            Bound::Included(values) => key::successor(&encode(values)?).map(pad),
            Bound::Excluded(values) => Some(pad(encode(values)?)),
        };
        if let (Some(lower), Some(upper)) = (&lower, &upper)
            && lower >= upper
        {
            return Ok(None);
        }
        Ok(Some(KeyRange {
            lower: lower.map_or(Bound::Unbounded, Bound::Included),
            upper: upper.map_or(Bound::Unbounded, Bound::Excluded),
        }))
    }
}

/// Number of ranges of which an estimate looks at each; of more, at some.
const RANGES_SAMPLED: usize = 16;

/// Estimates the rows of many ranges from some of them.
pub(super) fn estimated<R>(ranges: &[R], of_range: impl Fn(&R) -> Result<u64>) -> Result<u64> {
    let step = ranges.len().div_ceil(RANGES_SAMPLED).max(1);
    let sampled = ranges.iter().step_by(step);
    let rows: u64 = sampled.clone().map(of_range).sum::<Result<u64>>()?;
    Ok(rows * ranges.len() as u64 / sampled.len().max(1) as u64)
}

/// Estimates the number of rows in ranges; see [`Table::estimated_rows_within`].
pub(super) fn estimated_rows(table: &Table, ranges: &[ScanRange]) -> Result<u64> {
    if table.has_row_groups() {
        return Ok(table.estimated_rows());
    }
    estimated(ranges, |range| {
        let range = range.encode(table.name(), table.schema())?;
        Ok(range.map_or(0, |range| table.state().estimated_keys_within(&range)))
    })
}

/// Least number of rows of a part.
const ROWS_OF_PART_MIN: u64 = 8192;
/// Number of split points wanted for a part: the more, the more equal the parts.
const SPLITS_OF_PART: usize = 64;

/// Divides ranges; see [`Table::split`].
pub(super) fn split(table: &Table, ranges: &[ScanRange], parts: usize) -> Result<Option<Vec<Vec<KeyRange>>>> {
    let rows = table.estimated_rows();
    let rows_min = ROWS_OF_PART_MIN.saturating_mul(parts as u64);
    if parts < 2 || rows < rows_min {
        return Ok(None);
    }
    let splits = table.state().split_points(parts.saturating_mul(SPLITS_OF_PART));
    // The pieces between splits, with the number of the range that each is from.
    let mut pieces: Vec<(usize, KeyRange)> = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        let Some(KeyRange { mut lower, upper }) = range.encode(table.name(), table.schema())? else {
            continue;
        };
        let first = match &lower {
            Bound::Unbounded => 0,
            Bound::Included(lower) | Bound::Excluded(lower) => splits.partition_point(|split| split <= lower),
        };
        let end = match &upper {
            Bound::Unbounded => splits.len(),
            Bound::Included(upper) | Bound::Excluded(upper) => splits.partition_point(|split| split < upper),
        };
        for split in splits.get(first..end).unwrap_or_default() {
            pieces.push((number, KeyRange { lower, upper: Bound::Excluded(split.clone()) }));
            lower = Bound::Included(split.clone());
        }
        pieces.push((number, KeyRange { lower, upper }));
    }
    let inner = pieces.len().saturating_sub(ranges.len()) as u64;
    if inner * (rows / (splits.len() as u64 + 1)) < rows_min / 2 {
        return Ok(None);
    }
    let divided = (0..parts).map(|part| {
        let pieces = &pieces[part * pieces.len() / parts..(part + 1) * pieces.len() / parts];
        let of_ranges = pieces.chunk_by(|(number, _), (next, _)| number == next);
        let joined = of_ranges.filter_map(|pieces| {
            let ((_, first), (_, last)) = (pieces.first()?, pieces.last()?);
            Some(KeyRange { lower: first.lower.clone(), upper: last.upper.clone() })
        });
        joined.collect()
    });
    Ok(Some(divided.collect()))
}
