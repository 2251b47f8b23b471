//! Sinks: destinations of tuples outside the database.
//!
//! A sink is called after the transaction of its tuples has committed, in order, never for an aborted one. A
//! crash right after a commit may lose that transaction's tuples outside: at most once. So may an error of
//! the sink; the topology goes on, and calls it again for the next transaction. See
//! [`crate::operators`] for the operators before it, and for those that write a file or a connection within the
//! transaction.

pub(crate) mod change_lines;
pub(crate) mod channel;
pub(crate) mod csv;
pub(crate) mod encoding;
pub(crate) mod json_lines;
pub(crate) mod rolled;

use crate::element::Batch;
use crate::error::{Error, Result};
use entresol_tables::Column;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// A receiver of committed tuples. It runs in the topology's thread.
pub trait Sink: Send + 'static {
    /// Opens the sink with the columns of its tuples. Called once, first.
    fn open(&mut self, columns: &[Column]) -> Result<()>;

    /// Receives committed tuples.
    fn emit(&mut self, batch: &Batch) -> Result<()>;

    /// Called after all tuples of a transaction have been emitted.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Opens a file of lines to append to; truncates an incomplete last line that a crash left.
fn open_lines(path: &Path) -> Result<File> {
    let open = || -> std::io::Result<File> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = whole_lines_bytes(&mut file)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(file)
    };
    open().map_err(|source| Error::io(path, source))
}

/// Returns the length of a file up to its last line end.
pub(crate) fn whole_lines_bytes(file: &mut File) -> std::io::Result<u64> {
    const STEP_BYTES: u64 = 4096;
    let mut end = file.metadata()?.len();
    let mut step = [0; STEP_BYTES as usize];
    while end > 0 {
        let start = end.saturating_sub(STEP_BYTES);
        let part = &mut step[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
