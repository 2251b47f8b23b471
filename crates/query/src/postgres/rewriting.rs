//! Rewriting of the expressions of plans.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// Names of the results of a node, which its expressions keep when they are rewritten.
pub(crate) struct ResultNames(NamePreserver);

impl ResultNames {
    pub(crate) fn of(node: &LogicalPlan) -> ResultNames {
        ResultNames(NamePreserver::new(node))
    }

    /// Rewrites an expression. Results of grouping sets are their parts.
    pub(crate) fn keep(
        &self,
        expr: Expr,
        rewrite: &mut dyn FnMut(Expr) -> DFResult<Transformed<Expr>>,
    ) -> DFResult<Transformed<Expr>> {
        let mut all = |parts: Vec<Expr>| -> DFResult<Vec<Expr>> {
            parts.into_iter().map(|part| self.keep(part, rewrite).data()).collect()
        };
        let sets = match expr {
            Expr::GroupingSet(GroupingSet::Rollup(parts)) => GroupingSet::Rollup(all(parts)?),
            Expr::GroupingSet(GroupingSet::Cube(parts)) => GroupingSet::Cube(all(parts)?),
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
                GroupingSet::GroupingSets(sets.into_iter().map(all).collect::<DFResult<_>>()?)
            }
            expr => {
                let name = self.0.save(&expr);
                return Ok(rewrite(expr)?.update_data(|expr| name.restore(expr)));
            }
        };
        Ok(Transformed::yes(Expr::GroupingSet(sets)))
    }
}

/// Rewrites all expressions of a plan, those of subqueries too, from the inside to the outside. `rewrite` is
/// given an expression and the columns that it may name; names of results stay.
pub(crate) fn rewritten(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Transformed<Expr>,
) -> DFResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let names = ResultNames::of(&node);
        node.map_expressions(|expr| {
            names.keep(expr, &mut |expr| expr.transform_up(|expr| Ok(rewrite(expr, &schema))))
        })?
        .map_data(LogicalPlan::recompute_schema)
    })
    .data()
}
