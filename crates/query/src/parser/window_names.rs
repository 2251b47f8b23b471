//! Named windows: `OVER (w ORDER BY k)` and `w2 AS (w ORDER BY k)` get what `WINDOW w AS (…)` says, which DataFusion
//! would leave out; it knows `OVER w` itself.

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::visit::{visit_expressions_mut, walk_mut};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Query, SetExpr, VisitMut, VisitorMut, WindowSpec,
    WindowType,
};
use std::ops::ControlFlow;

/// Puts the definitions of windows where they are named.
pub(crate) fn resolve(tree: &mut impl VisitMut) -> Result<()> {
    match walk_mut(tree, &mut WindowVisitor) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct WindowVisitor;

impl VisitorMut for WindowVisitor {
    type Break = Error;

    /// Inner queries are left first, so what still has a name here is named in this one.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        match resolve_in(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn resolve_in(query: &mut Query) -> Result<()> {
    let mut windows: Vec<(String, WindowSpec)> = Vec::new();
    if let SetExpr::Select(select) = query.body.as_mut() {
        for NamedWindowDefinition(name, definition) in &mut select.named_window {
            let NamedWindowExpr::WindowSpec(spec) = definition else { continue };
            merge(spec, &windows)?;
            windows.push((identifier(name), spec.clone()));
        }
    }
    let visited = visit_expressions_mut(query, |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let merged = match &mut function.over {
            Some(WindowType::WindowSpec(spec)) => merge(spec, &windows),
            _ => Ok(()),
        };
        merged.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    });
    match visited {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Gives a window the partition and the order of the one that it names.
fn merge(spec: &mut WindowSpec, windows: &[(String, WindowSpec)]) -> Result<()> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let named = windows.iter().find(|(defined, _)| *defined == identifier(&name));
    let Some((_, named)) = named else { return Err(unknown(&name)) };
    let refused = |what: &str| Error::coded("42P20", format!("cannot {what} window \"{name}\""));
    if !spec.partition_by.is_empty() {
        return Err(refused("override PARTITION BY clause of"));
    }
    if !spec.order_by.is_empty() && !named.order_by.is_empty() {
        return Err(refused("override ORDER BY clause of"));
    }
    if named.window_frame.is_some() {
        let message = format!("cannot copy window \"{name}\" because it has a frame clause");
        return Err(Error::coded("42P20", message));
    }
    spec.partition_by.clone_from(&named.partition_by);
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&named.order_by);
    }
    Ok(())
}

fn unknown(name: &Ident) -> Error {
    Error::coded("42704", format!("window \"{}\" does not exist", identifier(name)))
}
