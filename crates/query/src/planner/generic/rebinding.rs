//! Rebinding: a fresh copy of a generic plan for one run, with its transaction, values and cancellation.

use crate::error::Result;
use crate::planner::counts::CountedRowsExec;
use crate::planner::lookup::LookupJoinExec;
use crate::planner::rules::barriers::Barrier;
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::yielding::{interruptible, rows_of};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Most nodes of a plan: without channels between them, all of its nodes run on one stack.
const NODES_MAX: usize = 64;

/// Returns true if all nodes of a plan begin anew when they are copied, and have one partition, and they are few.
pub(super) fn is_reusable(plan: &Arc<dyn ExecutionPlan>) -> DFResult<bool> {
    let (mut is_reusable, mut nodes) = (true, 0);
    plan.apply(|node| {
        nodes += 1;
        is_reusable = nodes <= NODES_MAX
            && begins_anew(node.as_ref())
            && node.properties().partitioning.partition_count() == 1;
        Ok(if is_reusable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_reusable)
}

/// Returns true for nodes whose copies share no state with them.
fn begins_anew(node: &dyn ExecutionPlan) -> bool {
    node.downcast_ref::<EntresolScan>().is_some_and(EntresolScan::is_rebindable)
        || node.is::<Barrier>()
        || node.is::<CountedRowsExec>()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<AggregateExec>()
        || node.is::<SortExec>()
        || node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<LookupJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>()
        || node.is::<PlaceholderRowExec>()
        || node.is::<EmptyExec>()
}

/// The same plan, bound to no transaction.
pub(super) fn unbound(plan: Arc<dyn ExecutionPlan>) -> DFResult<Arc<dyn ExecutionPlan>> {
    let unbound = plan.transform_up(|node| {
        let scan = node.downcast_ref::<EntresolScan>().map(EntresolScan::unbound);
        Ok(match scan {
            Some(scan) => Transformed::yes(Arc::new(scan) as _),
            None => Transformed::no(node),
        })
    });
    unbound.data()
}

/// Run to which a plan is bound.
pub(super) struct PlanBinding<'r> {
    transaction: &'r Arc<Transaction>,
    values: &'r [ScalarValue],
    query: Arc<RunningQuery>,
    rows: usize,
}

impl<'r> PlanBinding<'r> {
    pub(super) fn new(
        transaction: &'r Arc<Transaction>,
        values: &'r [ScalarValue],
        query: Arc<RunningQuery>,
    ) -> PlanBinding<'r> {
        PlanBinding { transaction, values, query, rows: 0 }
    }

    /// Estimated number of rows that the scans read.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Copy of a plan for the run; `None` if a scan cannot be bound to it.
    pub(super) fn rebound(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let plan = self.copied(plan)?;
        Ok(plan.map(|plan| rows_of(&self.query, plan)))
    }

    fn copied(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = node.downcast_ref::<EntresolScan>() {
            let Some(scan) = scan.rebound(self.transaction, self.values)? else { return Ok(None) };
            self.rows = self.rows.saturating_add(scan.estimated_rows());
            return Ok(Some(interruptible(Arc::new(scan), &self.query)?));
        }
        let begin = self.rows;
        let mut children = Vec::with_capacity(node.children().len());
        for child in node.children() {
            let before = self.rows;
            let Some(child) = self.copied(child)? else { return Ok(None) };
            if children.len() == 1
                && node.is::<LookupJoinExec>()
                && let Some(rows) = LookupJoinExec::looked_up(before - begin)
            {
                // The table is read where the other side has keys.
                self.rows = self.rows.min(before + rows);
            }
            children.push(child);
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let copy = Arc::clone(node).replace_children(children, options)?.reset_state()?;
        Ok(Some(interruptible(copy, &self.query)?))
    }
}
