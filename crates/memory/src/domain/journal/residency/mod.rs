//! Page eviction: keeps the DRAM of a pool within its budget, whatever is written or read.
//!
//! The pool file is mapped privately. A page that was read is a page of the file's cache, a page that was
//! stored to is a copy in DRAM, new extents are DRAM from the beginning. A *clean* page has the content of
//! the file: evicting it changes nothing but the time of the next access, which reads it from the file. The
//! keeper, a thread of the journal, evicts while the pool has more pages than its part of the budget
//! ([`MemoryBudget::elastic_target`]), in slices of 2 MiB ([`sweep`]). A pool that is not larger than its
//! part costs nothing.
//!
//! Invariants:
//! 1. *Nothing is lost.* A page is evicted only if it has no dirty mark, its last copy is in the file and
//!    synced, its content has the checksum of that copy, and no thread can store to it between these checks
//!    and the eviction ([`crate::fault::Window`]). The checksum covers stores without a mark: those that are
//!    not flushed yet, or never. Pages of the file's cache were never stored to and need no checksum.
//! 2. *Pages that cannot be evicted become clean.* A stored-to page without a mark that differs from the file
//!    is marked at its second visit, so that a checkpoint writes it.
//! 3. *Changed pages are bounded.* Checkpoints start when they are a quarter of the budget's part, appenders
//!    wait when they are half of it ([`super::checkpoint::policy`]).
//!
//! Resident memory is estimated by that of the process ([`pages::ProcessMemory`]) since the pages were
//! counted. They are counted again at calm times only: counting a large pool takes so long that a scan would
//! load more than fits meanwhile.
//!
//! Memory: a byte for each page of a pool that is larger than its part of the budget.

pub(super) mod pages;
mod replacement;
mod single_faults;
mod sweep;

use super::JournalState;
use crate::budget::{MemoryBudget, MemoryConsumer, Shrink};
use crate::fault::WatchedPool;
use crate::mapping::{Mapping, PAGE_BYTES};
use pages::{PageMap, ProcessMemory};
use parking_lot::Mutex;
pub use replacement::PageReplacement;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use sweep::Sweeper;

/// Sleep of the keeper while all fits, unless it is woken.
const IDLE: Duration = Duration::from_millis(200);
/// Sleep of the keeper while slices get huge pages.
const HUGE_PAUSE: Duration = Duration::from_millis(20);
/// Maximum assumed growth in bytes a millisecond: it determines the interval between checks.
const FASTEST_BYTES_PER_MS: u64 = 4 << 20;
/// Longest interval between two checks of a pool that is larger than its part.
const LOOK_MS_MAX: u64 = 3;
/// Sleep of the keeper after no more pages could be evicted.
const WAIT_MS: u64 = 10;
/// Duration for which the room that a sweep makes should suffice: others may have the processors meanwhile.
const ROOM_MS: u64 = 50;
/// Number of changed pages below which no checkpoint starts for eviction.
const CHANGED_PAGES_MIN: u64 = 256;

/// State of a pool's pages in DRAM.
pub(super) struct Residency {
    memory: Arc<MemoryBudget>,
    /// Bytes last reported to the budget.
    observed: AtomicU64,
    /// Number of changed pages at which a checkpoint starts.
    changed_pages_max: AtomicU64,
    /// Bytes of the keeper's state of pages.
    remembered: AtomicU64,
    /// True while a fault loads one page.
    loads_single_pages: AtomicBool,
    sweeper: Mutex<Sweeper>,
    _watched: WatchedPool,
}

impl Residency {
    /// State of a pool whose mapping is backed by its file as far as it is mapped now. `None`, with a
    /// warning, where the system does not support eviction.
    pub(super) fn new(
        memory: Arc<MemoryBudget>,
        mapping: &Mapping,
        extent_bytes: u64,
        file: &Path,
        replacement: PageReplacement,
    ) -> Option<Residency> {
        let watched = WatchedPool::new(&mapping.addresses(), file);
        let seen = PageMap::open().and_then(|map| Ok((map, ProcessMemory::open()?)));
        let budget_bytes = memory.max_bytes();
        match (watched, seen) {
            (Some(watched), Ok((map, process))) => Some(Residency {
                memory,
                observed: AtomicU64::new(0),
                changed_pages_max: AtomicU64::new(u64::MAX),
                remembered: AtomicU64::new(0),
                loads_single_pages: AtomicBool::new(false),
                sweeper: Mutex::new(Sweeper::new(
                    map,
                    process,
                    mapping,
                    extent_bytes,
                    budget_bytes,
                    replacement,
                )),
                _watched: watched,
            }),
            (watched, seen) => {
                let why = seen.err().map_or_else(
                    || format!("cannot install signal handlers (at most {} pools)", watched.iter().len()),
                    |error| error.to_string(),
                );
                tracing::warn!(file = %file.display(), why, "page eviction is disabled: the memory of the pool is not bounded");
                None
            }
        }
    }

    /// Number of changed pages at which a checkpoint starts. Appenders wait at twice as many.
    pub(super) fn changed_pages_max(&self) -> u64 {
        self.changed_pages_max.load(Ordering::Relaxed)
    }

    /// Prevents the eviction of pages while the guard lives.
    pub(super) fn hold(&self) -> impl Drop + '_ {
        self.sweeper.lock()
    }

    fn observe(&self, bytes: u64) {
        let before = self.observed.swap(bytes, Ordering::AcqRel);
        self.memory.observe(MemoryConsumer::PoolPages, before, bytes);
    }

    /// Reports the pool's pages, and what the process has beside them.
    fn observe_all(&self, bytes: u64, sweeper: &Sweeper) {
        self.observe(bytes);
        self.memory.observe_process(sweeper.process_bytes());
    }

    /// Brings the pool down to its part of the budget, if it is above; returns the time until the next check.
    fn look(&self, shared: &JournalState) -> Duration {
        let mapped = shared.mapping.mapped_bytes();
        let target = self.memory.elastic_target_of(self.observed.load(Ordering::Relaxed));
        // Early enough that not all pages have changed when the pool reaches its part.
        let changed = if mapped <= target / 2 { u64::MAX } else { target / 4 / PAGE_BYTES };
        self.changed_pages_max.store(changed.max(CHANGED_PAGES_MIN), Ordering::Relaxed);
        let mut sweeper = self.sweeper.lock();
        if mapped <= target {
            let mut pause = IDLE;
            if mapped <= target / 4 * 3 {
                if self.loads_single_pages.swap(false, Ordering::Relaxed) {
                    sweeper.disable_single_faults(&shared.mapping);
                }
                if sweeper.make_huge(shared) {
                    pause = HUGE_PAUSE;
                }
            }
            let resident = sweeper.estimate_idle(&shared.mapping);
            self.observe_all(resident, &sweeper);
            return pause;
        }
        if !self.loads_single_pages.swap(true, Ordering::Relaxed) {
            sweeper.enable_single_faults(&shared.mapping);
        }
        let mut resident = sweeper.estimate(&shared.mapping);
        let growth = sweeper.growth_per_ms(resident);
        let room = (growth * ROOM_MS).clamp(target / 5, target / 2);
        let (high, low) = (target - room / 2, target - room);
        let mut dropped = true;
        if resident > high {
            (resident, dropped) = sweeper.sweep(shared, low, target);
            if resident > high {
                // What others have taken in the process looks like pages of the pool.
                resident = sweeper.recount_if_cheap(&shared.mapping);
            }
            if resident > high && shared.dirty.count().pages > 0 {
                // The remaining pages have changed: they can be evicted when a checkpoint has written them.
                shared.background.request_checkpoint();
            }
        }
        sweeper.recount_if_calm(&shared.mapping, growth, high.saturating_sub(resident));
        sweeper.note_usage(resident);
        self.remembered.store(sweeper.remembered_bytes(), Ordering::Relaxed);
        self.observe_all(resident, &sweeper);
        let headroom = high.saturating_sub(resident) / FASTEST_BYTES_PER_MS;
        // If no more pages can be evicted, a checkpoint wakes the keeper at its end.
        let pause_ms = if dropped { headroom.clamp(1, LOOK_MS_MAX) } else { WAIT_MS };
        Duration::from_millis(pause_ms)
    }

    /// Evicts all clean pages of the pool; for tests of what may be evicted.
    #[cfg(test)]
    pub(super) fn drop_all_clean(&self, shared: &JournalState) -> u64 {
        self.sweeper.lock().drop_all_clean(shared)
    }

    /// Installs huge pages wherever that is possible; for tests of what that must not change. Returns their
    /// number.
    #[cfg(all(test, not(feature = "mutants")))]
    pub(super) fn make_all_huge(&self, shared: &JournalState) -> u64 {
        self.sweeper.lock().make_all_huge(shared)
    }

    #[cfg(test)]
    pub(super) fn stored_pages(&self, shared: &JournalState) -> u64 {
        self.sweeper.lock().stored_pages(&shared.mapping)
    }
}

impl JournalState {
    /// Returns true while a fault loads one page, and not its neighbours.
    pub(super) fn loads_single_pages(&self) -> bool {
        self.residency.as_ref().is_some_and(|residency| residency.loads_single_pages.load(Ordering::Relaxed))
    }

    /// Reports the memory of marks, checksums and page states to the budget. It grows by some bytes a page,
    /// in the middle of operations that must not fail: pages are evicted for it.
    pub(super) fn count_maps(&self) {
        let Some(maps) = &mut *self.maps.lock() else { return };
        let mapped = self.mapping.mapped_bytes();
        // If the entries are locked, the next call reports them.
        let Some(checksums) = self.checksums.memory_bytes(mapped) else { return };
        let remembered =
            self.residency.as_ref().map_or(0, |residency| residency.remembered.load(Ordering::Relaxed));
        maps.resize_unchecked(self.dirty.memory_bytes(mapped) + checksums + remembered);
    }
}

impl Drop for Residency {
    fn drop(&mut self) {
        self.observe(0);
        // The keepers of other pools report it again.
        self.memory.observe_process(0);
    }
}

impl Shrink for JournalState {
    fn shrink(&self) {
        self.background.wake_keeper();
    }
}

/// Main function of the thread that keeps the pool within its budget.
pub(super) fn keeper(shared: &JournalState) {
    let Some(residency) = &shared.residency else { return };
    // If pages are loaded faster than they are evicted, the budget is exceeded: raises the priority, where
    // the system allows it.
    // SAFETY: sets the priority of this thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
    let mut pause = Duration::ZERO;
    while shared.background.rest(pause) {
        pause = residency.look(shared);
        shared.count_maps();
    }
}

#[cfg(all(test, not(feature = "mutants")))]
mod failures;
#[cfg(test)]
mod tests;
