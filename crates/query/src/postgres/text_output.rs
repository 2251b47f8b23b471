//! Values as strings: their text in PostgreSQL, in COPY, in casts to text and in functions that join strings.
//!
//! | type | text |
//! | --- | --- |
//! | BOOLEAN | `t` and `f`; a cast to text, which is DataFusion's, `true` and `false` |
//! | DOUBLE, REAL | the fewest digits that read back as the same: `100`, `0.1`, `1e+20`, `Infinity` |
//! | DATE, TIMESTAMP | `2024-12-31`, `2024-12-31 23:59:59.5` |
//! | lists | `{1,NULL,"a b"}` |
//! | BYTEA | `\\x6162` |
//! | rows | `(1,"a b",)` |
//!
//! Types that tables do not have are formatted as by Arrow.

use crate::error::{Error, Result, external};
use crate::postgres::intervals;
use crate::postgres::time_zones::Zone;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use entresol_tables::{calendar, decimal};
use std::fmt::Write;
use std::sync::Arc;

/// Formatter for the values of one column.
pub(crate) struct Printer<'a> {
    array: &'a ArrayRef,
    /// Of the elements of a list, or the fields of a row.
    inner: Vec<Printer<'a>>,
    /// Texts of intervals.
    texts: Option<ArrayRef>,
    /// Arrow's formatter, for types that tables do not have.
    other: Option<ArrayFormatter<'a>>,
    /// Time zone of `timestamptz` values.
    zone: Option<Zone>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(array: &'a ArrayRef) -> Result<Printer<'a>> {
        let known = matches!(
            array.data_type(),
            ArrowType::Boolean
                | ArrowType::Int16
                | ArrowType::Int32
                | ArrowType::Int64
                | ArrowType::Float32
                | ArrowType::Float64
                | ArrowType::Date32
                | ArrowType::Timestamp(TimeUnit::Microsecond, _)
                | ArrowType::Utf8
                | ArrowType::List(_)
                | ArrowType::Struct(_)
                | ArrowType::Binary
                | ArrowType::Interval(_)
                | ArrowType::Duration(_)
        ) || matches!(array.data_type(), ArrowType::Decimal128(_, scale) if *scale >= 0);
        const OPTIONS: FormatOptions<'static> = FormatOptions::new()
            .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
            .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
        let other = if known { None } else { Some(ArrayFormatter::try_new(array, &OPTIONS)?) };
        let zone = match array.data_type() {
            ArrowType::Timestamp(_, Some(zone)) => Some(Zone::new(zone)?),
            _ => None,
        };
        let inner = match array.data_type() {
            ArrowType::List(_) => vec![Printer::new(array.as_list::<i32>().values())?],
            ArrowType::Struct(_) => {
                array.as_struct().columns().iter().map(Printer::new).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        let texts = match array.data_type() {
            ArrowType::Interval(_) | ArrowType::Duration(_) => Some(intervals::texts_of(array)?),
            _ => None,
        };
        Ok(Printer { array, inner, texts, other, zone })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row) || *self.array.data_type() == ArrowType::Null
    }

    pub(crate) fn print(&self, row: usize, out: &mut String) -> std::fmt::Result {
        let array = self.array;
        if let Some(other) = &self.other {
            return write!(out, "{}", other.value(row));
        }
        if let Some(texts) = &self.texts {
            return out.write_str(texts.as_string::<i32>().value(row));
        }
        match array.data_type() {
            ArrowType::Boolean => out.write_str(if array.as_boolean().value(row) { "t" } else { "f" }),
            ArrowType::Int16 => write!(out, "{}", array.as_primitive::<Int16Type>().value(row)),
            ArrowType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row)),
            ArrowType::Int64 => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
            ArrowType::Float32 => {
                let value = array.as_primitive::<Float32Type>().value(row);
                double(&format!("{value:e}"), f64::from(value), out)
            }
            ArrowType::Float64 => {
                let value = array.as_primitive::<Float64Type>().value(row);
                double(&format!("{value:e}"), value, out)
            }
            ArrowType::Decimal128(_, scale) => {
                let unscaled = array.as_primitive::<Decimal128Type>().value(row);
                decimal::format(unscaled, scale.unsigned_abs(), out)
            }
            ArrowType::Date32 => calendar::format_date(array.as_primitive::<Date32Type>().value(row), out),
            ArrowType::Timestamp(..) => {
                let time = array.as_primitive::<TimestampMicrosecondType>().value(row);
                match &self.zone {
                    Some(zone) => zone.print(time, out),
                    None => calendar::format_timestamp(time, out),
                }
            }
            ArrowType::List(_) => self.print_list(row, out),
            ArrowType::Struct(_) => self.print_row(row, out),
            ArrowType::Binary => {
                out.write_str("\\x")?;
                array.as_binary::<i32>().value(row).iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
            _ => out.write_str(array.as_string::<i32>().value(row)),
        }
    }

    fn print_list(&self, row: usize, out: &mut String) -> std::fmt::Result {
        let offsets = self.array.as_list::<i32>().value_offsets();
        let (mut text, [first, end]) = (String::new(), [offsets[row], offsets[row + 1]]);
        out.push('{');
        for at in first as usize..end as usize {
            if at > first as usize {
                out.push(',');
            }
            let element = &self.inner[0];
            if element.is_null(at) {
                out.push_str("NULL");
                continue;
            }
            text.clear();
            element.print(at, &mut text)?;
            let is_list = matches!(element.array.data_type(), ArrowType::List(_));
            let is_special = |c: char| {
                matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_ascii_whitespace() || c == '\u{b}'
            };
            if !is_list && (text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(is_special))
            {
                quote(&text, '\\', out);
            } else {
                out.push_str(&text);
            }
        }
        out.push('}');
        Ok(())
    }

    fn print_row(&self, row: usize, out: &mut String) -> std::fmt::Result {
        let mut text = String::new();
        out.push('(');
        for (at, field) in self.inner.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            if field.is_null(row) {
                continue;
            }
            text.clear();
            field.print(row, &mut text)?;
            let is_special = |c: char| {
                matches!(c, '(' | ')' | ',' | '"' | '\\') || c.is_ascii_whitespace() || c == '\u{b}'
            };
            if text.is_empty() || text.contains(is_special) {
                quote(&text, '"', out);
            } else {
                out.push_str(&text);
            }
        }
        out.push(')');
        Ok(())
    }
}

/// Appends a text in quotes; `escape` precedes quotes in it, and a backslash doubles.
fn quote(text: &str, escape: char, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push(escape),
            '\\' => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    out.push('"');
}

/// Cast of a value to text, if DataFusion's has another text; else the expression.
pub(crate) fn converted(expr: Expr, from: &ArrowType, to: &ArrowType) -> Result<Expr, Expr> {
    let is_other = matches!(
        from,
        ArrowType::Float32
            | ArrowType::Float64
            | ArrowType::List(_)
            | ArrowType::Struct(_)
            | ArrowType::Binary
    );
    match to {
        ArrowType::Utf8 if is_other => Ok(function().call(vec![expr])),
        ArrowType::LargeUtf8 | ArrowType::Utf8View if is_other => {
            Ok(cast(function().call(vec![expr]), to.clone()))
        }
        _ => Err(expr),
    }
}

fn function() -> ScalarUDF {
    ScalarUDF::from(TextOutput { signature: Signature::any(1, Volatility::Immutable) })
}

/// Text of a value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOutput {
    signature: Signature,
}

impl ScalarUDFImpl for TextOutput {
    fn name(&self) -> &str {
        "textout"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DFResult<ArrowType> {
        Ok(ArrowType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = matches!(arguments.args[0], ColumnarValue::Scalar(_));
        let values = arguments.args[0].to_array(if is_constant { 1 } else { arguments.number_rows })?;
        let printer = Printer::new(&values).map_err(external)?;
        let (mut texts, mut text) = (StringBuilder::new(), String::new());
        for row in 0..values.len() {
            if printer.is_null(row) {
                texts.append_null();
                continue;
            }
            text.clear();
            let failed = |error| Error::coded("22000", format!("could not format a value: {error}"));
            printer.print(row, &mut text).map_err(failed).map_err(external)?;
            texts.append_value(&text);
        }
        let texts: ArrayRef = Arc::new(texts.finish());
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
        } else {
            ColumnarValue::Array(texts)
        })
    }
}

/// Formats a double as PostgreSQL does, from its shortest digits and exponent, `1.5e-7`.
fn double(scientific: &str, value: f64, out: &mut String) -> std::fmt::Result {
    /// Exponent from which on, and below -4, digits are followed by an exponent.
    const EXPONENT_MAX: i32 = 15;
    if value.is_nan() {
        return out.write_str("NaN");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| std::fmt::Error)?;
    if (-4..EXPONENT_MAX).contains(&exponent) {
        let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
        let digits: String = digits.chars().filter(|&digit| digit != '.').collect();
        out.write_str(sign)?;
        if exponent < 0 {
            let zeros = (-exponent - 1) as usize;
            return write!(out, "0.{:0<zeros$}{digits}", "");
        }
        let whole = exponent as usize + 1;
        return if digits.len() > whole {
            write!(out, "{}.{}", &digits[..whole], &digits[whole..])
        } else {
            write!(out, "{digits:0<whole$}")
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_in_postgresql() {
        let print = |value: f64| {
            let mut out = String::new();
            double(&format!("{value:e}"), value, &mut out).unwrap();
            out
        };
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_012_3, "1.23e-05"),
            (123_456.789, "123456.789"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1e300, "1e+300"),
            (-1.5e-300, "-1.5e-300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(print(value), expected);
        }
    }
}
