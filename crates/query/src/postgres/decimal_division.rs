//! Division and averages of DECIMALs with PostgreSQL's number of digits, and products beyond the largest
//! precision.
//!
//! DataFusion gives a quotient four digits more than the dividend. Here it has [`QUOTIENT_SCALE`] of them
//! behind the point, an average [`AVERAGE_SCALE`], or those of the operands if these have more; fewer only
//! where the digits before the point need the room. PostgreSQL chooses for each value; a column has one
//! scale. The last digit is rounded, half away from zero.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result as DFResult, plan_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Digits behind the point of a quotient: 16 significant ones for any value above 0.0001.
const QUOTIENT_SCALE: i8 = 20;
/// Digits of an average.
const AVERAGE_SCALE: i8 = 16;

/// Exact operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ExactOperation {
    Quotient,
    Average,
    Product,
}

impl ExactOperation {
    /// Call of the operation.
    pub(crate) fn of(self, left: Expr, right: Expr) -> Expr {
        let signature = Signature::any(2, Volatility::Immutable);
        ScalarUDF::from(ExactFunction { what: self, signature }).call(vec![left, right])
    }
}

/// Precision and scale of an exact numeric type.
pub(crate) fn exact_type(of: &DataType) -> Option<(u8, i8)> {
    Some(match of {
        DataType::Int8 => (3, 0),
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal128(precision, scale) if *scale >= 0 => (*precision, *scale),
        _ => return None,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactFunction {
    what: ExactOperation,
    signature: Signature,
}

/// Operation on unscaled numbers of these precisions and scales.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExactForm {
    what: ExactOperation,
    left: (u8, i8),
    right: (u8, i8),
    result: (u8, i8),
}

impl ExactForm {
    /// Operation that an expression is, and its operands; none if it is another. `type_of` tells the type of an operand.
    pub(crate) fn of(
        expr: &Expr,
        type_of: impl Fn(&Expr) -> Option<DataType>,
    ) -> Option<(ExactForm, &Expr, &Expr)> {
        let Expr::ScalarFunction(call) = expr else { return None };
        let function = call.func.inner().downcast_ref::<ExactFunction>()?;
        let [left, right] = call.args.as_slice() else { return None };
        Some((function.form(&[type_of(left)?, type_of(right)?]).ok()?, left, right))
    }

    /// Precision and scale of the result.
    pub(crate) fn result(&self) -> (u8, i8) {
        self.result
    }

    fn result_type(&self) -> DataType {
        DataType::Decimal128(self.result.0, self.result.1)
    }

    /// Result of two unscaled numbers.
    pub(crate) fn compute(&self, left: i128, right: i128) -> DFResult<i128> {
        let (precision, scale) = self.result;
        let value = match self.what {
            ExactOperation::Product => product(left, right, self.left.1 + self.right.1 - scale)?,
            _ => quotient(left, right, scale - self.left.1 + self.right.1)?,
        };
        Decimal128Type::validate_decimal_precision(value, precision, scale).map_err(|_| overflow())?;
        Ok(value)
    }
}

impl ExactFunction {
    /// Form of the operation on operands of these types.
    fn form(&self, arguments: &[DataType]) -> DFResult<ExactForm> {
        let [left, right, result] = self.types(arguments)?;
        Ok(ExactForm { what: self.what, left, right, result })
    }

    /// Types of the operands and of the result.
    fn types(&self, arguments: &[DataType]) -> DFResult<[(u8, i8); 3]> {
        let [left, right] = arguments else {
            return plan_err!("expected two operands, found {}", arguments.len());
        };
        let (Some(left), Some(right)) = (exact_type(left), exact_type(right)) else {
            return plan_err!("{left} and {right} are not exact numbers");
        };
        let most = i16::from(DECIMAL128_MAX_PRECISION);
        let whole = |(precision, scale): (u8, i8)| i16::from(precision) - i16::from(scale);
        let (before, wanted) = match self.what {
            // Digits before the point of the one, shifted by the digits behind the point of the other.
            ExactOperation::Quotient | ExactOperation::Average => {
                let scale =
                    if self.what == ExactOperation::Quotient { QUOTIENT_SCALE } else { AVERAGE_SCALE };
                let before = match self.what {
                    // An average is no greater than its largest value.
                    ExactOperation::Average => whole(left),
                    _ => whole(left) + i16::from(right.1),
                };
                (before, scale.max(left.1).max(right.1))
            }
            ExactOperation::Product => (whole(left) + whole(right), left.1.max(right.1).max(QUOTIENT_SCALE)),
        };
        let least = i16::from(AVERAGE_SCALE.max(left.1).max(right.1));
        let scale = i16::from(wanted).min((most - before).max(least)).clamp(0, most);
        // Both are between 0 and 38.
        Ok([left, right, ((before + scale).clamp(1, most) as u8, scale as i8)])
    }
}

impl ScalarUDFImpl for ExactFunction {
    fn name(&self) -> &str {
        match self.what {
            ExactOperation::Quotient => "quotient",
            ExactOperation::Average => "average",
            ExactOperation::Product => "product",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        Ok(self.form(arguments)?.result_type())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let of: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        let form = self.form(&of)?;
        let scalars = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let decimals =
            |array: &ArrayRef, (precision, scale)| cast(array, &DataType::Decimal128(precision, scale));
        let (left, right) = (decimals(&arrays[0], form.left)?, decimals(&arrays[1], form.right)?);
        let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
        let mut values = Vec::with_capacity(left.len());
        for row in 0..left.len() {
            if left.is_null(row) || right.is_null(row) {
                values.push(None);
                continue;
            }
            values.push(Some(form.compute(left.value(row), right.value(row))?));
        }
        let (precision, scale) = form.result;
        let result = Decimal128Array::from(values).with_precision_and_scale(precision, scale)?;
        let result = ColumnarValue::Array(Arc::new(result));
        match (scalars, &result) {
            (true, ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(array, 0)?))
            }
            _ => Ok(result),
        }
    }
}

fn overflow() -> DataFusionError {
    ArrowError::ArithmeticOverflow("number with more than 38 digits".into()).into()
}

/// `left * 10^digits / right`, rounded.
fn quotient(left: i128, right: i128, digits: i8) -> DFResult<i128> {
    if right == 0 {
        return Err(ArrowError::DivideByZero.into());
    }
    let scaled = power(digits.max(0)).and_then(|power| i256::from_i128(left).checked_mul(power));
    let divisor = power((-digits).max(0)).and_then(|power| i256::from_i128(right).checked_mul(power));
    let (Some(scaled), Some(divisor)) = (scaled, divisor) else { return Err(overflow()) };
    rounded(scaled, divisor)
}

/// `left * right / 10^digits`, rounded.
fn product(left: i128, right: i128, digits: i8) -> DFResult<i128> {
    let product = i256::from_i128(left).checked_mul(i256::from_i128(right)).ok_or_else(overflow)?;
    rounded(product, power(digits.max(0)).ok_or_else(overflow)?)
}

fn power(digits: i8) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::try_from(digits).ok()?)
}

fn rounded(value: i256, divisor: i256) -> DFResult<i128> {
    let quotient = value.checked_div(divisor).ok_or_else(overflow)?;
    let rest = value.checked_rem(divisor).ok_or_else(overflow)?;
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2)).ok_or_else(overflow)?;
    let up = twice >= divisor.wrapping_abs();
    let step = if (value < i256::ZERO) == (divisor < i256::ZERO) { i256::ONE } else { i256::MINUS_ONE };
    let quotient = if up { quotient.checked_add(step).ok_or_else(overflow)? } else { quotient };
    quotient.to_i128().ok_or_else(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_away_from_zero() {
        assert_eq!(quotient(2, 3, 4).unwrap(), 6667);
        assert_eq!(quotient(-2, 3, 4).unwrap(), -6667);
        assert_eq!(quotient(1, -8, 2).unwrap(), -13);
        assert_eq!(quotient(12345, 1, -2).unwrap(), 123);
        assert_eq!(product(15, 15, 1).unwrap(), 23);
        assert!(quotient(1, 0, 4).is_err());
        assert!(quotient(i128::MAX, 1, 38).is_err());
    }

    #[test]
    fn scales_leave_room_for_what_stands_before_the_point() {
        let scale = |what: ExactOperation, left: DataType, right: DataType| {
            let function = ExactFunction { what, signature: Signature::any(2, Volatility::Immutable) };
            function.return_type(&[left, right]).unwrap()
        };
        let decimal = DataType::Decimal128;
        assert_eq!(scale(ExactOperation::Quotient, DataType::Int32, decimal(2, 1)), decimal(31, 20));
        assert_eq!(scale(ExactOperation::Quotient, decimal(38, 0), decimal(2, 1)), decimal(38, 16));
        assert_eq!(scale(ExactOperation::Average, decimal(29, 0), DataType::Int64), decimal(38, 16));
        assert_eq!(scale(ExactOperation::Average, DataType::Int64, DataType::Int64), decimal(35, 16));
        assert_eq!(scale(ExactOperation::Product, decimal(31, 20), decimal(31, 20)), decimal(38, 20));
    }
}
