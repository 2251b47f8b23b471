//! File that a COPY writes: a thread for blocking calls encodes and writes what the query has computed, while that
//! goes on.
//!
//! Memory: [`OUTPUTS_MAX`] batches and the two at both ends; of a Parquet file a row group of at most
//! [`GROUP_ROWS`] rows, encoded, which ends early at [`GROUP_BYTES`].

use super::files::{self, NewFile};
use super::pending::{GROUP_BYTES, GROUP_ROWS};
use crate::error::{Error, Result};
use crate::parser::own::copy_options::{Compression, Layout};
use crate::session::commit::blocking;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Maximum batches between the statement and the writer.
const OUTPUTS_MAX: usize = 2;
/// Ending of the name of a file that is written as a stream of Arrow IPC.
const STREAM_ENDING: &str = "arrows";

/// Output of the statement.
#[derive(Debug)]
enum Output {
    Bytes(Vec<u8>),
    Batch(RecordBatch),
    /// All is there: without it the file is incomplete.
    End,
}

/// Writer of the file of one COPY.
#[derive(Debug)]
pub(super) struct FileWriting {
    sender: Sender<Output>,
    writing: JoinHandle<Result<()>>,
}

impl FileWriting {
    /// Begins to write a file on a thread for blocking calls.
    pub(super) async fn begin(path: PathBuf, layout: Layout, schema: SchemaRef) -> Result<FileWriting> {
        let (sender, receiver) = channel(OUTPUTS_MAX);
        let (new, file) = blocking(move || NewFile::create(&path)).await??;
        let writing = tokio::task::spawn_blocking(move || write(new, file, &layout, schema, receiver));
        Ok(FileWriting { sender, writing })
    }

    /// Adds lines. False if the writer has ended: [`FileWriting::end`] says why.
    pub(super) async fn bytes(&self, bytes: Vec<u8>) -> bool {
        self.sender.send(Output::Bytes(bytes)).await.is_ok()
    }

    /// Adds a batch; as [`FileWriting::bytes`].
    pub(super) async fn batch(&self, batch: RecordBatch) -> bool {
        self.sender.send(Output::Batch(batch)).await.is_ok()
    }

    /// Completes the file.
    pub(super) async fn end(self) -> Result<()> {
        // If the writer has ended, its result says why.
        let _ = self.sender.send(Output::End).await;
        let written = self.writing.await;
        written.map_err(|error| Error::Internal(format!("the writer of a file failed: {error}")))?
    }
}

/// Encoder of batches into a file.
enum Encoder {
    Lines(BufWriter<File>),
    Parquet(Box<ArrowWriter<File>>),
    File(FileWriter<BufWriter<File>>),
    Stream(StreamWriter<BufWriter<File>>),
}

fn write(
    new: NewFile,
    file: File,
    layout: &Layout,
    schema: SchemaRef,
    mut outputs: Receiver<Output>,
) -> Result<()> {
    let path = new.path().to_owned();
    let synced = file.try_clone().map_err(|error| files::failed("write", &path, &error))?;
    let mut encoder = Encoder::new(&path, file, layout, &schema)?;
    while let Some(output) = outputs.blocking_recv() {
        match output {
            Output::Bytes(bytes) => encoder.bytes(&path, &bytes)?,
            Output::Batch(batch) => encoder.batch(&path, &batch)?,
            Output::End => {
                encoder.end(&path)?;
                return new.complete(&synced);
            }
        }
    }
    // The statement failed or was cancelled; the file goes with `new`.
    Ok(())
}

impl Encoder {
    fn new(path: &Path, file: File, layout: &Layout, schema: &SchemaRef) -> Result<Encoder> {
        Ok(match layout {
            Layout::Lines(_) | Layout::Binary => Encoder::Lines(BufWriter::new(file)),
            Layout::Parquet(compression) => {
                let properties = WriterProperties::builder()
                    .set_max_row_group_row_count(Some(GROUP_ROWS))
                    .set_compression(compression_of(*compression))
                    .build();
                let writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties));
                Encoder::Parquet(Box::new(writer.map_err(|error| of_parquet(path, error))?))
            }
            Layout::Arrow => {
                let file = BufWriter::new(file);
                let is_stream =
                    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(STREAM_ENDING));
                let failed = |error| of_arrow(path, error);
                if is_stream {
                    Encoder::Stream(StreamWriter::try_new(file, schema).map_err(failed)?)
                } else {
                    Encoder::File(FileWriter::try_new(file, schema).map_err(failed)?)
                }
            }
        })
    }

    fn bytes(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let Encoder::Lines(file) = self else {
            return Err(Error::Internal("lines for a file of batches".into()));
        };
        file.write_all(bytes).map_err(|error| files::failed("write", path, &error))
    }

    fn batch(&mut self, path: &Path, batch: &RecordBatch) -> Result<()> {
        match self {
            Encoder::Lines(_) => Err(Error::Internal("a batch for a file of lines".into())),
            Encoder::Parquet(writer) => {
                let written = writer
                    .write(batch)
                    .and_then(|()| if writer.memory_size() >= GROUP_BYTES { writer.flush() } else { Ok(()) });
                written.map_err(|error| of_parquet(path, error))
            }
            Encoder::File(writer) => writer.write(batch).map_err(|error| of_arrow(path, error)),
            Encoder::Stream(writer) => writer.write(batch).map_err(|error| of_arrow(path, error)),
        }
    }

    fn end(self, path: &Path) -> Result<()> {
        let flushed = |file: std::result::Result<BufWriter<File>, ArrowError>| {
            let mut file = file.map_err(|error| of_arrow(path, error))?;
            file.flush().map_err(|error| files::failed("write", path, &error))
        };
        match self {
            Encoder::Lines(mut file) => file.flush().map_err(|error| files::failed("write", path, &error)),
            Encoder::Parquet(writer) => writer.close().map(drop).map_err(|error| of_parquet(path, error)),
            Encoder::File(mut writer) => flushed(writer.finish().and_then(|()| writer.into_inner())),
            Encoder::Stream(mut writer) => flushed(writer.finish().and_then(|()| writer.into_inner())),
        }
    }
}

fn compression_of(compression: Compression) -> basic::Compression {
    match compression {
        Compression::None => basic::Compression::UNCOMPRESSED,
        Compression::Snappy => basic::Compression::SNAPPY,
        Compression::Lz4 => basic::Compression::LZ4_RAW,
        Compression::Zstd => basic::Compression::ZSTD(basic::ZstdLevel::default()),
    }
}

/// Error of a Parquet file that is written.
fn of_parquet(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => files::failed("write", path, &error),
            Err(other) => unwritable(path, "Parquet", &other),
        },
        other => unwritable(path, "Parquet", &other),
    }
}

/// Error of an Arrow file that is written.
fn of_arrow(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => files::failed("write", path, &error),
        other => unwritable(path, "Arrow IPC", &other),
    }
}

fn unwritable(path: &Path, format: &str, error: &dyn std::fmt::Display) -> Error {
    Error::coded("0A000", format!("file \"{}\" cannot be written as {format}: {error}", path.display()))
}
