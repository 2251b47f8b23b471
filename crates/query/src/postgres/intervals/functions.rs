//! Interval functions, for the planner and by name.

use super::{INTERVAL, is_span, values};
use crate::error::{Error, external};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, DurationMicrosecondArray, IntervalMonthDayNanoArray,
    StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, Float64Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
};
use datafusion::common::{Result as DFResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::{Interval, IntervalError, calendar};
use std::sync::Arc;

/// Type of an extent: nanoseconds.
const EXTENT: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
const DURATION: DataType = DataType::Duration(TimeUnit::Microsecond);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalFunction {
    Times,
    DividedBy,
    Extent,
    Text,
    OfDuration,
    Parsed,
    Make,
    JustifyHours,
    JustifyDays,
    JustifyInterval,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: IntervalFunction,
    signature: Signature,
}

fn function(kind: IntervalFunction) -> ScalarUDF {
    ScalarUDF::from(Function { kind, signature: Signature::user_defined(Volatility::Immutable) })
}

/// Functions that SQL can name.
pub(super) fn named() -> impl Iterator<Item = ScalarUDF> {
    [
        IntervalFunction::JustifyHours,
        IntervalFunction::JustifyDays,
        IntervalFunction::JustifyInterval,
        IntervalFunction::Make,
    ]
    .into_iter()
    .map(function)
}

/// Product of an interval and a number, or their quotient.
pub(super) fn scaled(interval: Expr, number: Expr, divided: bool) -> Expr {
    function(if divided { IntervalFunction::DividedBy } else { IntervalFunction::Times })
        .call(vec![interval, number])
}

/// Number by which intervals are compared.
pub(crate) fn extent(interval: Expr) -> Expr {
    function(IntervalFunction::Extent).call(vec![interval])
}

/// Interval formatted as by PostgreSQL.
pub(super) fn text(interval: Expr) -> Expr {
    function(IntervalFunction::Text).call(vec![interval])
}

/// Interval from the difference of two timestamps.
pub(super) fn of_duration(duration: Expr) -> Expr {
    function(IntervalFunction::OfDuration).call(vec![duration])
}

/// Interval of a string.
pub(super) fn parsed(text: Expr) -> Expr {
    function(IntervalFunction::Parsed).call(vec![text])
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            IntervalFunction::Times => "interval_times",
            IntervalFunction::DividedBy => "interval_divided_by",
            IntervalFunction::Extent => "interval_extent",
            IntervalFunction::Text => "interval_text",
            IntervalFunction::OfDuration => "interval_of_duration",
            IntervalFunction::Parsed => "interval_in",
            IntervalFunction::Make => MAKE_INTERVAL,
            IntervalFunction::JustifyHours => "justify_hours",
            IntervalFunction::JustifyDays => "justify_days",
            IntervalFunction::JustifyInterval => "justify_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match (self.kind, arguments) {
            (IntervalFunction::OfDuration, [_]) => Ok(vec![DURATION]),
            (IntervalFunction::Times | IntervalFunction::DividedBy, [span, _]) if is_span(span) => {
                Ok(vec![INTERVAL, DataType::Float64])
            }
            (IntervalFunction::Parsed, [_]) => Ok(vec![DataType::Utf8]),
            (IntervalFunction::Make, [counts @ .., seconds])
                if counts.len() + 1 == MAKE_ARGUMENTS
                    && counts.iter().all(|of| of.is_integer() || of.is_null())
                    && (seconds.is_numeric() || seconds.is_null()) =>
            {
                let mut types = vec![DataType::Int64; counts.len()];
                types.push(DataType::Float64);
                Ok(types)
            }
            (IntervalFunction::Make, _) => Err(external(Error::coded(
                "42883",
                "make_interval takes up to six integers and a number of seconds",
            ))),
            (_, [span]) if is_span(span) || span.is_null() => Ok(vec![INTERVAL]),
            _ => plan_err!("{} expects an interval", self.name()),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.kind {
            IntervalFunction::Extent => EXTENT,
            IntervalFunction::Text => DataType::Utf8,
            _ => INTERVAL,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let arrays: Vec<ArrayRef> = arguments
            .args
            .iter()
            .map(|argument| argument.to_array(arguments.number_rows))
            .collect::<DFResult<_>>()?;
        if self.kind == IntervalFunction::OfDuration {
            let micros = cast(&arrays[0], &DURATION)?;
            return of_micros(micros.as_primitive::<DurationMicrosecondType>()).map(ColumnarValue::Array);
        }
        match self.kind {
            IntervalFunction::Parsed => return parse(arrays[0].as_string::<i32>()),
            IntervalFunction::Make => return make(&arrays, arguments.number_rows),
            _ => {}
        }
        let intervals = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        let justified = |hours, days| {
            let justified = intervals.iter().map(|interval| match interval {
                Some(interval) => values::justified(interval, hours, days).map(Some).ok_or_else(out_of_range),
                None => Ok(None),
            });
            Ok(ColumnarValue::Array(Arc::new(justified.collect::<DFResult<IntervalMonthDayNanoArray>>()?)))
        };
        match self.kind {
            IntervalFunction::Times | IntervalFunction::DividedBy => {
                times(intervals, &arrays[1], self.kind == IntervalFunction::DividedBy)
            }
            IntervalFunction::JustifyHours => justified(true, false),
            IntervalFunction::JustifyDays => justified(false, true),
            IntervalFunction::JustifyInterval => justified(true, true),
            IntervalFunction::Text => Ok(ColumnarValue::Array(texts(intervals))),
            _ => {
                let extents = intervals.iter().map(|interval| interval.map(values::extent));
                let extents = extents.collect::<Decimal128Array>().with_data_type(EXTENT);
                Ok(ColumnarValue::Array(Arc::new(extents)))
            }
        }
    }
}

/// Name of the function of single fields.
pub(crate) const MAKE_INTERVAL: &str = "make_interval";
/// Years, months, weeks, days, hours, minutes and seconds.
const MAKE_ARGUMENTS: usize = 7;

pub(super) fn out_of_range() -> datafusion::error::DataFusionError {
    external(Error::coded("22008", "interval out of range"))
}

/// Intervals as PostgreSQL shows them.
pub(super) fn texts(intervals: &IntervalMonthDayNanoArray) -> ArrayRef {
    let texts = intervals.iter().map(|interval| interval.map(written));
    Arc::new(texts.collect::<StringArray>())
}

fn written(interval: IntervalMonthDayNano) -> String {
    let mut text = String::new();
    let micros = interval.nanoseconds / 1_000;
    // Writing to a `String` does not fail.
    let _ = calendar::format_interval(interval.months, interval.days, micros, &mut text);
    text
}

fn parse(texts: &StringArray) -> DFResult<ColumnarValue> {
    let parsed = texts.iter().map(|text| match text {
        Some(text) => Interval::parse(text).map(|interval| Some(interval.to_arrow())).map_err(|error| {
            external(match error {
                IntervalError::Syntax => {
                    Error::coded("22007", format!("invalid input syntax for type interval: \"{text}\""))
                }
                IntervalError::OutOfRange => {
                    Error::coded("22015", format!("interval field value out of range: \"{text}\""))
                }
            })
        }),
        None => Ok(None),
    });
    Ok(ColumnarValue::Array(Arc::new(parsed.collect::<DFResult<IntervalMonthDayNanoArray>>()?)))
}

/// Interval of years, months, weeks, days, hours, minutes and seconds.
fn make(arrays: &[ArrayRef], rows: usize) -> DFResult<ColumnarValue> {
    let made = (0..rows).map(|row| {
        if arrays.iter().any(|array| array.is_null(row)) {
            return Ok(None);
        }
        let count = |at: usize| arrays[at].as_primitive::<Int64Type>().value(row);
        let sum = |great: i64, of_great: i64, small: i64| great.checked_mul(of_great)?.checked_add(small);
        let interval = || {
            let months = i32::try_from(sum(count(0), 12, count(1))?).ok()?;
            let days = i32::try_from(sum(count(2), 7, count(3))?).ok()?;
            let seconds = (arrays[6].as_primitive::<Float64Type>().value(row) * 1e6).round_ties_even();
            let fits = seconds.abs() < i64::MAX as f64;
            let minutes = sum(count(4), 60, count(5))?;
            let micros = sum(minutes, 60_000_000, fits.then_some(seconds as i64)?)?;
            Interval::new(months, days, micros)
        };
        interval().map(|interval| Some(interval.to_arrow())).ok_or_else(out_of_range)
    });
    Ok(ColumnarValue::Array(Arc::new(made.collect::<DFResult<IntervalMonthDayNanoArray>>()?)))
}

pub(super) fn of_micros(durations: &DurationMicrosecondArray) -> DFResult<ArrayRef> {
    let intervals = durations.iter().map(|micros| match micros {
        Some(micros) => values::of_micros(micros).map(Some).ok_or_else(out_of_range),
        None => Ok(None),
    });
    Ok(Arc::new(intervals.collect::<DFResult<IntervalMonthDayNanoArray>>()?))
}

fn times(
    intervals: &IntervalMonthDayNanoArray,
    numbers: &ArrayRef,
    divided: bool,
) -> DFResult<ColumnarValue> {
    let numbers = numbers.as_primitive::<Float64Type>();
    let scaled = intervals.iter().zip(numbers).map(|pair| {
        let (Some(interval), Some(number)) = pair else { return Ok(None) };
        if divided && number == 0.0 {
            return Err(external(Error::coded("22012", "division by zero")));
        }
        let scale = |field: f64| if divided { field / number } else { field * number };
        values::scaled(interval, scale).map(Some).ok_or_else(out_of_range)
    });
    Ok(ColumnarValue::Array(Arc::new(scaled.collect::<DFResult<IntervalMonthDayNanoArray>>()?)))
}
