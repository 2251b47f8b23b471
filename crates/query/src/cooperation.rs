//! Joins that give way: a join of large inputs makes batch after batch without waiting for anything, and would hold its
//! thread until it ends. Other statements would stand still on it, and nobody could cancel it.
//!
//! The engine lets leaves give way; the rule does so for joins, which multiply what leaves give. All that stand on each other
//! draw from one budget, which the runtime renews when it is spent: if there are more than it allows, the leaves never get a
//! turn. So joins below the first [`WRAPPED_MAX`] do not give way: what is above them does.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRewriter};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};

/// Half of the runtime's budget: leaves and exchanges draw from it too.
const WRAPPED_MAX: usize = 64;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct JoinsGiveWay;

impl PhysicalOptimizerRule for JoinsGiveWay {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        plan.rewrite(&mut Wrapping { joins: 0 }).data()
    }

    fn name(&self) -> &str {
        "joins_give_way"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Wraps joins on its way up.
struct Wrapping {
    /// From the root to the node.
    joins: usize,
}

impl TreeNodeRewriter for Wrapping {
    type Node = Arc<dyn ExecutionPlan>;

    fn f_down(&mut self, node: Self::Node) -> EngineResult<Transformed<Self::Node>> {
        self.joins += usize::from(is_join(node.as_ref()));
        Ok(Transformed::no(node))
    }

    fn f_up(&mut self, node: Self::Node) -> EngineResult<Transformed<Self::Node>> {
        if !is_join(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        self.joins -= 1;
        if self.joins >= WRAPPED_MAX {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(node))))
    }
}

fn is_join(node: &dyn ExecutionPlan) -> bool {
    node.downcast_ref::<CrossJoinExec>().is_some()
        || node.downcast_ref::<HashJoinExec>().is_some()
        || node.downcast_ref::<NestedLoopJoinExec>().is_some()
        || node.downcast_ref::<SortMergeJoinExec>().is_some()
}
