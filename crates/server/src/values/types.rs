//! Correspondence of PostgreSQL and Arrow types.

use super::Format;
use entresol::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use entresol::query::modifier_of;
use entresol::tables::Modifier;
use pgwire::api::Type;
use pgwire::messages::data::FieldDescription;
use std::sync::Arc;

/// The type that clients see.
pub(crate) fn postgres_type(arrow: &DataType) -> Type {
    match arrow {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Type::INT2,
        DataType::Int32 | DataType::UInt16 => Type::INT4,
        DataType::Int64 => Type::INT8,
        DataType::UInt32 => Type::OID,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Float16 | DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            Type::BYTEA
        }
        DataType::Date32 | DataType::Date64 => Type::DATE,
        DataType::Time32(_) | DataType::Time64(_) => Type::TIME,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => Type::INTERVAL,
        DataType::Dictionary(_, value) => postgres_type(value),
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            array_of(&postgres_type(field.data_type()))
        }
        _ => Type::TEXT,
    }
}

/// The array of a type; arrays of arrays have the type of their elements' arrays, as in PostgreSQL.
fn array_of(element: &Type) -> Type {
    let found = arrays().into_iter().find(|(of, array)| of == element || array == element);
    found.map_or(Type::TEXT_ARRAY, |(_, array)| array)
}

/// The type of the elements of an array.
pub(super) fn element_of(array: &Type) -> Option<Type> {
    match *array {
        Type::VARCHAR_ARRAY | Type::BPCHAR_ARRAY | Type::NAME_ARRAY => Some(Type::TEXT),
        _ => arrays().into_iter().find(|(_, known)| known == array).map(|(of, _)| of),
    }
}

/// Types and their arrays.
fn arrays() -> [(Type, Type); 15] {
    [
        (Type::BOOL, Type::BOOL_ARRAY),
        (Type::INT2, Type::INT2_ARRAY),
        (Type::INT4, Type::INT4_ARRAY),
        (Type::INT8, Type::INT8_ARRAY),
        (Type::OID, Type::OID_ARRAY),
        (Type::NUMERIC, Type::NUMERIC_ARRAY),
        (Type::FLOAT4, Type::FLOAT4_ARRAY),
        (Type::FLOAT8, Type::FLOAT8_ARRAY),
        (Type::BYTEA, Type::BYTEA_ARRAY),
        (Type::DATE, Type::DATE_ARRAY),
        (Type::TIME, Type::TIME_ARRAY),
        (Type::TIMESTAMP, Type::TIMESTAMP_ARRAY),
        (Type::TIMESTAMPTZ, Type::TIMESTAMPTZ_ARRAY),
        (Type::INTERVAL, Type::INTERVAL_ARRAY),
        (Type::TEXT, Type::TEXT_ARRAY),
    ]
}

/// The Arrow type of a parameter that a client declares, in the session's zone; `None` leaves it to the
/// planner.
pub(crate) fn arrow_type(oid: u32, zone: &str) -> Option<DataType> {
    let declared = Type::from_oid(oid)?;
    if let Some(element) = element_of(&declared) {
        let element = arrow_type(element.oid(), zone)?;
        return Some(DataType::List(Arc::new(Field::new_list_field(element, true))));
    }
    Some(match declared {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 => DataType::Int64,
        Type::OID => DataType::UInt32,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Microsecond),
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into())),
        Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        // Drivers send strings as varchar where they know no better: then the planner infers the type. The
        // same for numeric: its digits are in each value.
        Type::TEXT | Type::BPCHAR | Type::NAME | Type::JSON | Type::JSONB => DataType::Utf8,
        _ => return None,
    })
}

/// Bytes of a value in binary; -1 if they vary.
fn size(of: &Type) -> i16 {
    match *of {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::OID | Type::FLOAT4 | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL => 16,
        _ => -1,
    }
}

/// The type and the modifier of a column of a result, in PostgreSQL's coding.
pub(super) fn declared(field: &Field) -> (Type, i32) {
    // Lengths are at most ten million.
    let length = |length: u32| length.cast_signed() + 4;
    match modifier_of(field) {
        Modifier::Varchar(characters) => (Type::VARCHAR, length(characters)),
        Modifier::Char(characters) => (Type::BPCHAR, length(characters)),
        Modifier::Exact => (Type::NUMERIC, -1),
        Modifier::Json => (Type::JSON, -1),
        Modifier::Jsonb => (Type::JSONB, -1),
        Modifier::None => (postgres_type(field.data_type()), modifier(field.data_type())),
    }
}

/// Precision and scale of a numeric, in PostgreSQL's coding.
fn modifier(arrow: &DataType) -> i32 {
    match *arrow {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + 4
        }
        _ => -1,
    }
}

/// Columns of a result as RowDescription has them.
pub(crate) fn describe(schema: &Schema, formats: &[Format]) -> Vec<FieldDescription> {
    let fields = schema.fields().iter().enumerate();
    let described = fields.map(|(at, field)| {
        let (of, modifier) = declared(field);
        let format = formats.get(at).copied().unwrap_or(Format::Text);
        let name = field.name().replace('\0', "");
        FieldDescription::new(name, 0, 0, of.oid(), size(&of), modifier, format.code())
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol::arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn declared_parameters_come_back_as_the_same_type() {
        for of in [Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::FLOAT4, Type::FLOAT8, Type::BYTEA] {
            assert_eq!(arrow_type(of.oid(), "UTC").map(|arrow| postgres_type(&arrow)), Some(of));
        }
        for of in [Type::DATE, Type::TIME, Type::TIMESTAMP, Type::TIMESTAMPTZ, Type::INTERVAL, Type::TEXT] {
            assert_eq!(arrow_type(of.oid(), "UTC").map(|arrow| postgres_type(&arrow)), Some(of));
        }
        assert_eq!(arrow_type(0, "UTC"), None);
    }

    #[test]
    fn lists_are_arrays_and_decimals_say_their_digits() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        assert_eq!(postgres_type(&list), Type::INT8_ARRAY);
        assert_eq!(modifier(&DataType::Decimal128(10, 3)), (10 << 16 | 3) + 4);
    }
}
