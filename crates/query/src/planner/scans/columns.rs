//! Rows into Arrow columns: only the projected columns are decoded, straight from the stored bytes.
//!
//! - A [`Columns`] has one builder per projected column and at most the rows of one batch;
//!   [`Columns::finish`] empties it.
//! - All columns have the same number of rows between calls.

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder,
    Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use entresol_tables::{DataType, RowView, Schema};
use std::sync::Arc;

/// String bytes per row reserved for a batch at first.
const TEXT_BYTES_PER_ROW: usize = 16;

enum Builder {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Varchar(StringBuilder),
}

/// Collects the projected columns of rows.
pub(crate) struct Columns {
    schema: SchemaRef,
    /// Table column and builder of each projected column.
    builders: Vec<(usize, Builder)>,
    rows: usize,
}

impl Columns {
    /// Builders for the columns `projection` of a table; `schema` is their Arrow schema.
    pub(crate) fn new(table: &Schema, projection: &[usize], schema: SchemaRef, rows: usize) -> Columns {
        let builders = projection
            .iter()
            .zip(schema.fields())
            .map(|(&column, field)| {
                (column, Builder::new(table.columns()[column].data_type, field.data_type(), rows))
            })
            .collect();
        Columns { schema, builders, rows: 0 }
    }

    /// Rows collected so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &RowView<'_>) {
        for (column, builder) in &mut self.builders {
            builder.push(row, *column);
        }
        self.rows += 1;
    }

    /// Returns the rows collected since the last call.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.builders.iter_mut().map(|(_, builder)| builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
    }
}

impl Builder {
    fn new(data_type: DataType, arrow: &ArrowType, rows: usize) -> Builder {
        match data_type {
            DataType::Boolean => Builder::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::SmallInt => Builder::SmallInt(Int16Builder::with_capacity(rows)),
            DataType::Int => Builder::Int(Int32Builder::with_capacity(rows)),
            DataType::BigInt => Builder::BigInt(Int64Builder::with_capacity(rows)),
            DataType::Real => Builder::Real(Float32Builder::with_capacity(rows)),
            DataType::Double => Builder::Double(Float64Builder::with_capacity(rows)),
            DataType::Decimal { .. } => {
                Builder::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(arrow.clone()))
            }
            DataType::Date => Builder::Date(Date32Builder::with_capacity(rows)),
            DataType::Timestamp | DataType::TimestampTz => Builder::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(arrow.clone()),
            ),
            DataType::Varchar => {
                Builder::Varchar(StringBuilder::with_capacity(rows, rows * TEXT_BYTES_PER_ROW))
            }
        }
    }

    fn push(&mut self, row: &RowView<'_>, column: usize) {
        let null = row.is_null(column);
        match self {
            Builder::Boolean(builder) => builder.append_option((!null).then(|| row.boolean(column))),
            // Stored values were checked to be in range.
            Builder::SmallInt(builder) => builder.append_option((!null).then(|| row.int(column) as i16)),
            Builder::Int(builder) => builder.append_option((!null).then(|| row.int(column))),
            Builder::BigInt(builder) => builder.append_option((!null).then(|| row.bigint(column))),
            Builder::Real(builder) => builder.append_option((!null).then(|| row.double(column) as f32)),
            Builder::Double(builder) => builder.append_option((!null).then(|| row.double(column))),
            Builder::Decimal(builder) => builder.append_option((!null).then(|| row.decimal(column))),
            Builder::Date(builder) => builder.append_option((!null).then(|| row.date(column))),
            Builder::Timestamp(builder) => builder.append_option((!null).then(|| row.timestamp(column))),
            Builder::Varchar(builder) => builder.append_option((!null).then(|| row.varchar(column))),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Boolean(builder) => Arc::new(builder.finish()),
            Builder::SmallInt(builder) => Arc::new(builder.finish()),
            Builder::Int(builder) => Arc::new(builder.finish()),
            Builder::BigInt(builder) => Arc::new(builder.finish()),
            Builder::Real(builder) => Arc::new(builder.finish()),
            Builder::Double(builder) => Arc::new(builder.finish()),
            Builder::Decimal(builder) => Arc::new(builder.finish()),
            Builder::Date(builder) => Arc::new(builder.finish()),
            Builder::Timestamp(builder) => Arc::new(builder.finish()),
            Builder::Varchar(builder) => Arc::new(builder.finish()),
        }
    }
}
