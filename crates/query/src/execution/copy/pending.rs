//! Rows of a COPY that are not written yet, with their places in the input.
//!
//! Memory: [`BATCH_ROWS`] rows or [`BATCH_BYTES`] of input, of a table with row groups [`GROUP_ROWS`] or
//! [`GROUP_BYTES`], and the line or batch that fills them.

use crate::error::Result;
use crate::row_files::{BatchPlace, GROUP_BYTES, GROUP_ROWS};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use entresol_tables::{ColumnBuilder, Table};

/// Rows written together.
pub(super) const BATCH_ROWS: usize = 4096;
/// Bytes of input whose rows are written together.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// Rows and bytes that are written together to a table; of one with row groups as many as make a large one.
pub(super) fn written_together(table: &Table) -> (usize, usize) {
    if table.has_row_groups() { (GROUP_ROWS, GROUP_BYTES) } else { (BATCH_ROWS, BATCH_BYTES) }
}

/// Pending rows that come one by one.
#[derive(Debug)]
pub(super) struct PendingRows {
    /// One for each column of a line.
    pub(super) builders: Vec<ColumnBuilder>,
    /// Line of each row.
    pub(super) lines: Vec<u64>,
    /// Bytes of their input.
    pub(super) bytes: usize,
    /// Rows and bytes that are written together.
    full: (usize, usize),
}

impl PendingRows {
    pub(super) fn new(builders: Vec<ColumnBuilder>, table: &Table) -> PendingRows {
        PendingRows { builders, lines: Vec::new(), bytes: 0, full: written_together(table) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= self.full.0 || self.bytes >= self.full.1
    }

    /// Takes the columns of all rows, and their lines.
    pub(super) fn take(&mut self) -> (Vec<ArrayRef>, Vec<u64>) {
        self.bytes = 0;
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        (arrays, std::mem::take(&mut self.lines))
    }
}

/// Pending batches of a file.
#[derive(Debug)]
pub(super) struct PendingBatches {
    /// Columns of each batch.
    columns: Vec<Vec<ArrayRef>>,
    /// Number of the first row of each batch, and its place; those of the last ones taken stay until others come.
    places: Vec<(usize, BatchPlace)>,
    /// Place of the batch that came last.
    reached: BatchPlace,
    rows: usize,
    bytes: usize,
    full: (usize, usize),
}

impl PendingBatches {
    pub(super) fn new(table: &Table) -> PendingBatches {
        PendingBatches {
            columns: Vec::new(),
            places: Vec::new(),
            reached: BatchPlace::default(),
            rows: 0,
            bytes: 0,
            full: written_together(table),
        }
    }

    /// Notes the place of the next batch.
    pub(super) fn reach(&mut self, place: BatchPlace) {
        self.reached = place;
    }

    /// Adds a batch at the place that was reached.
    pub(super) fn push(&mut self, arrays: Vec<ArrayRef>, rows: usize) {
        if self.columns.is_empty() {
            self.places.clear();
        }
        self.places.push((self.rows, self.reached));
        self.bytes += arrays.iter().map(|array| array.get_array_memory_size()).sum::<usize>();
        self.rows += rows;
        self.columns.push(arrays);
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows >= self.full.0 || self.bytes >= self.full.1
    }

    /// Place of the batch that came last.
    pub(super) fn place(&self) -> String {
        match self.reached.group {
            0 => "before its rows".to_owned(),
            group => format!("row group {group}"),
        }
    }

    /// Place of a row of those that were taken last.
    pub(super) fn place_of(&self, row: usize) -> String {
        let at = self.places.partition_point(|(first, _)| *first <= row).saturating_sub(1);
        match self.places.get(at) {
            Some((first, place)) => place.shown(row - first),
            None => self.place(),
        }
    }

    /// Takes the columns of all rows, and their number.
    pub(super) fn take(&mut self) -> Result<(Vec<ArrayRef>, usize)> {
        let (mut batches, rows) = (std::mem::take(&mut self.columns), std::mem::take(&mut self.rows));
        self.bytes = 0;
        if batches.len() <= 1 {
            return Ok((batches.pop().unwrap_or_default(), rows));
        }
        let columns = 0..batches[0].len();
        let joined = columns.map(|column| {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch[column].as_ref()).collect();
            Ok(concat(&arrays)?)
        });
        Ok((joined.collect::<Result<_>>()?, rows))
    }
}
