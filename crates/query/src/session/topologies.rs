//! The topologies of a database while it is open: those that run, and what became of the others.

use crate::error::{Error, topology_error};
use crate::session::materialized::MaintainedView;
use entresol_streams::{Latencies, OperatorProgress, Progress, ProgressSnapshot, Running, Topology};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OwnedMutexGuard;

/// Registry of the topologies of a database. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Topologies {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    /// Held by a statement that changes sources or topologies.
    changes: Arc<tokio::sync::Mutex<()>>,
    /// Set once the stored topologies are entries.
    loaded: Arc<AtomicBool>,
}

struct Entry {
    state: State,
    /// Counters of the current or last run.
    progress: Option<Arc<Progress>>,
    /// Relations that it reads and writes.
    relations: UsedRelations,
}

/// Relations that a topology uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsedRelations {
    /// All that it reads or writes.
    pub(crate) all: Vec<String>,
    /// Tables whose logged changes it reads.
    pub(crate) changes: Vec<String>,
    /// Tables that it writes.
    pub(crate) written: Vec<String>,
    /// Tables among them whose defaults and checks its rows have.
    pub(crate) ruled: Vec<String>,
    /// Columns of tables that it uses; a table without a name of a column stands for all of its columns.
    pub(crate) columns: Vec<(String, Option<String>)>,
    /// Tables whose columns its plan depends on: it is planned again when they change.
    pub(crate) planned: Vec<String>,
    /// Target outside of the database, if it is a sink.
    pub(crate) sink: Option<String>,
    /// Query of the materialized view that it is, whose table it writes.
    pub(crate) view: Option<String>,
}

impl UsedRelations {
    /// Tells whether a relation is read or written.
    pub(crate) fn uses(&self, relation: &str) -> bool {
        self.all.iter().any(|used| used == relation)
    }

    /// Tells whether a column of a table is read or written.
    pub(crate) fn uses_column(&self, table: &str, column: &str) -> bool {
        let is_used = |(of, used): &(String, Option<String>)| {
            of == table && used.as_ref().is_none_or(|used| used == column)
        };
        self.columns.iter().any(is_used)
    }
}

enum State {
    Running(Running),
    Paused,
    /// All of its sources have ended.
    Ended,
    Failed(String),
}

/// Topology as the system tables show it.
#[derive(Debug, Clone)]
pub(crate) struct TopologyStatus {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) progress: Option<ProgressSnapshot>,
    pub(crate) commit_latencies: Option<Latencies>,
    pub(crate) error: Option<String>,
    /// Target of a sink.
    pub(crate) sink: Option<String>,
    /// Relations that it reads or writes.
    pub(crate) relations: Vec<String>,
    /// Tables whose logged changes it reads.
    pub(crate) changes: Vec<String>,
    pub(crate) operators: Vec<OperatorProgress>,
    /// Number of its threads, once it has run.
    pub(crate) parallelism: Option<usize>,
    /// True if the next transaction is computed while one commits.
    pub(crate) overlaps: bool,
}

impl fmt::Debug for Topologies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.lock().keys()).finish()
    }
}

impl Entry {
    /// Takes the result of a run that has ended.
    fn settle(&mut self) {
        if !matches!(&self.state, State::Running(running) if running.is_finished()) {
            return;
        }
        if let State::Running(running) = std::mem::replace(&mut self.state, State::Ended)
            && let Err(error) = running.join()
        {
            self.state = State::Failed(topology_error(&error));
        }
    }
}

impl Topologies {
    /// Waits until no other statement changes sources or topologies; none does while the result lives.
    pub(crate) async fn changing(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changes).lock_owned().await
    }

    /// Notes that the stored topologies become entries.
    pub(crate) fn loaded(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    /// Returns true if the stored topologies are entries: if the database was not opened without them.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Refuses a statement about topologies in a database that was opened without them.
    pub(crate) fn check_loaded(&self, verb: &str) -> Result<(), Error> {
        if self.is_loaded() {
            return Ok(());
        }
        Err(Error::coded("55000", format!("{verb}: the database was opened without its topologies")))
    }

    /// Starts a topology that reads and writes these relations.
    pub(crate) fn start(
        &self,
        name: &str,
        topology: Topology,
        relations: UsedRelations,
    ) -> Result<(), entresol_streams::Error> {
        let running = topology.start()?;
        let progress = Some(Arc::clone(running.progress()));
        let entry = Entry { state: State::Running(running), progress, relations };
        self.entries.lock().insert(name.to_owned(), entry);
        Ok(())
    }

    /// Notes one that is not started, or could not be.
    pub(crate) fn note(&self, name: &str, error: Option<String>, relations: UsedRelations) {
        let state = error.map_or(State::Paused, State::Failed);
        self.entries.lock().insert(name.to_owned(), Entry { state, progress: None, relations });
    }

    /// Returns true if there is one of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.lock().contains_key(name)
    }

    /// Returns true if one of this name runs.
    pub(crate) fn is_running(&self, name: &str) -> bool {
        let mut entries = self.entries.lock();
        entries.get_mut(name).is_some_and(|entry| {
            entry.settle();
            matches!(entry.state, State::Running(_))
        })
    }

    /// Notes that one cannot go on, which uses what it did.
    pub(crate) fn fail(&self, name: &str, error: String) {
        if let Some(entry) = self.entries.lock().get_mut(name) {
            entry.state = State::Failed(error);
        }
    }

    /// Stops a topology and waits for its end. One that has ended or failed stays so.
    pub(crate) fn pause(&self, name: &str) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(name) else { return };
        entry.settle();
        if !matches!(entry.state, State::Running(_)) {
            return;
        }
        let State::Running(running) = std::mem::replace(&mut entry.state, State::Paused) else { return };
        running.stop();
        drop(entries);
        let failed = running.join().err().map(|error| topology_error(&error));
        if let (Some(error), Some(entry)) = (failed, self.entries.lock().get_mut(name)) {
            entry.state = State::Failed(error);
        }
    }

    /// Stops a topology and forgets it.
    pub(crate) fn remove(&self, name: &str) {
        self.pause(name);
        self.entries.lock().remove(name);
    }

    /// Stops all topologies and waits for their ends: for the end of a database.
    pub fn stop(&self) {
        let entries = std::mem::take(&mut *self.entries.lock());
        let running = entries.into_values().filter_map(|entry| match entry.state {
            State::Running(running) => Some(running),
            _ => None,
        });
        let running: Vec<Running> = running.inspect(Running::stop).collect();
        for running in running {
            let name = running.topology().to_owned();
            if let Err(error) = running.join() {
                tracing::warn!(topology = name, %error, "a topology ended with an error");
            }
        }
    }

    /// Names of the topologies whose relations fulfil a condition.
    pub(crate) fn users(&self, uses: impl Fn(&UsedRelations) -> bool) -> Vec<String> {
        let entries = self.entries.lock();
        let users = entries.iter().filter(|(_, entry)| uses(&entry.relations));
        users.map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if one of this name sends rows out of the database.
    pub(crate) fn is_sink(&self, name: &str) -> bool {
        self.entries.lock().get(name).is_some_and(|entry| entry.relations.sink.is_some())
    }

    /// Returns true if one of this name is a materialized view over streams.
    pub(crate) fn is_view(&self, name: &str) -> bool {
        self.entries.lock().get(name).is_some_and(|entry| entry.relations.view.is_some())
    }

    /// Query of the materialized view over streams of this name.
    pub(crate) fn view_query(&self, name: &str) -> Option<String> {
        self.entries.lock().get(name).and_then(|entry| entry.relations.view.clone())
    }

    /// Returns true if one of this name ended with an error, or could not start.
    pub(crate) fn has_failed(&self, name: &str) -> bool {
        self.entries.lock().get_mut(name).is_some_and(|entry| {
            entry.settle();
            matches!(entry.state, State::Failed(_))
        })
    }

    /// Path by which changes would come back to the topology that made them, as names of tables, views and
    /// topologies; none if a new one closes no cycle.
    /// Materialized views change with the tables that they read.
    pub(crate) fn cycle(
        &self,
        new: &str,
        relations: &UsedRelations,
        views: &[MaintainedView],
    ) -> Option<Vec<String>> {
        let entries = self.entries.lock();
        let mut open: Vec<Vec<String>> =
            relations.written.iter().map(|table| vec![new.to_owned(), table.clone()]).collect();
        let mut seen: Vec<String> = Vec::new();
        while let Some(path) = open.pop() {
            let table = path.last()?;
            if relations.changes.contains(table) {
                return Some(path.into_iter().chain([new.to_owned()]).collect());
            }
            if seen.contains(table) {
                continue;
            }
            seen.push(table.clone());
            for view in views.iter().filter(|view| view.tables.iter().any(|(read, _)| read == table)) {
                open.push([&path[..], std::slice::from_ref(&view.name)].concat());
            }
            for (name, entry) in entries.iter().filter(|(name, _)| *name != new) {
                if entry.relations.changes.contains(table) {
                    let behind = entry.relations.written.iter();
                    open.extend(behind.map(|next| [&path[..], &[name.clone(), next.clone()]].concat()));
                }
            }
        }
        None
    }

    /// All topologies, by name.
    pub(crate) fn statuses(&self) -> Vec<TopologyStatus> {
        let mut entries = self.entries.lock();
        let status = |(name, entry): (&String, &mut Entry)| {
            entry.settle();
            let (state, error) = match &entry.state {
                State::Running(_) => ("running", None),
                State::Paused => ("paused", None),
                State::Ended => ("ended", None),
                State::Failed(error) => ("failed", Some(error.clone())),
            };
            let progress = entry.progress.as_ref().map(|progress| progress.snapshot());
            TopologyStatus {
                name: name.clone(),
                state,
                progress,
                commit_latencies: entry.progress.as_ref().map(|progress| progress.commit_latencies()),
                error,
                sink: entry.relations.sink.clone(),
                relations: entry.relations.all.clone(),
                changes: entry.relations.changes.clone(),
                operators: entry.progress.as_ref().map(|progress| progress.operators()).unwrap_or_default(),
                parallelism: entry.progress.as_ref().map(|progress| progress.parallelism()),
                overlaps: entry.progress.as_ref().is_some_and(|progress| progress.overlaps()),
            }
        };
        entries.iter_mut().map(status).collect()
    }
}
