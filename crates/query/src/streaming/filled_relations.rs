//! Relations that a topology fills with rows before a plan over them runs: those of a batch, or the changes of a
//! transaction. They hold no more than these.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DFResult;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use std::sync::Arc;

/// See the [module](self). Its clones have the same rows.
#[derive(Debug, Clone)]
pub(crate) struct FilledRelation {
    schema: SchemaRef,
    rows: Arc<Mutex<Vec<RecordBatch>>>,
}

impl FilledRelation {
    /// Relation with these columns and no rows.
    pub(crate) fn new(schema: SchemaRef) -> FilledRelation {
        FilledRelation { schema, rows: Arc::default() }
    }

    /// Columns of the relation.
    pub(crate) fn columns(&self) -> &SchemaRef {
        &self.schema
    }

    /// Replaces its rows.
    pub(crate) fn fill(&self, rows: RecordBatch) {
        *self.rows.lock() = vec![rows];
    }

    /// Removes its rows.
    pub(crate) fn clear(&self) {
        self.rows.lock().clear();
    }
}

#[async_trait]
impl TableProvider for FilledRelation {
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
