//! Rows of values as record batches, and back.

use crate::batch::ColumnArray;
use crate::batch::builder::ColumnBuilder;
use crate::error::Result;
use crate::schema::Column;
use crate::value::Row;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use std::borrow::Borrow;
use std::sync::Arc;

/// Converts the first columns of rows, described by `columns`, to a batch of this schema. An error for a NULL
/// where the schema has none.
pub fn rows_to_batch<R: Borrow<Row>>(
    schema: &SchemaRef,
    columns: &[Column],
    rows: &[R],
) -> Result<RecordBatch, ArrowError> {
    let fields = schema.fields().iter().zip(columns).enumerate();
    let arrays = fields.map(|(at, (field, column))| -> ArrayRef {
        let mut builder = ColumnBuilder::new(column.data_type, field.data_type(), rows.len());
        rows.iter().for_each(|row| builder.push(&row.borrow()[at]));
        builder.finish()
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays.collect(), &options)
}

/// Converts a batch of these columns to rows.
pub fn batch_to_rows(table: &str, columns: &[Column], batch: &RecordBatch) -> Result<Vec<Row>> {
    let mut rows = vec![Vec::with_capacity(columns.len()); batch.num_rows()];
    for (column, array) in columns.iter().zip(batch.columns()) {
        let values = ColumnArray::new(table, column, array)?;
        rows.iter_mut().enumerate().for_each(|(at, row)| row.push(values.value(at)));
    }
    Ok(rows)
}
