//! SIMILAR TO: the regular expressions of the SQL standard, as those of Rust; and LIKE with other escape characters.
//!
//! ```text
//! s SIMILAR TO p ESCAPE e        s ~ similar_to_escape(p, e)
//!
//!   %           any string                   ( )         groups
//!   _           any character                [ ] [^ ]    one of, none of these characters
//!   | * + ? {m} {m,} {m,n}                   \c          the character c
//! ```
//!
//! The pattern is that of the entire string. All other characters are themselves, also those with a meaning in other
//! regular expressions (`.`, `^`, `$`). `ESCAPE ''` is no escape character. A malformed pattern is an error (2201B).
//!
//! `s LIKE p ESCAPE e` is `s LIKE like_escape(p, e)`: the pattern with backslashes, which are what DataFusion knows.

use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DFResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::sync::Arc;

/// Name of the function, which PostgreSQL has too.
pub(crate) const SIMILAR: &str = "similar_to_escape";
/// Name of the function for LIKE ... ESCAPE, which PostgreSQL has too.
pub(crate) const LIKE_ESCAPE: &str = "like_escape";
/// Escape character without ESCAPE.
const ESCAPE: char = '\\';
/// Characters with a meaning in regular expressions of Rust, inside of brackets or outside.
const SPECIAL: &str = "\\.+*?()|[]{}^$#&-~";

/// The functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    let text = DataType::Utf8;
    let one = TypeSignature::Exact(vec![text.clone()]);
    let two = TypeSignature::Exact(vec![text.clone(), text]);
    let signature = || Signature::one_of(vec![one.clone(), two.clone()], Volatility::Immutable);
    [false, true].map(|is_like| ScalarUDF::from(SimilarTo { is_like, signature: signature() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SimilarTo {
    /// True for patterns of LIKE, which stay such.
    is_like: bool,
    signature: Signature,
}

impl ScalarUDFImpl for SimilarTo {
    fn name(&self) -> &str {
        if self.is_like { LIKE_ESCAPE } else { SIMILAR }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let (patterns, escapes) = match arrays.as_slice() {
            [patterns] => (patterns.as_string::<i32>(), None),
            [patterns, escapes] => (patterns.as_string::<i32>(), Some(escapes.as_string::<i32>())),
            _ => return exec_err!("{} expects a pattern and an escape character", self.name()),
        };
        let converted = (0..patterns.len()).map(|row| {
            if patterns.is_null(row) || escapes.is_some_and(|escapes| escapes.is_null(row)) {
                return Ok(None);
            }
            let escape = match escapes {
                None => Some(ESCAPE),
                Some(escapes) => escape_character(escapes.value(row)).map_err(external)?,
            };
            let pattern = patterns.value(row);
            let converted = if self.is_like {
                with_backslashes(pattern, escape)
            } else {
                regular_expression(pattern, escape)
            };
            converted.map(Some).map_err(external)
        });
        let converted: ArrayRef = Arc::new(converted.collect::<DFResult<StringArray>>()?);
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&converted, 0)?)
        } else {
            ColumnarValue::Array(converted)
        })
    }
}

/// Pattern of LIKE with a backslash in the place of an escape character.
fn with_backslashes(pattern: &str, escape: Option<char>) -> Result<String, Error> {
    let mut converted = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let Some(literal) = characters.next() else {
                return Err(Error::coded("22025", "LIKE pattern must not end with escape character"));
            };
            if matches!(literal, '%' | '_' | ESCAPE) {
                converted.push(ESCAPE);
            }
            converted.push(literal);
        } else {
            if character == ESCAPE {
                converted.push(ESCAPE);
            }
            converted.push(character);
        }
    }
    Ok(converted)
}

/// Character of ESCAPE; none if it is empty.
fn escape_character(text: &str) -> Result<Option<char>, Error> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (escape, None) => Ok(escape),
        _ => Err(Error::coded("22019", "invalid escape string: it must be empty or one character")),
    }
}

/// Regular expression of a pattern.
fn regular_expression(pattern: &str, escape: Option<char>) -> Result<String, Error> {
    let mut converter = Converter { out: String::with_capacity(pattern.len() + 8), escape, is_lazy: false };
    converter.out.push_str("^(?s:");
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        converter.convert(character, &mut characters)?;
    }
    converter.out.push_str(")$");
    Ok(converter.out)
}

/// Regular expression of a pattern of which a part is asked for: between the escape character with `"` and the next one,
/// or all. Its first group is that part; what is before the part is as short as it can be.
pub(crate) fn substring_expression(pattern: &str, escape: &str) -> Result<String, Error> {
    let escape = escape_character(escape)?;
    let out = String::with_capacity(pattern.len() + 16);
    let mut converter = Converter { out, escape, is_lazy: true };
    let mut parts = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape && characters.as_str().starts_with('"') {
            characters.next();
            parts.push(std::mem::take(&mut converter.out));
            converter.is_lazy = false;
        } else {
            converter.convert(character, &mut characters)?;
        }
    }
    parts.push(converter.out);
    let (before, part, behind) = match parts.as_slice() {
        [all] => ("", all.as_str(), ""),
        [before, part] => (before.as_str(), part.as_str(), ""),
        [before, part, behind] => (before.as_str(), part.as_str(), behind.as_str()),
        _ => {
            let message =
                "SQL regular expression may not contain more than two escape-double-quote separators";
            return Err(Error::coded("2200C", message));
        }
    };
    Ok(format!("^(?s:(?:{before})({part})(?:{behind}))$"))
}

/// Conversion of patterns into regular expressions.
struct Converter {
    out: String,
    escape: Option<char>,
    /// True if repetitions match as little as they can.
    is_lazy: bool,
}

impl Converter {
    /// Appends a character of a pattern, with those behind it that belong to it.
    fn convert(&mut self, character: char, rest: &mut std::str::Chars<'_>) -> Result<(), Error> {
        let repeats = matches!(character, '%' | '*' | '+' | '?' | '}');
        match character {
            c if Some(c) == self.escape => match rest.next() {
                Some(escaped) => literal(&mut self.out, escaped),
                None => {
                    return Err(Error::coded(
                        "22025",
                        "SIMILAR TO pattern must not end with escape character",
                    ));
                }
            },
            '%' => self.out.push_str(".*"),
            '_' => self.out.push('.'),
            '(' => self.out.push_str("(?:"),
            '[' => brackets(&mut self.out, rest, self.escape),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => self.out.push(character),
            other => literal(&mut self.out, other),
        }
        if self.is_lazy && repeats && Some(character) != self.escape {
            self.out.push('?');
        }
        Ok(())
    }
}

/// Appends a list of characters, up to its closing bracket.
fn brackets(out: &mut String, characters: &mut std::str::Chars<'_>, escape: Option<char>) {
    out.push('[');
    let mut is_first = true;
    while let Some(character) = characters.next() {
        match character {
            c if Some(c) == escape => characters.next().into_iter().for_each(|c| literal(out, c)),
            '^' if is_first => {
                out.push('^');
                continue;
            }
            ']' if !is_first => {
                out.push(']');
                return;
            }
            // A class of characters: [:alpha:].
            '[' if characters.as_str().starts_with(':') && characters.as_str()[1..].contains(":]") => {
                let rest = characters.as_str();
                let end = rest[1..].find(":]").map_or(rest.len(), |at| at + 3);
                out.push('[');
                out.push_str(&rest[..end]);
                *characters = rest[end..].chars();
            }
            // A range, unless it is at an end.
            '-' if !is_first && !characters.as_str().starts_with([']', '-']) => out.push('-'),
            other => literal(out, other),
        }
        is_first = false;
    }
}

fn literal(out: &mut String, character: char) {
    if SPECIAL.contains(character) {
        out.push('\\');
    }
    out.push(character);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn escape_characters_of_like_become_backslashes() {
        let converted = |pattern: &str, escape: Option<char>| match with_backslashes(pattern, escape) {
            Ok(converted) => converted,
            Err(error) => error.sqlstate().to_owned(),
        };
        for (pattern, escape, expected) in [
            (r"a!%c", Some('!'), r"a\%c"),
            (r"a!bc", Some('!'), r"abc"),
            (r"a!!%", Some('!'), r"a!%"),
            (r"a\%", Some('!'), r"a\\%"),
            (r"a\%", None, r"a\\%"),
            (r"a\%", Some('\\'), r"a\%"),
            (r"%%", Some('%'), r"\%"),
            (r"a!", Some('!'), "22025"),
        ] {
            assert_eq!(converted(pattern, escape), expected, "{pattern} {escape:?}");
        }
    }

    #[test]
    fn patterns_of_the_standard_become_regular_expressions() {
        for (pattern, expected) in [
            ("a%", "^(?s:a.*)$"),
            ("a_c", "^(?s:a.c)$"),
            ("(a|b)+", "^(?s:(?:a|b)+)$"),
            ("a.c", "^(?s:a\\.c)$"),
            ("^a$", "^(?s:\\^a\\$)$"),
            ("[a-c_%]", "^(?s:[a-c_%])$"),
            ("[^a]", "^(?s:[^a])$"),
            ("[]a]", "^(?s:[\\]a])$"),
            ("[[:digit:]x&&y]", "^(?s:[[:digit:]x\\&\\&y])$"),
            ("[-a-]", "^(?s:[\\-a\\-])$"),
            ("a\\%", "^(?s:a%)$"),
            ("", "^(?s:)$"),
        ] {
            assert_eq!(regular_expression(pattern, Some(ESCAPE)).unwrap(), expected, "{pattern}");
        }
        assert_eq!(regular_expression("a\\%", None).unwrap(), "^(?s:a\\\\.*)$");
        assert_eq!(regular_expression("a#%", Some('#')).unwrap(), "^(?s:a%)$");
        assert_eq!(regular_expression("a\\", Some(ESCAPE)).unwrap_err().sqlstate(), "22025");
        assert_eq!(escape_character("ab").unwrap_err().sqlstate(), "22019");
        for (pattern, expected) in [
            ("%#\"o_b#\"%", "^(?s:(?:.*?)(o.b)(?:.*))$"),
            ("a+#\"(b|c)*", "^(?s:(?:a+?)((?:b|c)*)(?:))$"),
            ("%##", "^(?s:(?:)(.*?\\#)(?:))$"),
        ] {
            assert_eq!(substring_expression(pattern, "#").unwrap(), expected, "{pattern}");
        }
        assert_eq!(substring_expression("#\"#\"#\"", "#").unwrap_err().sqlstate(), "2200C");
        assert_eq!(escape_character("").unwrap(), None);
    }
}
