//! Division of groups into parts by a hash of their keys.
//!
//! Equal keys are of one part; so a part has all tuples of its groups, in their order. The hash is the same in every
//! run, but nothing relies on that: what is stored is found by the keys.

use crate::operators::group_index::normalized;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::take::take_record_batch;

/// Odd number without a pattern (of SplitMix64), whose products have well mixed high bits.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A part among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPart {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl KeyPart {
    /// Rows of the part, whose keys are in these columns, in their order.
    pub(crate) fn rows(self, rows: &RecordBatch, columns: &[usize]) -> Result<RecordBatch, ArrowError> {
        if self.of == 1 {
            return Ok(rows.clone());
        }
        let mut divided = divided(rows, columns, self.of)?;
        Ok(divided.swap_remove(self.number))
    }
}

/// Rows of each of so many parts, whose keys are in these columns, in their order.
pub(crate) fn divided(
    rows: &RecordBatch,
    columns: &[usize],
    parts: usize,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut of_parts: Vec<Vec<u32>> = vec![Vec::with_capacity(rows.num_rows() / parts + 1); parts];
    for (row, hash) in hashes(rows, columns)?.into_iter().enumerate() {
        // The high bits, scaled to the number of parts.
        let part = ((hash >> 32) * parts as u64) >> 32;
        of_parts[part as usize].push(row as u32);
    }
    of_parts.into_iter().map(|of_part| take_record_batch(rows, &UInt32Array::from(of_part))).collect()
}

fn hashes(rows: &RecordBatch, columns: &[usize]) -> Result<Vec<u64>, ArrowError> {
    let mut hashes = vec![0; rows.num_rows()];
    for &column in columns {
        let values = normalized(rows.column(column));
        mix_column(&values, &mut hashes)?;
    }
    Ok(hashes)
}

fn mix_column(values: &ArrayRef, hashes: &mut [u64]) -> Result<(), ArrowError> {
    match values.data_type() {
        ArrowType::Int16 => mix(values.as_primitive::<Int16Type>().values(), hashes, |&v| v as u64),
        ArrowType::Int32 => mix(values.as_primitive::<Int32Type>().values(), hashes, |&v| v as u64),
        ArrowType::Int64 => mix(values.as_primitive::<Int64Type>().values(), hashes, |&v| v as u64),
        ArrowType::Date32 => mix(values.as_primitive::<Date32Type>().values(), hashes, |&v| v as u64),
        ArrowType::Timestamp(..) => {
            mix(values.as_primitive::<TimestampMicrosecondType>().values(), hashes, |&v| v as u64);
        }
        ArrowType::Float32 => {
            mix(values.as_primitive::<Float32Type>().values(), hashes, |v| u64::from(v.to_bits()));
        }
        ArrowType::Float64 => mix(values.as_primitive::<Float64Type>().values(), hashes, |v| v.to_bits()),
        ArrowType::Decimal128(..) => {
            let fold = |&v: &i128| v as u64 ^ ((v >> 64) as u64).wrapping_mul(MULTIPLIER);
            mix(values.as_primitive::<Decimal128Type>().values(), hashes, fold);
        }
        ArrowType::Utf8 => {
            let texts = values.as_string::<i32>().iter().map(|text| text.unwrap_or_default().as_bytes());
            mix(texts, hashes, |text| u64::from(crc32c::crc32c(text)));
        }
        other => {
            let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
            let rows = converter.convert_columns(std::slice::from_ref(values))?;
            mix(rows.iter(), hashes, |row| u64::from(crc32c::crc32c(row.as_ref())));
        }
    }
    Ok(())
}

fn mix<V>(values: impl IntoIterator<Item = V>, hashes: &mut [u64], number: impl Fn(V) -> u64) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        let mixed = (hash.rotate_left(29) ^ number(value)).wrapping_mul(MULTIPLIER);
        *hash = mixed ^ (mixed >> 32);
        *hash = hash.wrapping_mul(MULTIPLIER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BooleanArray, Float64Array, Int32Array, StringArray};
    use std::sync::Arc;

    fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
        let names = ["a", "b", "c"].into_iter().zip(columns);
        RecordBatch::try_from_iter(names).unwrap()
    }

    #[test]
    fn parts_are_disjoint_complete_and_even() {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values((0..3000).map(|n| n / 3)));
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..3000).map(|n| format!("meter {}", n / 3))));
        let bits: ArrayRef = Arc::new(BooleanArray::from_iter((0..3000).map(|n| Some(n / 3 % 2 == 0))));
        for (rows, columns) in [
            (batch(vec![Arc::clone(&numbers)]), vec![0]),
            (batch(vec![Arc::clone(&texts)]), vec![0]),
            (batch(vec![bits, texts, Arc::clone(&numbers)]), vec![2, 0]),
        ] {
            for parts in [2, 3, 7] {
                let divided = divided(&rows, &columns, parts).unwrap();
                let key = rows.num_columns() - 1;
                let of = |part: &RecordBatch| -> Vec<String> {
                    let column = part.column(key);
                    let shown = |row| arrow_cast::display::array_value_to_string(column, row).unwrap();
                    (0..part.num_rows()).map(shown).collect()
                };
                let sizes: Vec<usize> = divided.iter().map(RecordBatch::num_rows).collect();
                assert_eq!(sizes.iter().sum::<usize>(), 3000);
                assert!(sizes.iter().all(|&size| size * parts > 3000 * 3 / 4), "{parts} parts: {sizes:?}");
                let mut seen = std::collections::HashMap::new();
                for (number, part) in divided.iter().enumerate() {
                    assert_eq!(*part, KeyPart { number, of: parts }.rows(&rows, &columns).unwrap());
                    for value in of(part) {
                        assert_eq!(*seen.entry(value).or_insert(number), number, "one part for a key");
                    }
                }
            }
        }
    }

    #[test]
    fn equal_doubles_are_of_one_part() {
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN]));
        for parts in 2..9 {
            let divided = divided(&batch(vec![Arc::clone(&doubles)]), &[0], parts).unwrap();
            assert!(divided.iter().all(|part| part.num_rows() % 2 == 0));
        }
    }
}
