//! ABORT WHEN: a condition on what a transaction has written, asked at the commit punctuation.
//!
//! The condition is asked after all operators that write tables whose changes it reads, also those behind a
//! TO_STREAM. If it holds, the transaction is aborted, as by a tuple that cannot be processed; where that would end the
//! topology, it is tried again a few times before, since the condition may read tables that others write.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Condition on an open transaction: true if it is to be aborted.
pub(crate) type Condition = Box<dyn FnMut(&Arc<Transaction>) -> Result<bool> + Send>;

pub(crate) struct AbortWhen {
    pub(crate) name: String,
    /// Table for the tuples of a transaction in which it holds.
    pub(crate) into: Option<String>,
    pub(crate) condition: Condition,
}

impl Operator for AbortWhen {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn batch(&mut self, _context: &Context<'_>, _batch: &Batch, _output: &mut Output) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        if (self.condition)(context.transaction()?)? {
            return Err(Error::Aborted { condition: self.name.clone(), into: self.into.clone() });
        }
        Ok(())
    }
}
