//! The open windows of a window aggregate: a DRAM cache over the operator's state table.
//!
//! ```text
//!   state table  (window_start, group columns) -> accumulators      committed, queryable by SQL
//!        ▲ touched groups at every commit          │ all rows at start and after an abort
//!        │                                         ▼
//!   windows: window_start -> GroupMap              DRAM
//! ```
//!
//! # Invariants
//!
//! - A `complete` window has all its groups in DRAM; the missing groups of any other one are in the table.
//! - At a commit, touched groups are written; so a committed transaction's table rows are the windows' state.
//! - The table belongs to one operator of one topology; changes by others are overwritten or lost.
//!
//! # Crash and abort
//!
//! Nothing in DRAM is needed: `forget` drops it, and the next use reads the table again.
//!
//! # Memory
//!
//! At most [`GROUPS_IN_DRAM_MAX`] groups, and at most the part of the pool's memory budget that is available
//! to stream state: when full, the oldest window is written to the transaction and leaves DRAM. At most
//! [`OPEN_WINDOWS_MAX`] windows; more is an error.

use crate::error::{Error, Result};
use crate::operators::accumulator::{Accumulator, BoundAggregate};
use crate::operators::group_map::{GroupMap, group_bytes, hash_columns};
use crate::{GROUPS_IN_DRAM_MAX, OPEN_WINDOWS_MAX};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryLimit, MemoryReservation};
use entresol_tables::{Row, ScanRange, Table, Value};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: usize = 64 << 10;

pub(crate) struct WindowState {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    pub(crate) aggregates: Vec<BoundAggregate>,
    /// Indexes of the group columns in the tuples.
    pub(crate) group_columns: Vec<usize>,
    pub(crate) hash_seed: u64,
    /// At most [`GROUPS_IN_DRAM_MAX`], at least 1.
    pub(crate) groups_max: usize,
    windows: BTreeMap<i64, OpenWindow>,
    /// Starts of the windows with touched groups; some may be closed since.
    touched: Vec<i64>,
    groups: usize,
    /// Bytes of the groups, and the bytes reserved for them.
    bytes: usize,
    memory: Option<MemoryReservation>,
    loaded: bool,
}

#[derive(Debug)]
struct OpenWindow {
    groups: GroupMap,
    complete: bool,
}

/// The groups of a closed window: their keys and accumulators, sorted by key.
pub(crate) type ClosedGroups = Vec<(Vec<Value>, Vec<Accumulator>)>;

impl WindowState {
    pub(crate) fn new(
        name: String,
        table: Arc<Table>,
        aggregates: Vec<BoundAggregate>,
        group_columns: Vec<usize>,
        hash_seed: u64,
        groups_max: usize,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> WindowState {
        WindowState {
            name,
            table,
            aggregates,
            group_columns,
            hash_seed,
            groups_max: groups_max.clamp(1, GROUPS_IN_DRAM_MAX),
            windows: BTreeMap::new(),
            touched: Vec::new(),
            groups: 0,
            bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
            loaded: false,
        }
    }

    /// Drops all state in DRAM.
    pub(crate) fn forget(&mut self) {
        self.windows.clear();
        self.touched.clear();
        self.groups = 0;
        self.bytes = 0;
        self.memory.iter_mut().for_each(MemoryReservation::clear);
        self.loaded = false;
    }

    /// Reads the table if DRAM was dropped. Must come before every other use in a transaction.
    pub(crate) fn ensure_loaded(&mut self, tx: &Transaction) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let mut cursor = self.table.scan(ScanRange::full());
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let more = cursor.next_batch(tx, |row| rows.push(row.to_row()))?;
            for row in rows.drain(..) {
                self.load_row(&row)?;
            }
            if !more {
                break;
            }
        }
        self.loaded = true;
        Ok(())
    }

    fn load_row(&mut self, row: &[Value]) -> Result<()> {
        let (start, key, accumulators) = self.decode(row)?;
        let bytes = group_bytes(&key, accumulators.len());
        let full = self.groups >= self.groups_max || self.try_reserve(bytes).is_err();
        let window = open_window(&mut self.windows, &self.name, start)?;
        if full {
            window.complete = false;
            return Ok(());
        }
        let places: Vec<usize> = (0..key.len()).collect();
        let hash = hash_columns(self.hash_seed, &key, &places);
        window.groups.add(hash, key.into(), accumulators.into_iter(), true);
        self.groups += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Splits a row of the state table into window start, group key and accumulators.
    fn decode(&self, row: &[Value]) -> Result<(i64, Vec<Value>, Vec<Accumulator>)> {
        let groups = self.group_columns.len();
        let malformed = || Error::Tuple {
            operator: self.name.clone(),
            reason: format!("a row of state table {} is not one of this operator", self.table.name()),
        };
        let Some(Value::Timestamp(start)) = row.get(groups) else { return Err(malformed()) };
        let mut rest = row[groups + 1..].iter();
        let mut accumulators = Vec::with_capacity(self.aggregates.len());
        for aggregate in &self.aggregates {
            accumulators.push(aggregate.load(&mut rest).ok_or_else(malformed)?);
        }
        Ok((*start, row[..groups].to_vec(), accumulators))
    }

    /// Adds a tuple to its group in the window that starts at `start`.
    pub(crate) fn add(&mut self, tx: &Transaction, start: i64, tuple: &[Value]) -> Result<()> {
        let hash = hash_columns(self.hash_seed, tuple, &self.group_columns);
        let window = open_window(&mut self.windows, &self.name, start)?;
        let at = match window.groups.find(hash, tuple, &self.group_columns) {
            Some(at) => at,
            None => self.add_group(tx, start, hash, tuple)?,
        };
        let window = open_window(&mut self.windows, &self.name, start)?;
        if !window.groups.is_touched() {
            self.touched.push(start);
        }
        let accumulators = window.groups.touch(at);
        for (aggregate, accumulator) in self.aggregates.iter().zip(accumulators) {
            let added = aggregate.add(accumulator, tuple);
            added.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?;
        }
        Ok(())
    }

    /// Loads a group into DRAM: from the table if it may be there, else a new one.
    fn add_group(&mut self, tx: &Transaction, start: i64, hash: u64, tuple: &[Value]) -> Result<u32> {
        if self.groups >= self.groups_max {
            self.spill(tx)?;
        }
        let key: Box<[Value]> = self.group_columns.iter().map(|&column| tuple[column].clone()).collect();
        if key.iter().any(Value::is_null) {
            let reason = "NULL in a group column; filter such tuples out, or map NULL to a value".to_owned();
            return Err(Error::Tuple { operator: self.name.clone(), reason });
        }
        let bytes = group_bytes(&key, self.aggregates.len());
        while let Err(limit) = self.try_reserve(bytes) {
            if self.groups == 0 {
                return Err(entresol_transactions::Error::Memory(limit.into()).into());
            }
            self.spill(tx)?;
        }
        let complete = self.windows.get(&start).is_none_or(|window| window.complete);
        let mut stored = None;
        if !complete {
            let mut row_key = vec![Value::Timestamp(start)];
            row_key.extend(key.iter().cloned());
            if let Some(row) = self.table.get(tx, &row_key)? {
                stored = Some(self.decode(&row)?.2);
            }
        }
        let is_stored = stored.is_some();
        let accumulators =
            stored.unwrap_or_else(|| self.aggregates.iter().map(BoundAggregate::start).collect());
        let window = open_window(&mut self.windows, &self.name, start)?;
        self.groups += 1;
        self.bytes += bytes;
        Ok(window.groups.add(hash, key, accumulators.into_iter(), is_stored))
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

    /// Releases the memory of groups that have left DRAM.
    fn release(&mut self, groups: usize, bytes: usize) {
        self.groups -= groups;
        self.bytes -= bytes;
        let Some(memory) = &mut self.memory else { return };
        let wanted = self.bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        memory.shrink(memory.bytes().saturating_sub(wanted));
    }

    /// Writes the oldest window that has groups in DRAM to the transaction and drops its groups.
    fn spill(&mut self, tx: &Transaction) -> Result<()> {
        let oldest = self.windows.iter().find(|(_, window)| window.groups.len() > 0).map(|(start, _)| *start);
        let Some(start) = oldest else { return Ok(()) };
        self.write_window(tx, start)?;
        if let Some(window) = self.windows.get_mut(&start) {
            let groups = std::mem::take(&mut window.groups);
            window.complete = false;
            self.release(groups.len(), groups.bytes());
        }
        Ok(())
    }

    /// Writes the touched groups of all windows.
    pub(crate) fn write_touched(&mut self, tx: &Transaction) -> Result<()> {
        let starts = std::mem::take(&mut self.touched);
        starts.into_iter().try_for_each(|start| self.write_window(tx, start))
    }

    fn write_window(&mut self, tx: &Transaction, start: i64) -> Result<()> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        let mut rows: Vec<Row> = Vec::new();
        window.groups.take_touched(|key, accumulators| {
            let mut row = Vec::with_capacity(key.len() + 1 + accumulators.len());
            row.extend_from_slice(key);
            row.push(Value::Timestamp(start));
            for (aggregate, accumulator) in self.aggregates.iter().zip(accumulators) {
                aggregate.store(accumulator, &mut row);
            }
            rows.push(row);
        });
        Ok(self.table.upsert_many(tx, &rows)?)
    }

    /// Returns the start of the first window that starts before `end`.
    pub(crate) fn first_before(&self, end: i64) -> Option<i64> {
        self.windows.keys().next().copied().filter(|start| *start < end)
    }

    /// Returns the start of the last window.
    pub(crate) fn last_start(&self) -> Option<i64> {
        self.windows.keys().next_back().copied()
    }

    /// Removes a window from DRAM and from the table; returns its groups.
    pub(crate) fn close(&mut self, tx: &Transaction, start: i64) -> Result<ClosedGroups> {
        let complete = self.windows.get(&start).is_none_or(|window| window.complete);
        if !complete {
            self.write_window(tx, start)?;
        }
        let Some(window) = self.windows.remove(&start) else { return Ok(Vec::new()) };
        self.release(window.groups.len(), window.groups.bytes());
        let mut closed: ClosedGroups = Vec::with_capacity(window.groups.len());
        let mut stored: Vec<Row> = Vec::new();
        if complete {
            for (key, accumulators, is_stored) in window.groups.iter() {
                if is_stored {
                    stored
                        .push(std::iter::once(Value::Timestamp(start)).chain(key.iter().cloned()).collect());
                }
                closed.push((key.to_vec(), accumulators.to_vec()));
            }
            closed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        } else {
            for row in self.table.scan(ScanRange::prefix(&[Value::Timestamp(start)])).rows(tx)? {
                let (_, key, accumulators) = self.decode(&row)?;
                stored.push(std::iter::once(Value::Timestamp(start)).chain(key.iter().cloned()).collect());
                closed.push((key, accumulators));
            }
        }
        self.table.delete_many(tx, &stored)?;
        Ok(closed)
    }
}

/// Returns the groups of a window, which it opens if necessary. A free function, so that the other fields
/// stay borrowable.
fn open_window<'w>(
    windows: &'w mut BTreeMap<i64, OpenWindow>,
    name: &str,
    start: i64,
) -> Result<&'w mut OpenWindow> {
    if windows.len() >= OPEN_WINDOWS_MAX && !windows.contains_key(&start) {
        return Err(Error::Limit { resource: format!("open windows of {name}"), max: OPEN_WINDOWS_MAX });
    }
    Ok(windows.entry(start).or_insert_with(|| OpenWindow { groups: GroupMap::default(), complete: true }))
}
