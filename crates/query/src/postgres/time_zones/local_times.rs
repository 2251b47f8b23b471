//! Instants and local times in plans: casts, comparisons, AT TIME ZONE.

use super::now::Now;
use super::{UTC, Zone, named_in_expression};
use crate::error::{Error, external};
use crate::postgres::numbers::operands;
use crate::postgres::rewriting::rewritten;
use datafusion::arrow::array::{Array, AsArray, Int64Array, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    DFSchema, Result as DFResult, ScalarValue, exec_datafusion_err, internal_err, plan_err,
};
use datafusion::functions::datetime::to_local_time;
use datafusion::logical_expr::expr::{Between, Cast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TryCast, Volatility, cast as cast_expr,
};
use datafusion::optimizer::AnalyzerRule;
use entresol_tables::calendar;
use std::sync::Arc;

/// Bytes of a formatted time.
const TEXT_BYTES: usize = 26;

/// Rule that converts a date beside a time to the time at which it begins, in that one's unit. It precedes DataFusion's
/// type coercion, which makes both local times in nanoseconds: those end in 2262.
#[derive(Debug)]
pub(crate) struct DatesBesideTimes;

impl AnalyzerRule for DatesBesideTimes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, dates_to_times)
    }

    fn name(&self) -> &str {
        "dates_beside_times"
    }
}

fn dates_to_times(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let operands = operands(&mut expr);
    let types: Vec<Option<DataType>> = operands.iter().map(|operand| operand.get_type(schema).ok()).collect();
    let times = || types.iter().flatten().filter(|of| matches!(of, DataType::Timestamp(..)));
    let instant = times().find(|of| matches!(of, DataType::Timestamp(_, Some(_)))).or_else(|| times().next());
    let is_date = |of: &Option<DataType>| matches!(of, Some(DataType::Date32 | DataType::Date64));
    let Some(time) = instant.filter(|_| types.iter().any(is_date)) else {
        drop(operands);
        return Transformed::no(expr);
    };
    for (operand, _) in operands.into_iter().zip(&types).filter(|(_, of)| is_date(of)) {
        *operand = cast_expr(std::mem::take(operand), time.clone());
    }
    Transformed::yes(expr)
}

/// Rule for casts to instants and local times, and between them; it follows DataFusion's type coercion, which
/// adds some.
///
/// - An instant is converted to local time before it loses its zone.
/// - A comparison with a column's local time is made in local time: so it applies to columns, and their
///   indexes. With a constant it is one of instants.
/// - DataFusion treats both as the same number when it moves a cast from one side of a comparison to the
///   other. So a cast to an instant is a function of ours, [`ToInstant`], which is opaque to it.
///
/// In UTC both are the same number.
#[derive(Debug)]
pub(crate) struct LocalTimes;

impl AnalyzerRule for LocalTimes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, localised)
    }

    fn name(&self) -> &str {
        "local_times"
    }
}

fn localised(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::Cast(Cast { expr, field }) => match recast(*expr, field.data_type(), schema) {
            Ok(cast) => Transformed::yes(cast),
            Err(expr) => Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field })),
        },
        Expr::TryCast(TryCast { expr, field }) => match recast(*expr, field.data_type(), schema) {
            Ok(cast) => Transformed::yes(cast),
            Err(expr) => Transformed::no(Expr::TryCast(TryCast { expr: Box::new(expr), field })),
        },
        Expr::BinaryExpr(mut compared) if compared.op.supports_propagation() => {
            let sides = [compared.left.as_mut(), compared.right.as_mut()];
            let changed = on_the_wall(sides.into_iter().collect(), schema);
            Transformed::new_transformed(Expr::BinaryExpr(compared), changed)
        }
        Expr::Between(mut between) => {
            let Between { expr, low, high, .. } = &mut between;
            let changed = on_the_wall(vec![expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            Transformed::new_transformed(Expr::Between(between), changed)
        }
        Expr::InList(mut list) => {
            let operands = std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect();
            let changed = on_the_wall(operands, schema);
            Transformed::new_transformed(Expr::InList(list), changed)
        }
        other => Transformed::no(other),
    }
}

/// Cast of an expression, if it is between a string and a time, or between an instant and a local time; else
/// the expression.
fn recast(expr: Expr, to: &DataType, schema: &DFSchema) -> std::result::Result<Expr, Expr> {
    if let Some(time) = literal_time(&expr, to) {
        return Ok(Expr::Literal(time, None));
    }
    let from = expr.get_type(schema);
    match to {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            if matches!(from, Ok(DataType::Timestamp(..))) =>
        {
            let text = ScalarUDF::from(TimeText::new()).call(vec![expr]);
            Ok(if *to == DataType::Utf8 { text } else { cast_expr(text, to.clone()) })
        }
        DataType::Timestamp(unit, Some(zone)) if !is_utc(zone) => {
            let wall = match from {
                Ok(DataType::Timestamp(_, None)) => expr,
                Ok(DataType::Date32 | DataType::Date64) => cast_expr(expr, DataType::Timestamp(*unit, None)),
                _ => return Err(expr),
            };
            Ok(ScalarUDF::from(ToInstant::new(to.clone())).call(vec![wall]))
        }
        DataType::Timestamp(_, None)
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
            if matches!(&from, Ok(DataType::Timestamp(_, Some(zone))) if !is_utc(zone)) =>
        {
            Ok(cast_expr(to_local_time().call(vec![expr]), to.clone()))
        }
        _ => Err(expr),
    }
}

/// String as a time, parsed as everywhere else: `2024-07-01 12:30` is accepted, and a local time ignores a
/// zone. Other strings are left to DataFusion to parse, or to refuse.
fn literal_time(expr: &Expr, to: &DataType) -> Option<ScalarValue> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = expr else { return None };
    let DataType::Timestamp(unit, zone) = to else { return None };
    let micros = match zone {
        None => calendar::parse_timestamp(text.trim())?,
        Some(zone) => Zone::new(zone).ok()?.parse(text)?,
    };
    match unit {
        TimeUnit::Microsecond => Some(ScalarValue::TimestampMicrosecond(Some(micros), zone.clone())),
        TimeUnit::Nanosecond => {
            Some(ScalarValue::TimestampNanosecond(Some(micros.checked_mul(1000)?), zone.clone()))
        }
        TimeUnit::Second | TimeUnit::Millisecond => None,
    }
}

/// Converts a comparison of instants to one of local times if one of them was converted from a column's local
/// time.
fn on_the_wall(operands: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let of_columns = |operand: &&mut Expr| {
        let inner = instant_of(operand).filter(|inner| inner.any_column_refs())?;
        inner.get_type(schema).ok()
    };
    let wall = operands.iter().find_map(of_columns);
    let Some(wall) = wall else { return false };
    for operand in operands {
        let whole = std::mem::take(operand);
        *operand = match instant_of(&whole) {
            Some(inner) => inner.clone(),
            None => cast_expr(to_local_time().call(vec![whole]), wall.clone()),
        };
    }
    true
}

/// Local time that an instant was converted from.
fn instant_of(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(function) = expr else { return None };
    function.func.inner().is::<ToInstant>().then(|| function.args.first()).flatten()
}

fn is_utc(zone: &str) -> bool {
    [UTC, "+00:00"].contains(&zone)
}

/// Function that converts a local time to an instant of this type, in its zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToInstant {
    signature: Signature,
    data_type: DataType,
}

impl ToInstant {
    fn new(data_type: DataType) -> ToInstant {
        ToInstant { signature: Signature::any(1, Volatility::Immutable), data_type }
    }
}

impl ScalarUDFImpl for ToInstant {
    fn name(&self) -> &str {
        "instant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let DataType::Timestamp(_, Some(zone)) = &self.data_type else {
            return internal_err!("an instant of type {}", self.data_type);
        };
        let zone = Zone::new(zone).map_err(external)?;
        shifted(&arguments.args[0], &self.data_type, |_, wall| zone.instant(wall))
    }
}

/// Function that formats a timestamp as PostgreSQL does, and as everywhere else: DataFusion's format is ISO
/// 8601's.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeText {
    signature: Signature,
}

impl TimeText {
    fn new() -> TimeText {
        TimeText { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TimeText {
    fn name(&self) -> &str {
        "time_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let times = &arguments.args[0];
        let DataType::Timestamp(_, zone) = times.data_type() else {
            return internal_err!("{} is not a timestamp", times.data_type());
        };
        let rules = zone.as_deref().map(Zone::new).transpose().map_err(external)?;
        let micros = times.cast_to(&DataType::Timestamp(TimeUnit::Microsecond, zone), None)?;
        let array = micros.to_array(1)?;
        let mut texts = StringBuilder::with_capacity(array.len(), array.len() * TEXT_BYTES);
        for time in array.as_primitive::<TimestampMicrosecondType>() {
            let Some(time) = time else {
                texts.append_null();
                continue;
            };
            let written = match &rules {
                Some(zone) => zone.print(time, &mut texts),
                None => calendar::format_timestamp(time, &mut texts),
            };
            written.map_err(|error| exec_datafusion_err!("could not format a time: {error}"))?;
            texts.append_value("");
        }
        let texts = texts.finish();
        Ok(match times {
            ColumnarValue::Array(_) => ColumnarValue::Array(Arc::new(texts)),
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
        })
    }
}

/// `timezone(zone, time)`, PostgreSQL's name of `time AT TIME ZONE zone`: converts an instant to local time
/// there, and local time there to an instant.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
    /// Zone of the session.
    zone: Arc<str>,
}

impl AtTimeZone {
    fn new(zone: &str) -> AtTimeZone {
        AtTimeZone { signature: Signature::user_defined(Volatility::Immutable), zone: zone.into() }
    }
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null, time] = arguments
        else {
            return plan_err!("AT TIME ZONE expects the name of a time zone");
        };
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.zone)))
            }
            other => return plan_err!("{other} AT TIME ZONE: not a timestamp"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            [_, DataType::Timestamp(unit, None)] => {
                Ok(DataType::Timestamp(*unit, Some(Arc::clone(&self.zone))))
            }
            other => internal_err!("timezone of {other:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let ScalarFunctionArgs { args, return_field, number_rows, .. } = arguments;
        let is_wall = matches!(args[1].data_type(), DataType::Timestamp(_, None));
        let convert = |zone: &Zone, time: i64| if is_wall { zone.instant(time) } else { zone.wall(time) };
        let known = |name: &str| {
            let zone = named_in_expression(name).and_then(|name| Zone::new(&name).ok());
            zone.ok_or_else(|| {
                external(Error::coded("22023", format!("time zone \"{name}\" not recognized")))
            })
        };
        let names = match &args[0] {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))) => {
                let zone = known(name)?;
                return shifted(&args[1], return_field.data_type(), |_, time| convert(&zone, time));
            }
            other => other.to_array(number_rows)?,
        };
        let names = names.as_string::<i32>();
        let zones: Vec<Option<Zone>> =
            names.iter().map(|name| name.map(known).transpose()).collect::<DFResult<_>>()?;
        let times = ColumnarValue::Array(args[1].to_array(number_rows)?);
        shifted(&times, return_field.data_type(), |row, time| convert(zones[row].as_ref()?, time))
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(AtTimeZone::new(config.execution.time_zone.as_deref().unwrap_or(UTC)).into())
    }
}

/// Functions of this module that statements may call.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    vec![AtTimeZone::new(UTC).into(), Now::new(UTC).into()]
}

/// Converts timestamps from local time to UTC, or back, by a function of microseconds; digits below a
/// microsecond stay. The function also gets the row, 0 for a scalar. NULL where the calendar ends.
fn shifted(
    times: &ColumnarValue,
    to: &DataType,
    f: impl Fn(usize, i64) -> Option<i64>,
) -> DFResult<ColumnarValue> {
    let (unit, per_microsecond) = match times.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => (TimeUnit::Nanosecond, 1000),
        _ => (TimeUnit::Microsecond, 1),
    };
    let shift = |row: usize, time: i64| {
        let micros = time.div_euclid(per_microsecond);
        f(row, micros)?.checked_sub(micros)?.checked_mul(per_microsecond)?.checked_add(time)
    };
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone,
        _ => None,
    };
    let numbers = times.cast_to(&DataType::Timestamp(unit, zone), None)?.cast_to(&DataType::Int64, None)?;
    let shifted = match numbers {
        ColumnarValue::Scalar(ScalarValue::Int64(time)) => {
            ColumnarValue::Scalar(ScalarValue::Int64(time.and_then(|time| shift(0, time))))
        }
        ColumnarValue::Array(array) => {
            let times = array.as_primitive::<Int64Type>().iter().enumerate();
            let shifted: Int64Array = times.map(|(row, time)| shift(row, time?)).collect();
            ColumnarValue::Array(Arc::new(shifted))
        }
        other => return internal_err!("{other:?} are not timestamps"),
    };
    let DataType::Timestamp(_, zone) = to else { return internal_err!("{to} is not a timestamp") };
    shifted.cast_to(&DataType::Timestamp(unit, zone.clone()), None)?.cast_to(to, None)
}
