//! Tests of the reader with small files: formats, rejects, and resuming from every position.

use super::*;
use crate::sources::csv::DateFormat;
use entresol_tables::{Column, DataType, Value};
use std::path::PathBuf;
use tempfile::TempDir;

fn tuples(batch: &SourceBatch) -> Vec<Tuple> {
    entresol_tables::rows_of(&batch.tuples).unwrap()
}

fn positions(batch: &SourceBatch) -> &[Position] {
    match &batch.positions {
        Positions::Listed(positions) => positions,
        counted => panic!("{counted:?}"),
    }
}

fn format(directory: &TempDir, text: &[u8], columns: Vec<Column>) -> CsvFormat {
    let path: PathBuf = directory.path().join("input.csv");
    std::fs::write(&path, text).unwrap();
    CsvFormat {
        path,
        columns,
        separator: b',',
        null: String::new(),
        date_format: DateFormat::YearMonthDay,
        timestamps: Vec::new(),
        mapper: None,
        growing_end: None,
    }
}

fn read_all(format: CsvFormat, from: Option<Position>) -> SourceBatch {
    CsvReader::open(format, from).unwrap().read(usize::MAX).unwrap()
}

#[test]
fn power_readings_with_date_and_time_in_two_fields() {
    let directory = TempDir::new().unwrap();
    let text = b"Date;Time;Global_active_power;Voltage\r\n\
        16/12/2006;17:24:00;4.216;234.840\r\n\
        16/12/2006;17:25:00;?;?\r\n\
        1/1/2007;00:00:00;2.580;241.970\r\n";
    let columns = vec![
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("Global_active_power", DataType::Double),
        Column::new("Voltage", DataType::Decimal { precision: 6, scale: 3 }),
    ];
    let mut format = format(&directory, text, columns);
    format.separator = b';';
    format.null = "?".to_owned();
    format.date_format = DateFormat::DayMonthYear;
    format.timestamps = vec![("at".to_owned(), "Date".to_owned(), "Time".to_owned())];
    let batch = read_all(format, None);
    assert!(batch.rejects.is_empty(), "{:?}", batch.rejects);
    let at = |text: &str| Value::parse("at", text, DataType::Timestamp).unwrap();
    let expected = vec![
        vec![at("2006-12-16 17:24:00"), Value::Double(4.216), Value::Decimal(234_840)],
        vec![at("2006-12-16 17:25:00"), Value::Null, Value::Null],
        vec![at("2007-01-01 00:00:00"), Value::Double(2.58), Value::Decimal(241_970)],
    ];
    assert_eq!(tuples(&batch), expected);
}

#[test]
fn bad_records_are_rejected_with_line_and_reason_and_the_rest_goes_on() {
    let directory = TempDir::new().unwrap();
    let text = b"id,name\n1,a\nx,b\n2\n3,\"c\nd\"\n4,\xff\n,e\n5,f,g\n6,h";
    let columns = vec![Column::new("id", DataType::Int).not_null(), Column::new("name", DataType::Varchar)];
    let batch = read_all(format(&directory, text, columns), None);
    let ids: Vec<Value> = tuples(&batch).iter().map(|tuple| tuple[0].clone()).collect();
    assert_eq!(ids, [1, 3, 6].map(Value::Int));
    assert_eq!(tuples(&batch)[1][1], Value::from("c\nd"));
    let rejects: Vec<(u64, usize, &str)> = batch
        .rejects
        .iter()
        .map(|reject| (reject.line, reject.tuples_before, reject.reason.as_str()))
        .collect();
    assert_eq!(
        rejects,
        [
            (3, 1, "column id: 'x' is not a INT"),
            (4, 1, "expected 2 fields, found 1"),
            (7, 2, "field 1 is not UTF-8"),
            (8, 2, "column id: NULL in a NOT NULL column"),
            (9, 2, "expected 2 fields, found 3"),
        ]
    );
    assert_eq!(batch.rejects[0].raw, "x,b");
    assert_eq!(batch.end.offset, text.len() as u64);
}

#[test]
fn a_quote_that_is_never_closed_costs_its_own_line_only() {
    let columns =
        || vec![Column::new("id", DataType::Int).not_null(), Column::new("name", DataType::Varchar)];
    let ids = |batch: &SourceBatch| tuples(batch).iter().map(|tuple| tuple[0].clone()).collect::<Vec<_>>();
    let directory = TempDir::new().unwrap();
    let text = b"id,name\r\n1,a\r\n\r\n2,\"b\nb\"\r\n3,c\r\n4,\"open\r\n5,d\n6,e\n";
    let format = format(&directory, text, columns());
    let batch = read_all(format.clone(), None);
    assert_eq!(ids(&batch), [1, 2, 3, 5, 6].map(Value::Int), "{:?}", batch.rejects);
    let rejects: Vec<(u64, &str, &str)> =
        batch.rejects.iter().map(|r| (r.line, r.reason.as_str(), r.raw.as_str())).collect();
    let reason = "unterminated quoted field";
    assert_eq!(rejects, [(7, reason, "4,\"open")]);
    for (at, position) in positions(&batch).iter().enumerate() {
        assert_eq!(tuples(&read_all(format.clone(), Some(*position))), tuples(&batch)[at + 1..]);
    }

    let mut long = b"id,name\n1,a\n2,\"open\n".to_vec();
    let lines = 3 * RECORD_BYTES_MAX / 8;
    for _ in 0..lines {
        long.extend_from_slice(b"3,abcde\n");
    }
    std::fs::write(&format.path, &long).unwrap();
    let batch = read_all(format, None);
    assert_eq!(batch.tuples.num_rows() as u64, lines + 1);
    assert_eq!((batch.rejects.len(), batch.rejects[0].line), (1, 3));
    assert!(batch.rejects[0].reason.contains("longer than"), "{}", batch.rejects[0].reason);
}

#[test]
fn reading_goes_on_behind_any_tuple() {
    let directory = TempDir::new().unwrap();
    let text = b"id,name\n1,a\nbad,b\n2,\"x\ny\"\n\n3,c\n4,d\n";
    let columns = vec![Column::new("name", DataType::Varchar), Column::new("id", DataType::Int)];
    let format = format(&directory, text, columns);
    let whole = read_all(format.clone(), None);
    assert_eq!(whole.tuples.num_rows(), 4);
    for (at, position) in positions(&whole).iter().enumerate() {
        let rest = read_all(format.clone(), Some(*position));
        assert_eq!(tuples(&rest), tuples(&whole)[at + 1..], "from {position:?}");
        assert_eq!(positions(&rest), &positions(&whole)[at + 1..]);
    }
    assert!(read_all(format.clone(), Some(whole.end)).tuples.num_rows() == 0);
    let beyond = Position { offset: 1000, line: 1 };
    assert!(CsvReader::open(format, Some(beyond)).is_err());
}

#[test]
fn mappers_make_tuples_and_reject_records() {
    let directory = TempDir::new().unwrap();
    let mut format = format(&directory, b"a,b\n1,2\n3,x\n", vec![Column::new("sum", DataType::BigInt)]);
    format.mapper = Some(std::sync::Arc::new(|record, tuple| {
        let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{text} is no number"));
        tuple.push(Value::BigInt(number(record.named("a")?)? + number(record.field(1)?)?));
        Ok(())
    }));
    let batch = read_all(format, None);
    assert_eq!(tuples(&batch), [vec![Value::BigInt(3)]]);
    assert_eq!(batch.rejects[0].reason, "x is no number");
}

#[test]
fn missing_columns_are_named() {
    let directory = TempDir::new().unwrap();
    let format = format(&directory, b"a,b\n", vec![Column::new("c", DataType::Int)]);
    let error = CsvReader::open(format, None).err().unwrap().to_string();
    assert!(error.ends_with("the header line has no field c"), "{error}");
}
