//! PostgreSQL functions that DataFusion lacks: `md5`, `encode`, `decode`, `pg_typeof`, `age`,
//! `clock_timestamp`, and the input function of `bytea`.
//!
//! | function | result |
//! | --- | --- |
//! | `md5(text or bytea)` | 32 hexadecimal digits |
//! | `encode(bytea, format)`, `decode(text, format)` | hex, base64 (in lines of 76 characters), escape |
//! | `byteain(text or bytea)` | what a cast to `bytea` gives: `\x` and hexadecimal digits, or the escape format |
//! | `pg_typeof(any)` | the name of the type; a quoted literal is `text` here, `unknown` in PostgreSQL |
//! | `age(later, earlier)` | years, months, days and time between, field by field |
//! | `clock_utc()` | the time now, another in each row; `clock_timestamp()` is a cast of it to the session's zone |

use crate::error::{Error, external};
use crate::postgres::time_zones::{UTC, Zone};
use crate::postgres::type_names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{
    Array, AsArray, BinaryArray, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

/// Function to whose result `clock_timestamp()` is a cast.
pub(crate) const CLOCK: &str = "clock_utc";
/// Function that takes the place of a cast to `bytea`.
pub(crate) const BYTEA_IN: &str = "byteain";
/// Characters of a line of base64.
const LINE_CHARS: usize = 76;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FunctionName {
    Md5,
    Encode,
    Decode,
    Bytea,
    TypeOf,
    Age,
    Clock,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: FunctionName,
    signature: Signature,
}

/// All functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let of = |kind, signature| ScalarUDF::from(Function { kind, signature });
    let immutable = || Signature::user_defined(Volatility::Immutable);
    vec![
        of(FunctionName::Md5, immutable()),
        of(FunctionName::Encode, immutable()),
        of(FunctionName::Decode, immutable()),
        of(FunctionName::Bytea, immutable()),
        of(FunctionName::TypeOf, Signature::any(1, Volatility::Immutable)),
        of(FunctionName::Age, immutable()),
        of(FunctionName::Clock, Signature::nullary(Volatility::Volatile)),
    ]
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            FunctionName::Md5 => "md5",
            FunctionName::Encode => "encode",
            FunctionName::Decode => "decode",
            FunctionName::Bytea => BYTEA_IN,
            FunctionName::TypeOf => "pg_typeof",
            FunctionName::Age => "age",
            FunctionName::Clock => CLOCK,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let bytes = |of: &DataType| match of {
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Some(DataType::Binary),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                Some(DataType::Utf8)
            }
            _ => None,
        };
        let instant = |of: &DataType| match of {
            DataType::Timestamp(_, zone) => Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
            DataType::Date32 | DataType::Date64 | DataType::Utf8 | DataType::Null => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, None))
            }
            _ => None,
        };
        let found = match (self.kind, arguments) {
            (FunctionName::Md5 | FunctionName::Bytea, [of]) => bytes(of).map(|of| vec![of]),
            (FunctionName::Encode, [of, _]) => bytes(of).map(|of| vec![of, DataType::Utf8]),
            (FunctionName::Decode, [_, _]) => Some(vec![DataType::Utf8, DataType::Utf8]),
            (FunctionName::Age, [later, earlier]) => {
                instant(later).zip(instant(earlier)).map(|(a, b)| vec![a, b])
            }
            _ => None,
        };
        found.ok_or_else(|| type_names::no_function(self.name(), arguments))
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.kind {
            FunctionName::Md5 | FunctionName::Encode | FunctionName::TypeOf => DataType::Utf8,
            FunctionName::Decode | FunctionName::Bytea => DataType::Binary,
            FunctionName::Age => DataType::Interval(IntervalUnit::MonthDayNano),
            FunctionName::Clock => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        match self.kind {
            FunctionName::Clock => return Ok(clock(rows)),
            FunctionName::TypeOf => {
                let name = arguments.arg_fields.first().map(|field| type_names::of_field(field));
                return Ok(ColumnarValue::Scalar(name.into()));
            }
            _ => {}
        }
        let arrays: Vec<_> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let (Some(first), second) = (arrays.first(), arrays.get(1)) else {
            return internal_err!("{} expects arguments", self.name());
        };
        let is_null = |row: usize| first.is_null(row) || second.is_some_and(|second| second.is_null(row));
        let bytes = |row: usize| bytes_of(first.as_ref(), row);
        let format = |row: usize| second.map_or("", |second| second.as_string::<i32>().value(row));
        let array: Arc<dyn Array> = match (self.kind, second) {
            (FunctionName::Md5, _) => {
                let digest = |row| (!is_null(row)).then(|| format!("{:x}", md5::compute(bytes(row))));
                Arc::new((0..rows).map(digest).collect::<StringArray>())
            }
            (FunctionName::Encode, _) => {
                let encoded = (0..rows)
                    .map(|row| {
                        let encoded = || encode(&bytea(first.as_ref(), row)?, format(row));
                        (!is_null(row)).then(encoded).transpose()
                    })
                    .collect::<DFResult<StringArray>>();
                Arc::new(encoded?)
            }
            (FunctionName::Bytea, _) => {
                let parsed: DFResult<Vec<Option<Cow<[u8]>>>> = (0..rows)
                    .map(|row| (!is_null(row)).then(|| bytea(first.as_ref(), row)).transpose())
                    .collect();
                Arc::new(BinaryArray::from_iter(parsed?))
            }
            (FunctionName::Decode, _) => {
                let texts = first.as_string::<i32>();
                let decoded: DFResult<Vec<Option<Vec<u8>>>> = (0..rows)
                    .map(|row| (!is_null(row)).then(|| decode(texts.value(row), format(row))).transpose())
                    .collect();
                Arc::new(BinaryArray::from_iter(decoded?))
            }
            (FunctionName::Age, Some(second)) => {
                let ages = (0..rows)
                    .map(|row| {
                        let of = |array: &dyn Array| wall(array, row);
                        (!is_null(row)).then(|| age(of(first.as_ref())?, of(second.as_ref())?)).transpose()
                    })
                    .collect::<DFResult<IntervalMonthDayNanoArray>>();
                Arc::new(ages?)
            }
            _ => return internal_err!("{} expects two arguments", self.name()),
        };
        Ok(ColumnarValue::Array(array))
    }
}

fn bytes_of(array: &dyn Array, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(row),
        _ => array.as_string::<i32>().value(row).as_bytes(),
    }
}

/// Bytes in a row; a string is parsed as PostgreSQL's input of `bytea`.
pub(crate) fn bytea(array: &dyn Array, row: usize) -> DFResult<Cow<'_, [u8]>> {
    let text = match array.data_type() {
        DataType::Binary => return Ok(Cow::Borrowed(array.as_binary::<i32>().value(row))),
        _ => array.as_string::<i32>().value(row),
    };
    match text.strip_prefix("\\x") {
        Some(digits) => decode(digits, "hex"),
        None => decode(text, "escape"),
    }
    .map(Cow::Owned)
}

fn clock(rows: usize) -> ColumnarValue {
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    };
    let times: TimestampMicrosecondArray = (0..rows).map(|_| Some(now())).collect();
    ColumnarValue::Array(Arc::new(times.with_timezone(UTC)))
}

fn encode(bytes: &[u8], format: &str) -> DFResult<String> {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len() * 2);
    match format.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().for_each(|byte| {
            // Writing to a `String` does not fail.
            let _ = write!(out, "{byte:02x}");
        }),
        "base64" => {
            let text = STANDARD.encode(bytes);
            let lines: Vec<&str> = (0..text.len())
                .step_by(LINE_CHARS)
                .map(|at| &text[at..text.len().min(at + LINE_CHARS)])
                .collect();
            out = lines.join("\n");
        }
        "escape" => bytes.iter().for_each(|&byte| {
            let _ = match byte {
                b'\\' => out.write_str("\\\\"),
                0 | 0x80.. => write!(out, "\\{byte:03o}"),
                byte => out.write_char(char::from(byte)),
            };
        }),
        _ => return Err(unknown(format)),
    }
    Ok(out)
}

fn unknown(format: &str) -> datafusion::error::DataFusionError {
    external(Error::coded("22023", format!("unrecognized encoding: \"{format}\"")))
}

fn decode(text: &str, format: &str) -> DFResult<Vec<u8>> {
    let wrong = |what: &str| external(Error::coded("22023", format!("invalid {what} sequence: \"{text}\"")));
    match format.to_ascii_lowercase().as_str() {
        "hex" => {
            let digits: Option<Vec<u32>> =
                text.chars().filter(|c| !c.is_ascii_whitespace()).map(|c| c.to_digit(16)).collect();
            let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(|| wrong("hexadecimal"))?;
            Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
        }
        "base64" => {
            let packed: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            STANDARD.decode(packed).map_err(|_| wrong("base64"))
        }
        "escape" => unescape(text).ok_or_else(|| {
            external(Error::coded("22P02", format!("invalid input syntax for type bytea: \"{text}\"")))
        }),
        _ => Err(unknown(format)),
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let (value, next) = match (byte, tail) {
            (b'\\', [b'\\', next @ ..]) => (b'\\', next),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', next @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), next)
            }
            (b'\\', _) => return None,
            (byte, next) => (byte, next),
        };
        bytes.push(value);
        rest = next;
    }
    Some(bytes)
}

/// Local time in a row.
fn wall(array: &dyn Array, row: usize) -> DFResult<NaiveDateTime> {
    let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
    let wall = match array.data_type() {
        DataType::Timestamp(_, Some(zone)) => Zone::new(zone).map_err(external)?.wall(micros),
        _ => Some(micros),
    };
    let time = wall.and_then(DateTime::from_timestamp_micros).map(|time| time.naive_utc());
    time.ok_or_else(|| external(Error::coded("22008", "timestamp out of range")))
}

/// Difference of two local times, field by field; days are borrowed from the month of the earlier.
fn age(later: NaiveDateTime, earlier: NaiveDateTime) -> DFResult<IntervalMonthDayNano> {
    if later < earlier {
        let age = age(earlier, later)?;
        return Ok(IntervalMonthDayNano::new(-age.months, -age.days, -age.nanoseconds));
    }
    let of_day = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond())
    };
    let months_of = |time: NaiveDateTime| time.year() * 12 + time.month0().cast_signed();
    let mut months = months_of(later) - months_of(earlier);
    let mut days = later.day().cast_signed() - earlier.day().cast_signed();
    let mut nanoseconds = of_day(later) - of_day(earlier);
    if nanoseconds < 0 {
        nanoseconds += 86_400_000_000_000;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(earlier.num_days_in_month());
        months -= 1;
    }
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::calendar::parse_timestamp;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn ages_are_counted_field_by_field() {
        let time =
            |text: &str| DateTime::from_timestamp_micros(parse_timestamp(text).unwrap()).unwrap().naive_utc();
        for (later, earlier, (months, days, seconds)) in [
            ("2001-04-10 00:00", "1957-06-13 00:00", (43 * 12 + 9, 27, 0.0)),
            ("2024-03-31 00:00", "2024-02-29 00:00", (1, 2, 0.0)),
            ("2024-02-29 00:00", "2024-03-31 00:00", (-1, -2, 0.0)),
            ("2024-01-01 10:00", "2024-01-02 09:59:30.5", (0, 0, -86_370.5)),
            ("2023-03-01 00:00", "2023-01-31 00:00", (1, 1, 0.0)),
            ("2024-05-15 00:00", "2024-03-20 00:00", (1, 26, 0.0)),
            ("2024-03-20 00:00", "2024-05-15 12:00", (-1, -26, -43_200.0)),
        ] {
            let found = age(time(later), time(earlier)).unwrap();
            let nanoseconds = (seconds * 1e9) as i64;
            assert_eq!(found, IntervalMonthDayNano::new(months, days, nanoseconds), "{later} {earlier}");
        }
    }

    #[test]
    fn bytes_have_three_texts() {
        let bytes = [0, b'a', b'\\', 255];
        for (format, text) in [("hex", "00615cff"), ("base64", "AGFc/w=="), ("escape", "\\000a\\\\\\377")] {
            assert_eq!(encode(&bytes, format).unwrap(), text);
            assert_eq!(decode(text, format).unwrap(), bytes);
        }
        assert_eq!(encode(&[0; 58], "base64").unwrap().lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
        for (text, format) in [("0", "hex"), ("xx", "hex"), ("A", "base64"), ("\\1", "escape"), ("", "rot13")]
        {
            assert!(decode(text, format).is_err(), "{text} {format}");
        }
    }
}
