//! Columns of a relation that a query reads, found in its plan.
//!
//! A column is read where an expression names it, in the query itself or from outside in one of its subqueries.
//! Columns of a derived table, a view or a subquery are of other relations, whatever their names.

use crate::dml::row_assignments::CHANGED;
use crate::error::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as DFResult};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Returns true if a column is one of the relation with this name in the statement.
pub(crate) fn is_of(column: &Column, relation: &str) -> bool {
    column.relation.as_ref().is_some_and(|of| of.table() == relation)
}

/// Returns true if a query reads a column for which `is_read` is true, but in the first `skipped` expressions of its
/// projection.
pub(crate) fn reads_relation(
    plan: &LogicalPlan,
    skipped: usize,
    is_read: &dyn Fn(&Column) -> bool,
) -> Result<bool> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(plan_reads(plan, true, is_read)?) };
    // The outer query of an UPDATE that assigns rows only takes them apart.
    if let LogicalPlan::SubqueryAlias(rows) = projection.input.as_ref()
        && rows.alias.table() == CHANGED
    {
        return reads_relation(&rows.input, skipped, is_read);
    }
    for expr in projection.expr.iter().skip(skipped) {
        if expression_reads(expr, true, is_read)? {
            return Ok(true);
        }
    }
    Ok(plan_reads(&projection.input, true, is_read)?)
}

#[recursive::recursive]
fn plan_reads(plan: &LogicalPlan, is_own_scope: bool, is_read: &dyn Fn(&Column) -> bool) -> DFResult<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found = expression_reads(expr, is_own_scope, is_read)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    let is_own_scope =
        is_own_scope && !matches!(plan, LogicalPlan::SubqueryAlias(_) | LogicalPlan::Subquery(_));
    for input in plan.inputs() {
        found = found || plan_reads(input, is_own_scope, is_read)?;
    }
    Ok(found)
}

fn expression_reads(expr: &Expr, is_own_scope: bool, is_read: &dyn Fn(&Column) -> bool) -> DFResult<bool> {
    let mut found = false;
    expr.apply(|part| {
        found = match part {
            Expr::Column(column) => is_own_scope && is_read(column),
            Expr::OuterReferenceColumn(_, column) => is_read(column),
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. }) => {
                plan_reads(&subquery.subquery, false, is_read)?
            }
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
