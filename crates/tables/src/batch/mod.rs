//! Rows as Arrow record batches: the form in which many rows enter a table and leave it.
//!
//! A batch has one array per column, of exactly the Arrow type of the column ([`arrow_type`]); nothing is
//! converted here. Rows are encoded ([`encode`]) and decoded ([`decode`]) column by column, to and from the
//! same bytes as by the codec of single rows ([`crate::encoding`]).

pub(crate) mod builder;
pub(crate) mod decimals;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod rows;

use crate::error::{Error, Result};
use crate::schema::Column;
use crate::value::interval::Interval;
use crate::value::{DataType, Value};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType as ArrowType, Field, IntervalUnit, Schema as ArrowSchema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// Arrow type of a column type; `zone` is the time zone in which TIMESTAMPTZ is shown.
pub fn arrow_type(data_type: DataType, zone: &str) -> ArrowType {
    match data_type {
        DataType::Boolean => ArrowType::Boolean,
        DataType::SmallInt => ArrowType::Int16,
        DataType::Int => ArrowType::Int32,
        DataType::BigInt => ArrowType::Int64,
        DataType::Real => ArrowType::Float32,
        DataType::Double => ArrowType::Float64,
        // A scale is at most the precision, which is at most 38: it fits an i8.
        DataType::Decimal { precision, scale } => ArrowType::Decimal128(precision, scale as i8),
        DataType::Date => ArrowType::Date32,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
        DataType::TimestampTz => ArrowType::Timestamp(TimeUnit::Microsecond, Some(zone.into())),
        DataType::Interval => ArrowType::Interval(IntervalUnit::MonthDayNano),
        DataType::Varchar => ArrowType::Utf8,
    }
}

/// Column type of an Arrow type, the inverse of [`arrow_type`]; none if no column has it.
pub(crate) fn column_type(arrow: &ArrowType) -> Option<DataType> {
    Some(match arrow {
        ArrowType::Boolean => DataType::Boolean,
        ArrowType::Int16 => DataType::SmallInt,
        ArrowType::Int32 => DataType::Int,
        ArrowType::Int64 => DataType::BigInt,
        ArrowType::Float32 => DataType::Real,
        ArrowType::Float64 => DataType::Double,
        ArrowType::Decimal128(precision, scale) => {
            DataType::Decimal { precision: *precision, scale: u8::try_from(*scale).ok()? }
        }
        ArrowType::Date32 => DataType::Date,
        ArrowType::Timestamp(TimeUnit::Microsecond, None) => DataType::Timestamp,
        ArrowType::Timestamp(TimeUnit::Microsecond, Some(_)) => DataType::TimestampTz,
        ArrowType::Interval(IntervalUnit::MonthDayNano) => DataType::Interval,
        ArrowType::Utf8 => DataType::Varchar,
        _ => return None,
    })
}

/// Arrow schema of rows of these columns; `zone` as for [`arrow_type`].
pub fn arrow_schema(columns: &[Column], zone: &str) -> SchemaRef {
    let field =
        |column: &Column| Field::new(&column.name, arrow_type(column.data_type, zone), column.nullable);
    Arc::new(ArrowSchema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Array of a column, as its type.
#[derive(Clone, Copy)]
pub(crate) enum ColumnArray<'b> {
    Boolean(&'b BooleanArray),
    SmallInt(&'b Int16Array),
    Int(&'b Int32Array),
    BigInt(&'b Int64Array),
    Real(&'b Float32Array),
    Double(&'b Float64Array),
    Decimal(&'b Decimal128Array),
    Date(&'b Date32Array),
    Timestamp(&'b TimestampMicrosecondArray),
    Interval(&'b IntervalMonthDayNanoArray),
    Varchar(&'b StringArray),
}

impl<'b> ColumnArray<'b> {
    /// The array, if it has the type of the column. The time zone of timestamps does not matter: values are
    /// instants.
    pub(crate) fn new(table: &str, column: &Column, array: &'b ArrayRef) -> Result<ColumnArray<'b>> {
        ColumnArray::of(column.data_type, array).ok_or_else(|| Error::WrongType {
            table: table.to_owned(),
            column: column.name.clone(),
            expected: column.data_type,
            found: format!("an array of {}", array.data_type()),
        })
    }

    /// The array, if it has this type.
    pub(crate) fn of(wanted: DataType, array: &'b ArrayRef) -> Option<ColumnArray<'b>> {
        match (wanted, array.data_type()) {
            (DataType::Boolean, _) => array.as_boolean_opt().map(ColumnArray::Boolean),
            (DataType::SmallInt, _) => array.as_primitive_opt::<Int16Type>().map(ColumnArray::SmallInt),
            (DataType::Int, _) => array.as_primitive_opt::<Int32Type>().map(ColumnArray::Int),
            (DataType::BigInt, _) => array.as_primitive_opt::<Int64Type>().map(ColumnArray::BigInt),
            (DataType::Real, _) => array.as_primitive_opt::<Float32Type>().map(ColumnArray::Real),
            (DataType::Double, _) => array.as_primitive_opt::<Float64Type>().map(ColumnArray::Double),
            (DataType::Decimal { scale, .. }, ArrowType::Decimal128(_, found)) if *found == scale as i8 => {
                array.as_primitive_opt::<Decimal128Type>().map(ColumnArray::Decimal)
            }
            (DataType::Date, _) => array.as_primitive_opt::<Date32Type>().map(ColumnArray::Date),
            (DataType::Timestamp, ArrowType::Timestamp(_, None))
            | (DataType::TimestampTz, ArrowType::Timestamp(_, Some(_))) => {
                array.as_primitive_opt::<TimestampMicrosecondType>().map(ColumnArray::Timestamp)
            }
            (DataType::Interval, _) => {
                array.as_primitive_opt::<IntervalMonthDayNanoType>().map(ColumnArray::Interval)
            }
            (DataType::Varchar, _) => array.as_string_opt::<i32>().map(ColumnArray::Varchar),
            _ => None,
        }
    }

    /// Array of any type.
    pub(crate) fn array(&self) -> &'b dyn Array {
        match *self {
            ColumnArray::Boolean(array) => array,
            ColumnArray::SmallInt(array) => array,
            ColumnArray::Int(array) => array,
            ColumnArray::BigInt(array) => array,
            ColumnArray::Real(array) => array,
            ColumnArray::Double(array) => array,
            ColumnArray::Decimal(array) => array,
            ColumnArray::Date(array) => array,
            ColumnArray::Timestamp(array) => array,
            ColumnArray::Interval(array) => array,
            ColumnArray::Varchar(array) => array,
        }
    }

    /// Value of a row.
    pub(crate) fn value(&self, row: usize) -> Value {
        if self.array().is_null(row) {
            return Value::Null;
        }
        match *self {
            ColumnArray::Boolean(array) => Value::Boolean(array.value(row)),
            ColumnArray::SmallInt(array) => Value::Int(array.value(row).into()),
            ColumnArray::Int(array) => Value::Int(array.value(row)),
            ColumnArray::BigInt(array) => Value::BigInt(array.value(row)),
            ColumnArray::Real(array) => Value::Double(array.value(row).into()),
            ColumnArray::Double(array) => Value::Double(array.value(row)),
            ColumnArray::Decimal(array) => Value::Decimal(array.value(row)),
            ColumnArray::Date(array) => Value::Date(array.value(row)),
            ColumnArray::Timestamp(array) => Value::Timestamp(array.value(row)),
            ColumnArray::Interval(array) => Value::Interval(Interval::from_arrow(array.value(row))),
            ColumnArray::Varchar(array) => Value::varchar(array.value(row)),
        }
    }
}
