//! Type modifiers: the limits that a column's declaration adds to its type.
//!
//! | declared | type | modifier |
//! | --- | --- | --- |
//! | VARCHAR(n) | VARCHAR | at most n characters |
//! | CHAR(n) | VARCHAR | at most n characters, padded with blanks where it is shown |
//! | JSON | VARCHAR | JSON, as it was written |
//! | JSONB | VARCHAR | JSON in its normal form |
//! | NUMERIC, DECIMAL | DECIMAL(38,10) | a value that needs more digits after the point is refused, not rounded |
//!
//! - The blanks at the end of a CHAR(n) have no meaning, as in PostgreSQL. They are never stored: equal
//!   values are equal bytes in keys and indexes. Values are padded for display.
//! - JSON and JSONB are values of [`crate::json`]; JSON has no equality, and JSONB another order than its string: no
//!   key and no index can have them.
//! - Every row that is written goes through [`Modifier::fit`], by whatever path.

use crate::error::{Error, Result};
use crate::schema::{Column, invalid};
use crate::value::json::{self, JsonError};
use crate::value::{DataType, Value};
use std::borrow::Cow;
use std::fmt;

/// Maximum length of a modifier, in characters, as in PostgreSQL.
pub const LENGTH_MAX: u32 = 10_485_760;

/// Type modifier; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Modifier {
    /// No limit beyond the type's.
    #[default]
    None,
    /// Maximum characters of a VARCHAR.
    Varchar(u32),
    /// Characters of a CHAR.
    Char(u32),
    /// No rounding: a DECIMAL that would lose digits is an error.
    Exact,
    /// JSON, as it was written.
    Json,
    /// JSON in its normal form.
    Jsonb,
}

/// Reason why a string does not fit its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// Longer than the column allows.
    TooLong,
    /// Not a document of JSON.
    Json(JsonError),
}

impl Modifier {
    /// Validates the modifier for a column of this type.
    pub(crate) fn check(self, column: &str, data_type: DataType) -> Result<()> {
        let fits = match self {
            Modifier::None => true,
            Modifier::Varchar(length) | Modifier::Char(length) => {
                if !(1..=LENGTH_MAX).contains(&length) {
                    return Err(invalid(format!(
                        "column {column}: {self} needs a length of 1 to {LENGTH_MAX}"
                    )));
                }
                data_type == DataType::Varchar
            }
            Modifier::Exact => matches!(data_type, DataType::Decimal { .. }),
            Modifier::Json | Modifier::Jsonb => data_type == DataType::Varchar,
        };
        if fits { Ok(()) } else { Err(invalid(format!("column {column}: {data_type} with {self}"))) }
    }

    /// Returns true if it limits strings, or changes them.
    pub fn constrains_text(self) -> bool {
        !matches!(self, Modifier::None | Modifier::Exact)
    }

    /// Returns true for JSON and JSONB.
    pub fn is_json(self) -> bool {
        matches!(self, Modifier::Json | Modifier::Jsonb)
    }

    /// String as it is stored. Blanks beyond the length are removed, other characters are an error.
    pub fn fit(self, text: &str) -> Result<Cow<'_, str>, Misfit> {
        let (length, text) = match self {
            Modifier::None | Modifier::Exact => return Ok(Cow::Borrowed(text)),
            Modifier::Json => {
                json::parse(text).map_err(Misfit::Json)?;
                return Ok(Cow::Borrowed(text));
            }
            Modifier::Jsonb => return json::normal(text).map_err(Misfit::Json),
            Modifier::Varchar(length) => (length, text),
            Modifier::Char(length) => (length, text.trim_end_matches(' ')),
        };
        let (head, tail) = split(text, length);
        if tail.bytes().all(|byte| byte == b' ') { Ok(Cow::Borrowed(head)) } else { Err(Misfit::TooLong) }
    }

    /// String as an explicit cast returns it: truncated to the length.
    pub fn truncate(self, text: &str) -> &str {
        match self {
            Modifier::None | Modifier::Exact | Modifier::Json | Modifier::Jsonb => text,
            Modifier::Varchar(length) => split(text, length).0,
            Modifier::Char(length) => split(text, length).0.trim_end_matches(' '),
        }
    }

    /// String as it is displayed: a CHAR is padded with blanks.
    pub fn padded(self, text: &str) -> Cow<'_, str> {
        let Modifier::Char(length) = self else { return Cow::Borrowed(text) };
        match (length as usize).saturating_sub(text.chars().count()) {
            0 => Cow::Borrowed(text),
            missing => Cow::Owned(format!("{text}{}", " ".repeat(missing))),
        }
    }

    /// Value to search for: a CHAR has no blanks at its end. Longer values than the column allows match no
    /// row.
    pub fn search_value(self, value: &Value) -> Cow<'_, Value> {
        match value {
            Value::Varchar(text) if matches!(self, Modifier::Char(_)) && text.ends_with(' ') => {
                Cow::Owned(Value::varchar(text.trim_end_matches(' ')))
            }
            value => Cow::Borrowed(value),
        }
    }
}

/// Splits a string behind its first `length` characters.
fn split(text: &str, length: u32) -> (&str, &str) {
    let length = length as usize;
    if text.len() <= length {
        return (text, "");
    }
    match text.char_indices().nth(length) {
        Some((at, _)) => text.split_at(at),
        None => (text, ""),
    }
}

impl Misfit {
    /// Error of a string of a column.
    pub(crate) fn of(self, table: &str, column: &Column) -> Error {
        let (table, name) = (table.to_owned(), column.name.clone());
        match self {
            Misfit::TooLong => Error::TooLong { table, column: name, expected: column.modifier },
            Misfit::Json(error) => Error::InvalidJson { column: name, error },
        }
    }
}

/// Value as the column stores it; `table` is for the error.
pub fn fitted<'v>(table: &str, column: &Column, value: &'v Value) -> Result<Cow<'v, Value>> {
    let Value::Varchar(text) = value else { return Ok(Cow::Borrowed(value)) };
    let fit = column.modifier.fit(text).map_err(|misfit| misfit.of(table, column))?;
    Ok(if *fit == **text { Cow::Borrowed(value) } else { Cow::Owned(Value::varchar(fit)) })
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Modifier::None => f.write_str("no modifier"),
            Modifier::Varchar(length) => write!(f, "character varying({length})"),
            Modifier::Char(length) => write!(f, "character({length})"),
            Modifier::Exact => f.write_str("numeric"),
            Modifier::Json => f.write_str("json"),
            Modifier::Jsonb => f.write_str("jsonb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(modifier: Modifier, text: &str) -> Result<String, Misfit> {
        modifier.fit(text).map(Cow::into_owned)
    }

    #[test]
    fn texts_fit_by_their_characters() {
        let two = Modifier::Varchar(2);
        assert_eq!(fit(two, "äö").unwrap(), "äö");
        assert_eq!(fit(two, "äö  ").unwrap(), "äö");
        assert_eq!(fit(two, "a  ").unwrap(), "a ");
        assert_eq!(fit(two, "abc"), Err(Misfit::TooLong));
        assert_eq!(fit(two, "ab c"), Err(Misfit::TooLong));
        assert_eq!((two.truncate("äöü"), two.padded("a").as_ref()), ("äö", "a"));
    }

    #[test]
    fn blanks_at_the_end_of_a_char_are_shown_and_not_stored() {
        let three = Modifier::Char(3);
        assert_eq!(fit(three, "a     ").unwrap(), "a");
        assert_eq!(fit(three, " a").unwrap(), " a");
        assert_eq!(fit(three, "abcd"), Err(Misfit::TooLong));
        assert_eq!((three.truncate("ab cd"), three.padded("ä").as_ref()), ("ab", "ä  "));
        assert_eq!(*three.search_value(&Value::from("a ")), Value::from("a"));
        assert_eq!(*Modifier::Varchar(3).search_value(&Value::from("a ")), Value::from("a "));
    }

    #[test]
    fn json_stays_as_it_is_and_jsonb_has_one_form() {
        let text = "{\"b\": 1,\"a\":2.50}";
        assert_eq!(fit(Modifier::Json, text).unwrap(), text);
        assert_eq!(fit(Modifier::Jsonb, text).unwrap(), "{\"a\": 2.50, \"b\": 1}");
        for modifier in [Modifier::Json, Modifier::Jsonb] {
            assert!(matches!(fit(modifier, "{"), Err(Misfit::Json(JsonError::Syntax(_)))));
            assert!(
                modifier.check("c", DataType::Varchar).is_ok() && modifier.check("c", DataType::Int).is_err()
            );
        }
    }

    #[test]
    fn modifiers_belong_to_types() {
        assert!(Modifier::Char(3).check("c", DataType::Varchar).is_ok());
        assert!(Modifier::Char(3).check("c", DataType::Int).is_err());
        assert!(Modifier::Varchar(0).check("c", DataType::Varchar).is_err());
        assert!(Modifier::Varchar(LENGTH_MAX + 1).check("c", DataType::Varchar).is_err());
        assert!(Modifier::Exact.check("c", DataType::Varchar).is_err());
    }
}
