//! Encoding and decoding of keys, and the bounds of ranges. See [`crate::encoding`] for the format.

use crate::error::{Error, Result};
use crate::schema::{Column, KEY_BYTES_MAX, KEY_COLUMNS_MAX, Schema, fixed_bytes};
use crate::value::decimal;
use crate::value::interval::Interval;
use crate::value::{DataType, Value, normalize_double};
use entresol_structures::{KeyBytes, KeyWidth};

const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;
const SIGN_128: u128 = 1 << 127;

/// Encodes a complete key from the values of its columns, in key order.
pub(crate) fn encode_key<'v>(
    table: &str,
    schema: &Schema,
    values: impl ExactSizeIterator<Item = &'v Value>,
) -> Result<KeyBytes> {
    if values.len() != schema.key().len() {
        return Err(Error::WrongValueCount {
            table: table.to_owned(),
            expected: schema.key().len(),
            found: values.len(),
        });
    }
    let mut key = encode_prefix(table, schema, values)?;
    pad(&mut key, schema.key_width());
    Ok(key)
}

/// Encodes the leading key columns, without padding.
pub(crate) fn encode_prefix<'v>(
    table: &str,
    schema: &Schema,
    values: impl ExactSizeIterator<Item = &'v Value>,
) -> Result<KeyBytes> {
    if values.len() > schema.key().len() {
        return Err(Error::WrongValueCount {
            table: table.to_owned(),
            expected: schema.key().len(),
            found: values.len(),
        });
    }
    let mut key = KeyBytes::new();
    for (&index, value) in schema.key().iter().zip(values) {
        let column = &schema.columns()[index];
        let value = column.modifier.search_value(value);
        check_value(table, column, &value)?;
        encode_value(column.data_type, &value, &mut key);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLarge {
            table: table.to_owned(),
            bytes: key.len(),
            bytes_max: KEY_BYTES_MAX,
        });
    }
    Ok(key)
}

/// Pads a fixed-width key (or bound) with zeros to the width of the index.
pub(crate) fn pad(key: &mut KeyBytes, width: KeyWidth) {
    assert!(
        match width {
            KeyWidth::Eight => key.len() <= 8,
            KeyWidth::Sixteen => key.len() <= 16,
            KeyWidth::Variable => true,
        },
        "a key of {} bytes is padded, not truncated",
        key.len()
    );
    match width {
        KeyWidth::Eight => key.resize(8, 0),
        KeyWidth::Sixteen => key.resize(16, 0),
        KeyWidth::Variable => {}
    }
}

/// Least byte string above all strings that begin with `prefix`; `None` if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Option<KeyBytes> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bytes = KeyBytes::from_slice(&prefix[..=last]);
    bytes[last] += 1;
    Some(bytes)
}

/// Validates type, NULL and range of a value for a column.
pub(crate) fn check_value(table: &str, column: &Column, value: &Value) -> Result<()> {
    match value {
        Value::Null if column.nullable => Ok(()),
        Value::Null => Err(Error::NotNull { table: table.to_owned(), column: column.name.clone() }),
        value if !value.is_of(column.data_type) => Err(Error::WrongType {
            table: table.to_owned(),
            column: column.name.clone(),
            expected: column.data_type,
            found: format!("{} '{value}'", value.type_name()),
        }),
        value if !in_range(value, column.data_type) => Err(Error::OutOfRange {
            table: table.to_owned(),
            column: column.name.clone(),
            value: value.display(column.data_type).to_string(),
            expected: column.data_type,
        }),
        _ => Ok(()),
    }
}

/// Returns true if a value of the right kind is in the range of the type.
fn in_range(value: &Value, data_type: DataType) -> bool {
    match (value, data_type) {
        (Value::Decimal(unscaled), DataType::Decimal { precision, .. }) => {
            decimal::fits(*unscaled, precision)
        }
        (Value::Int(value), DataType::SmallInt) => i16::try_from(*value).is_ok(),
        (Value::Double(value), DataType::Real) => value.is_nan() || f64::from(*value as f32) == *value,
        _ => true,
    }
}

/// Encodes a value by itself, outside of any key; empty for NULL.
pub(crate) fn encode_one(value: &Value) -> KeyBytes {
    let mut bytes = KeyBytes::new();
    match value {
        Value::Null => {}
        // By its own magnitude: the column's precision is not needed to read it.
        Value::Decimal(value) => bytes.extend_from_slice(&(*value as u128 ^ SIGN_128).to_be_bytes()),
        Value::Varchar(text) => append_text(text.as_bytes(), &mut bytes),
        value => encode_value(DataType::Boolean, value, &mut bytes),
    }
    bytes
}

/// Decodes the bytes of [`encode_one`]; `None` if they are malformed.
pub(crate) fn decode_one(data_type: DataType, bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return Some(Value::Null);
    }
    match data_type {
        DataType::Varchar => (string_end(bytes)? + 2 == bytes.len()).then_some(())?,
        DataType::Decimal { .. } => (bytes.len() == 16).then_some(())?,
        fixed => (fixed_bytes(fixed) == Some(bytes.len())).then_some(())?,
    }
    Some(match data_type {
        DataType::Varchar => Value::Varchar(unescape(bytes)?.into()),
        DataType::Decimal { .. } => Value::Decimal((u128::from_be_bytes(array(bytes)) ^ SIGN_128) as i128),
        DataType::Boolean if bytes[0] > 1 => return None,
        fixed => decode_fixed(fixed, bytes),
    })
}

/// Decodes one column of a key; `None` if it is malformed.
pub(crate) fn decode_column(data_type: DataType, bytes: &[u8]) -> Option<Value> {
    match fixed_bytes(data_type) {
        None => Some(Value::Varchar(unescape(bytes)?.into())),
        Some(width) => (bytes.len() == width).then(|| decode_fixed(data_type, bytes)),
    }
}

/// Appends a validated, non-NULL value.
pub(crate) fn encode_value(data_type: DataType, value: &Value, key: &mut KeyBytes) {
    match value {
        Value::Null => unreachable!("key columns are NOT NULL and checked"),
        Value::Boolean(value) => key.push(u8::from(*value)),
        Value::Int(value) | Value::Date(value) => append_i32(*value, key),
        Value::BigInt(value) | Value::Timestamp(value) => append_i64(*value, key),
        Value::Double(value) => append_f64(*value, key),
        Value::Decimal(value) => append_decimal(data_type, *value, key),
        // By itself only: columns of keys have other types.
        Value::Interval(value) => key.extend_from_slice(&value.to_bytes()),
        Value::Varchar(text) => append_text(text.as_bytes(), key),
    }
}

#[inline]
pub(crate) fn append_i32(value: i32, key: &mut KeyBytes) {
    key.extend_from_slice(&(value as u32 ^ SIGN_32).to_be_bytes());
}

#[inline]
pub(crate) fn append_i64(value: i64, key: &mut KeyBytes) {
    key.extend_from_slice(&(value as u64 ^ SIGN_64).to_be_bytes());
}

#[inline]
pub(crate) fn append_f64(value: f64, key: &mut KeyBytes) {
    key.extend_from_slice(&ordered_bits(value).to_be_bytes());
}

/// Appends a validated decimal of this type.
#[inline]
pub(crate) fn append_decimal(data_type: DataType, value: i128, key: &mut KeyBytes) {
    if fixed_bytes(data_type) == Some(8) {
        debug_assert!(i64::try_from(value).is_ok(), "a short decimal fits 8 bytes: {value}");
        append_i64(value as i64, key);
    } else {
        key.extend_from_slice(&(value as u128 ^ SIGN_128).to_be_bytes());
    }
}

/// Appends a string, escaped.
pub(crate) fn append_text(text: &[u8], key: &mut KeyBytes) {
    for part in text.split_inclusive(|byte| *byte == 0) {
        key.extend_from_slice(part);
        if part.last() == Some(&0) {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

fn ordered_bits(value: f64) -> u64 {
    let bits = normalize_double(value).to_bits();
    if bits & SIGN_64 == 0 { bits ^ SIGN_64 } else { !bits }
}

/// Offsets of the key columns, after a check that the complete key is well formed.
pub(crate) fn locate(table: &str, schema: &Schema, key: &[u8]) -> Result<[u16; KEY_COLUMNS_MAX]> {
    let corrupt = |reason: &str| Error::corrupt(format!("key in table {table}"), reason);
    if key.len() < schema.key_fixed_bytes() || key.len() > KEY_BYTES_MAX {
        return Err(corrupt("wrong length"));
    }
    let mut offsets = *schema.key_offsets();
    if !schema.key_is_fixed() {
        let mut at = 0;
        for (ordinal, &index) in schema.key().iter().enumerate() {
            offsets[ordinal] = at as u16;
            at += match fixed_bytes(schema.columns()[index].data_type) {
                Some(bytes) => bytes,
                None => {
                    let rest = key.get(at..).ok_or_else(|| corrupt("truncated"))?;
                    let end = string_end(rest).ok_or_else(|| corrupt("a string without end mark"))?;
                    if std::str::from_utf8(&rest[..end]).is_err() && !rest[..end].contains(&0) {
                        return Err(corrupt("a string that is not UTF-8"));
                    }
                    end + 2
                }
            };
        }
        if at != key.len() {
            return Err(corrupt("wrong length"));
        }
    }
    for (ordinal, &index) in schema.key().iter().enumerate() {
        if schema.columns()[index].data_type == DataType::Boolean && key[usize::from(offsets[ordinal])] > 1 {
            return Err(corrupt("a BOOLEAN that is neither 0 nor 1"));
        }
    }
    Ok(offsets)
}

/// Length of the escaped string at the start of `bytes`, without its end mark.
pub(crate) fn string_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        match *bytes.get(at + 1)? {
            0 => return Some(at),
            0xFF => at += 2,
            _ => return None,
        }
    }
}

/// Borrows the string at the start of `bytes`; `Err` if it contains escapes.
pub(crate) fn borrow_string(bytes: &[u8]) -> std::result::Result<&str, EscapedString> {
    let end = string_end(bytes).ok_or(EscapedString)?;
    std::str::from_utf8(&bytes[..end]).ok().filter(|text| !text.contains('\0')).ok_or(EscapedString)
}

/// String with escapes, or malformed.
pub(crate) struct EscapedString;

/// Removes the escapes of a string; `None` if it is not UTF-8.
fn unescape(bytes: &[u8]) -> Option<String> {
    let end = string_end(bytes)?;
    let mut text = Vec::with_capacity(end);
    let mut at = 0;
    while at < end {
        text.push(bytes[at]);
        at += if bytes[at] == 0 { 2 } else { 1 };
    }
    String::from_utf8(text).ok()
}

/// Decodes a fixed-width column at the start of `bytes`.
pub(crate) fn decode_fixed(data_type: DataType, bytes: &[u8]) -> Value {
    match data_type {
        DataType::Boolean => Value::Boolean(bytes[0] != 0),
        DataType::Int | DataType::SmallInt => Value::Int(decode_i32(bytes)),
        DataType::Date => Value::Date(decode_i32(bytes)),
        DataType::BigInt => Value::BigInt(decode_i64(bytes)),
        DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(decode_i64(bytes)),
        DataType::Double | DataType::Real => Value::Double(decode_f64(bytes)),
        DataType::Decimal { .. } => Value::Decimal(decode_decimal(data_type, bytes)),
        DataType::Interval => Value::Interval(Interval::from_bytes(array(bytes))),
        DataType::Varchar => unreachable!("VARCHAR is not of fixed width"),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    debug_assert!(bytes.len() >= N, "{N} bytes are read of {}", bytes.len());
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

pub(crate) fn decode_i32(bytes: &[u8]) -> i32 {
    (u32::from_be_bytes(array(bytes)) ^ SIGN_32) as i32
}

pub(crate) fn decode_i64(bytes: &[u8]) -> i64 {
    (u64::from_be_bytes(array(bytes)) ^ SIGN_64) as i64
}

pub(crate) fn decode_f64(bytes: &[u8]) -> f64 {
    let bits = u64::from_be_bytes(array(bytes));
    f64::from_bits(if bits & SIGN_64 == 0 { !bits } else { bits ^ SIGN_64 })
}

pub(crate) fn decode_decimal(data_type: DataType, bytes: &[u8]) -> i128 {
    match fixed_bytes(data_type) {
        Some(8) => i128::from(decode_i64(bytes)),
        _ => (u128::from_be_bytes(array(bytes)) ^ SIGN_128) as i128,
    }
}

/// Decodes a complete key into the values of its columns, in key order.
pub(crate) fn decode_key(table: &str, schema: &Schema, key: &[u8]) -> Result<Vec<Value>> {
    let offsets = locate(table, schema, key)?;
    let mut values = Vec::with_capacity(schema.key().len());
    for (ordinal, &index) in schema.key().iter().enumerate() {
        let bytes = &key[usize::from(offsets[ordinal])..];
        values.push(match schema.columns()[index].data_type {
            DataType::Varchar => match unescape(bytes) {
                Some(text) => Value::Varchar(text.into()),
                None => {
                    return Err(Error::corrupt(
                        format!("key in table {table}"),
                        "a string that is not UTF-8",
                    ));
                }
            },
            data_type => decode_fixed(data_type, bytes),
        });
    }
    Ok(values)
}

/// Formats the key as `(1, 'a')`, for messages.
pub(crate) fn display_key(table: &str, schema: &Schema, key: &[u8]) -> String {
    let Ok(values) = decode_key(table, schema, key) else { return format!("{key:02x?}") };
    let texts: Vec<String> = schema
        .key()
        .iter()
        .zip(&values)
        .map(|(&index, value)| value.display(schema.columns()[index].data_type).to_string())
        .collect();
    format!("({})", texts.join(", "))
}
