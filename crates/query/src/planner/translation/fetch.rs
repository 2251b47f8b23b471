//! FETCH FIRST.
//!
//! | written | planned |
//! | --- | --- |
//! | `FETCH FIRST n ROWS ONLY` | `LIMIT n` |
//! | `SELECT … ORDER BY k OFFSET m FETCH FIRST n ROWS WITH TIES` | `SELECT … QUALIFY rank() OVER (ORDER BY k) <= m + n ORDER BY k OFFSET m` |
//! | the same of DISTINCT, UNION, VALUES, or ordered by a result that is computed | `SELECT * FROM (…) QUALIFY …` |
//!
//! Rows behind the last that is asked for have its rank if they are equal to it in all keys. Without rows to fetch (`n` is 0)
//! there are no ties.

use super::build::{call, number};
use super::lists::column_of;
use super::names::{column_name, own_name};
use crate::parser::names::identifier;
use crate::parser::statement::query_of;
use crate::parser::visit::visit_expressions;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, Ident, LimitClause, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, Value as Literal, WindowSpec, WindowType,
};
use std::ops::ControlFlow;

/// Rewrites FETCH FIRST; what it cannot rewrite stays, and is refused by the planner.
pub(super) fn limit_fetch(query: &mut Query) {
    let Some(fetch) = query.fetch.as_ref().filter(|fetch| !fetch.percent) else { return };
    let rows = fetch.quantity.clone().unwrap_or_else(|| number(1));
    if fetch.with_ties {
        if with_ties(query, rows).is_some() {
            query.fetch = None;
        }
        return;
    }
    match &mut query.limit_clause {
        None => {
            let limit = Some(rows);
            query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        _ => return,
    }
    query.fetch = None;
}

/// Keeps the first rows and those that are equal to the last of them; none if that cannot be written.
fn with_ties(query: &mut Query, rows: Expr) -> Option<()> {
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, .. }) => {
            offset.as_ref().map(|offset| offset.value.clone())
        }
        _ => return None,
    };
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
    let first = first_select(&query.body);
    let results: Vec<Option<usize>> =
        keys.iter().map(|key| first.and_then(|select| result_of(select, &key.expr))).collect();
    let plain = match query.body.as_ref() {
        SetExpr::Select(select) if select.distinct.is_none() => Some(select.as_ref()),
        SetExpr::Select(select) if matches!(select.distinct, Some(Distinct::On(_))) => return None,
        _ => None,
    };
    let keys = keys.iter().zip(results);
    let order_by: Option<Vec<OrderByExpr>> = match plain {
        Some(select) => keys.map(|(key, result)| by_expression(select, key, result)).collect(),
        None => None,
    };
    let order_by = match order_by {
        Some(order_by) => order_by,
        None => {
            let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
            let first = first?;
            let by_name =
                |key: &OrderByExpr| result_of(first, &key.expr).and_then(|at| by_name(first, key, at));
            let order_by = keys.iter().map(by_name).collect::<Option<Vec<OrderByExpr>>>()?;
            let outer = format!("SELECT * FROM ({}) AS \"fetched\"", query.body);
            let DFStatement::Statement(statement) = query_of(&outer).ok()? else { return None };
            let Statement::Query(outer) = *statement else { return None };
            query.body = outer.body;
            order_by
        }
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.qualify = Some(within(order_by, rows, offset));
    Some(())
}

/// SELECT that names the results of a query.
fn first_select(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first_select(left),
        SetExpr::Query(query) => first_select(&query.body),
        _ => None,
    }
}

/// Place of the result that a sort key names, or says.
fn result_of(select: &Select, key: &Expr) -> Option<usize> {
    let items = &select.projection;
    match key {
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, _) => {
                let at = digits.parse::<usize>().ok()?.checked_sub(1)?;
                let is_listed = |item: &SelectItem| {
                    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
                };
                (at < items.len() && items[..=at].iter().all(is_listed)).then_some(at)
            }
            _ => None,
        },
        Expr::Identifier(name) => {
            let name = identifier(name);
            items.iter().position(|item| result_name(item).as_ref() == Some(&name))
        }
        _ => None,
    }
}

fn result_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => own_name(item).or_else(|| Some(column_name(expr))),
        _ => own_name(item),
    }
}

/// Sort key of a SELECT as an expression over its FROM; none if it is a result that a function computes, which may
/// differ from call to call.
fn by_expression(select: &Select, key: &OrderByExpr, result: Option<usize>) -> Option<OrderByExpr> {
    let expr = match result.map(|at| &select.projection[at]) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ if matches!(key.expr, Expr::Value(_)) => return None,
        _ => return Some(key.clone()),
    };
    let calls = visit_expressions(expr, |part| match part {
        Expr::Function(_) | Expr::Subquery(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let is_column = column_of(expr).is_some() || calls.is_continue();
    is_column.then(|| OrderByExpr { expr: expr.clone(), ..key.clone() })
}

/// Sort key by the name of a result, if no other has it.
fn by_name(select: &Select, key: &OrderByExpr, at: usize) -> Option<OrderByExpr> {
    let name = result_name(&select.projection[at])?;
    let is_same = |item: &&SelectItem| result_name(item).as_ref() == Some(&name);
    let expr = Expr::Identifier(Ident::with_quote('"', &name));
    (select.projection.iter().filter(is_same).count() == 1).then(|| OrderByExpr { expr, ..key.clone() })
}

/// Condition on the rank of a row.
fn within(order_by: Vec<OrderByExpr>, rows: Expr, offset: Option<Expr>) -> Expr {
    let nested = |expr: Expr| Box::new(Expr::Nested(Box::new(expr)));
    let operation = |left: Expr, op: BinaryOperator, right: Expr| Expr::BinaryOp {
        left: nested(left),
        op,
        right: nested(right),
    };
    let last = match offset {
        Some(offset) => operation(offset, BinaryOperator::Plus, rows.clone()),
        None => rows.clone(),
    };
    let mut rank = call("rank", Vec::new());
    if let Expr::Function(Function { over, .. }) = &mut rank {
        let partition_by = Vec::new();
        let spec = WindowSpec { window_name: None, partition_by, order_by, window_frame: None };
        *over = Some(WindowType::WindowSpec(spec));
    }
    let is_first = operation(rank, BinaryOperator::LtEq, last);
    operation(is_first, BinaryOperator::And, operation(rows, BinaryOperator::Gt, number(0)))
}
