//! Rows as lines of CSV or JSON.
//!
//! CSV: NULL is empty or the format's own string. JSON: integers and finite doubles are numbers; decimals, dates
//! timestamps and intervals are strings, JSON is itself, so that no digit is lost; NULL and doubles that JSON has no number for are `null`.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::sources::files::FileFormat;
use entresol_tables::{Column, Value};

/// Encoder of rows with these columns.
#[derive(Debug, Clone)]
pub(crate) struct RowEncoder {
    format: FileFormat,
    columns: Vec<Column>,
}

impl RowEncoder {
    pub(crate) fn new(format: FileFormat, columns: &[Column]) -> RowEncoder {
        RowEncoder { format, columns: columns.to_vec() }
    }

    /// Adds the line before all others; JSON has none.
    pub(crate) fn header(&self, lines: &mut Vec<u8>) -> Result<()> {
        let FileFormat::Csv { separator, .. } = self.format else { return Ok(()) };
        let mut writer = csv_writer(separator, lines);
        let written = writer.write_record(self.columns.iter().map(|column| column.name.as_str()));
        written.and_then(|()| Ok(writer.flush()?)).map_err(failed)
    }

    /// Adds a line for each row.
    pub(crate) fn rows(&self, batch: &Batch, lines: &mut Vec<u8>) -> Result<()> {
        let tuples = batch.tuples()?;
        match &self.format {
            FileFormat::Csv { separator, null } => self.csv(*separator, null, &tuples, lines).map_err(failed),
            FileFormat::Json => {
                for tuple in &tuples {
                    self.json(tuple, lines);
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

    fn json(&self, tuple: &Tuple, lines: &mut Vec<u8>) {
        let mut members: Vec<(&Column, &Value)> = self.columns.iter().zip(tuple).collect();
        members.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        for (at, (column, value)) in members.into_iter().enumerate() {
            lines.push(if at == 0 { b'{' } else { b',' });
            lines.extend_from_slice(serde_json::Value::from(column.name.as_str()).to_string().as_bytes());
            lines.push(b':');
            match value {
                // JSON is a part of the line, with all of its digits.
                Value::Varchar(json) if column.modifier.is_json() => lines.extend(json_line(json)),
                value => lines.extend_from_slice(json_of(value, column).to_string().as_bytes()),
            }
        }
        lines.extend_from_slice(b"}\n");
    }
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
