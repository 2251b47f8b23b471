//! Lists in streams: what `array_agg` gives, until a function makes a value of a column's type of it.
//!
//! ```text
//!   percentile_disc_of(array_agg(x ORDER BY x), 0.5)      aggregate ─▶ VARCHAR: the list, encoded ─▶ expression that decodes it
//! ```
//!
//! Columns of streams have the types of tables, and no column of a table is a list. So a list is a string there, Arrow's row
//! format in base64, as states of functions are stored ([`super::aggregates`]). What a stream, a table or a sink would get as a
//! list is refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, new_empty_array, new_null_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::Result as DFResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Tells whether values of a type are lists.
pub(crate) fn is_list(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::List(_))
}

/// Text of an array of one value.
pub(crate) fn encoded(value: &ArrayRef) -> DFResult<String> {
    let rows = converter(value.data_type())?.convert_columns(std::slice::from_ref(value))?;
    Ok(STANDARD.encode(rows.row(0).data()))
}

/// Array of the value of a string; none if it is of no value of the type.
pub(crate) fn decoded(string: &str, data_type: &ArrowType) -> DFResult<Option<ArrayRef>> {
    let Ok(bytes) = STANDARD.decode(string) else { return Ok(None) };
    let converter = converter(data_type)?;
    let parser = converter.parser();
    Ok(converter.convert_rows([parser.parse(&bytes)])?.pop())
}

fn converter(data_type: &ArrowType) -> DFResult<RowConverter> {
    Ok(RowConverter::new(vec![SortField::new(data_type.clone())])?)
}

/// Expression of the list that a column encodes.
pub(crate) fn list_of(column: Expr, data_type: ArrowType) -> Expr {
    let signature = Signature::exact(vec![ArrowType::Utf8], Volatility::Immutable);
    let function = ScalarUDF::from(DecodedList { signature, data_type });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![column]))
}

/// Function of the list that a string encodes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DecodedList {
    signature: Signature,
    data_type: ArrowType,
}

impl ScalarUDFImpl for DecodedList {
    fn name(&self) -> &str {
        "decoded_list"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> DFResult<ArrowType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let strings = arguments.args[0].to_array(arguments.number_rows)?;
        let lists = strings.as_string::<i32>().iter().map(|string| match string {
            None => Ok(new_null_array(&self.data_type, 1)),
            Some(string) => decoded(string, &self.data_type)?
                .ok_or_else(|| DataFusionError::Execution("a column encodes no list".to_owned())),
        });
        let lists = lists.collect::<DFResult<Vec<ArrayRef>>>()?;
        if lists.is_empty() {
            return Ok(ColumnarValue::Array(new_empty_array(&self.data_type)));
        }
        let lists: Vec<&dyn Array> = lists.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&lists)?))
    }
}
