//! `a || b` of strings as a function, `textcat`: the planner bounds it as all others whose results may be large
//! (`planner/bounded_functions.rs`). DataFusion's operator makes strings of any length, and fails where those of a batch
//! exceed 2 GiB.
//!
//! `a || b || c` is one call: calls within calls, whose names repeat those within, took the cube of their length to plan.

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_utf8_many;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Function of this module, without a bound.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Concatenation { signature: Signature::variadic_any(Volatility::Immutable) })
}

/// Call of the function in the place of DataFusion's operator; `None` for others, and other types.
pub(crate) fn called(function: &Arc<ScalarUDF>, expr: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let is_text = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of == DataType::Utf8);
    let of_call = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) if call.func.name() == function.name() => Some(call.args.clone()),
        _ => None,
    };
    let operands = |expr: &Expr| of_call(expr).or_else(|| is_text(expr).then(|| vec![expr.clone()]));
    if expr.op != Operator::StringConcat {
        return None;
    }
    let mut all = operands(&expr.left)?;
    all.extend(operands(&expr.right)?);
    Some(function.call(all))
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
        let scalars = arguments.args.iter().map(|operand| match operand {
            ColumnarValue::Scalar(scalar) => Some(scalar),
            ColumnarValue::Array(_) => None,
        });
        if let Some(scalars) = scalars.collect::<Option<Vec<_>>>() {
            let strings = scalars.into_iter().map(|scalar| scalar.try_as_str().flatten());
            let joined = strings.collect::<Option<Vec<_>>>().map(|strings| strings.concat());
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(joined)));
        }
        let arrays = arguments.args.iter().map(|operand| operand.to_array(arguments.number_rows));
        let arrays = arrays.collect::<DFResult<Vec<ArrayRef>>>()?;
        let strings: Vec<&StringArray> = arrays.iter().map(|array| array.as_string::<i32>()).collect();
        let joined = concat_elements_utf8_many(&strings)?;
        Ok(ColumnarValue::Array(Arc::new(joined) as ArrayRef))
    }
}
