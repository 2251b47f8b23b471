//! Writes committed tuples as JSON objects, one per line.
//!
//! Integers and finite doubles are numbers; decimals, dates and timestamps are strings, so that no digit is
//! lost; NULL and doubles that JSON has no number for are `null`.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::sinks::{Sink, open_lines};
use entresol_tables::{Column, Value};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// JSON lines to a file or any writer.
pub struct JsonLinesSink {
    /// Path of the file, or a name for errors.
    path: PathBuf,
    columns: Vec<Column>,
    /// `None` until the file is opened.
    writer: Option<Box<dyn Write + Send>>,
}

impl JsonLinesSink {
    /// Appends to the file at `path`.
    pub fn file(path: impl AsRef<Path>) -> JsonLinesSink {
        JsonLinesSink { path: path.as_ref().to_owned(), columns: Vec::new(), writer: None }
    }

    /// Writes to `writer`, e.g. standard output.
    pub fn writer(writer: impl Write + Send + 'static) -> JsonLinesSink {
        JsonLinesSink {
            path: "JSON lines writer".into(),
            columns: Vec::new(),
            writer: Some(Box::new(writer)),
        }
    }
}

impl Sink for JsonLinesSink {
    fn open(&mut self, columns: &[Column]) -> Result<()> {
        self.columns = columns.to_vec();
        if self.writer.is_none() {
            self.writer = Some(Box::new(BufWriter::new(open_lines(&self.path)?)));
        }
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for tuple in batch.tuples()? {
            let object: serde_json::Map<String, serde_json::Value> = self
                .columns
                .iter()
                .zip(&tuple)
                .map(|(column, value)| (column.name.clone(), json_of(value, column)))
                .collect();
            let mut line = serde_json::Value::Object(object).to_string();
            line.push('\n');
            writer.write_all(line.as_bytes()).map_err(|source| Error::io(&self.path, source))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.flush().map_err(|source| Error::io(&self.path, source)),
            None => Ok(()),
        }
    }
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
