//! Running a phase: threads that start together, slices of operations, a clock between slices.

use super::phases::Phase;
use crate::Error;
use crate::peers::{Class, GROUP_MS, Store};
use crate::workload::{Op, Tally};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Operations between two looks at the clock; also what LMDB and redb commit at once where nothing is synced.
const SLICE: usize = 1000;
/// Operations of a slice where every write is synced.
const SLICE_SYNCED: usize = 8;

/// Duration limits of a phase.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// It goes through its operations again until then, if it may.
    pub(super) least: Duration,
    /// It ends then, done or not.
    pub(super) most: Duration,
}

/// Result of a phase.
pub(super) struct PhaseTiming {
    pub(super) operations: u64,
    pub(super) seconds: f64,
    pub(super) tally: Tally,
    /// Of the first slice of the first thread.
    pub(super) first: Tally,
    /// True if time was up before all operations were done once.
    pub(super) is_stopped: bool,
}

struct ThreadTiming {
    operations: u64,
    started: Instant,
    ended: Instant,
    tally: Tally,
    first: Tally,
}

/// Runs a phase on a store.
pub(super) fn run(
    store: &dyn Store,
    phase: &Phase,
    class: Class,
    limits: Limits,
) -> Result<PhaseTiming, Error> {
    let share = phase.ops.len().div_ceil(phase.threads).max(1);
    let barrier = Barrier::new(phase.threads);
    let over = AtomicBool::new(false);
    let syncing = Mutex::new(Ok(()));
    let ran = std::thread::scope(|scope| {
        if class == Class::Group && !store.syncs_by_itself() {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(u64::from(GROUP_MS)));
                    if let Err(error) = store.sync() {
                        *syncing.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                        return;
                    }
                }
            });
        }
        let threads: Vec<_> = phase
            .ops
            .chunks(share)
            .map(|ops| scope.spawn(|| one_thread(store, phase, ops, class, limits, &barrier)))
            .collect();
        let ran: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a racing thread does not panic"))
            .collect();
        over.store(true, Ordering::Relaxed);
        ran.into_iter().collect::<Result<Vec<ThreadTiming>, Error>>()
    })?;
    syncing.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let start = ran.iter().map(|ran| ran.started).min().expect("there is a thread");
    let end = ran.iter().map(|ran| ran.ended).max().expect("there is a thread");
    let mut tally = Tally::default();
    ran.iter().for_each(|ran| tally.add(ran.tally));
    Ok(PhaseTiming {
        operations: ran.iter().map(|ran| ran.operations).sum(),
        seconds: (end - start).as_secs_f64(),
        tally,
        first: ran[0].first,
        is_stopped: ran.iter().map(|ran| ran.operations).sum::<u64>() < phase.ops.len() as u64,
    })
}

fn one_thread(
    store: &dyn Store,
    phase: &Phase,
    ops: &[Op],
    class: Class,
    limits: Limits,
    barrier: &Barrier,
) -> Result<ThreadTiming, Error> {
    let session = store.session();
    // Even a thread that could not begin must not keep the others waiting.
    barrier.wait();
    let mut session = session?;
    let slice = if class == Class::Sync { SLICE_SYNCED } else { SLICE };
    let started = Instant::now();
    let mut ran = ThreadTiming {
        operations: 0,
        started,
        ended: started,
        tally: Tally::default(),
        first: Tally::default(),
    };
    loop {
        for ops in ops.chunks(slice) {
            match (phase.many, phase.writes) {
                (true, true) => session.write_many(ops, &mut ran.tally)?,
                (true, false) => session.get_many(ops, &mut ran.tally)?,
                (false, _) => session.run(ops, &mut ran.tally)?,
            }
            if ran.operations == 0 {
                ran.first = ran.tally;
            }
            ran.operations += ops.len() as u64;
            ran.ended = Instant::now();
            if ran.ended - started >= limits.most {
                return Ok(ran);
            }
        }
        if !phase.repeats || ran.ended - started >= limits.least {
            return Ok(ran);
        }
    }
}
