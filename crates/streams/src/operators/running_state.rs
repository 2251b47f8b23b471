//! Groups of a running aggregate: DRAM over the operator's state table.
//!
//! ```text
//!   state table  (group columns, nulls) -> rows, [last], accumulators      committed, queryable by SQL ([`super::state_rows`])
//!        ▲ changed groups, at every commit        │ a group when it is needed
//!        │                                        ▼
//!   group -> slot, an array of accumulators for each aggregate             DRAM
//! ```
//!
//! # Invariants
//!
//! - A group has a row in the table as of each commit exactly if it has tuples; the one without group columns always.
//! - Between transactions a group in DRAM equals its row. Within one, `touched` has the changed groups, and `before`
//!   what was sent of them last.
//! - A group that was opened in DRAM and whose row could not be read is dropped at once: it would pass for a new one.
//! - A tuple that is taken back is subtracted from aggregates that can be subtracted from. The others are computed again
//!   from the values of the group ([`super::value_counts`]), extremes only if the value may have been the extreme.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed. An abort drops the changed groups, and the next use reads their rows again.
//!
//! # Memory
//!
//! Groups, the changed values and what the operator holds until the commit are reserved in the memory budget of the pool.
//! Groups that are not changed leave DRAM, the ones that were not used for the longest time first, when there are many or
//! memory is short.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::accumulator::{Accumulators, BoundAggregate};
use crate::operators::group_index::normalized;
use crate::operators::rank_state::is_short;
use crate::operators::state_rows::StateRows;
use crate::operators::value_counts::ValueCounts;
use crate::operators::window_state::{RESERVED_BYTES_STEP, columns_of};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::{take, take_record_batch};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{Row, ScanRange, Table};
use entresol_transactions::Transaction;
use hashbrown::HashMap;
use std::sync::Arc;

/// Estimated bytes of memory of a group besides its key and accumulators.
const GROUP_BYTES: usize = 128;

/// Group columns in Arrow's row format.
pub(crate) type GroupKey = Arc<[u8]>;

/// Columns of a running aggregate.
pub(crate) struct RunningLayout {
    /// Columns of the stream that tell groups apart.
    pub(crate) groups: Vec<usize>,
    pub(crate) aggregates: Vec<BoundAggregate>,
    /// Columns of the results: the groups, and the aggregates.
    pub(crate) output: SchemaRef,
    /// Time behind the last tuple of a group in microseconds, after which its life is over; none is for ever.
    pub(crate) ttl_us: Option<i64>,
    pub(crate) groups_in_dram: usize,
}

pub(super) struct Group {
    pub(super) key: GroupKey,
    /// Number of its tuples.
    pub(super) rows: i64,
    /// Greatest event time of its tuples, if its life ends.
    pub(super) last: EventTime,
    /// Number of rows that it may have in the table.
    pub(super) stored_rows: u32,
    pub(super) is_touched: bool,
    /// True if aggregates of it are computed again at the commit, as values were taken back.
    pub(super) is_outdated: bool,
    /// Place in `before`.
    pub(super) before: Option<u32>,
    /// Generation in which it was used last.
    pub(super) used: u64,
}

pub(crate) struct RunningState {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Rows of the state table.
    pub(super) table_rows: StateRows,
    pub(crate) layout: RunningLayout,
    /// Values of the groups, where aggregates are computed from them.
    pub(crate) values: Option<ValueCounts>,
    pub(super) keys: RowConverter,
    pub(super) slots: HashMap<GroupKey, u32>,
    pub(super) groups: Vec<Group>,
    pub(super) accumulators: Vec<Accumulators>,
    pub(super) free: Vec<u32>,
    /// True if a group that is not in DRAM has no row.
    pub(super) is_complete: bool,
    pub(super) touched: Vec<u32>,
    /// Results of the changed groups that were sent last.
    pub(super) before: Vec<RecordBatch>,
    pub(super) before_rows: u32,
    pub(super) generation: u64,
    /// Groups that were used in this generation.
    pub(super) recent: usize,
    /// Key of the row of the state table that was looked at last.
    pub(super) swept: Option<Row>,
    pub(super) bytes: usize,
    /// Bytes of the results that the operator holds until the commit.
    pub(crate) held_bytes: usize,
    pub(super) memory: Option<MemoryReservation>,
    pub(super) loaded: bool,
}

impl RunningState {
    pub(crate) fn new(
        name: String,
        (table, table_rows): (Arc<Table>, StateRows),
        layout: RunningLayout,
        values: Option<ValueCounts>,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<RunningState> {
        let fields = table_rows.schema.fields()[..layout.groups.len()].iter();
        let keys = RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect());
        let keys =
            keys.map_err(|error| Error::Tuple { operator: name.clone(), reason: error.to_string() })?;
        Ok(RunningState {
            accumulators: layout.aggregates.iter().map(BoundAggregate::accumulators).collect(),
            name,
            table,
            table_rows,
            layout,
            values,
            keys,
            slots: HashMap::new(),
            groups: Vec::new(),
            free: Vec::new(),
            is_complete: false,
            touched: Vec::new(),
            before: Vec::new(),
            before_rows: 0,
            generation: 0,
            recent: 0,
            swept: None,
            bytes: 0,
            held_bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    pub(crate) fn failed(&self, error: &ArrowError) -> Error {
        self.refused(error.to_string())
    }

    pub(super) fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Columns of the state table before the accumulators: the key, the number of rows, and the last time.
    pub(super) fn accumulators_at(&self) -> usize {
        self.layout.groups.len() + 2 + usize::from(self.layout.ttl_us.is_some())
    }

    /// Looks whether the state table has rows. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction) -> Result<()> {
        if !self.loaded {
            (self.is_complete, self.loaded) = (is_empty(&self.table, ScanRange::full(), tx)?, true);
        }
        Ok(())
    }

    /// Slots of the groups of tuples, which are in DRAM then.
    pub(crate) fn number(&mut self, tx: &Transaction, tuples: &RecordBatch) -> Result<Vec<u32>> {
        let keys: Vec<ArrayRef> = columns_of(tuples, &self.layout.groups).iter().map(normalized).collect();
        if keys.is_empty() {
            let slot = self.one_group(tx)?;
            return Ok(vec![slot; tuples.num_rows()]);
        }
        let rows = self.keys.convert_columns(&keys).map_err(|error| self.failed(&error))?;
        let mut slots = Vec::with_capacity(tuples.num_rows());
        let (mut missing, mut first) = (Vec::new(), Vec::new());
        for (row, key) in rows.iter().enumerate() {
            let slot = match self.slots.get(key.data()) {
                Some(slot) => *slot,
                None => {
                    let slot = self.open(GroupKey::from(key.data()));
                    missing.push(slot);
                    first.push(row as u32);
                    slot
                }
            };
            self.use_now(slot);
            slots.push(slot);
        }
        if !missing.is_empty() && !self.is_complete {
            let first = UInt32Array::from(first);
            let keys = keys.iter().map(|key| take(key, &first, None)).collect::<Result<Vec<_>, _>>();
            let keys = keys.map_err(|error| self.failed(&error));
            self.read_opened(tx, &missing, keys)?;
        }
        Ok(slots)
    }

    /// Reads the rows of groups that were opened; drops them if that fails.
    fn read_opened(&mut self, tx: &Transaction, slots: &[u32], keys: Result<Vec<ArrayRef>>) -> Result<()> {
        let read = keys.and_then(|keys| self.look_up(tx, slots, &keys));
        if read.is_err() {
            slots.iter().for_each(|slot| self.drop_group(*slot));
        }
        read
    }

    /// Slot of the only group, of an aggregate without group columns.
    pub(crate) fn one_group(&mut self, tx: &Transaction) -> Result<u32> {
        let key: &[u8] = &[];
        if let Some(slot) = self.slots.get(key).copied() {
            self.use_now(slot);
            return Ok(slot);
        }
        let slot = self.open(GroupKey::from(key));
        self.use_now(slot);
        if !self.is_complete {
            self.read_opened(tx, &[slot], Ok(Vec::new()))?;
        }
        Ok(slot)
    }

    /// Tells whether there is one group, whose result is there without tuples too.
    pub(crate) fn is_of_one_group(&self) -> bool {
        self.layout.groups.is_empty()
    }

    pub(super) fn use_now(&mut self, slot: u32) {
        let group = &mut self.groups[slot as usize];
        self.recent += usize::from(group.used != self.generation);
        group.used = self.generation;
    }

    /// Opens a group without tuples.
    pub(super) fn open(&mut self, key: GroupKey) -> u32 {
        self.bytes += self.bytes_of(&key);
        let group = Group {
            key: Arc::clone(&key),
            rows: 0,
            last: EventTime::START,
            stored_rows: 0,
            is_touched: false,
            is_outdated: false,
            before: None,
            used: self.generation.wrapping_sub(1),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.groups[slot as usize] = group;
                slot
            }
            None => {
                self.groups.push(group);
                let groups = self.groups.len();
                self.accumulators.iter_mut().for_each(|accumulators| accumulators.resize(groups));
                groups as u32 - 1
            }
        };
        self.slots.insert(key, slot);
        slot
    }

    fn bytes_of(&self, key: &GroupKey) -> usize {
        GROUP_BYTES + key.len() + self.accumulators.iter().map(Accumulators::group_bytes).sum::<usize>()
    }

    /// Drops a group from DRAM.
    pub(super) fn drop_group(&mut self, slot: u32) {
        let key = Arc::clone(&self.groups[slot as usize].key);
        self.bytes -= self.bytes_of(&key);
        self.recent -= usize::from(self.groups[slot as usize].used == self.generation);
        self.slots.remove(&key);
        self.accumulators.iter_mut().for_each(|accumulators| accumulators.clear(slot));
        self.groups[slot as usize].is_touched = false;
        self.free.push(slot);
    }

    /// Tells whether the life of a group is over, by the time to which the stream has come.
    pub(crate) fn is_over(&self, slot: u32, watermark: EventTime) -> bool {
        let group = &self.groups[slot as usize];
        let ttl_us = self.layout.ttl_us.unwrap_or(i64::MAX);
        // Tuples of it may not have been added yet, but their times are noted.
        group.last > EventTime::START && group.last.plus(ttl_us) <= watermark
    }

    /// Notes the time of a tuple.
    pub(crate) fn note_time(&mut self, slot: u32, time: EventTime) {
        let group = &mut self.groups[slot as usize];
        group.last = group.last.max(time);
    }

    /// Begins a new life of a group, which has nothing of the one before.
    pub(crate) fn begin_anew(&mut self, slot: u32) {
        self.touch_only(slot);
        self.accumulators.iter_mut().for_each(|accumulators| accumulators.clear(slot));
        let group = &mut self.groups[slot as usize];
        (group.rows, group.last, group.before) = (0, EventTime::START, None);
    }

    /// Tells whether a group has changed in this transaction.
    pub(crate) fn is_touched(&self, slot: u32) -> bool {
        self.groups[slot as usize].is_touched
    }

    fn touch_only(&mut self, slot: u32) {
        let group = &mut self.groups[slot as usize];
        if !group.is_touched {
            group.is_touched = true;
            self.touched.push(slot);
        }
    }

    /// Tells whether a group has a result.
    pub(super) fn has_result(&self, slot: u32) -> bool {
        let group = &self.groups[slot as usize];
        group.rows > 0 || (self.layout.groups.is_empty() && group.stored_rows > 0)
    }

    /// Notes groups as changed, with their results before.
    fn touch(&mut self, slots: &[u32]) -> Result<()> {
        let mut had_results = Vec::new();
        for &slot in slots {
            if self.groups[slot as usize].is_touched {
                continue;
            }
            if self.has_result(slot) {
                self.groups[slot as usize].before = Some(self.before_rows + had_results.len() as u32);
                had_results.push(slot);
            }
            self.touch_only(slot);
        }
        if !had_results.is_empty() {
            let before = self.results(&had_results)?;
            self.bytes += before.get_array_memory_size();
            self.before_rows += before.num_rows() as u32;
            self.before.push(before);
        }
        Ok(())
    }

    /// Adds tuples to their groups, or takes them back; returns the rows with which new groups began.
    pub(crate) fn add(
        &mut self,
        slots: &[u32],
        tuples: &RecordBatch,
        retracted: Option<&BooleanArray>,
    ) -> Result<Vec<u32>> {
        self.touch(slots)?;
        if let Some(values) = &mut self.values {
            values.add(tuples, retracted)?;
        }
        let Some(retracted) = retracted else { return self.insert(slots, tuples) };
        let rows_where = |wanted: bool| -> Vec<u32> {
            (0..slots.len() as u32).filter(|row| retracted.value(*row as usize) == wanted).collect()
        };
        let of = |rows: &[u32]| -> Vec<u32> { rows.iter().map(|row| slots[*row as usize]).collect() };
        let (old, new) = (rows_where(true), rows_where(false));
        let (old_slots, new_slots) = (of(&old), of(&new));
        let select = |rows: Vec<u32>| take_record_batch(tuples, &UInt32Array::from(rows));
        let old = select(old).map_err(|error| self.failed(&error))?;
        let new = select(new).map_err(|error| self.failed(&error))?;
        self.retract(&old_slots, &old)?;
        self.insert(&new_slots, &new)
    }

    fn insert(&mut self, slots: &[u32], tuples: &RecordBatch) -> Result<Vec<u32>> {
        for (aggregate, accumulators) in self.layout.aggregates.iter().zip(&mut self.accumulators) {
            let added = aggregate.add(accumulators, slots, &columns_of(tuples, aggregate.columns()));
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        let mut begun = Vec::new();
        for (row, &slot) in slots.iter().enumerate() {
            let group = &mut self.groups[slot as usize];
            if group.rows == 0 {
                begun.push(row as u32);
            }
            group.rows += 1;
        }
        Ok(begun)
    }

    fn retract(&mut self, slots: &[u32], tuples: &RecordBatch) -> Result<()> {
        for (aggregate, accumulators) in self.layout.aggregates.iter().zip(&mut self.accumulators) {
            let columns = columns_of(tuples, aggregate.columns());
            let taken = if aggregate.is_subtractable() {
                aggregate.subtract(accumulators, slots, &columns)
            } else {
                let groups = &mut self.groups;
                aggregate
                    .each_outdated(accumulators, slots, &columns, |group| groups[group].is_outdated = true)
            };
            taken.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        slots.iter().for_each(|slot| self.groups[*slot as usize].rows -= 1);
        Ok(())
    }

    /// Group columns of groups.
    pub(super) fn keys_of(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        if self.layout.groups.is_empty() {
            return Ok(Vec::new());
        }
        let parser = self.keys.parser();
        let rows = slots.iter().map(|slot| parser.parse(&self.groups[*slot as usize].key));
        self.keys.convert_rows(rows).map_err(|error| self.failed(&error))
    }

    /// Results of groups.
    pub(super) fn results(&mut self, slots: &[u32]) -> Result<RecordBatch> {
        let mut columns = self.keys_of(slots)?;
        for (aggregate, accumulators) in self.layout.aggregates.iter().zip(&mut self.accumulators) {
            let checked = aggregate.check(accumulators, slots);
            let results = checked.and_then(|()| aggregate.results(accumulators, slots));
            columns.push(results.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?);
        }
        RecordBatch::try_new(Arc::clone(&self.layout.output), columns).map_err(|error| self.failed(&error))
    }

    /// Changed groups, in the order of their first change.
    pub(crate) fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// Keys of the changed groups.
    pub(crate) fn touched_keys(&self) -> impl Iterator<Item = GroupKey> {
        self.touched.iter().map(|slot| Arc::clone(&self.groups[*slot as usize].key))
    }

    /// Touches the only group, if it has not been sent yet.
    pub(crate) fn touch_one_group(&mut self, tx: &Transaction) -> Result<()> {
        let slot = self.one_group(tx)?;
        if self.groups[slot as usize].stored_rows == 0 {
            self.touch_only(slot);
        }
        Ok(())
    }

    /// Changes of the results of changed groups: results that are taken back (true) and then those that are sent.
    pub(crate) fn changes_of(&mut self, slots: &[u32]) -> Result<Vec<(RecordBatch, bool)>> {
        let is_one = self.layout.groups.is_empty();
        let with_result: Vec<u32> =
            slots.iter().copied().filter(|slot| is_one || self.groups[*slot as usize].rows > 0).collect();
        let after = self.results(&with_result)?;
        let places: Vec<u32> = slots.iter().filter_map(|slot| self.groups[*slot as usize].before).collect();
        let before = self.before_at(&places)?;
        // Places of the results before among those of these groups.
        let mut at_before =
            places.iter().enumerate().map(|(at, place)| (*place, at)).collect::<HashMap<u32, usize>>();
        let (of_before, of_after) = (self.result_bytes(&before)?, self.result_bytes(&after)?);
        let mut sent = Vec::new();
        for (at, slot) in with_result.iter().enumerate() {
            let place = self.groups[*slot as usize].before;
            let same = place
                .and_then(|place| at_before.get(&place).copied())
                .filter(|before| of_before[*before] == of_after[at]);
            match (same, place) {
                (Some(_), Some(place)) => drop(at_before.remove(&place)),
                _ => sent.push(at as u32),
            }
        }
        let mut taken: Vec<u32> = at_before.values().map(|at| *at as u32).collect();
        taken.sort_unstable();
        let select = |batch: &RecordBatch, rows: Vec<u32>| take_record_batch(batch, &UInt32Array::from(rows));
        let taken = select(&before, taken).map_err(|error| self.failed(&error))?;
        let sent = select(&after, sent).map_err(|error| self.failed(&error))?;
        Ok(vec![(taken, true), (sent, false)])
    }

    /// Results in an order, as they were sent last.
    fn before_at(&mut self, places: &[u32]) -> Result<RecordBatch> {
        if self.before.len() != 1 {
            let all =
                concat_batches(&self.layout.output, &self.before).map_err(|error| self.failed(&error))?;
            self.bytes -= self.before.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
            self.bytes += all.get_array_memory_size();
            self.before = vec![all];
        }
        let rows = UInt32Array::from(places.to_vec());
        take_record_batch(&self.before[0], &rows).map_err(|error| self.failed(&error))
    }

    /// Results of the aggregates in a form in which they are compared.
    fn result_bytes(&self, batch: &RecordBatch) -> Result<Vec<Vec<u8>>> {
        let columns = &batch.columns()[self.layout.groups.len()..];
        if columns.is_empty() {
            return Ok(vec![Vec::new(); batch.num_rows()]);
        }
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let rows = RowConverter::new(fields).and_then(|converter| converter.convert_columns(columns));
        let rows = rows.map_err(|error| self.failed(&error))?;
        Ok(rows.iter().map(|row| row.data().to_vec()).collect())
    }

    /// Bytes of what is in DRAM.
    fn reserved(&self) -> usize {
        let extra: usize = self.accumulators.iter().map(Accumulators::extra_bytes).sum();
        self.bytes + self.held_bytes + extra + self.values.as_ref().map_or(0, ValueCounts::bytes)
    }

    /// Reserves memory for what is in DRAM; drops groups that can be read again if there is not enough.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        let wanted = |bytes: usize| bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        let bytes = self.reserved();
        let Some(memory) = &mut self.memory else { return Ok(()) };
        if bytes as u64 <= memory.bytes() || memory.try_resize(wanted(bytes)).is_ok() {
            return Ok(());
        }
        self.drop_old();
        let bytes = self.reserved();
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let reserved = memory.try_resize(wanted(bytes));
        reserved.map_err(|limit| entresol_transactions::Error::Memory(limit.into()).into())
    }

    /// Drops the groups that were not used in this generation: none of them is changed.
    fn drop_old(&mut self) {
        let generation = self.generation;
        let is_old = |slot: &u32| {
            let group = &self.groups[*slot as usize];
            group.used != generation && !group.is_touched
        };
        let old: Vec<u32> = self.slots.values().copied().filter(is_old).collect();
        self.is_complete &= old.is_empty();
        old.into_iter().for_each(|slot| self.drop_group(slot));
    }

    fn forget_changes(&mut self) {
        let before: usize = self.before.iter().map(RecordBatch::get_array_memory_size).sum();
        self.bytes -= before;
        self.before.clear();
        (self.before_rows, self.held_bytes) = (0, 0);
        self.values.iter_mut().for_each(ValueCounts::clear);
    }

    /// Notes that DRAM is as of the last commit, and begins a generation if many groups were used, or memory is short.
    pub(crate) fn committed(&mut self) {
        self.forget_changes();
        for slot in std::mem::take(&mut self.touched) {
            let group = &mut self.groups[slot as usize];
            (group.is_touched, group.is_outdated, group.before) = (false, false, None);
            debug_assert!(group.rows >= 0, "a group has as many tuples as were sent and not taken back");
            if group.rows == 0 && !self.layout.groups.is_empty() {
                self.drop_group(slot);
            }
        }
        if self.recent * 2 >= self.layout.groups_in_dram || is_short(self.memory.as_ref()) {
            self.drop_old();
            self.generation += 1;
            self.recent = 0;
        }
        self.release();
    }

    /// Drops the groups that the transaction has changed; with lives all of them, as times are noted before.
    pub(crate) fn aborted(&mut self) {
        self.forget_changes();
        let mut dropped = std::mem::take(&mut self.touched);
        if self.layout.ttl_us.is_some() {
            dropped = self.slots.values().copied().collect();
        }
        self.is_complete &= dropped.is_empty();
        dropped.into_iter().for_each(|slot| self.drop_group(slot));
        self.swept = None;
        self.release();
    }

    /// Releases the memory of groups that have left DRAM.
    fn release(&mut self) {
        let wanted = self.reserved().next_multiple_of(RESERVED_BYTES_STEP) as u64;
        let Some(memory) = &mut self.memory else { return };
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }
}

/// Tells whether a table has no rows in a range. A batch of a scan may have none though others follow.
pub(super) fn is_empty(table: &Table, range: ScanRange, tx: &Transaction) -> Result<bool> {
    let (mut cursor, mut is_empty) = (table.scan(range), true);
    while is_empty && cursor.next_batch(tx, |_| is_empty = false)? {}
    Ok(is_empty)
}
