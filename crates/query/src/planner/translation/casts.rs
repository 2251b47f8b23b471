//! Distinct names for casts of one value to several types.
//!
//! DataFusion names a result without its casts: `sum(a)` and `sum(a::NUMERIC)`, or `NULL::INT` and
//! `NULL::DATE` among the keys of a GROUP BY, are two columns of one name, which it refuses. `coalesce(a)` is
//! `a` under another name.

use super::build::{call, null};
use super::names::name_items;
use crate::parser::visit::{visit_expressions, visit_expressions_mut};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Gives distinct names to calls, keys and items of a SELECT that differ only in casts.
pub(super) fn tell_apart(query: &mut Query, is_nested: bool) {
    let keys = match query.order_by.as_mut().map(|order| &mut order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys.as_mut_slice(),
        _ => &mut [],
    };
    tell_apart_in(&mut query.body, keys, is_nested);
}

fn tell_apart_in(body: &mut SetExpr, keys: &mut [OrderByExpr], is_nested: bool) {
    match body {
        SetExpr::Select(select) => tell_apart_items(select, keys, is_nested),
        SetExpr::SetOperation { left, right, .. } => {
            tell_apart_in(left, &mut [], is_nested);
            tell_apart_in(right, &mut [], is_nested);
        }
        _ => {}
    }
}

fn tell_apart_items(select: &mut Select, keys: &mut [OrderByExpr], is_nested: bool) {
    let cast = visit_expressions(&*select, |expr| match expr {
        Expr::Cast { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if cast.is_continue() {
        return;
    }
    let mut known: HashMap<String, Vec<String>> = HashMap::new();
    let mut meet = |expr: &Expr| {
        let (written, bare) = (expr.to_string(), without_casts(expr));
        let alike = known.entry(bare.clone()).or_default();
        if alike.contains(&written) {
            return;
        }
        // One without a cast has none to wrap, so it keeps its name.
        if written == bare { alike.insert(0, written) } else { alike.push(written) }
    };
    let mut named: Vec<&Expr> = Vec::new();
    named.extend(select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }));
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        named.extend(keys);
    }
    let mut calls = Vec::new();
    let _: ControlFlow<()> = visit_expressions(&*select, |expr| {
        if matches!(expr, Expr::Function(_)) {
            calls.push(expr.clone());
        }
        ControlFlow::Continue(())
    });
    if !aggregates(select, &calls) {
        return;
    }
    named.into_iter().chain(&calls).for_each(&mut meet);
    let numbered = known.into_values().flat_map(|alike| alike.into_iter().enumerate());
    let wrapped: HashMap<String, usize> =
        numbered.filter(|&(times, _)| times > 0).map(|(times, written)| (written, times)).collect();
    if wrapped.is_empty() {
        return;
    }
    name_items(&mut select.projection, is_nested);
    let mut apart = |expr: &mut Expr| {
        if let Some(&times) = wrapped.get(&expr.to_string()) {
            rename(expr, times);
        }
        ControlFlow::<()>::Continue(())
    };
    let _ = visit_expressions_mut(select, &mut apart);
    for key in keys {
        let _ = visit_expressions_mut(&mut key.expr, &mut apart);
    }
}

/// Returns true if the SELECT groups rows: only grouped rows have columns named after the expressions that
/// compute them.
fn aggregates(select: &Select, calls: &[Expr]) -> bool {
    !calls.is_empty()
        || matches!(&select.group_by, GroupByExpr::All(_))
        || matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if !keys.is_empty())
}

fn without_casts(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |expr| {
        if let Expr::Cast { expr: inner, .. } = expr {
            *expr = std::mem::replace(inner, null());
        }
        ControlFlow::Continue(())
    });
    expr.to_string()
}

fn rename(expr: &mut Expr, times: usize) {
    let _: ControlFlow<()> = visit_expressions_mut(expr, |expr| {
        if let Expr::Cast { expr: inner, .. } = expr {
            for _ in 0..times {
                let value = std::mem::replace(inner.as_mut(), null());
                **inner = call("coalesce", vec![value]);
            }
        }
        ControlFlow::Continue(())
    });
}
