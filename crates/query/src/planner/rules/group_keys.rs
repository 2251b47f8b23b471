//! Duplicate keys of a GROUP BY, and sort keys that DataFusion wrongly leaves out.
//!
//! DataFusion's rule for both takes a column that is unique in one side of a join for one that is unique
//! among the groups of the join, and leaves out sort keys behind it: rows come in a wrong order. Here it sees
//! aggregates alone.

use datafusion::common::Result as DFResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct GroupKeys(EliminateDuplicatedExpr);

impl GroupKeys {
    /// Replaces DataFusion's rule.
    pub(crate) fn replace(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
        let own = Arc::new(GroupKeys::default());
        for rule in rules {
            if rule.name() == own.0.name() {
                *rule = Arc::clone(&own) as Arc<dyn OptimizerRule + Send + Sync>;
            }
        }
    }
}

impl OptimizerRule for GroupKeys {
    fn name(&self) -> &str {
        "group_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DFResult<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(_) => self.0.rewrite(plan, config),
            other => Ok(Transformed::no(other)),
        }
    }
}
