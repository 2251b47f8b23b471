//! Writes committed tuples as JSON objects, one per line.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::sinks::encoding::RowEncoder;
use crate::sinks::{Sink, open_lines};
use crate::sources::files::FileFormat;
use entresol_tables::Column;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// JSON lines to a file or any writer.
pub struct JsonLinesSink {
    /// Path of the file, or a name for errors.
    path: PathBuf,
    encoder: Option<RowEncoder>,
    /// `None` until the file is opened.
    writer: Option<Box<dyn Write + Send>>,
}

impl JsonLinesSink {
    /// Appends to the file at `path`.
    pub fn file(path: impl AsRef<Path>) -> JsonLinesSink {
        JsonLinesSink { path: path.as_ref().to_owned(), encoder: None, writer: None }
    }

    /// Writes to `writer`, e.g. standard output.
    pub fn writer(writer: impl Write + Send + 'static) -> JsonLinesSink {
        JsonLinesSink { path: "JSON lines writer".into(), encoder: None, writer: Some(Box::new(writer)) }
    }
}

impl Sink for JsonLinesSink {
    fn open(&mut self, columns: &[Column]) -> Result<()> {
        self.encoder = Some(RowEncoder::new(FileFormat::Json, columns));
        if self.writer.is_none() {
            self.writer = Some(Box::new(BufWriter::new(open_lines(&self.path)?)));
        }
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        let (Some(writer), Some(encoder)) = (&mut self.writer, &self.encoder) else { return Ok(()) };
        let mut lines = Vec::new();
        encoder.rows(batch, &mut lines)?;
        writer.write_all(&lines).map_err(|source| Error::io(&self.path, source))
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.flush().map_err(|source| Error::io(&self.path, source)),
            None => Ok(()),
        }
    }
}
