//! INSERT, UPDATE and DELETE on tables with defaults and checks, or with ON CONFLICT and RETURNING.
//!
//! ```text
//!   query ─▶ rows ─▶ defaults ─▶ checks ─▶ conflicts ─▶ RETURNING ─▶ table
//! ```
//!
//! - Rows are computed before they are written, batch by batch; all of them first if the statement reads its
//!   own table, or has subqueries in RETURNING or DO UPDATE, which see the table before the statement. Errors
//!   leave the writes so far in the transaction; the caller rolls back to its mark.
//! - Plain statements on plain tables take another path ([`handles_insert`] and its siblings).
//!
//! Memory: one batch; the rows that RETURNING returns; for ON CONFLICT the keys of all rows.

use crate::dml::assignment;
use crate::dml::checks::Checks;
use crate::dml::computation::Computation;
use crate::dml::conflict::{OnConflict, Resolved};
use crate::dml::defaults::{self, Defaults};
use crate::dml::expressions::returned_items;
use crate::dml::identity;
use crate::dml::literal_rows;
use crate::dml::rows;
use crate::dml::source::{self, ChangeSource, InsertSource};
use crate::dml::statements as dml_statements;
use crate::dml::write;
use crate::error::Result;
use crate::parser::statement::query_statement;
use crate::planner::query;
use crate::postgres::types::visible_schema;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Delete, Insert, Query, SelectItem, SetExpr, Update};
use entresol_tables::{Catalog, Column, Row, Table};
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;

/// Returns true if an INSERT is for this module.
pub(crate) fn handles_insert(catalog: &Catalog, insert: &Insert) -> Result<bool> {
    Ok(insert.on.is_some()
        || insert.returning.is_some()
        || source::inserted_table(catalog, insert).is_ok_and(|table| !table.is_plain()))
}

/// Returns true if an UPDATE is for this module.
pub(crate) fn handles_update(catalog: &Catalog, update: &Update) -> bool {
    update.returning.is_some()
        || source::any_update(catalog, update).is_ok_and(|source| !source.table.is_plain())
}

/// Returns true if a DELETE is for this module.
pub(crate) fn handles_delete(delete: &Delete) -> bool {
    delete.returning.is_some()
}

pub(crate) async fn insert(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Insert,
) -> Result<Outcome> {
    let source = source::any_insert(&session.catalog, statement)?;
    let table = Arc::clone(&source.table);
    identity::check_inserted(&session.catalog, &table, &source.targets, statement)?;
    let conflict = match &statement.on {
        Some(on) => Some(OnConflict::new(session, &table, &source.name, on).await?),
        None => None,
    };
    let mut inserter = Inserter {
        session,
        tx,
        table: &table,
        checks: Checks::new(session.context.state(), &table)?,
        conflict,
        returning: Returning::new(session, &table, &source.name, statement.returning.as_deref()).await?,
        inserted: 0,
    };
    insert_from(session, &source, &mut inserter).await?;
    Ok(result("INSERT", inserter.inserted, inserter.returning))
}

async fn insert_from(
    session: &SessionCore,
    source: &InsertSource,
    inserter: &mut Inserter<'_>,
) -> Result<()> {
    let table = &source.table;
    let state = session.context.state();
    let Some(query) = &source.query else {
        let mut rows = vec![defaults::empty_row(table.schema())];
        Defaults::new(state, table, &[])?.fill(&mut rows)?;
        return inserter.insert(rows).await;
    };
    let mut query = query.clone();
    defaults::spell_out(&mut query, table, &source.targets)?;
    if let Some(mut rows) = literal_rows::rows(source, &query, &[], &session.zone) {
        let given = &source.targets[..width(&query)];
        Defaults::new(state, table, given)?.fill(&mut rows)?;
        return inserter.insert(rows).await;
    }
    let frame = query::plan_query(session, query_statement(query)).await?;
    dml_statements::check_columns(source, &frame)?;
    let given = &source.targets[..frame.schema().fields().len()];
    let defaults = Defaults::new(state, table, given)?;
    let complete = |batch: &RecordBatch| -> Result<Vec<Row>> {
        let mut rows = assignment::rows(table, given, batch, &session.zone)?;
        defaults.fill(&mut rows)?;
        Ok(rows)
    };
    if inserter.reads_tables() || dml_statements::reads(frame.logical_plan(), table)? {
        let computed = RowBuffer::of_query(session, frame).await?;
        let mut rows = Vec::new();
        for batch in computed.batches() {
            rows.append(&mut complete(batch)?);
        }
        return inserter.insert(rows).await;
    }
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        inserter.insert(complete(&batch?)?).await?;
    }
    Ok(())
}

/// Number of values in a row of VALUES.
fn width(query: &Query) -> usize {
    match query.body.as_ref() {
        SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.len()),
        _ => 0,
    }
}

/// Writer of complete rows into a table.
struct Inserter<'t> {
    session: &'t SessionCore,
    tx: &'t Arc<Transaction>,
    table: &'t Arc<Table>,
    checks: Checks,
    conflict: Option<OnConflict>,
    returning: Option<Returning>,
    inserted: u64,
}

impl Inserter<'_> {
    /// Returns true if ON CONFLICT or RETURNING read tables, so that all rows have to be computed at once.
    fn reads_tables(&self) -> bool {
        self.conflict.as_ref().is_some_and(OnConflict::reads_tables)
            || self.returning.as_ref().is_some_and(|returning| returning.computation.reads_tables())
    }

    async fn insert(&mut self, rows: Vec<Row>) -> Result<()> {
        self.checks.check(&rows)?;
        let resolved = match &mut self.conflict {
            None => Resolved::new(rows),
            Some(conflict) => conflict.resolve(self.session, self.tx, self.table, rows).await?,
        };
        self.checks.check(resolved.changed())?;
        self.inserted += resolved.len() as u64;
        if let Some(returning) = &mut self.returning {
            returning.add(self.session, &resolved.in_order()).await?;
        }
        resolved.write(self.tx, self.table)
    }
}

pub(crate) async fn update(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Update,
) -> Result<Outcome> {
    let source = source::any_update(&session.catalog, statement)?;
    let values = statement.assignments.iter().map(|assignment| &assignment.value);
    let assigned = source.assigned.iter().copied().zip(values);
    identity::check_assigned(&session.catalog, &source.table, assigned)?;
    let changes = dml_statements::changes(session, &source).await?;
    let (old_keys, rows) = write::updated(&source, changes.batches(), &session.zone)?;
    let table = &source.table;
    Checks::new(session.context.state(), table)?.check(&rows)?;
    let mut returning = Returning::new(session, table, &source.name, statement.returning.as_deref()).await?;
    if let Some(returning) = &mut returning {
        returning.add(session, &rows.iter().collect::<Vec<_>>()).await?;
    }
    table.update_many(tx, &old_keys, &rows)?;
    Ok(result("UPDATE", rows.len() as u64, returning))
}

pub(crate) async fn delete(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Delete,
) -> Result<Outcome> {
    let source = source::any_delete(&session.catalog, statement)?;
    let changes = dml_statements::changes(session, &source).await?;
    let ChangeSource { table, old, .. } = &source;
    let mut deleted = Vec::new();
    for batch in changes.batches() {
        deleted.extend(assignment::rows(table, old, batch, &session.zone)?);
    }
    let mut returning = Returning::new(session, table, &source.name, statement.returning.as_deref()).await?;
    if let Some(returning) = &mut returning {
        returning.add(session, &deleted.iter().collect::<Vec<_>>()).await?;
    }
    let keys: Vec<Row> = deleted.iter().map(|row| table.key_of(row)).collect();
    let count = table.delete_many(tx, &keys)? as u64;
    Ok(result("DELETE", count, returning))
}

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
        let computation = Computation::new(session, "RETURNING", &relations, &items).await?;
        let columns = table.schema().visible_columns().to_vec();
        let computed = RowBuffer::new(session);
        Ok(Some(Returning { computation, columns, schema, computed }))
    }

    /// Columns of its result.
    pub(crate) fn fields(&self) -> SchemaRef {
        self.computation.fields()
    }

    /// The plan of its query, if there are subqueries.
    pub(crate) fn plan(&self) -> Option<&LogicalPlan> {
        self.computation.plan()
    }

    async fn add(&mut self, session: &SessionCore, rows: &[&Row]) -> Result<()> {
        let batch = rows::batch(&self.schema, &self.columns, rows)?;
        self.computed.push(self.computation.of(session, &batch).await?)
    }
}

/// Result of a statement, with the rows of RETURNING.
fn result(verb: &'static str, rows: u64, returning: Option<Returning>) -> Outcome {
    let Some(returning) = returning else {
        return Outcome::Count { verb, rows };
    };
    let computed = returning.computed.batches().first();
    let schema = computed.map_or_else(|| returning.fields(), RecordBatch::schema);
    Outcome::Returned { verb, rows, returned: returning.computed.into_stream(schema) }
}
