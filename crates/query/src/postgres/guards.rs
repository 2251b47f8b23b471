//! Conditions that guard others: `b <> 0 AND a / b > 1`, `kind = 'int' AND value::INT > 5`.
//!
//! DataFusion computes both sides of AND and OR over a whole batch, unless one side decides it alone. So a division that
//! another condition keeps from some rows would fail on them. PostgreSQL promises no order either, but evaluates a side only
//! for the rows that the other has not decided.
//!
//! An expression that may fail and has AND or OR in it becomes a [`GuardedExpr`]: first it is computed as ever, and if a value
//! of it makes that fail (SQLSTATE class 22), once more with each side on the rows that are not decided. There conditions that
//! cannot fail come first. Nothing is lost where nothing fails. Other errors, of a cancelled statement or of memory, stay.
//!
//! A volatile expression is computed in the second way only: `nextval` counts once for a row.

use crate::error::{Error, external};
use crate::postgres::bound_operands::BoundExpr;
use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::boolean::{and_kleene, or_kleene};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::Result as DFResult;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, NegativeExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Class of the SQLSTATEs of values that have no result.
const OF_VALUES: &str = "22";

/// Expression whose conditions guard each other, if it has any.
pub(crate) fn guarded(expr: Arc<dyn PhysicalExpr>) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
    let is_guarded = |node: &Arc<dyn PhysicalExpr>| Ok(node.is::<GuardedExpr>());
    let has_conditions = |node: &Arc<dyn PhysicalExpr>| Ok(logical(node).is_some());
    if !may_fail(&expr) || !expr.exists(has_conditions)? || expr.exists(is_guarded)? {
        return Ok(Transformed::no(expr));
    }
    let careful = Arc::clone(&expr).transform_up(|node| {
        let Some(binary) = logical(&node) else { return Ok(Transformed::no(node)) };
        let mut chain = Chain { op: *binary.op(), operands: Vec::new(), safe: 0 };
        chain.add(binary.left());
        chain.add(binary.right());
        Ok(Transformed::yes(Arc::new(chain) as Arc<dyn PhysicalExpr>))
    });
    let careful = careful.data()?;
    if is_volatile(&expr) {
        return Ok(Transformed::yes(careful));
    }
    Ok(Transformed::yes(Arc::new(GuardedExpr { fast: expr, careful })))
}

/// AND or OR, if an expression is one.
fn logical(expr: &Arc<dyn PhysicalExpr>) -> Option<&BinaryExpr> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    matches!(binary.op(), Operator::And | Operator::Or).then_some(binary)
}

/// Returns true if an expression may be an error for some rows: arithmetic, casts and functions.
fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let fails = |node: &Arc<dyn PhysicalExpr>| {
        let is_arithmetic = node.downcast_ref::<BinaryExpr>().is_some_and(|binary| {
            use Operator::{Divide, Minus, Modulo, Multiply, Plus};
            matches!(binary.op(), Plus | Minus | Multiply | Divide | Modulo)
        });
        let is_other = node.is::<CastExpr>()
            || node.is::<NegativeExpr>()
            || node.is::<ScalarFunctionExpr>()
            || node.is::<BoundExpr>();
        Ok(is_arithmetic || is_other)
    };
    expr.exists(fails).unwrap_or(true)
}

/// Expression that is computed with care if a value of it fails.
#[derive(Debug)]
struct GuardedExpr {
    fast: Arc<dyn PhysicalExpr>,
    /// The same with [`Chain`]s.
    careful: Arc<dyn PhysicalExpr>,
}

impl PartialEq for GuardedExpr {
    fn eq(&self, other: &GuardedExpr) -> bool {
        self.fast.eq(&other.fast)
    }
}

impl Eq for GuardedExpr {}

impl Hash for GuardedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fast.hash(state);
    }
}

impl fmt::Display for GuardedExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fast.fmt(f)
    }
}

impl PhysicalExpr for GuardedExpr {
    fn return_field(&self, schema: &Schema) -> DFResult<FieldRef> {
        self.fast.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        self.fast.evaluate(batch).or_else(|error| {
            let error = Error::from(error);
            if error.sqlstate().starts_with(OF_VALUES) {
                self.careful.evaluate(batch)
            } else {
                Err(external(error))
            }
        })
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.fast, &self.careful]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DFResult<Arc<dyn PhysicalExpr>> {
        let careful = children.pop().unwrap_or_else(|| Arc::clone(&self.careful));
        let fast = children.pop().unwrap_or_else(|| Arc::clone(&self.fast));
        Ok(Arc::new(GuardedExpr { fast, careful }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fast.fmt_sql(f)
    }
}

/// Conditions of a chain of ANDs or ORs, each of which is evaluated for the rows that those before have not decided.
#[derive(Debug)]
struct Chain {
    op: Operator,
    operands: Vec<Arc<dyn PhysicalExpr>>,
    /// Number of operands that cannot fail, which come first.
    safe: usize,
}

impl Chain {
    /// Adds a condition, or those of a chain of the same kind.
    fn add(&mut self, operand: &Arc<dyn PhysicalExpr>) {
        match operand.downcast_ref::<Chain>() {
            Some(chain) if chain.op == self.op => chain.operands.iter().for_each(|operand| self.add(operand)),
            _ if may_fail(operand) => self.operands.push(Arc::clone(operand)),
            _ => {
                self.operands.insert(self.safe, Arc::clone(operand));
                self.safe += 1;
            }
        }
    }

    /// Rows that are not decided yet.
    fn open(&self, result: &BooleanArray) -> BooleanArray {
        let decides = self.op == Operator::Or;
        let is_open = |row: usize| result.is_null(row) || result.value(row) != decides;
        BooleanArray::new(BooleanBuffer::collect_bool(result.len(), is_open), None)
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Chain) -> bool {
        self.op == other.op && self.operands == other.operands
    }
}

impl Eq for Chain {}

impl Hash for Chain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, &self.operands).hash(state);
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            if at > 0 {
                write!(f, " {} ", self.op)?;
            }
            write!(f, "({operand})")?;
        }
        Ok(())
    }
}

impl PhysicalExpr for Chain {
    fn return_field(&self, _schema: &Schema) -> DFResult<FieldRef> {
        Ok(Arc::new(Field::new(self.to_string(), DataType::Boolean, true)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        let decided = self.op == Operator::And;
        let mut result = BooleanArray::from(vec![decided; batch.num_rows()]);
        for operand in &self.operands {
            let value = operand.evaluate_selection(batch, &self.open(&result))?;
            let value = cast(&value.into_array(batch.num_rows())?, &DataType::Boolean)?;
            let value = value.as_boolean();
            result = match self.op {
                Operator::And => and_kleene(&result, value)?,
                _ => or_kleene(&result, value)?,
            };
        }
        Ok(ColumnarValue::Array(Arc::new(result)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.operands.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        operands: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DFResult<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Chain { op: self.op, operands, safe: self.safe }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{Volatility, create_udf};
    use datafusion::physical_expr::expressions::{col, lit};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Values of `b <op> 0 <chain> 6 / b > 2`, and of the same the other way round.
    fn values(op: Operator, chain: Operator, b: Vec<Option<i64>>) -> Vec<Vec<Option<bool>>> {
        let b: ArrayRef = Arc::new(Int64Array::from(b));
        let batch = RecordBatch::try_from_iter([("b", b)]).unwrap();
        let binary = |left, op, right| Arc::new(BinaryExpr::new(left, op, right)) as Arc<dyn PhysicalExpr>;
        let number = |number: i64| lit(ScalarValue::from(number));
        let b = || col("b", batch.schema_ref()).unwrap();
        let guard = || binary(b(), op, number(0));
        let divided = || binary(binary(number(6), Operator::Divide, b()), Operator::Gt, number(2));
        let both = [binary(guard(), chain, divided()), binary(divided(), chain, guard())];
        let value = |expr: Arc<dyn PhysicalExpr>| {
            let guarded = guarded(expr).unwrap();
            assert!(guarded.transformed);
            let value = guarded.data.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap();
            value.as_boolean().iter().collect()
        };
        both.into_iter().map(value).collect()
    }

    #[test]
    fn a_condition_keeps_rows_from_another() {
        let b = vec![Some(1), Some(0), Some(5), None, Some(0), Some(2)];
        let expected = [Some(true), Some(false), Some(false), None, Some(false), Some(true)];
        assert_eq!(values(Operator::NotEq, Operator::And, b.clone()), [expected, expected]);
        let expected = [Some(true), Some(true), Some(false), None, Some(true), Some(true)];
        assert_eq!(values(Operator::Eq, Operator::Or, b), [expected, expected]);
    }

    /// Number of calls of a function that fails in `b > 0 AND failing(b)`, and the SQLSTATE of the error.
    fn calls(sqlstate: &'static str, volatility: Volatility) -> (usize, String) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let b: ArrayRef = Arc::new(Int64Array::from(vec![1, 0]));
        let batch = RecordBatch::try_from_iter([("b", b)]).unwrap();
        let b = || col("b", batch.schema_ref()).unwrap();
        let call = move |_: &[ColumnarValue]| -> DFResult<ColumnarValue> {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(external(Error::coded(sqlstate, "failing")))
        };
        let function =
            create_udf("failing", vec![DataType::Int64], DataType::Boolean, volatility, Arc::new(call));
        let field = Arc::new(Field::new("failing", DataType::Boolean, true));
        let call = ScalarFunctionExpr::new("failing", Arc::new(function), vec![b()], field, Arc::default());
        let positive = Arc::new(BinaryExpr::new(b(), Operator::Gt, lit(ScalarValue::from(0_i64))));
        let both = Arc::new(BinaryExpr::new(positive, Operator::And, Arc::new(call)));
        let guarded = guarded(both).unwrap();
        assert!(guarded.transformed);
        let error = Error::from(guarded.data.evaluate(&batch).unwrap_err());
        (calls.load(Ordering::Relaxed), error.sqlstate().to_owned())
    }

    #[test]
    fn only_errors_of_values_are_tried_again_and_nothing_volatile_is() {
        assert_eq!(calls("22012", Volatility::Immutable), (2, "22012".to_owned()));
        assert_eq!(calls("57014", Volatility::Immutable), (1, "57014".to_owned()));
        assert_eq!(calls("53200", Volatility::Immutable), (1, "53200".to_owned()));
        assert_eq!(calls("22012", Volatility::Volatile), (1, "22012".to_owned()));
    }

    #[test]
    fn an_error_that_nothing_guards_stays() {
        let b: ArrayRef = Arc::new(Int64Array::from(vec![1, 0]));
        let batch = RecordBatch::try_from_iter([("b", b)]).unwrap();
        let b = || col("b", batch.schema_ref()).unwrap();
        let binary = |left, op, right| Arc::new(BinaryExpr::new(left, op, right)) as Arc<dyn PhysicalExpr>;
        let number = |number: i64| lit(ScalarValue::from(number));
        let divided = binary(binary(number(6), Operator::Divide, b()), Operator::Gt, number(2));
        let expr = binary(binary(b(), Operator::Lt, number(5)), Operator::And, divided);
        assert!(guarded(expr).unwrap().data.evaluate(&batch).is_err());
        let plain = binary(b(), Operator::Gt, number(0));
        assert!(!guarded(plain).unwrap().transformed);
    }
}
