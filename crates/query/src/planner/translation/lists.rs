//! Lists, and columns of the catalog that have them: array literals, ANY and ALL, vectors, flags.

use super::build::{call, null, number, text};
use super::types::operator;
use crate::catalog::registry::REGISTRY;
use crate::parser::visit::{visit_expressions, walk_mut};
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, Ident, UnaryOperator, Value as Literal, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Catalog columns with vectors, whose elements PostgreSQL counts from 0.
const VECTORS: [&str; 5] = ["indkey", "indclass", "indcollation", "indoption", "proargtypes"];

/// Elements of `'{a,"b c",NULL}'`.
pub(super) fn list_literal(expr: &Expr) -> Option<Vec<Option<String>>> {
    let Expr::Value(value) = expr else { return None };
    let Literal::SingleQuotedString(text) = &value.value else { return None };
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let mut chars = inner.chars();
    let (mut word, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut finish = |word: &mut String, was_quoted: &mut bool| {
        let element = if *was_quoted { std::mem::take(word) } else { std::mem::take(word).trim().to_owned() };
        let is_null = !*was_quoted && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(element));
        *was_quoted = false;
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            '"' => (quoted, was_quoted) = (!quoted, true),
            ',' if !quoted => finish(&mut word, &mut was_quoted),
            // Nested lists are not parsed.
            '{' | '}' if !quoted => return None,
            c => word.push(c),
        }
    }
    finish(&mut word, &mut was_quoted);
    Some(elements)
}

/// Rewrites `x op ANY(list)`, `x op ALL(list)` for = and <>.
pub(super) fn quantified(expr: &mut Expr) {
    let (left, op, right, wanted, negated) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, BinaryOperator::Eq, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, BinaryOperator::NotEq, true),
        _ => return,
    };
    if let BinaryOperator::PGCustomBinaryOperator(name) = op
        && let Some(known) = name.last().and_then(|symbol| operator(symbol))
    {
        *op = known;
    }
    if *op != wanted || matches!(**right, Expr::Subquery(_)) {
        return;
    }
    let list = match right.as_mut() {
        Expr::Nested(inner) => inner.as_mut(),
        other => other,
    };
    let elements = if let Expr::Array(Array { elem, .. }) = list {
        Some(std::mem::take(elem))
    } else {
        list_literal(list)
            .map(|words| words.into_iter().map(|word| word.map_or_else(null, |word| text(&word))).collect())
    };
    let left = std::mem::replace(left.as_mut(), null());
    *expr = match elements {
        Some(elements) if elements.is_empty() => Expr::value(Literal::Boolean(negated)),
        Some(list) => Expr::InList { expr: Box::new(left), list, negated },
        None => {
            let has = call("array_has", vec![std::mem::replace(list, null()), left]);
            if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) } } else { has }
        }
    };
}

/// The name of a column.
pub(super) fn column_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

pub(super) fn is_vector(expr: &Expr) -> bool {
    column_of(expr).is_some_and(|name| VECTORS.iter().any(|vector| name.value.eq_ignore_ascii_case(vector)))
}

/// Returns true if the catalog has a column of this name whose values are lists.
pub(super) fn is_list(expr: &Expr) -> bool {
    has_type(expr, |word| word.ends_with("[]"))
}

/// Returns true if the catalog has a column of this name with such a type. Short names are excluded: user
/// tables may have them too.
pub(super) fn has_type(expr: &Expr, fits: fn(&str) -> bool) -> bool {
    let Some(name) = column_of(expr) else { return false };
    name.value.len() > 5
        && REGISTRY.all().any(|(_, relation)| {
            relation.columns().any(|(column, word)| fits(word) && name.value.eq_ignore_ascii_case(column))
        })
}

/// Rewrites `'t'` and `'f'` beside a flag.
pub(super) fn flag_of_literal(expr: &mut Expr) {
    let Expr::Value(value) = expr else { return };
    let Literal::SingleQuotedString(text) = &value.value else { return };
    let flag = match text.as_str() {
        "t" | "true" => true,
        "f" | "false" => false,
        _ => return,
    };
    *expr = Expr::value(Literal::Boolean(flag));
}

/// Rewrites `'{a,1}'` into a list of strings.
pub(super) fn texts_of_literal(expr: &mut Expr) {
    let Some(words) = list_literal(expr) else { return };
    let elem = words.into_iter().map(|word| word.map_or_else(null, |word| text(&word))).collect();
    *expr = Expr::Array(Array { elem, named: true });
}

/// Rewrites `'{1,2}'` into a list.
pub(super) fn list_of_literal(expr: &mut Expr) {
    let Some(words) = list_literal(expr) else { return };
    let element = |word: Option<String>| match word {
        None => null(),
        Some(word) => word.parse().map_or_else(|_| text(&word), number),
    };
    let elem: Vec<Expr> = words.into_iter().map(element).collect();
    if !elem.is_empty() {
        *expr = Expr::Array(Array { elem, named: true });
    }
}

/// Makes calls of lists that are written out with columns: DataFusion looks these up in the innermost query alone.
pub(super) fn call_lists(tree: &mut impl VisitMut) {
    let visited = walk_mut(tree, &mut ListCalls);
    debug_assert!(visited.is_continue());
}

struct ListCalls;

impl VisitorMut for ListCalls {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Array(Array { elem, .. }) = expr else { return ControlFlow::Continue(()) };
        let has_column = visit_expressions(&*elem, |expr| match column_of(expr) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        });
        if has_column.is_break() {
            *expr = call("make_array", std::mem::take(elem));
        }
        ControlFlow::Continue(())
    }
}
