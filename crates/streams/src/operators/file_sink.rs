//! The operator that appends rows to a file, each exactly once.
//!
//! ```text
//!   commit punctuation ─ rows are appended ─ file is synced ─ its length is written (streams_sinks) ─ commit
//! ```
//!
//! - The length of the file, and a checksum of its last bytes, are a row of the transaction whose rows it got.
//!   Before the first one, the length that the file had is committed.
//! - A crash before the commit leaves rows behind the stored length: they are removed when the file is opened
//!   again, and are written again from the same input. An abort removes them at once. A reader of the file may
//!   have seen them.
//! - The file is synced before the commit, but with durability `none`: then a power failure, not the death of
//!   the process, may leave a file that is shorter than the stored length. Such a file, or one whose end is
//!   another, is an error: nothing is written.
//! - A failed write is an error of the topology: the transaction is aborted, and its input comes again.
//! - One process has the file open at a time: it is locked.
//! - Rows are held within the memory budget until the commit punctuation.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::held_batches::HeldBatches;
use crate::operators::{Context, Operator, Output};
use crate::sink_lengths::{SinkLength, StoredLength};
use crate::sinks::encoding::RowEncoder;
use entresol_memory::Durability;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Maximum of bytes at the end of a file by which it is recognised.
const TAIL_BYTES_MAX: u64 = 4096;
/// Bytes of encoded rows that are written at once.
const WRITE_BYTES: usize = 1 << 20;

pub(crate) struct FileSinkOperator {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) encoder: RowEncoder,
    pub(crate) durability: Durability,
    pub(crate) stored: StoredLength,
    pub(crate) memory: HeldBatches,
    held: Vec<Batch>,
    /// The file, and its length at the last commit.
    file: Option<(File, SinkLength)>,
    /// Length in the open transaction.
    written: Option<SinkLength>,
}

impl FileSinkOperator {
    pub(crate) fn new(
        name: String,
        path: PathBuf,
        encoder: RowEncoder,
        durability: Durability,
        stored: StoredLength,
        memory: HeldBatches,
    ) -> FileSinkOperator {
        FileSinkOperator {
            name,
            path,
            encoder,
            durability,
            stored,
            memory,
            held: Vec::new(),
            file: None,
            written: None,
        }
    }

    fn refused(&self, reason: String) -> Error {
        Error::File { path: self.path.clone(), reason }
    }

    /// Opens the file at its stored length.
    fn opened(&self) -> Result<(File, SinkLength)> {
        let io = |source| Error::io(&self.path, source);
        let options =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path);
        let mut file = options().map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(self.refused("it is not a regular file".to_owned()));
        }
        file.try_lock().map_err(|_| self.refused("another sink or process has the file open".to_owned()))?;
        if self.durability != Durability::None {
            sync_folder(&self.path).map_err(io)?;
        }
        let bytes = file.metadata().map_err(io)?.len();
        let Some(stored) = self.stored.read()? else {
            let length = length_of(&mut file, bytes, 0).map_err(io)?;
            if !ends_line(&mut file, bytes).map_err(io)? {
                return Err(self.refused("it has content that ends within a line".to_owned()));
            }
            self.stored.begin(length)?;
            return Ok((file, length));
        };
        if bytes < stored.bytes {
            return Err(self.refused(format!(
                "the file has {bytes} bytes, {} were written: it was truncated or replaced, or a power failure lost them",
                stored.bytes
            )));
        }
        if length_of(&mut file, stored.bytes, stored.rows).map_err(io)? != stored {
            let end = stored.bytes;
            return Err(
                self.refused(format!("the file has other content before byte {end} than was written"))
            );
        }
        file.set_len(stored.bytes).map_err(io)?;
        Ok((file, stored))
    }

    /// Appends the held rows; returns the length of the file.
    fn append(&self, file: &mut File, committed: SinkLength) -> Result<SinkLength> {
        let io = |source| Error::io(&self.path, source);
        file.set_len(committed.bytes).map_err(io)?;
        file.seek(SeekFrom::Start(committed.bytes)).map_err(io)?;
        let mut lines = Vec::new();
        let (mut bytes, mut rows) = (committed.bytes, committed.rows);
        if bytes == 0 {
            self.encoder.header(&mut lines)?;
        }
        for batch in &self.held {
            self.encoder.rows(batch, &mut lines)?;
            rows += batch.len() as u64;
            if lines.len() >= WRITE_BYTES {
                file.write_all(&lines).map_err(io)?;
                bytes += lines.len() as u64;
                lines.clear();
            }
        }
        file.write_all(&lines).map_err(io)?;
        bytes += lines.len() as u64;
        if self.durability != Durability::None {
            file.sync_data().map_err(io)?;
        }
        length_of(file, bytes, rows).map_err(io)
    }
}

impl Operator for FileSinkOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&mut self) -> Result<()> {
        self.file = Some(self.opened()?);
        Ok(())
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        self.memory.add(batch)?;
        self.held.push(batch.clone());
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (mut file, committed) = match self.file.take() {
            Some(open) => open,
            None => self.opened()?,
        };
        let written = self.append(&mut file, committed);
        self.file = Some((file, committed));
        let written = written?;
        self.stored.write(context.transaction()?, written)?;
        self.written = Some(written);
        Ok(())
    }

    fn committed(&mut self) -> Result<()> {
        self.held.clear();
        self.memory.clear();
        if let (Some(written), Some((_, committed))) = (self.written.take(), &mut self.file) {
            *committed = written;
        }
        Ok(())
    }

    fn aborted(&mut self) {
        self.held.clear();
        self.memory.clear();
        self.written = None;
        if let Some((file, committed)) = &self.file
            && let Err(error) = file.set_len(committed.bytes)
        {
            // The next write, or the next opening, does it.
            tracing::warn!(sink = self.name, %error, "rows of an aborted transaction stay in the file for now");
        }
    }
}

/// Syncs the folder of a file that may have been created.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Length of a file, with the checksum of the bytes before it.
pub(super) fn length_of(file: &mut File, bytes: u64, rows: u64) -> std::io::Result<SinkLength> {
    let from = bytes.saturating_sub(TAIL_BYTES_MAX);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(bytes - from).read_to_end(&mut tail)?;
    Ok(SinkLength { bytes, rows, tail_checksum: crc32c::crc32c(&tail) })
}

/// Returns true if a file of so many bytes is empty or ends with a line end.
fn ends_line(file: &mut File, bytes: u64) -> std::io::Result<bool> {
    let Some(last) = bytes.checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.seek(SeekFrom::Start(last))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0] == b'\n')
}
