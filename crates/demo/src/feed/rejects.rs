//! Rows that could not be read: counted, and written to a file with position and reason, while the rest goes
//! on.
//!
//! The file is CSV with a header (`file,line,reason,row`), made new at the first rejected row of a run; no
//! bad row, no file. At most [`WRITTEN_MAX`] rows are written; all are counted.

use crate::error::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows that are written to the reject file; further ones are only counted.
pub const WRITTEN_MAX: u64 = 100_000;
/// Maximum number of characters of a rejected row that are written.
const ROW_CHARACTERS_MAX: usize = 500;

/// Collects rejected rows.
pub struct Rejects {
    path: PathBuf,
    writer: Option<csv::Writer<File>>,
    count: u64,
}

impl Rejects {
    /// Rejected rows go to this file.
    pub fn new(path: impl Into<PathBuf>) -> Rejects {
        Rejects { path: path.into(), writer: None, count: 0 }
    }

    /// Number of rejected rows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The file that they are written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts a row and writes it down.
    pub fn add(&mut self, file: &Path, line: u64, reason: &str, row: &str) -> Result<()> {
        self.count += 1;
        if self.count > WRITTEN_MAX {
            return Ok(());
        }
        if self.writer.is_none() {
            let mut writer =
                csv::Writer::from_path(&self.path).map_err(|error| Error::csv(&self.path, error))?;
            writer
                .write_record(["file", "line", "reason", "row"])
                .map_err(|error| Error::csv(&self.path, error))?;
            self.writer = Some(writer);
        }
        let row: String = row.chars().take(ROW_CHARACTERS_MAX).collect();
        if let Some(writer) = &mut self.writer {
            writer
                .write_record([&file.display().to_string(), &line.to_string(), reason, &row])
                .map_err(|error| Error::csv(&self.path, error))?;
        }
        Ok(())
    }

    /// Flushes the buffer.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.flush().map_err(|error| Error::file("write", &self.path, error)),
            None => Ok(()),
        }
    }
}
