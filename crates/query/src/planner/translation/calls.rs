//! Calls of functions that DataFusion lacks, and that are others of it:
//!
//! | written | planned |
//! | --- | --- |
//! | `div(a, b)` | `((a - a % b) / b)::numeric(38, 0)` |
//! | `array_upper(a, n)`, `array_lower(a, n)` | `array_length(a, n)`, 1 where it has a value |
//! | `make_timestamptz(y, …, s)`, `make_timestamptz(y, …, s, zone)` | casts of `make_timestamp(y, …, s)`, of an instant |
//! | `to_timestamp(seconds)` | `to_timestamp(seconds::double precision)`: of an integer DataFusion makes a local time |
//! | `array_fill(x, ARRAY[n])` | `array_repeat(x, n)` |
//! | `percentile_disc(p) WITHIN GROUP (ORDER BY x)`, `percentile_cont`, `mode` | `percentile_disc_of(array_agg(x ORDER BY x), p)` |

use super::build::{call, cast_to, null, number};
use super::operators::Bindings;
use super::types::timestamp;
use crate::postgres::ordered_sets::AGGREGATES;
use crate::postgres::time_constructors::INSTANT_IN;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CaseWhen, DataType as SqlType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident, ObjectName, TimezoneInfo,
};

/// Digits of a NUMERIC.
const DIGITS: u64 = 38;

/// Expression in the place of a call; none for other functions.
pub(super) fn replaced(name: &str, function: &mut Function) -> Option<Expr> {
    if AGGREGATES.contains(&name) && !function.within_group.is_empty() {
        return of_ordered_set(name, function);
    }
    if name == "make_timestamptz" {
        return Some(instant(function));
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    if name == "to_timestamp"
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(seconds))] = list.args.as_mut_slice()
    {
        *seconds = cast_to(std::mem::replace(seconds, null()), SqlType::Double(ExactNumberInfo::None));
        return None;
    }
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(one)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(other)),
    ] = list.args.as_slice()
    else {
        return None;
    };
    let length = || cast_to(call("array_length", vec![one.clone(), other.clone()]), SqlType::Int(None));
    Some(match name {
        "div" => quotient(one, other),
        "array_upper" => length(),
        "array_lower" => first_where(length()),
        "array_fill" => match other {
            Expr::Array(Array { elem, .. }) if elem.len() == 1 => {
                call("array_repeat", vec![one.clone(), elem[0].clone()])
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Instant of the fields of a local time in the session's zone, or in that of the last argument.
fn instant(function: &Function) -> Expr {
    let in_session = matches!(&function.args, FunctionArguments::List(list) if list.args.len() == 6);
    let maker = if in_session { "make_timestamp" } else { INSTANT_IN };
    let made = Function { name: ObjectName::from(vec![Ident::new(maker)]), ..function.clone() };
    cast_to(Expr::Function(made), timestamp(TimezoneInfo::WithTimeZone))
}

/// Quotient without its fraction: exact, as the dividend is a multiple of the divisor.
fn quotient(dividend: &Expr, divisor: &Expr) -> Expr {
    let mut bindings = Bindings::default();
    let (dividend, divisor) = (bindings.operand(dividend), bindings.operand(divisor));
    let nested = |expr: Expr| Box::new(Expr::Nested(Box::new(expr)));
    let operation = |left: Expr, op: BinaryOperator, right: Expr| Expr::BinaryOp {
        left: nested(left),
        op,
        right: nested(right),
    };
    let rest = operation(dividend.clone(), BinaryOperator::Modulo, divisor.clone());
    let multiple = operation(dividend, BinaryOperator::Minus, rest);
    let exact = SqlType::Numeric(ExactNumberInfo::PrecisionAndScale(DIGITS, 0));
    let quotient = cast_to(operation(multiple, BinaryOperator::Divide, divisor), exact);
    bindings.condition(quotient)
}

/// Literal 1 where an expression has a value.
fn first_where(expr: Expr) -> Expr {
    let condition = Expr::IsNotNull(Box::new(expr));
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result: number(1) }],
        else_result: None,
    }
}

/// Element of the list of an aggregate's values.
fn of_ordered_set(name: &str, function: &mut Function) -> Option<Expr> {
    let [order] = function.within_group.as_slice() else { return None };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let fractions = std::mem::take(&mut list.args).into_iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(fraction)) => fraction,
        // No fraction: the planner says so.
        _ => null(),
    });
    let mut fractions: Vec<Expr> = fractions.collect();
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(order.expr.clone()))];
    list.clauses = vec![FunctionArgumentClause::OrderBy(std::mem::take(&mut function.within_group))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let values = Expr::Function(function.clone());
    fractions.insert(0, values);
    Some(call(&format!("{name}_of"), fractions))
}
