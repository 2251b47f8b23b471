//! Queries of tables in steps, with EMIT ON COMMIT: TO_STREAM of operations that need all rows of tables, as a median of all rows
//! (dissertation 5.1.1).
//!
//! The query is planned once. At the commit of a transaction that has changed one of its tables it runs on the topology's
//! thread, behind all steps that write them, over the tables as the transaction sees them: what it has written itself,
//! and of others the snapshot. Its result is sent, within the transaction. Cost: that of the query, at each such commit.
//!
//! Memory: the result, at most [`RESULTS_BYTES_MAX`], reserved as that of queries until the commit.

use crate::error::{Error, Result, as_stream_error};
use crate::planner::scans::provider::EntresolTable;
use crate::streaming::batch_queries::RESULTS_BYTES_MAX;
use crate::streaming::bound_plans::{BoundPlan, Occasion, state_of_thread, stream_columns};
use crate::streaming::operators::{Flow, Translator};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Column as PlanColumn;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, LogicalPlan};
use entresol_streams::{Batch, Context, EventTime, Operator, Output, Result as StreamResult};
use entresol_tables::{Column, Table, arrow_schema};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the operator.
const NAME: &str = "query at each commit";

impl Translator<'_> {
    /// Stream of the results of a query of tables.
    pub(crate) fn table_query(&mut self, plan: &LogicalPlan) -> Result<Flow> {
        let tables = tables_of(plan)?;
        if tables.is_empty() {
            return Err(Error::unsupported("EMIT ON COMMIT of a step that reads no source, stream or table"));
        }
        let mut columns: Vec<Column> = Vec::new();
        for (at, field) in plan.schema().fields().iter().enumerate() {
            let expr = Expr::Column(PlanColumn::from(plan.schema().qualified_field(at)));
            columns.push(Column { nullable: true, ..self.typed_column(field.name(), &expr, plan.schema())? });
        }
        let state = state_of_thread(&self.planned.state);
        let query = Arc::new(BoundPlan::new(plan.clone(), Occasion::Commit, state)?);
        self.queries.push(Arc::clone(&query));
        let (memory, schema) = (query.memory(NAME), arrow_schema(&columns, "UTC"));
        let names: Vec<&str> = tables.keys().map(String::as_str).collect();
        let tables = tables.values().cloned().collect();
        let operator = TableQuery { query, tables, schema, memory, held_watermark: None };
        let stream = self.builder.at_commit(&names, columns, operator);
        Ok(Flow { stream, windows: None, event_time: None, replaced: None })
    }
}

/// Tables that a plan reads, by their names.
pub(crate) fn tables_of(plan: &LogicalPlan) -> Result<BTreeMap<String, Arc<Table>>> {
    let mut tables = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = source_as_provider(&scan.source)?.downcast_ref::<EntresolTable>()
        {
            let table = table.table();
            tables.insert(table.name().to_owned(), Arc::clone(table));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}

/// Operator of a query that is run at each commit.
struct TableQuery {
    query: Arc<BoundPlan>,
    /// Tables whose changes let it run.
    tables: Vec<Arc<Table>>,
    /// Columns of the results.
    schema: SchemaRef,
    /// Of the results of the last commit.
    memory: MemoryReservation,
    held_watermark: Option<EventTime>,
}

impl TableQuery {
    fn send(&self, transaction: &Arc<Transaction>, output: &mut Output) -> Result<()> {
        self.memory.free();
        if !self.tables.iter().any(|table| transaction.has_writes_of(table.state().id())) {
            return Ok(());
        }
        for rows in self.query.rows_within(transaction, &self.memory, RESULTS_BYTES_MAX)? {
            let columns = stream_columns(&rows, &self.schema)?;
            output.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?.into());
        }
        Ok(())
    }
}

impl Operator for TableQuery {
    fn name(&self) -> &str {
        NAME
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn batch(&mut self, _: &Context<'_>, _: &Batch, _: &mut Output) -> StreamResult<()> {
        Ok(())
    }

    /// The watermark is behind the results.
    fn watermark(&mut self, _: &Context<'_>, time: EventTime, _: &mut Output) -> StreamResult<()> {
        self.held_watermark = Some(time);
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, output: &mut Output) -> StreamResult<()> {
        let sent = self.send(context.transaction()?, output);
        sent.map_err(|error| as_stream_error(NAME.to_owned(), error))?;
        if let Some(time) = self.held_watermark.take() {
            output.watermark(time);
        }
        Ok(())
    }

    fn sealed(&mut self) {
        self.memory.free();
    }

    fn redefined(&mut self) -> StreamResult<()> {
        for table in &mut self.tables {
            if let Some(current) = table.current() {
                *table = current;
            }
        }
        Ok(())
    }

    fn aborted(&mut self) {
        self.memory.free();
        self.held_watermark = None;
    }
}
