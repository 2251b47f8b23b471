//! COUNT(*) of a table without reading it: commits keep the number of rows of tables by rows.
//!
//! ```text
//!   Aggregate count(*)                 CountedRows ── number that commits keep, if it is known
//!   └─ scan of a table, all rows       └─ Aggregate count(*), else
//!                                         └─ scan of a table, all rows
//! ```
//!
//! # Invariants
//!
//! - The number is that of the transaction's snapshot ([`Table::known_rows`]). It is asked for when the plan runs, so the node
//!   may stand in a plan that is run again.
//! - Where the number is not known, the aggregate runs: for a transaction that has written the table, AS OF, a snapshot older
//!   than what is noted one by one, other layouts and protocols; and once behind a restart. Then the table is told what it
//!   counted.
//! - Only rows are counted: COUNT of literals, and of columns that are never NULL; without DISTINCT, FILTER and GROUP BY, and
//!   without conditions on the rows.

use crate::error::{Error, external};
use crate::planner::scans::scan::EntresolScan;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions_aggregate::count::Count;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt};
use std::fmt;
use std::sync::Arc;

/// The rule that makes the nodes; see the [module](self).
#[derive(Debug)]
pub(crate) struct CountedRows;

impl PhysicalOptimizerRule for CountedRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let planned = plan.transform_down(|node| {
            if !counts_rows(&node) {
                return Ok(Transformed::no(node));
            }
            let counted = Arc::new(CountedRowsExec::new(node)) as Arc<dyn ExecutionPlan>;
            Ok(Transformed::new(counted, true, TreeNodeRecursion::Jump))
        });
        planned.data()
    }

    fn name(&self) -> &str {
        "counted_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns true for an aggregate that counts the rows of a table, and nothing else.
fn counts_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return false };
    let Some(first) = first_stage(aggregate) else { return false };
    let input = first.input_schema();
    let is_count = |(call, filter): (&Arc<AggregateFunctionExpr>, &Option<Arc<dyn PhysicalExpr>>)| {
        filter.is_none() && counts_all(call, &input)
    };
    let fields = node.schema();
    aggregate.group_expr().is_empty()
        && first.group_expr().is_empty()
        && !first.aggr_expr().is_empty()
        && first.aggr_expr().iter().zip(first.filter_expr()).all(is_count)
        && fields.fields().iter().all(|field| *field.data_type() == DataType::Int64)
        && node.output_partitioning().partition_count() == 1
        && counted_scan(node).is_some_and(|scan| scan.reads_all() && scan.table().counts_rows())
}

/// Aggregate that reads rows, under one that puts partial results together.
fn first_stage(aggregate: &AggregateExec) -> Option<&AggregateExec> {
    if aggregate.mode().input_mode() == AggregateInputMode::Raw {
        return Some(aggregate);
    }
    let below = below_exchanges(aggregate.input())?;
    below.downcast_ref::<AggregateExec>().filter(|first| first.mode().input_mode() == AggregateInputMode::Raw)
}

/// Returns true if an aggregate function counts each row of its input.
fn counts_all(call: &AggregateFunctionExpr, input: &Schema) -> bool {
    let is_given = |argument: &Arc<dyn PhysicalExpr>| match argument.downcast_ref::<Column>() {
        Some(column) => input.fields().get(column.index()).is_some_and(|field| !field.is_nullable()),
        None => argument.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null()),
    };
    call.fun().inner().is::<Count>()
        && !call.is_distinct()
        && call.order_bys().is_empty()
        && call.expressions().iter().all(is_given)
}

/// Scan that an aggregate counts the rows of: all that it returns reach the aggregate, unchanged.
fn counted_scan(aggregate: &Arc<dyn ExecutionPlan>) -> Option<&EntresolScan> {
    let first = first_stage(aggregate.downcast_ref::<AggregateExec>()?)?;
    below_exchanges(first.input())?.downcast_ref::<EntresolScan>()
}

/// Node below those that move rows between partitions.
fn below_exchanges(mut node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    while node.is::<CoalescePartitionsExec>() || node.is::<RepartitionExec>() {
        node = node.children().first()?;
    }
    Some(node)
}

/// Number of rows of a table that commits keep, or an aggregate that counts them; see the [module](self).
#[derive(Debug)]
pub(crate) struct CountedRowsExec {
    aggregate: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl CountedRowsExec {
    fn new(aggregate: Arc<dyn ExecutionPlan>) -> CountedRowsExec {
        CountedRowsExec { aggregate, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same over another aggregate.
    fn over(&self, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
        let aggregate = children.pop().unwrap_or_else(|| Arc::clone(&self.aggregate));
        Arc::new(CountedRowsExec::new(aggregate))
    }

    /// Origin of the number, as far as is known before it runs.
    fn origin(&self) -> &'static str {
        let Some(scan) = counted_scan(&self.aggregate) else { return "read" };
        match scan.transaction() {
            Some(transaction) if !scan.table().may_count(transaction) => "read",
            _ if scan.table().newest_rows().is_some() => "of commits",
            _ => "read, and remembered from then on",
        }
    }
}

impl DisplayAs for CountedRowsExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = counted_scan(&self.aggregate).map_or("", |scan| scan.table().name());
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "CountedRowsExec: table={table}, count={}", self.origin())
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={table}")?;
                writeln!(f, "count={}", self.origin())
            }
        }
    }
}

impl ExecutionPlan for CountedRowsExec {
    fn name(&self) -> &str {
        "CountedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.aggregate.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.aggregate]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let bound = counted_scan(&self.aggregate)
            .and_then(|scan| Some((Arc::clone(scan.table()), Arc::clone(scan.transaction()?))));
        let Some((table, transaction)) = bound else { return self.aggregate.execute(partition, context) };
        let known = table.known_rows(&transaction).map_err(|error| external(Error::from(error)))?;
        if let Some(rows) = known {
            let not_read = MetricBuilder::new(&self.metrics).global_counter("rows_not_read");
            not_read.add(usize::try_from(rows).unwrap_or(usize::MAX));
            let batch = self.counts(rows);
            let rows = stream::once(async move { batch });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)));
        }
        if !table.may_count(&transaction) {
            return self.aggregate.execute(partition, context);
        }
        let rows = self.aggregate.execute(partition, context)?;
        let told = rows.inspect(move |batch| {
            if let Some(rows) = batch.as_ref().ok().and_then(count_of) {
                table.tell_rows(&transaction, rows);
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), told)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        Ok(inputs.first().map_or_else(|| Arc::new(Statistics::new_unknown(&self.schema())), Arc::clone))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }
}

impl CountedRowsExec {
    /// Row of the counts.
    fn counts(&self, rows: u64) -> DFResult<RecordBatch> {
        let schema = self.schema();
        let count: ArrayRef = Arc::new(Int64Array::from(vec![i64::try_from(rows).unwrap_or(i64::MAX)]));
        let columns = vec![count; schema.fields().len()];
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

/// Number that an aggregate has counted, in the row that it returns.
fn count_of(batch: &RecordBatch) -> Option<u64> {
    let counts = batch.columns().first()?.as_primitive_opt::<Int64Type>()?;
    let count = (counts.len() == 1 && counts.is_valid(0)).then(|| counts.value(0));
    count.and_then(|count| u64::try_from(count).ok())
}
