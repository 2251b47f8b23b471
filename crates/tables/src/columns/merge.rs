//! Merging: rows of the delta store become row groups, and small or half-deleted row groups become larger ones.
//!
//! ```text
//!   delta store, in key order      live rows ──▶ new row group
//!                                  tombstones, replaced rows ──▶ deleted rows of older row groups
//!   row groups that are small      live rows ──▶ new row group, the old ones are removed
//!   of another layout              live rows ──▶ blocks, or row groups in key order, with an Elf or without
//! ```
//!
//! Each step is one transaction of at most [`GROUP_ROWS`] rows, so that readers see the table before or after it,
//! and a crash leaves either. A step takes every key that it merges out of the delta store, so it conflicts with
//! a transaction that writes one of the rows; it is tried again, then with fewer rows, then left to the next
//! merge. Writers of other rows go on. Rows that row groups give up stay where a delta store overrides them: the
//! key decides, not the place.
//!
//! One merge of a table runs at a time. Memory: the rows of a step, encoded and as arrays; if the budget has no room for
//! the row group, a step takes fewer rows.

use crate::batch::decode::StoredRows;
use crate::columns::clustering::store::Clustering;
use crate::columns::find::RowPlace;
use crate::columns::group::{GROUP_ROWS, RowGroup, RowSet};
use crate::columns::page::BLOCK_ROWS;
use crate::columns::scan::whole_schema;
use crate::columns::store::{ColumnStore, PAGE_BYTES_MAX};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::table::stored::TOMBSTONE;
use arrow_array::{ArrayRef, RecordBatch};
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Number of rows in the delta store at which a merge is due.
const DUE_ROWS: u64 = 64 << 10;
/// Bytes of rows of a step at which it ends, however few they are.
const STEP_BYTES: usize = 64 << 20;
/// Number of tries of a step, each but the first with a quarter of the rows.
const TRIES: usize = 4;
/// Rows of a step for which the memory budget has to have room.
const ROWS_FIT_MIN: usize = 2048;
/// Rows with which a row group is not merged again.
const FULL_ROWS: u64 = GROUP_ROWS as u64 / 2;

/// Counts of a merge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Rows that were written into row groups.
    pub rows: u64,
    /// Rows of row groups that were found deleted or replaced.
    pub deleted: u64,
    /// Steps that were given up because of writers of the same rows.
    pub conflicts: u64,
}

/// Entries of a delta store that are merged in a step.
struct Step {
    keys: Vec<KeyBytes>,
    /// Number of each key whose row is not deleted, in order.
    live: Vec<usize>,
    rows: StoredRows,
    bytes: usize,
}

impl Table {
    /// Returns true if so many rows were written since the last merge that another one is worth it; false for
    /// a table without row groups.
    pub fn is_merge_due(&self) -> bool {
        let Some(columns) = self.own_columns().filter(|columns| !columns.lifetime.is_draining()) else {
            return false;
        };
        let has_loaded = |clustering: &Clustering| clustering.loaded() >= DUE_ROWS;
        if columns.is_misplaced()
            || (columns.has_blocks() && columns.clustering.get().is_some_and(has_loaded))
        {
            return true;
        }
        let written = self.state().estimated_keys();
        columns.small_groups() >= 2 * (GROUP_ROWS / BLOCK_ROWS) as u64
            || written >= columns.merged_until(written) + DUE_ROWS
    }

    /// Merges all rows of the delta store into row groups, and small row groups into larger ones. `progress` is
    /// called after each step; an error of it ends the merge between two steps. Nothing happens in a table
    /// without row groups.
    pub fn merge(
        self: &Arc<Table>,
        mut progress: impl FnMut(&MergeStats) -> Result<()>,
    ) -> Result<MergeStats> {
        let mut stats = MergeStats::default();
        let Some(columns) = self.own_columns() else { return Ok(stats) };
        let _merging = columns.merging.lock();
        if columns.lifetime.is_draining() || columns.lifetime.has_ended() {
            return Ok(stats);
        }
        self.first_scheme(columns)?;
        let (mut from, mut rows_max): (Option<KeyBytes>, usize) = (None, GROUP_ROWS);
        loop {
            let next = self.merge_step(columns, (from.as_ref(), &mut rows_max), &mut stats)?;
            progress(&stats)?;
            match next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        if columns.has_blocks() {
            self.recluster(columns, &mut stats, &mut progress)?;
        } else {
            self.order_by_key(columns, &mut stats, &mut progress)?;
            self.write_in_form(columns, &mut stats, &mut progress)?;
            while self.compact(columns, &mut stats)? {
                progress(&stats)?;
            }
            columns.count_other_kind()?;
        }
        columns.note_merge(self.state().estimated_keys());
        Ok(stats)
    }

    /// Merges the rows from a key on, at most so many, or fewer for this and later steps if the memory budget has no room
    /// for them; returns the key at which the next step begins.
    fn merge_step(
        &self,
        columns: &ColumnStore,
        (from, rows_fit): (Option<&KeyBytes>, &mut usize),
        stats: &mut MergeStats,
    ) -> Result<Option<KeyBytes>> {
        let mut rows_max = *rows_fit;
        for _ in 0..TRIES {
            let tx = columns.begin_move()?;
            let (step, next) = self.collect(&tx, from, rows_max)?;
            if step.keys.is_empty() {
                return Ok(next);
            }
            let merged = self.merge_rows(columns, &tx, step);
            match merged.and_then(|merged| Ok(tx.commit(Durability::None).map(|_| merged)?)) {
                Ok((rows, deleted)) => {
                    stats.rows += rows;
                    stats.deleted += deleted;
                    return Ok(next);
                }
                Err(error) if error.is_memory_limit() && rows_max > ROWS_FIT_MIN => {
                    rows_max = (rows_max / 4).max(ROWS_FIT_MIN);
                    *rows_fit = rows_max;
                }
                Err(error) if error.is_conflict() => rows_max = (rows_max / 4).max(1),
                Err(error) => return Err(error),
            }
        }
        stats.conflicts += 1;
        // The rows stay where they are.
        let tx = columns.begin()?;
        Ok(self.collect(&tx, from, rows_max)?.1)
    }

    /// Entries of the delta store from a key on, and the key behind them.
    fn collect(
        &self,
        tx: &Transaction,
        from: Option<&KeyBytes>,
        rows_max: usize,
    ) -> Result<(Step, Option<KeyBytes>)> {
        self.check_readable(tx)?;
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let rows = StoredRows::new(self.name(), self.schema(), &all, whole_schema(self), 0);
        let mut step = Step { keys: Vec::new(), live: Vec::new(), rows, bytes: 0 };
        let lower = from.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let (mut position, mut next) = (None, None);
        while next.is_none()
            && tx.scan_batch(self.state(), &range, &mut position, |key, value| {
                if next.is_some() {
                    return;
                }
                if step.keys.len() >= rows_max || step.bytes >= STEP_BYTES {
                    next = Some(KeyBytes::from_slice(key));
                    return;
                }
                if value != TOMBSTONE {
                    step.live.push(step.keys.len());
                    step.rows.push(key, value);
                }
                step.bytes += key.len() + value.len();
                step.keys.push(KeyBytes::from_slice(key));
            })?
        {}
        Ok((step, next))
    }

    /// Writes the rows of a step; returns their number, and how many of row groups they replace.
    fn merge_rows(&self, columns: &ColumnStore, tx: &Transaction, mut step: Step) -> Result<(u64, u64)> {
        let groups = columns.groups(tx)?;
        let mut replaced: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let places = columns.locate(tx, self.named_schema(), &groups, &step.keys)?;
        for place in places.iter().flatten() {
            replaced.entry(place.group).or_default().push(place.row);
        }
        if let Some(state) = columns.places() {
            let is_placed =
                |place: &Option<RowPlace>| place.is_some_and(|at| groups[at.group].cluster.is_some());
            let mut gone: Vec<bool> = places.iter().map(is_placed).collect();
            if columns.has_blocks() {
                // They get other places.
                step.live.iter().for_each(|live| gone[*live] = false);
            }
            let mut gone = step.keys.iter().zip(gone).filter(|(_, is_gone)| *is_gone);
            gone.try_for_each(|(key, _)| tx.write(state, key, None))?;
        }
        let mut deleted = 0;
        for (at, rows) in replaced {
            let group = &groups[at];
            deleted += rows.len() as u64;
            let mut set = columns.deleted(tx, group)?.unwrap_or_else(|| RowSet::new(group.rows as usize));
            for row in rows {
                let added = set.insert(row);
                debug_assert!(added, "the replaced row {row} of row group {} was there", group.number);
            }
            if set.len() == group.rows as usize {
                columns.remove_group(tx, group)?;
            } else {
                columns.write_deleted(tx, group, &set)?;
            }
        }
        let live = step.live.len() as u64;
        if live > 0 {
            let batch = step.rows.finish()?;
            columns.write_rows(tx, self.named_schema(), &[batch.columns().to_vec()])?;
        }
        for key in &step.keys {
            tx.write(self.state(), key, None)?;
        }
        Ok((live, deleted))
    }

    /// Merges some row groups into one; false if none needs it.
    fn compact(&self, columns: &Arc<ColumnStore>, stats: &mut MergeStats) -> Result<bool> {
        let tx = columns.begin_move()?;
        self.check_readable(&tx)?;
        let chosen = self.chosen_for_compaction(columns, &tx)?;
        if chosen.is_empty() {
            return Ok(false);
        }
        let overlap = chosen.windows(2).any(|pair| pair[0].last >= pair[1].first);
        let pieces = if overlap {
            self.sorted_rows(columns, &tx, &chosen)?
        } else {
            self.rows_in_order(columns, &tx, &chosen)?
        };
        let written = match columns.write_rows(&tx, self.named_schema(), &pieces) {
            // They stay small.
            Err(error) if error.is_memory_limit() => return Ok(false),
            written => written?,
        };
        if written >= chosen.len().max(2) {
            // Encoded together they are not fewer.
            return Ok(false);
        }
        chosen.iter().try_for_each(|group| columns.remove_group(&tx, group))?;
        match tx.commit(Durability::None).map_err(Error::from) {
            Ok(_) => {}
            // No other merge writes row groups: the table was redefined.
            Err(error) if error.is_conflict() => return Ok(false),
            Err(error) => return Err(error),
        }
        stats.rows += chosen.iter().map(RowGroup::live_rows).sum::<u64>();
        chosen.iter().for_each(|group| columns.forget(group.number));
        Ok(true)
    }

    /// Rows of row groups in their order.
    pub(super) fn rows_in_order(
        &self,
        columns: &ColumnStore,
        tx: &Transaction,
        groups: &[RowGroup],
    ) -> Result<Vec<Vec<ArrayRef>>> {
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let mut pieces = Vec::new();
        for group in groups {
            let (rows, deleted) = (group.rows as usize, columns.deleted(tx, group)?);
            for block in 0..rows.div_ceil(BLOCK_ROWS) {
                tx.check_running()?;
                let first = block * BLOCK_ROWS;
                let in_block = BLOCK_ROWS.min(rows - first) as u32;
                let live: Option<Vec<u32>> = deleted.as_ref().map(|deleted| {
                    (0..in_block).filter(|row| !deleted.contains(first + *row as usize)).collect()
                });
                if live.as_ref().is_some_and(Vec::is_empty) {
                    continue;
                }
                pieces.push(columns.arrays(tx, self.schema(), group, (block, live.as_deref()), &all)?);
            }
        }
        Ok(pieces)
    }

    /// Rows of row groups that overlap, in key order.
    fn sorted_rows(
        &self,
        columns: &Arc<ColumnStore>,
        tx: &Transaction,
        groups: &[RowGroup],
    ) -> Result<Vec<Vec<ArrayRef>>> {
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let mut stored = StoredRows::new(self.name(), self.schema(), &all, whole_schema(self), BLOCK_ROWS);
        let mut cursor = crate::columns::cursor::GroupCursor::of(
            columns,
            groups.to_vec(),
            KeyRange::full(),
            Direction::Forward,
        );
        let mut pieces: Vec<RecordBatch> = Vec::new();
        while cursor.peek(tx, self.named_schema())?.is_some() {
            cursor.take(tx, self.named_schema(), |key, value| stored.push(key, value))?;
            if stored.is_batch(BLOCK_ROWS) {
                tx.check_running()?;
                pieces.push(stored.finish()?);
            }
        }
        if !stored.is_empty() {
            pieces.push(stored.finish()?);
        }
        Ok(pieces.into_iter().map(|batch| batch.columns().to_vec()).collect())
    }

    /// Row groups to be merged into one, in the order of their first keys: as many small ones as one can hold,
    /// or one that is mostly deleted.
    fn chosen_for_compaction(&self, columns: &ColumnStore, tx: &Transaction) -> Result<Vec<RowGroup>> {
        let mut groups = columns.groups(tx)?;
        groups.retain(|group| group.cluster.is_none() && group.live_rows() < FULL_ROWS);
        groups.sort_by(|a, b| a.first.cmp(&b.first));
        let (mut rows, mut chosen) = (0, Vec::new());
        let mut column_bytes: BTreeMap<u16, usize> = BTreeMap::new();
        for group in &groups {
            rows += group.live_rows();
            for column in &columns.summary(tx, group.number)?.columns {
                *column_bytes.entry(column.column).or_default() += column.bytes as usize;
            }
            if rows > GROUP_ROWS as u64 || column_bytes.values().any(|bytes| *bytes > PAGE_BYTES_MAX) {
                break;
            }
            chosen.push(group.clone());
        }
        if chosen.len() >= 2 {
            return Ok(chosen);
        }
        let is_mostly_deleted = |group: &RowGroup| group.live_rows() * 2 < u64::from(group.rows);
        Ok(groups.into_iter().filter(is_mostly_deleted).take(1).collect())
    }
}
