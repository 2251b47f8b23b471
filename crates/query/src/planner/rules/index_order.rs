//! ORDER BY without sorting: rows come out of the key backwards, or few of them out of an index, in order.
//!
//! The rule comes after DataFusion's own, which have put a sort over the scan where its order does not serve.
//! A filter between the two stays; then only the key serves, since any number of rows may not pass.

use crate::planner::scans::scan::EntresolScan;
use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct IndexOrder;

/// Plan with the rows of a sort in its order, without the sort; `None` if there is none.
fn ordered(sort: &SortExec) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = sort.input().downcast_ref::<EntresolScan>() {
        return Ok(scan.ordered_by(sort.expr(), sort.fetch()).map(|scan| Arc::new(scan) as _));
    }
    // The order is that of the filter's columns; a projection within it would rename them.
    let filter = sort.input().downcast_ref::<FilterExec>();
    let Some(filter) = filter.filter(|filter| filter.projection().is_none() && filter.fetch().is_none())
    else {
        return Ok(None);
    };
    let divided = filter.input().downcast_ref::<RepartitionExec>();
    let divided = divided.filter(|divided| divided.maintains_input_order() == [true]);
    let input = divided.map_or(filter.input(), RepartitionExec::input);
    let Some(scan) = input.downcast_ref::<EntresolScan>().and_then(|scan| scan.ordered_by(sort.expr(), None))
    else {
        return Ok(None);
    };
    let mut below: Arc<dyn ExecutionPlan> = Arc::new(scan);
    if divided.is_some() {
        below = replace_children_if_necessary(Arc::clone(filter.input()), vec![below])?;
    }
    let filter = replace_children_if_necessary(Arc::clone(sort.input()), vec![below])?;
    Ok(match sort.fetch() {
        None => Some(filter),
        Some(_) => filter.with_fetch(sort.fetch()),
    })
}

impl PhysicalOptimizerRule for IndexOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let ordered = node.downcast_ref::<SortExec>().map(ordered).transpose()?;
            match ordered.flatten() {
                Some(plan) => Ok(Transformed::yes(plan)),
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
