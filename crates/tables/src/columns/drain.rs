//! Draining: rows of row groups go back to the state of the table's rows, until there is no row group.
//!
//! ```text
//!   row group      live rows that the delta store does not override ──▶ delta store
//!                  all that were looked at ──▶ deleted; the row group is removed with the last; of blocks
//!                  their places are removed, too
//!   delta store    tombstones are removed, once no row group is left beneath them
//! ```
//!
//! Each step is one transaction of at most [`STEP_ROWS`] rows, or some [`STEP_BYTES`], so that readers see the table
//! before or after it, and a crash leaves either. It writes each key that it moves: so it conflicts with a
//! transaction that writes the row, and is tried again with fewer rows. Writers of other rows go on.
//!
//! Memory: the rows of a step.

use crate::columns::group::{RowGroup, RowSet};
use crate::columns::merge::MergeStats;
use crate::columns::page::BLOCK_ROWS;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::table::stored::TOMBSTONE;
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{Cancellation, KeyRange, Transaction};
use std::time::Duration;

/// Rows of a step.
const STEP_ROWS: usize = BLOCK_ROWS;
/// Bytes of rows at which a step ends, however few they are.
const STEP_BYTES: usize = 16 << 20;
/// Rows that are decoded at a time.
const PART_ROWS: usize = 1024;
/// Attempts of a step while others write its rows.
const ATTEMPTS_MAX: u32 = 200;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Returns true if fewer rows, or a later time, may do.
fn may_succeed(error: &Error) -> bool {
    error.is_memory_limit() || matches!(error, Error::Transactions(error) if error.is_retryable())
}

/// Runs steps of at most so many rows, fewer after each conflict, until one returns `None`; an attempt that fails
/// changes nothing.
fn repeated<T>(
    statement: &Cancellation,
    rows_max: usize,
    mut step: impl FnMut(usize) -> Result<Option<T>>,
    mut done: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut attempt = 0;
    loop {
        statement.check()?;
        match step((rows_max >> attempt.min(16)).max(1)) {
            Ok(None) => return Ok(()),
            Ok(Some(moved)) => {
                attempt = 0;
                done(moved)?;
            }
            Err(error) if may_succeed(&error) && attempt + 1 < ATTEMPTS_MAX => {
                attempt += 1;
                let pause = Duration::from_micros(100).saturating_mul(1 << attempt.min(16));
                std::thread::sleep(pause.min(PAUSE_MAX));
            }
            Err(error) => return Err(error),
        }
    }
}

impl Table {
    /// Moves all rows of the row groups into the delta store. The caller has begun to drain the store, and refused
    /// those who wrote row groups before.
    pub(crate) fn drain(
        &self,
        columns: &ColumnStore,
        statement: &Cancellation,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<MergeStats> {
        assert!(columns.lifetime.is_draining(), "no new row groups are written meanwhile");
        let mut stats = MergeStats::default();
        repeated(
            statement,
            STEP_ROWS,
            |rows_max| self.drain_step(columns, rows_max),
            |rows| {
                stats.rows += rows;
                progress(&stats)
            },
        )?;
        Ok(stats)
    }

    /// Moves some rows of a row group; returns their number, none if there is no row group.
    fn drain_step(&self, columns: &ColumnStore, rows_max: usize) -> Result<Option<u64>> {
        let tx = columns.begin_move()?;
        self.check_readable(&tx)?;
        let groups = columns.groups(&tx)?;
        let Some(group) = groups.first() else { return Ok(None) };
        let mut gone = columns.deleted(&tx, group)?.unwrap_or_else(|| RowSet::new(group.rows as usize));
        let (mut moved, mut bytes, mut looked_at) = (0, 0, 0);
        while looked_at < rows_max && bytes < STEP_BYTES {
            let part = first_live(group, &gone, PART_ROWS.min(rows_max - looked_at));
            let Some(&first) = part.first() else { break };
            let block = first / BLOCK_ROWS;
            let in_block: Vec<u32> = part.iter().map(|row| (row % BLOCK_ROWS) as u32).collect();
            let (rows, of_rows) = self.move_rows(columns, &tx, group, (block, &in_block))?;
            moved += rows;
            bytes += of_rows;
            looked_at += part.len();
            for row in part {
                let added = gone.insert(row);
                debug_assert!(added, "the row {row} that leaves row group {} was there", group.number);
            }
        }
        let is_empty = gone.len() == group.rows as usize;
        if is_empty {
            columns.remove_group(&tx, group)?;
        } else {
            columns.write_deleted(&tx, group, &gone)?;
        }
        tx.commit(Durability::None)?;
        if is_empty {
            columns.forget(group.number);
        }
        Ok(Some(moved))
    }

    /// Writes rows of a block into the delta store, but for those that it has or says are deleted. Returns their
    /// number and bytes.
    fn move_rows(
        &self,
        columns: &ColumnStore,
        tx: &Transaction,
        group: &RowGroup,
        of_block: (usize, &[u32]),
    ) -> Result<(u64, usize)> {
        let (keys, values) = columns.encoded_rows(tx, self.named_schema(), group, of_block)?;
        let mut moved = Vec::with_capacity(keys.len());
        tx.read_many(self.state(), &keys, |at, value| {
            if value.is_none() {
                moved.push(at);
            }
        })?;
        let rows = moved.iter().map(|&at| (&keys[at][..], values.get(at)));
        let bytes = rows.clone().map(|(key, value)| key.len() + value.len()).sum();
        tx.write_many(self.state(), rows)?;
        if let Some(places) = columns.places().filter(|_| group.cluster.is_some()) {
            keys.iter().try_for_each(|key| tx.write(places, key, None))?;
        }
        Ok((moved.len() as u64, bytes))
    }

    /// Removes the tombstones of a delta store without row groups beneath it. The caller has refused those who
    /// wrote while there were some.
    pub(crate) fn remove_tombstones(&self, columns: &ColumnStore, statement: &Cancellation) -> Result<()> {
        let mut from: Option<KeyBytes> = None;
        let mut is_done = false;
        repeated(
            statement,
            STEP_ROWS,
            |rows_max| {
                if is_done {
                    return Ok(None);
                }
                let mut next = from.clone();
                let more = self.remove_some_tombstones(columns, &mut next, rows_max)?;
                is_done = !more;
                from = next;
                Ok(Some(()))
            },
            |()| Ok(()),
        )
    }

    /// Removes tombstones from a key on; false if there are none behind those.
    fn remove_some_tombstones(
        &self,
        columns: &ColumnStore,
        from: &mut Option<KeyBytes>,
        rows_max: usize,
    ) -> Result<bool> {
        let tx = columns.begin_move()?;
        let (mut tombstones, mut more) = (Vec::new(), true);
        while more && tombstones.len() < rows_max {
            more = tx.scan_batch(self.state(), &KeyRange::full(), from, |key, value| {
                if value == TOMBSTONE {
                    tombstones.push(KeyBytes::from_slice(key));
                }
            })?;
        }
        tombstones.iter().try_for_each(|key| tx.write(self.state(), key, None))?;
        tx.commit(Durability::None)?;
        Ok(more)
    }
}

/// First rows of a row group that are not gone, all of one block.
fn first_live(group: &RowGroup, gone: &RowSet, rows_max: usize) -> Vec<usize> {
    let rows = group.rows as usize;
    let Some(first) = (0..rows).find(|row| !gone.contains(*row)) else { return Vec::new() };
    let end = (first / BLOCK_ROWS + 1).saturating_mul(BLOCK_ROWS).min(rows);
    (first..end).filter(|row| !gone.contains(*row)).take(rows_max).collect()
}
