//! Visits of syntax trees, with one compiled copy of the visiting code.
//!
//! sqlparser's `visit` is generic: for each type of visitor, and so for each closure, the compiler makes some
//! 430 functions, one or two for each kind of node. Here visitors are behind a pointer, so there is one such
//! copy for visitors that read and one for those that change, whatever the number of visitors. Cost: an
//! indirect call per visited node.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Visits a tree; returns the visitor's break value.
pub(crate) fn walk<V: Visitor>(tree: &impl Visit, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut stopping = StoppingVisitor { visitor, broke: None };
    let _ = tree.visit(&mut Dynamic(&mut stopping));
    stopping.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Visits a tree as [`walk`] does, with a visitor that changes it.
pub(crate) fn walk_mut<V: VisitorMut>(tree: &mut impl VisitMut, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut stopping = StoppingVisitor { visitor, broke: None };
    let _ = tree.visit(&mut DynamicMut(&mut stopping));
    stopping.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Calls `f` with each expression, outer ones before those in them.
pub(crate) fn visit_expressions<B>(
    tree: &impl Visit,
    f: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk(tree, &mut OnExpression(f))
}

/// Calls `f` with each expression to change it, inner ones before those around them.
pub(crate) fn visit_expressions_mut<B>(
    tree: &mut impl VisitMut,
    f: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk_mut(tree, &mut OnExpression(f))
}

struct OnExpression<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for OnExpression<F> {
    type Break = B;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for OnExpression<F> {
    type Break = B;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

/// Visitor that stores its break value, so that all visitors have one type.
struct StoppingVisitor<'v, V, B> {
    visitor: &'v mut V,
    broke: Option<B>,
}

impl<V, B> StoppingVisitor<'_, V, B> {
    fn note(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        flow.map_break(|broke| self.broke = Some(broke))
    }
}

/// Types for which the visiting code is compiled.
struct Dynamic<'v>(&'v mut dyn Visitor<Break = ()>);
struct DynamicMut<'v>(&'v mut dyn VisitorMut<Break = ()>);

/// Forwards every method of a visitor.
macro_rules! forward {
    ($($method:ident: $node:ty),* $(,)?) => {
        impl<V: Visitor> Visitor for StoppingVisitor<'_, V, V::Break> {
            type Break = ();
            $(fn $method(&mut self, node: &$node) -> ControlFlow<()> {
                let flow = self.visitor.$method(node);
                self.note(flow)
            })*
        }

        impl<V: VisitorMut> VisitorMut for StoppingVisitor<'_, V, V::Break> {
            type Break = ();
            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<()> {
                let flow = self.visitor.$method(node);
                self.note(flow)
            })*
        }

        impl Visitor for Dynamic<'_> {
            type Break = ();
            $(fn $method(&mut self, node: &$node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }

        impl VisitorMut for DynamicMut<'_> {
            type Break = ();
            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }
    };
}

forward! {
    pre_visit_query: Query,
    post_visit_query: Query,
    pre_visit_select: Select,
    post_visit_select: Select,
    pre_visit_relation: ObjectName,
    post_visit_relation: ObjectName,
    pre_visit_table_factor: TableFactor,
    post_visit_table_factor: TableFactor,
    pre_visit_expr: Expr,
    post_visit_expr: Expr,
    pre_visit_statement: Statement,
    post_visit_statement: Statement,
    pre_visit_value: ValueWithSpan,
    post_visit_value: ValueWithSpan,
}

/// Conditions that have to hold all.
pub(crate) fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Nested(inner) => conjuncts(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut all = conjuncts(left);
            all.extend(conjuncts(right));
            all
        }
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn parsed(sql: &str) -> Statement {
        Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0)
    }

    #[test]
    fn expressions_come_outer_first_and_a_break_ends_the_visit() {
        let statement = parsed("SELECT a + b FROM t WHERE EXISTS (SELECT c FROM u)");
        let mut seen = Vec::new();
        let end: ControlFlow<String> = visit_expressions(&statement, |expr| {
            seen.push(expr.to_string());
            if seen.len() == 4 { ControlFlow::Break(expr.to_string()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, ["a + b", "a", "b", "EXISTS (SELECT c FROM u)"]);
        assert_eq!(end, ControlFlow::Break("EXISTS (SELECT c FROM u)".to_string()));
    }

    #[test]
    fn expressions_are_changed_inner_first() {
        let mut statement = parsed("SELECT f(a)");
        let mut seen = Vec::new();
        let end: ControlFlow<()> = visit_expressions_mut(&mut statement, |expr| {
            seen.push(expr.to_string());
            if let Expr::Identifier(name) = expr {
                name.value = "b".to_string();
            }
            ControlFlow::Continue(())
        });
        assert_eq!((seen, end), (vec!["a".to_string(), "f(b)".to_string()], ControlFlow::Continue(())));
        assert_eq!(statement.to_string(), "SELECT f(b)");
    }
}
