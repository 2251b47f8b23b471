//! Rows that matches may still need: DRAM over the operator's state table.
//!
//! ```text
//!   state table  (at, number) -> passed, all columns of the row        committed, queryable by SQL
//!        ▲ changes, at every commit        │ all rows, at the first use
//!        │                                 ▼
//!   partition -> its rows in order                                     DRAM
//! ```
//!
//! # Invariants
//!
//! - Rows of a partition are in the order of their times, then of their numbers, which grow with each row that comes.
//! - Passed rows begin no match any more; as many of them stay as conditions look back. They are the first ones of
//!   their partition.
//! - Between transactions DRAM equals the table. Within one, `changes` says what differs. Matches that are being formed
//!   are not stored: they follow from the rows.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort takes the changes back, the last one first.
//!
//! # Memory
//!
//! All rows are in DRAM, with their reservation in the pool's memory budget; a row that does not fit is an error, as
//! are more than [`PATTERN_ROWS_MAX`].

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::group_index::normalized;
use crate::operators::pattern::path::{PatternRow, RowPosition};
use crate::operators::pattern::rows::PatternRows;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::{RESERVED_BYTES_STEP, columns_of};
use crate::{PATTERN_ROWS_MAX, UTC};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{ScanRange, Table, arrow_schema};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Columns of the state table before those of the rows: `at`, `number` (its key) and `passed`.
const COLUMNS_BEFORE: usize = 3;
/// Estimated bytes of memory of a row besides its values.
pub(super) const ROW_BYTES: usize = 176;

/// Columns of a partition, in Arrow's row format.
pub(crate) type PartitionKey = Arc<[u8]>;

/// Row that a match may need.
pub(crate) struct BufferedRow {
    pub(crate) row: Arc<PatternRow>,
    /// True if no match begins with it.
    pub(crate) passed: bool,
    /// Variables whose conditions on the row alone hold; none while it waits for the watermark.
    pub(crate) holds: Option<u64>,
    /// True if it has a row in the table.
    stored: bool,
}

type PartitionRows = BTreeMap<RowPosition, BufferedRow>;

/// Change since the last commit.
enum Change {
    Added(PartitionKey, RowPosition),
    Passed(PartitionKey, RowPosition),
    Removed(PartitionKey, RowPosition, BufferedRow),
}

impl Change {
    fn key(&self) -> &PartitionKey {
        match self {
            Change::Added(key, _) | Change::Passed(key, _) | Change::Removed(key, ..) => key,
        }
    }
}

pub(crate) struct PatternBuffer {
    name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the state table.
    schema: SchemaRef,
    partition: Vec<usize>,
    keys: RowConverter,
    rows: Arc<PatternRows>,
    partitions: HashMap<PartitionKey, PartitionRows>,
    /// Rows that wait for the watermark.
    ready: BTreeMap<RowPosition, PartitionKey>,
    /// Rows that the transaction has taken.
    taken: Vec<(PartitionKey, RowPosition)>,
    /// Number of the next row, and of rows in DRAM.
    next: i64,
    count: usize,
    changes: Vec<Change>,
    bytes: usize,
    memory: Option<MemoryReservation>,
    pub(crate) loaded: bool,
}

impl PatternBuffer {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        (rows, columns): (&Arc<PatternRows>, &SchemaRef),
        partition: Vec<usize>,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<PatternBuffer> {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let failed = |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
        let field = |column: usize| SortField::new(columns.field(column).data_type().clone());
        let keys = RowConverter::new(partition.iter().map(|&column| field(column)).collect());
        Ok(PatternBuffer {
            keys: keys.map_err(failed)?,
            rows: Arc::clone(rows),
            name,
            table,
            schema,
            partition,
            partitions: HashMap::new(),
            ready: BTreeMap::new(),
            taken: Vec::new(),
            next: 0,
            count: 0,
            changes: Vec::new(),
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Reads all rows; they wait for the watermark, and those before it are taken at once.
    pub(crate) fn load(&mut self, tx: &Transaction) -> Result<()> {
        let (table, schema) = (Arc::clone(&self.table), Arc::clone(&self.schema));
        let loaded =
            read_batches(&table, &schema, tx, table.scan(ScanRange::full()), |batch| self.take_in(batch));
        self.loaded = loaded.is_ok();
        if !self.loaded {
            self.partitions.clear();
            self.ready.clear();
            (self.next, self.count, self.bytes) = (0, 0, 0);
            self.memory.iter_mut().for_each(MemoryReservation::clear);
        }
        loaded
    }

    /// Adds rows of the state table.
    fn take_in(&mut self, batch: &RecordBatch) -> Result<()> {
        let malformed = || Error::Tuple {
            operator: self.name.clone(),
            reason: format!("a row of state table {} is not one of this operator", self.table.name()),
        };
        let times = batch.column(0).as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(malformed)?;
        let numbers = batch.column(1).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?;
        let passed = batch.column(2).as_boolean_opt().ok_or_else(malformed)?;
        let places: Vec<usize> = (COLUMNS_BEFORE..batch.num_columns()).collect();
        let stream = batch.project(&places).map_err(|error| self.failed(&error))?;
        let (keys, rows) = (self.keys_of(&stream)?, self.rows.rows_of(&stream)?);
        for (at, key) in keys.iter().enumerate() {
            let position = (EventTime::from_micros(times.value(at)), numbers.value(at));
            self.next = self.next.max(position.1 + 1);
            let row = Arc::new(PatternRow { position, values: rows.row(at).owned() });
            let row = BufferedRow { row, passed: passed.value(at), holds: None, stored: true };
            self.put(key, row)?;
        }
        Ok(())
    }

    /// Partitions of rows.
    pub(crate) fn keys_of(&self, batch: &RecordBatch) -> Result<Vec<PartitionKey>> {
        let columns: Vec<ArrayRef> = columns_of(batch, &self.partition).iter().map(normalized).collect();
        if columns.is_empty() {
            return Ok(vec![PartitionKey::from([]); batch.num_rows()]);
        }
        let keys = self.keys.convert_columns(&columns).map_err(|error| self.failed(&error))?;
        Ok(keys.iter().map(|key| PartitionKey::from(key.data())).collect())
    }

    /// Adds a row that is not late.
    pub(crate) fn add(&mut self, key: &PartitionKey, time: EventTime, rows: &Rows, at: usize) -> Result<()> {
        let position = (time, self.next);
        self.next += 1;
        let row = Arc::new(PatternRow { position, values: rows.row(at).owned() });
        self.put(key, BufferedRow { row, passed: false, holds: None, stored: false })?;
        self.changes.push(Change::Added(Arc::clone(key), position));
        Ok(())
    }

    fn put(&mut self, key: &PartitionKey, row: BufferedRow) -> Result<()> {
        if self.count >= PATTERN_ROWS_MAX {
            let resource = format!("rows that {} buffers", self.name);
            return Err(Error::Limit { resource, max: PATTERN_ROWS_MAX });
        }
        let bytes = self.bytes + bytes_of(key, &row);
        if let Some(memory) = &mut self.memory
            && bytes as u64 > memory.bytes()
        {
            let reserved = memory.try_resize(bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64);
            reserved.map_err(|limit| entresol_transactions::Error::Memory(limit.into()))?;
        }
        self.place(key, row);
        Ok(())
    }

    fn place(&mut self, key: &PartitionKey, row: BufferedRow) {
        self.bytes += bytes_of(key, &row);
        self.count += 1;
        let position = row.row.position;
        if row.holds.is_none() {
            self.ready.insert(position, Arc::clone(key));
        }
        self.partitions.entry(Arc::clone(key)).or_default().insert(position, row);
    }

    fn take_out(&mut self, key: &PartitionKey, position: RowPosition) -> Option<BufferedRow> {
        let rows = self.partitions.get_mut(key)?;
        let row = rows.remove(&position)?;
        if rows.is_empty() {
            self.partitions.remove(key);
        }
        self.ready.remove(&position);
        self.bytes -= bytes_of(key, &row);
        self.count -= 1;
        Some(row)
    }

    /// Takes up to `most` rows with times before the watermark, in order.
    pub(crate) fn take_ready(
        &mut self,
        watermark: EventTime,
        most: usize,
    ) -> Vec<(PartitionKey, RowPosition)> {
        let mut taken = Vec::new();
        while taken.len() < most && self.ready.first_key_value().is_some_and(|(at, _)| at.0 < watermark) {
            taken.extend(self.ready.pop_first().map(|(position, key)| (key, position)));
        }
        self.taken.extend_from_slice(&taken);
        taken
    }

    /// Row of a partition.
    pub(crate) fn row(&self, key: &PartitionKey, position: RowPosition) -> Option<&BufferedRow> {
        self.partitions.get(key)?.get(&position)
    }

    /// Sets the variables whose conditions on a row alone hold.
    pub(crate) fn set_holds(&mut self, key: &PartitionKey, position: RowPosition, holds: u64) {
        if let Some(row) = self.partitions.get_mut(key).and_then(|rows| rows.get_mut(&position)) {
            row.holds = Some(holds);
        }
    }

    /// Row so many rows before one in its partition.
    pub(crate) fn previous(
        &self,
        key: &PartitionKey,
        of: RowPosition,
        offset: usize,
    ) -> Option<Arc<PatternRow>> {
        let before = self.partitions.get(key)?.range(..of);
        before.rev().nth(offset.checked_sub(1)?).map(|(_, row)| Arc::clone(&row.row))
    }

    /// First row of a partition behind a position that was taken; without a position the first that is not passed.
    pub(crate) fn next_taken(&self, key: &PartitionKey, behind: Option<RowPosition>) -> Option<&BufferedRow> {
        let rows = self.partitions.get(key)?;
        let first = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = rows.range((first, Bound::Unbounded)).map(|(_, row)| row);
        let next = rows.find(|row| behind.is_some() || !row.passed)?;
        next.holds.is_some().then_some(next)
    }

    /// Notes that no match begins with the rows up to a position; as many of them stay as conditions look back.
    pub(crate) fn pass(&mut self, key: &PartitionKey, last: RowPosition, look_back: usize) {
        let Some(rows) = self.partitions.get_mut(key) else { return };
        for (position, row) in rows.range_mut(..=last) {
            if !row.passed {
                row.passed = true;
                self.changes.push(Change::Passed(Arc::clone(key), *position));
            }
        }
        let passed: Vec<RowPosition> = rows.range(..=last).map(|(position, _)| *position).collect();
        for position in &passed[..passed.len().saturating_sub(look_back)] {
            if let Some(row) = self.take_out(key, *position) {
                self.changes.push(Change::Removed(Arc::clone(key), *position, row));
            }
        }
    }

    /// Time of the last row.
    pub(crate) fn last_time(&self) -> Option<EventTime> {
        self.ready.last_key_value().map(|((time, _), _)| *time)
    }

    /// Time of the first row that waits for the watermark.
    pub(crate) fn first_ready(&self) -> Option<EventTime> {
        self.ready.first_key_value().map(|((time, _), _)| *time)
    }

    /// Writes the changes to the transaction, and votes for them.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        let (mut written, mut deleted) = (BTreeMap::new(), Vec::new());
        for change in &self.changes {
            match change {
                Change::Added(key, position) | Change::Passed(key, position) => {
                    written.extend(self.row(key, *position).map(|row| (*position, row)));
                }
                Change::Removed(_, position, row) if row.stored => deleted.push(*position),
                Change::Removed(..) => {}
            }
        }
        if !deleted.is_empty() {
            deleted.sort_unstable();
            let schema = self.schema.project(&[0, 1]).map_err(|error| self.failed(&error))?;
            let keys = RecordBatch::try_new(Arc::new(schema), self.key_columns(deleted.iter().copied()));
            self.table.delete_batch(tx, &keys.map_err(|error| self.failed(&error))?)?;
        }
        if !written.is_empty() {
            let mut columns = self.key_columns(written.keys().copied());
            columns.push(Arc::new(written.values().map(|row| Some(row.passed)).collect::<BooleanArray>()));
            columns
                .extend(self.rows.batch_of(written.values().map(|row| &*row.row))?.columns().iter().cloned());
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            self.table.upsert_batch(tx, &rows.map_err(|error| self.failed(&error))?)?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    fn key_columns(&self, positions: impl Iterator<Item = RowPosition> + Clone) -> Vec<ArrayRef> {
        let times = TimestampMicrosecondArray::from_iter_values(positions.clone().map(|(at, _)| at.micros()));
        vec![
            Arc::new(times.with_data_type(self.schema.field(0).data_type().clone())),
            Arc::new(Int64Array::from_iter_values(positions.map(|(_, number)| number))),
        ]
    }

    /// Notes that DRAM is as of the last commit.
    pub(crate) fn committed(&mut self) {
        self.taken.clear();
        for change in std::mem::take(&mut self.changes) {
            if let Change::Added(key, position) = change
                && let Some(row) = self.partitions.get_mut(&key).and_then(|rows| rows.get_mut(&position))
            {
                row.stored = true;
            }
        }
        self.release();
    }

    /// Takes the changes of the transaction back; rows from the watermark on wait for it again. Returns the partitions
    /// whose rows are others than before.
    pub(crate) fn aborted(&mut self, watermark: EventTime) -> Vec<PartitionKey> {
        let mut changed = Vec::new();
        while let Some(change) = self.changes.pop() {
            changed.push(Arc::clone(change.key()));
            match change {
                Change::Added(key, position) => drop(self.take_out(&key, position)),
                Change::Passed(key, position) => {
                    if let Some(row) = self.partitions.get_mut(&key).and_then(|rows| rows.get_mut(&position))
                    {
                        row.passed = false;
                    }
                }
                Change::Removed(key, _, row) => self.place(&key, row),
            }
        }
        for (key, position) in std::mem::take(&mut self.taken) {
            let rows = self.partitions.get_mut(&key);
            if let Some(row) =
                rows.and_then(|rows| rows.get_mut(&position)).filter(|_| position.0 >= watermark)
            {
                row.holds = None;
                self.ready.insert(position, Arc::clone(&key));
            }
            changed.push(key);
        }
        self.release();
        changed
    }

    /// Releases the memory of rows that have left DRAM.
    fn release(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }
}

fn bytes_of(key: &PartitionKey, row: &BufferedRow) -> usize {
    row.row.values.as_ref().len() + key.len() + ROW_BYTES
}
