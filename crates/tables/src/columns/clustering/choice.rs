//! Choice of the iterator for a range of keys: row by row by the places of the keys, or block by block.
//!
//! ```text
//!   places   rows in the range of keys             x [`ROW_COST`]
//!   blocks   rows of the blocks that are left by pruning
//! ```
//!
//! Blocks are pruned as the scan would do it. Keys are counted, but no more than make blocks cheaper, so the choice
//! costs less than what it spares.

use crate::columns::clustering::prune::KeyPruning;
use crate::columns::condition::ColumnFilter;
use crate::columns::group::RowGroup;
use crate::cost::MEASURED;
use crate::error::Result;
use crate::table::Table;
use crate::table::range::ScanRange;
use entresol_transactions::{KeyRange, Transaction};
use std::fmt;

/// Values of a row that a scan is taken to read: which columns a query reads is not known here.
const VALUES: f64 = 2.0;
/// Cost of a row that is found by its place, in rows of a block that is scanned.
const ROW_COST: u64 = (MEASURED.place_row / (VALUES * MEASURED.value)) as u64;

/// Iterator for a range of keys of a clustered table, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IteratorChoice {
    /// By the places of so many keys.
    Places {
        /// Keys in the range.
        keys: u64,
        /// Rows of the blocks that would be read instead.
        block_rows: u64,
    },
    /// Block by block, since the range has more keys than are worth it.
    Blocks {
        /// Number of keys that would be worth it.
        keys_max: u64,
        /// Rows of the blocks.
        block_rows: u64,
    },
}

impl IteratorChoice {
    /// Returns true if rows are found by their places.
    pub fn is_by_places(&self) -> bool {
        matches!(self, IteratorChoice::Places { .. })
    }
}

impl fmt::Display for IteratorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IteratorChoice::Places { keys, block_rows } => {
                write!(f, "iterator=index ({keys} keys, blocks have {block_rows} rows)")
            }
            IteratorChoice::Blocks { keys_max, block_rows } => {
                write!(f, "iterator=blocks ({block_rows} rows, more than {keys_max} keys)")
            }
        }
    }
}

impl Table {
    /// Iterator for ranges of keys together with the filters of a scan; none for a table that is not clustered, and while it
    /// has row groups in key order too: their rows have no places to be counted by.
    pub fn choose_iterator(
        &self,
        tx: &Transaction,
        ranges: &[ScanRange],
        filters: &[ColumnFilter],
    ) -> Result<Option<IteratorChoice>> {
        self.check_readable(tx)?;
        let columns = self.own_columns().filter(|columns| columns.has_blocks());
        let Some((columns, places)) = columns.and_then(|columns| Some((columns, columns.places()?))) else {
            return Ok(None);
        };
        if !columns.ordered_groups(tx)?.is_empty() {
            return Ok(None);
        }
        let encode = |range: &ScanRange| range.encode(self.name(), self.schema()).transpose();
        let ranges: Vec<KeyRange> = ranges.iter().filter_map(encode).collect::<Result<_>>()?;
        let mut pruning = KeyPruning::new(columns, self.schema(), filters);
        let mut block_rows = 0;
        for group in columns.groups(tx)? {
            if is_reached(&group, &ranges) && pruning.may_have(&group)? {
                block_rows += u64::from(group.rows);
            }
        }
        let (keys_max, mut keys) = (block_rows / ROW_COST, 0);
        for range in &ranges {
            let mut from = None;
            while keys <= keys_max && tx.scan_batch(places, range, &mut from, |_, _| keys += 1)? {}
        }
        Ok(Some(if keys <= keys_max {
            IteratorChoice::Places { keys, block_rows }
        } else {
            IteratorChoice::Blocks { keys_max, block_rows }
        }))
    }
}

/// Returns true if a row group may have keys in one of the ranges.
fn is_reached(group: &RowGroup, ranges: &[KeyRange]) -> bool {
    ranges.iter().any(|range| range.reaches(&group.first) && range.begins_before(&group.last))
}
