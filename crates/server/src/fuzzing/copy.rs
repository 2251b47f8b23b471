//! Data of a binary COPY, in pieces of any length.

use crate::values::binary_copy::{Reader, Rows, TRAILER, header};
use bytes::BytesMut;
use entresol::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use entresol::arrow::record_batch::RecordBatch;
use entresol::query::datafusion::common::ScalarValue;
use std::sync::Arc;

/// Columns of tables: some types, and all of them together.
fn columns() -> Vec<Vec<DataType>> {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let mut columns = vec![
        vec![DataType::Int32, DataType::Utf8],
        vec![DataType::Boolean, DataType::Int64, DataType::Float64],
        vec![DataType::Decimal128(10, 2), DataType::Date32, timestamp],
    ];
    columns.push(columns.concat());
    columns
}

/// Outcome of reading: rows, and the reason of an early end.
type ReadOutcome = (Vec<Vec<ScalarValue>>, Option<(&'static str, String)>);

/// Takes two bytes for types and the length of pieces, and the data. Returns the number of rows.
pub fn binary_copy(bytes: &[u8]) -> usize {
    let [types, piece, data @ ..] = bytes else { return 0 };
    let columns = columns();
    let types = &columns[usize::from(*types) % columns.len()];
    let whole = read(types, data, data.len().max(1));
    assert_eq!(whole, read(types, data, usize::from(*piece).max(1)), "it does not matter how it is split");
    let rows = whole.0;
    if let Some(bytes) = written(types, &rows) {
        assert_eq!(read(types, &bytes, bytes.len()), (rows.clone(), None));
    }
    rows.len()
}

fn read(types: &[DataType], data: &[u8], piece: usize) -> ReadOutcome {
    let fields: Vec<Field> = types.iter().map(|of| Field::new("column", of.clone(), true)).collect();
    let mut reader = Reader::new(&fields);
    let mut rows = Vec::new();
    let mut all = || {
        for piece in data.chunks(piece) {
            reader.push(piece);
            while let Some(row) = reader.next()? {
                assert_eq!(row.iter().map(ScalarValue::data_type).collect::<Vec<_>>(), types);
                rows.push(row);
            }
        }
        reader.finish()
    };
    let end = all().err().map(|report| (report.code, report.message));
    (rows, end)
}

/// The same rows as a COPY TO sends them; `None` if there are none, or a value is beyond the range of the
/// format.
fn written(types: &[DataType], rows: &[Vec<ScalarValue>]) -> Option<Vec<u8>> {
    if rows.is_empty() {
        return None;
    }
    let column = |at: usize| {
        ScalarValue::iter_to_array(rows.iter().map(|row| row[at].clone())).expect("values of one type")
    };
    let fields: Vec<Field> = types.iter().map(|of| Field::new("column", of.clone(), true)).collect();
    let arrays = (0..types.len()).map(column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of these types");
    let out = Rows::new(&batch).expect("types that are sent");
    let mut bytes = BytesMut::from(&header()[..]);
    for row in 0..rows.len() {
        out.write(row, &mut bytes).ok()?;
    }
    bytes.extend_from_slice(&TRAILER);
    Some(bytes.to_vec())
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let value = |of: &DataType| match of {
        DataType::Int32 => ScalarValue::Int32(Some(7)),
        DataType::Int64 => ScalarValue::Int64(Some(-8)),
        DataType::Boolean => ScalarValue::Boolean(Some(true)),
        DataType::Float64 => ScalarValue::Float64(Some(1.5)),
        DataType::Decimal128(..) => ScalarValue::Decimal128(Some(-12_345), 10, 2),
        DataType::Date32 => ScalarValue::Date32(Some(19_782)),
        DataType::Utf8 => ScalarValue::from("text"),
        _ => ScalarValue::TimestampMicrosecond(Some(1_700_000_000_000_000), None),
    };
    let null = |of: &DataType| ScalarValue::try_from(of).expect("every type has NULL");
    let mut seeds = Vec::new();
    for (at, types) in columns().iter().enumerate() {
        let rows = [types.iter().map(value).collect(), types.iter().map(null).collect::<Vec<_>>()];
        let bytes = written(types, &rows).expect("values that can be sent");
        seeds.push([&[at as u8, 5], &bytes[..]].concat());
    }
    seeds
}
