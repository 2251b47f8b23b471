//! Column types in their three tongues: SQL text, tables, Arrow.
//!
//! | SQL | table | Arrow |
//! | --- | --- | --- |
//! | BOOLEAN, BOOL | Boolean | Boolean |
//! | INT, INTEGER, INT4, SMALLINT, TINYINT | Int | Int32 |
//! | BIGINT, INT8 | BigInt | Int64 |
//! | DOUBLE, DOUBLE PRECISION, FLOAT, FLOAT8, REAL | Double | Float64 |
//! | DECIMAL(p,s), NUMERIC(p,s), DEC(p,s); without (p,s): (38,10) | Decimal | Decimal128(p,s) |
//! | DATE | Date | Date32 |
//! | TIMESTAMP, DATETIME | Timestamp | Timestamp(µs), without zone |
//! | TIMESTAMPTZ, TIMESTAMP WITH TIME ZONE | TimestampTz | Timestamp(µs), with the session's zone |
//! | VARCHAR, TEXT, STRING, CHAR VARYING | Varchar | Utf8 |
//!
//! - The way from a table's type to Arrow and back is the identity.
//! - `zones.rs` has how timestamps with and without a zone become each other.
//! - A length, as in VARCHAR(10), is refused: a limit that is not enforced would be a false promise.

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit,
};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use entresol_tables::{Column, DataType, Schema};

use crate::error::{Error, Result};

/// Precision and scale of a DECIMAL that names neither.
const DECIMAL_DEFAULT: (u8, u8) = (38, 10);

/// The Arrow type of a column type, in a session of this time zone.
pub fn arrow_type(data_type: DataType, zone: &str) -> ArrowType {
    match data_type {
        DataType::Boolean => ArrowType::Boolean,
        DataType::Int => ArrowType::Int32,
        DataType::BigInt => ArrowType::Int64,
        DataType::Double => ArrowType::Float64,
        // A scale is at most the precision, which is at most 38: it fits an i8.
        DataType::Decimal { precision, scale } => ArrowType::Decimal128(precision, scale as i8),
        DataType::Date => ArrowType::Date32,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
        DataType::TimestampTz => ArrowType::Timestamp(TimeUnit::Microsecond, Some(zone.into())),
        DataType::Varchar => ArrowType::Utf8,
    }
}

/// The column type that holds all values of an Arrow type; `None` if there is none. For CREATE TABLE AS.
pub fn column_type(arrow: &ArrowType) -> Option<DataType> {
    Some(match arrow {
        ArrowType::Boolean => DataType::Boolean,
        ArrowType::Int8 | ArrowType::Int16 | ArrowType::Int32 | ArrowType::UInt8 | ArrowType::UInt16 => {
            DataType::Int
        }
        ArrowType::Int64 | ArrowType::UInt32 => DataType::BigInt,
        ArrowType::UInt64 => DataType::Decimal { precision: 20, scale: 0 },
        ArrowType::Float16 | ArrowType::Float32 | ArrowType::Float64 => DataType::Double,
        ArrowType::Decimal32(precision, scale)
        | ArrowType::Decimal64(precision, scale)
        | ArrowType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            DataType::Decimal { precision: *precision, scale: *scale as u8 }
        }
        ArrowType::Date32 | ArrowType::Date64 => DataType::Date,
        ArrowType::Timestamp(_, None) => DataType::Timestamp,
        ArrowType::Timestamp(_, Some(_)) => DataType::TimestampTz,
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Varchar,
        _ => return None,
    })
}

/// The Arrow schema of columns, in a session of this time zone.
pub(crate) fn arrow_schema(columns: &[Column], zone: &str) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| Field::new(&column.name, arrow_type(column.data_type, zone), column.nullable))
        .collect();
    Arc::new(ArrowSchema::new(fields))
}

/// The Arrow schema of a table as a user in this time zone sees it: without the hidden key.
pub fn visible_schema(schema: &Schema, zone: &str) -> SchemaRef {
    arrow_schema(schema.visible_columns(), zone)
}

/// The column type that a CREATE TABLE names.
pub(crate) fn declared_type(column: &str, declared: &SqlType) -> Result<DataType> {
    let unsupported = || Error::unsupported(format!("type {declared} of column {column}"));
    Ok(match declared {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(None)
        | SqlType::SmallInt(None)
        | SqlType::Int2(None)
        | SqlType::Int(None)
        | SqlType::Int4(None)
        | SqlType::Integer(None) => DataType::Int,
        SqlType::BigInt(None) | SqlType::Int8(None) => DataType::BigInt,
        SqlType::Double(ExactNumberInfo::None)
        | SqlType::DoublePrecision
        | SqlType::Float(ExactNumberInfo::None | ExactNumberInfo::Precision(_))
        | SqlType::Float4
        | SqlType::Float8
        | SqlType::Real => DataType::Double,
        SqlType::Decimal(info) | SqlType::Numeric(info) | SqlType::Dec(info) => {
            decimal(column, declared, info)?
        }
        SqlType::Date => DataType::Date,
        // Six digits of a second are what there is.
        SqlType::Timestamp(None | Some(6), TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            DataType::TimestampTz
        }
        SqlType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | SqlType::Datetime(None)
        | SqlType::TimestampNtz(None) => DataType::Timestamp,
        SqlType::Varchar(None)
        | SqlType::CharacterVarying(None)
        | SqlType::CharVarying(None)
        | SqlType::Text
        | SqlType::String(None) => DataType::Varchar,
        SqlType::Varchar(Some(_)) | SqlType::CharacterVarying(Some(_)) | SqlType::CharVarying(Some(_)) => {
            return Err(Error::unsupported(format!(
                "type {declared} of column {column}: lengths are not enforced, use VARCHAR"
            )));
        }
        _ => return Err(unsupported()),
    })
}

fn decimal(column: &str, declared: &SqlType, info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (i64::from(DECIMAL_DEFAULT.0), i64::from(DECIMAL_DEFAULT.1)),
        ExactNumberInfo::Precision(precision) => (i64::try_from(precision).unwrap_or(i64::MAX), 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => {
            (i64::try_from(precision).unwrap_or(i64::MAX), scale)
        }
    };
    if !(1..=38).contains(&precision) || !(0..=precision).contains(&scale) {
        return Err(Error::Invalid(format!(
            "type {declared} of column {column}: the precision is 1 to 38, the scale 0 to the precision"
        )));
    }
    // Both are at most 38 here.
    Ok(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_and_back_is_the_identity() {
        for data_type in [
            DataType::Boolean,
            DataType::Int,
            DataType::BigInt,
            DataType::Double,
            DataType::Decimal { precision: 38, scale: 38 },
            DataType::Date,
            DataType::Timestamp,
            DataType::TimestampTz,
            DataType::Varchar,
        ] {
            assert_eq!(column_type(&arrow_type(data_type, "Europe/Berlin")), Some(data_type));
        }
        assert_eq!(column_type(&ArrowType::Binary), None);
    }

    #[test]
    fn declared_types_name_the_column_when_refused() {
        let decimal = SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(12, 2));
        assert_eq!(declared_type("c", &decimal).unwrap(), DataType::Decimal { precision: 12, scale: 2 });
        let error = declared_type("c", &SqlType::Decimal(ExactNumberInfo::Precision(39))).unwrap_err();
        assert!(error.to_string().contains("column c") && error.to_string().contains("1 to 38"), "{error}");
        let error = declared_type("photo", &SqlType::JSON).unwrap_err();
        assert_eq!(error.to_string(), "unsupported: type JSON of column photo");
    }
}
