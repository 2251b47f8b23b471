//! Columns with the origin of the tuples of a source: the file, the place in it, the time at which they were read.

use crate::UTC;
use crate::sources::mapped::BatchMap;
use crate::sources::{Next, SourceBatch};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{FieldRef, Schema};
use entresol_tables::{Column, DataType, arrow_schema};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Content of a column with the origin of tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludedColumns {
    /// Split of the tuple, such as its file; NULL of a source without splits.
    Split,
    /// Position behind the tuple: in bytes of a file, else its number.
    Offset,
    /// Line on which it ends; NULL of a source without lines.
    Line,
    /// Time at which it was read.
    Time,
}

impl IncludedColumns {
    /// Type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            IncludedColumns::Split => DataType::Varchar,
            IncludedColumns::Offset | IncludedColumns::Line => DataType::BigInt,
            IncludedColumns::Time => DataType::TimestampTz,
        }
    }

    /// Column of the tuples of a batch.
    fn array(self, batch: &SourceBatch, now_us: i64) -> ArrayRef {
        let tuples = batch.tuples.num_rows();
        let positions = (0..tuples).map(|at| batch.positions.after(at));
        match self {
            IncludedColumns::Split => {
                let name = batch.split.as_ref().map(|split| split.name.as_ref());
                Arc::new(std::iter::repeat_n(name, tuples).collect::<StringArray>())
            }
            IncludedColumns::Offset => Arc::new(Int64Array::from_iter_values(
                positions.map(|position| position.offset.cast_signed()),
            )),
            // The position has the next one.
            IncludedColumns::Line => Arc::new(
                positions
                    .map(|position| position.line.checked_sub(1).map(u64::cast_signed))
                    .collect::<Int64Array>(),
            ),
            IncludedColumns::Time => {
                Arc::new(TimestampMicrosecondArray::from_value(now_us, tuples).with_timezone(UTC))
            }
        }
    }
}

/// Columns behind those of a source, by these names.
pub(crate) struct AddedColumns(pub(crate) Vec<(IncludedColumns, String)>);

impl BatchMap for AddedColumns {
    fn columns(&self, mut read: Vec<Column>) -> Vec<Column> {
        read.extend(self.0.iter().map(|(included, name)| Column::new(name.clone(), included.data_type())));
        read
    }

    fn map(&mut self, mut batch: SourceBatch) -> Next {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let added = self.0.iter().map(|(included, _)| included.array(&batch, now_us));
        let columns = batch.tuples.columns().iter().cloned().chain(added).collect();
        let (read, declared) = (batch.tuples.schema(), arrow_schema(&self.columns(Vec::new()), UTC));
        let fields: Vec<FieldRef> = read.fields().iter().chain(declared.fields()).cloned().collect();
        match RecordBatch::try_new(Arc::new(Schema::new(fields)), columns) {
            Ok(tuples) => {
                batch.tuples = tuples;
                Next::Batch(batch)
            }
            Err(error) => Next::Invalid(error.to_string()),
        }
    }
}
