//! File that a COPY writes: a thread for blocking calls encodes and writes what the query has computed, while that
//! goes on.
//!
//! Memory: [`OUTPUTS_MAX`] batches and the two at both ends; of a Parquet file that of [`ParquetWriter`].

use super::files::NewFile;
use crate::error::{Error, Result};
use crate::parser::own::copy_options::Layout;
use crate::row_files::parquet_writer::{ParquetWriter, of_parquet};
use crate::row_files::{failed, unwritable};
use crate::session::commit::blocking;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::arrow::record_batch::RecordBatch;
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
    Parquet(Box<ParquetWriter>),
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
    let synced = file.try_clone().map_err(|error| failed("write", &path, &error))?;
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
                let writer = ParquetWriter::new(file, schema, *compression);
                Encoder::Parquet(Box::new(writer.map_err(|error| of_parquet(path, error))?))
            }
            Layout::Arrow => {
                let file = BufWriter::new(file);
                let is_stream =
                    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(STREAM_ENDING));
                let unusable = |error| of_arrow(path, error);
                if is_stream {
                    Encoder::Stream(StreamWriter::try_new(file, schema).map_err(unusable)?)
                } else {
                    Encoder::File(FileWriter::try_new(file, schema).map_err(unusable)?)
                }
            }
        })
    }

    fn bytes(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let Encoder::Lines(file) = self else {
            return Err(Error::Internal("lines for a file of batches".into()));
        };
        file.write_all(bytes).map_err(|error| failed("write", path, &error))
    }

    fn batch(&mut self, path: &Path, batch: &RecordBatch) -> Result<()> {
        match self {
            Encoder::Lines(_) => Err(Error::Internal("a batch for a file of lines".into())),
            Encoder::Parquet(writer) => writer.write(batch).map_err(|error| of_parquet(path, error)),
            Encoder::File(writer) => writer.write(batch).map_err(|error| of_arrow(path, error)),
            Encoder::Stream(writer) => writer.write(batch).map_err(|error| of_arrow(path, error)),
        }
    }

    fn end(self, path: &Path) -> Result<()> {
        let flushed = |file: std::result::Result<BufWriter<File>, ArrowError>| {
            let mut file = file.map_err(|error| of_arrow(path, error))?;
            file.flush().map_err(|error| failed("write", path, &error))
        };
        match self {
            Encoder::Lines(mut file) => file.flush().map_err(|error| failed("write", path, &error)),
            Encoder::Parquet(writer) => writer.complete().map_err(|error| of_parquet(path, error)),
            Encoder::File(mut writer) => flushed(writer.finish().and_then(|()| writer.into_inner())),
            Encoder::Stream(mut writer) => flushed(writer.finish().and_then(|()| writer.into_inner())),
        }
    }
}

/// Error of an Arrow file that is written.
fn of_arrow(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => failed("write", path, &error),
        other => unwritable(path, "Arrow IPC", &other),
    }
}
