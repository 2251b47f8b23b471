//! Map: turns each tuple into one tuple, none, or an error. A select is a map.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output};
use entresol_tables::Value;

pub(crate) struct Map<F> {
    name: String,
    /// Number of values of each output tuple.
    values: usize,
    function: F,
}

impl<F: FnMut(&[Value]) -> Result<Option<Tuple>, String> + Send> Map<F> {
    pub(crate) fn new(name: String, values: usize, function: F) -> Self {
        Map { name, values, function }
    }
}

impl<F: FnMut(&[Value]) -> Result<Option<Tuple>, String> + Send> Operator for Map<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let mut tuples = Vec::with_capacity(batch.len());
        for tuple in batch.iter() {
            let mapped = (self.function)(tuple);
            let mapped = mapped.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
            let Some(mapped) = mapped else { continue };
            if mapped.len() != self.values {
                let reason = format!("expected {} values, found {}", self.values, mapped.len());
                return Err(Error::Tuple { operator: self.name.clone(), reason });
            }
            tuples.push(mapped);
        }
        output.push(Batch::new(tuples));
        Ok(())
    }
}
