//! The journal's threads: one writes and syncs what commits left to it, one makes checkpoints, one prepares
//! slots ahead, and with a budget one keeps the pages of the pool within it.
//!
//! They sleep until requested. Requests are flags, so a repeated request costs a load. A thread that panics
//! poisons the journal: its work in flight is lost, and no other thread would do it.
//!
//! They are started when the journal is opened, so that a machine that cannot start them reports it then. A
//! simulated environment starts each on its first request: a checker opens a hundred thousand pools, which
//! request few.

use super::JournalState;
use super::residency::keeper;
use crate::env::Env;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum time that records of `Durability::None` commits stay in the process.
const WRITE_DELAY_MS: u64 = 50;

/// Requests to the threads.
#[derive(Default)]
pub(super) struct Background {
    /// Shortest group interval that waits for a sync, in ms; 0: none.
    sync_armed_ms: AtomicU32,
    write_armed: AtomicBool,
    write_now: AtomicBool,
    checkpoint_now: AtomicBool,
    slot_now: AtomicBool,
    due: Mutex<DeadlineState>,
    flusher: Worker,
    checkpointer: Worker,
    supplier: Worker,
    keeper: Worker,
    keeper_now: AtomicBool,
}

/// State of one of the threads.
#[derive(Default)]
struct Worker {
    wakes: Condvar,
    /// Start function, until the thread is started.
    to_start: Mutex<Option<Start>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Start {
    name: &'static str,
    work: fn(&JournalState),
    shared: Weak<JournalState>,
    env: Env,
}

impl Worker {
    /// Wakes the thread, which reads the flags.
    fn wake(&self) {
        self.wakes.notify_one();
        if let Some(start) = self.to_start.lock().take()
            && let Some(shared) = start.shared.upgrade()
        {
            self.start(&start, shared).expect("a simulated environment can start a thread");
        }
    }

    fn start(&self, start: &Start, shared: Arc<JournalState>) -> Result<()> {
        let Start { name, work, .. } = *start;
        let path = shared.pool_path.clone();
        let started = start.env.spawn(name, move || {
            let _latch = PoisonOnPanic { shared: &shared, who: name };
            work(&shared);
        });
        *self.thread.lock() = Some(started.map_err(|e| Error::io("start a journal thread for", &path, &e))?);
        Ok(())
    }

    fn join(&self) {
        *self.to_start.lock() = None;
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a journal thread panicked");
        }
    }
}

#[derive(Default)]
struct DeadlineState {
    sync_at: Option<Instant>,
    write_at: Option<Instant>,
    stop: bool,
}

impl Background {
    /// Requests a sync within `interval_ms`.
    pub(super) fn arm_sync(&self, interval_ms: u32) {
        // The flusher clears the flag before it reads how much there is to sync, so a set flag means that a
        // sync is coming that covers all that is appended now. The fence keeps this read behind our append.
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
            drop(due);
            self.flusher.wake();
        }
    }

    /// Requests that buffered records be written soon.
    pub(super) fn arm_write(&self) {
        if self.write_armed.load(Ordering::Relaxed) || self.write_armed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.due.lock().write_at = Some(Instant::now() + Duration::from_millis(WRITE_DELAY_MS));
        self.flusher.wake();
    }

    /// Requests that buffered records be written now.
    pub(super) fn request_write(&self) {
        if self.write_now.load(Ordering::Relaxed) || self.write_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.flusher.wake();
    }

    /// Requests a checkpoint.
    pub(super) fn request_checkpoint(&self) {
        if self.checkpoint_now.load(Ordering::Relaxed) || self.checkpoint_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.checkpointer.wake();
    }

    /// Requests a slot that is prepared ahead.
    pub(super) fn request_slot(&self) {
        if self.slot_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.supplier.wake();
    }

    /// Wakes the keeper, which checks whether memory is short.
    pub(super) fn wake_keeper(&self) {
        if self.keeper_now.load(Ordering::Relaxed) || self.keeper_now.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.due.lock());
        self.keeper.wakes.notify_one();
    }

    /// Sleeps for `pause`, or until the keeper is woken; false to stop.
    pub(super) fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut due = self.due.lock();
        while !due.stop && !self.keeper_now.swap(false, Ordering::SeqCst) {
            if self.keeper.wakes.wait_until(&mut due, until).timed_out() {
                break;
            }
        }
        !due.stop
    }

    /// Returns true if the threads are about to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.due.lock().stop
    }

    /// Ends the threads, and joins them.
    pub(super) fn stop(&self) {
        self.due.lock().stop = true;
        let workers = [&self.flusher, &self.checkpointer, &self.supplier, &self.keeper];
        for worker in workers {
            worker.wakes.notify_one();
        }
        workers.iter().for_each(|worker| worker.join());
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
                    self.flusher.wakes.wait_until(&mut due, at);
                }
                None => self.flusher.wakes.wait(&mut due),
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

/// Starts the threads, or prepares their start. If one cannot be started, those that run are stopped.
pub(super) fn start(shared: &Arc<JournalState>, env: &Env) -> Result<()> {
    let background = &shared.background;
    type ThreadBody = fn(&JournalState);
    let workers: [(&Worker, &'static str, ThreadBody); 4] = [
        (&background.flusher, "entresol-flush", flusher),
        (&background.checkpointer, "entresol-checkpoint", checkpointer),
        (&background.supplier, "entresol-slots", supplier),
        (&background.keeper, "entresol-pages", keeper),
    ];
    let count = if shared.residency.is_some() { workers.len() } else { workers.len() - 1 };
    for (worker, name, work) in workers.into_iter().take(count) {
        let start = Start { name, work, shared: Arc::downgrade(shared), env: env.clone() };
        if env.is_simulated() {
            *worker.to_start.lock() = Some(start);
        } else if let Err(error) = worker.start(&start, shared.clone()) {
            // They have had nothing to do yet; one that panicked has poisoned the journal.
            background.stop();
            return Err(error);
        }
    }
    Ok(())
}

/// Guard that poisons the journal if its holder panics: the work in flight is lost.
pub(super) struct PoisonOnPanic<'s> {
    pub(super) shared: &'s JournalState,
    pub(super) who: &'static str,
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = format!("{} panicked during work on the journal", self.who);
            self.shared.fail(Error::Failed { cause });
        }
    }
}

fn flusher(shared: &JournalState) {
    while let Some(sync) = shared.background.next_flush() {
        let appended = shared.appender.appended.load(Ordering::Acquire);
        let outcome = if sync { shared.sync_to(appended) } else { shared.write_out().map(drop) };
        if outcome.is_err() {
            // Poisoned: every later commit reports it. There is nothing left to write.
            return;
        }
    }
}

fn checkpointer(shared: &JournalState) {
    let background = &shared.background;
    while background.next(&background.checkpoint_now, &background.checkpointer.wakes) {
        let outcome = shared.checkpoint();
        background.checkpoint_now.store(false, Ordering::SeqCst);
        if outcome.is_err() {
            return;
        }
        // Records appended meanwhile may need the next checkpoint already.
        shared.consider_checkpoint();
    }
}

fn supplier(shared: &JournalState) {
    let background = &shared.background;
    while background.next(&background.slot_now, &background.supplier.wakes) {
        if let Err(error) = shared.supply.make_ahead() {
            // Not needed yet: a checkpoint may free a slot. If it is needed, the writer tries again, and
            // poisons.
            tracing::warn!(%error, "could not prepare a journal slot ahead");
        }
        background.slot_now.store(false, Ordering::SeqCst);
    }
}
