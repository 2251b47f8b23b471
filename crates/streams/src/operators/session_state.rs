//! The open sessions of a session aggregate: a DRAM copy of the operator's state table.
//!
//! ```text
//!   state table  (group columns, window_start) -> window_end, accumulators     committed, queryable by SQL ([`super::state_rows`])
//!        ▲ touched sessions at every commit         │ all rows at start, those of changed groups after an abort
//!        │                                          ▼
//!   groups: key -> sessions in slots, an array of accumulators for each aggregate      DRAM
//! ```
//!
//! # Invariants
//!
//! - The sessions of a group do not overlap: a tuple that touches two of them makes them one.
//! - At a commit, touched sessions are written and the rows of those that are gone deleted; so a committed
//!   transaction's rows are the open sessions.
//! - Groups that the transaction has not changed equal their rows; those that it has are `changed`. An abort drops
//!   these, and the next use reads their rows again.
//!
//! # Memory
//!
//! All open sessions are in DRAM, reserved in the memory budget of the pool; one that does not fit is an error, as
//! is one more than [`SESSIONS_OPEN_MAX`].

use crate::SESSIONS_OPEN_MAX;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::accumulator::{Accumulators, BoundAggregate};
use crate::operators::group_index::normalized;
use crate::operators::state_rows::StateRows;
use crate::operators::window_aggregate::select;
use crate::operators::window_state::columns_of;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::ArrowError;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_tables::{ScanRange, Table, rows_of};
use entresol_transactions::Transaction;
use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: usize = 64 << 10;
/// Bytes of a session in maps and queues, about.
const ENTRY_BYTES: usize = 256;

/// Key of a group: its columns in Arrow's row format, whose bytes are equal where the values are, and in their order.
type GroupKey = Arc<[u8]>;

/// Keys of the groups of some tuples; without group columns there is one.
pub(crate) struct GroupKeys(Option<Rows>);

impl GroupKeys {
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |keys| keys.row(row).data())
    }
}

struct Session {
    key: GroupKey,
    start: EventTime,
    end: EventTime,
    /// Start under which the state table has it, and the number of its rows.
    stored: Option<(EventTime, u32)>,
    is_touched: bool,
    is_open: bool,
}

/// Closed sessions, in the order of their ends.
pub(crate) struct ClosedSessions {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) starts: ArrayRef,
    pub(crate) ends: ArrayRef,
    pub(crate) results: Vec<ArrayRef>,
}

/// Tuples of a batch that have a session, and were not added to it yet.
#[derive(Default)]
struct PendingTuples {
    rows: Vec<u32>,
    slots: Vec<u32>,
}

pub(crate) struct SessionState {
    name: String,
    pub(crate) table: Arc<Table>,
    aggregates: Vec<BoundAggregate>,
    /// Indexes of the group columns in the tuples.
    group_columns: Vec<usize>,
    /// Rows of the state table.
    rows: StateRows,
    gap_us: i64,
    converter: RowConverter,
    groups: HashMap<GroupKey, Vec<u32>>,
    /// Sessions by their slots, which are the numbers of their accumulators.
    sessions: Vec<Session>,
    free: Vec<u32>,
    accumulators: Vec<Accumulators>,
    /// Slots by an end that their session had: it may have a later one, or be gone.
    ends: BinaryHeap<Reverse<(EventTime, u32)>>,
    starts: BTreeSet<(EventTime, u32)>,
    touched: Vec<u32>,
    /// Rows of sessions that are gone, or start elsewhere.
    deleted: Vec<(GroupKey, EventTime, u32)>,
    /// Groups that differ from the last commit.
    changed: HashSet<GroupKey>,
    /// Groups that an abort has dropped from DRAM.
    dropped: Vec<GroupKey>,
    pending: PendingTuples,
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

impl SessionState {
    pub(crate) fn new(
        name: String,
        (table, rows): (Arc<Table>, StateRows),
        aggregates: Vec<BoundAggregate>,
        group_columns: Vec<usize>,
        gap_us: i64,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Result<SessionState> {
        let fields = rows.schema.fields()[..group_columns.len()].iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect())
            .map_err(|error| Error::Tuple { operator: name.clone(), reason: error.to_string() })?;
        Ok(SessionState {
            accumulators: aggregates.iter().map(BoundAggregate::accumulators).collect(),
            name,
            table,
            aggregates,
            group_columns,
            rows,
            gap_us,
            converter,
            groups: HashMap::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            ends: BinaryHeap::new(),
            starts: BTreeSet::new(),
            touched: Vec::new(),
            deleted: Vec::new(),
            changed: HashSet::new(),
            dropped: Vec::new(),
            pending: PendingTuples::default(),
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        })
    }

    /// Notes that all sessions are as of the last commit.
    pub(crate) fn committed(&mut self) {
        self.changed.clear();
    }

    /// Drops the groups from DRAM that the transaction has changed.
    pub(crate) fn aborted(&mut self) {
        self.touched.clear();
        self.deleted.clear();
        self.pending = PendingTuples::default();
        for key in std::mem::take(&mut self.changed) {
            for slot in self.groups.remove(&key).unwrap_or_default() {
                self.release(slot);
            }
            self.dropped.push(key);
        }
    }

    /// Reads what is not in DRAM. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction) -> Result<()> {
        if !self.loaded {
            self.dropped.clear();
            self.load(tx, ScanRange::full())?;
            self.loaded = true;
        }
        while let Some(key) = self.dropped.last().cloned() {
            let columns = self.group_arrays(std::iter::once(&key))?;
            let range = if columns.is_empty() { ScanRange::full() } else { self.prefix(columns)? };
            self.load(tx, range)?;
            self.dropped.pop();
        }
        Ok(())
    }

    /// Rows of a group.
    fn prefix(&self, group: Vec<ArrayRef>) -> Result<ScanRange> {
        Ok(ScanRange::prefix(&rows_of(&self.key_batch(group)?)?[0]))
    }

    /// Batch of the first columns of the state table.
    fn key_batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let places: Vec<usize> = (0..columns.len()).collect();
        let schema = self.rows.schema.project(&places);
        let batch = schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        batch.map_err(|error| self.failed(&error))
    }

    /// Loads rows of the state table; after an error nothing is in DRAM.
    fn load(&mut self, tx: &Transaction, range: ScanRange) -> Result<()> {
        let loaded = self.load_rows(tx, range);
        if loaded.is_err() {
            let slots: Vec<u32> = self.groups.drain().flat_map(|(_, slots)| slots).collect();
            slots.into_iter().for_each(|slot| self.release(slot));
            self.loaded = false;
        }
        loaded
    }

    fn load_rows(&mut self, tx: &Transaction, range: ScanRange) -> Result<()> {
        let (table, of_table) = (Arc::clone(&self.table), self.rows.clone());
        of_table.read(&table, tx, table.scan(range), |rows| {
            let groups = self.group_columns.len();
            let edges = |column: usize| rows.column(column).as_primitive_opt::<TimestampMicrosecondType>();
            let (Some(starts), Some(ends)) = (edges(groups), edges(groups + 1)) else {
                return Err(self.malformed());
            };
            let keys = self.keys_of(&rows.columns()[..groups])?;
            let (mut slots, counts) = (Vec::with_capacity(rows.num_rows()), of_table.counts(rows));
            for (row, (&start, &end)) in starts.values().iter().zip(ends.values()).enumerate() {
                let [start, end] = [start, end].map(EventTime::from_micros);
                let slot = self.open(keys.get(row), start, end)?;
                self.sessions[slot as usize].stored = Some((start, counts[row]));
                slots.push(slot);
            }
            let mut columns = rows.columns()[groups + 2..].iter();
            let mut aggregates = self.aggregates.iter().zip(&mut self.accumulators);
            if aggregates.all(|(aggregate, accumulators)| aggregate.load(accumulators, &slots, &mut columns))
            {
                return Ok(());
            }
            Err(self.malformed())
        })
    }

    fn malformed(&self) -> Error {
        self.failed_as(format!("a row of state table {} is not one of this operator", self.table.name()))
    }

    fn failed(&self, error: &ArrowError) -> Error {
        self.failed_as(error.to_string())
    }

    fn failed_as(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }

    /// Keys of groups from their columns.
    fn keys_of(&self, columns: &[ArrayRef]) -> Result<GroupKeys> {
        if columns.is_empty() {
            return Ok(GroupKeys(None));
        }
        let columns: Vec<ArrayRef> = columns.iter().map(normalized).collect();
        let keys = self.converter.convert_columns(&columns).map_err(|error| self.failed(&error))?;
        Ok(GroupKeys(Some(keys)))
    }

    /// Columns of groups from their keys.
    fn group_arrays<'k>(&self, keys: impl Iterator<Item = &'k GroupKey>) -> Result<Vec<ArrayRef>> {
        if self.group_columns.is_empty() {
            return Ok(Vec::new());
        }
        let parser = self.converter.parser();
        let rows = self.converter.convert_rows(keys.map(|key| parser.parse(key)));
        rows.map_err(|error| self.failed(&error))
    }

    /// Column of edges of sessions.
    fn edges(&self, edges: impl Iterator<Item = EventTime>) -> ArrayRef {
        let data_type = self.rows.schema.field(self.group_columns.len()).data_type().clone();
        let edges =
            PrimitiveArray::<TimestampMicrosecondType>::from_iter_values(edges.map(EventTime::micros));
        Arc::new(edges.with_data_type(data_type))
    }

    /// Opens a session without tuples.
    fn open(&mut self, key: &[u8], start: EventTime, end: EventTime) -> Result<u32> {
        if self.free.is_empty() && self.sessions.len() >= SESSIONS_OPEN_MAX {
            let resource = format!("open sessions of {}", self.name);
            return Err(Error::Limit { resource, max: SESSIONS_OPEN_MAX });
        }
        self.reserve(self.session_bytes(key))?;
        let key = self.groups.get_key_value(key).map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
        let slots = self.groups.entry(Arc::clone(&key)).or_default();
        let session = Session { key, start, end, stored: None, is_touched: false, is_open: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.sessions[slot as usize] = session;
                slot
            }
            None => {
                self.sessions.push(session);
                let sessions = self.sessions.len();
                self.accumulators.iter_mut().for_each(|accumulators| accumulators.resize(sessions));
                sessions as u32 - 1
            }
        };
        slots.push(slot);
        self.starts.insert((start, slot));
        self.ends.push(Reverse((end, slot)));
        Ok(slot)
    }

    fn session_bytes(&self, key: &[u8]) -> usize {
        let accumulators: usize = self.accumulators.iter().map(Accumulators::group_bytes).sum();
        size_of::<Session>() + 2 * key.len() + ENTRY_BYTES + 2 * accumulators
    }

    /// Bytes to be reserved: of the sessions, and of what their functions hold.
    fn reserved(&self) -> u64 {
        let extra: usize = self.accumulators.iter().map(Accumulators::extra_bytes).sum();
        (self.bytes + extra).next_multiple_of(RESERVED_BYTES_STEP) as u64
    }

    /// Reserves memory for so many bytes more.
    fn reserve(&mut self, more: usize) -> Result<()> {
        self.bytes += more;
        let wanted = self.reserved();
        let Some(memory) = &mut self.memory else { return Ok(()) };
        if wanted <= memory.bytes() {
            return Ok(());
        }
        memory.try_resize(wanted).map_err(|limit| {
            self.bytes -= more;
            entresol_transactions::Error::Memory(limit.into()).into()
        })
    }

    /// Frees the slot of a session that is in no group any more.
    fn release(&mut self, slot: u32) {
        let session = &mut self.sessions[slot as usize];
        session.is_open = false;
        let (start, key) = (session.start, Arc::clone(&session.key));
        self.starts.remove(&(start, slot));
        self.accumulators.iter_mut().for_each(|accumulators| accumulators.clear(slot));
        self.free.push(slot);
        self.bytes -= self.session_bytes(&key);
        let wanted = self.reserved();
        if let Some(memory) = &mut self.memory {
            memory.shrink(memory.bytes().saturating_sub(wanted));
        }
    }

    /// Takes a session out of its group.
    fn remove(&mut self, slot: u32) {
        let session = &mut self.sessions[slot as usize];
        if let Some((start, rows)) = session.stored.take() {
            self.deleted.push((Arc::clone(&session.key), start, rows));
        }
        let key = Arc::clone(&session.key);
        if let Some(slots) = self.groups.get_mut(&key) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.groups.remove(&key);
            }
        }
        self.changed.insert(key);
        self.release(slot);
    }

    /// Keys of the groups of tuples.
    pub(crate) fn keys(&self, tuples: &RecordBatch) -> Result<GroupKeys> {
        let columns = columns_of(tuples, &self.group_columns);
        if columns.iter().any(|key| key.null_count() > 0) {
            let reason = "NULL in a group column; filter such tuples out, or map NULL to a value";
            return Err(self.failed_as(reason.to_owned()));
        }
        self.keys_of(&columns)
    }

    /// Puts a row of the tuples into its session; false if it is late: behind the watermark, and in no open session.
    /// The rows of a batch come in order, and then [`SessionState::add_pending`].
    pub(crate) fn put(
        &mut self,
        tuples: &RecordBatch,
        row: u32,
        key: &[u8],
        time: EventTime,
        watermark: EventTime,
    ) -> Result<bool> {
        let end = time.plus(self.gap_us);
        let (mut first, mut others) = (None, Vec::new());
        let mut is_within = false;
        for &slot in self.groups.get(key).into_iter().flatten() {
            let session = &self.sessions[slot as usize];
            // One that the watermark has reached is closed, if it is still here or not.
            if session.end > watermark && time < session.end && end > session.start {
                is_within |= time >= session.start;
                match first {
                    None => first = Some(slot),
                    Some(_) => others.push(slot),
                }
            }
        }
        if time < watermark && !is_within {
            return Ok(false);
        }
        let slot = match first {
            None => self.open(key, time, end)?,
            Some(slot) => slot,
        };
        if !others.is_empty() {
            self.add_pending(tuples)?;
            others.into_iter().try_for_each(|other| self.merge(other, slot))?;
        }
        self.extend(slot, time, end);
        self.pending.rows.push(row);
        self.pending.slots.push(slot);
        Ok(true)
    }

    /// Extends a session to a time and an end, and marks it as touched.
    fn extend(&mut self, slot: u32, time: EventTime, end: EventTime) {
        let session = &mut self.sessions[slot as usize];
        if time < session.start {
            self.starts.remove(&(session.start, slot));
            session.start = time;
            self.starts.insert((time, slot));
            if let Some((start, rows)) = session.stored.take() {
                self.deleted.push((Arc::clone(&session.key), start, rows));
            }
        }
        session.end = session.end.max(end);
        if !session.is_touched {
            session.is_touched = true;
            self.touched.push(slot);
            if !self.changed.contains(&session.key) {
                self.changed.insert(Arc::clone(&session.key));
            }
        }
    }

    /// Adds a session to another one of its group, and removes it.
    fn merge(&mut self, from: u32, to: u32) -> Result<()> {
        for (aggregate, accumulators) in self.aggregates.iter().zip(&mut self.accumulators) {
            let merged = aggregate.merge(accumulators, from, to);
            merged.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        let (start, end) = (self.sessions[from as usize].start, self.sessions[from as usize].end);
        self.remove(from);
        self.extend(to, start, end);
        Ok(())
    }

    /// Adds the tuples that have a session to its accumulators.
    pub(crate) fn add_pending(&mut self, tuples: &RecordBatch) -> Result<()> {
        let PendingTuples { rows, slots } = std::mem::take(&mut self.pending);
        if rows.is_empty() {
            return Ok(());
        }
        let tuples = select(tuples, rows).map_err(|error| self.failed(&error))?;
        for (aggregate, accumulators) in self.aggregates.iter().zip(&mut self.accumulators) {
            let columns = columns_of(&tuples, aggregate.columns());
            let added = aggregate.add(accumulators, &slots, &columns);
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        self.reserve(0)
    }

    /// Start of the first open session.
    pub(crate) fn first_start(&self) -> Option<EventTime> {
        self.starts.first().map(|(start, _)| *start)
    }

    /// End of the last open session.
    pub(crate) fn last_end(&self) -> Option<EventTime> {
        self.sessions.iter().filter(|session| session.is_open).map(|session| session.end).max()
    }

    /// Removes the sessions that end at or before the watermark.
    pub(crate) fn close(&mut self, watermark: EventTime) -> Result<Option<ClosedSessions>> {
        let mut closed: Vec<u32> = Vec::new();
        while let Some(&Reverse((end, slot))) = self.ends.peek() {
            if end > watermark {
                break;
            }
            self.ends.pop();
            let session = &self.sessions[slot as usize];
            if !session.is_open {
                continue;
            }
            if session.end <= watermark {
                closed.push(slot);
            } else {
                self.ends.push(Reverse((session.end, slot)));
            }
        }
        let of = |slot: &u32| &self.sessions[*slot as usize];
        closed.sort_unstable_by(|a, b| {
            let (a, b) = (of(a), of(b));
            (a.end, a.start, &a.key).cmp(&(b.end, b.start, &b.key))
        });
        // A slot has several ends in the queue if it was merged into, or used again.
        closed.dedup();
        if closed.is_empty() {
            return Ok(None);
        }
        let results = self.aggregates.iter().zip(&mut self.accumulators);
        let results = results.map(|(aggregate, accumulators)| aggregate.results(accumulators, &closed));
        let results = results.collect::<Result<Vec<ArrayRef>, String>>();
        let results = results.map_err(|reason| self.failed_as(reason))?;
        let of = |slot: &u32| &self.sessions[*slot as usize];
        let sessions = ClosedSessions {
            keys: self.group_arrays(closed.iter().map(|slot| &of(slot).key))?,
            starts: self.edges(closed.iter().map(|slot| of(slot).start)),
            ends: self.edges(closed.iter().map(|slot| of(slot).end)),
            results,
        };
        closed.into_iter().for_each(|slot| self.remove(slot));
        Ok(Some(sessions))
    }

    /// Writes the touched sessions, and deletes the rows of those that are gone.
    pub(crate) fn write_touched(&mut self, tx: &Transaction) -> Result<()> {
        let mut deleted = std::mem::take(&mut self.deleted);
        if !deleted.is_empty() {
            deleted.sort_unstable();
            let mut columns = self.group_arrays(deleted.iter().map(|(key, ..)| key))?;
            columns.push(self.edges(deleted.iter().map(|(_, start, _)| *start)));
            let counts: Vec<u32> = deleted.iter().map(|(.., rows)| *rows).collect();
            let places: Vec<usize> = (0..columns.len()).collect();
            self.table.delete_batch(tx, &self.rows.keys(columns, &places, &counts)?)?;
        }
        let mut touched = std::mem::take(&mut self.touched);
        // A slot may have been freed and used again.
        touched.sort_unstable();
        touched.dedup();
        touched.retain(|&slot| {
            let session = &self.sessions[slot as usize];
            session.is_open && session.is_touched
        });
        if touched.is_empty() {
            return Ok(());
        }
        let of = |slot: &u32| &self.sessions[*slot as usize];
        touched.sort_unstable_by(|a, b| (&of(a).key, of(a).start).cmp(&(&of(b).key, of(b).start)));
        let mut columns = self.group_arrays(touched.iter().map(|slot| &of(slot).key))?;
        columns.push(self.edges(touched.iter().map(|slot| of(slot).start)));
        columns.push(self.edges(touched.iter().map(|slot| of(slot).end)));
        let stores = self.aggregates.iter().zip(&mut self.accumulators);
        let stores = stores.map(|(aggregate, accumulators)| aggregate.store(accumulators, &touched));
        let stores = stores.collect::<Result<Vec<_>, String>>();
        columns.extend(stores.map_err(|reason| self.failed_as(reason))?.concat());
        let stored = |slot: &u32| self.sessions[*slot as usize].stored.map_or(0, |(_, rows)| rows);
        let mut counts: Vec<u32> = touched.iter().map(stored).collect();
        let rows = self.rows.rows(columns, &mut counts)?;
        self.table.upsert_batch(tx, &rows)?;
        for (slot, count) in touched.into_iter().zip(counts) {
            let session = &mut self.sessions[slot as usize];
            session.is_touched = false;
            session.stored = Some((session.start, count));
        }
        Ok(())
    }
}
