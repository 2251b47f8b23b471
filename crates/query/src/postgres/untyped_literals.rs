//! Quoted literals beside numbers: `1 + '2'` is a sum of integers, as the literal has the type of the other operand.
//!
//! DataFusion knows a string there, and refuses the sum. A literal that is no number is an error of its value (22P02),
//! and not of the types.

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
                raw.left = typed(raw.left, &raw.right, schema);
            } else if is_quoted(&raw.right) {
                raw.right = typed(raw.right, &raw.left, schema);
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}

fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// Literal with the type of the other operand, if that is a number.
fn typed(literal: Expr, other: &Expr, schema: &DFSchema) -> Expr {
    let of = match other {
        // An integer that fits is an INT, which DataFusion does not say of a literal.
        Expr::Literal(ScalarValue::Int64(Some(value)), _) if i32::try_from(*value).is_ok() => DataType::Int32,
        other => match other.get_type(schema) {
            Ok(of) if of.is_integer() || of.is_floating() => of,
            _ => return literal,
        },
    };
    cast(literal, of)
}
