//! Projection: computes each column of the output for a batch at once. A select is a projection of columns.
//! Map: turns each tuple into one tuple, none, or an error, by a closure.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::operators::{Context, Operator, Output};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use entresol_tables::{BatchBuilder, Value};
use std::sync::Arc;

pub(crate) struct Projection {
    pub(crate) name: String,
    /// Columns of the output, and the expression of each.
    pub(crate) schema: SchemaRef,
    pub(crate) expressions: Vec<Box<dyn Expression>>,
}

impl Operator for Projection {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let rows = batch.rows();
        let name = &self.name;
        let columns = self.expressions.iter_mut().map(|expression| evaluate(name, &mut **expression, rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let projected = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        let refused = |error: arrow_schema::ArrowError| Error::Tuple {
            operator: self.name.clone(),
            reason: error.to_string(),
        };
        output.push(batch.with_rows(projected.map_err(refused)?));
        Ok(())
    }
}

pub(crate) struct Map<F> {
    name: String,
    output: BatchBuilder,
    function: F,
}

impl<F: FnMut(&[Value]) -> Result<Option<Tuple>, String> + Send> Map<F> {
    /// Map to tuples that `output` takes.
    pub(crate) fn new(name: String, output: BatchBuilder, function: F) -> Self {
        Map { name, output, function }
    }

    fn map(&mut self, batch: &Batch) -> Result<Batch> {
        for tuple in batch.tuples()? {
            let mapped = (self.function)(&tuple);
            let pushed = mapped.and_then(|mapped| mapped.map_or(Ok(()), |mapped| self.output.push(&mapped)));
            pushed.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(self.output.finish().into())
    }
}

impl<F: FnMut(&[Value]) -> Result<Option<Tuple>, String> + Send> Operator for Map<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let mapped = self.map(batch).inspect_err(|_| drop(self.output.finish()))?;
        output.push(mapped);
        Ok(())
    }
}
