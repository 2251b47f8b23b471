//! Digits behind the point of NUMERICs.
//!
//! | function | result |
//! | --- | --- |
//! | `scale(n)` | those of its type, which all values of a column have |
//! | `min_scale(n)` | as many as the value needs |
//! | `trim_scale(n)` | `n` without zeros at its end; only of a literal, as values of a column have equal scales |

use crate::error::{Error, external};
use crate::postgres::type_names::no_function;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Type of integers.
const INTEGER: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ScaleFunction {
    Scale,
    MinScale,
    TrimScale,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: ScaleFunction,
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 3] {
    [ScaleFunction::Scale, ScaleFunction::MinScale, ScaleFunction::TrimScale].map(|kind| {
        ScalarUDF::from(Function { kind, signature: Signature::user_defined(Volatility::Immutable) })
    })
}

/// Digits behind the point that a value of a scale needs.
fn needed(mut value: i128, scale: i8) -> i8 {
    let mut needed = scale.max(0);
    while needed > 0 && value % 10 == 0 {
        value /= 10;
        needed -= 1;
    }
    needed
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            ScaleFunction::Scale => "scale",
            ScaleFunction::MinScale => "min_scale",
            ScaleFunction::TrimScale => "trim_scale",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match arguments {
            [numeric @ DataType::Decimal128(..)] => Ok(vec![numeric.clone()]),
            [numeric] if numeric.is_integer() || numeric.is_null() => Ok(vec![INTEGER]),
            _ => Err(no_function(self.name(), arguments)),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        internal_err!("{} has a field for its result", self.name())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        let types: Vec<&DataType> = arguments.arg_fields.iter().map(|field| field.data_type()).collect();
        let result = match (self.kind, arguments.scalar_arguments, types.as_slice()) {
            (ScaleFunction::Scale | ScaleFunction::MinScale, ..) => DataType::Int32,
            (_, [Some(ScalarValue::Decimal128(Some(value), precision, scale))], _) => {
                DataType::Decimal128(*precision, needed(*value, *scale))
            }
            (_, _, [of @ DataType::Decimal128(_, ..=0)]) => (*of).clone(),
            (_, _, [of]) if of.is_null() => INTEGER,
            _ => {
                let message = "trim_scale of anything but a literal: all values of a column have as many digits \
                               behind the point as its type says; round(x, n) has n of them";
                return Err(external(Error::unsupported(message)));
            }
        };
        Ok(Arc::new(Field::new(self.name(), result, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [numeric] = arguments.args.as_slice() else {
            return internal_err!("{} expects a numeric", self.name());
        };
        let array = numeric.to_array(arguments.number_rows)?;
        let DataType::Decimal128(_, scale) = *array.data_type() else {
            return internal_err!("{} of {}", self.name(), array.data_type());
        };
        let numbers = array.as_primitive::<Decimal128Type>();
        let counts = |count: &dyn Fn(i128) -> i8| -> ArrayRef {
            let counts = numbers.iter().map(|numeric| numeric.map(|numeric| i32::from(count(numeric))));
            Arc::new(counts.collect::<Int32Array>())
        };
        let result: ArrayRef = match (self.kind, arguments.return_field.data_type()) {
            (ScaleFunction::Scale, _) => counts(&|_| scale.max(0)),
            (ScaleFunction::MinScale, _) => counts(&|numeric| needed(numeric, scale)),
            (_, DataType::Decimal128(precision, trimmed)) => {
                let unit = 10_i128.pow(u32::from(scale.abs_diff(*trimmed)));
                let trim = numbers.unary::<_, Decimal128Type>(|numeric| numeric / unit);
                Arc::new(trim.with_precision_and_scale(*precision, *trimmed)?)
            }
            (_, other) => return internal_err!("trim_scale returns {other}"),
        };
        Ok(ColumnarValue::Array(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_not_needed() {
        for (value, scale, expected) in [(1500, 3, 1), (0, 2, 0), (1001, 3, 3), (1000, 0, 0), (-20, 1, 0)] {
            assert_eq!(needed(value, scale), expected, "{value} {scale}");
        }
    }
}
