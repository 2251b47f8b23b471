//! Checkpoint policy: late enough that a page is written once for many changes, early enough that a recovery
//! stays short.
//!
//! The duration of a recovery is predicted from the bytes of journal that it reads and the pages that it
//! touches. A checkpoint starts when that nears the target; writers wait when it is twice the target, which
//! leaves the first half for a checkpoint in flight, and holders of latches when it is three times the
//! target. All of it also happens at the bounds in bytes.

use crate::domain::journal::checkpoint::dirty::PageCount;
use crate::domain::journal::residency::Residency;
use crate::domain::journal::{Gate, JournalOptions, JournalState};
use std::sync::atomic::Ordering;

/// Maximum duration of replaying a byte of journal, on a device that reads a gigabyte a second.
const REPLAY_NS_PER_BYTE: f64 = 1.6;
/// Duration of the first touch of a page, read ahead from such a device together with its neighbours.
const REPLAY_NS_PER_PAGE: f64 = 3_000.0;
/// Additional duration of a group of neighbours: a read of its own, of many in flight.
const REPLAY_NS_PER_GROUP: f64 = 10_000.0;
/// Replays of fewer bytes are not representative of the machine.
const MEASURED_BYTES_MIN: u64 = 8 << 20;

/// Bounds, and measurements of this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointPolicy {
    checkpoint_bytes: u64,
    journal_bytes_max: u64,
    target_ns: f64,
    /// Ratio of the last replay's duration to the prediction; at least 1, since a quick one may be due to
    /// warm caches.
    slowness: f64,
    /// Appenders consult the policy when the position divided by 2 to the power of this changes.
    pub(crate) check_shift: u32,
}

/// Size and duration of a recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplayMeasurement {
    pub(crate) stored_bytes: u64,
    pub(crate) pages: PageCount,
    pub(crate) ns: u64,
}

impl CheckpointPolicy {
    pub(crate) fn new(options: &JournalOptions, measured: ReplayMeasurement) -> CheckpointPolicy {
        assert!(
            options.checkpoint_bytes > 0 && options.checkpoint_bytes <= options.journal_bytes_max,
            "a checkpoint starts before the journal is full: the options were checked"
        );
        let mut policy = CheckpointPolicy {
            checkpoint_bytes: options.checkpoint_bytes,
            journal_bytes_max: options.journal_bytes_max,
            target_ns: f64::from(options.recovery_ms_target) * 1e6,
            slowness: 1.0,
            check_shift: (options.checkpoint_bytes / 4).clamp(4096, 64 << 10).ilog2(),
        };
        if measured.stored_bytes >= MEASURED_BYTES_MIN {
            let predicted = policy.replay_ns(measured.stored_bytes, measured.pages);
            policy.slowness = (measured.ns as f64 / predicted).clamp(1.0, 4.0);
        }
        policy
    }

    /// Predicted duration of replaying this many bytes and pages.
    pub(crate) fn replay_ns(&self, bytes: u64, count: PageCount) -> f64 {
        debug_assert!((1.0..=4.0).contains(&self.slowness), "slowness is bounded: {}", self.slowness);
        let pages = count.pages as f64 * REPLAY_NS_PER_PAGE + count.groups as f64 * REPLAY_NS_PER_GROUP;
        (bytes as f64 * REPLAY_NS_PER_BYTE + pages) * self.slowness
    }

    fn wants_checkpoint(&self, bytes: u64, pages: PageCount) -> bool {
        bytes >= self.checkpoint_bytes || self.replay_ns(bytes, pages) >= self.target_ns
    }

    fn is_full(&self, bytes: u64, pages: PageCount) -> bool {
        bytes >= self.journal_bytes_max || self.replay_ns(bytes, pages) >= 2.0 * self.target_ns
    }

    /// Returns true if the reserve of holders of latches, half as much again, is used up.
    fn is_reserve_used(&self, bytes: u64, pages: PageCount) -> bool {
        bytes / 3 * 2 >= self.journal_bytes_max || self.replay_ns(bytes, pages) >= 3.0 * self.target_ns
    }

    fn gate(&self, bytes: u64, pages: PageCount) -> Gate {
        debug_assert!(
            !self.is_reserve_used(bytes, pages) || self.is_full(bytes, pages),
            "the reserve begins where the journal is full"
        );
        match (self.is_full(bytes, pages), self.is_reserve_used(bytes, pages)) {
            (_, true) => Gate::ReserveUsed,
            (true, false) => Gate::Full,
            (false, false) => Gate::Open,
        }
    }
}

impl JournalState {
    /// Bytes that a recovery would read, and pages that it would touch.
    fn backlog(&self) -> (u64, PageCount) {
        let appended =
            self.appender.appended.load(Ordering::Relaxed).since(self.replay_from.load(Ordering::Relaxed));
        // Small syncs store many more bytes than they append.
        let stored = self
            .stored_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(self.stored_from.load(Ordering::Relaxed));
        let mut pages = self.dirty.count();
        pages.pages += self.pages_taken.load(Ordering::Relaxed);
        pages.groups += self.groups_taken.load(Ordering::Relaxed);
        (appended.max(stored), pages)
    }

    /// Predicted duration of a recovery if the process ended now, in ms.
    pub(crate) fn predicted_recovery_ms(&self) -> u64 {
        let (bytes, pages) = self.backlog();
        (self.policy.replay_ns(bytes, pages) / 1e6) as u64
    }

    /// Requests a checkpoint if it is due, and makes appenders wait if it is overdue.
    pub(crate) fn consider_checkpoint(&self) {
        let (bytes, pages) = self.backlog();
        if !self.policy.wants_checkpoint(bytes, pages) && pages.pages < self.changed_pages_max() {
            return;
        }
        self.background.request_checkpoint();
        if self.gate_for(bytes, pages) != Gate::Open {
            let _held = self.room_lock.lock();
            self.set_gate();
        }
    }

    /// Opens or closes the gate according to the backlog. Under the room lock, so that a checkpoint that has
    /// just made room is not missed.
    pub(crate) fn set_gate(&self) {
        let (bytes, pages) = self.backlog();
        if self.gate() != Gate::Shut {
            self.put_gate(self.gate_for(bytes, pages));
        }
    }

    /// Number of changed pages at which a checkpoint starts whatever a recovery would take: they cannot be
    /// evicted before.
    fn changed_pages_max(&self) -> u64 {
        self.residency.as_ref().map_or(u64::MAX, Residency::changed_pages_max)
    }

    /// Gate by the policy's bytes, or further closed if too many pages have changed to stay within the
    /// budget.
    fn gate_for(&self, bytes: u64, pages: PageCount) -> Gate {
        let pages_max = self.changed_pages_max();
        match self.policy.gate(bytes, pages) {
            _ if pages.pages / 3 >= pages_max => Gate::ReserveUsed,
            Gate::Open if pages.pages / 2 >= pages_max => Gate::Full,
            gate => gate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: u64, groups: u64) -> PageCount {
        PageCount { pages, groups }
    }

    fn first_bytes(holds: impl Fn(u64) -> bool) -> Option<u64> {
        (0..1 << 32).step_by(1 << 20).find(|bytes| holds(*bytes))
    }

    #[test]
    fn a_slow_machine_makes_checkpoints_earlier_and_a_quick_replay_changes_nothing() {
        let options = JournalOptions::default();
        let count = pages(10_000, 500);
        let usual = CheckpointPolicy::new(&options, ReplayMeasurement::default());
        let measured = |ns| ReplayMeasurement { stored_bytes: 64 << 20, pages: count, ns };
        let predicted = usual.replay_ns(64 << 20, count) as u64;
        let slow = CheckpointPolicy::new(&options, measured(predicted * 3));
        let quick = CheckpointPolicy::new(&options, measured(predicted / 10));
        let few = CheckpointPolicy::new(
            &options,
            ReplayMeasurement { stored_bytes: 1 << 20, pages: pages(1, 1), ns: u64::MAX },
        );
        let start = |policy: &CheckpointPolicy| first_bytes(|bytes| policy.wants_checkpoint(bytes, count));
        assert!(start(&slow) < start(&usual));
        assert_eq!(start(&quick), start(&usual));
        assert_eq!(start(&few), start(&usual));
    }

    #[test]
    fn the_gate_closes_later_than_a_checkpoint_starts_and_scattered_pages_count_more() {
        let policy = CheckpointPolicy::new(&JournalOptions::default(), ReplayMeasurement::default());
        assert!(!policy.wants_checkpoint(1 << 20, pages(100_000, 1_600)));
        assert!(policy.wants_checkpoint(1 << 20, pages(100_000, 100_000)));
        for (bytes, count) in [(1 << 40, pages(0, 0)), (0, pages(1 << 20, 1 << 14))] {
            assert!(policy.wants_checkpoint(bytes, count) && policy.is_full(bytes, count));
        }
        let started = first_bytes(|bytes| policy.wants_checkpoint(bytes, pages(0, 0)));
        let full = first_bytes(|bytes| policy.is_full(bytes, pages(0, 0)));
        let brimming = first_bytes(|bytes| policy.is_reserve_used(bytes, pages(0, 0)));
        assert!(started < full && full < brimming && brimming.is_some(), "{started:?} {full:?} {brimming:?}");
    }
}
