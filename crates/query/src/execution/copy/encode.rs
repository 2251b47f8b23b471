//! COPY output: batches of rows into lines, the inverse of [`super::decode`].
//!
//! Values are formatted as in PostgreSQL: booleans `t` and `f`, doubles with the fewest digits that read back
//! as the same, dates `2024-12-31`, timestamps `2024-12-31 23:59:59.5`. Types that tables do not have are
//! formatted as by Arrow.

use super::CopyLines;
use crate::error::{Error, Result};
use crate::parser::own::copy_options::{Format, Options};
use crate::postgres::time_zones::Zone;
use crate::postgres::types::displayed;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol_tables::{calendar, decimal};
use std::fmt::Write;

/// Maximum characters of a value in a message.
const VALUE_CHARS_MAX: usize = 100;

/// Appends the header line with the names of the columns.
pub(super) fn header(options: &Options, schema: &Schema, lines: &mut CopyLines) -> Result<()> {
    let out = &mut lines.bytes;
    let single = schema.fields().len() == 1;
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            out.push(options.delimiter);
        }
        value(options, field.name(), single, out)?;
    }
    end_line(options, lines);
    Ok(())
}

/// Appends the lines of a batch.
pub(super) fn lines(options: &Options, batch: &RecordBatch, lines: &mut CopyLines) -> Result<()> {
    let batch = displayed(batch);
    let printers: Vec<Printer<'_>> = batch.columns().iter().map(Printer::new).collect::<Result<_>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        let out = &mut lines.bytes;
        for (at, printer) in printers.iter().enumerate() {
            if at > 0 {
                out.push(options.delimiter);
            }
            if printer.is_null(row) {
                out.extend_from_slice(options.null.as_bytes());
                continue;
            }
            text.clear();
            printer
                .print(row, &mut text)
                .map_err(|error| Error::coded("22000", format!("could not format a value: {error}")))?;
            value(options, &text, printers.len() == 1, out)?;
        }
        end_line(options, lines);
    }
    Ok(())
}

fn end_line(options: &Options, lines: &mut CopyLines) {
    if options.format == Format::Tbl {
        lines.bytes.push(options.delimiter);
    }
    lines.end_line();
}

/// Appends a value that is not NULL. If it is `single` on its line it must not look like the end of the data.
fn value(options: &Options, text: &str, single: bool, out: &mut Vec<u8>) -> Result<()> {
    match options.format {
        Format::Text => escape(text, options.delimiter, out),
        Format::Tbl => {
            let special = |byte: u8| byte == options.delimiter || byte == b'\n';
            if text == options.null || text.bytes().any(special) {
                return Err(no_tbl_value(options, text));
            }
            out.extend_from_slice(text.as_bytes());
        }
        Format::Csv { quote, escape } => {
            let special =
                |byte: u8| byte == options.delimiter || byte == quote || matches!(byte, b'\n' | b'\r');
            let needs_quotes = text == options.null || text.bytes().any(special) || (single && text == "\\.");
            if !needs_quotes {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            out.push(quote);
            for byte in text.bytes() {
                if byte == quote || byte == escape {
                    out.push(escape);
                }
                out.push(byte);
            }
            out.push(quote);
        }
    }
    Ok(())
}

/// Error for a value that a line without quotes and escapes cannot have.
fn no_tbl_value(options: &Options, text: &str) -> Error {
    let shown: String = text.chars().take(VALUE_CHARS_MAX).collect();
    let (delimiter, null) = (char::from(options.delimiter), &options.null);
    Error::coded(
        "22P04",
        format!(
            "COPY with FORMAT tbl cannot write the value \"{shown}\": delimiter '{delimiter}', ends of lines and the \
             null string '{null}' have no escapes there; use FORMAT csv"
        ),
    )
}

fn escape(text: &str, delimiter: u8, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        let escaped = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

/// Formatter for the values of one column.
struct Printer<'a> {
    array: &'a ArrayRef,
    /// Arrow's formatter, for types that tables do not have.
    other: Option<ArrayFormatter<'a>>,
    /// Time zone of `timestamptz` values.
    zone: Option<Zone>,
}

impl<'a> Printer<'a> {
    fn new(array: &'a ArrayRef) -> Result<Printer<'a>> {
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
        ) || matches!(array.data_type(), ArrowType::Decimal128(_, scale) if *scale >= 0);
        const OPTIONS: FormatOptions<'static> = FormatOptions::new()
            .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
            .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
        let other = if known { None } else { Some(ArrayFormatter::try_new(array, &OPTIONS)?) };
        let zone = match array.data_type() {
            ArrowType::Timestamp(_, Some(zone)) => Some(Zone::new(zone)?),
            _ => None,
        };
        Ok(Printer { array, other, zone })
    }

    fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row) || *self.array.data_type() == ArrowType::Null
    }

    fn print(&self, row: usize, out: &mut String) -> std::fmt::Result {
        let array = self.array;
        if let Some(other) = &self.other {
            return write!(out, "{}", other.value(row));
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
            _ => out.write_str(array.as_string::<i32>().value(row)),
        }
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
