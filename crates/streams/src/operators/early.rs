//! Early results: those of open windows, and of running aggregates, at commits before they are final.
//!
//! Without an interval the results that a transaction has changed are sent at its commit. With one they are sent at the
//! first commit behind each interval, whether or not anything comes meanwhile, and at the end of the stream: what was not
//! sent is noted in DRAM. Each result replaces the one before by its key, so it may be sent more than once.
//!
//! # A pass over all results
//!
//! After a start nothing is known of what was sent, so all results are sent, in the order of their keys. One commit sends
//! [`EARLY_RESULTS_BYTES_MAX`] bytes, or as much as the memory budget has room for, and at least some thousand results; the
//! next commits go on behind them, without waiting for the interval. What is changed meanwhile is noted, and sent behind
//! the pass.
//!
//! # Crash and abort
//!
//! A crash loses the notes: there is a pass. An abort takes those back that the transaction has sent, and goes back to the
//! place of the pass as of the last commit. A note may be of a result that only the aborted transaction had.
//!
//! # Memory
//!
//! At most [`EARLY_RESULTS_WAITING_MAX`] results are noted, within the memory budget; with more, or without memory for them,
//! the notes are forgotten, and all results are sent once more. A result that is noted while this waits needs no note.

use crate::event_time::EventTime;
use crate::{EARLY_RESULTS_BYTES_MAX, EARLY_RESULTS_WAITING_MAX};
use arrow_array::RecordBatch;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Estimated bytes of memory of a note besides its key.
const NOTE_BYTES: usize = 64;

/// Key of a result.
pub(crate) trait EarlyKey: Ord + Clone {
    /// Bytes of memory behind the key.
    fn bytes(&self) -> usize;
}

impl EarlyKey for EventTime {
    fn bytes(&self) -> usize {
        0
    }
}

impl EarlyKey for Arc<[u8]> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// Pass over all results.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pass<P> {
    /// All were sent.
    Done,
    /// Results behind a place are to be sent.
    Behind {
        place: Option<P>,
        /// True if another pass follows.
        again: bool,
    },
}

impl<P> Pass<P> {
    /// Pass over all results from the first one on.
    fn first() -> Pass<P> {
        Pass::Behind { place: None, again: false }
    }

    /// Returns true if it reaches what changes now, or another one does.
    fn follows(&self) -> bool {
        matches!(self, Pass::Behind { place: None, .. } | Pass::Behind { again: true, .. })
    }

    /// Makes it reach all results from now on.
    fn renew(&mut self) {
        match self {
            Pass::Done => *self = Pass::first(),
            Pass::Behind { again, .. } => *again = true,
        }
    }
}

/// Results that wait for the interval, known by `K`; a pass over all of them is at a `P`.
pub(crate) struct EarlyResults<K, P> {
    interval_us: i64,
    /// Results that were changed and not sent.
    waiting: BTreeSet<K>,
    /// Results that were sent in the open epoch, and in one that was sealed and may commit.
    sent: Vec<K>,
    sent_sealed: Vec<K>,
    pass: Pass<P>,
    /// Pass at the end of the epoch that was sealed last, and as of the last commit.
    sealed: Pass<P>,
    committed: Pass<P>,
    /// True from the time at which results are due until all are sent.
    is_sending: bool,
    /// Time of the clock at which the last ones were sent.
    sent_at: EventTime,
    /// True if nothing follows.
    is_end: bool,
    /// Bytes of the notes, and of the results that the open epoch has sent.
    note_bytes: usize,
    result_bytes: usize,
    memory: Option<MemoryReservation>,
}

impl<K: EarlyKey, P: Clone> EarlyResults<K, P> {
    /// Results that are sent in an interval.
    pub(crate) fn every(interval: Duration, memory: Option<&Arc<MemoryBudget>>) -> EarlyResults<K, P> {
        EarlyResults {
            interval_us: i64::try_from(interval.as_micros()).unwrap_or(i64::MAX),
            waiting: BTreeSet::new(),
            sent: Vec::new(),
            sent_sealed: Vec::new(),
            pass: Pass::first(),
            sealed: Pass::first(),
            committed: Pass::first(),
            is_sending: false,
            sent_at: EventTime::START,
            is_end: false,
            note_bytes: 0,
            result_bytes: 0,
            memory: memory.map(|memory| memory.empty(MemoryConsumer::StreamState)),
        }
    }

    /// Notes changed results.
    pub(crate) fn note(&mut self, changed: impl IntoIterator<Item = K>) {
        if self.pass.follows() {
            return;
        }
        for key in changed {
            let bytes = NOTE_BYTES + key.bytes();
            self.note_bytes += if self.waiting.insert(key) { bytes } else { 0 };
        }
        let notes = self.waiting.len() + self.sent.len() + self.sent_sealed.len();
        if notes > EARLY_RESULTS_WAITING_MAX || !self.reserve() {
            self.forget();
        }
    }

    /// Forgets the notes: all results are sent once more, whatever becomes of the open epochs.
    fn forget(&mut self) {
        [&mut self.pass, &mut self.sealed, &mut self.committed].into_iter().for_each(Pass::renew);
        self.waiting.clear();
        self.sent.clear();
        self.sent_sealed.clear();
        self.note_bytes = 0;
        self.reserve();
    }

    /// Reserves memory for the notes and results; false if there is not enough.
    fn reserve(&mut self) -> bool {
        let bytes = (self.note_bytes + self.result_bytes) as u64;
        self.memory.as_mut().is_none_or(|memory| bytes == memory.bytes() || memory.try_resize(bytes).is_ok())
    }

    /// Notes that nothing follows.
    pub(crate) fn end(&mut self) {
        self.is_end = true;
    }

    fn is_in_pass(&self) -> bool {
        matches!(self.pass, Pass::Behind { place: Some(_), .. })
    }

    /// Returns true if results wait and it is time.
    pub(crate) fn is_due(&self, now: EventTime) -> bool {
        let has_some = !matches!(self.pass, Pass::Done) || !self.waiting.is_empty();
        has_some && (self.is_end || self.is_sending || now >= self.sent_at.plus(self.interval_us))
    }

    /// Begins to send, or goes on with it; false if it is not time.
    pub(crate) fn begin(&mut self, now: EventTime) -> bool {
        self.is_sending = self.is_due(now);
        self.is_sending
    }

    /// Place behind which the pass over all results goes on; none if there is no pass.
    pub(crate) fn pass(&self) -> Option<Option<P>> {
        match &self.pass {
            Pass::Done => None,
            Pass::Behind { place, .. } => Some(place.clone()),
        }
    }

    /// Notes the place up to which the pass has come; none is the end.
    pub(crate) fn passed(&mut self, to: Option<P>) {
        let follows = matches!(self.pass, Pass::Behind { again: true, .. });
        self.pass = match to {
            Some(place) => Pass::Behind { place: Some(place), again: follows },
            None if follows => Pass::first(),
            None => Pass::Done,
        };
    }

    /// Takes so many of the results that wait.
    pub(crate) fn take(&mut self, results: usize) -> Vec<K> {
        let mut taken = Vec::with_capacity(results.min(self.waiting.len()));
        while taken.len() < results
            && let Some(key) = self.waiting.pop_first()
        {
            taken.push(key);
        }
        self.sent.extend(taken.iter().cloned());
        taken
    }

    /// Counts results that are sent; returns true if this transaction has room for more.
    pub(crate) fn has_room_behind(&mut self, results: &RecordBatch) -> bool {
        self.result_bytes += results.get_array_memory_size();
        self.reserve() && self.result_bytes < EARLY_RESULTS_BYTES_MAX
    }

    /// Notes that this transaction sends no more; if none are left, the interval begins.
    pub(crate) fn pause(&mut self, now: EventTime) {
        if self.waiting.is_empty() && !self.is_in_pass() {
            (self.is_sending, self.sent_at) = (false, now);
        }
    }

    /// Notes the end of the epoch.
    pub(crate) fn sealed(&mut self) {
        self.sealed.clone_from(&self.pass);
        self.sent_sealed.append(&mut self.sent);
        self.result_bytes = 0;
        self.reserve();
    }

    /// Notes that what was sealed is committed.
    pub(crate) fn committed(&mut self) {
        self.committed.clone_from(&self.sealed);
        let sent: usize = self.sent_sealed.drain(..).map(|key| NOTE_BYTES + key.bytes()).sum();
        self.note_bytes = self.note_bytes.saturating_sub(sent);
        self.reserve();
    }

    /// Notes that what was sent and not committed has to be sent again.
    pub(crate) fn aborted(&mut self) {
        for pass in [&mut self.pass, &mut self.sealed] {
            pass.clone_from(&self.committed);
        }
        self.waiting.extend(self.sent.drain(..).chain(self.sent_sealed.drain(..)));
        self.note_bytes = self.waiting.iter().map(|key| NOTE_BYTES + key.bytes()).sum();
        (self.result_bytes, self.is_sending, self.sent_at) = (0, false, EventTime::START);
        self.reserve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};

    type Results = EarlyResults<Arc<[u8]>, i64>;

    fn at(seconds: i64) -> EventTime {
        EventTime::from_micros(seconds * 1_000_000)
    }

    fn key(number: u32) -> Arc<[u8]> {
        Arc::from(&number.to_be_bytes()[..])
    }

    fn every_ten_seconds() -> Results {
        EarlyResults::every(Duration::from_secs(10), None)
    }

    /// Results that were sent over all commits until none were due: `None` for a pass.
    fn send(early: &mut Results, now: EventTime, commit: bool) -> Vec<Option<Arc<[u8]>>> {
        let mut sent = Vec::new();
        if early.begin(now) {
            if early.pass().is_some() {
                sent.push(None);
                early.passed(None);
            }
            sent.extend(early.take(100).into_iter().map(Some));
            early.pause(now);
        }
        early.sealed();
        if commit {
            early.committed()
        } else {
            early.aborted()
        }
        sent
    }

    #[test]
    fn results_wait_for_the_interval_and_come_again_after_an_abort() {
        let mut early = every_ten_seconds();
        assert_eq!(send(&mut early, at(100), true), [None]);
        assert!(!early.is_due(at(200)), "nothing has changed");
        early.note([3, 1].map(key));
        assert_eq!(send(&mut early, at(109), true), []);
        early.note([1, 2].map(key));
        assert_eq!(send(&mut early, at(110), false), [1, 2, 3].map(|number| Some(key(number))));
        assert_eq!(send(&mut early, at(110), true), [1, 2, 3].map(|number| Some(key(number))));
        early.note([key(7)]);
        assert!(!early.is_due(at(111)));
        early.end();
        assert_eq!(send(&mut early, at(111), true), [Some(key(7))]);
        assert!(!early.is_due(at(1000)));
    }

    #[test]
    fn a_pass_goes_on_at_the_next_commit_and_goes_back_with_an_abort() {
        let mut early = every_ten_seconds();
        early.note([key(1)]);
        assert!(early.begin(at(100)));
        assert_eq!(
            (early.pass(), early.take(9).len()),
            (Some(None), 0),
            "the pass comes to what has changed"
        );
        early.passed(Some(50));
        early.pause(at(100));
        early.sealed();
        early.committed();
        // It does not wait for the interval; what changes behind the place is noted.
        early.note([key(2)]);
        assert!(early.begin(at(101)));
        assert_eq!(early.pass(), Some(Some(50)));
        early.passed(Some(90));
        early.sealed();
        // The next epoch begins before the commit, which fails.
        assert!(early.begin(at(101)));
        early.passed(None);
        assert_eq!(early.take(9), [key(2)]);
        early.aborted();
        assert!(early.begin(at(101)));
        assert_eq!((early.pass(), early.take(9)), (Some(Some(50)), vec![key(2)]));
    }

    #[test]
    fn with_too_many_notes_all_results_are_sent_once_more() {
        let mut early = every_ten_seconds();
        send(&mut early, at(100), true);
        early.note((0..EARLY_RESULTS_WAITING_MAX as u32).map(key));
        assert_eq!(early.pass(), None);
        early.note([key(u32::MAX)]);
        assert_eq!((early.pass(), early.note_bytes), (Some(None), 0));
        // Within a pass it comes to its end before the next one begins.
        assert!(early.begin(at(110)));
        early.passed(Some(5));
        early.sealed();
        early.committed();
        early.note((0..=EARLY_RESULTS_WAITING_MAX as u32).map(key));
        assert!(early.begin(at(111)));
        assert_eq!(early.pass(), Some(Some(5)));
        early.passed(None);
        early.pause(at(111));
        early.sealed();
        early.aborted();
        assert_eq!(early.pass(), Some(Some(5)), "as of the commit");
        assert!(early.begin(at(111)));
        early.passed(None);
        early.pause(at(111));
        assert_eq!(early.pass(), Some(None), "what was forgotten is sent");
        assert!(!early.is_due(at(112)) && early.is_due(at(121)));
    }

    #[test]
    fn notes_and_results_are_within_the_budget() {
        let budget = MemoryBudget::tiny(1 << 20);
        let mut early: Results = EarlyResults::every(Duration::from_secs(10), Some(&budget));
        send(&mut early, at(100), true);
        early.note((0..1000).map(key));
        assert_eq!(early.memory.as_ref().unwrap().bytes(), 1000 * (NOTE_BYTES as u64 + 4));
        early.note((0..60_000).map(key));
        assert_eq!((early.pass(), early.memory.as_ref().unwrap().bytes()), (Some(None), 0));
        let results = |rows: usize| {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
            RecordBatch::try_from_iter([("v", column)]).unwrap()
        };
        assert!(early.has_room_behind(&results(1000)));
        assert!(!early.has_room_behind(&results(200_000)), "the budget has no room");
        early.sealed();
        assert_eq!(early.memory.as_ref().unwrap().bytes(), 0);
        let mut early = every_ten_seconds();
        assert!(!early.has_room_behind(&results(EARLY_RESULTS_BYTES_MAX / 8)), "the limit is reached");
    }
}
