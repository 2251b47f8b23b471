//! Rows of blocks go back into row groups in key order: what a merge does to a table that was `clustered` before.
//!
//! ```text
//!   places     key, key, key, ... ─▶ the rows of the next keys, wherever their blocks are
//!   blocks     those rows ──▶ deleted rows; a block is removed with its last one
//!              ──▶ a row group in key order, without places
//! ```
//!
//! Each step is one transaction of at most [`GROUP_ROWS`] rows, so readers see each row once, and a crash leaves both
//! kinds of row groups. Rows that the delta store overrides move as well: it goes on overriding them.
//!
//! Memory: the rows of a step as arrays, twice; if the budget has no room for them, a step takes fewer rows.

use crate::columns::clustering::store::RowLocation;
use crate::columns::group::{GROUP_ROWS, RowGroup, RowSet};
use crate::columns::merge::MergeStats;
use crate::columns::page::BLOCK_ROWS;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use crate::table::Table;
use arrow_array::{Array, ArrayRef};
use arrow_select::interleave::interleave;
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{KeyRange, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least number of rows of a step for which the memory budget has to have room.
const ROWS_FIT_MIN: usize = 2048;

/// Places of consecutive keys.
struct PlacedRows {
    keys: Vec<KeyBytes>,
    locations: Vec<RowLocation>,
}

impl Table {
    /// Moves all rows of blocks into row groups in key order.
    pub(crate) fn order_by_key(
        &self,
        columns: &Arc<ColumnStore>,
        stats: &mut MergeStats,
        progress: &mut impl FnMut(&MergeStats) -> Result<()>,
    ) -> Result<()> {
        if columns.places().is_none() {
            return Ok(());
        }
        let (mut from, mut rows_max) = (None, GROUP_ROWS);
        loop {
            let mut next = from.clone();
            match self.order_step(columns, &mut next, rows_max) {
                Ok(None) => return Ok(()),
                Ok(Some(rows)) => {
                    stats.rows += rows;
                    from = next;
                    progress(stats)?;
                }
                Err(error) if error.is_memory_limit() && rows_max > ROWS_FIT_MIN => {
                    rows_max = (rows_max / 4).max(ROWS_FIT_MIN);
                }
                // No other merge writes row groups: the table was redefined.
                Err(error) if error.is_conflict() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves the rows of the next keys; returns their number, none if there are none.
    fn order_step(
        &self,
        columns: &Arc<ColumnStore>,
        from: &mut Option<KeyBytes>,
        rows_max: usize,
    ) -> Result<Option<u64>> {
        let tx = columns.begin_move()?;
        self.check_readable(&tx)?;
        let placed = columns.next_places(&tx, from, rows_max)?;
        if placed.keys.is_empty() {
            return Ok(None);
        }
        let locations: Vec<Option<RowLocation>> = placed.locations.iter().copied().map(Some).collect();
        let groups = columns.groups_with(&tx, &locations)?;
        let arrays = self.placed_arrays(columns, &tx, &groups, &placed)?;
        columns.write_rows(&tx, self.named_schema(), &[arrays])?;
        let mut moved: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        placed.locations.iter().for_each(|at| moved.entry(at.group).or_default().push(at.row));
        let mut emptied = Vec::new();
        for group in &groups {
            let rows = moved.remove(&group.number).unwrap_or_default();
            let gone = columns.deleted(&tx, group)?;
            let mut gone = gone.unwrap_or_else(|| RowSet::new(group.rows as usize));
            for row in rows {
                let added = gone.insert(row as usize);
                debug_assert!(added, "the row {row} that leaves row group {} was there", group.number);
            }
            if gone.len() == group.rows as usize {
                columns.remove_group(&tx, group)?;
                emptied.push(group.number);
            } else {
                columns.write_deleted(&tx, group, &gone)?;
            }
        }
        if let Some(places) = columns.places() {
            placed.keys.iter().try_for_each(|key| tx.write(places, key, None))?;
        }
        tx.commit(Durability::None)?;
        emptied.into_iter().for_each(|group| columns.forget(group));
        Ok(Some(placed.keys.len() as u64))
    }

    /// Rows with these places, as arrays of all columns in the order of their keys.
    fn placed_arrays(
        &self,
        columns: &ColumnStore,
        tx: &Transaction,
        groups: &[RowGroup],
        placed: &PlacedRows,
    ) -> Result<Vec<ArrayRef>> {
        let locations: Vec<Option<RowLocation>> = placed.locations.iter().copied().map(Some).collect();
        let places = columns.places_within(groups, &locations)?;
        let mut order: Vec<(usize, usize, usize)> = (places.iter().enumerate())
            .filter_map(|(at, place)| place.map(|place| (place.group, place.row, at)))
            .collect();
        order.sort_unstable();
        let all: Vec<usize> = (0..self.schema().columns().len()).collect();
        let (mut pieces, mut at_of_row) = (Vec::new(), vec![(0, 0); order.len()]);
        let is_of_block = |a: &(usize, usize, usize), b: &(usize, usize, usize)| {
            (a.0, a.1 / BLOCK_ROWS) == (b.0, b.1 / BLOCK_ROWS)
        };
        for rows in order.chunk_by(is_of_block) {
            tx.check_running()?;
            let (group, block) = (rows[0].0, rows[0].1 / BLOCK_ROWS);
            let selected: Vec<u32> = rows.iter().map(|(_, row, _)| (row % BLOCK_ROWS) as u32).collect();
            for (within, (_, _, at)) in rows.iter().enumerate() {
                at_of_row[*at] = (pieces.len(), within);
            }
            let of_block = (block, Some(&selected[..]));
            pieces.push(columns.arrays(tx, self.schema(), &groups[group], of_block, &all)?);
        }
        let column = |column: usize| {
            let arrays: Vec<&dyn Array> =
                pieces.iter().map(|piece: &Vec<ArrayRef>| &*piece[column]).collect();
            interleave(&arrays, &at_of_row)
                .map_err(|error| crate::Error::InvalidSchema { reason: error.to_string() })
        };
        all.iter().map(|at| column(*at)).collect()
    }
}

impl ColumnStore {
    /// Places of the next keys from a position on, which moves behind them.
    fn next_places(
        &self,
        tx: &Transaction,
        from: &mut Option<KeyBytes>,
        rows_max: usize,
    ) -> Result<PlacedRows> {
        let mut placed = PlacedRows { keys: Vec::new(), locations: Vec::new() };
        let Some(places) = self.places_for(tx)? else { return Ok(placed) };
        let (mut is_damaged, mut more, mut next) = (false, true, None);
        while more && next.is_none() {
            more = tx.scan_batch(places, &KeyRange::full(), from, |key, place| {
                if placed.keys.len() >= rows_max {
                    next.get_or_insert_with(|| KeyBytes::from_slice(key));
                    return;
                }
                placed.keys.push(KeyBytes::from_slice(key));
                match RowLocation::from_bytes(place) {
                    Some(location) => placed.locations.push(location),
                    None => is_damaged = true,
                }
            })?;
        }
        if next.is_some() {
            *from = next;
        }
        if is_damaged { Err(self.damaged_place()) } else { Ok(placed) }
    }
}
