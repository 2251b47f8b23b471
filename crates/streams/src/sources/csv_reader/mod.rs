//! Reads records of a CSV file and makes tuples of them.
//!
//! - Records follow the file's own quoting rules (RFC 4180); a field is checked to be UTF-8 and trimmed of
//!   blanks only where its type needs it.
//! - A record that is not valid never stops the file: it becomes a [`Reject`].
//! - A quote that is never closed, or not within [`RECORD_BYTES_MAX`], rejects the line in which it is
//!   opened; reading continues with the next line.
//! - A file without a final line end still has a last record.

mod bounded;

use crate::element::Tuple;
use crate::error::{Error, Result};
use crate::sources::csv::{CsvFormat, RECORD_FIELDS_MAX, parse_day, parse_field};
use crate::sources::{Position, Positions, Reject, SourceBatch};
use bounded::BoundedFile;
pub(crate) use bounded::RECORD_BYTES_MAX;
use csv::ByteRecord;
use entresol_tables::calendar::{MICROS_PER_DAY, parse_time};
use entresol_tables::{BatchBuilder, DataType, Value};
use std::fs::File;

/// Record of a CSV file, for row mappers.
pub struct Record<'a> {
    header: &'a [String],
    fields: &'a ByteRecord,
}

impl Record<'_> {
    /// Returns a field by its index.
    pub fn field(&self, at: usize) -> Result<&str, String> {
        let bytes = self.fields.get(at).ok_or_else(|| format!("field {at} does not exist"))?;
        std::str::from_utf8(bytes).map_err(|_| format!("field {at} is not UTF-8"))
    }

    /// Returns a field by its name in the header line.
    pub fn named(&self, name: &str) -> Result<&str, String> {
        let at = self.header.iter().position(|field| field == name);
        self.field(at.ok_or_else(|| format!("field {name} does not exist"))?)
    }
}

enum TupleMaker {
    Field(usize),
    Timestamp { date: usize, time: usize },
}

/// Result of reading one record.
enum RecordResult {
    Record,
    End,
    /// A record without an end, and the reason.
    Endless(String),
}

pub(crate) struct CsvReader {
    format: CsvFormat,
    reader: csv::Reader<BoundedFile>,
    file_bytes: u64,
    header: Vec<String>,
    makers: Vec<TupleMaker>,
    record: ByteRecord,
    builder: BatchBuilder,
}

impl CsvReader {
    /// Opens the file, reads its header and seeks to the position.
    pub(crate) fn open(format: CsvFormat, from: Option<Position>) -> Result<CsvReader> {
        let file = File::open(&format.path).map_err(|source| Error::io(&format.path, source))?;
        CsvReader::new(format, file, from)
    }

    /// Reader of a file that was opened, at its beginning.
    pub(crate) fn new(format: CsvFormat, file: File, from: Option<Position>) -> Result<CsvReader> {
        let path = &format.path;
        let there = file.metadata().map_err(|source| Error::io(path, source))?.len();
        let file_bytes = format.growing_end.map_or(there, |end| end.min(there));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(format.separator)
            .flexible(true)
            .from_reader(BoundedFile::new(file, file_bytes));
        let header = reader.byte_headers().map_err(|error| csv_error(&format, error))?.clone();
        let header: Vec<String> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').trim().to_owned())
            .collect();
        if let Some(from) = from {
            if from.offset > file_bytes {
                let reason = format!("the file is shorter than the stored position {}", from.offset);
                return Err(Error::File { path: path.clone(), reason });
            }
            let mut position = csv::Position::new();
            position.set_byte(from.offset).set_line(from.line.max(1));
            reader.get_mut().renew();
            reader.seek(position).map_err(|error| csv_error(&format, error))?;
        }
        let makers = match format.mapper {
            Some(_) => Vec::new(),
            None => find_fields(&format, &header)?,
        };
        let builder = BatchBuilder::new(&format.columns, 0);
        Ok(CsvReader { reader, file_bytes, header, makers, record: ByteRecord::new(), builder, format })
    }

    /// Reads at most `tuples_max` records; none at the end of the file.
    pub(crate) fn read(&mut self, tuples_max: usize) -> Result<SourceBatch> {
        let mut positions = Vec::new();
        let mut rejects = Vec::new();
        let mut end = self.position();
        for _ in 0..tuples_max {
            let start = self.position();
            let more = match self.next_record(start)? {
                RecordResult::Record => true,
                RecordResult::End => false,
                RecordResult::Endless(reason) => {
                    rejects.push(self.skip_line(start, reason, positions.len())?);
                    end = self.position();
                    continue;
                }
            };
            end = self.position();
            if !more {
                break;
            }
            match self.tuple().and_then(|tuple| self.builder.push(&tuple)) {
                Ok(()) => positions.push(end),
                Err(reason) => rejects.push(Reject {
                    tuples_before: positions.len(),
                    line: self.record.position().map_or(start.line, csv::Position::line),
                    offset: Some(self.record.position().map_or(start.offset, csv::Position::byte)),
                    reason,
                    raw: self.raw(),
                }),
            }
        }
        let tuples = self.builder.finish();
        Ok(SourceBatch { tuples, positions: Positions::Listed(positions), rejects, end, split: None })
    }

    fn next_record(&mut self, start: Position) -> Result<RecordResult> {
        self.reader.get_mut().renew();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => Ok(RecordResult::End),
            Ok(true)
                if self.format.growing_end.is_some()
                    && self.position().offset == self.file_bytes
                    && self.is_open_at_end(start)? =>
            {
                self.seek(start)?;
                Ok(RecordResult::End)
            }
            Ok(true) if self.position().offset == self.file_bytes && self.ends_in_quotes(start)? => {
                Ok(RecordResult::Endless("unterminated quoted field".to_owned()))
            }
            Ok(true) => Ok(RecordResult::Record),
            Err(error) => match error.into_kind() {
                csv::ErrorKind::Io(source) if source.kind() == std::io::ErrorKind::FileTooLarge => {
                    Ok(RecordResult::Endless(format!("the record is longer than {RECORD_BYTES_MAX} bytes")))
                }
                kind => Err(csv_error_kind(&self.format, kind)),
            },
        }
    }

    /// Returns true if the file's last record, which begins at `start`, spans several lines and has an odd
    /// number of quotes: then the last quote is open.
    fn ends_in_quotes(&mut self, start: Position) -> Result<bool> {
        if self.position().line <= start.line + 1 {
            return Ok(false);
        }
        self.is_open_at_end(start)
    }

    /// Returns true if the file's last record, which begins at `start`, has an odd number of quotes.
    fn is_open_at_end(&mut self, start: Position) -> Result<bool> {
        let end = self.position();
        let bytes = self.read_from(start, end.offset - start.offset)?;
        let quotes = bytes.iter().filter(|byte| **byte == b'"').count();
        // Back to the end of the file, so that the next call finds it.
        self.seek(end)?;
        Ok(quotes % 2 == 1)
    }

    /// Rejects the one line at `start` and seeks to the next.
    fn skip_line(&mut self, start: Position, reason: String, tuples_before: usize) -> Result<Reject> {
        let bytes = self.read_from(start, RECORD_BYTES_MAX)?;
        // Empty lines before the record belong to no record.
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let blank_lines = bytes[..blank].iter().filter(|byte| **byte == b'\n').count() as u64;
        let rest = &bytes[blank..];
        let line_end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let raw = String::from_utf8_lossy(&rest[..line_end]).trim_end_matches('\r').to_owned();
        let line = start.line + blank_lines;
        let next = (blank + line_end + 1).min(bytes.len()) as u64;
        self.seek(Position { offset: start.offset + next, line: line + 1 })?;
        let offset = Some(start.offset + blank as u64);
        Ok(Reject { tuples_before, line, offset, reason, raw })
    }

    fn read_from(&mut self, start: Position, bytes_max: u64) -> Result<Vec<u8>> {
        let read = self.reader.get_mut().read_from(start.offset, bytes_max);
        read.map_err(|source| Error::io(&self.format.path, source))
    }

    fn seek(&mut self, to: Position) -> Result<()> {
        self.reader.get_mut().renew();
        let mut position = csv::Position::new();
        position.set_byte(to.offset).set_line(to.line.max(1));
        // The position is outside the buffer: the file was read elsewhere meanwhile.
        let sought = self.reader.seek_raw(std::io::SeekFrom::Start(to.offset), position);
        sought.map_err(|error| csv_error(&self.format, error))
    }

    fn position(&self) -> Position {
        let position = self.reader.position();
        Position { offset: position.byte(), line: position.line() }
    }

    fn tuple(&self) -> Result<Tuple, String> {
        let record = Record { header: &self.header, fields: &self.record };
        if self.record.len() > RECORD_FIELDS_MAX {
            return Err(format!("the record has more than {RECORD_FIELDS_MAX} fields"));
        }
        let mut tuple = Vec::with_capacity(self.format.columns.len());
        if let Some(mapper) = &self.format.mapper {
            mapper(&record, &mut tuple)?;
        } else {
            if self.record.len() != self.header.len() {
                return Err(format!("expected {} fields, found {}", self.header.len(), self.record.len()));
            }
            for (maker, column) in self.makers.iter().zip(&self.format.columns) {
                tuple.push(match maker {
                    TupleMaker::Field(at) => match record.field(*at)? {
                        text if self.is_null(text) => Value::Null,
                        text => parse_field(column, text, self.format.date_format)?,
                    },
                    TupleMaker::Timestamp { date, time } => {
                        self.timestamp(record.field(*date)?, record.field(*time)?)?
                    }
                });
            }
        }
        Ok(tuple)
    }

    fn is_null(&self, text: &str) -> bool {
        text.is_empty() || text == self.format.null
    }

    fn timestamp(&self, date: &str, time: &str) -> Result<Value, String> {
        if self.is_null(date) || self.is_null(time) {
            return Ok(Value::Null);
        }
        let days = parse_day(date.trim(), self.format.date_format)
            .ok_or_else(|| format!("'{date}' is not a valid date"))?;
        let micros = parse_time(time.trim()).ok_or_else(|| format!("'{time}' is not a valid time"))?;
        Ok(Value::Timestamp(i64::from(days) * MICROS_PER_DAY + micros))
    }

    /// Returns the record's fields with separators, lossy where they are not UTF-8.
    fn raw(&self) -> String {
        let fields: Vec<_> =
            self.record.iter().take(RECORD_FIELDS_MAX).map(String::from_utf8_lossy).collect();
        fields.join(&char::from(self.format.separator).to_string())
    }
}

fn find_fields(format: &CsvFormat, header: &[String]) -> Result<Vec<TupleMaker>> {
    let missing = |field: &str| Error::File {
        path: format.path.clone(),
        reason: format!("the header line has no field {field}"),
    };
    let find = |field: &str| header.iter().position(|name| name == field).ok_or_else(|| missing(field));
    let mut makers = Vec::with_capacity(format.columns.len());
    for column in &format.columns {
        let maker = match format.timestamps.iter().find(|(name, _, _)| *name == column.name) {
            Some(_) if column.data_type != DataType::Timestamp => {
                let reason =
                    format!("column {} is computed from date and time and must be a TIMESTAMP", column.name);
                return Err(Error::File { path: format.path.clone(), reason });
            }
            Some((_, date, time)) => TupleMaker::Timestamp { date: find(date)?, time: find(time)? },
            None => TupleMaker::Field(find(&column.name)?),
        };
        makers.push(maker);
    }
    Ok(makers)
}

fn csv_error(format: &CsvFormat, error: csv::Error) -> Error {
    csv_error_kind(format, error.into_kind())
}

fn csv_error_kind(format: &CsvFormat, kind: csv::ErrorKind) -> Error {
    match kind {
        csv::ErrorKind::Io(source) => Error::io(&format.path, source),
        kind => Error::File { path: format.path.clone(), reason: format!("{kind:?}") },
    }
}

#[cfg(test)]
mod tests;
