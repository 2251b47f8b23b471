//! ALTER TABLE of several actions.
//!
//! They run one after the other, each as a statement of its own would: checks are dropped, columns are added, others and
//! constraints follow, and last comes what cannot be taken back, dropped columns and keys and options of storage. If one is
//! refused, the table gets the definition that it had. As in PostgreSQL, nothing is renamed beside other actions.
//!
//! A crash leaves the actions that have been done.

use crate::ddl::{alter, restored_definition};
use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::streaming::altered_tables::alter_by;
use datafusion::sql::sqlparser::ast::{AlterTable, AlterTableOperation};
use entresol_tables::Table;
use std::sync::Arc;

/// Part of an ALTER TABLE, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    DroppedChecks,
    AddedColumns,
    ChangedColumns,
    AddedConstraints,
    /// From here on nothing is taken back.
    DroppedKeys,
    DroppedColumns,
    Options,
}

/// Runs an ALTER TABLE, whatever number of actions it has.
pub(crate) async fn alter_table(session: &SessionCore, statement: &AlterTable) -> Result<StatementResult> {
    let [_, _, ..] = statement.operations.as_slice() else { return alter_by(session, statement).await };
    let before = match session.catalog.table(&table_name(&statement.name)?) {
        Err(entresol_tables::Error::NoSuchTable { .. }) if statement.if_exists => return Ok(alter::DONE),
        table => table?,
    };
    let mut parts = Vec::with_capacity(statement.operations.len());
    for operation in &statement.operations {
        parts.push((part_of(operation, &before)?, operation));
    }
    check_names(&statement.operations)?;
    parts.sort_by_key(|(part, _)| *part);
    let alone = |operation: &AlterTableOperation| AlterTable {
        operations: vec![operation.clone()],
        ..statement.clone()
    };
    for (done, (part, operation)) in parts.iter().enumerate() {
        let is_first = done == 0 || parts[done - 1].0 < *part;
        let checked = if *part == Part::DroppedColumns && is_first {
            let mut dropped = parts[done..].iter().filter(|(part, _)| *part == Part::DroppedColumns);
            dropped.try_for_each(|(_, operation)| alter::column_to_drop(session, &alone(operation)).map(drop))
        } else {
            Ok(())
        };
        let changed = match checked {
            Ok(()) => alter_by(session, &alone(operation)).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            return Err(taken_back(session, &before, &parts[..done], error).await);
        }
    }
    Ok(alter::DONE)
}

/// Takes back actions before one that was refused, as far as that is possible; returns the error of the statement.
async fn taken_back(
    session: &SessionCore,
    before: &Arc<Table>,
    done: &[(Part, &AlterTableOperation)],
    refusal: Error,
) -> Error {
    if done.is_empty() {
        return refusal;
    }
    let last: Vec<String> = done
        .iter()
        .filter(|(part, _)| *part >= Part::DroppedKeys)
        .map(|(_, operation)| operation.to_string())
        .collect();
    if last.is_empty() {
        return match restored_definition::restore(session, before).await {
            Ok(()) => refusal,
            Err(error) => Error::coded(
                refusal.sqlstate(),
                format!("{refusal}; the actions before could not be taken back: {error}"),
            ),
        };
    }
    let message = format!("{refusal}; done before that: {}, and all that was added", last.join(", "));
    Error::coded(refusal.sqlstate(), message)
}

/// Part that an action belongs to.
fn part_of(operation: &AlterTableOperation, table: &Table) -> Result<Part> {
    Ok(match operation {
        AlterTableOperation::AddColumn { .. } => Part::AddedColumns,
        AlterTableOperation::AlterColumn { .. } => Part::ChangedColumns,
        AlterTableOperation::AddConstraint { .. } => Part::AddedConstraints,
        AlterTableOperation::DropConstraint { name, .. } => {
            let name = identifier(name);
            let is_check = table.definition().checks.iter().any(|check| check.name == name);
            if is_check { Part::DroppedChecks } else { Part::DroppedKeys }
        }
        AlterTableOperation::DropColumn { .. } => Part::DroppedColumns,
        AlterTableOperation::SetOptionsParens { .. } => Part::Options,
        AlterTableOperation::RenameColumn { .. }
        | AlterTableOperation::RenameTable { .. }
        | AlterTableOperation::RenameConstraint { .. } => {
            return Err(Error::coded(
                "42601",
                "RENAME beside other actions of ALTER TABLE: use a statement of its own",
            ));
        }
        other => return Err(Error::unsupported(format!("{other} in ALTER TABLE"))),
    })
}

/// Refuses a column that is dropped and added by one statement: its rows would have to be told from those of the old one.
fn check_names(operations: &[AlterTableOperation]) -> Result<()> {
    let dropped = operations.iter().filter_map(|operation| match operation {
        AlterTableOperation::DropColumn { column_names, .. } => Some(column_names.iter().map(identifier)),
        _ => None,
    });
    let dropped: Vec<String> = dropped.flatten().collect();
    for operation in operations {
        let AlterTableOperation::AddColumn { column_def, .. } = operation else { continue };
        let name = identifier(&column_def.name);
        if dropped.contains(&name) {
            let message = format!(
                "DROP COLUMN and ADD COLUMN of {name} in one ALTER TABLE: use one statement for each"
            );
            return Err(Error::unsupported(message));
        }
    }
    Ok(())
}
