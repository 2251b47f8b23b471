//! Progress of statements that write batches of rows: COPY, INSERT ... SELECT, CREATE TABLE AS. `entresol.loads`
//! shows it.
//!
//! Memory: one entry per session with such a statement, which goes with the statement.

use crate::session::variables::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Progress of one statement, shared between it and those who ask.
#[derive(Debug)]
pub(crate) struct LoadProgress {
    table: String,
    began: Instant,
    rows: AtomicU64,
    loads: AtomicBool,
}

impl LoadProgress {
    /// Progress of a statement that begins to write a table now.
    pub(crate) fn begin(table: &str) -> LoadProgress {
        LoadProgress {
            table: table.to_owned(),
            began: Instant::now(),
            rows: AtomicU64::new(0),
            loads: AtomicBool::new(false),
        }
    }

    /// Adds rows that were written, and says whether by a bulk load.
    pub(crate) fn add(&self, rows: usize, loads: bool) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.loads.store(loads, Ordering::Relaxed);
    }
}

/// Line of `entresol.loads`.
pub(crate) struct LoadLine {
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) rows: u64,
    pub(crate) elapsed: Duration,
    /// Name of the way that the rows take.
    pub(crate) way: &'static str,
}

impl LoadLine {
    /// Line of a statement of a client.
    pub(crate) fn new(client: Client, progress: &LoadProgress) -> LoadLine {
        LoadLine {
            client,
            table: progress.table.clone(),
            rows: progress.rows.load(Ordering::Relaxed),
            elapsed: progress.began.elapsed(),
            way: way(progress.loads.load(Ordering::Relaxed)),
        }
    }
}

/// Name of the way of rows into their table.
pub(crate) fn way(loads: bool) -> &'static str {
    if loads { "bulk load" } else { "write set" }
}
