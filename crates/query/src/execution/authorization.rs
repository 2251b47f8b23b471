//! Check that the session's role may run a command at all, before anything of it is planned or run.
//!
//! | command | needs | checked |
//! | --- | --- | --- |
//! | CREATE of sources, streams, topologies, materialized views | CREATE on the schema | here |
//! | ALTER, DROP, REFRESH and EXPLAIN of them | ownership | where they are found: [`crate::ddl::ownership`] |
//! | other definitions, BACKUP, VACUUM, ANALYZE, TRUNCATE | SUPERUSER | here |
//! | COPY of a file | SUPERUSER | here |
//! | `nextval`, `setval` in any | UPDATE on the sequence; those in defaults and views are their creator's | here: the plan has both |
//! | any, for each relation that it reads | SELECT | where the name is resolved: [`crate::planner::schemas`] |
//! | INSERT, UPDATE, DELETE, MERGE, COPY FROM | by their clauses | on the resolved statement: [`crate::dml::authorization`] |
//! | a statement on the fast path | the same | on its resolved table: [`authorize_point`] |

use crate::error::Result;
use crate::parser::command::Command;
use crate::parser::own::copy::CopyStatement;
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::sequence_calls::{AdvancedSequence, advanced_sequence};
use crate::parser::statement::inner;
use crate::parser::visit::visit_expressions;
use crate::planner::fast_path::Point;
use crate::privileges::Privileges;
use crate::session::authority::{Authority, denied};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::Visit;
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
        Command::Insert(insert) => sequences(authority, insert.as_ref()),
        Command::Update(update) => sequences(authority, update.as_ref()),
        Command::Delete(delete) => sequences(authority, delete.as_ref()),
        Command::Merge(merge) => sequences(authority, merge.as_ref()),
        Command::Prepare { command, .. } | Command::ExplainWrite { command, .. } => {
            authorize(authority, command)
        }
        Command::Execute { arguments, .. } => {
            arguments.iter().try_for_each(|argument| sequences(authority, argument))
        }
        Command::BeginAsOf(point) | Command::SetAsOf(point) => sequences(authority, point.as_ref()),
        Command::Streaming(statement) if statement.creates() => authority.require_create(),
        Command::Materialized(statement) if matches!(**statement, MaterializedStatement::Create(_)) => {
            authority.require_create()
        }
        Command::CreateTable(_)
        | Command::DropTable { .. }
        | Command::Define(_)
        | Command::Sequence(_)
        | Command::Truncate(_)
        | Command::Analyze(_)
        | Command::Backup(_)
        | Command::Vacuum(_) => authority.require_superuser(),
        Command::Copy(copy) => authorize_copy(authority, copy),
        // A server checks statements about roles; those of streams look for owners; the others concern only the session.
        Command::Role(_)
        | Command::Streaming(_)
        | Command::Materialized(_)
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
        | Command::DataFusion(_) => Ok(()),
    }
}

/// Checks the file of a COPY; its table and its query are checked when they are resolved.
pub(crate) fn authorize_copy(authority: &Authority, copy: &CopyStatement) -> Result<()> {
    if copy.file().is_none() || authority.is_superuser() {
        return Ok(());
    }
    let direction = if copy.from { "from" } else { "to" };
    Err(denied(format!(
        "permission denied to COPY {direction} a file: only superusers may; anyone can use COPY with STDIN or STDOUT, \
         as psql's \\copy does"
    )))
}

/// Checks a statement of the fast path, which resolves its table without the planner.
pub(crate) fn authorize_point(authority: &Authority, point: &Point) -> Result<()> {
    let (table, needed) = point.needed_privileges();
    authority.require(needed, table)
}

/// Checks a query, or the statement behind an EXPLAIN, as [`authorize`] does.
pub(crate) fn authorize_query(authority: &Authority, statement: &DFStatement) -> Result<()> {
    if authority.is_superuser() {
        return Ok(());
    }
    inner(statement).map_or(Ok(()), |statement| sequences(authority, statement))
}

/// Checks the sequences that a tree advances.
fn sequences(authority: &Authority, tree: &impl Visit) -> Result<()> {
    let visited = visit_expressions(tree, |expr| match advanced_sequence(expr) {
        None => ControlFlow::Continue(()),
        Some(AdvancedSequence::Named(sequence)) if authority.has(Privileges::UPDATE, &sequence) => {
            ControlFlow::Continue(())
        }
        Some(AdvancedSequence::Named(sequence)) => {
            ControlFlow::Break(denied(format!("permission denied for sequence {sequence}")))
        }
        Some(AdvancedSequence::Computed) => {
            ControlFlow::Break(denied("must be superuser to compute a sequence's name"))
        }
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
