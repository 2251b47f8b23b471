//! Lookup join operator: it reads the smaller side, then decides how the table is read.
//!
//! The first partition that is polled reads the smaller side; all partitions run the join that it decided on. If
//! the keys are looked up, the scan has one partition, and the others have no rows.

use crate::planner::lookup::keys::LookupKey;
use crate::planner::lookup::{KEYS_MAX, scan_below};
use crate::planner::replay::ReplayStream;
use crate::planner::scans::scan::EntresolScan;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, SharedResult, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Join of few rows with a table; see the [module](crate::planner::lookup).
#[derive(Debug, Clone)]
pub(crate) struct LookupJoinExec {
    /// Hash join with the same inputs.
    join: Arc<dyn ExecutionPlan>,
    key: LookupKey,
    decided: Arc<OnceCell<SharedResult<Arc<dyn ExecutionPlan>>>>,
    metrics: ExecutionPlanMetricsSet,
}

impl LookupJoinExec {
    /// Lookup join that gives the rows of a hash join.
    pub(super) fn new(join: Arc<dyn ExecutionPlan>, key: LookupKey) -> LookupJoinExec {
        LookupJoinExec { join, key, decided: Arc::default(), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Hash join whose rows it gives.
    pub(crate) fn join(&self) -> &Arc<dyn ExecutionPlan> {
        &self.join
    }

    /// The same lookup join over another hash join of the same inputs.
    pub(crate) fn over(&self, join: Arc<dyn ExecutionPlan>) -> LookupJoinExec {
        LookupJoinExec::new(join, self.key.clone())
    }

    /// Rows that a run reads of the table, of which the other side has `rows`, as far as is known.
    pub(crate) fn looked_up(rows: usize) -> Option<usize> {
        (rows <= KEYS_MAX).then_some(rows)
    }

    /// Inputs: the smaller side, and the table.
    fn inputs(&self) -> DFResult<[&Arc<dyn ExecutionPlan>; 2]> {
        match self.join.children().as_slice() {
            [left, right] => Ok([*left, *right]),
            other => internal_err!("a join has two inputs, not {}", other.len()),
        }
    }

    /// Rows of a scan in the order of another one, on which the plan above may rely.
    fn in_order(&self, scan: EntresolScan, other: &EntresolScan) -> Arc<dyn ExecutionPlan> {
        match other.properties().output_ordering().filter(|_| self.key.is_index()) {
            Some(ordering) => Arc::new(SortExec::new(ordering.clone(), Arc::new(scan))),
            None => Arc::new(scan),
        }
    }

    /// Reads the smaller side and returns the join to run.
    async fn decide(&self, context: &Arc<TaskContext>) -> DFResult<Arc<dyn ExecutionPlan>> {
        let [left, right] = self.inputs()?;
        let mut rest = left.execute(0, Arc::clone(context))?;
        let (mut batches, mut rows, mut is_whole) = (Vec::new(), 0, true);
        while let Some(batch) = rest.next().await {
            let batch = batch?;
            rows += batch.num_rows();
            batches.push(batch);
            if rows > KEYS_MAX {
                is_whole = false;
                break;
            }
        }
        let looked_up = match scan_below(right).filter(|_| is_whole) {
            Some(scan) => self.key.scan(scan, &batches)?,
            None => None,
        };
        let name = if looked_up.is_some() { "lookups" } else { "scans" };
        MetricBuilder::new(&self.metrics).global_counter(name).add(1);
        let right = match looked_up {
            Some(scan) => with_scan(Arc::clone(right), |old| self.in_order(scan.clone(), old))?,
            None => Arc::clone(right),
        };
        let left: Arc<dyn ExecutionPlan> = Arc::new(ReplayStream::new(left, batches, rest));
        replace_children_if_necessary(Arc::clone(&self.join), vec![left, right])
    }
}

/// Plan with another node in the place of its scan.
fn with_scan(
    plan: Arc<dyn ExecutionPlan>,
    other: impl Fn(&EntresolScan) -> Arc<dyn ExecutionPlan>,
) -> DFResult<Arc<dyn ExecutionPlan>> {
    let replaced = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<EntresolScan>().map(&other) {
            Some(scan) => Transformed::yes(scan),
            None => Transformed::no(node),
        })
    });
    replaced.data()
}

impl DisplayAs for LookupJoinExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "LookupJoinExec: by={}, or ", self.key)?;
                self.join.fmt_as(kind, f)
            }
            DisplayFormatType::TreeRender => writeln!(f, "by={}", self.key),
        }
    }
}

impl ExecutionPlan for LookupJoinExec {
    fn name(&self) -> &str {
        "LookupJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.join.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        self.join.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(Arc::clone(&self.join).replace_children(children, options)?)))
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(replace_children_if_necessary(Arc::clone(&self.join), children)?)))
    }

    fn reset_state(self: Arc<Self>) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(Arc::clone(&self.join).reset_state()?)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let (this, schema) = (self.clone(), self.schema());
        let rows = stream::once(async move {
            let decision =
                this.decided.get_or_init(|| async { this.decide(&context).await.map_err(Arc::new) });
            let join = decision.await.as_ref().map_err(DataFusionError::from)?;
            if partition < join.output_partitioning().partition_count() {
                join.execute(partition, context)
            } else {
                Ok(Box::pin(EmptyRecordBatchStream::new(this.schema())) as _)
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        self.join.statistics_from_inputs(inputs, arguments)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.join.child_stats_requests(partition)
    }
}
