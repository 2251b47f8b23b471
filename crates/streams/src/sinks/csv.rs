//! Writes committed tuples as lines of a CSV file, with a header line. Appends to an existing file. NULL is
//! empty.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::sinks::{Sink, open_lines};
use entresol_tables::{Column, Value};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A CSV file.
pub struct CsvSink {
    path: PathBuf,
    columns: Vec<Column>,
    writer: Option<csv::Writer<File>>,
}

impl CsvSink {
    /// Appends to the file at `path`.
    pub fn new(path: impl AsRef<Path>) -> CsvSink {
        CsvSink { path: path.as_ref().to_owned(), columns: Vec::new(), writer: None }
    }

    fn write(&mut self, tuples: &[Tuple]) -> std::io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for tuple in tuples {
            for (value, column) in tuple.iter().zip(&self.columns) {
                match value {
                    Value::Null => writer.write_field("")?,
                    Value::Varchar(text) => writer.write_field(text.as_bytes())?,
                    value => writer.write_field(value.display(column.data_type).to_string())?,
                }
            }
            writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }
}

impl Sink for CsvSink {
    fn open(&mut self, columns: &[Column]) -> Result<()> {
        let file = open_lines(&self.path)?;
        let is_new = file.metadata().map_err(|source| Error::io(&self.path, source))?.len() == 0;
        let mut writer = csv::Writer::from_writer(file);
        self.columns = columns.to_vec();
        if is_new {
            let header = writer.write_record(columns.iter().map(|column| column.name.as_str()));
            header.map_err(|error| Error::io(&self.path, error.into()))?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        self.write(&batch.tuples()?).map_err(|source| Error::io(&self.path, source))
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.flush().map_err(|source| Error::io(&self.path, source)),
            None => Ok(()),
        }
    }
}
