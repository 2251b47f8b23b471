//! Operator of a partial aggregation whose groups are found by the codes of their keys.

use super::states::{CodedStates, codes};
use crate::planner::partial_states::split;
use crate::planner::replay::ReplayStream;
use crate::planner::turns::TURN_MAX;
use crate::postgres::plan_expressions::{Change, changed_aggregate};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, assert_eq_or_internal_err, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Partial aggregation by codes; see the [module](super).
#[derive(Debug, Clone)]
pub(crate) struct CodedAggregateExec {
    /// The aggregation as DataFusion has it.
    aggregate: Arc<AggregateExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl CodedAggregateExec {
    /// Operator in place of an aggregation; none if that is of another kind.
    pub(super) fn of(aggregate: &AggregateExec) -> DFResult<Option<CodedAggregateExec>> {
        let is_plain = *aggregate.mode() == AggregateMode::Partial
            && aggregate.limit_options().is_none()
            && aggregate.group_expr().is_single()
            && !aggregate.group_expr().is_empty()
            && *aggregate.input_order_mode() == InputOrderMode::Linear
            && aggregate.dynamic_expressions_produced().is_empty();
        let are_known = aggregate
            .aggr_expr()
            .iter()
            .all(|function| function.order_bys().is_empty() && function.groups_accumulator_supported());
        if !is_plain || !are_known || codes(aggregate)?.is_none() {
            return Ok(None);
        }
        Ok(Some(CodedAggregateExec::over(Arc::new(aggregate.clone()))))
    }

    fn over(aggregate: Arc<AggregateExec>) -> CodedAggregateExec {
        CodedAggregateExec { aggregate, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same with changed expressions; none if none changes.
    pub(crate) fn changed(&self, change: Change<'_>) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(changed) = changed_aggregate(&self.aggregate, change)? else { return Ok(None) };
        of_aggregate(changed).map(Some)
    }

    /// Aggregates a partition: states of the groups that have codes, and behind them, if there are rows that have none, what
    /// DataFusion's aggregation gives for the rest.
    async fn aggregated(
        self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DFResult<BoxStream<'static, DFResult<RecordBatch>>> {
        let consumer = MemoryConsumer::new(format!("CodedAggregateExec[{partition}]"));
        let reservation = consumer.register(context.memory_pool());
        let mut input = self.aggregate.input().execute(partition, Arc::clone(&context))?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let Some(mut groups) = CodedStates::of(&self.aggregate)? else {
            return internal_err!("keys of an aggregation have no codes");
        };
        let mut rest = None;
        let mut turn = Instant::now();
        while let Some(batch) = input.next().await {
            let batch = batch?;
            let timer = baseline.elapsed_compute().timer();
            let is_added = groups.add(&batch)?;
            drop(timer);
            if !is_added || reservation.try_resize(groups.bytes()).is_err() {
                rest = Some(if is_added { Vec::new() } else { vec![batch] });
                break;
            }
            if turn.elapsed() > TURN_MAX {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        let finished = groups.finish(&self.schema())?;
        reservation.free();
        let finished = finished.map(|batch| batch.record_output(&baseline));
        let batches = split(finished, context.session_config().batch_size());
        let batches = stream::iter(batches.into_iter().map(Ok));
        let Some(read) = rest else { return Ok(batches.boxed()) };
        let rest = ReplayStream::new(self.aggregate.input(), read, input);
        let hashed = AggregateExec::try_new(
            AggregateMode::Partial,
            self.aggregate.group_expr().clone(),
            self.aggregate.aggr_expr().to_vec(),
            self.aggregate.filter_expr().to_vec(),
            Arc::new(rest),
            self.aggregate.input_schema(),
        )?;
        Ok(batches.chain(hashed.execute(partition, context)?).boxed())
    }
}

/// Operator of an aggregation that was one by codes before it changed.
fn of_aggregate(changed: Arc<dyn ExecutionPlan>) -> DFResult<Arc<dyn ExecutionPlan>> {
    match changed.downcast_ref::<AggregateExec>() {
        Some(aggregate) => Ok(Arc::new(CodedAggregateExec::over(Arc::new(aggregate.clone())))),
        None => internal_err!("an aggregation became another operator"),
    }
}

impl DisplayAs for CodedAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(format, DisplayFormatType::TreeRender) {
            return self.aggregate.fmt_as(format, f);
        }
        write!(f, "Coded")?;
        self.aggregate.fmt_as(format, f)
    }
}

impl ExecutionPlan for CodedAggregateExec {
    fn name(&self) -> &str {
        "CodedAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.aggregate.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.aggregate.input()]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        self.aggregate.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        assert_eq_or_internal_err!(children.len(), 1, "CodedAggregateExec has not one input");
        of_aggregate(Arc::clone(&self.aggregate).replace_children(children, options)?)
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let batches = stream::once(self.clone().aggregated(partition, context)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
