//! INSERT, UPDATE and DELETE: from the statement to the rows that are written.

use crate::dml::assignment;
use crate::dml::literal_rows;
use crate::dml::modify;
use crate::dml::source::{self, ChangeSource, InsertSource};
use crate::dml::write;
use crate::error::{Error, Result};
use crate::parser::statement::query_statement;
use crate::planner::query::plan_query;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use crate::session::row_buffer::RowBuffer;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::ast::{Delete, Insert, Update};
use entresol_tables::Catalog;
use entresol_tables::{Row, Table, Value};
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;

pub(crate) async fn insert(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Insert,
) -> Result<Outcome> {
    if modify::handles_insert(&session.catalog, statement)? {
        return modify::insert(session, tx, statement).await;
    }
    let source = source::insert(&session.catalog, statement)?;
    let rows = insert_from(session, tx, &source).await?;
    Ok(Outcome::Count { verb: "INSERT", rows })
}

async fn insert_from(session: &SessionCore, tx: &Arc<Transaction>, source: &InsertSource) -> Result<u64> {
    let table = &source.table;
    let Some(query) = &source.query else {
        let row: Row = vec![Value::Null; table.schema().visible_columns().len()];
        table.insert(tx, &row)?;
        return Ok(1);
    };
    if let Some(rows) = literal_rows::rows(source, query, &[], &session.zone) {
        return insert_rows(tx, table, &rows);
    }
    let frame = plan_query(session, query_statement(query.clone())).await?;
    check_columns(source, &frame)?;
    insert_frame(session, tx, table, &source.targets, frame).await
}

/// Inserts rows that need no query.
pub(crate) fn insert_rows(tx: &Transaction, table: &Table, rows: &[Row]) -> Result<u64> {
    match rows {
        [row] => table.insert(tx, row)?,
        rows => table.insert_many(tx, rows)?,
    }
    Ok(rows.len() as u64)
}

/// Inserts the rows of a query as they are computed, unless it reads the table that they go to.
pub(crate) async fn insert_frame(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    table: &Table,
    targets: &[usize],
    frame: DataFrame,
) -> Result<u64> {
    let zone = &session.zone;
    let mut inserted = 0;
    if reads(frame.logical_plan(), table)? {
        for batch in RowBuffer::of_query(session, frame).await?.batches() {
            inserted += write::insert(tx, table, targets, batch, zone)?;
        }
        return Ok(inserted);
    }
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        inserted += write::insert(tx, table, targets, &batch?, zone)?;
    }
    Ok(inserted)
}

pub(crate) fn check_columns(source: &InsertSource, frame: &DataFrame) -> Result<()> {
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

/// Returns true if a plan scans a table of this name; subqueries count.
pub(crate) fn reads(plan: &LogicalPlan, table: &Table) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.table() == table.name()
        {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

pub(crate) async fn update(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Update,
) -> Result<Outcome> {
    if modify::handles_update(&session.catalog, statement) {
        return modify::update(session, tx, statement).await;
    }
    let source = source::update(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    let rows = write::update(tx, &source, changes.batches(), &session.zone)?;
    Ok(Outcome::Count { verb: "UPDATE", rows })
}

pub(crate) async fn delete(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Delete,
) -> Result<Outcome> {
    if modify::handles_delete(statement) {
        return modify::delete(session, tx, statement).await;
    }
    let source = source::delete(&session.catalog, statement)?;
    let changes = changes(session, &source).await?;
    let rows = write::delete(tx, &source, changes.batches(), &session.zone)?;
    Ok(Outcome::Count { verb: "DELETE", rows })
}

/// The keys of the rows that a statement changes, and their new values.
pub(crate) async fn changes(session: &SessionCore, source: &ChangeSource) -> Result<RowBuffer> {
    let frame = plan_query(session, query_statement(source.query.clone())).await?;
    let new = frame.schema().fields().iter().skip(source.old.len());
    for (field, &target) in new.zip(&source.assigned) {
        assignment::check(source.table.name(), &source.table.schema().columns()[target], field.data_type())?;
    }
    RowBuffer::of_query(session, frame).await
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
        Statement::Insert(insert) => source::any_insert(catalog, insert)?.query,
        Statement::Update(update) => Some(source::any_update(catalog, update)?.query),
        Statement::Delete(delete) => Some(source::any_delete(catalog, delete)?.query),
        _ => return Ok(statement),
    };
    let query = query.ok_or_else(|| Error::unsupported("EXPLAIN of DEFAULT VALUES"))?;
    Ok(query_statement(query))
}
