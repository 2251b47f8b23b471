//! `a || b` of strings, with a bound on its result.
//!
//! DataFusion's operator makes strings of any length, and fails where those of a batch exceed 2 GiB. Here a result
//! is at most [`STRING_BYTES_MAX`] (54000 beyond), and the results of one call [`BATCH_BYTES_MAX`] (53200): the
//! planner has batches computed slice by slice, which stay far below.

use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_utf8;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Maximum bytes of a string that is computed.
pub(crate) const STRING_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of the results of one call.
const BATCH_BYTES_MAX: usize = 512 << 20;

/// Bounded concatenation in the place of DataFusion's operator; `None` for others, and other types.
pub(crate) fn bounded(expr: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let is_text = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of == DataType::Utf8);
    if expr.op != Operator::StringConcat || !is_text(&expr.left) || !is_text(&expr.right) {
        return None;
    }
    let signature = Signature::any(2, Volatility::Immutable);
    let operands = vec![(*expr.left).clone(), (*expr.right).clone()];
    Some(ScalarUDF::from(Concatenation { signature }).call(operands))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenation {
    signature: Signature,
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &str {
        "textcat"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [left, right] = arguments.args.as_slice() else { return exec_err!("|| expects two operands") };
        if let (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) = (left, right) {
            let (Some(left), Some(right)) = (text_of(left), text_of(right)) else {
                return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(None)));
            };
            check(left.len() + right.len(), STRING_BYTES_MAX).map_err(external)?;
            return Ok(ColumnarValue::Scalar(ScalarValue::from(format!("{left}{right}"))));
        }
        let joined = joined(left, right, arguments.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(joined) as ArrayRef))
    }
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

/// Concatenations row by row.
fn joined(left: &ColumnarValue, right: &ColumnarValue, rows: usize) -> DFResult<StringArray> {
    let lengths = |value: &ColumnarValue| -> (usize, usize) {
        match value {
            ColumnarValue::Scalar(value) => {
                let bytes = text_of(value).map_or(0, str::len);
                (bytes, bytes.saturating_mul(rows))
            }
            ColumnarValue::Array(array) => {
                let offsets = array.as_string::<i32>().value_offsets();
                let lengths = offsets.windows(2).map(|pair| pair[1].abs_diff(pair[0]) as usize);
                let (first, last) = (offsets.first(), offsets.last());
                let all = first.zip(last).map_or(0, |(first, last)| last.abs_diff(*first) as usize);
                (lengths.max().unwrap_or(0), all)
            }
        }
    };
    let ((one, all), (other, others)) = (lengths(left), lengths(right));
    check(all.saturating_add(others), BATCH_BYTES_MAX).map_err(external)?;
    let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
    let (left, right) = (left.as_string::<i32>(), right.as_string::<i32>());
    if one + other > STRING_BYTES_MAX {
        // The longest of both need not stand in one row.
        for row in (0..rows).filter(|&row| left.is_valid(row) && right.is_valid(row)) {
            check(left.value(row).len() + right.value(row).len(), STRING_BYTES_MAX).map_err(external)?;
        }
    }
    Ok(concat_elements_utf8(left, right)?)
}

fn check(bytes: usize, bytes_max: usize) -> Result<(), Error> {
    let message = || format!("||: a result of {bytes} bytes exceeds the maximum of {bytes_max} bytes");
    match bytes <= bytes_max {
        true => Ok(()),
        false if bytes_max == STRING_BYTES_MAX => Err(Error::coded("54000", message())),
        false => Err(Error::MemoryLimit(format!("{} for the results of one batch of rows", message()))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn array(texts: Vec<Option<String>>) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(StringArray::from(texts)))
    }

    #[test]
    fn strings_are_joined_up_to_the_bound() {
        let half = "x".repeat(STRING_BYTES_MAX / 2);
        let long = array(vec![Some(half.clone()), Some("a".into()), None]);
        let short = array(vec![Some("b".into()), Some(half.clone()), Some("c".into())]);
        let texts = joined(&long, &short, 3).unwrap();
        assert_eq!(texts.value(0).len(), STRING_BYTES_MAX / 2 + 1);
        assert!(texts.is_null(2) && texts.value(1).starts_with('a'));
        let scalar = ColumnarValue::Scalar(ScalarValue::from(format!("{half}y")));
        let error = Error::from(joined(&long, &scalar, 3).unwrap_err());
        assert_eq!(error.sqlstate(), "54000", "{error}");
        let error = Error::from(joined(&long, &scalar, 100).unwrap_err());
        assert_eq!(error.sqlstate(), "53200", "{error}");
    }
}
