//! Index maintenance: entries of secondary indexes that are removed and added when rows change.
//!
//! All removed entries of a call are deleted before the first is added, so that unique values may be swapped.
//! An entry that is both removed and added is not touched. A removal is always written as a deletion, whether
//! the entry exists or not: so a writer conflicts with the builder of an index ([`crate::index::build`]).

use crate::error::{Error, Result};
use crate::index::{Index, IndexEntry};
use crate::table::Table;
use crate::table::row_view::RowView;
use entresol_structures::KeyBytes;
use entresol_transactions::{KeyRange, Transaction};
use std::collections::BTreeMap;

/// Maximum number of inconsistencies of an index that are reported.
const WRONG_MAX: usize = 10;

impl Table {
    /// Entries of the rows with these keys; `None` where there is no row.
    pub(crate) fn old_entries(
        &self,
        tx: &Transaction,
        keys: &[KeyBytes],
    ) -> Result<Vec<Option<Vec<IndexEntry>>>> {
        let mut old = vec![None; keys.len()];
        if self.indexes().is_empty() {
            self.read_values(tx, keys, |at, value| old[at] = value.map(|_| Vec::new()))?;
            return Ok(old);
        }
        let mut failed = None;
        self.read_encoded(tx, keys, |at, row| {
            if let Some(row) = row {
                match self.entries(&keys[at], |column| row.value(column)) {
                    Ok(entries) => old[at] = Some(entries),
                    Err(error) => failed = Some(error),
                }
            }
        })?;
        failed.map_or(Ok(old), Err)
    }

    /// Replaces the entries of removed rows by those of added ones: of each row one per index.
    pub(crate) fn reindex(
        &self,
        tx: &Transaction,
        removed: &[Vec<IndexEntry>],
        added: &[Vec<IndexEntry>],
    ) -> Result<()> {
        for (at, index) in self.indexes().iter().enumerate() {
            let state = index.state(self.name())?;
            let mut to_remove: BTreeMap<&KeyBytes, &IndexEntry> =
                removed.iter().map(|entries| (&entries[at].key, &entries[at])).collect();
            let mut to_add = Vec::with_capacity(added.len());
            for entry in added.iter().map(|entries| &entries[at]) {
                match to_remove.get(&entry.key) {
                    Some(old) if *old == entry => {
                        to_remove.remove(&entry.key);
                    }
                    _ => to_add.push(entry),
                }
            }
            for key in to_remove.keys() {
                tx.write(state, key, None)?;
            }
            self.check_exclusive(tx, index, &to_add)?;
            for entry in to_add {
                tx.write(state, &entry.key, Some(&entry.value))?;
            }
        }
        Ok(())
    }

    /// Returns an error if two rows, of these and of existing ones, have the same unique values.
    fn check_exclusive(&self, tx: &Transaction, index: &Index, to_add: &[&IndexEntry]) -> Result<()> {
        let mut keys: Vec<&KeyBytes> =
            to_add.iter().filter(|entry| entry.exclusive).map(|entry| &entry.key).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.not_unique(index, pair[0]));
        }
        let mut taken = None;
        tx.read_many(index.state(self.name())?, &keys, |at, value| {
            if value.is_some() && taken.is_none() {
                taken = Some(at);
            }
        })?;
        taken.map_or(Ok(()), |at| Err(self.not_unique(index, keys[at])))
    }

    /// Inconsistencies between the table and an index, as the transaction sees them: at most [`WRONG_MAX`]
    /// rows and entries.
    pub(crate) fn check_index(&self, tx: &Transaction, index: &Index) -> Result<Vec<String>> {
        let (name, state) = (index.name(), index.state(self.name())?);
        let mut wrong = Vec::new();
        let mut note = |what: String| {
            if wrong.len() < WRONG_MAX {
                wrong.push(what);
            }
        };
        let (mut range, mut failed) = (None, None);
        let mut rows: Vec<(KeyBytes, IndexEntry)> = Vec::new();
        let mut cursor = self.scan_within(KeyRange::full());
        loop {
            let more = cursor.next_entries(tx, |key, value| {
                let row = RowView::new(self.name(), self.schema(), key, value);
                let entry =
                    row.and_then(|row| index.entry(self.name(), self.schema(), key, |at| row.value(at)));
                match entry {
                    Ok(entry) => rows.push((KeyBytes::from_slice(key), entry)),
                    Err(error) => failed = Some(error),
                }
            })?;
            let keys: Vec<&KeyBytes> = rows.iter().map(|(_, entry)| &entry.key).collect();
            tx.read_many(state, &keys, |at, value| {
                if value != Some(&rows[at].1.value[..]) {
                    note(format!(
                        "index {name}: the row with key {} has no entry",
                        self.display_key(&rows[at].0)
                    ));
                }
            })?;
            rows.clear();
            if !more {
                break;
            }
        }
        let mut entries: Vec<(KeyBytes, KeyBytes)> = Vec::new();
        loop {
            let more = tx.scan_batch(state, &KeyRange::full(), &mut range, |key, value| {
                match index.primary(self.name(), self.schema(), key, value) {
                    Ok(primary) => entries.push((KeyBytes::from_slice(key), KeyBytes::from_slice(primary))),
                    Err(error) => failed = Some(error),
                }
            })?;
            let keys: Vec<&KeyBytes> = entries.iter().map(|(_, primary)| primary).collect();
            self.read_encoded(tx, &keys, |at, row| {
                let key = &entries[at].0;
                let expected = row
                    .map(|row| index.entry(self.name(), self.schema(), &entries[at].1, |at| row.value(at)));
                // The state pads its keys.
                let is_its = |entry: &IndexEntry| {
                    key.starts_with(&entry.key) && key[entry.key.len()..].iter().all(|byte| *byte == 0)
                };
                if !matches!(&expected, Some(Ok(entry)) if is_its(entry)) {
                    let values = index.display(self.schema(), key);
                    note(format!("index {name}: the entry ({values}) has no row"));
                }
            })?;
            entries.clear();
            if !more {
                break;
            }
        }
        failed.map_or(Ok(wrong), Err)
    }

    pub(crate) fn not_unique(&self, index: &Index, entry_key: &[u8]) -> Error {
        Error::UniqueViolation {
            table: self.name().to_owned(),
            constraint: index.name().to_owned(),
            columns: self.definition().column_names(&index.definition().columns),
            values: index.display(self.schema(), entry_key),
        }
    }
}
