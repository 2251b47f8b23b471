//! Type modifiers: the limits that a column's declaration adds to its type.
//!
//! | declared | type | modifier |
//! | --- | --- | --- |
//! | VARCHAR(n) | VARCHAR | at most n characters |
//! | CHAR(n) | VARCHAR | at most n characters, padded with blanks where it is shown |
//! | NUMERIC, DECIMAL | DECIMAL(38,10) | a value that needs more digits after the point is refused, not rounded |
//!
//! - The blanks at the end of a CHAR(n) have no meaning, as in PostgreSQL. They are never stored: equal
//!   values are equal bytes in keys and indexes. Values are padded for display.
//! - Every row that is written goes through [`Modifier::fit`], by whatever path.

use crate::error::{Error, Result};
use crate::schema::{Column, invalid};
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
}

/// Error of a string that is longer than its column allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

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
        };
        if fits { Ok(()) } else { Err(invalid(format!("column {column}: {data_type} with {self}"))) }
    }

    /// Returns true if it limits the length of strings.
    pub fn limits_text(self) -> bool {
        matches!(self, Modifier::Varchar(_) | Modifier::Char(_))
    }

    /// String as it is stored. Blanks beyond the length are removed, other characters are an error.
    pub fn fit(self, text: &str) -> Result<&str, TooLong> {
        let (length, text) = match self {
            Modifier::None | Modifier::Exact => return Ok(text),
            Modifier::Varchar(length) => (length, text),
            Modifier::Char(length) => (length, text.trim_end_matches(' ')),
        };
        let (head, tail) = split(text, length);
        if tail.bytes().all(|byte| byte == b' ') { Ok(head) } else { Err(TooLong) }
    }

    /// String as an explicit cast returns it: truncated to the length.
    pub fn truncate(self, text: &str) -> &str {
        match self {
            Modifier::None | Modifier::Exact => text,
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

/// Value as the column stores it.
pub(crate) fn fitted<'v>(table: &str, column: &Column, value: &'v Value) -> Result<Cow<'v, Value>> {
    let Value::Varchar(text) = value else { return Ok(Cow::Borrowed(value)) };
    let fit = column.modifier.fit(text).map_err(|TooLong| Error::TooLong {
        table: table.to_owned(),
        column: column.name.clone(),
        expected: column.modifier,
    })?;
    Ok(if fit.len() == text.len() { Cow::Borrowed(value) } else { Cow::Owned(Value::varchar(fit)) })
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Modifier::None => f.write_str("no modifier"),
            Modifier::Varchar(length) => write!(f, "character varying({length})"),
            Modifier::Char(length) => write!(f, "character({length})"),
            Modifier::Exact => f.write_str("numeric"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_by_their_characters() {
        let two = Modifier::Varchar(2);
        assert_eq!(two.fit("äö"), Ok("äö"));
        assert_eq!(two.fit("äö  "), Ok("äö"));
        assert_eq!(two.fit("a  "), Ok("a "));
        assert_eq!(two.fit("abc"), Err(TooLong));
        assert_eq!(two.fit("ab c"), Err(TooLong));
        assert_eq!((two.truncate("äöü"), two.padded("a").as_ref()), ("äö", "a"));
    }

    #[test]
    fn blanks_at_the_end_of_a_char_are_shown_and_not_stored() {
        let three = Modifier::Char(3);
        assert_eq!(
            (three.fit("a     "), three.fit(" a"), three.fit("abcd")),
            (Ok("a"), Ok(" a"), Err(TooLong))
        );
        assert_eq!((three.truncate("ab cd"), three.padded("ä").as_ref()), ("ab", "ä  "));
        assert_eq!(*three.search_value(&Value::from("a ")), Value::from("a"));
        assert_eq!(*Modifier::Varchar(3).search_value(&Value::from("a ")), Value::from("a "));
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
