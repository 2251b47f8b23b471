//! Coordination between writers and maintenance: free logs, requests, failures; and the tree's thread.

use crate::error::{Error, Result};
use crate::lsm::Core;
use crate::lsm::buffer::Buffer;
use crate::lsm::compaction::version::Version;
use crate::node::FixedKey;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State shared by writers and the thread.
pub(crate) struct MaintenanceMonitor {
    state: Mutex<MonitorState>,
    /// Signals work for the thread.
    work: Condvar,
    /// Signals a free log, or a failed attempt to free one.
    room: Condvar,
    stopping: AtomicBool,
}

struct MonitorState {
    /// Logs without a buffer, in the order of their generations.
    free: VecDeque<usize>,
    is_requested: bool,
    /// True after a panic of the thread.
    has_panicked: bool,
    /// Number of failed attempts so far, and the last failure, until an attempt succeeds.
    failures: u64,
    failure: Option<Error>,
}

impl MaintenanceMonitor {
    pub(crate) fn new(free: VecDeque<usize>) -> MaintenanceMonitor {
        let state =
            MonitorState { free, is_requested: true, has_panicked: false, failures: 0, failure: None };
        MaintenanceMonitor {
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    fn request(&self, state: &mut MutexGuard<'_, MonitorState>) {
        state.is_requested = true;
        self.work.notify_one();
    }

    /// Stops the thread, and the merges that it has begun.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _state = self.state.lock();
        self.work.notify_all();
    }
}

impl<K: FixedKey> Core<K> {
    pub(crate) fn is_stopping(&self) -> bool {
        self.monitor.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn log_is_free(&self, log: usize) {
        self.monitor.state.lock().free.push_back(log);
        self.monitor.room.notify_all();
    }

    /// Returns the error of the last attempt to move and merge, if it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.monitor.state.lock().failure.clone()
    }

    /// Records the result of an attempt to move and merge.
    fn note(&self, outcome: &Result<()>) {
        let mut state = self.monitor.state.lock();
        state.failure = outcome.as_ref().err().cloned();
        if outcome.is_err() {
            state.failures += 1;
            self.monitor.room.notify_all();
        }
    }

    /// Provides a buffer for writers whose last one was full. Returns when there is room, also if another
    /// thread made it.
    pub(crate) fn make_room(&self) -> Result<()> {
        while !self.rotate(|active| active.is_full())? {
            if self.is_in_caller() {
                let outcome = self.maintain();
                self.note(&outcome);
                // The failure of a merge is no failure of this call if there is room all the same.
                if outcome.is_err() && self.monitor.state.lock().free.is_empty() {
                    return outcome;
                }
            } else {
                self.wait_for_room()?;
            }
        }
        if self.is_in_caller() {
            let outcome = self.maintain();
            self.note(&outcome);
            if let Err(error) = outcome {
                tracing::warn!(%error, "moving a buffer or merging a level failed");
            }
        }
        Ok(())
    }

    /// Adds an empty buffer in front if the active one satisfies `is_due`; false if there is no free log.
    pub(crate) fn rotate(&self, is_due: impl Fn(&Buffer<K>) -> bool) -> Result<bool> {
        let mut state = self.monitor.state.lock();
        if !is_due(self.versions.read().active()) {
            return Ok(true);
        }
        let Some(log) = state.free.front().copied() else { return Ok(false) };
        let generation = self.logs[log].generation(&self.site.pool)?;
        state.free.pop_front();
        let buffer = Arc::new(Buffer::new(log, generation, self.site.parameters.buffer_entries));
        self.versions.change(|version| {
            version.active().seal();
            let buffers = std::iter::once(buffer).chain(version.buffers.iter().cloned()).collect();
            Version { buffers, levels: version.levels.clone() }
        });
        self.monitor.request(&mut state);
        Ok(true)
    }

    /// Waits until a log is free; an error if an attempt to free one failed meanwhile.
    fn wait_for_room(&self) -> Result<()> {
        let mut state = self.monitor.state.lock();
        let failures = state.failures;
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        while state.free.is_empty() {
            if state.has_panicked {
                return Err(Error::Invalid("the LSM-tree's thread panicked".to_string()));
            }
            if let Some(error) = state.failure.clone().filter(|_| state.failures != failures) {
                return Err(error);
            }
            self.monitor.request(&mut state);
            self.monitor.room.wait(&mut state);
        }
        Ok(())
    }

    /// Main loop of the tree's thread until it is stopped.
    pub(crate) fn run_thread(&self) {
        let _notice = PanicNotice(self);
        loop {
            let mut state = self.monitor.state.lock();
            if self.is_stopping() {
                return;
            }
            let is_requested = std::mem::take(&mut state.is_requested);
            drop(state);
            if is_requested {
                let outcome = self.maintain();
                if self.is_stopping() {
                    return;
                }
                if let Err(error) = &outcome {
                    tracing::warn!(%error, "moving a buffer or merging a level failed");
                }
                self.note(&outcome);
                continue;
            }
            let built = self.build_one_filter();
            if matches!(built, Ok(true)) {
                continue;
            }
            let mut state = self.monitor.state.lock();
            if !state.is_requested && !self.is_stopping() {
                self.monitor.work.wait(&mut state);
            }
        }
    }
}

/// Wakes waiting writers if the thread panics: otherwise they would wait for ever.
struct PanicNotice<'c, K: FixedKey>(&'c Core<K>);

impl<K: FixedKey> Drop for PanicNotice<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.monitor.state.lock().has_panicked = true;
            self.0.monitor.room.notify_all();
        }
    }
}
