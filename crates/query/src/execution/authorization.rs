//! Check that the session's role may run a command, before anything of it is planned or run.
//!
//! | command | needs |
//! | --- | --- |
//! | any, for each relation that it reads | SELECT, checked where the name is resolved: [`crate::planner::schemas`] |
//! | COPY of a file | SUPERUSER |
//! | INSERT, COPY FROM | INSERT; UPDATE if ON CONFLICT updates; SELECT if it returns rows or looks for conflicts |
//! | UPDATE, DELETE | UPDATE, DELETE; SELECT if it has a condition, computes or returns something |
//! | MERGE | INSERT, UPDATE, DELETE as its actions do; SELECT unless it only inserts, whatever is there |
//! | `nextval`, `setval` | UPDATE on the sequence; those in defaults and views are their creator's |
//! | definitions, BACKUP, VACUUM, ANALYZE, TRUNCATE | SUPERUSER |

use crate::error::Result;
use crate::parser::command::Command;
use crate::parser::merge::{Action, Match, MergeStatement, merge_query};
use crate::parser::names::{from_tables, has_column, single_table, table_name, written_table};
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::sequence_calls::{Advanced, advanced_sequence};
use crate::parser::visit::visit_expressions;
use crate::planner::fast_path::Point;
use crate::privileges::Privileges;
use crate::session::authority::{Authority, denied};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, Insert, OnConflictAction, OnInsert, Query, Statement, TableObject, Update, Visit,
};
use std::ops::ControlFlow;

/// Checks a command; SQLSTATE 42501 if a privilege is missing.
pub(crate) fn authorize(authority: &Authority, command: &Command) -> Result<()> {
    if authority.is_superuser() {
        return Ok(());
    }
    match command {
        Command::Query(statement) | Command::Declare { query: statement, .. } => {
            authorize_query(authority, statement)
        }
        Command::Insert(insert) => inserting(authority, insert),
        Command::Update(update) => updating(authority, update),
        Command::Delete(delete) => deleting(authority, delete),
        Command::Merge(merge) => merging(authority, merge),
        Command::Prepare { command, .. } | Command::ExplainWrite { command, .. } => {
            authorize(authority, command)
        }
        Command::Execute { arguments, .. } => {
            arguments.iter().try_for_each(|argument| sequences(authority, argument))
        }
        Command::BeginAsOf(moment) | Command::SetAsOf(moment) => sequences(authority, moment.as_ref()),
        Command::CreateTable(_)
        | Command::DropTable { .. }
        | Command::Define(_)
        | Command::Sequence(_)
        | Command::Streaming(_)
        | Command::Materialized(_)
        | Command::Truncate(_)
        | Command::Analyze(_)
        | Command::Backup(_)
        | Command::Vacuum(_) => authority.require_superuser(),
        Command::Copy(copy) => authorize_copy(authority, copy),
        // A server checks statements about roles; the others concern only the session.
        Command::Role(_)
        | Command::Begin(_)
        | Command::Commit
        | Command::Rollback
        | Command::Savepoint(_)
        | Command::RollbackTo(_)
        | Command::Release(_)
        | Command::Set { .. }
        | Command::ResetAll
        | Command::Show(_)
        | Command::ShowAll
        | Command::SetTransaction { .. }
        | Command::Discard(_)
        | Command::Unlisten
        | Command::Deallocate(_)
        | Command::Motion(_)
        | Command::Close(_)
        | Command::Engine(_) => Ok(()),
    }
}

/// Checks the file of a COPY, and the table that it writes; what it reads is checked when its query is planned.
pub(crate) fn authorize_copy(authority: &Authority, copy: &CopyStatement) -> Result<()> {
    if copy.file().is_some() && !authority.is_superuser() {
        let direction = if copy.from { "from" } else { "to" };
        return Err(denied(format!(
            "permission denied to COPY {direction} a file: only superusers may; anyone can use COPY with STDIN or STDOUT, \
             as psql's \\copy does"
        )));
    }
    match &copy.source {
        Source::Table { name, .. } if copy.from => authority.require(Privileges::INSERT, &table_name(name)?),
        _ => Ok(()),
    }
}

/// Checks the table that a statement of the fast path reads: it resolves its name without the planner.
pub(crate) fn authorize_point(authority: &Authority, point: &Point) -> Result<()> {
    point.table_read().map_or(Ok(()), |table| authority.require(Privileges::SELECT, table))
}

/// Checks a query, or the statement behind an EXPLAIN, as [`authorize`] does.
pub(crate) fn authorize_query(authority: &Authority, statement: &EngineStatement) -> Result<()> {
    if authority.is_superuser() {
        return Ok(());
    }
    match statement {
        EngineStatement::Explain(explain) => authorize_query(authority, &explain.statement),
        EngineStatement::Statement(statement) => match statement.as_ref() {
            Statement::Insert(insert) => inserting(authority, insert),
            Statement::Update(update) => updating(authority, update),
            Statement::Delete(delete) => deleting(authority, delete),
            statement => match merge_query(statement) {
                Some(merge) => merging(authority, &merge),
                None => sequences(authority, statement),
            },
        },
        _ => Ok(()),
    }
}

fn inserting(authority: &Authority, insert: &Insert) -> Result<()> {
    sequences(authority, insert)?;
    let TableObject::TableName(name) = &insert.table else { return authority.require_superuser() };
    let mut wanted = Privileges::INSERT;
    if let Some(OnInsert::OnConflict(conflict)) = &insert.on
        && !matches!(conflict.action, OnConflictAction::DoNothing)
    {
        wanted = wanted.with(Privileges::UPDATE);
    }
    if insert.returning.is_some() || insert.on.is_some() {
        wanted = wanted.with(Privileges::SELECT);
    }
    authority.require(wanted, &table_name(name)?)
}

fn updating(authority: &Authority, update: &Update) -> Result<()> {
    sequences(authority, update)?;
    let (table, _) = single_table("UPDATE", std::slice::from_ref(&update.table))?;
    let constant = update.assignments.iter().all(|assignment| matches!(assignment.value, Expr::Value(_)));
    let reads =
        !constant || update.from.is_some() || update.selection.is_some() || update.returning.is_some();
    authority.require(with_select(Privileges::UPDATE, reads), &table)
}

fn deleting(authority: &Authority, delete: &Delete) -> Result<()> {
    sequences(authority, delete)?;
    let (table, _) = single_table("DELETE", from_tables(&delete.from))?;
    let reads = delete.using.is_some() || delete.selection.is_some() || delete.returning.is_some();
    authority.require(with_select(Privileges::DELETE, reads), &table)
}

fn merging(authority: &Authority, query: &Query) -> Result<()> {
    sequences(authority, query)?;
    let merge = MergeStatement::of(query)?;
    let (table, _) = written_table("MERGE", merge.target)?;
    let mut reads = merge.returning.is_some() || has_column(merge.on);
    let mut wanted = Privileges::NONE;
    for when in &merge.whens {
        let computes = match &when.action {
            Action::Update(assignments) => {
                wanted = wanted.with(Privileges::UPDATE);
                assignments.iter().any(|assignment| has_column(&assignment.value))
            }
            Action::Delete => {
                wanted = wanted.with(Privileges::DELETE);
                false
            }
            Action::Insert { .. } => {
                wanted = wanted.with(Privileges::INSERT);
                false
            }
            Action::Nothing => false,
        };
        // INSERT and its condition have the columns of the source only.
        reads |= when.kind != Match::ByTarget && (computes || when.condition.is_some_and(has_column));
    }
    authority.require(with_select(wanted, reads), &table)
}

fn with_select(wanted: Privileges, reads: bool) -> Privileges {
    if reads { wanted.with(Privileges::SELECT) } else { wanted }
}

/// Checks the sequences that a tree advances.
fn sequences(authority: &Authority, tree: &impl Visit) -> Result<()> {
    let visited = visit_expressions(tree, |expr| match advanced_sequence(expr) {
        None => ControlFlow::Continue(()),
        Some(Advanced::Named(sequence)) if authority.has(Privileges::UPDATE, &sequence) => {
            ControlFlow::Continue(())
        }
        Some(Advanced::Named(sequence)) => {
            ControlFlow::Break(denied(format!("permission denied for sequence {sequence}")))
        }
        Some(Advanced::Computed) => {
            ControlFlow::Break(denied("must be superuser to compute a sequence's name"))
        }
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
