//! Functions of lists that DataFusion lacks.
//!
//! | function | result |
//! | --- | --- |
//! | `trim_array(list, n)` | the list without its last elements; an error (2202E) if it has fewer |
//! | `list_or_empty(list)` | the list, or one without elements for NULL: what `ARRAY(SELECT ...)` is of no rows |

use crate::error::{Error, external};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use datafusion::arrow::buffer::{OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TrimArray {
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    [
        ScalarUDF::from(TrimArray { signature: Signature::user_defined(Volatility::Immutable) }),
        ScalarUDF::from(ListOrEmpty { signature: Signature::any(1, Volatility::Immutable) }),
    ]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListOrEmpty {
    signature: Signature,
}

impl ScalarUDFImpl for ListOrEmpty {
    fn name(&self) -> &str {
        "list_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments.first() {
            Some(list @ DataType::List(_)) => Ok(list.clone()),
            _ => internal_err!("list_or_empty expects a list"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = matches!(arguments.args[0], ColumnarValue::Scalar(_));
        let lists = arguments.args[0].to_array(if is_constant { 1 } else { arguments.number_rows })?;
        let all = without_null(lists.as_list::<i32>())?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&all, 0)?)
        } else {
            ColumnarValue::Array(all)
        })
    }
}

/// Lists of which those that are NULL have no elements.
fn without_null(lists: &ListArray) -> DFResult<ArrayRef> {
    let (mut taken, mut offsets) = (Vec::new(), vec![0_i32]);
    for row in 0..lists.len() {
        if lists.is_valid(row) {
            let bounds = &lists.value_offsets()[row..row + 2];
            taken.extend(bounds[0] as u64..bounds[1] as u64);
        }
        offsets.push(i32::try_from(taken.len()).unwrap_or(i32::MAX));
    }
    let DataType::List(field) = lists.data_type() else { return internal_err!("list_or_empty of no list") };
    let values = take(lists.values(), &UInt64Array::from(taken), None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, None)?))
}

impl ScalarUDFImpl for TrimArray {
    fn name(&self) -> &str {
        "trim_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match arguments {
            [list @ DataType::List(_), count] if count.is_integer() || count.is_null() => {
                Ok(vec![list.clone(), DataType::Int64])
            }
            _ => {
                let found: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                let message = format!("function trim_array({}) does not exist", found.join(", "));
                Err(external(Error::coded("42883", message)))
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments.first() {
            Some(list) => Ok(list.clone()),
            None => internal_err!("trim_array expects a list"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let (lists, counts) = (arguments.args[0].to_array(rows)?, arguments.args[1].to_array(rows)?);
        let trimmed = trimmed(lists.as_list::<i32>(), &counts)?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&trimmed, 0)?)
        } else {
            ColumnarValue::Array(trimmed)
        })
    }
}

fn trimmed(lists: &ListArray, counts: &ArrayRef) -> DFResult<ArrayRef> {
    let counts = counts.as_primitive::<Int64Type>();
    let (mut taken, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..lists.len() {
        let is_valid = lists.is_valid(row) && counts.is_valid(row);
        if is_valid {
            let (length, first) = (i64::from(lists.value_length(row)), lists.value_offsets()[row] as u64);
            let count = counts.value(row);
            if !(0..=length).contains(&count) {
                let message = format!("number of elements to trim must be between 0 and {length}");
                return Err(external(Error::coded("2202E", message)));
            }
            taken.extend((0..(length - count) as u64).map(|at| first + at));
        }
        valid.push(is_valid);
        offsets.push(i32::try_from(taken.len()).unwrap_or(i32::MAX));
    }
    let DataType::List(field) = lists.data_type() else { return internal_err!("trim_array of no list") };
    let values = take(lists.values(), &UInt64Array::from(taken), None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, Some(valid.into()))?))
}
