//! Order and containment of JSONB.
//!
//! A key is a string of bytes that orders as the values do:
//!
//! | value | bytes |
//! | --- | --- |
//! | empty array, alone | 0 |
//! | null | 1 |
//! | string | 2, UTF-8, 0 |
//! | number | 3, sign, exponent (4), digits, 0; all behind the sign inverted if it is negative |
//! | boolean | 4, 0 or 1 |
//! | array | 5, number of elements (4), the elements |
//! | object | 6, number of keys (4), each key as a string and its value |

use super::write::unique_fields;
use super::{Json, JsonError, JsonValue, parse};

const EMPTY: u8 = 0;
const NULL: u8 = 1;
const STRING: u8 = 2;
const NUMBER: u8 = 3;
const BOOLEAN: u8 = 4;
const ARRAY: u8 = 5;
const OBJECT: u8 = 6;

const NEGATIVE: u8 = 0;
const ZERO: u8 = 1;
const POSITIVE: u8 = 2;

/// Bytes that order as the values of JSONB do, and are equal where they are.
pub fn order_key(text: &str) -> Result<Vec<u8>, JsonError> {
    let json = parse(text)?;
    let mut key = Vec::with_capacity(text.len() + 8);
    match &json.value {
        // In PostgreSQL it is less than all others, but only by itself.
        JsonValue::Array(elements) if elements.is_empty() => key.push(EMPTY),
        _ => append(&json, &mut key)?,
    }
    Ok(key)
}

fn append(json: &Json<'_>, key: &mut Vec<u8>) -> Result<(), JsonError> {
    match &json.value {
        JsonValue::Null => key.push(NULL),
        JsonValue::String(text) => append_text(text, key)?,
        JsonValue::Number(number) => {
            key.push(NUMBER);
            append_number(number, key)?;
        }
        JsonValue::Bool(value) => key.extend([BOOLEAN, u8::from(*value)]),
        JsonValue::Array(elements) => {
            key.push(ARRAY);
            append_count(elements.len(), key);
            elements.iter().try_for_each(|element| append(element, key))?;
        }
        JsonValue::Object(fields) => {
            let fields = unique_fields(fields);
            key.push(OBJECT);
            append_count(fields.len(), key);
            for (name, value) in fields {
                append_text(name, key)?;
                append(value, key)?;
            }
        }
    }
    Ok(())
}

fn append_count(count: usize, key: &mut Vec<u8>) {
    key.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn append_text(text: &str, key: &mut Vec<u8>) -> Result<(), JsonError> {
    if text.contains('\0') {
        return Err(JsonError::Zero);
    }
    key.push(STRING);
    key.extend(text.bytes());
    key.push(0);
    Ok(())
}

/// Digits of a number without zeros at their ends, and the exponent of its first one; no digits for 0.
fn scientific(number: &str) -> Result<(bool, i64, Vec<u8>), JsonError> {
    let out_of_range = || JsonError::Number(number.chars().take(40).collect());
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i64>().map_err(|_| out_of_range())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    let leading = digits.len() - significant.len();
    let first = (whole.len() as i64 - leading as i64).saturating_add(exponent);
    Ok((number.starts_with('-'), first, significant.trim_end_matches('0').bytes().collect()))
}

fn append_number(number: &str, key: &mut Vec<u8>) -> Result<(), JsonError> {
    let (is_negative, exponent, digits) = scientific(number)?;
    if digits.is_empty() {
        key.push(ZERO);
        return Ok(());
    }
    key.push(if is_negative { NEGATIVE } else { POSITIVE });
    let exponent =
        i32::try_from(exponent).map_err(|_| JsonError::Number(number.chars().take(40).collect()))?;
    let start = key.len();
    key.extend((exponent as u32 ^ 1 << 31).to_be_bytes());
    key.extend(digits);
    key.push(0);
    if is_negative {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Returns true if the first value contains the second, as `@>` has it: its keys with the same or contained values,
/// its elements in any order. An array contains a value that is none by itself.
pub fn contains(whole: &Json<'_>, part: &Json<'_>) -> Result<bool, JsonError> {
    match (&whole.value, &part.value) {
        (JsonValue::Array(_), JsonValue::Array(_) | JsonValue::Object(_)) => within(whole, part),
        (JsonValue::Array(elements), _) => any(elements, part),
        _ => within(whole, part),
    }
}

fn any(elements: &[Json<'_>], part: &Json<'_>) -> Result<bool, JsonError> {
    for element in elements {
        if within(element, part)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn within(whole: &Json<'_>, part: &Json<'_>) -> Result<bool, JsonError> {
    Ok(match (&whole.value, &part.value) {
        (JsonValue::Null, JsonValue::Null) => true,
        (JsonValue::Bool(a), JsonValue::Bool(b)) => a == b,
        (JsonValue::String(a), JsonValue::String(b)) => a == b,
        (JsonValue::Number(a), JsonValue::Number(b)) => {
            let ((a_negative, a_first, a), (b_negative, b_first, b)) = (scientific(a)?, scientific(b)?);
            a == b && (a.is_empty() || (a_negative, a_first) == (b_negative, b_first))
        }
        (JsonValue::Array(elements), JsonValue::Array(parts)) => {
            for part in parts {
                if !any(elements, part)? {
                    return Ok(false);
                }
            }
            true
        }
        (JsonValue::Object(_), JsonValue::Object(fields)) => {
            for (key, part) in unique_fields(fields) {
                match whole.field(key) {
                    Some(value) if within(value, part)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        _ => false,
    })
}
