//! Reclustering: blocks of several loads and merges, whose ranges of cluster keys overlap, become blocks that do not.
//!
//! ```text
//!   key space      0 ─────────────────────────────▶
//!   two merges     ├──────────┤├─────────┤            wide blocks: one class
//!                  ├─────┤├──────────┤├──┤
//!   a window ──▶   ├──┤├──┤├──┤├───┤├────┤            half as wide: another class
//!   older blocks   ├┤├┤├┤├┤├┤├┤├┤├┤├┤├┤├┤             narrow ones, left as they are
//! ```
//!
//! - Blocks are looked at class by class, those of a class about as wide as each other, in windows of at most
//!   [`WINDOW_ROWS`] rows in key order. A window is written anew if a key is in [`DEPTH_MAX`] of its blocks on average.
//!   So a row is written again when as many rows have come as lie between its class and the next: some
//!   `log2(rows / rows of a merge)` times, not once for each merge.
//! - Blocks of an older scheme, and row groups in key order, are written anew with the newest one; blocks that are
//!   mostly deleted, or small and next to each other, become one.
//! - Each window is a transaction, or several where the memory budget has no room for one, which also move the places
//!   of its rows; each class is passed once, so a merge ends. Only merges remove blocks, one at a time, so no window is
//!   disturbed by another; loads add blocks beside it.

use crate::batch::decode::StoredRows;
use crate::columns::clustering::scheme::Scheme;
use crate::columns::clustering::store::BlockDivision;
use crate::columns::group::{ClusterRange, GROUP_ROWS, RowGroup, RowSet};
use crate::columns::merge::MergeStats;
use crate::columns::page::BLOCK_ROWS;
use crate::columns::scan::whole_schema;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::schema::clustering::ClusteringDefinition;
use crate::table::Table;
use crate::table::stored::TOMBSTONE;
use arrow_array::ArrayRef;
use entresol_memory::Durability;
use entresol_transactions::{KeyRange, Transaction};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of rows of a window.
const WINDOW_ROWS: u64 = GROUP_ROWS as u64;
/// Average number of blocks with a key at which a window is written anew.
const DEPTH_MAX: f64 = 1.8;
/// Ratio of the widths of two classes, as a number of bits.
const CLASS_BITS: u32 = 2;
/// Number of rows from which a scheme is made.
const SAMPLE_ROWS: u64 = 64 << 10;
/// Number of rows, as they are stored, from which the first scheme of a merge is made; some MiB at most.
const FIRST_SAMPLE_ROWS: u64 = 16 << 10;
/// Share of the rows of a full block below which a block is small, as a divisor.
const SMALL_SHARE: u64 = 4;

/// Rows of a part of a row group for which the memory budget has to have room.
const PART_ROWS_MIN: usize = 512;

/// Width of the range of a block's keys: 0 for one key.
fn width(range: &ClusterRange) -> u64 {
    range.greatest - range.least
}

/// Class of a block: those of one are within a factor of about as wide as each other. None for a single key.
fn class(range: &ClusterRange) -> Option<u32> {
    (width(range) > 0).then(|| width(range).ilog2() / CLASS_BITS)
}

/// Average number of blocks with a key, of those in which some key is; blocks are in the order of their keys.
fn depth(ranges: &[ClusterRange]) -> f64 {
    let (mut covered, mut total, mut until) = (0.0, 0.0, 0);
    for range in ranges {
        total += width(range) as f64;
        covered += range.greatest.saturating_sub(range.least.max(until)) as f64;
        until = until.max(range.greatest);
    }
    if covered == 0.0 { 1.0 } else { total / covered }
}

/// Blocks from a position on with so many rows together.
fn window(groups: &[RowGroup], from: usize) -> &[RowGroup] {
    let mut rows = 0;
    let fits = |group: &&RowGroup| {
        rows += group.live_rows();
        rows <= WINDOW_ROWS
    };
    let count = groups[from..].iter().take_while(fits).count().max(1);
    &groups[from..from + count]
}

/// Windows to be written anew, of the blocks of a scheme in the order of their keys.
fn overlapping(groups: &[RowGroup]) -> Vec<Vec<RowGroup>> {
    let class_of = |group: &RowGroup| group.cluster.as_ref().and_then(class);
    let mut classes: Vec<u32> = groups.iter().filter_map(class_of).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut chosen = Vec::new();
    for class in classes.into_iter().rev() {
        let of_class: Vec<RowGroup> =
            groups.iter().filter(|group| class_of(group) == Some(class)).cloned().collect();
        let mut from = 0;
        while from < of_class.len() {
            let window = window(&of_class, from);
            let ranges: Vec<ClusterRange> = window.iter().filter_map(|group| group.cluster).collect();
            if window.len() > 1 && depth(&ranges) >= DEPTH_MAX {
                chosen.push(window.to_vec());
                from += window.len();
            } else {
                // The next one begins in the middle, so that no overlap is always at an end.
                from += window.len().div_ceil(2);
            }
        }
    }
    chosen
}

/// Blocks that are mostly deleted, alone, and small ones next to each other, together.
fn sparse(groups: &[RowGroup]) -> Vec<Vec<RowGroup>> {
    let full = groups.iter().map(|group| u64::from(group.rows)).max().unwrap_or(0);
    let is_small = |group: &RowGroup| group.live_rows() < full / SMALL_SHARE;
    let mut chosen: Vec<Vec<RowGroup>> = Vec::new();
    let mut rows = full;
    for group in groups {
        let follows = is_small(group) && rows + group.live_rows() <= full / 2;
        match chosen.last_mut() {
            Some(run) if follows => run.push(group.clone()),
            _ if is_small(group) => {
                chosen.push(vec![group.clone()]);
                rows = 0;
            }
            _ => {
                if group.live_rows() * 2 < u64::from(group.rows) {
                    chosen.push(vec![group.clone()]);
                }
                rows = full;
            }
        }
        rows += group.live_rows();
    }
    chosen.retain(|run| run.len() > 1 || run[0].live_rows() * 2 < u64::from(run[0].rows));
    chosen
}

impl Table {
    /// Makes the first scheme of a clustered table of a sample of the rows that are to be merged.
    pub(crate) fn first_scheme(self: &Arc<Table>, columns: &ColumnStore) -> Result<()> {
        let Some(definition) = columns.clustering_definition() else { return Ok(()) };
        if columns.current_scheme(&definition, self.schema())?.is_some() {
            return Ok(());
        }
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        if !columns.groups(&tx)?.is_empty() {
            drop(tx);
            return self.renew_scheme(columns, &definition);
        }
        let step = (self.state().estimated_keys() / FIRST_SAMPLE_ROWS).max(1);
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let mut sample = StoredRows::new(self.name(), self.schema(), &all, whole_schema(self), 0);
        let (mut rows, mut from) = (0, None);
        while tx.scan_batch(self.state(), &KeyRange::full(), &mut from, |key, value| {
            if value != TOMBSTONE {
                if rows % step == 0 && !sample.is_batch(usize::MAX) {
                    sample.push(key, value);
                }
                rows += 1;
            }
        })? {
            tx.check_running()?;
        }
        if sample.is_empty() {
            return Ok(());
        }
        let batch = sample.finish()?;
        columns.make_scheme(&definition, self.named_schema(), &[batch.columns().to_vec()], rows).map(drop)
    }

    /// Writes blocks anew that overlap, are of an older scheme, small or mostly deleted, and row groups in key order as
    /// blocks.
    pub(crate) fn recluster(
        self: &Arc<Table>,
        columns: &Arc<ColumnStore>,
        stats: &mut MergeStats,
        progress: &mut impl FnMut(&MergeStats) -> Result<()>,
    ) -> Result<()> {
        let Some(definition) = columns.clustering_definition() else { return Ok(()) };
        self.renew_scheme(columns, &definition)?;
        let Some(scheme) = columns.current_scheme(&definition, self.schema())? else { return Ok(()) };
        for choose in [older, overlapping_of, sparse_of] {
            let chosen = choose(&self.blocks(columns)?, &scheme);
            for window in chosen {
                if !self.rewrite_within_budget(columns, &window, stats)? {
                    return Ok(());
                }
                progress(stats)?;
            }
        }
        columns.clustering.get().iter().for_each(|clustering| clustering.note_merge());
        columns.count_other_kind()
    }

    /// Blocks in the order of their keys.
    fn blocks(&self, columns: &ColumnStore) -> Result<Vec<RowGroup>> {
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        let mut groups = columns.groups(&tx)?;
        groups.sort_by_key(|group| group.cluster.map(|range| (range.scheme, range.least, range.greatest)));
        Ok(groups)
    }

    /// Makes a scheme of a sample of the rows, if the table has outgrown the newest one or that is of other dimensions.
    fn renew_scheme(&self, columns: &ColumnStore, definition: &ClusteringDefinition) -> Result<()> {
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        let groups = columns.groups(&tx)?;
        let rows: u64 = groups.iter().map(RowGroup::live_rows).sum();
        if !columns.is_outgrown(definition, self.schema(), rows)? {
            return Ok(());
        }
        let step = (rows / SAMPLE_ROWS).max(1) as usize;
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let mut pieces: Vec<Vec<ArrayRef>> = Vec::new();
        for group in &groups {
            for block in 0..(group.rows as usize).div_ceil(BLOCK_ROWS) {
                tx.check_running()?;
                let in_block = BLOCK_ROWS.min(group.rows as usize - block * BLOCK_ROWS) as u32;
                let sample: Vec<u32> = (0..in_block).step_by(step).collect();
                pieces.push(columns.arrays(&tx, self.schema(), group, (block, Some(&sample)), &all)?);
            }
        }
        columns.make_scheme(definition, self.named_schema(), &pieces, rows).map(drop)
    }

    /// Writes the rows of some blocks as new ones, or parts of them one after another where the memory budget has no
    /// room for all; false if the table was redefined meanwhile.
    fn rewrite_within_budget(
        self: &Arc<Table>,
        columns: &Arc<ColumnStore>,
        window: &[RowGroup],
        stats: &mut MergeStats,
    ) -> Result<bool> {
        match self.rewrite(columns, window, stats) {
            Err(error) if error.is_memory_limit() && window.len() > 1 => {
                let (first, second) = window.split_at(window.len() / 2);
                Ok(self.rewrite_within_budget(columns, first, stats)?
                    && self.rewrite_within_budget(columns, second, stats)?)
            }
            Err(error) if error.is_memory_limit() && window[0].cluster.is_none() => {
                self.rewrite_by_parts(columns, (&window[0], BLOCK_ROWS), stats)
            }
            // It stays as it is.
            Err(error) if error.is_memory_limit() => Ok(true),
            rewritten => rewritten,
        }
    }

    /// Writes the rows of a row group in key order as blocks, those of one part after another, each of so many rows at most,
    /// or of fewer where the memory budget has no room for them; false if the table was redefined meanwhile.
    pub(super) fn rewrite_by_parts(
        self: &Arc<Table>,
        columns: &Arc<ColumnStore>,
        (group, mut rows_max): (&RowGroup, usize),
        stats: &mut MergeStats,
    ) -> Result<bool> {
        let (mut first, rows) = (0, group.rows as usize);
        while first < rows {
            let block_end = (first / BLOCK_ROWS + 1) * BLOCK_ROWS;
            let end = (first + rows_max).min(block_end).min(rows);
            match self.rewrite_part(columns, (group, first..end), stats) {
                Ok(true) => first = end,
                Err(error) if error.is_memory_limit() && rows_max > PART_ROWS_MIN => {
                    rows_max = (rows_max / 4).max(PART_ROWS_MIN);
                }
                // The others stay as they are.
                Err(error) if error.is_memory_limit() => return Ok(true),
                // No other merge writes row groups: the table was redefined.
                Err(error) if error.is_conflict() => return Ok(false),
                other => return other,
            }
        }
        Ok(true)
    }

    /// Writes some rows of one block of a row group's pages as blocks; false if the table is clustered no more.
    fn rewrite_part(
        self: &Arc<Table>,
        columns: &Arc<ColumnStore>,
        (group, rows): (&RowGroup, Range<usize>),
        stats: &mut MergeStats,
    ) -> Result<bool> {
        let Some(definition) = columns.clustering_definition() else { return Ok(false) };
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        let Some(window) = present(columns, &tx, std::slice::from_ref(group))? else { return Ok(true) };
        let group = &window[0];
        let mut gone = columns.deleted(&tx, group)?.unwrap_or_else(|| RowSet::new(group.rows as usize));
        let block = rows.start / BLOCK_ROWS;
        let live = rows.clone().filter(|row| !gone.contains(*row));
        let live: Vec<u32> = live.map(|row| (row - block * BLOCK_ROWS) as u32).collect();
        if live.is_empty() {
            return Ok(true);
        }
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let arrays = columns.arrays(&tx, self.schema(), group, (block, Some(&live)), &all)?;
        let filled = (&*definition, BlockDivision::Filled);
        columns.write_clustered(&tx, self.named_schema(), &[arrays], filled)?;
        rows.for_each(|row| {
            gone.insert(row);
        });
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
        stats.rows += live.len() as u64;
        Ok(true)
    }

    /// Writes the rows of some blocks as new ones; false if the table was redefined meanwhile.
    fn rewrite(
        self: &Arc<Table>,
        columns: &Arc<ColumnStore>,
        window: &[RowGroup],
        stats: &mut MergeStats,
    ) -> Result<bool> {
        let Some(definition) = columns.clustering_definition() else { return Ok(false) };
        let tx = columns.begin()?;
        self.check_readable(&tx)?;
        let Some(window) = present(columns, &tx, window)? else { return Ok(true) };
        let pieces = self.rows_in_order(columns, &tx, &window)?;
        if pieces.iter().any(|piece| piece.first().is_some_and(|array| !array.is_empty())) {
            let split = (&*definition, BlockDivision::Split(definition.split));
            columns.write_clustered(&tx, self.named_schema(), &pieces, split)?;
        }
        window.iter().try_for_each(|group| columns.remove_group(&tx, group))?;
        match tx.commit(Durability::None).map_err(Error::from) {
            Ok(_) => {}
            // No other merge writes row groups: the table was redefined.
            Err(error) if error.is_conflict() => return Ok(false),
            Err(error) => return Err(error),
        }
        stats.rows += window.iter().map(RowGroup::live_rows).sum::<u64>();
        window.iter().for_each(|group| columns.forget(group.number));
        Ok(true)
    }
}

/// Row groups as the directory has them; none if one is gone.
fn present(columns: &ColumnStore, tx: &Transaction, window: &[RowGroup]) -> Result<Option<Vec<RowGroup>>> {
    let groups = columns.groups(tx)?;
    let find = |group: &RowGroup| {
        let at = groups.binary_search_by_key(&group.number, |known| known.number).ok()?;
        Some(groups[at].clone())
    };
    Ok(window.iter().map(find).collect())
}

/// Windows of the blocks of older schemes.
fn older(groups: &[RowGroup], scheme: &Arc<Scheme>) -> Vec<Vec<RowGroup>> {
    let is_older = |group: &&RowGroup| group.cluster.is_none_or(|range| range.scheme != scheme.version);
    let older: Vec<RowGroup> = groups.iter().filter(is_older).cloned().collect();
    let (mut chosen, mut from) = (Vec::new(), 0);
    while from < older.len() {
        let window = window(&older, from);
        chosen.push(window.to_vec());
        from += window.len();
    }
    chosen
}

fn overlapping_of(groups: &[RowGroup], _scheme: &Arc<Scheme>) -> Vec<Vec<RowGroup>> {
    overlapping(groups)
}

fn sparse_of(groups: &[RowGroup], _scheme: &Arc<Scheme>) -> Vec<Vec<RowGroup>> {
    sparse(groups)
}
