//! Quoted literals beside numbers, dates and times.
//!
//! | written | the literal is |
//! | --- | --- |
//! | `1 + '2'` | of the type of the other operand |
//! | `date - '2024-01-01'`, `timestamp - '2024-01-01 10:00'` | the same |
//! | `timestamp + '1 day'`, `'1 day' + timestamp` | an interval: two times have no sum |
//!
//! DataFusion knows a string there, and refuses the operation. A literal that is no such value is an error of its value
//! (22P02, 22007), and not of the types.

use crate::postgres::intervals::as_interval;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Planner of arithmetic; see the [module](self).
#[derive(Debug)]
pub(crate) struct UntypedLiterals;

impl ExprPlanner for UntypedLiterals {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DFResult<PlannerResult<RawBinaryExpr>> {
        let is_arithmetic = matches!(
            raw.op,
            BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        if is_arithmetic {
            if is_quoted(&raw.left) {
                raw.left = typed(raw.left, &raw.op, &raw.right, schema);
            } else if is_quoted(&raw.right) {
                raw.right = typed(raw.right, &raw.op, &raw.left, schema);
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}

fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// Literal with the type that it has beside the other operand, if that is a number, date or time.
fn typed(literal: Expr, op: &BinaryOperator, other: &Expr, schema: &DFSchema) -> Expr {
    let of = match other {
        // An integer that fits is an INT, which DataFusion does not say of a literal.
        Expr::Literal(ScalarValue::Int64(Some(value)), _) if i32::try_from(*value).is_ok() => DataType::Int32,
        other => match other.get_type(schema) {
            Ok(of) if of.is_integer() || of.is_floating() => of,
            Ok(of @ (DataType::Date32 | DataType::Timestamp(..))) if *op == BinaryOperator::Minus => of,
            Ok(DataType::Timestamp(..)) if *op == BinaryOperator::Plus => return as_interval(literal),
            _ => return literal,
        },
    };
    cast(literal, of)
}
