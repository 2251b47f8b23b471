//! A table: a schema over a transactional state.
//!
//! - All reads and writes go through the transaction given; the table itself holds no data but its next
//!   row number. It is `Sync`; there is one `Table` object per table in a catalog.
//! - Every written row was checked against the schema: types, NOT NULL, decimal range, sizes.
//! - Row numbers (`rowid_`) are drawn from one counter, so no two transactions of a run get the same one; they
//!   grow, and after a restart go on behind the greatest key in the index, committed or not. A number drawn by
//!   a transaction that aborts is not given again in the same run.
//! - A crash leaves what the transactions leave: committed rows. The counter is not stored.
//! - Memory: O(batch) per call, nothing kept.

use std::borrow::Cow;
use std::sync::Arc;

use entresol_structures::KeyBytes;
use entresol_transactions::{GroupId, State, Transaction};
use parking_lot::Mutex;

use crate::cursor::Cursor;
use crate::encoding::{key, row};
use crate::error::{Error, Result};
use crate::range::ScanRange;
use crate::row_view::RowView;
use crate::schema::Schema;
use crate::value::{Row, Value};

/// A table of a [`crate::Catalog`].
#[derive(Debug)]
pub struct Table {
    name: String,
    schema: Arc<Schema>,
    state: Arc<State>,
    group: GroupId,
    /// The next row number, once one was needed.
    next_rowid: Mutex<Option<i64>>,
    /// For cursors, which keep their table alive.
    this: std::sync::Weak<Table>,
}

/// A change in a transaction's write set; see [`Table::changes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key's values, in key order.
    pub key: Row,
    /// The new row, `None` if it was deleted.
    pub row: Option<Row>,
}

impl Table {
    pub(crate) fn new(name: String, schema: Schema, state: Arc<State>, group: GroupId) -> Arc<Table> {
        Arc::new_cyclic(|this| Table {
            name,
            schema: Arc::new(schema),
            state,
            group,
            next_rowid: Mutex::new(None),
            this: this.clone(),
        })
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The state that holds its rows.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The group that the state is in.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The row with this key.
    pub fn get(&self, tx: &Transaction, key: &[Value]) -> Result<Option<Row>> {
        self.get_with(tx, key, |view| view.to_row())
    }

    /// What `f` makes of the row with this key, without materialising it.
    pub fn get_with<R>(
        &self,
        tx: &Transaction,
        key: &[Value],
        f: impl FnOnce(RowView<'_>) -> R,
    ) -> Result<Option<R>> {
        let key = self.encode_key(key)?;
        tx.read(&self.state, &key, |value| RowView::new(&self.name, &self.schema, &key, value).map(f))?
            .transpose()
    }

    /// The rows with these keys, in their order. Looked up together, with their cache misses overlapped.
    pub fn get_many(&self, tx: &Transaction, keys: &[Row]) -> Result<Vec<Option<Row>>> {
        let mut rows = vec![None; keys.len()];
        self.get_many_with(tx, keys, |at, view| rows[at] = Some(view.to_row()))?;
        Ok(rows)
    }

    /// Calls `f` with the place of each key that has a row, and the row.
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
        let mut corrupt = None;
        tx.read_many(&self.state, &encoded, |at, value| {
            if let Some(value) = value {
                match RowView::new(&self.name, &self.schema, &encoded[at], value) {
                    Ok(view) => f(at, view),
                    Err(error) => corrupt = Some(error),
                }
            }
        })?;
        corrupt.map_or(Ok(()), Err)
    }

    /// Adds a row; [`Error::DuplicateKey`] if its key is there.
    ///
    /// Rows of tables with a hidden key have the visible columns only, or a row number (or NULL) after them.
    pub fn insert(&self, tx: &Transaction, row: &[Value]) -> Result<()> {
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let key = row::encode_row(&self.name, &self.schema, &row, &mut value)?;
        if tx.read(&self.state, &key, |_| ())?.is_some() {
            return Err(self.duplicate(&key));
        }
        Ok(tx.write(&self.state, &key, Some(&value))?)
    }

    /// Adds rows; on an error none of them is written. The keys are checked together.
    pub fn insert_many<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<()> {
        let (keys, values) = self.encode_rows(rows)?;
        let mut sorted: Vec<&KeyBytes> = keys.iter().collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.duplicate(pair[0]));
        }
        let mut duplicate = None;
        tx.read_many(&self.state, &keys, |at, value| {
            if value.is_some() && duplicate.is_none() {
                duplicate = Some(at);
            }
        })?;
        if let Some(at) = duplicate {
            return Err(self.duplicate(&keys[at]));
        }
        self.write_all(tx, &keys, &values)
    }

    /// Adds a row or replaces the one with its key.
    pub fn upsert(&self, tx: &Transaction, row: &[Value]) -> Result<()> {
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let key = row::encode_row(&self.name, &self.schema, &row, &mut value)?;
        Ok(tx.write(&self.state, &key, Some(&value))?)
    }

    /// Upserts rows in order; if one breaks the schema none is written.
    pub fn upsert_many<R: AsRef<[Value]>>(&self, tx: &Transaction, rows: &[R]) -> Result<()> {
        let (keys, values) = self.encode_rows(rows)?;
        self.write_all(tx, &keys, &values)
    }

    /// Replaces the row with key `old_key`. The new row may have another key, if no row has it.
    pub fn update(&self, tx: &Transaction, old_key: &[Value], row: &[Value]) -> Result<()> {
        let old_key = self.encode_key(old_key)?;
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let new_key = row::encode_row(&self.name, &self.schema, &row, &mut value)?;
        if tx.read(&self.state, &old_key, |_| ())?.is_none() {
            return Err(Error::NoSuchKey { table: self.name.clone(), key: self.display_key(&old_key) });
        }
        if new_key != old_key {
            if tx.read(&self.state, &new_key, |_| ())?.is_some() {
                return Err(self.duplicate(&new_key));
            }
            tx.write(&self.state, &old_key, None)?;
        }
        Ok(tx.write(&self.state, &new_key, Some(&value))?)
    }

    /// Deletes the row with this key; false if there is none.
    pub fn delete(&self, tx: &Transaction, key: &[Value]) -> Result<bool> {
        let key = self.encode_key(key)?;
        if tx.read(&self.state, &key, |_| ())?.is_none() {
            return Ok(false);
        }
        tx.write(&self.state, &key, None)?;
        Ok(true)
    }

    /// Deletes the rows with these keys, those that are there; returns how many. They are looked up together.
    pub fn delete_many<K: AsRef<[Value]>>(&self, tx: &Transaction, keys: &[K]) -> Result<usize> {
        let mut encoded = Vec::with_capacity(keys.len());
        for key in keys {
            encoded.push(self.encode_key(key.as_ref())?);
        }
        encoded.sort_unstable();
        encoded.dedup();
        let mut found = Vec::with_capacity(encoded.len());
        tx.read_many(&self.state, &encoded, |at, value| {
            if value.is_some() {
                found.push(at);
            }
        })?;
        for &at in &found {
            tx.write(&self.state, &encoded[at], None)?;
        }
        Ok(found.len())
    }

    /// A cursor over a range of rows, in key order.
    pub fn scan(&self, range: ScanRange) -> Cursor {
        let this = self.this.upgrade().expect("a table lives in an Arc");
        Cursor::new(this, range)
    }

    /// The last write of `tx` to each key of this table that it wrote, in key order.
    pub fn changes(&self, tx: &Transaction) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (key, value) in tx.changes(self.state.id()) {
            let row = match value {
                Some(value) => Some(RowView::new(&self.name, &self.schema, &key, &value)?.to_row()),
                None => None,
            };
            changes.push(Change { key: key::decode_key(&self.name, &self.schema, &key)?, row });
        }
        Ok(changes)
    }

    /// The encoded key of key values.
    pub fn encode_key(&self, key: &[Value]) -> Result<KeyBytes> {
        key::encode_key(&self.name, &self.schema, key.iter())
    }

    fn encode_rows<R: AsRef<[Value]>>(&self, rows: &[R]) -> Result<(Vec<KeyBytes>, Vec<Vec<u8>>)> {
        let mut keys = Vec::with_capacity(rows.len());
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            let row = self.complete(row.as_ref())?;
            let mut value = Vec::with_capacity(self.schema.value_bytes_min());
            keys.push(row::encode_row(&self.name, &self.schema, &row, &mut value)?);
            values.push(value);
        }
        Ok((keys, values))
    }

    fn write_all(&self, tx: &Transaction, keys: &[KeyBytes], values: &[Vec<u8>]) -> Result<()> {
        for (key, value) in keys.iter().zip(values) {
            tx.write(&self.state, key, Some(value))?;
        }
        Ok(())
    }

    /// Adds the row number where it is missing.
    fn complete<'r>(&self, row: &'r [Value]) -> Result<Cow<'r, [Value]>> {
        let columns = self.schema.columns().len();
        let missing = row.len() + 1 == columns || (row.len() == columns && row[columns - 1].is_null());
        if !self.schema.hidden_key() || !missing {
            return Ok(Cow::Borrowed(row));
        }
        let mut complete = Vec::with_capacity(columns);
        complete.extend_from_slice(&row[..columns - 1]);
        complete.push(Value::BigInt(self.next_rowid()?));
        Ok(Cow::Owned(complete))
    }

    fn next_rowid(&self) -> Result<i64> {
        let mut next = self.next_rowid.lock();
        let rowid = match *next {
            Some(rowid) => rowid,
            None => match self.state.last_key()? {
                None => 1,
                Some(key) => match key::decode_key(&self.name, &self.schema, &key)?.first() {
                    Some(Value::BigInt(last)) => self.rowid_after((*last).max(0))?,
                    _ => {
                        return Err(Error::corrupt(
                            format!("key in table {}", self.name),
                            "not a row number",
                        ));
                    }
                },
            },
        };
        *next = Some(self.rowid_after(rowid)?);
        Ok(rowid)
    }

    fn rowid_after(&self, rowid: i64) -> Result<i64> {
        rowid.checked_add(1).ok_or_else(|| Error::RowNumbersUsedUp { table: self.name.clone() })
    }

    fn duplicate(&self, key: &[u8]) -> Error {
        Error::DuplicateKey { table: self.name.clone(), key: self.display_key(key) }
    }

    fn display_key(&self, key: &[u8]) -> String {
        key::display_key(&self.name, &self.schema, key)
    }
}
