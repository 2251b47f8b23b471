//! Reject file of a source: one CSV line per bad record: line number, reason, record.
//!
//! Lines are appended after the transaction that skipped the record has committed, so no record is there
//! twice; after a crash those of the last transaction may be missing. Their number is in `streams_positions`.

use crate::error::{Error, Result};
use crate::sources::Reject;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;

pub(crate) struct RejectFile {
    path: PathBuf,
    writer: Option<csv::Writer<File>>,
}

impl RejectFile {
    pub(crate) fn new(path: PathBuf) -> RejectFile {
        RejectFile { path, writer: None }
    }

    pub(crate) fn append(&mut self, rejects: &[Reject]) -> Result<()> {
        if rejects.is_empty() {
            return Ok(());
        }
        let path = self.path.clone();
        self.write(rejects).map_err(|source| Error::io(&path, source))
    }

    fn write(&mut self, rejects: &[Reject]) -> std::io::Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
                let is_new = file.metadata()?.len() == 0;
                let writer = self.writer.insert(csv::Writer::from_writer(file));
                if is_new {
                    writer.write_record(["line", "reason", "record"])?;
                }
                writer
            }
        };
        for reject in rejects {
            writer.write_record([reject.line.to_string().as_str(), &reject.reason, &reject.raw])?;
        }
        writer.flush()
    }
}
