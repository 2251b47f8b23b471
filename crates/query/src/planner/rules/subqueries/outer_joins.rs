//! Outer joins on a condition with a subquery that reads both sides.
//!
//! ```text
//!   join on the other conditions ─▶ met: the condition, for each pair ─▶ for each row of the preserved side:
//!   the pairs that are met, or else one pair without the other side's columns
//! ```

use super::plans::{columns, fresh, with_column};
use datafusion::common::{Column, JoinType, Result as DFResult, not_impl_err};
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, lit, when};

/// LEFT or RIGHT join on `conditions` and `later`; its columns are those of both sides.
pub(super) fn outer_join(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    conditions: Vec<Expr>,
    later: Expr,
) -> DFResult<LogicalPlan> {
    let (kept, other) = match join_type {
        JoinType::Left => (left, right),
        JoinType::Right => (right, left),
        _ => return not_impl_err!("a subquery that reads both sides in the condition of a FULL JOIN"),
    };
    let mut result: Vec<Expr> = columns(&kept).collect();
    let others: Vec<Column> = other.schema().columns();
    let name = fresh("row");
    let kept = LogicalPlanBuilder::from(kept).window([row_number().alias(&name)])?.build()?;
    let row = Expr::Column(Column::new_unqualified(name));
    let (other, there) = with_column(other, lit(true))?;
    let conditions = if conditions.is_empty() { vec![lit(true)] } else { conditions };
    let pairs = LogicalPlanBuilder::from(kept).join_on(other, JoinType::Left, conditions)?.build()?;
    let is_met = Expr::IsTrue(Box::new(Expr::Column(there).and(later)));
    let (pairs, met) = with_column(pairs, is_met)?;
    let met = Expr::Column(met);
    let (any, nth) = (fresh("any"), fresh("nth"));
    let Expr::AggregateFunction(largest) = max(met.clone()) else {
        return not_impl_err!("max that is not an aggregate");
    };
    let largest =
        WindowFunction::new(WindowFunctionDefinition::AggregateUDF(largest.func), vec![met.clone()]);
    let largest = Expr::from(largest).partition_by(vec![row.clone()]).build()?;
    let number = row_number().partition_by(vec![row]).build()?;
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let alone = Expr::Not(Box::new(column(&any))).and(column(&nth).eq(lit(1u64)));
    for column in others {
        let value = when(met.clone(), Expr::Column(column.clone())).end()?;
        result.push(value.alias_qualified(column.relation, column.name));
    }
    LogicalPlanBuilder::from(pairs)
        .window([largest.alias(&any), number.alias(&nth)])?
        .filter(met.or(alone))?
        .project(result)?
        .build()
}
