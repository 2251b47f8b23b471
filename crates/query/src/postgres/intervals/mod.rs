//! Interval arithmetic as in PostgreSQL: months, days and time apart, equal where 30 days are a month and 24
//! hours a day.
//!
//! | written | planned |
//! | --- | --- |
//! | `interval * x`, `x * interval`, `interval / x` | [`functions::scaled`] |
//! | `date + interval`, `date - interval` | a TIMESTAMP, from the beginning of the date |
//! | `interval < '2 days'` | the literal as an interval |
//! | `sum(interval)`, `avg(interval)`, `date_trunc(unit, interval)` | [`overloads`] |
//! | `interval::text`, `a \|\| interval` | [`functions::text`] |
//! | `text::interval` | [`functions::parsed`] |
//! | difference of timestamps as an interval | [`functions::of_duration`]: whole days and time |
//!
//! The difference of two timestamps is DataFusion's duration, a number of microseconds: it is summed,
//! averaged and grouped as such, and becomes an interval where one is needed or shown.
//!
//! They are compared by [`extent`] ([`crate::postgres::comparison_keys`]).

mod functions;
pub(crate) mod overloads;
mod spelling;
mod values;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use entresol_tables::Interval;

pub(crate) use self::functions::{MAKE_INTERVAL, extent};
pub(crate) use self::spelling::{negated, spelled, spelled_in};
pub(crate) use self::values::extent as nanoseconds;

/// The type of intervals.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Functions that SQL can name.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    functions::named()
}

/// Intervals of differences of timestamps.
pub(crate) fn of_differences(differences: &ArrayRef) -> DFResult<ArrayRef> {
    let micros = compute::cast(differences, &DataType::Duration(TimeUnit::Microsecond))?;
    functions::of_micros(micros.as_primitive())
}

/// Strings of intervals, or of differences of timestamps.
pub(crate) fn texts_of(array: &ArrayRef) -> DFResult<ArrayRef> {
    let intervals = match array.data_type() {
        DataType::Duration(_) => of_differences(array)?,
        _ => compute::cast(array, &INTERVAL)?,
    };
    Ok(functions::texts(intervals.as_primitive()))
}

/// Planner of operators that DataFusion lacks for intervals.
#[derive(Debug)]
pub(crate) struct IntervalOperators;

impl ExprPlanner for IntervalOperators {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DFResult<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (raw.left.get_type(schema), raw.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(raw));
        };
        Ok(match &raw.op {
            BinaryOperator::Multiply if is_span(&left) && is_number(&right) => {
                PlannerResult::Planned(functions::scaled(raw.left, raw.right, false))
            }
            BinaryOperator::Multiply if is_number(&left) && is_span(&right) => {
                PlannerResult::Planned(functions::scaled(raw.right, raw.left, false))
            }
            BinaryOperator::Divide if is_span(&left) && is_number(&right) => {
                PlannerResult::Planned(functions::scaled(raw.left, raw.right, true))
            }
            BinaryOperator::Plus | BinaryOperator::Minus => {
                if is_date(&left) && is_span(&right) {
                    raw.left = beginning(raw.left);
                } else if is_span(&left) && is_date(&right) {
                    raw.right = beginning(raw.right);
                } else if is_span(&left) && is_span(&right) && left != right {
                    raw.left = cast(raw.left, INTERVAL);
                    raw.right = cast(raw.right, INTERVAL);
                }
                PlannerResult::Original(raw)
            }
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => {
                if is_span(&left) {
                    raw.right = as_interval(raw.right);
                }
                if is_span(&right) {
                    raw.left = as_interval(raw.left);
                }
                PlannerResult::Original(raw)
            }
            _ => PlannerResult::Original(raw),
        })
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> DFResult<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(overloads::extraction().call(arguments)))
    }
}

fn is_span(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

fn is_number(of: &DataType) -> bool {
    of.is_numeric()
}

fn is_date(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Date64)
}

fn beginning(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Microsecond, None))
}

/// String literal beside an interval as an interval.
pub(crate) fn as_interval(expr: Expr) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), None) => match Interval::parse(text) {
            Ok(interval) => Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval.to_arrow())), None),
            Err(_) => cast(expr, INTERVAL),
        },
        _ => expr,
    }
}

/// Cast between an interval and a string, or from the difference of two timestamps to an interval or string; else
/// the expression.
pub(crate) fn converted(expr: Expr, from: &DataType, to: &DataType) -> Result<Expr, Expr> {
    match (from, to) {
        (DataType::Duration(_), DataType::Interval(_)) => Ok(functions::of_duration(expr)),
        (DataType::Duration(_), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            Ok(cast(functions::text(functions::of_duration(expr)), to.clone()))
        }
        (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, DataType::Interval(_)) => {
            Ok(functions::parsed(expr))
        }
        (DataType::Interval(_), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            Ok(cast(functions::text(expr), to.clone()))
        }
        _ => Err(expr),
    }
}
