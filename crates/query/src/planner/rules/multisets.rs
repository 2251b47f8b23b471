//! INTERSECT ALL and EXCEPT ALL with counts: a row found m times on the left and n times on the right is
//! returned min(m, n) or m - n times. DataFusion's joins return all or none.
//!
//! Equal rows are numbered on both sides, and joined on the number too.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, JoinType, NullEquality, Result as DFResult};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Column with the number of a row among equal ones.
const NUMBER: &str = "number";
const LEFT: &str = "__left";
const RIGHT: &str = "__right";

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Multisets;

impl AnalyzerRule for Multisets {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if is_set_operation(&join) => counted(join).map(Transformed::yes),
            node => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "multisets"
    }
}

/// Returns true for a join made by INTERSECT ALL or EXCEPT ALL: without ALL the left side is distinct.
fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(*join.left, LogicalPlan::Distinct(Distinct::All(_)))
        && !matches!(join.left.schema().fields().last(), Some(field) if field.name() == NUMBER)
}

fn counted(join: Join) -> DFResult<LogicalPlan> {
    let wanted = join.schema.columns();
    let (left, left_columns) = numbered(Arc::unwrap_or_clone(join.left), LEFT)?;
    let (right, right_columns) = numbered(Arc::unwrap_or_clone(join.right), RIGHT)?;
    let joined = LogicalPlanBuilder::from(left)
        .join_detailed(
            right,
            join.join_type,
            (left_columns.clone(), right_columns),
            None,
            NullEquality::NullEqualsNull,
        )?
        .build()?;
    let columns = wanted.into_iter().zip(left_columns);
    let columns =
        columns.map(|(wanted, own)| Expr::Column(own).alias_qualified(wanted.relation, wanted.name));
    LogicalPlanBuilder::from(joined).project(columns)?.build()
}

/// Projection of a side with plain names, and numbers of equal rows.
fn numbered(plan: LogicalPlan, alias: &str) -> DFResult<(LogicalPlan, Vec<Column>)> {
    let columns = plan.schema().columns().into_iter().enumerate();
    let columns = columns.map(|(at, column)| Expr::Column(column).alias(format!("c{at}")));
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    let names: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number().partition_by(names).build()?.alias(NUMBER);
    let plan = LogicalPlanBuilder::from(plan).window([number])?.alias(alias)?.build()?;
    let columns = plan.schema().columns();
    Ok((plan, columns))
}
