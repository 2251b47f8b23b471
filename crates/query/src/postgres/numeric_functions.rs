//! Functions of NUMERICs whose result has other digits than DataFusion's, and NUMERICs from other numbers.
//!
//! | written | result |
//! | --- | --- |
//! | `ceil(n)`, `floor(n)`, `trunc(n)`, `sign(n)` | without digits behind the point, with room for one more before it |
//! | `trunc(n, 2)` | two digits behind the point |
//! | `double::numeric`, `real::numeric` | 15 and 6 significant digits, which is what a DOUBLE and a REAL hold |

use crate::error::{Error, external, not_finite};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type,
};
use datafusion::common::{Result as DFResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Precision of numbers that [`with_scale`] makes.
const SCALED_PRECISION: u8 = 18;
/// Significant digits of a DOUBLE and of a REAL.
const DOUBLE_DIGITS: usize = 15;
const REAL_DIGITS: usize = 6;

/// RoundingMode of a NUMERIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RoundingMode {
    Up,
    Down,
    TowardsZero,
    Sign,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum NumericOperation {
    /// Rounds to a number of digits behind the point, or before it if it is negative.
    Round(RoundingMode, i8),
    /// An integer with so many of its digits behind the point, or a DOUBLE rounded to them.
    WithScale(i8),
    /// A DOUBLE or REAL as a NUMERIC of this precision and scale.
    FromFloat(u8, i8),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericFunction {
    kind: NumericOperation,
    signature: Signature,
}

fn function(kind: NumericOperation) -> ScalarUDF {
    ScalarUDF::from(NumericFunction { kind, signature: Signature::any(1, Volatility::Immutable) })
}

/// Call of a function of DataFusion on a NUMERIC as one of this module; `None` if there is none, or it is one.
pub(crate) fn rounded(call: &ScalarFunction) -> Option<Expr> {
    if call.func.inner().downcast_ref::<NumericFunction>().is_some() {
        return None;
    }
    let (name, arguments) = (call.func.name(), call.args.as_slice());
    let (number, digits) = match arguments {
        [number] => (number, 0),
        [number, Expr::Literal(digits, _)] if name == "trunc" => (number, whole(digits)?),
        _ => return None,
    };
    let rounding = match name {
        "ceil" => RoundingMode::Up,
        "floor" => RoundingMode::Down,
        "trunc" => RoundingMode::TowardsZero,
        "signum" => RoundingMode::Sign,
        _ => return None,
    };
    Some(function(NumericOperation::Round(rounding, digits)).call(vec![number.clone()]))
}

fn whole(digits: &ScalarValue) -> Option<i8> {
    match digits.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(Some(digits)) => {
            i8::try_from(digits).ok().filter(|digits| digits.unsigned_abs() <= DECIMAL128_MAX_PRECISION)
        }
        _ => None,
    }
}

/// Number whose last `scale` digits stand behind the point.
pub(crate) fn with_scale(number: Expr, scale: i8) -> Expr {
    function(NumericOperation::WithScale(scale)).call(vec![number])
}

/// DOUBLE or REAL as a NUMERIC.
pub(crate) fn from_float(number: Expr, precision: u8, scale: i8) -> Expr {
    function(NumericOperation::FromFloat(precision, scale)).call(vec![number])
}

impl ScalarUDFImpl for NumericFunction {
    fn name(&self) -> &str {
        match self.kind {
            NumericOperation::Round(RoundingMode::Up, _) => "ceil",
            NumericOperation::Round(RoundingMode::Down, _) => "floor",
            NumericOperation::Round(RoundingMode::TowardsZero, _) => "trunc",
            NumericOperation::Round(RoundingMode::Sign, _) => "sign",
            NumericOperation::WithScale(_) => "with_scale",
            NumericOperation::FromFloat(..) => "numeric",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match (&self.kind, arguments) {
            (NumericOperation::Round(_, digits), [DataType::Decimal128(precision, scale)]) => {
                let scale = i16::from(*scale);
                let behind = i16::from(*digits).clamp(0, scale.max(0));
                let precision = i16::from(*precision) - scale + behind + 1;
                // Both are between 0 and 38.
                DataType::Decimal128(precision.clamp(1, DECIMAL128_MAX_PRECISION.into()) as u8, behind as i8)
            }
            (NumericOperation::WithScale(scale), [_]) => DataType::Decimal128(SCALED_PRECISION, *scale),
            (NumericOperation::FromFloat(precision, scale), [_]) => DataType::Decimal128(*precision, *scale),
            _ => return plan_err!("{} of {arguments:?} is not known", self.name()),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [number] = arguments.args.as_slice() else {
            return exec_err!("{} expects a number", self.name());
        };
        let array = number.to_array(1)?;
        let DataType::Decimal128(precision, scale) = *arguments.return_field.data_type() else {
            return exec_err!("{} returns a NUMERIC", self.name());
        };
        let numbers = match self.kind {
            NumericOperation::Round(rounding, digits) => rounded_array(&array, rounding, digits, scale)?,
            NumericOperation::WithScale(scale) => scaled_array(&array, scale)?,
            NumericOperation::FromFloat(precision, scale) => float_array(&array, precision, scale)?,
        };
        let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(precision, scale)?);
        Ok(match number {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(numbers),
        })
    }
}

/// Rounds numbers to `digits` behind the point; they get `scale` of them.
fn rounded_array(
    array: &ArrayRef,
    rounding: RoundingMode,
    digits: i8,
    scale: i8,
) -> DFResult<Decimal128Array> {
    let DataType::Decimal128(_, from) = *array.data_type() else {
        return exec_err!("{} is not a NUMERIC", array.data_type());
    };
    // At most 38 digits are dropped, and then all of them: the power fits.
    let dropped = u32::try_from(i16::from(from) - i16::from(digits)).unwrap_or(0);
    let unit = 10_i128.checked_pow(dropped).unwrap_or(i128::MAX);
    let back = 10_i128.checked_pow(u32::try_from(-i16::from(digits)).unwrap_or(0)).unwrap_or(0);
    let lost = u32::try_from(i16::from(from) - i16::from(scale)).unwrap_or(0);
    let shown = 10_i128.checked_pow(lost).unwrap_or(i128::MAX);
    Ok(array.as_primitive::<Decimal128Type>().unary(|value| match rounding {
        RoundingMode::Sign => value.signum(),
        RoundingMode::TowardsZero if dropped == 0 => value / shown,
        RoundingMode::TowardsZero => value / unit * back,
        RoundingMode::Down => value.div_euclid(unit),
        RoundingMode::Up => -(-value).div_euclid(unit),
    }))
}

fn scaled_array(array: &ArrayRef, scale: i8) -> DFResult<Decimal128Array> {
    if array.data_type().is_floating() {
        let factor = 10_f64.powi(i32::from(scale));
        let doubles = cast_array(array, &DataType::Float64)?;
        return Ok(doubles.as_primitive::<Float64Type>().unary(|value| (value * factor).round() as i128));
    }
    let integers = cast_array(array, &DataType::Int64)?;
    Ok(integers.as_primitive::<Int64Type>().unary(i128::from))
}

fn float_array(array: &ArrayRef, precision: u8, scale: i8) -> DFResult<Decimal128Array> {
    let digits = if *array.data_type() == DataType::Float32 { REAL_DIGITS } else { DOUBLE_DIGITS };
    let doubles = cast_array(array, &DataType::Float64)?;
    let doubles = doubles.as_primitive::<Float64Type>();
    let numbers = doubles.iter().map(|value| {
        let Some(value) = value else { return Ok(None) };
        if let Some(message) = not_finite(&value.to_string()) {
            return Err(external(Error::coded("0A000", message)));
        }
        let number = decimal(value, digits, scale).filter(|number| {
            10_u128.checked_pow(precision.into()).is_none_or(|end| number.unsigned_abs() < end)
        });
        number.map(Some).ok_or_else(|| {
            let message = format!("numeric field overflow: {value} is not a NUMERIC({precision},{scale})");
            external(Error::coded("22003", message))
        })
    });
    numbers.collect()
}

/// Value rounded to significant digits and then to a scale; `None` if it does not fit.
fn decimal(value: f64, digits: usize, scale: i8) -> Option<i128> {
    // One digit before the point, the others behind it.
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e')?;
    let (exponent, mantissa): (i32, i128) = (exponent.parse().ok()?, mantissa.replace('.', "").parse().ok()?);
    let shift = exponent - (digits as i32 - 1) + i32::from(scale);
    if shift >= 0 {
        return mantissa.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?);
    }
    let Some(unit) = 10_i128.checked_pow(shift.unsigned_abs()) else { return Some(0) };
    let half = unit / 2 * mantissa.signum();
    Some((mantissa + half) / unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn floats_become_the_numbers_that_were_written() {
        for (value, digits, scale, expected) in [
            (0.1, 15, 10, Some(1_000_000_000)),
            (f64::from(0.1_f32), 6, 10, Some(1_000_000_000)),
            (1e15, 15, 10, Some(10_i128.pow(25))),
            (-2.5, 15, 0, Some(-3)),
            (1.005, 15, 2, Some(101)),
            (0.0, 15, 10, Some(0)),
            (1e-30, 15, 10, Some(0)),
            (1e300, 15, 10, None),
            (f64::NAN, 15, 10, None),
            (f64::INFINITY, 15, 10, None),
        ] {
            assert_eq!(decimal(value, digits, scale), expected, "{value}");
        }
    }

    #[test]
    fn numbers_are_rounded_to_any_side() {
        let of = |value: i128, precision, scale| -> ArrayRef {
            Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap())
        };
        for (rounding, value, scale, digits, behind, expected) in [
            (RoundingMode::Up, 21, 1, 0, 0, 3),
            (RoundingMode::Up, -5, 1, 0, 0, 0),
            (RoundingMode::Down, -21, 1, 0, 0, -3),
            (RoundingMode::TowardsZero, -2567, 3, 1, 1, -25),
            (RoundingMode::TowardsZero, 2567, 3, 0, 0, 2),
            (RoundingMode::TowardsZero, 12345, 1, -2, 0, 1200),
            (RoundingMode::TowardsZero, 25, 1, 5, 1, 25),
            (RoundingMode::Sign, -55, 1, 0, 0, -1),
        ] {
            let rounded = rounded_array(&of(value, 5, scale), rounding, digits, behind).unwrap();
            assert_eq!(rounded.value(0), expected, "{rounding:?} {value}");
        }
    }
}
