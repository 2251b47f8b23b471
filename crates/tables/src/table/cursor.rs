//! Cursors: the rows of a range, in key order or against it, a batch at a time.
//!
//! - A cursor holds no lock, guard or transaction between batches; it sees what the transaction of
//!   [`Cursor::next_batch`] sees. Pass the same transaction each time, or the rows are of several snapshots.
//! - One batch is one leaf of the index, from the second on some hundred rows.
//! - Rows that the transaction writes behind the cursor's position are not seen, those ahead of it are.

use crate::batch::decode::StoredRows;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::table::merge_cursor::MergeCursor;
use crate::table::range::ScanRange;
use crate::table::row_view::RowView;
use crate::value::Row;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::sync::Arc;

/// Position of a scan.
#[derive(Debug)]
pub struct Cursor {
    table: Arc<Table>,
    range: ScanRange,
    direction: Direction,
    position: CursorPosition,
}

#[derive(Debug)]
enum CursorPosition {
    Start,
    Inside {
        range: KeyRange,
        from: Option<KeyBytes>,
    },
    /// In a table with pages: the range of its entries, and that of the rows.
    Paged {
        entries: KeyRange,
        rows: KeyRange,
        from: Option<KeyBytes>,
    },
    /// In a table with row groups.
    Merging(Box<MergeCursor>),
    End,
}

impl Cursor {
    pub(crate) fn new(table: Arc<Table>, range: ScanRange) -> Cursor {
        Cursor { table, range, direction: Direction::Forward, position: CursorPosition::Start }
    }

    pub(crate) fn within(table: Arc<Table>, range: KeyRange) -> Cursor {
        let position = CursorPosition::Inside { range, from: None };
        Cursor { position, ..Cursor::new(table, ScanRange::full()) }
    }

    /// The same cursor in this direction; before its first batch.
    pub fn directed(self, direction: Direction) -> Cursor {
        Cursor { direction, ..self }
    }

    /// Table of the scan.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Calls `f` with the next rows, perhaps none; false at the end. The first call reports errors in the
    /// range.
    pub fn next_batch(&mut self, tx: &Transaction, mut f: impl FnMut(RowView<'_>)) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let mut corrupt: Option<Error> = None;
        let more = self.next_entries(tx, |key, value| {
            if corrupt.is_none() {
                match RowView::new(table.name(), table.schema(), key, value) {
                    Ok(view) => f(view),
                    Err(error) => corrupt = Some(error),
                }
            }
        })?;
        corrupt.map_or(Ok(more), Err)
    }

    /// Adds the next rows, perhaps none, while there are fewer than `rows_max`; otherwise the same. They are
    /// checked when they are decoded.
    pub fn next_stored(&mut self, tx: &Transaction, rows: &mut StoredRows, rows_max: usize) -> Result<bool> {
        self.next_entries(tx, |key, value| {
            if rows.len() < rows_max {
                rows.push(key, value);
            }
        })
    }

    /// Calls `f` with the next keys and values.
    pub(crate) fn next_entries(&mut self, tx: &Transaction, mut f: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        if let CursorPosition::Start = self.position {
            self.position = match self.range.encode(self.table.name(), self.table.schema())? {
                Some(range) => CursorPosition::Inside { range, from: None },
                None => CursorPosition::End,
            };
        }
        self.table.check_readable(tx)?;
        // Row groups that came to be behind its beginning have no rows that the transaction sees.
        if let (Some(columns), CursorPosition::Inside { range, from: None }) =
            (self.table.columns(), &self.position)
        {
            let merging = MergeCursor::new(&self.table, columns, tx, range.clone(), self.direction)?;
            self.position = CursorPosition::Merging(Box::new(merging));
        }
        if let (true, CursorPosition::Inside { range, from: None }) = (self.table.has_pages(), &self.position)
        {
            let (entries, rows) = (self.table.entry_range(tx, range)?, range.clone());
            self.position = CursorPosition::Paged { entries, rows, from: None };
        }
        let more = match &mut self.position {
            CursorPosition::Inside { range, from } => {
                tx.scan_batch_in(self.table.state(), range, self.direction, from, f)?
            }
            CursorPosition::Paged { entries, rows, from } => {
                let (table, direction, mut read) = (&self.table, self.direction, Ok(()));
                let more = tx.scan_batch_in(table.state(), entries, direction, from, |key, value| {
                    if read.is_ok() {
                        read = table.rows_of_entry((key, value), direction, rows, &mut f);
                    }
                })?;
                read?;
                more
            }
            CursorPosition::Merging(merging) => merging.next_entries(&self.table, tx, f)?,
            CursorPosition::Start | CursorPosition::End => return Ok(false),
        };
        if !more {
            self.position = CursorPosition::End;
        }
        Ok(more)
    }

    /// All remaining rows. Takes memory for all of them.
    pub fn rows(mut self, tx: &Transaction) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        while self.next_batch(tx, |view| rows.push(view.to_row()))? {}
        Ok(rows)
    }
}
