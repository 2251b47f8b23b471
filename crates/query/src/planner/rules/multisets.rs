//! INTERSECT ALL and EXCEPT ALL with counts: a row found m times on the left and n times on the right is
//! returned min(m, n) or m - n times. DataFusion's joins return all or none.
//!
//! Equal rows are numbered on both sides, and joined on the number too.
//!
//! Columns of INTERSECT and EXCEPT have one type of both sides, as those of UNION: DataFusion leaves them the left one.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, JoinType, NullEquality, Result as DFResult};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
};
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
        let mut has_set_operation = false;
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if is_set_operation(&join) => {
                has_set_operation = true;
                let join = of_one_type(join)?;
                let plan = if has_all(&join) { counted(join)? } else { LogicalPlan::Join(join) };
                Ok(Transformed::yes(plan))
            }
            node if has_set_operation => Ok(Transformed::yes(node.recompute_schema()?)),
            node => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "multisets"
    }
}

/// Returns true for a join made by INTERSECT or EXCEPT, and not by this rule.
fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.schema().fields().last(), Some(field) if field.name() == NUMBER)
}

/// Returns true for ALL: without it the left side is distinct.
fn has_all(join: &Join) -> bool {
    !matches!(*join.left, LogicalPlan::Distinct(Distinct::All(_)))
}

/// Join of two sides whose columns have the same types.
fn of_one_type(join: Join) -> DFResult<Join> {
    let types = |plan: &LogicalPlan| -> Vec<DataType> {
        plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let (left_types, right_types) = (types(&join.left), types(&join.right));
    if left_types == right_types || left_types.len() != right_types.len() {
        return Ok(join);
    }
    let common = left_types.iter().zip(&right_types).map(|(left, right)| {
        // DataFusion says which types these are when it compares them.
        type_union_coercion(left, right).unwrap_or_else(|| left.clone())
    });
    let common: Vec<DataType> = common.collect();
    let left = match Arc::unwrap_or_clone(join.left) {
        LogicalPlan::Distinct(Distinct::All(input)) => {
            LogicalPlan::Distinct(Distinct::All(Arc::new(cast(Arc::unwrap_or_clone(input), &common)?)))
        }
        left => cast(left, &common)?,
    };
    let right = cast(Arc::unwrap_or_clone(join.right), &common)?;
    Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )
}

/// Projection of a plan with columns of these types and the same names.
fn cast(plan: LogicalPlan, types: &[DataType]) -> DFResult<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().zip(types);
    let columns = columns.map(|(column, wanted)| {
        let value = Expr::Column(column.clone()).cast_to(wanted, plan.schema())?;
        Ok(value.alias_qualified(column.relation, column.name))
    });
    let columns = columns.collect::<DFResult<Vec<_>>>()?;
    LogicalPlanBuilder::from(plan).project(columns)?.build()
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
