//! Making records durable: frames, and syncs that committers share.
//!
//! A committer that finds no sync under way leads one: it writes out all that has been appended and syncs the file.
//! Those who come meanwhile wait: whose records the sync covers for its end, the others for the next one, which one of
//! them leads. So a batch is what gathered during the sync before: it grows with the number of committers and
//! with the device's latency, and a lone committer never waits for company.
//!
//! ```text
//!  A  append ─ lead: write, sync ───────┐ done
//!  B       append ─ wait ───────────────┴ lead: write, sync ────────┐ done
//!  C            append ─ wait for B's ──────────────────────────────┘ done
//! ```
//!
//! Syncs of the file are made one at a time, and a failed one latches before the next begins: a file system tells
//! of a lost write only once, and whoever asked next would be told that all is well.

use super::frame;
use super::{Shared, Writer};
use crate::error::{Error, Result};
use crate::mutants;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Who leads, and who waits for what.
#[derive(Default)]
pub(super) struct Rounds {
    state: Mutex<Round>,
    /// Counts the ends of rounds, even and odd ones; waited on.
    ended: [AtomicU32; 2],
}

#[derive(Default)]
struct Round {
    number: usize,
    led: bool,
    /// The round under way covers what was appended before this; `u64::MAX` while that is still open.
    covers: u64,
    /// Who waits for even and for odd rounds.
    waiting: [u32; 2],
}

/// What a committer finds.
enum Part {
    Leads,
    /// Waits until the count of this parity is another.
    Waits {
        parity: usize,
        seen: u32,
    },
}

impl Rounds {
    fn join(&self, lsn: u64) -> Part {
        let mut round = self.state.lock();
        if !round.led {
            round.led = true;
            round.covers = u64::MAX;
            return Part::Leads;
        }
        let parity = (round.number + usize::from(lsn > round.covers)) % 2;
        round.waiting[parity] += 1;
        // Read under the lock: the end of the round that is waited for changes it afterwards.
        Part::Waits { parity, seen: self.ended[parity].load(Ordering::Acquire) }
    }

    fn leave(&self, parity: usize) {
        self.state.lock().waiting[parity] -= 1;
    }

    /// The round under way covers what lies before this position, and no more.
    fn covers(&self, end: u64) {
        self.state.lock().covers = end;
    }

    /// Ends the round: those who waited for it go on, and one of those who wait for the next leads it. After a
    /// failure nobody will lead one, so all go on.
    fn end(&self, failed: bool) {
        let (parity, waiting) = {
            let mut round = self.state.lock();
            round.led = false;
            round.number += 1;
            let parity = (round.number - 1) % 2;
            self.ended[parity].fetch_add(1, Ordering::Release);
            // Also changed: a waiter that does not sleep yet must not miss its call to lead.
            self.ended[1 - parity].fetch_add(1, Ordering::Release);
            (parity, round.waiting)
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

impl Shared {
    /// Writes all that has been appended before the call; returns a position up to which it is written.
    pub(super) fn write_out(&self) -> Result<u64> {
        let mut writer = self.writer.lock();
        self.write_out_locked(&mut writer)
    }

    /// Writes one buffer: for an appender that needs one.
    pub(super) fn write_oldest(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.write_one(&mut writer).map(drop)
    }

    pub(super) fn write_out_locked(&self, writer: &mut Writer) -> Result<u64> {
        // What is appended meanwhile is for the next one, so this ends.
        let wanted = self.appended.load(Ordering::Acquire);
        while self.written.load(Ordering::Relaxed) < wanted {
            self.write_one(writer)?;
        }
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))?;
        Ok(self.written.load(Ordering::Relaxed))
    }

    /// Writes the oldest records, at most a buffer of them, as a frame.
    fn write_one(&self, writer: &mut Writer) -> Result<()> {
        self.failure.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.to_string() }))?;
        let Some(mut filled) = self.active.lock().take_oldest() else { return Ok(()) };
        let start = self.written.load(Ordering::Relaxed);
        let durable = self.durable.load(Ordering::Acquire);
        let outcome = writer.log.write_frame(&mut filled.buffer, filled.payload_words, start, durable);
        self.active.lock().give_back(filled.buffer);
        let needs_slot = outcome.map_err(|error| self.fail(error))?;
        if needs_slot {
            self.background.request_slot();
        }
        let stored = frame::stored_bytes(filled.payload_words * 8) as u64;
        self.stored_bytes.fetch_add(stored, Ordering::AcqRel);
        self.written.store(start + filled.payload_words as u64 * 8, Ordering::Release);
        self.consider_checkpoint();
        Ok(())
    }

    /// Makes the journal durable up to a position. Callers that wait together share one sync.
    pub(super) fn sync_to(&self, lsn: u64) -> Result<()> {
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn {
                return Ok(());
            }
            if let Some(cause) = self.failure.get() {
                return Err(Error::Failed { cause: cause.to_string() });
            }
            match self.rounds.join(lsn) {
                Part::Leads => {
                    let ends = EndOfRound(self);
                    let outcome = self.lead();
                    drop(ends);
                    outcome?;
                }
                Part::Waits { parity, seen } => {
                    atomic_wait::wait(&self.rounds.ended[parity], seen);
                    self.rounds.leave(parity);
                }
            }
        }
    }

    fn lead(&self) -> Result<()> {
        let end = self.write_out()?;
        self.rounds.covers(end);
        self.sync_file()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.durable.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn sync_file(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        if let Some(cause) = self.failure.get() {
            return Err(Error::Failed { cause: cause.to_string() });
        }
        let path = &self.journal_path;
        if mutants::active("sync-skipped") {
            return Ok(());
        }
        self.journal_file.sync_data().map_err(|e| self.fail(Error::io("sync", path, &e)))
    }
}

/// Ends the round also when its leader panics: nobody knows then what was written.
struct EndOfRound<'s>(&'s Shared);

impl Drop for EndOfRound<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Error::Failed { cause: "a commit panicked while it wrote the journal".to_string() });
        }
        self.0.rounds.end(self.0.failure.get().is_some());
    }
}
