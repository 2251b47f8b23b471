//! Writing rows: every call validates and encodes all of its rows before it writes the first.
//!
//! - An error leaves the transaction's writes as they were before the call.
//! - Keys and unique values only have to be distinct at the end: rows of one call may swap them.
//! - Writes through a definition that has ended are forwarded or refused, see [`crate::schema::validity`].
//! - Cost: one batched look-up of the keys; with secondary indexes the old rows are read, and unique values
//!   looked up.

use crate::batch::encode::{check_rows, encode_keys_only};
use crate::encoding::row::{self, EncodedValues};
use crate::error::{Error, Result};
use crate::table::{EncodedRows, ROWS_PER_CHECK, Table};
use crate::value::{Row, Value};
use crate::workload::RowOperation;
use arrow_array::{Array, ArrayRef, RecordBatch};
use entresol_structures::KeyBytes;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Least number of new rows that become a row group at once, in a table with row groups whose keys cannot be
/// there already.
const ROW_GROUP_ROWS_MIN: usize = 4096;

/// Maximum number of rows of a batch that are encoded together.
pub(crate) const BATCH_ROWS_MAX: usize = 8192;

impl Table {
    /// Inserts a row; [`Error::DuplicateKey`] if its key exists.
    ///
    /// Rows of tables with a hidden key have the visible columns only, or a row number (or NULL) after them.
    pub fn insert(&self, tx: &Transaction, row: &[Value]) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.insert(tx, row);
        }
        if !self.indexes().is_empty() {
            return self.insert_many(tx, &[row]);
        }
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let key = row::encode_row(self.name(), self.schema(), &row, &mut value)?;
        if self.read_value(tx, &key, |_| ())?.is_some() {
            return Err(self.duplicate(&key));
        }
        self.note_replaced(tx, &[&key])?;
        self.workload().note_rows(RowOperation::Insert, 1);
        self.write_one(tx, &key, &value)
    }

    /// Inserts rows; on an error none of them is written. The keys are checked in one batch.
    pub fn insert_many<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.insert_many(tx, rows);
        }
        self.insert_encoded(tx, &self.encode_rows(tx, rows)?)
    }

    /// Inserts the rows of a batch of the visible columns, each of exactly its Arrow type
    /// ([`crate::arrow_type`]); on an error none of them is written. A batch of a table with a hidden key
    /// may have the row numbers as its last column.
    pub fn append(&self, tx: &Transaction, batch: &RecordBatch) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.append(tx, batch);
        }
        if let Some(columns) = self.own_columns()
            && !columns.lifetime.is_draining()
            && self.state().change_log().is_none()
            && !self.state().is_watched()
            && self.schema().hidden_key()
            && batch.num_columns() < self.schema().columns().len()
            && batch.num_rows() >= ROW_GROUP_ROWS_MIN
        {
            let arrays = self.complete_batch(batch)?;
            check_rows(self.name(), self.schema(), &arrays)?;
            columns.note_loaded(batch.num_rows());
            self.workload().note_rows(RowOperation::Insert, batch.num_rows() as u64);
            return self.atomically(tx, true, || {
                self.index_arrays(tx, &arrays)?;
                columns.write_rows(tx, self.named_schema(), &[arrays]).map(drop)
            });
        }
        self.append_changes(tx, batch)
    }

    /// Adds the entries of new rows, given as arrays of all columns, to the indexes.
    fn index_arrays(&self, tx: &Transaction, arrays: &[ArrayRef]) -> Result<()> {
        let rows = arrays.first().map_or(0, |array| array.len());
        if self.indexes().is_empty() {
            return Ok(());
        }
        (0..rows).step_by(BATCH_ROWS_MAX).try_for_each(|first| {
            tx.check_running()?;
            let in_part = BATCH_ROWS_MAX.min(rows - first);
            let part: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(first, in_part)).collect();
            let key: Vec<ArrayRef> =
                self.schema().key().iter().map(|&column| Arc::clone(&part[column])).collect();
            let keys = encode_keys_only(self.name(), self.schema(), &key)?;
            self.reindex(tx, &[], &self.entries_of(&part, &keys)?)
        })
    }

    /// As [`Table::append`], for writers whose rows are read again as changes of the transaction
    /// ([`Table::changes`]): they are written row by row, whatever the layout.
    pub fn append_changes(&self, tx: &Transaction, batch: &RecordBatch) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.append_changes(tx, batch);
        }
        self.in_parts(tx, batch, |part| self.insert_encoded(tx, &self.encode_batch(part)?))
    }

    /// Calls `write` with parts of a batch that are encoded together, atomically if there are several.
    pub(crate) fn in_parts(
        &self,
        tx: &Transaction,
        batch: &RecordBatch,
        write: impl Fn(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let rows = batch.num_rows();
        if rows <= BATCH_ROWS_MAX {
            return write(batch);
        }
        self.atomically(tx, true, || {
            let mut starts = (0..rows).step_by(BATCH_ROWS_MAX);
            starts.try_for_each(|first| write(&batch.slice(first, BATCH_ROWS_MAX.min(rows - first))))
        })
    }

    fn insert_encoded(&self, tx: &Transaction, rows: &EncodedRows) -> Result<()> {
        self.check_new_keys(tx, &rows.keys)?;
        self.workload().note_rows(RowOperation::Insert, rows.keys.len() as u64);
        self.atomically(tx, !self.indexes().is_empty() || rows.keys.len() > ROWS_PER_CHECK, || {
            self.reindex(tx, &[], &rows.entries)?;
            self.write_all(tx, &rows.keys, &rows.values)
        })
    }

    /// Inserts a row or replaces the one with its key.
    pub fn upsert(&self, tx: &Transaction, row: &[Value]) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.upsert(tx, row);
        }
        if !self.indexes().is_empty() {
            return self.upsert_many(tx, &[row]);
        }
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let key = row::encode_row(self.name(), self.schema(), &row, &mut value)?;
        self.note_replaced(tx, &[&key])?;
        self.workload().note_rows(RowOperation::Update, 1);
        self.write_one(tx, &key, &value)
    }

    fn write_one(&self, tx: &Transaction, key: &[u8], value: &[u8]) -> Result<()> {
        if self.has_pages() {
            return self.write_paged(tx, std::iter::once((key, Some(value))));
        }
        Ok(tx.write(self.state(), key, Some(value))?)
    }

    /// Upserts rows in order; if one violates the schema none is written.
    pub fn upsert_many<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.upsert_many(tx, rows);
        }
        self.upsert_encoded(tx, self.encode_rows(tx, rows)?)
    }

    /// Stores rows over those with their keys, without a look at these: they exist, and the columns of all indexes are the same in
    /// both.
    pub fn overwrite_many<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.overwrite_many(tx, rows);
        }
        let encoded = self.encode_each(tx, rows, |key, row| {
            debug_assert_eq!(
                self.old_entries(tx, std::slice::from_ref(key))?,
                [Some(self.entries(key, |column| row[column].clone())?)],
                "a row of table {} is written over one with other entries, or none",
                self.name()
            );
            Ok(())
        })?;
        self.workload().note_rows(RowOperation::Update, encoded.keys.len() as u64);
        self.write_all(tx, &encoded.keys, &encoded.values)
    }

    /// Upserts the rows of a batch in order, as [`Table::append`] takes them.
    pub fn upsert_batch(&self, tx: &Transaction, batch: &RecordBatch) -> Result<()> {
        if let Some(current) = self.writer(tx)? {
            return current.upsert_batch(tx, batch);
        }
        self.in_parts(tx, batch, |part| self.upsert_encoded(tx, self.encode_batch(part)?))
    }

    fn upsert_encoded(&self, tx: &Transaction, rows: EncodedRows) -> Result<()> {
        self.workload().note_rows(RowOperation::Update, rows.keys.len() as u64);
        if self.indexes().is_empty() {
            return self.write_all(tx, &rows.keys, &rows.values);
        }
        let rows = last_of_each_key(rows);
        let old = self.old_entries(tx, &rows.keys)?;
        let old: Vec<_> = old.into_iter().flatten().collect();
        self.atomically(tx, !self.indexes().is_empty(), || {
            self.reindex(tx, &old, &rows.entries)?;
            self.write_all(tx, &rows.keys, &rows.values)
        })
    }

    /// Replaces the row with key `old_key`. The new row may have another key, if no row has it.
    pub fn update(&self, tx: &Transaction, old_key: &[Value], row: &[Value]) -> Result<()> {
        self.update_many(tx, &[old_key], &[row])
    }

    /// Replaces the rows with these keys, each by the row at the same index. Rows with new keys may take
    /// those that other rows of the call release.
    pub fn update_many<K: AsRef<[Value]>, R: AsRef<[Value]>>(
        &self,
        tx: &Transaction,
        old_keys: &[K],
        rows: &[R],
    ) -> Result<()> {
        assert_eq!(old_keys.len(), rows.len(), "every row replaces one");
        if let Some(current) = self.writer(tx)? {
            return current.update_many(tx, old_keys, rows);
        }
        let old_keys = self.encode_keys(old_keys)?;
        let rows = self.encode_rows(tx, rows)?;
        let old = self.old_entries(tx, &old_keys)?;
        if let Some(missing) = old.iter().position(Option::is_none) {
            let key = self.display_key(&old_keys[missing]);
            return Err(Error::NoSuchKey { table: self.name().to_owned(), key });
        }
        let old: Vec<_> = old.into_iter().flatten().collect();
        self.workload().note_rows(RowOperation::Update, old_keys.len() as u64);
        let moves = |at: &usize| rows.keys[*at] != old_keys[*at];
        let moved: Vec<usize> = (0..old_keys.len()).filter(moves).collect();
        self.atomically(tx, !moved.is_empty() || !self.indexes().is_empty(), || {
            self.delete_values(tx, moved.iter().map(|&at| &old_keys[at]))?;
            let new_keys: Vec<KeyBytes> = moved.iter().map(|&at| rows.keys[at].clone()).collect();
            self.check_new_keys(tx, &new_keys)?;
            self.reindex(tx, &old, &rows.entries)?;
            self.write_all(tx, &rows.keys, &rows.values)
        })
    }

    /// Deletes the row with this key; false if there is none.
    pub fn delete(&self, tx: &Transaction, key: &[Value]) -> Result<bool> {
        Ok(self.delete_many(tx, &[key])? > 0)
    }

    /// Deletes the rows with these keys that exist; returns their number. They are looked up in one batch.
    pub fn delete_many<K: AsRef<[Value]>>(&self, tx: &Transaction, keys: &[K]) -> Result<usize> {
        if let Some(current) = self.writer(tx)? {
            return current.delete_many(tx, keys);
        }
        self.delete_encoded(tx, self.encode_keys(keys)?)
    }

    /// Deletes the rows with the keys of a batch that exist; returns their number. The batch has the key
    /// columns in key order, without NULL.
    pub fn delete_batch(&self, tx: &Transaction, keys: &RecordBatch) -> Result<usize> {
        if let Some(current) = self.writer(tx)? {
            return current.delete_batch(tx, keys);
        }
        self.delete_encoded(tx, encode_keys_only(self.name(), self.schema(), keys.columns())?)
    }

    fn delete_encoded(&self, tx: &Transaction, mut keys: Vec<KeyBytes>) -> Result<usize> {
        keys.sort_unstable();
        keys.dedup();
        let old = self.old_entries(tx, &keys)?;
        let found: Vec<&KeyBytes> =
            keys.iter().zip(&old).filter(|(_, old)| old.is_some()).map(|(key, _)| key).collect();
        let deleted = found.len();
        self.workload().note_rows(RowOperation::Delete, deleted as u64);
        let removed: Vec<_> = old.iter().flatten().cloned().collect();
        self.atomically(tx, !self.indexes().is_empty(), || {
            self.reindex(tx, &removed, &[])?;
            self.delete_values(tx, found.into_iter())
        })?;
        Ok(deleted)
    }

    fn encode_keys<K: AsRef<[Value]>>(&self, keys: &[K]) -> Result<Vec<KeyBytes>> {
        keys.iter().map(|key| self.encode_key(key.as_ref())).collect()
    }

    /// Returns an error if new keys are equal, or a row has one of them.
    fn check_new_keys(&self, tx: &Transaction, keys: &[KeyBytes]) -> Result<()> {
        let mut sorted: Vec<&KeyBytes> = keys.iter().collect();
        if !sorted.is_sorted() {
            sorted.sort_unstable();
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.duplicate(pair[0]));
        }
        if let Some(first) = sorted.first()
            && sorted.len() > 1
            && self.is_above_all(tx, first)?
        {
            return Ok(());
        }
        let mut duplicate = None;
        self.read_values(tx, keys, |at, value| {
            if value.is_some() && duplicate.is_none() {
                duplicate = Some(at);
            }
        })?;
        duplicate.map_or(Ok(()), |at| Err(self.duplicate(&keys[at])))
    }

    /// Runs `work` atomically, if it may fail after the first write.
    fn atomically(&self, tx: &Transaction, may_fail: bool, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if !may_fail {
            return work();
        }
        let mark = tx.mark();
        work().inspect_err(|_| tx.rollback_to(mark))
    }

    /// Key of a row, in key order.
    pub fn key_of(&self, row: &[Value]) -> Row {
        self.schema().key().iter().map(|&column| row[column].clone()).collect()
    }
}

/// Retains the last of the rows with the same key.
fn last_of_each_key(rows: EncodedRows) -> EncodedRows {
    let mut order: Vec<usize> = (0..rows.keys.len()).collect();
    order.sort_by(|&a, &b| rows.keys[a].cmp(&rows.keys[b]));
    if order.windows(2).all(|pair| rows.keys[pair[0]] != rows.keys[pair[1]]) {
        return rows;
    }
    let is_last = |at: usize| order.get(at + 1).is_none_or(|&next| rows.keys[next] != rows.keys[order[at]]);
    let mut kept: Vec<usize> = (0..order.len()).filter(|&at| is_last(at)).map(|at| order[at]).collect();
    kept.sort_unstable();
    let mut values = EncodedValues::default();
    kept.iter().for_each(|&at| values.push(rows.values.get(at)));
    EncodedRows {
        keys: kept.iter().map(|&at| rows.keys[at].clone()).collect(),
        values,
        entries: kept.iter().filter_map(|&at| rows.entries.get(at).cloned()).collect(),
    }
}
