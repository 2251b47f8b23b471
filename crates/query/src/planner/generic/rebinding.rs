//! Rebinding: a fresh copy of a generic plan for one run, with its transaction, values, dynamic filters and cancellation.

use crate::error::Result;
use crate::planner::coded_groups::CodedAggregateExec;
use crate::planner::counts::CountedRowsExec;
use crate::planner::fresh_filters::FreshFilters;
use crate::planner::key_filters::KeyFilterExec;
use crate::planner::lookup::LookupJoinExec;
use crate::planner::rules::barriers::Barrier;
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::star::StarJoinExec;
use crate::planner::yielding::{interruptible, rows_of};
use crate::session::templates::PlanWidth;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Most nodes of a narrow plan: without channels between them, all of its nodes run on one stack.
const NODES_MAX: usize = 64;
/// Factor between the rows of a scan in a run and those for which a wide plan was made, from which on another is.
const ROWS_FACTOR: usize = 4;
/// Rows of a scan that count as none for that.
const FEW_ROWS: usize = 1024;

/// Returns true if all nodes of a plan begin anew when they are copied; those of a narrow one have one partition,
/// and are few.
pub(super) fn is_reusable(plan: &Arc<dyn ExecutionPlan>, width: PlanWidth) -> DFResult<bool> {
    let (mut is_reusable, mut nodes) = (true, 0);
    plan.apply(|node| {
        nodes += 1;
        let fits = match width {
            PlanWidth::Narrow => nodes <= NODES_MAX && node.properties().partitioning.partition_count() == 1,
            PlanWidth::Wide => true,
        };
        is_reusable = fits && begins_anew(node.as_ref())?;
        Ok(if is_reusable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_reusable)
}

/// Returns true for nodes whose copies share no state with them.
fn begins_anew(node: &dyn ExecutionPlan) -> DFResult<bool> {
    if let Some(scan) = node.downcast_ref::<EntresolScan>() {
        return Ok(scan.is_rebindable());
    }
    if let Some(scan) = node.downcast_ref::<EntresolColumnScan>() {
        return Ok(scan.is_rebindable());
    }
    Ok(makes_filters(node)
        || (node.is::<Barrier>()
            || node.is::<CodedAggregateExec>()
            || node.is::<CountedRowsExec>()
            || node.is::<FilterExec>()
            || node.is::<ProjectionExec>()
            || node.is::<NestedLoopJoinExec>()
            || node.is::<CrossJoinExec>()
            || node.is::<GlobalLimitExec>()
            || node.is::<LocalLimitExec>()
            || node.is::<WindowAggExec>()
            || node.is::<BoundedWindowAggExec>()
            || node.is::<PlaceholderRowExec>()
            || node.is::<EmptyExec>()
            || node.is::<RepartitionExec>()
            || node.is::<CoalescePartitionsExec>()
            || node.is::<SortPreservingMergeExec>()
            || node.is::<UnionExec>())
            && !holds_filters(node)?)
}

/// Returns true for nodes that may make dynamic filters, which [`PlanBinding`] replaces.
fn makes_filters(node: &dyn ExecutionPlan) -> bool {
    node.is::<AggregateExec>()
        || node.is::<SortExec>()
        || node.is::<HashJoinExec>()
        || node.is::<LookupJoinExec>()
        || node.is::<KeyFilterExec>()
        || node.is::<StarJoinExec>()
}

/// Returns true if an expression of a node has a dynamic filter.
fn holds_filters(node: &dyn ExecutionPlan) -> DFResult<bool> {
    let mut is_held = false;
    node.apply_expressions(&mut |expr| {
        is_held |= expr.exists(|part| Ok(part.is::<DynamicFilterPhysicalExpr>()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_held)
}

/// The same plan, bound to no transaction.
pub(super) fn unbound(plan: Arc<dyn ExecutionPlan>) -> DFResult<Arc<dyn ExecutionPlan>> {
    let unbound = plan.transform_up(|node| {
        if let Some(scan) = node.downcast_ref::<EntresolScan>() {
            return Ok(Transformed::yes(Arc::new(scan.unbound()) as _));
        }
        Ok(match node.downcast_ref::<EntresolColumnScan>() {
            Some(scan) => Transformed::yes(Arc::new(scan.unbound()) as _),
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
    fresh: FreshFilters,
    rows: usize,
    /// True if each scan has partitions and rows as those that the plan was made for.
    is_alike: bool,
}

impl<'r> PlanBinding<'r> {
    pub(super) fn new(
        transaction: &'r Arc<Transaction>,
        values: &'r [ScalarValue],
        query: Arc<RunningQuery>,
    ) -> PlanBinding<'r> {
        PlanBinding { transaction, values, query, fresh: FreshFilters::default(), rows: 0, is_alike: true }
    }

    /// Estimated number of rows that the scans read.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns true if the rows of each scan are about as many as those that the plan was made for.
    pub(super) fn is_alike(&self) -> bool {
        self.is_alike
    }

    /// Copy of a plan for the run, which is to be run only if it [fits](Self::is_alike); `None` if a scan cannot be bound to it.
    pub(super) fn rebound(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let plan = self.copied(plan)?;
        Ok(plan.map(|plan| rows_of(&self.query, plan)))
    }

    fn copied(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if node.children().is_empty() {
            let leaf = self.copied_leaf(node)?;
            return Ok(leaf.map(|leaf| interruptible(leaf, &self.query)).transpose()?);
        }
        // Before the scans below ask for its filters.
        let node = self.renewed(node)?;
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
        let copy = node.replace_children(children, options)?;
        Ok(Some(interruptible(copy, &self.query)?))
    }

    /// Copy of a node without children; `None` if it is a scan that cannot be bound to the run.
    fn copied_leaf(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(planned) = node.downcast_ref::<EntresolScan>() {
            let Some(scan) = planned.rebound(self.transaction, self.values, &self.fresh)? else {
                return Ok(None);
            };
            self.rows = self.rows.saturating_add(scan.estimated_rows());
            let parts = [planned, &scan].map(|scan| scan.properties().partitioning.partition_count());
            self.is_alike &= parts[0] == parts[1];
            self.compare(planned.estimated_rows(), scan.estimated_rows());
            return Ok(Some(Arc::new(scan)));
        }
        if let Some(planned) = node.downcast_ref::<EntresolColumnScan>() {
            let Some(scan) = planned.rebound(self.transaction, self.values, &self.fresh)? else {
                return Ok(None);
            };
            self.rows = self.rows.saturating_add(scan.estimated_rows());
            self.compare(planned.planned_rows(), scan.returned_rows());
            return Ok(Some(Arc::new(scan)));
        }
        Ok(Some(Arc::clone(node).reset_state()?))
    }

    /// Compares the rows of a scan with those that the plan was made for.
    fn compare(&mut self, planned: usize, now: usize) {
        let (planned, now) = (planned.max(FEW_ROWS), now.max(FEW_ROWS));
        self.is_alike &= (planned / ROWS_FACTOR..=planned.saturating_mul(ROWS_FACTOR)).contains(&now);
    }

    /// The same node, which begins anew: with metrics and dynamic filters of its own.
    fn renewed(&mut self, node: &Arc<dyn ExecutionPlan>) -> DFResult<Arc<dyn ExecutionPlan>> {
        if let Some(star) = node.downcast_ref::<StarJoinExec>() {
            return Ok(Arc::new(star.renewed(&mut self.fresh)));
        }
        if let Some(filter) = node.downcast_ref::<KeyFilterExec>() {
            return Ok(Arc::new(filter.renewed(&mut self.fresh)));
        }
        if let Some(lookup) = node.downcast_ref::<LookupJoinExec>() {
            return Ok(Arc::new(lookup.over(self.renewed(lookup.join())?)));
        }
        let copy = Arc::clone(node).reset_state()?;
        let made = node.dynamic_expressions_produced();
        let Some(made) = made.first().and_then(|made| made.downcast_ref::<DynamicFilterPhysicalExpr>())
        else {
            return Ok(copy);
        };
        if let Some(join) = copy.downcast_ref::<HashJoinExec>() {
            let join = join.builder().build()?;
            return Ok(Arc::new(join.with_dynamic_filter_expr(self.fresh.replacement(made))?));
        }
        let copy = match copy.downcast_ref::<AggregateExec>() {
            Some(aggregate) => with_own_bounds(aggregate)?,
            None => copy,
        };
        // Sorts and aggregations that begin anew have made new ones.
        if let Some(fresh) = copy.dynamic_expressions_produced().pop()
            && let Ok(fresh) = (fresh as Arc<dyn std::any::Any + Send + Sync>).downcast()
        {
            self.fresh.replace(made, fresh);
        }
        Ok(copy)
    }
}

/// The same aggregation of all rows to least and greatest values, which knows no value yet.
fn with_own_bounds(aggregate: &AggregateExec) -> DFResult<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?))
}
