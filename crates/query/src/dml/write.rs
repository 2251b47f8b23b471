//! Writes of computed rows into tables.
//!
//! - All rows of an UPDATE or DELETE, and of an INSERT that reads its own table, are computed before the
//!   first is written, so that a statement never sees its own effects.
//! - An UPDATE that changes keys or unique values may swap or shift them: they have to be distinct in the end
//!   only ([`Table::update_many`]).
//! - Errors leave the writes so far in the transaction; the caller rolls back to its mark.
//!
//! Memory: the computed batches of an UPDATE or DELETE; for an INSERT one batch.

use crate::dml::assignment;
use crate::dml::source::ChangeSource;
use crate::error::Result;
use crate::postgres::time_zones::Zone;
use datafusion::arrow::record_batch::RecordBatch;
use entresol_tables::{Row, Table, Value};
use entresol_transactions::Transaction;

/// Inserts the rows of a batch; returns their number.
pub(crate) fn insert(
    tx: &Transaction,
    table: &Table,
    targets: &[usize],
    batch: &RecordBatch,
    zone: &Zone,
) -> Result<u64> {
    let rows = assignment::rows(table, &targets[..batch.num_columns()], batch, zone)?;
    table.insert_many(tx, &rows)?;
    Ok(rows.len() as u64)
}

/// Deletes the rows of these batches, whose columns are the key; returns their number.
pub(crate) fn delete(
    tx: &Transaction,
    source: &ChangeSource,
    batches: &[RecordBatch],
    zone: &Zone,
) -> Result<u64> {
    let table = &source.table;
    let mut deleted = 0;
    for batch in batches {
        let rows = assignment::rows(table, &source.old, batch, zone)?;
        let keys: Vec<Row> = rows.iter().map(|row| table.key_of(row)).collect();
        deleted += table.delete_many(tx, &keys)? as u64;
    }
    Ok(deleted)
}

/// Updates the rows of these batches; returns their number.
pub(crate) fn update(
    tx: &Transaction,
    source: &ChangeSource,
    batches: &[RecordBatch],
    zone: &Zone,
) -> Result<u64> {
    let table = &source.table;
    let key_assigned = source.assigned.iter().any(|column| table.schema().key().contains(column));
    let (old_keys, rows) = updated(source, batches, zone)?;
    if key_assigned || !table.indexes().is_empty() {
        table.update_many(tx, &old_keys, &rows)?
    } else {
        table.upsert_many(tx, &rows)?
    }
    Ok(rows.len() as u64)
}

/// Old keys of the rows that an UPDATE computed, and the complete new rows.
pub(crate) fn updated(
    source: &ChangeSource,
    batches: &[RecordBatch],
    zone: &Zone,
) -> Result<(Vec<Row>, Vec<Row>)> {
    let table = &source.table;
    let (mut old_keys, mut updated) = (Vec::new(), Vec::new());
    for batch in batches {
        let old = batch.project(&(0..source.old.len()).collect::<Vec<_>>())?;
        let new = batch.project(&(source.old.len()..batch.num_columns()).collect::<Vec<_>>())?;
        let mut rows = assignment::rows(table, &source.old, &old, zone)?;
        old_keys.extend(rows.iter().map(|row| table.key_of(row)));
        for (row, mut values) in rows.iter_mut().zip(assignment::rows(table, &source.assigned, &new, zone)?) {
            for &column in &source.assigned {
                row[column] = std::mem::replace(&mut values[column], Value::Null);
            }
        }
        updated.extend(rows);
    }
    Ok((old_keys, updated))
}
