//! JSON objects as tuples: columns by name.
//!
//! | column | JSON |
//! | --- | --- |
//! | BOOLEAN | `true`, `false` |
//! | SMALLINT, INT, BIGINT | a number without a fraction |
//! | REAL, DOUBLE | a number |
//! | DECIMAL | a number, of which all digits count, or a string |
//! | DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL | a string |
//! | VARCHAR | a string |
//! | JSON, JSONB | any value but `null` |
//!
//! A missing name is NULL, as `null` is; other names are ignored.

use crate::element::Tuple;
use entresol_tables::json::{Json, JsonValue, parse, plain_number};
use entresol_tables::{Column, DataType, Value};

/// Tuple of a JSON object, or the reason why it is none.
pub(crate) fn tuple_of(columns: &[Column], text: &[u8]) -> Result<Tuple, String> {
    let object = parsed(text)?;
    if !matches!(object.value, JsonValue::Object(_)) {
        return Err(format!("expected a JSON object, found {}", kind(&object)));
    }
    tuple_of_object(columns, &object, &value_of)
}

/// Value of a line, or the reason why it is none.
pub(crate) fn parsed(text: &[u8]) -> Result<Json<'_>, String> {
    let text = std::str::from_utf8(text).map_err(|error| format!("no JSON object: {error}"))?;
    parse(text).map_err(|error| format!("no JSON object: {error}"))
}

/// Values of an object by the names of columns, by a function of each; those that are missing are NULL.
pub(crate) fn tuple_of_object(
    columns: &[Column],
    object: &Json<'_>,
    value_of: &dyn Fn(&Column, &Json<'_>) -> Result<Value, String>,
) -> Result<Tuple, String> {
    let value = |column: &Column| match object.field(&column.name) {
        Some(json) => value_of(column, json),
        None => Ok(Value::Null),
    };
    columns.iter().map(value).collect()
}

/// Value of a column, or the reason why it is none of its type.
pub(crate) fn value_of(column: &Column, json: &Json<'_>) -> Result<Value, String> {
    use DataType::{
        BigInt, Boolean, Date, Decimal, Double, Int, Interval, Real, SmallInt, Timestamp, TimestampTz,
        Varchar,
    };
    let parse = |text: &str| column.parse(text).map_err(|error| error.to_string());
    match (column.data_type, &json.value) {
        (_, JsonValue::Null) => Ok(Value::Null),
        (Varchar, _) if column.modifier.is_json() => parse(json.text),
        (Boolean, JsonValue::Bool(value)) => Ok(Value::Boolean(*value)),
        (SmallInt | Int | BigInt, JsonValue::Number(number)) if !number.contains(['.', 'e', 'E']) => {
            parse(number)
        }
        (Real | Double, JsonValue::Number(number)) => match parse(number)? {
            Value::Double(value) if !value.is_finite() => {
                Err(format!("column {}: {number} does not fit {}", column.name, column.data_type))
            }
            value => Ok(value),
        },
        (Decimal { .. }, JsonValue::Number(number)) => {
            parse(&plain_number(number).map_err(|error| format!("column {}: {error}", column.name))?)
        }
        (Decimal { .. } | Date | Timestamp | TimestampTz | Interval, JsonValue::String(text)) => parse(text),
        (Varchar, JsonValue::String(text)) => parse(text),
        (expected, _) => Err(format!("column {}: expected {expected}, found {}", column.name, kind(json))),
    }
}

/// Text of a value for messages.
pub(crate) fn kind(json: &Json<'_>) -> String {
    match &json.value {
        JsonValue::Null => "null".to_owned(),
        JsonValue::Bool(value) => value.to_string(),
        JsonValue::Number(number) => format!("the number {number}"),
        JsonValue::String(text) => format!("the string \"{}\"", text.chars().take(40).collect::<String>()),
        JsonValue::Array(_) => "an array".to_owned(),
        JsonValue::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::{Interval, Modifier};

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
            (decimal, "123456789012345678.91", Value::Decimal(12_345_678_901_234_567_891)),
            (decimal, "1.5e2", Value::Decimal(15_000)),
            (decimal, "\"123456789012345678.90\"", Value::Decimal(12_345_678_901_234_567_890)),
            (DataType::Date, "\"1970-01-02\"", Value::Date(1)),
            (DataType::Timestamp, "\"1970-01-01T00:00:01\"", Value::Timestamp(1_000_000)),
            (
                DataType::Interval,
                "\"1 day 02:00\"",
                Value::Interval(Interval::new(0, 1, 7_200_000_000).unwrap()),
            ),
            (DataType::Varchar, "\"a\\n\\u00e4\"", Value::from("a\nä")),
            (DataType::Varchar, "null", Value::Null),
        ] {
            assert_eq!(one(data_type, json).unwrap(), wanted, "{data_type} {json}");
        }
    }

    #[test]
    fn parts_of_an_object_are_json() {
        let columns = [("a", Modifier::Json), ("b", Modifier::Jsonb), ("c", Modifier::Jsonb)]
            .map(|(name, modifier)| Column::new(name, DataType::Varchar).with_modifier(modifier));
        let object = b"{\"a\": {\"y\":1.50, \"x\":[]}, \"b\": {\"y\":1.50, \"x\":[]}, \"c\": null}";
        let expected =
            [Value::from("{\"y\":1.50, \"x\":[]}"), Value::from("{\"x\": [], \"y\": 1.50}"), Value::Null];
        assert_eq!(tuple_of(&columns, object).unwrap(), expected);
    }

    #[test]
    fn other_types_are_refused_with_the_column() {
        for (data_type, json, reason) in [
            (DataType::Int, "7.5", "column v: expected INT, found the number 7.5"),
            (DataType::Int, "\"7\"", "column v: expected INT, found the string \"7\""),
            (DataType::Int, "3000000000", "column v"),
            (DataType::Double, "\"NaN\"", "expected DOUBLE"),
            (DataType::Double, "1e400", "column v: 1e400 does not fit DOUBLE"),
            (DataType::Double, "-1e400", "column v: -1e400 does not fit DOUBLE"),
            (DataType::Real, "1e39", "column v"),
            (DataType::Boolean, "1", "expected BOOLEAN, found the number 1"),
            (DataType::Varchar, "[1]", "expected VARCHAR, found an array"),
            (DataType::Varchar, "{}", "expected VARCHAR, found an object"),
            (DataType::Date, "\"tomorrow\"", "column v"),
            (DataType::Timestamp, "12", "expected TIMESTAMP, found the number 12"),
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
