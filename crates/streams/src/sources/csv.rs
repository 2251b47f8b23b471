//! CSV files as a source.
//!
//! - Columns are found by name in the header line. A column may be computed from others: a timestamp from a
//!   date and a time field ([`CsvSource::timestamp_of`]), or anything by a row mapper
//!   ([`CsvSource::mapper`]).
//! - The position is the byte offset after a record. A record that is not a valid tuple is counted, written
//!   to the reject file if there is one, and skipped.
//! - Reading and parsing run in a thread of their own, at most [`READ_AHEAD_BATCHES_MAX`] batches ahead.
//! - A record may have at most [`RECORD_FIELDS_MAX`] fields; a longer one is rejected.

use crate::element::Tuple;
use crate::error::{Error, Result};
use crate::sources::csv_reader::{CsvReader, Record};
use crate::sources::rejects::RejectFile;
use crate::sources::{Next, Position, Reject, Source, SourceBatch};
use crossbeam_channel::{Receiver, bounded};
use entresol_tables::{Column, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum of parsed batches that wait for the topology.
pub const READ_AHEAD_BATCHES_MAX: usize = 4;
/// Maximum of fields of a record.
pub const RECORD_FIELDS_MAX: usize = 4096;
/// Tuples per parsed batch.
const READ_AHEAD_TUPLES: usize = 1024;

/// Date format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFormat {
    /// `2026-11-21`
    YearMonthDay,
    /// `21/11/2026` (one or two digits, four for the year)
    DayMonthYear,
    /// `11/21/2026`
    MonthDayYear,
}

pub(crate) type Mapper = Arc<dyn Fn(&Record<'_>, &mut Tuple) -> Result<(), String> + Send + Sync>;

/// Format of a CSV file.
#[derive(Clone)]
pub(crate) struct CsvFormat {
    pub(crate) path: PathBuf,
    pub(crate) columns: Vec<Column>,
    pub(crate) separator: u8,
    pub(crate) null: String,
    pub(crate) date_format: DateFormat,
    /// Column, date field, time field.
    pub(crate) timestamps: Vec<(String, String, String)>,
    pub(crate) mapper: Option<Mapper>,
    /// End of the lines that are there, of a file that grows: a record in open quotes at this end is not there
    /// yet.
    pub(crate) growing_end: Option<u64>,
}

impl CsvFormat {
    /// Fields between commas, found by their names.
    pub(crate) fn new(path: &Path, columns: Vec<Column>) -> CsvFormat {
        CsvFormat {
            path: path.to_owned(),
            columns,
            separator: b',',
            null: String::new(),
            date_format: DateFormat::YearMonthDay,
            timestamps: Vec::new(),
            mapper: None,
            growing_end: None,
        }
    }
}

/// A CSV file with a header line.
pub struct CsvSource {
    format: CsvFormat,
    rejects: Option<RejectFile>,
    batches: Option<Receiver<Result<SourceBatch>>>,
    reader: Option<JoinHandle<()>>,
}

impl CsvSource {
    /// Creates a source of tuples with these columns, each found in the header line by its name.
    pub fn new(path: impl AsRef<Path>, columns: Vec<Column>) -> CsvSource {
        let format = CsvFormat::new(path.as_ref(), columns);
        CsvSource { format, rejects: None, batches: None, reader: None }
    }

    /// Sets the byte between fields; the default is a comma.
    pub fn separator(mut self, separator: u8) -> CsvSource {
        self.format.separator = separator;
        self
    }

    /// Sets the string that means NULL, besides the empty one.
    pub fn null(mut self, token: &str) -> CsvSource {
        self.format.null = token.to_owned();
        self
    }

    /// Sets the date format of DATE columns and of the date fields of timestamps.
    pub fn date_format(mut self, format: DateFormat) -> CsvSource {
        self.format.date_format = format;
        self
    }

    /// Computes the TIMESTAMP column `column` from a date field and a time field (`hh:mm:ss`).
    pub fn timestamp_of(mut self, column: &str, date_field: &str, time_field: &str) -> CsvSource {
        self.format.timestamps.push((column.to_owned(), date_field.to_owned(), time_field.to_owned()));
        self
    }

    /// Makes tuples by a closure: it pushes one value per column, or returns the reason to reject the record.
    /// The header is not checked for the columns then.
    pub fn mapper(
        mut self,
        mapper: impl Fn(&Record<'_>, &mut Tuple) -> Result<(), String> + Send + Sync + 'static,
    ) -> CsvSource {
        self.format.mapper = Some(Arc::new(mapper));
        self
    }

    /// Appends bad records to this file: line number, reason, record.
    pub fn rejects(mut self, path: impl AsRef<Path>) -> CsvSource {
        self.rejects = Some(RejectFile::new(path.as_ref().to_owned()));
        self
    }
}

impl Source for CsvSource {
    fn columns(&self) -> Vec<Column> {
        self.format.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        let mut reader = CsvReader::open(self.format.clone(), from)?;
        let (sender, receiver) = bounded(READ_AHEAD_BATCHES_MAX);
        let read = move || {
            loop {
                let batch = reader.read(READ_AHEAD_TUPLES);
                let last =
                    !matches!(&batch, Ok(batch) if batch.tuples.num_rows() > 0 || !batch.rejects.is_empty());
                // The receiver is dropped when the topology has stopped.
                if sender.send(batch).is_err() || last {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("entresol-csv".to_owned()).spawn(read);
        self.reader = Some(spawned.map_err(|source| Error::io(&self.format.path, source))?);
        self.batches = Some(receiver);
        Ok(())
    }

    fn next(&mut self, _tuples_max: usize) -> Result<Next> {
        let Some(batches) = &self.batches else { return Ok(Next::End) };
        let batch = match batches.recv() {
            Ok(batch) => batch?,
            Err(_) => return Ok(Next::End),
        };
        let is_end = batch.tuples.num_rows() == 0 && batch.rejects.is_empty();
        Ok(if is_end { Next::End } else { Next::Batch(batch) })
    }

    fn rejected(&mut self, rejects: &[Reject]) -> Result<()> {
        self.rejects.as_mut().map_or(Ok(()), |file| file.append(rejects))
    }
}

impl Drop for CsvSource {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(reader) = self.reader.take() {
            // The thread ends at its next send; a panic in it was reported as the end of the channel.
            let _ = reader.join();
        }
    }
}

/// Parses a field as a value of `column`.
pub(crate) fn parse_field(column: &Column, text: &str, format: DateFormat) -> Result<Value, String> {
    if column.data_type == entresol_tables::DataType::Date && format != DateFormat::YearMonthDay {
        let days = parse_day(text.trim(), format);
        return days
            .map(Value::Date)
            .ok_or_else(|| format!("column {}: '{text}' is not a valid DATE", column.name));
    }
    column.parse(text).map_err(|error| error.to_string())
}

/// Parses a date; returns days since the epoch.
pub(crate) fn parse_day(text: &str, format: DateFormat) -> Option<i32> {
    use entresol_tables::calendar::{days_from_civil, parse_date, parse_digits};
    if format == DateFormat::YearMonthDay {
        return parse_date(text);
    }
    let mut parts = text.splitn(3, '/');
    let first = parse_digits(parts.next()?, 2)?;
    let second = parse_digits(parts.next()?, 2)?;
    let year = parse_digits(parts.next()?, 4)? as i32;
    match format {
        DateFormat::DayMonthYear => days_from_civil(year, second, first),
        _ => days_from_civil(year, first, second),
    }
}
