//! ORDER BY … LIMIT by an index: the first rows come out of it in order, so nothing is sorted and few rows
//! are read.
//!
//! Only with a limit: sorting an entire table costs less than looking up all of its rows one by one. The rule
//! comes after DataFusion's own, which have put a sort over the scan.

use crate::planner::scans::scan::EntresolScan;
use datafusion::common::Result as EngineResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use std::sync::Arc;

/// Largest limit for which rows are looked up one by one.
const LIMIT_MAX: usize = 10_000;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct IndexOrder;

impl PhysicalOptimizerRule for IndexOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let ordered = node.downcast_ref::<SortExec>().and_then(|sort| {
                let limit = sort.fetch().filter(|limit| *limit <= LIMIT_MAX)?;
                sort.input().downcast_ref::<EntresolScan>()?.ordered_by(sort.expr(), limit)
            });
            match ordered {
                Some(scan) => Ok(Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>)),
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "index_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
