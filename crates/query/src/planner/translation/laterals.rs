//! Functions in FROM that use columns of the relations before them: LATERAL subqueries, with or without the word.
//!
//! | written | planned |
//! | --- | --- |
//! | `t, generate_series(1, t.n) g` | `t, LATERAL (SELECT unnest(generate_series(1, t.n)) AS g) g` |
//! | `t LEFT JOIN LATERAL unnest(t.a) x ON true` | `t LEFT JOIN LATERAL (SELECT unnest(t.a) AS x) x ON true` |
//!
//! Without the word, a column with the name of a relation says whether it is one of these, or of a query around. One without
//! may be of both, and is looked for in both.

use super::from::{alias_named, first_factor, table};
use crate::parser::names::identifier;
use crate::parser::visit::visit_expressions;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectNamePart, Select, TableFactor};
use std::ops::ControlFlow;

/// Makes subqueries of such functions; `names_value` as in [`table`].
pub(super) fn functions(select: &mut Select, names_value: bool) {
    let mut before: Vec<String> = Vec::new();
    for item in &mut select.from {
        let joined = item.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut item.relation).chain(joined) {
            function(factor, &before, names_value);
            before.extend(name_of(factor));
        }
    }
}

/// Name of a relation for the columns of those behind it.
fn name_of(factor: &TableFactor) -> Option<String> {
    let (name, alias) = match factor {
        TableFactor::Table { name, alias, .. } => (Some(name), alias),
        TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => (None, alias),
        _ => return None,
    };
    match alias {
        Some(alias) => Some(identifier(&alias.name)),
        None => name?.0.last().and_then(ObjectNamePart::as_ident).map(identifier),
    }
}

fn function(factor: &mut TableFactor, before: &[String], names_value: bool) {
    let has_word = matches!(factor, TableFactor::Function { lateral: true, .. });
    if let TableFactor::Function { lateral, .. } = factor {
        *lateral = false;
        let Some(plain) = first_factor(&format!("SELECT 1 FROM {factor}")) else { return };
        *factor = plain;
    }
    let is_function = matches!(factor, TableFactor::Table { args: Some(_), .. } | TableFactor::UNNEST { .. });
    if before.is_empty() || !is_function || !uses_columns(factor, before, has_word) {
        return;
    }
    unnested(factor);
    table(factor, names_value);
    if let TableFactor::Derived { lateral, .. } = factor {
        *lateral = true;
    }
}

/// Tells whether the arguments of a function have columns of relations before it.
fn uses_columns(factor: &TableFactor, before: &[String], has_word: bool) -> bool {
    let visited = visit_expressions(factor, |expr| match expr {
        Expr::Identifier(_) => ControlFlow::Break(()),
        Expr::CompoundIdentifier(parts) => {
            let relation = parts.len().checked_sub(2).and_then(|at| parts.get(at)).map(identifier);
            let is_before = relation.is_some_and(|relation| before.contains(&relation));
            if has_word || is_before { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    visited.is_break()
}

/// Rewrites `unnest(a)` into a query of its elements; one WITH ORDINALITY gets its alias alone.
fn unnested(factor: &mut TableFactor) {
    let TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } = factor else { return };
    let alias = alias.get_or_insert_with(|| alias_named("unnest"));
    if *with_ordinality {
        return;
    }
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let table = identifier(&alias.name);
    let items = array_exprs.iter().enumerate().map(|(at, list)| {
        let column = alias.columns.get(at).map_or_else(|| table.clone(), |column| identifier(&column.name));
        format!("unnest({list}) AS {}", quoted(&column))
    });
    let items = items.collect::<Vec<_>>().join(", ");
    if let Some(derived) = first_factor(&format!("SELECT 1 FROM (SELECT {items}) AS {}", quoted(&table))) {
        *factor = derived;
    }
}
