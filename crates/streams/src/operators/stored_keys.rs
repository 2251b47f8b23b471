//! Keys of a state table whose columns may be NULL.
//!
//! A key of a table has no NULL. So a NULL is stored as the default value of its type (0, the empty string), and a
//! number behind the columns says by its bits which of them are NULL: NULL is a group of its own. Doubles are
//! normalised, so that equal ones are one key.

use crate::operators::group_index::normalized;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Date32Array, Int64Array, Scalar, StringArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;
use std::sync::Arc;

/// Column that says which columns of a key are NULL.
pub(crate) const NULLS: &str = "nulls";

/// Columns of the state table with these keys of so many rows: the keys without NULL, and the number behind them.
pub(crate) fn stored(keys: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut nulls = vec![0_i64; rows];
    let mut columns = Vec::with_capacity(keys.len() + 1);
    for (bit, key) in keys.iter().enumerate() {
        let key = normalized(key);
        let Some(valid) = key.nulls().filter(|nulls| nulls.null_count() > 0) else {
            columns.push(key);
            continue;
        };
        for (row, nulls) in nulls.iter_mut().enumerate() {
            *nulls |= i64::from(valid.is_null(row)) << bit;
        }
        let valid = BooleanArray::new(valid.inner().clone(), None);
        columns.push(zip(&valid, &key, &Scalar::new(default_of(key.data_type())?))?);
    }
    columns.push(Arc::new(Int64Array::from(nulls)));
    Ok(columns)
}

/// Keys of the rows with such columns.
pub(crate) fn loaded(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>, ArrowError> {
    let Some((nulls, columns)) = columns.split_last() else { return Ok(Vec::new()) };
    let nulls = nulls.as_primitive::<Int64Type>();
    let key = |(bit, column): (usize, &ArrayRef)| {
        let is_null: BooleanArray = nulls.values().iter().map(|nulls| Some(nulls >> bit & 1 == 1)).collect();
        if is_null.true_count() == 0 { Ok(Arc::clone(column)) } else { nullif(column, &is_null) }
    };
    columns.iter().enumerate().map(key).collect()
}

/// Value that stands for NULL.
fn default_of(data_type: &ArrowType) -> Result<ArrayRef, ArrowError> {
    Ok(match data_type {
        ArrowType::Utf8 => Arc::new(StringArray::from(vec![""])),
        ArrowType::Date32 => Arc::new(Date32Array::from(vec![0])),
        other => cast(&Int64Array::from(vec![0]), other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Decimal128Array, Float64Array, Int32Array, TimestampMicrosecondArray};

    #[test]
    fn null_is_a_key_of_its_own() {
        let keys: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(0), None, Some(7)])),
            Arc::new(StringArray::from(vec![Some(""), Some("a"), None])),
            Arc::new(Float64Array::from(vec![None, Some(f64::NAN), Some(-0.0)])),
            Arc::new(BooleanArray::from(vec![None, Some(true), Some(false)])),
            Arc::new(Date32Array::from(vec![None, Some(3), None])),
            Arc::new(TimestampMicrosecondArray::from(vec![None, Some(3), None]).with_timezone("UTC")),
            Arc::new(Decimal128Array::from(vec![None, Some(5), None])),
        ];
        let columns = stored(&keys, 3).unwrap();
        assert!(columns.iter().all(|column| column.null_count() == 0));
        assert_eq!(columns[7].as_primitive::<Int64Type>().values(), &[0b1111100, 0b1, 0b1110010]);
        let back = loaded(&columns).unwrap();
        for (key, back) in keys.iter().zip(&back) {
            assert_eq!(*normalized(key), **back);
        }
        assert_eq!(stored(&[], 2).unwrap().len(), 1);
    }
}
