//! Star join operator.
//!
//! Each partition of the fact is a partition of the output. The first one that is polled reads the dimensions;
//! the fact is executed after that. Without an aggregation, joined rows come in the order of the fact.

use crate::planner::fresh_filters::FreshFilters;
use crate::planner::partial_states::split;
use crate::planner::star::aggregate::{AggregatePlan, States};
use crate::planner::star::build::{Dimensions, build};
use crate::planner::star::conditions::Conditions;
use crate::planner::star::dimension::DimensionPlan;
use crate::planner::star::gather::{JoinedColumns, JoinedRows};
use crate::planner::star::probe::Probe;
use crate::planner::star::turn::Turn;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, SharedResult, Statistics, assert_eq_or_internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput, Time,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Star join as planned.
#[derive(Debug)]
pub(super) struct StarPlan {
    pub(super) fact: String,
    pub(super) dimensions: Vec<Arc<DimensionPlan>>,
    /// Columns that the outputs need.
    pub(super) joined: JoinedColumns,
    /// Output columns, as expressions of joined rows.
    pub(super) outputs: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) conditions: Conditions,
    pub(super) schema: SchemaRef,
}

/// Join of a fact with its dimensions, and perhaps the partial aggregation of the joined rows; see the
/// [module](crate::planner::star).
#[derive(Debug, Clone)]
pub(crate) struct StarJoinExec {
    plan: Arc<StarPlan>,
    aggregate: Option<Arc<AggregatePlan>>,
    /// The fact, and the dimensions behind it.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    filters: Arc<DimensionFilters>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    built: Arc<OnceCell<SharedResult<Arc<Dimensions>>>>,
}

/// Conditions on the fact's keys that its scan has taken, one for each dimension.
pub(super) type DimensionFilters = [Option<Arc<DynamicFilterPhysicalExpr>>];

type Batches = std::pin::Pin<Box<dyn Stream<Item = DFResult<RecordBatch>> + Send>>;

impl StarJoinExec {
    /// Star join of `inputs`: the fact, whose scan has taken `filters`, and the dimensions behind it.
    pub(super) fn new(
        plan: Arc<StarPlan>,
        aggregate: Option<Arc<AggregatePlan>>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        filters: impl Into<Arc<DimensionFilters>>,
    ) -> StarJoinExec {
        let (schema, emission) = match &aggregate {
            Some(aggregate) => (&aggregate.schema, EmissionType::Final),
            None => (&plan.schema, EmissionType::Incremental),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(schema)),
            Partitioning::UnknownPartitioning(inputs[0].output_partitioning().partition_count()),
            emission,
            Boundedness::Bounded,
        );
        StarJoinExec {
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            plan,
            aggregate,
            inputs,
            filters: filters.into(),
            metrics: ExecutionPlanMetricsSet::new(),
            built: Arc::default(),
        }
    }

    /// The same join of other inputs.
    fn over(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> StarJoinExec {
        let (plan, aggregate) = (Arc::clone(&self.plan), self.aggregate.clone());
        StarJoinExec::new(plan, aggregate, inputs, Arc::clone(&self.filters))
    }

    /// The same join of a copy of the plan.
    pub(crate) fn renewed(&self, fresh: &mut FreshFilters) -> StarJoinExec {
        let mut renewed = |filter: &Arc<DynamicFilterPhysicalExpr>| fresh.replacement(filter);
        let filters = self.filters.iter().map(|filter| filter.as_ref().map(&mut renewed)).collect();
        StarJoinExec { filters, ..self.over(self.inputs.clone()) }
    }

    /// Returns true if joined rows are aggregated here.
    #[cfg(test)]
    pub(super) fn is_aggregating(&self) -> bool {
        self.aggregate.is_some()
    }

    /// Column of the fact that an output column is; `None` if it is another, or joined rows are aggregated here.
    pub(crate) fn column_of_fact(&self, output: usize) -> Option<usize> {
        let output = self.plan.outputs.get(output).filter(|_| self.aggregate.is_none())?;
        self.plan.joined.column_of_fact(output.downcast_ref::<Column>()?.index())
    }

    /// The same join of the same dimensions without the aggregation.
    fn without_aggregate(&self) -> StarJoinExec {
        let (metrics, built) = (self.metrics.clone(), Arc::clone(&self.built));
        let (plan, filters) = (Arc::clone(&self.plan), Arc::clone(&self.filters));
        StarJoinExec { metrics, built, ..StarJoinExec::new(plan, None, self.inputs.clone(), filters) }
    }

    async fn dimensions(&self, context: &Arc<TaskContext>) -> DFResult<Arc<Dimensions>> {
        let (fact, dimensions) = self.inputs.split_first().expect("a star join has a fact");
        let (plan, aggregate) = (&self.plan, self.aggregate.as_deref());
        let built = self.built.get_or_init(|| async {
            let joined = (&plan.joined, &plan.conditions);
            let read = (&plan.dimensions[..], dimensions);
            let built = build(fact, read, &self.filters, joined, aggregate, context, &self.metrics);
            built.await.map(Arc::new).map_err(Arc::new)
        });
        built.await.clone().map_err(DataFusionError::Shared)
    }

    /// Starts a partition, once the dimensions are known.
    async fn start(self, partition: usize, context: Arc<TaskContext>) -> DFResult<Batches> {
        let dimensions = self.dimensions(&context).await?;
        let Some(aggregate) = &self.aggregate else {
            return JoinStream::start(&self, &dimensions, partition, context);
        };
        match dimensions.combinations {
            Some(combinations) => {
                let aggregate = Arc::clone(aggregate);
                let finished = self.aggregated(&aggregate, &dimensions, combinations, partition, &context);
                let batches = split(finished.await?, context.session_config().batch_size());
                Ok(stream::iter(batches.into_iter().map(Ok)).boxed())
            }
            // Too many groups for their codes, or none: as without this operator.
            None => {
                let joined = Arc::new(self.without_aggregate());
                Ok(aggregate.over(joined)?.execute(partition, context)?.boxed())
            }
        }
    }

    /// Aggregates the joined rows of a partition.
    async fn aggregated(
        &self,
        plan: &AggregatePlan,
        dimensions: &Dimensions,
        combinations: usize,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> DFResult<Option<RecordBatch>> {
        let consumer = MemoryConsumer::new(format!("StarJoinExec[{partition}]"));
        let reservation = consumer.register(context.memory_pool());
        reservation.try_grow(combinations * size_of::<u32>())?;
        let all = &dimensions.all;
        let mut states = States::new(plan, all, combinations)?;
        let conditions = &self.plan.conditions;
        let needs_rows = |dimension| plan.needs_rows(dimension) || conditions.need_rows(dimension);
        let mut probe = Probe::new(&self.plan.dimensions, all, needs_rows, &self.metrics, partition);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let probe_time = self.probe_time(partition);
        let mut turn = Turn::begin();
        if !dimensions.is_empty {
            let mut fact = self.inputs[0].execute(partition, Arc::clone(context))?;
            while let Some(batch) = fact.next().await {
                let batch = batch?;
                let _compute = baseline.elapsed_compute().timer();
                timed(&probe_time, || probe.begin(&batch))?;
                while timed(&probe_time, || probe.next_chunk()) {
                    conditions.apply(all, &batch, &mut probe)?;
                    turn.yield_if_over().await;
                    if probe.selection().is_empty() {
                        continue;
                    }
                    let (selection, rows) = (probe.selection(), probe.rows());
                    let joined = JoinedRows { batch: &batch, selection, rows };
                    states.update(plan, all, &joined, &reservation)?;
                }
            }
        }
        let finished = states.finish(plan, all)?;
        Ok(finished.map(|batch| batch.record_output(&baseline)))
    }

    fn probe_time(&self, partition: usize) -> Time {
        MetricBuilder::new(&self.metrics).subset_time("probe_time", partition)
    }
}

fn timed<T>(time: &Time, action: impl FnOnce() -> T) -> T {
    let _timer = time.timer();
    action()
}

/// Joined rows of one partition.
struct JoinStream {
    plan: Arc<StarPlan>,
    dimensions: Arc<Dimensions>,
    fact: SendableRecordBatchStream,
    probe: Probe,
    /// Batch of the fact that is probed.
    batch: Option<RecordBatch>,
    coalescer: BatchCoalescer,
    is_finished: bool,
    baseline: BaselineMetrics,
    probe_time: Time,
}

impl JoinStream {
    fn start(
        star: &StarJoinExec,
        dimensions: &Arc<Dimensions>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DFResult<Batches> {
        if dimensions.is_empty {
            return Ok(stream::empty().boxed());
        }
        let batch_rows = context.session_config().batch_size();
        let plan = &star.plan;
        let needs_rows = |dimension| plan.joined.has_any(dimension) || plan.conditions.need_rows(dimension);
        let joined = JoinStream {
            plan: Arc::clone(plan),
            dimensions: Arc::clone(dimensions),
            fact: star.inputs[0].execute(partition, context)?,
            probe: Probe::new(&plan.dimensions, &dimensions.all, needs_rows, &star.metrics, partition),
            batch: None,
            coalescer: BatchCoalescer::new(Arc::clone(&plan.schema), batch_rows),
            is_finished: false,
            baseline: BaselineMetrics::new(&star.metrics, partition),
            probe_time: star.probe_time(partition),
        };
        let batches = stream::try_unfold(joined, |mut joined| async move {
            let batch = joined.next().await?;
            Ok(batch.map(|batch| (batch, joined)))
        });
        Ok(batches.boxed())
    }

    /// Next batch of joined rows.
    async fn next(&mut self) -> DFResult<Option<RecordBatch>> {
        let mut turn = Turn::begin();
        loop {
            if let Some(batch) = self.coalescer.next_completed_batch() {
                return Ok(Some(batch.record_output(&self.baseline)));
            }
            if self.is_finished {
                return Ok(None);
            }
            if let Some(batch) = &self.batch {
                let _compute = self.baseline.elapsed_compute().timer();
                if timed(&self.probe_time, || self.probe.next_chunk()) {
                    self.plan.conditions.apply(&self.dimensions.all, batch, &mut self.probe)?;
                    let (selection, rows) = (self.probe.selection(), self.probe.rows());
                    let joined = JoinedRows { batch, selection, rows };
                    if !selection.is_empty() {
                        let output = self.output(&joined)?;
                        self.coalescer.push_batch(output)?;
                    }
                } else {
                    self.batch = None;
                }
                turn.yield_if_over().await;
                continue;
            }
            match self.fact.next().await.transpose()? {
                Some(batch) => {
                    timed(&self.probe_time, || self.probe.begin(&batch))?;
                    self.batch = Some(batch);
                }
                None => {
                    self.coalescer.finish_buffered_batch()?;
                    self.is_finished = true;
                }
            }
        }
    }

    fn output(&self, joined: &JoinedRows<'_>) -> DFResult<RecordBatch> {
        let rows = self.plan.joined.gather(&self.dimensions.all, joined)?;
        let outputs = self.plan.outputs.iter();
        let columns = outputs.map(|output| output.evaluate(&rows)?.into_array(rows.num_rows()));
        let columns = columns.collect::<DFResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), columns, &options)?)
    }
}

impl DisplayAs for StarJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fact = self.inputs[0].schema();
        let dimensions = self.plan.dimensions.iter().zip(&self.inputs[1..]).map(|(plan, input)| {
            let (of_fact, schema) = (fact.field(plan.fact_key).name(), input.schema());
            let kind = if plan.exists { "exists " } else { "" };
            format!("{kind}{} on {of_fact} = {}", plan.name, schema.field(plan.key).name())
        });
        let dimensions: Vec<String> = dimensions.collect();
        if matches!(format, DisplayFormatType::TreeRender) {
            writeln!(f, "fact={}", self.plan.fact)?;
            return dimensions.iter().try_for_each(|dimension| writeln!(f, "{dimension}"));
        }
        write!(f, "StarJoinExec: fact={}, dimensions=[{}]", self.plan.fact, dimensions.join(", "))?;
        let conditions: Vec<String> = self.plan.conditions.exprs().map(ToString::to_string).collect();
        if !conditions.is_empty() {
            write!(f, ", conditions=[{}]", conditions.join(", "))?;
        }
        let Some(aggregate) = &self.aggregate else { return Ok(()) };
        let keys: Vec<&str> = aggregate.group_by.expr().iter().map(|(_, name)| name.as_str()).collect();
        let functions: Vec<&str> = aggregate.functions.iter().map(|function| function.name()).collect();
        write!(f, ", group by=[{}], aggregates=[{}]", keys.join(", "), functions.join(", "))
    }
}

impl ExecutionPlan for StarJoinExec {
    fn name(&self) -> &str {
        "StarJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        let groups = self.plan.dimensions.iter().flat_map(|dimension| &dimension.groups);
        let arguments = self.aggregate.iter().flat_map(|aggregate| &aggregate.arguments);
        let arguments = arguments.flat_map(|arguments| arguments.values.iter().chain(&arguments.filter));
        apply_expression_roots(
            self.plan.outputs.iter().chain(self.plan.conditions.exprs()).chain(groups).chain(arguments),
            f,
        )
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        assert_eq_or_internal_err!(
            children.len(),
            self.inputs.len(),
            "StarJoinExec has another number of inputs"
        );
        Ok(Arc::new(self.over(children)))
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let batches = stream::once(self.clone().start(partition, context)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        let dimensions = self.inputs.iter().skip(1).map(|_| ChildStats::Skip);
        [ChildStats::At(partition)].into_iter().chain(dimensions).collect()
    }

    /// As many rows as the fact has, at most if keys of dimensions are different.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(fact) = inputs.first() {
            statistics.num_rows = fact.num_rows.to_inexact();
        }
        Ok(Arc::new(statistics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
