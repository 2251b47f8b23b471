//! Ranges of rows by leading key columns.

use std::ops::Bound;

use entresol_structures::KeyBytes;
use entresol_transactions::KeyRange;

use crate::encoding::key;
use crate::error::Result;
use crate::schema::Schema;
use crate::value::Value;

/// A range of rows, given by values of the first key columns (as many as one likes).
///
/// A bound that names fewer columns than the key has stands for all keys that begin with it: `Included`
/// takes them all in, `Excluded` leaves them all out.
#[derive(Debug, Clone)]
pub struct ScanRange {
    lower: Bound<Vec<Value>>,
    upper: Bound<Vec<Value>>,
}

impl ScanRange {
    /// All rows.
    pub fn full() -> ScanRange {
        ScanRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// The row with this key.
    pub fn point(key: &[Value]) -> ScanRange {
        ScanRange::prefix(key)
    }

    /// The rows whose first key columns have these values.
    pub fn prefix(values: &[Value]) -> ScanRange {
        ScanRange { lower: Bound::Included(values.to_vec()), upper: Bound::Included(values.to_vec()) }
    }

    /// The rows between two bounds.
    pub fn between(lower: Bound<&[Value]>, upper: Bound<&[Value]>) -> ScanRange {
        ScanRange { lower: lower.map(<[Value]>::to_vec), upper: upper.map(<[Value]>::to_vec) }
    }

    /// The range in bytes, always lower-inclusive and upper-exclusive; `None` if it is empty.
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
