//! Encodings against the values themselves: round trips, order, bounds, and random bytes.

use crate::batch::arrow_type;
use crate::batch::decode::StoredRows;
use crate::batch::encode::encode;
use crate::batch::rows::{batch_to_rows, rows_to_batch};
use crate::encoding::{key, row};
use crate::schema::modifier::Modifier;
use crate::schema::{Column, KEY_BYTES_MAX, Schema};
use crate::table::range::ScanRange;
use crate::value::interval::{Interval, MICROS_MAX};
use crate::value::{DataType, Value};
use crate::{Error, RowView};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::Arc;

const SHORT: DataType = DataType::Decimal { precision: 12, scale: 2 };
const LONG: DataType = DataType::Decimal { precision: 38, scale: 4 };
const TYPES: [DataType; 13] = [
    DataType::Boolean,
    DataType::SmallInt,
    DataType::Real,
    DataType::Int,
    DataType::BigInt,
    DataType::Double,
    SHORT,
    LONG,
    DataType::Date,
    DataType::Timestamp,
    DataType::TimestampTz,
    DataType::Varchar,
    DataType::Interval,
];

fn value_of(data_type: DataType) -> BoxedStrategy<Value> {
    let edges = |values: Vec<Value>| proptest::sample::select(values);
    match data_type {
        DataType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        DataType::SmallInt => any::<i16>().prop_map(|value| Value::Int(value.into())).boxed(),
        DataType::Int => any::<i32>().prop_map(Value::Int).boxed(),
        DataType::BigInt => prop_oneof![
            any::<i64>().prop_map(Value::BigInt),
            edges(vec![
                Value::BigInt(i64::MIN),
                Value::BigInt(-1),
                Value::BigInt(0),
                Value::BigInt(i64::MAX)
            ]),
        ]
        .boxed(),
        DataType::Double => prop_oneof![
            any::<f64>().prop_map(Value::Double),
            edges([f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY].map(Value::Double).to_vec()),
        ]
        .boxed(),
        DataType::Real => any::<f32>().prop_map(|value| Value::Double(value.into())).boxed(),
        DataType::Decimal { precision, .. } => {
            let bound = 10i128.pow(u32::from(precision));
            (1 - bound..bound).prop_map(Value::Decimal).boxed()
        }
        DataType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        DataType::Timestamp | DataType::TimestampTz => any::<i64>().prop_map(Value::Timestamp).boxed(),
        DataType::Interval => (any::<i32>(), any::<i32>(), -MICROS_MAX..=MICROS_MAX)
            .prop_map(|(months, days, micros)| Value::Interval(Interval::new(months, days, micros).unwrap()))
            .boxed(),
        DataType::Varchar => "[\0\u{1}aä€]{0,6}".prop_map(Value::from).boxed(),
    }
}

/// Schema of random types, with its first `keys` columns as the key.
fn schema_strategy() -> impl Strategy<Value = Schema> {
    (proptest::collection::vec(0..TYPES.len(), 1..12), 0usize..4).prop_map(|(types, keys)| {
        let columns: Vec<Column> = types
            .iter()
            .enumerate()
            // No key has an interval.
            .map(|(at, index)| match TYPES[*index] {
                DataType::Interval if at < keys => Column::new(format!("c{at}"), DataType::BigInt),
                data_type => Column::new(format!("c{at}"), data_type),
            })
            .map(|column| match (column.data_type, keys) {
                (DataType::Varchar, 1) => column.with_modifier(Modifier::Varchar(300_000)),
                (DataType::Varchar, 2) => column.with_modifier(Modifier::Char(7)),
                (DataType::Decimal { .. }, 2) => column.with_modifier(Modifier::Exact),
                (DataType::Varchar, 0) => column.with_modifier(Modifier::Json),
                _ => column,
            })
            .collect();
        // Reversed, so that key order is not column order.
        let key: Vec<String> = (0..keys.min(columns.len())).rev().map(|at| format!("c{at}")).collect();
        Schema::new(columns, &key).unwrap()
    })
}

fn row_of(schema: &Schema) -> BoxedStrategy<Vec<Value>> {
    let columns: Vec<BoxedStrategy<Value>> = schema
        .columns()
        .iter()
        .map(|column| {
            let value = value_of(column.data_type);
            if column.nullable { prop_oneof![1 => Just(Value::Null), 4 => value].boxed() } else { value }
        })
        .collect();
    columns.boxed()
}

fn key_values(schema: &Schema, row: &[Value]) -> Vec<Value> {
    schema.key().iter().map(|&index| row[index].clone()).collect()
}

/// Arrow schema of all columns, each nullable.
fn arrow_fields(schema: &Schema) -> SchemaRef {
    let types = schema.columns().iter().map(|column| (column, arrow_type(column.data_type, "+02:00")));
    let fields = types.map(|(column, arrow)| Field::new(&column.name, arrow, true));
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// Decodes all columns of rows, whatever comes of it.
fn decode_all(schema: &Schema, rows: &[(&[u8], &[u8])]) {
    let projection: Vec<usize> = (0..schema.columns().len()).collect();
    let mut stored = StoredRows::new("t", &Arc::new(schema.clone()), &projection, arrow_fields(schema), 1);
    rows.iter().for_each(|(key, value)| stored.push(key, value));
    let _ = stored.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rows_round_trip((schema, row) in schema_strategy().prop_flat_map(|s| (Just(s.clone()), row_of(&s)))) {
        let mut value = Vec::new();
        let key = row::encode_row("t", &schema, &row, &mut value).unwrap();
        let view = RowView::new("t", &schema, &key, &value).unwrap();
        prop_assert_eq!(view.to_row(), row.clone());
        prop_assert_eq!(key::decode_key("t", &schema, &key).unwrap(), key_values(&schema, &row));
        prop_assert_eq!(Schema::from_bytes(&schema.to_bytes()).unwrap(), schema);
    }

    #[test]
    fn columns_are_encoded_and_decoded_as_rows_are(
        (schema, rows) in schema_strategy().prop_flat_map(|schema| {
            let rows = proptest::collection::vec(row_of(&schema), 0..20);
            (Just(schema), rows)
        }),
        choice in any::<u16>(),
    ) {
        let fields = arrow_fields(&schema);
        let batch = rows_to_batch(&fields, schema.columns(), &rows).unwrap();
        prop_assert_eq!(&batch_to_rows("t", schema.columns(), &batch).unwrap(), &rows);
        let (keys, values) = encode("t", &schema, batch.columns()).unwrap();
        prop_assert_eq!(keys.len(), rows.len());
        for (at, row) in rows.iter().enumerate() {
            let mut value = Vec::new();
            let key = row::encode_row("t", &schema, row, &mut value).unwrap();
            prop_assert_eq!((&keys[at], values.get(at)), (&key, &value[..]));
        }
        let projection: Vec<usize> = (0..schema.columns().len()).rev().filter(|at| choice & (1 << at) != 0).collect();
        let wanted = batch.project(&projection).unwrap();
        let columns: Vec<Column> = projection.iter().map(|&at| schema.columns()[at].clone()).collect();
        let mut stored = StoredRows::new("t", &Arc::new(schema), &projection, wanted.schema(), 4);
        for _ in 0..2 {
            (0..rows.len()).for_each(|at| stored.push(&keys[at], values.get(at)));
            prop_assert_eq!(stored.len(), rows.len());
            let found = stored.finish().unwrap();
            prop_assert_eq!(found.num_rows(), rows.len());
            // As values, of which NaN equals itself.
            let values = |batch: &RecordBatch| batch_to_rows("t", &columns, batch).unwrap();
            prop_assert_eq!(values(&found), values(&wanted));
        }
    }

    #[test]
    fn rows_that_are_left_out_leave_the_others_as_they_are(
        (schema, rows) in schema_strategy().prop_flat_map(|schema| {
            let rows = proptest::collection::vec(row_of(&schema), 0..60);
            (Just(schema), rows)
        }),
        (output, read, first_rows) in any::<(u16, u16, u8)>(),
        // From those that retain few rows to those that retain most.
        (shares, seed) in (proptest::collection::vec(0u64..=8, 3), any::<u64>()),
    ) {
        let batch = rows_to_batch(&arrow_fields(&schema), schema.columns(), &rows).unwrap();
        let (keys, values) = encode("t", &schema, batch.columns()).unwrap();
        let chosen = |bits: u16| (0..schema.columns().len()).filter(|at| bits & (1 << at) != 0).collect::<Vec<_>>();
        let (projection, read) = (chosen(output), chosen(read));
        let columns_of = |at: &[usize]| at.iter().map(|&at| schema.columns()[at].clone()).collect::<Vec<_>>();
        let as_rows = |batch: &RecordBatch, at: &[usize]| batch_to_rows("t", &columns_of(at), batch).unwrap();
        let arrow = Arc::new(batch.schema().project(&projection).unwrap());
        let mut stored = StoredRows::new("t", &Arc::new(schema.clone()), &projection, arrow, 4).reading(&read);
        let mut expected: Vec<usize> = Vec::new();
        let mut pushed = 0;
        // The rows come in three parts, each of which is looked at when it is there.
        for (part, share) in shares.iter().enumerate() {
            let end = if part == 2 { rows.len() } else { (pushed + usize::from(first_rows) % 30).min(rows.len()) };
            (pushed..end).for_each(|at| stored.push(&keys[at], values.get(at)));
            let first = expected.len();
            let schema_read = batch.schema().project(&read).unwrap();
            let types: Vec<_> = read.iter().copied().zip(schema_read.fields().iter().map(|field| field.data_type())).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(end - pushed));
            let arrays = stored.columns_from(first, &types).unwrap();
            let found = RecordBatch::try_new_with_options(Arc::new(schema_read.clone()), arrays, &options).unwrap();
            let wanted = batch.project(&read).unwrap().slice(pushed, end - pushed);
            prop_assert_eq!(as_rows(&found, &read), as_rows(&wanted, &read));
            let is_retained = |at: usize| seed.rotate_left(at as u32) % 8 < *share;
            stored.retain_from(first, &BooleanBuffer::collect_bool(end - pushed, |row| is_retained(pushed + row)));
            expected.extend((pushed..end).filter(|at| is_retained(*at)));
            prop_assert_eq!(stored.len(), expected.len());
            pushed = end;
        }
        stored.truncate(50);
        expected.truncate(50);
        let wanted: Vec<Vec<Value>> = as_rows(&batch.project(&projection).unwrap(), &projection);
        let wanted: Vec<Vec<Value>> = expected.iter().map(|&at| wanted[at].clone()).collect();
        let found = stored.finish().unwrap();
        prop_assert_eq!(found.num_rows(), expected.len());
        prop_assert_eq!(as_rows(&found, &projection), wanted);
        prop_assert!(stored.is_empty());
    }

    #[test]
    fn keys_order_as_their_values(
        (schema, a, b) in schema_strategy().prop_flat_map(|s| (Just(s.clone()), row_of(&s), row_of(&s)))
    ) {
        let (a, b) = (key_values(&schema, &a), key_values(&schema, &b));
        let encode = |values: &[Value]| key::encode_key("t", &schema, values.iter()).unwrap();
        prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
    }

    #[test]
    fn ranges_hold_exactly_their_keys(
        (schema, key, low, high) in schema_strategy().prop_flat_map(|s| (Just(s.clone()), row_of(&s), row_of(&s), row_of(&s))),
        (low_columns, high_columns) in (0usize..4, 0usize..4),
        (low_included, high_included) in any::<(bool, bool)>(),
    ) {
        let key = key_values(&schema, &key);
        let cut = |row: &[Value], columns: usize| {
            let mut values = key_values(&schema, row);
            values.truncate(columns);
            values
        };
        let (low, high) = (cut(&low, low_columns), cut(&high, high_columns));
        let bound = |values: &'_ [Value], included: bool| if included { Bound::Included(values.to_vec()) } else { Bound::Excluded(values.to_vec()) };
        let (lower, upper) = (bound(&low, low_included), bound(&high, high_included));
        let range = ScanRange::between(lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let above = match key[..low.len()].cmp(&low) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => low_included,
            std::cmp::Ordering::Greater => true,
        };
        let below = match key[..high.len()].cmp(&high) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => high_included,
            std::cmp::Ordering::Greater => false,
        };
        let bytes = key::encode_key("t", &schema, key.iter()).unwrap();
        let held = range.encode("t", &schema).unwrap().is_some_and(|range| {
            std::ops::RangeBounds::contains(&(range.lower, range.upper), &bytes)
        });
        prop_assert_eq!(held, above && below);
    }

    #[test]
    fn random_bytes_are_corrupt_or_a_row(
        schema in schema_strategy(),
        key in proptest::collection::vec(any::<u8>(), 0..40),
        value in proptest::collection::vec(prop_oneof![Just(0u8), Just(1u8), any::<u8>()], 0..80),
    ) {
        let mut versioned = value.clone();
        versioned.insert(0, row::VERSION_BYTE_BASE);
        for value in [value, versioned] {
            if let Ok(view) = RowView::new("t", &schema, &key, &value) {
                view.to_row();
            }
            decode_all(&schema, &[(&key, &value)]);
        }
        let _ = key::decode_key("t", &schema, &key);
        let _ = Schema::from_bytes(&key);
    }

    #[test]
    fn damaged_rows_never_panic(
        (schema, row) in schema_strategy().prop_flat_map(|s| (Just(s.clone()), row_of(&s))),
        (at, bit, in_key, cut) in (any::<usize>(), 0u8..8, any::<bool>(), any::<bool>()),
    ) {
        let mut value = Vec::new();
        let mut key = row::encode_row("t", &schema, &row, &mut value).unwrap().to_vec();
        let sound = (key.clone(), value.clone());
        let damaged = if in_key { &mut key } else { &mut value };
        let place = at % damaged.len();
        if cut { damaged.truncate(place) } else { damaged[place] ^= 1 << bit }
        if let Ok(view) = RowView::new("t", &schema, &key, &value) {
            view.to_row();
        }
        decode_all(&schema, &[(&sound.0, &sound.1), (&key, &value), (&sound.0, &sound.1)]);
        let _ = key::decode_key("t", &schema, &key);
        let mut bytes = schema.to_bytes();
        let place = at % bytes.len();
        bytes[place] ^= 1 << bit;
        let _ = Schema::from_bytes(&bytes);
    }
}

#[test]
fn known_bytes() {
    let columns = vec![
        Column::new("id", DataType::Int),
        Column::new("name", DataType::Varchar),
        Column::new("on", DataType::Boolean),
        Column::new("price", SHORT),
    ];
    let schema = Schema::new(columns, &["id"]).unwrap();
    let row = [Value::Int(-2), Value::from("ab"), Value::Null, Value::Decimal(258)];
    let mut value = Vec::new();
    let key = row::encode_row("t", &schema, &row, &mut value).unwrap();
    assert_eq!(key.as_slice(), [0x7F, 0xFF, 0xFF, 0xFE, 0, 0, 0, 0]);
    // version, bitmap (bit 1 = on), on, price, end of the string, string
    assert_eq!(value, [1, 0b010, 0, 2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
    assert_eq!(schema.key_width(), entresol_structures::KeyWidth::Eight);
}

#[test]
fn sizes_are_bounded_and_named() {
    let schema =
        Schema::new(vec![Column::new("k", DataType::Varchar), Column::new("v", DataType::Varchar)], &["k"])
            .unwrap();
    let encode = |key: usize, value: usize| {
        let row = [Value::from("k".repeat(key)), Value::from("v".repeat(value))];
        row::encode_row("t", &schema, &row, &mut Vec::new())
    };
    assert!(encode(KEY_BYTES_MAX - 2, 24_000).is_ok());
    assert!(matches!(encode(KEY_BYTES_MAX - 1, 0), Err(Error::KeyTooLarge { bytes: 1025, .. })));
    assert!(matches!(encode(1, 24_576), Err(Error::RowTooLarge { bytes: 24_586, .. })));
}

#[test]
fn wrong_values_are_named() {
    let schema =
        Schema::new(vec![Column::new("id", DataType::Int), Column::new("p", SHORT)], &["id"]).unwrap();
    let error = |row: &[Value]| row::encode_row("t", &schema, row, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(
        error(&[Value::from("x"), Value::Null]),
        "table t, column id: expected INT, found VARCHAR 'x'"
    );
    assert_eq!(
        error(&[Value::Null, Value::Null]),
        "null value in column \"id\" of relation \"t\" violates not-null constraint"
    );
    let large = Value::Decimal(10i128.pow(12));
    assert_eq!(
        error(&[Value::Int(1), large]),
        "table t, column p: 10000000000.00 does not fit DECIMAL(12,2)"
    );
    assert_eq!(error(&[Value::Int(1)]), "table t: expected 2 values, found 1");
}

#[test]
fn schemas_are_checked() {
    let column = |name: &str| Column::new(name, DataType::Int);
    let reason = |columns: Vec<Column>, key: &[&str]| Schema::new(columns, key).unwrap_err().to_string();
    assert_eq!(reason(vec![], &[]), "invalid schema: no columns");
    assert_eq!(reason(vec![column("a"), column("a")], &[]), "invalid schema: column a appears twice");
    assert_eq!(reason(vec![column("a")], &["b"]), "invalid schema: key column b is not a column");
    assert_eq!(reason(vec![column("a")], &["a", "a"]), "invalid schema: key column a appears twice");
    assert_eq!(reason(vec![column("rowid_")], &[]), "invalid schema: the column name rowid_ is reserved");
    let decimal = |precision, scale| Column::new("d", DataType::Decimal { precision, scale });
    for (precision, scale) in [(0, 0), (39, 0), (4, 5)] {
        assert!(reason(vec![decimal(precision, scale)], &[]).contains("precision of 1 to 38"));
    }
    let many: Vec<Column> = (0..257).map(|at| column(&format!("c{at}"))).collect();
    assert!(reason(many, &["c0"]).contains("at most 256"));
    let widest: Vec<Column> = (0..256).map(|at| Column::new(format!("{at:0>63}"), LONG)).collect();
    let widest = Schema::new(widest, &[format!("{:0>63}", 7)]).unwrap();
    assert_eq!(Schema::from_bytes(&widest.to_bytes()).unwrap(), widest);
}

/// A schema without modifiers has the same bytes as in releases before modifiers.
#[test]
fn known_bytes_of_schemas() {
    let schema = |name: Column| Schema::new(vec![Column::new("id", DataType::Int), name], &["id"]).unwrap();
    let plain = schema(Column::new("name", DataType::Varchar));
    let bytes = b"\x01\0\x02\0\x02id\x02\0\0\0\x04name\x08\0\0\x01\x01\0\0";
    assert_eq!(plain.to_bytes(), bytes);
    assert_eq!(Schema::from_bytes(bytes).unwrap(), plain);
    let limited = schema(Column::new("name", DataType::Varchar).with_modifier(Modifier::Char(258)));
    let bytes = b"\x01\0\x02\0\x02id\x02\0\0\0\x04name\x08\0\0\x03\x02\x02\x01\0\0\x01\0\0";
    assert_eq!(limited.to_bytes(), bytes);
    assert_eq!(Schema::from_bytes(bytes).unwrap(), limited);
    let unknown = b"\x01\0\x02\0\x02id\x02\0\0\0\x04name\x08\0\0\x03\x09\x02\x01\0\0\x01\0\0";
    assert!(matches!(Schema::from_bytes(unknown), Err(Error::Corrupt { .. })));
}
