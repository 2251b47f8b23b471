//! A CSV file that others append to: at its end, the source waits for more lines.
//!
//! Only complete lines are read: a line that is being written is read when its end is there.

use crate::error::{Error, Result};
use crate::sinks::whole_lines_bytes;
use crate::sources::csv::CsvSource;
use crate::sources::{Next, Position, Positions, Reject, Source, SourceBatch};
use entresol_tables::Column;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Wait at the end of the file.
const WAIT: Duration = Duration::from_millis(5);

/// A CSV file that grows.
pub struct TailSource {
    path: PathBuf,
    csv: CsvSource,
    /// None before the first tuple of the file.
    position: Option<Position>,
    /// True while `csv` is open.
    reads: bool,
    /// Bytes of the file up to the end of its last line, when it was opened.
    complete: u64,
    /// Such bytes of which all was read.
    read: Option<u64>,
}

impl TailSource {
    /// Creates a source of the lines of a file; `csv` is a source of the same file.
    pub fn new(path: impl AsRef<Path>, csv: CsvSource) -> TailSource {
        let path = path.as_ref().to_owned();
        TailSource { path, csv: csv.growing(), position: None, reads: false, complete: 0, read: None }
    }

    fn complete_bytes(&self) -> Result<u64> {
        let bytes = File::open(&self.path).and_then(|mut file| whole_lines_bytes(&mut file));
        bytes.map_err(|source| Error::io(&self.path, source))
    }

    /// Opens the file if it has lines behind the position.
    fn reopen(&mut self) -> Result<bool> {
        let complete = self.complete_bytes()?;
        if self.read == Some(complete) {
            return Ok(false);
        }
        self.csv.open(self.position)?;
        self.complete = complete;
        self.reads = true;
        Ok(true)
    }

    /// Notes that all complete lines were read.
    fn ended(&mut self) {
        self.reads = false;
        self.read = Some(self.complete);
    }

    /// Removes what is behind the last complete line.
    fn trim(&self, mut batch: SourceBatch) -> Option<SourceBatch> {
        if batch.end.offset <= self.complete {
            return Some(batch);
        }
        let Positions::Listed(positions) = &mut batch.positions else { return Some(batch) };
        let tuples = positions.partition_point(|position| position.offset <= self.complete);
        positions.truncate(tuples);
        batch.end = *positions.last()?;
        batch.tuples = batch.tuples.slice(0, tuples);
        batch.rejects.retain(|reject| reject.tuples_before < tuples);
        Some(batch)
    }
}

impl Source for TailSource {
    fn columns(&self) -> Vec<Column> {
        self.csv.columns()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        (self.position, self.read) = (from, None);
        self.reopen().map(drop)
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        if !self.reads && !self.reopen()? {
            std::thread::sleep(WAIT);
            return Ok(Next::Idle);
        }
        match self.csv.next(tuples_max)? {
            Next::Batch(batch) => {
                if batch.end.offset > self.complete {
                    self.ended();
                }
                let Some(batch) = self.trim(batch) else {
                    std::thread::sleep(WAIT);
                    return Ok(Next::Idle);
                };
                self.position = Some(batch.end);
                Ok(Next::Batch(batch))
            }
            Next::End => {
                self.ended();
                std::thread::sleep(WAIT);
                Ok(Next::Idle)
            }
            other => Ok(other),
        }
    }

    fn rejected(&mut self, rejects: &[Reject]) -> Result<()> {
        self.csv.rejected(rejects)
    }
}
