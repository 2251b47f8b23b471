//! The remainder of opening, done while transactions run: the inner nodes of large indexes, and the
//! allocation maps.
//!
//! A context is open when its states answer. The index of a large state builds its inner nodes as they are
//! needed ([`entresol_structures::FpTree::open_more`]); threads build the others ahead of need, and read all
//! leaves for it. They write nothing. A damaged part is logged and left to later readers, for whom it is an
//! error.
//!
//! The threads end with their work or with the context, which waits for them; a step of theirs takes about a
//! millisecond. A simulated world has none: there parts are loaded on first use.
//!
//! Memory: that of the inner nodes, which the trees need anyway.

use crate::context::state::State;
use entresol_memory::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Parts of an index that are loaded between two checks whether to stop.
const PARTS_PER_STEP: usize = 32;
/// The most threads that open one context.
const THREADS_MAX: usize = 4;

/// Progress of opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningProgress {
    /// Parts of indexes that are not loaded yet; each has the leaves of one inner node.
    pub parts_left: u64,
    /// Parts that were found damaged on the way.
    pub parts_damaged: u64,
    /// Set while threads load parts.
    pub is_running: bool,
}

struct IndexLoader {
    pool: Arc<Pool>,
    states: Vec<Arc<State>>,
    stop: AtomicBool,
    damaged: AtomicU64,
    running: AtomicU64,
}

/// The threads. Dropping it stops them and waits.
pub(crate) struct OpeningThreads {
    work: Arc<IndexLoader>,
    threads: Vec<JoinHandle<()>>,
}

impl OpeningThreads {
    /// Starts threads for those states that need it.
    pub(crate) fn start<'s>(
        pool: &Arc<Pool>,
        states: impl Iterator<Item = &'s Arc<State>>,
    ) -> OpeningThreads {
        let states: Vec<_> = states.filter(|state| state.index.segments_left() > 0).cloned().collect();
        let wanted = if states.is_empty() || pool.env().is_simulated() { 0 } else { THREADS_MAX };
        let here = || std::thread::available_parallelism().map_or(1, usize::from);
        let processors = pool.thread_placement().map_or_else(here, |place| place.cpus().len());
        let count = processors.min(wanted);
        let work = Arc::new(IndexLoader {
            pool: Arc::clone(pool),
            states,
            stop: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            running: AtomicU64::new(count as u64),
        });
        let mut threads = Vec::with_capacity(count);
        for _ in 0..count {
            let own = Arc::clone(&work);
            match pool.env().spawn("entresol-open", move || own.run()) {
                Ok(thread) => threads.push(thread),
                // Parts that they would have loaded ahead are loaded when they are needed.
                Err(error) => {
                    work.running.fetch_sub(1, Ordering::AcqRel);
                    tracing::warn!(%error, "cannot start a thread to load indexes in the background");
                }
            }
        }
        OpeningThreads { work, threads }
    }

    pub(crate) fn progress(&self) -> OpeningProgress {
        OpeningProgress {
            parts_left: self.work.states.iter().map(|state| state.index.segments_left()).sum(),
            parts_damaged: self.work.damaged.load(Ordering::Acquire),
            is_running: self.work.running.load(Ordering::Acquire) > 0,
        }
    }
}

impl Drop for OpeningThreads {
    fn drop(&mut self) {
        self.work.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that loads indexes panicked");
            }
        }
    }
}

impl IndexLoader {
    fn run(&self) {
        let began = Instant::now();
        let is_stopped = || self.stop.load(Ordering::Acquire);
        for state in &self.states {
            while !is_stopped() && self.step(state) {}
        }
        if !is_stopped()
            && let Err(error) = self.pool.read_maps()
        {
            tracing::error!(%error, "allocation maps are damaged");
        }
        // The last one says that all is done.
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            let damaged = self.damaged.load(Ordering::Acquire);
            tracing::debug!(duration_us = began.elapsed().as_micros() as u64, damaged, "indexes loaded");
        }
    }

    /// Opens a few parts; false when there is no more to try.
    fn step(&self, state: &State) -> bool {
        // The guard first: if the state is dropped from here on, its leaves stay until the guard is gone.
        let _guard = state.pool().pin();
        if state.is_dropped() {
            return false;
        }
        match state.index.open_more(PARTS_PER_STEP) {
            Ok(left) => left > 0,
            Err(error) => {
                tracing::error!(state = state.id.0, %error, "a part of an index is damaged");
                self.damaged.fetch_add(1, Ordering::AcqRel);
                true
            }
        }
    }
}
