//! Rows as lines of CSV, JSON or one string; changes of rows are in [`super::change_lines`].
//!
//! CSV: NULL is empty or the format's own string. JSON: integers and finite doubles are numbers; decimals, dates
//! timestamps and intervals are strings, JSON is itself, so that no digit is lost; NULL and doubles that JSON has no number for are `null`.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::sinks::change_lines::ChangeEncoder;
use crate::sources::files::FileFormat;
use entresol_tables::{Column, Value};

/// Encoder of rows with these columns.
#[derive(Debug, Clone)]
pub(crate) struct RowEncoder {
    format: FileFormat,
    columns: Vec<Column>,
    /// Encoder of changes, if that is the format.
    changes: Option<ChangeEncoder>,
}

impl RowEncoder {
    pub(crate) fn new(format: FileFormat, columns: &[Column]) -> RowEncoder {
        let changes = match &format {
            FileFormat::Changes(format) => Some(ChangeEncoder::new(format, columns)),
            FileFormat::Csv { .. } | FileFormat::Json | FileFormat::Plain => None,
        };
        RowEncoder { format, columns: columns.to_vec(), changes }
    }

    /// Adds the line before all others, which CSV alone has.
    pub(crate) fn header(&self, lines: &mut Vec<u8>) -> Result<()> {
        let FileFormat::Csv { separator, .. } = self.format else { return Ok(()) };
        let mut writer = csv_writer(separator, lines);
        let written = writer.write_record(self.columns.iter().map(|column| column.name.as_str()));
        written.and_then(|()| Ok(writer.flush()?)).map_err(failed)
    }

    /// Adds a line for each row.
    pub(crate) fn rows(&self, batch: &Batch, lines: &mut Vec<u8>) -> Result<()> {
        if let Some(changes) = &self.changes {
            return changes.rows(batch, lines);
        }
        let tuples = batch.tuples()?;
        match &self.format {
            FileFormat::Csv { separator, null } => self.csv(*separator, null, &tuples, lines).map_err(failed),
            FileFormat::Plain => tuples.iter().try_for_each(|tuple| plain_line(tuple, lines)),
            FileFormat::Json | FileFormat::Changes(_) => {
                for tuple in &tuples {
                    json_object(self.columns.iter().zip(tuple), lines);
                    lines.push(b'\n');
                }
                Ok(())
            }
        }
    }

    fn csv(&self, separator: u8, null: &str, tuples: &[Tuple], lines: &mut Vec<u8>) -> csv::Result<()> {
        let mut writer = csv_writer(separator, lines);
        for tuple in tuples {
            for (value, column) in tuple.iter().zip(&self.columns) {
                match value {
                    Value::Null => writer.write_field(null)?,
                    Value::Varchar(text) => writer.write_field(text.as_bytes())?,
                    value => writer.write_field(value.display(column.data_type).to_string())?,
                }
            }
            writer.write_record(None::<&[u8]>)?;
        }
        Ok(writer.flush()?)
    }
}

/// Adds the line that a tuple of one string is.
fn plain_line(tuple: &[Value], lines: &mut Vec<u8>) -> Result<()> {
    let reason = match tuple {
        [Value::Varchar(line)] if !line.contains('\n') => {
            lines.extend_from_slice(line.as_bytes());
            lines.push(b'\n');
            return Ok(());
        }
        [Value::Varchar(_)] => "a line has a line break",
        [Value::Null] => "a line is NULL",
        _ => "a line has one string",
    };
    Err(Error::Tuple { operator: "sink".to_owned(), reason: reason.to_owned() })
}

/// Adds an object of values, in the order of the names of their columns.
pub(crate) fn json_object<'v>(members: impl Iterator<Item = (&'v Column, &'v Value)>, lines: &mut Vec<u8>) {
    let mut members: Vec<(&Column, &Value)> = members.collect();
    members.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    lines.push(b'{');
    for (at, (column, value)) in members.into_iter().enumerate() {
        if at > 0 {
            lines.push(b',');
        }
        lines.extend_from_slice(serde_json::Value::from(column.name.as_str()).to_string().as_bytes());
        lines.push(b':');
        match value {
            // JSON is a part of the line, with all of its digits.
            Value::Varchar(json) if column.modifier.is_json() => lines.extend(json_line(json)),
            value => lines.extend_from_slice(json_of(value, column).to_string().as_bytes()),
        }
    }
    lines.push(b'}');
}

fn csv_writer(separator: u8, lines: &mut Vec<u8>) -> csv::Writer<&mut Vec<u8>> {
    csv::WriterBuilder::new().delimiter(separator).from_writer(lines)
}

fn failed(error: csv::Error) -> Error {
    Error::Tuple { operator: "sink".to_owned(), reason: error.to_string() }
}

/// JSON without line breaks, which it can have between its parts only.
fn json_line(json: &str) -> impl Iterator<Item = u8> + '_ {
    json.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r'))
}

fn json_of(value: &Value, column: &Column) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::BigInt(value) => (*value).into(),
        Value::Double(value) => (*value).into(),
        Value::Varchar(text) => (&**text).into(),
        value => value.display(column.data_type).to_string().into(),
    }
}
