//! Maintenance statements: TRUNCATE and ANALYZE.
//!
//! - TRUNCATE deletes all rows in the statement's transaction: other sessions still see them in their
//!   snapshots, and ROLLBACK restores them. It takes as long, and as much memory, as a DELETE. Its space is
//!   reclaimed like that of deleted rows.
//! - RESTART IDENTITY restarts the sequences of the tables' columns after the rows are deleted. Sequences are
//!   not transactional, so it is not possible inside of a block. A crash between the two leaves the sequences
//!   as they were.
//! - ANALYZE makes statistics from a sample of each table and stores them in the catalog
//!   ([`entresol_tables::statistics`]), and chooses the layout of tables with the layout `auto`. In a block the
//!   sample is of the rows that its transaction sees; the statistics stay whatever becomes of it.

use crate::catalog::rows::named::sequences_of;
use crate::ddl::layout;
use crate::ddl::owned_tables;
use crate::ddl::sequences;
use crate::dml::statements as dml_statements;
use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::names::{refuse, table_name};
use crate::parser::own::sequence::{SequenceOptions, SequenceStatement};
use crate::parser::statement::parse;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use datafusion::sql::sqlparser::ast::{Analyze, Truncate, TruncateIdentityOption};
use entresol_tables::{Error as TableError, Table};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Deletes all rows of the tables.
pub(crate) async fn truncate(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    statement: &Truncate,
) -> Result<StatementResult> {
    for table in tables_of(session, statement)? {
        owned_tables::check_roles(&table, "truncate")?;
        let text = format!("DELETE FROM \"{}\"", table.name().replace('"', "\"\""));
        match parse(&text)?.pop() {
            Some(Command::Delete(delete)) => dml_statements::delete(session, tx, &delete).await?,
            other => return Err(Error::Internal(format!("{other:?} is not a DELETE"))),
        };
    }
    Ok(StatementResult::Done { verb: "TRUNCATE TABLE" })
}

/// Returns true if a TRUNCATE restarts sequences.
pub(crate) fn restarts(statement: &Truncate) -> bool {
    matches!(statement.identity, Some(TruncateIdentityOption::Restart))
}

/// Restarts the sequences of the tables' columns.
pub(crate) async fn restart(session: &SessionCore, statement: &Truncate) -> Result<()> {
    for table in tables_of(session, statement)? {
        let columns = 0..table.schema().visible_columns().len();
        for name in sequences_of(&session.catalog, &table, columns) {
            let options = SequenceOptions { restart: Some(None), ..SequenceOptions::default() };
            let restart = SequenceStatement { creates: false, lenient: true, name, options };
            sequences::run(session, &restart).await?;
        }
    }
    Ok(())
}

fn tables_of(session: &SessionCore, statement: &Truncate) -> Result<Vec<Arc<Table>>> {
    refuse(
        "TRUNCATE",
        &[(statement.partitions.is_some(), "PARTITION"), (statement.on_cluster.is_some(), "ON CLUSTER")],
    )?;
    let mut tables: Vec<Arc<Table>> = Vec::new();
    for target in &statement.table_names {
        match session.catalog.table(&table_name(&target.name)?) {
            Err(TableError::NoSuchTable { .. }) if statement.if_exists => {}
            table => tables.push(table?),
        }
    }
    Ok(tables)
}

/// Makes statistics of tables, and chooses layouts.
pub(crate) async fn analyze(session: &SessionCore, statement: &Analyze) -> Result<StatementResult> {
    refuse(
        "ANALYZE",
        &[
            (statement.partitions.is_some(), "PARTITION"),
            (statement.for_columns || statement.cache_metadata || statement.noscan, "an option of Hive's"),
            (statement.compute_statistics, "COMPUTE STATISTICS"),
        ],
    )?;
    let tables = analyzed_tables(session, statement)?;
    for table in &tables {
        let columns = analyzed_columns(table, statement)?;
        match analyze_table(session, table, columns).await {
            Err(error) if statement.table_name.is_none() && error.interrupt().is_none() => {
                session.notice(format!("table {} has no new statistics: {error}", table.name()));
            }
            analyzed => analyzed?,
        }
    }
    let followers: Vec<Arc<Table>> =
        tables.into_iter().filter(|table| table.definition().auto_layout).collect();
    if session.block.is_some() && !followers.is_empty() {
        // A change of layout would refuse the transaction of the block.
        session.notice("ANALYZE in a transaction block decides about no layout");
    } else {
        decide(session, statement, &followers).await?;
    }
    Ok(StatementResult::Done { verb: "ANALYZE" })
}

/// Columns that an ANALYZE names; all if none.
fn analyzed_columns(table: &Table, statement: &Analyze) -> Result<Option<Vec<usize>>> {
    if statement.columns.is_empty() {
        return Ok(None);
    }
    let visible = table.schema().visible_columns();
    let position = |column| {
        let column = crate::parser::names::identifier(column);
        let found = visible.iter().position(|known| known.name == column);
        found.ok_or_else(|| TableError::NoSuchColumn { table: table.name().to_owned(), column }.into())
    };
    statement.columns.iter().map(position).collect::<Result<_>>().map(Some)
}

/// Makes statistics of a table on a thread for blocking calls.
async fn analyze_table(session: &SessionCore, table: &Arc<Table>, columns: Option<Vec<usize>>) -> Result<()> {
    let transaction = match &session.block {
        Some(block) => Arc::clone(block.transaction()),
        None => session.catalog.begin()?,
    };
    let (catalog, table) = (Arc::clone(&session.catalog), Arc::clone(table));
    let durability = session.durability;
    let analyzed = blocking(move || catalog.analyze(&table, &transaction, columns.as_deref(), durability));
    analyzed.await??;
    Ok(())
}

/// Makes statistics of the tables of a VACUUM ANALYZE.
pub(crate) async fn analyze_all(session: &SessionCore, tables: &[Arc<Table>]) -> Result<()> {
    for table in tables {
        match analyze_table(session, table, None).await {
            // It was dropped meanwhile.
            Err(_) if table.state().is_dropped() => {}
            analyzed => analyzed?,
        }
    }
    Ok(())
}

/// Decides about the layouts of tables that follow their workload. The error of one table that was not named is a
/// notice, and the others come all the same.
async fn decide(session: &SessionCore, statement: &Analyze, tables: &[Arc<Table>]) -> Result<()> {
    for table in tables {
        match layout::decide(session, table).await {
            Err(error) if statement.table_name.is_none() && error.interrupt().is_none() => {
                session.notice(format!("the layout of table {} stays as it is: {error}", table.name()));
            }
            decided => decided?,
        }
    }
    Ok(())
}

/// Tables of an ANALYZE: the one that it names, or all.
fn analyzed_tables(session: &SessionCore, statement: &Analyze) -> Result<Vec<Arc<Table>>> {
    match &statement.table_name {
        Some(name) => Ok(vec![session.catalog.table(&table_name(name)?)?]),
        None => Ok(session.catalog.tables()),
    }
}
