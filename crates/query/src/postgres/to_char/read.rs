//! Functions that read strings by templates.
//!
//! `to_date(text, template)` and `to_timestamp(text, template)` are casts of the local time that
//! [`TIME_OF_TEXT`] returns. `to_number(text, template)` is a NUMERIC with as many digits behind the point as a
//! constant template has.

use super::numbers::number_of;
use super::reading::time_of;
use crate::error::{Error, external};
use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Function of the local time of a string by a template.
pub(crate) const TIME_OF_TEXT: &str = "time_of_text";
/// Digits behind the point of numbers whose template is no constant.
const SCALE_DEFAULT: i8 = 10;

/// All functions of this module.
pub(super) fn functions() -> [ScalarUDF; 2] {
    let of = |is_number| {
        let signature = Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Immutable);
        ScalarUDF::from(ReadByTemplate { is_number, signature })
    };
    [of(false), of(true)]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadByTemplate {
    is_number: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ReadByTemplate {
    fn name(&self) -> &str {
        if self.is_number { "to_number" } else { TIME_OF_TEXT }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(if self.is_number {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, SCALE_DEFAULT)
        } else {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        })
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        let of = match arguments.scalar_arguments.get(1) {
            Some(Some(ScalarValue::Utf8(Some(template)))) if self.is_number => {
                let scale = number_of("0", template).map_err(external)?.1;
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale.cast_signed())
            }
            _ => self.return_type(&[])?,
        };
        Ok(Arc::new(Field::new(self.name(), of, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let [text, template] = arguments.args.as_slice() else {
            return internal_err!("{} expects two arguments", self.name());
        };
        let (texts, templates) = (text.to_array(rows)?, template.to_array(rows)?);
        let pairs = texts.as_string::<i32>().iter().zip(templates.as_string::<i32>());
        let of = arguments.return_field.data_type();
        let array: ArrayRef = match of {
            DataType::Decimal128(_, scale) => {
                let numbers = pairs.map(|pair| match pair {
                    (Some(text), Some(template)) => number(text, template, scale.unsigned_abs()).map(Some),
                    _ => Ok(None),
                });
                Arc::new(numbers.collect::<DFResult<Decimal128Array>>()?.with_data_type(of.clone()))
            }
            _ => {
                let times = pairs.map(|pair| match pair {
                    (Some(text), Some(template)) => time_of(text, template).map(Some).map_err(external),
                    _ => Ok(None),
                });
                Arc::new(times.collect::<DFResult<TimestampMicrosecondArray>>()?)
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

fn number(text: &str, template: &str, scale: u8) -> DFResult<i128> {
    let (number, found) = number_of(text, template).map_err(external)?;
    entresol_tables::decimal::rescale(number, found, scale).ok_or_else(|| {
        external(Error::coded(
            "22003",
            format!("number \"{text}\" is out of range by the template \"{template}\""),
        ))
    })
}
