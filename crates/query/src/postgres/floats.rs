//! Arithmetic of DOUBLEs and REALs, and their values from strings, with the errors of PostgreSQL.
//!
//! Infinity is a value that a statement may write, and reckon with. A result that is infinite or 0 only because it does
//! not fit is an error (22003), that of a cast too, and so is a division by 0 (22012).

use crate::error::{Error, external};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Float32Array, Float64Array,
};
use datafusion::arrow::compute::kernels::numeric::{add, div, mul, sub};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result as DFResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::single;
use std::sync::Arc;

/// Result of an operation on two operands of the same type, DOUBLE or REAL.
pub(crate) fn operated(op: Operator, left: &dyn Datum, right: &dyn Datum) -> DFResult<ArrayRef> {
    let result = match op {
        Operator::Plus => add(left, right)?,
        Operator::Minus => sub(left, right)?,
        Operator::Multiply => mul(left, right)?,
        _ => div(left, right)?,
    };
    let is_suspicious = match result.data_type() {
        DataType::Float32 => is_suspicious(op, result.as_primitive::<Float32Type>().values()),
        _ => is_suspicious(op, result.as_primitive::<Float64Type>().values()),
    };
    if is_suspicious {
        check(op, (left, right), &result)?;
    }
    Ok(result)
}

/// Returns true if one of the results may be none: the operands have to be looked at.
fn is_suspicious<N: Copy + Into<f64>>(op: Operator, values: &[N]) -> bool {
    let may_underflow = matches!(op, Operator::Multiply | Operator::Divide);
    values.iter().any(|&value| {
        let value: f64 = value.into();
        !value.is_finite() || may_underflow && value == 0.0
    })
}

/// Compares each result with its operands.
fn check(op: Operator, operands: (&dyn Datum, &dyn Datum), result: &ArrayRef) -> DFResult<()> {
    match result.data_type() {
        DataType::Float32 => check_typed::<Float32Type>(op, operands, result),
        _ => check_typed::<Float64Type>(op, operands, result),
    }
}

fn check_typed<T: ArrowPrimitiveType>(
    op: Operator,
    (left, right): (&dyn Datum, &dyn Datum),
    result: &ArrayRef,
) -> DFResult<()>
where
    T::Native: Into<f64>,
{
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right, results) =
        (left.as_primitive::<T>(), right.as_primitive::<T>(), result.as_primitive::<T>());
    for row in (0..results.len()).filter(|&row| results.is_valid(row)) {
        let one: f64 = left.value(if left_is_one { 0 } else { row }).into();
        let other: f64 = right.value(if right_is_one { 0 } else { row }).into();
        let result: f64 = results.value(row).into();
        check_value(op, one, other, result).map_err(external)?;
    }
    Ok(())
}

fn check_value(op: Operator, one: f64, other: f64, result: f64) -> Result<(), Error> {
    if op == Operator::Divide && other == 0.0 && !one.is_nan() {
        return Err(Error::coded("22012", "division by zero"));
    }
    if result.is_infinite() && one.is_finite() && other.is_finite() {
        return Err(Error::coded("22003", "value out of range: overflow"));
    }
    let is_lost = match op {
        Operator::Multiply => one != 0.0 && other != 0.0,
        Operator::Divide => one != 0.0 && other.is_finite(),
        _ => false,
    };
    if result == 0.0 && is_lost {
        return Err(Error::coded("22003", "value out of range: underflow"));
    }
    Ok(())
}

/// Function that takes the place of a cast from a string.
pub(crate) fn input(of: &DataType) -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Utf8], Volatility::Immutable);
    ScalarUDF::from(Input { single: *of == DataType::Float32, signature })
}

/// `float8in` and `float4in`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Input {
    single: bool,
    signature: Signature,
}

impl Input {
    fn type_name(&self) -> &'static str {
        if self.single { "real" } else { "double precision" }
    }

    /// Value of a string.
    fn value(&self, text: &str) -> Result<f64, Error> {
        let trimmed = text.trim();
        let name = self.type_name();
        let parsed = if self.single { trimmed.parse::<f32>().map(f64::from) } else { trimmed.parse::<f64>() };
        let Ok(value) = parsed else {
            return Err(Error::coded("22P02", format!("invalid input syntax for type {name}: \"{text}\"")));
        };
        let (mantissa, _) = trimmed.split_once(['e', 'E']).unwrap_or((trimmed, ""));
        let is_number = mantissa.contains(|c: char| c.is_ascii_digit());
        let is_lost = value.is_infinite() || value == 0.0 && mantissa.contains(|c| ('1'..='9').contains(&c));
        if is_number && is_lost {
            return Err(Error::coded("22003", format!("\"{text}\" is out of range for type {name}")));
        }
        Ok(value)
    }
}

impl ScalarUDFImpl for Input {
    fn name(&self) -> &str {
        if self.single { "float4in" } else { "float8in" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(if self.single { DataType::Float32 } else { DataType::Float64 })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [text] = arguments.args.as_slice() else { return exec_err!("{} expects a string", self.name()) };
        let texts = text.to_array(1)?;
        let values =
            texts.as_string::<i32>().iter().map(|text| text.map(|text| self.value(text)).transpose());
        let values: Float64Array = values.collect::<Result<_, Error>>().map_err(external)?;
        let values: ArrayRef = if self.single {
            Arc::new(values.iter().map(|value| value.map(|value| value as f32)).collect::<Float32Array>())
        } else {
            Arc::new(values)
        };
        Ok(match text {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(values),
        })
    }
}

/// Expression that takes the place of a cast of a DOUBLE to REAL.
pub(crate) fn narrowed(double: Expr) -> Expr {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    ScalarUDF::from(RealCast { signature }).call(vec![double])
}

/// `float4` of a DOUBLE.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RealCast {
    signature: Signature,
}

/// REAL nearest to a DOUBLE.
fn narrowed_value(double: f64) -> Result<f32, Error> {
    if let Some(real) = single(double) {
        return Ok(real as f32);
    }
    let reason = if double.abs() < 1.0 { "underflow" } else { "overflow" };
    Err(Error::coded("22003", format!("value out of range: {reason}: {double:e} is not a real")))
}

impl ScalarUDFImpl for RealCast {
    fn name(&self) -> &str {
        "float4"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Float32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [double] = arguments.args.as_slice() else {
            return exec_err!("{} expects a DOUBLE", self.name());
        };
        let doubles = double.to_array(1)?;
        let reals = doubles.as_primitive::<Float64Type>().try_unary::<_, Float32Type, Error>(narrowed_value);
        let reals = reals.map_err(external)?;
        Ok(match double {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&reals, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(Arc::new(reals)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn results_out_of_range_are_errors_and_infinity_is_a_value() {
        let infinite = f64::INFINITY;
        for (op, one, other, expected) in [
            (Operator::Multiply, 1e308, 10.0, "22003"),
            (Operator::Plus, 1e308, 1e308, "22003"),
            (Operator::Minus, -1.7e308, 1.7e308, "22003"),
            (Operator::Multiply, 1e-200, 1e-200, "22003"),
            (Operator::Divide, 1e-200, 1e200, "22003"),
            (Operator::Divide, 5.0, 0.0, "22012"),
            (Operator::Divide, infinite, 0.0, "22012"),
            (Operator::Multiply, infinite, 10.0, ""),
            (Operator::Divide, 5.0, infinite, ""),
            (Operator::Divide, 0.0, 5.0, ""),
            (Operator::Divide, f64::NAN, 0.0, ""),
            (Operator::Minus, infinite, infinite, ""),
            (Operator::Multiply, 0.0, 5.0, ""),
        ] {
            let arrays = [one, other].map(|value| Float64Array::from(vec![1.0, value]));
            let found = operated(op, &arrays[0], &arrays[1]);
            let code = found.map_err(Error::from).map_or_else(|error| error.sqlstate(), |_| "");
            assert_eq!(code, expected, "{one} {op} {other}");
        }
    }

    #[test]
    fn strings_that_do_not_fit_are_errors() {
        let code = |single: bool, text: &str| {
            let signature = Signature::exact(vec![DataType::Utf8], Volatility::Immutable);
            Input { single, signature }.value(text).map_or_else(|error| error.sqlstate(), |_| "")
        };
        for (text, double, real) in [
            ("1e400", "22003", "22003"),
            ("-1e400", "22003", "22003"),
            ("1e-400", "22003", "22003"),
            ("1e300", "", "22003"),
            ("0e400", "", ""),
            (" 1.5 ", "", ""),
            ("Infinity", "", ""),
            ("-inf", "", ""),
            ("NaN", "", ""),
            ("", "22P02", "22P02"),
            ("1x", "22P02", "22P02"),
        ] {
            assert_eq!((code(false, text), code(true, text)), (double, real), "{text}");
        }
    }
}
