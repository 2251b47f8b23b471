//! The column `tableoid` of relations of `pg_catalog`: the number of the relation, in every row. `SELECT *` does not have it.

use super::build::number;
use super::types::system_name;
use crate::catalog::registry::REGISTRY;
use crate::parser::names::identifier;
use crate::parser::visit::visit_expressions_mut;
use crate::schema_names::PG_CATALOG;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, TableFactor, TableWithJoins};
use std::ops::ControlFlow;

/// Name of the column.
const TABLEOID: &str = "tableoid";

/// Writes numbers in place of the column in a SELECT.
pub(super) fn resolve(select: &mut Select) {
    let joined = |item: &TableWithJoins| {
        let relations = item.joins.iter().filter_map(|join| numbered(&join.relation));
        numbered(&item.relation).into_iter().chain(relations).collect::<Vec<_>>()
    };
    let relations: Vec<(String, i64)> = select.from.iter().flat_map(joined).collect();
    if relations.is_empty() {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(oid) = number_of(expr, &relations)
        {
            *item = SelectItem::ExprWithAlias { expr: number(oid), alias: Ident::new(TABLEOID) };
        }
    }
    let _: ControlFlow<()> = visit_expressions_mut(select, |expr| {
        if let Some(oid) = number_of(expr, &relations) {
            *expr = number(oid);
        }
        ControlFlow::Continue(())
    });
}

/// Name in the statement, and number, of a relation of the catalog.
fn numbered(factor: &TableFactor) -> Option<(String, i64)> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let name = system_name(name)?;
    let relation = REGISTRY.find(PG_CATALOG, &name)?;
    let called = alias.as_ref().map_or(name, |alias| identifier(&alias.name));
    Some((called, REGISTRY.oid(relation)))
}

/// Number that an expression is, if it is the column of one of these relations.
fn number_of(expr: &Expr, relations: &[(String, i64)]) -> Option<i64> {
    let Expr::CompoundIdentifier(parts) = expr else { return None };
    let [.., relation, column] = parts.as_slice() else { return None };
    let relation = identifier(relation);
    let found = relations.iter().find(|(name, _)| *name == relation).map(|(_, oid)| *oid);
    found.filter(|_| identifier(column) == TABLEOID)
}
