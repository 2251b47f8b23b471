//! Checked arithmetic: overflow fails (22003) instead of wrapping, or of becoming infinite
//! ([`crate::postgres::floats`]).
//!
//! DataFusion's `+`, `-`, `*` and unary minus wrap around; `UPDATE t SET n = n + 1` would then store
//! nonsense, and `WHERE n + 1 > 0` choose the wrong rows.
//!
//! - [`CheckedArithmetic`], the last rule of the physical optimizer, makes arithmetic checked in projections,
//!   in filters, and in arguments and keys of aggregates.
//! - [`CheckedConstants`], an analyzer rule after DataFusion's type coercion, does so for what DataFusion
//!   computes when it plans.
//! - Concatenation of strings becomes a function with a bound there ([`crate::postgres::concatenation`]).
//! - Sums of BIGINTs are NUMERICs ([`crate::postgres::number_types`]); those of INTs need no check: no table
//!   has the 2^32 rows for them to leave a BIGINT.
//!
//! Checked expressions may fail for rows that another condition rules out: see [`crate::postgres::guards`].
//!
//! Casts between numbers, division of integers, `abs` and the like are checked by DataFusion. Keys of merges and joins,
//! and sums over windows still wrap.

use crate::postgres::bound_operands::bound;
use crate::postgres::concatenation;
use crate::postgres::floats;
use crate::postgres::guards::guarded;
use crate::postgres::plan_expressions::changed;
use crate::postgres::rewriting::rewritten;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, FieldRef, Schema,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    self, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal, NegativeExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use entresol_tables::{DecimalOperand, DecimalOperation, decimal_operation};
use std::sync::Arc;

/// The rule for arithmetic; see the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl PhysicalOptimizerRule for CheckedArithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match changed(node.as_ref(), &checked)? {
                Some(changed) => Transformed::yes(changed),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces the arithmetic of an expression by checked arithmetic, which conditions keep from the rows that they rule out;
/// marked operands are computed once ([`crate::postgres::bound_operands`]).
pub(crate) fn checked(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
    checked_arithmetic(expr, schema)?.transform_data(|expr| bound(expr, guarded))?.transform_data(guarded)
}

fn checked_arithmetic(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|node| {
        if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
            let data_type = negative.arg().data_type(schema)?;
            if !data_type.is_integer() {
                return Ok(Transformed::no(node));
            }
            let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
            let argument = Arc::clone(negative.arg());
            let checked = BinaryExpr::new(zero, Operator::Minus, argument).with_fail_on_overflow(true);
            return Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>));
        }
        if let Some(cast) = node.downcast_ref::<CastExpr>()
            && cast.cast_type().is_floating()
            && cast.expr().data_type(schema)? == DataType::Utf8
        {
            let input = floats::input(cast.cast_type());
            return called(input, vec![Arc::clone(cast.expr())], node.return_field(schema)?);
        }
        let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(node)) };
        if is_checked(*binary.op()) {
            let operands = vec![Arc::clone(binary.left()), Arc::clone(binary.right())];
            let of = operands[0].data_type(schema)?;
            let other = operands[1].data_type(schema)?;
            let are_decimals = is_decimal(&of) && is_decimal(&other) && *binary.op() != Operator::Divide;
            if are_decimals || of.is_floating() && other == of {
                let operator = ScalarUDF::from(CheckedOperator::new(*binary.op()));
                return called(operator, operands, node.return_field(schema)?);
            }
        }
        if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
            return Ok(Transformed::no(node));
        }
        let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
        let checked = BinaryExpr::new(left, *binary.op(), right).with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })
}

fn is_decimal(of: &DataType) -> bool {
    matches!(of, DataType::Decimal128(..))
}

/// Returns true for the operators of [`CheckedOperator`].
fn is_checked(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
}

/// Call of a function in a physical plan.
fn called(
    function: ScalarUDF,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    returned: FieldRef,
) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
    let (name, options) = (function.name().to_owned(), Arc::new(ConfigOptions::default()));
    let call = ScalarFunctionExpr::new(&name, Arc::new(function), arguments, returned, options);
    Ok(Transformed::yes(Arc::new(call)))
}

/// The rule for constants; see the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedConstants {
    /// Function of `||`, with its bound.
    pub(crate) concatenation: Arc<ScalarUDF>,
}

impl AnalyzerRule for CheckedConstants {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, |expr, schema| match expr {
            Expr::BinaryExpr(binary) => match concatenation::called(&self.concatenation, &binary, schema) {
                Some(call) => Transformed::yes(call),
                None => checked_constant(Expr::BinaryExpr(binary), schema),
            },
            other => checked_constant(other, schema),
        })
    }

    fn name(&self) -> &str {
        "checked_constants"
    }
}

/// Expression whose constants are computed with checks.
pub(crate) fn with_checked_constants(expr: Expr, schema: &DFSchema) -> DFResult<Expr> {
    expr.transform_up(|expr| Ok(checked_constant(expr, schema))).data()
}

fn checked_constant(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(logical_expr::BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) if are_constant(&left, &right, schema) => Transformed::yes(CheckedOperator::of(op, *left, *right)),
        Expr::BinaryExpr(logical_expr::BinaryExpr { left, op, right })
            if is_checked(op) && are_constant_floats(&left, &right, schema) =>
        {
            Transformed::yes(CheckedOperator::of(op, *left, *right))
        }
        Expr::Cast(cast)
            if cast.field.data_type().is_floating()
                && is_constant(&cast.expr)
                && cast.expr.get_type(schema).is_ok_and(|of| of == DataType::Utf8) =>
        {
            Transformed::yes(floats::input(cast.field.data_type()).call(vec![*cast.expr]))
        }
        Expr::Negative(inner) if are_constant(&inner, &inner, schema) => {
            match inner.get_type(schema).and_then(|of| ScalarValue::new_zero(&of)) {
                Ok(zero) => {
                    Transformed::yes(CheckedOperator::of(Operator::Minus, Expr::Literal(zero, None), *inner))
                }
                Err(_) => Transformed::no(Expr::Negative(inner)),
            }
        }
        other => Transformed::no(other),
    }
}

/// Returns true if both are integers that DataFusion would compute at planning time.
fn are_constant(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let is_integer = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of.is_integer());
    is_constant(left) && is_constant(right) && is_integer(left) && is_integer(right)
}

/// The same for two DOUBLEs, or two REALs.
fn are_constant_floats(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(of), Ok(other)) = (left.get_type(schema), right.get_type(schema)) else { return false };
    of.is_floating() && of == other && is_constant(left) && is_constant(right)
}

/// Value of a literal, or of the cast of one.
fn value_of(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => value_of(&cast.expr)?.cast_to(cast.field.data_type()).ok(),
        _ => None,
    }
}

/// Returns true if DataFusion would compute it at planning time.
fn is_constant(expr: &Expr) -> bool {
    !expr.is_volatile()
        && !expr
            .exists(|part| {
                Ok(!matches!(
                    part,
                    Expr::Literal(..)
                        | Expr::Cast(_)
                        | Expr::Negative(_)
                        | Expr::BinaryExpr(_)
                        | Expr::ScalarFunction(_)
                        | Expr::Case(_)
                        | Expr::Alias(_)
                ))
            })
            .unwrap_or(true)
}

/// Operator on two numbers of one type, integers or floating-point numbers, or on two decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedOperator {
    op: Operator,
    signature: Signature,
}

impl CheckedOperator {
    fn new(op: Operator) -> CheckedOperator {
        CheckedOperator { op, signature: Signature::any(2, Volatility::Immutable) }
    }

    /// Value of the operation where it is known, so that long sums stay short; an overflow fails at
    /// execution.
    fn of(op: Operator, left: Expr, right: Expr) -> Expr {
        if let (Some(one), Some(other)) = (value_of(&left), value_of(&right))
            && let Ok(value) = computed(op, &one, &other)
        {
            return Expr::Literal(value, None);
        }
        ScalarUDF::from(CheckedOperator::new(op)).call(vec![left, right])
    }
}

impl ScalarUDFImpl for CheckedOperator {
    fn name(&self) -> &str {
        match self.op {
            Operator::Plus => "plus",
            Operator::Minus => "minus",
            Operator::Divide => "divided_by",
            _ => "times",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [one, _] => Ok(one.clone()),
            _ => internal_err!("expected two operands, found {}", arguments.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)] => {
                let result = operated(self.op, &left.to_array()?, &right.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
            }
            [left, right] => {
                let datum = |value: &ColumnarValue| -> DFResult<Box<dyn Datum>> {
                    Ok(match value {
                        ColumnarValue::Array(array) => Box::new(Arc::clone(array)),
                        ColumnarValue::Scalar(value) => Box::new(value.to_scalar()?),
                    })
                };
                Ok(ColumnarValue::Array(operated(self.op, &*datum(left)?, &*datum(right)?)?))
            }
            other => internal_err!("expected two operands, found {}", other.len()),
        }
    }
}

fn operated(op: Operator, left: &dyn Datum, right: &dyn Datum) -> DFResult<ArrayRef> {
    if left.get().0.data_type().is_floating() {
        return floats::operated(op, left, right);
    }
    if let Some(result) = decimals(op, left, right)? {
        return Ok(result);
    }
    Ok(match op {
        Operator::Plus => add(left, right)?,
        Operator::Minus => sub(left, right)?,
        _ => mul(left, right)?,
    })
}

/// Result of an operation on decimals that fit 64 bits; none of others.
fn decimals(op: Operator, left: &dyn Datum, right: &dyn Datum) -> DFResult<Option<ArrayRef>> {
    let ((left, is_left_scalar), (right, is_right_scalar)) = (left.get(), right.get());
    let of = |array: &dyn Array| array.as_primitive_opt::<Decimal128Type>().cloned();
    let (Some(left), Some(right)) = (of(left), of(right)) else { return Ok(None) };
    if is_left_scalar && left.is_null(0) || is_right_scalar && right.is_null(0) {
        return Ok(None);
    }
    let (precisions, scales) = ((left.precision(), right.precision()), (left.scale(), right.scale()));
    let digits = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
    // As arrow has it.
    let (operation, precision, scale) = match op {
        Operator::Multiply => {
            let precision = i16::from(precisions.0) + i16::from(precisions.1) + 1;
            (DecimalOperation::Multiply, precision, scales.0.saturating_add(scales.1))
        }
        _ => {
            let integral = digits(precisions.0, scales.0).max(digits(precisions.1, scales.1));
            let scale = scales.0.max(scales.1);
            let operation =
                if op == Operator::Plus { DecimalOperation::Add } else { DecimalOperation::Subtract };
            (operation, integral + i16::from(scale) + 1, scale)
        }
    };
    let (precision, scale_max) = (precision.min(i16::from(DECIMAL128_MAX_PRECISION)), DECIMAL128_MAX_SCALE);
    let operand = |values, is_scalar| DecimalOperand { values, is_scalar };
    let result =
        decimal_operation(operation, operand(&left, is_left_scalar), operand(&right, is_right_scalar));
    let (Some(result), Ok(precision)) = (result.filter(|_| scale <= scale_max), u8::try_from(precision))
    else {
        return Ok(None);
    };
    Ok(Some(Arc::new(result.with_precision_and_scale(precision, scale)?)))
}

fn computed(op: Operator, left: &ScalarValue, right: &ScalarValue) -> DFResult<ScalarValue> {
    let (left, right) = (left.to_array()?, right.to_array()?);
    ScalarValue::try_from_array(&operated(op, &left, &right)?, 0)
}
