//! The thread that merges changed rows into row groups, for all tables of a catalog.

use crate::background::BackgroundThread;
use crate::catalog::Catalog;
use crate::error::Error;
use crate::table::Table;
use entresol_transactions::{Error as TransactionError, StateId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Interval at which tables are looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a table is left alone after a merge that failed; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Background thread; it ends when the catalog is dropped, or by [`Merger::stop`].
pub struct Merger(BackgroundThread);

impl Merger {
    /// Starts the thread. Without one, where none can be had, VACUUM merges.
    pub fn start(catalog: &Arc<Catalog>) -> Merger {
        Merger(BackgroundThread::start(catalog, "entresol-merge", "merge rows in the background", run))
    }

    /// Ends the thread, after the step that it is at.
    pub fn stop(&self) {
        self.0.stop();
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
