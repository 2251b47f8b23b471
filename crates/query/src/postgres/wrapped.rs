//! Functions of DataFusion with something done around each call.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DFResult;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Something that is done around each call of a function.
pub(crate) trait CallWrapper: Debug + Send + Sync + 'static {
    /// True if DataFusion may replace a call by other expressions, around which nothing is done.
    const MAY_SIMPLIFY: bool;

    /// Calls a function.
    fn call(&self, inner: &Arc<ScalarUDF>, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue>;
}

/// Function with something around it; in all else it is the function.
#[derive(Debug)]
pub(crate) struct WrappedFunction<A> {
    inner: Arc<ScalarUDF>,
    around: A,
}

impl<A: CallWrapper> WrappedFunction<A> {
    pub(crate) fn of(inner: Arc<ScalarUDF>, around: A) -> ScalarUDF {
        ScalarUDF::from(WrappedFunction { inner, around })
    }

    /// Function, and what is around it.
    pub(crate) fn parts(&self) -> (&Arc<ScalarUDF>, &A) {
        (&self.inner, &self.around)
    }
}

impl<A> PartialEq for WrappedFunction<A> {
    fn eq(&self, other: &WrappedFunction<A>) -> bool {
        self.inner == other.inner
    }
}

impl<A> Eq for WrappedFunction<A> {}

impl<A> Hash for WrappedFunction<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl<A: CallWrapper> ScalarUDFImpl for WrappedFunction<A> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> DFResult<String> {
        self.inner.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DFResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> DFResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> DFResult<ExprSimplifyResult> {
        if A::MAY_SIMPLIFY {
            self.inner.simplify(arguments, info)
        } else {
            Ok(ExprSimplifyResult::Original(arguments))
        }
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> DFResult<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> DFResult<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> DFResult<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> DFResult<bool> {
        self.inner.strictly_order_preserving(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.inner().placement(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        self.around.call(&self.inner, arguments)
    }
}
