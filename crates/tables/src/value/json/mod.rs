//! JSON: values of the types JSON and JSONB, which are stored as strings.
//!
//! - JSON keeps its string as it was written; JSONB is stored in PostgreSQL's normal form ([`normal`]): the last of
//!   several values of a key, keys by their length and then their bytes, numbers with all their digits and without
//!   an exponent, `, ` and `: ` between.
//! - JSONB is compared by [`order_key`], as in PostgreSQL: objects, arrays, booleans, numbers, strings, null, from
//!   the greatest to the least; numbers by their value.
//! - A parsed value borrows from its string, and each part knows its own piece of it: what is taken out of a JSON
//!   is written as it was.
//! - Bounds: [`DEPTH_MAX`] levels, [`DIGITS_MAX`] digits on either side of a number's point.
//! - Unlike in PostgreSQL, where JSON keeps them, escapes of half a surrogate pair are refused in both types.

mod order;
mod parse;
mod write;

use std::borrow::Cow;
use std::fmt;

pub use order::{contains, order_key};
pub use parse::parse;
pub use write::{normal, plain_number, write_string};

/// Maximum number of levels of arrays and objects.
pub const DEPTH_MAX: usize = 256;
/// Maximum number of digits of a number of JSONB, before its point and behind it.
pub const DIGITS_MAX: usize = 1_000;

/// Value of JSON, and the string that it was parsed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Json<'a> {
    /// String of the value, without blanks around it.
    pub text: &'a str,
    /// The value.
    pub value: JsonValue<'a>,
}

/// Kinds of values of JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Number, as it is written.
    Number(&'a str),
    /// String, without its escapes.
    String(Cow<'a, str>),
    /// Array.
    Array(Vec<Json<'a>>),
    /// Keys and values of an object, as they are written.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Reason why a string is no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// Its syntax, with the place that is wrong.
    Syntax(String),
    /// More levels than [`DEPTH_MAX`].
    Depth,
    /// A number with more digits than [`DIGITS_MAX`].
    Number(String),
    /// The character U+0000, which no string of SQL has.
    Zero,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonError::Syntax(detail) => write!(f, "invalid input syntax for type json: {detail}"),
            JsonError::Depth => {
                write!(f, "JSON is nested too deeply: at most {DEPTH_MAX} levels are possible")
            }
            JsonError::Number(number) => {
                write!(f, "number {number} of JSON is out of range: at most {DIGITS_MAX} digits are possible")
            }
            JsonError::Zero => {
                f.write_str("unsupported Unicode escape sequence: \\u0000 cannot be converted to text.")
            }
        }
    }
}

impl JsonError {
    /// SQLSTATE of the error, as PostgreSQL reports it.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            JsonError::Syntax(_) => "22P02",
            JsonError::Depth => "54001",
            JsonError::Number(_) => "22003",
            JsonError::Zero => "22P05",
        }
    }
}

impl<'a> Json<'a> {
    /// Name of its kind, as `json_typeof` returns it.
    pub fn kind(&self) -> &'static str {
        match self.value {
            JsonValue::Null => "null",
            JsonValue::Bool(_) => "boolean",
            JsonValue::Number(_) => "number",
            JsonValue::String(_) => "string",
            JsonValue::Array(_) => "array",
            JsonValue::Object(_) => "object",
        }
    }

    /// Value of a key of an object: the last one.
    pub fn field(&self, key: &str) -> Option<&Json<'a>> {
        match &self.value {
            JsonValue::Object(fields) => {
                fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Element of an array, from its end if the number is negative.
    pub fn element(&self, at: i64) -> Option<&Json<'a>> {
        let JsonValue::Array(elements) = &self.value else { return None };
        let at = if at < 0 { at.checked_add(elements.len() as i64)? } else { at };
        elements.get(usize::try_from(at).ok()?)
    }

    /// Value at the end of a path of keys and of numbers of elements.
    pub fn at_path<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Option<&Json<'a>> {
        path.into_iter().try_fold(self, |json, step| match json.value {
            JsonValue::Array(_) => json.element(step.trim().parse().ok()?),
            _ => json.field(step),
        })
    }

    /// The value as text: a string without its quotes; none for null. An error for U+0000.
    pub fn as_text(&self) -> Result<Option<Cow<'_, str>>, JsonError> {
        match &self.value {
            JsonValue::Null => Ok(None),
            JsonValue::String(text) if text.contains('\0') => Err(JsonError::Zero),
            JsonValue::String(text) => Ok(Some(Cow::Borrowed(text))),
            _ => Ok(Some(Cow::Borrowed(self.text))),
        }
    }

    /// Returns true if an object has the key, an array the string, or it is the string.
    pub fn has_key(&self, key: &str) -> bool {
        let is_key = |json: &Json<'_>| matches!(&json.value, JsonValue::String(text) if text == key);
        match &self.value {
            JsonValue::Object(_) => self.field(key).is_some(),
            JsonValue::Array(elements) => elements.iter().any(is_key),
            _ => is_key(self),
        }
    }
}

#[cfg(test)]
mod tests;
