//! Cursors over an index: rows by the values of its columns, in the order of the index or against it, a batch
//! at a time.
//!
//! - Entries are read leaf by leaf until there are [`FETCH_ROWS`] of them, then their rows are looked up in
//!   one batch, with their cache misses overlapped.
//! - As with [`crate::Cursor`], a cursor holds no lock between batches and sees what the transaction sees.
//! - Of a hashed index rows with other values of the same hash code are left out.
//! - Memory: the entries of one batch.

use crate::error::Result;
use crate::index::Index;
use crate::table::Table;
use crate::table::row_view::RowView;
use crate::value::Row;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::ops::Bound;
use std::sync::Arc;

/// Number of rows that are looked up in one batch, or up to a leaf of entries more.
const FETCH_ROWS: usize = 512;

/// Bounds of a range of an index by values of its leading columns.
pub type IndexBounds = (Bound<Row>, Bound<Row>);

/// Position of a scan of an index.
#[derive(Debug)]
pub struct IndexCursor {
    table: Arc<Table>,
    index: Arc<Index>,
    ranges: std::vec::IntoIter<IndexBounds>,
    direction: Direction,
    within: Option<WithinRange>,
}

/// Range of entries that is read.
#[derive(Debug)]
struct WithinRange {
    range: KeyRange,
    from: Option<KeyBytes>,
    /// Values of the columns, of a hashed index.
    wanted: Option<Arc<KeyBytes>>,
}

/// Index entry, and the key of its row.
struct FoundEntry {
    entry: KeyBytes,
    primary: KeyBytes,
    /// Values that the row must have, of a hashed index.
    wanted: Option<Arc<KeyBytes>>,
}

impl FoundEntry {
    /// Returns true if a row has the values that were asked for.
    fn is_wanted(&self, index: &Index, table: &Table, row: &RowView<'_>) -> bool {
        let has = |wanted: &Arc<KeyBytes>| {
            index.encoded_columns(table.schema(), |column| row.value(column)).0 == **wanted
        };
        self.wanted.as_ref().is_none_or(has)
    }
}

impl IndexCursor {
    pub(crate) fn new(table: Arc<Table>, index: Arc<Index>, ranges: Vec<IndexBounds>) -> IndexCursor {
        let direction = Direction::Forward;
        IndexCursor { table, index, ranges: ranges.into_iter(), direction, within: None }
    }

    /// The same cursor in this direction; before its first batch.
    pub fn directed(self, direction: Direction) -> IndexCursor {
        IndexCursor { direction, ..self }
    }

    /// Calls `f` with the next rows, at most about `rows_max`; false at the end.
    pub fn next_batch(
        &mut self,
        tx: &Transaction,
        rows_max: usize,
        mut f: impl FnMut(RowView<'_>),
    ) -> Result<bool> {
        let mut found = Vec::new();
        let more = self.entries(tx, rows_max.min(FETCH_ROWS), &mut found)?;
        let keys: Vec<&KeyBytes> = found.iter().map(|found| &found.primary).collect();
        let mut lost = None;
        self.table.read_encoded(tx, &keys, |at, row| match row {
            Some(row) if found[at].is_wanted(&self.index, &self.table, &row) => f(row),
            Some(_) => {}
            None => lost = Some(at),
        })?;
        if let Some(at) = lost {
            self.explain(tx, &found[at])?;
        }
        Ok(more)
    }

    /// Collects entries; false if there are no more behind them.
    fn entries(&mut self, tx: &Transaction, rows_max: usize, found: &mut Vec<FoundEntry>) -> Result<bool> {
        let (name, schema, index) = (self.table.name(), self.table.schema(), &self.index);
        let state = index.state(name)?;
        while found.len() < rows_max {
            let WithinRange { range, from, wanted } = match &mut self.within {
                Some(within) => within,
                None => match next_of(&mut self.ranges, self.direction) {
                    None => return Ok(false),
                    Some((lower, upper)) => match index.range(name, schema, &lower, &upper)? {
                        Some(range) => {
                            let wanted =
                                index.definition().hashed.then(|| index.wanted(name, schema, &lower, &upper));
                            let wanted = wanted.transpose()?.map(Arc::new);
                            self.within.insert(WithinRange { range, from: None, wanted })
                        }
                        None => continue,
                    },
                },
            };
            let mut corrupt = None;
            let more = tx.scan_batch_in(state, range, self.direction, from, |key, value| {
                match index.primary(name, schema, key, value) {
                    Ok(primary) => found.push(FoundEntry {
                        entry: KeyBytes::from_slice(key),
                        primary: KeyBytes::from_slice(primary),
                        wanted: wanted.clone(),
                    }),
                    Err(error) => corrupt = Some(error),
                }
            })?;
            if let Some(error) = corrupt {
                return Err(error);
            }
            if !more {
                self.within = None;
            }
        }
        Ok(true)
    }

    /// Handles an entry without a row: valid if the transaction has deleted both meanwhile, else an error.
    #[cold]
    fn explain(&self, tx: &Transaction, found: &FoundEntry) -> Result<()> {
        let state = self.index.state(self.table.name())?;
        if tx.read(state, &found.entry, |_| ())?.is_none() {
            return Ok(());
        }
        let values = self.index.display(self.table.schema(), &found.entry);
        Err(self.index.corrupt(self.table.name(), &format!("the entry ({values}) has no row")))
    }
}

fn next_of<R>(ranges: &mut std::vec::IntoIter<R>, direction: Direction) -> Option<R> {
    match direction {
        Direction::Forward => ranges.next(),
        Direction::Backward => ranges.next_back(),
    }
}
