//! `width_bucket(x, low, high, count)`: the place of the bucket of `x`, of as many of one width between two bounds; 0 before
//! the first, one more than `count` behind the last. With `high` below `low` buckets are counted downwards.
//!
//! Exact numbers are computed exactly, floating-point numbers as such.

use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, i256};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Digits of the numbers to compute with.
const DIGITS: u8 = 38;

#[derive(Debug, PartialEq, Eq, Hash)]
struct WidthBucket {
    signature: Signature,
}

/// Function of this module.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(WidthBucket { signature: Signature::user_defined(Volatility::Immutable) })
}

impl ScalarUDFImpl for WidthBucket {
    fn name(&self) -> &str {
        "width_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let [numbers @ .., count] = arguments else {
            return Err(external(Error::coded("42883", "function width_bucket() does not exist")));
        };
        if let [_, DataType::List(_)] = arguments {
            let message =
                "width_bucket with a list of bounds: add up the comparisons, (x >= a)::int + (x >= b)::int";
            return Err(external(Error::unsupported(message)));
        }
        let is_number = |of: &DataType| of.is_numeric() || of.is_null();
        if numbers.len() != 3 || !arguments.iter().all(is_number) || count.is_floating() {
            let found: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let message = format!("function width_bucket({}) does not exist", found.join(", "));
            return Err(external(Error::coded("42883", message)));
        }
        let of = if numbers.iter().any(DataType::is_floating) {
            DataType::Float64
        } else {
            let scale = numbers.iter().map(|of| match of {
                DataType::Decimal128(_, scale) => *scale,
                _ => 0,
            });
            DataType::Decimal128(DIGITS, scale.max().unwrap_or_default())
        };
        Ok(vec![of.clone(), of.clone(), of, DataType::Int64])
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.iter().map(|value| value.to_array(rows)).collect::<DFResult<_>>()?;
        let [x, low, high, count] = columns.as_slice() else {
            return internal_err!("width_bucket expects four arguments");
        };
        let counts = cast(count, &DataType::Int64)?;
        let of_row = |row: usize| {
            if columns.iter().any(|column| column.is_null(row)) {
                return Ok(None);
            }
            let count = counts.as_primitive::<Int64Type>().value(row);
            let bucket = match x.data_type() {
                DataType::Float64 => {
                    let [x, low, high] = [x, low, high].map(|of| of.as_primitive::<Float64Type>().value(row));
                    of_doubles(x, low, high, count)
                }
                _ => {
                    let [x, low, high] =
                        [x, low, high].map(|of| of.as_primitive::<Decimal128Type>().value(row));
                    of_exact(x, low, high, count)
                }
            };
            bucket.map(Some).map_err(external)
        };
        let buckets: ArrayRef = Arc::new((0..rows).map(of_row).collect::<DFResult<Int32Array>>()?);
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&buckets, 0)?)
        } else {
            ColumnarValue::Array(buckets)
        })
    }
}

fn check(is_empty: bool, count: i64) -> Result<(), Error> {
    let wrong = |message: &str| Err(Error::coded("2201G", message));
    match (count > 0, is_empty) {
        (false, _) => wrong("count must be greater than zero"),
        (_, true) => wrong("lower bound cannot equal upper bound"),
        _ if i32::try_from(count).is_ok_and(|count| count < i32::MAX) => Ok(()),
        _ => Err(Error::coded("22003", "integer out of range")),
    }
}

/// Bucket by what is counted: `inside` of the buckets between the bounds.
fn numbered(is_before: bool, is_behind: bool, inside: impl FnOnce() -> i64, count: i64) -> i32 {
    let bucket = match (is_before, is_behind) {
        (true, _) => 0,
        (_, true) => count + 1,
        _ => inside().clamp(0, count - 1) + 1,
    };
    i32::try_from(bucket).unwrap_or(i32::MAX)
}

fn of_doubles(x: f64, low: f64, high: f64, count: i64) -> Result<i32, Error> {
    check(low == high, count)?;
    if x.is_nan() || low.is_nan() || high.is_nan() {
        return Err(Error::coded("2201G", "operand, lower bound, and upper bound cannot be NaN"));
    }
    if !low.is_finite() || !high.is_finite() {
        return Err(Error::coded("2201G", "lower and upper bounds must be finite"));
    }
    let inside = || ((x - low) / (high - low) * count as f64) as i64;
    let (before, behind) = if low < high { (x < low, x >= high) } else { (x > low, x <= high) };
    Ok(numbered(before, behind, inside, count))
}

fn of_exact(x: i128, low: i128, high: i128, count: i64) -> Result<i32, Error> {
    check(low == high, count)?;
    let (before, behind) = if low < high { (x < low, x >= high) } else { (x > low, x <= high) };
    let wide = i256::from_i128;
    let inside = || {
        let (part, width) = (wide(x).wrapping_sub(wide(low)), wide(high).wrapping_sub(wide(low)));
        let places = part.wrapping_mul(wide(i128::from(count))).checked_div(width);
        places.and_then(i256::to_i128).and_then(|places| i64::try_from(places).ok()).unwrap_or_default()
    };
    Ok(numbered(before, behind, inside, count))
}
