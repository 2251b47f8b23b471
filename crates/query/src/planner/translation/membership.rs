//! `(a, b) IN (SELECT x, y …)`: a row in a query, which DataFusion's planner does not know.
//!
//! ```text
//! in a WHERE, by itself    EXISTS (SELECT 1 FROM (SELECT x, y …) AS q(c, d) WHERE a = c AND b = d)
//! NOT IN there             NOT EXISTS (… WHERE (a = c AND b = d) IS NOT FALSE)
//! as a value               CASE WHEN EXISTS (… WHERE a = c AND b = d) THEN TRUE
//!                               WHEN EXISTS (… WHERE (a = c AND b = d) IS NOT FALSE) THEN NULL
//!                               ELSE FALSE END
//! ```
//!
//! So a row of the query that is unknown to be equal makes the value NULL, unless another is equal.
//!
//! `(a, b) < (SELECT x, y …)` is `(SELECT (a, b) < (c, d) FROM (SELECT x, y …) AS q(c, d))`.

use super::build::null;
use super::operators::{compared, fields_of};
use crate::parser::statement::query_of;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SelectItem, SetExpr, Statement, TableAliasColumnDef, TableFactor,
    UnaryOperator,
};

/// Name of the query, and beginning of the names of its columns.
const ROWS: &str = "$in";

/// Rewrites the conditions of a WHERE, of which only those that are true matter.
pub(super) fn conditions(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conditions(left);
            conditions(right);
        }
        Expr::Nested(inner) => conditions(inner),
        Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => {
            let mut within = inner.as_mut();
            while let Expr::Nested(inner) = within {
                within = inner.as_mut();
            }
            if let Some((values, query, negated)) = rows_in(within)
                && let Some(exists) = condition(&values, query, !negated)
            {
                *expr = exists;
            }
        }
        _ => {
            if let Some((values, query, negated)) = rows_in(expr)
                && let Some(exists) = condition(&values, query, negated)
            {
                *expr = exists;
            }
        }
    }
}

/// Rewrites an expression whose value matters.
pub(super) fn value(expr: &mut Expr) {
    let Some((values, query, negated)) = rows_in(expr) else { return };
    let (Some(equal), Some(maybe), Some(mut case)) = (
        exists(&values, query.clone(), false),
        exists(&values, query, true),
        parsed("CASE WHEN TRUE THEN TRUE WHEN TRUE THEN NULL ELSE FALSE END"),
    ) else {
        return;
    };
    if let Expr::Case { conditions, .. } = &mut case {
        for (when, condition) in conditions.iter_mut().zip([equal, maybe]) {
            when.condition = condition;
        }
    }
    let value = Box::new(case);
    *expr = if negated {
        Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(value)) }
    } else {
        Expr::Nested(value)
    };
}

/// Row, query and negation of an IN.
fn rows_in(expr: &Expr) -> Option<(Vec<Expr>, Box<Query>, bool)> {
    let Expr::InSubquery { expr: tested, subquery, negated } = expr else { return None };
    let row = fields_of(tested).filter(|row| row.len() > 1)?;
    Some((row, subquery.clone(), *negated))
}

/// Condition that is true where an IN is, or a NOT IN.
fn condition(values: &[Expr], query: Box<Query>, negated: bool) -> Option<Expr> {
    let found = exists(values, query, negated)?;
    Some(match found {
        Expr::Exists { subquery, .. } => Expr::Exists { subquery, negated },
        other => other,
    })
}

/// EXISTS of a row of a query that is equal to these values, or may be.
fn exists(values: &[Expr], query: Box<Query>, maybe: bool) -> Option<Expr> {
    let (mut subquery, columns) = named(query, values.len())?;
    let SetExpr::Select(select) = subquery.body.as_mut() else { return None };
    let equal = values.iter().zip(columns).map(|(value, column)| Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(value.clone()))),
        op: BinaryOperator::Eq,
        right: Box::new(column),
    });
    let and = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    let equal = equal.reduce(and).unwrap_or_else(null);
    select.selection =
        Some(if maybe { Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(equal)))) } else { equal });
    Some(Expr::Exists { subquery, negated: false })
}

/// Comparison of a row with the single one of a query, within the query: NULL if it has none. `None` for other expressions.
pub(super) fn comparison(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let (row, query) = match (fields_of(left), query_of_rows(right)) {
        (Some(row), Some(query)) => (row, query),
        _ => (fields_of(right)?, query_of_rows(left)?),
    };
    let (mut subquery, columns) = named(query, row.len())?;
    let compared = match query_of_rows(right) {
        Some(_) => compared(&row, op, &columns)?,
        None => compared(&columns, op, &row)?,
    };
    let SetExpr::Select(select) = subquery.body.as_mut() else { return None };
    select.projection = vec![SelectItem::UnnamedExpr(compared)];
    Some(Expr::Subquery(subquery))
}

/// Query that is a value.
fn query_of_rows(expr: &Expr) -> Option<Box<Query>> {
    match expr {
        Expr::Nested(inner) => query_of_rows(inner),
        Expr::Subquery(query) => Some(query.clone()),
        _ => None,
    }
}

/// `SELECT 1` from a query, and its columns by their names there.
fn named(query: Box<Query>, columns: usize) -> Option<(Box<Query>, Vec<Expr>)> {
    let Expr::Exists { mut subquery, .. } = parsed("EXISTS (SELECT 1 FROM (SELECT 1) AS q)")? else {
        return None;
    };
    let SetExpr::Select(select) = subquery.body.as_mut() else { return None };
    let TableFactor::Derived { subquery: list, alias, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    let quoted = |name: String| Ident::with_quote('"', name);
    let column = |at: usize| quoted(format!("{ROWS}{at}"));
    *list = query;
    let alias = alias.as_mut()?;
    alias.name = quoted(ROWS.to_owned());
    alias.columns = (0..columns).map(|at| TableAliasColumnDef::from_name(column(at).value)).collect();
    alias.columns.iter_mut().for_each(|column| column.name.quote_style = Some('"'));
    let columns =
        (0..columns).map(|at| Expr::CompoundIdentifier(vec![quoted(ROWS.to_owned()), column(at)])).collect();
    Some((subquery, columns))
}

/// Parses an expression.
fn parsed(text: &str) -> Option<Expr> {
    let DFStatement::Statement(statement) = query_of(&format!("SELECT {text}")).ok()? else {
        return None;
    };
    let Statement::Query(mut query) = *statement else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    match select.projection.pop()? {
        SelectItem::UnnamedExpr(expr) => Some(expr),
        _ => None,
    }
}
