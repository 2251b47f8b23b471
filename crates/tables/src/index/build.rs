//! Building an index on a table with rows, concurrently with readers and writers.
//!
//! ```text
//!   refuse          batch 1     batch 2           last batch    catalog
//!   ──┼───────────────┼───────────┼────── … ─────────┼─────────────┼──▶
//!     writers maintain the index from here on                      readers use it from here on
//! ```
//!
//! No thread waits. Each batch is a serializable transaction that reads some rows and writes their entries:
//! if one of the rows was changed meanwhile, the batch fails and is repeated, smaller. A writer whose
//! snapshot is older than a batch and that changes an entry of it gets a conflict, because it deletes an
//! entry that the batch has written. So every batch leaves the entries of its rows as of one snapshot, and
//! writers maintain them from there.
//!
//! Of a table with row groups a batch reads these and the delta store in a range of keys. A row that is changed
//! meanwhile gets an entry in that part of the delta store, so the batch fails, as it does if rows are merged.
//!
//! A crash during the build leaves a state that no entry of the catalog names; the next open drops it.
//!
//! Memory: one batch, at most [`BUILD_ROWS`] rows and a leaf, or [`GROUPED_ROWS`] of row groups.

use crate::error::{Error, Result};
use crate::index::{Index, IndexEntry};
use crate::table::Table;
use crate::table::row_view::RowView;
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{Cancellation, Direction, Isolation, KeyRange, StateContext, Transaction};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Rows of a batch.
const BUILD_ROWS: usize = 1024;
/// Rows of a batch of a table with row groups, of which each batch looks for its first row again.
const GROUPED_ROWS: usize = 8192;
/// Maximum number of attempts of a batch while others change its rows.
const ATTEMPTS_MAX: u32 = 200;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Adds the entries of all rows to an index that writers maintain already, unless the statement is cancelled.
pub(crate) fn fill(
    context: &Arc<StateContext>,
    table: &Table,
    index: &Index,
    statement: &Cancellation,
) -> Result<()> {
    let mut from = None;
    let mut attempt = 0;
    loop {
        statement.check()?;
        let rows = if table.columns().is_some() { GROUPED_ROWS } else { BUILD_ROWS };
        let rows_max = (rows >> attempt.min(13)).max(1);
        match batch(context, table, index, &from, rows_max) {
            Ok(None) => return Ok(()),
            Ok(next) => {
                from = next;
                attempt = 0;
            }
            Err(Error::Transactions(error)) if error.is_retryable() && attempt + 1 < ATTEMPTS_MAX => {
                tracing::debug!(index = index.name(), %error, attempt, "repeating a batch of an index build");
                attempt += 1;
                std::thread::sleep(
                    Duration::from_micros(100).saturating_mul(1 << attempt.min(16)).min(PAUSE_MAX),
                );
            }
            Err(error) => return Err(error),
        }
    }
}

/// Adds one batch from a key on; returns the key at which the next one begins.
fn batch(
    context: &Arc<StateContext>,
    table: &Table,
    index: &Index,
    from: &Option<KeyBytes>,
    rows_max: usize,
) -> Result<Option<KeyBytes>> {
    let (mut entries, mut failed) = (Vec::new(), None);
    let add = |key: &[u8], value: &[u8]| {
        let row = RowView::new(table.name(), table.schema(), key, value);
        let entry =
            row.and_then(|row| index.entry(table.name(), table.schema(), key, |column| row.value(column)));
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => failed = Some(error),
        }
    };
    let (tx, next) = match table.columns() {
        None => of_state(context, table, from, rows_max, add)?,
        Some(_) => of_row_groups(context, table, from, rows_max, add)?,
    };
    if let Some(error) = failed {
        return Err(error);
    }
    put(&tx, table, index, &entries)?;
    // A later commit that is durable makes this one durable too.
    tx.commit(Durability::None)?;
    Ok(next)
}

/// Transaction that has read rows, and the key at which the next ones begin.
type ReadRows = (Arc<Transaction>, Option<KeyBytes>);

/// Reads rows from a key on.
fn of_state(
    context: &Arc<StateContext>,
    table: &Table,
    from: &Option<KeyBytes>,
    rows_max: usize,
    mut add: impl FnMut(&[u8], &[u8]),
) -> Result<ReadRows> {
    let tx = context.begin_at(Isolation::Serializable)?;
    let (mut next, mut entries, mut read) = (from.clone(), 0, Ok(()));
    let all = KeyRange::full();
    while entries < rows_max
        && tx.scan_batch(table.state(), &all, &mut next, |key, value| {
            entries += 1;
            if !table.has_pages() {
                add(key, value);
            } else if read.is_ok() {
                read = table.rows_of_entry((key, value), Direction::Forward, &all, &mut add);
            }
        })?
    {}
    read.map(|()| (tx, next))
}

/// Reads rows behind a key, of the delta store and of row groups; the next ones begin behind the last of them.
///
/// A snapshot says up to which key there are so many: the batch reads that range and no more, so that those who write
/// behind it do not make it fail.
fn of_row_groups(
    context: &Arc<StateContext>,
    table: &Table,
    from: &Option<KeyBytes>,
    rows_max: usize,
    mut add: impl FnMut(&[u8], &[u8]),
) -> Result<ReadRows> {
    let lower = from.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let behind = KeyRange { lower: lower.clone(), upper: Bound::Unbounded };
    let last = nth_key(table, &*context.begin()?, behind, rows_max)?;
    let upper = last.clone().map_or(Bound::Unbounded, Bound::Included);
    let tx = context.begin_at(Isolation::Serializable)?;
    let mut cursor = table.scan_within(KeyRange { lower, upper });
    while cursor.next_entries(&tx, &mut add)? {}
    Ok((tx, last))
}

/// Key of the last of so many rows; none if there are not more.
fn nth_key(table: &Table, tx: &Transaction, range: KeyRange, rows: usize) -> Result<Option<KeyBytes>> {
    let mut cursor = table.scan_within(range);
    let (mut last, mut read, mut more) = (None, 0, true);
    while more && read <= rows {
        more = cursor.next_entries(tx, |key, _| {
            read += 1;
            if read == rows {
                last = Some(KeyBytes::from_slice(key));
            }
        })?;
    }
    Ok(last.filter(|_| read > rows))
}

/// Writes the entries that writers have not added already.
fn put(tx: &Transaction, table: &Table, index: &Index, entries: &[IndexEntry]) -> Result<()> {
    let state = index.state(table.name())?;
    let keys: Vec<&KeyBytes> = entries.iter().map(|entry| &entry.key).collect();
    let mut taken = Vec::with_capacity(entries.len());
    tx.read_many(state, &keys, |_, value| taken.push(value.map(KeyBytes::from_slice)))?;
    let mut sorted: Vec<&IndexEntry> = entries.iter().filter(|entry| entry.exclusive).collect();
    sorted.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].key == pair[1].key) {
        return Err(table.not_unique(index, &pair[0].key));
    }
    for (entry, taken) in entries.iter().zip(taken) {
        match taken {
            Some(value) if value == entry.value => {}
            Some(_) => return Err(table.not_unique(index, &entry.key)),
            None => tx.write(state, &entry.key, Some(&entry.value))?,
        }
    }
    Ok(())
}
