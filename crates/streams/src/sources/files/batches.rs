//! Files whose rows come in batches, such as Parquet: each is complete, and never grows.
//!
//! - The position is the number of rows in the file before it; that of a message is the row, counted from 1.
//! - A file is the one that was read if its length and both of its ends are the same.
//! - With [`crate::FilesSource::tail`] a file whose end is not there yet is looked at again when it has grown.
//! - What a format decodes is untrusted: one that panics is an error of the file.

use crate::error::{Error, Result};
use crate::sources::files::HEAD_BYTES_MAX;
use crate::sources::{Head, SourceBatch};
use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Format of files that are written as one, with an end that says so.
pub trait BatchFileFormat: Debug + Send + Sync {
    /// Returns true if the end of a file of so many bytes is there, false if it may still come. The file's place may be
    /// moved.
    fn is_complete(&self, path: &Path, file: &mut File, bytes: u64) -> Result<bool>;

    /// Opens a file behind so many of its rows.
    fn open(&self, path: &Path, file: File, rows: u64) -> Result<Box<dyn BatchFileReader>>;
}

/// Reader of the rows of such a file.
pub trait BatchFileReader: Send {
    /// Returns the next rows, those that are rejected among them; none at the end. Offsets of positions are numbers of
    /// rows, lines those of the row behind.
    fn read(&mut self) -> Result<Option<SourceBatch>>;
}

/// Runs a decoder of a file.
pub(super) fn decoded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        let reason = "its reader panicked, as on damaged bytes; the rows before it count".to_owned();
        Err(Error::File { path: path.to_owned(), reason })
    })
}

/// Length of a file, and checksum of its first and last bytes.
pub(super) fn ends_of(file: &mut File, bytes: u64) -> std::io::Result<Head> {
    let mut ends = Vec::new();
    let last = bytes.saturating_sub(HEAD_BYTES_MAX);
    for from in [0, last] {
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(file).take(HEAD_BYTES_MAX).read_to_end(&mut ends)?;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(Head { bytes, checksum: crc32c::crc32c(&ends) })
}
