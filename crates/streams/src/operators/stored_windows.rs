//! Windows of a window aggregate that are read from its state table: lazily behind a restart, and what is stale behind an
//! abort.
//!
//! - A topology that starts looks for the windows that have rows, one descent for each, and reads the first
//!   [`LOADED_ROWS_MAX`] rows, of a window that has far more of them none. So it resumes in a time that does not depend on the
//!   number of groups. Groups that are not in DRAM are looked up when tuples of them come, and all are read when their window
//!   closes.
//! - An abort makes the groups stale that the transaction has changed ([`super::open_window`]); the next transaction looks
//!   them up again. A window of which groups have left DRAM, or that was removed, in that transaction is opened anew.
//! - Groups that are in DRAM, and not stale, are never read again.

use crate::error::Result;
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::EpochTransaction;
use crate::operators::window_pages::StoredForm;
use crate::operators::window_state::WindowState;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use entresol_tables::{Cursor, ScanRange, StoredRows, Table, Value};
use entresol_transactions::Transaction;
use std::ops::Bound;
use std::sync::Arc;

/// Rows of a state table that are read together.
pub(super) const LOAD_ROWS: usize = 8192;
/// Maximum of rows that are read when a topology starts, or behind an abort.
const LOADED_ROWS_MAX: usize = 1 << 15;
/// Rows of a window, for each that there is room for, beyond which none are read when it is opened: most tuples would be of groups
/// that have to be looked up all the same.
const ROWS_OF_ROOM_MAX: u64 = 4;

impl WindowState {
    /// Reads what must be in DRAM, or known to be in the table. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, epoch: &EpochTransaction) -> Result<()> {
        let mut room = LOADED_ROWS_MAX;
        if !self.loaded {
            (self.dropped, self.stale) = (Vec::new(), Vec::new());
            let mut next = self.first_stored(epoch, ScanRange::full())?;
            while let Some(start) = next {
                self.open_stored(epoch, start, &mut room)?;
                next = self.first_stored(epoch, behind(start))?;
            }
            self.loaded = true;
        }
        while let Some(&start) = self.dropped.last() {
            if self.first_stored(epoch, prefix(start))?.is_some() {
                self.open_stored(epoch, start, &mut room)?;
            }
            self.dropped.pop();
        }
        while let Some(&start) = self.stale.last() {
            self.read_stale(epoch, start)?;
            self.stale.pop();
        }
        Ok(())
    }

    /// Start of the first window that has a row in a range.
    fn first_stored(&self, epoch: &EpochTransaction, range: ScanRange) -> Result<Option<EventTime>> {
        let (mut cursor, mut first) = (self.table.scan(range), None);
        let start_column = self.group_columns.len();
        while first.is_none() {
            let more = cursor.next_batch(epoch.get()?, |row| {
                first.get_or_insert_with(|| EventTime::from_micros(row.timestamp(start_column)));
            })?;
            if !more {
                break;
            }
        }
        Ok(first)
    }

    /// Opens a window that has rows, and reads them as far as there is room.
    fn open_stored(&mut self, epoch: &EpochTransaction, start: EventTime, room: &mut usize) -> Result<()> {
        let has_pages = self.table.has_pages();
        if has_pages && self.table.ends_in_page(epoch.get()?, &prefix(start))? {
            self.choice.found_pages();
        }
        // Any group may be in a page, whatever the last one is in.
        let form = if has_pages { StoredForm::Unknown } else { StoredForm::Rows };
        self.open_window(start)?.form = form;
        if self.table.estimated_rows_within(&[prefix(start)])? > *room as u64 * ROWS_OF_ROOM_MAX {
            return self.forget(start);
        }
        let read = self.read(epoch, start, |state, batch, rows| {
            *room = room.saturating_sub(batch);
            let fits = state.groups + rows.num_rows() <= state.groups_max && state.try_reserve(1).is_ok();
            if fits {
                state.load_rows(start, rows)?;
            }
            Ok(fits && state.try_reserve(0).is_ok() && *room > 0)
        });
        match read {
            Ok(true) => {
                let is_empty = self.windows.get(&start).is_some_and(|window| window.index.len() == 0);
                if is_empty && !has_pages {
                    // All rows are of other parts. Of a window in pages the form must stay known: what is written
                    // beside a page without looking hides the groups behind it.
                    self.close(start);
                }
                Ok(())
            }
            Ok(false) => self.forget(start),
            Err(error) => {
                self.close(start);
                Err(error)
            }
        }
    }

    /// Notes that a window is in the table, beside what is in DRAM; of that nothing, if it is too much.
    fn forget(&mut self, start: EventTime) -> Result<()> {
        let form = self.windows.get_mut(&start).map(|window| std::mem::take(&mut window.form));
        if self.groups > self.groups_max || self.try_reserve(0).is_err() {
            self.close(start);
        }
        let window = self.open_window(start)?;
        (window.complete, window.form) = (false, form.unwrap_or_default());
        Ok(())
    }

    /// Calls `f` with the rows of a window that are of the operator's part, some thousands at a time, and the number of rows
    /// that were read for them, while it returns true; true at the end.
    fn read(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
        mut f: impl FnMut(&mut WindowState, usize, &RecordBatch) -> Result<bool>,
    ) -> Result<bool> {
        let (table, of_table) = (Arc::clone(&self.table), self.rows.clone());
        let keys: Vec<usize> = (0..self.group_columns.len()).collect();
        of_table.read_while(&table, epoch.get()?, table.scan(prefix(start)), LOAD_ROWS, |batch| {
            let rows = self.part.rows(batch, &keys).map_err(|error| self.failed(&error))?;
            f(self, batch.num_rows(), &rows)
        })
    }

    /// Adds rows of the state table to a window: of the groups that are not in DRAM.
    fn load_rows(&mut self, start: EventTime, rows: &RecordBatch) -> Result<()> {
        let groups = self.group_columns.len();
        let counts = self.rows.counts(rows);
        let mut numbers = std::mem::take(&mut self.numbers);
        let window = self.open_window(start)?;
        let before = window.index.len() as u32;
        let numbered = window.number(&rows.columns()[..groups], rows.num_rows(), &mut numbers);
        window.resize();
        let is_new = |number: &u32| *number >= before;
        let new = numbers.iter().copied().zip(counts).filter(|(number, _)| is_new(number));
        let (missing, counts): (Vec<u32>, Vec<u32>) = new.unzip();
        window.found(&missing, &counts);
        let of_missing = if missing.len() == numbers.len() {
            Ok(rows.clone())
        } else {
            let places = (0..).zip(&numbers).filter(|(_, number)| is_new(number)).map(|(place, _)| place);
            take_record_batch(rows, &UInt32Array::from_iter_values(places))
        };
        self.numbers = numbers;
        let of_missing = numbered.and(of_missing).map_err(|error| self.failed(&error))?;
        self.set_groups(start, &missing, &of_missing.columns()[groups + 1..])?;
        self.count(start);
        Ok(())
    }

    /// Reads the rows of the groups that an abort has made stale.
    fn read_stale(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        epoch.get()?;
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        let stale = window.take_stale();
        if let Err(error) = self.look_up(epoch, start, &stale) {
            if let Some(window) = self.windows.get_mut(&start) {
                window.release_stale(&stale);
            }
            return Err(error);
        }
        if self.windows.get(&start).is_some_and(|window| window.complete && window.has_none()) {
            self.close(start);
        }
        Ok(())
    }

    /// Reads the rows of groups of a window, as far as there are some.
    pub(super) fn look_up(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
        groups: &[u32],
    ) -> Result<()> {
        let Some(window) = self.windows.get(&start).filter(|_| !groups.is_empty()) else { return Ok(()) };
        let (keys, places) = self.keys(start, &window.index, groups)?;
        let first = self.group_columns.len() + 1;
        let (transaction, pages) = (epoch.get()?, epoch.read_pages(&self.table));
        let (found, stored) = self.rows.look_up(&self.table, transaction, (keys, &places), first)?;
        drop(pages);
        let found: Vec<u32> = found.into_iter().map(|at| groups[at]).collect();
        let counts = self.rows.counts(&stored);
        if let Some(window) = self.windows.get_mut(&start) {
            window.found(&found, &counts);
        }
        self.set_groups(start, &found, stored.columns())
    }

    /// Reads the groups of a window that are not in DRAM.
    pub(super) fn complete(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        if self.windows.get(&start).is_none_or(|window| window.complete) {
            return Ok(());
        }
        self.read(epoch, start, |state, _, rows| state.load_rows(start, rows).map(|()| true))?;
        if let Some(window) = self.windows.get_mut(&start) {
            window.complete = true;
        }
        Ok(())
    }
}

/// Calls `f` with the rows of a state table, some thousands at a time.
pub(crate) fn read_batches(
    table: &Table,
    schema: &SchemaRef,
    tx: &Transaction,
    cursor: Cursor,
    mut f: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    read_while(table, schema, tx, cursor, LOAD_ROWS, |batch| f(batch).map(|()| true)).map(drop)
}

/// The same while it returns true, with about so many rows at a time; true at the end.
pub(super) fn read_while(
    table: &Table,
    schema: &SchemaRef,
    tx: &Transaction,
    mut cursor: Cursor,
    wanted: usize,
    mut f: impl FnMut(&RecordBatch) -> Result<bool>,
) -> Result<bool> {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let mut rows = StoredRows::new(table.name(), table.schema(), &projection, Arc::clone(schema), wanted);
    loop {
        let more = cursor.next_stored(tx, &mut rows, usize::MAX)?;
        if (rows.is_batch(wanted) || !more) && !f(&rows.finish()?)? {
            return Ok(false);
        }
        if !more {
            return Ok(true);
        }
    }
}

/// Rows of a window.
pub(super) fn prefix(start: EventTime) -> ScanRange {
    ScanRange::prefix(&[Value::Timestamp(start.micros())])
}

/// Rows of the windows behind one.
fn behind(start: EventTime) -> ScanRange {
    ScanRange::between(Bound::Excluded(&[Value::Timestamp(start.micros())]), Bound::Unbounded)
}
