//! Files that a COPY reads: a thread for blocking calls reads and decodes one, while the statement writes what it had
//! before.
//!
//! ```text
//!   lines            chunks of bytes ─────────────────────────────┐
//!   Parquet          row group after row group, pages ─▶ batches ─┼─▶ channel of two ─▶ CopyIn ─▶ writer of rows
//!   Arrow IPC        record batches, in slices ───────────────────┘
//! ```
//!
//! - Columns are found by their names, first as they are, then without regard to case. Without a list of columns the
//!   file has exactly those of the table; with one it may have others, which are not read.
//! - Types are checked before the first row; values are converted by the rules of assignment, whole columns at once
//!   where each value of the one type is one of the other.
//! - A reader whose statement has ended ends at its next batch. The statement ends when the reader has said that it read all.
//!
//! Memory: [`PIECES_MAX`] pieces and the two at both ends; batches are reserved in the memory of the session. Those of a Parquet
//! file are bounded ([`crate::row_files::parquet_file`]); a record batch of Arrow is in memory as a whole.

use super::files;
use crate::error::{Error, Result};
use crate::parser::own::copy_options::Layout;
use crate::row_files::columns::{self, FileColumns};
use crate::row_files::parquet_file::{BatchLimits, ParquetFile};
use crate::row_files::{BatchPlace, GROUP_BYTES, damaged, failed};
use crate::session::loads::LoadProgress;
use crate::session::query_memory::bytes_of;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::{FileReader, StreamReader};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use entresol_tables::Column;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Maximum pieces between the reader and the statement.
const PIECES_MAX: usize = 2;
/// Bytes of lines that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Beginning of a file in Arrow's file format; a stream has none.
const ARROW_MAGIC: &[u8; 6] = b"ARROW1";
/// Last bytes of an Arrow stream: a message without metadata.
const ARROW_STREAM_END: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];

/// Piece of a file.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    /// The columns that the statement gives, in its order, and the memory that they take.
    Batch(RecordBatch, BatchPlace, MemoryReservation),
}

/// Reader of the files of one COPY.
#[derive(Debug, Clone)]
pub(super) struct FileReading {
    pub(super) layout: Layout,
    pub(super) table: String,
    /// Columns that the statement gives.
    pub(super) columns: Vec<Column>,
    /// True if the statement lists them.
    pub(super) is_list: bool,
    /// Rows of a batch that is wanted.
    pub(super) rows_max: usize,
    pub(super) progress: Arc<LoadProgress>,
    /// Memory for batches.
    pub(super) pool: Arc<dyn MemoryPool>,
}

/// Pieces of a file that a thread for blocking calls reads.
pub(super) struct Pieces {
    pieces: Receiver<Piece>,
    reader: JoinHandle<Result<()>>,
}

impl Pieces {
    fn of(read: impl FnOnce(&Sender<Piece>) -> Result<()> + Send + 'static) -> Pieces {
        let (sender, pieces) = channel(PIECES_MAX);
        Pieces { pieces, reader: tokio::task::spawn_blocking(move || read(&sender)) }
    }

    /// Next piece; none once the reader has read all. One that panicked is an error, and not the end of the file.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>> {
        if let Some(piece) = self.pieces.recv().await {
            return Ok(Some(piece));
        }
        let read = (&mut self.reader).await;
        read.map_err(|error| Error::Internal(format!("the reader of a file failed: {error}")))?.map(|()| None)
    }
}

/// Sender of pieces; false once the statement has ended.
type PieceSink<'s> = &'s mut dyn FnMut(Piece) -> bool;

impl FileReading {
    /// Begins to read a file.
    pub(super) fn begin(&self, path: PathBuf) -> Pieces {
        let reading = self.clone();
        Pieces::of(move |sender| reading.read(&path, sender))
    }

    fn read(&self, path: &Path, sender: &Sender<Piece>) -> Result<()> {
        let mut send = |piece| sender.blocking_send(piece).is_ok();
        let file = files::open(path)?;
        match &self.layout {
            Layout::Parquet(_) => self.read_parquet(path, file, &mut send),
            Layout::Arrow => self.read_arrow(path, file, &mut send),
            Layout::Lines(_) | Layout::Binary => self.read_bytes(path, file, &mut send),
        }
    }

    fn read_bytes(&self, path: &Path, mut file: File, send: PieceSink<'_>) -> Result<()> {
        loop {
            let mut bytes = vec![0; CHUNK_BYTES];
            match file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    bytes.truncate(read);
                    self.progress.add_bytes(read as u64);
                    if !send(Piece::Bytes(bytes)) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", path, &error)),
            }
        }
    }

    fn read_parquet(&self, path: &Path, file: File, send: PieceSink<'_>) -> Result<()> {
        let mut parquet = ParquetFile::open(path, file)?;
        parquet.select(&self.positions(path, parquet.schema())?);
        let mut batches = parquet.batches(BatchLimits { rows: self.rows_max, bytes: GROUP_BYTES });
        while let Some(batch) = batches.next()? {
            self.progress.add_bytes(batch.compressed_bytes);
            if !send(self.reserved(batch.rows, batch.place)?) {
                break;
            }
        }
        Ok(())
    }

    /// Batch with memory of its own.
    fn reserved(&self, batch: RecordBatch, place: BatchPlace) -> Result<Piece> {
        let memory = MemoryConsumer::new("batches of a file").register(&self.pool);
        memory.try_grow(bytes_of(&batch))?;
        Ok(Piece::Batch(batch, place, memory))
    }

    fn read_arrow(&self, path: &Path, mut file: File, send: PieceSink<'_>) -> Result<()> {
        let unreadable = |error| failed("read", path, &error);
        let mut magic = Vec::new();
        (&file).take(ARROW_MAGIC.len() as u64).read_to_end(&mut magic).map_err(unreadable)?;
        let is_file = magic == ARROW_MAGIC;
        if !is_file && !ends_stream(&mut file).map_err(unreadable)? {
            let reason =
                "it has no end mark: the stream was not written to its end, or the file is truncated";
            return Err(damaged(path, "Arrow IPC", &reason));
        }
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let counted = BufReader::new(CountedFile { file, progress: Arc::clone(&self.progress) });
        let invalid = |error: ArrowError| damaged(path, "Arrow IPC", &error);
        if is_file {
            let reader = FileReader::try_new(counted, None).map_err(invalid)?;
            let schema = reader.schema();
            self.send_arrow(path, &schema, reader, send)
        } else {
            let reader = StreamReader::try_new(counted, None).map_err(invalid)?;
            let schema = reader.schema();
            self.send_arrow(path, &schema, reader, send)
        }
    }

    fn send_arrow(
        &self,
        path: &Path,
        schema: &SchemaRef,
        batches: impl Iterator<Item = std::result::Result<RecordBatch, ArrowError>>,
        send: PieceSink<'_>,
    ) -> Result<()> {
        let wanted = self.positions(path, schema)?;
        for (at, batch) in batches.enumerate() {
            let batch = batch.and_then(|batch| batch.project(&wanted));
            let batch = batch
                .map_err(|error| damaged(path, "Arrow IPC", &format!("record batch {}: {error}", at + 1)))?;
            for first in (0..batch.num_rows()).step_by(self.rows_max) {
                let slice = batch.slice(first, self.rows_max.min(batch.num_rows() - first));
                if !send(self.reserved(slice, BatchPlace { group: at + 1, row: first + 1 })?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Position in the file of each column that the statement gives; an error if one is not there, if its values
    /// cannot be assigned, or if the file has others that the statement does not rule out.
    fn positions(&self, path: &Path, schema: &ArrowSchema) -> Result<Vec<usize>> {
        let proposal = "list the columns to copy behind the table's name";
        let relation = format!("table {}", self.table);
        let wanted = FileColumns { relation: &relation, columns: &self.columns, proposal };
        let wanted = wanted.positions(path, schema)?;
        let is_other = |at: &usize| !self.is_list && !wanted.contains(at);
        let others = (0..schema.fields().len()).filter(is_other);
        let others = columns::names(others.map(|at| schema.field(at).name().as_str()));
        if !others.is_empty() {
            let message = format!(
                "file \"{}\" has columns that {relation} does not have: {others}; {proposal}",
                path.display()
            );
            return Err(Error::coded("22P04", message));
        }
        Ok(wanted)
    }
}

/// Tells whether a file ends with the end mark of an Arrow stream, without which a reader takes what is there for the whole.
fn ends_stream(file: &mut File) -> std::io::Result<bool> {
    let mut last = Vec::new();
    let start = file.metadata()?.len().saturating_sub(ARROW_STREAM_END.len() as u64);
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut last)?;
    Ok(last == ARROW_STREAM_END)
}

/// File whose bytes are counted.
struct CountedFile {
    file: File,
    progress: Arc<LoadProgress>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.add_bytes(read as u64);
        Ok(read)
    }
}

impl Seek for CountedFile {
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_panics_is_not_the_end_of_a_file() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pieces = Pieces::of(|sender| {
                assert!(sender.blocking_send(Piece::Bytes(vec![1])).is_ok());
                panic!("as on a damaged page");
            });
            assert!(matches!(pieces.next().await, Ok(Some(Piece::Bytes(_)))));
            let error = pieces.next().await.unwrap_err().to_string();
            assert!(error.contains("the reader of a file failed"), "{error}");
            let mut whole = Pieces::of(|sender| {
                let _ = sender.blocking_send(Piece::Bytes(vec![1]));
                Ok(())
            });
            assert!(matches!(whole.next().await, Ok(Some(_))));
            assert!(matches!(whole.next().await, Ok(None)));
        });
    }
}
