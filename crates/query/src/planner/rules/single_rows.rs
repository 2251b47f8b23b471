//! Aggregates without groups have one row, whatever the condition above.
//!
//! DataFusion moves a condition without columns, such as a comparison of a subquery, below such an aggregate,
//! where it removes the aggregated rows instead of the result. A LIMIT of one row between them prevents it.

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
    let single = matches!(&plan, LogicalPlan::Aggregate(aggregate) if is_single(&aggregate.group_expr));
    let asks = matches!(&plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    // A subquery in FROM that uses columns of relations before it: a condition above does not move into it, and a LIMIT would
    // keep DataFusion from making a join of it.
    let is_lateral =
        matches!(&plan, LogicalPlan::Subquery(subquery) if !subquery.outer_ref_columns.is_empty());
    let below = asks || (asked && !single && !is_lateral);
    let plan = plan.map_children(|child| kept(child, below).map(Transformed::yes)).data()?;
    if single && asked { LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build() } else { Ok(plan) }
}

fn is_single(groups: &[Expr]) -> bool {
    groups.is_empty()
}
