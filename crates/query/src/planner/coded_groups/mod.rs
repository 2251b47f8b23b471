//! Partial aggregations whose group keys have codes: integers of a range that is not large, dates, booleans, and strings of which
//! there are few.
//!
//! ```text
//!   rows ─▶ keys ─▶ codes ─▶ combination ─▶ group, by an array ─▶ states ─▶ final aggregation
//!              └─ too many: the states that are there, then DataFusion's aggregation of the rest of the rows
//! ```
//! - No key is hashed or compared: a group is found by one look into an array. States are DataFusion's accumulators, so
//!   overflow, NULL, FILTER and the types of states are as ever.
//! - Nothing is estimated. Ranges and strings become known as rows are read, and what does not fit goes on as without this
//!   operator: a group may have several partial states.
//! - Memory: an array of at most [`COMBINATIONS_MAX`](entresol_tables::GroupCodes::COMBINATIONS_MAX) groups for each partition, and the states of the groups that
//!   occur; reserved. What is not granted is given up: the states go to the final aggregation, and the rest of the rows are
//!   aggregated by an operator that can spill.
//!
//! The rule stands behind the one that checks arithmetic, whose expressions the aggregation has.

mod exec;
mod states;
#[cfg(test)]
mod tests;

use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
pub(crate) use exec::CodedAggregateExec;
use std::sync::Arc;

/// Physical optimizer rule that plans aggregations by codes; see the [module](self).
#[derive(Debug)]
pub(crate) struct CodedGroups;

impl PhysicalOptimizerRule for CodedGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let planned = plan.transform_up(|node| {
            let coded = node.downcast_ref::<AggregateExec>().map(CodedAggregateExec::of).transpose()?;
            Ok(match coded.flatten() {
                Some(coded) => Transformed::yes(Arc::new(coded) as _),
                None => Transformed::no(node),
            })
        });
        planned.data()
    }

    fn name(&self) -> &str {
        "coded_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
