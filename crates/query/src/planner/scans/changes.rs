//! `CHANGES(table)` in a query: the logged changes of a table that the statement's snapshot sees, in the order
//! of commits.
//!
//! Columns: those of the table, of a deleted row as they were; `old_...`, the row before; `change_type`;
//! `commit_cts`. Memory: a batch.

use crate::error::external;
use crate::session::current::Current;
use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DFResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use entresol_tables::{Catalog, ChangeBatchBuilder, Table};
use entresol_transactions::{INFINITY, LogPosition, Transaction};
use std::sync::Arc;

/// Rows of a batch.
const BATCH_ROWS: usize = 1024;

/// Changes of a table for the planner.
#[derive(Debug)]
pub(crate) struct ChangesTable {
    catalog: Arc<Catalog>,
    current: Arc<Current>,
    table: Arc<Table>,
    zone: String,
    schema: SchemaRef,
}

impl ChangesTable {
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        current: Arc<Current>,
        table: Arc<Table>,
        zone: &str,
    ) -> ChangesTable {
        let schema = Arc::clone(ChangeBatchBuilder::new(&table, zone).schema());
        ChangesTable { catalog, current, table, zone: zone.to_owned(), schema }
    }
}

#[async_trait]
impl TableProvider for ChangesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let transaction = self.current.get(&self.catalog)?;
        let from = self.table.changes_begin(&transaction).map_err(external)?;
        let changes = LoggedChanges {
            table: Arc::clone(&self.table),
            transaction,
            zone: self.zone.clone(),
            schema: Arc::clone(&self.schema),
            from,
        };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(changes)];
        let plan = StreamingTableExec::try_new(
            Arc::clone(&self.schema),
            partitions,
            projection,
            None,
            false,
            limit,
        )?;
        Ok(Arc::new(plan))
    }
}

#[derive(Debug)]
struct LoggedChanges {
    table: Arc<Table>,
    transaction: Arc<Transaction>,
    zone: String,
    schema: SchemaRef,
    from: LogPosition,
}

impl LoggedChanges {
    /// The next batch, and the position behind it; none at the end.
    fn batch(&self, from: LogPosition) -> DFResult<Option<(RecordBatch, LogPosition)>> {
        let mut builder = ChangeBatchBuilder::new(&self.table, &self.zone);
        let position = self
            .table
            .logged_changes(&self.transaction, from, INFINITY, |change, _| {
                builder.push(&change);
                builder.rows() < BATCH_ROWS
            })
            .map_err(external)?;
        if builder.rows() == 0 {
            return Ok(None);
        }
        Ok(Some((builder.finish().map_err(external)?, position)))
    }
}

impl PartitionStream for LoggedChanges {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let changes = LoggedChanges {
            table: Arc::clone(&self.table),
            transaction: Arc::clone(&self.transaction),
            zone: self.zone.clone(),
            schema: Arc::clone(&self.schema),
            from: self.from,
        };
        let batches = futures::stream::try_unfold((changes, self.from), |(changes, from)| async move {
            let batch = changes.batch(from)?;
            Ok(batch.map(|(batch, position)| (batch, (changes, position))))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}
