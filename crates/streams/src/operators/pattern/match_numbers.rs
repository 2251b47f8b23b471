//! Numbers of the matches of each partition, from 1: DRAM over a table beside the rows of the pattern.
//!
//! ```text
//!   state table  partition -> matches, columns of the partition        committed, queryable by SQL
//!        ▲ changed partitions, at every commit     │ all, at the first use
//!        │                                         ▼
//!   partition -> its number in the table, matches                      DRAM
//! ```
//!
//! A partition is stored for ever, from its first match on. It is numbered, since NULL may be a value of it and none
//! of a key.
//!
//! Crash: nothing in DRAM is needed. Abort: counts are taken back, the last one first. Memory: all partitions,
//! reserved in the pool's budget; more than [`PATTERN_ROWS_MAX`] are an error.

use crate::error::{Error, Result};
use crate::operators::group_index::normalized;
use crate::operators::pattern::buffer::PartitionKey;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::RESERVED_BYTES_STEP;
use crate::{PATTERN_ROWS_MAX, UTC};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{ScanRange, Table, arrow_schema};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Columns of the state table before those of the partition: its number, which is the key, and its matches.
const COLUMNS_BEFORE: usize = 2;
/// Estimated bytes of memory of a partition besides its values.
const PARTITION_BYTES: usize = 96;

/// Matches of a partition.
#[derive(Debug, Clone, Copy)]
struct MatchCount {
    /// Number of the partition in the table.
    partition: i64,
    matches: i64,
}

pub(crate) struct MatchNumbers {
    name: String,
    pub(crate) table: Arc<Table>,
    schema: SchemaRef,
    keys: RowConverter,
    partitions: HashMap<PartitionKey, MatchCount>,
    /// Partitions that the transaction has counted a match of, in order.
    changed: Vec<PartitionKey>,
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

impl MatchNumbers {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<MatchNumbers> {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let of_partition = schema.fields().iter().skip(COLUMNS_BEFORE);
        let keys =
            RowConverter::new(of_partition.map(|field| SortField::new(field.data_type().clone())).collect());
        let failed = |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
        Ok(MatchNumbers {
            keys: keys.map_err(failed)?,
            name,
            table,
            schema,
            partitions: HashMap::new(),
            changed: Vec::new(),
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Reads all partitions, if they are not in DRAM.
    pub(crate) fn load(&mut self, tx: &Transaction) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let (table, schema) = (Arc::clone(&self.table), Arc::clone(&self.schema));
        let loaded =
            read_batches(&table, &schema, tx, table.scan(ScanRange::full()), |batch| self.take_in(batch));
        self.loaded = loaded.is_ok();
        if !self.loaded {
            self.partitions.clear();
            self.bytes = 0;
            self.memory.iter_mut().for_each(MemoryReservation::clear);
        }
        loaded
    }

    fn take_in(&mut self, batch: &RecordBatch) -> Result<()> {
        let reason = || format!("a row of state table {} is not one of this operator", self.table.name());
        let malformed = || self.refused(reason());
        let numbers = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?;
        let matches = batch.column(1).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?;
        let columns: Vec<ArrayRef> = batch.columns()[COLUMNS_BEFORE..].iter().map(normalized).collect();
        let keys = if columns.is_empty() {
            vec![PartitionKey::from([]); batch.num_rows()]
        } else {
            let keys = self.keys.convert_columns(&columns);
            let keys = keys.map_err(|error| self.refused(error.to_string()))?;
            keys.iter().map(|key| PartitionKey::from(key.data())).collect()
        };
        for (row, key) in keys.into_iter().enumerate() {
            let counted = MatchCount { partition: numbers.value(row), matches: matches.value(row) };
            self.put(key, counted)?;
        }
        Ok(())
    }

    fn put(&mut self, key: PartitionKey, counted: MatchCount) -> Result<()> {
        if self.partitions.len() >= PATTERN_ROWS_MAX {
            let resource = format!("partitions with matches of {}", self.name);
            return Err(Error::Limit { resource, max: PATTERN_ROWS_MAX });
        }
        self.bytes += key.len() + PARTITION_BYTES;
        if let Some(memory) = &mut self.memory
            && self.bytes as u64 > memory.bytes()
        {
            let reserved = memory.try_resize(self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64);
            reserved.map_err(|limit| entresol_transactions::Error::Memory(limit.into()))?;
        }
        self.partitions.insert(key, counted);
        Ok(())
    }

    /// Number of the next match of a partition.
    pub(crate) fn next(&mut self, key: &PartitionKey) -> Result<i64> {
        if !self.partitions.contains_key(key) {
            // Partitions are never removed, but for those of an abort, the last ones.
            let partition = self.partitions.len() as i64;
            self.put(Arc::clone(key), MatchCount { partition, matches: 0 })?;
        }
        self.changed.push(Arc::clone(key));
        Ok(self.partitions.get_mut(key).map_or(1, |counted| {
            counted.matches += 1;
            counted.matches
        }))
    }

    /// Writes the changed partitions to the transaction, and votes for them.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        let changed = self.changed.iter().filter_map(|key| {
            let counted = self.partitions.get(key)?;
            Some((counted.partition, (counted.matches, key)))
        });
        let changed: BTreeMap<i64, (i64, &PartitionKey)> = changed.collect();
        if !changed.is_empty() {
            let matches = changed.values().map(|(matches, _)| *matches);
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(changed.keys().copied())),
                Arc::new(Int64Array::from_iter_values(matches)),
            ];
            if self.schema.fields().len() > COLUMNS_BEFORE {
                let parser = self.keys.parser();
                let keys = changed.values().map(|(_, key)| parser.parse(key));
                columns
                    .extend(self.keys.convert_rows(keys).map_err(|error| self.refused(error.to_string()))?);
            }
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            let rows = rows.map_err(|error| self.refused(error.to_string()))?;
            self.table.upsert_batch(tx, &rows)?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Notes that DRAM is as of the last commit.
    pub(crate) fn committed(&mut self) {
        self.changed.clear();
    }

    /// Takes the counts of the transaction back.
    pub(crate) fn aborted(&mut self) {
        while let Some(key) = self.changed.pop() {
            let Some(counted) = self.partitions.get_mut(&key) else { continue };
            counted.matches -= 1;
            if counted.matches == 0 {
                self.partitions.remove(&key);
                self.bytes -= key.len() + PARTITION_BYTES;
            }
        }
    }
}
