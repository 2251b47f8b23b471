//! Union: the tuples of all inputs, in the order in which they arrive.
//!
//! Its watermark is the least of its inputs', which the execution computes for every node.

use crate::element::Batch;
use crate::error::Result;
use crate::operators::{Context, Operator, Output};

pub(crate) struct Union;

impl Operator for Union {
    fn name(&self) -> &str {
        "union"
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        output.push(batch.clone());
        Ok(())
    }
}
