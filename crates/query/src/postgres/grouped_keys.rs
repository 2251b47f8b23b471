//! Groups of values that are equal and not the same: intervals (`1 day`, `24 hours`) and JSONB (1 and 1.0).
//!
//! | written | planned |
//! | --- | --- |
//! | `GROUP BY i`, also in GROUPING SETS | groups of the keys of [`crate::postgres::comparison_keys`], each with its first value |
//! | `SELECT DISTINCT`, UNION | the same, of all columns |
//! | `DISTINCT ON (i)` | its keys, and those of its order |
//!
//! A group shows one of its values, as in PostgreSQL.

use crate::postgres::comparison_keys::{is_compared, key_of, order};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DFResult};
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Distinct, DistinctOn, Expr, LogicalPlan, Projection, when};
use std::sync::Arc;

/// Aggregate whose groups are those of keys; the same if no group needs one.
pub(super) fn aggregate(aggregate: Aggregate) -> DFResult<Transformed<LogicalPlan>> {
    let input = Arc::clone(aggregate.input.schema());
    let groups: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().cloned().collect();
    let places: Vec<usize> = (0..groups.len()).filter(|&at| is_compared(&groups[at], &input)).collect();
    if places.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input: rows, group_expr, mut aggr_expr, schema, .. } = aggregate;
    let is_nullable = matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let group_expr = group_expr.into_iter().map(|expr| keyed(expr, &input)).collect::<DFResult<Vec<_>>>()?;
    for &at in &places {
        let first = first_value(groups[at].clone(), Vec::new());
        aggr_expr.push(first.alias(format!("first of {}", schema.field(at).name())));
    }
    let before = schema.fields().len();
    let grouped = Aggregate::try_new(rows, group_expr, aggr_expr)?;
    let column = |at: usize| Expr::Column(Column::from(grouped.schema.qualified_field(at)));
    let mut columns: Vec<Expr> = (0..before).map(column).collect();
    for (place, &at) in places.iter().enumerate() {
        let first = column(before + place);
        // In a grouping set without it, the key is NULL, and so is the value.
        let value = if is_nullable { when(column(at).is_not_null(), first).end()? } else { first };
        let (relation, field) = schema.qualified_field(at);
        columns[at] = value.alias_qualified(relation.cloned(), field.name());
    }
    let grouped = Arc::new(LogicalPlan::Aggregate(grouped));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, grouped)?)))
}

/// Group with the keys of the values in it.
fn keyed(group: Expr, schema: &DFSchema) -> DFResult<Expr> {
    let keyed = group.transform_down(|expr| {
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let keyed = if is_compared(&expr, schema) { key_of(expr, schema) } else { expr };
        Ok(Transformed::new(keyed, true, TreeNodeRecursion::Jump))
    });
    keyed.data()
}

/// DISTINCT of keys; the same if no column needs one.
pub(super) fn distinct(distinct: Distinct) -> DFResult<Transformed<LogicalPlan>> {
    match distinct {
        Distinct::All(input) => {
            let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            if columns.iter().any(|column| is_compared(column, input.schema())) {
                return aggregate(Aggregate::try_new(input, columns, Vec::new())?);
            }
            Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))))
        }
        Distinct::On(mut on) => {
            let DistinctOn { on_expr, sort_expr, input, .. } = &mut on;
            let mut changed = false;
            for expr in on_expr.iter_mut().filter(|expr| is_compared(expr, input.schema())) {
                *expr = key_of(std::mem::take(expr), input.schema());
                changed = true;
            }
            if let Some(keys) = sort_expr {
                changed |= order(keys, input.schema());
            }
            Ok(Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(on)), changed))
        }
    }
}
