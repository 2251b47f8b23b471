//! Casts to NUMERIC without precision, which lose no digits silently.
//!
//! | written | result |
//! | --- | --- |
//! | `numeric(20, 15)::numeric` | the number as it is |
//! | `text::numeric` | a NUMERIC(38,10); a string with more digits behind the point is an error (22003) |
//! | `double::numeric` | [`crate::postgres::numeric_functions`] |
//! | `int::numeric` and all others | DataFusion's cast |
//!
//! The type of the operand is not known where names are translated, so the cast is a function, `numeric_of`, until the plan is
//! typed ([`resolved`]). Where no plan is typed it computes the same.

use crate::error::{Error, external, not_finite};
use crate::postgres::numbers::plain_number;
use crate::postgres::numeric_functions::from_float;
use crate::postgres::types::DECIMAL_DEFAULT;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast,
};
use entresol_tables::decimal;
use std::sync::Arc;

/// Name of the function.
pub(crate) const NUMERIC_OF: &str = "numeric_of";

/// Type of a NUMERIC without precision.
const NUMERIC: DataType = DataType::Decimal128(DECIMAL_DEFAULT.0, DECIMAL_DEFAULT.1.cast_signed());

/// Function that is a cast to NUMERIC.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(NumericOf { signature: Signature::any(1, Volatility::Immutable) })
}

/// Expression that a call of the function is, by the type of its operand.
pub(crate) fn resolved(mut call: ScalarFunction, schema: &DFSchema) -> DFResult<Expr> {
    let [operand] = call.args.as_mut_slice() else { return Ok(Expr::ScalarFunction(call)) };
    Ok(match operand.get_type(schema)? {
        DataType::Decimal128(..) => std::mem::take(operand),
        of if of.is_string() => Expr::ScalarFunction(call),
        DataType::Float32 | DataType::Float64 => {
            from_float(std::mem::take(operand), DECIMAL_DEFAULT.0, DECIMAL_DEFAULT.1.cast_signed())
        }
        _ => cast(std::mem::take(operand), NUMERIC),
    })
}

/// Refuses a cast of a number to NUMERIC without precision that would lose digits of it: that of a parameter, whose value has
/// its own digits.
pub(crate) fn check(of: &Cast) -> DFResult<()> {
    let (precision, to) = DECIMAL_DEFAULT;
    if let Expr::Literal(ScalarValue::Decimal128(Some(number), _, scale), _) = of.expr.as_ref()
        && let Ok(scale) = u8::try_from(*scale)
        && *of.field.data_type() == DataType::Decimal128(precision, to.cast_signed())
        && decimal::rescale_loses(*number, scale, to)
    {
        let mut shown = String::new();
        // Writing to a string cannot fail.
        let _ = decimal::format(*number, scale, &mut shown);
        return Err(external(digits_lost(&shown)));
    }
    Ok(())
}

/// Error for a number that a NUMERIC without precision does not hold without loss.
fn digits_lost(number: &str) -> Error {
    let message = format!(
        "{number} has more digits after the point than a NUMERIC without precision has ({}): cast it to NUMERIC(p, s)",
        DECIMAL_DEFAULT.1
    );
    Error::coded("22003", message)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericOf {
    signature: Signature,
}

impl ScalarUDFImpl for NumericOf {
    fn name(&self) -> &str {
        NUMERIC_OF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match arguments {
            [known @ DataType::Decimal128(..)] => known.clone(),
            _ => NUMERIC,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let Some(operand) = arguments.args.into_iter().next() else {
            return datafusion::common::exec_err!("{NUMERIC_OF} expects a value");
        };
        match operand {
            ColumnarValue::Scalar(scalar) => {
                let numbers = numeric(&scalar.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?))
            }
            ColumnarValue::Array(array) => numeric(&array).map(ColumnarValue::Array),
        }
    }
}

/// Values as NUMERICs.
fn numeric(array: &ArrayRef) -> DFResult<ArrayRef> {
    match array.data_type() {
        DataType::Decimal128(..) => Ok(Arc::clone(array)),
        of if of.is_string() => {
            let texts = cast_array(array, &DataType::Utf8)?;
            let numbers = texts.as_string::<i32>().iter().map(|text| text.map(parsed).transpose());
            let numbers = numbers.collect::<Result<Decimal128Array, Error>>().map_err(external)?;
            Ok(Arc::new(numbers.with_data_type(NUMERIC)))
        }
        _ => Ok(cast_array(array, &NUMERIC)?),
    }
}

/// Number of a string, at the scale of a NUMERIC without precision.
fn parsed(text: &str) -> Result<i128, Error> {
    let (precision, scale) = DECIMAL_DEFAULT;
    let trimmed = text.trim();
    let plain = match decimal::parse(trimmed, precision, scale) {
        Some(number) if !decimal::loses_digits(trimmed, scale) => return Ok(number),
        Some(_) => return Err(digits_lost(trimmed)),
        None => plain_number(trimmed.to_owned()),
    };
    match plain {
        Some(plain) if decimal::loses_digits(&plain, scale) => Err(digits_lost(trimmed)),
        Some(plain) => decimal::parse(&plain, precision, scale).ok_or_else(|| overflow(trimmed)),
        None if is_number(trimmed) => Err(overflow(trimmed)),
        None if let Some(message) = not_finite(trimmed) => Err(Error::coded("0A000", message)),
        None => Err(Error::coded("22P02", format!("invalid input syntax for type numeric: \"{text}\""))),
    }
}

fn overflow(number: &str) -> Error {
    let (precision, scale) = DECIMAL_DEFAULT;
    Error::coded("22003", format!("numeric field overflow: {number} is not a NUMERIC({precision},{scale})"))
}

/// Tells whether a string is a number, of any size.
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    has_digits
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
        && exponent.parse::<i32>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strings_are_numbers_with_all_their_digits_or_errors() {
        let of = |text: &str| parsed(text).map_err(|error| error.sqlstate());
        for (text, expected) in [
            ("1.5", Ok(15_000_000_000)),
            (" -0.1234567890 ", Ok(-1_234_567_890)),
            ("1.500000000000000", Ok(15_000_000_000)),
            ("15e-1", Ok(15_000_000_000)),
            ("1e3", Ok(10_000_000_000_000)),
            ("0.12345678901", Err("22003")),
            ("1e-11", Err("22003")),
            ("1e40", Err("22003")),
            (&"9".repeat(29), Err("22003")),
            (&"9".repeat(400), Err("22003")),
            ("", Err("22P02")),
            (".", Err("22P02")),
            ("1e", Err("22P02")),
            ("NaN", Err("0A000")),
            ("1 2", Err("22P02")),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
