//! The open windows of a window aggregate: a DRAM cache over the operator's state table.
//!
//! ```text
//!   state table  (window_start, group columns) -> accumulators      committed, queryable by SQL ([`super::state_rows`])
//!        ▲ touched groups at every commit          │ groups when they are needed, all when their window closes
//!        │                                         ▼
//!   windows: window_start -> group numbers, an array of accumulators for each aggregate      DRAM
//! ```
//!
//! # Invariants
//!
//! - Groups that are not in DRAM are in the table, if they have tuples ([`super::open_window`]).
//! - At a commit, touched groups are written; so a committed transaction's table rows are the windows' state.
//! - A state may be a part of an operator's ([`super::divided_state`]): it has the groups of its [`KeyPart`] and reads no
//!   other rows.
//! - The table belongs to one operator of one topology; changes by others are overwritten or lost.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort costs what its transaction has touched: only these groups are read again
//! ([`super::stored_windows`]).
//!
//! # Memory
//!
//! At most [`GROUPS_IN_DRAM_MAX`] groups between batches, and at most the part of the pool's memory budget
//! that is available to stream state: when full, the oldest window is written to the transaction and leaves
//! DRAM. At most [`OPEN_WINDOWS_MAX`] windows; more is an error.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::{EpochTransaction, PartRows};
use crate::operators::accumulator::BoundAggregate;
use crate::operators::group_index::GroupIndex;
use crate::operators::key_parts::KeyPart;
use crate::operators::open_window::OpenWindow;
use crate::operators::state_form::{FormChoice, StateCosts, StateForm};
use crate::operators::state_rows::StateRows;
use crate::operators::stored_windows::prefix;
use crate::operators::window_pages::StoredForm;
use crate::{GROUPS_IN_DRAM_MAX, OPEN_WINDOWS_MAX};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::ArrowError;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryLimit, MemoryReservation};
use entresol_tables::Table;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are reserved at a time.
pub(crate) const RESERVED_BYTES_STEP: usize = 64 << 10;
pub(crate) struct WindowState {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    pub(crate) aggregates: Vec<BoundAggregate>,
    /// Indexes of the group columns in the tuples.
    pub(super) group_columns: Vec<usize>,
    /// Groups that are of this state.
    pub(super) part: KeyPart,
    /// Rows of the state table.
    pub(super) rows: StateRows,
    /// At most [`GROUPS_IN_DRAM_MAX`], at least 1.
    pub(super) groups_max: usize,
    pub(super) windows: BTreeMap<EventTime, OpenWindow>,
    /// Starts of the windows with touched groups; some may be closed since.
    touched: Vec<EventTime>,
    /// Starts of the windows of which groups changed in the open epoch, and in one that was sealed and may commit.
    changed: Vec<EventTime>,
    changed_sealed: Vec<EventTime>,
    /// Starts of the windows of which groups have left DRAM in the open epoch, with their changes.
    spilled: Vec<EventTime>,
    /// Starts of the windows that have left DRAM, or the table, in the open epoch, and in one that was sealed.
    pub(super) left: Vec<EventTime>,
    left_sealed: Vec<EventTime>,
    /// Starts of the windows that an abort has dropped from DRAM, and of those of which it made groups stale.
    pub(super) dropped: Vec<EventTime>,
    pub(super) stale: Vec<EventTime>,
    pub(super) groups: usize,
    /// Bytes of the groups, and the bytes reserved for them.
    bytes: usize,
    memory: Option<MemoryReservation>,
    /// Form in which groups are stored.
    pub(super) choice: FormChoice,
    pub(super) loaded: bool,
    /// Groups of the last closed window: the next one will have about as many.
    groups_expected: usize,
    /// Group of each row of a batch.
    pub(super) numbers: Vec<u32>,
}

/// Groups of a closed window, in the order of their keys.
pub(crate) struct ClosedGroups {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) results: Vec<ArrayRef>,
    pub(crate) groups: usize,
}

impl WindowState {
    pub(crate) fn new(
        name: String,
        (table, rows): (Arc<Table>, StateRows),
        aggregates: Vec<BoundAggregate>,
        group_columns: Vec<usize>,
        groups_max: usize,
        part: KeyPart,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> WindowState {
        WindowState {
            name,
            table,
            rows,
            aggregates,
            group_columns,
            part,
            groups_max: (groups_max.clamp(1, GROUPS_IN_DRAM_MAX) / part.of).max(1),
            windows: BTreeMap::new(),
            touched: Vec::new(),
            changed: Vec::new(),
            changed_sealed: Vec::new(),
            spilled: Vec::new(),
            left: Vec::new(),
            left_sealed: Vec::new(),
            dropped: Vec::new(),
            stale: Vec::new(),
            groups: 0,
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            choice: FormChoice::default(),
            loaded: false,
            groups_expected: 0,
            numbers: Vec::new(),
        }
    }

    /// The same, with groups stored in a form whatever it costs, if one is given.
    pub(crate) fn stored_in(self, form: Option<StateForm>) -> WindowState {
        WindowState { choice: FormChoice::fixed(form), ..self }
    }

    /// Notes the end of the epoch.
    pub(crate) fn sealed(&mut self) {
        for start in &self.changed {
            if let Some(window) = self.windows.get_mut(start) {
                window.sealed();
            }
        }
        self.changed_sealed.append(&mut self.changed);
        self.left_sealed.append(&mut self.left);
    }

    /// Notes that the sealed epoch is committed: groups equal their rows, but for what changed since.
    pub(crate) fn committed(&mut self) {
        for start in self.changed_sealed.drain(..) {
            if let Some(window) = self.windows.get_mut(&start) {
                window.committed();
            }
        }
        self.left_sealed.clear();
    }

    /// Costs of its state in rows and pages; none if it has no choice.
    pub(crate) fn state_costs(&self) -> Option<StateCosts> {
        self.choice.costs()
    }

    /// Drops from DRAM what was changed and not committed.
    pub(crate) fn aborted(&mut self) {
        self.touched.clear();
        self.spilled.clear();
        for start in sorted([&mut self.left, &mut self.left_sealed]) {
            self.close(start);
            self.dropped.push(start);
        }
        for start in sorted([&mut self.changed, &mut self.changed_sealed]) {
            if let Some(window) = self.windows.get_mut(&start) {
                window.aborted();
                self.stale.push(start);
            }
        }
    }

    /// Drops the groups of a window from DRAM.
    pub(super) fn close(&mut self, start: EventTime) {
        if let Some(window) = self.windows.remove(&start) {
            self.release(window.counted);
        }
    }

    /// Sets groups to stored accumulators.
    pub(super) fn set_groups(
        &mut self,
        start: EventTime,
        numbers: &[u32],
        stored: &[ArrayRef],
    ) -> Result<()> {
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

    pub(super) fn failed(&self, error: &ArrowError) -> Error {
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
            self.look_up(epoch, start, &(before as u32..self.groups_of(start)).collect::<Vec<u32>>())?;
        }
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        for (aggregate, accumulators) in self.aggregates.iter().zip(&mut window.accumulators) {
            let columns = columns_of(tuples, aggregate.columns());
            let added = aggregate.add(accumulators, numbers, &columns);
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(())
    }

    /// Columns of the keys of these groups, with their places in the table: the window, then the group columns.
    pub(super) fn keys(
        &self,
        start: EventTime,
        index: &GroupIndex,
        groups: &[u32],
    ) -> Result<(Vec<ArrayRef>, Vec<usize>)> {
        let mut columns = vec![self.starts(start, groups.len())];
        columns.extend(index.keys(groups).map_err(|error| self.failed(&error))?);
        let window = self.group_columns.len();
        Ok((columns, std::iter::once(window).chain(0..window).collect()))
    }

    /// Keys of all rows that these groups of a window may have, in the order of the keys.
    pub(super) fn key_rows(
        &self,
        start: EventTime,
        window: &OpenWindow,
        groups: &[u32],
    ) -> Result<RecordBatch> {
        let (columns, places) = self.keys(start, &window.index, groups)?;
        self.rows.keys(columns, &places, &window.rows(groups))
    }

    /// Column `window_start` of so many rows.
    fn starts(&self, start: EventTime, rows: usize) -> ArrayRef {
        let data_type = self.rows.schema.field(self.group_columns.len()).data_type().clone();
        let starts = PrimitiveArray::<TimestampMicrosecondType>::from_value(start.micros(), rows);
        Arc::new(starts.with_data_type(data_type))
    }

    /// Number of groups of a window in DRAM.
    fn groups_of(&self, start: EventTime) -> u32 {
        self.windows.get(&start).map_or(0, |window| window.index.len() as u32)
    }

    /// Reserves memory for `more` bytes.
    pub(super) fn try_reserve(&mut self, more: usize) -> Result<(), MemoryLimit> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let wanted = self.bytes + more;
        if wanted as u64 <= memory.bytes() {
            return Ok(());
        }
        memory.try_resize(wanted.next_multiple_of(RESERVED_BYTES_STEP) as u64)
    }

    /// Counts the groups of a window again.
    pub(super) fn count(&mut self, start: EventTime) {
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
        self.left.push(start);
        self.write_window(epoch, start)?;
        let is_known = self.windows.get(&start).is_none_or(|window| matches!(window.form, StoredForm::Rows));
        self.close(start);
        let window = self.open_window(start)?;
        window.complete = false;
        window.form = if is_known { StoredForm::Rows } else { StoredForm::Unknown };
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
            let Some(window) = self.windows.get_mut(&start) else { continue };
            let (groups, is_known) = (window.take_touched(), matches!(window.form, StoredForm::Rows));
            if let Some(rows) = self.rows_of(start, &groups)? {
                let encode = if is_known { PartRows::known } else { PartRows::new };
                encoded.push(encode(&self.table, rows)?);
            }
        }
        Ok(encoded)
    }

    /// Rows of groups of a window, whose number is noted.
    pub(super) fn rows_of(&mut self, start: EventTime, groups: &[u32]) -> Result<Option<RecordBatch>> {
        let Some(window) = self.windows.get_mut(&start).filter(|_| !groups.is_empty()) else {
            return Ok(None);
        };
        let (keys, mut counts) = (window.index.keys(groups), window.rows(groups));
        let stores = self.aggregates.iter().zip(&mut window.accumulators);
        let stores = stores.map(|(aggregate, accumulators)| aggregate.store(accumulators, groups));
        let stores = stores.collect::<Result<Vec<_>, String>>();
        let stores = stores.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?.concat();
        let mut columns = keys.map_err(|error| self.failed(&error))?;
        columns.push(self.starts(start, groups.len()));
        columns.extend(stores);
        let rows = self.rows.rows(columns, &mut counts)?;
        if let Some(window) = self.windows.get_mut(&start) {
            window.note_rows(groups, &counts);
        }
        Ok(Some(rows))
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

    /// Returns all groups of a window, which stays as it is.
    pub(crate) fn results(
        &mut self,
        epoch: &EpochTransaction,
        start: EventTime,
    ) -> Result<Option<ClosedGroups>> {
        self.complete(epoch, start)?;
        let Some(window) = self.windows.get_mut(&start) else { return Ok(None) };
        let order = window.present();
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
        self.left.push(start);
        if !self.removes_rows(start) {
            self.groups_expected = self.groups_of(start) as usize;
            self.close(start);
            self.table.delete_entries(epoch.get()?, &prefix(start))?;
            return Ok(());
        }
        self.complete(epoch, start)?;
        let Some(mut window) = self.windows.remove(&start) else { return Ok(()) };
        self.release(window.counted);
        let stored = window.stored();
        if !stored.is_empty() {
            self.table.delete_batch(epoch.get()?, &self.key_rows(start, &window, &stored)?)?;
        }
        self.groups_expected = window.index.len();
        Ok(())
    }

    /// Returns a window, which is opened if necessary.
    pub(super) fn open_window(&mut self, start: EventTime) -> Result<&mut OpenWindow> {
        if self.windows.len() >= OPEN_WINDOWS_MAX && !self.windows.contains_key(&start) {
            let resource = format!("open windows of {}", self.name);
            return Err(Error::Limit { resource, max: OPEN_WINDOWS_MAX });
        }
        if !self.windows.contains_key(&start) {
            let types: Vec<_> = self.rows.schema.fields()[..self.group_columns.len()]
                .iter()
                .map(|field| field.data_type().clone())
                .collect();
            let expected = if self.windows.is_empty() { self.groups_expected } else { 0 };
            let window = OpenWindow::new(&types, &self.aggregates, expected);
            let window = window.map_err(|error| self.failed(&error))?;
            self.windows.insert(start, window);
        }
        Ok(self.windows.get_mut(&start).expect("it was inserted"))
    }
}

/// Columns of a batch.
pub(crate) fn columns_of(batch: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
    columns.iter().map(|&column| Arc::clone(batch.column(column))).collect()
}

/// Takes what is in both lists, in order, each once.
fn sorted(lists: [&mut Vec<EventTime>; 2]) -> Vec<EventTime> {
    let [mut first, mut second] = lists.map(std::mem::take);
    first.append(&mut second);
    first.sort_unstable();
    first.dedup();
    first
}
