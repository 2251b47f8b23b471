//! Calls of the catalog functions by DataFusion: rows of cells in, a column out.

use super::cell::{self, Cell, cells, column};
use super::functions::DEFINITIONS;
use super::view::Source;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result as DFResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Registers the functions with DataFusion.
pub(crate) fn register(context: &SessionContext, source: &Source) {
    for place in 0..DEFINITIONS.len() {
        context.register_udf(ScalarUDF::from(CatalogFunction::new(place, source)));
    }
    context.register_udf(ScalarUDF::from(ExpandArray::new()));
}

/// A [`Definition`] bound to a session.
struct CatalogFunction {
    place: usize,
    signature: Signature,
    returns: DataType,
    source: Source,
}

impl CatalogFunction {
    fn new(place: usize, source: &Source) -> CatalogFunction {
        let definition = &DEFINITIONS[place];
        let counts = definition.arguments.clone().map(|count| match count {
            0 => TypeSignature::Nullary,
            count => TypeSignature::Any(count),
        });
        let volatility = if definition.acts { Volatility::Volatile } else { Volatility::Stable };
        CatalogFunction {
            place,
            signature: Signature::one_of(counts.collect(), volatility),
            returns: cell::type_of(definition.returns()).unwrap_or(DataType::Utf8),
            source: source.clone(),
        }
    }
}

impl std::fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CatalogFunction").field(&DEFINITIONS[self.place].name).finish()
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &CatalogFunction) -> bool {
        self.place == other.place && Arc::ptr_eq(&self.source.variables, &other.source.variables)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        DEFINITIONS[self.place].name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let definition = &DEFINITIONS[self.place];
        let view = self.source.view()?;
        let constant = !definition.acts
            && arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { arguments.number_rows };
        let columns: Vec<Vec<Cell>> = arguments
            .args
            .iter()
            .map(|argument| cells(&argument.to_array(rows)?))
            .collect::<DFResult<_>>()?;
        let mut row = Vec::with_capacity(columns.len());
        let mut answers = Vec::with_capacity(rows);
        for at in 0..rows {
            row.clear();
            row.extend(columns.iter().map(|column| column[at].clone()));
            let skipped = definition.strict && row.contains(&Cell::Null);
            answers.push(if skipped { Cell::Null } else { (definition.call)(&view, &row)? });
        }
        let answers = column(&self.returns, answers)?;
        Ok(if constant {
            ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&answers, 0)?)
        } else {
            ColumnarValue::Array(answers)
        })
    }
}

/// `_pg_expandarray(list)`: its elements with their positions, as a list of (x, n) that is unnested.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExpandArray {
    signature: Signature,
}

impl ExpandArray {
    fn new() -> ExpandArray {
        ExpandArray { signature: Signature::any(1, Volatility::Immutable) }
    }

    fn fields() -> Fields {
        Fields::from(vec![Field::new("x", DataType::Int32, true), Field::new("n", DataType::Int32, true)])
    }
}

impl ScalarUDFImpl for ExpandArray {
    fn name(&self) -> &str {
        "_pg_expandarray"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(cell::list_of(DataType::Struct(ExpandArray::fields())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        let wide = datafusion::arrow::compute::cast(&array, &cell::list_of(DataType::Int32))?;
        let lists = wide.as_list::<i32>();
        let places = (0..lists.len()).flat_map(|row| 1..=lists.value_length(row));
        let values = lists.values().slice(
            lists.value_offsets()[0] as usize,
            (lists.value_offsets()[lists.len()] - lists.value_offsets()[0]) as usize,
        );
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(places));
        let fields = ExpandArray::fields();
        let pairs = StructArray::try_new(fields.clone(), vec![values, numbers], None)?;
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        let lengths = (0..lists.len()).map(|row| lists.value_length(row) as usize);
        let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(
            item,
            offsets,
            Arc::new(pairs),
            lists.nulls().cloned(),
        )?)))
    }
}
