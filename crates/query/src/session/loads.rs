//! Progress of statements that write batches of rows: COPY, INSERT ... SELECT, CREATE TABLE AS. `entresol.loads`
//! shows it. Behind a large one, once it has committed, its table gets statistics, as by ANALYZE.
//!
//! Memory: one entry per session with such a statement, which goes with the statement.

use crate::session::commit::blocking;
use crate::session::variables::Client;
use entresol_memory::Durability;
use entresol_tables::{Catalog, Table};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Least number of rows of a statement behind which its table gets statistics.
const ANALYZED_ROWS_MIN: u64 = 10_000;
/// Least part of the rows that the statistics know of, as a divisor.
const ANALYZED_PART: f64 = 10.0;

/// Table and number of rows of a statement that has written them, and not committed yet.
#[derive(Debug, Default)]
pub(crate) struct FinishedLoad(Mutex<Option<(Arc<Table>, u64)>>);

impl FinishedLoad {
    /// Notes what a statement has written.
    pub(crate) fn note(&self, table: &Arc<Table>, rows: u64) {
        *self.0.lock() = (rows >= ANALYZED_ROWS_MIN).then(|| (Arc::clone(table), rows));
    }

    /// Makes statistics of the table, if its statement has committed; else what was noted is forgotten.
    pub(crate) async fn end(&self, catalog: &Arc<Catalog>, is_committed: bool) {
        let noted = self.0.lock().take();
        if let Some((table, rows)) = noted.filter(|_| is_committed) {
            analyze_loaded(catalog, table, rows).await;
        }
    }
}

/// Makes statistics of a table that so many rows were written to, if that is many. A failure leaves the statistics
/// as they were.
pub(crate) async fn analyze_loaded(catalog: &Arc<Catalog>, table: Arc<Table>, rows: u64) {
    let known = table.analyzed().map_or(0.0, |analyzed| analyzed.rows);
    if rows < ANALYZED_ROWS_MIN || (rows as f64) < known / ANALYZED_PART {
        return;
    }
    let catalog = Arc::clone(catalog);
    let name = table.name().to_owned();
    let analyzed = blocking(move || {
        let transaction = catalog.begin()?;
        // Lost statistics are made anew, so nothing waits for the disk.
        catalog.analyze(&table, &transaction, None, Durability::None)
    });
    match analyzed.await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(table = name, %error, "no statistics behind a load"),
        Err(error) => tracing::warn!(table = name, %error, "no statistics behind a load"),
    }
}

/// Progress of one statement, shared between it and those who ask.
#[derive(Debug)]
pub(crate) struct LoadProgress {
    table: String,
    began: Instant,
    rows: AtomicU64,
    loads: AtomicBool,
    /// Bytes of files that were read.
    bytes: AtomicU64,
    files: Mutex<Option<Files>>,
    is_copy: AtomicBool,
}

/// Files of a COPY.
#[derive(Debug, Clone)]
struct Files {
    name: String,
    bytes: u64,
}

impl LoadProgress {
    /// Progress of a statement that begins to write a table now.
    pub(crate) fn begin(table: &str) -> LoadProgress {
        LoadProgress {
            table: table.to_owned(),
            began: Instant::now(),
            rows: AtomicU64::new(0),
            loads: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            files: Mutex::default(),
            is_copy: AtomicBool::new(false),
        }
    }

    /// Notes that the statement is a COPY.
    pub(crate) fn of_copy(&self) {
        self.is_copy.store(true, Ordering::Relaxed);
    }

    /// Notes that the rows come from files of so many bytes.
    pub(crate) fn of_files(&self, name: &str, bytes: u64) {
        *self.files.lock() = Some(Files { name: name.to_owned(), bytes });
    }

    /// Adds bytes of a file that were read.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
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
    /// File or pattern that they come from.
    pub(crate) file: Option<String>,
    /// Bytes of it that were read, and all.
    pub(crate) bytes: (u64, u64),
    /// True if the statement is a COPY.
    pub(crate) is_copy: bool,
}

impl LoadLine {
    /// Line of a statement of a client.
    pub(crate) fn new(client: Client, progress: &LoadProgress) -> LoadLine {
        let files = progress.files.lock().clone();
        let bytes_total = files.as_ref().map_or(0, |files| files.bytes);
        LoadLine {
            client,
            table: progress.table.clone(),
            rows: progress.rows.load(Ordering::Relaxed),
            elapsed: progress.began.elapsed(),
            way: way(progress.loads.load(Ordering::Relaxed)),
            // Footers and the like are read twice.
            bytes: (progress.bytes.load(Ordering::Relaxed).min(bytes_total), bytes_total),
            file: files.map(|files| files.name),
            is_copy: progress.is_copy.load(Ordering::Relaxed),
        }
    }
}

/// Name of the way of rows into their table.
pub(crate) fn way(loads: bool) -> &'static str {
    if loads { "bulk load" } else { "write set" }
}
