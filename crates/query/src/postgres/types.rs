//! Column types in SQL, in tables and in Arrow.
//!
//! | SQL | table | Arrow |
//! | --- | --- | --- |
//! | BOOLEAN, BOOL | Boolean | Boolean |
//! | SMALLINT, INT2 | SmallInt | Int16 |
//! | INT, INTEGER, INT4 | Int | Int32 |
//! | BIGINT, INT8 | BigInt | Int64 |
//! | REAL, FLOAT4, FLOAT(1) to FLOAT(24) | Real | Float32 |
//! | DOUBLE, DOUBLE PRECISION, FLOAT, FLOAT8, FLOAT(25) to FLOAT(53) | Double | Float64 |
//! | DECIMAL(p,s), NUMERIC(p,s), DEC(p,s) | Decimal | Decimal128(p,s) |
//! | DECIMAL, NUMERIC, DEC | Decimal(38,10), exact | Decimal128(38,10) |
//! | DATE | Date | Date32 |
//! | TIMESTAMP, DATETIME | Timestamp | Timestamp(µs), without zone |
//! | TIMESTAMPTZ, TIMESTAMP WITH TIME ZONE | TimestampTz | Timestamp(µs), with the session's zone |
//! | INTERVAL | Interval | Interval(MonthDayNano) |
//! | VARCHAR, TEXT, STRING, CHAR VARYING; VARCHAR(n) with a modifier | Varchar | Utf8 |
//! | JSON, JSONB | Varchar with a modifier | Utf8 |
//! | CHAR(n), CHARACTER(n); CHAR is CHAR(1) | Varchar with a modifier | Utf8, without the blanks at its end |
//!
//! - The modifier of a column goes with its Arrow field, as the name and the parameter of an extension type
//!   ([`modifier_of`]): DataFusion keeps them where a column is passed on and drops them where it is computed
//!   with.
//! - Conversion of a table's type to Arrow and back is the identity.
//! - `zones.rs` converts between timestamps with and without a zone.

use crate::error::{Error, Result};
use crate::postgres::intervals;
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    CharLengthUnits, CharacterLength, DataType as SqlType, ExactNumberInfo, TimezoneInfo,
};
use entresol_tables::modifier::LENGTH_MAX;
use entresol_tables::{Column, DataType, Modifier, Schema, arrow_type};
use std::sync::Arc;

/// Precision and scale of a DECIMAL that specifies neither.
pub(crate) const DECIMAL_DEFAULT: (u8, u8) = (38, 10);

/// Column type for all values of an Arrow type; `None` if there is none. For CREATE TABLE AS.
pub fn column_type(arrow: &ArrowType) -> Option<DataType> {
    Some(match arrow {
        ArrowType::Boolean => DataType::Boolean,
        ArrowType::Int8 | ArrowType::Int16 | ArrowType::UInt8 => DataType::SmallInt,
        ArrowType::Int32 | ArrowType::UInt16 => DataType::Int,
        ArrowType::Int64 | ArrowType::UInt32 => DataType::BigInt,
        ArrowType::UInt64 => DataType::Decimal { precision: 20, scale: 0 },
        ArrowType::Float16 | ArrowType::Float32 => DataType::Real,
        ArrowType::Float64 => DataType::Double,
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
        // The difference of two timestamps is an interval.
        ArrowType::Interval(_) | ArrowType::Duration(_) => DataType::Interval,
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Varchar,
        _ => return None,
    })
}

/// Keys of an extension type in the metadata of a field, as Arrow names them.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_PARAMETER: &str = "ARROW:extension:metadata";
/// Names of the extension types.
const VARCHAR: &str = "entresol.varchar";
const CHAR: &str = "entresol.char";
const NUMERIC: &str = "entresol.numeric";
const JSON: &str = "entresol.json";
const JSONB: &str = "entresol.jsonb";

/// Field with a modifier.
pub(crate) fn with_modifier(field: Field, modifier: Modifier) -> Field {
    let (name, parameter) = match modifier {
        Modifier::None => return field,
        Modifier::Varchar(length) => (VARCHAR, length.to_string()),
        Modifier::Char(length) => (CHAR, length.to_string()),
        Modifier::Exact => (NUMERIC, String::new()),
        Modifier::Json => (JSON, String::new()),
        Modifier::Jsonb => (JSONB, String::new()),
    };
    let mut metadata = field.metadata().clone();
    metadata.insert(EXTENSION_NAME.to_owned(), name.to_owned());
    metadata.insert(EXTENSION_PARAMETER.to_owned(), parameter);
    field.with_metadata(metadata)
}

/// Modifier of a field, if it has one that its type can have.
pub fn modifier_of(field: &Field) -> Modifier {
    let Some(name) = field.metadata().get(EXTENSION_NAME) else { return Modifier::None };
    let length = || field.metadata().get(EXTENSION_PARAMETER)?.parse().ok();
    let text = matches!(field.data_type(), ArrowType::Utf8 | ArrowType::Utf8View | ArrowType::LargeUtf8);
    let modifier = match name.as_str() {
        VARCHAR if text => length().map(Modifier::Varchar),
        CHAR if text => length().map(Modifier::Char),
        JSON if text => Some(Modifier::Json),
        JSONB if text => Some(Modifier::Jsonb),
        NUMERIC if matches!(field.data_type(), ArrowType::Decimal128(..)) => Some(Modifier::Exact),
        _ => None,
    };
    modifier.unwrap_or_default()
}

/// Copy of a batch for output: every CHAR(n) padded, intervals as strings.
pub fn displayed(batch: &RecordBatch) -> RecordBatch {
    converted(&padded(batch), |field, array| {
        if !matches!(field.data_type(), ArrowType::Interval(_) | ArrowType::Duration(_)) {
            return None;
        }
        // What has no text is shown as Arrow shows it.
        let texts = intervals::texts_of(array).ok()?;
        Some((field.clone().with_data_type(ArrowType::Utf8), texts))
    })
}

/// Copy of a batch with every CHAR(n) padded.
pub(crate) fn padded(batch: &RecordBatch) -> RecordBatch {
    converted(batch, |field, array| {
        let modifier = modifier_of(field);
        if !matches!(modifier, Modifier::Char(_)) {
            return None;
        }
        let shown = array.as_string_opt::<i32>()?.iter().map(|text| text.map(|text| modifier.padded(text)));
        Some((field.clone(), Arc::new(shown.collect::<StringArray>())))
    })
}

/// Copy of a batch with other columns in place of some: those of which `convert` returns one.
fn converted(
    batch: &RecordBatch,
    convert: impl Fn(&Field, &ArrayRef) -> Option<(Field, ArrayRef)>,
) -> RecordBatch {
    let schema = batch.schema();
    let each = schema.fields().iter().zip(batch.columns());
    let converted: Vec<_> = each.map(|(field, array)| convert(field, array)).collect();
    if converted.iter().all(Option::is_none) {
        return batch.clone();
    }
    let columns = schema.fields().iter().zip(batch.columns()).zip(converted);
    let columns = columns.map(|((field, array), converted)| match converted {
        Some((field, array)) => (Arc::new(field), array),
        None => (Arc::clone(field), Arc::clone(array)),
    });
    let (fields, columns): (Vec<_>, Vec<_>) = columns.unzip();
    // As many columns of these types and lengths.
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap_or_else(|_| batch.clone())
}

/// Arrow field of a column, in a session of this time zone.
pub(crate) fn field_of(column: &Column, zone: &str) -> Field {
    let field = Field::new(&column.name, arrow_type(column.data_type, zone), column.nullable);
    with_modifier(field, column.modifier)
}

/// Column for all values of a field; `None` if no column has its type.
pub(crate) fn column_of(field: &Field) -> Option<Column> {
    Some(Column::new(field.name(), column_type(field.data_type())?).with_modifier(modifier_of(field)))
}

/// Arrow schema of columns, in a session of this time zone.
pub(crate) fn arrow_schema(columns: &[Column], zone: &str) -> SchemaRef {
    Arc::new(ArrowSchema::new(columns.iter().map(|column| field_of(column, zone)).collect::<Vec<_>>()))
}

/// Arrow schema of a table for a user in this time zone: without the hidden key.
pub fn visible_schema(schema: &Schema, zone: &str) -> SchemaRef {
    arrow_schema(schema.visible_columns(), zone)
}

/// Column type that a CREATE TABLE specifies.
pub(crate) fn declared_type(column: &str, declared: &SqlType) -> Result<(DataType, Modifier)> {
    let unsupported = || Error::unsupported(format!("type {declared} of column {column}"));
    let plain = |data_type| Ok((data_type, Modifier::None));
    match declared {
        SqlType::Boolean | SqlType::Bool => plain(DataType::Boolean),
        SqlType::SmallInt(None) | SqlType::Int2(None) => plain(DataType::SmallInt),
        SqlType::Int(None) | SqlType::Int4(None) | SqlType::Integer(None) => plain(DataType::Int),
        SqlType::BigInt(None) | SqlType::Int8(None) => plain(DataType::BigInt),
        SqlType::Real | SqlType::Float4 => plain(DataType::Real),
        SqlType::Double(ExactNumberInfo::None)
        | SqlType::DoublePrecision
        | SqlType::Float(ExactNumberInfo::None)
        | SqlType::Float8 => plain(DataType::Double),
        SqlType::Float(ExactNumberInfo::Precision(bits)) => match bits {
            1..=24 => plain(DataType::Real),
            25..=53 => plain(DataType::Double),
            _ => Err(Error::coded(
                "22023",
                format!("type {declared} of column {column}: the precision of a float is 1 to 53 bits"),
            )),
        },
        SqlType::Decimal(ExactNumberInfo::None)
        | SqlType::Numeric(ExactNumberInfo::None)
        | SqlType::Dec(ExactNumberInfo::None) => {
            let (precision, scale) = DECIMAL_DEFAULT;
            Ok((DataType::Decimal { precision, scale }, Modifier::Exact))
        }
        SqlType::Decimal(info) | SqlType::Numeric(info) | SqlType::Dec(info) => {
            plain(decimal(column, declared, info)?)
        }
        SqlType::Date => plain(DataType::Date),
        // Six digits of a second are the precision of timestamps.
        SqlType::Timestamp(None | Some(6), TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            plain(DataType::TimestampTz)
        }
        SqlType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | SqlType::Datetime(None)
        | SqlType::TimestampNtz(None) => plain(DataType::Timestamp),
        SqlType::Interval { fields: None, precision: None | Some(6) } => plain(DataType::Interval),
        SqlType::JSON => Ok((DataType::Varchar, Modifier::Json)),
        SqlType::JSONB => Ok((DataType::Varchar, Modifier::Jsonb)),
        SqlType::Text | SqlType::String(None) => plain(DataType::Varchar),
        declared => match text_modifier(declared) {
            Some(modifier) => Ok((DataType::Varchar, modifier.map_err(|what| wrong_length(column, &what))?)),
            None => Err(unsupported()),
        },
    }
}

fn wrong_length(column: &str, declared: &SqlType) -> Error {
    Error::coded(
        "22023",
        format!("type {declared} of column {column}: the length is 1 to {LENGTH_MAX} characters"),
    )
}

/// Modifier of VARCHAR and CHAR in their spellings; `None` for other types, the type itself if its length is
/// invalid.
pub(crate) fn text_modifier(declared: &SqlType) -> Option<Result<Modifier, SqlType>> {
    let (modifier, length): (fn(u32) -> Modifier, _) = match declared {
        SqlType::Varchar(length) | SqlType::CharacterVarying(length) | SqlType::CharVarying(length) => {
            (Modifier::Varchar, length)
        }
        SqlType::Char(length) | SqlType::Character(length) => (Modifier::Char, length),
        _ => return None,
    };
    let length = match (length, declared) {
        (None, SqlType::Char(_) | SqlType::Character(_)) => 1,
        (None, _) => return Some(Ok(Modifier::None)),
        (
            Some(CharacterLength::IntegerLength { length, unit: None | Some(CharLengthUnits::Characters) }),
            _,
        ) => *length,
        _ => return Some(Err(declared.clone())),
    };
    let length = u32::try_from(length).ok().filter(|length| (1..=LENGTH_MAX).contains(length));
    Some(length.map(modifier).ok_or_else(|| declared.clone()))
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
        let message = format!(
            "type {declared} of column {column}: the precision is 1 to 38, the scale 0 to the precision"
        );
        return Err(Error::coded("22023", message));
    }
    // Both are at most 38 here.
    Ok(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

/// Columns of rows as of a point in time: the same, but constraints may be younger than rows.
pub(crate) fn nullable(schema: &SchemaRef, key: &[usize]) -> SchemaRef {
    let fields = schema.fields().iter().enumerate();
    let fields: Vec<Field> = fields
        .map(|(at, field)| field.as_ref().clone().with_nullable(field.is_nullable() || !key.contains(&at)))
        .collect();
    Arc::new(datafusion::arrow::datatypes::Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_and_back_is_the_identity() {
        for data_type in [
            DataType::Boolean,
            DataType::SmallInt,
            DataType::Int,
            DataType::BigInt,
            DataType::Real,
            DataType::Double,
            DataType::Decimal { precision: 38, scale: 38 },
            DataType::Date,
            DataType::Timestamp,
            DataType::TimestampTz,
            DataType::Interval,
            DataType::Varchar,
        ] {
            assert_eq!(column_type(&arrow_type(data_type, "Europe/Berlin")), Some(data_type));
        }
        assert_eq!(column_type(&ArrowType::Binary), None);
        for modifier in
            [Modifier::None, Modifier::Varchar(30), Modifier::Char(3), Modifier::Json, Modifier::Jsonb]
        {
            let column = Column::new("c", DataType::Varchar).with_modifier(modifier);
            assert_eq!(column_of(&field_of(&column, "UTC")), Some(column));
        }
    }

    #[test]
    fn declared_types_name_the_column_when_refused() {
        let decimal = SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(12, 2));
        let expected = (DataType::Decimal { precision: 12, scale: 2 }, Modifier::None);
        assert_eq!(declared_type("c", &decimal).unwrap(), expected);
        let error = declared_type("c", &SqlType::Decimal(ExactNumberInfo::Precision(39))).unwrap_err();
        assert!(error.to_string().contains("column c") && error.to_string().contains("1 to 38"), "{error}");
        let error = declared_type("photo", &SqlType::Bytea).unwrap_err();
        assert_eq!(error.to_string(), "unsupported: type BYTEA of column photo");
    }
}
