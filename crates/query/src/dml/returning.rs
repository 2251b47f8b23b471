//! RETURNING: values computed from the rows that a statement writes.

use crate::dml::computation::Computation;
use crate::dml::expressions::{Item, Relations, returned_items};
use crate::error::Result;
use crate::planner::parameters::{self, Types};
use crate::postgres::number_types;
use crate::postgres::types::visible_schema;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::SelectItem;
use entresol_tables::{Column, Row, Table, rows_to_batch};
use std::sync::Arc;

/// RETURNING of one statement: its expressions, and their values for the rows so far.
pub(crate) struct Returning {
    computation: Computation,
    columns: Vec<Column>,
    schema: SchemaRef,
    computed: RowBuffer,
}

impl Returning {
    /// Plans the RETURNING of a statement, if there is one; `name` is the table's alias.
    pub(crate) async fn new(
        session: &SessionCore,
        table: &Table,
        name: &str,
        items: Option<&[SelectItem]>,
    ) -> Result<Option<Returning>> {
        let Some(items) = items else { return Ok(None) };
        let schema = visible_schema(table.schema(), session.zone.name());
        let relations = [(name, &schema)];
        let items = returned_items(items, &relations)?;
        Returning::of_items(session, table, Relations::of(&relations), &items).await.map(Some)
    }

    /// Plans the items of a RETURNING over several relations, for rows that come as batches of all of them.
    pub(crate) async fn of_items(
        session: &SessionCore,
        table: &Table,
        relations: Relations<'_>,
        items: &[Item],
    ) -> Result<Returning> {
        let computation = Computation::new(session, "RETURNING", relations, items).await?;
        let columns = table.schema().visible_columns().to_vec();
        let schema = visible_schema(table.schema(), session.zone.name());
        Ok(Returning { computation, columns, schema, computed: RowBuffer::new(session) })
    }

    /// Columns of its result.
    pub(crate) fn fields(&self) -> SchemaRef {
        self.computation.fields()
    }

    /// The plan of its query, if there are subqueries.
    pub(crate) fn plan(&self) -> Option<&LogicalPlan> {
        self.computation.plan()
    }

    /// Returns true if its expressions read columns of a relation of the statement.
    pub(crate) fn reads(&self, relation: &str) -> Result<bool> {
        self.computation.reads(relation)
    }

    /// Returns true if its expressions read tables, which they see as they were before the statement.
    pub(crate) fn reads_tables(&self) -> bool {
        self.computation.reads_tables()
    }

    /// Adds the values of rows.
    pub(crate) async fn add(&mut self, session: &SessionCore, rows: &[&Row]) -> Result<()> {
        self.add_batch(session, &rows_to_batch(&self.schema, &self.columns, rows)?).await
    }

    /// Adds the values of a batch of the visible columns, or of all relations.
    pub(crate) async fn add_batch(&mut self, session: &SessionCore, batch: &RecordBatch) -> Result<()> {
        self.computed.push(self.computation.of(session, batch).await?)
    }
}

/// Columns of a RETURNING that is not run yet; adds the types of its parameters, of which there are `count`.
pub(crate) fn described(returning: &Returning, types: &mut Types, count: usize) -> Result<SchemaRef> {
    let Some(plan) = returning.plan() else { return Ok(returning.fields()) };
    types.of_plan(plan)?;
    let plan = number_types::typed(parameters::typed(plan.clone(), &types.complete(count))?)?;
    // The first column is the number of the row.
    let named = returning.fields();
    let typed = plan.schema().fields().iter().skip(1).zip(named.fields());
    let fields = typed.map(|(typed, field)| typed.as_ref().clone().with_name(field.name()));
    Ok(Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>())))
}

/// Result of a statement, with the rows of RETURNING.
pub(crate) fn outcome(verb: &'static str, rows: u64, returning: Option<Returning>) -> Outcome {
    let Some(returning) = returning else {
        return Outcome::Count { verb, rows };
    };
    let computed = returning.computed.batches().first();
    let schema = computed.map_or_else(|| returning.fields(), RecordBatch::schema);
    Outcome::Returned { verb, rows, returned: returning.computed.into_stream(schema) }
}
