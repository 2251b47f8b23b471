//! Conditions of ABORT WHEN: queries over what the open transaction sees and has changed.
//!
//! The plan is made once. At each commit the changes are put into its relations, its tables are bound to the
//! transaction, and it runs on the topology's thread.

use crate::error::{Error, Result};
use crate::planner::scans::provider::EntresolTable;
use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as EngineResult;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableType};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;
use entresol_tables::{BatchBuilder, Error as TableError, Table, arrow_schema};
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// Relation with the rows that a transaction has written into a table.
#[derive(Debug, Clone)]
pub(crate) struct ChangedRows {
    table: Arc<Table>,
    schema: SchemaRef,
    rows: Arc<Mutex<Vec<RecordBatch>>>,
}

impl ChangedRows {
    /// Relation of the changes of a table; it is empty.
    pub(crate) fn new(table: &Arc<Table>) -> ChangedRows {
        let schema = arrow_schema(table.schema().visible_columns(), "UTC");
        ChangedRows { table: Arc::clone(table), schema, rows: Arc::default() }
    }

    /// Name of the table.
    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    fn fill(&self, transaction: &Transaction) -> Result<()> {
        let columns = self.table.schema().visible_columns();
        let mut rows = BatchBuilder::new(columns, 0);
        // It may have got columns since.
        let dropped = || TableError::NoSuchTable { table: self.table.name().to_owned() };
        for change in self.table.current().ok_or_else(dropped)?.changes(transaction)? {
            if let Some(row) = change.row {
                rows.push(&row[..columns.len()]).map_err(Error::Internal)?;
            }
        }
        *self.rows.lock() = vec![rows.finish()];
        Ok(())
    }
}

#[async_trait]
impl TableProvider for ChangedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let rows = self.rows.lock().clone();
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![rows])?;
        table.scan(state, projection, filters, limit).await
    }
}

/// Condition that is ready to be asked.
pub(crate) struct Condition {
    plan: LogicalPlan,
    changed: Vec<ChangedRows>,
    /// Without the rules of a session, which belong to its statements.
    state: SessionState,
    /// None when it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Condition {
    fn drop(&mut self) {
        // A topology that is not started is dropped by a statement, which runs in another runtime.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Condition {
    /// Condition that a plan computes: one truth value.
    pub(crate) fn new(plan: LogicalPlan, changed: Vec<ChangedRows>) -> Result<Condition> {
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| Error::coded("58030", format!("ABORT WHEN: {error}")))?;
        Ok(Condition { plan, changed, state, runtime: Some(runtime) })
    }

    /// Returns true if it holds in a transaction.
    pub(crate) fn holds(&self, transaction: &Arc<Transaction>) -> Result<bool> {
        self.changed.iter().try_for_each(|changed| changed.fill(transaction))?;
        let bound = |node: LogicalPlan| match &node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source)?;
                let Some(table) = provider.downcast_ref::<EntresolTable>() else {
                    return Ok(Transformed::no(node));
                };
                let source = provider_as_source(Arc::new(table.pinned(transaction)));
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
            }
            _ => Ok(Transformed::no(node)),
        };
        let plan = self.plan.clone().transform_up_with_subqueries(bound)?.data;
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Error::Internal("a condition without runtime".to_owned()))?;
        let batches = runtime.block_on(async {
            let physical = DefaultPhysicalPlanner::default().create_physical_plan(&plan, &self.state).await?;
            collect(physical, self.state.task_ctx()).await
        })?;
        let first = batches.iter().find(|batch| batch.num_rows() > 0);
        let value = first.and_then(|batch| batch.column(0).as_boolean_opt());
        Ok(value.is_some_and(|value| !value.is_empty() && value.iter().next() == Some(Some(true))))
    }
}
