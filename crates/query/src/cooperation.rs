//! Joins that give way: a join of large inputs makes batch after batch without waiting for anything, and would hold its
//! thread until it ends. Other statements would stand still on it, and nobody could cancel it.
//!
//! The engine lets leaves give way; the rule does so for joins, which multiply what leaves give.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct JoinsGiveWay;

impl PhysicalOptimizerRule for JoinsGiveWay {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match is_join(node.as_ref()) {
            true => Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)),
            false => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "joins_give_way"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_join(node: &dyn ExecutionPlan) -> bool {
    node.downcast_ref::<CrossJoinExec>().is_some()
        || node.downcast_ref::<HashJoinExec>().is_some()
        || node.downcast_ref::<NestedLoopJoinExec>().is_some()
        || node.downcast_ref::<SortMergeJoinExec>().is_some()
}
