//! Upserts before their transaction begins ([`DetachedWrites`]): rows are validated and encoded, and nothing is read.
//!
//! That needs a table in which an upsert reads nothing: no index has entries of the old row, and no row groups lie
//! beneath the state. Definitions may change before the transaction begins, so it checks them when it takes the writes
//! over ([`Table::check_detached`]).

use crate::error::{Error, Result};
use crate::table::writes::BATCH_ROWS_MAX;
use crate::table::{EncodedRows, Table};
use crate::value::Value;
use crate::workload::RowOperation;
use arrow_array::RecordBatch;
use entresol_transactions::{DetachedWrites, Transaction};

/// Rows that are encoded for an upsert into a table; see [`Table::encode_upsert`].
pub struct EncodedUpsert {
    rows: Vec<EncodedRows>,
}

impl EncodedUpsert {
    pub(crate) fn of(rows: EncodedRows) -> EncodedUpsert {
        EncodedUpsert { rows: vec![rows] }
    }

    pub(crate) fn parts(&self) -> &[EncodedRows] {
        &self.rows
    }
}

impl Table {
    /// Returns true if an upsert reads nothing, but for the pages that rows may be in.
    fn upserts_blindly(&self) -> bool {
        self.indexes().is_empty() && self.columns().is_none()
    }

    /// Encodes the rows of a batch, as [`Table::upsert_batch`] takes them. None if an upsert needs a transaction.
    pub fn encode_upsert(&self, batch: &RecordBatch) -> Result<Option<EncodedUpsert>> {
        if self.has_pages() { Ok(None) } else { self.encode_known_upsert(batch) }
    }

    /// The same for the owner of a table with pages, who knows which rows stand in pages.
    pub fn encode_known_upsert(&self, batch: &RecordBatch) -> Result<Option<EncodedUpsert>> {
        if !self.upserts_blindly() {
            return Ok(None);
        }
        let starts = (0..batch.num_rows()).step_by(BATCH_ROWS_MAX);
        let part = |first| batch.slice(first, BATCH_ROWS_MAX.min(batch.num_rows() - first));
        let rows = starts.map(|first| self.encode_batch(&part(first))).collect::<Result<_>>()?;
        Ok(Some(EncodedUpsert { rows }))
    }

    /// Adds encoded rows to writes, in the order of their keys; of several with one key the last one stays.
    pub fn upsert_detached(&self, writes: &mut DetachedWrites, encoded: &[EncodedUpsert]) -> Result<()> {
        let parts = encoded.iter().flat_map(|encoded| &encoded.rows);
        let rows = parts
            .flat_map(|part| part.keys.iter().enumerate().map(|(row, key)| (&key[..], part.values.get(row))));
        let mut rows: Vec<(&[u8], &[u8])> = rows.collect();
        self.workload().note_rows(RowOperation::Update, rows.len() as u64);
        // A write set takes ascending keys at the least cost. The sort is stable, and finds what is in order.
        rows.sort_by_key(|(key, _)| *key);
        Ok(writes.write_many(self.state(), rows.into_iter())?)
    }

    /// Adds one row to writes, to be upserted. False, with nothing added, if that needs a transaction.
    pub fn upsert_row_detached(&self, writes: &mut DetachedWrites, row: &[Value]) -> Result<bool> {
        if self.has_pages() || !self.upserts_blindly() {
            return Ok(false);
        }
        let row = self.complete(row)?;
        let mut value = Vec::new();
        let key = crate::encoding::row::encode_row(self.name(), self.schema(), &row, &mut value)?;
        self.workload().note_rows(RowOperation::Update, 1);
        writes.write_many(self.state(), std::iter::once((&key[..], &value[..])))?;
        Ok(true)
    }

    /// Returns an error if a transaction that takes over writes of this definition must not: the table has another one.
    pub fn check_detached(&self, tx: &Transaction) -> Result<()> {
        match self.writer(tx)? {
            None if self.upserts_blindly() => Ok(()),
            _ => Err(Error::TableChanged { table: self.name().to_owned() }),
        }
    }
}
