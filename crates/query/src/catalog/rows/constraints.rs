//! Constraints of tables: keys, unique ones, checks.

use crate::catalog::oids;
use crate::catalog::view::{View, indexes_of};
use crate::error::{Result, external};
use crate::parser::names::identifier;
use crate::parser::stored_expressions::stored_expression;
use crate::parser::visit::visit_expressions;
use datafusion::common::Result as DFResult;
use datafusion::sql::sqlparser::ast::Expr;
use entresol_tables::Table;
use std::ops::ControlFlow;

/// A constraint of a table.
pub(crate) struct Constraint<'v> {
    pub(crate) oid: i64,
    pub(crate) name: String,
    /// p, u, c.
    pub(crate) kind: &'static str,
    pub(crate) table: &'v Table,
    /// The index that keeps it, 0 if none does.
    pub(crate) index: i64,
    pub(crate) columns: Vec<usize>,
    /// The condition of a check.
    pub(crate) condition: Option<&'v str>,
}

/// Constraints of all tables.
pub(crate) fn all(view: &View) -> DFResult<Vec<Constraint<'_>>> {
    let mut found = Vec::new();
    for table in &view.tables {
        found.extend(constraints_of(table).map_err(external)?);
    }
    Ok(found)
}

/// The constraints of a table: key, unique ones, checks.
fn constraints_of(table: &Table) -> Result<Vec<Constraint<'_>>> {
    let by_index = indexes_of(table).into_iter().filter_map(|index| {
        Some(Constraint {
            oid: index.constraint?,
            name: index.name,
            kind: if index.primary { "p" } else { "u" },
            table,
            index: index.oid,
            columns: index.columns,
            condition: None,
        })
    });
    let checks = table.definition().checks.iter().enumerate().map(|(place, check)| {
        Ok(Constraint {
            oid: oids::check(table.state().id(), place),
            name: check.name.clone(),
            kind: "c",
            table,
            index: 0,
            columns: columns_in(table, &check.expression)?,
            condition: Some(&check.expression),
        })
    });
    by_index.map(Ok).chain(checks).collect()
}

/// The columns that an expression names, by place.
fn columns_in(table: &Table, expression: &str) -> Result<Vec<usize>> {
    let parsed = stored_expression(expression)?;
    let mut found = Vec::new();
    let visited: ControlFlow<()> = visit_expressions(&parsed, |expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(identifier(name)),
            Expr::CompoundIdentifier(names) => names.last().map(identifier),
            _ => None,
        };
        let column = name.and_then(|name| table.schema().column_index(&name));
        found.extend(column.filter(|column| !found.contains(column)));
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    found.sort_unstable();
    Ok(found)
}
