//! Changes of rows with a key as JSON: the envelopes of Debezium, and keys with values.
//!
//! | format | a line is |
//! | --- | --- |
//! | `Debezium` | `{"before": row, "after": row, "op": "c"}`, in `payload` if there is a schema; `c` and `r` and `u` write the row after, `d` deletes the one before; `null` is a tombstone, and says nothing new |
//! | `Upsert` | `{"key": columns of the key, "value": row}`; a value of `null` deletes |
//!
//! - A line becomes a tuple with a last column [`DELETED`]. Of a deleted row the key alone is there.
//! - A row before is needed as far as its key: what is replaced is known from the rows that were read
//!   ([`crate::Stream::keyed_rows`]), so an event that comes again changes nothing.

use crate::element::Tuple;
use crate::sources::json::{kind, parsed, tuple_of_object, value_of};
use entresol_tables::json::{Json, JsonValue, parse};
use entresol_tables::{Column, DataType, Value};

/// Column of the tuples that is true of deleted rows.
pub const DELETED: &str = "deleted_";

/// Column of the tuples with the transaction of the event, NULL if it is of none ([`crate::TransactionSource`]).
pub const TRANSACTION: &str = "transaction_";

/// Column behind it with the place of the event in its transaction, NULL if it says none.
pub const TRANSACTION_ORDER: &str = "transaction_order_";

/// Form of the lines of [`ChangeFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// A key and a value, which is `null` of a deleted row.
    Upsert,
    /// The row before, the row after, and the operation.
    Debezium,
}

/// Format of changes of rows with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeFormat {
    /// Form of the lines.
    pub envelope: Envelope,
    /// Columns of the key.
    pub key: Vec<String>,
    /// Nanoseconds of the unit in which a timestamp is a number; without it, numbers are refused.
    pub timestamp_unit_ns: Option<i64>,
    /// True if tuples have [`TRANSACTION`] and [`TRANSACTION_ORDER`] in last columns, of Debezium.
    pub has_transactions: bool,
    /// Number of columns of a table, of a sink whose tuples are the table's logged changes
    /// ([`entresol_tables::change_columns`]).
    pub logged_columns: Option<usize>,
}

impl ChangeFormat {
    /// Format without numbers as timestamps, of rows that are not from a change log.
    pub fn new(envelope: Envelope, key: Vec<String>) -> ChangeFormat {
        ChangeFormat { envelope, key, timestamp_unit_ns: None, has_transactions: false, logged_columns: None }
    }

    /// Columns of the tuples: those of the rows, and [`DELETED`].
    pub(crate) fn tuple_columns(&self, columns: &[Column]) -> Vec<Column> {
        let is_key = |column: &Column| self.key.contains(&column.name);
        let of_tuple = |column: &Column| Column { nullable: !is_key(column), ..column.clone() };
        let deleted = Column::new(DELETED, DataType::Boolean).not_null();
        let transaction = [(TRANSACTION, DataType::Varchar), (TRANSACTION_ORDER, DataType::BigInt)];
        let transaction = transaction.into_iter().filter(|_| self.has_transactions);
        let transaction = transaction.map(|(name, data_type)| Column::new(name, data_type));
        columns.iter().map(of_tuple).chain([deleted]).chain(transaction).collect()
    }

    /// Tuple of a line, none of a line that says nothing, or the reason why it is no change of these columns.
    pub(crate) fn tuple_of(&self, columns: &[Column], line: &[u8]) -> Result<Option<Tuple>, String> {
        let json = parsed(line)?;
        match self.envelope {
            Envelope::Upsert => self.upsert(columns, &json).map(Some),
            Envelope::Debezium => self.debezium(columns, &json),
        }
    }

    fn upsert(&self, columns: &[Column], json: &Json<'_>) -> Result<Tuple, String> {
        check_object(json, "{\"key\": ..., \"value\": ...}")?;
        let key = row_of(json, "key");
        match (key, row_of(json, "value")) {
            (None, None) => Err("both key and value are missing or null".to_owned()),
            (Some(key), None) if json.field("value").is_some() => self.deleted(columns, key, "key"),
            (Some(_), None) => Err("the value is missing; null deletes a row".to_owned()),
            (key, Some(value)) => {
                let mut tuple = self.row(columns, value, "value")?;
                if let Some(key) = key {
                    self.take_key(columns, key, &mut tuple)?;
                }
                self.written(columns, tuple)
            }
        }
    }

    /// Takes the key of a row from the key of its line: both are equal, or one has no such column.
    fn take_key(&self, columns: &[Column], key: &Json<'_>, tuple: &mut Tuple) -> Result<(), String> {
        let of_key = self.row(columns, key, "key")?;
        for (at, column) in self.key_columns(columns) {
            if tuple[at].is_null() {
                tuple[at] = of_key[at].clone();
            } else if !of_key[at].is_null() && of_key[at] != tuple[at] {
                let (key, value) = (&of_key[at], &tuple[at]);
                return Err(format!("column {}: {key} in the key and {value} in the value", column.name));
            }
        }
        Ok(())
    }

    fn debezium(&self, columns: &[Column], json: &Json<'_>) -> Result<Option<Tuple>, String> {
        let envelope = match (json.field("op"), json.field("payload")) {
            (None, Some(payload)) => payload,
            _ => json,
        };
        if envelope.value == JsonValue::Null {
            return Ok(None);
        }
        check_object(envelope, "an envelope {\"before\": ..., \"after\": ..., \"op\": ...}")?;
        let op = match envelope.field("op").map(|op| &op.value) {
            Some(JsonValue::String(op)) => op.as_ref(),
            _ => return Err("the envelope has no op".to_owned()),
        };
        let (before, after) = (row_of(envelope, "before"), row_of(envelope, "after"));
        let tuple = match (op, before, after) {
            ("c" | "r" | "u", before, Some(after)) => {
                let tuple = self.row(columns, after, "after")?;
                if let Some(before) = before.filter(|_| op == "u") {
                    self.check_same_key(columns, before, &tuple)?;
                }
                self.written(columns, tuple)
            }
            ("d", Some(before), _) => self.deleted(columns, before, "before"),
            ("c" | "r" | "u", _, None) => Err(format!("op {op} without the row after")),
            ("d", None, _) => Err("op d without the row before, whose key says what is deleted".to_owned()),
            ("t", ..) => Err("op t (truncate): rows are deleted one by one".to_owned()),
            (other, ..) => Err(format!("op \"{other}\": expected c, r, u or d")),
        };
        let mut tuple = tuple?;
        if self.has_transactions {
            let transaction = envelope.field("transaction");
            tuple.extend([transaction_of(transaction), order_of(transaction)?]);
        }
        Ok(Some(tuple))
    }

    /// Refuses an update that changes the key: connectors send it as `d` and `c`.
    fn check_same_key(&self, columns: &[Column], before: &Json<'_>, after: &Tuple) -> Result<(), String> {
        let before = self.row(columns, before, "before")?;
        for (at, column) in self.key_columns(columns) {
            if !before[at].is_null() && before[at] != after[at] {
                let (name, old, new) = (&column.name, &before[at], &after[at]);
                return Err(format!("op u changes the key, {name} from {old} to {new}: expected d and c"));
            }
        }
        Ok(())
    }

    fn key_columns<'c>(&'c self, columns: &'c [Column]) -> impl Iterator<Item = (usize, &'c Column)> {
        columns.iter().enumerate().filter(|(_, column)| self.key.contains(&column.name))
    }

    /// Values of an object by the names of the columns.
    fn row(&self, columns: &[Column], json: &Json<'_>, part: &str) -> Result<Tuple, String> {
        if !matches!(json.value, JsonValue::Object(_)) {
            return Err(format!("{part}: expected a JSON object, found {}", kind(json)));
        }
        match self.envelope {
            Envelope::Upsert => tuple_of_object(columns, json, &value_of),
            Envelope::Debezium => tuple_of_object(columns, json, &|column, json| self.value(column, json)),
        }
    }

    /// Value as Debezium encodes it: days and timestamps may be numbers, JSON is a string.
    fn value(&self, column: &Column, json: &Json<'_>) -> Result<Value, String> {
        let number = |number: &str| {
            let failed =
                |_| format!("column {}: {number} is not a number of {}", column.name, column.data_type);
            number.parse::<i64>().map_err(failed)
        };
        match (column.data_type, &json.value) {
            (DataType::Date, JsonValue::Number(days)) => {
                let out = |_| format!("column {}: {days} is out of range of DATE", column.name);
                Ok(Value::Date(i32::try_from(number(days)?).map_err(out)?))
            }
            (DataType::Timestamp | DataType::TimestampTz, JsonValue::Number(units)) => {
                let Some(unit_ns) = self.timestamp_unit_ns else {
                    return Err(format!(
                        "column {}: the number {units} for a timestamp: the option timestamp_unit says its unit (ms, us or ns)",
                        column.name
                    ));
                };
                let micros = i128::from(number(units)?) * i128::from(unit_ns);
                let out =
                    |_| format!("column {}: {units} is out of range of {}", column.name, column.data_type);
                Ok(Value::Timestamp(i64::try_from(micros.div_euclid(1000)).map_err(out)?))
            }
            (DataType::Varchar, JsonValue::String(text)) if column.modifier.is_json() => {
                let inner = parse(text).map_err(|error| format!("column {}: {error}", column.name))?;
                value_of(column, &inner)
            }
            _ => value_of(column, json),
        }
    }

    /// Tuple of a row that is there.
    fn written(&self, columns: &[Column], mut tuple: Tuple) -> Result<Tuple, String> {
        let is_null = |(column, value): (&Column, &Value)| {
            value.is_null() && (!column.nullable || self.key.contains(&column.name))
        };
        if let Some((column, _)) = columns.iter().zip(&tuple).find(|pair| is_null(*pair)) {
            return Err(format!("column {}: NULL in a NOT NULL column", column.name));
        }
        tuple.push(Value::Boolean(false));
        Ok(tuple)
    }

    /// Tuple of a deleted row: its key.
    fn deleted(&self, columns: &[Column], json: &Json<'_>, part: &str) -> Result<Tuple, String> {
        if !matches!(json.value, JsonValue::Object(_)) {
            return Err(format!("{part}: expected a JSON object, found {}", kind(json)));
        }
        let value = |column: &Column, json: &Json<'_>| {
            // The others may be anything: connectors fill them with defaults.
            if !self.key.contains(&column.name) {
                return Ok(Value::Null);
            }
            match self.envelope {
                Envelope::Upsert => value_of(column, json),
                Envelope::Debezium => self.value(column, json),
            }
        };
        let mut tuple = tuple_of_object(columns, json, &value)?;
        if let Some((_, column)) = self.key_columns(columns).find(|(at, _)| tuple[*at].is_null()) {
            return Err(format!("column {}: NULL in the key of a deleted row", column.name));
        }
        tuple.push(Value::Boolean(true));
        Ok(tuple)
    }
}

/// Transaction of an event; NULL if it is of none.
fn transaction_of(transaction: Option<&Json<'_>>) -> Value {
    let id = transaction.and_then(|transaction| transaction.field("id"));
    match id.map(|id| &id.value) {
        Some(JsonValue::String(id)) => Value::from(id.as_ref()),
        _ => Value::Null,
    }
}

/// Place of an event in its transaction; NULL if there is none.
fn order_of(transaction: Option<&Json<'_>>) -> Result<Value, String> {
    let order = transaction.and_then(|transaction| transaction.field("total_order"));
    let Some(order) = order.filter(|order| order.value != JsonValue::Null) else { return Ok(Value::Null) };
    let number = match &order.value {
        JsonValue::Number(number) => number.parse().ok(),
        _ => None,
    };
    number.map(Value::BigInt).ok_or_else(|| format!("total_order is {}, not a number", kind(order)))
}

/// Part of an envelope, unless it is `null`.
fn row_of<'j, 'a>(json: &'j Json<'a>, name: &str) -> Option<&'j Json<'a>> {
    json.field(name).filter(|part| part.value != JsonValue::Null)
}

fn check_object(json: &Json<'_>, expected: &str) -> Result<(), String> {
    match json.value {
        JsonValue::Object(_) => Ok(()),
        _ => Err(format!("expected {expected}, found {}", kind(json))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::Modifier;

    fn columns() -> Vec<Column> {
        vec![
            Column::new("id", DataType::Int).not_null(),
            Column::new("name", DataType::Varchar).not_null(),
            Column::new("at", DataType::Timestamp),
        ]
    }

    fn one(envelope: Envelope, line: &str) -> Result<Option<Tuple>, String> {
        let format = ChangeFormat {
            timestamp_unit_ns: Some(1_000_000),
            ..ChangeFormat::new(envelope, vec!["id".to_owned()])
        };
        let tuple = format.tuple_of(&columns(), line.as_bytes())?;
        if let Some(tuple) = &tuple {
            let mut builder = entresol_tables::BatchBuilder::new(&format.tuple_columns(&columns()), 1);
            builder.push(tuple).unwrap();
        }
        Ok(tuple)
    }

    fn row(id: i32, name: &str) -> Option<Tuple> {
        Some(vec![Value::Int(id), Value::from(name), Value::Null, Value::Boolean(false)])
    }

    fn deleted(id: i32) -> Option<Tuple> {
        Some(vec![Value::Int(id), Value::Null, Value::Null, Value::Boolean(true)])
    }

    #[test]
    fn envelopes_write_and_delete_rows() {
        let debezium = |line: &str| one(Envelope::Debezium, line).unwrap();
        for op in ["c", "r", "u"] {
            let line =
                format!("{{\"before\": null, \"after\": {{\"id\": 1, \"name\": \"a\"}}, \"op\": \"{op}\"}}");
            assert_eq!(debezium(&line), row(1, "a"));
            assert_eq!(debezium(&format!("{{\"schema\": {{}}, \"payload\": {line}}}")), row(1, "a"));
        }
        let line = r#"{"before": {"id": 1, "name": null}, "after": {"id": 1, "name": "b"}, "op": "u"}"#;
        assert_eq!(debezium(line), row(1, "b"));
        assert_eq!(debezium(r#"{"before": {"id": 7, "name": ""}, "after": null, "op": "d"}"#), deleted(7));
        assert_eq!(debezium("null"), None);
        assert_eq!(debezium(r#"{"schema": null, "payload": null}"#), None);
        let line = r#"{"after": {"id": 1, "name": "a", "at": 1500}, "op": "c"}"#;
        assert_eq!(debezium(line).unwrap()[2], Value::Timestamp(1_500_000));
        let upsert = |line: &str| one(Envelope::Upsert, line).unwrap();
        assert_eq!(upsert(r#"{"key": {"id": 1}, "value": {"name": "a"}}"#), row(1, "a"));
        assert_eq!(upsert(r#"{"key": {"id": 1}, "value": {"id": 1, "name": "a"}}"#), row(1, "a"));
        assert_eq!(upsert(r#"{"value": {"id": 1, "name": "a"}}"#), row(1, "a"));
        assert_eq!(upsert(r#"{"key": {"id": 7}, "value": null}"#), deleted(7));
    }

    #[test]
    fn other_lines_are_refused_with_the_reason() {
        for (line, reason) in [
            ("[]", "expected an envelope {\"before\": ..., \"after\": ..., \"op\": ...}, found an array"),
            ("{}", "the envelope has no op"),
            (r#"{"op": "c", "after": null}"#, "op c without the row after"),
            (r#"{"op": "d", "after": {"id": 1}}"#, "op d without the row before"),
            (r#"{"op": "d", "before": {"name": "a"}}"#, "column id: NULL in the key of a deleted row"),
            (r#"{"op": "t"}"#, "op t (truncate)"),
            (r#"{"op": "x"}"#, "op \"x\": expected c, r, u or d"),
            (r#"{"op": "c", "after": [1]}"#, "after: expected a JSON object, found an array"),
            (r#"{"op": "c", "after": {"id": 1}}"#, "column name: NULL in a NOT NULL column"),
            (
                r#"{"op": "c", "after": {"id": "x", "name": "a"}}"#,
                "column id: expected INT, found the string \"x\"",
            ),
            (
                r#"{"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "a"}}"#,
                "op u changes the key, id from 1 to 2: expected d and c",
            ),
        ] {
            let error = one(Envelope::Debezium, line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        for (line, reason) in [
            ("null", "expected {\"key\": ..., \"value\": ...}, found null"),
            ("{}", "both key and value are missing or null"),
            (r#"{"key": {"id": 1}}"#, "the value is missing"),
            (
                r#"{"key": {"id": 1}, "value": {"id": 2, "name": "a"}}"#,
                "column id: 1 in the key and 2 in the value",
            ),
            (r#"{"key": {}, "value": {"name": "a"}}"#, "column id: NULL in a NOT NULL column"),
        ] {
            let error = one(Envelope::Upsert, line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn numbers_and_strings_of_debezium_are_of_the_types_of_their_columns() {
        let columns = [
            Column::new("id", DataType::Int).not_null(),
            Column::new("day", DataType::Date),
            Column::new("doc", DataType::Varchar).with_modifier(Modifier::Jsonb),
            Column::new("at", DataType::Timestamp),
        ];
        let format = ChangeFormat::new(Envelope::Debezium, vec!["id".to_owned()]);
        let line = br#"{"op": "c", "after": {"id": 1, "day": 3, "doc": "{\"a\":1}"}}"#;
        let tuple = format.tuple_of(&columns, line).unwrap().unwrap();
        assert_eq!(tuple[1..3], [Value::Date(3), Value::from("{\"a\": 1}")]);
        let line = br#"{"op": "c", "after": {"id": 1, "at": 3}}"#;
        let error = format.tuple_of(&columns, line).unwrap_err();
        assert!(error.contains("the option timestamp_unit says its unit"), "{error}");
    }
}
