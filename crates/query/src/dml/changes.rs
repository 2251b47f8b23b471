//! Changes of the rows of a table, collected while a statement reads and written when it has read all: the end
//! of UPDATE, DELETE and MERGE.
//!
//! # Invariants
//!
//! - Nothing is written before the statement has computed all of its rows, so that it never sees its own
//!   effects.
//! - Deletes come first, then updates, all at once if keys or entries of indexes move, then inserts: keys and
//!   unique values have to be distinct in the end only.
//! - New rows come from [`TableWriter::checked`](crate::dml::writer::TableWriter::checked): complete, of the
//!   types of their columns, and with their checks met.
//!
//! Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: the keys of deleted rows, and updated and inserted rows, reserved in the memory of the session.

use crate::error::Result;
use crate::session::core::SessionCore;
use crate::session::row_buffer::RowBuffer;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use entresol_tables::{Column, Row, Table, batch_to_rows};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Changes that a statement makes to a table; see the [module](self).
pub(crate) struct TableChanges {
    table: Arc<Table>,
    /// True if keys or entries of indexes may move, so that all updates have to be written together.
    moves: bool,
    /// Keys.
    deleted: RowBuffer,
    /// All columns, a hidden key included; then the old keys if they may move.
    updated: RowBuffer,
    /// Visible columns.
    inserted: RowBuffer,
}

impl TableChanges {
    /// No changes yet; `assigned` are the columns that any part of the statement assigns in rows of the table.
    pub(crate) fn new(
        session: &SessionCore,
        table: &Arc<Table>,
        mut assigned: impl Iterator<Item = usize>,
    ) -> TableChanges {
        let assigns_key = assigned.any(|column| table.schema().key().contains(&column));
        TableChanges {
            table: Arc::clone(table),
            moves: assigns_key || !table.indexes().is_empty(),
            deleted: RowBuffer::new(session),
            updated: RowBuffer::new(session),
            inserted: RowBuffer::new(session),
        }
    }

    /// Table of the rows.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Deletes the rows with these keys: columns of the key, in its order.
    pub(crate) fn delete(&mut self, keys: Vec<ArrayRef>) -> Result<()> {
        self.deleted.push(batch_of(keys)?)
    }

    /// Replaces the rows with these keys by the visible columns of `new`, row by row.
    pub(crate) fn update(&mut self, keys: Vec<ArrayRef>, new: &RecordBatch) -> Result<()> {
        debug_assert!(keys.iter().all(|key| key.len() == new.num_rows()), "every row replaces one");
        let mut written = new.columns().to_vec();
        if self.table.schema().hidden_key() {
            written.extend(keys.iter().cloned());
        }
        if self.moves {
            written.extend(keys);
        }
        self.updated.push(batch_of(written)?)
    }

    /// Inserts complete rows of the visible columns.
    pub(crate) fn insert(&mut self, new: RecordBatch) -> Result<()> {
        self.inserted.push(new)
    }

    /// Writes all changes.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        for keys in self.deleted.batches() {
            self.table.delete_batch(tx, keys)?;
        }
        if self.moves {
            self.write_moved(tx)?;
        } else {
            for batch in self.updated.batches() {
                self.table.upsert_batch(tx, batch)?;
            }
        }
        for batch in self.inserted.batches() {
            self.table.append(tx, batch)?;
        }
        Ok(())
    }

    /// Writes updates of keys and indexed values, all at once: rows may take keys that others release.
    fn write_moved(&self, tx: &Transaction) -> Result<()> {
        let columns = self.table.schema().columns();
        let of_row: Vec<usize> = (0..columns.len()).collect();
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for batch in self.updated.batches() {
            let of_key: Vec<usize> = (columns.len()..batch.num_columns()).collect();
            keys.extend(key_rows(&self.table, &batch.project(&of_key)?)?);
            rows.extend(batch_to_rows(self.table.name(), columns, &batch.project(&of_row)?)?);
        }
        Ok(self.table.update_many(tx, &keys, &rows)?)
    }
}

/// Keys of a batch of the key columns, in key order.
pub(crate) fn key_rows(table: &Table, keys: &RecordBatch) -> Result<Vec<Row>> {
    let schema = table.schema();
    let columns: Vec<Column> = schema.key().iter().map(|&column| schema.columns()[column].clone()).collect();
    Ok(batch_to_rows(table.name(), &columns, keys)?)
}

/// Batch of columns whose names do not matter.
pub(crate) fn batch_of(columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let field = |(at, array): (usize, &ArrayRef)| Field::new(at.to_string(), array.data_type().clone(), true);
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(columns.first().map(|column| column.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)?)
}
