//! The thread that reclaims space while the database is open.
//!
//! It works in slices of at most some thirty keys, a few leaves of a dropped state, or a part of a version
//! history, and rests between them: not at all while no transaction commits, three times as long as the slice
//! took while one does, once as long when dead keys or versions of a history pile up. Commits help from some
//! ten thousand dead keys on, and when pruning a history takes half of the retention time, so that neither
//! can outrun it for ever. Blocks of the file that were free for [`RETURN_AFTER`] go back to the disk, memory
//! of the volatile pool to the machine.
//!
//! It holds the context, and nothing of the context holds it: its starter ends it. A simulated world has
//! none; there, and wherever none is started, commits clean up behind themselves.

use crate::context::StateContext;
use crate::reclamation::reclaim::WaitPolicy;
use crate::reclamation::vacuum::VacuumStats;
use crate::{Result, StateId, Timestamp};
use entresol_memory::Pool;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that free blocks stay with the file in case that they are needed again.
pub const RETURN_AFTER: Duration = Duration::from_secs(10);
/// Free space that stays with the file, and the part of its size.
const RETURN_BYTES_MIN: u64 = 4 << 20;
const RETURN_PART: u64 = 16;
/// Sleep of the thread if it is not woken.
const TICK: Duration = Duration::from_millis(200);
/// The longest rest between two slices.
const REST_MAX: Duration = Duration::from_millis(50);
/// Number of dead keys from which on it rests less.
const BEHIND: u64 = 16_384;
/// It prunes histories in steps as long as those of commits of so many keys.
const PRUNE_KEYS: usize = 128;
/// Pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Between two lines of the log about a long run of work.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A thread that reclaims space that no snapshot needs any more; see the [module](self). Dropping it ends it,
/// and waits for that.
pub struct Reclaimer {
    context: Arc<StateContext>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reclaimer {
    /// Starts the thread. Without one, where none can be had, commits clean up behind themselves.
    pub fn start(context: &Arc<StateContext>) -> Reclaimer {
        Reclaimer::start_returning_after(context, RETURN_AFTER)
    }

    /// The same; free blocks of the file go back to the disk after this time.
    pub fn start_returning_after(context: &Arc<StateContext>, return_after: Duration) -> Reclaimer {
        let stop = Arc::new(AtomicBool::new(false));
        let mut thread = None;
        if !context.pool().env().is_simulated() {
            let work = ReclaimLoop {
                context: Arc::clone(context),
                stop: Arc::clone(&stop),
                last: None,
                newest_assigned: Timestamp::START,
                is_busy: false,
                free: FreeSpace::new(return_after),
                volatile: FreeSpace::new(return_after),
                disk: FreeSpace::new(return_after),
            };
            match context.pool().env().spawn("entresol-reclaim", move || work.run()) {
                Ok(handle) => {
                    context.reclaim.set_has_thread(true);
                    thread = Some(handle);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot start a thread to reclaim space in the background")
                }
            }
        }
        Reclaimer { context: Arc::clone(context), stop, thread: Mutex::new(thread) }
    }

    /// Ends the thread; commits clean up behind themselves from then on.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.stop.store(true, Ordering::Release);
        self.context.reclaim.wake();
        self.context.reclaim.set_has_thread(false);
        if thread.join().is_err() {
            tracing::error!("the thread that reclaims space panicked");
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reclaimer").field("runs", &self.thread.lock().is_some()).finish()
    }
}

struct ReclaimLoop {
    context: Arc<StateContext>,
    stop: Arc<AtomicBool>,
    /// The state that was worked on last.
    last: Option<StateId>,
    /// The newest timestamp at the last check.
    newest_assigned: Timestamp,
    /// A transaction has committed between the last two checks.
    is_busy: bool,
    free: FreeSpace,
    /// The same of the volatile pool, and of that on disk.
    volatile: FreeSpace,
    disk: FreeSpace,
}

impl ReclaimLoop {
    fn run(mut self) {
        let (mut done, mut told) = (VacuumStats::default(), Instant::now());
        while !self.stop.load(Ordering::Acquire) {
            let began = Instant::now();
            self.follow_clock();
            match self.slice(&mut done) {
                Ok(true) => self.rest(began.elapsed()),
                Ok(false) => self.context.reclaim.wait(TICK),
                Err(error) => {
                    if self.context.check_accepts_commits().is_ok() {
                        tracing::warn!(%error, "reclaiming space failed; it is retried");
                    }
                    self.context.reclaim.wait(AFTER_ERROR);
                }
            }
            if told.elapsed() >= LOG_EVERY {
                if done != VacuumStats::default() {
                    tracing::debug!(?done, left = self.context.reclaim.dead(), "space was reclaimed");
                }
                (done, told) = (VacuumStats::default(), Instant::now());
            }
        }
    }

    /// Keeps timestamps near the clock where commits do not: planning tells by them which keys are written
    /// rarely.
    fn follow_clock(&mut self) {
        let active = &self.context.active;
        self.is_busy = active.newest_assigned() != self.newest_assigned;
        active.catch_up(self.context.clock.now());
        self.newest_assigned = active.newest_assigned();
    }

    /// A slice of work; false if there is nothing to do.
    fn slice(&mut self, done: &mut VacuumStats) -> Result<bool> {
        let context = &self.context;
        context.check_accepts_commits()?;
        let pruned = context.prune_change_logs()?;
        let _alone = context.pause_reclaiming();
        let mut worked = pruned > 0;
        worked |= context.reclaim_step(&mut self.last, WaitPolicy::Waits, done)?;
        if context.has_dropping() {
            worked |= context.destroy_step(done)?;
        }
        if context.keeps_history() {
            worked |= context.prune_behind(PRUNE_KEYS)?;
        }
        self.free.check(context.pool())?;
        if let Some(volatile) = context.volatile_pool() {
            self.volatile.check(volatile)?;
        }
        if let Some(disk) = context.disk_pool() {
            self.disk.check(disk)?;
        }
        Ok(worked)
    }

    /// Leaves the processor, and the locks, to committing threads.
    fn rest(&mut self, took: Duration) {
        if self.is_busy {
            let is_behind = self.context.reclaim.dead() > BEHIND || self.context.prune_is_late();
            let times = if is_behind { 1 } else { 3 };
            std::thread::sleep((took * times).min(REST_MAX));
        }
    }
}

/// Watches the free blocks of the file.
struct FreeSpace {
    return_after: Duration,
    since: Instant,
    looked: Instant,
    /// Minimum of free bytes since then.
    least_bytes: u64,
}

impl FreeSpace {
    fn new(return_after: Duration) -> FreeSpace {
        FreeSpace { return_after, since: Instant::now(), looked: Instant::now(), least_bytes: u64::MAX }
    }

    /// Returns the space that was free all the time.
    fn check(&mut self, pool: &Pool) -> Result<()> {
        if self.looked.elapsed() < TICK || !pool.can_return_space() {
            return Ok(());
        }
        let space = pool.space();
        let backed = space.free_chunk_bytes.saturating_sub(space.unbacked_bytes);
        self.least_bytes = self.least_bytes.min(backed);
        self.looked = Instant::now();
        if self.since.elapsed() < self.return_after {
            return Ok(());
        }
        pool.pack();
        let least = std::mem::replace(&mut self.least_bytes, u64::MAX);
        self.since = Instant::now();
        let backed_bytes = space.pool_bytes - space.unbacked_bytes;
        let kept = RETURN_BYTES_MIN.max(backed_bytes / RETURN_PART);
        if least < kept {
            return Ok(());
        }
        let returned = pool.return_space_beyond(kept / 2)?;
        tracing::debug!(returned, "free blocks were returned to the disk");
        Ok(())
    }
}
