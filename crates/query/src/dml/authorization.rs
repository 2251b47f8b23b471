//! Privileges of the statements that write rows, on the relations that their names were resolved to.
//!
//! | statement | needs on its table |
//! | --- | --- |
//! | INSERT | INSERT; UPDATE if ON CONFLICT updates; SELECT if it has a conflict target or returns columns |
//! | UPDATE, DELETE | UPDATE, DELETE; SELECT if any part of it reads columns of the table |
//! | MERGE | INSERT, UPDATE, DELETE as its actions do, whatever rows are there; SELECT as UPDATE |
//!
//! - As in PostgreSQL, a column is read if an expression names it: in SET, WHERE, ON, WHEN or RETURNING, or in a
//!   subquery of these from outside. That the plan has to find keys and old values counts for nothing.
//! - All other relations (of FROM, USING, subqueries and views) are checked where their names are resolved
//!   ([`crate::planner::schemas`]); the written table is not found there.
//! - The check comes behind all errors of names and types, and before anything is run. Its cost is nil for a
//!   session without a role, and for superusers.

use crate::dml::column_use::{is_of, reads_relation};
use crate::dml::returning::Returning;
use crate::dml::source::{ChangeSource, InsertSource};
use crate::error::Result;
use crate::privileges::Privileges;
use crate::session::core::SessionCore;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Insert, OnConflictAction, OnInsert};
use entresol_tables::Table;

/// Checks an INSERT into a table of this name in the statement.
pub(crate) fn insert(
    session: &SessionCore,
    (table, name): (&Table, &str),
    statement: &Insert,
    returning: Option<&Returning>,
) -> Result<()> {
    require(session, table, insert_privileges(statement), || returning_reads(returning, name))
}

/// Privileges that the clauses of an INSERT need, RETURNING apart.
pub(crate) fn insert_privileges(statement: &Insert) -> Privileges {
    let mut wanted = Privileges::INSERT;
    if let Some(OnInsert::OnConflict(conflict)) = &statement.on {
        if !matches!(conflict.action, OnConflictAction::DoNothing) {
            wanted = wanted.with(Privileges::UPDATE);
        }
        // Its columns are compared with those of stored rows.
        if conflict.conflict_target.is_some() {
            wanted = wanted.with(Privileges::SELECT);
        }
    }
    wanted
}

/// Checks an UPDATE or DELETE of one table, whose query has this plan.
pub(crate) fn change(
    session: &SessionCore,
    source: &ChangeSource,
    plan: &LogicalPlan,
    returning: Option<&Returning>,
) -> Result<()> {
    let wanted = if source.assigned.is_empty() { Privileges::DELETE } else { Privileges::UPDATE };
    require(session, &source.table, wanted, || {
        Ok(reads_relation(plan, source.old.len(), &|column| is_of(column, &source.name))?
            || returning_reads(returning, &source.name)?)
    })
}

/// Checks an INSERT that is only explained.
pub(crate) async fn explained_insert(
    session: &SessionCore,
    source: &InsertSource,
    statement: &Insert,
) -> Result<()> {
    if session.variables.authority.is_superuser() {
        return Ok(());
    }
    let returning =
        Returning::new(session, &source.table, &source.name, statement.returning.as_deref()).await?;
    insert(session, (&source.table, &source.name), statement, returning.as_ref())
}

/// Checks that the session's role may do this with the rows of a table, and read them if the statement does.
pub(crate) fn require(
    session: &SessionCore,
    table: &Table,
    wanted: Privileges,
    reads: impl FnOnce() -> Result<bool>,
) -> Result<()> {
    let authority = &session.variables.authority;
    if authority.is_superuser() {
        return Ok(());
    }
    let wanted = if reads()? { wanted.with(Privileges::SELECT) } else { wanted };
    authority.require(wanted, table.name())
}

/// Returns true if RETURNING reads columns of a relation.
pub(crate) fn returning_reads(returning: Option<&Returning>, relation: &str) -> Result<bool> {
    returning.map_or(Ok(false), |returning| returning.reads(relation))
}
