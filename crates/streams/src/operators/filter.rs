//! Filter: passes on the tuples for which a predicate is true.
//!
//! A batch of which all tuples pass is not copied; otherwise those that pass are.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::operators::{Context, Operator, Output};
use arrow_array::cast::AsArray;
use arrow_select::filter::filter_record_batch;

pub(crate) struct Filter {
    name: String,
    predicate: Box<dyn Expression>,
}

impl Filter {
    pub(crate) fn new(name: String, predicate: Box<dyn Expression>) -> Filter {
        Filter { name, predicate }
    }
}

impl Operator for Filter {
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
        let passes = evaluate(&self.name, &mut *self.predicate, batch.rows())?;
        let refused = |reason| Error::Tuple { operator: self.name.clone(), reason };
        let passes = passes
            .as_boolean_opt()
            .ok_or_else(|| refused(format!("the predicate is {}, not a truth value", passes.data_type())))?;
        match passes.true_count() {
            0 => {}
            all if all == batch.len() => output.push(batch.clone()),
            _ => {
                let passed = filter_record_batch(batch.rows(), passes);
                output.push(passed.map_err(|error| refused(error.to_string()))?.into());
            }
        }
        Ok(())
    }
}
