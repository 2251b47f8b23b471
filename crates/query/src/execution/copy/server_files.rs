//! COPY of files on the database's machine: one statement as any other, for superusers.
//!
//! ```text
//! COPY t [(columns)] FROM 'file or pattern' [WITH (FORMAT text | csv | tbl | parquet | arrow, …)]
//! COPY {t [(columns)] | (query)} TO 'file' [WITH (…)]
//! ```
//!
//! - Rows go the way of any COPY: [`CopyIn`] writes them, [`CopyOut`](super::CopyOut) computes them. Columns of
//!   Parquet and Arrow come and go as arrays, never as text.
//! - Outside of a block a COPY FROM of regular files is repeated after a conflict, since its rows are still there, unless it
//!   commits in parts. What came out of a pipe is gone.
//! - A file that is written appears once it is complete ([`files`]).
//!
//! Memory: that of [`reading`](super::reading) and [`writing`](super::writing), of which batches are reserved in
//! the memory of the session.

use super::files;
use super::input::CopyIn;
use super::pending::written_together;
use super::reading::{FileReading, Piece};
use super::refusals::no_stream;
use super::writing::FileWriting;
use crate::error::Result;
use crate::execution::session::Session;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::copy_options::Layout;
use crate::postgres::types::padded;
use crate::session::result::StatementResult;
use datafusion::execution::memory_pool::MemoryPool;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a batch of a file for a table by rows: more than are written together anyway.
const BATCH_ROWS: usize = 8192;

impl Session {
    /// Runs a COPY of a file.
    pub(crate) async fn copy_file(&mut self, statement: &CopyStatement) -> Result<StatementResult> {
        let Some(name) = statement.file() else { return Err(no_stream()) };
        let copied = if statement.from {
            self.copy_repeatedly(statement, name).await
        } else {
            self.copy_to_file(statement, name).await
        };
        let rows = copied.map_err(|error| self.failing(error))?;
        Ok(StatementResult::Count { verb: "COPY", rows })
    }

    async fn copy_repeatedly(&mut self, statement: &CopyStatement, name: &str) -> Result<u64> {
        let repeats = self.core.block.is_none() && statement.commit_rows.is_none();
        let mut retries = 0;
        loop {
            match self.copy_from_files(statement, name).await {
                Err(error)
                    if repeats && self.may_retry(&error, retries) && files::are_regular(name).await =>
                {
                    self.wait_before_retry(&error, retries).await;
                    retries += 1;
                }
                copied => return copied,
            }
        }
    }

    async fn copy_from_files(&mut self, statement: &CopyStatement, name: &str) -> Result<u64> {
        let mut copy = self.copy_in(statement)?;
        let pool = Arc::clone(&self.core.context.runtime_env().memory_pool);
        match read_files(&mut copy, statement, name, pool).await {
            Ok(()) => copy.finish().await,
            Err(error) => Err(copy.failed(error)),
        }
    }

    async fn copy_to_file(&mut self, statement: &CopyStatement, name: &str) -> Result<u64> {
        let mut copy = self.copy_out(statement).await?;
        let writing =
            FileWriting::begin(PathBuf::from(name), statement.layout.clone(), copy.schema()).await?;
        let is_lines = matches!(statement.layout, Layout::Lines(_));
        loop {
            // Ends early where the writer has: the error is its own.
            let goes_on = if is_lines {
                match copy.next().await.transpose()? {
                    Some(lines) => writing.bytes(lines).await,
                    None => false,
                }
            } else {
                match copy.next_batch().await.transpose()? {
                    Some(batch) => writing.batch(padded(&batch)).await,
                    None => false,
                }
            };
            if !goes_on {
                break;
            }
            tokio::task::yield_now().await;
        }
        writing.end().await?;
        Ok(copy.rows())
    }
}

/// Passes the files of a name to a COPY, one after the other.
async fn read_files(
    copy: &mut CopyIn,
    statement: &CopyStatement,
    name: &str,
    pool: Arc<dyn MemoryPool>,
) -> Result<()> {
    let (paths, bytes) = files::matching_with_bytes(name).await?;
    copy.progress().of_files(name, bytes);
    let reading = reading_of(copy, statement, pool);
    for path in paths {
        read_file(copy, statement, &reading, &path).await?;
    }
    Ok(())
}

async fn read_file(
    copy: &mut CopyIn,
    statement: &CopyStatement,
    reading: &FileReading,
    path: &Path,
) -> Result<()> {
    copy.begin_file(&path.display().to_string(), statement);
    let mut pieces = reading.begin(path.to_owned());
    while let Some(piece) = pieces.next().await? {
        match piece {
            Piece::Bytes(bytes) => copy.push(&bytes)?,
            Piece::Batch(batch, place, _memory) => copy.push_batch(&batch, place)?,
        }
        copy.commit_part().await?;
        // Reading is ahead: others get their turn all the same, and the statement may be stopped.
        tokio::task::yield_now().await;
    }
    copy.end_file()
}

fn reading_of(copy: &CopyIn, statement: &CopyStatement, pool: Arc<dyn MemoryPool>) -> FileReading {
    let table = copy.target_table();
    let columns = table.schema().visible_columns();
    let is_list = matches!(&statement.source, Source::Table { columns, .. } if !columns.is_empty());
    FileReading {
        layout: statement.layout.clone(),
        table: table.name().to_owned(),
        columns: copy.given().iter().map(|&column| columns[column].clone()).collect(),
        is_list,
        rows_max: written_together(table).0.max(BATCH_ROWS),
        progress: copy.progress().clone(),
        pool,
    }
}
