//! Assignment rules of INSERT and UPDATE: conversion of computed values to column types.
//!
//! | column | takes |
//! | --- | --- |
//! | BOOLEAN | booleans, strings |
//! | SMALLINT, INT, BIGINT | numbers (fractions are rounded: DOUBLEs to the even of two that are as near, DECIMALs half away from zero), strings |
//! | REAL, DOUBLE | numbers, strings |
//! | DECIMAL | numbers (rounded to the scale, half away from zero; refused if the column is exact), strings |
//! | DATE | dates, timestamps (their day, in the session's zone), strings |
//! | TIMESTAMP, TIMESTAMPTZ | timestamps (finer than a microsecond: truncated), dates, strings |
//! | INTERVAL | intervals (finer than a microsecond: truncated), differences of timestamps, strings |
//! | JSON, JSONB | strings, JSON among them |
//! | VARCHAR, CHAR | strings; booleans, numbers, dates, timestamps and intervals as they print |
//!
//! - Timestamps with and without a zone are converted in the session's zone.
//! - Strings are parsed by [`Zone::value`]. NULL is accepted everywhere; the tables check NOT NULL.
//! - Nothing is wrapped or truncated silently: a value that does not fit is an error with table, column and
//!   value.
//! - Memory: the values of one batch.

use crate::error::{Error, Result, unreadable_numeral, unreadable_time};
use crate::postgres::intervals;
use crate::postgres::time_zones::{self, Zone};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol_tables::calendar::MICROS_PER_DAY;
use entresol_tables::{
    Column, ColumnBuilder, DataType, Interval, Modifier, Row, Table, Value, arrow_type, decimal, fitted,
    single,
};
use std::borrow::Cow;
use std::sync::Arc;

/// Builds a row from each row of `batch`: column `c` of it becomes the table's column `targets[c]`, the other
/// columns NULL. Rows have the visible columns, and the hidden key if a target is beyond them.
pub(crate) fn rows(table: &Table, targets: &[usize], batch: &RecordBatch, zone: &Zone) -> Result<Vec<Row>> {
    let visible = table.schema().visible_columns().len();
    let width = targets.iter().map(|target| target + 1).max().unwrap_or(0).max(visible);
    let mut rows = vec![vec![Value::Null; width]; batch.num_rows()];
    for (array, &target) in batch.columns().iter().zip(targets) {
        let place = AssignmentTarget { table: table.name(), column: &table.schema().columns()[target] };
        place.fill(array, zone, |row, value| rows[row][target] = value)?;
    }
    Ok(rows)
}

/// Converts computed values to an array of the type of `column`.
pub(crate) fn array(table: &str, column: &Column, array: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    let arrow = arrow_type(column.data_type, zone.name());
    let is_zoned = |arrow: &ArrowType| matches!(arrow, ArrowType::Timestamp(TimeUnit::Microsecond, Some(_)));
    if *array.data_type() == arrow {
        return Ok(Arc::clone(array));
    }
    if is_zoned(array.data_type()) && is_zoned(&arrow) {
        return Ok(cast(array, &arrow)?);
    }
    if widens(array.data_type(), &arrow) {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        // What does not fit after all is reported below, with its value.
        if let Ok(widened) = cast_with_options(array, &arrow, &options) {
            return Ok(widened);
        }
    }
    let mut values = vec![Value::Null; array.len()];
    AssignmentTarget { table, column }.fill(array, zone, |row, value| values[row] = value)?;
    let mut builder = ColumnBuilder::new(column.data_type, &arrow, values.len());
    values.iter().for_each(|value| builder.push(value));
    Ok(builder.finish())
}

/// Converts computed values to an array of those that `column` stores: of its length, or JSON.
pub(crate) fn fitted_array(
    table: &str,
    column: &Column,
    computed: &ArrayRef,
    zone: &Zone,
) -> Result<ArrayRef> {
    if column.modifier == Modifier::None {
        return array(table, column, computed, zone);
    }
    let mut values = vec![Value::Null; computed.len()];
    AssignmentTarget { table, column }.fill(computed, zone, |row, value| values[row] = value)?;
    let mut builder =
        ColumnBuilder::new(column.data_type, &arrow_type(column.data_type, zone.name()), values.len());
    values.iter().for_each(|value| builder.push(value));
    Ok(builder.finish())
}

/// Returns true if each value of a type is one of the other, so that an array is converted as a whole.
fn widens(from: &ArrowType, to: &ArrowType) -> bool {
    use ArrowType::{
        Decimal32, Decimal64, Decimal128, Dictionary, Int8, Int16, Int32, Int64, LargeUtf8, Timestamp, UInt8,
        UInt16, UInt32, Utf8, Utf8View,
    };
    match (from, to) {
        (Int8 | UInt8, Int16 | Int32 | Int64)
        | (Int16 | UInt16, Int32 | Int64)
        | (Int32 | UInt32, Int64)
        | (LargeUtf8 | Utf8View, Utf8) => true,
        (Dictionary(_, value), to) => **value == *to || widens(value, to),
        (
            Decimal32(digits, scale) | Decimal64(digits, scale) | Decimal128(digits, scale),
            Decimal128(digits_max, to_scale),
        ) => {
            let whole = i16::from(*digits) - i16::from(*scale);
            scale <= to_scale && whole <= i16::from(*digits_max) - i16::from(*to_scale)
        }
        (Timestamp(TimeUnit::Second | TimeUnit::Millisecond, from), Timestamp(TimeUnit::Microsecond, to)) => {
            from.is_some() == to.is_some()
        }
        _ => false,
    }
}

/// Passes the values of `array` to `put`, as values of `column`; NULLs are left out.
pub(crate) fn fill(
    table: &str,
    column: &Column,
    array: &ArrayRef,
    zone: &Zone,
    put: impl FnMut(usize, Value),
) -> Result<()> {
    AssignmentTarget { table, column }.fill(array, zone, put)
}

/// Checks that values of `source` can be assigned to `column` at all, before anything is computed.
pub(crate) fn check(table: &str, column: &Column, source: &ArrowType) -> Result<()> {
    let is_json = column.modifier.is_json();
    let fits = |of: Source| {
        if is_json { matches!(of, Source::Null | Source::Text) } else { of.assignable(column.data_type) }
    };
    if Source::of(source).is_some_and(fits) {
        return Ok(());
    }
    Err(Error::Assignment {
        sqlstate: "42804",
        table: table.to_owned(),
        column: column.name.clone(),
        value: format!("an expression of type {source}"),
        expected: if is_json { column.declared_type() } else { column.data_type.to_string() },
    })
}

/// Kinds of computed values, each with one Arrow type to which its arrays are converted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Null,
    Boolean,
    Integer,
    Real,
    Double,
    Decimal { scale: i8 },
    Date,
    Timestamp,
    Instant,
    Interval,
    Text,
}

impl Source {
    fn of(arrow: &ArrowType) -> Option<Source> {
        Some(match arrow {
            ArrowType::Null => Source::Null,
            ArrowType::Boolean => Source::Boolean,
            ArrowType::Int8 | ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64 => Source::Integer,
            ArrowType::UInt8 | ArrowType::UInt16 | ArrowType::UInt32 => Source::Integer,
            ArrowType::UInt64 => Source::Decimal { scale: 0 },
            ArrowType::Float16 | ArrowType::Float32 => Source::Real,
            ArrowType::Float64 => Source::Double,
            ArrowType::Decimal32(_, scale)
            | ArrowType::Decimal64(_, scale)
            | ArrowType::Decimal128(_, scale)
            | ArrowType::Decimal256(_, scale)
                if *scale >= 0 =>
            {
                Source::Decimal { scale: *scale }
            }
            ArrowType::Date32 | ArrowType::Date64 => Source::Date,
            ArrowType::Timestamp(_, None) => Source::Timestamp,
            ArrowType::Timestamp(_, Some(_)) => Source::Instant,
            ArrowType::Interval(_) | ArrowType::Duration(_) => Source::Interval,
            ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => Source::Text,
            ArrowType::Dictionary(_, value) => return Source::of(value),
            _ => return None,
        })
    }

    fn assignable(self, target: DataType) -> bool {
        match (self, target) {
            (Source::Null | Source::Text, _) | (_, DataType::Varchar) => true,
            (Source::Boolean, target) => target == DataType::Boolean,
            (Source::Interval, target) => target == DataType::Interval,
            (Source::Integer | Source::Real | Source::Double | Source::Decimal { .. }, target) => matches!(
                target,
                DataType::SmallInt
                    | DataType::Int
                    | DataType::BigInt
                    | DataType::Real
                    | DataType::Double
                    | DataType::Decimal { .. }
            ),
            (Source::Date | Source::Timestamp | Source::Instant, target) => {
                matches!(target, DataType::Date | DataType::Timestamp | DataType::TimestampTz)
            }
        }
    }

    fn arrow_type(self) -> ArrowType {
        match self {
            Source::Null => ArrowType::Null,
            Source::Boolean => ArrowType::Boolean,
            Source::Integer => ArrowType::Int64,
            Source::Real => ArrowType::Float32,
            Source::Double => ArrowType::Float64,
            Source::Decimal { scale } => ArrowType::Decimal128(38, scale),
            Source::Date => ArrowType::Date32,
            Source::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            Source::Instant => ArrowType::Timestamp(TimeUnit::Microsecond, Some(time_zones::UTC.into())),
            Source::Interval => ArrowType::Interval(IntervalUnit::MonthDayNano),
            Source::Text => ArrowType::Utf8,
        }
    }
}

/// Assignment target, for error messages.
#[derive(Clone, Copy)]
struct AssignmentTarget<'a> {
    table: &'a str,
    column: &'a Column,
}

impl AssignmentTarget<'_> {
    fn misfit(&self, value: impl Into<String>) -> Error {
        self.misfit_as("22003", value)
    }

    fn misfit_as(&self, sqlstate: &'static str, value: impl Into<String>) -> Error {
        Error::Assignment {
            sqlstate,
            table: self.table.to_owned(),
            column: self.column.name.clone(),
            value: value.into(),
            expected: self.column.declared_type(),
        }
    }

    fn fill(&self, array: &ArrayRef, zone: &Zone, mut put: impl FnMut(usize, Value)) -> Result<()> {
        check(self.table, self.column, array.data_type())?;
        // Checked above.
        let Some(source) = Source::of(array.data_type()) else { return Ok(()) };
        if source == Source::Null {
            return Ok(());
        }
        let array = &self.normalise(array, source)?;
        let target = self.column.data_type;
        for row in 0..array.len() {
            if array.is_null(row) {
                continue;
            }
            let value = match source {
                Source::Text => Some(self.value_of_text(array.as_string::<i32>().value(row), zone)?),
                Source::Null => Some(Value::Null),
                Source::Boolean => from_boolean(array.as_boolean().value(row), target),
                Source::Integer => from_integer(array.as_primitive::<Int64Type>().value(row), target),
                Source::Real => from_real(array.as_primitive::<Float32Type>().value(row), target),
                Source::Double => from_double(array.as_primitive::<Float64Type>().value(row), target),
                Source::Decimal { scale } => {
                    from_decimal(array.as_primitive::<Decimal128Type>().value(row), scale as u8, target)
                }
                Source::Date => from_date(array.as_primitive::<Date32Type>().value(row), target, zone),
                Source::Timestamp => {
                    from_timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), target, zone)
                }
                Source::Instant => {
                    from_instant(array.as_primitive::<TimestampMicrosecondType>().value(row), target, zone)
                }
                Source::Interval => {
                    from_interval(array.as_primitive::<IntervalMonthDayNanoType>().value(row), target)
                }
            };
            let value = value.ok_or_else(|| self.misfit(printed(array, row)))?;
            if self.column.modifier == Modifier::Exact && loses(source, array, row, target) {
                return Err(self.column.digits_lost(self.table, &printed(array, row)).into());
            }
            put(row, self.fitted(value)?);
        }
        Ok(())
    }

    fn value_of_text(&self, string: &str, zone: &Zone) -> Result<Value> {
        use entresol_tables::Error::{DigitsLost, InvalidJson, TooLong};
        zone.value(self.column, string).map_err(|error| match error {
            TooLong { column, expected, .. } => {
                TooLong { table: self.table.to_owned(), column, expected }.into()
            }
            DigitsLost { column, value, scale, .. } => {
                DigitsLost { table: self.table.to_owned(), column, value, scale }.into()
            }
            invalid @ InvalidJson { .. } => invalid.into(),
            _ => self.misfit_as(unreadable(string, self.column.data_type), format!("'{string}'")),
        })
    }

    /// Converts the value to the form that the column stores.
    fn fitted(&self, value: Value) -> Result<Value> {
        match fitted(self.table, self.column, &value)? {
            Cow::Borrowed(_) => Ok(value),
            Cow::Owned(fit) => Ok(fit),
        }
    }

    /// Converts an array to the one type of its kind; loses only digits below a microsecond.
    fn normalise(&self, array: &ArrayRef, source: Source) -> Result<ArrayRef> {
        if let ArrowType::Duration(_) = array.data_type() {
            return intervals::of_differences(array).map_err(|error| self.misfit(error.to_string()));
        }
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let cast = cast_with_options(array, &source.arrow_type(), &options)
            .map_err(|error| self.misfit(format!("a {}: {error}", array.data_type())))?;
        if cast.null_count() != array.null_count() {
            let lost = (0..array.len()).find(|&row| cast.is_null(row) && array.is_valid(row)).unwrap_or(0);
            return Err(self.misfit(printed(array, lost)));
        }
        Ok(cast)
    }
}

/// SQLSTATE of a string that is no value of a type.
fn unreadable(string: &str, of: DataType) -> &'static str {
    match of {
        DataType::Date | DataType::Timestamp | DataType::TimestampTz | DataType::Interval => {
            unreadable_time(string)
        }
        DataType::SmallInt
        | DataType::Int
        | DataType::BigInt
        | DataType::Real
        | DataType::Double
        | DataType::Decimal { .. } => unreadable_numeral(string),
        DataType::Boolean | DataType::Varchar => "22P02",
    }
}

/// Formats the value of an array for an error message: strings in quotes.
fn printed(array: &ArrayRef, row: usize) -> String {
    let text = match ArrayFormatter::try_new(array, &FormatOptions::default()) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(_) => return format!("a {}", array.data_type()),
    };
    match array.data_type() {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => format!("'{text}'"),
        _ => text,
    }
}

/// Returns true if a number has digits beyond the scale of a DECIMAL.
fn loses(source: Source, array: &ArrayRef, row: usize, target: DataType) -> bool {
    let DataType::Decimal { scale: kept, .. } = target else { return false };
    match source {
        Source::Decimal { scale } => {
            decimal::rescale_loses(array.as_primitive::<Decimal128Type>().value(row), scale as u8, kept)
        }
        Source::Real => {
            decimal::loses_digits(&array.as_primitive::<Float32Type>().value(row).to_string(), kept)
        }
        Source::Double => {
            decimal::loses_digits(&array.as_primitive::<Float64Type>().value(row).to_string(), kept)
        }
        _ => false,
    }
}

fn from_boolean(value: bool, target: DataType) -> Option<Value> {
    match target {
        DataType::Boolean => Some(Value::Boolean(value)),
        DataType::Varchar => Some(Value::varchar(value.to_string())),
        _ => None,
    }
}

fn from_integer(value: i64, target: DataType) -> Option<Value> {
    match target {
        DataType::SmallInt => i16::try_from(value).ok().map(|value| Value::Int(value.into())),
        DataType::Int => i32::try_from(value).ok().map(Value::Int),
        DataType::BigInt => Some(Value::BigInt(value)),
        DataType::Real => single(value as f64).map(Value::Double),
        DataType::Double => Some(Value::Double(value as f64)),
        DataType::Decimal { .. } => from_decimal(i128::from(value), 0, target),
        DataType::Varchar => Some(Value::varchar(value.to_string())),
        _ => None,
    }
}

fn from_real(value: f32, target: DataType) -> Option<Value> {
    match target {
        DataType::Varchar => Some(Value::varchar(value.to_string())),
        // Its own shortest representation, not that of the double.
        DataType::Decimal { precision, scale } => {
            decimal::parse(&value.to_string(), precision, scale).map(Value::Decimal)
        }
        target => from_double(f64::from(value), target),
    }
}

fn from_double(value: f64, target: DataType) -> Option<Value> {
    match target {
        DataType::Real => single(value).map(Value::Double),
        DataType::Double => Some(Value::Double(value)),
        DataType::Varchar => Some(Value::varchar(value.to_string())),
        DataType::SmallInt | DataType::Int | DataType::BigInt => {
            let rounded = value.round_ties_even();
            // 2^63 is exact in a double; the comparison also refuses NaN.
            let fits = (-(2f64.powi(63))..2f64.powi(63)).contains(&rounded);
            fits.then_some(rounded as i64).and_then(|value| from_integer(value, target))
        }
        // The shortest decimal that reads back as the double is what the user wrote; it has no exponent.
        DataType::Decimal { precision, scale } => {
            decimal::parse(&value.to_string(), precision, scale).map(Value::Decimal)
        }
        _ => None,
    }
}

fn from_decimal(unscaled: i128, scale: u8, target: DataType) -> Option<Value> {
    match target {
        DataType::SmallInt | DataType::Int | DataType::BigInt => decimal::rescale(unscaled, scale, 0)
            .and_then(|value| i64::try_from(value).ok())
            .and_then(|value| from_integer(value, target)),
        DataType::Real => single(decimal_to_double(unscaled, scale)).map(Value::Double),
        DataType::Double => Some(Value::Double(decimal_to_double(unscaled, scale))),
        DataType::Decimal { precision, scale: target_scale } => {
            decimal::rescale(unscaled, scale, target_scale)
                .filter(|&value| decimal::fits(value, precision))
                .map(Value::Decimal)
        }
        DataType::Varchar => Some(Value::varchar(decimal_text(unscaled, scale))),
        _ => None,
    }
}

fn from_date(days: i32, target: DataType, zone: &Zone) -> Option<Value> {
    match target {
        DataType::Date => Some(Value::Date(days)),
        DataType::Timestamp | DataType::TimestampTz => {
            from_timestamp(i64::from(days).checked_mul(MICROS_PER_DAY)?, target, zone)
        }
        DataType::Varchar => Some(Value::varchar(Value::Date(days).to_string())),
        _ => None,
    }
}

fn from_timestamp(micros: i64, target: DataType, zone: &Zone) -> Option<Value> {
    match target {
        DataType::Timestamp => Some(Value::Timestamp(micros)),
        DataType::TimestampTz => zone.instant(micros).map(Value::Timestamp),
        DataType::Date => i32::try_from(micros.div_euclid(MICROS_PER_DAY)).ok().map(Value::Date),
        DataType::Varchar => Some(Value::varchar(Value::Timestamp(micros).to_string())),
        _ => None,
    }
}

fn from_instant(instant: i64, target: DataType, zone: &Zone) -> Option<Value> {
    match target {
        DataType::TimestampTz => Some(Value::Timestamp(instant)),
        DataType::Varchar => {
            let mut text = String::new();
            zone.print(instant, &mut text).ok()?;
            Some(Value::varchar(text))
        }
        other => from_timestamp(zone.wall(instant)?, other, zone),
    }
}

fn from_interval(interval: IntervalMonthDayNano, target: DataType) -> Option<Value> {
    let value = Value::Interval(Interval::from_arrow(interval));
    match target {
        DataType::Interval => Some(value),
        DataType::Varchar => Some(Value::varchar(value.to_string())),
        _ => None,
    }
}

fn decimal_text(unscaled: i128, scale: u8) -> String {
    let data_type = DataType::Decimal { precision: decimal::DECIMAL_PRECISION_MAX, scale };
    Value::Decimal(unscaled).display(data_type).to_string()
}

/// Converts through the decimal string, because dividing by a power of ten is off by a digit for some
/// numbers: 0.3 must be 0.3.
fn decimal_to_double(unscaled: i128, scale: u8) -> f64 {
    decimal_text(unscaled, scale).parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECIMAL: DataType = DataType::Decimal { precision: 6, scale: 2 };

    #[test]
    fn numbers_round_and_never_wrap() {
        assert_eq!(from_integer(1 << 31, DataType::Int), None);
        assert_eq!(from_double(2.5, DataType::Int), Some(Value::Int(2)));
        assert_eq!(from_double(-3.5, DataType::Int), Some(Value::Int(-4)));
        assert_eq!(from_double(9.3e18, DataType::BigInt), None);
        assert_eq!(from_double(f64::NAN, DataType::BigInt), None);
        assert_eq!(from_double(1.005, DECIMAL), Some(Value::Decimal(101)));
        assert_eq!(from_double(1e9, DECIMAL), None);
        assert_eq!(from_decimal(3, 1, DataType::Double), Some(Value::Double(0.3)));
        assert_eq!(from_decimal(12_345, 3, DECIMAL), Some(Value::Decimal(1235)));
        assert_eq!(from_integer(10_000, DECIMAL), None);
    }

    #[test]
    fn a_timestamp_is_assigned_to_a_date_as_its_day() {
        let utc = Zone::utc();
        assert_eq!(from_timestamp(MICROS_PER_DAY, DataType::Date, &utc), Some(Value::Date(1)));
        assert_eq!(from_timestamp(2 * MICROS_PER_DAY - 1, DataType::Date, &utc), Some(Value::Date(1)));
        assert_eq!(from_timestamp(-1, DataType::Date, &utc), Some(Value::Date(-1)));
        assert_eq!(from_date(1, DataType::Timestamp, &utc), Some(Value::Timestamp(MICROS_PER_DAY)));
    }

    #[test]
    fn a_zone_comes_and_goes_as_the_clocks_of_the_session_say() {
        const HOUR: i64 = MICROS_PER_DAY / 24;
        let zone = Zone::new("+02:00").unwrap();
        let day = MICROS_PER_DAY;
        assert_eq!(from_date(1, DataType::TimestampTz, &zone), Some(Value::Timestamp(day - 2 * HOUR)));
        assert_eq!(from_timestamp(day, DataType::TimestampTz, &zone), Some(Value::Timestamp(day - 2 * HOUR)));
        assert_eq!(from_instant(day, DataType::Timestamp, &zone), Some(Value::Timestamp(day + 2 * HOUR)));
        assert_eq!(from_instant(day, DataType::TimestampTz, &zone), Some(Value::Timestamp(day)));
        assert_eq!(from_instant(day - 2 * HOUR, DataType::Date, &zone), Some(Value::Date(1)));
        assert_eq!(from_instant(day, DataType::Varchar, &zone), Some(Value::from("1970-01-02 02:00:00+02")));
    }

    #[test]
    fn types_that_cannot_meet_are_refused_before_execution() {
        let column = Column::new("power", DataType::Int);
        let error = check("meters", &column, &ArrowType::Boolean).unwrap_err().to_string();
        assert_eq!(error, "table meters, column power: an expression of type Boolean does not fit INT");
    }
}
