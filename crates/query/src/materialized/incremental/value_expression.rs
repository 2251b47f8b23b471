//! Expressions of two operands that are computed from values: arithmetic of an integer column and a constant, and exact
//! quotients and products of two columns, of which a mean is one.
//!
//! # Invariants
//! - A result is what the expression gives over arrays; where that is an error, and beyond the range of the type, there is none.

use crate::postgres::decimal_division::ExactForm;
use crate::postgres::time_zones::UTC;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};
use entresol_tables::{ColumnBuilder, DataType, Value, arrow_type};

/// Expression of two operands.
#[derive(Debug)]
pub(super) enum ValueExpression {
    /// Column of INTs or BIGINTs, and a constant of its type.
    Arithmetic { column: usize, operator: Operator, constant: i64, of: DataType },
    /// Columns of exact numbers.
    Exact { left: usize, right: usize, form: ExactForm },
}

impl ValueExpression {
    /// Expression by value over the columns of a node, if it is one.
    pub(super) fn of(expr: &Expr, node: &DFSchema) -> Option<ValueExpression> {
        let column = |expr: &Expr| match expr {
            Expr::Column(column) => node.maybe_index_of_column(column),
            _ => None,
        };
        if let Some((form, left, right)) = ExactForm::of(expr, |operand| operand.get_type(node).ok()) {
            return Some(ValueExpression::Exact { left: column(left)?, right: column(right)?, form });
        }
        let Expr::BinaryExpr(binary) = expr else { return None };
        let is_arithmetic = matches!(
            binary.op,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        );
        let place = column(&binary.left).filter(|_| is_arithmetic)?;
        let Expr::Literal(literal, _) = binary.right.as_ref() else { return None };
        let (constant, of) = match (node.field(place).data_type(), literal) {
            (ArrowType::Int32, ScalarValue::Int32(Some(constant))) => (i64::from(*constant), DataType::Int),
            (ArrowType::Int64, ScalarValue::Int64(Some(constant))) => (*constant, DataType::BigInt),
            _ => return None,
        };
        if matches!(binary.op, Operator::Divide | Operator::Modulo) && [0, -1].contains(&constant) {
            // An error, and for one value an overflow.
            return None;
        }
        Some(ValueExpression::Arithmetic { column: place, operator: binary.op, constant, of })
    }

    /// Type of the results.
    pub(super) fn result_type(&self) -> DataType {
        match self {
            ValueExpression::Arithmetic { of, .. } => *of,
            ValueExpression::Exact { form, .. } => {
                let (precision, scale) = form.result();
                DataType::Decimal { precision, scale: scale.unsigned_abs() }
            }
        }
    }

    /// Result for a row with these values of columns.
    pub(super) fn value<'v>(&self, value_of: impl Fn(usize) -> &'v Value) -> Option<Value> {
        match self {
            ValueExpression::Arithmetic { column, operator, constant, of } => {
                let value = match value_of(*column) {
                    Value::Null => return Some(Value::Null),
                    Value::Int(value) => i64::from(*value),
                    Value::BigInt(value) => *value,
                    _ => return None,
                };
                let result = match operator {
                    Operator::Plus => value.checked_add(*constant),
                    Operator::Minus => value.checked_sub(*constant),
                    Operator::Multiply => value.checked_mul(*constant),
                    Operator::Divide => value.checked_div(*constant),
                    Operator::Modulo => value.checked_rem(*constant),
                    _ => None,
                }?;
                match of {
                    DataType::Int => i32::try_from(result).ok().map(Value::Int),
                    _ => Some(Value::BigInt(result)),
                }
            }
            ValueExpression::Exact { left, right, form } => {
                let unscaled = |value: &Value| match value {
                    Value::Int(value) => Some(i128::from(*value)),
                    Value::BigInt(value) => Some(i128::from(*value)),
                    Value::Decimal(value) => Some(*value),
                    _ => None,
                };
                match (value_of(*left), value_of(*right)) {
                    (Value::Null, _) | (_, Value::Null) => Some(Value::Null),
                    (left, right) => form.compute(unscaled(left)?, unscaled(right)?).ok().map(Value::Decimal),
                }
            }
        }
    }

    /// Array of results.
    pub(super) fn array(&self, values: &[Value]) -> ArrayRef {
        let of = self.result_type();
        let mut builder = ColumnBuilder::new(of, &arrow_type(of, UTC), values.len());
        values.iter().for_each(|value| builder.push(value));
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::decimal_division::ExactOperation;
    use crate::postgres::overflow::checked;
    use datafusion::arrow::array::RecordBatch;
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::execution::SessionStateBuilder;
    use datafusion::logical_expr::{binary_expr, col, lit};
    use entresol_tables::value_at;
    use std::sync::Arc;

    /// Result over arrays of one row; none where it is an error.
    fn over_arrays(expr: &Expr, node: &DFSchema, row: &[Value], types: &[DataType]) -> Option<Value> {
        let state = SessionStateBuilder::new().with_default_features().build();
        let physical = state.create_physical_expr(expr.clone(), node).unwrap();
        let physical = checked(physical, node.as_arrow()).unwrap().data;
        let arrays = row.iter().zip(types).map(|(value, of)| {
            let mut builder = ColumnBuilder::new(*of, &arrow_type(*of, UTC), 1);
            builder.push(value);
            builder.finish()
        });
        let batch = RecordBatch::try_new(Arc::new(node.as_arrow().clone()), arrays.collect()).unwrap();
        let array = physical.evaluate(&batch).and_then(|value| value.into_array(1)).ok()?;
        Some(value_at(&array, 0).unwrap())
    }

    #[test]
    fn results_are_those_over_arrays() {
        let types = [
            DataType::Int,
            DataType::BigInt,
            DataType::Decimal { precision: 38, scale: 2 },
            DataType::BigInt,
        ];
        let names = ["a", "b", "c", "d"];
        let fields = names.iter().zip(types).map(|(name, of)| Field::new(*name, arrow_type(of, UTC), true));
        let node = DFSchema::try_from(Schema::new(fields.collect::<Vec<_>>())).unwrap();
        let operators =
            [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo];
        let mut exprs = Vec::new();
        for operator in operators {
            for constant in [i32::MIN, -7, -1, 0, 1, 10, i32::MAX] {
                exprs.push(binary_expr(col("a"), operator, lit(constant)));
                exprs.push(binary_expr(col("b"), operator, lit(i64::from(constant))));
            }
        }
        for operation in [ExactOperation::Quotient, ExactOperation::Average, ExactOperation::Product] {
            exprs.extend([operation.of(col("c"), col("d")), operation.of(col("b"), col("a"))]);
        }
        let integers = [i64::MIN, i64::from(i32::MIN), -13, -1, 0, 1, 12, i64::from(i32::MAX), i64::MAX];
        let (mut results, mut errors) = (0, 0);
        for expr in &exprs {
            let Some(by_value) = ValueExpression::of(expr, &node) else { continue };
            for (at, integer) in integers.into_iter().enumerate() {
                let narrow = i32::try_from(integer).map_or(Value::Null, Value::Int);
                let decimal = Value::Decimal(i128::from(integer) * 10i128.pow(at as u32 * 2));
                for second in [Value::Null, Value::BigInt(0), Value::BigInt(3), Value::BigInt(integer)] {
                    let row = [narrow.clone(), Value::BigInt(integer), decimal.clone(), second];
                    let computed = by_value.value(|column| &row[column]);
                    assert_eq!(computed, over_arrays(expr, &node, &row, &types), "{expr} of {row:?}");
                    if computed.is_some() { results += 1 } else { errors += 1 }
                }
            }
        }
        assert!(results > 1000 && errors > 100, "{results} results, {errors} errors");
    }
}
