//! Tuples of transactions that are dropped, or that end the topology: stored in a table, if there is one.
//!
//! | transaction | its tuples are stored | positions of the sources |
//! | --- | --- | --- |
//! | dropped ([`OnError::Abort`](crate::OnError::Abort)) | in a transaction of their own, behind it | in that transaction: once, whatever happens |
//! | ended the topology | the same | stay: the tuples come again, and are stored again if they fail again |
//!
//! The table is that of the condition that held, else that of the topology. Rows are those of bad records: `source`, `line`
//! (0), `reason`, `record`, `topology`. At most [`DROPPED_TUPLES_MAX`] of a transaction are stored, and [`DROPPED_BYTES_MAX`] bytes of
//! them, as far as the memory budget has room; one more row says how many are not.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::rejects_table::{self, RejectsTable, TEXT_BYTES_MAX};
use crate::execution::skipped::record;
use crate::{DROPPED_BYTES_MAX, DROPPED_TUPLES_MAX};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{Row, Value};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: u64 = 1 << 20;

/// Tables for the tuples of failed transactions.
#[derive(Default)]
pub(crate) struct ErrorTables {
    /// Table of the topology.
    pub(crate) of_topology: Option<RejectsTable>,
    /// Tables of conditions, by their names.
    pub(crate) named: BTreeMap<String, RejectsTable>,
}

impl ErrorTables {
    /// Table for the tuples of a transaction with this error, if they are stored.
    fn table_for(&self, error: &Error) -> Option<&RejectsTable> {
        let of_condition = match error.cause() {
            Error::Aborted { into, .. } | Error::AbortedRepeatedly { into, .. } => into.as_ref(),
            _ => None,
        };
        of_condition.and_then(|table| self.named.get(table)).or(self.of_topology.as_ref())
    }

    /// Begins to collect the tuples of a transaction that failed; none if they are not stored.
    pub(crate) fn collect(&self, error: &Error, memory: Option<&Arc<MemoryBudget>>) -> Option<DroppedTuples> {
        let table = self.table_for(error)?.clone();
        let memory = memory.map(|memory| memory.empty(MemoryConsumer::StreamState));
        Some(DroppedTuples { table, reason: error.to_string(), rows: Vec::new(), bytes: 0, memory, more: 0 })
    }
}

/// Tuples of a transaction that failed.
pub(crate) struct DroppedTuples {
    table: RejectsTable,
    reason: String,
    rows: Vec<Row>,
    /// Bytes of the rows, and the bytes reserved for them.
    bytes: usize,
    memory: Option<MemoryReservation>,
    /// Number of tuples beyond those that are stored.
    more: usize,
}

impl DroppedTuples {
    /// Adds tuples of a source.
    pub(crate) fn add(&mut self, source: &str, batch: &Batch) -> Result<()> {
        for at in 0..batch.len() {
            if self.more > 0 || self.rows.len() >= DROPPED_TUPLES_MAX {
                self.more += batch.len() - at;
                break;
            }
            let record = record(&batch.rows().slice(at, 1).into(), TEXT_BYTES_MAX)?;
            let row = rejects_table::row(source, (0, None), &self.reason, &record);
            if self.has_room_for(&row) { self.rows.push(row) } else { self.more += 1 }
        }
        Ok(())
    }

    /// Counts a row, and reserves memory for it; false if there is no room.
    fn has_room_for(&mut self, row: &Row) -> bool {
        let strings = row.iter().map(|value| if let Value::Varchar(text) = value { text.len() } else { 0 });
        let bytes = self.bytes + strings.sum::<usize>() + row.len() * size_of::<Value>() + size_of::<Row>();
        let wanted = (bytes as u64).next_multiple_of(RESERVED_BYTES_STEP);
        let fits = bytes <= DROPPED_BYTES_MAX
            && self
                .memory
                .as_mut()
                .is_none_or(|memory| wanted == memory.bytes() || memory.try_resize(wanted).is_ok());
        self.bytes = if fits { bytes } else { self.bytes };
        fits
    }

    /// Writes them.
    pub(crate) fn write(&self, transaction: &Transaction) -> Result<()> {
        self.table.write(transaction, &self.rows)?;
        if self.more == 0 {
            return Ok(());
        }
        let record = format!("{} more tuples of the transaction", self.more);
        self.table.write(transaction, &[rejects_table::row("", (0, None), &self.reason, &record)])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::DROPPED_BYTES_MAX;
    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use entresol_memory::{Pool, PoolOptions};
    use entresol_tables::{Catalog, TableOptions};
    use entresol_transactions::StateContext;

    /// Collected tuples of so many bytes each, in batches.
    fn collect(budget: Option<&Arc<MemoryBudget>>, batches: usize, record_bytes: usize) -> DroppedTuples {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let catalog = Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap();
        let table =
            catalog.create_table("e", rejects_table::schema().unwrap(), TableOptions::default()).unwrap();
        let tables = ErrorTables { of_topology: Some(RejectsTable::new(table, "t")), named: BTreeMap::new() };
        let error = Error::Tuple { operator: "o".to_owned(), reason: "r".repeat(2000) };
        let mut dropped = tables.collect(&error, budget).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(record_bytes); 1000]));
        let batch = Batch::from(RecordBatch::try_from_iter([("text", texts)]).unwrap());
        for _ in 0..batches {
            dropped.add("s", &batch).unwrap();
        }
        assert_eq!(dropped.rows.len() + dropped.more, batches * 1000, "all are counted");
        dropped
    }

    #[test]
    fn tuples_beyond_the_bounds_are_counted() {
        let dropped = collect(None, 2, 10);
        assert_eq!((dropped.rows.len(), dropped.more), (2000, 0));
        let dropped = collect(None, 20, 4000);
        assert!(dropped.bytes <= DROPPED_BYTES_MAX && dropped.bytes > DROPPED_BYTES_MAX - 10_000);
        assert!(dropped.more > 5000, "{} more", dropped.more);
        let budget = MemoryBudget::tiny(4 << 20);
        let dropped = collect(Some(&budget), 2, 4000);
        assert!(dropped.more > 1000 && dropped.rows.len() > 400, "{} rows", dropped.rows.len());
        assert!(budget.usage().used_bytes() >= dropped.bytes as u64);
        drop(dropped);
        assert_eq!(budget.usage().used_bytes(), 0);
    }
}
