//! Sequence functions `nextval`, `currval`, `lastval` and `setval`.
//!
//! - Advancing a sequence is not transactional: values taken by a statement stay taken, whether it commits or
//!   not. A session remembers the last value that it took from each sequence (`currval`) and from any
//!   (`lastval`).
//! - A statement that advances a sequence for many rows does so for a batch of them at once.
//! - Each reservation of values waits for the disk if the session's commits do (the tables' module `sequence`
//!   gives the reason), on the thread that runs the statement, once per 32 values or more.
//!
//! Memory: two numbers per sequence that a session used.

use crate::error::{Error, Result, external};
use crate::parser::sequence_calls::relation_name;
use crate::session::variables::SessionVariables;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use entresol_memory::Durability;
use entresol_tables::{Catalog, Position, Sequence, SequenceDefinition};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Sequence values that a session took.
#[derive(Debug, Default)]
pub(crate) struct SequenceValues {
    /// Last value by the sequence's number.
    values: HashMap<u64, i64>,
    /// Sequence of the last `nextval`.
    last: Option<u64>,
}

impl SequenceValues {
    /// Forgets all values, for DISCARD SEQUENCES.
    pub(crate) fn clear(&mut self) {
        *self = SequenceValues::default();
    }
}

/// Registers the functions with DataFusion.
pub(crate) fn register(context: &SessionContext, catalog: &Arc<Catalog>, variables: &Arc<SessionVariables>) {
    for kind in
        [SequenceFunction::Next, SequenceFunction::Current, SequenceFunction::Last, SequenceFunction::Set]
    {
        context.register_udf(ScalarUDF::from(Function::new(kind, catalog, variables)));
    }
}

impl SequenceFunction {
    fn name(self) -> &'static str {
        match self {
            SequenceFunction::Next => "nextval",
            SequenceFunction::Current => "currval",
            SequenceFunction::Last => "lastval",
            SequenceFunction::Set => "setval",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SequenceFunction {
    /// `nextval(sequence)`
    Next,
    /// `currval(sequence)`
    Current,
    /// `lastval()`
    Last,
    /// `setval(sequence, value [, is_called])`
    Set,
}

/// Sequence function of a session.
#[derive(Debug)]
struct Function {
    kind: SequenceFunction,
    signature: Signature,
    aliases: Vec<String>,
    catalog: Arc<Catalog>,
    variables: Arc<SessionVariables>,
}

impl Function {
    fn new(kind: SequenceFunction, catalog: &Arc<Catalog>, variables: &Arc<SessionVariables>) -> Function {
        let (text, number) = (ArrowType::Utf8, ArrowType::Int64);
        let signature = match kind {
            SequenceFunction::Next | SequenceFunction::Current => TypeSignature::Exact(vec![text]),
            SequenceFunction::Last => TypeSignature::Nullary,
            SequenceFunction::Set => TypeSignature::OneOf(vec![
                TypeSignature::Exact(vec![text.clone(), number.clone()]),
                TypeSignature::Exact(vec![text, number, ArrowType::Boolean]),
            ]),
        };
        let mut function = Function {
            kind,
            signature: Signature::new(signature, Volatility::Volatile),
            aliases: Vec::new(),
            catalog: Arc::clone(catalog),
            variables: Arc::clone(variables),
        };
        function.aliases.push(format!("pg_catalog.{}", kind.name()));
        function
    }

    fn durability(&self) -> Durability {
        self.variables.settings().value("durability").parse().unwrap_or_default()
    }

    fn sequence(&self, name: &str) -> Result<Arc<Sequence>> {
        Ok(self.catalog.sequence(&relation_name(name)?)?)
    }

    fn next(&self, name: &str, count: u64) -> Result<Vec<i64>> {
        advance(&self.catalog, &self.variables, &*self.sequence(name)?, count, self.durability())
    }

    fn current(&self, name: &str) -> Result<i64> {
        let sequence = self.sequence(name)?;
        let value = self.variables.sequence_values.lock().values.get(&sequence.id()).copied();
        value.ok_or_else(|| {
            let name = sequence.name();
            Error::coded(
                "55000",
                format!("currval of sequence \"{name}\" is not yet defined in this session"),
            )
        })
    }

    fn last(&self) -> Result<i64> {
        let advanced = self.variables.sequence_values.lock();
        let value = advanced.last.and_then(|id| advanced.values.get(&id).copied());
        value.ok_or_else(|| Error::coded("55000", "lastval is not yet defined in this session"))
    }

    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        let sequence = self.sequence(name)?;
        let SequenceDefinition { min_value, max_value, .. } = sequence.definition();
        if !(min_value..=max_value).contains(&value) {
            let bounds = format!("({min_value}..{max_value})");
            let message = format!(
                "setval: value {value} is out of bounds for sequence \"{}\" {bounds}",
                sequence.name()
            );
            return Err(Error::coded("22003", message));
        }
        self.catalog.set_position(&sequence, Position { last: value, called }, self.durability())?;
        if called {
            self.variables.sequence_values.lock().values.insert(sequence.id(), value);
        }
        Ok(value)
    }
}

/// Function `nextval` of a session's planner.
pub(crate) fn nextval(state: &SessionState) -> Option<Arc<ScalarUDF>> {
    state.scalar_functions().get(SequenceFunction::Next.name()).cloned()
}

/// Takes `count` values of `nextval(name)`.
pub(crate) fn next_values(nextval: &ScalarUDF, name: &str, count: usize) -> Result<ArrayRef> {
    let function = nextval.inner().downcast_ref::<Function>();
    let function = function.ok_or_else(|| Error::Internal("nextval is not the sequence function".into()))?;
    Ok(Arc::new(Int64Array::from(function.next(name, count as u64)?)))
}

/// Advances a sequence, and remembers the last value for the session.
pub(crate) fn advance(
    catalog: &Catalog,
    variables: &SessionVariables,
    sequence: &Sequence,
    count: u64,
    durability: Durability,
) -> Result<Vec<i64>> {
    let values = catalog.next_values(sequence, count, durability)?;
    if let Some(&last) = values.last() {
        let mut advanced = variables.sequence_values.lock();
        advanced.values.insert(sequence.id(), last);
        advanced.last = Some(sequence.id());
    }
    Ok(values)
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.variables, &other.variables)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        Arc::as_ptr(&self.variables).hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DFResult<ArrowType> {
        Ok(ArrowType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        if let (SequenceFunction::Next, [ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))]) =
            (self.kind, &arguments.args[..])
        {
            let values = self.next(name, rows as u64).map_err(external)?;
            return Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))));
        }
        let arrays: Vec<_> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let value = |row: usize| -> Result<Option<i64>> {
            if arrays.iter().any(|array| array.is_null(row)) {
                return Ok(None);
            }
            let name = || arrays[0].as_string::<i32>().value(row);
            Ok(Some(match self.kind {
                SequenceFunction::Next => self.next(name(), 1)?[0],
                SequenceFunction::Current => self.current(name())?,
                SequenceFunction::Last => self.last()?,
                SequenceFunction::Set => {
                    let called = arrays.get(2).is_none_or(|called| called.as_boolean().value(row));
                    self.set(name(), arrays[1].as_primitive::<Int64Type>().value(row), called)?
                }
            }))
        };
        let values: Vec<Option<i64>> = (0..rows).map(value).collect::<Result<_>>().map_err(external)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))))
    }
}
