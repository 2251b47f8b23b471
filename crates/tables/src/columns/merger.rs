//! The thread that merges changed rows into row groups, for all tables of a catalog.

use crate::catalog::Catalog;
use crate::error::Error;
use crate::table::Table;
use entresol_transactions::{Error as TransactionError, StateId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which tables are looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a table is left alone after a merge that failed; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Background thread; it ends when the catalog is dropped, or by [`Merger::stop`].
pub struct Merger {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Merger {
    /// Starts the thread. Without one, where none can be had, VACUUM merges.
    pub fn start(catalog: &Arc<Catalog>) -> Merger {
        let stop = Arc::new(AtomicBool::new(false));
        let env = catalog.context().pool().env();
        let mut thread = None;
        if !env.is_simulated() {
            let (catalog, stop) = (Arc::downgrade(catalog), Arc::clone(&stop));
            match env.spawn("entresol-merge", move || run(&catalog, &stop)) {
                Ok(handle) => thread = Some(handle),
                Err(error) => tracing::warn!(%error, "cannot start a thread to merge rows in the background"),
            }
        }
        Merger { stop, thread: Mutex::new(thread) }
    }

    /// Ends the thread, after the step that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            thread.thread().unpark();
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(catalog: &Weak<Catalog>, stop: &AtomicBool) {
    // Tables whose merge failed, until when they are left alone, and for how long.
    let mut failed: HashMap<StateId, (Instant, Duration)> = HashMap::new();
    while !stop.load(Ordering::Acquire) {
        std::thread::park_timeout(INTERVAL);
        let Some(catalog) = catalog.upgrade() else { return };
        let now = Instant::now();
        let waits = |table: &Table| failed.get(&table.state().id()).is_some_and(|(until, _)| *until > now);
        let tables = catalog.tables().into_iter();
        let due: Vec<Arc<Table>> = tables.filter(|table| !waits(table) && table.is_merge_due()).collect();
        drop(catalog);
        for table in due {
            let state = table.state().id();
            if merge(&table, stop) {
                failed.remove(&state);
            } else {
                let wait = failed.get(&state).map_or(RETRY_MIN, |(_, wait)| (*wait * 2).min(RETRY_MAX));
                failed.insert(state, (Instant::now() + wait, wait));
            }
        }
    }
}

/// Merges a table; false if it failed.
fn merge(table: &Arc<Table>, stop: &AtomicBool) -> bool {
    let merged = table.merge(|_| {
        if stop.load(Ordering::Acquire) {
            return Err(TransactionError::Busy("the database is being closed").into());
        }
        Ok(())
    });
    match &merged {
        Ok(stats) => tracing::debug!(table = table.name(), ?stats, "merged"),
        Err(_) if stop.load(Ordering::Acquire) || table.state().is_dropped() => {}
        Err(Error::TableChanged { .. }) => {}
        Err(error) => tracing::warn!(table = table.name(), %error, "could not merge rows into row groups"),
    }
    merged.is_ok()
}
