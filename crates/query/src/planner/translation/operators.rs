//! Operators and conditions of PostgreSQL that DataFusion's planner lacks, or means otherwise.
//!
//! | written | planned |
//! | --- | --- |
//! | `(a, b) = (c, d)`, `(a, b) <> (c, d)` | `a = c AND b = d`, `a <> c OR b <> d` |
//! | `(a, b) < (c, d)` | `a < c OR (a = c AND b < d)` |
//! | `(a, b) IN ((1, 2), (3, 4))` | comparisons, joined by OR |
//! | `ROW(a, b) IS NULL`, `IS NOT NULL` | `a IS NULL AND b IS NULL`, `a IS NOT NULL AND b IS NOT NULL` |
//! | `-2 ^ 2` | `(-2) ^ 2`: a sign binds more tightly |
//! | `@ x`, `\|/ x`, `\|\|/ x`, `~ x` | `abs(x)`, `sqrt(x)`, `cbrt(x)`, `-1 - x` |
//! | `x && y` of lists | `array_has_any(x, y)` |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN a AND b OR x BETWEEN b AND a` |
//! | `x LIKE p ESCAPE '!'` | `x LIKE like_escape(p, '!')` |
//! | `x LIKE ANY (ARRAY[p, q])`, `x LIKE ALL (…)` | conditions, joined by OR or AND |
//!
//! DataFusion compares rows as structures, in which NULL equals NULL. Operands are written as often as they are compared;
//! those that call functions are marked, so that a volatile one is computed once
//! ([`crate::postgres::bound_operands`]).

use super::build::{call, null, number};
use super::lists::{column_of, list_literal};
use super::types::system_name;
use crate::parser::rewriting::SYMMETRIC;
use crate::parser::visit::visit_expressions;
use crate::postgres::bound_operands::{BOUND, BOUND_OPERAND};
use crate::postgres::similar::LIKE_ESCAPE;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
    Value as Literal,
};
use std::ops::ControlFlow;

/// Operands that an expression names several times.
#[derive(Default)]
pub(super) struct Bindings(i64);

impl Bindings {
    /// Operand, marked if it may be volatile.
    pub(super) fn operand(&mut self, operand: &Expr) -> Expr {
        let calls = visit_expressions(operand, |part| match part {
            Expr::Function(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        if calls.is_continue() {
            return operand.clone();
        }
        self.0 += 1;
        call(BOUND_OPERAND, vec![number(self.0), operand.clone()])
    }

    fn operands(&mut self, operands: &[Expr]) -> Vec<Expr> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    /// Condition on these operands.
    pub(super) fn condition(self, condition: Expr) -> Expr {
        if self.0 == 0 { condition } else { call(BOUND, vec![condition]) }
    }
}

/// Rewrites an expression whose parts are rewritten already.
pub(super) fn rewrite(expr: &mut Expr) {
    let rewritten = match expr {
        Expr::BinaryOp { left, op, right } => binary(left, op, right),
        Expr::InList { expr: tested, list, negated } => row_in_list(tested, list, *negated),
        Expr::IsNull(row) => fields_of(row).map(|fields| all(fields, |field| Expr::IsNull(Box::new(field)))),
        Expr::IsNotNull(row) => {
            fields_of(row).map(|fields| all(fields, |field| Expr::IsNotNull(Box::new(field))))
        }
        Expr::UnaryOp { op, expr: operand } => unary(*op, operand),
        Expr::Between { expr: tested, negated, low, high } => symmetric(tested, *negated, low, high),
        Expr::Like { .. } | Expr::ILike { .. } => return like(expr),
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *expr = rewritten;
    }
}

fn binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    if *op == BinaryOperator::PGOverlap {
        return Some(call("array_has_any", vec![left.clone(), right.clone()]));
    }
    let (left, right) = (fields_of(left)?, fields_of(right)?);
    (left.len() == right.len() && !left.is_empty()).then(|| compared(&left, op, &right)).flatten()
}

/// Fields of a row that is written out.
pub(super) fn fields_of(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Nested(inner) => fields_of(inner),
        Expr::Tuple(fields) => Some(fields.clone()),
        Expr::Function(function) if system_name(&function.name).is_some_and(|name| name == "row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let field = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(field)) => Some(field.clone()),
                _ => None,
            };
            list.args.iter().map(field).collect()
        }
        _ => None,
    }
}

fn operation(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |expr: Expr| match expr {
        Expr::BinaryOp { .. } => Box::new(Expr::Nested(Box::new(expr))),
        other => Box::new(other),
    };
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}

/// Conditions joined by an operator, as a tree that is as flat as it can be.
fn joined(mut conditions: Vec<Expr>, op: &BinaryOperator) -> Expr {
    match conditions.len() {
        0 => Expr::value(Literal::Boolean(*op == BinaryOperator::And)),
        1 => conditions.swap_remove(0),
        many => {
            let rest = conditions.split_off(many / 2);
            Expr::Nested(Box::new(operation(joined(conditions, op), op.clone(), joined(rest, op))))
        }
    }
}

fn all(fields: Vec<Expr>, condition: impl Fn(Expr) -> Expr) -> Expr {
    let conditions = fields.into_iter().map(|field| condition(Expr::Nested(Box::new(field))));
    joined(conditions.collect(), &BinaryOperator::And)
}

/// Comparison of rows, field by field.
pub(super) fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    let each_pair = || left.iter().cloned().zip(right.iter().cloned());
    let each =
        |op: &BinaryOperator| each_pair().map(|(one, other)| operation(one, op.clone(), other)).collect();
    let strict = match op {
        BinaryOperator::Eq => return Some(joined(each(op), &BinaryOperator::And)),
        BinaryOperator::NotEq => return Some(joined(each(op), &BinaryOperator::Or)),
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        _ => return None,
    };
    let mut bindings = Bindings::default();
    let (left, right) = (bindings.operands(left), bindings.operands(right));
    let mut ordered: Option<Expr> = None;
    for (one, other) in left.into_iter().zip(right).rev() {
        ordered = Some(match ordered {
            None => operation(one, op.clone(), other),
            Some(rest) => {
                let decided = operation(one.clone(), strict.clone(), other.clone());
                let tied = operation(operation(one, BinaryOperator::Eq, other), BinaryOperator::And, rest);
                operation(decided, BinaryOperator::Or, tied)
            }
        });
    }
    ordered.map(|ordered| bindings.condition(Expr::Nested(Box::new(ordered))))
}

/// `(a, b) IN ((1, 2), (3, 4))`; `None` if one of the list is no row of as many fields.
fn row_in_list(tested: &Expr, list: &[Expr], negated: bool) -> Option<Expr> {
    let mut bindings = Bindings::default();
    let fields = bindings.operands(&fields_of(tested)?);
    let equal = |row: &Expr| {
        let row = fields_of(row).filter(|row| row.len() == fields.len())?;
        compared(&fields, &BinaryOperator::Eq, &row)
    };
    let any = joined(list.iter().map(equal).collect::<Option<Vec<Expr>>>()?, &BinaryOperator::Or);
    Some(bindings.condition(if negated { not(any) } else { any }))
}

fn not(condition: Expr) -> Expr {
    let inner = Box::new(Expr::Nested(Box::new(condition)));
    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: inner }))
}

fn unary(op: UnaryOperator, operand: &mut Expr) -> Option<Expr> {
    let mut function = |name| Some(call(name, vec![std::mem::replace(operand, null())]));
    match op {
        UnaryOperator::PGAbs => function("abs"),
        UnaryOperator::PGSquareRoot => function("sqrt"),
        UnaryOperator::PGCubeRoot => function("cbrt"),
        UnaryOperator::BitwiseNot => {
            let operand = std::mem::replace(operand, null());
            let all = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number(1)) };
            let inverted = operation(all, BinaryOperator::Minus, Expr::Nested(Box::new(operand)));
            Some(Expr::Nested(Box::new(inverted)))
        }
        UnaryOperator::Minus if is_power(operand) => {
            let mut base = &mut *operand;
            while let Expr::BinaryOp { left, op: BinaryOperator::PGExp, .. } = base {
                base = left.as_mut();
            }
            let positive = Box::new(std::mem::replace(base, null()));
            *base = Expr::UnaryOp { op: UnaryOperator::Minus, expr: positive };
            Some(std::mem::replace(operand, null()))
        }
        _ => None,
    }
}

fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::PGExp, .. })
}

/// `x BETWEEN SYMMETRIC low AND high`: the front door marks the lower bound.
fn symmetric(tested: &Expr, negated: bool, low: &mut Expr, high: &Expr) -> Option<Expr> {
    let mut first = &mut *low;
    loop {
        match first {
            Expr::UnaryOp { op: SYMMETRIC, expr: unmarked } => {
                let unmarked = std::mem::replace(unmarked.as_mut(), null());
                *first = unmarked;
                break;
            }
            Expr::BinaryOp { left, .. } => first = left.as_mut(),
            Expr::Cast { expr, .. } => first = expr.as_mut(),
            Expr::AtTimeZone { timestamp, .. } => first = timestamp.as_mut(),
            Expr::CompoundFieldAccess { root, .. } => first = root.as_mut(),
            _ => return None,
        }
    }
    let mut bindings = Bindings::default();
    let tested = bindings.operand(tested);
    let (low, high) = (&bindings.operand(low), &bindings.operand(high));
    let between = |low: &Expr, high: &Expr| Expr::Between {
        expr: Box::new(tested.clone()),
        negated: false,
        low: Box::new(low.clone()),
        high: Box::new(high.clone()),
    };
    let either = joined(vec![between(low, high), between(high, low)], &BinaryOperator::Or);
    Some(bindings.condition(if negated { not(either) } else { either }))
}

/// Rewrites LIKE of several patterns, and with a character of ESCAPE.
fn like(expr: &mut Expr) {
    let (Expr::Like { negated, any, expr: tested, pattern, escape_char }
    | Expr::ILike { negated, any, expr: tested, pattern, escape_char }) = expr
    else {
        return;
    };
    if let Some(escape) = escape_char.take() {
        let written = std::mem::replace(pattern.as_mut(), null());
        **pattern = call(LIKE_ESCAPE, vec![written, Expr::Value(escape)]);
    }
    let is_all = is_all(pattern);
    if !*any && !is_all {
        return;
    }
    let Some(patterns) = patterns_of(pattern) else { return };
    let mut bindings = Bindings::default();
    let (negated, tested) = (*negated, bindings.operand(tested));
    let is_sensitive = matches!(expr, Expr::Like { .. });
    let condition = |pattern: Expr| {
        let (expr, pattern, any, escape_char) = (Box::new(tested.clone()), Box::new(pattern), false, None);
        if is_sensitive {
            Expr::Like { negated, any, expr, pattern, escape_char }
        } else {
            Expr::ILike { negated, any, expr, pattern, escape_char }
        }
    };
    let op = if is_all { BinaryOperator::And } else { BinaryOperator::Or };
    *expr = bindings.condition(joined(patterns.into_iter().map(condition).collect(), &op));
}

/// Returns true for `ALL (…)`, which the parser takes for a function.
fn is_all(pattern: &Expr) -> bool {
    match pattern {
        Expr::Function(function) => system_name(&function.name).is_some_and(|name| name == "all"),
        _ => false,
    }
}

/// Patterns of ANY or ALL, if they are written out.
fn patterns_of(pattern: &Expr) -> Option<Vec<Expr>> {
    match pattern {
        Expr::Nested(inner) => patterns_of(inner),
        Expr::Array(Array { elem, .. }) => Some(elem.clone()),
        Expr::Function(function) if is_all(pattern) => match &function.args {
            FunctionArguments::List(list) => match list.args.as_slice() {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(patterns))] => patterns_of(patterns),
                _ => None,
            },
            _ => None,
        },
        other if column_of(other).is_some() => None,
        other => {
            let patterns = list_literal(other)?;
            let text = |pattern: String| Expr::value(Literal::SingleQuotedString(pattern));
            Some(patterns.into_iter().map(|pattern| pattern.map_or_else(null, text)).collect())
        }
    }
}
