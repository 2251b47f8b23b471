//! Computed rows into tables.
//!
//! - All rows of an UPDATE or DELETE, and of an INSERT that reads its own table, are computed before the first
//!   is written, so that a statement never sees its own effects.
//! - An UPDATE that changes keys first takes away all rows that move, then puts them down: keys may be swapped
//!   or shifted, what counts is that they are distinct in the end.
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: the computed batches of an UPDATE or DELETE; for an INSERT one batch.

use datafusion::arrow::record_batch::RecordBatch;
use entresol_tables::{Row, Table, Value};
use entresol_transactions::Transaction;

use crate::assignment;
use crate::error::Result;
use crate::source::ChangeSource;

/// Inserts the rows of a batch; returns their number.
pub(crate) fn insert(tx: &Transaction, table: &Table, targets: &[usize], batch: &RecordBatch) -> Result<u64> {
    let rows = assignment::rows(table, &targets[..batch.num_columns()], batch)?;
    table.insert_many(tx, &rows)?;
    Ok(rows.len() as u64)
}

/// Deletes the rows of these batches, whose columns are the key; returns their number.
pub(crate) fn delete(tx: &Transaction, source: &ChangeSource, batches: &[RecordBatch]) -> Result<u64> {
    let mut deleted = 0;
    for batch in batches {
        for row in assignment::rows(&source.table, &source.old, batch)? {
            deleted += u64::from(source.table.delete(tx, &key_of(&source.table, &row))?);
        }
    }
    Ok(deleted)
}

/// Updates the rows of these batches; returns their number.
pub(crate) fn update(tx: &Transaction, source: &ChangeSource, batches: &[RecordBatch]) -> Result<u64> {
    let table = &source.table;
    let key_assigned = source.assigned.iter().any(|column| table.schema().key().contains(column));
    let mut moved = Vec::new();
    let mut updated = 0;
    for batch in batches {
        let old = batch.project(&(0..source.old.len()).collect::<Vec<_>>())?;
        let new = batch.project(&(source.old.len()..batch.num_columns()).collect::<Vec<_>>())?;
        let mut rows = assignment::rows(table, &source.old, &old)?;
        let old_keys: Vec<Row> = match key_assigned {
            true => rows.iter().map(|row| key_of(table, row)).collect(),
            false => Vec::new(),
        };
        for (row, mut values) in rows.iter_mut().zip(assignment::rows(table, &source.assigned, &new)?) {
            for &column in &source.assigned {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
        }
        updated += rows.len() as u64;
        if key_assigned {
            let stays = |row: &Row, old_key: &Row| key_of(table, row) == *old_key;
            let mut staying = Vec::new();
            for (row, old_key) in rows.into_iter().zip(old_keys) {
                if stays(&row, &old_key) {
                    staying.push(row);
                } else {
                    table.delete(tx, &old_key)?;
                    moved.push(row);
                }
            }
            rows = staying;
        }
        table.upsert_many(tx, &rows)?;
    }
    table.insert_many(tx, &moved)?;
    Ok(updated)
}

fn key_of(table: &Table, row: &Row) -> Row {
    table.schema().key().iter().map(|&column| row[column].clone()).collect()
}
