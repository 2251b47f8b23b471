//! Statistics as bytes, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | number of rows, a double |
//! | 8 | microseconds since 1970 of the ANALYZE |
//! | 2 | number of columns; of each: |
//! | 2 | its number in the schema versions |
//! | 3 | its type |
//! | 24 | share of NULL, different values, bytes of a value: doubles |
//! | value, value | least, greatest: 2 bytes of length, and [`encode_one`] |
//! | 2 | number of common values; of each the value and its share, a double |
//! | 2 | number of bounds; of each the value |

use super::{AnalyzedColumn, AnalyzedTable, BOUNDS_MAX, COMMON_MAX};
use crate::encoding::key::{decode_one, encode_one};
use crate::schema::{Schema, type_of_tag, type_tag};
use crate::value::{DataType, Value};
use std::collections::BTreeMap;

impl AnalyzedTable {
    /// Bytes of the statistics of columns that a schema has.
    pub(crate) fn to_bytes(&self, schema: &Schema) -> Vec<u8> {
        let mut bytes = self.rows.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.analyzed_at.to_le_bytes());
        let types = |id: u16| {
            let column = schema.schema_versions().column_of(id)?;
            Some(schema.columns().get(column)?.data_type)
        };
        let columns: Vec<_> =
            self.columns.iter().filter_map(|(id, column)| Some((*id, types(*id)?, column))).collect();
        // A schema has far fewer than 2^16 columns, a column fewer than 2^16 values.
        bytes.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        for (id, data_type, column) in columns {
            bytes.extend_from_slice(&id.to_le_bytes());
            let (tag, precision, scale) = type_tag(data_type);
            bytes.extend_from_slice(&[tag, precision, scale]);
            for number in [column.nulls, column.distinct, column.bytes] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for end in [&column.least, &column.greatest] {
                push_value(end.as_ref().unwrap_or(&Value::Null), &mut bytes);
            }
            bytes.extend_from_slice(&(column.common.len() as u16).to_le_bytes());
            for (value, share) in &column.common {
                push_value(value, &mut bytes);
                bytes.extend_from_slice(&share.to_le_bytes());
            }
            bytes.extend_from_slice(&(column.bounds.len() as u16).to_le_bytes());
            column.bounds.iter().for_each(|value| push_value(value, &mut bytes));
        }
        bytes
    }

    /// Statistics of [`AnalyzedTable::to_bytes`]; `None` if they are malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<AnalyzedTable> {
        let mut rest = RemainingBytes(bytes);
        let (rows, analyzed_at) = (f64::from_le_bytes(rest.take()?), i64::from_le_bytes(rest.take()?));
        let mut columns = BTreeMap::new();
        for _ in 0..u16::from_le_bytes(rest.take()?) {
            let id = u16::from_le_bytes(rest.take()?);
            columns.insert(id, rest.column()?);
        }
        rest.0.is_empty().then_some(AnalyzedTable { rows, analyzed_at, columns })
    }
}

fn push_value(value: &Value, bytes: &mut Vec<u8>) {
    let encoded = encode_one(value);
    // Escapes double a short string at most.
    bytes.extend_from_slice(&(encoded.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&encoded);
}

/// Bytes still to be decoded.
struct RemainingBytes<'b>(&'b [u8]);

impl RemainingBytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.take()?)).filter(|number| number.is_finite())
    }

    fn count(&mut self, max: usize) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(self.take()?))).filter(|count| *count <= max)
    }

    fn value(&mut self, data_type: DataType) -> Option<Value> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        decode_one(data_type, value)
    }

    fn column(&mut self) -> Option<AnalyzedColumn> {
        let [tag, precision, scale] = self.take()?;
        let data_type = type_of_tag(tag, precision, scale)?;
        let (nulls, distinct, bytes) = (self.double()?, self.double()?, self.double()?);
        let (least, greatest) = (self.value(data_type)?, self.value(data_type)?);
        let given = |value: Value| (!value.is_null()).then_some(value);
        let mut common = Vec::new();
        for _ in 0..self.count(COMMON_MAX)? {
            common.push((self.value(data_type)?, self.double()?));
        }
        let mut bounds = Vec::new();
        for _ in 0..self.count(BOUNDS_MAX)? {
            bounds.push(self.value(data_type)?);
        }
        Some(AnalyzedColumn {
            nulls,
            distinct,
            bytes,
            least: given(least),
            greatest: given(greatest),
            common,
            bounds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;

    #[test]
    fn statistics_come_back_and_damage_is_found() {
        let columns = vec![
            Column::new("id", DataType::Int),
            Column::new("price", DataType::Decimal { precision: 12, scale: 2 }),
            Column::new("name", DataType::Varchar),
        ];
        let schema = Schema::new(columns, &["id"]).unwrap();
        let of = |values: [Value; 3]| AnalyzedColumn {
            nulls: 0.25,
            distinct: 3.0,
            bytes: 4.0,
            least: Some(values[0].clone()),
            greatest: Some(values[2].clone()),
            common: vec![(values[1].clone(), 0.5)],
            bounds: values.to_vec(),
        };
        let text = Value::varchar;
        let analyzed = AnalyzedTable {
            rows: 1e6,
            analyzed_at: 17,
            columns: BTreeMap::from([
                (0, of([Value::Int(-5), Value::Int(0), Value::Int(7)])),
                (1, of([Value::Decimal(-1), Value::Decimal(10_i128.pow(11)), Value::Decimal(2)])),
                (2, AnalyzedColumn { least: None, ..of([text(""), text("a\0b"), text("ü")]) }),
            ]),
        };
        let bytes = analyzed.to_bytes(&schema);
        assert_eq!(AnalyzedTable::from_bytes(&bytes).as_ref(), Some(&analyzed));
        for length in 0..bytes.len() {
            assert_eq!(AnalyzedTable::from_bytes(&bytes[..length]), None, "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            // Whatever it says, it says it without a panic.
            let _ = AnalyzedTable::from_bytes(&damaged);
        }
        assert!(analyzed.column(&schema, 2).is_some_and(|column| column.least.is_none()));
    }
}
