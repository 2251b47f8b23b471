//! Rows of a pattern in Arrow's row format, in which they are buffered.

use crate::error::{Error, Result};
use crate::operators::pattern::path::PatternRow;
use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SchemaRef};

/// Converter between batches and buffered rows.
pub(crate) struct PatternRows {
    /// Name of the operator, for errors.
    pub(crate) name: String,
    columns: SchemaRef,
    converter: RowConverter,
}

impl PatternRows {
    /// Converter of rows with these columns.
    pub(crate) fn new(name: String, columns: SchemaRef) -> Result<PatternRows> {
        let fields = columns.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect());
        let converter =
            converter.map_err(|error| Error::Tuple { operator: name.clone(), reason: error.to_string() })?;
        Ok(PatternRows { name, columns, converter })
    }

    pub(crate) fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Rows of a batch in the form in which they are buffered.
    pub(crate) fn rows_of(&self, batch: &RecordBatch) -> Result<Rows> {
        self.converter.convert_columns(batch.columns()).map_err(|error| self.failed(&error))
    }

    /// Columns of buffered rows.
    pub(crate) fn batch_of<'r>(&self, rows: impl IntoIterator<Item = &'r PatternRow>) -> Result<RecordBatch> {
        let columns = self.converter.convert_rows(rows.into_iter().map(|row| row.values.row()));
        let batch = columns.and_then(|columns| RecordBatch::try_new(self.columns.clone(), columns));
        batch.map_err(|error| self.failed(&error))
    }
}
