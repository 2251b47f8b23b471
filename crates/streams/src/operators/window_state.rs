//! The open windows of a window aggregate: a DRAM cache over the operator's state table.
//!
//! ```text
//!   state table  (window_start, group columns) -> accumulators      committed, queryable by SQL
//!        ▲ touched groups at every commit          │ all rows at start, changed windows after an abort
//!        │                                         ▼
//!   windows: window_start -> group numbers, an array of accumulators for each aggregate      DRAM
//! ```
//!
//! # Invariants
//!
//! - A `complete` window has all its groups in DRAM; the missing groups of any other one are in the table.
//! - At a commit, touched groups are written; so a committed transaction's table rows are the windows' state.
//! - Windows that no epoch without a commit has changed equal their rows; the others are `changed`, or `changed_sealed`.
//! - A state may be a part of an operator's ([`super::divided_state`]): it has the groups of its [`KeyPart`] and reads no
//!   other rows.
//! - The table belongs to one operator of one topology; changes by others are overwritten or lost.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort drops the changed windows, and the next use reads their rows again.
//!
//! # Memory
//!
//! At most [`GROUPS_IN_DRAM_MAX`] groups between batches, and at most the part of the pool's memory budget
//! that is available to stream state: when full, the oldest window is written to the transaction and leaves
//! DRAM. At most [`OPEN_WINDOWS_MAX`] windows; more is an error.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::{EpochTransaction, PartRows};
use crate::operators::accumulator::{Accumulators, BoundAggregate};
use crate::operators::group_index::GroupIndex;
use crate::operators::key_parts::KeyPart;
use crate::{GROUPS_IN_DRAM_MAX, OPEN_WINDOWS_MAX, UTC};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryLimit, MemoryReservation};
use entresol_tables::{Cursor, ScanRange, StoredRows, Table, Value, arrow_schema};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are reserved at a time.
pub(crate) const RESERVED_BYTES_STEP: usize = 64 << 10;
/// Rows of the state table that are read together.
const LOAD_ROWS: usize = 8192;
/// Touched groups of a window are sorted by themselves if they are fewer than this part of it.
const FEW_TOUCHED: usize = 8;

pub(crate) struct WindowState {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    pub(crate) aggregates: Vec<BoundAggregate>,
    /// Indexes of the group columns in the tuples.
    group_columns: Vec<usize>,
    /// Groups that are of this state.
    part: KeyPart,
    /// Columns of the state table.
    schema: SchemaRef,
    /// At most [`GROUPS_IN_DRAM_MAX`], at least 1.
    groups_max: usize,
    windows: BTreeMap<EventTime, OpenWindow>,
    /// Starts of the windows with touched groups; some may be closed since.
    touched: Vec<EventTime>,
    /// Starts of the windows that changed in the open epoch, and in one that was sealed and may commit.
    changed: Vec<EventTime>,
    changed_sealed: Vec<EventTime>,
    /// Starts of the windows whose touched groups have left DRAM in the open epoch.
    spilled: Vec<EventTime>,
    /// Starts of the windows that an abort has dropped from DRAM.
    dropped: Vec<EventTime>,
    groups: usize,
    /// Bytes of the groups, and the bytes reserved for them.
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
    /// Groups of the last closed window: the next one will have about as many.
    groups_expected: usize,
    /// Group of each row of a batch.
    numbers: Vec<u32>,
}

struct OpenWindow {
    index: GroupIndex,
    accumulators: Vec<Accumulators>,
    flags: Vec<GroupFlags>,
    touched: Vec<u32>,
    /// All groups in the order of their keys, as of its length.
    sorted: Vec<u32>,
    complete: bool,
    /// Groups and bytes that are counted for the operator.
    counted: (usize, usize),
}

#[derive(Debug, Clone, Copy, Default)]
struct GroupFlags {
    /// True if it differs from its row.
    touched: bool,
    /// True if it may have a row.
    stored: bool,
}

/// Groups of a closed window, in the order of their keys.
pub(crate) struct ClosedGroups {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) results: Vec<ArrayRef>,
    pub(crate) groups: usize,
}

impl OpenWindow {
    /// Estimated bytes of memory: vectors that grow have spare capacity. Strings among minima and maxima are
    /// extra.
    fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(Accumulators::group_bytes).sum();
        let extra: usize = self.accumulators.iter().map(Accumulators::extra_bytes).sum();
        let group = size_of::<GroupFlags>() + 2 * size_of::<u32>() + accumulators;
        2 * group * self.index.len() + self.index.bytes() + extra
    }

    /// Makes room for the accumulators of all numbered groups.
    fn resize(&mut self) {
        let groups = self.index.len();
        self.accumulators.iter_mut().for_each(|accumulators| accumulators.resize(groups));
        self.flags.resize(groups, GroupFlags::default());
    }

    fn touch(&mut self, numbers: &[u32]) {
        for &number in numbers {
            let flags = &mut self.flags[number as usize];
            if !flags.touched {
                flags.touched = true;
                self.touched.push(number);
            }
        }
    }

    /// Touched groups in the order of their keys; they are stored now.
    fn take_touched(&mut self) -> Vec<u32> {
        let mut touched = std::mem::take(&mut self.touched);
        if touched.len() * FEW_TOUCHED < self.index.len() {
            self.index.sort(&mut touched);
        } else {
            self.sort();
            let is_touched = |number: &u32| self.flags[*number as usize].touched;
            touched = self.sorted.iter().copied().filter(is_touched).collect();
        }
        for &number in &touched {
            self.flags[number as usize] = GroupFlags { touched: false, stored: true };
        }
        touched
    }

    fn sort(&mut self) {
        let groups = self.index.len();
        if self.sorted.len() < groups {
            // Only the new ones are out of place.
            self.sorted.extend(self.sorted.len() as u32..groups as u32);
            self.index.sort(&mut self.sorted);
        }
    }
}

impl WindowState {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        aggregates: Vec<BoundAggregate>,
        group_columns: Vec<usize>,
        groups_max: usize,
        part: KeyPart,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> WindowState {
        WindowState {
            name,
            schema: arrow_schema(table.schema().visible_columns(), UTC),
            table,
            aggregates,
            group_columns,
            part,
            groups_max: (groups_max.clamp(1, GROUPS_IN_DRAM_MAX) / part.of).max(1),
            windows: BTreeMap::new(),
            touched: Vec::new(),
            changed: Vec::new(),
            changed_sealed: Vec::new(),
            spilled: Vec::new(),
            dropped: Vec::new(),
            groups: 0,
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
            groups_expected: 0,
            numbers: Vec::new(),
        }
    }

    /// Notes the end of the epoch.
    pub(crate) fn sealed(&mut self) {
        self.changed_sealed.append(&mut self.changed);
    }

    /// Notes that the sealed epoch is committed: its windows equal their rows, but for what changed since.
    pub(crate) fn committed(&mut self) {
        self.changed_sealed.clear();
    }

    /// Drops the windows from DRAM that were changed and not committed.
    pub(crate) fn aborted(&mut self) {
        self.touched.clear();
        self.spilled.clear();
        let mut changed = std::mem::take(&mut self.changed);
        changed.append(&mut self.changed_sealed);
        changed.sort_unstable();
        changed.dedup();
        for start in changed {
            if let Some(window) = self.windows.remove(&start) {
                self.release(window.counted);
            }
            self.dropped.push(start);
        }
    }

    /// Reads what is not in DRAM. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, epoch: &EpochTransaction) -> Result<()> {
        if !self.loaded {
            self.dropped.clear();
            self.load(epoch, self.table.scan(ScanRange::full()))?;
            self.loaded = true;
        }
        while let Some(start) = self.dropped.pop() {
            if let Err(error) = self.load(epoch, self.table.scan(prefix(start))) {
                self.dropped.push(start);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Loads rows of the state table into their windows, as far as they fit.
    fn load(&mut self, epoch: &EpochTransaction, cursor: Cursor) -> Result<()> {
        self.read(epoch, cursor, |state, start, rows| {
            let full = state.groups + rows.num_rows() > state.groups_max || state.try_reserve(1).is_err();
            let window = state.open_window(start)?;
            if full {
                window.complete = false;
                return Ok(());
            }
            state.load_rows(start, rows)?;
            if state.try_reserve(0).is_err() {
                // It is in the table.
                if let Some(window) = state.windows.remove(&start) {
                    state.release(window.counted);
                }
                state.open_window(start)?.complete = false;
            }
            Ok(())
        })
    }

    /// Calls `f` with the rows of the state table that are of its part, those of one window at a time.
    fn read(
        &mut self,
        epoch: &EpochTransaction,
        cursor: Cursor,
        mut f: impl FnMut(&mut WindowState, EventTime, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let table = Arc::clone(&self.table);
        let schema = Arc::clone(&self.schema);
        read_batches(&table, &schema, epoch.get()?, cursor, |batch| {
            let starts = batch.column(self.group_columns.len());
            let starts = starts.as_primitive_opt::<TimestampMicrosecondType>();
            let starts = starts.ok_or_else(|| self.malformed())?.values();
            let mut first = 0;
            let keys: Vec<usize> = (0..self.group_columns.len()).collect();
            for run in starts.chunk_by(|one, next| one == next) {
                let rows = self.part.rows(&batch.slice(first, run.len()), &keys);
                let rows = rows.map_err(|error| self.failed(&error))?;
                if rows.num_rows() > 0 {
                    f(self, EventTime::from_micros(run[0]), &rows)?;
                }
                first += run.len();
            }
            Ok(())
        })
    }

    /// Adds rows of the state table to a window in DRAM.
    fn load_rows(&mut self, start: EventTime, rows: &RecordBatch) -> Result<()> {
        let groups = self.group_columns.len();
        let mut numbers = std::mem::take(&mut self.numbers);
        let keys = &rows.columns()[..groups];
        let window = self.open_window(start)?;
        let numbered = window.number(keys, rows.num_rows(), &mut numbers);
        window.resize();
        for &number in &numbers {
            window.flags[number as usize].stored = true;
        }
        let set = self.set_groups(start, &numbers, &rows.columns()[groups + 1..]);
        self.numbers = numbers;
        numbered.map_err(|error| self.failed(&error))?;
        set?;
        self.count(start);
        Ok(())
    }

    /// Sets groups to stored accumulators.
    fn set_groups(&mut self, start: EventTime, numbers: &[u32], stored: &[ArrayRef]) -> Result<()> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        let mut columns = stored.iter();
        let mut aggregates = self.aggregates.iter().zip(&mut window.accumulators);
        if aggregates.all(|(aggregate, accumulators)| aggregate.load(accumulators, numbers, &mut columns)) {
            return Ok(());
        }
        Err(self.malformed())
    }

    fn malformed(&self) -> Error {
        let reason = format!("a row of state table {} is not one of this operator", self.table.name());
        Error::Tuple { operator: self.name.clone(), reason }
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// Adds tuples to their groups in the window that starts at `start`.
    pub(crate) fn add(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
        tuples: &RecordBatch,
    ) -> Result<()> {
        self.add_tuples(epoch, start, tuples)?;
        self.spill_to_fit(epoch)
    }

    /// Adds tuples like [`WindowState::add`]; returns their groups with the results that they have now.
    pub(crate) fn correct(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
        tuples: &RecordBatch,
    ) -> Result<ClosedGroups> {
        self.add_tuples(epoch, start, tuples)?;
        let mut groups = self.numbers.clone();
        groups.sort_unstable();
        groups.dedup();
        let window = self.open_window(start)?;
        window.index.sort(&mut groups);
        let corrected = self.results_of(start, &groups)?;
        self.spill_to_fit(epoch)?;
        Ok(corrected)
    }

    /// Adds tuples to their groups; their numbers are in `numbers` then.
    fn add_tuples(&mut self, epoch: &EpochTransaction, start: EventTime, tuples: &RecordBatch) -> Result<()> {
        let keys = columns_of(tuples, &self.group_columns);
        if keys.iter().any(|key| key.null_count() > 0) {
            let reason = "NULL in a group column; filter such tuples out, or map NULL to a value".to_owned();
            return Err(Error::Tuple { operator: self.name.clone(), reason });
        }
        if self.groups == 0
            && let Err(limit) = self.try_reserve(1)
        {
            return Err(entresol_transactions::Error::Memory(limit.into()).into());
        }
        let mut numbers = std::mem::take(&mut self.numbers);
        let added = self.add_numbered(epoch, start, tuples, &keys, &mut numbers);
        self.numbers = numbers;
        added?;
        self.count(start);
        Ok(())
    }

    /// Writes the oldest windows out until the others fit.
    fn spill_to_fit(&mut self, epoch: &EpochTransaction) -> Result<()> {
        while self.groups > self.groups_max || self.try_reserve(0).is_err() {
            self.spill(epoch)?;
        }
        Ok(())
    }

    fn add_numbered(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
        tuples: &RecordBatch,
        keys: &[ArrayRef],
        numbers: &mut Vec<u32>,
    ) -> Result<()> {
        let window = self.open_window(start)?;
        let before = window.index.len();
        let numbered = window.number(keys, tuples.num_rows(), numbers);
        window.resize();
        let is_first = window.touched.is_empty();
        window.touch(numbers);
        let is_missing = !window.complete && window.index.len() > before;
        if is_first {
            self.touched.push(start);
            self.changed.push(start);
        }
        numbered.map_err(|error| self.failed(&error))?;
        if is_missing {
            self.look_up(epoch, start, before)?;
        }
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        for (aggregate, accumulators) in self.aggregates.iter().zip(&mut window.accumulators) {
            let columns = columns_of(tuples, aggregate.columns());
            let added = aggregate.add(accumulators, numbers, &columns);
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(())
    }

    /// Reads the rows of the groups of a window from a number on, as far as there are some.
    fn look_up(&mut self, epoch: &EpochTransaction, start: EventTime, first: usize) -> Result<()> {
        let Some(window) = self.windows.get(&start) else { return Ok(()) };
        let groups: Vec<u32> = (first as u32..window.index.len() as u32).collect();
        let keys = self.key_rows(start, &window.index, &groups)?;
        let keys = entresol_tables::rows_of(&keys)?;
        let projection: Vec<usize> = (self.group_columns.len() + 1..self.schema.fields().len()).collect();
        let arrow = self.schema.project(&projection).map_err(|error| self.failed(&error))?;
        let mut rows = StoredRows::new(
            self.table.name(),
            self.table.schema(),
            &projection,
            Arc::new(arrow),
            groups.len(),
        );
        let mut found = Vec::new();
        self.table.get_many_with(epoch.get()?, &keys, |at, row| {
            found.push(groups[at]);
            rows.push_view(&row);
        })?;
        let stored = rows.finish()?;
        if let Some(window) = self.windows.get_mut(&start) {
            found.iter().for_each(|&number| window.flags[number as usize].stored = true);
        }
        self.set_groups(start, &found, stored.columns())
    }

    /// Keys of the rows of these groups, in key order: the window, then the group columns.
    fn key_rows(&self, start: EventTime, index: &GroupIndex, groups: &[u32]) -> Result<RecordBatch> {
        let mut columns = vec![self.starts(start, groups.len())];
        let failed = |error| self.failed(&error);
        columns.extend(index.keys(groups).map_err(failed)?);
        let window = self.group_columns.len();
        let order: Vec<usize> = std::iter::once(window).chain(0..window).collect();
        let schema = self.schema.project(&order).map_err(failed)?;
        RecordBatch::try_new(Arc::new(schema), columns).map_err(failed)
    }

    /// Column `window_start` of so many rows.
    fn starts(&self, start: EventTime, rows: usize) -> ArrayRef {
        let data_type = self.schema.field(self.group_columns.len()).data_type().clone();
        let starts = PrimitiveArray::<TimestampMicrosecondType>::from_value(start.micros(), rows);
        Arc::new(starts.with_data_type(data_type))
    }

    /// Reserves memory for `more` bytes.
    fn try_reserve(&mut self, more: usize) -> Result<(), MemoryLimit> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let wanted = self.bytes + more;
        if wanted as u64 <= memory.bytes() {
            return Ok(());
        }
        memory.try_resize(wanted.next_multiple_of(RESERVED_BYTES_STEP) as u64)
    }

    /// Counts the groups of a window again.
    fn count(&mut self, start: EventTime) {
        let Some(window) = self.windows.get_mut(&start) else { return };
        let counted = (window.index.len(), window.bytes());
        self.groups = self.groups - window.counted.0 + counted.0;
        self.bytes = self.bytes - window.counted.1 + counted.1;
        window.counted = counted;
    }

    /// Releases the memory of groups that have left DRAM.
    fn release(&mut self, (groups, bytes): (usize, usize)) {
        self.groups -= groups;
        self.bytes -= bytes;
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }

    /// Writes the oldest window that has groups in DRAM to the transaction and drops its groups.
    fn spill(&mut self, epoch: &EpochTransaction) -> Result<()> {
        let oldest = self.windows.iter().find(|(_, window)| window.index.len() > 0).map(|(start, _)| *start);
        let Some(start) = oldest else { return Ok(()) };
        self.write_window(epoch, start)?;
        if let Some(window) = self.windows.remove(&start) {
            self.release(window.counted);
        }
        self.open_window(start)?.complete = false;
        self.spilled.push(start);
        Ok(())
    }

    /// Starts of the windows that have changed in the epoch; some may be closed since.
    pub(crate) fn touched_windows(&self) -> impl Iterator<Item = EventTime> {
        self.touched.iter().chain(&self.spilled).copied()
    }

    /// Groups that have changed in the epoch, with the results that they have now; of a window that has left DRAM meanwhile
    /// all groups. Before they are written.
    pub(crate) fn touched_results(
        &mut self,
        epoch: &EpochTransaction,
    ) -> Result<Vec<(EventTime, ClosedGroups)>> {
        let mut results = Vec::new();
        let mut spilled = self.spilled.clone();
        spilled.sort_unstable();
        spilled.dedup();
        for &start in &spilled {
            if self.windows.contains_key(&start) {
                results.extend(self.results(epoch, start)?.map(|groups| (start, groups)));
            }
        }
        for start in self.touched.clone() {
            let Some(window) = self.windows.get(&start).filter(|_| !spilled.contains(&start)) else {
                continue;
            };
            let mut groups = window.touched.clone();
            window.index.sort(&mut groups);
            if !groups.is_empty() {
                results.push((start, self.results_of(start, &groups)?));
            }
        }
        Ok(results)
    }

    /// Writes the touched groups of all windows.
    pub(crate) fn write_touched(&mut self, epoch: &EpochTransaction) -> Result<()> {
        self.spilled.clear();
        let starts = std::mem::take(&mut self.touched);
        starts.into_iter().try_for_each(|start| self.write_window(epoch, start))
    }

    /// Encodes the touched groups of all windows, to be written.
    pub(crate) fn encode_touched(&mut self) -> Result<Vec<PartRows>> {
        let mut encoded = Vec::new();
        self.spilled.clear();
        for start in std::mem::take(&mut self.touched) {
            if let Some(rows) = self.touched_rows(start)? {
                encoded.push(PartRows::new(&self.table, rows)?);
            }
        }
        Ok(encoded)
    }

    fn write_window(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        self.touched_rows(start)?.map_or(Ok(()), |rows| epoch.upsert(&self.table, &rows))
    }

    /// Rows of the touched groups of a window, which count as stored.
    fn touched_rows(&mut self, start: EventTime) -> Result<Option<RecordBatch>> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(None) };
        let groups = window.take_touched();
        if groups.is_empty() {
            return Ok(None);
        }
        let keys = window.index.keys(&groups);
        let stores = self.aggregates.iter().zip(&mut window.accumulators);
        let stores = stores.map(|(aggregate, accumulators)| aggregate.store(accumulators, &groups));
        let stores = stores.collect::<Result<Vec<_>, String>>();
        let stores = stores.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?.concat();
        let mut columns = keys.map_err(|error| self.failed(&error))?;
        columns.push(self.starts(start, groups.len()));
        columns.extend(stores);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        rows.map(Some).map_err(|error| self.failed(&error))
    }

    /// Returns the start of the first window that starts before `end`.
    pub(crate) fn first_before(&self, end: EventTime) -> Option<EventTime> {
        self.windows.keys().next().copied().filter(|start| *start < end)
    }

    /// Returns the start of the last window.
    pub(crate) fn last_start(&self) -> Option<EventTime> {
        self.windows.keys().next_back().copied()
    }

    /// Returns the starts of the windows in a range of time.
    pub(crate) fn starts_within(&self, range: Range<EventTime>) -> Vec<EventTime> {
        self.windows.range(range).map(|(start, _)| *start).collect()
    }

    /// Reads the groups of a window that are not in DRAM.
    fn complete(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        if self.windows.get(&start).is_none_or(|window| window.complete) {
            return Ok(());
        }
        self.changed.push(start);
        self.write_window(epoch, start)?;
        if let Some(window) = self.windows.remove(&start) {
            self.release(window.counted);
        }
        self.read(epoch, self.table.scan(prefix(start)), |state, start, rows| state.load_rows(start, rows))
    }

    /// Returns all groups of a window, which stays as it is.
    pub(crate) fn results(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
    ) -> Result<Option<ClosedGroups>> {
        self.complete(epoch, start)?;
        let Some(window) = self.windows.get_mut(&start) else { return Ok(None) };
        window.sort();
        let order = window.sorted.clone();
        self.results_of(start, &order).map(Some)
    }

    /// Results of groups of a window in DRAM, in this order.
    fn results_of(&mut self, start: EventTime, groups: &[u32]) -> Result<ClosedGroups> {
        let refused = |reason| Error::Tuple { operator: self.name.clone(), reason };
        let window = self.windows.get_mut(&start);
        let window = window.ok_or_else(|| refused(format!("the window at {start} is not in DRAM")))?;
        let results = self.aggregates.iter().zip(&mut window.accumulators);
        let results = results.map(|(aggregate, accumulators)| aggregate.results(accumulators, groups));
        let results = results.collect::<Result<Vec<ArrayRef>, String>>().map_err(refused)?;
        let keys = window.index.keys(groups).map_err(|error| refused(error.to_string()))?;
        Ok(ClosedGroups { keys, results, groups: groups.len() })
    }

    /// Removes a window from DRAM and from the table.
    pub(crate) fn remove(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        self.changed.push(start);
        self.complete(epoch, start)?;
        let Some(mut window) = self.windows.remove(&start) else { return Ok(()) };
        self.release(window.counted);
        window.sort();
        let is_stored = |number: &u32| window.flags[*number as usize].stored;
        let stored: Vec<u32> = window.sorted.iter().copied().filter(is_stored).collect();
        if !stored.is_empty() {
            self.table.delete_batch(epoch.get()?, &self.key_rows(start, &window.index, &stored)?)?;
        }
        self.groups_expected = window.sorted.len();
        Ok(())
    }

    /// Returns a window, which is opened if necessary.
    fn open_window(&mut self, start: EventTime) -> Result<&mut OpenWindow> {
        if self.windows.len() >= OPEN_WINDOWS_MAX && !self.windows.contains_key(&start) {
            let resource = format!("open windows of {}", self.name);
            return Err(Error::Limit { resource, max: OPEN_WINDOWS_MAX });
        }
        if !self.windows.contains_key(&start) {
            let types: Vec<_> = self.schema.fields()[..self.group_columns.len()]
                .iter()
                .map(|field| field.data_type().clone())
                .collect();
            let expected = if self.windows.is_empty() { self.groups_expected } else { 0 };
            let index = GroupIndex::new(&types, expected).map_err(|error| self.failed(&error))?;
            let window = OpenWindow {
                index,
                accumulators: self.aggregates.iter().map(BoundAggregate::accumulators).collect(),
                flags: Vec::new(),
                touched: Vec::new(),
                sorted: Vec::new(),
                complete: true,
                counted: (0, 0),
            };
            self.windows.insert(start, window);
        }
        Ok(self.windows.get_mut(&start).expect("it was inserted"))
    }
}

impl OpenWindow {
    /// Numbers of the groups of rows with these keys.
    fn number(&mut self, keys: &[ArrayRef], rows: usize, numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        if keys.is_empty() {
            self.index.number_one(rows, numbers);
            return Ok(());
        }
        self.index.number(keys, numbers)
    }
}

/// Calls `f` with the rows of a state table, some thousands at a time.
pub(crate) fn read_batches(
    table: &Table,
    schema: &SchemaRef,
    tx: &Transaction,
    mut cursor: Cursor,
    mut f: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let mut rows = StoredRows::new(table.name(), table.schema(), &projection, Arc::clone(schema), LOAD_ROWS);
    loop {
        let more = cursor.next_stored(tx, &mut rows, usize::MAX)?;
        if rows.is_batch(LOAD_ROWS) || !more {
            f(&rows.finish()?)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Columns of a batch.
pub(crate) fn columns_of(batch: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
    columns.iter().map(|&column| Arc::clone(batch.column(column))).collect()
}

/// Rows of a window.
fn prefix(start: EventTime) -> ScanRange {
    ScanRange::prefix(&[Value::Timestamp(start.micros())])
}
