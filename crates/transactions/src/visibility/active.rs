//! The active transactions: the snapshot each one reads at, the timestamp each one commits at, and what is
//! visible.
//!
//! ```text
//! counter ── next commit timestamp          slot 0   snapshot | commit
//! visible ── of each class, every commit    slot 1   snapshot | commit
//!            <= visible is finished         ...      (as many as transactions may be active, claimed by CAS)
//! ```
//! A snapshot is all numbers of `visible` at one point in time ([`crate::visibility::snapshot`]): each
//! ascends, so if all of them are the same on a second load, they held together in between.
//!
//! Invariants (all operations on these words are SeqCst, or have a SeqCst fence behind them, but the release
//! of a slot; so they have one total order):
//! - A registered snapshot was equal to `visible` *after* it had been stored. A scan reads `visible` (the
//!   *horizon*) before the slots; a transaction whose final snapshot the scan misses stored it after the scan
//!   read its slot, and so re-read `visible` after the horizon was read: its snapshot sees all that the
//!   horizon sees. So it is for each of the words of a snapshot: a scan that misses the last store of any
//!   comes before the re-read.
//! - A commit stores a lower bound of its timestamp before it is assigned. `advance` reads `counter` before
//!   it scans the commit fields, so each timestamp below what it read is either finished or seen as
//!   unfinished. Therefore `visible` never passes an unfinished commit, and the last of several commits to
//!   finish sees that the others did.
//! - Scans stop at `used`, below which all slots are that are not closed. A slot is opened after `used` was
//!   raised above it, and `used` is lowered only over slots that were closed for it, by an exchange that
//!   fails if one was opened meanwhile. So the cost of a commit does not grow with a past burst of
//!   transactions.
//! - Nothing at or above `poisoned_from` (a commit whose outcome is unknown) ever becomes visible.
//!
//! The numbers of the classes of few keys move with every commit. Those of large commits move with large
//! commits alone, and are left behind otherwise, since no timestamp lies in between: *idle*, until a large
//! commit takes its timestamp. A caller that needs a number up to which all commits are visible moves all of
//! them first.
//!
//! All of this is volatile; a crash leaves nothing of it. Memory: one cache line per slot.

use crate::visibility::snapshot::{CLASSES, CLASSES_OF_FEW, Class, STEP, Snapshot};
use crate::{AtomicTimestamp, Error, INFINITY, Result, Timestamp, interleave};
use crossbeam_utils::{Backoff, CachePadded};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence};
use std::time::Duration;

/// Default number of transactions that may be active at once; [`Error::Busy`] beyond.
pub const TRANSACTIONS_MAX: usize = 256;

/// Attempts of `claim`, one millisecond apart, before it reports that all slots are taken.
const CLAIM_ATTEMPTS_MAX: u32 = 500;

const FREE: Timestamp = INFINITY;
/// Word of a slot that cannot be claimed before it is opened.
const CLOSED: Timestamp = INFINITY.previous();
/// Number of slots at the end that are closed together, once all of them are free; as many at the front stay
/// open.
const CLOSED_TOGETHER: usize = 16;
const NO_COMMIT: Timestamp = INFINITY;
const NEVER: Timestamp = INFINITY;

thread_local! {
    /// The slot that this thread claimed last, of whatever context: a hint.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

struct Slot {
    /// The snapshot; the first word is `FREE` or `CLOSED` while the slot has no owner.
    seen: [AtomicTimestamp; CLASSES],
    /// A lower bound of the timestamp being committed, or `NO_COMMIT`.
    commit: AtomicTimestamp,
    /// The number of the transaction, for reports of old snapshots.
    transaction: AtomicU64,
}

/// The slot array, the timestamp counter and the newest visible timestamps.
pub(crate) struct ActiveTransactions {
    slots: Box<[CachePadded<Slot>]>,
    /// Number of slots that scans visit and, above it, a counter of its changes.
    used: AtomicU64,
    counter: CachePadded<AtomicTimestamp>,
    /// Of each class.
    visible: CachePadded<[AtomicTimestamp; CLASSES]>,
    poisoned_from: AtomicTimestamp,
}

impl Slot {
    /// The word that says whether the slot is free, closed or owned.
    fn owner(&self) -> &AtomicTimestamp {
        &self.seen[0]
    }
}

/// Snapshots that versions are needed for: the registered ones, and all that may still be registered, which
/// see what `horizon` sees.
pub(crate) struct Snapshots {
    horizon: Snapshot,
    /// By the newest commit that each may see.
    active: SmallVec<[Snapshot; 8]>,
}

impl Snapshots {
    /// Tells whether a transaction, now or later, may read a version with these timestamps.
    pub(crate) fn needs(&self, cts: Timestamp, dts: Timestamp) -> bool {
        if !self.horizon.sees(dts) {
            return true;
        }
        let first = self.active.partition_point(|snapshot| snapshot.none_above() < cts);
        self.active[first..].iter().any(|snapshot| snapshot.sees_version(cts, dts))
    }

    /// Tells whether a transaction that begins from now on may read a version with this deletion timestamp.
    pub(crate) fn is_recent(&self, dts: Timestamp) -> bool {
        !self.horizon.sees(dts)
    }

    /// The same without the registered snapshots: for states that are not read at snapshots.
    pub(crate) fn newest_only(&self) -> Snapshots {
        Snapshots { horizon: self.horizon, active: SmallVec::new() }
    }

    /// Every transaction, now or later, sees all commits of a class up to here.
    pub(crate) fn oldest(&self, class: Class) -> Timestamp {
        let active = self.active.iter().map(|snapshot| snapshot.of(class));
        active.fold(self.horizon.of(class), Timestamp::min)
    }

    /// Tells whether every transaction, now or later, sees the commit with this timestamp.
    pub(crate) fn all_see(&self, timestamp: Timestamp) -> bool {
        self.horizon.sees(timestamp) && self.active.iter().all(|snapshot| snapshot.sees(timestamp))
    }

    /// Tells whether every transaction, now or later, sees all commits that a snapshot sees.
    pub(crate) fn all_see_all_of(&self, other: Snapshot) -> bool {
        self.horizon.sees_all_of(other) && self.active.iter().all(|snapshot| snapshot.sees_all_of(other))
    }
}

impl ActiveTransactions {
    /// Everything below `next` counts as finished.
    #[cfg(test)]
    pub(crate) fn new(next: Timestamp) -> Self {
        ActiveTransactions::with(next, TRANSACTIONS_MAX)
    }

    /// The same for at most so many transactions.
    pub(crate) fn with(next: Timestamp, transactions_max: usize) -> Self {
        assert!(Timestamp::START < next && next < Timestamp::ASSIGNED_END, "timestamp {next} out of range");
        let next = next.rounded_up(STEP);
        let word = AtomicTimestamp::new;
        let slot = || {
            let seen = [CLOSED; CLASSES].map(word);
            CachePadded::new(Slot { seen, commit: word(NO_COMMIT), transaction: AtomicU64::new(0) })
        };
        ActiveTransactions {
            slots: (0..transactions_max.max(1)).map(|_| slot()).collect(),
            used: AtomicU64::new(0),
            counter: CachePadded::new(word(next)),
            visible: CachePadded::new([next.previous(); CLASSES].map(word)),
            poisoned_from: word(NEVER),
        }
    }

    /// Registers a transaction at the newest snapshot. Waits a bounded time for a free slot.
    pub(crate) fn claim(&self) -> Result<(usize, Snapshot)> {
        for attempt in 0..CLAIM_ATTEMPTS_MAX {
            if let Some(claimed) = self.try_claim() {
                return Ok(claimed);
            }
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Err(Error::Busy("all transaction slots are taken"))
    }

    /// The same, if there is a free slot now.
    pub(crate) fn try_claim(&self) -> Option<(usize, Snapshot)> {
        // The slot that this thread had last lies in its cache; the others' slots are being written.
        let last = LAST_SLOT.get();
        let again = (last < self.slots.len()).then(|| self.try_claim_slot(last, FREE)).flatten();
        let claimed =
            again.or_else(|| (0..self.slots.len()).find_map(|slot| self.try_claim_or_open(slot)))?;
        LAST_SLOT.set(claimed.0);
        Some(claimed)
    }

    fn try_claim_or_open(&self, index: usize) -> Option<(usize, Snapshot)> {
        if self.slots[index].owner().load(SeqCst) != CLOSED {
            return self.try_claim_slot(index, FREE);
        }
        // Before the claim, so that a scan that misses the slot comes before the snapshot is stored.
        let raised = |used: u64| Some(changed(used, count(used).max(index + 1)));
        self.used.fetch_update(SeqCst, SeqCst, raised).ok()?;
        interleave::point();
        self.try_claim_slot(index, CLOSED)
    }

    /// Claims a slot that is free, or closed and about to be opened.
    fn try_claim_slot(&self, index: usize, unclaimed: Timestamp) -> Option<(usize, Snapshot)> {
        let slot = &self.slots[index];
        if slot.owner().load(SeqCst) != unclaimed {
            return None;
        }
        let snapshot = self.load_each();
        interleave::point();
        slot.owner().compare_exchange(unclaimed, snapshot.seen[0], SeqCst, SeqCst).ok()?;
        Some((index, self.register(slot, snapshot)))
    }

    /// Stores a snapshot, and newer ones, until it is the newest after it has been stored.
    fn register(&self, slot: &Slot, mut snapshot: Snapshot) -> Snapshot {
        loop {
            for (word, seen) in slot.seen.iter().zip(snapshot.seen) {
                interleave::point();
                word.store(seen, Relaxed);
            }
            // As if the stores were SeqCst.
            fence(SeqCst);
            interleave::point();
            match self.load_each() {
                now if now == snapshot => return snapshot,
                now => snapshot = now,
            }
        }
    }

    /// Visible timestamps at one point in time: a commit that is seen comes with those that it has seen.
    #[inline]
    pub(crate) fn newest(&self) -> Snapshot {
        let mut seen = self.load_each();
        loop {
            interleave::point();
            match self.load_each() {
                same if same == seen => return seen,
                other => seen = other,
            }
        }
    }

    /// Visible timestamps, each loaded at its own time.
    #[inline]
    fn load_each(&self) -> Snapshot {
        Snapshot {
            seen: std::array::from_fn(|class| {
                interleave::point();
                self.visible[class].load(SeqCst)
            }),
        }
    }

    /// Notes the number of the transaction that owns a claimed slot.
    pub(crate) fn name(&self, slot: usize, transaction: u64) {
        self.slots[slot].transaction.store(transaction, Relaxed);
    }

    /// Timestamp up to which the oldest registered snapshot sees all commits, and the number of its
    /// transaction.
    pub(crate) fn oldest(&self) -> Option<(Timestamp, u64)> {
        let registered = self.used_slots().iter().filter_map(|slot| Some((registered(slot)?, slot)));
        registered.map(|(seen, slot)| (seen.tells_all_up_to(), slot.transaction.load(Relaxed))).min()
    }

    /// Ends the registration of `claim`.
    pub(crate) fn release(&self, index: usize) {
        let slot = &self.slots[index];
        assert_eq!(slot.commit.load(SeqCst), NO_COMMIT, "a slot is released while its commit is unfinished");
        // Only its owner changes a claimed slot. A scan that still sees the snapshot retains versions a
        // little longer; one that does not comes after all that the owner read.
        assert_ne!(slot.owner().load(Relaxed), FREE, "a slot is released twice");
        slot.owner().store(FREE, Release);
        // The last of those at the end to be free.
        if index >= CLOSED_TOGETHER && index + CLOSED_TOGETHER >= count(self.used.load(Relaxed)) {
            self.close_free_slots();
        }
    }

    /// Closes the free slots at the end, if they are many.
    #[cold]
    fn close_free_slots(&self) {
        let before = self.used.load(SeqCst);
        let end = count(before);
        let is_free = |slot: &CachePadded<Slot>| slot.owner().load(SeqCst) == FREE;
        if end < 2 * CLOSED_TOGETHER || !self.slots[end - CLOSED_TOGETHER..end].iter().all(is_free) {
            return;
        }
        let close = |slot: &Slot| slot.owner().compare_exchange(FREE, CLOSED, SeqCst, SeqCst).is_ok();
        let closed = self.slots[CLOSED_TOGETHER..end].iter().rev().take_while(|slot| close(slot)).count();
        interleave::point();
        let lowered = self.used.compare_exchange(before, changed(before, end - closed), SeqCst, SeqCst);
        if lowered.is_err() {
            // One was opened meanwhile, perhaps of these: then it is claimed.
            for slot in &self.slots[end - closed..end] {
                let _ = slot.owner().compare_exchange(CLOSED, FREE, SeqCst, SeqCst);
            }
        }
    }

    /// The slots that may be claimed.
    fn used_slots(&self) -> &[CachePadded<Slot>] {
        &self.slots[..count(self.used.load(SeqCst))]
    }

    /// Timestamp up to which all commits of a class are finished.
    pub(crate) fn visible(&self, class: Class) -> Timestamp {
        self.visible[class as usize].load(SeqCst)
    }

    /// The newest timestamp that was assigned.
    pub(crate) fn newest_assigned(&self) -> Timestamp {
        self.counter.load(SeqCst).previous()
    }

    /// Timestamps assigned from now on lie above `at`.
    pub(crate) fn catch_up(&self, at: Timestamp) {
        // Not beyond the range of timestamps, whatever the clock says.
        if at < Timestamp::ASSIGNED_END {
            self.counter.fetch_max(at.next().rounded_up(STEP), SeqCst);
        }
    }

    /// The snapshots that versions must be kept for.
    pub(crate) fn snapshots(&self) -> Snapshots {
        let horizon = self.newest();
        interleave::point();
        let mut active: SmallVec<[Snapshot; 8]> = self.used_slots().iter().filter_map(registered).collect();
        // In the order of what they may see: one that was stored half-way only need not be before or behind
        // another.
        active.sort_unstable_by_key(|snapshot| (snapshot.none_above(), *snapshot));
        active.dedup();
        Snapshots { horizon, active }
    }

    /// Assigns a commit timestamp to the owner of `slot`. Until the stamp is finished nothing from it on is
    /// visible.
    pub(crate) fn stamp(&self, slot: usize, class: Class) -> CommitStamp<'_> {
        let commit = &self.slots[slot].commit;
        assert_eq!(commit.load(SeqCst), NO_COMMIT, "one commit per slot at a time");
        commit.store(class.timestamp(self.counter.load(SeqCst)), SeqCst);
        interleave::point();
        let cts = class.timestamp(self.counter.fetch_advance(STEP, SeqCst));
        interleave::point();
        commit.store(cts, SeqCst);
        if class.is_large() {
            // Its number is not idle any more.
            self.advance(CLASSES);
        }
        debug_assert!(self.visible(class) < cts, "a commit in flight is not visible: {cts}");
        CommitStamp { active: self, slot, cts, finished: false }
    }

    /// Moves the numbers of all classes, and returns what is visible.
    pub(crate) fn advanced(&self) -> Snapshot {
        self.advance(CLASSES);
        self.newest()
    }

    /// Moves the numbers of the first classes.
    fn advance(&self, classes: usize) {
        let next = self.counter.load(SeqCst);
        interleave::point();
        let mut oldest = [next; CLASSES];
        for slot in self.used_slots() {
            let commit = slot.commit.load(SeqCst);
            let oldest = &mut oldest[Class::number_of(commit)];
            *oldest = commit.min(*oldest);
        }
        let poisoned_from = self.poisoned_from.load(SeqCst);
        // That of quick commits comes last: a snapshot taken in between sees no quick commit above the number that it
        // tells, that of all classes.
        for (visible, oldest) in self.visible[..classes].iter().zip(oldest).rev() {
            interleave::point();
            let up_to = oldest.min(poisoned_from).previous();
            if visible.load(SeqCst) < up_to {
                visible.fetch_max(up_to, SeqCst);
                interleave::at("the number of a class has moved");
            }
        }
    }

    /// Waits until the commit at `cts` (finished) and all of its class before it are visible. Every
    /// unfinished commit ends without waiting for others, so this ends too.
    pub(crate) fn wait_until_visible(&self, cts: Timestamp) -> Result<()> {
        self.wait_until_passed(&self.visible[Class::number_of(cts)], cts)
    }

    /// Waits until all commits of a class up to here are visible.
    pub(crate) fn wait_until_class_visible(&self, class: Class, at: Timestamp) -> Result<()> {
        self.wait_until_passed(&self.visible[class as usize], at)
    }

    /// Waits until all commits up to here are visible.
    pub(crate) fn wait_until_all_visible(&self, at: Timestamp) -> Result<()> {
        self.visible.iter().try_for_each(|visible| self.wait_until_passed(visible, at))
    }

    fn wait_until_passed(&self, visible: &AtomicTimestamp, cts: Timestamp) -> Result<()> {
        let backoff = Backoff::new();
        while visible.load(SeqCst) < cts {
            let poisoned_from = self.poisoned_from.load(SeqCst);
            if poisoned_from <= cts {
                return Err(Error::Poisoned(poisoned_from));
            }
            entresol_memory::order::waits();
            if backoff.is_completed() {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                backoff.snooze();
            }
            self.advance(CLASSES);
        }
        Ok(())
    }

    /// Refuses when an earlier commit left the context in doubt.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        match self.poisoned_from.load(SeqCst) {
            NEVER => Ok(()),
            cts => Err(Error::Poisoned(cts)),
        }
    }
}

/// An assigned commit timestamp. Dropped without [`finish`](CommitStamp::finish) (an error or a panic on the
/// way), nothing from it on ever becomes visible.
pub(crate) struct CommitStamp<'a> {
    active: &'a ActiveTransactions,
    slot: usize,
    cts: Timestamp,
    finished: bool,
}

impl CommitStamp<'_> {
    pub(crate) fn cts(&self) -> Timestamp {
        self.cts
    }

    /// The commit is complete (or its timestamp was declared invalid): it may become visible.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for CommitStamp<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Before the commit field is cleared: a thread that sees it cleared sees the latch.
            self.active.poisoned_from.fetch_min(self.cts, SeqCst);
        }
        self.active.slots[self.slot].commit.store(NO_COMMIT, SeqCst);
        let is_large = Class::number_of(self.cts) >= CLASSES_OF_FEW;
        self.active.advance(if is_large { CLASSES } else { CLASSES_OF_FEW });
    }
}

/// The snapshot in a slot, if the slot has an owner; perhaps stored half-way.
fn registered(slot: &CachePadded<Slot>) -> Option<Snapshot> {
    let first = slot.owner().load(SeqCst);
    if first >= CLOSED {
        return None;
    }
    let mut seen = [first; CLASSES];
    for (seen, word) in seen[1..].iter_mut().zip(&slot.seen[1..]) {
        interleave::point();
        *seen = word.load(SeqCst);
    }
    Some(Snapshot { seen })
}

/// Number of slots that a value of `used` stands for.
fn count(used: u64) -> usize {
    (used & u64::from(u32::MAX)) as usize
}

/// The next value of `used`.
fn changed(used: u64, count: usize) -> u64 {
    ((used >> 32).wrapping_add(1) << 32) | count as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn slots_of_a_burst_are_closed_when_it_is_over() {
        let active = ActiveTransactions::with(at(100), 4096);
        let claimed: Vec<_> = (0..3000).map(|_| active.claim().unwrap().0).collect();
        assert_eq!(active.used_slots().len(), 3000);
        let (kept, burst) = claimed.split_at(3);
        burst.iter().for_each(|slot| active.release(*slot));
        assert!(active.used_slots().len() < 2 * CLOSED_TOGETHER, "{}", active.used_slots().len());
        let again: Vec<_> = (0..100).map(|_| active.claim().unwrap().0).collect();
        again.iter().rev().for_each(|slot| active.release(*slot));
        kept.iter().for_each(|slot| active.release(*slot));
        assert!(active.used_slots().len() < 2 * CLOSED_TOGETHER);
    }

    /// Slots are opened and closed all the time; the owner of one is seen by every scan.
    #[test]
    fn registered_snapshots_are_seen_while_slots_are_closed() {
        const THREADS: u64 = 4;
        let active = ActiveTransactions::with(at(100), 256);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (active, stop) = (&active, &stop);
                scope.spawn(move || {
                    interleave::pause_from_now_on(thread + 1);
                    let random = entresol_memory::Env::simulated(thread);
                    while !stop.load(Relaxed) {
                        let mine: Vec<_> =
                            (0..random.random_u64() % 60).map(|_| active.claim().unwrap()).collect();
                        if let Some((slot, _)) = mine.first() {
                            active.stamp(*slot, Class::Quick).finish();
                        }
                        let oldest = active.snapshots().oldest(Class::Quick);
                        assert!(
                            mine.iter().all(|(_, snapshot)| oldest <= snapshot.of(Class::Quick)),
                            "a scan missed it"
                        );
                        mine.iter().rev().for_each(|(slot, _)| active.release(*slot));
                    }
                });
            }
            std::thread::sleep(Duration::from_secs(1));
            stop.store(true, Relaxed);
        });
        assert!(count(active.used.load(SeqCst)) <= 256 && active.used.load(SeqCst) >> 32 > 100);
    }

    #[test]
    fn there_are_as_many_slots_as_were_asked_for() {
        for slots in [1, 2, TRANSACTIONS_MAX + 50] {
            let active = ActiveTransactions::with(at(100), slots);
            let claimed: Vec<_> = (0..slots).map(|_| active.claim().unwrap().0).collect();
            assert!(active.try_claim().is_none(), "{slots} slots");
            claimed.into_iter().for_each(|slot| active.release(slot));
            assert!(active.try_claim().is_some());
        }
    }

    #[test]
    fn visible_waits_for_the_oldest_unfinished_commit() {
        let active = ActiveTransactions::new(at(100));
        let (a, snapshot) = active.claim().unwrap();
        assert_eq!(snapshot, Snapshot::at(at(99)));
        let (b, _) = active.claim().unwrap();
        let first = active.stamp(a, Class::Slow);
        let second = active.stamp(b, Class::Slow);
        assert_eq!((first.cts(), second.cts()), (at(101), at(105)));
        second.finish();
        assert_eq!(active.visible(Class::Slow), at(100));
        first.finish();
        assert_eq!(active.visible(Class::Slow), at(107));
        active.wait_until_visible(at(105)).unwrap();
    }

    #[test]
    fn a_commit_waits_for_none_of_another_class() {
        let active = ActiveTransactions::new(at(100));
        let [a, b, c, d] = [(); 4].map(|()| active.claim().unwrap().0);
        let slow = active.stamp(a, Class::Slow);
        let quick = active.stamp(b, Class::Quick);
        let later = active.stamp(c, Class::Quick);
        let large = active.stamp(d, Class::Large);
        assert_eq!([slow.cts(), quick.cts(), later.cts(), large.cts()], [101, 104, 108, 114].map(at));
        later.finish();
        let seen = [103, 100, 113, 115].map(at);
        assert_eq!(active.newest(), Snapshot { seen }, "not before an older one of its class");
        quick.finish();
        active.wait_until_visible(at(108)).unwrap();
        let (slot, seen) = active.claim().unwrap();
        assert_eq!(seen, Snapshot { seen: [115, 100, 113, 115].map(at) });
        assert!(seen.sees(at(104)) && seen.sees(at(108)) && !seen.sees(at(101)) && !seen.sees(at(114)));
        active.release(slot);
        // No transaction needs what the quick commits ended; one may need what the slow commit ended.
        let snapshots = active.snapshots();
        assert!(
            snapshots.needs(at(50), at(101)) && snapshots.is_recent(at(101)) && !snapshots.is_recent(at(104))
        );
        assert!(
            !snapshots.all_see(at(101))
                && !snapshots.all_see(at(114))
                && snapshots.oldest(Class::Slow) == at(99)
        );
        assert_eq!((seen.all_up_to(), seen.tells_all_up_to()), (at(100), at(100)));
        slow.finish();
        assert_eq!(active.newest(), Snapshot { seen: [115, 115, 113, 115].map(at) });
        active.wait_until_visible(at(101)).unwrap();
        large.finish();
        active.wait_until_all_visible(at(115)).unwrap();
        assert_eq!(active.newest(), Snapshot::at(at(115)));
        // Without large commits their numbers stay behind, which no caller is told.
        active.stamp(a, Class::Quick).finish();
        let seen = active.newest();
        assert_eq!(
            (seen, seen.tells_all_up_to()),
            (Snapshot { seen: [119, 119, 115, 115].map(at) }, at(119))
        );
        active.wait_until_all_visible(at(119)).unwrap();
        assert_eq!(active.newest(), Snapshot::at(at(119)));
    }

    /// A snapshot that is taken while the numbers move.
    #[test]
    fn what_is_seen_of_quick_commits_is_told() {
        let active = std::sync::Arc::new(ActiveTransactions::new(at(100)));
        let (slot, _) = active.claim().unwrap();
        let stamp = active.stamp(slot, Class::Quick);
        let cts = stamp.cts();
        let beside = std::sync::Arc::clone(&active);
        interleave::on_point("the number of a class has moved", move || {
            let seen = beside.newest();
            assert!(!seen.sees(cts) || seen.tells_all_up_to() >= cts, "{seen:?}");
        });
        stamp.finish();
        assert!(interleave::take_on_point().is_none() && active.newest().sees(cts));
    }

    #[test]
    fn a_dropped_stamp_latches() {
        let active = ActiveTransactions::new(at(100));
        let (a, _) = active.claim().unwrap();
        drop(active.stamp(a, Class::Slow));
        active.stamp(a, Class::Quick).finish();
        assert_eq!(active.advanced(), Snapshot::at(at(100)), "nothing behind it, of any class");
        assert!(
            matches!(active.wait_until_visible(at(104)), Err(Error::Poisoned(since)) if since == at(101))
        );
        assert!(active.check_not_poisoned().is_err());
    }

    #[test]
    fn only_versions_that_a_snapshot_can_see_are_needed() {
        let active = ActiveTransactions::new(at(12));
        let (reader, snapshot) = active.claim().unwrap();
        assert_eq!(snapshot, Snapshot::at(at(11)));
        let (writer, _) = active.claim().unwrap();
        for _ in 0..5 {
            active.stamp(writer, Class::Quick).finish();
        }
        active.release(writer);
        let snapshots = active.snapshots();
        assert_eq!(snapshots.oldest(Class::Quick), at(11));
        assert!(snapshots.needs(at(5), at(16)), "seen at 11");
        assert!(!snapshots.needs(at(16), at(20)), "between the reader and the newest snapshot");
        assert!(snapshots.needs(at(20), at(32)), "seen at 31");
        assert!(snapshots.needs(at(31), crate::INFINITY));
        assert!(!snapshots.needs(at(3), at(11)), "superseded before the reader began");
        active.release(reader);
        assert!(!active.snapshots().needs(at(5), at(16)));
        assert_eq!(active.snapshots().oldest(Class::Quick), at(31));
    }

    #[test]
    fn slots_are_bounded_and_used_again() {
        let active = ActiveTransactions::new(at(10));
        let claimed: Vec<_> = (0..TRANSACTIONS_MAX).map(|_| active.claim().unwrap().0).collect();
        assert!(active.try_claim().is_none());
        active.release(claimed[17]);
        assert_eq!(active.claim().unwrap().0, 17);
    }
}
