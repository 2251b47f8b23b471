//! One column of a batch, ready to write its values in one format.
//!
//! The type is matched once for a batch; a row costs one branch per value.

use super::parameter::JSONB_VERSION;
use super::temporal::{EPOCH_DAYS, EPOCH_US, Interval, Zone};
use super::types::postgres_type;
use super::{Format, decimal, temporal};
use crate::error::{Outcome, Report};
use bytes::{BufMut, BytesMut};
use entresol::arrow::array::{Array, ArrayRef, AsArray};
use entresol::arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Field,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol::query::modifier_of;
use entresol::tables::Modifier;
use std::fmt::Write;

/// A value as PostgreSQL writes it, whatever Arrow type it was.
enum Value<'a> {
    Bool(bool),
    Int(i64, u8),
    Float4(f32),
    Float8(f64),
    /// Digits without a point, and the scale.
    Numeric(String, i8),
    Text(&'a str),
    Shown(String),
    Bytes(&'a [u8]),
    /// String of a binary format with a version.
    Versioned(u8, &'a [u8]),
    Date(i32),
    Time(i64),
    Timestamp(i64, bool),
    Interval(Interval),
    List(ArrayRef),
}

type ValueReader<'a> = Box<dyn Fn(usize) -> Outcome<Value<'a>> + Send + 'a>;

/// A column of a batch.
pub(crate) struct Column<'a> {
    array: &'a dyn Array,
    read: ValueReader<'a>,
    format: Format,
    zone: Zone,
}

impl<'a> Column<'a> {
    /// A column of an array; text format shows timestamps in a zone at its local time.
    pub(crate) fn new(array: &'a ArrayRef, format: Format, zone: Zone) -> Outcome<Column<'a>> {
        Ok(Column { array: array.as_ref(), read: reader(array.as_ref())?, format, zone })
    }

    /// The same for a column of a result, which may have a modifier: a CHAR is padded.
    pub(crate) fn of_field(
        field: &Field,
        array: &'a ArrayRef,
        format: Format,
        zone: Zone,
    ) -> Outcome<Column<'a>> {
        let modifier = modifier_of(field);
        match array.as_string_opt::<i32>() {
            Some(texts) if matches!(modifier, Modifier::Char(_)) => {
                let read = move |row: usize| Ok(Value::Shown(modifier.padded(texts.value(row)).into_owned()));
                Ok(Column { array: array.as_ref(), read: Box::new(read), format, zone })
            }
            Some(texts) if modifier == Modifier::Jsonb && format == Format::Binary => {
                let read = move |row: usize| {
                    let text = texts.value(row).as_bytes();
                    Ok(Value::Versioned(JSONB_VERSION, text))
                };
                Ok(Column { array: array.as_ref(), read: Box::new(read), format, zone })
            }
            _ => Column::new(array, format, zone),
        }
    }

    /// Appends length and value of a row, or NULL.
    pub(crate) fn write(&self, row: usize, out: &mut BytesMut) -> Outcome<()> {
        if self.array.is_null(row) || *self.array.data_type() == DataType::Null {
            out.put_i32(-1);
            return Ok(());
        }
        let value = (self.read)(row)?;
        let at = out.len();
        out.put_i32(0);
        match self.format {
            Format::Text => text(&value, self.zone, out)?,
            Format::Binary => binary(&value, out)?,
        }
        let Ok(length) = i32::try_from(out.len() - at - 4) else {
            return Err(Report::error("54000", "value exceeds the maximum length of the protocol"));
        };
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

macro_rules! primitive {
    ($array:expr, $of:ty, $value:ident => $result:expr) => {{
        let values = $array.as_primitive::<$of>();
        Box::new(move |row: usize| {
            let $value = values.value(row);
            Ok($result)
        })
    }};
}

/// Microseconds, if they are in range.
fn scaled(value: i64, factor: i64) -> Outcome<i64> {
    value.checked_mul(factor).ok_or_else(|| Report::error("22008", "timestamp out of range"))
}

/// The function that reads the values of an array.
fn reader<'a>(array: &'a dyn Array) -> Outcome<ValueReader<'a>> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            Box::new(move |row: usize| Ok(Value::Bool(values.value(row))))
        }
        DataType::Int8 => primitive!(array, Int8Type, v => Value::Int(i64::from(v), 2)),
        DataType::UInt8 => primitive!(array, UInt8Type, v => Value::Int(i64::from(v), 2)),
        DataType::Int16 => primitive!(array, Int16Type, v => Value::Int(i64::from(v), 2)),
        DataType::UInt16 => primitive!(array, UInt16Type, v => Value::Int(i64::from(v), 4)),
        DataType::Int32 => primitive!(array, Int32Type, v => Value::Int(i64::from(v), 4)),
        DataType::UInt32 => primitive!(array, UInt32Type, v => Value::Int(i64::from(v), 4)),
        DataType::Int64 => primitive!(array, Int64Type, v => Value::Int(v, 8)),
        DataType::UInt64 => primitive!(array, UInt64Type, v => Value::Numeric(v.to_string(), 0)),
        DataType::Float16 => primitive!(array, Float16Type, v => Value::Float4(v.to_f32())),
        DataType::Float32 => primitive!(array, Float32Type, v => Value::Float4(v)),
        DataType::Float64 => primitive!(array, Float64Type, v => Value::Float8(v)),
        &DataType::Decimal32(_, scale) => {
            primitive!(array, Decimal32Type, v => Value::Numeric(v.to_string(), scale))
        }
        &DataType::Decimal64(_, scale) => {
            primitive!(array, Decimal64Type, v => Value::Numeric(v.to_string(), scale))
        }
        &DataType::Decimal128(_, scale) => {
            primitive!(array, Decimal128Type, v => Value::Numeric(v.to_string(), scale))
        }
        &DataType::Decimal256(_, scale) => {
            primitive!(array, Decimal256Type, v => Value::Numeric(v.to_string(), scale))
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            Box::new(move |row: usize| Ok(Value::Text(values.value(row))))
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            Box::new(move |row: usize| Ok(Value::Text(values.value(row))))
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            Box::new(move |row: usize| Ok(Value::Text(values.value(row))))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            Box::new(move |row: usize| Ok(Value::Bytes(values.value(row))))
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            Box::new(move |row: usize| Ok(Value::Bytes(values.value(row))))
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            Box::new(move |row: usize| Ok(Value::Bytes(values.value(row))))
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            Box::new(move |row: usize| Ok(Value::Bytes(values.value(row))))
        }
        DataType::List(_) => {
            let values = array.as_list::<i32>();
            Box::new(move |row: usize| Ok(Value::List(values.value(row))))
        }
        DataType::LargeList(_) => {
            let values = array.as_list::<i64>();
            Box::new(move |row: usize| Ok(Value::List(values.value(row))))
        }
        DataType::FixedSizeList(..) => {
            let values = array.as_fixed_size_list();
            Box::new(move |row: usize| Ok(Value::List(values.value(row))))
        }
        DataType::Dictionary(..) => {
            let values = array.as_any_dictionary();
            let (keys, read) = (values.normalized_keys(), reader(values.values().as_ref())?);
            Box::new(move |row: usize| read(keys[row]))
        }
        _ => return temporal_reader(array),
    })
}

/// Reader of dates, times, intervals; other types are shown as Arrow shows them.
fn temporal_reader<'a>(array: &'a dyn Array) -> Outcome<ValueReader<'a>> {
    Ok(match array.data_type() {
        DataType::Date32 => primitive!(array, Date32Type, v => Value::Date(v)),
        DataType::Date64 => {
            primitive!(array, Date64Type, v => Value::Date(v.div_euclid(86_400_000) as i32))
        }
        DataType::Time32(TimeUnit::Second) => {
            primitive!(array, Time32SecondType, v => Value::Time(i64::from(v) * 1_000_000))
        }
        DataType::Time32(_) => {
            primitive!(array, Time32MillisecondType, v => Value::Time(i64::from(v) * 1_000))
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            primitive!(array, Time64NanosecondType, v => Value::Time(v / 1_000))
        }
        DataType::Time64(_) => primitive!(array, Time64MicrosecondType, v => Value::Time(v)),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.is_some();
            match unit {
                TimeUnit::Second => {
                    primitive!(array, TimestampSecondType, v => Value::Timestamp(scaled(v, 1_000_000)?, zone))
                }
                TimeUnit::Millisecond => {
                    primitive!(array, TimestampMillisecondType, v => Value::Timestamp(scaled(v, 1_000)?, zone))
                }
                TimeUnit::Microsecond => {
                    primitive!(array, TimestampMicrosecondType, v => Value::Timestamp(v, zone))
                }
                TimeUnit::Nanosecond => {
                    primitive!(array, TimestampNanosecondType, v => Value::Timestamp(v.div_euclid(1_000), zone))
                }
            }
        }
        DataType::Duration(unit) => {
            let interval = |microseconds| {
                let interval = Interval::between(microseconds);
                interval.map(Value::Interval).ok_or_else(|| Report::error("22008", "interval out of range"))
            };
            match unit {
                TimeUnit::Second => {
                    primitive!(array, DurationSecondType, v => interval(scaled(v, 1_000_000)?)?)
                }
                TimeUnit::Millisecond => {
                    primitive!(array, DurationMillisecondType, v => interval(scaled(v, 1_000)?)?)
                }
                TimeUnit::Microsecond => primitive!(array, DurationMicrosecondType, v => interval(v)?),
                TimeUnit::Nanosecond => primitive!(array, DurationNanosecondType, v => interval(v / 1_000)?),
            }
        }
        DataType::Interval(IntervalUnit::YearMonth) => primitive!(array, IntervalYearMonthType, months => {
            Value::Interval(Interval { months, days: 0, microseconds: 0 })
        }),
        DataType::Interval(IntervalUnit::DayTime) => primitive!(array, IntervalDayTimeType, v => {
            let microseconds = i64::from(v.milliseconds) * 1_000;
            Value::Interval(Interval { months: 0, days: v.days, microseconds })
        }),
        DataType::Interval(IntervalUnit::MonthDayNano) => primitive!(array, IntervalMonthDayNanoType, v => {
            Value::Interval(Interval { months: v.months, days: v.days, microseconds: v.nanoseconds / 1_000 })
        }),
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(array, &options)
                .map_err(|error| Report::error("0A000", format!("values of this type: {error}")))?;
            // The formatter borrows the options, so what it shows is computed here.
            let shown: Vec<String> = (0..array.len()).map(|row| formatter.value(row).to_string()).collect();
            Box::new(move |row: usize| Ok(Value::Shown(shown[row].clone())))
        }
    })
}

fn text(value: &Value<'_>, zone: Zone, out: &mut BytesMut) -> Outcome<()> {
    match value {
        Value::Bool(value) => out.put_u8(if *value { b't' } else { b'f' }),
        Value::Int(value, _) => {
            let _ = write!(out, "{value}");
        }
        Value::Float4(value) => float(f64::from(*value), &format!("{value:e}"), 6, out),
        Value::Float8(value) => float(*value, &format!("{value:e}"), 15, out),
        Value::Numeric(digits, scale) => decimal::text(digits, *scale, out),
        Value::Text(text) => out.put_slice(text.as_bytes()),
        Value::Shown(text) => out.put_slice(text.as_bytes()),
        Value::Versioned(_, text) => out.put_slice(text),
        Value::Bytes(bytes) => {
            out.put_slice(b"\\x");
            bytes.iter().for_each(|byte| {
                let _ = write!(out, "{byte:02x}");
            });
        }
        Value::Date(days) => temporal::date(*days, out),
        Value::Time(microseconds) => temporal::time(*microseconds, out),
        Value::Timestamp(microseconds, is_zoned) => {
            temporal::timestamp(*microseconds, is_zoned.then_some(zone), out);
        }
        Value::Interval(interval) => interval.text(out),
        Value::List(array) => list_text(array, zone, out)?,
    }
    Ok(())
}

/// The shortest digits that are this number and no other, with an exponent where PostgreSQL writes one.
fn float(value: f64, scientific: &str, digits_max: i32, out: &mut BytesMut) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..digits_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    // Digits behind the point once the exponent is applied.
    let scale = digits.len() as i32 - 1 - exponent;
    out.put_slice(sign.as_bytes());
    // At most 15 + 4 digits, so it fits.
    decimal::text(&digits, scale as i8, out);
}

fn list_text(array: &ArrayRef, zone: Zone, out: &mut BytesMut) -> Outcome<()> {
    let read = reader(array.as_ref())?;
    out.put_u8(b'{');
    let mut element = BytesMut::new();
    for row in 0..array.len() {
        if row > 0 {
            out.put_u8(b',');
        }
        if array.is_null(row) || *array.data_type() == DataType::Null {
            out.put_slice(b"NULL");
            continue;
        }
        let value = read(row)?;
        element.clear();
        text(&value, zone, &mut element)?;
        if needs_quotes(&element) && !matches!(value, Value::List(_)) {
            out.put_u8(b'"');
            for &byte in &element {
                if matches!(byte, b'"' | b'\\') {
                    out.put_u8(b'\\');
                }
                out.put_u8(byte);
            }
            out.put_u8(b'"');
        } else {
            out.put_slice(&element)
        }
    }
    out.put_u8(b'}');
    Ok(())
}

fn needs_quotes(element: &[u8]) -> bool {
    element.is_empty()
        || element.eq_ignore_ascii_case(b"null")
        || element.iter().any(|byte| b"{},\"\\ \t\n\r\x0b\x0c".contains(byte))
}

fn binary(value: &Value<'_>, out: &mut BytesMut) -> Outcome<()> {
    match value {
        Value::Bool(value) => out.put_u8(u8::from(*value)),
        // Each fits the width of its type.
        Value::Int(value, 2) => out.put_i16(*value as i16),
        // An oid has no sign: its bits are the same.
        Value::Int(value, 4) => out.put_i32(*value as i32),
        Value::Int(value, _) => out.put_i64(*value),
        Value::Float4(value) => out.put_f32(*value),
        Value::Float8(value) => out.put_f64(*value),
        Value::Numeric(digits, scale) => decimal::binary(digits, *scale, out),
        Value::Text(text) => out.put_slice(text.as_bytes()),
        Value::Shown(text) => out.put_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.put_slice(bytes),
        Value::Versioned(version, text) => {
            out.put_u8(*version);
            out.put_slice(text);
        }
        Value::Date(days) => {
            let days = days.checked_sub(EPOCH_DAYS);
            out.put_i32(days.ok_or_else(|| Report::error("22008", "date out of range"))?);
        }
        Value::Time(microseconds) => out.put_i64(*microseconds),
        Value::Timestamp(microseconds, _) => {
            let from_epoch = microseconds.checked_sub(EPOCH_US);
            out.put_i64(from_epoch.ok_or_else(|| Report::error("22008", "timestamp out of range"))?);
        }
        Value::Interval(interval) => {
            out.put_i64(interval.microseconds);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        Value::List(array) => list_binary(array, out)?,
    }
    Ok(())
}

fn list_binary(array: &ArrayRef, out: &mut BytesMut) -> Outcome<()> {
    if matches!(array.data_type(), DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) {
        return Err(Report::error("0A000", "lists of lists are not supported in binary format"));
    }
    let column = Column::new(array, Format::Binary, Zone::default())?;
    out.put_i32(i32::from(!array.is_empty()));
    out.put_i32(i32::from(array.null_count() > 0));
    out.put_u32(postgres_type(array.data_type()).oid());
    if !array.is_empty() {
        out.put_i32(array.len() as i32);
        out.put_i32(1);
    }
    (0..array.len()).try_for_each(|row| column.write(row, out))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use entresol::arrow::array::{Float32Array, Float64Array, Int32Array, ListArray, StringArray};
    use std::sync::Arc;

    fn shown(array: ArrayRef) -> Vec<String> {
        let column = Column::new(&array, Format::Text, Zone::default()).unwrap();
        let cell = |row| {
            let mut out = BytesMut::new();
            column.write(row, &mut out).unwrap();
            String::from_utf8(out[4..].to_vec()).unwrap()
        };
        (0..array.len()).map(cell).collect()
    }

    #[test]
    fn floats_read_as_postgresql_writes_them() {
        let doubles =
            [1.0, 0.1, -2.5, 1e15, 1e14, 1.5e-5, 0.0001, 123456789.125, -0.0, f64::NAN, f64::INFINITY];
        assert_eq!(
            shown(Arc::new(Float64Array::from(doubles.to_vec()))),
            [
                "1",
                "0.1",
                "-2.5",
                "1e+15",
                "100000000000000",
                "1.5e-05",
                "0.0001",
                "123456789.125",
                "-0",
                "NaN",
                "Infinity"
            ]
        );
        assert_eq!(shown(Arc::new(Float32Array::from(vec![0.1, 1e6, 123456.0]))), ["0.1", "1e+06", "123456"]);
    }

    #[test]
    fn lists_are_array_literals() {
        let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            Some(vec![]),
        ]);
        assert_eq!(shown(Arc::new(numbers)), ["{1,NULL,3}", "{}"]);
        let texts = StringArray::from(vec!["plain", "a,b", "q\"\\", "", "null"]);
        let mut out = BytesMut::new();
        list_text(&(Arc::new(texts) as ArrayRef), Zone::default(), &mut out).unwrap();
        assert_eq!(&out[..], br#"{plain,"a,b","q\"\\","","null"}"#);
    }

    #[test]
    fn arrays_in_binary_have_their_header() {
        let mut out = BytesMut::new();
        list_binary(&(Arc::new(Int32Array::from(vec![Some(7), None])) as ArrayRef), &mut out).unwrap();
        let expected = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7];
        assert_eq!(out[..28], expected);
        assert_eq!(out[28..], [255; 4]);
    }
}
