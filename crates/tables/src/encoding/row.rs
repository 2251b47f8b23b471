//! Encoding of the values of rows. See [`crate::encoding`] for the format and [`crate::RowView`] for
//! decoding.

use crate::encoding::key;
use crate::error::{Error, Result};
use crate::schema::layout::{ColumnSlot, Layout};
use crate::schema::{ROW_BYTES_MAX, Schema, fixed_bytes};
use crate::value::Value;
use entresol_structures::KeyBytes;

/// Difference of the first byte of a value and the number of its schema version.
pub(crate) const VERSION_BYTE_BASE: u8 = 1;

/// Encoded values, one after another.
#[derive(Debug, Default)]
pub(crate) struct EncodedValues {
    bytes: Vec<u8>,
    /// End of each value.
    ends: Vec<usize>,
}

impl EncodedValues {
    /// Values of rows whose offsets, with the end of the last, are `starts`.
    pub(crate) fn of_rows(bytes: Vec<u8>, mut starts: Vec<usize>) -> EncodedValues {
        assert!(
            starts.is_sorted() && starts.last() == Some(&bytes.len()),
            "the rows of a batch fill its bytes, one behind the other"
        );
        starts.remove(0);
        EncodedValues { bytes, ends: starts }
    }

    /// Adds a value.
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    /// Value of a row.
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }
}

/// Validates a full row (all columns, hidden key included) and encodes its key; `value` receives its value.
pub(crate) fn encode_row(
    table: &str,
    schema: &Schema,
    row: &[Value],
    value: &mut Vec<u8>,
) -> Result<KeyBytes> {
    if row.len() != schema.columns().len() {
        return Err(Error::WrongValueCount {
            table: table.to_owned(),
            expected: schema.visible_columns().len(),
            found: row.len(),
        });
    }
    for (column, value) in schema.columns().iter().zip(row) {
        key::check_value(table, column, value)?;
    }
    let key = key::encode_key(table, schema, schema.key().iter().map(|&index| &row[index]))?;
    encode_value(schema, row, value);
    if value.len() > ROW_BYTES_MAX {
        return Err(Error::RowTooLarge {
            table: table.to_owned(),
            bytes: value.len(),
            bytes_max: ROW_BYTES_MAX,
        });
    }
    Ok(key)
}

/// Encodes the value of a validated row.
fn encode_value(schema: &Schema, row: &[Value], bytes: &mut Vec<u8>) {
    assert_eq!(row.len(), schema.columns().len(), "every column has a value");
    assert!(
        schema.schema_versions().current() <= usize::from(u8::MAX - VERSION_BYTE_BASE),
        "a row's first byte has room for its schema version"
    );
    let layout = schema.layout();
    bytes.clear();
    bytes.resize(layout.value_bytes_min(), 0);
    bytes[0] = VERSION_BYTE_BASE + schema.schema_versions().current() as u8;
    let mut texts = 0;
    // Strings are appended in the order of their ordinals: value columns first, then key columns.
    for (index, value) in row.iter().enumerate() {
        match (layout.slot(index), value) {
            (ColumnSlot::Fixed { null_bit, .. } | ColumnSlot::Varchar { null_bit, .. }, Value::Null) => {
                bytes[1 + null_bit / 8] |= 1 << (null_bit % 8);
                if let ColumnSlot::Varchar { variable, .. } = layout.slot(index) {
                    append_text(layout, variable, &mut texts, "", bytes);
                }
            }
            (ColumnSlot::Fixed { offset, .. }, value) => {
                let width =
                    fixed_bytes(schema.columns()[index].data_type).expect("a fixed slot has a fixed type");
                put_fixed(value, &mut bytes[offset..offset + width]);
            }
            (ColumnSlot::Varchar { variable, .. }, Value::Varchar(text)) => {
                append_text(layout, variable, &mut texts, text, bytes);
            }
            _ => {}
        }
    }
    for &index in schema.key() {
        if let (ColumnSlot::KeyVarchar { variable, .. }, Value::Varchar(text)) =
            (layout.slot(index), &row[index])
        {
            let text: &str = if text.contains('\0') { text } else { "" };
            append_text(layout, variable, &mut texts, text, bytes);
        }
    }
    assert_eq!(texts, layout.variables(), "every VARCHAR has an end");
}

fn append_text(layout: &Layout, variable: usize, texts: &mut usize, text: &str, bytes: &mut Vec<u8>) {
    assert_eq!(variable, *texts, "strings are appended in order");
    *texts += 1;
    bytes.extend_from_slice(text.as_bytes());
    let end = (bytes.len() - layout.value_bytes_min()) as u32;
    let at = layout.ends_offset() + 4 * variable;
    bytes[at..at + 4].copy_from_slice(&end.to_le_bytes());
}

fn put_fixed(value: &Value, out: &mut [u8]) {
    debug_assert!(!out.is_empty(), "a fixed-width value has bytes");
    match value {
        Value::Boolean(value) => out[0] = u8::from(*value),
        Value::Int(value) | Value::Date(value) => out.copy_from_slice(&value.to_le_bytes()),
        Value::BigInt(value) | Value::Timestamp(value) => out.copy_from_slice(&value.to_le_bytes()),
        Value::Double(value) => out.copy_from_slice(&value.to_bits().to_le_bytes()),
        // The sign of a short decimal survives the truncation to 8 bytes: it was checked to fit.
        Value::Decimal(value) => out.copy_from_slice(&value.to_le_bytes()[..out.len()]),
        Value::Interval(value) => out.copy_from_slice(&value.to_bytes()),
        Value::Null | Value::Varchar(_) => unreachable!("checked to be a fixed-width value"),
    }
}
