//! Values and their types.
//!
//! - `Value` is totally ordered, and `Eq`, `Ord` and `Hash` agree: doubles compare by the IEEE total order
//!   with -0.0 taken as 0.0 and all NaN taken as one NaN above infinity; NULL is below every value;
//!   values of different types compare by type (in the order of the enum), never by magnitude.
//! - This is the order of encoded keys ([`crate::encoding`]), so `a < b` holds for key values exactly
//!   if it holds for their bytes. An INTERVAL is in no key ([`interval`] states its order).
//! - A decimal does not contain its scale, nor a timestamp whether it has a zone; print them through
//!   [`Value::display`] with their type.
//! - A `Value` owns at most one heap block, the string of a VARCHAR.

pub mod calendar;
pub mod decimal;
pub mod interval;
pub mod json;

use crate::error::{Error, Result};
use crate::value::interval::Interval;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    /// True or false.
    Boolean,
    /// 16-bit signed integer.
    SmallInt,
    /// 32-bit signed integer.
    Int,
    /// 64-bit signed integer.
    BigInt,
    /// IEEE single. Its values are those doubles that a single can represent.
    Real,
    /// IEEE double.
    Double,
    /// Exact number of `precision` digits, `scale` of them after the point.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, at most `precision`.
        scale: u8,
    },
    /// Day of the proleptic Gregorian calendar.
    Date,
    /// Date and time in microseconds, without a zone.
    Timestamp,
    /// Instant: microseconds since 1970-01-01T00:00:00Z.
    TimestampTz,
    /// Months, days and time.
    Interval,
    /// UTF-8 string.
    Varchar,
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Boolean => f.write_str("BOOLEAN"),
            DataType::SmallInt => f.write_str("SMALLINT"),
            DataType::Int => f.write_str("INT"),
            DataType::BigInt => f.write_str("BIGINT"),
            DataType::Real => f.write_str("REAL"),
            DataType::Double => f.write_str("DOUBLE"),
            DataType::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            DataType::Date => f.write_str("DATE"),
            DataType::Timestamp => f.write_str("TIMESTAMP"),
            DataType::TimestampTz => f.write_str("TIMESTAMPTZ"),
            DataType::Interval => f.write_str("INTERVAL"),
            DataType::Varchar => f.write_str("VARCHAR"),
        }
    }
}

/// Value of a column of a row.
#[derive(Debug, Clone)]
pub enum Value {
    /// NULL.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// INT and SMALLINT.
    Int(i32),
    /// BIGINT.
    BigInt(i64),
    /// DOUBLE and REAL.
    Double(f64),
    /// DECIMAL, unscaled.
    Decimal(i128),
    /// DATE, days since 1970-01-01.
    Date(i32),
    /// TIMESTAMP and TIMESTAMPTZ: microseconds since 1970-01-01 00:00, in local time or in UTC.
    Timestamp(i64),
    /// INTERVAL.
    Interval(Interval),
    /// VARCHAR.
    Varchar(Box<str>),
}

/// Values of one row, in column order.
pub type Row = Vec<Value>;

impl Value {
    /// VARCHAR value.
    pub fn varchar(text: impl Into<Box<str>>) -> Value {
        Value::Varchar(text.into())
    }

    /// Returns true for NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns true if the value is of the type, whatever the range and precision. NULL is of every type.
    pub fn is_of(&self, data_type: DataType) -> bool {
        matches!(
            (self, data_type),
            (Value::Null, _)
                | (Value::Boolean(_), DataType::Boolean)
                | (Value::Int(_), DataType::Int | DataType::SmallInt)
                | (Value::BigInt(_), DataType::BigInt)
                | (Value::Double(_), DataType::Double | DataType::Real)
                | (Value::Decimal(_), DataType::Decimal { .. })
                | (Value::Date(_), DataType::Date)
                | (Value::Timestamp(_), DataType::Timestamp | DataType::TimestampTz)
                | (Value::Interval(_), DataType::Interval)
                | (Value::Varchar(_), DataType::Varchar)
        )
    }

    /// Name of the value's type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Boolean(_) => "BOOLEAN",
            Value::Int(_) => "INT",
            Value::BigInt(_) => "BIGINT",
            Value::Double(_) => "DOUBLE",
            Value::Decimal(_) => "DECIMAL",
            Value::Date(_) => "DATE",
            Value::Timestamp(_) => "TIMESTAMP",
            Value::Interval(_) => "INTERVAL",
            Value::Varchar(_) => "VARCHAR",
        }
    }

    /// Parses a string as a value of `data_type`; `column` is for the error.
    ///
    /// Blanks around numbers, dates and booleans are ignored, in VARCHAR they are significant. No string
    /// parses as NULL. Decimals round as [`crate::value::decimal`] describes. A TIMESTAMPTZ without a zone is
    /// in UTC.
    pub fn parse(column: &str, text: &str, data_type: DataType) -> Result<Value> {
        let trimmed = text.trim();
        let parsed = match data_type {
            DataType::Boolean => parse_boolean(trimmed).map(Value::Boolean),
            DataType::SmallInt => trimmed.parse().ok().map(|value: i16| Value::Int(value.into())),
            DataType::Int => trimmed.parse().ok().map(Value::Int),
            DataType::BigInt => trimmed.parse().ok().map(Value::BigInt),
            DataType::Real => trimmed.parse().ok().and_then(single).map(Value::Double),
            DataType::Double => trimmed.parse().ok().map(Value::Double),
            DataType::Decimal { precision, scale } => {
                decimal::parse(trimmed, precision, scale).map(Value::Decimal)
            }
            DataType::Date => calendar::parse_date(trimmed).map(Value::Date),
            DataType::Timestamp => calendar::parse_timestamp(trimmed).map(Value::Timestamp),
            DataType::TimestampTz => calendar::parse_timestamptz(trimmed).map(Value::Timestamp),
            DataType::Interval => Interval::parse(trimmed).ok().map(Value::Interval),
            DataType::Varchar => Some(Value::Varchar(text.into())),
        };
        parsed.ok_or_else(|| Error::Parse {
            column: column.to_owned(),
            value: text.to_owned(),
            expected: data_type,
        })
    }

    /// Formats the value in its type: decimals with their point, TIMESTAMPTZ in UTC. NULL prints as `NULL`.
    pub fn display(&self, data_type: DataType) -> impl fmt::Display + '_ {
        let scale = match data_type {
            DataType::Decimal { scale, .. } => scale,
            _ => 0,
        };
        DisplayValue {
            value: self,
            scale,
            zoned: data_type == DataType::TimestampTz,
            single: data_type == DataType::Real,
        }
    }

    /// Orders values of different types.
    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Boolean(_) => 1,
            Value::Int(_) => 2,
            Value::BigInt(_) => 3,
            Value::Double(_) => 4,
            Value::Decimal(_) => 5,
            Value::Date(_) => 6,
            Value::Timestamp(_) => 7,
            Value::Interval(_) => 8,
            Value::Varchar(_) => 9,
        }
    }
}

/// REAL nearest to a double; `None` if it is too large, or too small to be distinguished from 0.
pub fn single(value: f64) -> Option<f64> {
    let single = value as f32;
    let lost = (single.is_infinite() && value.is_finite()) || (single == 0.0 && value != 0.0);
    (!lost).then_some(f64::from(single))
}

/// Maps -0.0 to 0.0 and every NaN to the one positive quiet NaN.
pub fn normalize_double(value: f64) -> f64 {
    if value == 0.0 {
        0.0
    } else if value.is_nan() {
        f64::NAN.copysign(1.0)
    } else {
        value
    }
}

fn parse_boolean(text: &str) -> Option<bool> {
    let is_any = |names: &[&str]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
    if is_any(&["true", "t", "1"]) {
        Some(true)
    } else if is_any(&["false", "f", "0"]) {
        Some(false)
    } else {
        None
    }
}

struct DisplayValue<'a> {
    value: &'a Value,
    scale: u8,
    zoned: bool,
    single: bool,
}

impl fmt::Display for DisplayValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Null => f.write_str("NULL"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::BigInt(value) => write!(f, "{value}"),
            Value::Double(value) if self.single => write!(f, "{}", *value as f32),
            Value::Double(value) => write!(f, "{value}"),
            Value::Decimal(unscaled) => decimal::format(*unscaled, self.scale, f),
            Value::Date(days) => calendar::format_date(*days, f),
            Value::Timestamp(micros) if self.zoned => calendar::format_timestamptz(*micros, 0, f),
            Value::Timestamp(micros) => calendar::format_timestamp(*micros, f),
            Value::Interval(interval) => {
                calendar::format_interval(interval.months(), interval.days(), interval.micros(), f)
            }
            Value::Varchar(text) => f.write_str(text),
        }
    }
}

/// As [`Value::display`], except that a decimal prints unscaled.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayValue { value: self, scale: 0, zoned: false, single: false }.fmt(f)
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::BigInt(a), Value::BigInt(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => normalize_double(*a).total_cmp(&normalize_double(*b)),
            (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
            (Value::Interval(a), Value::Interval(b)) => a.cmp(b),
            (Value::Varchar(a), Value::Varchar(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.rank());
        match self {
            Value::Null => {}
            Value::Boolean(value) => value.hash(state),
            Value::Int(value) | Value::Date(value) => value.hash(state),
            Value::BigInt(value) | Value::Timestamp(value) => value.hash(state),
            Value::Double(value) => normalize_double(*value).to_bits().hash(state),
            Value::Decimal(value) => value.hash(state),
            Value::Interval(value) => value.hash(state),
            Value::Varchar(value) => value.hash(state),
        }
    }
}

macro_rules! from_rust {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Value {
            fn from(value: $rust) -> Value {
                Value::$variant(value.into())
            }
        })*
    };
}

from_rust!(bool => Boolean, i32 => Int, i64 => BigInt, f64 => Double, &str => Varchar, String => Varchar);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_each_type_and_names_the_failure() {
        let decimal = DataType::Decimal { precision: 6, scale: 2 };
        assert_eq!(Value::parse("c", " TRUE ", DataType::Boolean).unwrap(), Value::Boolean(true));
        assert_eq!(Value::parse("c", "-7", DataType::Int).unwrap(), Value::Int(-7));
        assert_eq!(
            Value::parse("c", "9223372036854775807", DataType::BigInt).unwrap(),
            Value::BigInt(i64::MAX)
        );
        assert_eq!(Value::parse("c", "1.5e3", DataType::Double).unwrap(), Value::Double(1500.0));
        assert_eq!(Value::parse("c", "12.345", decimal).unwrap(), Value::Decimal(1235));
        assert_eq!(Value::parse("c", "1970-01-03", DataType::Date).unwrap(), Value::Date(2));
        assert_eq!(Value::parse("c", " a ", DataType::Varchar).unwrap(), Value::from(" a "));
        let error = Value::parse("power", "1,5", DataType::Double).unwrap_err().to_string();
        assert_eq!(error, "column power: '1,5' is not a DOUBLE");
        let error = Value::parse("price", "123456.7", decimal).unwrap_err().to_string();
        assert_eq!(error, "column price: '123456.7' is not a DECIMAL(6,2)");
    }

    #[test]
    fn displays_by_type() {
        let decimal = DataType::Decimal { precision: 6, scale: 2 };
        assert_eq!(Value::Decimal(-5).display(decimal).to_string(), "-0.05");
        assert_eq!(Value::Decimal(-5).to_string(), "-5");
        assert_eq!(Value::Timestamp(0).to_string(), "1970-01-01 00:00:00");
        let instant = Value::parse("c", "1970-01-01 02:00:00.5+02", DataType::TimestampTz).unwrap();
        assert_eq!(instant.display(DataType::TimestampTz).to_string(), "1970-01-01 00:00:00.5+00");
        assert_eq!(Value::Null.to_string(), "NULL");
    }

    #[test]
    fn doubles_are_totally_ordered() {
        let order = [f64::NEG_INFINITY, -1.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN];
        for pair in order.windows(2) {
            assert!(Value::Double(pair[0]) < Value::Double(pair[1]), "{pair:?}");
        }
        assert_eq!(Value::Double(-0.0), Value::Double(0.0));
        assert_eq!(Value::Double(-f64::NAN), Value::Double(f64::NAN));
        assert!(Value::Null < Value::Boolean(false));
    }
}
