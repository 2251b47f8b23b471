//! Interval arithmetic as in PostgreSQL: months, days and time apart, equal where 30 days are a month and 24
//! hours a day.
//!
//! | written | planned |
//! | --- | --- |
//! | `interval * x`, `x * interval`, `interval / x` | [`functions::scaled`] |
//! | `date + interval`, `date - interval` | a TIMESTAMP, from the beginning of the date |
//! | `interval < '2 days'` | the literal as an interval |
//! | `interval < interval`, BETWEEN, IN, keys of sorts and windows | [`functions::extent`] of both |
//! | `min(interval)`, `max(interval)` | the first value by its extent |
//! | `interval::text`, `a \|\| interval` | [`functions::text`] |
//! | difference of timestamps as an interval | [`functions::of_duration`]: whole days and time |
//!
//! The difference of two timestamps is DataFusion's duration, a number of microseconds: it is summed,
//! averaged and grouped as such, and becomes an interval where one is needed or shown.
//!
//! Intervals that are equal and not the same (`1 day`, `24 hours`) are two groups of a GROUP BY.

mod functions;
mod spelling;
mod values;

use crate::postgres::rewriting::rewritten;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as EngineResult, ScalarValue};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Between, Cast, InList, Sort as SortKey, TryCast};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, Sort, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

pub(crate) use self::spelling::spelled;

/// The type of intervals.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Functions that SQL can name.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    functions::named()
}

/// Planner of operators that DataFusion lacks for intervals.
#[derive(Debug)]
pub(crate) struct IntervalOperators;

impl ExprPlanner for IntervalOperators {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> EngineResult<PlannerResult<RawBinaryExpr>> {
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
fn as_interval(expr: Expr) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), None) => {
            let text = spelled(text).unwrap_or_else(|| text.clone());
            cast(Expr::Literal(ScalarValue::Utf8(Some(text)), None), INTERVAL)
        }
        _ => expr,
    }
}

/// Rules that make intervals comparable, and their casts PostgreSQL's.
#[derive(Debug)]
pub(crate) enum IntervalOrder {
    /// Keys of windows. Precedes DataFusion's type coercion, which refuses them.
    Windows,
    /// All other expressions. Follows the type coercion, which adds casts.
    Values,
}

impl AnalyzerRule for IntervalOrder {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> EngineResult<LogicalPlan> {
        if let IntervalOrder::Windows = self {
            return rewritten(plan, window);
        }
        let plan = rewritten(plan, node)?;
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Sort(Sort { mut expr, input, fetch }) => {
                let changed = order(&mut expr, input.schema());
                Ok(Transformed::new_transformed(LogicalPlan::Sort(Sort { expr, input, fetch }), changed))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        match self {
            IntervalOrder::Windows => "interval_order_of_windows",
            IntervalOrder::Values => "interval_order",
        }
    }
}

fn node(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let changed = is_comparison(op) && measure([left.as_mut(), right.as_mut()], schema);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(mut between) => {
            let Between { expr, low, high, .. } = &mut between;
            let changed = measure([expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            Transformed::new_transformed(Expr::Between(between), changed)
        }
        Expr::InList(mut list) => {
            let InList { expr, list: items, .. } = &mut list;
            let changed = measure(std::iter::once(expr.as_mut()).chain(items), schema);
            Transformed::new_transformed(Expr::InList(list), changed)
        }
        Expr::Cast(Cast { expr, field }) => match converted(*expr, field.data_type(), schema) {
            Ok(converted) => Transformed::yes(converted),
            Err(expr) => Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field })),
        },
        Expr::TryCast(TryCast { expr, field }) => match converted(*expr, field.data_type(), schema) {
            Ok(converted) => Transformed::yes(converted),
            Err(expr) => Transformed::no(Expr::TryCast(TryCast { expr: Box::new(expr), field })),
        },
        Expr::AggregateFunction(function) => extreme(function, schema),
        other => Transformed::no(other),
    }
}

fn window(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expr {
        Expr::WindowFunction(function) => order(&mut function.params.order_by, schema),
        _ => false,
    };
    Transformed::new_transformed(expr, changed)
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// Replaces intervals by their extents.
fn measure<'e>(operands: impl IntoIterator<Item = &'e mut Expr>, schema: &DFSchema) -> bool {
    let mut changed = false;
    for operand in operands {
        if is_interval(operand, schema) {
            *operand = functions::extent(std::mem::take(operand));
            changed = true;
        }
    }
    changed
}

fn order(keys: &mut [SortKey], schema: &DFSchema) -> bool {
    measure(keys.iter_mut().map(|key| &mut key.expr), schema)
}

/// Cast from an interval to a string, or from the difference of two timestamps to an interval or string; else
/// the expression.
fn converted(expr: Expr, to: &DataType, schema: &DFSchema) -> Result<Expr, Expr> {
    match (expr.get_type(schema), to) {
        (Ok(DataType::Duration(_)), DataType::Interval(_)) => Ok(functions::of_duration(expr)),
        (Ok(DataType::Duration(_)), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            Ok(cast(functions::text(functions::of_duration(expr)), to.clone()))
        }
        (Ok(DataType::Interval(_)), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            Ok(cast(functions::text(expr), to.clone()))
        }
        _ => Err(expr),
    }
}

/// Rewrites `min` and `max` of intervals into the first of them, and the order in which an aggregate is
/// computed.
fn extreme(mut function: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let ascending = match function.func.name() {
        "min" => Some(true),
        "max" => Some(false),
        _ => None,
    };
    if let (Some(ascending), [value]) = (ascending, function.params.args.as_slice())
        && is_interval(value, schema)
    {
        let key = functions::extent(value.clone());
        function.func = first_value_udaf();
        function.params.order_by = vec![SortKey::new(key, ascending, false)];
        return Transformed::yes(Expr::AggregateFunction(function));
    }
    let changed = order(&mut function.params.order_by, schema);
    Transformed::new_transformed(Expr::AggregateFunction(function), changed)
}
