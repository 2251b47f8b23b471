//! Unique keys: finding the rows that conflict with new ones, by the primary key or by a unique index.

use crate::encoding::key;
use crate::error::Result;
use crate::index::Index;
use crate::table::Table;
use crate::table::row_view::RowView;
use crate::value::{Row, Value};
use entresol_structures::KeyBytes;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Columns whose values no two rows may share.
#[derive(Debug, Clone)]
pub enum UniqueKey {
    /// Primary key.
    Key,
    /// Columns of a unique index.
    Index(Arc<Index>),
}

impl Table {
    /// Encoded unique key of each row; `None` if a column of it is NULL, which is distinct from all others.
    pub fn unique_keys<R: AsRef<[Value]>>(
        &self,
        unique_key: &UniqueKey,
        rows: &[R],
    ) -> Result<Vec<Option<KeyBytes>>> {
        let encode = |row: &R| {
            let row = row.as_ref();
            match unique_key {
                UniqueKey::Key => {
                    let values = self.schema().key().iter().map(|&column| &row[column]);
                    Ok(Some(key::encode_key(self.name(), self.schema(), values)?))
                }
                UniqueKey::Index(index) => {
                    let entry = index.entry(self.name(), self.schema(), &[], |column| row[column].clone())?;
                    Ok(entry.exclusive.then_some(entry.key))
                }
            }
        };
        rows.iter().map(encode).collect()
    }

    /// Rows with these unique keys; `None` where no row has it, or the key is `None`. Looked up in one batch.
    pub fn rows_with_unique_keys(
        &self,
        tx: &Transaction,
        unique_key: &UniqueKey,
        unique_keys: &[Option<KeyBytes>],
    ) -> Result<Vec<Option<Row>>> {
        let mut rows = vec![None; unique_keys.len()];
        self.with_unique_keys(tx, unique_key, unique_keys, |at, row| rows[at] = Some(row.to_row()))?;
        Ok(rows)
    }

    /// Calls `f` with the index of each unique key that a row has, and the row, in order. Looked up in one batch.
    pub fn with_unique_keys(
        &self,
        tx: &Transaction,
        unique_key: &UniqueKey,
        unique_keys: &[Option<KeyBytes>],
        mut f: impl FnMut(usize, RowView<'_>),
    ) -> Result<()> {
        let mut places: Vec<usize> = (0..unique_keys.len()).filter(|&at| unique_keys[at].is_some()).collect();
        let mut keys: Vec<KeyBytes> = unique_keys.iter().flatten().cloned().collect();
        if let UniqueKey::Index(index) = unique_key {
            let mut found = Vec::new();
            tx.read_many(index.state(self.name())?, &keys, |at, primary| {
                if let Some(primary) = primary {
                    found.push((places[at], KeyBytes::from_slice(primary)));
                }
            })?;
            (places, keys) = found.into_iter().unzip();
        }
        self.read_encoded(tx, &keys, |at, row| {
            if let Some(row) = row {
                f(places[at], row);
            }
        })
    }
}
