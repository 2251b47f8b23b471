//! Writes committed tuples as lines of a CSV file, with a header line. Appends to an existing file. NULL is
//! empty.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::sinks::encoding::RowEncoder;
use crate::sinks::{Sink, open_lines};
use crate::sources::files::FileFormat;
use entresol_tables::Column;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A CSV file.
pub struct CsvSink {
    path: PathBuf,
    writer: Option<(BufWriter<File>, RowEncoder)>,
}

impl CsvSink {
    /// Appends to the file at `path`.
    pub fn new(path: impl AsRef<Path>) -> CsvSink {
        CsvSink { path: path.as_ref().to_owned(), writer: None }
    }
}

impl Sink for CsvSink {
    fn open(&mut self, columns: &[Column]) -> Result<()> {
        let file = open_lines(&self.path)?;
        let is_new = file.metadata().map_err(|source| Error::io(&self.path, source))?.len() == 0;
        let encoder = RowEncoder::new(FileFormat::csv(), columns);
        let mut lines = Vec::new();
        if is_new {
            encoder.header(&mut lines)?;
        }
        let mut writer = BufWriter::new(file);
        writer.write_all(&lines).map_err(|source| Error::io(&self.path, source))?;
        self.writer = Some((writer, encoder));
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        let Some((writer, encoder)) = &mut self.writer else { return Ok(()) };
        let mut lines = Vec::new();
        encoder.rows(batch, &mut lines)?;
        writer.write_all(&lines).map_err(|source| Error::io(&self.path, source))
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.writer {
            Some((writer, _)) => writer.flush().map_err(|source| Error::io(&self.path, source)),
            None => Ok(()),
        }
    }
}
