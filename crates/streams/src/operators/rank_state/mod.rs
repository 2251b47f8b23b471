//! Rows of a ranking: DRAM over the operator's state table.
//!
//! ```text
//!   state table  (partition, slot) -> arrival, all other columns of the row        committed, queryable by SQL
//!        ▲ changed partitions, at every commit     │ a partition when it is needed, or all at the first use
//!        │                                         ▼
//!   partition -> its rows in order                                                 DRAM
//! ```
//!
//! # Invariants
//!
//! - The rows of a partition are ordered by the order of the ranking, then by their arrival. Those beyond the limit are
//!   not stored where no later row brings them back; where rows are taken back all are, and only the first are sent.
//! - Between transactions a partition in DRAM equals its rows in the table. Within one, `touched` has the rows as they
//!   were before. A slot is the number of a row in the table, and is given again when its row goes: a row that pushes
//!   out another is one write.
//! - Rows that wait for a watermark are in `windows` or `pending`, from the first use on, whether or not their
//!   partition is in DRAM.
//! - Where window functions read rows before another ([`frames`]), rows that were sent stay as long as they are read.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort restores the touched partitions.
//!
//! # Memory
//!
//! Rows are reserved in the memory budget of the pool. Partitions that are neither open windows nor changed leave DRAM,
//! those that were not used for the longest time first, when there are many or memory is short; the
//! rows of open windows stay, and are an error if they do not fit.

pub(crate) mod frames;
mod rows;

use crate::UTC;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::group_index::normalized;
use crate::operators::rank_state::frames::CarriedStates;
use crate::operators::rank_state::rows::{
    PartitionKey, PartitionRows, RankedBatch, RankedRow, arrived_and_left, bytes_of, differences,
};
use crate::operators::ranking::RankTimes;
use crate::operators::running_state::is_empty;
use crate::operators::stored_keys;
use crate::operators::stored_windows::read_batches;
use crate::operators::window_state::{RESERVED_BYTES_STEP, columns_of};
use crate::ranking::{RankChanges, RankOrder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef, SortOptions};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{ScanRange, Table, arrow_schema, rows_of};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use self::rows::{RankLayout, RankedOutput};

/// Estimated bytes of memory of a partition besides its rows.
const PARTITION_BYTES: usize = 128;

pub(crate) struct RankState {
    name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the state table.
    schema: SchemaRef,
    layout: RankLayout,
    times: RankTimes,
    keys: RowConverter,
    orders: RowConverter,
    rows: RowConverter,
    carried: Option<CarriedStates>,
    /// Partitions used since the last turn of the generations, and those before.
    recent: HashMap<PartitionKey, PartitionRows>,
    old: HashMap<PartitionKey, PartitionRows>,
    /// True if a partition that is not in DRAM has no rows.
    is_complete: bool,
    /// Changed partitions in the order of their first change, with their rows as of the last commit.
    touched: Vec<PartitionKey>,
    before: HashMap<PartitionKey, PartitionRows>,
    /// Partitions of open windows, by the anchors of these.
    windows: BTreeMap<EventTime, BTreeSet<PartitionKey>>,
    /// Partitions with rows that wait for the watermark, by the times of these.
    pending: BTreeSet<(EventTime, PartitionKey)>,
    /// Entries that the transaction has taken from `pending`.
    sent: Vec<(EventTime, PartitionKey)>,
    /// Counter of the rows of all partitions, where functions read rows before another: many may wait in one.
    next: i64,
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

impl RankState {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        layout: RankLayout,
        times: RankTimes,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<RankState> {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let failed = |error: ArrowError| Error::Tuple { operator: name.clone(), reason: error.to_string() };
        let all = layout.key.len() + layout.others.len();
        let mut types = vec![None; all];
        for (at, &column) in layout.key.iter().enumerate() {
            types[column] = Some(schema.field(at).data_type().clone());
        }
        for (at, &column) in layout.others.iter().enumerate() {
            types[column] = Some(schema.field(layout.slot() + 2 + at).data_type().clone());
        }
        let types: Vec<_> = types.into_iter().flatten().collect();
        debug_assert_eq!(types.len(), all, "each column is stored once");
        let plain = |column: usize| SortField::new(types[column].clone());
        let ordered = |order: &RankOrder| {
            let options = SortOptions { descending: order.descending, nulls_first: order.nulls_first };
            SortField::new_with_options(types[order.column].clone(), options)
        };
        let keys = RowConverter::new(layout.key.iter().map(|&column| plain(column)).collect());
        let orders = RowConverter::new(layout.order.iter().map(ordered).collect());
        let rows = RowConverter::new((0..all).map(plain).collect());
        let carried = CarriedStates::new(&layout, &schema).map_err(failed)?;
        Ok(RankState {
            carried,
            keys: keys.map_err(failed)?,
            orders: orders.map_err(failed)?,
            rows: rows.map_err(failed)?,
            name,
            table,
            schema,
            layout,
            times,
            recent: HashMap::new(),
            old: HashMap::new(),
            is_complete: false,
            touched: Vec::new(),
            before: HashMap::new(),
            windows: BTreeMap::new(),
            pending: BTreeSet::new(),
            sent: Vec::new(),
            next: 0,
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    fn failed(&self, error: &ArrowError) -> Error {
        self.refused(error.to_string())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Reads what the ranking waits for. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction, watermark: EventTime) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let loaded = match self.times {
            RankTimes::Windows { .. } => self.load_all(tx),
            RankTimes::EventTime { time, .. } => self.load_pending(tx, time, watermark),
            RankTimes::Commit => {
                is_empty(&self.table, ScanRange::full(), tx).map(|is_empty| self.is_complete = is_empty)
            }
        };
        match loaded {
            Ok(()) => self.loaded = true,
            Err(_) => self.clear(),
        }
        loaded
    }

    fn clear(&mut self) {
        for partitions in [&mut self.recent, &mut self.old] {
            partitions.clear();
        }
        self.windows.clear();
        self.pending.clear();
        self.bytes = 0;
        self.memory.iter_mut().for_each(MemoryReservation::clear);
    }

    /// Reads all partitions, which are those of open windows.
    fn load_all(&mut self, tx: &Transaction) -> Result<()> {
        let mut found: Vec<(PartitionKey, Arc<RankedRow>)> = Vec::new();
        self.read(tx, ScanRange::full(), |key, row| found.push((key, row)))?;
        for (key, row) in found {
            self.bytes += row.bytes();
            match self.recent.get_mut(&key) {
                Some(rows) => rows.push(row),
                None => self.put(key, vec![row]),
            }
        }
        for rows in self.recent.values_mut() {
            rows.sort_unstable_by(|one, other| one.compare(other));
        }
        let keys: Vec<PartitionKey> = self.recent.keys().cloned().collect();
        keys.into_iter().try_for_each(|key| self.open_window(key))?;
        self.is_complete = true;
        self.reserve()
    }

    /// Notes the rows that wait for the watermark.
    fn load_pending(&mut self, tx: &Transaction, time: usize, watermark: EventTime) -> Result<()> {
        let mut pending = BTreeSet::new();
        let (mut is_empty, mut next) = (true, 0);
        self.read(tx, ScanRange::full(), |key, row| {
            is_empty = false;
            next = next.max(row.arrival + 1);
            if row.time >= watermark {
                pending.insert((row.time, key));
            }
        })?;
        debug_assert!(time < self.layout.key.len() + self.layout.others.len());
        (self.pending, self.is_complete, self.next) = (pending, is_empty, next);
        Ok(())
    }

    /// Reads rows of the state table.
    fn read(
        &self,
        tx: &Transaction,
        range: ScanRange,
        mut f: impl FnMut(PartitionKey, Arc<RankedRow>),
    ) -> Result<()> {
        let slot = self.layout.slot();
        read_batches(&self.table, &self.schema, tx, self.table.scan(range), |stored| {
            let malformed = || {
                self.refused(format!(
                    "a row of state table {} is not one of this operator",
                    self.table.name()
                ))
            };
            let numbers =
                |column: usize| stored.column(column).as_primitive_opt::<Int64Type>().ok_or_else(malformed);
            let (slots, arrivals) = (numbers(slot)?, numbers(slot + 1)?);
            let batch = self.stream_rows(stored)?;
            let times = self.times_of(&batch)?;
            let ranked = self.convert(&batch)?;
            let carried = self.carried.as_ref().map(|carried| carried.rows_of(stored)).transpose();
            let carried = carried.map_err(|error| self.failed(&error))?;
            for row in 0..batch.num_rows() {
                let time = times.as_ref().map_or(EventTime::START, |times| times[row]);
                let (slot, arrival) = (slots.value(row), arrivals.value(row));
                let mut read = ranked.row(row, slot, arrival, time);
                read.carried = carried.as_ref().map(|carried| carried.row(row).owned());
                f(PartitionKey::from(ranked.key(row)), Arc::new(read));
            }
            Ok(())
        })
    }

    /// Event times of rows, if the ranking waits for them.
    fn times_of(&self, batch: &RecordBatch) -> Result<Option<Vec<EventTime>>> {
        let RankTimes::EventTime { time, .. } = self.times else { return Ok(None) };
        let column = batch.column(time);
        let times = column.as_primitive_opt::<TimestampMicrosecondType>().map(|times| times.values());
        let times = times.or_else(|| column.as_primitive_opt::<Int64Type>().map(|times| times.values()));
        let times = times.filter(|_| column.null_count() == 0);
        let times = times.ok_or_else(|| self.refused("an event time is NULL".to_owned()))?;
        Ok(Some(times.iter().copied().map(EventTime::from_micros).collect()))
    }

    /// Rows of the stream from those of the state table.
    fn stream_rows(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let mut places = vec![0; self.layout.key.len() + self.layout.others.len()];
        for (at, &column) in self.layout.key.iter().enumerate() {
            places[column] = at;
        }
        for (at, &column) in self.layout.others.iter().enumerate() {
            places[column] = self.layout.slot() + 2 + at;
        }
        let read = if self.layout.has_nulls { self.with_nulls(stored) } else { Ok(stored.clone()) };
        read.and_then(|read| read.project(&places)).map_err(|error| self.failed(&error))
    }

    /// Rows of the state table whose keys are those of the stream, which may be NULL.
    fn with_nulls(&self, stored: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let width = self.layout.key.len();
        let keys = stored_keys::loaded(&stored.columns()[..=width])?;
        let columns = keys.into_iter().chain(stored.columns()[width..].iter().cloned());
        let fields =
            stored.schema_ref().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<Field>>())), columns.collect())
    }

    /// Rows of a batch in the forms in which they are compared and stored.
    pub(crate) fn convert(&self, batch: &RecordBatch) -> Result<RankedBatch> {
        let keys = columns_of(batch, &self.layout.key);
        if !self.layout.has_nulls && keys.iter().any(|key| key.null_count() > 0) {
            let reason = "NULL in a PARTITION BY column; filter such rows out, or map NULL to a value";
            return Err(self.refused(reason.to_owned()));
        }
        let keys: Vec<ArrayRef> = keys.iter().map(normalized).collect();
        let orders: Vec<ArrayRef> =
            self.layout.order.iter().map(|order| normalized(batch.column(order.column))).collect();
        let convert = |converter: &RowConverter, columns: &[ArrayRef]| {
            converter.convert_columns(columns).map_err(|error| self.failed(&error))
        };
        // A row that is taken back is found by its values, as they are in a key too.
        let rows = if self.layout.has_changes {
            convert(&self.rows, &batch.columns().iter().map(normalized).collect::<Vec<_>>())
        } else {
            convert(&self.rows, batch.columns())
        };
        Ok(RankedBatch {
            keys: if keys.is_empty() { None } else { Some(convert(&self.keys, &keys)?) },
            orders: convert(&self.orders, &orders)?,
            rows: rows?,
        })
    }

    /// Adds a row of a batch, if it is one of the first of its partition.
    pub(crate) fn add(
        &mut self,
        tx: &Transaction,
        batch: &RankedBatch,
        row: usize,
        time: EventTime,
    ) -> Result<()> {
        self.fetch(tx, batch.key(row))?;
        let order = batch.orders.row(row);
        let Some((key, rows)) = self.recent.get_key_value(batch.key(row)) else {
            return Err(self.refused("a partition is not in DRAM".to_owned()));
        };
        let position = rows.partition_point(|other| &*other.order <= order.data());
        if self.layout.is_beyond(rows, position, order.data()) {
            return Ok(());
        }
        let key = Arc::clone(key);
        self.insert(&key, position, batch, row, time)
    }

    /// Takes a row of a batch back: the first that came of those that equal it.
    pub(crate) fn remove(&mut self, tx: &Transaction, batch: &RankedBatch, row: usize) -> Result<()> {
        self.fetch(tx, batch.key(row))?;
        let (order, values) = (batch.orders.row(row), batch.rows.row(row));
        let found = self.recent.get_key_value(batch.key(row)).and_then(|(key, rows)| {
            let first = rows.partition_point(|other| &*other.order < order.data());
            let alike = rows[first..].iter().take_while(|other| *other.order == *order.data());
            let place = alike.into_iter().position(|other| other.row.row() == values)?;
            Some((Arc::clone(key), first + place))
        });
        let Some((key, place)) = found else {
            return Err(self.refused("a row is taken back that was not ranked".to_owned()));
        };
        self.touch(&key);
        if let Some(rows) = self.recent.get_mut(&key) {
            let removed = rows.remove(place);
            self.bytes -= removed.bytes();
        }
        Ok(())
    }

    fn insert(
        &mut self,
        key: &PartitionKey,
        position: usize,
        batch: &RankedBatch,
        row: usize,
        time: EventTime,
    ) -> Result<()> {
        self.touch(key);
        let Some(rows) = self.recent.get_mut(key) else { return Ok(()) };
        let is_new = rows.is_empty();
        let (arrival, next) = if self.layout.frames.is_some() {
            self.next += 1;
            (self.next - 1, self.next - 1)
        } else {
            let arrival = rows.iter().map(|row| row.arrival + 1).max().unwrap_or(0);
            (arrival, rows.iter().map(|row| row.slot + 1).max().unwrap_or(0))
        };
        let added = Arc::new(batch.row(row, next, arrival, time));
        self.bytes += added.bytes();
        rows.insert(position, added);
        let removed = self.layout.truncate(rows);
        self.bytes -= bytes_of(&removed);
        let slot = removed.iter().map(|row| row.slot).min();
        if let Some((added, slot)) = rows.get_mut(position).and_then(Arc::get_mut).zip(slot) {
            added.slot = slot;
        }
        for row in &removed {
            if rows.iter().all(|other| other.time != row.time) {
                self.pending.remove(&(row.time, Arc::clone(key)));
            }
        }
        match self.times {
            RankTimes::Windows { .. } if is_new => self.open_window(Arc::clone(key))?,
            RankTimes::EventTime { .. } => drop(self.pending.insert((time, Arc::clone(key)))),
            RankTimes::Windows { .. } | RankTimes::Commit => {}
        }
        Ok(())
    }

    /// Notes the rows of a partition as of the last commit, before its first change.
    fn touch(&mut self, key: &PartitionKey) {
        if self.before.contains_key(key) {
            return;
        }
        let rows = self.recent.get(key).cloned().unwrap_or_default();
        self.before.insert(Arc::clone(key), rows);
        self.touched.push(Arc::clone(key));
    }

    fn put(&mut self, key: PartitionKey, rows: PartitionRows) {
        self.bytes += key.len() + PARTITION_BYTES;
        self.recent.insert(key, rows);
    }

    /// Brings a partition into `recent`.
    fn fetch(&mut self, tx: &Transaction, key: &[u8]) -> Result<()> {
        if self.recent.contains_key(key) {
            return Ok(());
        }
        if let Some((key, rows)) = self.old.remove_entry(key) {
            self.recent.insert(key, rows);
            return Ok(());
        }
        let key = PartitionKey::from(key);
        let rows = if self.is_complete { Vec::new() } else { self.read_partition(tx, &key)? };
        self.bytes += bytes_of(&rows);
        self.put(key, rows);
        Ok(())
    }

    /// Reads the rows of a partition from the state table.
    fn read_partition(&self, tx: &Transaction, key: &PartitionKey) -> Result<PartitionRows> {
        let mut rows = Vec::new();
        self.read(tx, self.range_of(key)?, |_, row| rows.push(row))?;
        rows.sort_unstable_by(|one, other| one.compare(other));
        Ok(rows)
    }

    /// Rows of a partition in the state table.
    fn range_of(&self, key: &PartitionKey) -> Result<ScanRange> {
        if self.layout.key.is_empty() {
            return Ok(ScanRange::full());
        }
        let parser = self.keys.parser();
        let columns = self.keys.convert_rows(std::iter::once(parser.parse(key)));
        let columns = columns.and_then(|columns| self.stored_key(columns, 1));
        let columns = columns.map_err(|error| self.failed(&error))?;
        let places: Vec<usize> = (0..columns.len()).collect();
        let batch = self.schema.project(&places);
        let batch = batch.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        Ok(ScanRange::prefix(&rows_of(&batch.map_err(|error| self.failed(&error))?)?[0]))
    }

    /// Columns of the state table with the partitions of so many rows.
    fn stored_key(&self, key: Vec<ArrayRef>, rows: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        if self.layout.has_nulls { stored_keys::stored(&key, rows) } else { Ok(key) }
    }

    /// Notes that a partition is of an open window.
    fn open_window(&mut self, key: PartitionKey) -> Result<()> {
        let anchor = self.anchor_of(&key)?;
        self.windows.entry(anchor).or_default().insert(key);
        Ok(())
    }

    /// Anchor of the window of a partition.
    fn anchor_of(&self, key: &PartitionKey) -> Result<EventTime> {
        let RankTimes::Windows { .. } = self.times else { return Ok(EventTime::START) };
        let parser = self.keys.parser();
        let columns = self.keys.convert_rows(std::iter::once(parser.parse(key)));
        let columns = columns.map_err(|error| self.failed(&error))?;
        let edge = columns[0].as_primitive_opt::<TimestampMicrosecondType>();
        let edge = edge.ok_or_else(|| self.refused("an edge of a window is not a timestamp".to_owned()))?;
        Ok(self.times.anchor(EventTime::from_micros(edge.value(0))))
    }

    /// Anchor of the last open window.
    pub(crate) fn last_window(&self) -> Option<EventTime> {
        self.windows.last_key_value().map(|(anchor, _)| *anchor)
    }

    /// Time of the last row that waits.
    pub(crate) fn last_pending(&self) -> Option<EventTime> {
        self.pending.last().map(|(time, _)| *time)
    }

    /// Removes the windows with an anchor before a time; adds their rows to the output.
    pub(crate) fn close(&mut self, before: EventTime, output: &mut RankedOutput) {
        while let Some(window) = self.windows.first_entry().filter(|window| *window.key() < before) {
            for key in window.remove() {
                self.touch(&key);
                let Some(rows) = self.recent.remove(&key) else { continue };
                self.bytes -= key.len() + PARTITION_BYTES + bytes_of(&rows);
                for (row, rank) in rows.iter().zip(self.layout.ranks(&rows)) {
                    output.push(row, rank);
                }
            }
        }
    }

    /// Adds the rows with times in a range to the output, in the order of their times.
    pub(crate) fn send_until(
        &mut self,
        tx: &Transaction,
        from: EventTime,
        to: EventTime,
        output: &mut RankedOutput,
    ) -> Result<()> {
        while self.pending.first().is_some_and(|(time, _)| *time < to) {
            let Some((time, key)) = self.pending.pop_first() else { break };
            self.fetch(tx, &key)?;
            let rows = self.recent.get(&key);
            for (at, row) in rows.into_iter().flatten().enumerate() {
                if row.time == time && time >= from {
                    output.push(row, at as i64 + 1);
                }
            }
            self.sent.push((time, key));
        }
        Ok(())
    }

    /// Adds what has changed since the last commit to the output.
    pub(crate) fn send_changes(&self, output: &mut RankedOutput) {
        match self.layout.changes {
            RankChanges::OfRanks => self.send_ranks(output),
            RankChanges::OfRows { skipped } => self.send_rows(skipped, output),
        }
    }

    /// Adds the rows whose ranks are others than at the last commit; those that had these ranks are taken back.
    fn send_ranks(&self, output: &mut RankedOutput) {
        let limit = self.layout.limit.unwrap_or(usize::MAX);
        for key in &self.touched {
            let (Some(before), Some(rows)) = (self.before.get(key), self.recent.get(key)) else { continue };
            for at in 0..before.len().max(rows.len()).min(limit) {
                let (before, row) = (before.get(at), rows.get(at));
                if let (Some(before), Some(row)) = (before, row)
                    && (Arc::ptr_eq(before, row) || before.row.row() == row.row.row())
                {
                    continue;
                }
                if let Some(before) = before {
                    output.push_change(before, at as i64 + 1, true);
                }
                if let Some(row) = row {
                    output.push(row, at as i64 + 1);
                }
            }
        }
    }

    /// Adds the rows that have left those behind the first `skipped` up to the limit, and then those that are new there.
    fn send_rows(&self, skipped: usize, output: &mut RankedOutput) {
        let limit = self.layout.limit.unwrap_or(usize::MAX);
        let shown = |rows: &PartitionRows| skipped.min(rows.len())..limit.min(rows.len());
        let (mut new_rows, mut left) = (Vec::new(), Vec::new());
        for key in &self.touched {
            let (Some(before), Some(rows)) = (self.before.get(key), self.recent.get(key)) else { continue };
            arrived_and_left(&before[shown(before)], &rows[shown(rows)], &mut new_rows, &mut left);
        }
        left.into_iter().for_each(|row| output.push_change(row, 0, true));
        new_rows.into_iter().for_each(|row| output.push(row, 0));
    }

    /// Columns of a part of an output: those of the stream, and the rank.
    pub(crate) fn columns(
        &self,
        output: &RankedOutput,
        part: std::ops::Range<usize>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = output.rows[part.clone()].iter().map(|row| row.row.row());
        let mut columns = self.rows.convert_rows(rows).map_err(|error| self.failed(&error))?;
        columns.push(Arc::new(Int64Array::from(output.ranks[part].to_vec())));
        Ok(columns)
    }

    /// Writes the changed partitions to the transaction, and votes for them.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        let (mut written, mut deleted) = (Vec::new(), Vec::new());
        let none = Vec::new();
        for key in &self.touched {
            let before = self.before.get(key).unwrap_or(&none);
            let after = self.recent.get(key).unwrap_or(&none);
            differences(before, after, &mut written, &mut deleted);
        }
        if !deleted.is_empty() {
            let keys = self.stored(&deleted)?.project(&(0..=self.layout.slot()).collect::<Vec<_>>());
            self.table.delete_batch(tx, &keys.map_err(|error| self.failed(&error))?)?;
        }
        if !written.is_empty() {
            self.table.upsert_batch(tx, &self.stored(&written)?)?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Rows of the state table.
    fn stored(&self, rows: &[&Arc<RankedRow>]) -> Result<RecordBatch> {
        let all = self.rows.convert_rows(rows.iter().map(|row| row.row.row()));
        let all = all.map_err(|error| self.failed(&error))?;
        let pick = |columns: &[usize]| columns.iter().map(|&at| Arc::clone(&all[at])).collect::<Vec<_>>();
        let key = self.stored_key(pick(&self.layout.key), rows.len());
        let mut columns = key.map_err(|error| self.failed(&error))?;
        columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.slot))));
        columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.arrival))));
        columns.extend(pick(&self.layout.others));
        if let Some(carried) = &self.carried {
            let states = carried.columns(rows.iter().map(|row| row.carried.as_ref()));
            columns.extend(states.map_err(|error| self.failed(&error))?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| self.failed(&error))
    }

    /// Reserves memory for what is in DRAM; drops partitions that can be read again if there is not enough.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        let wanted = |bytes: usize| bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        if self.memory.as_ref().is_none_or(|memory| self.bytes as u64 <= memory.bytes()) {
            return Ok(());
        }
        let bytes = self.bytes;
        let reserved = self.memory.as_mut().map(|memory| memory.try_resize(wanted(bytes)));
        if !matches!(reserved, Some(Err(_))) || !self.is_cache() {
            return limited(reserved);
        }
        self.drop_old();
        let bytes = self.bytes;
        limited(self.memory.as_mut().map(|memory| memory.try_resize(wanted(bytes))))
    }

    /// Tells whether partitions may leave DRAM.
    fn is_cache(&self) -> bool {
        !matches!(self.times, RankTimes::Windows { .. })
    }

    /// Drops the partitions that were not used in this generation: none of them is changed.
    fn drop_old(&mut self) {
        let old = std::mem::take(&mut self.old);
        self.is_complete &= old.is_empty();
        for (key, rows) in &old {
            self.bytes -= key.len() + PARTITION_BYTES + bytes_of(rows);
        }
    }

    /// Notes that DRAM is as of the last commit, and turns the generations if there are many partitions, or little memory.
    pub(crate) fn committed(&mut self) {
        self.touched.clear();
        self.before.clear();
        self.sent.clear();
        let is_full = self.recent.len() * 2 >= self.layout.partitions_in_dram;
        if self.is_cache() && (is_full || is_short(self.memory.as_ref())) {
            self.drop_old();
            self.old = std::mem::take(&mut self.recent);
        }
        self.release();
    }

    /// Restores the partitions that the transaction has changed.
    pub(crate) fn aborted(&mut self) {
        self.pending.extend(std::mem::take(&mut self.sent));
        let mut before = std::mem::take(&mut self.before);
        for key in std::mem::take(&mut self.touched) {
            let rows = before.remove(&key).unwrap_or_default();
            let changed = self.recent.remove(&key);
            if let Some(changed) = &changed {
                self.bytes -= key.len() + PARTITION_BYTES + bytes_of(changed);
            }
            self.restore(key, changed.unwrap_or_default(), rows);
        }
        self.release();
    }

    /// Restores the rows of a partition, and what waits for them.
    fn restore(&mut self, key: PartitionKey, changed: PartitionRows, rows: PartitionRows) {
        match self.times {
            RankTimes::Windows { .. } => {
                // Its anchor was found when it was opened.
                let anchor = self.anchor_of(&key).unwrap_or(EventTime::START);
                let window = self.windows.entry(anchor).or_default();
                window.remove(&key);
                if rows.is_empty() {
                    if window.is_empty() {
                        self.windows.remove(&anchor);
                    }
                    return;
                }
                window.insert(Arc::clone(&key));
            }
            RankTimes::EventTime { .. } => {
                for row in &changed {
                    self.pending.remove(&(row.time, Arc::clone(&key)));
                }
                self.pending.extend(rows.iter().map(|row| (row.time, Arc::clone(&key))));
            }
            RankTimes::Commit => {}
        }
        self.bytes += bytes_of(&rows);
        self.put(key, rows);
    }

    /// Releases the memory of rows that have left DRAM.
    fn release(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }
}

/// Tells whether state that may leave DRAM has more memory than is free for it: it begins a generation, so that what is not used
/// again leaves when the rest is needed.
pub(super) fn is_short(memory: Option<&MemoryReservation>) -> bool {
    memory.is_some_and(|memory| memory.budget().free_bytes() < memory.bytes())
}

/// Result of a reservation.
pub(super) fn limited(reserved: Option<Result<(), entresol_memory::budget::MemoryLimit>>) -> Result<()> {
    match reserved {
        Some(Err(limit)) => Err(entresol_transactions::Error::Memory(limit.into()).into()),
        _ => Ok(()),
    }
}
