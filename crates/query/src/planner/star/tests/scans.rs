//! Interface for scans of the fact.

use super::{selected, two_tables};
use crate::planner::star::sideways::KeySetExpr;
use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions, displayable,
};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Scan of one batch that takes filters, and counts the rows that it returns.
#[derive(Debug)]
struct FilteringScan {
    inner: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    returned: Arc<AtomicUsize>,
}

impl FilteringScan {
    /// Rows that meet all filters, which must be known to the bitmap, too.
    fn passed(filters: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> DFResult<RecordBatch> {
        let mut passed = batch.clone();
        for filter in filters {
            let known = filter.downcast_ref::<DynamicFilterPhysicalExpr>().unwrap().current()?;
            let terms = split_conjunction(&known);
            assert_eq!(terms.len(), 3, "{known}");
            assert!(terms[0].downcast_ref::<BinaryExpr>().is_some(), "{known}");
            let set = terms[2].downcast_ref::<KeySetExpr>().unwrap();
            let (min, _) = set.keys().bounds().unwrap();
            assert!(set.keys().contains(min) && set.keys().bitmap().unwrap()[0] & 1 == 1);
            let met = known.evaluate(&passed)?.into_array(passed.num_rows())?;
            passed = filter_record_batch(&passed, met.as_any().downcast_ref::<BooleanArray>().unwrap())?;
        }
        Ok(passed)
    }
}

impl DisplayAs for FilteringScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilteringScan: filters={}", self.filters.len())
    }
}

impl ExecutionPlan for FilteringScan {
    fn name(&self) -> &str {
        "FilteringScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let (filters, returned) = (self.filters.clone(), Arc::clone(&self.returned));
        let batches = self.inner.execute(partition, context)?.map(move |batch| {
            let passed = FilteringScan::passed(&filters, &batch?)?;
            returned.fetch_add(passed.num_rows(), Ordering::Relaxed);
            Ok(passed)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> DFResult<Arc<Statistics>> {
        StatisticsContext::new().compute(self.inner.as_ref(), args)
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> DFResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // DataFusion's own rules ask, too.
        if phase == FilterPushdownPhase::Pre || result.parent_filters.is_empty() {
            return Ok(FilterPushdownPropagation::all_unsupported(result));
        }
        let offered = result.parent_filters.iter().map(|offered| Arc::clone(&offered.filter));
        let scan = FilteringScan {
            inner: Arc::clone(&self.inner),
            filters: self.filters.iter().cloned().chain(offered).collect(),
            returned: Arc::clone(&self.returned),
        };
        Ok(FilterPushdownPropagation::all_unsupported(result).with_updated_node(Arc::new(scan)))
    }
}

/// Table whose scans take filters.
#[derive(Debug)]
struct FilteringTable {
    inner: Arc<dyn TableProvider>,
    returned: Arc<AtomicUsize>,
}

#[async_trait]
impl TableProvider for FilteringTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.scan(state, projection, filters, limit).await?;
        Ok(Arc::new(FilteringScan { inner, filters: Vec::new(), returned: Arc::clone(&self.returned) }))
    }
}

#[tokio::test]
async fn a_scan_that_takes_filters_leaves_out_rows_that_do_not_join() {
    let context = two_tables(10_000, 100, None);
    let inner = context.deregister_table("f").unwrap().unwrap();
    let returned = Arc::new(AtomicUsize::new(0));
    context.register_table("f", Arc::new(FilteringTable { inner, returned: Arc::clone(&returned) })).unwrap();
    // Below a filter and a projection, too.
    for from in ["f", "(SELECT v, v + 1 AS w, k FROM f WHERE v > 4999) g"] {
        let sql =
            format!("SELECT count(*), min(v) FROM {from}, d WHERE k = id AND name IN ('name 7', 'name 40')");
        let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert!(shown.contains("FilteringScan: filters=1"), "{shown}");
        returned.store(0, Ordering::Relaxed);
        let expected = if from == "f" { "200|7" } else { "100|5007" };
        assert_eq!(selected(&context, &sql).await.unwrap(), [expected]);
        assert_eq!(returned.load(Ordering::Relaxed), 200);
    }
    // A limit counts rows that do not join.
    let sql = "SELECT count(*) FROM (SELECT k FROM f LIMIT 5000) g, d WHERE k = id AND id = 3";
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("FilteringScan: filters=0") && shown.contains("StarJoinExec"), "{shown}");
    assert_eq!(selected(&context, sql).await.unwrap(), ["50"]);
}
