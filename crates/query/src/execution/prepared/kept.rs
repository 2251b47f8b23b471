//! How much of a plan may be kept for the next run.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Volatility};

use crate::error::Result;
use crate::planner::provider::EntresolTable;
use crate::planner::rules::correlated::is_correlated;

/// What may be kept of a plan.
pub(super) enum Kept {
    Optimised,
    AsWritten,
    /// It has the content of a system table, as it was when it was planned.
    Nothing,
}

pub(super) fn kept(plan: &LogicalPlan) -> Result<Kept> {
    let mut kept = Kept::Optimised;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) if !source_as_provider(&scan.source)?.is::<EntresolTable>() => {
                kept = Kept::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
                kept = Kept::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let varies = match expr {
                    PlanExpr::ScalarFunction(function) => {
                        function.func.signature().volatility != Volatility::Immutable
                    }
                    // Those that are run row by row are pinned to the transaction that they are planned in.
                    PlanExpr::ScalarSubquery(subquery) => is_correlated(subquery),
                    PlanExpr::Exists(_) | PlanExpr::InSubquery(_) | PlanExpr::SetComparison(_) => true,
                    _ => false,
                };
                if varies {
                    kept = Kept::AsWritten;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(kept)
}
