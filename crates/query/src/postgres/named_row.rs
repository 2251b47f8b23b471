//! Row of a relation: `named_row('id', u.id, 'data', u.data)`. Unlike `named_struct` its fields keep the types that are more than those
//! of Arrow, such as JSON.

use datafusion::arrow::array::{ArrayRef, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Name of the function.
pub(crate) const NAMED_ROW: &str = "named_row";

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedRow {
    signature: Signature,
}

/// The function.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(NamedRow { signature: Signature::variadic_any(Volatility::Immutable) })
}

impl ScalarUDFImpl for NamedRow {
    fn name(&self) -> &str {
        NAMED_ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        internal_err!("{NAMED_ROW} has a field for its result")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        let pairs = arguments.scalar_arguments.chunks(2).zip(arguments.arg_fields.chunks(2));
        let fields = pairs.map(|(values, fields)| match (values, fields) {
            ([Some(ScalarValue::Utf8(Some(name))), _], [_, value]) => {
                Ok(value.as_ref().clone().with_name(name).with_nullable(true))
            }
            _ => internal_err!("{NAMED_ROW} has a name before each value"),
        });
        let fields: Fields = fields.collect::<DFResult<Vec<Field>>>()?.into();
        Ok(Arc::new(Field::new(NAMED_ROW, DataType::Struct(fields), false)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let DataType::Struct(fields) = arguments.return_field.data_type() else {
            return internal_err!("{NAMED_ROW} is a struct");
        };
        let rows = arguments.number_rows;
        let values = arguments.args.iter().skip(1).step_by(2);
        let values = values.map(|value| value.to_array(rows)).collect::<DFResult<Vec<ArrayRef>>>()?;
        let row = StructArray::try_new_with_length(fields.clone(), values, None, rows)?;
        Ok(ColumnarValue::Array(Arc::new(row)))
    }
}
