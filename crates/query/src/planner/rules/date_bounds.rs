//! Comparisons of dates with constant timestamps as comparisons with dates.
//!
//! `day < DATE '1998-12-01' - INTERVAL '90' DAY` compares timestamps, as in PostgreSQL: a date less an interval is
//! one. So a cast stands around the column, and neither scans nor their pages' smallest and greatest values, neither
//! indexes nor partitions see the condition. It is the same as a comparison with a date: with that of the timestamp,
//! where it is midnight, and else with the date before it, after which a later date is the first that is greater.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// Seconds of a day.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct DateBounds;

impl DateBounds {
    /// Puts the rule behind the one that computes constants, before those that move conditions.
    pub(crate) fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
        let constants = SimplifyExpressions::new();
        let behind = rules.iter().position(|rule| rule.name() == constants.name()).map_or(0, |at| at + 1);
        rules.insert(behind, Arc::new(DateBounds));
    }
}

impl OptimizerRule for DateBounds {
    fn name(&self) -> &str {
        "date_bounds"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> DFResult<Transformed<LogicalPlan>> {
        let inputs: Vec<_> = match &plan {
            LogicalPlan::Filter(filter) => vec![Arc::clone(filter.input.schema())],
            LogicalPlan::Join(join) => vec![Arc::clone(&join.schema)],
            _ => return Ok(Transformed::no(plan)),
        };
        let is_date = |expr: &Expr| {
            inputs
                .iter()
                .any(|schema| expr.get_type(schema.as_ref()).is_ok_and(|known| known == DataType::Date32))
        };
        plan.map_expressions(|expr| expr.transform_up(|expr| Ok(compared(expr, is_date))))
    }
}

/// Comparison with a date that an expression is, if it compares a cast date with a constant timestamp.
fn compared(expr: Expr, is_date: impl Fn(&Expr) -> bool) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else { return Transformed::no(expr) };
    let sides = match (left.as_ref(), right.as_ref()) {
        (Expr::Cast(cast), Expr::Literal(value, _)) => Some((cast, *op, value)),
        (Expr::Literal(value, _), Expr::Cast(cast)) => op.swap().map(|op| (cast, op, value)),
        _ => None,
    };
    let rewritten = sides.and_then(|(cast, op, value)| {
        let is_of_date = is_timestamp(cast) && is_date(&cast.expr);
        let (op, day) = is_of_date.then(|| bound(op, value)).flatten()?;
        let right = Box::new(lit(ScalarValue::Date32(Some(day))));
        Some(Expr::BinaryExpr(BinaryExpr { left: cast.expr.clone(), op, right }))
    });
    rewritten.map_or_else(|| Transformed::no(expr), Transformed::yes)
}

fn is_timestamp(cast: &Cast) -> bool {
    matches!(cast.field.data_type(), DataType::Timestamp(_, None))
}

/// Operator and date that compare dates as a timestamp does; `None` where no date does, as for equality with a time
/// of day.
fn bound(op: Operator, value: &ScalarValue) -> Option<(Operator, i32)> {
    let (ticks, unit) = match *value {
        ScalarValue::TimestampSecond(Some(ticks), None) => (ticks, TimeUnit::Second),
        ScalarValue::TimestampMillisecond(Some(ticks), None) => (ticks, TimeUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(Some(ticks), None) => (ticks, TimeUnit::Microsecond),
        ScalarValue::TimestampNanosecond(Some(ticks), None) => (ticks, TimeUnit::Nanosecond),
        _ => return None,
    };
    let second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let ticks_of_day = DAY_SECONDS * second;
    let day = i32::try_from(ticks.div_euclid(ticks_of_day)).ok()?;
    let is_midnight = ticks.rem_euclid(ticks_of_day) == 0;
    let op = match op {
        Operator::Lt if !is_midnight => Operator::LtEq,
        Operator::GtEq if !is_midnight => Operator::Gt,
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => op,
        Operator::Eq | Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom
            if is_midnight =>
        {
            op
        }
        _ => return None,
    };
    Some((op, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    /// Compares days around a timestamp by both comparisons.
    #[test]
    fn dates_compare_as_their_midnights_do() {
        let ops = [
            Operator::Lt,
            Operator::LtEq,
            Operator::Gt,
            Operator::GtEq,
            Operator::Eq,
            Operator::NotEq,
            Operator::IsDistinctFrom,
            Operator::IsNotDistinctFrom,
        ];
        let holds = |op: Operator, left: i64, right: i64| match op {
            Operator::Lt => left < right,
            Operator::LtEq => left <= right,
            Operator::Gt => left > right,
            Operator::GtEq => left >= right,
            Operator::Eq | Operator::IsNotDistinctFrom => left == right,
            _ => left != right,
        };
        for ticks in [-25 * HOUR, -24 * HOUR, -HOUR, -1, 0, 1, 23 * HOUR, 24 * HOUR, 47 * HOUR, 48 * HOUR] {
            let mut compared = 0;
            for op in ops {
                let Some((by, day)) = bound(op, &ScalarValue::TimestampNanosecond(Some(ticks), None)) else {
                    continue;
                };
                compared += 1;
                for other in -4..=4 {
                    let as_dates = holds(by, other, i64::from(day));
                    assert_eq!(
                        as_dates,
                        holds(op, other * 24 * HOUR, ticks),
                        "day {other} {op} {ticks}: {by} {day}"
                    );
                }
            }
            assert_eq!(compared, if ticks % (24 * HOUR) == 0 { 8 } else { 4 }, "{ticks}");
        }
    }

    #[test]
    fn timestamps_without_a_date_are_left() {
        assert_eq!(bound(Operator::Lt, &ScalarValue::TimestampNanosecond(None, None)), None);
        assert_eq!(bound(Operator::Lt, &ScalarValue::TimestampSecond(Some(i64::MAX), None)), None);
        assert_eq!(bound(Operator::Plus, &ScalarValue::TimestampSecond(Some(0), None)), None);
        let zoned = ScalarValue::TimestampSecond(Some(0), Some("UTC".into()));
        assert_eq!(bound(Operator::Lt, &zoned), None);
    }
}
