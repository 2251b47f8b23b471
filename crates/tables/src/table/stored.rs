//! Stored values of a table's rows, whatever its layout: the one place that knows of both. Tables of which rows stand in
//! pages are read and written by [`super::pages`].
//!
//! The state of a table has its rows (layout `rows`), or those that were written since they were last merged
//! into row groups (layout `columns`, the delta store). There it overrides the row groups: a row replaces the
//! one with its key, an empty value, which no row has, says that the row was deleted (a tombstone).
//!
//! A transaction that deletes a row which may be in a row group writes a tombstone; one that deletes a row which
//! cannot be, deletes the key. A merge writes every key that it takes out of the delta store, so it conflicts
//! with transactions that write the same row, and nothing that they rely on changes behind them.

use crate::columns::group::RowGroup;
use crate::columns::store::ColumnStore;
use crate::encoding::key;
use crate::error::Result;
use crate::schema::Schema;
use crate::schema::definition::TableLayout;
use crate::table::Table;
use entresol_structures::KeyBytes;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Value in the delta store of a row that was deleted.
pub(crate) const TOMBSTONE: &[u8] = &[];

/// Value of a key in the delta store.
enum Delta {
    Row(Vec<u8>),
    Deleted,
    /// The row is in a row group, or nowhere.
    Absent,
}

impl Delta {
    fn of(value: Option<&[u8]>) -> Delta {
        match value {
            None => Delta::Absent,
            Some(TOMBSTONE) => Delta::Deleted,
            Some(value) => Delta::Row(value.to_vec()),
        }
    }
}

impl Table {
    /// Row groups that transactions may have to read: those of a table with the layout `columns`, or that had it
    /// before, or has it by a later definition ([`crate::columns::lifetime`]).
    pub(crate) fn columns(&self) -> Option<&Arc<ColumnStore>> {
        self.columns.get()
    }

    /// Row groups of a table whose layout has them.
    pub(crate) fn own_columns(&self) -> Option<&Arc<ColumnStore>> {
        if self.definition.layout == TableLayout::Rows { None } else { self.columns() }
    }

    /// Adds empty row groups; false if transactions may read earlier ones still.
    pub(crate) fn add_columns(&self, store: &Arc<ColumnStore>) -> bool {
        self.state.set_overlay();
        self.columns.add(store)
    }

    /// Name and schema.
    pub(crate) fn named_schema(&self) -> (&str, &Schema) {
        (&self.name, &self.schema)
    }

    pub(crate) fn padded(&self, key: &[u8]) -> KeyBytes {
        let mut padded = KeyBytes::from_slice(key);
        key::pad(&mut padded, self.schema.key_width());
        padded
    }

    /// Calls `f` with the stored value of the row with this key, if there is one.
    #[inline]
    pub(crate) fn read_value<R>(
        &self,
        tx: &Transaction,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        if self.has_pages() {
            return Ok(self.read_paged(tx, key)?.map(|value| f(&value)));
        }
        let Some(columns) = self.columns() else { return Ok(tx.read(&self.state, key, f)?) };
        let delta = tx.read(&self.state, key, |value| Delta::of(Some(value)))?.unwrap_or(Delta::Absent);
        let mut values = self.beneath(columns, tx, &[key], vec![delta])?;
        Ok(values.pop().flatten().map(|value| f(&value)))
    }

    /// Stored values of the rows with these keys before the transaction's own writes.
    pub(crate) fn read_values_before(
        &self,
        tx: &Transaction,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let read = |key: &&[u8]| Ok(tx.read_before(&self.state, key, <[u8]>::to_vec)?);
        let values: Vec<Option<Vec<u8>>> = keys.iter().map(read).collect::<Result<_>>()?;
        let Some(columns) = self.columns() else { return Ok(values) };
        let deltas = values.iter().map(|value| Delta::of(value.as_deref())).collect();
        self.beneath(columns, tx, keys, deltas)
    }

    /// Calls `f` with the position of each key and the stored value of its row, if there is one, in the order of
    /// the keys.
    pub(crate) fn read_values<K: AsRef<[u8]>>(
        &self,
        tx: &Transaction,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        if self.has_pages() {
            return self.read_paged_many(tx, keys, f);
        }
        let Some(columns) = self.columns() else { return Ok(tx.read_many(&self.state, keys, f)?) };
        let mut deltas = Vec::with_capacity(keys.len());
        tx.read_many(&self.state, keys, |_, value| deltas.push(Delta::of(value)))?;
        let values = self.beneath(columns, tx, keys, deltas)?;
        values.iter().enumerate().for_each(|(at, value)| f(at, value.as_deref()));
        Ok(())
    }

    /// Values of keys, of which those that the delta store does not know are looked up in the row groups.
    fn beneath<K: AsRef<[u8]>>(
        &self,
        columns: &ColumnStore,
        tx: &Transaction,
        keys: &[K],
        deltas: Vec<Delta>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let is_absent = |at: &usize| matches!(deltas[*at], Delta::Absent);
        let mut absent: Vec<usize> = (0..keys.len()).filter(is_absent).collect();
        let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
        if !absent.is_empty() {
            let padded: Vec<KeyBytes> = keys.iter().map(|key| self.padded(key.as_ref())).collect();
            absent.sort_by(|a, b| padded[*a].cmp(&padded[*b]));
            let sorted: Vec<KeyBytes> = absent.iter().map(|at| padded[*at].clone()).collect();
            let (groups, places) = columns.find(tx, self.named_schema(), &sorted)?;
            let located = absent.iter().zip(places).filter_map(|(at, place)| Some((*at, place?)));
            let (at, places): (Vec<usize>, Vec<_>) = located.unzip();
            columns.read_places(tx, self.named_schema(), &groups, &places, |number, value| {
                found.push((at[number], value.to_vec()));
            })?;
        }
        let mut values: Vec<Option<Vec<u8>>> = deltas
            .into_iter()
            .map(|delta| if let Delta::Row(value) = delta { Some(value) } else { None })
            .collect();
        found.into_iter().for_each(|(at, value)| values[at] = Some(value));
        Ok(values)
    }

    /// Deletes the rows with these keys.
    pub(crate) fn delete_values<'k>(
        &self,
        tx: &Transaction,
        mut keys: impl Iterator<Item = &'k KeyBytes>,
    ) -> Result<()> {
        if self.has_pages() {
            return self.write_paged(tx, keys.map(|key| (&key[..], None)));
        }
        let Some(columns) = self.columns() else {
            return keys.try_for_each(|key| Ok(tx.write(&self.state, key, None)?));
        };
        let keys: Vec<&KeyBytes> = keys.collect();
        self.note_replaced(tx, &keys)?;
        let padded: Vec<KeyBytes> = keys.iter().map(|key| self.padded(key)).collect();
        let locations = columns.locations(tx, &padded)?;
        let groups: Vec<RowGroup> = columns.ordered_groups(tx)?;
        for ((key, padded), location) in keys.into_iter().zip(&padded).zip(locations) {
            let may_be_beneath = location.is_some() || groups.iter().any(|group| group.spans(padded));
            tx.write(&self.state, key, may_be_beneath.then_some(TOMBSTONE))?;
        }
        Ok(())
    }

    /// Returns true if a key is above those of all rows, committed or not.
    pub(crate) fn is_above_all(&self, tx: &Transaction, key: &[u8]) -> Result<bool> {
        // The last page has keys behind its own.
        if self.has_pages() || !tx.is_above_all(&self.state, key)? {
            return Ok(false);
        }
        let Some(columns) = self.columns() else { return Ok(true) };
        let padded = self.padded(key);
        if let Some(places) = columns.places_for(tx)?
            && !tx.is_above_all(places, &padded)?
        {
            return Ok(false);
        }
        Ok(columns.ordered_groups(tx)?.iter().all(|group| group.last < padded))
    }

    /// Greatest key, committed or not; perhaps that of a row which was deleted.
    pub(crate) fn last_key(&self) -> Result<Option<KeyBytes>> {
        let last = self.state.last_key()?;
        let Some(columns) = self.columns() else { return Ok(last) };
        // Row groups that are not committed have numbers of this run.
        let tx = columns.begin()?;
        let placed = columns.places_for(&tx)?.map(|places| places.last_key()).transpose()?.flatten();
        let groups = columns.ordered_groups(&tx)?;
        Ok(groups.into_iter().map(|group| group.last).chain(last).chain(placed).max())
    }
}
