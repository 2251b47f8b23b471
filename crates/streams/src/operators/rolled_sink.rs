//! The operator that writes rows into files of a format that cannot be appended to, each row exactly once.
//!
//! ```text
//!   commit punctuation ─ rows are appended to those that wait ─ synced ─ their length is written (streams_sinks) ─ commit
//!                                                                         │ a limit is reached: "file 7 is full, 8 is open"
//!     behind that commit   7.part is written, synced ─ 7.rows is removed ─ 7.part is renamed to 7
//! ```
//!
//! - Rows wait in a file of their own, to which they are appended as [`super::file_sink`] does: with its length in the
//!   transaction of the rows, and truncated to it at an abort and when it is opened. So a file has whole transactions.
//! - The transaction that fills a file says so, and is durable before the file is made. From then on the files that are
//!   there say how far that is, and opening the sink goes on from there:
//!
//! | there are | the process died, or power failed | opening |
//! | --- | --- | --- |
//! | waiting rows, perhaps a part | before the part was complete | writes the part again |
//! | a part alone | behind the removal of the waiting rows | renames it |
//! | neither | behind the rename | has nothing to do: others may have taken the file away |
//!
//! - Files are synced, and their folder between two steps, at any durability. With durability `none` waiting rows are
//!   synced when their file is full: a power failure before may leave fewer than are stored, which is an error.
//! - The last commit of a run fills the file, so that nothing waits while the topology is paused, or behind its end.
//!   That of a topology that failed waits until it starts again.
//! - Rows are held within the memory budget until the commit punctuation. Making a file is the format's memory.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::held_batches::HeldBatches;
use crate::operators::file_sink::{length_of, sync_folder};
use crate::operators::{Context, Operator, Output};
use crate::sink_lengths::{SinkLength, StoredFiles};
use crate::sinks::rolled::{RolledFiles, RolledNames};
use arrow_array::RecordBatch;
use entresol_memory::{Durability, Pool};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// Bytes of rows that are written and read at once.
const BUFFER_BYTES: usize = 1 << 20;

pub(crate) struct RolledSinkOperator {
    pub(crate) name: String,
    pub(crate) names: RolledNames,
    pub(crate) files: RolledFiles,
    pub(crate) durability: Durability,
    pub(crate) stored: StoredFiles,
    pub(crate) pool: Arc<Pool>,
    pub(crate) memory: HeldBatches,
    pub(crate) state: RolledSinkState,
}

/// State of the operator.
#[derive(Default)]
pub(crate) struct RolledSinkState {
    held: Vec<Batch>,
    open: Option<OpenFile>,
    /// Changes of the open file in the transaction.
    written: Option<FileChange>,
    /// True if the next commit is the last one of the run.
    is_ending: bool,
}

/// File that rows wait for, as of the last commit.
struct OpenFile {
    number: u64,
    length: SinkLength,
    /// Rows in the files before it.
    rows_before: u64,
    /// Time of the first of its rows in this run.
    begun: Option<EventTime>,
    /// Waiting rows, once there are some.
    waiting: Option<File>,
    /// Number of the file before it, if it is stored.
    before: Option<u64>,
}

/// Change of the open file in a transaction.
struct FileChange {
    length: SinkLength,
    begun: EventTime,
    /// Number of the next file, if this one is full.
    next: Option<u64>,
}

impl OpenFile {
    fn empty(number: u64, length: SinkLength, before: Option<u64>) -> OpenFile {
        OpenFile { number, length, rows_before: length.rows, begun: None, waiting: None, before }
    }

    fn rows(&self) -> u64 {
        self.length.rows - self.rows_before
    }

    /// Returns true if its time is over.
    fn is_over(&self, now: EventTime, files: &RolledFiles) -> bool {
        let Some(begun) = self.begun else { return false };
        let interval_us = i64::try_from(files.interval.as_micros()).unwrap_or(i64::MAX);
        now.micros().saturating_sub(begun.micros()) >= interval_us
    }
}

impl RolledSinkOperator {
    fn refused(path: &Path, reason: String) -> Error {
        Error::File { path: path.to_owned(), reason }
    }

    /// Error of a call on a file: of its rows, or of the file.
    fn failed(&self, path: &Path, source: std::io::Error) -> Error {
        match source.kind() {
            ErrorKind::InvalidData => {
                Error::Tuple { operator: self.name.clone(), reason: source.to_string() }
            }
            _ => Error::io(path, source),
        }
    }

    /// Completes what is full, and opens the file that rows wait for.
    fn opened(&self) -> Result<OpenFile> {
        let Some(stored) = self.stored.read()? else {
            let number = self.names.first_number()?;
            self.stored.begin(number)?;
            return Ok(OpenFile::empty(number, SinkLength::default(), None));
        };
        if let Some((number, length)) = stored.full {
            self.complete(number, length, None)?;
        }
        let (number, length) = stored.open;
        let before = stored.full.map(|(number, _)| number);
        let mut open = OpenFile::empty(number, length, before);
        if length.bytes > 0 {
            open.rows_before = stored.full.map_or(0, |(_, length)| length.rows);
            open.waiting = Some(self.waiting(number, length)?);
            open.begun = Some(EventTime::from_nanoseconds(self.pool.env().now_ns()));
        }
        Ok(open)
    }

    /// Opens waiting rows, of which this length is committed.
    fn waiting(&self, number: u64, committed: SinkLength) -> Result<File> {
        let path = self.names.waiting(number);
        let io = |source| Error::io(&path, source);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(committed.bytes == 0).truncate(false);
        let mut file = options.open(&path).map_err(io)?;
        file.try_lock().map_err(|_| {
            RolledSinkOperator::refused(&path, "another sink or process has the file open".to_owned())
        })?;
        self.check_waiting(&path, &mut file, committed)?;
        file.set_len(committed.bytes).map_err(io)?;
        Ok(file)
    }

    fn check_waiting(&self, path: &Path, file: &mut File, committed: SinkLength) -> Result<()> {
        let io = |source| Error::io(path, source);
        let bytes = file.metadata().map_err(io)?.len();
        if bytes < committed.bytes {
            let reason = format!(
                "the file has {bytes} bytes, {} were written: it was truncated or replaced, or a power failure lost them",
                committed.bytes
            );
            return Err(RolledSinkOperator::refused(path, reason));
        }
        if length_of(file, committed.bytes, committed.rows).map_err(io)? != committed {
            let end = committed.bytes;
            let reason = format!("the file has other content before byte {end} than was written");
            return Err(RolledSinkOperator::refused(path, reason));
        }
        Ok(())
    }

    /// Appends the held rows to those that wait; returns their length.
    fn append(&self, open: &mut OpenFile) -> Result<SinkLength> {
        let path = self.names.waiting(open.number);
        let io = |source| Error::io(&path, source);
        let is_new = open.waiting.is_none();
        let file = match open.waiting.take() {
            Some(file) => file,
            None => self.waiting(open.number, open.length)?,
        };
        let file = open.waiting.insert(file);
        if is_new && self.durability != Durability::None {
            sync_folder(&path).map_err(io)?;
        }
        file.set_len(open.length.bytes).map_err(io)?;
        file.seek(SeekFrom::Start(open.length.bytes)).map_err(io)?;
        let held: Vec<&RecordBatch> = self.state.held.iter().map(Batch::rows).collect();
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &*file);
        let appended = self.files.format.append(&held, &mut out).and_then(|()| out.flush());
        // Rows that are not flushed are not to be written when it is dropped.
        drop(out.into_parts());
        appended.map_err(|source| self.failed(&path, source))?;
        if self.durability != Durability::None {
            file.sync_data().map_err(io)?;
        }
        let rows = held.iter().map(|rows| rows.num_rows() as u64).sum::<u64>();
        let bytes = file.stream_position().map_err(io)?;
        length_of(file, bytes, open.length.rows + rows).map_err(io)
    }

    /// Appends the held rows, and writes what is there then into the transaction.
    fn write(&mut self, context: &Context<'_>, open: &mut OpenFile) -> Result<()> {
        let has_rows = !self.state.held.is_empty();
        let length = if has_rows { self.append(open)? } else { open.length };
        let rows = length.rows - open.rows_before;
        let is_full = rows >= self.files.rows_max
            || length.bytes >= self.files.bytes_max
            || self.state.is_ending
            || open.is_over(context.now, &self.files);
        let next = if is_full && rows > 0 {
            if let (Durability::None, Some(file)) = (self.durability, &open.waiting) {
                file.sync_data().map_err(|source| Error::io(&self.names.waiting(open.number), source))?;
            }
            let next = self.names.number_behind(open.number)?;
            self.stored.fill(context.transaction()?, (open.number, length), next, open.before)?;
            Some(next)
        } else if has_rows {
            self.stored.write(context.transaction()?, open.number, length)?;
            None
        } else {
            return Ok(());
        };
        let begun = open.begun.unwrap_or(context.now);
        self.state.written = Some(FileChange { length, begun, next });
        Ok(())
    }

    /// Makes the file of rows that are all there, as far as it is not made yet.
    fn complete(&self, number: u64, length: SinkLength, rows: Option<u64>) -> Result<()> {
        let (file, part, waiting) =
            (self.names.file(number), self.names.part(number), self.names.waiting(number));
        if waiting.exists() {
            self.write_part(&part, (&waiting, length), rows)?;
            sync_folder(&part).map_err(|source| Error::io(&part, source))?;
            std::fs::remove_file(&waiting).map_err(|source| Error::io(&waiting, source))?;
            sync_folder(&part).map_err(|source| Error::io(&part, source))?;
        }
        if !part.exists() {
            return Ok(());
        }
        if file.exists() {
            let reason = format!(
                "it is there already, and another wrote it; {} has its rows, which are to go there: move it away",
                part.display()
            );
            return Err(RolledSinkOperator::refused(&file, reason));
        }
        std::fs::rename(&part, &file).map_err(|source| Error::io(&file, source))?;
        sync_folder(&file).map_err(|source| Error::io(&file, source))
    }

    /// Writes a file of waiting rows under the name that it has until it is complete.
    fn write_part(
        &self,
        part: &Path,
        (waiting, length): (&Path, SinkLength),
        rows: Option<u64>,
    ) -> Result<()> {
        let of_waiting = |source| Error::io(waiting, source);
        let mut from = File::open(waiting).map_err(of_waiting)?;
        self.check_waiting(waiting, &mut from, length)?;
        from.seek(SeekFrom::Start(0)).map_err(of_waiting)?;
        let mut from = BufReader::with_capacity(BUFFER_BYTES, from).take(length.bytes);
        let to = File::create(part).map_err(|source| Error::io(part, source))?;
        let synced = to.try_clone().map_err(|source| Error::io(part, source))?;
        let written = self.files.format.complete(&mut from, to);
        let written = written.map_err(|source| Error::io(part, source))?;
        if let Some(rows) = rows.filter(|rows| *rows != written) {
            let reason = format!("{written} rows were found, {rows} were written");
            return Err(RolledSinkOperator::refused(waiting, reason));
        }
        synced.sync_all().map_err(|source| Error::io(part, source))
    }
}

impl Operator for RolledSinkOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&mut self) -> Result<()> {
        self.state.open = Some(self.opened()?);
        Ok(())
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        self.memory.add(batch)?;
        self.state.held.push(batch.clone());
        Ok(())
    }

    fn is_due(&self, now: EventTime) -> bool {
        let is_full = |open: &OpenFile| self.state.is_ending || open.is_over(now, &self.files);
        self.state.open.as_ref().is_some_and(|open| open.rows() > 0 && is_full(open))
    }

    fn ending(&mut self) {
        self.state.is_ending = true;
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        let mut open = match self.state.open.take() {
            Some(open) => open,
            None => self.opened()?,
        };
        let written = self.write(context, &mut open);
        self.state.open = Some(open);
        written
    }

    fn committed(&mut self) -> Result<()> {
        self.state.held.clear();
        self.memory.clear();
        let Some(written) = self.state.written.take() else { return Ok(()) };
        let Some(mut open) = self.state.open.take() else { return Ok(()) };
        (open.length, open.begun) = (written.length, Some(written.begun));
        let Some(next) = written.next else {
            self.state.open = Some(open);
            return Ok(());
        };
        // Nothing is removed before it is durable that the file is full.
        self.pool.sync().map_err(entresol_transactions::Error::from)?;
        let (number, rows) = (open.number, open.rows());
        drop(open);
        self.complete(number, written.length, Some(rows))?;
        let length = SinkLength { rows: written.length.rows, ..SinkLength::default() };
        self.state.open = Some(OpenFile::empty(next, length, Some(number)));
        Ok(())
    }

    fn aborted(&mut self) {
        self.state.held.clear();
        self.memory.clear();
        self.state.written = None;
        if let Some(OpenFile { waiting: Some(file), length, .. }) = &self.state.open
            && let Err(error) = file.set_len(length.bytes)
        {
            // The next write, or the next opening, does it.
            tracing::warn!(sink = self.name, %error, "rows of an aborted transaction wait for now");
        }
    }
}
