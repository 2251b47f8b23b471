//! Size of operator state, estimated: rows by the index of the table, bytes by a sample of its first rows.

use crate::error::Result;
use entresol_tables::{Catalog, ScanRange, Table};
use std::sync::Arc;

/// Rows and bytes of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StateSize {
    pub(crate) rows: u64,
    /// Bytes of keys and values, without those of indexes and versions.
    pub(crate) bytes: u64,
}

/// Estimated size of a state table.
pub(crate) fn size_of(catalog: &Catalog, table: &Arc<Table>) -> Result<StateSize> {
    let transaction = catalog.begin()?;
    let (mut rows, mut bytes) = (0_u64, 0_u64);
    let mut cursor = table.scan(ScanRange::full());
    let mut more = true;
    // A batch may have no rows though others follow.
    while more && rows == 0 {
        more = cursor.next_batch(&transaction, |row| {
            rows += 1;
            bytes += row.encoded_bytes() as u64;
        })?;
    }
    if !more || rows == 0 {
        return Ok(StateSize { rows, bytes });
    }
    // Keys of deleted rows count until they are reclaimed.
    let keys = table.estimated_rows().max(rows);
    let all = u128::from(keys) * u128::from(bytes) / u128::from(rows);
    Ok(StateSize { rows: keys, bytes: u64::try_from(all).unwrap_or(u64::MAX) })
}

/// Estimated size of all state tables of a topology.
pub(crate) fn size_of_topology(catalog: &Catalog, topology: &str) -> Result<StateSize> {
    let mut size = StateSize::default();
    for name in entresol_streams::state_tables(catalog, topology) {
        // One may be dropped meanwhile.
        let Ok(table) = catalog.table(&name) else { continue };
        let of_table = size_of(catalog, &table)?;
        size = StateSize { rows: size.rows + of_table.rows, bytes: size.bytes + of_table.bytes };
    }
    Ok(size)
}
