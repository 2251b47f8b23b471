//! Time zones: their names, and what is local to them.
//!
//! - Tables keep TIMESTAMPs without a zone. A value with one is a moment: the engine's type has the session's zone, in
//!   which its texts, parts and days are.
//! - Where a moment loses its zone it becomes the time on the wall in that zone, as in PostgreSQL: in casts to
//!   TIMESTAMP, DATE and TIME, and when it is assigned to a column.
//! - Offsets count to the east, as in ISO 8601, but for PostgreSQL's `GMT+2` and `UTC+2`, which count to the west.

use std::sync::Arc;

use chrono_tz::TZ_VARIANTS;
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::temporal_conversions::as_datetime_with_timezone;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as EngineResult};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionState;
use datafusion::functions::datetime::to_local_time;
use datafusion::logical_expr::expr::{Between, Cast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TryCast, Volatility, cast as cast_expr,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::Result;
use crate::rewriting::rewritten;

/// The zone that times are kept in.
pub(crate) const UTC: &str = "UTC";
/// Its other names.
const UTC_NAMES: [&str; 6] = ["UTC", "Etc/UTC", "GMT", "Z", "+00", "0"];
/// The option of the engine that is the session's zone.
pub(crate) const OPTION: &str = "datafusion.execution.time_zone";
/// The farthest that an offset may be.
const OFFSET_MINUTES_MAX: f64 = 16.0 * 60.0;

/// The zone of this name as it is kept and shown, if there is one: `Europe/Berlin`, `+02:00`, hours as in `-3.5`.
pub(crate) fn named(name: &str) -> Option<String> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if UTC_NAMES.iter().any(is) {
        return Some(UTC.to_owned());
    }
    if let Ok(hours) = name.parse() {
        return offset(hours);
    }
    if let Some(offset) = posix(name) {
        return Some(offset);
    }
    if let Some(zone) = TZ_VARIANTS.iter().find(|zone| is(&zone.name())) {
        return Some(zone.name().to_owned());
    }
    name.parse::<Tz>().is_ok().then(|| name.to_owned())
}

/// `GMT+2` and the like.
fn posix(name: &str) -> Option<String> {
    let (zone, west) = name.split_at_checked(3)?;
    let known = ["GMT", "UTC"].iter().any(|known| known.eq_ignore_ascii_case(zone));
    if !known || !west.starts_with(['+', '-']) {
        return None;
    }
    let (hours, minutes) = west[1..].split_once(':').unwrap_or((&west[1..], "0"));
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let hours = f64::from(hours) + f64::from(minutes) / 60.0;
    offset(if west.starts_with('+') { -hours } else { hours })
}

fn offset(hours: f64) -> Option<String> {
    let minutes = (hours * 60.0).round();
    if minutes.is_nan() || minutes.abs() >= OFFSET_MINUTES_MAX {
        return None;
    }
    let sign = if minutes < 0.0 { '-' } else { '+' };
    // At most four digits.
    let minutes = minutes.abs() as u32;
    Some(if minutes == 0 { UTC.to_owned() } else { format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60) })
}

/// Makes a zone that of the engine, and of the functions that have it.
pub(crate) fn set(state: &mut SessionState, zone: &str) -> Result<()> {
    state.config_mut().options_mut().set(OPTION, zone)?;
    let options = state.config_options();
    let functions = state.scalar_functions().values();
    let changed: Vec<_> =
        functions.filter_map(|function| function.inner().with_updated_config(options)).collect();
    for function in changed {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// Moments as the time on the wall; other arrays as they are.
pub(crate) fn local(array: &ArrayRef) -> Result<ArrayRef> {
    let DataType::Timestamp(_, Some(zone)) = array.data_type() else { return Ok(Arc::clone(array)) };
    let tz: Tz = zone.parse()?;
    let moments = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone))))?;
    let local: PrimitiveArray<TimestampMicrosecondType> =
        moments.as_primitive::<TimestampMicrosecondType>().unary_opt(|moment| {
            let moment = as_datetime_with_timezone::<TimestampMicrosecondType>(moment, tz)?;
            Some(moment.naive_local().and_utc().timestamp_micros())
        });
    Ok(Arc::new(local))
}

/// The rule for casts between moments and times on the wall; it comes after the engine's type coercion, which adds some.
///
/// - A moment is made a time on the wall before it loses its zone.
/// - A comparison with a time on the wall is made on the wall: so it keeps to columns, and their indexes.
/// - The engine takes both for the same number when it moves a cast from one side of a comparison to the other. So a cast
///   to a moment is a function of ours, [`Moment`], which it does not see through.
///
/// In UTC both are the same number.
#[derive(Debug)]
pub(crate) struct LocalTimes;

impl AnalyzerRule for LocalTimes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> EngineResult<LogicalPlan> {
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

/// The cast of an expression, if it is between a moment and a time on the wall; else the expression.
fn recast(expr: Expr, to: &DataType, schema: &DFSchema) -> std::result::Result<Expr, Expr> {
    let from = expr.get_type(schema);
    match to {
        DataType::Timestamp(unit, Some(zone)) if !is_utc(zone) => {
            let wall = match from {
                Ok(DataType::Timestamp(_, None)) => expr,
                Ok(DataType::Date32 | DataType::Date64) => cast_expr(expr, DataType::Timestamp(*unit, None)),
                _ => return Err(expr),
            };
            Ok(ScalarUDF::from(Moment::new(to.clone())).call(vec![wall]))
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

/// Makes a comparison of moments one of times on the wall if one of them was made of such a time.
fn on_the_wall(operands: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let wall = operands.iter().find_map(|operand| moment_of(operand)?.get_type(schema).ok());
    let Some(wall) = wall else { return false };
    for operand in operands {
        let whole = std::mem::take(operand);
        *operand = match moment_of(&whole) {
            Some(inner) => inner.clone(),
            None => cast_expr(to_local_time().call(vec![whole]), wall.clone()),
        };
    }
    true
}

/// What a moment was made of.
fn moment_of(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(function) = expr else { return None };
    function.func.inner().is::<Moment>().then(|| function.args.first()).flatten()
}

fn is_utc(zone: &str) -> bool {
    [UTC, "+00:00"].contains(&zone)
}

/// A time on the wall as a moment of this type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Moment {
    signature: Signature,
    data_type: DataType,
}

impl Moment {
    fn new(data_type: DataType) -> Moment {
        Moment { signature: Signature::any(1, Volatility::Immutable), data_type }
    }
}

impl ScalarUDFImpl for Moment {
    fn name(&self) -> &str {
        "moment"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> EngineResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        arguments.args[0].cast_to(&self.data_type, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_many_names() {
        for (name, expected) in [
            ("europe/berlin", Some("Europe/Berlin")),
            ("CET", Some("CET")),
            ("etc/utc", Some("UTC")),
            ("0", Some("UTC")),
            ("2", Some("+02:00")),
            ("-3.5", Some("-03:30")),
            ("+05:45", Some("+05:45")),
            ("GMT-02:00", Some("+02:00")),
            ("utc+3", Some("-03:00")),
            ("Europe/Nowhere", None),
            ("99", None),
            ("NaN", None),
            ("GMT+x", None),
            ("", None),
        ] {
            assert_eq!(named(name).as_deref(), expected, "{name}");
        }
    }
}
