//! INSERT, UPDATE and DELETE of tables with defaults and checks, with ON CONFLICT and RETURNING.
//!
//! ```text
//!   query ─▶ rows ─▶ defaults ─▶ checks ─▶ conflicts ─▶ table ─▶ RETURNING
//! ```
//!
//! - What a statement writes is computed before it is written, batch by batch; all of it first if the statement reads its
//!   own table. Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//! - Plain statements on plain tables don't come here ([`concerns_insert`] and its siblings).
//!
//! Memory: one batch; the rows that RETURNING returns; for ON CONFLICT the keys of all rows.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::sql::sqlparser::ast::{Delete, Insert, Query, SelectItem, SetExpr, Update};
use entresol_tables::{Catalog, Row, Table, Value};
use entresol_transactions::Transaction;
use futures::StreamExt;

use crate::checks::Checks;
use crate::conflict::OnConflict;
use crate::defaults::{self, Defaults};
use crate::engine::{self, query_statement};
use crate::error::Result;
use crate::expressions::{Computed, Scope};
use crate::result::{Collected, StatementResult};
use crate::session::Session;
use crate::source::{self, ChangeSource, InsertSource};
use crate::types::visible_schema;
use crate::{assignment, generated, literals, rows, write};

/// Whether an INSERT is for this module.
pub(crate) fn concerns_insert(catalog: &Catalog, insert: &Insert) -> Result<bool> {
    Ok(insert.on.is_some()
        || insert.returning.is_some()
        || source::inserted_table(catalog, insert).is_ok_and(|table| !table.is_plain()))
}

/// Whether an UPDATE is for this module.
pub(crate) fn concerns_update(catalog: &Catalog, update: &Update) -> bool {
    update.returning.is_some()
        || source::any_update(catalog, update).is_ok_and(|source| !source.table.is_plain())
}

/// Whether a DELETE is for this module.
pub(crate) fn concerns_delete(delete: &Delete) -> bool {
    delete.returning.is_some()
}

pub(crate) async fn insert(
    session: &Session,
    tx: &Arc<Transaction>,
    statement: &Insert,
) -> Result<StatementResult> {
    let source = source::any_insert(&session.catalog, statement)?;
    let table = Arc::clone(&source.table);
    generated::check_inserted(&session.catalog, &table, &source.targets, statement)?;
    let state = session.context.state();
    let conflict = match &statement.on {
        Some(on) => Some(OnConflict::new(&session.catalog, &state, &table, &source.name, on)?),
        None => None,
    };
    let mut inserter = Inserter {
        tx,
        table: &table,
        checks: Checks::new(state.clone(), &table)?,
        conflict,
        returned: statement.returning.is_some().then(Vec::new),
        inserted: 0,
    };
    insert_from(session, &source, &mut inserter).await?;
    let Inserter { returned, inserted, .. } = inserter;
    result("INSERT", session, &table, &source.name, inserted, statement.returning.as_deref(), returned)
}

async fn insert_from(session: &Session, source: &InsertSource, inserter: &mut Inserter<'_>) -> Result<()> {
    let table = &source.table;
    let state = session.context.state();
    let Some(query) = &source.query else {
        let mut rows = vec![defaults::empty_row(table.schema())];
        Defaults::new(state, table, &[])?.fill(&mut rows)?;
        return inserter.insert(rows);
    };
    let mut query = query.clone();
    defaults::spell_out(&mut query, table, &source.targets)?;
    if let Some(mut rows) = literals::rows(source, &query, &[], &session.zone) {
        let given = &source.targets[..width(&query)];
        Defaults::new(state, table, given)?.fill(&mut rows)?;
        return inserter.insert(rows);
    }
    let frame = engine::plan_query(session, query_statement(query)).await?;
    engine::check_columns(source, &frame)?;
    let given = &source.targets[..frame.schema().fields().len()];
    let defaults = Defaults::new(state, table, given)?;
    let mut take = |batch: &RecordBatch| {
        let mut rows = assignment::rows(table, given, batch, &session.zone)?;
        defaults.fill(&mut rows)?;
        inserter.insert(rows)
    };
    if engine::reads(frame.logical_plan(), table)? {
        return frame.collect().await?.iter().try_for_each(take);
    }
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        take(&batch?)?;
    }
    Ok(())
}

/// How many values the rows of VALUES have.
fn width(query: &Query) -> usize {
    match query.body.as_ref() {
        SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.len()),
        _ => 0,
    }
}

/// Puts complete rows into a table.
struct Inserter<'t> {
    tx: &'t Arc<Transaction>,
    table: &'t Arc<Table>,
    checks: Checks,
    conflict: Option<OnConflict>,
    /// The rows that were written, if somebody wants them.
    returned: Option<Vec<Row>>,
    inserted: u64,
}

impl Inserter<'_> {
    fn insert(&mut self, rows: Vec<Row>) -> Result<()> {
        self.checks.check(&rows)?;
        let written = match &mut self.conflict {
            None => {
                self.table.insert_many(self.tx, &rows)?;
                rows
            }
            Some(conflict) => conflict.insert(self.tx, self.table, &self.checks, rows)?,
        };
        self.inserted += written.len() as u64;
        if let Some(returned) = &mut self.returned {
            returned.extend(written);
        }
        Ok(())
    }
}

pub(crate) async fn update(
    session: &Session,
    tx: &Arc<Transaction>,
    statement: &Update,
) -> Result<StatementResult> {
    let source = source::any_update(&session.catalog, statement)?;
    let values = statement.assignments.iter().map(|assignment| &assignment.value);
    let assigned = source.assigned.iter().copied().zip(values);
    generated::check_assigned(&session.catalog, &source.table, assigned)?;
    let batches = engine::changes(session, &source).await?;
    let (old_keys, rows) = write::updated(&source, &batches, &session.zone)?;
    let table = &source.table;
    Checks::new(session.context.state(), table)?.check(&rows)?;
    table.update_many(tx, &old_keys, &rows)?;
    let (count, returning) = (rows.len() as u64, statement.returning.as_deref());
    result("UPDATE", session, table, &source.name, count, returning, Some(rows))
}

pub(crate) async fn delete(
    session: &Session,
    tx: &Arc<Transaction>,
    statement: &Delete,
) -> Result<StatementResult> {
    let source = source::any_delete(&session.catalog, statement)?;
    let batches = engine::changes(session, &source).await?;
    let ChangeSource { table, old, .. } = &source;
    let mut deleted = Vec::new();
    for batch in &batches {
        deleted.extend(assignment::rows(table, old, batch, &session.zone)?);
    }
    let keys: Vec<Row> = deleted.iter().map(|row| table.key_of(row)).collect();
    let count = table.delete_many(tx, &keys)? as u64;
    result("DELETE", session, table, &source.name, count, statement.returning.as_deref(), Some(deleted))
}

/// The result of a statement, with what RETURNING makes of the rows.
fn result(
    verb: &'static str,
    session: &Session,
    table: &Table,
    name: &str,
    count: u64,
    returning: Option<&[SelectItem]>,
    returned: Option<Vec<Row>>,
) -> Result<StatementResult> {
    let (Some(items), Some(mut returned)) = (returning, returned) else {
        return Ok(StatementResult::Count { verb, rows: count });
    };
    let columns = table.schema().visible_columns();
    let schema = visible_schema(table.schema(), session.zone.name());
    let computed = Scope::new(session.context.state(), &[(name, &schema)])?.plan_items(items)?;
    let schema_returned = fields_of(&computed);
    // Rows from INSERT may lack what rows from a scan have: the hidden key.
    returned.iter_mut().for_each(|row| row.resize(columns.len(), Value::Null));
    let batch = rows::batch(&schema, columns, &returned)?;
    let arrays: Result<Vec<ArrayRef>> = computed.iter().map(|computed| computed.evaluate(&batch)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema_returned), arrays?, &options)?;
    Ok(StatementResult::Returned {
        verb,
        rows: count,
        returned: Collected { schema: schema_returned, batches: vec![batch] },
    })
}

/// The columns that RETURNING gives, if there is one.
pub(crate) fn returned_columns(
    session: &Session,
    table: &Table,
    name: &str,
    returning: Option<&[SelectItem]>,
) -> Result<Option<SchemaRef>> {
    let Some(items) = returning else { return Ok(None) };
    let schema = visible_schema(table.schema(), session.zone.name());
    let computed = Scope::new(session.context.state(), &[(name, &schema)])?.plan_items(items)?;
    Ok(Some(fields_of(&computed)))
}

fn fields_of(computed: &[Computed]) -> SchemaRef {
    Arc::new(ArrowSchema::new(computed.iter().map(|computed| computed.field.clone()).collect::<Vec<_>>()))
}
