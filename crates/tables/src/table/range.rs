//! Ranges of rows by leading key columns.

use crate::encoding::key;
use crate::error::Result;
use crate::schema::Schema;
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
