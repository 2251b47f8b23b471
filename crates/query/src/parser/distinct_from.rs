//! Precedence of `IS [NOT] DISTINCT FROM`: sqlparser takes all that follows for its right side, `b AND c` of
//! `a IS DISTINCT FROM b AND c` too, where PostgreSQL has an operator that binds closer than NOT.

use crate::parser::visit::visit_expressions_mut;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, VisitMut};
use std::ops::ControlFlow;

/// Returns to AND and OR the operands that `IS DISTINCT FROM` took.
///
/// Parenthesised expressions are nodes of their own: an AND or OR directly below one of these operators was taken.
pub(crate) fn reassociate(tree: &mut impl VisitMut) {
    let visited = visit_expressions_mut(tree, |expr| {
        lift(expr);
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// Lifts an AND or OR out of the operand that it was parsed into; those of inner expressions are lifted already.
fn lift(expr: &mut Expr) {
    let taken = match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => right,
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => expr,
        Expr::BinaryOp { op: BinaryOperator::And, right, .. } if is_or(right) => right,
        _ => return,
    };
    if !matches!(taken.as_ref(), Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. }) {
        return;
    }
    let mut lifted = std::mem::replace(taken.as_mut(), nothing());
    let above_and = matches!(expr, Expr::BinaryOp { .. });
    let first = first_operand(&mut lifted, above_and);
    let operand = std::mem::replace(first, nothing());
    let mut operator = std::mem::replace(expr, nothing());
    match &mut operator {
        Expr::IsDistinctFrom(_, right)
        | Expr::IsNotDistinctFrom(_, right)
        | Expr::UnaryOp { expr: right, .. }
        | Expr::BinaryOp { right, .. } => **right = operand,
        _ => {}
    }
    *first = operator;
    *expr = lifted;
}

/// First operand of ORs, or of ANDs too.
fn first_operand(expr: &mut Expr, of_ors: bool) -> &mut Expr {
    let binds_less = matches!(expr, Expr::BinaryOp { op: BinaryOperator::Or, .. })
        || !of_ors && matches!(expr, Expr::BinaryOp { op: BinaryOperator::And, .. });
    if !binds_less {
        return expr;
    }
    match expr {
        Expr::BinaryOp { left, .. } => first_operand(left, of_ors),
        other => other,
    }
}

/// Expression in the place of one that is moved.
fn nothing() -> Expr {
    Expr::Value(Value::Null.into())
}

fn is_or(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::Or, .. })
}

#[cfg(test)]
mod tests {
    use crate::parser::statement::query_of;

    #[test]
    fn operators_that_bind_less_follow_it() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b OR c", "(a IS DISTINCT FROM b) OR c"),
            ("a IS NOT DISTINCT FROM b AND c AND d OR e", "((a IS NOT DISTINCT FROM b) AND c AND d) OR e"),
            ("x AND a IS DISTINCT FROM b OR c AND d", "(x AND (a IS DISTINCT FROM b)) OR (c AND d)"),
            ("x AND a IS DISTINCT FROM b AND y OR c", "(x AND (a IS DISTINCT FROM b) AND y) OR c"),
            ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
            ("x OR NOT a IS DISTINCT FROM b OR c", "x OR (NOT (a IS DISTINCT FROM b)) OR c"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR e",
            ),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
            ("a IS DISTINCT FROM b = c", "a IS DISTINCT FROM (b = c)"),
        ] {
            assert_eq!(plain(written), plain(meant), "{written}");
        }
    }

    /// Conjuncts and disjuncts of a condition, printed so that AND and OR of many have one level.
    fn plain(condition: &str) -> String {
        use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement};
        fn parts<'e>(expr: &'e Expr, of: &BinaryOperator, found: &mut Vec<&'e Expr>) {
            match expr {
                Expr::Nested(inner) => parts(inner, of, found),
                Expr::BinaryOp { left, op, right } if op == of => {
                    parts(left, of, found);
                    parts(right, of, found);
                }
                other => found.push(other),
            }
        }
        fn printed(expr: &Expr) -> String {
            match expr {
                Expr::Nested(inner) => printed(inner),
                Expr::UnaryOp { op, expr } => format!("{op}[{}]", printed(expr)),
                Expr::IsDistinctFrom(a, b) => format!("distinct[{}, {}]", printed(a), printed(b)),
                Expr::IsNotDistinctFrom(a, b) => format!("alike[{}, {}]", printed(a), printed(b)),
                Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                    let mut found = Vec::new();
                    parts(expr, op, &mut found);
                    let operands: Vec<String> = found.into_iter().map(printed).collect();
                    format!("{op}[{}]", operands.join(", "))
                }
                other => other.to_string(),
            }
        }
        let statement = query_of(&format!("SELECT 1 WHERE {condition}")).unwrap();
        let Some(Statement::Query(query)) = crate::parser::statement::inner(&statement) else { panic!() };
        printed(query.body.as_select().and_then(|select| select.selection.as_ref()).unwrap())
    }
}
