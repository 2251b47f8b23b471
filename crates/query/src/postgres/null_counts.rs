//! `num_nulls(a, ...)` and `num_nonnulls(a, ...)`: numbers of arguments that are NULL, and that are not, of any types.

use crate::postgres::type_names::no_function;
use datafusion::arrow::array::{Array, ArrayRef, Int32Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct NullCount {
    counts_nulls: bool,
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    [true, false].map(|counts_nulls| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(NullCount { counts_nulls, signature })
    })
}

impl ScalarUDFImpl for NullCount {
    fn name(&self) -> &str {
        if self.counts_nulls { "num_nulls" } else { "num_nonnulls" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        if arguments.is_empty() {
            return Err(no_function(self.name(), arguments));
        }
        Ok(arguments.to_vec())
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Int32, false)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.iter().map(|value| value.to_array(rows)).collect::<DFResult<_>>()?;
        // A value of the type of NULL alone has no mask.
        let nulls: Vec<_> = columns.iter().map(|column| column.logical_nulls()).collect();
        let count = |row: usize| {
            let is_null =
                |mask: &&Option<_>| mask.as_ref().is_some_and(|mask: &NullBuffer| mask.is_null(row));
            // A statement has far fewer arguments.
            nulls.iter().filter(|mask| is_null(mask) == self.counts_nulls).count() as i32
        };
        let counts = Int32Array::from_iter_values((0..rows).map(count));
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::Int32(Some(counts.value(0))))
        } else {
            ColumnarValue::Array(Arc::new(counts))
        })
    }
}
