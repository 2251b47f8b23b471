//! The commits in work of one group: they write side by side, and become whole in the order of their timestamps.
//!
//! `LastCTS = n` says that every commit of the group up to n is whole, so the word may pass a commit only when that
//! one has ended. A commit that has written its versions *ends*: the oldest one in work moves `LastCTS` over itself
//! and all behind it that have ended, with one store; the others wait for it. So one fence serves several
//! commits, and a crash leaves a prefix of them.
//!
//! Invariants:
//! - Timestamps of the group are drawn under this lock, so the queue ascends.
//! - `LastCTS` lies below every timestamp in the queue.
//!
//! What fails waits for its turn, declares its timestamp invalid, and lets the others pass. What ends in neither way
//! (that declaration failed, a panic) is *stuck*: nothing behind it becomes whole in this run, whoever waits gets an
//! error, and the next open declares all of it invalid.
//!
//! Memory: one entry for each commit, at most [`ContextOptions::transactions_max`](crate::ContextOptions::transactions_max).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::Backoff;
use parking_lot::{Mutex, MutexGuard};

use crate::{Error, INFINITY, Result, Timestamp, interleave};

/// See the module.
pub(crate) struct CommitsInWork {
    queue: Mutex<VecDeque<InWork>>,
    /// What this run moved `LastCTS` to.
    whole: AtomicU64,
    /// The oldest stuck commit; INFINITY: none.
    stuck: AtomicU64,
}

#[derive(Clone, Copy)]
struct InWork {
    cts: Timestamp,
    /// Its versions are written and fenced.
    ended: bool,
}

/// A commit in work. Dropped without [`end`](Entry::end) or [`fail`](Entry::fail) it is stuck.
pub(crate) struct Entry<'g> {
    commits: &'g CommitsInWork,
    cts: Timestamp,
    left: bool,
}

impl CommitsInWork {
    pub(crate) fn new() -> CommitsInWork {
        CommitsInWork { queue: Mutex::default(), whole: AtomicU64::new(0), stuck: AtomicU64::new(INFINITY) }
    }

    /// Enters a commit; `draw` draws its timestamp and announces it.
    pub(crate) fn enter<S>(&self, draw: impl FnOnce() -> (Timestamp, S)) -> (Entry<'_>, S) {
        let mut queue = self.queue.lock();
        let (cts, stamp) = draw();
        assert!(queue.back().is_none_or(|last| last.cts < cts), "timestamps of a group ascend");
        queue.push_back(InWork { cts, ended: false });
        (Entry { commits: self, cts, left: false }, stamp)
    }

    /// Moves `LastCTS` over all that have ended.
    fn pass_ended(&self, mut queue: MutexGuard<'_, VecDeque<InWork>>, set_last_cts: impl FnOnce(Timestamp)) {
        let mut last = None;
        while queue.front().is_some_and(|entry| entry.ended) {
            last = queue.pop_front();
        }
        if let Some(InWork { cts, .. }) = last {
            set_last_cts(cts);
            self.whole.store(cts, Ordering::Release);
        }
    }

    fn check_not_stuck(&self, cts: Timestamp) -> Result<()> {
        let stuck = self.stuck.load(Ordering::Acquire);
        if stuck < cts { Err(Error::Latched(stuck)) } else { Ok(()) }
    }
}

impl Entry<'_> {
    /// All that the commit wrote is fenced: returns when it is whole. `set_last_cts` stores the word, flushed and
    /// fenced.
    pub(crate) fn end(mut self, set_last_cts: impl FnOnce(Timestamp)) -> Result<()> {
        let mut queue = self.commits.queue.lock();
        let index = queue.partition_point(|entry| entry.cts < self.cts);
        queue[index].ended = true;
        self.left = true;
        if index == 0 {
            self.commits.pass_ended(queue, set_last_cts);
            return Ok(());
        }
        drop(queue);
        interleave::point();
        let backoff = Backoff::new();
        while self.commits.whole.load(Ordering::Acquire) < self.cts {
            self.commits.check_not_stuck(self.cts)?;
            wait(&backoff);
        }
        Ok(())
    }

    /// The commit failed. When all older ones have left, `declare` makes sure that it never counts.
    pub(crate) fn fail(
        mut self,
        declare: impl FnOnce() -> Result<()>,
        set_last_cts: impl FnOnce(Timestamp),
    ) -> Result<()> {
        let backoff = Backoff::new();
        let mut queue = loop {
            let queue = self.commits.queue.lock();
            if queue.front().is_some_and(|entry| entry.cts == self.cts) {
                break queue;
            }
            drop(queue);
            self.commits.check_not_stuck(self.cts)?;
            wait(&backoff);
        };
        declare()?;
        queue.pop_front();
        self.left = true;
        self.commits.pass_ended(queue, set_last_cts);
        Ok(())
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.commits.stuck.fetch_min(self.cts, Ordering::AcqRel);
        }
    }
}

fn wait(backoff: &Backoff) {
    if backoff.is_completed() {
        std::thread::yield_now();
    } else {
        backoff.snooze();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn last_cts_passes_only_what_has_ended() {
        let commits = CommitsInWork::new();
        let moves = RefCell::new(Vec::new());
        let set = |cts| moves.borrow_mut().push(cts);
        let (first, ()) = commits.enter(|| (10, ()));
        let (second, ()) = commits.enter(|| (11, ()));
        let (third, ()) = commits.enter(|| (15, ()));
        commits.queue.lock()[1].ended = true;
        first.end(set).unwrap();
        assert_eq!(*moves.borrow(), [11], "one store for two");
        second.commits.check_not_stuck(11).unwrap();
        std::mem::forget(second);
        third.fail(|| Ok(()), set).unwrap();
        assert_eq!(*moves.borrow(), [11], "what failed is not passed by itself");
        assert!(commits.queue.lock().is_empty());
    }

    #[test]
    fn what_is_stuck_lets_nobody_behind_it_pass() {
        let commits = CommitsInWork::new();
        let (first, ()) = commits.enter(|| (10, ()));
        let (second, ()) = commits.enter(|| (11, ()));
        let (third, ()) = commits.enter(|| (12, ()));
        let failed = first.fail(|| Err(Error::Busy("no")), |_| panic!("nothing is whole"));
        assert!(failed.is_err());
        assert!(matches!(second.end(|_| panic!("nothing is whole")), Err(Error::Latched(10))));
        assert!(matches!(third.fail(|| panic!("not its turn"), |_| ()), Err(Error::Latched(10))));
    }
}
