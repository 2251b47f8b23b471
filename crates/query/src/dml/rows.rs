//! Rows of values as Arrow batches, for checks, RETURNING and ON CONFLICT.

use crate::error::Result;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use entresol_tables::{Column, DataType, Row, Value};
use std::borrow::Borrow;
use std::sync::Arc;

/// Converts the first columns of rows, described by `columns`, to a batch of this schema.
pub(crate) fn batch<R: Borrow<Row>>(
    schema: &SchemaRef,
    columns: &[Column],
    rows: &[R],
) -> Result<RecordBatch> {
    let arrays: Result<Vec<ArrayRef>> = schema
        .fields()
        .iter()
        .zip(columns)
        .enumerate()
        .map(|(at, (field, column))| array(column.data_type, field.data_type(), rows, at))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays?, &options)?)
}

fn array<R: Borrow<Row>>(data_type: DataType, arrow: &ArrowType, rows: &[R], at: usize) -> Result<ArrayRef> {
    macro_rules! collect {
        ($array:ident, $($variant:ident)|+) => {
            collect!($array, $($variant)|+, std::convert::identity)
        };
        ($array:ident, $($variant:ident)|+, $of:expr) => {
            rows.iter()
                .map(|row| match &row.borrow()[at] {
                    $(Value::$variant(value) => Some(($of)(*value)),)+
                    _ => None,
                })
                .collect::<$array>()
        };
    }
    Ok(match data_type {
        DataType::Boolean => Arc::new(collect!(BooleanArray, Boolean)),
        // Values of rows were checked to be in range, or are about to be.
        DataType::SmallInt => Arc::new(collect!(Int16Array, Int, |value: i32| value as i16)),
        DataType::Int => Arc::new(collect!(Int32Array, Int)),
        DataType::BigInt => Arc::new(collect!(Int64Array, BigInt)),
        DataType::Real => Arc::new(collect!(Float32Array, Double, |value: f64| value as f32)),
        DataType::Double => Arc::new(collect!(Float64Array, Double)),
        DataType::Decimal { precision, scale } => Arc::new(
            // A scale is at most 38.
            collect!(Decimal128Array, Decimal).with_precision_and_scale(precision, scale as i8)?,
        ),
        DataType::Date => Arc::new(collect!(Date32Array, Date)),
        DataType::Timestamp | DataType::TimestampTz => {
            Arc::new(collect!(TimestampMicrosecondArray, Timestamp).with_data_type(arrow.clone()))
        }
        DataType::Varchar => {
            let texts = rows.iter().map(|row| match &row.borrow()[at] {
                Value::Varchar(text) => Some(&**text),
                _ => None,
            });
            Arc::new(texts.collect::<StringArray>())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::types::arrow_schema;

    #[test]
    fn every_type_and_null_survives() {
        let columns = vec![
            Column::new("b", DataType::Boolean),
            Column::new("d", DataType::Decimal { precision: 5, scale: 2 }),
            Column::new("t", DataType::Varchar),
            Column::new("z", DataType::TimestampTz),
        ];
        let rows = vec![
            vec![Value::Boolean(true), Value::Decimal(-150), Value::from("x"), Value::Timestamp(0)],
            vec![Value::Null, Value::Null, Value::Null, Value::Null],
        ];
        let batch = batch(&arrow_schema(&columns, "+02:00"), &columns, &rows).unwrap();
        assert_eq!((batch.num_rows(), batch.column(1).null_count()), (2, 1));
        let text = datafusion::arrow::util::display::array_value_to_string(batch.column(1), 0).unwrap();
        assert_eq!(text, "-1.50");
        let text = datafusion::arrow::util::display::array_value_to_string(batch.column(3), 0).unwrap();
        assert_eq!(text, "1970-01-01T02:00:00+02:00");
    }
}
