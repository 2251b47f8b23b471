//! Files of CSV, JSON lines or plain lines, or of batches ([`batches`]), as a source: one, or all whose names have the form of a pattern.
//!
//! - Each file is a split with a position of its own: the byte offset behind a record, or of batches the number of rows. Files
//!   are read in the order of their names, each to its end.
//! - With [`FilesSource::tail`] the source has no end: it waits for more lines of each file, and for more
//!   files. Only lines whose end is there are read then.
//! - A file that is shorter than its position, or begins otherwise than when it was read, was truncated or
//!   replaced: the source fails, rather than read rows from the middle of others. The first [`HEAD_BYTES_MAX`]
//!   bytes are compared, and while the source is open, the file's identity.
//! - Reading and parsing run in a thread of their own, at most [`READ_AHEAD_BATCHES_MAX`] batches ahead; a
//!   record has at most 1 MiB, and there are at most [`FILES_MAX`] files.

pub(crate) mod batches;
mod pattern;
mod reading;

use crate::error::{Error, Result};
use crate::sources::csv::{CsvFormat, READ_AHEAD_BATCHES_MAX};
use crate::sources::envelopes::ChangeFormat;
use crate::sources::files::batches::BatchFileFormat;
use crate::sources::files::pattern::FilePattern;
use crate::sources::files::reading::{Content, ReadState};
use crate::sources::lines::LineParser;
use crate::sources::{Next, Position, Source, SourceBatch, SplitPosition};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use entresol_tables::Column;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum of files of a source.
pub const FILES_MAX: usize = 10_000;
/// Maximum of bytes by which a replaced file is noticed.
pub(crate) const HEAD_BYTES_MAX: u64 = 4096;
/// Wait for a batch.
const WAIT: Duration = Duration::from_millis(5);

/// Format of the records of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFormat {
    /// Fields between separators, found by their names in the header line of each file.
    Csv {
        /// Byte between fields.
        separator: u8,
        /// String that means NULL, besides the empty one.
        null: String,
    },
    /// A JSON object on each line; columns by name.
    Json,
    /// Lines as they are: tuples of one string.
    Plain,
    /// A change of a row with a key on each line, as JSON. Tuples of a source have a last column
    /// [`crate::DELETED`] then, for [`crate::Stream::keyed_rows`].
    Changes(ChangeFormat),
}

impl FileFormat {
    /// CSV with commas.
    pub fn csv() -> FileFormat {
        FileFormat::Csv { separator: b',', null: String::new() }
    }
}

/// Files of rows; see the [module](self).
pub struct FilesSource {
    files: FilePattern,
    content: Content,
    tails: bool,
    reader: Option<Reader>,
}

/// Thread that reads ahead.
struct Reader {
    batches: Receiver<Result<SourceBatch>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    path: PathBuf,
}

impl FilesSource {
    /// Creates a source of tuples with these columns. In the file's name, `*` stands for any characters, `?`
    /// for one.
    pub fn new(path: impl AsRef<Path>, columns: Vec<Column>, format: FileFormat) -> FilesSource {
        let csv = CsvFormat::new(path.as_ref(), columns.clone());
        FilesSource::of(path.as_ref(), Content::Lines { parser: LineParser { format, columns }, csv })
    }

    /// Creates a source of tuples with these columns from files of batches. The name is a pattern as in [`FilesSource::new`].
    pub fn of_batches(
        path: impl AsRef<Path>,
        columns: Vec<Column>,
        format: Arc<dyn BatchFileFormat>,
    ) -> FilesSource {
        FilesSource::of(path.as_ref(), Content::Batches { columns, format })
    }

    fn of(path: &Path, content: Content) -> FilesSource {
        FilesSource { files: FilePattern::new(path), content, tails: false, reader: None }
    }

    /// Waits for more lines and files.
    pub fn tail(mut self) -> FilesSource {
        self.tails = true;
        self
    }
}

impl Source for FilesSource {
    fn columns(&self) -> Vec<Column> {
        self.content.tuple_columns()
    }

    fn has_splits(&self) -> bool {
        true
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.open_splits(from, &[])
    }

    fn open_splits(&mut self, from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        let (sender, batches) = bounded(READ_AHEAD_BATCHES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let mut reading =
            ReadState::new(self.files.clone(), self.content.clone(), self.tails, Arc::clone(&stop));
        reading.start_at(from, splits);
        let read = move || {
            if let Err(error) = reading.run(&sender) {
                // The receiver is dropped when the topology has stopped.
                let _ = sender.send(Err(error));
            }
        };
        let path = self.files.path().to_owned();
        let spawned = std::thread::Builder::new().name("entresol-files".to_owned()).spawn(read);
        let thread = Some(spawned.map_err(|source| Error::io(&path, source))?);
        self.reader = Some(Reader { batches, thread, stop, path });
        Ok(())
    }

    fn next(&mut self, _tuples_max: usize) -> Result<Next> {
        let Some(reader) = &mut self.reader else { return Ok(Next::End) };
        match reader.batches.recv_timeout(WAIT) {
            Ok(batch) => Ok(Next::Batch(batch?)),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Idle),
            Err(RecvTimeoutError::Disconnected) => reader.end(),
        }
    }
}

impl Reader {
    /// End of the thread.
    fn end(&mut self) -> Result<Next> {
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(())) => Ok(Next::End),
            Some(Err(_)) => {
                let reason = "the thread that reads the file panicked".to_owned();
                Err(Error::File { path: self.path.clone(), reason })
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits for room ends.
        self.batches = crossbeam_channel::never();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
