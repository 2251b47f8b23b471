//! `format(template, arguments…)`: strings in the places of `%s`, quoted as identifiers `%I` and as literals `%L`.
//!
//! ```text
//! %[position$][-][width | * | *position$](s | I | L)          %% is a percent sign
//! ```
//!
//! Arguments are cast to strings before. A result is bounded by the planner, as those of all functions
//! (`planner/bounded_functions.rs`).

use crate::catalog::definitions::{literal, quoted};
use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    signature: Signature,
}

/// Function of this module.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Format { signature: Signature::user_defined(Volatility::Immutable) })
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &str {
        "format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        if !arguments.first().is_some_and(|first| first.is_string() || first.is_null()) {
            return Err(external(Error::coded("42883", "function format of no string does not exist")));
        }
        let text = |of: &DataType| match of {
            // As PostgreSQL prints it, unlike its cast.
            DataType::Boolean => DataType::Boolean,
            _ => DataType::Utf8,
        };
        Ok(arguments.iter().map(text).collect())
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.iter().map(|value| value.to_array(rows)).collect::<DFResult<_>>()?;
        let mut results = StringBuilder::new();
        for row in 0..rows {
            let values: Vec<Option<&str>> = columns.iter().map(|column| value(column, row)).collect();
            match values.split_first() {
                Some((Some(template), values)) => {
                    results.append_value(formatted(template, values).map_err(external)?);
                }
                _ => results.append_null(),
            }
        }
        let results: ArrayRef = Arc::new(results.finish());
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?)
        } else {
            ColumnarValue::Array(results)
        })
    }
}

fn value(column: &ArrayRef, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        DataType::Boolean if column.as_boolean().value(row) => "t",
        DataType::Boolean => "f",
        _ => column.as_string::<i32>().value(row),
    })
}

/// Width of a specifier.
enum Width {
    None,
    Fixed(i64),
    /// Argument at a place, or the next one.
    Argument(Option<usize>),
}

/// String of a template.
fn formatted(template: &str, values: &[Option<&str>]) -> Result<String, Error> {
    let mut out = String::with_capacity(template.len() + 16);
    let mut chars = template.chars().peekable();
    // Place of the next argument without a position.
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let position = position(&mut chars)?;
        let is_left = chars.next_if_eq(&'-').is_some();
        // More than one sign is none more.
        while chars.next_if_eq(&'-').is_some() {}
        let width = match width(&mut chars, position)? {
            (Width::None, position) => (0, position),
            (Width::Fixed(width), position) => (width, position),
            (Width::Argument(at), position) => {
                let text = taken(values, at, &mut next)?.unwrap_or("0");
                let width = text.trim().parse::<i64>();
                let wrong =
                    || Error::coded("22P02", format!("invalid input syntax for type integer: \"{text}\""));
                (width.map_err(|_| wrong())?, position)
            }
        };
        let (width, position) = width;
        let Some(kind) = chars.next() else {
            return Err(Error::coded(
                "22023",
                "unterminated format() type specifier: for a single \"%\" use \"%%\"",
            ));
        };
        if !matches!(kind, 's' | 'I' | 'L') {
            let message =
                format!("unrecognized format() type specifier \"{kind}\": for a single \"%\" use \"%%\"");
            return Err(Error::coded("22023", message));
        }
        let value = taken(values, position, &mut next)?;
        let text: Cow<'_, str> = match (kind, value) {
            ('s', value) => value.unwrap_or_default().into(),
            ('I', Some(name)) => quoted(name).into(),
            ('I', None) => {
                return Err(Error::coded("22004", "null values cannot be formatted as an SQL identifier"));
            }
            (_, None) => "NULL".into(),
            (_, Some(text)) => literal(text).into(),
        };
        pad(&mut out, &text, width, is_left);
    }
    Ok(out)
}

/// Value of an argument at a place, or of the next one.
fn taken<'v>(
    values: &[Option<&'v str>],
    at: Option<usize>,
    next: &mut usize,
) -> Result<Option<&'v str>, Error> {
    let at = at.unwrap_or(*next);
    *next = at + 1;
    values.get(at).copied().ok_or_else(|| Error::coded("22023", "too few arguments for format()"))
}

/// Integer, if there is one.
fn digits_of(chars: &mut Peekable<Chars<'_>>) -> Result<Option<i64>, Error> {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse::<i32>() {
        Ok(integer) => Ok(Some(i64::from(integer))),
        Err(_) => Err(Error::coded("22003", "number is out of range")),
    }
}

/// `position$` before the other parts, if it is there.
fn position(chars: &mut Peekable<Chars<'_>>) -> Result<Option<usize>, Error> {
    let mut ahead = chars.clone();
    match digits_of(&mut ahead)? {
        Some(at) if ahead.next_if_eq(&'$').is_some() => {
            *chars = ahead;
            place(at).map(Some)
        }
        _ => Ok(None),
    }
}

/// Place of an argument by its position from 1 on.
fn place(position: i64) -> Result<usize, Error> {
    let place = usize::try_from(position).ok().and_then(|position| position.checked_sub(1));
    place.ok_or_else(|| {
        Error::coded("22023", "format specifies argument 0, but arguments are numbered from 1")
    })
}

/// Width, beside the position of the argument.
fn width(chars: &mut Peekable<Chars<'_>>, position: Option<usize>) -> Result<(Width, Option<usize>), Error> {
    if chars.next_if_eq(&'*').is_none() {
        return Ok((digits_of(chars)?.map_or(Width::None, Width::Fixed), position));
    }
    match digits_of(chars)? {
        None => Ok((Width::Argument(None), position)),
        Some(at) if chars.next_if_eq(&'$').is_some() => Ok((Width::Argument(Some(place(at)?)), position)),
        Some(_) => Err(Error::coded("22023", "width argument position must be ended by \"$\"")),
    }
}

/// Appends a text, with blanks up to a width; a negative one is that of a text on the left.
fn pad(out: &mut String, text: &str, width: i64, is_left: bool) {
    let is_left = is_left || width < 0;
    let blanks =
        usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX).saturating_sub(text.chars().count());
    if is_left {
        out.push_str(text);
    }
    out.extend(std::iter::repeat_n(' ', blanks));
    if !is_left {
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn templates_are_filled() {
        let values = [Some("foo"), Some("a b"), None, Some("-5")];
        for (template, expected) in [
            ("%s %s|%s|", "foo a b||"),
            ("%2$I %1$I %% %3$L", "\"a b\" foo % NULL"),
            ("|%6s|%-6s|%4$s|", "|   foo|a b   |-5|"),
            ("|%1$*4$s|", "|foo  |"),
            ("%1$s %s", "foo a b"),
        ] {
            let found = formatted(template, &values);
            assert_eq!(found.unwrap_or_else(|error| panic!("{template}: {error}")), expected, "{template}");
        }
        for (template, sqlstate) in [
            ("%", "22023"),
            ("%y", "22023"),
            ("%5$s", "22023"),
            ("%3$I", "22004"),
            ("%0$s", "22023"),
            ("%1$", "22023"),
            ("%*4$s", "22023"),
        ] {
            assert_eq!(formatted(template, &values).unwrap_err().sqlstate(), sqlstate, "{template}");
        }
    }
}
