//! Filter: passes on the tuples that a predicate accepts, without copies.

use crate::element::Batch;
use crate::error::Result;
use crate::operators::{Context, Operator, Output};
use entresol_tables::Value;

pub(crate) struct Filter<F> {
    name: String,
    predicate: F,
}

impl<F: FnMut(&[Value]) -> bool + Send> Filter<F> {
    pub(crate) fn new(name: String, predicate: F) -> Self {
        Filter { name, predicate }
    }
}

impl<F: FnMut(&[Value]) -> bool + Send> Operator for Filter<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        output.push(batch.filter(&mut self.predicate));
        Ok(())
    }
}
