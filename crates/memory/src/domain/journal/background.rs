//! The journal's two threads: one writes and syncs what commits left to it, one makes checkpoints.
//!
//! They sleep until asked. Requests are flags, so asking twice costs a load.

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
    due: Mutex<Due>,
    flusher_wakes: Condvar,
    checkpointer_wakes: Condvar,
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

    pub(super) fn stop(&self) {
        self.due.lock().stop = true;
        self.flusher_wakes.notify_one();
        self.checkpointer_wakes.notify_one();
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

    /// Sleeps until a checkpoint is wanted; false to stop.
    fn next_checkpoint(&self) -> bool {
        let mut due = self.due.lock();
        loop {
            if due.stop {
                return false;
            }
            if self.checkpoint_now.load(Ordering::SeqCst) {
                return true;
            }
            self.checkpointer_wakes.wait(&mut due);
        }
    }
}

/// Starts the flusher and the checkpointer.
pub(super) fn start(shared: &Arc<Shared>, env: &Env) -> Result<Vec<JoinHandle<()>>> {
    let pool_path = shared.pool_path.clone();
    let spawn = |name: &str, work: fn(&Shared)| {
        let shared = shared.clone();
        env.spawn(name, move || work(&shared))
            .map_err(|e| Error::io("start a journal thread for", &pool_path, &e))
    };
    Ok(vec![spawn("entresol-flush", flusher)?, spawn("entresol-checkpoint", checkpointer)?])
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
    while shared.background.next_checkpoint() {
        let outcome = shared.checkpoint();
        shared.background.checkpoint_now.store(false, Ordering::SeqCst);
        if outcome.is_err() {
            return;
        }
    }
}
