//! INSERT, UPDATE and DELETE: from the statement to the rows that are written; MERGE, UPDATE ... FROM and
//! DELETE ... USING are in [`crate::dml::merge`].
//!
//! - All rows of an UPDATE or DELETE are computed before the first is written, so that a statement never sees
//!   its own effects; new rows are written by [`crate::dml::writer`].
//! - An UPDATE that changes keys or unique values may swap or shift them: they have to be distinct in the end
//!   only ([`update_many`](entresol_tables::Table::update_many)).
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: the computed batches of an UPDATE or DELETE; for an INSERT one batch.

use crate::dml::assignment;
use crate::dml::checks::Checks;
use crate::dml::conflict::OnConflict;
use crate::dml::defaults;
use crate::dml::identity;
use crate::dml::literal_rows;
use crate::dml::merge;
use crate::dml::returning::{Returning, outcome};
use crate::dml::source::{self, ChangeSource, InsertSource};
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::parser::merge::{MergeStatement, merge_query};
use crate::parser::statement::query_statement;
use crate::planner::query::plan_query;
use crate::postgres::time_zones::Zone;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Delete, Insert, Query, SelectItem, SetExpr, Statement, Update};
use entresol_tables::{Catalog, Row, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Runs an INSERT.
pub(crate) async fn insert(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Insert,
) -> Result<Outcome> {
    let mut source = source::insert(&session.catalog, statement)?;
    let table = Arc::clone(&source.table);
    identity::check_inserted(&session.catalog, &table, &source.targets, statement)?;
    let conflict = match &statement.on {
        Some(on) => Some(OnConflict::new(session, &table, &source.name, on).await?),
        None => None,
    };
    let returning = Returning::new(session, &table, &source.name, statement.returning.as_deref()).await?;
    let writer =
        |given: &[usize]| Ok::<_, Error>(TableWriter::new(session, &table, given)?.with(conflict, returning));
    let alone = session.block.is_none();
    let Some(mut query) = source.query.take() else {
        let mut rows = vec![defaults::empty_row(table.schema())];
        let mut writer = writer(&[])?;
        writer.complete(&mut rows)?;
        writer.write(session, tx, rows).await?;
        return Ok(outcome("INSERT", writer.written, writer.returning));
    };
    defaults::spell_out(&mut query, &table, &source.targets)?;
    if let Some(mut rows) = literal_rows::rows(&source, &query, &[], &session.zone) {
        let mut writer = writer(&source.targets[..width(&query)])?;
        writer.complete(&mut rows)?;
        writer.write(session, tx, rows).await?;
        return Ok(outcome("INSERT", writer.written, writer.returning));
    }
    let frame = plan_query(session, query_statement(query)).await?;
    check_columns(&source, &frame)?;
    let mut writer = writer(&source.targets[..frame.schema().fields().len()])?.alone(alone).shown(session);
    writer.write_query(session, tx, frame).await?;
    if alone {
        session.load.note(&table, writer.written);
    }
    Ok(outcome("INSERT", writer.written, writer.returning))
}

/// Number of values in a row of VALUES.
fn width(query: &Query) -> usize {
    match query.body.as_ref() {
        SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.len()),
        _ => 0,
    }
}

fn check_columns(source: &InsertSource, frame: &DataFrame) -> Result<()> {
    let (found, expected) = (frame.schema().fields().len(), source.targets.len());
    if found > expected || (source.listed && found < expected) {
        let table = source.table.name();
        let message = format!("INSERT INTO {table}: {found} values for {expected} columns");
        return Err(Error::coded("42601", message));
    }
    for (field, &target) in frame.schema().fields().iter().zip(&source.targets) {
        assignment::check(source.table.name(), &source.table.schema().columns()[target], field.data_type())?;
    }
    Ok(())
}

/// Runs an UPDATE.
pub(crate) async fn update(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Update,
) -> Result<Outcome> {
    if let Some(joined) = MergeStatement::of_update(statement)? {
        return Box::pin(merge::merge(session, tx, &joined)).await;
    }
    let source = update_source(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    update_rows(session, tx, &source, &changes, statement.returning.as_deref()).await
}

/// Source of the rows of an UPDATE, which assigns what it may.
pub(crate) fn update_source(catalog: &Catalog, statement: &Update) -> Result<ChangeSource> {
    let source = source::update(catalog, statement)?;
    let values = statement.assignments.iter().map(|assignment| &assignment.value);
    identity::check_assigned(catalog, &source.table, source.assigned.iter().copied().zip(values))?;
    Ok(source)
}

/// Writes the rows that the query of an UPDATE computed.
pub(crate) async fn update_rows(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    source: &ChangeSource,
    changes: &RowBuffer,
    returning: Option<&[SelectItem]>,
) -> Result<Outcome> {
    let table = &source.table;
    let (old_keys, rows) = updated(source, changes.batches(), &session.zone)?;
    if !table.definition().checks.is_empty() {
        Checks::new(session.context.state(), table)?.check(&rows)?;
    }
    let mut returning = Returning::new(session, table, &source.name, returning).await?;
    if let Some(returning) = &mut returning {
        returning.add(session, &rows.iter().collect::<Vec<_>>()).await?;
    }
    let key_assigned = source.assigned.iter().any(|column| table.schema().key().contains(column));
    if key_assigned || !table.indexes().is_empty() {
        table.update_many(tx, &old_keys, &rows)?;
    } else {
        table.upsert_many(tx, &rows)?;
    }
    Ok(outcome("UPDATE", rows.len() as u64, returning))
}

/// Runs a DELETE.
pub(crate) async fn delete(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Delete,
) -> Result<Outcome> {
    if let Some(joined) = MergeStatement::of_delete(statement)? {
        return Box::pin(merge::merge(session, tx, &joined)).await;
    }
    let source = source::delete(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    delete_rows(session, tx, &source, &changes, statement.returning.as_deref()).await
}

/// Deletes the rows whose keys the query of a DELETE computed.
pub(crate) async fn delete_rows(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    source: &ChangeSource,
    changes: &RowBuffer,
    returning: Option<&[SelectItem]>,
) -> Result<Outcome> {
    let ChangeSource { table, old, .. } = source;
    let mut returning = Returning::new(session, table, &source.name, returning).await?;
    if let Some(returning) = &mut returning {
        for batch in changes.batches() {
            let rows = assignment::rows(table, old, batch, &session.zone)?;
            returning.add(session, &rows.iter().collect::<Vec<_>>()).await?;
        }
    }
    let mut deleted = 0;
    for batch in changes.batches() {
        let rows = assignment::rows(table, old, batch, &session.zone)?;
        let keys: Vec<Row> = rows.iter().map(|row| table.key_of(row)).collect();
        deleted += table.delete_many(tx, &keys)? as u64;
    }
    Ok(outcome("DELETE", deleted, returning))
}

/// Old keys of the rows that an UPDATE computed, and the complete new rows.
fn updated(source: &ChangeSource, batches: &[RecordBatch], zone: &Zone) -> Result<(Vec<Row>, Vec<Row>)> {
    let table = &source.table;
    let (mut old_keys, mut updated) = (Vec::new(), Vec::new());
    for batch in batches {
        let old = batch.project(&(0..source.old.len()).collect::<Vec<_>>())?;
        let new = batch.project(&(source.old.len()..batch.num_columns()).collect::<Vec<_>>())?;
        let mut rows = assignment::rows(table, &source.old, &old, zone)?;
        old_keys.extend(rows.iter().map(|row| table.key_of(row)));
        for (row, mut values) in rows.iter_mut().zip(assignment::rows(table, &source.assigned, &new, zone)?) {
            for &column in &source.assigned {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
        }
        updated.extend(rows);
    }
    Ok((old_keys, updated))
}

/// The keys of the rows that a statement changes, and their new values.
async fn changes(session: &SessionCore, source: &ChangeSource) -> Result<RowBuffer> {
    let frame = plan_query(session, query_statement(source.query.clone())).await?;
    check_changes(source, frame.schema())?;
    RowBuffer::of_query(session, frame).await
}

/// Checks that the columns of a query fit those that the statement assigns them to.
pub(crate) fn check_changes(source: &ChangeSource, columns: &DFSchema) -> Result<()> {
    let new = columns.fields().iter().skip(source.old.len());
    for (field, &target) in new.zip(&source.assigned) {
        assignment::check(source.table.name(), &source.table.schema().columns()[target], field.data_type())?;
    }
    Ok(())
}

/// The statement to plan for a reading command: in EXPLAIN, the query behind a writing statement takes its
/// place.
pub(crate) fn planned_statement(catalog: &Catalog, statement: EngineStatement) -> Result<EngineStatement> {
    match statement {
        EngineStatement::Explain(mut explain) => {
            explain.statement = Box::new(explained(catalog, *explain.statement)?);
            Ok(EngineStatement::Explain(explain))
        }
        other => Ok(other),
    }
}

/// Query that computes what a writing statement writes, which is what EXPLAIN explains.
fn explained(catalog: &Catalog, statement: EngineStatement) -> Result<EngineStatement> {
    let EngineStatement::Statement(inner) = &statement else { return Ok(statement) };
    let query = match inner.as_ref() {
        Statement::Insert(insert) => source::insert(catalog, insert)?.query,
        Statement::Update(update) => Some(match MergeStatement::of_update(update)? {
            Some(joined) => merge::query(catalog, &joined)?,
            None => source::update(catalog, update)?.query,
        }),
        Statement::Delete(delete) => Some(match MergeStatement::of_delete(delete)? {
            Some(joined) => merge::query(catalog, &joined)?,
            None => source::delete(catalog, delete)?.query,
        }),
        other => match merge_query(other) {
            Some(merge) => Some(merge::query(catalog, &MergeStatement::of(&merge)?)?),
            None => return Ok(statement),
        },
    };
    let query = query.ok_or_else(|| Error::unsupported("EXPLAIN of DEFAULT VALUES"))?;
    Ok(query_statement(query))
}
