//! Worth of an index of a table with row groups: it is used where it finds few rows.
//!
//! A row that an index finds costs a look into a block of each row group that spans its key, or into the one that its place
//! names, and a scan by columns reads all blocks ([`crate::cost`] has what both cost). So the entries within the bounds are counted, up to the number
//! at which the scan is cheaper.

use crate::columns::page::BLOCK_ROWS;
use crate::cost::{Design, MEASURED};
use crate::error::Result;
use crate::index::Index;
use crate::index::cursor::IndexBounds;
use crate::table::Table;
use entresol_transactions::Transaction;

/// Number of rows that are looked up however small the table is.
const ROWS_MIN: f64 = 4.0;
/// Values of a row that a scan is taken to read: which columns a query reads is not known here.
const VALUES: f64 = 2.0;

/// Number of rows up to which an index is used in a table of so many rows, of which one takes so many nanoseconds to be
/// looked up.
pub(crate) fn rows_max(rows: f64, point_ns: f64) -> f64 {
    let of_block = BLOCK_ROWS as f64 * (MEASURED.check + VALUES * MEASURED.value);
    let blocks = (rows / BLOCK_ROWS as f64).floor();
    (blocks * of_block / point_ns).floor().max(ROWS_MIN)
}

impl Table {
    /// Returns true if an index finds so few rows within bounds that looking them up is cheaper than a scan by columns.
    /// Cost: reading so many entries.
    pub fn finds_few(&self, tx: &Transaction, index: &Index, bounds: &[IndexBounds]) -> Result<bool> {
        let few = rows_max(self.estimated_rows() as f64, Design::of(self).point_ns()) as u64;
        let (state, mut found) = (index.state(self.name())?, 0_u64);
        for (lower, upper) in bounds {
            let Some(range) = index.range(self.name(), self.schema(), lower, upper)? else { continue };
            let mut from = None;
            while found <= few && tx.scan_batch(state, &range, &mut from, |_, _| found += 1)? {}
        }
        Ok(found <= few)
    }
}
