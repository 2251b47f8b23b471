//! Filters within scans: a condition over a scan of many rows is evaluated by the scan, which decodes the other columns
//! of the rows that pass alone.
//!
//! The rule comes behind all that look for a filter over a scan, and behind that of checked arithmetic: the condition
//! is the one that the filter would evaluate, on the same rows. Left to the filter:
//!
//! - conditions over points, keys, indexes and few rows, for which a batch is short anyway;
//! - volatile functions and subqueries;
//! - conditions over rows that are divided behind the scan, which are evaluated by several threads there.

use crate::planner::scans::scan::EntresolScan;
use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct ScanFilters;

/// Scan that evaluates a filter over it; `None` if it is better left to the filter.
fn filtered(filter: &FilterExec) -> DFResult<Option<EntresolScan>> {
    let Some(scan) = filter.input().downcast_ref::<EntresolScan>() else { return Ok(None) };
    let is_subquery = |part: &Arc<dyn PhysicalExpr>| Ok(part.is::<ScalarSubqueryExpr>());
    let predicate = filter.predicate();
    if is_volatile(predicate) || predicate.exists(is_subquery)? {
        return Ok(None);
    }
    scan.filtered(filter)
}

impl PhysicalOptimizerRule for ScanFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let scan = node.downcast_ref::<FilterExec>().map(filtered).transpose()?;
            Ok(match scan.flatten() {
                Some(scan) => Transformed::yes(Arc::new(scan) as _),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "scan_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
