//! Lines from a stream of bytes, and the tuples that they are.

use crate::element::Tuple;
use crate::sources::csv::{DateFormat, RECORD_FIELDS_MAX, parse_field};
use crate::sources::csv_reader::RECORD_BYTES_MAX;
use crate::sources::files::FileFormat;
use crate::sources::json::tuple_of;
use csv::ByteRecord;
use entresol_tables::{Column, Value};

/// Divides bytes that come in pieces into lines of at most [`RECORD_BYTES_MAX`] bytes.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    /// Beginning of a line whose end is not there.
    begun: Vec<u8>,
    /// True if the line is too long: the rest of it is skipped.
    skips: bool,
    /// Number of complete lines so far.
    lines: u64,
}

impl LineBuffer {
    /// Adds bytes; calls a function for each complete line with its number, and true if it is shortened
    /// because it was too long.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(u64, &[u8], bool)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (part, rest) = bytes.split_at(end);
            self.add(part);
            self.lines += 1;
            line(self.lines, &self.begun, self.skips);
            self.begun.clear();
            self.skips = false;
            bytes = &rest[1..];
        }
        self.add(bytes);
    }

    fn add(&mut self, part: &[u8]) {
        let room = (RECORD_BYTES_MAX as usize).saturating_sub(self.begun.len());
        self.skips |= part.len() > room;
        self.begun.extend_from_slice(&part[..part.len().min(room)]);
    }

    /// Line whose end has not come, and its number, if there is one.
    pub(crate) fn rest(&self) -> Option<(u64, &[u8])> {
        (!self.begun.is_empty()).then_some((self.lines + 1, &self.begun))
    }
}

/// Parser of lines, each of which is a tuple, or says nothing.
#[derive(Debug, Clone)]
pub(crate) struct LineParser {
    pub(crate) format: FileFormat,
    /// Columns of the rows.
    pub(crate) columns: Vec<Column>,
}

impl LineParser {
    /// Columns of the tuples.
    pub(crate) fn tuple_columns(&self) -> Vec<Column> {
        match &self.format {
            FileFormat::Changes(format) => format.tuple_columns(&self.columns),
            FileFormat::Csv { .. } | FileFormat::Json | FileFormat::Plain => self.columns.clone(),
        }
    }

    /// Returns true if a rejected line ends a batch: then the position behind it is that of the batch.
    pub(crate) fn ends_batches_at_rejects(&self) -> bool {
        matches!(&self.format, FileFormat::Changes(format) if format.has_transactions)
    }

    /// Record of a line, without its end; none of one that has none.
    pub(crate) fn record<'l>(&self, line: &'l [u8]) -> Option<&'l [u8]> {
        if self.format == FileFormat::Plain {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            return Some(line.strip_suffix(b"\r").unwrap_or(line));
        }
        Some(line.trim_ascii()).filter(|record| !record.is_empty())
    }

    /// Tuple of a line if it has one, or the reason why it is none. Fields of CSV are in the order of the columns.
    pub(crate) fn tuple(&self, line: &[u8]) -> Result<Option<Tuple>, String> {
        match &self.format {
            FileFormat::Csv { separator, null } => self.csv_tuple(*separator, null, line).map(Some),
            FileFormat::Json => tuple_of(&self.columns, line).map(Some),
            FileFormat::Plain => self.plain_tuple(line).map(Some),
            FileFormat::Changes(format) => format.tuple_of(&self.columns, line),
        }
    }

    /// Line as a value of each column, of which there is one.
    fn plain_tuple(&self, line: &[u8]) -> Result<Tuple, String> {
        let line = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
        let value = |column: &Column| column.parse(line).map_err(|error| error.to_string());
        self.columns.iter().map(value).collect()
    }

    fn csv_tuple(&self, separator: u8, null: &str, line: &[u8]) -> Result<Tuple, String> {
        let record = csv_record(line, separator)?;
        if record.len() != self.columns.len() {
            return Err(format!("expected {} fields, found {}", self.columns.len(), record.len()));
        }
        let fields = record.iter().zip(&self.columns).enumerate();
        let values = fields.map(|(at, (field, column))| {
            let text = std::str::from_utf8(field).map_err(|_| format!("field {at} is not UTF-8"))?;
            if text.is_empty() || text == null {
                return Ok(Value::Null);
            }
            parse_field(column, text, DateFormat::YearMonthDay)
        });
        values.collect()
    }
}

/// Fields of a line.
fn csv_record(line: &[u8], separator: u8) -> Result<ByteRecord, String> {
    if line.iter().filter(|byte| **byte == b'"').count() % 2 == 1 {
        return Err("unterminated quoted field".to_owned());
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(line.len().max(1))
        .from_reader(line);
    let mut record = ByteRecord::new();
    let read = reader.read_byte_record(&mut record).map_err(|error| error.to_string())?;
    if !read || record.len() > RECORD_FIELDS_MAX {
        return Err(format!("a record has from 1 to {RECORD_FIELDS_MAX} fields"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::DataType;

    #[test]
    fn lines_come_in_pieces_and_long_ones_are_shortened() {
        let mut buffer = LineBuffer::default();
        let mut lines: Vec<(u64, usize, bool)> = Vec::new();
        let mut push = |buffer: &mut LineBuffer, text: &[u8]| {
            buffer.push(text, |n, line, long| lines.push((n, line.len(), long)))
        };
        push(&mut buffer, b"ab");
        push(&mut buffer, b"c\n\nd\ne");
        assert_eq!(buffer.rest(), Some((4, &b"e"[..])));
        for _ in 0..5 {
            push(&mut buffer, &vec![b'x'; 400_000]);
        }
        push(&mut buffer, b"\nf\n");
        assert_eq!(
            lines,
            [
                (1, 3, false),
                (2, 0, false),
                (3, 1, false),
                (4, RECORD_BYTES_MAX as usize, true),
                (5, 1, false)
            ]
        );
        assert_eq!(buffer.rest(), None);
    }

    #[test]
    fn plain_lines_are_as_they_are() {
        let columns = vec![Column::new("line", DataType::Varchar)];
        let parser = LineParser { format: FileFormat::Plain, columns };
        for (line, value) in
            [(&b" a, \"b\tc \r\n"[..], " a, \"b\tc "), (b"\n", ""), (b"\r", ""), (b"x\r\r\n", "x\r")]
        {
            assert_eq!(parser.tuple(parser.record(line).unwrap()).unwrap().unwrap(), [Value::from(value)]);
        }
        assert_eq!(parser.tuple(b"a\xff").unwrap_err(), "the line is not UTF-8");
        let json = LineParser { format: FileFormat::Json, ..parser };
        assert_eq!((json.record(b" {} \r\n"), json.record(b" \r\n")), (Some(&b"{}"[..]), None));
    }

    #[test]
    fn fields_are_in_the_order_of_the_columns() {
        let columns = vec![Column::new("id", DataType::Int), Column::new("note", DataType::Varchar)];
        let parser = LineParser { format: FileFormat::csv(), columns };
        assert_eq!(
            parser.tuple(b"7,\"a,\"\"b\"\"\"\r").unwrap().unwrap(),
            [Value::Int(7), Value::from("a,\"b\"")]
        );
        assert_eq!(parser.tuple(b",").unwrap().unwrap(), [Value::Null, Value::Null]);
        for (line, reason) in [
            (&b"7"[..], "expected 2 fields, found 1"),
            (b"7,a,b", "expected 2 fields, found 3"),
            (b"x,a", "column id: 'x' is not a INT"),
            (b"7,\"a", "unterminated quoted field"),
            (b"7,\xff", "field 1 is not UTF-8"),
        ] {
            assert_eq!(parser.tuple(line).unwrap_err(), reason);
        }
    }
}
