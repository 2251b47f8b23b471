//! LIMIT and OFFSET of a subquery: computed before the query is planned, in the statement's transaction.
//!
//! NULL is no limit, as in PostgreSQL.

use crate::error::{Error, Result};
use crate::parser::names::has_subquery;
use crate::parser::statement::query_statement;
use crate::parser::statement::{inner_mut, template};
use crate::parser::visit::walk_mut;
use crate::planner::translation;
use crate::postgres::number_types::typed;
use crate::postgres::numbers;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, LimitClause, Query, SelectItem, SetExpr, Value as Literal, VisitorMut,
};
use std::ops::ControlFlow;

/// Returns true if a statement has a LIMIT that must be computed.
pub(crate) fn has_computed_limit(statement: &DFStatement) -> bool {
    !limits_of(&mut statement.clone(), |_, _| {}).is_empty()
}

/// Removes such limits from a statement, which does not change its columns.
pub(crate) fn without(statement: &mut DFStatement) {
    limits_of(statement, |_, expr| *expr = number(0));
}

/// Computes the limits, and replaces them by numbers.
pub(crate) async fn resolve(state: &SessionState, statement: &mut DFStatement) -> Result<()> {
    // Limits within another one belong to its query.
    let limits = limits_of(&mut statement.clone(), |_, expr| *expr = number(0));
    if limits.is_empty() {
        return Ok(());
    }
    let mut computed = Vec::with_capacity(limits.len());
    for (clause, expr) in limits {
        computed.push(compute(state, clause, expr).await?);
    }
    let mut next = computed.into_iter();
    limits_of(statement, |clause, expr| {
        // Without a limit all rows are returned.
        let all = if clause == Clause::Limit { i64::MAX } else { 0 };
        *expr = number(next.next().flatten().unwrap_or(all));
    });
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Limit,
    Offset,
}

fn number(value: i64) -> Expr {
    Expr::Value(Literal::Number(value.to_string(), false).into())
}

/// Limits with a subquery, in order; calls `f` with each, which may change it.
fn limits_of(statement: &mut DFStatement, f: impl FnMut(Clause, &mut Expr)) -> Vec<(Clause, Expr)> {
    let mut visitor = Limits { f, found: Vec::new() };
    if let Some(statement) = inner_mut(statement) {
        let _ = walk_mut(statement, &mut visitor);
    }
    visitor.found
}

struct Limits<F> {
    f: F,
    found: Vec<(Clause, Expr)>,
}

impl<F: FnMut(Clause, &mut Expr)> Limits<F> {
    fn meet(&mut self, clause: Clause, expr: &mut Expr) {
        if has_subquery(expr) {
            self.found.push((clause, expr.clone()));
            (self.f)(clause, expr);
        }
    }
}

impl<F: FnMut(Clause, &mut Expr)> VisitorMut for Limits<F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(|limit| self.meet(Clause::Limit, limit));
            offset.iter_mut().for_each(|offset| self.meet(Clause::Offset, &mut offset.value));
        }
        ControlFlow::Continue(())
    }
}

async fn compute(state: &SessionState, clause: Clause, expr: Expr) -> Result<Option<i64>> {
    let name = if clause == Clause::Limit { "LIMIT" } else { "OFFSET" };
    let mut query: Query = template()?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::Internal("the query template is not a query".into()));
    };
    select.from.clear();
    select.projection = vec![SelectItem::UnnamedExpr(expr)];
    let mut statement = query_statement(Box::new(query));
    translation::translate(&mut statement);
    numbers::type_exponents(&mut statement);
    let plan = typed(state.statement_to_plan(statement).await?)?;
    let batches = DataFrame::new(state.clone(), plan).collect().await?;
    let value = batches.iter().find(|batch| batch.num_rows() == 1).map(|batch| batch.column(0));
    let value = value.ok_or_else(|| Error::Internal(format!("{name} is not a single value")))?;
    let value =
        ScalarValue::try_from_array(value, 0)?.cast_to(&datafusion::arrow::datatypes::DataType::Int64);
    match value
        .map_err(|error| Error::coded("42804", format!("argument of {name} must be a bigint: {error}")))?
    {
        ScalarValue::Int64(Some(value)) if value < 0 => {
            let code = if clause == Clause::Limit { "2201W" } else { "2201X" };
            Err(Error::coded(code, format!("{name} must not be negative")))
        }
        ScalarValue::Int64(value) => Ok(value),
        other => Err(Error::Internal(format!("{name} is {other}"))),
    }
}
