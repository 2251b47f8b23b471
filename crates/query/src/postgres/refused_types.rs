//! Operations on types that PostgreSQL does not have, and DataFusion computes with the numbers behind them.
//!
//! | written | refused |
//! | --- | --- |
//! | `date::int`, `1::timestamp` | 42846 |
//! | `date > 5` | 42883 |
//! | `CASE WHEN 1 THEN`, UNION of a number and a string | 42804 |

use crate::error::{Error, external};
use crate::postgres::type_names::listed;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan};
use std::sync::Arc;

fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Timestamp(..))
}

/// Tells whether one type is a number and the other a date or time.
fn are_apart(one: &DataType, other: &DataType) -> bool {
    is_time(one) && other.is_numeric() || one.is_numeric() && is_time(other)
}

/// Refuses a cast or a comparison of dates and times with numbers.
pub(crate) fn check(expr: &Expr, schema: &DFSchema) -> DFResult<()> {
    match expr {
        Expr::Cast(Cast { expr, field }) => {
            let from = expr.get_type(schema)?;
            if are_apart(&from, field.data_type()) {
                let (from, to) = (listed(&[from]), listed(&[field.data_type().clone()]));
                let message = format!("cannot cast type {from} to {to}");
                return Err(external(Error::coded("42846", message)));
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (one, other) = (left.get_type(schema)?, right.get_type(schema)?);
            if are_apart(&one, &other) {
                let (one, other) = (listed(&[one]), listed(&[other]));
                let message = format!("operator does not exist: {one} {op} {other}");
                return Err(external(Error::coded("42883", message)));
            }
        }
        Expr::Case(case) if case.expr.is_none() => {
            return case.when_then_expr.iter().try_for_each(|(when, _)| check_condition(when, schema));
        }
        _ => {}
    }
    Ok(())
}

/// Tells whether an expression is a value without a type of its own: NULL, or a string in quotes.
fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_unknown(&alias.expr),
        Expr::Literal(value, _) => value.is_null() || value.data_type().is_string(),
        Expr::Placeholder(_) => true,
        _ => false,
    }
}

/// Refuses a condition of CASE that is not a truth value.
fn check_condition(when: &Expr, schema: &DFSchema) -> DFResult<()> {
    match when.get_type(schema) {
        Ok(DataType::Boolean | DataType::Null) | Err(_) => Ok(()),
        Ok(_) if is_unknown(when) => Ok(()),
        Ok(other) => {
            let of = listed(&[other]);
            let message = format!("argument of CASE/WHEN must be type boolean, not type {of}");
            Err(external(Error::coded("42804", message)))
        }
    }
}

/// Kind of types that have a common type; `None` if that is left to DataFusion.
fn kind(of: &DataType) -> Option<u8> {
    match of {
        of if of.is_numeric() => Some(0),
        of if of.is_string() => Some(1),
        DataType::Boolean => Some(2),
        of if is_time(of) => Some(3),
        DataType::Interval(_) | DataType::Duration(_) => Some(4),
        _ => None,
    }
}

/// Tells whether a column of a query has no type of its own.
fn is_unknown_column(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(at).is_some_and(is_unknown),
        LogicalPlan::Distinct(Distinct::All(input)) => is_unknown_column(input, at),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_unknown_column(input, at)),
        _ => false,
    }
}

/// Refuses a UNION whose columns have no common type.
pub(crate) fn check_union(inputs: &[Arc<LogicalPlan>]) -> DFResult<()> {
    let width = inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    for at in 0..width {
        let typed = inputs.iter().filter(|input| !is_unknown_column(input, at));
        let types: Vec<&DataType> = typed.map(|input| input.schema().field(at).data_type()).collect();
        let differs =
            |pair: &&[&DataType]| kind(pair[0]).zip(kind(pair[1])).is_some_and(|(one, other)| one != other);
        if let Some([one, other]) = types.windows(2).find(differs) {
            let (one, other) = (listed(&[(*one).clone()]), listed(&[(*other).clone()]));
            let message = format!("UNION types {one} and {other} cannot be matched");
            return Err(external(Error::coded("42804", message)));
        }
    }
    Ok(())
}
