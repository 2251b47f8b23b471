//! State of a window aggregate in parts by a hash of the group, which threads work on side by side.
//!
//! ```text
//!               ┌ part 0: the topology's thread ┐
//!   tuples ─ hash ─ part 1: worker 1            ┼─ rows of all parts, in the order of their keys
//!               └ part 2: worker 2              ┘
//! ```
//!
//! - A part is a [`WindowState`] of its own groups, all over one state table. So a topology that is started with another
//!   number of parts finds its groups again.
//! - Tuples are divided when they come, and added when [`PENDING_ROWS_MAX`] wait, when a window closes, and at the commit
//!   punctuation. Then each part is lent to a thread, with its tuples; all come back before anything else happens. So
//!   between two calls of the operator nothing runs, and an abort finds all parts.
//! - What a part is to write is encoded by its thread. The first error of the parts, by their numbers, is that of the
//!   operator. A thread that panics ends the topology.
//! - Few tuples are added in the topology's thread; so are all in a simulated environment.
//!
//! Memory: tuples that wait are copies, at most [`PENDING_ROWS_MAX`] and one batch, within the memory budget. A part has its
//! share of the groups in DRAM.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::{EpochTransaction, PartRows};
use crate::execution::held_batches::HeldBatches;
use crate::operators::group_index::GroupIndex;
use crate::operators::key_parts::divided;
use crate::operators::state_form::StateCosts;
use crate::operators::window_state::{ClosedGroups, WindowState};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat;
use arrow_select::take::take;
use crossbeam_channel::{Receiver, Sender, bounded};
use entresol_memory::Env;
use entresol_memory::budget::MemoryBudget;
use entresol_tables::Table;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum of rows that wait to be added, beside those of one batch.
const PENDING_ROWS_MAX: usize = 1 << 14;
/// Least number of rows for which other threads are woken.
const SHARED_ROWS_MIN: usize = 512;

pub(crate) struct DividedState {
    name: String,
    topology: String,
    group_columns: Vec<usize>,
    /// Parts; one that is lent to a thread is missing.
    parts: Vec<Option<Box<WindowState>>>,
    /// Tuples that wait, with their windows, per part.
    pending: Vec<Vec<(EventTime, RecordBatch)>>,
    held: HeldBatches,
    /// Threads of the parts from 1 on; none where all is done in the topology's.
    workers: Vec<Worker>,
}

/// Thread that works on a part.
struct Worker {
    tasks: Option<Sender<Task>>,
    done: Receiver<PartResult>,
    thread: Option<JoinHandle<()>>,
}

struct Task {
    part: Box<WindowState>,
    tuples: Vec<(EventTime, RecordBatch)>,
    /// True if the touched groups are to be written, too.
    writes: bool,
    epoch: Arc<EpochTransaction>,
}

struct PartResult {
    part: Box<WindowState>,
    written: Result<Vec<PartRows>>,
}

impl Task {
    fn run(mut self) -> PartResult {
        let written = self.work();
        PartResult { part: self.part, written }
    }

    fn work(&mut self) -> Result<Vec<PartRows>> {
        for (start, tuples) in std::mem::take(&mut self.tuples) {
            self.part.add(&self.epoch, start, &tuples)?;
        }
        if self.writes { self.part.encode_touched() } else { Ok(Vec::new()) }
    }
}

impl Worker {
    fn start(env: &Env, name: &str) -> Result<Worker> {
        let (tasks, received) = bounded::<Task>(1);
        let (finished, done) = bounded(1);
        let thread = env.spawn(name, move || {
            for task in received {
                if finished.send(task.run()).is_err() {
                    return;
                }
            }
        });
        let thread = thread.map_err(|source| Error::Io { path: "a thread for a part".into(), source })?;
        Ok(Worker { tasks: Some(tasks), done, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl DividedState {
    /// State in these parts, in the order of their numbers.
    pub(crate) fn new(
        name: String,
        topology: &str,
        group_columns: Vec<usize>,
        parts: Vec<WindowState>,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> DividedState {
        assert!(!parts.is_empty(), "a state has at least one part");
        DividedState {
            name,
            topology: topology.to_owned(),
            group_columns,
            pending: parts.iter().map(|_| Vec::new()).collect(),
            parts: parts.into_iter().map(|part| Some(Box::new(part))).collect(),
            held: HeldBatches::new(memory),
            workers: Vec::new(),
        }
    }

    /// Starts the threads.
    pub(crate) fn open(&mut self, env: &Env) -> Result<()> {
        if !env.is_simulated() {
            let name = |part| format!("part {part} of {}", self.topology);
            let workers = (1..self.parts.len()).map(|part| Worker::start(env, &name(part)));
            self.workers = workers.collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Parts, all of which are there between calls of the operator, but for one whose thread has panicked.
    fn each(&mut self) -> impl Iterator<Item = &mut WindowState> {
        self.parts.iter_mut().filter_map(|part| part.as_deref_mut())
    }

    fn whole(&self) -> impl Iterator<Item = &WindowState> {
        self.parts.iter().filter_map(|part| part.as_deref())
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::Tuple { operator: self.name.clone(), reason: error.to_string() }
    }

    /// State table.
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        self.whole().next().map(|part| &part.table).ok_or_else(|| self.panicked())
    }

    /// Costs of the state in rows and pages; none if it has no choice.
    pub(crate) fn state_costs(&self) -> Option<StateCosts> {
        self.whole().next().filter(|_| self.parts.len() == 1)?.state_costs()
    }

    /// Takes the state table as it is defined now.
    pub(crate) fn set_table(&mut self, table: &Arc<Table>) {
        self.each().for_each(|part| part.table = Arc::clone(table));
    }

    fn panicked(&self) -> Error {
        Error::Panicked { topology: self.topology.clone() }
    }

    /// Reads what is not in DRAM.
    pub(crate) fn ensure_loaded(&mut self, epoch: &EpochTransaction) -> Result<()> {
        self.each().try_for_each(|part| part.ensure_loaded(epoch))
    }

    /// Adds tuples to their groups in the window that starts at `start`, now or later.
    pub(crate) fn add(
        &mut self,
        epoch: &Arc<EpochTransaction>,
        start: EventTime,
        tuples: &RecordBatch,
    ) -> Result<()> {
        if let [Some(part)] = &mut self.parts[..] {
            return part.add(epoch, start, tuples);
        }
        self.divide(start, tuples)?;
        if self.held.tuples() < PENDING_ROWS_MAX {
            return Ok(());
        }
        self.work(epoch, false).map(drop)
    }

    fn divide(&mut self, start: EventTime, tuples: &RecordBatch) -> Result<()> {
        let parts = divided(tuples, &self.group_columns, self.parts.len());
        let parts = parts.map_err(|error| self.failed(&error))?;
        for (pending, of_part) in self.pending.iter_mut().zip(parts) {
            if of_part.num_rows() > 0 {
                self.held.add(&of_part.clone().into())?;
                pending.push((start, of_part));
            }
        }
        Ok(())
    }

    /// Adds the tuples that wait, and encodes the touched groups if they are to be written.
    fn work(&mut self, epoch: &Arc<EpochTransaction>, writes: bool) -> Result<Vec<PartRows>> {
        let is_shared = self.held.tuples() >= SHARED_ROWS_MIN;
        let mut results: Vec<Result<Vec<PartRows>>> = Vec::new();
        let mut own = Vec::new();
        let mut lent = Vec::new();
        for number in 0..self.parts.len() {
            let part = self.parts[number].take().ok_or_else(|| self.panicked())?;
            let tuples = std::mem::take(&mut self.pending[number]);
            let task = Task { part, tuples, writes, epoch: Arc::clone(epoch) };
            match number.checked_sub(1).and_then(|worker| self.workers.get(worker)) {
                Some(Worker { tasks: Some(tasks), .. }) if is_shared => {
                    // A thread that is gone is noticed when its part does not come back.
                    drop(tasks.send(task));
                    lent.push(number);
                }
                _ => own.push((number, task)),
            }
        }
        let done = own.into_iter().map(|(number, task)| (number, Some(task.run()))).collect::<Vec<_>>();
        let back = lent.into_iter().map(|number| (number, self.workers[number - 1].done.recv().ok()));
        for (number, done) in done.into_iter().chain(back.collect::<Vec<_>>()) {
            let Some(PartResult { part, written }) = done else {
                results.push(Err(self.panicked()));
                continue;
            };
            self.parts[number] = Some(part);
            results.push(written);
        }
        self.held.clear();
        Ok(results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Adds the tuples that wait.
    fn add_pending(&mut self, epoch: &Arc<EpochTransaction>) -> Result<()> {
        if self.held.tuples() == 0 {
            return Ok(());
        }
        self.work(epoch, false).map(drop)
    }

    /// Writes the touched groups of all windows.
    pub(crate) fn write_touched(&mut self, epoch: &Arc<EpochTransaction>) -> Result<()> {
        if let [Some(part)] = &mut self.parts[..] {
            return part.write_touched(epoch);
        }
        let rows = self.work(epoch, true)?;
        epoch.upsert_parts(self.table()?, rows)
    }

    /// Starts of the windows that have changed in the epoch. Before they are written.
    pub(crate) fn touched_windows(&mut self, epoch: &Arc<EpochTransaction>) -> Result<BTreeSet<EventTime>> {
        self.add_pending(epoch)?;
        Ok(self.whole().flat_map(WindowState::touched_windows).collect())
    }

    /// Groups that have changed in the epoch, of a window at a time, with the results that they have now. Before they are
    /// written.
    pub(crate) fn touched_results(
        &mut self,
        epoch: &Arc<EpochTransaction>,
    ) -> Result<Vec<(EventTime, ClosedGroups)>> {
        self.add_pending(epoch)?;
        let results = self.each().map(|part| part.touched_results(epoch)).collect::<Result<Vec<_>>>()?;
        Ok(results.into_iter().flatten().collect())
    }

    /// Adds tuples like [`DividedState::add`]; returns their groups with the results that they have now.
    pub(crate) fn correct(
        &mut self,
        epoch: &Arc<EpochTransaction>,
        start: EventTime,
        tuples: &RecordBatch,
    ) -> Result<ClosedGroups> {
        if let [Some(part)] = &mut self.parts[..] {
            return part.correct(epoch, start, tuples);
        }
        self.add_pending(epoch)?;
        let divided = divided(tuples, &self.group_columns, self.parts.len());
        let divided = divided.map_err(|error| self.failed(&error))?;
        let mut corrected = Vec::new();
        for (part, tuples) in self.each().zip(divided) {
            if tuples.num_rows() > 0 {
                corrected.push(part.correct(epoch, start, &tuples)?);
            }
        }
        self.merged(corrected)
    }

    /// Returns all groups of a window, which stays as it is.
    pub(crate) fn results(
        &mut self,
        epoch: &Arc<EpochTransaction>,
        start: EventTime,
    ) -> Result<Option<ClosedGroups>> {
        self.add_pending(epoch)?;
        let mut found = Vec::new();
        for part in self.each() {
            found.extend(part.results(epoch, start)?);
        }
        if found.is_empty() { Ok(None) } else { self.merged(found).map(Some) }
    }

    /// Groups of all parts, in the order of their keys.
    fn merged(&self, mut parts: Vec<ClosedGroups>) -> Result<ClosedGroups> {
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        merge(&parts).map_err(|error| self.failed(&error))
    }

    /// Removes a window from DRAM and from the table.
    pub(crate) fn remove(&mut self, epoch: &Arc<EpochTransaction>, start: EventTime) -> Result<()> {
        self.add_pending(epoch)?;
        self.each().try_for_each(|part| part.remove(epoch, start))
    }

    /// Returns the start of the first window that starts before `end`.
    pub(crate) fn first_before(
        &mut self,
        epoch: &Arc<EpochTransaction>,
        end: EventTime,
    ) -> Result<Option<EventTime>> {
        self.add_pending(epoch)?;
        Ok(self.whole().filter_map(|part| part.first_before(end)).min())
    }

    /// Returns the start of the last window.
    pub(crate) fn last_start(&mut self, epoch: &Arc<EpochTransaction>) -> Result<Option<EventTime>> {
        self.add_pending(epoch)?;
        Ok(self.whole().filter_map(WindowState::last_start).max())
    }

    /// Returns the starts of the windows in a range of time.
    pub(crate) fn starts_within(
        &mut self,
        epoch: &Arc<EpochTransaction>,
        range: Range<EventTime>,
    ) -> Result<Vec<EventTime>> {
        self.add_pending(epoch)?;
        let starts: BTreeSet<EventTime> =
            self.whole().flat_map(|part| part.starts_within(range.clone())).collect();
        Ok(starts.into_iter().collect())
    }

    pub(crate) fn sealed(&mut self) {
        self.each().for_each(WindowState::sealed);
    }

    pub(crate) fn committed(&mut self) {
        self.each().for_each(WindowState::committed);
    }

    pub(crate) fn aborted(&mut self) {
        self.pending.iter_mut().for_each(Vec::clear);
        self.held.clear();
        self.each().for_each(WindowState::aborted);
    }
}

/// Groups of several parts, which have no key in common, in the order of their keys.
fn merge(parts: &[ClosedGroups]) -> Result<ClosedGroups, ArrowError> {
    let joined = |columns: &dyn Fn(&ClosedGroups) -> &Vec<ArrayRef>| -> Result<Vec<ArrayRef>, ArrowError> {
        let count = columns(&parts[0]).len();
        let column = |at: usize| {
            let arrays: Vec<&dyn arrow_array::Array> = parts.iter().map(|part| &*columns(part)[at]).collect();
            concat(&arrays)
        };
        (0..count).map(column).collect()
    };
    let (keys, results) = (joined(&|part| &part.keys)?, joined(&|part| &part.results)?);
    let groups = parts.iter().map(|part| part.groups).sum();
    let types: Vec<_> = keys.iter().map(|key| key.data_type().clone()).collect();
    let mut index = GroupIndex::new(&types, groups)?;
    let mut order = Vec::with_capacity(groups);
    index.number(&keys, &mut order)?;
    index.sort(&mut order);
    let order = UInt32Array::from(order);
    let ordered = |columns: Vec<ArrayRef>| -> Result<Vec<ArrayRef>, ArrowError> {
        columns.iter().map(|column| take(column, &order, None)).collect()
    };
    Ok(ClosedGroups { keys: ordered(keys)?, results: ordered(results)?, groups })
}
