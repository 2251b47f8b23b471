//! JSON objects as tuples: columns by name.
//!
//! | column | JSON |
//! | --- | --- |
//! | BOOLEAN | `true`, `false` |
//! | SMALLINT, INT, BIGINT | a number without a fraction |
//! | REAL, DOUBLE | a number |
//! | DECIMAL | a number of up to 15 digits, or a string: a number has no room for more digits |
//! | DATE, TIMESTAMP, TIMESTAMPTZ | a string |
//! | VARCHAR | a string |
//!
//! A missing name is NULL, as `null` is; other names are ignored.

use crate::element::Tuple;
use entresol_tables::{Column, DataType, Value};
use serde_json::{Number, Value as Json};

/// Digits of which a number of JSON is exact.
const NUMBER_DIGITS_MAX: usize = 15;

/// Tuple of a JSON object, or the reason why it is none.
pub(crate) fn tuple_of(columns: &[Column], text: &[u8]) -> Result<Tuple, String> {
    let object = match serde_json::from_slice(text) {
        Ok(Json::Object(object)) => object,
        Ok(other) => return Err(format!("expected a JSON object, found {}", kind(&other))),
        Err(error) => return Err(format!("no JSON object: {error}")),
    };
    let value = |column: &Column| value_of(column, object.get(&column.name).unwrap_or(&Json::Null));
    columns.iter().map(value).collect()
}

fn value_of(column: &Column, json: &Json) -> Result<Value, String> {
    use DataType::{
        BigInt, Boolean, Date, Decimal, Double, Int, Real, SmallInt, Timestamp, TimestampTz, Varchar,
    };
    let parse = |text: &str| column.parse(text).map_err(|error| error.to_string());
    match (column.data_type, json) {
        (_, Json::Null) => Ok(Value::Null),
        (Boolean, Json::Bool(value)) => Ok(Value::Boolean(*value)),
        (SmallInt | Int | BigInt, Json::Number(number)) if !number.is_f64() => parse(&number.to_string()),
        (Real | Double, Json::Number(number)) => parse(&number.to_string()),
        (Decimal { .. }, Json::Number(number)) => parse(&digits_of(column, number)?),
        (Decimal { .. } | Date | Timestamp | TimestampTz, Json::String(text)) => parse(text),
        (Varchar, Json::String(text)) => Ok(Value::from(text.as_str())),
        (expected, found) => {
            Err(format!("column {}: expected {expected}, found {}", column.name, kind(found)))
        }
    }
}

/// Decimal digits of a number, without an exponent.
fn digits_of(column: &Column, number: &Number) -> Result<String, String> {
    let Some(value) = number.as_f64().filter(|_| number.is_f64()) else { return Ok(number.to_string()) };
    let text = format!("{value}");
    let digits = text.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    if digits > NUMBER_DIGITS_MAX {
        let (name, data_type) = (&column.name, column.data_type);
        return Err(format!(
            "column {name}: the number {value} has more than {NUMBER_DIGITS_MAX} digits: write a {data_type} as a string"
        ));
    }
    Ok(text)
}

fn kind(json: &Json) -> String {
    match json {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(text) => format!("the string \"{}\"", text.chars().take(40).collect::<String>()),
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(data_type: DataType, json: &str) -> Result<Value, String> {
        let tuple = tuple_of(&[Column::new("v", data_type)], format!("{{\"v\": {json}}}").as_bytes());
        tuple.map(|mut tuple| tuple.remove(0))
    }

    #[test]
    fn values_have_the_types_of_their_columns() {
        let decimal = DataType::Decimal { precision: 20, scale: 2 };
        for (data_type, json, wanted) in [
            (DataType::Int, "7", Value::Int(7)),
            (DataType::BigInt, "-9007199254740993", Value::BigInt(-9_007_199_254_740_993)),
            (DataType::Boolean, "true", Value::Boolean(true)),
            (DataType::Double, "3", Value::Double(3.0)),
            (DataType::Double, "1e-3", Value::Double(0.001)),
            (decimal, "19.95", Value::Decimal(1995)),
            (decimal, "3", Value::Decimal(300)),
            (decimal, "\"123456789012345678.90\"", Value::Decimal(12_345_678_901_234_567_890)),
            (DataType::Date, "\"1970-01-02\"", Value::Date(1)),
            (DataType::Timestamp, "\"1970-01-01T00:00:01\"", Value::Timestamp(1_000_000)),
            (DataType::Varchar, "\"a\\n\\u00e4\"", Value::from("a\nä")),
            (DataType::Varchar, "null", Value::Null),
        ] {
            assert_eq!(one(data_type, json).unwrap(), wanted, "{data_type} {json}");
        }
    }

    #[test]
    fn other_types_are_refused_with_the_column() {
        let decimal = DataType::Decimal { precision: 20, scale: 2 };
        for (data_type, json, reason) in [
            (DataType::Int, "7.5", "column v: expected INT, found the number 7.5"),
            (DataType::Int, "\"7\"", "column v: expected INT, found the string \"7\""),
            (DataType::Int, "3000000000", "column v"),
            (DataType::Double, "\"NaN\"", "expected DOUBLE"),
            (DataType::Boolean, "1", "expected BOOLEAN, found the number 1"),
            (DataType::Varchar, "[1]", "expected VARCHAR, found an array"),
            (DataType::Varchar, "{}", "expected VARCHAR, found an object"),
            (DataType::Date, "\"tomorrow\"", "column v"),
            (DataType::Timestamp, "12", "expected TIMESTAMP, found the number 12"),
            (decimal, "123456789012345678.91", "more than 15 digits"),
        ] {
            let error = one(data_type, json).unwrap_err();
            assert!(error.contains(reason), "{data_type} {json}: {error}");
        }
        let columns = [Column::new("v", DataType::Int)];
        assert_eq!(tuple_of(&columns, b"{\"w\": 1}").unwrap(), [Value::Null]);
        assert_eq!(tuple_of(&columns, b"[1]").unwrap_err(), "expected a JSON object, found an array");
        for text in ["", "{\"v\": 1", "{\"v\": 1} {}", "{\"v\": NaN}"] {
            assert!(tuple_of(&columns, text.as_bytes()).unwrap_err().contains("no JSON object"), "{text}");
        }
    }
}
