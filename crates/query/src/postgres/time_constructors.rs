//! Times from their fields, and `isfinite`.
//!
//! | function | result |
//! | --- | --- |
//! | `make_date(year, month, day)` | DATE |
//! | `make_time(hour, minute, second)` | TIME |
//! | `make_timestamp(year, month, day, hour, minute, second)` | TIMESTAMP |
//! | `make_timestamptz_in(year, ..., second, zone)` | instant; the translation casts it to the session's zone |
//! | `isfinite(time)` | true: no time of this database is infinite |
//!
//! Years before our era are negative, and there is no year 0. Seconds are numbers with a fraction, rounded to microseconds;
//! 60 is the begin of the next minute. Fields that are out of their range are an error (22008).

use crate::error::{Error, external};
use crate::postgres::time_zones::{UTC, Zone, named, named_in_expression};
use crate::postgres::type_names::no_function;
use chrono::NaiveDate;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::calendar::MICROS_PER_SECOND;
use std::sync::Arc;

/// Name of the function of an instant.
pub(crate) const INSTANT_IN: &str = "make_timestamptz_in";
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Constructor {
    Date,
    Time,
    Timestamp,
    Instant,
    IsFinite,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Constructor,
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 5] {
    [
        Constructor::Date,
        Constructor::Time,
        Constructor::Timestamp,
        Constructor::Instant,
        Constructor::IsFinite,
    ]
    .map(|kind| ScalarUDF::from(Function { kind, signature: Signature::user_defined(Volatility::Immutable) }))
}

impl Constructor {
    /// Number of its integers, and of all its arguments.
    fn arguments(self) -> (usize, usize) {
        match self {
            Constructor::Date => (3, 3),
            Constructor::Time => (2, 3),
            Constructor::Timestamp => (5, 6),
            Constructor::Instant => (5, 7),
            Constructor::IsFinite => (0, 1),
        }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Constructor::Date => "make_date",
            Constructor::Time => "make_time",
            Constructor::Timestamp => "make_timestamp",
            Constructor::Instant => INSTANT_IN,
            Constructor::IsFinite => "isfinite",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let shown = if self.kind == Constructor::Instant { "make_timestamptz" } else { self.name() };
        let (integers, count) = self.kind.arguments();
        let wanted = |(at, found): (usize, &DataType)| {
            let (wanted, fits) = match at {
                _ if self.kind == Constructor::IsFinite => {
                    (found.clone(), found.is_temporal() && !matches!(found, DataType::Time64(_)))
                }
                _ if at < integers => (DataType::Int64, found.is_integer()),
                6 => (DataType::Utf8, found.is_string()),
                _ => (DataType::Float64, found.is_numeric()),
            };
            (fits || found.is_null()).then_some(wanted)
        };
        let types: Option<Vec<DataType>> = arguments.iter().enumerate().map(wanted).collect();
        types.filter(|types| types.len() == count).ok_or_else(|| no_function(shown, arguments))
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.kind {
            Constructor::Date => DataType::Date32,
            Constructor::Time => DataType::Time64(TimeUnit::Microsecond),
            Constructor::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Constructor::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Constructor::IsFinite => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.iter().map(|value| value.to_array(rows)).collect::<DFResult<_>>()?;
        let fields = Fields { columns: &columns };
        let array: ArrayRef = match self.kind {
            Constructor::Date => Arc::new(Date32Array::from(fields.each(rows, |row| {
                let days = fields.days(row)?;
                i32::try_from(days).map_err(|_| fields.date_error(row))
            })?)),
            Constructor::Time => {
                let times = fields.each(rows, |row| match fields.micros_of_day(0, row)? {
                    MICROS_PER_DAY => Err(fields.time_error(0, row)),
                    micros => Ok(micros),
                });
                Arc::new(Time64MicrosecondArray::from(times?))
            }
            Constructor::Timestamp => {
                Arc::new(TimestampMicrosecondArray::from(fields.each(rows, |row| fields.local(row))?))
            }
            Constructor::Instant => {
                let instants = fields.each(rows, |row| fields.instant(row))?;
                Arc::new(TimestampMicrosecondArray::from(instants).with_timezone(UTC))
            }
            Constructor::IsFinite => {
                let Some(times) = columns.first() else { return internal_err!("isfinite expects a time") };
                Arc::new((0..rows).map(|row| times.is_valid(row).then_some(true)).collect::<BooleanArray>())
            }
        };
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        } else {
            ColumnarValue::Array(array)
        })
    }
}

/// Fields of times, a column for each.
struct Fields<'a> {
    columns: &'a [ArrayRef],
}

impl Fields<'_> {
    /// Values of rows without NULL.
    fn each<T>(&self, rows: usize, value: impl Fn(usize) -> Result<T, Error>) -> DFResult<Vec<Option<T>>> {
        let is_null = |row: usize| self.columns.iter().any(|column| column.is_null(row));
        (0..rows).map(|row| (!is_null(row)).then(|| value(row)).transpose().map_err(external)).collect()
    }

    fn integer(&self, column: usize, row: usize) -> i64 {
        self.columns[column].as_primitive::<Int64Type>().value(row)
    }

    /// Days since 1970 of the first three fields.
    fn days(&self, row: usize) -> Result<i64, Error> {
        let [year, month, day] = [0, 1, 2].map(|column| self.integer(column, row));
        // The year before 1 is that of -1.
        let year = if year < 0 { year.checked_add(1) } else { Some(year).filter(|year| *year != 0) };
        let date = || {
            let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
            let date = NaiveDate::from_ymd_opt(i32::try_from(year?).ok()?, month, day)?;
            Some(date.signed_duration_since(NaiveDate::default()).num_days())
        };
        date().ok_or_else(|| self.date_error(row))
    }

    fn date_error(&self, row: usize) -> Error {
        let [year, month, day] = [0, 1, 2].map(|column| self.integer(column, row));
        Error::coded("22008", format!("date field value out of range: {year}-{month:02}-{day:02}"))
    }

    /// Microseconds of the day of an hour, a minute and a second, the first of which is in column `hour`.
    fn micros_of_day(&self, hour: usize, row: usize) -> Result<i64, Error> {
        let (hours, minutes) = (self.integer(hour, row), self.integer(hour + 1, row));
        let second = self.columns[hour + 2].as_primitive::<Float64Type>().value(row);
        let micros = (second * MICROS_PER_SECOND as f64).round_ties_even();
        let fits = (0..=24).contains(&hours)
            && (0..60).contains(&minutes)
            && (0.0..=60.0 * MICROS_PER_SECOND as f64).contains(&micros);
        // A NaN is in no range.
        let of_day = fits.then(|| (hours * 60 + minutes) * 60 * MICROS_PER_SECOND + micros as i64);
        of_day.filter(|of_day| *of_day <= MICROS_PER_DAY).ok_or_else(|| self.time_error(hour, row))
    }

    fn time_error(&self, hour: usize, row: usize) -> Error {
        let (hours, minutes) = (self.integer(hour, row), self.integer(hour + 1, row));
        let second = self.columns[hour + 2].as_primitive::<Float64Type>().value(row);
        let zero = if (0.0..10.0).contains(&second) { "0" } else { "" };
        Error::coded("22008", format!("time field value out of range: {hours}:{minutes:02}:{zero}{second}"))
    }

    /// Local time of six fields, in microseconds.
    fn local(&self, row: usize) -> Result<i64, Error> {
        let (days, of_day) = (self.days(row)?, self.micros_of_day(3, row)?);
        let micros = days.checked_mul(MICROS_PER_DAY).and_then(|midnight| midnight.checked_add(of_day));
        micros.ok_or_else(|| Error::coded("22008", "timestamp out of range"))
    }

    /// Instant of a local time in the zone of the seventh field, whose offsets count to the east.
    fn instant(&self, row: usize) -> Result<i64, Error> {
        let zone = self.columns[6].as_string::<i32>().value(row);
        if zone.starts_with(|first: char| first.is_ascii_digit()) {
            let message = format!(
                "invalid input syntax for type numeric time zone: \"{zone}\": it must have \"-\" or \"+\" as first character"
            );
            return Err(Error::coded("22023", message));
        }
        let known = match zone.split_at_checked(1) {
            Some(("+", offset)) => named_in_expression(&format!("-{offset}")),
            Some(("-", offset)) => named_in_expression(&format!("+{offset}")),
            _ => named(zone),
        };
        let zone =
            known.ok_or_else(|| Error::coded("22023", format!("time zone \"{zone}\" not recognized")))?;
        let instant = Zone::new(&zone)?.instant(self.local(row)?);
        instant.ok_or_else(|| Error::coded("22008", "timestamp out of range"))
    }
}
