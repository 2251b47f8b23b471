//! Properties of syntax trees: names as the catalog has them, and the absence of unsupported clauses.

use crate::error::{Error, Result};
use crate::parser::visit::visit_expressions;
use crate::schema_names::{CATALOG, SCHEMA};
use datafusion::sql::sqlparser::ast::{
    Expr, FromTable, Ident, ObjectName, ObjectNamePart, Query, TableFactor, TableWithJoins,
};
use std::ops::ControlFlow;

/// Identifier as the catalog has it: lower case unless it was quoted.
pub(crate) fn identifier(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Table that a statement writes: `t`, `public.t` or `entresol.public.t`.
pub(crate) fn table_name(name: &ObjectName) -> Result<String> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(identifier)).collect();
    let parts = parts.unwrap_or_default();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [table] | [SCHEMA, table] | [CATALOG, SCHEMA, table] => Ok((*table).to_owned()),
        _ => Err(Error::coded("42000", format!("{name} cannot be written: tables are in schema {SCHEMA}"))),
    }
}

/// Relation that an argument of a function in FROM names; none if it is another expression, or in another schema.
pub(crate) fn relation_in(expr: &Expr) -> Option<String> {
    let parts = match expr {
        Expr::Identifier(name) => vec![name.clone()],
        Expr::CompoundIdentifier(parts) => parts.clone(),
        _ => return None,
    };
    table_name(&ObjectName::from(parts)).ok()
}

/// Column in the list of an INSERT or on the left of an assignment.
pub(crate) fn column_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(identifier(ident)),
        _ => Err(Error::coded("42601", format!("{name} is not the name of a column"))),
    }
}

/// Single table of an UPDATE or DELETE, and its alias.
pub(crate) fn single_table<'s>(
    verb: &str,
    tables: &'s [TableWithJoins],
) -> Result<(String, Option<&'s Ident>)> {
    match tables {
        [TableWithJoins { relation, joins }] if joins.is_empty() => written_table(verb, relation),
        _ => Err(not_one_table(verb)),
    }
}

/// Table that a statement writes, and its alias.
pub(crate) fn written_table<'s>(verb: &str, table: &'s TableFactor) -> Result<(String, Option<&'s Ident>)> {
    match table {
        TableFactor::Table { name, with_hints, .. } if !with_hints.is_empty() => Err(hinted(name)),
        TableFactor::Table { name, alias, args: None, version: None, sample: None, .. } => match alias {
            Some(alias) if !alias.columns.is_empty() => Err(not_one_table(verb)),
            alias => Ok((table_name(name)?, alias.as_ref().map(|alias| &alias.name))),
        },
        _ => Err(not_one_table(verb)),
    }
}

/// Error of a hint behind a table.
pub(crate) fn hinted(name: &ObjectName) -> Error {
    Error::unsupported(format!("a hint in FROM: write {name} without WITH (…)"))
}

/// Error of a statement that would change anything but one table.
pub(crate) fn not_one_table(verb: &str) -> Error {
    Error::unsupported(format!("{verb} of anything but one table"))
}

/// Tables in the FROM of a DELETE.
pub(crate) fn from_tables(from: &FromTable) -> &[TableWithJoins] {
    match from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    }
}

/// Returns true if a query is nothing but its body.
pub(crate) fn is_plain(query: &Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty()
}

/// Refuses a clause that is present.
pub(crate) fn refuse(verb: &str, clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => Err(Error::unsupported(format!("{clause} in {verb}"))),
        None => Ok(()),
    }
}

/// Returns true if an expression has a subquery anywhere.
pub(crate) fn has_subquery(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn names_fold_unless_quoted() {
        let name = |sql: &str| {
            let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
            table_name(&parser.parse_object_name(false).unwrap())
        };
        assert_eq!(name("Meters").unwrap(), "meters");
        assert_eq!(name("public.\"Meters\"").unwrap(), "Meters");
        assert!(name("entresol.memory").is_err());
    }
}
