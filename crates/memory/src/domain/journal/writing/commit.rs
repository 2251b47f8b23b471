//! Making records durable: frames, and syncs that committers share.
//!
//! A committer that finds no sync in flight leads one: it writes out everything appended so far and syncs the
//! file. Committers that arrive meanwhile wait: those whose records the sync covers for its end, the others
//! for the next one, which one of them leads. So a batch is what gathered during the sync before: it grows
//! with the number of committers and with the device's latency, and a lone committer never waits for company.
//!
//! Committers that commit again at once would so split into two halves that take turns. A leader therefore
//! waits for those of the last two rounds to come back, for at most four syncs' time, as long as that pays:
//! after a wait in vain it does not wait for some rounds, twice as many each time. Two or three are waited
//! for only as long as one sync takes: if they need longer, each is better off with a sync of its own.
//!
//! ```text
//!  A  append ─ lead: write, sync ───────┐ done
//!  B       append ─ wait ───────────────┴ lead: write, sync ────────┐ done
//!  C            append ─ wait for B's ──────────────────────────────┘ done
//! ```
//!
//! Syncs of the file are made one at a time, and a failed one poisons the journal before the next begins: a
//! file system reports a lost write only once, and the next caller would be told that all is well.

use crate::domain::journal::background::PoisonOnPanic;
use crate::domain::journal::position::JournalPosition;
use crate::domain::journal::writing::frame;
use crate::domain::journal::{JournalState, Writer};
use crate::error::{Error, Result};
use crate::order::step;
use crate::points::JOURNAL_SYNCED;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// State of the rounds of syncs: leader, covered position, waiting committers.
#[derive(Default)]
pub(crate) struct Rounds {
    state: Mutex<Round>,
    /// Number of rounds that have ended, even and odd ones; waited on.
    ended: [AtomicU32; 2],
}

#[derive(Default)]
struct Round {
    number: usize,
    led: bool,
    /// End of the appends that the round in flight covers; the end of all positions while it is still open.
    covers: JournalPosition,
    /// Number of committers that wait for even and for odd rounds.
    waiting: [u32; 2],
    /// Number of committers that took part in the last round or waited for the next when it ended.
    seen: u32,
    /// Number of coming rounds whose leaders do not wait for company, and of those after the next wait in
    /// vain.
    hurried: u32,
    hurried_next: u32,
}

/// Minimum number of committers that counts as many.
const MANY_MIN: u32 = 4;
/// Time that a leader waits for company, in syncs: with few committers, with many.
const PATIENCE_SYNCS_FEW: u64 = 1;
const PATIENCE_SYNCS_MANY: u64 = 4;
/// Longest wait for company.
const GATHER_NS_MAX: u64 = 500_000;
/// Maximum number of rounds without a wait after waits in vain.
const HURRIED_MAX: u32 = 256;

/// Role of a committer in a round.
enum Role {
    Leads,
    /// Waits until the count of this parity changes.
    Waits(RoundWait),
}

/// Waiting committer, counted among those of its round.
#[derive(Debug, Clone, Copy)]
struct RoundWait {
    parity: usize,
    /// Count of this parity when it began.
    seen: u32,
    /// Change of the count at the end of the round that it waits for.
    ends_after: u32,
}

impl Rounds {
    fn join(&self, lsn: JournalPosition) -> Role {
        let mut round = self.state.lock();
        if !round.led {
            round.led = true;
            round.covers = JournalPosition::END;
            return Role::Leads;
        }
        let next = usize::from(lsn > round.covers);
        let parity = (round.number + next) % 2;
        debug_assert!(
            round.covers == JournalPosition::END || next == 1 || lsn <= round.covers,
            "a round covers its waiters"
        );
        round.waiting[parity] += 1;
        // Read under the lock: the end of the round changes it afterwards.
        let seen = self.ended[parity].load(Ordering::Acquire);
        Role::Waits(RoundWait { parity, seen, ends_after: 1 + next as u32 })
    }

    /// Returns true if the round has ended: then its end has discounted the committer.
    fn is_over(&self, wait: RoundWait) -> bool {
        self.ended[wait.parity].load(Ordering::Acquire).wrapping_sub(wait.seen) >= wait.ends_after
    }

    /// Waits, as the leader and before it writes, for the committers that are likely to join, if that pays.
    fn gather(&self, sync_ns: u64) {
        let expected = {
            let mut round = self.state.lock();
            if round.seen < 2 || round.hurried > 0 {
                round.hurried = round.hurried.saturating_sub(1);
                return;
            }
            round.seen
        };
        let began = Instant::now();
        let syncs = if expected < MANY_MIN { PATIENCE_SYNCS_FEW } else { PATIENCE_SYNCS_MANY };
        let patience = Duration::from_nanos(sync_ns.saturating_mul(syncs).min(GATHER_NS_MAX));
        loop {
            let mut round = self.state.lock();
            let came = round.waiting[round.number % 2] + 1;
            let waited = began.elapsed();
            if came >= expected && waited < patience {
                round.hurried_next = 1;
                return;
            }
            if waited >= patience {
                // Much too late: other work has the processors, and yielding to it costs more than a sync.
                if came * 4 < expected * 3 || waited >= 2 * patience {
                    round.hurried = round.hurried_next;
                    round.hurried_next = (round.hurried_next * 2).clamp(1, HURRIED_MAX);
                }
                return;
            }
            drop(round);
            std::thread::yield_now();
        }
    }

    /// Ends a committer's wait. If its round has no leader yet, it may have been called to lead it: it calls
    /// another in its place, unless it joins again.
    fn leave(&self, wait: RoundWait, joins_again: bool) {
        let mut round = self.state.lock();
        // Under the lock, where rounds end.
        if self.is_over(wait) {
            return;
        }
        assert!(round.waiting[wait.parity] > 0, "a committer that waits is counted until its round ends");
        round.waiting[wait.parity] -= 1;
        let others = !joins_again && !round.led && round.waiting[wait.parity] > 0;
        drop(round);
        if others {
            atomic_wait::wake_one(&self.ended[wait.parity]);
        }
    }

    /// Closes the round in flight: it covers positions before `end`, and no more.
    fn covers(&self, end: JournalPosition) {
        let mut round = self.state.lock();
        assert!(
            round.led && round.covers == JournalPosition::END,
            "a round in flight is closed once, by its leader"
        );
        round.covers = end;
    }

    /// Ends the round: its committers go on, and one of those that wait for the next leads it. After a
    /// failure no thread would lead one, so all go on.
    fn end(&self, failed: bool) {
        let (parity, waiting) = {
            let mut round = self.state.lock();
            debug_assert!(round.led, "a round that ends has a leader");
            round.led = false;
            round.number += 1;
            let parity = (round.number - 1) % 2;
            round.seen = round.waiting[0] + round.waiting[1] + 1;
            let waiting = round.waiting;
            round.waiting[parity] = 0;
            self.ended[parity].fetch_add(1, Ordering::Release);
            // Also changed: a waiter that does not sleep yet must not miss its call to lead.
            self.ended[1 - parity].fetch_add(1, Ordering::Release);
            (parity, waiting)
        };
        if failed {
            atomic_wait::wake_all(&self.ended[1 - parity]);
        } else if waiting[1 - parity] > 0 {
            atomic_wait::wake_one(&self.ended[1 - parity]);
        }
        if waiting[parity] > 0 {
            atomic_wait::wake_all(&self.ended[parity]);
        }
    }
}

impl JournalState {
    /// Writes everything appended before the call; returns a position up to which it is written.
    pub(crate) fn write_out(&self) -> Result<JournalPosition> {
        let mut writer = self.writer.lock();
        self.write_out_locked(&mut writer)
    }

    /// Writes one buffer, for an appender that needs one.
    pub(crate) fn write_oldest(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.write_one(&mut writer).map(drop)
    }

    pub(crate) fn write_out_locked(&self, writer: &mut Writer) -> Result<JournalPosition> {
        // Records appended meanwhile are for the next call, so this ends.
        let wanted = self.appender.appended.load(Ordering::Acquire);
        while self.written.load(Ordering::Relaxed) < wanted {
            self.write_one(writer)?;
        }
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))?;
        debug_assert!(
            self.written.load(Ordering::Relaxed) >= wanted,
            "all that was appended before is written"
        );
        Ok(self.written.load(Ordering::Relaxed))
    }

    /// Writes the oldest records, at most a buffer of them, as a frame.
    fn write_one(&self, writer: &mut Writer) -> Result<()> {
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))?;
        // The records would be missing from the stream.
        let _latch = PoisonOnPanic { shared: self, who: "a writer" };
        let Some(mut filled) = self.appender.active.lock().take_oldest() else { return Ok(()) };
        let start = self.written.load(Ordering::Relaxed);
        let durable = self.durable.load(Ordering::Acquire);
        assert!(
            start.plus(filled.payload_words as u64 * 8) <= self.appender.appended.load(Ordering::Acquire),
            "a frame at {start} of {} words holds nothing that was not appended",
            filled.payload_words
        );
        assert!(durable <= start, "what is durable ({durable}) was written before ({start})");
        let outcome = writer.log.write_frame(&mut filled.buffer, filled.payload_words, start, durable);
        let surplus = {
            let mut active = self.appender.active.lock();
            let surplus = active.release_buffer(filled.buffer);
            if !active.is_behind() {
                self.is_behind.store(false, Ordering::Relaxed);
            }
            surplus
        };
        if let Some((buffer, bytes)) = surplus {
            // Freeing memory takes longer than others are to wait for the lock.
            drop(buffer);
            if let Some(reserved) = &mut *self.buffers.lock() {
                reserved.shrink(bytes as u64);
            }
        }
        let needs_slot = outcome.map_err(|error| self.fail(error))?;
        if needs_slot {
            self.background.request_slot();
        }
        let stored = frame::stored_bytes(filled.payload_words * 8) as u64;
        self.stored_bytes.fetch_add(stored, Ordering::AcqRel);
        self.written.store(start.plus(filled.payload_words as u64 * 8), Ordering::Release);
        self.consider_checkpoint();
        Ok(())
    }

    /// Makes the journal durable up to a position. Callers that wait together share one sync.
    pub(crate) fn sync_to(&self, lsn: JournalPosition) -> Result<()> {
        debug_assert!(
            lsn <= self.appender.appended.load(Ordering::Acquire),
            "position {lsn} is made durable after it was appended"
        );
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn {
                return Ok(());
            }
            self.check_not_failed()?;
            match self.rounds.join(lsn) {
                Role::Leads => {
                    let ends = EndOfRound(self);
                    let _latch = PoisonOnPanic { shared: self, who: "a commit" };
                    let outcome = self.lead();
                    drop(ends);
                    outcome?;
                }
                Role::Waits(wait) => {
                    atomic_wait::wait(&self.rounds.ended[wait.parity], wait.seen);
                    if !self.rounds.is_over(wait) {
                        let joins_again = self.durable.load(Ordering::Acquire) < lsn;
                        self.rounds.leave(wait, joins_again);
                    }
                }
            }
        }
    }

    fn lead(&self) -> Result<()> {
        self.rounds.gather(self.sync_ns.load(Ordering::Relaxed));
        let end = self.write_out()?;
        debug_assert!(end <= self.written.load(Ordering::Acquire), "a sync covers what is written");
        self.rounds.covers(end);
        let began = Instant::now();
        self.sync_file()?;
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // A running mean over about eight syncs; leaders take turns, so there is one writer.
        let mean_ns = self.sync_ns.load(Ordering::Relaxed);
        self.sync_ns.store(mean_ns - mean_ns / 8 + took_ns / 8, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.durable.advance(end);
        debug_assert!(
            self.durable.load(Ordering::Acquire) <= self.written.load(Ordering::Acquire),
            "nothing is durable that is not written"
        );
        Ok(())
    }

    pub(crate) fn sync_file(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        if let Some(cause) = self.failure.get() {
            return Err(Error::Failed { cause: cause.to_string() });
        }
        let path = &self.journal_path;
        step(JOURNAL_SYNCED, || {
            self.journal_file.sync_data().map_err(|e| self.fail(Error::io("sync", path, &e)))
        })
    }
}

/// Guard that ends the round also when its leader panics.
struct EndOfRound<'s>(&'s JournalState);

impl Drop for EndOfRound<'_> {
    fn drop(&mut self) {
        self.0.rounds.end(self.0.failure.get().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(words: u64) -> JournalPosition {
        JournalPosition::START.plus(8 * words)
    }

    fn waits(rounds: &Rounds, lsn: JournalPosition) -> RoundWait {
        match rounds.join(lsn) {
            Role::Waits(wait) => wait,
            Role::Leads => panic!("there is a leader"),
        }
    }

    #[test]
    fn whoever_comes_before_the_capture_waits_for_this_round_and_others_for_the_next() {
        let rounds = Rounds::default();
        assert!(matches!(rounds.join(at(10)), Role::Leads));
        let this = waits(&rounds, at(20));
        rounds.covers(at(20));
        assert_eq!(waits(&rounds, at(15)).parity, this.parity);
        let next = waits(&rounds, at(30));
        assert_ne!(next.parity, this.parity);
        rounds.end(false);
        assert!(rounds.is_over(this) && !rounds.is_over(next));
        assert!(matches!(rounds.join(at(30)), Role::Leads), "the next round has no leader yet");
        let joined = waits(&rounds, at(40));
        assert_eq!(joined.parity, next.parity);
        rounds.leave(this, true);
        assert_eq!(
            rounds.state.lock().waiting[next.parity],
            2,
            "who waited for a round that is over is not counted"
        );
        rounds.leave(next, true);
        assert_eq!(rounds.state.lock().waiting, if next.parity == 0 { [1, 0] } else { [0, 1] });
        rounds.end(false);
        assert!(rounds.is_over(joined));
        assert_eq!(rounds.state.lock().waiting, [0, 0]);
    }

    #[test]
    fn who_is_called_to_lead_and_has_nothing_to_wait_for_calls_another() {
        let rounds = std::sync::Arc::new(Rounds::default());
        assert!(matches!(rounds.join(at(10)), Role::Leads));
        rounds.covers(at(10));
        let (first, second) = (waits(&rounds, at(20)), waits(&rounds, at(30)));
        let theirs = rounds.clone();
        let sleeper = std::thread::spawn(move || {
            // Like a committer that slept through the end, which called only the first.
            let seen = second.seen.wrapping_add(1);
            while theirs.ended[second.parity].load(Ordering::Acquire) != seen {
                std::thread::yield_now();
            }
            atomic_wait::wait(&theirs.ended[second.parity], seen);
        });
        rounds.end(false);
        // It may not sleep yet, and must not be called for one round only.
        rounds.leave(first, false);
        while !sleeper.is_finished() {
            atomic_wait::wake_one(&rounds.ended[second.parity]);
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
        assert_eq!(rounds.state.lock().waiting[second.parity], 1);
        assert!(matches!(rounds.join(at(30)), Role::Leads));
    }

    #[test]
    fn both_counts_change_at_an_end_so_that_no_committer_sleeps_through_it() {
        let rounds = Rounds::default();
        assert!(matches!(rounds.join(at(10)), Role::Leads));
        rounds.covers(at(10));
        let wait = waits(&rounds, at(20));
        rounds.end(false);
        assert_ne!(rounds.ended[wait.parity].load(Ordering::Relaxed), wait.seen, "called to lead");
    }

    #[test]
    fn one_other_committer_is_waited_for_and_none_by_a_lone_one() {
        let rounds = Rounds::default();
        let waits = |sync_ns: u64| {
            let began = Instant::now();
            rounds.gather(sync_ns);
            began.elapsed()
        };
        rounds.state.lock().seen = 2;
        assert!(waits(200_000) >= Duration::from_micros(200), "it did not come");
        rounds.state.lock().waiting[0] = 1;
        rounds.gather(u64::MAX);
        assert_eq!(rounds.state.lock().hurried_next, 1, "it is there");
        rounds.state.lock().seen = 1;
        rounds.state.lock().waiting[0] = 0;
        rounds.gather(u64::MAX);
        assert_eq!(rounds.state.lock().hurried, 0, "a lone committer waits for none");
    }

    #[test]
    fn company_that_does_not_come_is_not_waited_for_again_at_once() {
        let rounds = Rounds::default();
        let of = |read: fn(&Round) -> u32| read(&rounds.state.lock());
        rounds.state.lock().seen = 10;
        rounds.gather(1_000);
        assert_eq!((of(|r| r.hurried), of(|r| r.hurried_next)), (0, 1), "the first wait in vain is forgiven");
        rounds.gather(1_000);
        assert_eq!((of(|r| r.hurried), of(|r| r.hurried_next)), (1, 2));
        rounds.gather(u64::MAX / 8);
        assert_eq!(of(|r| r.hurried), 0, "this one did not wait");
        rounds.gather(1_000);
        assert_eq!((of(|r| r.hurried), of(|r| r.hurried_next)), (2, 4));
        rounds.state.lock().hurried = 0;
        rounds.state.lock().waiting[0] = 9;
        rounds.gather(1_000_000);
        assert_eq!((of(|r| r.hurried), of(|r| r.hurried_next)), (0, 1), "all came");
    }
}
