//! The normal form of JSONB, as PostgreSQL prints it.

use super::{DIGITS_MAX, Json, JsonError, JsonValue, parse};
use std::borrow::Cow;
use std::fmt::Write;

/// String of JSON in the normal form of JSONB.
pub fn normal(text: &str) -> Result<Cow<'_, str>, JsonError> {
    let json = parse(text)?;
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    write(&json, &mut out)?;
    Ok(if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) })
}

fn write(json: &Json<'_>, out: &mut String) -> Result<(), JsonError> {
    match &json.value {
        JsonValue::Null => out.push_str("null"),
        JsonValue::Bool(true) => out.push_str("true"),
        JsonValue::Bool(false) => out.push_str("false"),
        JsonValue::Number(number) => out.push_str(&plain_number(number)?),
        JsonValue::String(text) => write_text(text, out)?,
        JsonValue::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(element, out)?;
            }
            out.push(']');
        }
        JsonValue::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in unique_fields(fields).into_iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_text(key, out)?;
                out.push_str(": ");
                write(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// Fields by the length of their keys and then their bytes; of several of one key the last.
pub(super) fn unique_fields<'f, 'a>(fields: &'f [(Cow<'a, str>, Json<'a>)]) -> Vec<(&'f str, &'f Json<'a>)> {
    let mut sorted: Vec<(&str, &Json<'a>)> = fields.iter().map(|(key, value)| (&**key, value)).collect();
    // Stable: the last one of a key stays the last.
    sorted.sort_by_key(|(key, _)| (key.len(), *key));
    let mut unique: Vec<(&str, &Json<'a>)> = Vec::with_capacity(sorted.len());
    for field in sorted {
        match unique.last_mut() {
            Some(last) if last.0 == field.0 => *last = field,
            _ => unique.push(field),
        }
    }
    unique
}

fn write_text(text: &str, out: &mut String) -> Result<(), JsonError> {
    if text.contains('\0') {
        return Err(JsonError::Zero);
    }
    write_string(text, out);
    Ok(())
}

/// Writes a string with its quotes and escapes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x8 => out.push_str("\\b"),
            0xC => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            // Writing to a `String` does not fail.
            byte => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// Digits of a number of JSON without an exponent; those behind the point stay, zeros too.
pub fn plain_number(number: &str) -> Result<Cow<'_, str>, JsonError> {
    let out_of_range = || JsonError::Number(number.chars().take(40).collect());
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i64>().map_err(|_| out_of_range())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if exponent == 0 && whole.len() <= DIGITS_MAX && fraction.len() <= DIGITS_MAX {
        let plain = if is_zero { unsigned } else { number };
        return Ok(Cow::Borrowed(plain.find(['e', 'E']).map_or(plain, |at| &plain[..at])));
    }
    let scale = (fraction.len() as i64).saturating_sub(exponent);
    let behind = usize::try_from(scale.max(0)).map_err(|_| out_of_range())?;
    let zeros = usize::try_from((-scale).max(0)).map_err(|_| out_of_range())?;
    let before = (whole.len() as i64).saturating_add(exponent);
    if behind > DIGITS_MAX || (!is_zero && before > DIGITS_MAX as i64) {
        return Err(out_of_range());
    }
    if is_zero {
        return Ok(Cow::Owned(if behind > 0 { format!("0.{:0<behind$}", "") } else { "0".to_owned() }));
    }
    let mut digits = format!("{whole}{fraction}{:0<zeros$}", "");
    if digits.len() <= behind {
        digits.insert_str(0, &"0".repeat(behind + 1 - digits.len()));
    }
    let point = digits.len() - behind;
    let whole = digits[..point].trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let sign = if number.starts_with('-') { "-" } else { "" };
    let dot = if behind > 0 { "." } else { "" };
    Ok(Cow::Owned(format!("{sign}{whole}{dot}{}", &digits[point..])))
}
