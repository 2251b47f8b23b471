//! Interval functions, for the planner and by name.

use super::{INTERVAL, is_span, values};
use crate::error::{Error, external};
use datafusion::arrow::array::{
    ArrayRef, AsArray, Decimal128Array, DurationMicrosecondArray, IntervalMonthDayNanoArray, StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, TimeUnit,
};
use datafusion::common::{Result as EngineResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::calendar;
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
    [IntervalFunction::JustifyHours, IntervalFunction::JustifyDays, IntervalFunction::JustifyInterval]
        .into_iter()
        .map(function)
}

/// Product of an interval and a number, or their quotient.
pub(super) fn scaled(interval: Expr, number: Expr, divided: bool) -> Expr {
    function(if divided { IntervalFunction::DividedBy } else { IntervalFunction::Times })
        .call(vec![interval, number])
}

/// Number by which intervals are compared.
pub(super) fn extent(interval: Expr) -> Expr {
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

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            IntervalFunction::Times => "interval_times",
            IntervalFunction::DividedBy => "interval_divided_by",
            IntervalFunction::Extent => "interval_extent",
            IntervalFunction::Text => "interval_text",
            IntervalFunction::OfDuration => "interval_of_duration",
            IntervalFunction::JustifyHours => "justify_hours",
            IntervalFunction::JustifyDays => "justify_days",
            IntervalFunction::JustifyInterval => "justify_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> EngineResult<Vec<DataType>> {
        match (self.kind, arguments) {
            (IntervalFunction::OfDuration, [_]) => Ok(vec![DURATION]),
            (IntervalFunction::Times | IntervalFunction::DividedBy, [span, _]) if is_span(span) => {
                Ok(vec![INTERVAL, DataType::Float64])
            }
            (_, [span]) if is_span(span) || span.is_null() => Ok(vec![INTERVAL]),
            _ => plan_err!("{} expects an interval", self.name()),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> EngineResult<DataType> {
        Ok(match self.kind {
            IntervalFunction::Extent => EXTENT,
            IntervalFunction::Text => DataType::Utf8,
            _ => INTERVAL,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let arrays: Vec<ArrayRef> = arguments
            .args
            .iter()
            .map(|argument| argument.to_array(arguments.number_rows))
            .collect::<EngineResult<_>>()?;
        if self.kind == IntervalFunction::OfDuration {
            let micros = cast(&arrays[0], &DURATION)?;
            return of_micros(micros.as_primitive::<DurationMicrosecondType>());
        }
        let intervals = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        let justified = |hours, days| {
            let justified = intervals.iter().map(|interval| match interval {
                Some(interval) => values::justified(interval, hours, days).map(Some).ok_or_else(out_of_range),
                None => Ok(None),
            });
            Ok(ColumnarValue::Array(Arc::new(
                justified.collect::<EngineResult<IntervalMonthDayNanoArray>>()?,
            )))
        };
        match self.kind {
            IntervalFunction::Times | IntervalFunction::DividedBy => {
                times(intervals, &arrays[1], self.kind == IntervalFunction::DividedBy)
            }
            IntervalFunction::JustifyHours => justified(true, false),
            IntervalFunction::JustifyDays => justified(false, true),
            IntervalFunction::JustifyInterval => justified(true, true),
            IntervalFunction::Text => {
                let texts = intervals.iter().map(|interval| interval.map(written));
                Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())))
            }
            IntervalFunction::Extent | IntervalFunction::OfDuration => {
                let extents = intervals.iter().map(|interval| interval.map(values::extent));
                let extents = extents.collect::<Decimal128Array>().with_data_type(EXTENT);
                Ok(ColumnarValue::Array(Arc::new(extents)))
            }
        }
    }
}

fn out_of_range() -> datafusion::error::DataFusionError {
    external(Error::coded("22008", "interval out of range"))
}

fn written(interval: IntervalMonthDayNano) -> String {
    let mut text = String::new();
    let micros = interval.nanoseconds / 1_000;
    // Writing to a `String` does not fail.
    let _ = calendar::format_interval(interval.months, interval.days, micros, &mut text);
    text
}

fn of_micros(durations: &DurationMicrosecondArray) -> EngineResult<ColumnarValue> {
    let intervals = durations.iter().map(|micros| match micros {
        Some(micros) => values::of_micros(micros).map(Some).ok_or_else(out_of_range),
        None => Ok(None),
    });
    Ok(ColumnarValue::Array(Arc::new(intervals.collect::<EngineResult<IntervalMonthDayNanoArray>>()?)))
}

fn times(
    intervals: &IntervalMonthDayNanoArray,
    numbers: &ArrayRef,
    divided: bool,
) -> EngineResult<ColumnarValue> {
    let numbers = numbers.as_primitive::<Float64Type>();
    let scaled = intervals.iter().zip(numbers).map(|pair| {
        let (Some(interval), Some(number)) = pair else { return Ok(None) };
        if divided && number == 0.0 {
            return Err(external(Error::coded("22012", "division by zero")));
        }
        let scale = |field: f64| if divided { field / number } else { field * number };
        values::scaled(interval, scale).map(Some).ok_or_else(out_of_range)
    });
    Ok(ColumnarValue::Array(Arc::new(scaled.collect::<EngineResult<IntervalMonthDayNanoArray>>()?)))
}
