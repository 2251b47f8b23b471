//! Tables: a schema over a transactional state.
//!
//! - A `Table` is one definition of its table. When the catalog redefines the table, a new object replaces
//!   it, and the old one ends ([`crate::schema::validity`]): transactions that began before may go on reading
//!   through it; writes through it are forwarded if only indexes have changed, else they fail with
//!   [`Error::TableChanged`].
//! - Secondary indexes change with the rows, in the same transaction ([`crate::index::maintenance`]).
//! - All reads and writes go through the transaction passed in; the table itself holds no data but its next
//!   row number. It is `Sync`; there is one current `Table` object per table in a catalog.
//! - Every written row was checked against the schema: types, NOT NULL, decimal range, sizes.
//! - Row numbers (`rowid_`) are taken from one counter, so no two transactions of a run get the same one;
//!   they increase, and after a restart continue behind the greatest key in the index, committed or not. A
//!   number of a transaction that aborts is not used again in the same run.
//! - A crash leaves the committed rows. The counter is not stored.
//! - Memory: O(batch) per call.

pub(crate) mod cursor;
pub(crate) mod detached;
mod load;
pub(crate) mod merge_cursor;
pub(crate) mod pages;
pub(crate) mod range;
pub(crate) mod replaced;
pub(crate) mod row_view;
pub(crate) mod stored;
pub(crate) mod writes;

use crate::batch::{ColumnArray, encode};
use crate::columns::elf::StoredElf;
use crate::columns::lifetime::StoreCell;
use crate::columns::store::ColumnStore;
use crate::encoding::row::EncodedValues;
use crate::encoding::{key, row};
use crate::error::{Error, Result};
use crate::index::cursor::{IndexBounds, IndexCursor};
use crate::index::{Index, IndexEntry};
use crate::schema::Schema;
use crate::schema::definition::TableDefinition;
use crate::schema::elf::ElfDefinition;
use crate::schema::modifier::fitted;
use crate::schema::validity::{Lineage, Validity};
use crate::table::cursor::Cursor;
use crate::table::range::ScanRange;
use crate::table::row_view::RowView;
use crate::table::stored::TOMBSTONE;
use crate::value::{Row, Value};
use crate::workload::Workload;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use entresol_structures::KeyBytes;
use entresol_transactions::{GroupId, HistoryBounds, KeyRange, State, Tier, Transaction, Vote};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Number of rows that are encoded between two checks for cancellation.
const ROWS_PER_CHECK: usize = 256;

/// Least number of rows that are written in the order of their keys.
const SORTED_ROWS_MIN: usize = 64;

/// Indexes and row groups of a table, beside the state of its rows.
pub(crate) type RowsBeside = (Vec<Arc<Index>>, Option<Arc<ColumnStore>>);

/// Table of a [`crate::Catalog`].
#[derive(Debug)]
pub struct Table {
    name: String,
    definition: TableDefinition,
    schema: Arc<Schema>,
    state: Arc<State>,
    group: GroupId,
    indexes: Vec<Arc<Index>>,
    /// Row groups, shared with its other definitions.
    columns: Arc<StoreCell>,
    validity: Validity,
    lineage: Arc<Lineage>,
    /// Recorded workload, shared with its other definitions.
    workload: Arc<Workload>,
    /// Reference to itself, for cursors, which keep their table alive.
    this: std::sync::Weak<Table>,
}

/// Change in a transaction's write set; see [`Table::changes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Values of the key, in key order.
    pub key: Row,
    /// New row, `None` if it was deleted.
    pub row: Option<Row>,
}

impl Table {
    /// Current definition of a table that was opened or created.
    pub(crate) fn new(
        name: String,
        definition: TableDefinition,
        state: Arc<State>,
        group: GroupId,
        (indexes, columns): RowsBeside,
    ) -> Arc<Table> {
        if columns.is_some() {
            state.set_overlay();
        }
        let columns = StoreCell::of(columns);
        let shared = (Arc::default(), Arc::default());
        let table = Table::build(name, definition, state, group, (indexes, columns), shared);
        table.lineage.set_current(&table);
        table.use_elves();
        table
    }

    /// Lets row groups that are written from now on have the Elf indexes and the clustering of this definition.
    pub(crate) fn use_elves(&self) {
        if let Some(columns) = self.own_columns() {
            let elves = self.definition.elves.iter().map(|elf| StoredElf::of(&self.schema, elf));
            columns.set_elves(elves.collect());
            columns.set_rows_elf(self.definition.rows_elf().map(|elf| StoredElf::of(&self.schema, &elf)));
            columns.set_clustering(self.definition.clustered_by());
            columns.set_object_store(self.definition.object_store.as_deref());
        }
    }

    /// Same table with another name, definition or other indexes. It is not current yet.
    pub(crate) fn redefined(
        &self,
        name: &str,
        definition: TableDefinition,
        indexes: Vec<Arc<Index>>,
    ) -> Arc<Table> {
        let (state, lineage) = (Arc::clone(&self.state), Arc::clone(&self.lineage));
        let beside = (indexes, Arc::clone(&self.columns));
        let workload = self.workload_of(&definition);
        Table::build(name.to_owned(), definition, state, self.group, beside, (lineage, workload))
    }

    fn build(
        name: String,
        definition: TableDefinition,
        state: Arc<State>,
        group: GroupId,
        (indexes, columns): (Vec<Arc<Index>>, Arc<StoreCell>),
        (lineage, workload): (Arc<Lineage>, Arc<Workload>),
    ) -> Arc<Table> {
        assert_eq!(definition.indexes.len(), indexes.len(), "every index of the definition is there");
        let schema = Arc::clone(&definition.schema);
        let validity = Validity::default();
        Arc::new_cyclic(|this| Table {
            name,
            definition,
            schema,
            state,
            group,
            indexes,
            columns,
            validity,
            lineage,
            workload,
            this: this.clone(),
        })
    }

    /// Workload of a definition that follows this one: the same, unless columns have other positions in it.
    fn workload_of(&self, definition: &TableDefinition) -> Arc<Workload> {
        let (before, after) = (self.schema.visible_columns(), definition.schema.visible_columns());
        let has_moved = before
            .iter()
            .enumerate()
            .any(|(at, column)| after.get(at).is_none_or(|other| other.data_type != column.data_type));
        if has_moved || before.len() > after.len() {
            return Arc::default();
        }
        let design = |of: &TableDefinition| (of.layout, of.indexes.len(), of.elves.len());
        if design(&self.definition) != design(definition) {
            self.workload.forget_times();
        }
        Arc::clone(&self.workload)
    }

    /// Recorded workload.
    pub fn workload(&self) -> &Arc<Workload> {
        &self.workload
    }

    /// Name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Schema of the table.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Schema, defaults, checks and indexes.
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// Secondary indexes, in the order of the definition.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// Secondary index of this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.name() == name)
    }

    /// Returns true if an index, or an Elf, has this name.
    pub(crate) fn has_index(&self, name: &str) -> bool {
        self.index(name).is_some() || self.elf(name).is_some()
    }

    /// Elf index of this name.
    pub fn elf(&self, name: &str) -> Option<&ElfDefinition> {
        self.definition.elves.iter().find(|elf| elf.name == name)
    }

    /// Returns true if the table has neither defaults nor checks: rows can be written as they are.
    pub fn is_plain(&self) -> bool {
        self.definition.checks.is_empty() && self.definition.defaults.iter().all(Option::is_none)
    }

    pub(crate) fn validity(&self) -> &Validity {
        &self.validity
    }

    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// State of its rows.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Votes for the commit of what a transaction wrote into the table and its indexes
    /// ([`Transaction::vote`]).
    pub fn vote_commit(&self, tx: &Transaction) -> Result<bool> {
        for index in &self.indexes {
            tx.vote(index.state_id(), Vote::Commit)?;
        }
        Ok(tx.vote(self.state.id(), Vote::Commit)?)
    }

    /// Group of the state.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Row with this key.
    pub fn get(&self, tx: &Transaction, key: &[Value]) -> Result<Option<Row>> {
        self.get_with(tx, key, |view| view.to_row())
    }

    /// Result of `f` for the row with this key, without materialising it.
    pub fn get_with<R>(
        &self,
        tx: &Transaction,
        key: &[Value],
        f: impl FnOnce(RowView<'_>) -> R,
    ) -> Result<Option<R>> {
        self.check_readable(tx)?;
        let key = self.encode_key(key)?;
        self.read_value(tx, &key, |value| RowView::new(&self.name, &self.schema, &key, value).map(f))?
            .transpose()
    }

    /// Returns true if the row with this key is in a block of a clustered table: what its index costs alone.
    pub fn has_place(&self, tx: &Transaction, key: &[Value]) -> Result<bool> {
        self.check_readable(tx)?;
        let Some(columns) = self.columns() else { return Ok(false) };
        Ok(columns.locations(tx, &[self.encode_key(key)?])?[0].is_some())
    }

    /// Rows with these keys, in their order. Looked up in one batch, with their cache misses overlapped.
    pub fn get_many(&self, tx: &Transaction, keys: &[Row]) -> Result<Vec<Option<Row>>> {
        let mut rows = vec![None; keys.len()];
        self.get_many_with(tx, keys, |at, view| rows[at] = Some(view.to_row()))?;
        Ok(rows)
    }

    /// Calls `f` with the index of each key that has a row, and the row.
    pub fn get_many_with<K: AsRef<[Value]>>(
        &self,
        tx: &Transaction,
        keys: &[K],
        mut f: impl FnMut(usize, RowView<'_>),
    ) -> Result<()> {
        let mut encoded = Vec::with_capacity(keys.len());
        for key in keys {
            encoded.push(self.encode_key(key.as_ref())?);
        }
        self.read_encoded(tx, &encoded, |at, row| {
            if let Some(row) = row {
                f(at, row);
            }
        })
    }

    /// Calls `f` with the index of each encoded key and its row, if it has one.
    pub(crate) fn read_encoded<K: AsRef<[u8]>>(
        &self,
        tx: &Transaction,
        keys: &[K],
        mut f: impl FnMut(usize, Option<RowView<'_>>),
    ) -> Result<()> {
        self.check_readable(tx)?;
        let mut corrupt = None;
        self.read_values(tx, keys, |at, value| match value {
            None => f(at, None),
            Some(value) => match RowView::new(&self.name, &self.schema, keys[at].as_ref(), value) {
                Ok(view) => f(at, Some(view)),
                Err(error) => corrupt = Some(error),
            },
        })?;
        corrupt.map_or(Ok(()), Err)
    }

    pub(crate) fn check_readable(&self, tx: &Transaction) -> Result<()> {
        self.validity.check_reader(&self.name, tx)
    }

    /// Tier of its rows, its indexes and its version history.
    pub fn tier(&self) -> Tier {
        self.state.tier()
    }

    /// Returns true if it is empty when the database is opened again.
    pub fn is_volatile(&self) -> bool {
        self.state.is_volatile()
    }

    /// Bounds of its version history; none if it has none.
    pub fn history_bounds(&self) -> Option<HistoryBounds> {
        self.state.past()
    }

    /// Cursor over a range of rows, in key order.
    pub fn scan(&self, range: ScanRange) -> Cursor {
        let this = self.this.upgrade().expect("a table lives in an Arc");
        Cursor::new(this, range)
    }

    /// Number of rows that a transaction sees, if it is known without reading them: of a table by rows, which the
    /// transaction has not written. It counts as a read of all rows.
    pub fn known_rows(&self, tx: &Transaction) -> Result<Option<u64>> {
        self.check_readable(tx)?;
        if self.counts_rows() { Ok(tx.live_keys(&self.state)?) } else { Ok(None) }
    }

    /// Returns true if [`Table::known_rows`] is the number of rows for a transaction, or will be once it is told.
    pub fn may_count(&self, tx: &Transaction) -> bool {
        self.counts_rows() && tx.may_count(&self.state)
    }

    /// Tells the number of rows that a transaction has found, which has read all of them, and [might count](Table::may_count)
    /// them when it began to.
    pub fn tell_rows(&self, tx: &Transaction, rows: u64) {
        if self.counts_rows() {
            tx.tell_live_keys(&self.state, rows);
        }
    }

    /// Number of rows after all commits, if it is known without reading them; for estimates.
    pub fn newest_rows(&self) -> Option<u64> {
        if self.counts_rows() { self.state.newest_live_keys() } else { None }
    }

    /// Returns true if commits count its rows: each key of its state is a row, and each row a key.
    pub fn counts_rows(&self) -> bool {
        self.columns().is_none() && !self.has_pages()
    }

    /// Estimates the number of rows, deleted ones included that are not reclaimed yet. Cost: some inner
    /// nodes.
    pub fn estimated_rows(&self) -> u64 {
        let entries = self.state.estimated_keys() * self.lineage.rows_of_entry();
        entries + self.columns().map_or(0, |columns| columns.estimated_rows())
    }

    /// Estimates the number of rows in ranges, as [`Table::estimated_rows`] does for all. Cost: some inner nodes,
    /// for a few of the ranges.
    pub fn estimated_rows_within(&self, ranges: &[ScanRange]) -> Result<u64> {
        range::estimated_rows(self, ranges)
    }

    /// Estimates the number of rows that an index finds within bounds on its leading columns. Cost: some inner
    /// nodes, for a few of the bounds.
    pub fn estimated_index_rows(&self, index: &Index, bounds: &[IndexBounds]) -> Result<u64> {
        let state = index.state(&self.name)?;
        range::estimated(bounds, |(lower, upper)| {
            let range = index.range(&self.name, &self.schema, lower, upper)?;
            Ok(range.map_or(0, |range| state.estimated_keys_within(&range)))
        })
    }

    /// Cursor over a part of a scan that [`Table::split`] returned.
    pub fn scan_within(&self, range: KeyRange) -> Cursor {
        let this = self.this.upgrade().expect("a table lives in an Arc");
        Cursor::within(this, range)
    }

    /// Divides ranges, in key order and without overlaps, into at most `parts` parts with about the same
    /// number of rows, each a list of ranges of encoded keys in key order. None if they are too small to be
    /// worth it.
    pub fn split(&self, ranges: &[ScanRange], parts: usize) -> Result<Option<Vec<Vec<KeyRange>>>> {
        range::split(self, ranges, parts)
    }

    /// Cursor over the rows that an index finds within bounds on its leading columns, in the order of the
    /// index. [`Error::TableChanged`] if the transaction is older than the index.
    pub fn index_scan(
        &self,
        tx: &Transaction,
        index: &Arc<Index>,
        ranges: Vec<IndexBounds>,
    ) -> Result<IndexCursor> {
        let this = self.this.upgrade().expect("a table lives in an Arc");
        index.state(&self.name)?;
        if !index.is_readable(tx) {
            return Err(Error::TableChanged { table: self.name.clone() });
        }
        Ok(IndexCursor::new(this, Arc::clone(index), ranges))
    }

    /// Last write of `tx` to each key of this table that it wrote, in key order.
    pub fn changes(&self, tx: &Transaction) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        if self.has_pages() {
            for (key, (_, value)) in self.changed_values(tx)? {
                let row = |value: Vec<u8>| {
                    RowView::new(&self.name, &self.schema, &key, &value).map(|row| row.to_row())
                };
                let row = value.map(row).transpose()?;
                changes.push(Change { key: key::decode_key(&self.name, &self.schema, &key)?, row });
            }
            return Ok(changes);
        }
        for (key, value) in tx.changes(self.state.id()) {
            let row = match value.filter(|value| *value != TOMBSTONE) {
                Some(value) => Some(RowView::new(&self.name, &self.schema, &key, &value)?.to_row()),
                None => None,
            };
            changes.push(Change { key: key::decode_key(&self.name, &self.schema, &key)?, row });
        }
        Ok(changes)
    }

    /// Rows before and after the changes in a transaction's write set, of each changed key.
    pub fn changed_rows(&self, tx: &Transaction) -> Result<Vec<(Option<Row>, Option<Row>)>> {
        let mut changed = Vec::new();
        self.for_each_change(tx, |old, new| {
            let (old, new) = (old.map(|row| row.to_row()), new.map(|row| row.to_row()));
            if old != new {
                changed.push((old, new));
            }
        })?;
        Ok(changed)
    }

    /// Calls `f` with the rows before and after the changes in a transaction's write set, of each written key in their order.
    /// They may be the same; where rows stand in pages, keys whose rows are the same are left out.
    pub(crate) fn for_each_change(
        &self,
        tx: &Transaction,
        mut f: impl FnMut(Option<RowView<'_>>, Option<RowView<'_>>),
    ) -> Result<()> {
        if self.has_pages() {
            for (key, (old, new)) in self.changed_values(tx)? {
                f(self.view_of(&key, old.as_deref())?, self.view_of(&key, new.as_deref())?);
            }
            return Ok(());
        }
        let changes = tx.changes(self.state.id());
        let keys: Vec<&[u8]> = changes.iter().map(|(key, _)| &key[..]).collect();
        for (old, (key, new)) in self.read_values_before(tx, &keys)?.into_iter().zip(&changes) {
            let new = new.as_deref().filter(|value| *value != TOMBSTONE);
            f(self.view_of(key, old.as_deref())?, self.view_of(key, new)?);
        }
        Ok(())
    }

    /// Row of a stored value, if there is one.
    fn view_of<'a>(&'a self, key: &'a [u8], value: Option<&'a [u8]>) -> Result<Option<RowView<'a>>> {
        value.map(|value| RowView::new(&self.name, &self.schema, key, value)).transpose()
    }

    /// Encodes the values of a key.
    pub fn encode_key(&self, key: &[Value]) -> Result<KeyBytes> {
        key::encode_key(&self.name, &self.schema, key.iter())
    }

    /// Validates and encodes rows: their keys, their values, and the entries of each in the indexes.
    pub(crate) fn encode_rows<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<EncodedRows> {
        let mut entries = Vec::new();
        let encoded = self.encode_each(tx, rows, |key, row| {
            if !self.indexes.is_empty() {
                entries.push(self.entries(key, |column| row[column].clone())?);
            }
            Ok(())
        })?;
        Ok(EncodedRows { entries, ..encoded })
    }

    /// Validates and encodes rows without their entries; `each` is called with the key of each and the row as it is stored.
    pub(crate) fn encode_each<R: AsRef<[Value]>>(
        &self,
        tx: &Transaction,
        rows: &[R],
        mut each: impl FnMut(&KeyBytes, &[Value]) -> Result<()>,
    ) -> Result<EncodedRows> {
        let mut encoded = EncodedRows { keys: Vec::with_capacity(rows.len()), ..EncodedRows::default() };
        let mut value = Vec::with_capacity(self.schema.layout().value_bytes_min());
        for (at, row) in rows.iter().enumerate() {
            if at % ROWS_PER_CHECK == ROWS_PER_CHECK - 1 {
                tx.check_running()?;
            }
            let row = self.complete(row.as_ref())?;
            let key = row::encode_row(&self.name, &self.schema, &row, &mut value)?;
            each(&key, &row)?;
            encoded.keys.push(key);
            encoded.values.push(&value);
        }
        Ok(encoded)
    }

    /// Entries of a row, one per index.
    pub(crate) fn entries(&self, key: &[u8], value: impl Fn(usize) -> Value) -> Result<Vec<IndexEntry>> {
        self.indexes.iter().map(|index| index.entry(&self.name, &self.schema, key, &value)).collect()
    }

    /// Arrays of all columns from a batch of the visible ones, or of all: with row numbers, and with strings as
    /// their columns store them.
    pub(crate) fn complete_batch(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = self.schema.columns();
        let mut arrays = batch.columns().to_vec();
        if self.schema.hidden_key() && arrays.len() + 1 == columns.len() {
            arrays.push(Arc::new(Int64Array::from_iter_values(self.next_rowids(batch.num_rows())?)));
        }
        if arrays.len() != columns.len() {
            return Err(Error::WrongValueCount {
                table: self.name.clone(),
                expected: self.schema.visible_columns().len(),
                found: arrays.len(),
            });
        }
        for &index in self.schema.constrained_texts() {
            let fitted = encode::fitted_texts(&self.name, &columns[index], &arrays[index])?;
            arrays[index] = fitted.unwrap_or_else(|| Arc::clone(&arrays[index]));
        }
        Ok(arrays)
    }

    /// Validates and encodes a batch of the visible columns, or of all.
    fn encode_batch(&self, batch: &RecordBatch) -> Result<EncodedRows> {
        let arrays = self.complete_batch(batch)?;
        let (keys, values) = encode::encode(&self.name, &self.schema, &arrays)?;
        let entries = if self.indexes.is_empty() { Vec::new() } else { self.entries_of(&arrays, &keys)? };
        Ok(EncodedRows { keys, values, entries })
    }

    /// Entries of rows, given as arrays of all columns, with their keys: of each row one per index.
    pub(crate) fn entries_of(&self, arrays: &[ArrayRef], keys: &[KeyBytes]) -> Result<Vec<Vec<IndexEntry>>> {
        let typed = self.schema.columns().iter().zip(arrays);
        let typed = typed.map(|(column, array)| ColumnArray::new(&self.name, column, array));
        let typed = typed.collect::<Result<Vec<_>>>()?;
        let of_row = |(row, key): (usize, &KeyBytes)| self.entries(key, |column| typed[column].value(row));
        keys.iter().enumerate().map(of_row).collect()
    }

    /// Writes rows; of several with one key the last one stays.
    pub(crate) fn write_all(
        &self,
        tx: &Transaction,
        keys: &[KeyBytes],
        values: &EncodedValues,
    ) -> Result<()> {
        self.note_replaced(tx, keys)?;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // A write set takes ascending keys at the least cost.
        if keys.len() >= SORTED_ROWS_MIN && !keys.is_sorted() {
            order.sort_by(|first, second| keys[*first].cmp(&keys[*second]));
        }
        for (number, rows) in order.chunks(ROWS_PER_CHECK).enumerate() {
            if number > 0 {
                tx.check_running()?;
            }
            let writes = rows.iter().map(|row| (&keys[*row][..], values.get(*row)));
            if self.has_pages() {
                self.write_paged(tx, writes.map(|(key, value)| (key, Some(value))))?;
            } else {
                tx.write_many(&self.state, writes)?;
            }
        }
        Ok(())
    }

    /// Row as it is stored: with fitted strings, and with its row number.
    pub(crate) fn complete<'r>(&self, row: &'r [Value]) -> Result<Cow<'r, [Value]>> {
        let mut row = self.numbered(row)?;
        for &index in self.schema.constrained_texts() {
            let (column, Some(value)) = (&self.schema.columns()[index], row.get(index)) else { continue };
            if let Cow::Owned(fitted) = fitted(&self.name, column, value)? {
                row.to_mut()[index] = fitted;
            }
        }
        Ok(row)
    }

    /// Adds the row number where it is missing.
    fn numbered<'r>(&self, row: &'r [Value]) -> Result<Cow<'r, [Value]>> {
        let columns = self.schema.columns().len();
        let missing = row.len() + 1 == columns || (row.len() == columns && row[columns - 1].is_null());
        if !self.schema.hidden_key() || !missing {
            return Ok(Cow::Borrowed(row));
        }
        let mut complete = Vec::with_capacity(columns);
        complete.extend_from_slice(&row[..columns - 1]);
        complete.push(Value::BigInt(self.new_row_number()?));
        Ok(Cow::Owned(complete))
    }

    /// Row number for a new row of a table with a hidden key; each is given once while the table is open.
    pub fn new_row_number(&self) -> Result<i64> {
        Ok(self.next_rowids(1)?.start)
    }

    /// Row numbers of so many new rows.
    fn next_rowids(&self, rows: usize) -> Result<Range<i64>> {
        let mut next = self.lineage.next_rowid.lock();
        let first = match *next {
            Some(rowid) => rowid,
            None => match self.last_key()? {
                None => 1,
                Some(key) => match key::decode_key(&self.name, &self.schema, &key)?.first() {
                    Some(Value::BigInt(last)) => self.rowid_after((*last).max(0), 1)?,
                    _ => {
                        return Err(Error::corrupt(
                            format!("key in table {}", self.name),
                            "not a row number",
                        ));
                    }
                },
            },
        };
        let end = self.rowid_after(first, rows)?;
        *next = Some(end);
        Ok(first..end)
    }

    fn rowid_after(&self, rowid: i64, rows: usize) -> Result<i64> {
        let end = i64::try_from(rows).ok().and_then(|rows| rowid.checked_add(rows));
        end.ok_or_else(|| Error::RowNumbersUsedUp { table: self.name.clone() })
    }

    pub(crate) fn duplicate(&self, key: &[u8]) -> Error {
        Error::DuplicateKey { table: self.name.clone(), key: self.display_key(key) }
    }

    pub(crate) fn display_key(&self, key: &[u8]) -> String {
        key::display_key(&self.name, &self.schema, key)
    }
}

/// Validated and encoded rows.
#[derive(Default)]
pub(crate) struct EncodedRows {
    pub(crate) keys: Vec<KeyBytes>,
    pub(crate) values: EncodedValues,
    /// Entries of each row, one per index; empty for a table without indexes.
    pub(crate) entries: Vec<Vec<IndexEntry>>,
}
