//! Reader of a `.tbl` file: lines into batches of columns.
//!
//! - A line has the table's columns, `|` between them, and may end with another `|`. Each line, the last one
//!   too, ends with `\n` or `\r\n`: a file without that is truncated.
//! - Fields stand as they are: no quotes, no escapes, no NULL.
//! - Memory: one line of [`LINE_BYTES_MAX`] and a batch of [`BATCH_ROWS`] rows.

use crate::error::{Error, Result};
use entresol::arrow::array::{ArrayRef, Int32Array, Int64Array, StringBuilder};
use entresol::arrow::datatypes::SchemaRef;
use entresol::arrow::record_batch::RecordBatch;
use entresol::tables::arrow_schema;
use entresol::{Column, DataType, Table};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::num::IntErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a batch: as many as a table encodes together.
pub(super) const BATCH_ROWS: usize = 131_072;
/// Longest line.
const LINE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 1 << 20;
/// Characters of a value in a message.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// Rows of consecutive lines.
pub(super) struct Batch {
    pub(super) rows: RecordBatch,
    /// Number of their first line, from 1.
    pub(super) first_line: u64,
    /// Share of the file that has been read.
    pub(super) share: f64,
}

/// Reader of a file.
pub(super) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    file_bytes: u64,
    read_bytes: u64,
    /// Number of the last line that was read.
    line: u64,
    bytes: Vec<u8>,
    columns: Vec<Column>,
    schema: SchemaRef,
    builders: Vec<Builder>,
}

/// Values of a column.
enum Builder {
    Int(Vec<i32>),
    BigInt(Vec<i64>),
    Varchar(StringBuilder),
}

/// Fault of a field or of a line.
struct Fault {
    column: Option<usize>,
    message: String,
}

impl Builder {
    fn new(table: &str, column: &Column) -> Result<Builder> {
        match column.data_type {
            DataType::Int => Ok(Builder::Int(Vec::with_capacity(BATCH_ROWS))),
            DataType::BigInt => Ok(Builder::BigInt(Vec::with_capacity(BATCH_ROWS))),
            DataType::Varchar => {
                Ok(Builder::Varchar(StringBuilder::with_capacity(BATCH_ROWS, 16 * BATCH_ROWS)))
            }
            other => {
                let name = &column.name;
                Err(Error::Invalid(format!(
                    "no .tbl file can be loaded into column {name} {other} of {table}"
                )))
            }
        }
    }

    /// Adds the value of a field, or says what is wrong with it.
    fn push(&mut self, field: &[u8]) -> std::result::Result<(), String> {
        let text = std::str::from_utf8(field);
        let text = text.map_err(|_| format!("'{}' is not UTF-8", String::from_utf8_lossy(field)))?;
        match self {
            Builder::Int(values) => {
                values.push(
                    text.parse()
                        .map_err(|error: std::num::ParseIntError| number_fault(text, "INT", error.kind()))?,
                );
            }
            Builder::BigInt(values) => {
                values.push(
                    text.parse().map_err(|error: std::num::ParseIntError| {
                        number_fault(text, "BIGINT", error.kind())
                    })?,
                );
            }
            Builder::Varchar(values) => values.append_value(text),
        }
        Ok(())
    }

    /// Array of the values, in whose place there are none.
    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Int(values) => {
                Arc::new(Int32Array::from(std::mem::replace(values, Vec::with_capacity(BATCH_ROWS))))
            }
            Builder::BigInt(values) => {
                Arc::new(Int64Array::from(std::mem::replace(values, Vec::with_capacity(BATCH_ROWS))))
            }
            Builder::Varchar(values) => Arc::new(values.finish()),
        }
    }
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn number_fault(text: &str, data_type: &str, kind: &IntErrorKind) -> String {
    match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
            format!("'{}' is out of range for {data_type}", shown(text))
        }
        _ => format!("'{}' is not a valid {data_type}", shown(text)),
    }
}

impl Reader {
    /// Opens the file of a table.
    pub(super) fn open(path: &Path, table: &Table) -> Result<Reader> {
        let failed = |error| Error::file("read", path, error);
        let file = File::open(path).map_err(failed)?;
        let columns = table.schema().visible_columns().to_vec();
        let builders = columns.iter().map(|column| Builder::new(table.name(), column));
        Ok(Reader {
            path: path.to_path_buf(),
            file_bytes: file.metadata().map_err(failed)?.len(),
            file: BufReader::with_capacity(BUFFER_BYTES, file),
            read_bytes: 0,
            line: 0,
            bytes: Vec::new(),
            builders: builders.collect::<Result<_>>()?,
            // None of the columns has a time zone.
            schema: arrow_schema(&columns, "UTC"),
            columns,
        })
    }

    /// The rows of the next lines; none at the end of the file.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
        let first_line = self.line + 1;
        let mut rows = 0;
        while rows < BATCH_ROWS && self.next_line()? {
            let pushed = push_line(&self.bytes, &self.columns, &mut self.builders);
            pushed.map_err(|fault| self.fault(fault))?;
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays: Vec<ArrayRef> = self.builders.iter_mut().map(Builder::finish).collect();
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), arrays)
            .expect("each line adds a value of its type to each column");
        let share = self.read_bytes as f64 / self.file_bytes.max(1) as f64;
        Ok(Some(Batch { rows, first_line, share }))
    }

    /// Reads a line, without its end; false at the end of the file.
    fn next_line(&mut self) -> Result<bool> {
        self.bytes.clear();
        let mut limited = (&mut self.file).take(LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|error| Error::file("read", &self.path, error))?;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        self.read_bytes += read as u64;
        if self.bytes.pop_if(|last| *last == b'\n').is_none() {
            let message = if read == LINE_BYTES_MAX {
                format!("the line is longer than {LINE_BYTES_MAX} bytes: this is not a .tbl file")
            } else {
                let text = String::from_utf8_lossy(&self.bytes);
                format!("the file ends within the line '{}': it is truncated", shown(&text))
            };
            return Err(self.fault(Fault { column: None, message }));
        }
        self.bytes.pop_if(|last| *last == b'\r');
        Ok(true)
    }

    fn fault(&self, fault: Fault) -> Error {
        let column = fault.column.map(|column| format!(", column {}", self.columns[column].name));
        Error::Line {
            path: self.path.clone(),
            line: self.line,
            column: column.unwrap_or_default(),
            message: fault.message,
        }
    }
}

/// Adds the fields of a line.
fn push_line(line: &[u8], columns: &[Column], builders: &mut [Builder]) -> std::result::Result<(), Fault> {
    let mut fields = line.split(|byte| *byte == b'|');
    for (at, builder) in builders.iter_mut().enumerate() {
        let Some(field) = fields.next() else {
            let (expected, last) = (columns.len(), &columns[at - 1].name);
            let text = String::from_utf8_lossy(line);
            let message = format!("{at} fields, not {expected}: '{}' ends with column {last}", shown(&text));
            return Err(Fault { column: None, message });
        };
        builder.push(field).map_err(|message| Fault { column: Some(at), message })?;
    }
    match (fields.next(), fields.next()) {
        (None, _) | (Some(b""), None) => Ok(()),
        (Some(further), _) => {
            let further = String::from_utf8_lossy(further);
            let message =
                format!("more than {} fields: '{}' is behind the last", columns.len(), shown(&further));
            Err(Fault { column: None, message })
        }
    }
}
