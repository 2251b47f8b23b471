//! Sample of the rows of a table: runs of neighbours in the order in which they are stored, spread over the table.
//!
//! Neighbours tell how much of the table a range of a column is spread over: a run has the values that a block has which
//! begins there, and a block is what scans leave out. Of a table with blocks of cluster keys neighbours tell nothing about a
//! layout by the primary key; there it is neighbours of the sample in the order of that key.

use crate::batch::arrow_schema;
use crate::batch::rows::batch_to_rows;
use crate::error::Result;
use crate::table::Table;
use crate::table::range::ScanRange;
use crate::value::Row;
use entresol_transactions::{KeyRange, Transaction};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Maximum number of rows of a sample.
pub const SAMPLE_ROWS_MAX: usize = 8192;
/// Number of runs wanted.
const RUNS: usize = 32;
/// Maximum rows of a run.
const RUN_ROWS: usize = SAMPLE_ROWS_MAX / RUNS;
/// Rows of a run that is made of a sample in another order: so many that it has most of the values which a block would have.
const KEY_RUN_ROWS: usize = 64;

/// Rows of a table, without the hidden key.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) rows: Vec<Row>,
    /// Rows of each run.
    pub(crate) runs: Vec<Range<usize>>,
    /// Rows that are neighbours, or nearly so, in the order of the primary key.
    pub(crate) key_runs: Vec<Vec<u32>>,
    /// True if it has all rows of the table.
    pub(crate) is_complete: bool,
}

impl Sample {
    /// Sample of the rows that a transaction sees.
    pub(super) fn of(table: &Arc<Table>, tx: &Transaction) -> Result<Sample> {
        let mut sample = Sample::default();
        if table.has_row_groups() {
            sample.add_blocks(table, tx)?;
        }
        if sample.rows.is_empty() {
            sample.add_ranges(table, tx)?;
        }
        assert!(sample.rows.len() <= SAMPLE_ROWS_MAX, "a sample is bounded");
        sample.find_key_runs(table, tx)?;
        Ok(sample)
    }

    /// Sorts the rows into runs in key order, if they are not stored so.
    fn find_key_runs(&mut self, table: &Table, tx: &Transaction) -> Result<()> {
        let may_have_blocks = match table.own_columns() {
            Some(columns) => columns.places_for(tx)?.is_some(),
            None => false,
        };
        let all = 0..self.rows.len() as u32;
        self.key_runs = if !may_have_blocks {
            self.runs.iter().map(|run| (run.start as u32..run.end as u32).collect()).collect()
        } else if table.schema().hidden_key() {
            // The order in which rows came is not known: no scan by it is taken to leave out anything.
            vec![all.collect()]
        } else {
            let key = |at: &u32| {
                let row = &self.rows[*at as usize];
                table.schema().key().iter().map(|column| &row[*column]).collect::<Vec<_>>()
            };
            let mut order: Vec<u32> = all.collect();
            order.sort_by_cached_key(key);
            order.chunks(KEY_RUN_ROWS).map(<[u32]>::to_vec).collect()
        };
        Ok(())
    }

    /// Adds the first rows of some blocks.
    fn add_blocks(&mut self, table: &Arc<Table>, tx: &Transaction) -> Result<()> {
        let columns = table.schema().visible_columns();
        let arrow = arrow_schema(columns, "UTC");
        let scan = table.column_scan(tx, (0..columns.len()).collect(), arrow, Vec::new())?;
        let Some(scan) = scan else { return Ok(()) };
        let morsels = scan.morsels();
        let step = morsels.len().div_ceil(RUNS).max(1);
        // Of few blocks more rows each.
        let run_rows = SAMPLE_ROWS_MAX / morsels.len().div_ceil(step).max(1);
        for morsel in morsels.into_iter().step_by(step) {
            let Some(batch) = scan.read(tx, morsel)? else { continue };
            let batch = batch.slice(0, batch.num_rows().min(run_rows));
            self.add_run(batch_to_rows(table.name(), columns, &batch)?);
        }
        Ok(())
    }

    /// Adds the first rows behind some keys; of a small table all rows.
    fn add_ranges(&mut self, table: &Arc<Table>, tx: &Transaction) -> Result<()> {
        let splits = table.state().split_points(RUNS);
        let is_small = table.estimated_rows() <= SAMPLE_ROWS_MAX as u64;
        if splits.is_empty() || is_small || table.has_row_groups() {
            let mut rows = Vec::new();
            let mut cursor = table.scan(ScanRange::full());
            let push = |rows: &mut Vec<Row>, row: Row| {
                if rows.len() < SAMPLE_ROWS_MAX {
                    rows.push(row);
                }
            };
            while rows.len() < SAMPLE_ROWS_MAX
                && cursor.next_batch(tx, |row| push(&mut rows, row.to_row()))?
            {}
            self.is_complete = rows.len() < SAMPLE_ROWS_MAX;
            rows.chunks(RUN_ROWS).for_each(|run| self.add_run(run.to_vec()));
            return Ok(());
        }
        let step = splits.len().div_ceil(RUNS).max(1);
        for split in splits.into_iter().step_by(step).take(RUNS) {
            let range = KeyRange { lower: Bound::Included(split), upper: Bound::Unbounded };
            let (mut cursor, mut rows) = (table.scan_within(range), Vec::new());
            let push = |rows: &mut Vec<Row>, row: Row| {
                if rows.len() < RUN_ROWS {
                    rows.push(row);
                }
            };
            while rows.len() < RUN_ROWS && cursor.next_batch(tx, |row| push(&mut rows, row.to_row()))? {}
            self.add_run(rows);
        }
        Ok(())
    }

    fn add_run(&mut self, rows: Vec<Row>) {
        if !rows.is_empty() {
            let first = self.rows.len();
            self.rows.extend(rows);
            self.runs.push(first..self.rows.len());
        }
    }
}
