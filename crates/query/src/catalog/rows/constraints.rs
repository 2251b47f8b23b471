//! Constraints of tables: keys, unique ones, checks.

use crate::catalog::oids;
use crate::catalog::view::indexes_of;
use crate::parser::names::identifier;
use crate::parser::visit::visit_expressions;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
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

/// The constraints of a table: key, unique ones, checks.
pub(crate) fn constraints_of(table: &Table) -> Vec<Constraint<'_>> {
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
    let checks = table.definition().checks.iter().enumerate().map(|(place, check)| Constraint {
        oid: oids::check(table.state().id(), place),
        name: check.name.clone(),
        kind: "c",
        table,
        index: 0,
        columns: columns_in(table, &check.expression),
        condition: Some(&check.expression),
    });
    by_index.chain(checks).collect()
}

/// The columns that an expression names, by place.
pub(crate) fn columns_in(table: &Table, expression: &str) -> Vec<usize> {
    let parsed = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(expression)
        .and_then(|mut parser| parser.parse_expr());
    let Ok(parsed) = parsed else { return Vec::new() };
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
    found
}
