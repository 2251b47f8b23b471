//! Targets of steps INSERT INTO.

use crate::error::{Error, Result};
use crate::parser::names::{column_name, table_name};
use crate::streaming::merge::replaces_rows;
use crate::streaming::view_targets;
use datafusion::sql::sqlparser::ast::{Insert, OnInsert, TableObject};
use entresol_tables::Table;
use std::sync::Arc;

/// Name of the table of an INSERT.
pub(crate) fn inserted(insert: &Insert) -> Result<String> {
    match &insert.table {
        TableObject::TableName(name) => table_name(name),
        _ => Err(Error::unsupported("INSERT INTO a function")),
    }
}

/// Table of an INSERT, its columns in the order of the query's, and true if rows are replaced.
pub(crate) fn insert_target(table: &Arc<Table>, insert: &Insert) -> Result<(Arc<Table>, Vec<usize>, bool)> {
    view_targets::check_target(table)?;
    if insert.returning.is_some() {
        return Err(Error::unsupported("RETURNING in a step"));
    }
    let visible = table.schema().visible_columns();
    let columns: Vec<usize> = if insert.columns.is_empty() {
        (0..visible.len()).collect()
    } else {
        let mut columns = Vec::new();
        for name in &insert.columns {
            let name = column_name(name)?;
            let at = visible.iter().position(|column| column.name == name).ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name());
                Error::coded("42703", message)
            })?;
            if columns.contains(&at) {
                return Err(Error::coded("42701", format!("column \"{name}\" specified more than once")));
            }
            columns.push(at);
        }
        columns
    };
    let upserts = match &insert.on {
        None => false,
        Some(OnInsert::OnConflict(conflict)) => replaces_rows(table, insert, conflict)?,
        Some(_) => return Err(Error::unsupported("ON DUPLICATE KEY")),
    };
    Ok((Arc::clone(table), columns, upserts))
}
