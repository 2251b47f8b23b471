//! Conditions of ABORT WHEN: queries over what the open transaction sees and has changed.
//!
//! The plan is made once. At each commit the changes are put into its relations, its tables are bound to the
//! transaction, and it runs on the topology's thread.

use crate::error::{Error, Result};
use crate::streaming::bound_plans::BoundPlan;
use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DFResult;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use entresol_tables::{BatchBuilder, Error as TableError, Table, arrow_schema};
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::sync::Arc;

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
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let rows = self.rows.lock().clone();
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![rows])?;
        table.scan(state, projection, filters, limit).await
    }
}

/// Condition that is ready to be asked.
pub(crate) struct Condition {
    query: BoundPlan,
    changed: Vec<ChangedRows>,
}

impl Condition {
    /// Condition that a plan computes: one truth value.
    pub(crate) fn new(plan: LogicalPlan, changed: Vec<ChangedRows>) -> Result<Condition> {
        // Without the rules of a session, which belong to its statements.
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        Ok(Condition { query: BoundPlan::new(plan, state)?, changed })
    }

    /// Returns true if it holds in a transaction.
    pub(crate) fn holds(&self, transaction: &Arc<Transaction>) -> Result<bool> {
        self.changed.iter().try_for_each(|changed| changed.fill(transaction))?;
        let batches = self.query.rows(transaction)?;
        let first = batches.iter().find(|batch| batch.num_rows() > 0);
        let value = first.and_then(|batch| batch.column(0).as_boolean_opt());
        Ok(value.is_some_and(|value| !value.is_empty() && value.iter().next() == Some(Some(true))))
    }
}
