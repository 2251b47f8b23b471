//! Lists as parameters: `{1,NULL,"a b"}` in text, a header and elements in binary. They have one dimension.

use super::temporal::UTC;
use super::types::{element_of, postgres_type};
use super::{Format, decimal, parameter};
use crate::error::{Outcome, Report};
use bytes::{Buf, Bytes};
use entresol::arrow::datatypes::DataType;
use entresol::query::datafusion::common::ScalarValue;
use pgwire::api::Type;

/// Reads a list. `of` is the type known to the client, `wanted` that of the plan's elements.
pub(super) fn read(
    bytes: &Bytes,
    format: Format,
    of: &Type,
    wanted: &DataType,
    zone: &str,
) -> Outcome<ScalarValue> {
    let values = match format {
        Format::Text => {
            let element = element_of(of).unwrap_or_else(|| postgres_type(wanted)).oid();
            let read = |word: Option<String>| {
                let word = word.map(Bytes::from);
                parameter::read(word.as_ref(), Format::Text, element, wanted, zone)
            };
            words(parameter::utf8(bytes)?)?.into_iter().map(read).collect::<Outcome<Vec<_>>>()?
        }
        Format::Binary => binary(bytes.clone(), wanted)?,
    };
    let (values, element) = of_one_type(values, wanted)?;
    Ok(ScalarValue::List(ScalarValue::new_list(&values, &element, true)))
}

/// The values as one type: `wanted`, or decimals with as many digits behind the point as any of them needs.
fn of_one_type(values: Vec<ScalarValue>, wanted: &DataType) -> Outcome<(Vec<ScalarValue>, DataType)> {
    let digits = values.iter().filter_map(|value| match value.data_type() {
        of if of == *wanted => None,
        DataType::Decimal128(_, scale) => Some(scale),
        _ => None,
    });
    let (Some(most), &DataType::Decimal128(_, least)) = (digits.max(), wanted) else {
        return Ok((values, wanted.clone()));
    };
    let of = DataType::Decimal128(decimal::DIGITS_MAX, most.max(least));
    let values = values.into_iter().map(|value| {
        let shown = value.to_string();
        let out_of_range =
            || Report::error("22003", format!("value \"{shown}\" is out of range for type numeric"));
        value.cast_to(&of).map_err(|_| out_of_range())
    });
    Ok((values.collect::<Outcome<_>>()?, of))
}

fn malformed(text: &str) -> Report {
    Report::error("22P02", format!("malformed array literal: \"{text}\""))
}

/// The elements of an array literal.
fn words(text: &str) -> Outcome<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| malformed(text))?;
    let mut words = Vec::new();
    let mut chars = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Ok(words);
    }
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut word = String::new();
        let quoted = chars.next_if_eq(&'"').is_some();
        if quoted {
            loop {
                match chars.next().ok_or_else(|| malformed(text))? {
                    '"' => break,
                    '\\' => word.push(chars.next().ok_or_else(|| malformed(text))?),
                    c => word.push(c),
                }
            }
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '"' => return Err(malformed(text)),
                    '{' | '}' => return Err(dimensions()),
                    '\\' => word.push(chars.next().ok_or_else(|| malformed(text))?),
                    c => word.push(c),
                }
            }
            word.truncate(word.trim_end().len());
            if word.is_empty() {
                return Err(malformed(text));
            }
        }
        let null = !quoted && word.eq_ignore_ascii_case("null");
        words.push((!null).then_some(word));
        match chars.next() {
            None => return Ok(words),
            Some(',') => {}
            Some(_) => return Err(malformed(text)),
        }
    }
}

fn dimensions() -> Report {
    Report::error("0A000", "arrays of more than one dimension are not supported")
}

/// Dimensions, a flag, the type of the elements; length and first place; each element with its length.
fn binary(mut bytes: Bytes, wanted: &DataType) -> Outcome<Vec<ScalarValue>> {
    let broken = || Report::error("22P03", "incorrect binary data format for an array");
    if bytes.len() < 12 {
        return Err(broken());
    }
    let (dimensions_count, _has_nulls, element) = (bytes.get_i32(), bytes.get_i32(), bytes.get_u32());
    match dimensions_count {
        0 => return Ok(Vec::new()),
        1 if bytes.len() >= 8 => {}
        1 => return Err(broken()),
        _ => return Err(dimensions()),
    }
    let (count, _first) = (bytes.get_i32(), bytes.get_i32());
    let mut values = Vec::new();
    for _ in 0..count {
        if bytes.len() < 4 {
            return Err(broken());
        }
        let value = match bytes.get_i32() {
            -1 => None,
            length => {
                let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
                Some(bytes.split_to(length.ok_or_else(broken)?))
            }
        };
        values.push(parameter::read(value.as_ref(), Format::Binary, element, wanted, UTC)?);
    }
    if bytes.is_empty() { Ok(values) } else { Err(broken()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn text(of: Type, value: &str, wanted: &DataType) -> Outcome<ScalarValue> {
        read(&Bytes::copy_from_slice(value.as_bytes()), Format::Text, &of, wanted, UTC)
    }

    fn ints(values: &[Option<i32>]) -> ScalarValue {
        let values: Vec<_> = values.iter().map(|value| ScalarValue::Int32(*value)).collect();
        ScalarValue::List(ScalarValue::new_list(&values, &DataType::Int32, true))
    }

    #[test]
    fn array_literals_are_read() {
        assert_eq!(
            text(Type::INT4_ARRAY, "{1, 2,NULL}", &DataType::Int32),
            Ok(ints(&[Some(1), Some(2), None]))
        );
        assert_eq!(text(Type::INT4_ARRAY, "{}", &DataType::Int32), Ok(ints(&[])));
        let found = words(r#"{a, "b,c" ,"q\"",null,"null",x\,y}"#).unwrap();
        let expected = [Some("a"), Some("b,c"), Some("q\""), None, Some("null"), Some("x,y")];
        assert_eq!(found, expected.map(|word| word.map(str::to_owned)));
        for broken in ["1,2", "{1,2", "{1,,2}", "{\"a}", "{a\"b\"}", "{\"a\"b}"] {
            assert_eq!(words(broken).unwrap_err().code, "22P02", "{broken}");
        }
        assert_eq!(words("{{1},{2}}").unwrap_err().code, "0A000");
        assert_eq!(text(Type::INT4_ARRAY, "{x}", &DataType::Int32).unwrap_err().code, "22P02");
    }

    #[test]
    fn decimals_keep_their_digits_in_lists_too() {
        let decimals = |values: &[Option<i128>], precision, scale| {
            let values: Vec<_> =
                values.iter().map(|&value| ScalarValue::Decimal128(value, precision, scale)).collect();
            Ok(ScalarValue::List(ScalarValue::new_list(
                &values,
                &DataType::Decimal128(precision, scale),
                true,
            )))
        };
        let wanted = DataType::Decimal128(10, 2);
        let read = |value: &str| text(Type::NUMERIC_ARRAY, value, &wanted);
        assert_eq!(read("{1.5,NULL}"), decimals(&[Some(150), None], 10, 2));
        assert_eq!(read("{1.505}"), decimals(&[Some(1505)], 38, 3));
        assert_eq!(read("{1.5,NULL,1.505}"), decimals(&[Some(1500), None, Some(1505)], 38, 3));
        let large = format!("{{{},0.5}}", "9".repeat(38));
        assert_eq!(read(&large).unwrap_err().code, "22003");
    }

    #[test]
    fn arrays_in_binary_are_read_and_checked() {
        let mut bytes =
            vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7];
        bytes.extend([255; 4]);
        let all = Bytes::from(bytes);
        let found = read(&all, Format::Binary, &Type::INT4_ARRAY, &DataType::Int32, UTC);
        assert_eq!(found, Ok(ints(&[Some(7), None])));
        for end in 0..all.len() {
            let read = read(&all.slice(..end), Format::Binary, &Type::INT4_ARRAY, &DataType::Int32, UTC);
            assert_eq!(read.unwrap_err().code, "22P03", "{end} bytes");
        }
    }
}
