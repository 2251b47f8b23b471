//! Values of a run: in the place of a parameter a generic plan has a function that takes its value from a slot.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use parking_lot::RwLock;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Slot of the values of a run; empty while none runs.
#[derive(Debug, Default)]
pub(crate) struct RunValues(RwLock<Vec<ScalarValue>>);

impl RunValues {
    pub(crate) fn set(&self, values: &[ScalarValue]) {
        let mut slot = self.0.write();
        slot.clear();
        slot.extend_from_slice(values);
    }

    pub(crate) fn clear(&self) {
        self.0.write().clear();
    }
}

/// Function that is the value of a parameter. It is volatile, so that nothing takes it for a constant.
#[derive(Debug)]
pub(crate) struct ParameterFunction {
    index: usize,
    name: String,
    data_type: DataType,
    signature: Signature,
    values: Arc<RunValues>,
}

impl ParameterFunction {
    /// Call of the function of a parameter, as an expression.
    pub(crate) fn call(index: usize, name: String, data_type: DataType, values: &Arc<RunValues>) -> Expr {
        let signature = Signature::nullary(Volatility::Volatile);
        let values = Arc::clone(values);
        ScalarUDF::from(ParameterFunction { index, name, data_type, signature, values }).call(Vec::new())
    }

    /// Index of the parameter.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl PartialEq for ParameterFunction {
    fn eq(&self, other: &ParameterFunction) -> bool {
        self.index == other.index && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for ParameterFunction {}

impl Hash for ParameterFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl ScalarUDFImpl for ParameterFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        match self.values.0.read().get(self.index) {
            Some(value) => Ok(ColumnarValue::Scalar(value.clone())),
            // Planning must not see a value: another run has another one.
            None => internal_err!("{} has no value outside of a run", self.name),
        }
    }
}
