//! The journal's threads: one writes and syncs what commits left to it, one makes checkpoints, one makes slots ahead.
//!
//! They sleep until asked. Requests are flags, so asking twice costs a load. A thread that panics latches the
//! journal: what it had under way is lost, and nobody would do its work.

use super::Shared;
use crate::env::Env;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long records of `Durability::None` commits may stay in the process.
const WRITE_DELAY_MS: u64 = 50;

/// Requests to the threads.
#[derive(Default)]
pub(super) struct Background {
    /// The shortest group interval that waits for a sync, in ms; 0: none.
    sync_armed_ms: AtomicU32,
    write_armed: AtomicBool,
    write_now: AtomicBool,
    checkpoint_now: AtomicBool,
    slot_now: AtomicBool,
    due: Mutex<Due>,
    flusher_wakes: Condvar,
    checkpointer_wakes: Condvar,
    supplier_wakes: Condvar,
}

#[derive(Default)]
struct Due {
    sync_at: Option<Instant>,
    write_at: Option<Instant>,
    stop: bool,
}

impl Background {
    /// Asks for a sync within `interval_ms`.
    pub(super) fn arm_sync(&self, interval_ms: u32) {
        // The flusher clears the flag before it looks how much there is to sync, so a set flag means that a
        // sync is coming that covers all that is appended now. The fence keeps this look behind our append.
        fence(Ordering::SeqCst);
        let armed = self.sync_armed_ms.load(Ordering::SeqCst);
        if armed != 0 && armed <= interval_ms {
            return;
        }
        let mut due = self.due.lock();
        let at = Instant::now() + Duration::from_millis(u64::from(interval_ms));
        if due.sync_at.is_none_or(|present| at < present) {
            due.sync_at = Some(at);
            self.sync_armed_ms.store(interval_ms, Ordering::SeqCst);
            self.flusher_wakes.notify_one();
        }
    }

    /// Asks that what is buffered be written soon.
    pub(super) fn arm_write(&self) {
        if self.write_armed.load(Ordering::Relaxed) || self.write_armed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.due.lock().write_at = Some(Instant::now() + Duration::from_millis(WRITE_DELAY_MS));
        self.flusher_wakes.notify_one();
    }

    /// Asks that what is buffered be written now.
    pub(super) fn request_write(&self) {
        if self.write_now.load(Ordering::Relaxed) || self.write_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.flusher_wakes.notify_one();
    }

    /// Asks for a checkpoint.
    pub(super) fn request_checkpoint(&self) {
        if self.checkpoint_now.load(Ordering::Relaxed) || self.checkpoint_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.checkpointer_wakes.notify_one();
    }

    /// Asks for a slot that is made ahead.
    pub(super) fn request_slot(&self) {
        if self.slot_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.supplier_wakes.notify_one();
    }

    pub(super) fn stop(&self) {
        self.due.lock().stop = true;
        self.flusher_wakes.notify_one();
        self.checkpointer_wakes.notify_one();
        self.supplier_wakes.notify_one();
    }

    /// Sleeps until there is something to write or sync: `Some(sync?)`, or `None` to stop.
    fn next_flush(&self) -> Option<bool> {
        let mut due = self.due.lock();
        loop {
            if due.stop {
                return None;
            }
            let now = Instant::now();
            if due.sync_at.is_some_and(|at| at <= now) {
                due.sync_at = None;
                self.sync_armed_ms.store(0, Ordering::SeqCst);
                return Some(true);
            }
            let write_due = due.write_at.is_some_and(|at| at <= now);
            if write_due || self.write_now.swap(false, Ordering::SeqCst) {
                due.write_at = None;
                self.write_armed.store(false, Ordering::SeqCst);
                return Some(false);
            }
            match [due.sync_at, due.write_at].into_iter().flatten().min() {
                Some(at) => {
                    self.flusher_wakes.wait_until(&mut due, at);
                }
                None => self.flusher_wakes.wait(&mut due),
            }
        }
    }

    /// Sleeps until the flag is set; false to stop.
    fn next(&self, flag: &AtomicBool, wakes: &Condvar) -> bool {
        let mut due = self.due.lock();
        loop {
            if due.stop {
                return false;
            }
            if flag.load(Ordering::SeqCst) {
                return true;
            }
            wakes.wait(&mut due);
        }
    }
}

/// What a thread is called, and what it does.
type Work = (&'static str, fn(&Shared));

/// Starts the threads. If one cannot be started, those that run are stopped.
pub(super) fn start(shared: &Arc<Shared>, env: &Env) -> Result<Vec<JoinHandle<()>>> {
    let work: [Work; 3] =
        [("entresol-flush", flusher), ("entresol-checkpoint", checkpointer), ("entresol-slots", supplier)];
    let mut threads = Vec::new();
    for (name, work) in work {
        let theirs = shared.clone();
        let started = env.spawn(name, move || {
            let _latch = LatchOnPanic { shared: &theirs, who: name };
            work(&theirs);
        });
        match started {
            Ok(thread) => threads.push(thread),
            Err(e) => {
                shared.background.stop();
                // They have had nothing to do yet; one that panicked has latched.
                threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                return Err(Error::io("start a journal thread for", &shared.pool_path, &e));
            }
        }
    }
    Ok(threads)
}

/// Latches the journal if its holder panics: what was under way then is lost.
pub(super) struct LatchOnPanic<'s> {
    pub(super) shared: &'s Shared,
    pub(super) who: &'static str,
}

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = format!("{} panicked while it worked on the journal", self.who);
            self.shared.fail(Error::Failed { cause });
        }
    }
}

fn flusher(shared: &Shared) {
    while let Some(sync) = shared.background.next_flush() {
        let appended = shared.appended.load(Ordering::Acquire);
        let outcome = if sync { shared.sync_to(appended) } else { shared.write_out().map(drop) };
        if outcome.is_err() {
            // Latched: every later commit reports it. There is nothing left to write.
            return;
        }
    }
}

fn checkpointer(shared: &Shared) {
    let background = &shared.background;
    while background.next(&background.checkpoint_now, &background.checkpointer_wakes) {
        let outcome = shared.checkpoint();
        background.checkpoint_now.store(false, Ordering::SeqCst);
        if outcome.is_err() {
            return;
        }
        // What was appended meanwhile may want the next one already.
        shared.consider_checkpoint();
    }
}

fn supplier(shared: &Shared) {
    let background = &shared.background;
    while background.next(&background.slot_now, &background.supplier_wakes) {
        if let Err(error) = shared.supply.make_ahead() {
            // Not needed yet: a checkpoint may free a slot. If it is needed, the writer tries again, and latches.
            tracing::warn!(%error, "no journal slot could be made ahead");
        }
        background.slot_now.store(false, Ordering::SeqCst);
    }
}
