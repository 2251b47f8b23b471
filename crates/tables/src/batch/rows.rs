//! Rows of values as record batches, and back.

use crate::batch::builder::ColumnBuilder;
use crate::batch::{ColumnArray, arrow_schema, column_type};
use crate::error::{Error, Result};
use crate::schema::Column;
use crate::value::{DataType, Row, Value};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use std::borrow::Borrow;
use std::sync::Arc;

/// Zone of TIMESTAMPTZ in batches that no session reads.
const UTC: &str = "UTC";

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

/// Converts a batch to rows by the types of its arrays. An error for a type that no column has.
pub fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>> {
    let schema = batch.schema();
    let column = |field: &arrow_schema::FieldRef| {
        let data_type = column_type(field.data_type()).ok_or_else(|| Error::WrongType {
            table: "batch".to_owned(),
            column: field.name().clone(),
            expected: DataType::Varchar,
            found: format!("an array of {}", field.data_type()),
        })?;
        Ok(Column::new(field.name().clone(), data_type))
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    batch_to_rows("batch", &columns, batch)
}

/// Value of a row of an array; none if no column has its type.
pub fn value_at(array: &ArrayRef, row: usize) -> Option<Value> {
    Some(ColumnArray::of(column_type(array.data_type())?, array)?.value(row))
}

/// Builder of batches from rows of values, which it checks.
#[derive(Debug)]
pub struct BatchBuilder {
    columns: Arc<[Column]>,
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    rows: usize,
}

impl BatchBuilder {
    /// Builder of batches of these columns; a batch will have about `rows` rows.
    pub fn new(columns: &[Column], rows: usize) -> BatchBuilder {
        let schema = arrow_schema(columns, UTC);
        let fields = columns.iter().zip(schema.fields());
        let builders =
            fields.map(|(column, field)| ColumnBuilder::new(column.data_type, field.data_type(), rows));
        BatchBuilder { columns: columns.into(), builders: builders.collect(), schema, rows: 0 }
    }

    /// Arrow schema of the batches; TIMESTAMPTZ is in UTC.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row, or returns the reason why it is not one of these columns.
    pub fn push(&mut self, row: &[Value]) -> Result<(), String> {
        if row.len() != self.columns.len() {
            return Err(format!("expected {} values, found {}", self.columns.len(), row.len()));
        }
        for (column, value) in self.columns.iter().zip(row) {
            let name = &column.name;
            if value.is_null() && !column.nullable {
                return Err(format!("column {name}: NULL in a NOT NULL column"));
            }
            if !value.is_of(column.data_type) {
                let (expected, found) = (column.data_type, value.type_name());
                return Err(format!("column {name}: expected {expected}, found {found} '{value}'"));
            }
            if let (DataType::SmallInt, Value::Int(number)) = (column.data_type, value)
                && i16::try_from(*number).is_err()
            {
                return Err(format!("column {name}: {number} is out of range of SMALLINT"));
            }
        }
        self.builders.iter_mut().zip(row).for_each(|(builder, value)| builder.push(value));
        self.rows += 1;
        Ok(())
    }

    /// Batch of the rows since the last call.
    pub fn finish(&mut self) -> RecordBatch {
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .expect("the values were checked against the schema")
    }
}
