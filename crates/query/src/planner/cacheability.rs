//! Cacheability of plans: how much of one may be reused by the next run.

use crate::error::Result;
use crate::planner::patterns::node::PatternNode;
use crate::planner::rules::correlated::is_correlated;
use crate::planner::scans::provider::EntresolTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Volatility};

/// Cacheable part of a plan.
pub(crate) enum Cacheability {
    /// A physical plan, generic in the parameters.
    Generic,
    AsWritten,
    /// None: it has the content of a system table at planning time.
    Nothing,
}

pub(crate) fn cacheability(plan: &LogicalPlan) -> Result<Cacheability> {
    let mut cacheability = Cacheability::Generic;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) if !source_as_provider(&scan.source)?.is::<EntresolTable>() => {
                cacheability = Cacheability::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
                cacheability = Cacheability::Nothing;
                return Ok(TreeNodeRecursion::Stop);
            }
            node if PatternNode::of(node).map_or(Ok(false), |node| node.planned().varies())? => {
                cacheability = Cacheability::AsWritten;
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let varies = match expr {
                    PlanExpr::ScalarFunction(function) => {
                        function.func.signature().volatility != Volatility::Immutable
                    }
                    // Subqueries run row by row are pinned to the transaction in which they are planned.
                    PlanExpr::ScalarSubquery(subquery) => is_correlated(subquery),
                    PlanExpr::Exists(_) | PlanExpr::InSubquery(_) | PlanExpr::SetComparison(_) => true,
                    _ => false,
                };
                if varies {
                    cacheability = Cacheability::AsWritten;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(cacheability)
}
