//! Filter: passes on the tuples for which a predicate is true.
//!
//! A batch of which all tuples pass is not copied; otherwise those that pass are. A tuple that is taken back passes if it
//! passed when it was inserted: a predicate gives the same for the same tuple.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::expression::{Expression, evaluate};
use crate::operators::{Context, Operator, Output};
use arrow_array::cast::AsArray;
use arrow_schema::ArrowError;
use arrow_select::filter::{filter, filter_record_batch};

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
                let refused = |error: ArrowError| refused(error.to_string());
                let passed = filter_record_batch(batch.rows(), passes).map_err(refused)?;
                output.push(match batch.retracted() {
                    None => passed.into(),
                    Some(retracted) => {
                        let retracted = filter(retracted, passes).map_err(refused)?;
                        Batch::of_changes(passed, retracted.as_boolean().clone())
                    }
                });
            }
        }
        Ok(())
    }
}
