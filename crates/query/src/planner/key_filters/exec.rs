//! Node that passes on the rows of the left side of a hash join, and makes their keys known when it has seen all.
//!
//! - A partition ends once all of them have: the join asks its right side for rows behind that, when the conditions
//!   hold the keys of every partition. One that is dropped before leaves the conditions true, and the others end.
//! - Conditions are one for each key; each is true, false (there is no key), or a set of keys.
//! - Memory: keys until the end, [`KEYS_MAX`] at most; the bitmaps, reserved until the plan is dropped.

use crate::planner::fresh_filters::FreshFilters;
use crate::planner::star::keys::{KeyColumn, KeyMapBuilder, KeyRange, LookupResult};
use crate::planner::star::sideways;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, ScalarValue, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, Literal};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, apply_expression_roots};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// Most keys of a condition.
const KEYS_MAX: usize = 1 << 24;

/// Condition that the right side of a join has a key of the left one.
#[derive(Debug, Clone)]
pub(super) struct KeyFilter {
    /// Key, of rows of the left side.
    pub(super) key: Arc<dyn PhysicalExpr>,
    pub(super) filter: Arc<DynamicFilterPhysicalExpr>,
    /// Type of the column that the condition is on.
    pub(super) data_type: DataType,
}

/// The node; see the [module](self).
#[derive(Debug)]
pub(crate) struct KeyFilterExec {
    input: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<KeyFilter>>,
    metrics: ExecutionPlanMetricsSet,
    seen: Arc<KeyUnion>,
}

/// Keys that the partitions of one execution have seen.
#[derive(Debug)]
struct KeyUnion {
    keys: Mutex<Keys>,
    /// True once all partitions have ended, or one was dropped.
    is_over: watch::Sender<bool>,
}

#[derive(Debug)]
struct Keys {
    /// Partitions that have not ended.
    partitions: usize,
    /// Arrays of the keys of each filter; none if they are too many.
    arrays: Option<Vec<Vec<ArrayRef>>>,
    rows: usize,
    /// Memory of the bitmaps.
    reservation: Option<MemoryReservation>,
}

impl KeyUnion {
    fn new(partitions: usize, filters: usize) -> Arc<KeyUnion> {
        let arrays = Some(vec![Vec::new(); filters]);
        let keys = Mutex::new(Keys { partitions, arrays, rows: 0, reservation: None });
        Arc::new(KeyUnion { keys, is_over: watch::channel(false).0 })
    }

    fn add(&self, filters: &[Arc<KeyFilter>], batch: &RecordBatch) -> DFResult<()> {
        let arrays = filters.iter().map(|filter| filter.key.evaluate(batch)?.into_array(batch.num_rows()));
        let arrays = arrays.collect::<DFResult<Vec<_>>>()?;
        let mut keys = self.keys.lock();
        keys.rows += batch.num_rows();
        if keys.rows > KEYS_MAX {
            keys.arrays = None;
        }
        for (known, array) in keys.arrays.iter_mut().flatten().zip(arrays) {
            known.push(array);
        }
        Ok(())
    }

    /// Notes that a partition has ended; makes the keys known if it is the last one.
    fn end(&self, filters: &[Arc<KeyFilter>], context: &TaskContext) -> DFResult<()> {
        let mut keys = self.keys.lock();
        keys.partitions -= 1;
        if keys.partitions > 0 {
            return Ok(());
        }
        match keys.arrays.take() {
            Some(arrays) => {
                let reservation = MemoryConsumer::new("KeyFilterExec").register(context.memory_pool());
                for (filter, arrays) in filters.iter().zip(arrays) {
                    filter.publish(&arrays, &reservation)?;
                }
                keys.reservation = Some(reservation);
            }
            None => forget(filters)?,
        }
        drop(keys);
        self.is_over.send_replace(true);
        Ok(())
    }
}

impl KeyFilter {
    fn forget(&self) -> DFResult<()> {
        self.filter.update(Arc::new(Literal::new(ScalarValue::from(true))))
    }

    /// Makes the keys known, unless they are in a wide range or there is no memory for them.
    fn publish(&self, arrays: &[ArrayRef], reservation: &MemoryReservation) -> DFResult<()> {
        let columns = arrays.iter().map(|array| KeyColumn::of(array.as_ref()));
        let columns = columns.collect::<DFResult<Vec<_>>>()?;
        let mut range = KeyRange::default();
        columns.iter().for_each(|column| range.extend(column));
        let rows = arrays.iter().map(|array| array.len()).sum();
        if !range.is_dense() || reservation.try_grow(range.bytes_of_bits()).is_err() {
            return self.forget();
        }
        let mut builder = KeyMapBuilder::new(&range, rows, LookupResult::Keys);
        columns.iter().rev().for_each(|column| {
            builder.push_before(column);
        });
        sideways::publish(&self.filter, &Arc::new(builder.finish()), &self.data_type, "join")
    }
}

/// Makes all conditions true: an execution before may have left its keys.
fn forget(filters: &[Arc<KeyFilter>]) -> DFResult<()> {
    filters.iter().try_for_each(|filter| filter.forget())
}

/// Partition that has begun.
struct Partition {
    seen: Arc<KeyUnion>,
    filters: Vec<Arc<KeyFilter>>,
    context: Arc<TaskContext>,
    has_ended: bool,
}

impl Partition {
    /// Ends the partition, and waits for the others.
    async fn end(&mut self) -> DFResult<()> {
        self.has_ended = true;
        let mut is_over = self.seen.is_over.subscribe();
        let ended = self.seen.end(&self.filters, &self.context);
        if ended.is_err() {
            let _ = forget(&self.filters);
            self.seen.is_over.send_replace(true);
        }
        ended?;
        // The sender is behind `seen`, which is here.
        let _ = is_over.wait_for(|is_over| *is_over).await;
        Ok(())
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if !self.has_ended {
            // What fails here leaves the plan, whose rows are not asked for any more.
            let _ = forget(&self.filters);
            self.seen.is_over.send_replace(true);
        }
    }
}

impl KeyFilterExec {
    /// Node over the left side of a join.
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, filters: Vec<Arc<KeyFilter>>) -> KeyFilterExec {
        let seen = KeyUnion::new(input.output_partitioning().partition_count(), filters.len());
        KeyFilterExec { input, filters, metrics: ExecutionPlanMetricsSet::new(), seen }
    }

    /// The same node of a copy of the plan.
    pub(crate) fn renewed(&self, fresh: &mut FreshFilters) -> KeyFilterExec {
        let mut renewed = |filter: &Arc<KeyFilter>| {
            let known = fresh.replacement(&filter.filter);
            Arc::new(KeyFilter { filter: known, ..KeyFilter::clone(filter) })
        };
        let filters = self.filters.iter().map(&mut renewed).collect();
        KeyFilterExec::new(Arc::clone(&self.input), filters)
    }
}

impl DisplayAs for KeyFilterExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.filters.iter().map(|filter| filter.key.to_string()).collect();
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "keys={}", keys.join(", ")),
            _ => write!(f, "KeyFilterExec: keys=[{}]", keys.join(", ")),
        }
    }
}

impl ExecutionPlan for KeyFilterExec {
    fn name(&self) -> &str {
        "KeyFilterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        apply_expression_roots(self.filters.iter().map(|filter| &filter.key), f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(KeyFilterExec::new(input, self.filters.clone())))
    }

    // Required by the trait, superseded by `replace_children`.

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(KeyFilterExec::new(input, self.filters.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let time = MetricBuilder::new(&self.metrics).subset_time("keys_time", partition);
        let (seen, filters) = (Arc::clone(&self.seen), self.filters.clone());
        let state = (rows, Partition { seen, filters, context, has_ended: false });
        let batches = stream::try_unfold(state, move |(mut rows, mut partition)| {
            let time = time.clone();
            async move {
                match rows.next().await.transpose()? {
                    Some(batch) => {
                        let _timer = time.timer();
                        partition.seen.add(&partition.filters, &batch)?;
                        Ok(Some((batch, (rows, partition))))
                    }
                    None => {
                        // Before it waits: an input that was never asked may be what another partition waits for.
                        drop(rows);
                        partition.end().await?;
                        Ok(None)
                    }
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        Ok(inputs.first().cloned().unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
