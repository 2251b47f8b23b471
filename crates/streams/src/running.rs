//! A running topology: its handle, its progress and its report.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::histogram::{Histogram, Latencies};
use crate::operators::state_form::StateCosts;
use entresol_transactions::{AtomicTimestamp, Timestamp};
use parking_lot::Mutex;
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
    pub(crate) last_cts: AtomicTimestamp,
    /// Microseconds of the greatest event time at a commit; those of [`EventTime::START`] before the first.
    pub(crate) event_time_us: AtomicI64,
    pub(crate) rate: Rate,
    /// From the commit punctuation to the end of each commit.
    pub(crate) commit_latencies: Mutex<Histogram>,
    /// By the numbers of the nodes.
    pub(crate) operators: Box<[OperatorCounts]>,
    parallelism: usize,
    overlaps: bool,
}

/// Counters of an operator or a source.
#[derive(Debug)]
pub(crate) struct OperatorCounts {
    name: String,
    parts: usize,
    tuples_in: AtomicU64,
    tuples_out: AtomicU64,
    late: AtomicU64,
    expired: AtomicU64,
    /// Microseconds of the watermark that it has sent; those of [`EventTime::START`] before the first.
    watermark_us: AtomicI64,
    state_costs: Mutex<Option<StateCosts>>,
    rate: Rate,
}

impl OperatorCounts {
    /// Adds the tuples of a transaction, and notes the watermark at its end.
    pub(crate) fn add(&self, tuples: TupleCounts, watermark: EventTime) {
        self.tuples_in.fetch_add(tuples.received, Ordering::Relaxed);
        self.tuples_out.fetch_add(tuples.sent, Ordering::Relaxed);
        self.late.fetch_add(tuples.late, Ordering::Relaxed);
        self.expired.fetch_add(tuples.expired, Ordering::Relaxed);
        self.watermark_us.store(watermark.micros(), Ordering::Relaxed);
    }

    /// Notes what its state costs.
    pub(crate) fn note_state_costs(&self, costs: StateCosts) {
        *self.state_costs.lock() = Some(costs);
    }

    /// Tuples that it received, or that it sent if it receives none.
    fn passed(&self) -> u64 {
        match self.tuples_in.load(Ordering::Relaxed) {
            0 => self.tuples_out.load(Ordering::Relaxed),
            received => received,
        }
    }
}

/// Tuples of an operator in a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TupleCounts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) late: u64,
    pub(crate) expired: u64,
}

/// Tuples of an operator or a source, of committed transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorProgress {
    /// Its name.
    pub name: String,
    /// Tuples that it received; 0 of a source.
    pub tuples_in: u64,
    /// Tuples that it sent on.
    pub tuples_out: u64,
    /// Tuples that it received per second, over the last second or so; of a source those that it sent.
    pub tuples_per_s: u64,
    /// Tuples that were late for it.
    pub late: u64,
    /// Tuples or groups that have left its state because their time to live was over.
    pub expired: u64,
    /// Watermark that it has sent, of the last commit.
    pub watermark: Option<EventTime>,
    /// Number of parts of its state, by a hash of the key, that threads work on side by side; 1 if it is not divided.
    pub parts: usize,
    /// Costs of its state in rows and in pages; none before it has chosen, and where there is no choice.
    pub state_costs: Option<StateCosts>,
}

/// Rate of committed tuples, measured over about [`RATE_WINDOW_NS`].
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Begin of the window, and the tuples by then.
    since_ns: AtomicU64,
    since_tuples: AtomicU64,
    tuples_per_s: AtomicU64,
}

/// Time over which a rate is measured.
const RATE_WINDOW_NS: u64 = 1_000_000_000;

impl Rate {
    /// Begins a window if the last one is over; called by the topology's thread only.
    pub(crate) fn note(&self, now_ns: u64, tuples: u64) {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let elapsed_ns = now_ns.saturating_sub(since_ns);
        if since_ns > 0 && elapsed_ns < RATE_WINDOW_NS {
            return;
        }
        if since_ns > 0 {
            let new = tuples.saturating_sub(self.since_tuples.load(Ordering::Relaxed));
            let per_s = u128::from(new) * 1_000_000_000 / u128::from(elapsed_ns);
            self.tuples_per_s.store(u64::try_from(per_s).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.since_tuples.store(tuples, Ordering::Relaxed);
        self.since_ns.store(now_ns, Ordering::Relaxed);
    }
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
    /// The timestamp of the last commit; the start before the first.
    pub last_cts: Timestamp,
    /// The greatest event time committed, if the sources have event times.
    pub event_time: Option<EventTime>,
    /// Input tuples of committed transactions per second, over the last second or so.
    pub tuples_per_s: u64,
}

impl Progress {
    /// Counters of a topology with nodes of these names and parts. `parallelism` is the number of its threads; it
    /// `overlaps` if the next transaction is computed while one commits.
    pub(crate) fn new(nodes: Vec<(String, usize)>, parallelism: usize, overlaps: bool) -> Progress {
        Progress {
            tuples: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            late: AtomicU64::new(0),
            future: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            last_cts: AtomicTimestamp::new(Timestamp::START),
            event_time_us: AtomicI64::new(EventTime::START.micros()),
            rate: Rate::default(),
            commit_latencies: Mutex::new(Histogram::new()),
            parallelism,
            overlaps,
            operators: nodes
                .into_iter()
                .map(|(name, parts)| OperatorCounts {
                    name,
                    parts,
                    tuples_in: AtomicU64::new(0),
                    tuples_out: AtomicU64::new(0),
                    late: AtomicU64::new(0),
                    expired: AtomicU64::new(0),
                    watermark_us: AtomicI64::new(EventTime::START.micros()),
                    state_costs: Mutex::default(),
                    rate: Rate::default(),
                })
                .collect(),
        }
    }

    /// Measures the rates, if a window of theirs is over; called by the topology's thread only.
    pub(crate) fn note_rates(&self, now_ns: u64) {
        self.rate.note(now_ns, self.tuples.load(Ordering::Relaxed));
        self.operators.iter().for_each(|operator| operator.rate.note(now_ns, operator.passed()));
    }

    /// Reads the counters of all operators and sources, in the order in which they were added.
    pub fn operators(&self) -> Vec<OperatorProgress> {
        let read = |counts: &OperatorCounts| OperatorProgress {
            name: counts.name.clone(),
            tuples_in: counts.tuples_in.load(Ordering::Relaxed),
            tuples_out: counts.tuples_out.load(Ordering::Relaxed),
            tuples_per_s: counts.rate.tuples_per_s.load(Ordering::Relaxed),
            late: counts.late.load(Ordering::Relaxed),
            expired: counts.expired.load(Ordering::Relaxed),
            watermark: Some(EventTime::from_micros(counts.watermark_us.load(Ordering::Relaxed)))
                .filter(|time| *time != EventTime::START),
            parts: counts.parts,
            state_costs: *counts.state_costs.lock(),
        };
        self.operators.iter().map(read).collect()
    }

    /// Number of threads that the topology may use ([`crate::TopologyBuilder::parallelism`]).
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// Returns true if the next transaction is computed while one commits.
    pub fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// Latencies from the commit punctuation to the end of a commit, so far.
    pub fn commit_latencies(&self) -> Latencies {
        self.commit_latencies.lock().latencies()
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
            tuples_per_s: self.rate.tuples_per_s.load(Ordering::Relaxed),
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
    /// The timestamp of the last commit; the start if there was none.
    pub last_cts: Timestamp,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_second() {
        let rate = Rate::default();
        let per_s = |now_ms: u64, tuples| {
            rate.note(now_ms * 1_000_000, tuples);
            rate.tuples_per_s.load(Ordering::Relaxed)
        };
        assert_eq!(per_s(5_000, 100), 0);
        assert_eq!(per_s(5_500, 600), 0);
        assert_eq!(per_s(6_000, 1_100), 1_000);
        assert_eq!(per_s(6_900, 1_200), 1_000);
        assert_eq!(per_s(8_000, 1_300), 100);
        assert_eq!(per_s(9_500, 1_300), 0);
    }
}
