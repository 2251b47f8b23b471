//! Order of the actions of an ALTER TABLE, and what becomes of them if one is refused.
//!
//! Checks are dropped, columns are added, others and constraints follow, and last are keys and columns dropped, which cannot be
//! taken back. If an action before these is refused, the table gets the definition that it had. As in PostgreSQL, nothing is
//! renamed beside other actions; options and CASCADE stand alone too.
//!
//! A crash leaves the actions that have been done.

use crate::ddl::restored_definition;
use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::session::core::SessionCore;
use datafusion::sql::sqlparser::ast::{AlterTableOperation, DropBehavior, TableConstraint};
use entresol_tables::{Error as TableError, Table};
use std::sync::Arc;

/// Part of an ALTER TABLE, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    DroppedChecks,
    AddedColumns,
    ChangedColumns,
    AddedConstraints,
    /// From here on nothing is taken back.
    DroppedKeys,
    DroppedColumns,
}

/// Action of an ALTER TABLE.
#[derive(Debug)]
pub(super) struct Action<'a> {
    pub(super) part: Part,
    pub(super) operation: &'a AlterTableOperation,
}

/// Several actions on a table in the order in which they run; those that change nothing are left out.
pub(super) fn ordered<'a>(operations: &'a [AlterTableOperation], table: &Table) -> Result<Vec<Action<'a>>> {
    let mut actions = Vec::with_capacity(operations.len());
    for operation in operations {
        if let Some(part) = part_of(operation, table)? {
            actions.push(Action { part, operation });
        }
    }
    check_names(operations)?;
    actions.sort_by_key(|action| action.part);
    Ok(actions)
}

/// Refusal of an action beside others.
fn stands_alone(what: &str) -> Error {
    Error::unsupported(format!("{what} beside other actions of ALTER TABLE: use a statement of its own"))
}

/// Part that an action belongs to; none if it drops what is not there, and need not be.
fn part_of(operation: &AlterTableOperation, table: &Table) -> Result<Option<Part>> {
    Ok(Some(match operation {
        AlterTableOperation::AddColumn { .. } => Part::AddedColumns,
        AlterTableOperation::AlterColumn { .. } => Part::ChangedColumns,
        AlterTableOperation::AddConstraint { .. } => Part::AddedConstraints,
        AlterTableOperation::DropConstraint { name, if_exists, .. } => {
            let (name, definition) = (identifier(name), table.definition());
            if definition.checks.iter().any(|check| check.name == name) {
                return Ok(Some(Part::DroppedChecks));
            }
            let is_key = definition.indexes.iter().any(|index| index.constraint && index.name == name)
                || definition.key_constraint(table.name()) == name;
            match (is_key, if_exists) {
                (true, _) => Part::DroppedKeys,
                (false, true) => return Ok(None),
                (false, false) => {
                    let table = table.name().to_owned();
                    return Err(TableError::NoSuchConstraint { table, constraint: name }.into());
                }
            }
        }
        AlterTableOperation::DropColumn { drop_behavior: Some(DropBehavior::Cascade), .. } => {
            return Err(stands_alone("DROP COLUMN ... CASCADE"));
        }
        AlterTableOperation::DropColumn { .. } => Part::DroppedColumns,
        AlterTableOperation::SetOptionsParens { .. } => return Err(stands_alone("SET (...)")),
        AlterTableOperation::RenameColumn { .. }
        | AlterTableOperation::RenameTable { .. }
        | AlterTableOperation::RenameConstraint { .. } => return Err(stands_alone("RENAME")),
        other => return Err(Error::unsupported(format!("{other} in ALTER TABLE"))),
    }))
}

/// Refuses a column, or a key, that is dropped and added by one statement: what is dropped goes last.
fn check_names(operations: &[AlterTableOperation]) -> Result<()> {
    let mut dropped: Vec<String> = Vec::new();
    let mut drops_constraint = false;
    for operation in operations {
        match operation {
            AlterTableOperation::DropColumn { column_names, .. } => {
                dropped.extend(column_names.iter().map(identifier));
            }
            AlterTableOperation::DropConstraint { .. } => drops_constraint = true,
            _ => {}
        }
    }
    let refused = |what: String| {
        Err(Error::unsupported(format!("{what} in one ALTER TABLE: use one statement for each")))
    };
    for operation in operations {
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => {
                let name = identifier(&column_def.name);
                if dropped.contains(&name) {
                    return refused(format!("DROP COLUMN and ADD COLUMN of {name}"));
                }
            }
            AlterTableOperation::AddConstraint {
                constraint: TableConstraint::Unique(_) | TableConstraint::PrimaryKey(_),
                ..
            } if drops_constraint => return refused("DROP CONSTRAINT and ADD of a key".to_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// Takes back actions before one that was refused, as far as that is possible; returns the error of the statement. `left` is
/// the table as these have left it.
pub(super) async fn taken_back(
    session: &SessionCore,
    before: &Arc<Table>,
    left: &Table,
    done: &[Action<'_>],
    refusal: Error,
) -> Error {
    if done.is_empty() {
        return refusal;
    }
    let last = done.iter().filter(|action| action.part >= Part::DroppedKeys);
    let last: Vec<String> = last.map(|action| action.operation.to_string()).collect();
    let restored = if !last.is_empty() {
        Err(format!("{} and all before it is done", last.join(", ")))
    } else if session.catalog.table(before.name()).is_ok_and(|now| has_names_of(&now, left)) {
        restored_definition::restore(session, before).await.map_err(|error| error.to_string())
    } else {
        Err("another session has altered the table meanwhile".to_owned())
    };
    match restored {
        Ok(()) => refusal,
        Err(why) => Error::coded(
            refusal.sqlstate(),
            format!("{refusal}; the actions before are not taken back: {why}"),
        ),
    }
}

/// Tells whether two definitions have columns, indexes and checks of the same names.
fn has_names_of(now: &Table, left: &Table) -> bool {
    fn names(table: &Table) -> Vec<&str> {
        let definition = table.definition();
        let mut names: Vec<&str> =
            definition.schema.columns().iter().map(|column| column.name.as_str()).collect();
        names.extend(definition.indexes.iter().map(|index| index.name.as_str()));
        names.extend(definition.checks.iter().map(|check| check.name.as_str()));
        names
    }
    names(now) == names(left)
}
