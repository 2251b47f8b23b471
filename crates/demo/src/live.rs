//! Counters of a running demo: updated by the sinks after each commit, read by the progress line, by the
//! source of the infrastructure (which follows the households), and by the summary.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The counters. All are of this run, except for positions and times.
#[derive(Debug)]
pub struct LiveCounters {
    /// Committed position of stream 1.
    pub household: AtomicU64,
    /// Committed position of stream 2.
    pub infrastructure: AtomicU64,
    /// Committed position of stream 3.
    pub specification: AtomicU64,
    /// Alarms.
    pub alarms: AtomicU64,
    /// Event time of the newest committed household reading.
    pub household_time_us: AtomicI64,
    /// Event time of the newest committed infrastructure reading.
    pub infrastructure_time_us: AtomicI64,
    /// All windows of the households that end at or before this are committed.
    pub household_closed_us: AtomicI64,
    /// Checks of snapshots.
    pub checks: AtomicU64,
    /// Checks that found a violation.
    pub violations: AtomicU64,
}

impl Default for LiveCounters {
    fn default() -> LiveCounters {
        LiveCounters {
            household: AtomicU64::new(0),
            infrastructure: AtomicU64::new(0),
            specification: AtomicU64::new(0),
            alarms: AtomicU64::new(0),
            household_time_us: AtomicI64::new(i64::MIN),
            infrastructure_time_us: AtomicI64::new(i64::MIN),
            household_closed_us: AtomicI64::new(i64::MIN),
            checks: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        }
    }
}

impl LiveCounters {
    /// Minutes of event time that alarms are behind the newest household reading.
    pub fn lag_minutes(&self) -> i64 {
        let newest = self.household_time_us.load(Ordering::Relaxed);
        let judged = self.infrastructure_time_us.load(Ordering::Relaxed);
        if newest == i64::MIN || judged == i64::MIN {
            return 0;
        }
        ((newest - judged) / super::feed::MINUTE_US).max(0)
    }

    /// Committed readings of both streams.
    pub fn readings(&self) -> u64 {
        self.household.load(Ordering::Relaxed) + self.infrastructure.load(Ordering::Relaxed)
    }
}
