//! COPY lines in chunks of any size: for fuzzers, and for the test here, which does the same with fewer
//! bytes.

use super::decode::{Decoder, Fields};
use super::{CopyLines, encode};
use crate::parser::own::copy::CopyStatement;
use crate::parser::own::copy_options::{Format, Layout, Options};
use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use entresol_tables::{DataType, Value};
use std::sync::Arc;

/// Options of a COPY, as SQL.
const LAYOUTS: [&str; 9] = [
    "",
    "(DELIMITER '|', NULL '')",
    "(DELIMITER '\"', NULL 'null', HEADER)",
    "(FORMAT csv)",
    "(FORMAT csv, DELIMITER ';', NULL 'NULL', HEADER)",
    "(FORMAT csv, QUOTE '''', ESCAPE '\\')",
    "(FORMAT csv, DELIMITER '\\', QUOTE '.')",
    "(FORMAT tbl)",
    "(FORMAT tbl, DELIMITER 'x', NULL 'nil')",
];
/// Types of columns.
const TYPES: [DataType; 10] = [
    DataType::Boolean,
    DataType::Int,
    DataType::BigInt,
    DataType::Double,
    DataType::Decimal { precision: 10, scale: 2 },
    DataType::Date,
    DataType::Timestamp,
    DataType::TimestampTz,
    DataType::Varchar,
    DataType::Interval,
];

/// Decoded input: lines with their fields, and the error that ended it early.
/// Field of a line; `None` is NULL.
type Field = Option<String>;
/// Lines, and the error behind them.
type Read = (Vec<(u64, Vec<Field>)>, Option<String>);

/// Decodes `bytes`: the first two give the options and the size of chunks, the rest is the data. Chunks must
/// give the same fields as the data in one piece; encoded, they must decode to the same. Returns the number
/// of lines.
pub fn copy_lines(bytes: &[u8]) -> usize {
    let [layout, piece, data @ ..] = bytes else { return 0 };
    let options = options(usize::from(*layout) % LAYOUTS.len());
    let whole = read(&options, data, data.len().max(1));
    assert_eq!(whole, read(&options, data, usize::from(*piece).max(1)), "it does not matter how it is split");
    let lines = whole.0;
    for field in lines.iter().flat_map(|(_, fields)| fields).flatten() {
        TYPES.iter().for_each(|&of| parses(field, of));
    }
    for (_, fields) in &lines {
        comes_back(&options, fields);
    }
    lines.len()
}

/// Seed inputs for [`copy_lines`].
pub fn seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 9] = [
        b"1\t\\N\ta\\tb\\\\\\x41\\101\n2\t2024-02-29 12:30:00.5\tt\n\\.\n",
        b"1||x\\|y\r\n\\b\\f\\n\\r\\t\\v|-1.5e-7|2024-02-29\r\n",
        b"h\n1\\\"2\"null\n",
        b"1,,\"\"\n\"a,\"\"b\nc\",12.50,f\n",
        b"id;v\n1;NULL\n\"NULL\";2\n",
        b"'it\\'s',\\\n'a\\\\',\n",
        b".a\\b..c.\\d\n\\\n",
        b"1|two words||\r\n2|\\N|3\r\n",
        b"1xnilx\"a,b\"x\n",
    ];
    texts.iter().enumerate().map(|(at, text)| [&[at as u8, 3], *text].concat()).collect()
}

fn options(at: usize) -> Options {
    let parsed = CopyStatement::parse(&format!("COPY t FROM STDIN {}", LAYOUTS[at]));
    match parsed {
        Ok(Some(CopyStatement { layout: Layout::Lines(options), .. })) => options,
        other => panic!("{}: {other:?}", LAYOUTS[at]),
    }
}

fn read(options: &Options, data: &[u8], piece: usize) -> Read {
    let mut decoder = Decoder::new(options.clone());
    let mut lines = Vec::new();
    let mut keep = |line, fields: &Fields| {
        lines.push((line, fields.texts()?.map(|text| text.map(str::to_owned)).collect()));
        Ok(())
    };
    let mut read = || {
        data.chunks(piece).try_for_each(|piece| decoder.push(piece, &mut keep))?;
        decoder.finish(&mut keep)
    };
    let end = read().err().map(|error| error.to_string());
    (lines, end)
}

/// Checks that a value parsed from a string is formatted as one that parses to the same value.
fn parses(text: &str, of: DataType) {
    if let Ok(value) = Value::parse("column", text, of) {
        let printed = value.display(of).to_string();
        assert_eq!(
            Value::parse("column", &printed, of).ok(),
            Some(value),
            "{text:?} is shown as {printed:?}"
        );
    }
}

fn comes_back(options: &Options, fields: &[Field]) {
    // A string that reads as NULL can be told from it only if it is quoted or escaped.
    let marked = matches!(options.format, Format::Csv { .. }) || options.null.contains('\\');
    if !marked && fields.iter().flatten().any(|field| *field == options.null) {
        return;
    }
    let columns = fields.iter().map(|field| Arc::new(StringArray::from(vec![field.as_deref()])) as ArrayRef);
    let names = fields.iter().map(|_| ArrowField::new("column", ArrowType::Utf8, true));
    let schema = Arc::new(Schema::new(names.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema, columns.collect()).expect("texts in columns of texts");
    let mut lines = CopyLines::default();
    encode::lines(options, &batch, &mut lines).expect("texts can be written");
    let written = lines.get(0).expect("a row is a line");
    let without_header = Options { header: false, ..options.clone() };
    let read = read(&without_header, written, written.len());
    assert_eq!(read, (vec![(1, fields.to_vec())], None), "{}", written.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_lines_are_read_or_refused() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % bound as u64) as usize
        };
        let mut lines = 0;
        for seed in seeds() {
            assert!(copy_lines(&seed) > 0, "{}", seed.escape_ascii());
            for _ in 0..1000 {
                let mut bytes = seed.clone();
                for _ in 0..=below(6) {
                    let at = below(bytes.len());
                    match below(3) {
                        0 => bytes[at] = below(256) as u8,
                        1 => bytes.insert(at, b"\\\n\r\t\"'.,;|"[below(10)]),
                        _ => bytes.truncate(at + 1),
                    }
                }
                lines += copy_lines(&bytes);
            }
        }
        assert!(lines > 1000, "{lines} lines");
    }
}
