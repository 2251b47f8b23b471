//! Names of relations in FROM, each at most once, as in PostgreSQL.
//!
//! DataFusion refuses two relations of one name where they have a column of one name too; others it joins, and a name of one
//! is a name of both. Two tables of one name and without an alias are different ones if their schemas are.

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::visit::walk;
use crate::schema_names::SCHEMA;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Select, TableAlias, TableFactor, TableWithJoins, Visitor};
use std::ops::ControlFlow;

/// Refuses a statement in which a FROM has two relations of one name.
pub(crate) fn check(statement: &DFStatement) -> Result<()> {
    match statement {
        DFStatement::Statement(statement) => match walk(statement.as_ref(), &mut Froms) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        },
        DFStatement::Explain(explain) => check(&explain.statement),
        _ => Ok(()),
    }
}

struct Froms;

impl Visitor for Froms {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        let mut names: Vec<Name> = Vec::new();
        for name in select.from.iter().flat_map(names_of) {
            if names.iter().any(|other| other.is_same(&name)) {
                let message = format!("table name \"{}\" specified more than once", name.shown());
                return ControlFlow::Break(Error::coded("42712", message));
            }
            names.push(name);
        }
        ControlFlow::Continue(())
    }
}

/// Name of a relation in FROM.
struct Name {
    name: String,
    /// Schema of a table without an alias.
    schema: Option<String>,
}

impl Name {
    fn is_same(&self, other: &Name) -> bool {
        self.name == other.name && self.schema.iter().zip(&other.schema).all(|(one, other)| one == other)
    }

    /// The name without zero characters that set it apart.
    fn shown(&self) -> String {
        self.name.replace('\0', "")
    }
}

fn names_of(joined: &TableWithJoins) -> Vec<Name> {
    let factors = std::iter::once(&joined.relation).chain(joined.joins.iter().map(|join| &join.relation));
    factors.flat_map(names_of_factor).collect()
}

fn names_of_factor(factor: &TableFactor) -> Vec<Name> {
    let aliased = |alias: &Option<TableAlias>| {
        let alias = alias.as_ref().map(|alias| Name { name: identifier(&alias.name), schema: None });
        alias.into_iter().collect()
    };
    match factor {
        TableFactor::Table { name, alias: None, .. } => {
            let parts: Vec<String> =
                name.0.iter().filter_map(|part| part.as_ident().map(identifier)).collect();
            let schema = match parts.as_slice() {
                [.., schema, _] => schema.clone(),
                _ => SCHEMA.to_owned(),
            };
            parts.last().map(|name| Name { name: name.clone(), schema: Some(schema) }).into_iter().collect()
        }
        TableFactor::NestedJoin { table_with_joins, alias: None } => names_of(table_with_joins),
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
        | TableFactor::MatchRecognize { alias, .. } => aliased(alias),
        _ => Vec::new(),
    }
}
