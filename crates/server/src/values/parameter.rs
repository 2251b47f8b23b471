//! Values of parameters: from text or binary to a scalar of the type that the plan wants.
//!
//! A value is read as the type that the client declared, or was told; then cast to the plan's type.

use super::temporal::{DAY_US, EPOCH_DAYS, EPOCH_US};
use super::{Format, decimal, list};
use crate::error::{Outcome, Report};
use bytes::Bytes;
use entresol::arrow::datatypes::{DataType, IntervalMonthDayNano};
use entresol::query::datafusion::common::ScalarValue;
use entresol::query::parse_instant;
use entresol::tables::calendar::{parse_timestamp, without_zone};
use entresol::tables::{Interval, IntervalError};
use pgwire::api::Type;

/// Version of the binary format of JSONB: its string stands behind it.
pub(crate) const JSONB_VERSION: u8 = 1;

/// Reads a value. `oid` is the type known to the client, `wanted` that of the plan. Strings of timestamps
/// without a zone have this one.
pub(crate) fn read(
    value: Option<&Bytes>,
    format: Format,
    oid: u32,
    wanted: &DataType,
    zone: &str,
) -> Outcome<ScalarValue> {
    let Some(bytes) = value else {
        return ScalarValue::try_from(wanted).map_err(|_| unsupported(wanted));
    };
    let of = Type::from_oid(oid).unwrap_or(Type::TEXT);
    if let DataType::List(element) = wanted {
        return list::read(bytes, format, &of, element.data_type(), zone);
    }
    let scalar = match format {
        Format::Text => from_text(utf8(bytes)?, &of, wanted, zone)?,
        Format::Binary => from_binary(bytes, &of)?,
    };
    cast(scalar, wanted)
}

pub(super) fn utf8(bytes: &Bytes) -> Outcome<&str> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Report::error("22021", "invalid byte sequence for encoding \"UTF8\""))?;
    if text.contains('\0') { Err(zero_byte()) } else { Ok(text) }
}

fn zero_byte() -> Report {
    Report::error("22021", "invalid byte sequence for encoding \"UTF8\": 0x00")
}

fn unsupported(wanted: &DataType) -> Report {
    Report::error("0A000", format!("parameters of type {wanted} are not supported"))
}

/// Casts a value; a decimal keeps digits beyond the wanted scale.
fn cast(scalar: ScalarValue, wanted: &DataType) -> Outcome<ScalarValue> {
    if scalar.data_type() == *wanted {
        return Ok(scalar);
    }
    if let (ScalarValue::Decimal128(Some(value), _, scale), DataType::Decimal128(precision, to)) =
        (&scalar, wanted)
    {
        return Ok(match rescaled(*value, *scale, *to, *precision) {
            Some(value) => ScalarValue::Decimal128(Some(value), *precision, *to),
            // The comparison or assignment decides about the other digits.
            None => scalar,
        });
    }
    if let (Some(Some(text)), DataType::Interval(_)) = (scalar.try_as_str(), wanted) {
        return interval_of(text);
    }
    let shown = scalar.to_string();
    let cast = scalar.cast_to(wanted).map_err(|_| invalid(&name(wanted), &shown))?;
    // Bytes may be cast to a string, which has no zeros.
    match cast.try_as_str() {
        Some(Some(text)) if text.contains('\0') => Err(zero_byte()),
        _ => Ok(cast),
    }
}

/// The same number with another scale, if that loses nothing.
fn rescaled(value: i128, scale: i8, to: i8, precision: u8) -> Option<i128> {
    let factor = 10i128.checked_pow(u32::from(to.abs_diff(scale)))?;
    let value = if to >= scale {
        value.checked_mul(factor)?
    } else if value % factor == 0 {
        value / factor
    } else {
        return None;
    };
    (value.unsigned_abs() < 10u128.checked_pow(u32::from(precision))?).then_some(value)
}

fn name(of: &DataType) -> String {
    super::types::postgres_type(of).name().to_owned()
}

/// Type names of PostgreSQL's messages.
fn long_name(of: &Type) -> &str {
    match *of {
        Type::INT2 => "smallint",
        Type::INT4 => "integer",
        Type::INT8 => "bigint",
        Type::FLOAT4 => "real",
        Type::FLOAT8 => "double precision",
        Type::BOOL => "boolean",
        _ => of.name(),
    }
}

fn invalid(of: &str, text: &str) -> Report {
    Report::error("22P02", format!("invalid input syntax for type {of}: \"{text}\""))
}

fn from_text(text: &str, of: &Type, wanted: &DataType, zone: &str) -> Outcome<ScalarValue> {
    let refuse = || invalid(long_name(of), text);
    let trimmed = text.trim();
    Ok(match *of {
        Type::BOOL => ScalarValue::from(boolean(trimmed).ok_or_else(refuse)?),
        Type::INT2 => {
            ScalarValue::Int16(Some(integer(trimmed, of, i16::MIN.into(), i16::MAX.into())? as i16))
        }
        Type::INT4 => {
            ScalarValue::Int32(Some(integer(trimmed, of, i32::MIN.into(), i32::MAX.into())? as i32))
        }
        Type::INT8 | Type::OID => ScalarValue::Int64(Some(integer(trimmed, of, i64::MIN, i64::MAX)?)),
        Type::FLOAT4 => ScalarValue::Float32(Some(trimmed.parse().map_err(|_| refuse())?)),
        Type::FLOAT8 => ScalarValue::Float64(Some(trimmed.parse().map_err(|_| refuse())?)),
        Type::NUMERIC => numeric(decimal::from_text(trimmed).ok_or_else(refuse)?),
        Type::BYTEA => ScalarValue::Binary(Some(bytea(text).ok_or_else(refuse)?)),
        // A zone is ignored: a client in Berlin sends its own time, and its zone besides.
        Type::TIMESTAMP if let Some(micros) = parse_timestamp(trimmed) => {
            ScalarValue::TimestampMicrosecond(Some(micros), None)
        }
        Type::TIMESTAMPTZ if let Some(micros) = parse_instant(trimmed, zone) => {
            ScalarValue::TimestampMicrosecond(Some(micros), Some(zone.into()))
        }
        Type::INTERVAL => interval_of(text)?,
        Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let as_type = super::types::arrow_type(of.oid(), zone).unwrap_or(DataType::Utf8);
            let trimmed = if *of == Type::TIMESTAMP { without_zone(trimmed) } else { trimmed };
            let parsed = ScalarValue::from(trimmed).cast_to(&as_type);
            parsed.map_err(|_| Report { code: "22007", ..refuse() })?
        }
        _ if matches!(wanted, DataType::LargeUtf8) => ScalarValue::LargeUtf8(Some(text.to_owned())),
        _ => ScalarValue::from(text),
    })
}

fn interval_of(text: &str) -> Outcome<ScalarValue> {
    match Interval::parse(text) {
        Ok(interval) => Ok(ScalarValue::IntervalMonthDayNano(Some(interval.to_arrow()))),
        Err(IntervalError::Syntax) => Err(Report { code: "22007", ..invalid("interval", text) }),
        Err(IntervalError::OutOfRange) => {
            Err(Report::error("22015", format!("interval field value out of range: \"{text}\"")))
        }
    }
}

fn boolean(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(text.as_str());
    if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

fn integer(text: &str, of: &Type, least: i64, most: i64) -> Outcome<i64> {
    let out_of_range =
        || Report::error("22003", format!("value \"{text}\" is out of range for type {}", long_name(of)));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text.parse::<i64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Ok(_) => Err(out_of_range()),
        Err(_) if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(out_of_range())
        }
        Err(_) => Err(invalid(long_name(of), text)),
    }
}

fn numeric((value, scale): decimal::Decimal) -> ScalarValue {
    ScalarValue::Decimal128(Some(value), decimal::DIGITS_MAX, scale)
}

/// `\x` and hexadecimal digits, or PostgreSQL's older escapes.
fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Option<Vec<u8>> =
            digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits?;
        return (digits.len() % 2 == 0)
            .then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let first;
        (first, rest) = match (byte, tail) {
            (b'\\', [b'\\', tail @ ..]) => (b'\\', tail),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            (b'\\', _) => return None,
            (byte, tail) => (byte, tail),
        };
        bytes.push(first);
    }
    Some(bytes)
}

fn from_binary(bytes: &Bytes, of: &Type) -> Outcome<ScalarValue> {
    let refuse = || {
        let text = format!("incorrect binary data format for a value of type {}", long_name(of));
        Report::error("22P03", text)
    };
    Ok(match *of {
        Type::BOOL => match bytes[..] {
            [byte] => ScalarValue::from(byte != 0),
            _ => return Err(refuse()),
        },
        Type::INT2 => ScalarValue::Int16(Some(i16::from_be_bytes(fixed(bytes).ok_or_else(refuse)?))),
        Type::INT4 => ScalarValue::Int32(Some(i32::from_be_bytes(fixed(bytes).ok_or_else(refuse)?))),
        Type::INT8 => ScalarValue::Int64(Some(i64::from_be_bytes(fixed(bytes).ok_or_else(refuse)?))),
        Type::OID => ScalarValue::Int64(Some(u32::from_be_bytes(fixed(bytes).ok_or_else(refuse)?).into())),
        Type::FLOAT4 => ScalarValue::Float32(Some(f32::from_be_bytes(fixed(bytes).ok_or_else(refuse)?))),
        Type::FLOAT8 => ScalarValue::Float64(Some(f64::from_be_bytes(fixed(bytes).ok_or_else(refuse)?))),
        Type::NUMERIC => numeric(decimal::from_binary(bytes).ok_or_else(refuse)?),
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::DATE => {
            let days = i32::from_be_bytes(fixed(bytes).ok_or_else(refuse)?).checked_add(EPOCH_DAYS);
            ScalarValue::Date32(Some(days.ok_or_else(refuse)?))
        }
        Type::TIME => {
            let time = i64::from_be_bytes(fixed(bytes).ok_or_else(refuse)?);
            let of_day = (0..DAY_US).contains(&time).then_some(time);
            ScalarValue::Time64Microsecond(Some(
                of_day.ok_or_else(|| Report::error("22008", "time out of range"))?,
            ))
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let value = i64::from_be_bytes(fixed(bytes).ok_or_else(refuse)?).checked_add(EPOCH_US);
            let zone = (*of == Type::TIMESTAMPTZ).then(|| "+00:00".into());
            ScalarValue::TimestampMicrosecond(Some(value.ok_or_else(refuse)?), zone)
        }
        Type::INTERVAL => interval(bytes).ok_or_else(refuse)?,
        Type::JSONB => match bytes.first() {
            Some(&JSONB_VERSION) => ScalarValue::from(utf8(&bytes.slice(1..))?),
            _ => return Err(refuse()),
        },
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::JSON => {
            ScalarValue::from(utf8(bytes)?)
        }
        _ => return Err(Report::error("0A000", format!("binary parameters of type {of} are not supported"))),
    })
}

fn fixed<const N: usize>(bytes: &Bytes) -> Option<[u8; N]> {
    bytes[..].try_into().ok()
}

fn interval(bytes: &Bytes) -> Option<ScalarValue> {
    let bytes: [u8; 16] = fixed(bytes)?;
    let microseconds = i64::from_be_bytes(*bytes.first_chunk()?);
    let days = i32::from_be_bytes(*bytes[8..].first_chunk()?);
    let months = i32::from_be_bytes(*bytes[12..].first_chunk()?);
    let value = IntervalMonthDayNano::new(months, days, microseconds.checked_mul(1_000)?);
    Some(ScalarValue::IntervalMonthDayNano(Some(value)))
}

/// The type that a client is told of a parameter, if it did not declare one itself.
pub(crate) fn described(declared: u32, wanted: &DataType) -> u32 {
    match declared {
        0 => super::types::postgres_type(wanted).oid(),
        // `unknown` is reported as the inferred type.
        705 => super::types::postgres_type(wanted).oid(),
        declared => declared,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::values::temporal::UTC;

    fn text(value: &str, of: Type, wanted: &DataType) -> Outcome<ScalarValue> {
        read(Some(&Bytes::copy_from_slice(value.as_bytes())), Format::Text, of.oid(), wanted, UTC)
    }

    #[test]
    fn text_is_read_as_its_type() {
        let number = |text_value| text(text_value, Type::INT4, &DataType::Int32);
        assert_eq!(number(" -7 "), Ok(ScalarValue::Int32(Some(-7))));
        assert_eq!(number("x").unwrap_err().code, "22P02");
        assert_eq!(number("99999999999").unwrap_err().code, "22003");
        assert_eq!(text("t", Type::BOOL, &DataType::Boolean), Ok(ScalarValue::from(true)));
        assert_eq!(text("of", Type::BOOL, &DataType::Boolean), Ok(ScalarValue::from(false)));
        let date = text("2024-02-29", Type::DATE, &DataType::Date32);
        assert_eq!(date, Ok(ScalarValue::Date32(Some(19_782))));
        let stamp = DataType::Timestamp(entresol::arrow::datatypes::TimeUnit::Microsecond, None);
        let at = |zone: &str| text(&format!("2024-01-01 12:30:00{zone}"), Type::TIMESTAMP, &stamp);
        assert_eq!(at("+02"), at(""));
        assert_eq!(text("2024-01-01 12:30", Type::TIMESTAMP, &stamp), at(""));
        assert_eq!(text("2024-01-01 12:30:00.1234567", Type::TIMESTAMP, &stamp), at(".123456"));
        let instant =
            DataType::Timestamp(entresol::arrow::datatypes::TimeUnit::Microsecond, Some(UTC.into()));
        let noon = text("2024-01-01 12:00:00Z", Type::TIMESTAMPTZ, &instant);
        for same in ["2024-01-01 12:00", " 2024-01-01T14:00+02 ", "2024-01-01 13:00:00 Europe/Berlin"] {
            assert_eq!(text(same, Type::TIMESTAMPTZ, &instant), noon, "{same}");
        }
        assert_eq!(text("noon", Type::TIMESTAMPTZ, &instant).unwrap_err().code, "22007");
        let interval = DataType::Interval(entresol::arrow::datatypes::IntervalUnit::MonthDayNano);
        let span =
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 3, 14_706_000_000_000)));
        assert_eq!(text("3 4:05:06", Type::INTERVAL, &interval), Ok(span.clone()));
        assert_eq!(text("P3DT4H5M6S", Type::TEXT, &interval), Ok(span));
        assert_eq!(text("3 moons", Type::INTERVAL, &interval).unwrap_err().code, "22007");
        assert_eq!(text("soon", Type::DATE, &DataType::Date32).unwrap_err().code, "22007");
        let bytes = text("\\x00fF", Type::BYTEA, &DataType::Binary);
        assert_eq!(bytes, Ok(ScalarValue::Binary(Some(vec![0, 255]))));
        assert_eq!(bytea("a\\\\b\\001"), Some(b"a\\b\x01".to_vec()));
        assert_eq!(text("\\x6100", Type::BYTEA, &DataType::Utf8).unwrap_err().code, "22021");
    }

    #[test]
    fn decimals_keep_their_digits() {
        let wanted = DataType::Decimal128(10, 2);
        assert_eq!(text("1.5", Type::NUMERIC, &wanted), Ok(ScalarValue::Decimal128(Some(150), 10, 2)));
        assert_eq!(text("1.505", Type::NUMERIC, &wanted), Ok(ScalarValue::Decimal128(Some(1505), 38, 3)));
    }

    #[test]
    fn binary_of_the_wrong_length_is_refused() {
        for of in [Type::BOOL, Type::INT4, Type::INT8, Type::DATE, Type::NUMERIC, Type::INTERVAL] {
            let read =
                read(Some(&Bytes::from_static(b"abc")), Format::Binary, of.oid(), &DataType::Utf8, UTC);
            assert_eq!(read.unwrap_err().code, "22P03");
        }
        let time = DataType::Time64(entresol::arrow::datatypes::TimeUnit::Microsecond);
        let time = |value: i64| {
            let bytes = Bytes::copy_from_slice(&value.to_be_bytes());
            read(Some(&bytes), Format::Binary, Type::TIME.oid(), &time, UTC)
        };
        assert_eq!(time(DAY_US - 1), Ok(ScalarValue::Time64Microsecond(Some(DAY_US - 1))));
        assert_eq!(time(-1).unwrap_err().code, "22008");
        assert_eq!(time(DAY_US).unwrap_err().code, "22008");
        let null = read(None, Format::Binary, Type::INT4.oid(), &DataType::Int32, UTC);
        assert_eq!(null, Ok(ScalarValue::Int32(None)));
    }
}
