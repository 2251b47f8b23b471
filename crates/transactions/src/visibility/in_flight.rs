//! The commits in flight of a group: they write side by side, and become complete in the order of their
//! timestamps.
//!
//! `LastCTS = n` says that every commit of the group up to n is complete, so the word may pass a commit only
//! when that one has ended. A commit that has written its versions *ends*: the oldest one in flight moves
//! `LastCTS` over itself and all behind it that have ended, with one store; the others wait for it. So one
//! fence serves several commits, and a crash leaves a prefix of them.
//!
//! A commit over several groups is in the queues of all of them. It becomes complete when it is the oldest in
//! each, in all at once, and takes along the ended commits behind it. Timestamps are of one order over all
//! groups, so the oldest commit of all is the oldest in each of its queues: no cycle of waits is possible.
//!
//! Invariants:
//! - Timestamps of a group are assigned under this lock, so the queue ascends.
//! - `LastCTS` lies below every timestamp in the queue.
//! - The locks of several queues are taken in the order of their groups.
//!
//! A commit of many keys, which takes long, is in no queue: its timestamp is declared invalid before it
//! writes anything, so `LastCTS` may pass it ([`crate::commit`]). It becomes complete when nothing older is
//! in the queues of its groups.
//!
//! A failed commit waits for its turn, declares its timestamp invalid, and lets the others pass. One that
//! ends in neither way (that declaration failed, a panic) is *stuck*: nothing behind it becomes complete in
//! this run, waiting commits get an error, and the next open declares all of it invalid.
//!
//! Memory: one entry for each commit and group, at most
//! [`ContextOptions::transactions_max`](crate::ContextOptions::transactions_max) a group.

use crate::{AtomicTimestamp, Error, INFINITY, Result, Timestamp, interleave};
use crossbeam_utils::Backoff;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Maximum number of groups of a commit that takes along others of several groups: searching all of more
/// costs more.
const TAKES_ALONG_MAX: usize = 8;

/// See the module.
pub(crate) struct CommitsInFlight {
    queue: Mutex<VecDeque<CommitInFlight>>,
    /// `LastCTS` as this run has moved it.
    complete_up_to: AtomicTimestamp,
    /// The oldest in flight; INFINITY: none. Changed under the lock.
    oldest: AtomicTimestamp,
    /// The oldest stuck commit; INFINITY: none.
    stuck: AtomicTimestamp,
}

#[derive(Clone, Copy)]
pub(crate) struct CommitInFlight {
    cts: Timestamp,
    /// Number of its groups.
    groups: usize,
    /// Its versions are written and fenced.
    ended: bool,
}

/// The queues of a commit, by the numbers of their groups.
type Queues<'g> = SmallVec<[&'g CommitsInFlight; 2]>;
pub(crate) type LockedQueues<'q> = SmallVec<[MutexGuard<'q, VecDeque<CommitInFlight>>; 2]>;

/// The new `LastCTS` for each queue of a commit; None: it stays.
pub(crate) type LastOfEach = SmallVec<[Option<Timestamp>; 2]>;

/// A commit in flight. Dropped without [`end`](QueuedCommit::end) or [`fail`](QueuedCommit::fail) it is
/// stuck.
pub(crate) struct QueuedCommit<'g> {
    queues: Queues<'g>,
    cts: Timestamp,
    left: bool,
}

impl CommitsInFlight {
    pub(crate) fn new() -> CommitsInFlight {
        let no_timestamp = || AtomicTimestamp::new(INFINITY);
        CommitsInFlight {
            queue: Mutex::default(),
            complete_up_to: AtomicTimestamp::new(Timestamp::START),
            oldest: no_timestamp(),
            stuck: no_timestamp(),
        }
    }

    /// Enters a commit into the queues of its groups, in their order; `assign` assigns its timestamp and
    /// announces it.
    pub(crate) fn enter<'g, S>(
        queues: impl Iterator<Item = &'g CommitsInFlight>,
        assign: impl FnOnce() -> (Timestamp, S),
    ) -> (QueuedCommit<'g>, S) {
        let queues: Queues<'g> = queues.collect();
        assert!(!queues.is_empty(), "a commit is in the queue of a group");
        let mut locked = lock(&queues);
        let (cts, stamp) = assign();
        for (queue, commits) in locked.iter_mut().zip(&queues) {
            debug_assert!(
                commits.complete_up_to.load(Ordering::Acquire) < cts,
                "LastCTS lies below every timestamp in the queue: {cts}"
            );
            assert!(queue.back().is_none_or(|last| last.cts < cts), "timestamps of a group ascend");
            queue.push_back(CommitInFlight { cts, groups: queues.len(), ended: false });
            commits.note_oldest(queue);
        }
        drop(locked);
        (QueuedCommit { queues, cts, left: false }, stamp)
    }

    /// The caller holds the lock.
    fn note_oldest(&self, queue: &VecDeque<CommitInFlight>) {
        debug_assert!(
            queue.iter().zip(queue.iter().skip(1)).all(|(before, after)| before.cts < after.cts),
            "the queue ascends"
        );
        let oldest = queue.front().map_or(INFINITY, |entry| entry.cts);
        if self.oldest.load(Ordering::Relaxed) != oldest {
            self.oldest.store(oldest, Ordering::Release);
        }
    }

    fn check_not_stuck(&self, cts: Timestamp) -> Result<()> {
        let stuck = self.stuck.load(Ordering::Acquire);
        if stuck < cts { Err(Error::Poisoned(stuck)) } else { Ok(()) }
    }
}

/// The locks of the queues of some groups, in their order, when nothing older than a timestamp is in any of
/// them.
pub(crate) fn lock_without_older<'g>(
    queues: impl Iterator<Item = &'g CommitsInFlight>,
    cts: Timestamp,
) -> Result<LockedQueues<'g>> {
    let queues: Queues<'g> = queues.collect();
    let backoff = Backoff::new();
    loop {
        if queues.iter().all(|commits| commits.oldest.load(Ordering::Acquire) > cts) {
            let locked = lock(&queues);
            // Another commit may have been assigned an older timestamp before, and entered since.
            if locked.iter().all(|queue| queue.front().is_none_or(|first| first.cts > cts)) {
                return Ok(locked);
            }
        }
        queues.iter().try_for_each(|commits| commits.check_not_stuck(cts))?;
        wait(&backoff);
    }
}

fn lock<'q>(queues: &Queues<'q>) -> LockedQueues<'q> {
    queues.iter().map(|commits| commits.queue.lock()).collect()
}

/// Removes ended commits from the fronts of some queues: of one of them, or of several that are all here.
fn take_ended(queues: &mut LockedQueues<'_>, last: &mut LastOfEach) {
    loop {
        let mut took_several = false;
        for at in 0..queues.len() {
            while let Some(&front) = queues[at].front().filter(|front| front.ended) {
                if front.groups == 1 {
                    queues[at].pop_front();
                    last[at] = Some(front.cts);
                    continue;
                }
                let is_front =
                    |queue: &VecDeque<CommitInFlight>| queue.front().is_some_and(|of| of.cts == front.cts);
                if queues.len() > TAKES_ALONG_MAX
                    || queues.iter().filter(|queue| is_front(queue)).count() < front.groups
                {
                    break;
                }
                for (queue, last) in queues.iter_mut().zip(last.iter_mut()) {
                    if is_front(queue) {
                        queue.pop_front();
                        *last = Some(front.cts);
                    }
                }
                took_several = true;
            }
        }
        if !took_several {
            return;
        }
    }
}

impl<'g> QueuedCommit<'g> {
    /// Waits until the commit, whose writes are all fenced, is complete. `set_last_cts` stores the words, all
    /// or none, flushed and fenced.
    pub(crate) fn end(mut self, set_last_cts: impl FnOnce(&LastOfEach) -> Result<()>) -> Result<()> {
        let mut queues = lock(&self.queues);
        let mut is_oldest = true;
        for queue in &mut queues {
            let index = queue.partition_point(|entry| entry.cts < self.cts);
            assert_eq!(
                queue[index].cts, self.cts,
                "a commit in flight is in the queue of each of its groups"
            );
            queue[index].ended = true;
            is_oldest &= index == 0;
        }
        if !is_oldest {
            drop(queues);
            interleave::point();
            match self.wait_for_turn()? {
                Some(locked) => queues = locked,
                None => {
                    self.left = true;
                    return Ok(());
                }
            }
        }
        self.leave(&mut queues, true, set_last_cts)?;
        drop(queues);
        self.left = true;
        Ok(())
    }

    /// The same of the oldest of all of its queues, whose locks are held: nothing of it has to be fenced yet,
    /// if `set_last_cts` stores all of it together with the words.
    pub(crate) fn end_locked(
        mut self,
        mut queues: LockedQueues<'g>,
        set_last_cts: impl FnOnce(&LastOfEach) -> Result<()>,
    ) -> Result<()> {
        self.leave(&mut queues, true, set_last_cts)?;
        drop(queues);
        self.left = true;
        Ok(())
    }

    /// Ends a failed commit. When all older ones have left, `declare` makes sure that it never counts.
    pub(crate) fn fail(
        mut self,
        declare: impl FnOnce() -> Result<()>,
        set_last_cts: impl FnOnce(&LastOfEach) -> Result<()>,
    ) -> Result<()> {
        let mut queues = self.wait_until_oldest()?;
        declare()?;
        self.leave(&mut queues, false, set_last_cts)?;
        drop(queues);
        self.left = true;
        Ok(())
    }

    /// Removes the commit, the oldest in all of its queues, and the ended ones behind it from them.
    fn leave(
        &self,
        queues: &mut LockedQueues<'_>,
        is_complete: bool,
        set_last_cts: impl FnOnce(&LastOfEach) -> Result<()>,
    ) -> Result<()> {
        let mut last: LastOfEach = queues.iter().map(|_| is_complete.then_some(self.cts)).collect();
        for queue in queues.iter_mut() {
            let first = queue.pop_front();
            assert!(first.is_some_and(|first| first.cts == self.cts), "the oldest leaves");
        }
        take_ended(queues, &mut last);
        if last.iter().any(Option::is_some)
            && let Err(error) = set_last_cts(&last)
        {
            // It stays in the queue, so that nothing behind it becomes complete.
            let stuck = CommitInFlight { cts: self.cts, groups: queues.len(), ended: false };
            queues.iter_mut().for_each(|queue| queue.push_front(stuck));
            return Err(error);
        }
        for ((commits, queue), last) in self.queues.iter().zip(queues.iter()).zip(last) {
            if let Some(last) = last {
                assert!(last >= self.cts, "a commit that leaves takes along younger ones only: {last}");
                debug_assert!(
                    commits.complete_up_to.load(Ordering::Acquire) < last,
                    "LastCTS only grows: {last}"
                );
                commits.complete_up_to.store(last, Ordering::Release);
            }
            commits.note_oldest(queue);
        }
        Ok(())
    }

    /// Waits until the commit, which has ended, is the oldest in all of its queues, or another commit has
    /// taken it along (None).
    fn wait_for_turn(&self) -> Result<Option<LockedQueues<'g>>> {
        let backoff = Backoff::new();
        loop {
            if self.queues[0].complete_up_to.load(Ordering::Acquire) >= self.cts {
                return Ok(None);
            }
            // Of one group: the commit before takes it along.
            if self.queues.len() > 1
                && let Some(queues) = self.lock_if_oldest()
            {
                return Ok(Some(queues));
            }
            self.queues.iter().try_for_each(|commits| commits.check_not_stuck(self.cts))?;
            wait(&backoff);
        }
    }

    fn wait_until_oldest(&self) -> Result<LockedQueues<'g>> {
        let backoff = Backoff::new();
        loop {
            if let Some(queues) = self.lock_if_oldest() {
                return Ok(queues);
            }
            self.queues.iter().try_for_each(|commits| commits.check_not_stuck(self.cts))?;
            wait(&backoff);
        }
    }

    /// The locks of its queues, if it is the oldest in each.
    pub(crate) fn lock_if_oldest(&self) -> Option<LockedQueues<'g>> {
        if self.queues.iter().any(|commits| commits.oldest.load(Ordering::Acquire) != self.cts) {
            return None;
        }
        let queues = lock(&self.queues);
        // Another commit may have taken it along meanwhile.
        let is_oldest =
            |queue: &VecDeque<CommitInFlight>| queue.front().is_some_and(|first| first.cts == self.cts);
        queues.iter().all(|queue| is_oldest(queue)).then_some(queues)
    }
}

impl Drop for QueuedCommit<'_> {
    fn drop(&mut self) {
        if !self.left {
            debug_assert!(self.cts < INFINITY, "a commit in flight has a timestamp");
            for commits in &self.queues {
                commits.stuck.fetch_min(self.cts, Ordering::AcqRel);
            }
        }
    }
}

fn wait(backoff: &Backoff) {
    entresol_memory::order::waits();
    if backoff.is_completed() {
        std::thread::yield_now();
    } else {
        backoff.snooze();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;
    use std::cell::RefCell;

    fn enter<'g>(queues: &[&'g CommitsInFlight], cts: Timestamp) -> QueuedCommit<'g> {
        CommitsInFlight::enter(queues.iter().copied(), || (cts, ())).0
    }

    fn mark_ended(queues: &[&CommitsInFlight], cts: Timestamp) {
        for commits in queues {
            let mut queue = commits.queue.lock();
            queue.iter_mut().find(|entry| entry.cts == cts).unwrap().ended = true;
        }
    }

    #[test]
    fn last_cts_passes_only_ended_commits() {
        let commits = CommitsInFlight::new();
        let moves = RefCell::new(Vec::new());
        let set = |last: &LastOfEach| {
            moves.borrow_mut().push(last[0].unwrap());
            Ok(())
        };
        let [first, second, third] = [10, 11, 15].map(|cts| enter(&[&commits], at(cts)));
        mark_ended(&[&commits], at(11));
        first.end(set).unwrap();
        assert_eq!(*moves.borrow(), [at(11)], "one store for two");
        commits.check_not_stuck(at(11)).unwrap();
        std::mem::forget(second);
        third.fail(|| Ok(()), set).unwrap();
        assert_eq!(*moves.borrow(), [at(11)], "what failed is not passed by itself");
        assert!(commits.queue.lock().is_empty());
    }

    #[test]
    fn a_stuck_commit_blocks_those_behind_it() {
        let commits = CommitsInFlight::new();
        let [first, second, third] = [10, 11, 12].map(|cts| enter(&[&commits], at(cts)));
        let failed = first.fail(|| Err(Error::Busy("no")), |_| panic!("nothing is whole"));
        assert!(failed.is_err());
        assert!(
            matches!(second.end(|_| panic!("nothing is whole")), Err(Error::Poisoned(since)) if since == at(10))
        );
        assert!(
            matches!(third.fail(|| panic!("not its turn"), |_| Ok(())), Err(Error::Poisoned(since)) if since == at(10))
        );
    }

    /// Of three groups: 10 in the first, 11 in both others, 12 in all, 13 in the last two, 14 in the first.
    #[test]
    fn a_commit_of_several_groups_completes_in_all_at_once() {
        let groups = [(); 3].map(|()| CommitsInFlight::new());
        let [a, b, c] = groups.each_ref();
        let single = enter(&[a], at(10));
        let pair = enter(&[b, c], at(11));
        let all = enter(&[a, b, c], at(12));
        let (behind, last) = (enter(&[b, c], at(13)), enter(&[a], at(14)));
        mark_ended(&[b, c], at(13));
        mark_ended(&[a], at(14));
        mark_ended(&[a, b, c], at(12));
        let moves = RefCell::new(Vec::new());
        let set = |last: &LastOfEach| {
            moves.borrow_mut().push(last.to_vec());
            Ok(())
        };
        single.end(set).unwrap();
        assert!(all.lock_if_oldest().is_none());
        pair.end(set).unwrap();
        assert_eq!(
            *moves.borrow(),
            [vec![Some(at(10))], vec![Some(at(11)); 2]],
            "nobody passes what he has half of"
        );
        drop(all.lock_if_oldest().unwrap());
        all.end(set).unwrap();
        assert_eq!(
            moves.borrow()[2],
            [14, 13, 13].map(|cts| Some(at(cts))),
            "what ended behind it goes along"
        );
        assert!(behind.wait_for_turn().unwrap().is_none() && last.wait_for_turn().unwrap().is_none());
        assert!(groups.iter().all(|commits| commits.queue.lock().is_empty()));
        std::mem::forget((behind, last));
    }

    #[test]
    fn a_commit_that_cannot_complete_is_stuck_in_all_of_its_groups() {
        let [a, b] = &[(); 2].map(|()| CommitsInFlight::new());
        let first = enter(&[a, b], at(10));
        let behind = [enter(&[a], at(11)), enter(&[b], at(12))];
        assert!(first.end(|_| Err(Error::Busy("no"))).is_err());
        for entry in behind {
            assert!(
                matches!(entry.end(|_| panic!("nothing is whole")), Err(Error::Poisoned(since)) if since == at(10))
            );
        }
    }
}
