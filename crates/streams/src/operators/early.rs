//! Early results: those of open windows, and of running aggregates, at commits before they are final.
//!
//! Without an interval the results that a transaction has changed are sent at its commit. With one they are sent at the
//! first commit behind each interval, whether or not anything comes meanwhile, and at the end of the stream: what was not
//! sent is noted in DRAM. A restart or an abort loses the notes, so all results are sent again then: each replaces the
//! one before by its key.

use crate::event_time::EventTime;
use std::collections::BTreeSet;
use std::time::Duration;

/// Results that wait for the interval, known by `K`.
pub(crate) struct EarlyResults<K> {
    interval_us: i64,
    /// Results that were changed and not sent.
    waiting: BTreeSet<K>,
    /// True if more may be: all are sent.
    is_all: bool,
    /// Time of the clock at which results were sent last.
    sent_at: EventTime,
    /// True if nothing follows.
    is_end: bool,
}

/// Results that are sent now.
pub(crate) enum DueResults<K> {
    None,
    Some(BTreeSet<K>),
    All,
}

impl<K: Ord> EarlyResults<K> {
    /// Results that are sent in an interval.
    pub(crate) fn every(interval: Duration) -> EarlyResults<K> {
        EarlyResults {
            interval_us: i64::try_from(interval.as_micros()).unwrap_or(i64::MAX),
            waiting: BTreeSet::new(),
            is_all: true,
            sent_at: EventTime::START,
            is_end: false,
        }
    }

    /// Notes changed results.
    pub(crate) fn note(&mut self, changed: impl IntoIterator<Item = K>) {
        if !self.is_all {
            self.waiting.extend(changed);
        }
    }

    /// Notes that nothing follows.
    pub(crate) fn end(&mut self) {
        self.is_end = true;
    }

    /// Returns true if results wait and it is time.
    pub(crate) fn is_due(&self, now: EventTime) -> bool {
        (self.is_all || !self.waiting.is_empty())
            && (self.is_end || now >= self.sent_at.plus(self.interval_us))
    }

    /// Takes the results that are due.
    pub(crate) fn take(&mut self, now: EventTime) -> DueResults<K> {
        if !self.is_due(now) {
            return DueResults::None;
        }
        self.sent_at = now;
        let waiting = std::mem::take(&mut self.waiting);
        if std::mem::take(&mut self.is_all) { DueResults::All } else { DueResults::Some(waiting) }
    }

    /// Notes that what was sent may not be committed.
    pub(crate) fn aborted(&mut self) {
        self.is_all = true;
        self.waiting.clear();
        self.sent_at = EventTime::START;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_wait_for_the_interval_and_come_again_after_an_abort() {
        let at = |seconds: i64| EventTime::from_micros(seconds * 1_000_000);
        let mut early: EarlyResults<i32> = EarlyResults::every(Duration::from_secs(10));
        assert!(matches!(early.take(at(100)), DueResults::All));
        assert!(!early.is_due(at(200)), "nothing has changed");
        early.note([3, 1]);
        assert!(matches!(early.take(at(109)), DueResults::None));
        early.note([1, 2]);
        assert!(matches!(early.take(at(110)), DueResults::Some(keys) if keys.iter().eq(&[1, 2, 3])));
        early.note([7]);
        early.end();
        assert!(matches!(early.take(at(111)), DueResults::Some(keys) if keys.iter().eq(&[7])));
        early.aborted();
        assert!(matches!(early.take(at(112)), DueResults::All));
    }
}
