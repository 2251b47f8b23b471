//! `a || b` of strings as a function, `textcat`: the planner bounds it as all others whose results may be large
//! (`planner/bounded_functions.rs`). DataFusion's operator makes strings of any length, and fails where those of a batch
//! exceed 2 GiB.

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_utf8;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Function of this module, without a bound.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Concatenation { signature: Signature::any(2, Volatility::Immutable) })
}

/// Call of the function in the place of DataFusion's operator; `None` for others, and other types.
pub(crate) fn called(function: &Arc<ScalarUDF>, expr: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let is_text = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of == DataType::Utf8);
    if expr.op != Operator::StringConcat || !is_text(&expr.left) || !is_text(&expr.right) {
        return None;
    }
    Some(function.call(vec![(*expr.left).clone(), (*expr.right).clone()]))
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
            let joined = left.try_as_str().flatten().zip(right.try_as_str().flatten());
            let joined = joined.map(|(left, right)| format!("{left}{right}"));
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(joined)));
        }
        let (left, right) = (left.to_array(arguments.number_rows)?, right.to_array(arguments.number_rows)?);
        let joined = concat_elements_utf8(left.as_string::<i32>(), right.as_string::<i32>())?;
        Ok(ColumnarValue::Array(Arc::new(joined) as ArrayRef))
    }
}
