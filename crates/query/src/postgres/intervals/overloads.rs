//! Functions of DataFusion that take intervals too: `sum`, `avg`, `date_trunc`, and `date_part`, which EXTRACT is.
//!
//! They stand in the place of DataFusion's while a query is planned, as types are known only then. Calls with
//! other arguments become those of DataFusion at once ([`resolved`], [`resolved_aggregate`]), so that its rules know
//! them.
//!
//! Sums have the fields of their intervals summed up, each for itself; an average is the sum divided by the count,
//! as in PostgreSQL. Memory of an aggregate: four numbers.

use super::functions::out_of_range;
use super::{INTERVAL, is_span, values};
use crate::postgres::time_parts::extracted;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType,
};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err, not_impl_err};
use datafusion::functions::datetime::{date_part, date_trunc};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, GroupsAccumulator, ReturnFieldArgs,
    ReversedUDAF, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use std::sync::Arc;

/// Type of a sum of nanoseconds.
const NANOSECONDS: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// `date_trunc` and `date_part`, of intervals too.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    [overloaded(date_trunc(), false, false), overloaded(date_part(), true, true)]
}

/// EXTRACT, of intervals too: `date_part` with exact results.
pub(super) fn extraction() -> ScalarUDF {
    overloaded(date_part(), true, false)
}

fn overloaded(inner: Arc<ScalarUDF>, extracts: bool, is_double: bool) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(OfSpan { inner, extracts, is_double, signature })
}

/// `sum` and `avg`, of intervals too.
pub(crate) fn aggregates() -> [AggregateUDF; 2] {
    let of = |inner, is_average| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::from(SpanAggregate { inner, is_average, signature })
    };
    [of(sum_udaf(), false), of(avg_udaf(), true)]
}

/// Expression that a call is whose second argument has this type: one of DataFusion's function, if that is no
/// interval.
pub(crate) fn resolved(mut call: ScalarFunction, second: Option<&DataType>) -> Expr {
    let function = Arc::clone(&call.func);
    let Some(own) = function.inner().downcast_ref::<OfSpan>() else { return Expr::ScalarFunction(call) };
    if second.is_some_and(is_interval) {
        let call = Expr::ScalarFunction(call);
        return if own.is_double { cast(call, DataType::Float64) } else { call };
    }
    call.func = Arc::clone(&own.inner);
    if own.extracts { extracted(call, second, own.is_double) } else { Expr::ScalarFunction(call) }
}

/// Aggregate of DataFusion that a call with an argument of this type is.
pub(crate) fn resolved_aggregate(
    function: &Arc<AggregateUDF>,
    argument: Option<&DataType>,
) -> Option<Arc<AggregateUDF>> {
    let own = function.inner().downcast_ref::<SpanAggregate>()?;
    (!argument.is_some_and(is_interval)).then(|| Arc::clone(&own.inner))
}

fn is_interval(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_))
}

/// Type of a field of an interval.
fn part_type(unit: &str) -> DataType {
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, values::part_scale(unit).cast_signed())
}

/// Types to which DataFusion's function coerces its arguments.
fn coerced<F: UDFCoercionExt>(arguments: &[DataType], function: &F) -> DFResult<Vec<DataType>> {
    let fields: Vec<FieldRef> =
        arguments.iter().map(|of| Arc::new(Field::new("argument", of.clone(), true))).collect();
    Ok(fields_with_udf(&fields, function)?.iter().map(|field| field.data_type().clone()).collect())
}

/// Function of a unit and an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfSpan {
    inner: Arc<ScalarUDF>,
    /// True if it returns a field, false if it truncates.
    extracts: bool,
    /// True if a field is a DOUBLE to SQL.
    is_double: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OfSpan {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match arguments {
            [_, of] if is_span(of) => Ok(vec![DataType::Utf8, INTERVAL]),
            other => coerced(other, self.inner.as_ref()),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [_, of] if is_interval(of) && self.extracts => Ok(part_type("second")),
            [_, of] if is_interval(of) => Ok(INTERVAL),
            other => self.inner.inner().return_type(other),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        match arguments.arg_fields {
            [_, of] if is_interval(of.data_type()) => {
                let of = match (self.extracts, arguments.scalar_arguments.first()) {
                    (true, Some(Some(ScalarValue::Utf8(Some(unit))))) => part_type(unit),
                    (true, _) => part_type("second"),
                    (false, _) => INTERVAL,
                };
                Ok(Arc::new(Field::new(self.name(), of, true)))
            }
            _ => self.inner.return_field_from_args(arguments),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [unit, interval] = arguments.args.as_slice() else {
            return internal_err!("{} expects two arguments", self.name());
        };
        if !is_interval(&interval.data_type()) {
            return self.inner.invoke_with_args(arguments);
        }
        let (units, intervals) =
            (unit.to_array(arguments.number_rows)?, interval.to_array(arguments.number_rows)?);
        let (units, intervals) =
            (units.as_string::<i32>(), intervals.as_primitive::<IntervalMonthDayNanoType>());
        if let DataType::Decimal128(_, scale) = arguments.return_field.data_type() {
            let parts = units.iter().zip(intervals).map(|pair| match pair {
                (Some(unit), Some(interval)) => values::part(interval, unit).map(Some),
                _ => Ok(None),
            });
            let factor = 10_i128.pow(6_u32.saturating_sub(u32::from(scale.unsigned_abs())));
            let parts = parts.map(|part| part.map(|part| part.map(|part| part / factor)));
            let parts = parts.collect::<DFResult<Decimal128Array>>()?;
            let of = arguments.return_field.data_type().clone();
            return Ok(ColumnarValue::Array(Arc::new(parts.with_data_type(of))));
        }
        let truncated = units.iter().zip(intervals).map(|pair| match pair {
            (Some(unit), Some(interval)) => values::truncated(interval, unit).map(Some),
            _ => Ok(None),
        });
        let truncated: DFResult<datafusion::arrow::array::IntervalMonthDayNanoArray> = truncated.collect();
        Ok(ColumnarValue::Array(Arc::new(truncated?)))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SpanAggregate {
    inner: Arc<AggregateUDF>,
    is_average: bool,
    signature: Signature,
}

impl SpanAggregate {
    fn own(&self, arguments: &AccumulatorArgs<'_>) -> DFResult<Option<Box<dyn Accumulator>>> {
        if !arguments.expr_fields.first().is_some_and(|field| is_interval(field.data_type())) {
            return Ok(None);
        }
        if arguments.is_distinct {
            return not_impl_err!("{}(DISTINCT interval)", self.name());
        }
        Ok(Some(Box::new(SpanSum { is_average: self.is_average, ..SpanSum::default() })))
    }
}

impl AggregateUDFImpl for SpanAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match arguments {
            [of] if is_interval(of) => Ok(vec![INTERVAL]),
            other => coerced(other, self.inner.as_ref()),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [of] if is_interval(of) => Ok(INTERVAL),
            other => self.inner.return_type(other),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DFResult<Box<dyn Accumulator>> {
        match self.own(&arguments)? {
            Some(own) => Ok(own),
            None => self.inner.accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> DFResult<Box<dyn Accumulator>> {
        match self.own(&arguments)? {
            Some(own) => Ok(own),
            None => self.inner.create_sliding_accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DFResult<Vec<FieldRef>> {
        if !arguments.input_fields.first().is_some_and(|field| is_interval(field.data_type())) {
            return self.inner.state_fields(arguments);
        }
        let field = |part: &str, of| Arc::new(Field::new(format!("{}[{part}]", arguments.name), of, true));
        Ok(vec![
            field("months", DataType::Int64),
            field("days", DataType::Int64),
            field("time", NANOSECONDS),
            field("count", DataType::Int64),
        ])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        let is_own = arguments.expr_fields.first().is_some_and(|field| is_interval(field.data_type()));
        !is_own && self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DFResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// Sum of intervals, and their number.
#[derive(Debug, Default)]
struct SpanSum {
    is_average: bool,
    months: i64,
    days: i64,
    nanoseconds: i128,
    count: i64,
}

impl SpanSum {
    /// Adds intervals, or takes them away. Counts of rows leave the sums far from the ends of their types.
    fn add(&mut self, array: &ArrayRef, sign: i64) {
        for interval in array.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
            self.count += sign;
        }
    }

    /// Sum or mean; none out of range, which the sum of a mean may be.
    fn result(&self) -> Option<IntervalMonthDayNano> {
        if self.is_average {
            let mean = |sum: f64| sum / self.count as f64;
            let micros = self.nanoseconds as f64 / values::NANOS_PER_MICRO as f64;
            return values::of_fields(mean(self.months as f64), mean(self.days as f64), mean(micros));
        }
        let (months, days) = (i32::try_from(self.months).ok()?, i32::try_from(self.days).ok()?);
        Some(IntervalMonthDayNano::new(months, days, i64::try_from(self.nanoseconds).ok()?))
    }
}

impl Accumulator for SpanSum {
    fn update_batch(&mut self, arrays: &[ArrayRef]) -> DFResult<()> {
        arrays.first().into_iter().for_each(|array| self.add(array, 1));
        Ok(())
    }

    fn retract_batch(&mut self, arrays: &[ArrayRef]) -> DFResult<()> {
        arrays.first().into_iter().for_each(|array| self.add(array, -1));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DFResult<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let result = self.result().ok_or_else(out_of_range)?;
        Ok(ScalarValue::IntervalMonthDayNano(Some(result)))
    }

    fn size(&self) -> usize {
        size_of::<SpanSum>()
    }

    fn state(&mut self) -> DFResult<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::from(self.months),
            ScalarValue::from(self.days),
            ScalarValue::Decimal128(Some(self.nanoseconds), DECIMAL128_MAX_PRECISION, 0),
            ScalarValue::from(self.count),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DFResult<()> {
        let [months, days, nanoseconds, count] = states else {
            return internal_err!("the state of a sum of intervals has four fields");
        };
        let (months, days) = (months.as_primitive::<Int64Type>(), days.as_primitive::<Int64Type>());
        let nanoseconds = nanoseconds.as_primitive::<Decimal128Type>();
        let count = count.as_primitive::<Int64Type>();
        for row in (0..count.len()).filter(|row| count.is_valid(*row)) {
            self.months += months.value(row);
            self.days += days.value(row);
            self.nanoseconds += nanoseconds.value(row);
            self.count += count.value(row);
        }
        Ok(())
    }
}
