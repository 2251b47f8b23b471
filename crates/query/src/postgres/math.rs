//! PostgreSQL's errors of mathematical functions, where DataFusion returns NaN or infinity.
//!
//! | call | error |
//! | --- | --- |
//! | `ln(0)`, `log(-1)` | 2201E |
//! | `power(-8, 0.5)` | 2201F |
//! | `exp(1000)`, `power(10, 400)`, `acos(2)` | 22003 |
//!
//! NaN and infinity of arguments stay values.

use crate::error::{Error, external};
use crate::postgres::wrapped::{CallWrapper, WrappedFunction};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result as DFResult;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Functions whose results are checked.
const FUNCTIONS: [&str; 13] =
    ["acos", "acosh", "asin", "atanh", "cosh", "exp", "ln", "log", "log10", "log2", "power", "sinh", "tan"];

/// Replaces DataFusion's functions by those with errors.
pub(crate) fn register(context: &SessionContext) {
    for name in FUNCTIONS {
        if let Ok(inner) = context.udf(name) {
            context.register_udf(WrappedFunction::of(inner, CheckedResults));
        }
    }
}

#[derive(Debug)]
struct CheckedResults;

impl CallWrapper for CheckedResults {
    const MAY_SIMPLIFY: bool = true;

    fn call(&self, inner: &Arc<ScalarUDF>, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let operands = arguments.args.clone();
        let result = inner.invoke_with_args(arguments)?;
        if !result.data_type().is_floating() {
            return Ok(result);
        }
        // Operands may be constants beside columns.
        let rows = match &result {
            ColumnarValue::Array(array) => array.len(),
            ColumnarValue::Scalar(_) => 1,
        };
        let results = doubles(&result, rows)?;
        let is_checked = |value: &f64| !value.is_finite();
        if results.as_primitive::<Float64Type>().values().iter().any(is_checked) {
            let operands = operands.iter().map(|operand| doubles(operand, rows));
            check(inner.name(), &operands.collect::<DFResult<Vec<ArrayRef>>>()?, &results)?;
        }
        Ok(result)
    }
}

fn doubles(value: &ColumnarValue, rows: usize) -> DFResult<ArrayRef> {
    Ok(cast(&value.to_array(rows)?, &DataType::Float64)?)
}

fn check(name: &str, operands: &[ArrayRef], results: &ArrayRef) -> DFResult<()> {
    let results = results.as_primitive::<Float64Type>();
    for row in (0..results.len()).filter(|&row| results.is_valid(row)) {
        let operand =
            |at: usize| operands.get(at).map(|array| array.as_primitive::<Float64Type>().value(row));
        let finite = (0..operands.len()).filter_map(operand).all(f64::is_finite);
        if results.value(row).is_finite() || !finite {
            continue;
        }
        let error = match (name, operand(0), operands.len()) {
            ("ln" | "log" | "log10" | "log2", first, count) => {
                // The base is the first of two.
                let of = if count > 1 { operand(1) } else { first };
                match of {
                    Some(0.0) => Error::coded("2201E", "cannot take logarithm of zero"),
                    _ => Error::coded("2201E", "cannot take logarithm of a negative number"),
                }
            }
            ("power", Some(base), _) if results.value(row).is_nan() && base < 0.0 => Error::coded(
                "2201F",
                "a negative number raised to a non-integer power yields a complex result",
            ),
            ("acos" | "asin" | "acosh" | "atanh", ..) => Error::coded("22003", "input is out of range"),
            _ => Error::coded("22003", "value out of range: overflow"),
        };
        return Err(external(error));
    }
    Ok(())
}
