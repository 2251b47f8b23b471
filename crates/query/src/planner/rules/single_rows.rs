//! Aggregates without groups have one row, and those of grouping sets one for the empty set, whatever the condition above.
//!
//! DataFusion moves a condition without columns, such as a comparison of a subquery, below such an aggregate,
//! where it removes the aggregated rows instead of the result. A LIMIT between them prevents it: of one row, or of more rows
//! than there can be.

use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct SingleRows;

impl AnalyzerRule for SingleRows {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        kept(plan, false)
    }

    fn name(&self) -> &str {
        "single_rows"
    }
}

/// Rewrites a plan; `asked`: a condition stands above, which might be moved.
#[recursive::recursive]
fn kept(plan: LogicalPlan, asked: bool) -> DFResult<LogicalPlan> {
    let plan = plan
        .map_subqueries(|subquery| match subquery {
            LogicalPlan::Subquery(mut subquery) => {
                subquery.subquery = Arc::new(kept(Arc::unwrap_or_clone(subquery.subquery), false)?);
                Ok(Transformed::yes(LogicalPlan::Subquery(subquery)))
            }
            other => kept(other, false).map(Transformed::yes),
        })
        .data()?;
    let rows_max = match &plan {
        LogicalPlan::Aggregate(aggregate) => rows_max(&aggregate.group_expr),
        _ => None,
    };
    let asks = matches!(&plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    // A subquery in FROM that uses columns of relations before it: a condition above does not move into it, and a LIMIT would
    // keep DataFusion from making a join of it.
    let is_lateral =
        matches!(&plan, LogicalPlan::Subquery(subquery) if !subquery.outer_ref_columns.is_empty());
    let below = asks || (asked && rows_max.is_none() && !is_lateral);
    let plan = plan.map_children(|child| kept(child, below).map(Transformed::yes)).data()?;
    match rows_max.filter(|_| asked) {
        Some(rows_max) => LogicalPlanBuilder::from(plan).limit(0, Some(rows_max))?.build(),
        None => Ok(plan),
    }
}

/// Limit for an aggregate that has a row where it aggregates none; `None` for others.
fn rows_max(groups: &[Expr]) -> Option<usize> {
    match groups {
        [] => Some(1),
        [Expr::GroupingSet(_), ..] => Some(isize::MAX as usize),
        _ => None,
    }
}
