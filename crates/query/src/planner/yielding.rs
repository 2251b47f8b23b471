//! Cooperative scheduling and cancellation of plans: a cancelled query computes no further batch, and none
//! blocks its thread for long.
//!
//! DataFusion lets leaves yield after a number of batches. That is not enough: a join makes many batches of
//! one, and one whose condition matches no pair makes none for seconds. So the last rule of the physical
//! optimizer wraps every node:
//!
//! - before and after each batch the wrapper looks whether the statement is stopped
//!   ([`crate::session::cancellation`]);
//! - a stream that has held its thread for [`TURN_MAX`] yields, by the clock and not by a count of batches;
//! - a leaf of several partitions yields before its first batch: what waited for the same build of a join as this
//!   partition was put behind it on this thread, where no idle thread takes it as long as this one computes;
//! - the conditions of joins look too, each time they are computed, on at most a batch of pairs; where no
//!   pair meets one, a turn lasts for seconds, so the runtime gets another thread then to go on with;
//! - once the rows of a plan are dropped, what still computes for it on other threads stops;
//! - keys of sorts and windows, and arguments of windows, are columns of projections by now
//!   (`planner/rules/computed_keys.rs`);
//! - expressions that make strings and lists are computed for a few rows at a time where that takes long, or makes
//!   much ([`crate::planner::slices`]). The last batch that a projection made of them is reserved as memory of the
//!   statement.
//!
//! The wrapper is the node itself for everything else, EXPLAIN included.

use crate::error::external;
use crate::planner::coded_groups::CodedAggregateExec;
use crate::planner::lookup::LookupJoinExec;
use crate::planner::patterns::exec::PatternExec;
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::slices::{self, BatchRows, SlicedEvaluation};
use crate::planner::turns::{TURN_MAX, Turn, yield_to_others};
use crate::planner::wrapped_expr::{EvaluationWrapper, WrappedExpr};
use crate::postgres::overflow;
use crate::postgres::plan_expressions::changed;
use crate::session::cancellation::RunningStatement;
use crate::session::query_memory::bytes_of_array;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, InvariantLevel};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Interruptible {
    running: Arc<RunningStatement>,
}

/// Makes the rows of a plan those of the query: once they are dropped, it stops.
pub(crate) fn rows_of(query: &Arc<RunningQuery>, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(WatchedExec { is_root: true, ..WatchedExec::plain(plan, query) })
}

/// Node of a query that checks for cancellation and yields.
pub(crate) fn interruptible(
    node: Arc<dyn ExecutionPlan>,
    query: &Arc<RunningQuery>,
) -> DFResult<Arc<dyn ExecutionPlan>> {
    let node = with_checked_condition(node, query)?;
    let sliced =
        |expr: Arc<dyn PhysicalExpr>, schema: &Schema| -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
            Ok(match SlicedEvaluation::of(&expr, schema, query)? {
                Some(sliced) => Transformed::yes(sliced),
                None => Transformed::no(expr),
            })
        };
    let with_slices = if let Some(scan) = node.downcast_ref::<EntresolScan>() {
        scan.with_changed_filters(&sliced)?
    } else if let Some(coded) = node.downcast_ref::<CodedAggregateExec>() {
        coded.changed(&sliced)?
    } else {
        changed(node.as_ref(), &sliced)?
    };
    let mut node = with_slices.unwrap_or(node);
    let mut slicing = SliceRole::None;
    if !node.children().is_empty()
        && let Some((rows, columns)) = slices::batch_rows(node.as_ref())?
    {
        let short = |child: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            let slicing = SliceRole::Input(Arc::clone(&rows));
            Arc::new(WatchedExec { slicing, ..WatchedExec::plain(Arc::clone(child), query) })
        };
        let children = node.children().into_iter().map(short).collect();
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        node = Arc::clone(&node).replace_children(children, options)?;
        slicing = SliceRole::Output(rows, columns.into());
    }
    Ok(Arc::new(WatchedExec { slicing, ..WatchedExec::plain(node, query) }))
}

impl Interruptible {
    /// Name of the rule.
    pub(crate) const NAME: &str = "interruptible";

    /// The rule for the plans of a session.
    pub(crate) fn new(running: &Arc<RunningStatement>) -> Interruptible {
        Interruptible { running: Arc::clone(running) }
    }
}

impl PhysicalOptimizerRule for Interruptible {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let query = RunningQuery::new(&self.running);
        let wrapped = plan.transform_up(|node| Ok(Transformed::yes(interruptible(node, &query)?)));
        Ok(rows_of(&query, wrapped.data()?))
    }

    fn name(&self) -> &str {
        Interruptible::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Wraps the expressions that a node evaluates many times within one batch in cancellation checks; conditions of joins
/// are planned with the checks of other expressions.
fn with_checked_condition(
    node: Arc<dyn ExecutionPlan>,
    query: &Arc<RunningQuery>,
) -> DFResult<Arc<dyn ExecutionPlan>> {
    let checked = |filter: &JoinFilter| {
        let wrapper = CheckedCondition { query: Arc::clone(query) };
        let condition = overflow::checked(Arc::clone(filter.expression()), filter.schema())?.data;
        let condition = WrappedExpr::of(condition, wrapper);
        let (columns, schema) = (filter.column_indices().to_vec(), Arc::clone(filter.schema()));
        Ok::<_, DataFusionError>(Some(JoinFilter::new(condition, columns, schema)))
    };
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        return Ok(Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(checked(filter)?).build()?));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        return join.builder().with_filter(checked(filter)?).build_exec();
    }
    if let Some(lookup) = node.downcast_ref::<LookupJoinExec>() {
        return Ok(Arc::new(lookup.over(with_checked_condition(Arc::clone(lookup.join()), query)?)));
    }
    if let Some(scan) = node.downcast_ref::<EntresolScan>() {
        return Ok(Arc::new(scan.within(query)));
    }
    if let Some(pattern) = node.downcast_ref::<PatternExec>() {
        return Ok(Arc::new(pattern.within(query)));
    }
    if let Some(scan) = node.downcast_ref::<EntresolColumnScan>() {
        return Ok(Arc::new(scan.within(query)));
    }
    Ok(node)
}

/// Node that checks for cancellation and yields.
#[derive(Debug)]
struct WatchedExec {
    inner: Arc<dyn ExecutionPlan>,
    query: Arc<RunningQuery>,
    /// True for the node that returns the rows of the query.
    is_root: bool,
    slicing: SliceRole,
}

/// Part of a node in the length of batches.
#[derive(Debug, Clone)]
enum SliceRole {
    None,
    /// Its batches have so many rows for the node above it.
    Input(Arc<BatchRows>),
    /// The bytes of these columns of its batches say how many rows the next one should have.
    Output(Arc<BatchRows>, Arc<[usize]>),
}

impl WatchedExec {
    fn plain(inner: Arc<dyn ExecutionPlan>, query: &Arc<RunningQuery>) -> WatchedExec {
        WatchedExec { inner, query: Arc::clone(query), is_root: false, slicing: SliceRole::None }
    }

    fn again(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let query = Arc::clone(&self.query);
        Arc::new(WatchedExec { inner, query, is_root: self.is_root, slicing: self.slicing.clone() })
    }
}

impl DisplayAs for WatchedExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(t, f)
    }
}

impl ExecutionPlan for WatchedExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn check_invariants(&self, check: InvariantLevel) -> DFResult<()> {
        self.inner.check_invariants(check)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.dynamic_expressions_produced()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self.again(Arc::clone(&self.inner).replace_children(children, options)?))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner);
        let replaced =
            datafusion::physical_plan::execution_plan::replace_children_if_necessary(inner, children);
        Ok(self.again(replaced?))
    }

    fn reset_state(self: Arc<Self>) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self.again(Arc::clone(&self.inner).reset_state()?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        self.query.check().map_err(external)?;
        let reserved = match &self.slicing {
            SliceRole::Output(..) => {
                Some(MemoryConsumer::new("results of functions").register(context.memory_pool()))
            }
            _ => None,
        };
        let rows = self.inner.execute(partition, context)?;
        let is_leaf = self.inner.children().is_empty();
        Ok(Box::pin(WatchedRows {
            rows,
            query: Arc::clone(&self.query),
            is_wanted: self.is_root,
            turn: None,
            yields_first: is_leaf && self.inner.output_partitioning().partition_count() > 1,
            slicing: self.slicing.clone(),
            rest: None,
            reserved,
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        self.inner.statistics_from_inputs(inputs, arguments)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.again(self.inner.with_new_state(state)?))
    }
}

/// The rows of a [`WatchedExec`] node.
struct WatchedRows {
    rows: SendableRecordBatchStream,
    query: Arc<RunningQuery>,
    /// True for a stream of the query's rows that has not ended.
    is_wanted: bool,
    /// Start of the turn: its first poll since it last yielded.
    turn: Option<Instant>,
    /// True until a leaf of several partitions has yielded for the first time.
    yields_first: bool,
    slicing: SliceRole,
    /// Rows of the last batch that were not returned yet.
    rest: Option<RecordBatch>,
    /// Memory of the last batch.
    reserved: Option<MemoryReservation>,
}

impl WatchedRows {
    /// First rows of a batch, of which the others come later.
    fn first_of(&mut self, batch: RecordBatch) -> RecordBatch {
        let SliceRole::Input(rows) = &self.slicing else { return batch };
        let (length, all) = (rows.next(), batch.num_rows());
        if length >= all {
            return batch;
        }
        self.rest = Some(batch.slice(length, all - length));
        batch.slice(0, length)
    }

    /// Looks at the bytes of a batch.
    fn measure(&mut self, batch: &RecordBatch) -> DFResult<()> {
        if let SliceRole::Output(rows, columns) = &self.slicing {
            if columns.is_empty() {
                return Ok(());
            }
            let measured = columns.iter().filter_map(|&at| batch.columns().get(at));
            let bytes = measured.map(bytes_of_array).sum();
            rows.adapt_to_bytes(batch.num_rows(), bytes);
            if let Some(reserved) = &self.reserved {
                reserved.try_resize(bytes)?;
            }
        }
        Ok(())
    }
}

impl Stream for WatchedRows {
    type Item = DFResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(error) = self.query.check() {
            return Poll::Ready(Some(Err(external(error))));
        }
        if std::mem::take(&mut self.yields_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let now = Instant::now();
        let _turn = Turn::at(now);
        let began = *self.turn.get_or_insert(now);
        if now.duration_since(began) > TURN_MAX {
            self.turn = None;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(self.first_of(rest))));
        }
        let polled = self.rows.poll_next_unpin(context);
        match polled {
            Poll::Pending => self.turn = None,
            Poll::Ready(Some(Ok(batch))) => {
                return Poll::Ready(Some(self.measure(&batch).map(|()| self.first_of(batch))));
            }
            // One of several streams of the query's rows may end long before the others.
            Poll::Ready(_) => self.is_wanted = false,
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl RecordBatchStream for WatchedRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for WatchedRows {
    fn drop(&mut self) {
        if self.is_wanted {
            self.query.stop();
        }
    }
}

/// Evaluation of a join's condition, which checks for cancellation before.
#[derive(Debug)]
struct CheckedCondition {
    query: Arc<RunningQuery>,
}

impl EvaluationWrapper for CheckedCondition {
    fn evaluate(&self, inner: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        self.query.check().map_err(external)?;
        yield_to_others();
        inner.evaluate(batch)
    }

    fn anew(&self) -> CheckedCondition {
        CheckedCondition { query: Arc::clone(&self.query) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::physical_plan::empty::EmptyExec;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// First polls of a leaf with so many partitions: whether it ended, and how often the task was woken.
    fn first_polls(partitions: usize) -> Vec<(bool, usize)> {
        let query = RunningQuery::new(&Arc::new(RunningStatement::default()));
        let leaf = EmptyExec::new(Arc::new(Schema::empty())).with_partitions(partitions);
        let leaf = interruptible(Arc::new(leaf), &query).expect("a leaf has no condition");
        let mut rows = leaf.execute(0, Arc::default()).expect("the query goes on");
        let counting = Arc::new(CountingWaker::default());
        let waker = Arc::clone(&counting).into();
        let mut context = Context::from_waker(&waker);
        let mut polls = Vec::new();
        for _ in 0..2 {
            let is_ended = matches!(rows.poll_next_unpin(&mut context), Poll::Ready(None));
            polls.push((is_ended, counting.0.load(Ordering::Relaxed)));
        }
        polls
    }

    #[test]
    fn partitions_yield_before_their_first_batch() {
        assert_eq!(first_polls(2), [(false, 1), (true, 1)]);
    }

    #[test]
    fn a_leaf_of_one_partition_starts_at_once() {
        assert_eq!(first_polls(1), [(true, 0), (true, 0)]);
    }
}
