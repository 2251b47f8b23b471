//! OVER behind functions that are neither window functions nor aggregates, which DataFusion would ignore.

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::visit::visit_expressions;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Expr, ObjectNamePart};
use std::ops::ControlFlow;

/// Refuses a statement with such a clause.
pub(crate) fn check(state: &SessionState, statement: &DFStatement) -> Result<()> {
    let statement = match statement {
        DFStatement::Statement(statement) => statement,
        DFStatement::Explain(explain) => return check(state, &explain.statement),
        _ => return Ok(()),
    };
    let visited = visit_expressions(statement.as_ref(), |expr| match without_window(state, expr) {
        None => ControlFlow::Continue(()),
        Some(name) => ControlFlow::Break(name),
    });
    let ControlFlow::Break(name) = visited else { return Ok(()) };
    let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
    Err(Error::coded("42809", message))
}

/// Name of a function with OVER that has no windows.
fn without_window(state: &SessionState, expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    function.over.as_ref()?;
    let name = identifier(function.name.0.last().and_then(ObjectNamePart::as_ident)?);
    let has_windows =
        state.window_functions().contains_key(&name) || state.aggregate_functions().contains_key(&name);
    (!has_windows && state.scalar_functions().contains_key(&name)).then_some(name)
}
