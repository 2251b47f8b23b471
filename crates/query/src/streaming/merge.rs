//! MERGE in a step: the form that replaces the row with a key, or adds it, as an INSERT with ON CONFLICT.
//!
//! ```text
//! MERGE INTO t USING s ON t.k = s.a                         INSERT INTO t (k, v) SELECT s.a, s.b FROM s
//!     WHEN MATCHED THEN UPDATE SET v = s.b            ─▶        ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v
//!     WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b)
//! ```

use crate::error::{Error, Result};
use crate::parser::names::{column_name, identifier, table_name};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Expr, Ident, Merge, MergeAction, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, MergeUpdateExpr, TableFactor,
};
use entresol_tables::{Catalog, Table};
use std::collections::BTreeMap;

/// INSERT that does what a MERGE does.
pub(crate) fn as_insert(catalog: &Catalog, merge: &Merge) -> Result<String> {
    let TableFactor::Table { name, alias, .. } = &merge.table else { return Err(refused()) };
    let table = catalog.table(&table_name(name)?)?;
    let called = alias.as_ref().map_or_else(|| table.name().to_owned(), |alias| identifier(&alias.name));
    let mut key = BTreeMap::new();
    key_values(&merge.on, &called, &mut key)?;
    let (update, insert) = actions(merge)?;
    let columns = inserted_columns(insert, &table)?;
    let values = inserted_values(insert)?;
    if columns.len() != values.len() || columns.len() != table.schema().visible_columns().len() {
        return Err(refused());
    }
    let assigned = assignments(update)?;
    let is_key = |column: &String| table.schema().key_names().any(|key| key == column);
    for (column, value) in columns.iter().zip(&values) {
        let expected = if is_key(column) { key.get(column) } else { assigned.get(column) };
        if expected != Some(value) {
            return Err(refused());
        }
    }
    if key.len() != table.schema().key().len() || key.len() + assigned.len() != columns.len() {
        return Err(refused());
    }
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let list = |names: Vec<String>| names.join(", ");
    let sets = columns.iter().filter(|column| !is_key(column)).map(|column| {
        let column = quoted(column);
        format!("{column} = EXCLUDED.{column}")
    });
    Ok(format!(
        "INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}",
        quoted(table.name()),
        list(columns.iter().map(|column| quoted(column)).collect()),
        list(values),
        merge.source,
        list(table.schema().key_names().map(quoted).collect()),
        list(sets.collect()),
    ))
}

fn refused() -> Error {
    Error::unsupported(
        "MERGE in a step, other than ON the table's key, WHEN MATCHED THEN UPDATE SET every other column, WHEN NOT MATCHED \
         THEN INSERT the same values",
    )
}

/// Values of the key columns, from equalities with columns of the target.
fn key_values(on: &Expr, target: &str, values: &mut BTreeMap<String, String>) -> Result<()> {
    let of_target = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, column] if identifier(table) == target => Some(identifier(column)),
            _ => None,
        },
        _ => None,
    };
    match on {
        Expr::Nested(inner) => key_values(inner, target, values),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            key_values(left, target, values)?;
            key_values(right, target, values)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let (column, value) = match (of_target(left), of_target(right)) {
                (Some(column), None) => (column, right.to_string()),
                (None, Some(column)) => (column, left.to_string()),
                _ => return Err(refused()),
            };
            values.insert(column, value);
            Ok(())
        }
        _ => Err(refused()),
    }
}

fn actions(merge: &Merge) -> Result<(&MergeUpdateExpr, &MergeInsertExpr)> {
    let (mut update, mut insert) = (None, None);
    for clause in &merge.clauses {
        match (&clause.clause_kind, &clause.action) {
            _ if clause.predicate.is_some() => return Err(refused()),
            (MergeClauseKind::Matched, MergeAction::Update(action)) if update.is_none() => {
                update = Some(action);
            }
            (MergeClauseKind::NotMatched, MergeAction::Insert(action)) if insert.is_none() => {
                insert = Some(action);
            }
            _ => return Err(refused()),
        }
    }
    match (update, insert) {
        (Some(update), Some(insert)) if merge.output.is_none() => Ok((update, insert)),
        _ => Err(refused()),
    }
}

fn inserted_columns(insert: &MergeInsertExpr, table: &Table) -> Result<Vec<String>> {
    if insert.columns.is_empty() {
        return Ok(table.schema().visible_columns().iter().map(|column| column.name.clone()).collect());
    }
    insert.columns.iter().map(column_name).collect()
}

fn inserted_values(insert: &MergeInsertExpr) -> Result<Vec<String>> {
    match &insert.kind {
        MergeInsertKind::Values(values) if values.rows.len() == 1 && insert.insert_predicate.is_none() => {
            Ok(values.rows[0].iter().map(ToString::to_string).collect())
        }
        _ => Err(refused()),
    }
}

fn assignments(update: &MergeUpdateExpr) -> Result<BTreeMap<String, String>> {
    if update.update_predicate.is_some() || update.delete_predicate.is_some() {
        return Err(refused());
    }
    let mut assigned = BTreeMap::new();
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return Err(refused()) };
        // `SET t.c = ...` names the target, too.
        let column = name.0.last().and_then(|part| part.as_ident()).map(identifier).ok_or_else(refused)?;
        assigned.insert(column, assignment.value.to_string());
    }
    Ok(assigned)
}
