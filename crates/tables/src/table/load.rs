//! Bulk load of an empty table: its rows and the entries of its indexes, outside of the write set
//! ([`Transaction::begin_load`]).
//!
//! - The transaction loads one table and does nothing else. No transaction sees the rows before the
//!   commit, not even this one; a crash or an error leaves the table empty.
//! - Rows of a table with row groups fill its delta store, which the next merge moves into row groups.
//! - Cost: rows whose keys ascend from batch to batch are written as they come, others sorted by runs, and so
//!   are the entries of indexes.

use crate::error::{Error, Result};
use crate::table::Table;
use crate::workload::RowOperation;
use arrow_array::RecordBatch;
use entresol_structures::KeyBytes;
use entresol_transactions::{Error as TransactionError, State, Transaction};
use std::cell::Cell;
use std::sync::Arc;

impl Table {
    /// Begins a bulk load by a transaction that has written nothing. False, with nothing changed, if the table
    /// has rows, or deleted ones that are not removed yet, or cannot be loaded: with row groups and no primary key, a
    /// version history, a change log, views or topologies that depend on it, an index structure other than the
    /// FPTree, another protocol than MVCC, a tier of its own; or if the transaction is serializable.
    pub fn begin_load(&self, tx: &Transaction) -> Result<bool> {
        if self.writer(tx)?.is_some() || self.has_pages() {
            return Ok(false);
        }
        let Some(of_row_groups) = self.states_held_empty() else { return Ok(false) };
        let of_indexes = self.indexes().iter().map(|index| index.state(self.name()).cloned());
        let states: Result<Vec<Arc<State>>> = std::iter::once(Ok(Arc::clone(self.state())))
            .chain(of_indexes)
            .chain(of_row_groups.into_iter().map(Ok))
            .collect();
        Ok(tx.begin_load(&states?)?)
    }

    /// States of the row groups, which stay empty while a load fills the delta store: that two rows have one key is seen
    /// there alone. None if rows may be in row groups of another layout, or are appended to row groups as they come.
    fn states_held_empty(&self) -> Option<Vec<Arc<State>>> {
        let Some(columns) = self.columns() else { return Some(Vec::new()) };
        let is_draining = self.own_columns().is_none() || columns.lifetime.is_draining();
        if is_draining || columns.lifetime.has_ended() || self.schema().hidden_key() {
            return None;
        }
        let states = [Some(columns.state()), columns.places()].into_iter().flatten();
        Some(states.map(Arc::clone).collect())
    }

    /// Adds the rows of a batch to the load that the transaction [has begun](Table::begin_load), as
    /// [`Table::append`] takes them. Rows may have their keys in any order; one that is there twice, or a unique
    /// value, is an error of this call, of a later one, of [`Table::finish_load`] or of the commit. An error aborts the
    /// transaction, but one of the batch's values of which nothing was loaded yet.
    pub fn load(&self, tx: &Transaction, batch: &RecordBatch) -> Result<()> {
        let is_begun = Cell::new(false);
        let loaded = self.in_parts(tx, batch, |part| {
            let rows = self.encode_batch(part)?;
            is_begun.set(true);
            self.workload().note_rows(RowOperation::Insert, rows.keys.len() as u64);
            for (at, index) in self.indexes().iter().enumerate() {
                let keys: Vec<KeyBytes> =
                    rows.entries.iter().map(|entries| entries[at].key.clone()).collect();
                let state = index.state(self.name())?.id();
                tx.load_many(state, keys, |row| &rows.entries[row][at].value[..])
                    .map_err(|error| self.of_load(error))?;
            }
            tx.load_many(self.state().id(), rows.keys, |row| rows.values.get(row))
                .map_err(|error| self.of_load(error))
        });
        if loaded.is_err() && is_begun.get() {
            // The write set would take back the parts before; a load can't.
            tx.abort();
        }
        loaded
    }

    /// Writes the rows that the load has collected, and finds keys and unique values that it has twice: what the
    /// commit would do. After an error the transaction is aborted.
    pub fn finish_load(&self, tx: &Transaction) -> Result<()> {
        tx.finish_load().map_err(|error| self.of_load(error))
    }

    /// Error of a load with the names of what it is about.
    fn of_load(&self, error: TransactionError) -> Error {
        let TransactionError::LoadedTwice { state, key } = &error else { return error.into() };
        if *state == self.state().id() {
            return self.duplicate(key);
        }
        let is_its = |state_of: &Arc<State>| state_of.id() == *state;
        let index = self.indexes().iter().find(|index| index.state(self.name()).is_ok_and(is_its));
        let not_unique = index.map(|index| self.not_unique(index, key));
        not_unique.unwrap_or_else(|| error.into())
    }
}
