//! Plans that run on a topology's thread: their tables are bound to its transaction.

use crate::error::{Error, Result};
use crate::planner::patterns::physical_planner;
use crate::planner::scans::provider::EntresolTable;
use crate::planner::yielding::Interruptible;
use crate::schema_names::STREAMS_CATALOG;
use crate::session::query_memory::bytes_of;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable, execute_stream};
use datafusion::physical_planner::PhysicalPlanner;
use entresol_tables::Catalog;
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// Occasion at which a plan runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Occasion {
    Batch,
    Commit,
}

impl Occasion {
    /// Text for EXPLAIN.
    fn text(self) -> &'static str {
        match self {
            Occasion::Batch => "for each batch",
            Occasion::Commit => "at each commit",
        }
    }

    /// Refusal of results of too many bytes.
    fn too_many(self, bytes_max: usize) -> Error {
        let message = match self {
            Occasion::Batch => format!(
                "the results for a batch of rows take more than {bytes_max} bytes: commit fewer rows together, or \
                 narrow the condition of the join"
            ),
            Occasion::Commit => {
                format!("the results at a commit take more than {bytes_max} bytes: narrow the query")
            }
        };
        Error::coded("54000", message)
    }
}

/// Plan whose tables are bound to a transaction when it runs.
pub(crate) struct BoundPlan {
    plan: LogicalPlan,
    occasion: Occasion,
    state: SessionState,
    /// None when it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for BoundPlan {
    fn drop(&mut self) {
        // A topology that is not started is dropped by a statement, which runs in another runtime.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl BoundPlan {
    pub(crate) fn new(plan: LogicalPlan, occasion: Occasion, state: SessionState) -> Result<BoundPlan> {
        let runtime = Builder::new_current_thread().build();
        let runtime =
            runtime.map_err(|error| Error::coded("58030", format!("a runtime of a step: {error}")))?;
        Ok(BoundPlan { plan, occasion, state, runtime: Some(runtime) })
    }

    /// Physical plan over tables as a transaction sees them.
    pub(crate) async fn physical(&self, transaction: &Arc<Transaction>) -> Result<Arc<dyn ExecutionPlan>> {
        let bound = |node: LogicalPlan| match &node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source)?;
                let Some(table) = provider.downcast_ref::<EntresolTable>() else {
                    return Ok(Transformed::no(node));
                };
                let source = provider_as_source(Arc::new(table.pinned_now(transaction)));
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
            }
            _ => Ok(Transformed::no(node)),
        };
        let plan = self.plan.clone().transform_up_with_subqueries(bound)?.data;
        Ok(physical_planner().create_physical_plan(&plan, &self.state).await?)
    }

    /// Memory for results, of which nothing is reserved.
    pub(crate) fn memory(&self, of: &str) -> MemoryReservation {
        MemoryConsumer::new(of).register(&self.state.runtime_env().memory_pool)
    }

    /// Rows of the plan in a transaction, which are reserved in `memory`; refused if they take more than so many bytes.
    pub(crate) fn rows_within(
        &self,
        transaction: &Arc<Transaction>,
        memory: &MemoryReservation,
        bytes_max: usize,
    ) -> Result<Vec<RecordBatch>> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Error::Internal("a plan without runtime".to_owned()))?;
        runtime.block_on(async {
            let physical = self.physical(transaction).await?;
            let mut rows = execute_stream(physical, self.state.task_ctx())?;
            let mut found = Vec::new();
            while let Some(batch) = rows.next().await.transpose()? {
                memory.try_grow(bytes_of(&batch))?;
                if memory.size() > bytes_max {
                    return Err(self.occasion.too_many(bytes_max));
                }
                found.push(batch);
            }
            Ok(found)
        })
    }

    /// Rows of the plan in a transaction.
    pub(crate) fn rows(&self, transaction: &Arc<Transaction>) -> Result<Vec<RecordBatch>> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Error::Internal("a plan without runtime".to_owned()))?;
        runtime.block_on(async {
            let physical = self.physical(transaction).await?;
            Ok(collect(physical, self.state.task_ctx()).await?)
        })
    }
}

/// Columns of results as those of a stream, in which no value is lost.
pub(crate) fn stream_columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<Vec<ArrayRef>> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    Ok(columns.collect::<std::result::Result<Vec<_>, _>>()?)
}

/// Lines of EXPLAIN TOPOLOGY: plans that are run for each batch, or at each commit.
pub(crate) async fn explained(queries: &[Arc<BoundPlan>], catalog: &Catalog) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for query in queries {
        let physical = query.physical(&catalog.begin()?).await?;
        lines.push(format!("  {}", query.occasion.text()));
        let text = displayable(physical.as_ref()).indent(false).to_string();
        lines.extend(text.lines().map(|line| format!("    {line}")));
    }
    Ok(lines)
}

/// Session state of plans that run on a topology's thread: without what ends with a statement of the session.
pub(crate) fn state_of_thread(state: &SessionState) -> SessionState {
    let rules = state.physical_optimizers().iter().filter(|rule| rule.name() != Interruptible::NAME);
    let rules = rules.cloned().collect();
    let mut config = state.config().clone();
    config.options_mut().execution.target_partitions = 1;
    SessionStateBuilder::new_from_existing(state.clone())
        .with_config(config)
        .with_physical_optimizer_rules(rules)
        .build()
}

/// Tells whether a plan reads a stream.
pub(crate) fn reads_stream(plan: &LogicalPlan) -> bool {
    let mut found = false;
    // The visitor fails never.
    let _ = plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.catalog() == Some(STREAMS_CATALOG));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// Tells whether expressions have subqueries.
pub(crate) fn have_subqueries<'e>(expressions: impl IntoIterator<Item = &'e Expr>) -> bool {
    let is_subquery =
        |expr: &Expr| Ok(matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)));
    expressions.into_iter().any(|expr| expr.exists(is_subquery).unwrap_or(false))
}
