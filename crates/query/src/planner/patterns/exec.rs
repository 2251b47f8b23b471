//! Execution of MATCH_RECOGNIZE: sorted rows of partitions through the matcher of the streams.
//!
//! ```text
//!   rows, divided by the keys of the partition and sorted by these and ORDER BY ─▶ runs of one partition each
//!     ─▶ PartitionMatcher: add, take_matches, end_partition ─▶ batches of matches
//! ```
//!
//! The sort is DataFusion's, which spills. Beside it are in memory the rows from the first of the open match on, reserved as
//! those of `MatchRecognizeExec`: a match that takes more than there is room for is an error (53200).
//!
//! The matcher asks every few rows whether the statement is cancelled: a pattern that fails far behind its beginning looks
//! at the same rows for each row that it could begin with.

use crate::error::{Error, external, operator_sqlstate};
use crate::parser::patterns::PatternClause;
use crate::planner::patterns::expression::{CompiledPattern, stored_type};
use crate::planner::patterns::node::PatternNode;
use crate::planner::running_query::RunningQuery;
use crate::planner::turns::yield_to_others;
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result as DFResult, internal_datafusion_err, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexRequirement, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortRequirement,
};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use entresol_streams::{
    Error as StreamError, MatchGuard, PartitionMatcher, PartitionPattern, Pattern, Reason,
};
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Name of the operator in plans, and of its memory.
const NAME: &str = "MatchRecognizeExec";
/// Step in which memory is reserved.
const RESERVED_BYTES_STEP: usize = 64 << 10;

/// Planner of the nodes of patterns.
pub(super) struct PatternExecPlanner;

#[async_trait]
impl ExtensionPlanner for PatternExecPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<PatternNode>() else { return Ok(None) };
        let ([input], Some(state)) = (physical_inputs, session.as_any().downcast_ref::<SessionState>())
        else {
            return internal_err!("a pattern has one input, and a session's state");
        };
        Ok(Some(Arc::new(PatternExec::new(node, Arc::clone(input), state)?)))
    }
}

/// Steps from the rows of the input to matches.
struct PatternSteps {
    compiled: CompiledPattern,
    pattern: Pattern,
    all_rows: bool,
    skips_match: bool,
    within: Option<Duration>,
    /// Columns that the pattern reads, which are the first of the input, as they are buffered.
    rows: SchemaRef,
    /// Columns of the input by which rows are divided.
    partition: Vec<usize>,
    order: Vec<(Arc<dyn PhysicalExpr>, SortOptions)>,
    /// Column of the input with the times that WITHIN bounds.
    time: Option<usize>,
    clause: String,
}

/// Operator of MATCH_RECOGNIZE; see the [module](self).
#[derive(Clone)]
pub(crate) struct PatternExec {
    input: Arc<dyn ExecutionPlan>,
    steps: Arc<PatternSteps>,
    /// Query that it belongs to; none before the plan is made interruptible.
    query: Option<Arc<RunningQuery>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for PatternExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME).field("clause", &self.steps.clause).finish_non_exhaustive()
    }
}

impl PatternExec {
    fn new(node: &PatternNode, input: Arc<dyn ExecutionPlan>, state: &SessionState) -> DFResult<PatternExec> {
        let planned = node.with_values().map_err(external)?;
        let (columns, logical) = (input.schema(), node.input().schema());
        let read = node.read();
        let fields = columns.fields().iter().take(read.len());
        let fields: Vec<Field> =
            fields.map(|field| Field::new(field.name(), stored_type(field.data_type()), true)).collect();
        let stored: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
        let schema = Arc::clone(node.schema().inner());
        let results: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let compiled = CompiledPattern::new(state, &planned, (read, &stored), &results).map_err(external)?;
        let partition = node.partition().iter().map(|expr| place_of(expr, logical));
        let partition = partition.collect::<DFResult<Vec<usize>>>()?;
        let mut order: Vec<(Arc<dyn PhysicalExpr>, SortOptions)> = Vec::new();
        for key in node.order() {
            let options = SortOptions { descending: !key.asc, nulls_first: key.nulls_first };
            order.push((column(&columns, place_of(&key.expr, logical)?), options));
        }
        let PatternClause { pattern, all_rows, skips_match, within, .. } = planned.clause.clone();
        let first = node.order().first().filter(|_| within.is_some());
        let time = first.map(|key| place_of(&key.expr, logical)).transpose()?;
        let steps = PatternSteps {
            compiled,
            pattern,
            all_rows,
            skips_match,
            within,
            rows: Arc::new(Schema::new(fields)),
            partition,
            order,
            time,
            clause: node.planned().described(),
        };
        Ok(PatternExec::over(input, Arc::new(steps), schema, None))
    }

    fn over(
        input: Arc<dyn ExecutionPlan>,
        steps: Arc<PatternSteps>,
        schema: SchemaRef,
        query: Option<Arc<RunningQuery>>,
    ) -> PatternExec {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        PatternExec { input, steps, query, properties, metrics }
    }

    /// The operator as a part of a running query.
    pub(crate) fn within(&self, query: &Arc<RunningQuery>) -> PatternExec {
        PatternExec { query: Some(Arc::clone(query)), ..self.clone() }
    }

    /// Keys of the partition.
    fn partition(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let columns = self.input.schema();
        self.steps.partition.iter().map(|&place| column(&columns, place)).collect()
    }

    fn matches(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<MatchStream> {
        let memory = MemoryConsumer::new(format!("{NAME}[{partition}]")).register(context.memory_pool());
        let failure = Arc::new(Mutex::new(None));
        let guard = QueryGuard { query: self.query.clone(), memory, failure: Arc::clone(&failure) };
        let steps = &self.steps;
        let pattern = PartitionPattern {
            pattern: steps.pattern.clone(),
            variables: steps.compiled.variables(),
            measures: steps.compiled.measures(),
            output: self.schema(),
            all_rows: steps.all_rows,
            within: steps.within,
            skips_match: steps.skips_match,
        };
        let matcher = pattern.matcher("MATCH_RECOGNIZE", &steps.rows, Box::new(guard));
        let columns = self.input.schema();
        let keys = steps.partition.iter().map(|&at| SortField::new(columns.field(at).data_type().clone()));
        Ok(MatchStream {
            input: self.input.execute(partition, context)?,
            steps: Arc::clone(steps),
            matcher: matcher.map_err(|error| failed(&failure, error))?,
            failure,
            keys: RowConverter::new(keys.collect())?,
            current: None,
            pending: VecDeque::new(),
            phase: Phase::Rows,
            is_ended: false,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        })
    }
}

/// Place of a column in the input.
fn place_of(expr: &Expr, input: &DFSchema) -> DFResult<usize> {
    match expr {
        Expr::Column(column) => input.index_of_column(column),
        Expr::Alias(alias) => place_of(&alias.expr, input),
        other => internal_err!("{other} is not a column of the input of a pattern"),
    }
}

fn column(columns: &Schema, place: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(columns.field(place).name(), place))
}

impl DisplayAs for PatternExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "{NAME}: {}", self.steps.clause)
            }
            DisplayFormatType::TreeRender => writeln!(f, "{}", self.steps.clause),
        }
    }
}

impl ExecutionPlan for PatternExec {
    fn name(&self) -> &str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        for expr in self.partition().iter().chain(self.steps.order.iter().map(|(expr, _)| expr)) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let keys = self.partition();
        InputDistributionRequirements::new(vec![if keys.is_empty() {
            Distribution::SinglePartition
        } else {
            Distribution::KeyPartitioned(keys)
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let partition = self.partition().into_iter().map(|key| PhysicalSortRequirement::new(key, None));
        let order = self.steps.order.iter();
        let order = order.map(|(key, options)| PhysicalSortRequirement::new(Arc::clone(key), Some(*options)));
        vec![LexRequirement::new(partition.chain(order)).map(OrderingRequirements::new)]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().filter(|_| children.is_empty());
        let input = input.ok_or_else(|| internal_datafusion_err!("a pattern has one input"))?;
        let (steps, query) = (Arc::clone(&self.steps), self.query.clone());
        Ok(Arc::new(PatternExec::over(input, steps, self.schema(), query)))
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let matches = self.matches(partition, context)?;
        let rows = stream::try_unfold(matches, |mut matches| async move {
            let next = matches.next().await?;
            Ok(next.map(|batch| (batch.record_output(&matches.baseline), matches)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Limits of a query: its cancellation, and its memory.
struct QueryGuard {
    query: Option<Arc<RunningQuery>>,
    memory: MemoryReservation,
    /// Error with which it refused to go on.
    failure: Arc<Mutex<Option<DataFusionError>>>,
}

impl QueryGuard {
    fn refused(&self, error: DataFusionError) -> Reason {
        let reason = Reason::from(error.to_string());
        *self.failure.lock() = Some(error);
        reason
    }
}

impl MatchGuard for QueryGuard {
    fn check(&mut self) -> Result<(), Reason> {
        yield_to_others();
        let checked = self.query.as_ref().map_or(Ok(()), |query| query.check());
        checked.map_err(|error| self.refused(external(error)))
    }

    fn resize(&mut self, bytes: usize) -> Result<(), Reason> {
        let wanted = bytes.next_multiple_of(RESERVED_BYTES_STEP);
        let resized = if wanted == self.memory.size() { Ok(()) } else { self.memory.try_resize(wanted) };
        resized.map_err(|error| self.refused(error))
    }
}

/// Error of the matcher: that with which the query refused to go on, or that of an expression.
fn failed(failure: &Mutex<Option<DataFusionError>>, error: StreamError) -> DataFusionError {
    if let Some(refused) = failure.lock().take() {
        return refused;
    }
    let sqlstate = operator_sqlstate(&error).unwrap_or("XX000");
    external(match error {
        StreamError::Computation { reason, .. } => Error::coded(sqlstate, reason.message),
        other => Error::coded(sqlstate, other.to_string()),
    })
}

/// Next call of the matcher.
#[derive(Clone, Copy)]
enum Phase {
    /// It looks at the rows that were added.
    Rows,
    /// It ends a partition.
    End,
}

/// Input of the matcher: rows that are still to be added, or the end of their partition.
enum MatcherInput {
    Rows(RecordBatch),
    End,
}

/// Matches in the rows of one partition of the plan.
struct MatchStream {
    input: SendableRecordBatchStream,
    steps: Arc<PatternSteps>,
    matcher: PartitionMatcher,
    failure: Arc<Mutex<Option<DataFusionError>>>,
    keys: RowConverter,
    /// Keys of the last row.
    current: Option<OwnedRow>,
    pending: VecDeque<MatcherInput>,
    phase: Phase,
    is_ended: bool,
    baseline: BaselineMetrics,
}

impl MatchStream {
    /// Next batch of matches; none behind the last.
    async fn next(&mut self) -> DFResult<Option<RecordBatch>> {
        loop {
            let elapsed = self.baseline.elapsed_compute().clone();
            let timer = elapsed.timer();
            let sent = self.step()?;
            timer.done();
            if sent.is_some() {
                return Ok(sent);
            }
            if self.is_ended {
                return self.matcher.rest().map_err(|error| failed(&self.failure, error));
            }
            match self.input.next().await {
                Some(batch) => self.divide(&batch?)?,
                None => {
                    self.is_ended = true;
                    self.pending.push_back(MatcherInput::End);
                }
            }
        }
    }

    /// Goes on with the rows that there are, up to the next full batch.
    fn step(&mut self) -> DFResult<Option<RecordBatch>> {
        loop {
            let sent = match self.phase {
                Phase::Rows => self.matcher.take_matches(),
                Phase::End => self.matcher.end_partition(),
            };
            if let Some(sent) = sent.map_err(|error| failed(&self.failure, error))? {
                return Ok(Some(sent));
            }
            match self.pending.pop_front() {
                None => {
                    self.phase = Phase::Rows;
                    return Ok(None);
                }
                Some(MatcherInput::End) => self.phase = Phase::End,
                Some(MatcherInput::Rows(batch)) => {
                    self.phase = Phase::Rows;
                    self.add(&batch)?;
                }
            }
        }
    }

    /// Divides a batch into the rows of its partitions.
    fn divide(&mut self, batch: &RecordBatch) -> DFResult<()> {
        if self.steps.partition.is_empty() {
            self.pending.push_back(MatcherInput::Rows(batch.clone()));
            return Ok(());
        }
        let columns: Vec<ArrayRef> =
            self.steps.partition.iter().map(|&at| Arc::clone(batch.column(at))).collect();
        let keys = self.keys.convert_columns(&columns)?;
        let mut begin = 0;
        for at in 0..batch.num_rows() {
            let key = keys.row(at);
            if self.current.as_ref().is_some_and(|current| current.row() == key) {
                continue;
            }
            if at > begin {
                self.pending.push_back(MatcherInput::Rows(batch.slice(begin, at - begin)));
            }
            if self.current.is_some() {
                self.pending.push_back(MatcherInput::End);
            }
            begin = at;
            self.current = Some(key.owned());
        }
        self.pending.push_back(MatcherInput::Rows(batch.slice(begin, batch.num_rows() - begin)));
        Ok(())
    }

    /// Hands rows of one partition to the matcher.
    fn add(&mut self, batch: &RecordBatch) -> DFResult<()> {
        let fields = self.steps.rows.fields();
        let columns = fields.iter().zip(batch.columns()).map(|(field, column)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            cast(column, field.data_type())
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.steps.rows), columns, &options)?;
        let times = self.steps.time.map(|at| times_of(batch.column(at))).transpose()?;
        let added = self.matcher.add(&rows, times.as_deref());
        added.map_err(|error| failed(&self.failure, error))
    }
}

/// Times of rows in microseconds.
fn times_of(column: &ArrayRef) -> DFResult<Vec<Option<i64>>> {
    let zone = match column.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let times = cast(column, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
    Ok(times.as_primitive::<TimestampMicrosecondType>().iter().collect())
}
