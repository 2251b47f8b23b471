//! A running topology: its handle, its progress and its report.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::histogram::Latencies;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Counters of a running topology; any thread may read them. They count committed work only.
#[derive(Debug)]
pub struct Progress {
    pub(crate) tuples: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) future: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) last_cts: AtomicU64,
    /// Microseconds of the greatest event time at a commit; those of [`EventTime::START`] before the first.
    pub(crate) event_time_us: AtomicI64,
}

/// Snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Input tuples of committed transactions.
    pub tuples: u64,
    /// Committed transactions.
    pub transactions: u64,
    /// Transactions that were dropped: by a punctuation or an error.
    pub aborts: u64,
    /// Retries after a conflict.
    pub retries: u64,
    /// Bad records skipped.
    pub rejected: u64,
    /// Tuples that came after their window had closed.
    pub late: u64,
    /// Tuples whose event time was too far ahead of the clock to move a watermark.
    pub future: u64,
    /// Committed tuples that a sink did not get, because it failed.
    pub lost: u64,
    /// The timestamp of the last commit, 0 before the first.
    pub last_cts: u64,
    /// The greatest event time committed, if the sources have event times.
    pub event_time: Option<EventTime>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            tuples: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            late: AtomicU64::new(0),
            future: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            last_cts: AtomicU64::new(0),
            event_time_us: AtomicI64::new(EventTime::START.micros()),
        }
    }

    /// Reads the counters one after the other: not atomic.
    pub fn snapshot(&self) -> ProgressSnapshot {
        let event_time = EventTime::from_micros(self.event_time_us.load(Ordering::Relaxed));
        ProgressSnapshot {
            tuples: self.tuples.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            aborts: self.aborts.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            future: self.future.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            last_cts: self.last_cts.load(Ordering::Relaxed),
            event_time: (event_time != EventTime::START).then_some(event_time),
        }
    }
}

impl ProgressSnapshot {
    /// Returns the delay of the committed event time behind the clock (nanoseconds since the epoch), in
    /// milliseconds.
    pub fn watermark_lag_ms(&self, now_ns: u64) -> Option<u64> {
        let now = EventTime::from_nanoseconds(now_ns);
        self.event_time.map(|time| now.since(time).max(0) as u64 / 1000)
    }
}

/// Summary of a run of a topology.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Input tuples of committed transactions.
    pub tuples: u64,
    /// Committed transactions.
    pub transactions: u64,
    /// Transactions that were dropped.
    pub aborts: u64,
    /// Retries after a conflict.
    pub retries: u64,
    /// Bad records skipped.
    pub rejected_rows: u64,
    /// Tuples that came after their window had closed.
    pub late: u64,
    /// Tuples whose event time was too far ahead of the clock to move a watermark.
    pub future: u64,
    /// Committed tuples that a sink did not get, because it failed.
    pub lost: u64,
    /// The timestamp of the last commit, 0 if there was none.
    pub last_cts: u64,
    /// Latencies from the commit punctuation to the end of the commit.
    pub commit_latencies: Latencies,
    /// Nanoseconds from start to end.
    pub elapsed_ns: u64,
}

/// Handle of a running topology. After it is dropped the topology runs on to the end of its sources.
pub struct Running {
    pub(crate) topology: String,
    pub(crate) thread: JoinHandle<Result<Report>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Running {
    /// The topology's name.
    pub fn topology(&self) -> &str {
        &self.topology
    }

    /// The counters.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Asks the topology to end soon: it commits the open transaction (or drops it, if the sources mark
    /// transactions) and leaves windows open for the next run.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true once the topology has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end.
    pub fn join(self) -> Result<Report> {
        self.thread.join().unwrap_or(Err(Error::Panicked { topology: self.topology }))
    }
}
