//! Values of parameters, in both formats, for each type that a plan may want.

use crate::values::cell::Column;
use crate::values::temporal::{UTC, Zone};
use crate::values::types::postgres_type;
use crate::values::{Format, parameter};
use bytes::{Bytes, BytesMut};
use entresol::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use entresol::query::datafusion::common::ScalarValue;
use pgwire::api::Type;
use std::sync::Arc;

/// Types that clients may declare; 0: the type that they were told.
const DECLARED: [u32; 20] =
    [0, 16, 17, 20, 21, 23, 25, 26, 700, 701, 705, 1043, 1082, 1083, 1114, 1184, 1186, 1700, 1007, 1231];

/// Types of parameters in plans: those of columns and of functions' arguments, and the lists of each.
fn wanted() -> Vec<DataType> {
    let mut types = vec![
        DataType::Boolean,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(10, 2),
        DataType::Decimal128(38, 10),
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Interval(IntervalUnit::MonthDayNano),
    ];
    let list = |of: &DataType| DataType::List(Arc::new(Field::new_list_field(of.clone(), true)));
    types.extend(types.iter().map(list).collect::<Vec<_>>());
    types
}

/// Takes three bytes for type, declared type and format, and the bytes of a value. Returns whether it is a
/// value.
pub fn value(bytes: &[u8]) -> bool {
    let [wanted_at, declared, format, value @ ..] = bytes else { return false };
    let types = wanted();
    let wanted = &types[usize::from(*wanted_at) % types.len()];
    let told = postgres_type(wanted).oid();
    let oid = match DECLARED[usize::from(*declared) % DECLARED.len()] {
        0 => told,
        declared => declared,
    };
    let format = if format % 2 == 0 { Format::Text } else { Format::Binary };
    let value = Bytes::copy_from_slice(value);
    let Ok(scalar) = parameter::read(Some(&value), format, oid, wanted, UTC) else { return false };
    if scalar.data_type() == *wanted {
        assert_round_trip(&scalar, told, wanted)
    } else {
        // Digits beyond the scale of its column are for the assignment to judge.
        assert!(are_decimals(&scalar.data_type(), wanted), "{scalar:?} is not a {wanted}")
    }
    true
}

/// Tells whether both are decimals, or lists of them.
fn are_decimals(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => are_decimals(one.data_type(), other.data_type()),
        (one, other) => matches!((one, other), (DataType::Decimal128(..), DataType::Decimal128(..))),
    }
}

/// Asserts that a value that is sent reads as the same.
fn assert_round_trip(scalar: &ScalarValue, oid: u32, wanted: &DataType) {
    let array = scalar.to_array().expect("a value of its type");
    for format in [Format::Text, Format::Binary] {
        let mut out = BytesMut::new();
        let column = Column::new(&array, format, Zone::default()).expect("a type that is sent");
        if column.write(0, &mut out).is_err() {
            continue;
        }
        let length = i32::from_be_bytes(out[..4].try_into().expect("four bytes"));
        if length < 0 {
            assert!(scalar.is_null() && out.len() == 4);
            continue;
        }
        assert_eq!(length as usize, out.len() - 4);
        let sent = out.split_off(4).freeze();
        match parameter::read(Some(&sent), format, oid, wanted, UTC) {
            Ok(read) => {
                assert!(&read == scalar || has_nanoseconds(wanted), "{format:?} {sent:?} of {scalar:?}")
            }
            Err(report) => assert!(may_be_refused(format, wanted), "{sent:?} of {scalar:?}: {report:?}"),
        }
    }
}

/// Tells whether values may be finer than the microseconds that are sent.
fn has_nanoseconds(of: &DataType) -> bool {
    match of {
        DataType::List(field) => has_nanoseconds(field.data_type()),
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Interval(_) => true,
        _ => false,
    }
}

/// Years before the first and behind the last that text may name, and intervals of parts with different
/// signs.
fn may_be_refused(format: Format, wanted: &DataType) -> bool {
    match wanted {
        DataType::List(field) => may_be_refused(format, field.data_type()),
        DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_) => format == Format::Text,
        _ => false,
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let one_of = |of: &DataType, text: &str| {
        let at = wanted().iter().position(|known| known == of).unwrap_or(0) as u8;
        [&[at, 0, 0], text.as_bytes()].concat()
    };
    let mut seeds = Vec::new();
    for of in wanted() {
        let inner = match &of {
            DataType::List(field) => field.data_type().clone(),
            other => other.clone(),
        };
        let text = match postgres_type(&inner) {
            Type::BOOL => "true",
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => "17",
            Type::FLOAT4 | Type::FLOAT8 => "-1.5e-7",
            Type::NUMERIC => "12.5",
            Type::BYTEA => "\\x00ff",
            Type::DATE => "2024-02-29",
            Type::TIME => "12:30:00.5",
            Type::TIMESTAMP => "2024-02-29 12:30:00.5",
            Type::TIMESTAMPTZ => "2024-02-29 12:30:00+02",
            Type::INTERVAL => "1 month 2 days 3 seconds",
            _ => "text",
        };
        let seed = match of {
            DataType::List(_) => one_of(&of, &format!("{{\"{}\",NULL}}", text.replace('\\', "\\\\"))),
            _ => one_of(&of, text),
        };
        seeds.extend(binary_of(&seed));
        seeds.push(seed);
    }
    seeds
}

/// The same value in the binary format.
fn binary_of(seed: &[u8]) -> Option<Vec<u8>> {
    let wanted = &wanted()[usize::from(seed[0])];
    let value = Bytes::copy_from_slice(&seed[3..]);
    let scalar =
        parameter::read(Some(&value), Format::Text, postgres_type(wanted).oid(), wanted, UTC).ok()?;
    let mut out = BytesMut::new();
    Column::new(&scalar.to_array().ok()?, Format::Binary, Zone::default()).ok()?.write(0, &mut out).ok()?;
    Some([&[seed[0], 0, 1], &out[4..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_seeds_in_both_formats() {
        let seeds = seeds();
        for (at, of) in wanted().iter().enumerate() {
            assert_eq!(seeds.iter().filter(|seed| usize::from(seed[0]) == at).count(), 2, "{of}");
        }
        for seed in seeds {
            assert!(value(&seed), "{:?} {}", wanted()[usize::from(seed[0])], seed[3..].escape_ascii());
        }
    }
}
