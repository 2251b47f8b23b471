//! INSERT, UPDATE and DELETE: from the statement to the rows that are written; MERGE, UPDATE ... FROM and
//! DELETE ... USING are in [`crate::dml::merge`].
//!
//! - New rows are made and checked by [`crate::dml::writer`]. All rows of an UPDATE or DELETE are computed before the
//!   first is written, so that a statement never sees its own effects ([`crate::dml::changes`]).
//! - Privileges are checked once the names of the statement are resolved, before anything of it is run.
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: what [`crate::dml::changes`] collects; for an INSERT one batch.

use crate::dml::assignment;
use crate::dml::authorization;
use crate::dml::conflict::OnConflict;
use crate::dml::defaults;
use crate::dml::identity;
use crate::dml::literal_rows;
use crate::dml::merge;
use crate::dml::returning::{Returning, outcome};
use crate::dml::row_assignments;
use crate::dml::row_changes::RowChanges;
use crate::dml::source::{self, ChangeSource, InsertSource};
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::parser::merge::{MergeStatement, merge_query};
use crate::parser::statement::query_statement;
use crate::planner::query::plan_query;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Delete, Insert, Query, SelectItem, SetExpr, Statement, Update};
use entresol_tables::Catalog;
use entresol_transactions::Transaction;
use futures::StreamExt;
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
    authorization::insert(session, (&table, &source.name), statement, returning.as_ref())?;
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
    change(session, tx, &source, statement.returning.as_deref()).await
}

/// Source of the rows of an UPDATE, which assigns what it may.
pub(crate) fn update_source(catalog: &Catalog, statement: &Update) -> Result<ChangeSource> {
    let source = source::update(catalog, statement)?;
    let assignments = row_assignments::by_column(&statement.assignments);
    let values = assignments.iter().map(|assigned| assigned.value);
    identity::check_assigned(catalog, &source.table, source.assigned.iter().copied().zip(values))?;
    Ok(source)
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
    change(session, tx, &source, statement.returning.as_deref()).await
}

/// Plans and runs the query of an UPDATE or DELETE, and writes its changes.
async fn change(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    source: &ChangeSource,
    returning: Option<&[SelectItem]>,
) -> Result<Outcome> {
    let (frame, returning) = planned_change(session, source, returning).await?;
    let rows = frame.execute_stream().await?;
    change_rows(session, tx, source, rows, returning).await
}

/// Plans the query of an UPDATE or DELETE that is run or explained, with its checks of types and privileges.
async fn planned_change(
    session: &SessionCore,
    source: &ChangeSource,
    returning: Option<&[SelectItem]>,
) -> Result<(DataFrame, Option<Returning>)> {
    let frame = plan_query(session, query_statement(source.query.clone())).await?;
    check_changes(source, frame.schema())?;
    let returning = Returning::new(session, &source.table, &source.name, returning).await?;
    authorization::change(session, source, frame.logical_plan(), returning.as_ref())?;
    Ok((frame, returning))
}

/// Writes the changes of the rows that the query of an UPDATE or DELETE computes.
pub(crate) async fn change_rows(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    source: &ChangeSource,
    mut rows: SendableRecordBatchStream,
    returning: Option<Returning>,
) -> Result<Outcome> {
    let mut changes = RowChanges::new(session, source, returning)?;
    while let Some(batch) = rows.next().await {
        changes.add(session, &batch?).await?;
    }
    drop(rows);
    changes.write(tx)
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
pub(crate) async fn planned_statement(session: &SessionCore, statement: DFStatement) -> Result<DFStatement> {
    match statement {
        DFStatement::Explain(mut explain) => {
            explain.statement = Box::new(Box::pin(explained(session, *explain.statement)).await?);
            Ok(DFStatement::Explain(explain))
        }
        other => Ok(other),
    }
}

/// Query that computes what a writing statement writes, which is what EXPLAIN explains; it needs the privileges of
/// the statement.
async fn explained(session: &SessionCore, statement: DFStatement) -> Result<DFStatement> {
    let DFStatement::Statement(inner) = &statement else { return Ok(statement) };
    let catalog = &session.catalog;
    let query = match inner.as_ref() {
        Statement::Insert(insert) => {
            let source = source::insert(catalog, insert)?;
            authorization::explained_insert(session, &source, insert).await?;
            source.query
        }
        Statement::Update(update) => Some(match MergeStatement::of_update(update)? {
            Some(joined) => merge::explained(session, &joined).await?,
            None => {
                let source = update_source(catalog, update)?;
                planned_change(session, &source, update.returning.as_deref()).await?;
                source.query
            }
        }),
        Statement::Delete(delete) => Some(match MergeStatement::of_delete(delete)? {
            Some(joined) => merge::explained(session, &joined).await?,
            None => {
                let source = source::delete(catalog, delete)?;
                planned_change(session, &source, delete.returning.as_deref()).await?;
                source.query
            }
        }),
        other => match merge_query(other) {
            Some(merge) => Some(merge::explained(session, &MergeStatement::of(&merge)?).await?),
            None => return Ok(statement),
        },
    };
    let query = query.ok_or_else(|| Error::unsupported("EXPLAIN of DEFAULT VALUES"))?;
    Ok(query_statement(query))
}
