//! Builders of the arrays of columns, value by value.

use crate::value::{DataType, Value};
use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder,
    Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_schema::DataType as ArrowType;
use std::sync::Arc;

/// String bytes per row reserved at first.
const TEXT_BYTES_PER_ROW: usize = 16;

/// Builder of the array of a column.
#[derive(Debug)]
pub struct ColumnBuilder(Builder);

#[derive(Debug)]
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
    Interval(IntervalMonthDayNanoBuilder),
    Varchar(StringBuilder),
}

impl ColumnBuilder {
    /// Builder for values of a column type; `arrow` is its Arrow type ([`crate::arrow_type`]).
    pub fn new(data_type: DataType, arrow: &ArrowType, rows: usize) -> ColumnBuilder {
        ColumnBuilder(match data_type {
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
            DataType::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
            DataType::Varchar => {
                Builder::Varchar(StringBuilder::with_capacity(rows, rows * TEXT_BYTES_PER_ROW))
            }
        })
    }

    /// Adds a value of the column's type, or NULL.
    #[inline]
    pub fn push(&mut self, value: &Value) {
        match (&mut self.0, value) {
            (Builder::Boolean(builder), Value::Boolean(value)) => builder.append_value(*value),
            // Values are in range of their column, or are checked when they are written.
            (Builder::SmallInt(builder), Value::Int(value)) => builder.append_value(*value as i16),
            (Builder::Int(builder), Value::Int(value)) => builder.append_value(*value),
            (Builder::BigInt(builder), Value::BigInt(value)) => builder.append_value(*value),
            (Builder::Real(builder), Value::Double(value)) => builder.append_value(*value as f32),
            (Builder::Double(builder), Value::Double(value)) => builder.append_value(*value),
            (Builder::Decimal(builder), Value::Decimal(value)) => builder.append_value(*value),
            (Builder::Date(builder), Value::Date(value)) => builder.append_value(*value),
            (Builder::Timestamp(builder), Value::Timestamp(value)) => builder.append_value(*value),
            (Builder::Interval(builder), Value::Interval(value)) => builder.append_value(value.to_arrow()),
            (Builder::Varchar(builder), Value::Varchar(text)) => builder.append_value(text),
            (_, value) => {
                debug_assert!(value.is_null(), "{value} is of another type than the column");
                self.push_null();
            }
        }
    }

    /// Adds a string to a VARCHAR column.
    ///
    /// # Panics
    ///
    /// If the column is of another type.
    #[inline]
    pub fn push_text(&mut self, text: &str) {
        match &mut self.0 {
            Builder::Varchar(builder) => builder.append_value(text),
            other => panic!("a string for {other:?}"),
        }
    }

    /// Adds NULL.
    #[inline]
    pub fn push_null(&mut self) {
        match &mut self.0 {
            Builder::Boolean(builder) => builder.append_null(),
            Builder::SmallInt(builder) => builder.append_null(),
            Builder::Int(builder) => builder.append_null(),
            Builder::BigInt(builder) => builder.append_null(),
            Builder::Real(builder) => builder.append_null(),
            Builder::Double(builder) => builder.append_null(),
            Builder::Decimal(builder) => builder.append_null(),
            Builder::Date(builder) => builder.append_null(),
            Builder::Timestamp(builder) => builder.append_null(),
            Builder::Interval(builder) => builder.append_null(),
            Builder::Varchar(builder) => builder.append_null(),
        }
    }

    /// Array of the values since the last call.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.0 {
            Builder::Boolean(builder) => Arc::new(builder.finish()),
            Builder::SmallInt(builder) => Arc::new(builder.finish()),
            Builder::Int(builder) => Arc::new(builder.finish()),
            Builder::BigInt(builder) => Arc::new(builder.finish()),
            Builder::Real(builder) => Arc::new(builder.finish()),
            Builder::Double(builder) => Arc::new(builder.finish()),
            Builder::Decimal(builder) => Arc::new(builder.finish()),
            Builder::Date(builder) => Arc::new(builder.finish()),
            Builder::Timestamp(builder) => Arc::new(builder.finish()),
            Builder::Interval(builder) => Arc::new(builder.finish()),
            Builder::Varchar(builder) => Arc::new(builder.finish()),
        }
    }
}
