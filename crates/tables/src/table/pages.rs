//! Rows in pages: several rows in one value of the table's state ([`crate::encoding::page`]).
//!
//! A table of which [`TableDefinition::pages`](crate::TableDefinition) is set may have both, single rows and pages; so has the
//! state of an operator, whose owner decides ([`EncodedUpsert::into_pages`]). All readers of the table see rows: a page is a
//! value as any other, with versions, snapshots and conflicts of its own.
//!
//! # Invariants
//!
//! - A page is stored under the key of its first row. No other key of the state lies between its first and its last row, at
//!   any snapshot: a commit that moves rows between pages writes all of them.
//! - All rows of a page have the same value in the first column of the key, which takes [`PREFIX_BYTES`].
//! - A row that is written where a page is the entry before it, with this value, goes into that page. So a writer who knows
//!   nothing of pages changes no row of them by accident.
//!
//! # Cost
//!
//! A row is found by the last entry at or before its key: a descent, and a page is copied. Several rows of a page, by keys that
//! ascend, cost that once. Rows that are written by key cost reading their page, and writing it.

use crate::batch::encode::encode_keys_only;
use crate::encoding::page::{self, Page, PageRow};
use crate::encoding::row::EncodedValues;
use crate::error::Result;
use crate::table::detached::EncodedUpsert;
use crate::table::range::ScanRange;
use crate::table::{EncodedRows, Table};
use arrow_array::RecordBatch;
use entresol_structures::KeyBytes;
use entresol_transactions::{Direction, KeyRange, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of the first column of the key.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Key and value of an entry of the state.
type Entry = (KeyBytes, Vec<u8>);

/// Values of a key before and after a transaction.
pub(crate) type ChangedValue = (Option<Vec<u8>>, Option<Vec<u8>>);

impl Table {
    /// Returns true if rows may stand in pages.
    #[inline]
    pub fn has_pages(&self) -> bool {
        self.definition().pages
    }

    /// Last entry of the state at or before a padded key, with the same first column.
    fn entry_of(&self, tx: &Transaction, key: &[u8]) -> Result<Option<Entry>> {
        let Some(range) = self.range_before(key) else { return Ok(None) };
        let entry = |key: &[u8], value: &[u8]| (KeyBytes::from_slice(key), value.to_vec());
        Ok(tx.last_in(self.state(), &range, entry)?)
    }

    /// Last entry of the state at or before a padded key, if it is a page with the same first column.
    fn page_of(&self, tx: &Transaction, key: &[u8]) -> Result<Option<Entry>> {
        let Some(range) = self.range_before(key) else { return Ok(None) };
        let page = |key: &[u8], value: &[u8]| {
            page::is_page(value).then(|| (KeyBytes::from_slice(key), value.to_vec()))
        };
        Ok(tx.last_in(self.state(), &range, page)?.flatten())
    }

    /// Keys up to a padded one with the same first column.
    fn range_before(&self, key: &[u8]) -> Option<KeyRange> {
        let prefix = key.get(..PREFIX_BYTES)?;
        Some(KeyRange {
            lower: Bound::Included(self.padded(prefix)),
            upper: Bound::Included(KeyBytes::from_slice(key)),
        })
    }

    /// Value of the row with a padded key, by the last entry at or before it.
    fn value_in(&self, (first, value): &Entry, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if page::is_page(value) {
            return Ok(Page::new(self.name(), value)?.find(key).map(<[u8]>::to_vec));
        }
        Ok((first[..] == *key).then(|| value.clone()))
    }

    /// Value of the row with this key.
    pub(super) fn read_paged(&self, tx: &Transaction, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = self.padded(key);
        let entry = self.entry_of(tx, &key)?;
        entry.map_or(Ok(None), |entry| self.value_in(&entry, &key))
    }

    /// Calls `f` with the position of each key and the value of its row, in the order of the keys. Keys that ascend are
    /// cheapest: of each page they descend once, and rows by themselves are looked up together.
    pub(super) fn read_paged_many<K: AsRef<[u8]>>(
        &self,
        tx: &Transaction,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut singles = SingleRows::default();
        let (mut at, mut in_pages) = (0, false);
        while let Some(key) = keys.get(at) {
            if !in_pages && let Some(value) = singles.get(self, tx, keys, at)? {
                f(at, Some(value));
                at += 1;
                continue;
            }
            let key = self.padded(key.as_ref());
            let entry = self.entry_of(tx, &key)?;
            in_pages = entry.as_ref().is_some_and(|(_, value)| page::is_page(value));
            match &entry {
                Some((_, value)) if in_pages => {
                    let rows: Vec<PageRow<'_>> = Page::new(self.name(), value)?.rows().collect();
                    at = self.read_in_page(&rows, (keys, at), &mut f);
                }
                single => {
                    let value = single.as_ref().filter(|(found, _)| *found == key);
                    f(at, value.map(|(_, value)| &value[..]));
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Calls `f` with a key and those that follow it, as far as they lie between the rows of a page, and the values of their
    /// rows; returns the position of the next key. The page is the entry before the first key.
    fn read_in_page<K: AsRef<[u8]>>(
        &self,
        rows: &[PageRow<'_>],
        (keys, first): (&[K], usize),
        f: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> usize {
        let mut at = first;
        while let Some(key) = keys.get(at) {
            let key = self.padded(key.as_ref());
            let is_between = rows[0].0 <= &key[..] && &key[..] <= rows[rows.len() - 1].0;
            if at > first && !is_between {
                break;
            }
            let row = rows.binary_search_by(|(of_row, _)| (*of_row).cmp(&key[..])).ok();
            f(at, row.map(|row| rows[row].1));
            at += 1;
        }
        at
    }

    /// Range of entries that have all rows of a range: it begins with the page that has the first of them.
    pub(super) fn entry_range(&self, tx: &Transaction, range: &KeyRange) -> Result<KeyRange> {
        let (Bound::Included(lower) | Bound::Excluded(lower)) = &range.lower else {
            return Ok(range.clone());
        };
        Ok(match self.entry_of(tx, lower)? {
            Some((first, value)) if page::is_page(&value) => {
                KeyRange { lower: Bound::Included(first), upper: range.upper.clone() }
            }
            _ => range.clone(),
        })
    }

    /// Calls `f` with the rows of an entry that are in a range, in this direction.
    pub(crate) fn rows_of_entry(
        &self,
        (key, value): PageRow<'_>,
        direction: Direction,
        range: &KeyRange,
        f: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut each = |(key, value): PageRow<'_>| {
            if range.contains(key) {
                f(key, value);
            }
        };
        if !page::is_page(value) {
            each((key, value));
            return Ok(());
        }
        let page = Page::new(self.name(), value)?;
        self.lineage().note_page(page.len());
        match direction {
            Direction::Forward => page.rows().for_each(each),
            Direction::Backward => {
                let rows: Vec<PageRow<'_>> = page.rows().collect();
                rows.into_iter().rev().for_each(each);
            }
        }
        Ok(())
    }

    /// Writes rows (none: deletes them), of several with one key the last one.
    pub(super) fn write_paged<'w>(
        &self,
        tx: &Transaction,
        writes: impl Iterator<Item = (&'w [u8], Option<&'w [u8]>)>,
    ) -> Result<()> {
        let mut writes: Vec<(KeyBytes, Option<&[u8]>)> =
            writes.map(|(key, value)| (self.padded(key), value)).collect();
        writes.sort_by(|one, next| one.0.cmp(&next.0));
        let mut rest = &writes[..];
        // Page before the first of the rest, once it is known.
        let mut next: Option<Option<Entry>> = None;
        while let Some((key, value)) = rest.first() {
            let page = next.take().map_or_else(|| self.page_of(tx, key), Ok)?;
            let Some(page) = page else {
                tx.write(self.state(), key, *value)?;
                rest = &rest[1..];
                continue;
            };
            let last = KeyBytes::from_slice(Page::new(self.name(), &page.1)?.last_key());
            let mut of_page = 1;
            while let Some((key, _)) = rest.get(of_page) {
                if *key > last {
                    let other = self.page_of(tx, key)?;
                    if other.as_ref().is_none_or(|other| other.0 != page.0) {
                        // What is written of this page lies before the other entry.
                        next = Some(other);
                        break;
                    }
                }
                of_page += 1;
            }
            self.rewrite_page(tx, &page, &rest[..of_page])?;
            rest = &rest[of_page..];
        }
        Ok(())
    }

    /// Writes the rows of a page with those that change, in order.
    fn rewrite_page(
        &self,
        tx: &Transaction,
        (first, value): &Entry,
        writes: &[(KeyBytes, Option<&[u8]>)],
    ) -> Result<()> {
        let mut rows: BTreeMap<&[u8], &[u8]> = Page::new(self.name(), value)?.rows().collect();
        for (key, value) in writes {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key[..]),
            };
        }
        let rows: Vec<PageRow<'_>> = rows.into_iter().collect();
        let (mut begin, mut bytes) = (0, Vec::new());
        let mut is_first_written = false;
        for end in page::page_ends(&rows) {
            page::encode(&rows[begin..end], &mut bytes);
            is_first_written |= *rows[begin].0 == first[..];
            tx.write(self.state(), rows[begin].0, Some(&bytes))?;
            begin = end;
        }
        if !is_first_written {
            tx.write(self.state(), first, None)?;
        }
        Ok(())
    }

    /// Values of the keys that a transaction has changed, before and after it, by what it has written.
    pub(super) fn changed_values(&self, tx: &Transaction) -> Result<BTreeMap<KeyBytes, ChangedValue>> {
        let mut changed: BTreeMap<KeyBytes, ChangedValue> = BTreeMap::new();
        let all = KeyRange::full();
        for (key, value) in tx.changes(self.state().id()) {
            let key = self.padded(&key);
            if let Some(old) = tx.read_before(self.state(), &key, <[u8]>::to_vec)? {
                self.rows_of_entry((&key, &old), Direction::Forward, &all, &mut |key, value| {
                    changed.entry(KeyBytes::from_slice(key)).or_default().0 = Some(value.to_vec());
                })?;
            }
            if let Some(new) = value {
                self.rows_of_entry((&key, &new), Direction::Forward, &all, &mut |key, value| {
                    changed.entry(KeyBytes::from_slice(key)).or_default().1 = Some(value.to_vec());
                })?;
            }
        }
        changed.retain(|_, (old, new)| old != new);
        Ok(changed)
    }

    /// Returns true if the last rows of a range are a page. The last row of a range in pages may be none, nevertheless: one
    /// that does not fit into the page before it stands alone.
    pub fn ends_in_page(&self, tx: &Transaction, range: &ScanRange) -> Result<bool> {
        let Some(range) = range.encode(self.name(), self.schema())? else { return Ok(false) };
        Ok(tx.last_in(self.state(), &range, |_, value| page::is_page(value))?.unwrap_or(false))
    }

    /// Deletes the rows of a range, which has whole entries, by their entries; returns the number of entries. For the owner
    /// of all of these rows, of a table without indexes.
    pub fn delete_entries(&self, tx: &Transaction, range: &ScanRange) -> Result<usize> {
        let Some(range) = range.encode(self.name(), self.schema())? else { return Ok(0) };
        let (mut keys, mut from) = (Vec::new(), None);
        while tx.scan_batch(self.state(), &range, &mut from, |key, _| keys.push(KeyBytes::from_slice(key)))? {
        }
        keys.iter().try_for_each(|key| tx.write(self.state(), key, None))?;
        Ok(keys.len())
    }

    /// Deletes the entries under the keys of a batch, as [`Table::delete_batch`] takes them: for the owner, who has put their
    /// rows elsewhere.
    pub fn delete_entries_at(&self, tx: &Transaction, keys: &RecordBatch) -> Result<()> {
        let keys = encode_keys_only(self.name(), self.schema(), keys.columns())?;
        keys.iter().try_for_each(|key| Ok(tx.write(self.state(), key, None)?))
    }

    /// Puts encoded rows, which are in key order, into pages: of the rows up to each of `ends` one, or more if they do not
    /// fit. Returns them with the ends of the pages. Nothing else may be stored between the first and the last row of a page:
    /// the owner of the table knows that.
    pub fn into_pages(&self, rows: &EncodedUpsert, ends: &[usize]) -> (EncodedUpsert, Vec<usize>) {
        let mut keys = Vec::new();
        for part in rows.parts() {
            keys.extend(part.keys.iter().map(|key| self.padded(key)));
        }
        let values =
            rows.parts().iter().flat_map(|part| (0..part.keys.len()).map(|row| part.values.get(row)));
        let rows: Vec<PageRow<'_>> = keys.iter().map(|key| &key[..]).zip(values).collect();
        let mut paged = EncodedRows { values: EncodedValues::default(), ..EncodedRows::default() };
        let (mut begin, mut bytes, mut made) = (0, Vec::new(), Vec::new());
        for &asked in ends {
            let first = begin;
            for end in page::page_ends(&rows[first..asked]) {
                let end = first + end;
                page::encode(&rows[begin..end], &mut bytes);
                self.lineage().note_page(end - begin);
                paged.keys.push(KeyBytes::from_slice(rows[begin].0));
                paged.values.push(&bytes);
                made.push(end);
                begin = end;
            }
        }
        assert_eq!(begin, rows.len(), "every row is in a page");
        (EncodedUpsert::of(paged), made)
    }
}

/// Number of keys whose own rows are looked up together.
const SINGLE_ROWS: usize = 64;

/// Entries under some keys themselves.
#[derive(Default)]
struct SingleRows {
    /// Position of the first key.
    first: usize,
    /// Values of their rows; none for a page, or nothing.
    values: Vec<Option<Vec<u8>>>,
}

impl SingleRows {
    /// Value of the row that is stored by itself under the key at a position, which is not before those asked for already.
    fn get<K: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        tx: &Transaction,
        keys: &[K],
        at: usize,
    ) -> Result<Option<&[u8]>> {
        if at >= self.first + self.values.len() {
            let keys = &keys[at..keys.len().min(at + SINGLE_ROWS)];
            self.first = at;
            self.values.clear();
            tx.read_many(table.state(), keys, |_, value| {
                self.values.push(value.filter(|value| !page::is_page(value)).map(<[u8]>::to_vec));
            })?;
        }
        Ok(self.values[at - self.first].as_deref())
    }
}
