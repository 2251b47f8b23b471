//! Changes as rows that stay: each tuple that is inserted or taken back, with its change type in a last column.
//!
//! Operators behind it need to know nothing of changes, as a sink, which cannot take back what has left.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::operators::{Context, Operator, Output};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use std::sync::Arc;

/// Change types of tuples that are inserted, and taken back.
pub(crate) const INSERT: &str = "insert";
pub(crate) const DELETE: &str = "delete";

pub(crate) struct ChangesAsRows {
    pub(crate) name: String,
    /// Columns of the output.
    pub(crate) schema: SchemaRef,
}

impl Operator for ChangesAsRows {
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
        let types: StringArray = match batch.retracted() {
            None => std::iter::repeat_n(Some(INSERT), batch.len()).collect(),
            Some(retracted) => retracted
                .values()
                .iter()
                .map(|is_retracted| Some(if is_retracted { DELETE } else { INSERT }))
                .collect(),
        };
        let types: ArrayRef = Arc::new(types);
        let columns = batch.rows().columns().iter().cloned().chain([types]).collect();
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let failed = |error: arrow_schema::ArrowError| Error::Tuple {
            operator: self.name.clone(),
            reason: error.to_string(),
        };
        output.push(rows.map_err(failed)?.into());
        Ok(())
    }
}
