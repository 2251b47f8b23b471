//! Worth of an index of a table with row groups: it is used where it finds few rows.
//!
//! A row that an index finds costs a look into a block of each row group that spans its key, and a scan by columns
//! reads all blocks, each at about an eighth of that. So the entries within the bounds are counted, up to the number
//! at which the scan is cheaper.

use crate::columns::page::BLOCK_ROWS;
use crate::error::Result;
use crate::index::Index;
use crate::index::cursor::IndexBounds;
use crate::table::Table;
use entresol_transactions::Transaction;

/// Number of blocks that are scanned in the time of one look-up.
const BLOCKS_OF_LOOKUP: u64 = 8;
/// Number of rows that are looked up however small the table is.
const ROWS_MIN: u64 = 4;

impl Table {
    /// Returns true if an index finds so few rows within bounds that looking them up is cheaper than a scan by columns.
    /// Cost: reading so many entries.
    pub fn finds_few(&self, tx: &Transaction, index: &Index, bounds: &[IndexBounds]) -> Result<bool> {
        let blocks = self.estimated_rows() / BLOCK_ROWS as u64;
        let few = (blocks / BLOCKS_OF_LOOKUP).max(ROWS_MIN);
        let (state, mut found) = (index.state(self.name())?, 0_u64);
        for (lower, upper) in bounds {
            let Some(range) = index.range(self.name(), self.schema(), lower, upper)? else { continue };
            let mut from = None;
            while found <= few && tx.scan_batch(state, &range, &mut from, |_, _| found += 1)? {}
        }
        Ok(found <= few)
    }
}
