//! Crash checker: runs a history on the `crashing` domain and checks, before every fence and at the end, the
//! states that a power failure could leave there.
//!
//! The states of a crash point are what was fenced, with any subset of the words that were flushed and not
//! fenced, and of the words that were stored and not flushed, each word on its own or cache line by cache
//! line; a word that was flushed several times has any of those values. All of these states are checked where
//! they are few, otherwise the extreme and adversarial ones and random ones from a seed ([`Survivors`]).
//! Every state is opened, which runs the pool's recovery, and judged; at some points the power fails again
//! during these recoveries.
//!
//! A [`Recorder`] follows the operations of a history, and judges whether a state holds exactly those, with
//! or without the operation in flight. [`ConcurrentRecorder`] does the same for several threads: a state must be the
//! result of some order of the operations (durable linearizability). [`take_turns`] runs threads one at a
//! time, interleaved from a seed.
//!
//! ```
//! use entresol_memory::crash::{CrashOptions, MapOperation, Recorder, check_at};
//! use entresol_memory::{Pool, Result};
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//! use std::sync::atomic::Ordering;
//!
//! // Sixty-four counters, each changed in place by one store.
//! let recorder = Recorder::new(BTreeMap::new());
//! let report = check_at(
//!     &CrashOptions::default(),
//!     |pool: &Arc<Pool>| {
//!         let object = pool.reserve(512)?;
//!         let at = object.offset();
//!         pool.words(at, 64).iter().for_each(|word| word.store(0, Ordering::Relaxed));
//!         pool.flush(at, 512);
//!         let mut publication = pool.publication();
//!         publication.allocate(object);
//!         publication.set_root("counters", at)?;
//!         publication.publish()?;
//!         for round in 1..20 {
//!             let counter = round * 7 % 64;
//!             recorder.run(MapOperation::Put(counter, round), || {
//!                 pool.word(at.plus(8 * counter)).store(round, Ordering::Release);
//!                 pool.flush(at.plus(8 * counter), 8);
//!                 pool.fence();
//!             });
//!         }
//!         Ok(())
//!     },
//!     recorder.legal_contents(),
//!     |pool, legal| {
//!         let Some(at) = pool.root("counters") else { return legal.judge(&BTreeMap::new()) };
//!         let words = pool.words(at, 64).iter().map(|word| word.load(Ordering::Acquire));
//!         legal.judge(&(0..).zip(words).filter(|(_, count)| *count != 0).collect())
//!     },
//! )
//! .unwrap();
//! assert!(report.explored(100));
//! ```
//!
//! Failures name a command that checks the failing state alone ([`REPLAY`]).
//!
//! Memory: two pool images for each worker and depth; keep the history's pool small
//! ([`CrashOptions::extent_bytes`]). Eight bytes for each distinct image.

mod choice;
mod concurrent;
mod explorer;
mod point;
mod recorder;
mod replay;
mod stack;
pub(crate) mod turns;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::layout::EXTENT_BYTES_MIN;
use crate::pool::{Pool, PoolOptions};
use explorer::{Explorer, panic_text};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use concurrent::{ConcurrentRecorder, LegalValues, apply_to_key};
pub use point::{CrashPoint, Survivors};
pub use recorder::{LegalContents, MapOperation, Model, Recorder};
pub use replay::REPLAY;
pub use stack::check_stack;
pub use turns::{take_turns, waits};

/// Callback before every fence of an observed pool; see [`Pool::crashing`].
pub type Observer = Box<dyn FnMut(&CrashPoint<'_>) + Send>;

type Judge<C> = Arc<dyn Fn(&Arc<Pool>, &C) -> std::result::Result<(), String> + Send + Sync>;

/// Environment variable that requests large sizes: a number, such as 1 or 0.05, that [`seeds`] multiplies by
/// 100.
pub const SOAK: &str = "ENTRESOL_SOAK";

/// Thoroughness of [`check`].
#[derive(Debug, Clone)]
pub struct CrashOptions {
    /// Seed of random subsets; printed when a check fails.
    pub seed: u64,
    /// Maximum number of states of a point at which all of them are checked.
    pub exhaustive_states_max: u64,
    /// Approximate number of adversarial states at other points, beside the extreme ones.
    pub adversarial_states_max: u32,
    /// Number of random states at other points.
    pub random_states: u32,
    /// Interval, in fences, of crashes during the recoveries, at each of their fences; 0: never.
    pub crash_recovery_every: u64,
    /// Number of crashes of a recovery in a row.
    pub recovery_depth: u32,
    /// Size of the pool's extents: the history's data should fit one or two.
    pub extent_bytes: u64,
    /// Number of threads that check states; 0: as many as there are processors, at most 4.
    pub workers: usize,
}

impl Default for CrashOptions {
    fn default() -> Self {
        CrashOptions {
            seed: 1,
            exhaustive_states_max: 1 << 7,
            adversarial_states_max: 16,
            random_states: 8,
            crash_recovery_every: 5,
            recovery_depth: 1,
            extent_bytes: EXTENT_BYTES_MIN,
            workers: 0,
        }
    }
}

impl CrashOptions {
    /// Default options with another seed.
    pub fn with_seed(seed: u64) -> CrashOptions {
        CrashOptions { seed, ..CrashOptions::default() }
    }

    fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(4),
            workers => workers,
        }
    }
}

/// Summary of a passed check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Number of fences of the history.
    pub fences: u64,
    /// Number of crash points: fences, ends, and fences of recoveries.
    pub points: u64,
    /// Number of points at which every state was checked.
    pub exhaustive_points: u64,
    /// Number of states that were recovered and judged. At one point each state counts once.
    pub states: u64,
    /// Number of these states that crashes during recovery left.
    pub recovery_states: u64,
    /// Number of different pool images among the states: the same image can be left at several points, and
    /// has to be judged at each, because different operations have returned.
    pub distinct: u64,
    /// True if only the state that [`REPLAY`] names was checked.
    pub replayed: bool,
}

impl CrashReport {
    /// Returns true if at least `states` states were checked; true for a replay.
    pub fn explored(&self, states: u64) -> bool {
        self.replayed || self.states >= states
    }

    /// Adds the report of another check.
    pub fn add(&mut self, other: &CrashReport) {
        self.fences += other.fences;
        self.points += other.points;
        self.exhaustive_points += other.exhaustive_points;
        self.states += other.states;
        self.recovery_states += other.recovery_states;
        self.distinct += other.distinct;
        self.replayed |= other.replayed;
    }
}

/// Value of [`SOAK`], if it is set.
pub(crate) fn soak_factor() -> Option<f64> {
    let factor: f64 = std::env::var(SOAK).ok()?.parse().ok()?;
    (factor > 0.0).then_some(factor)
}

/// Seeds of a test's histories: `1..=count`, or a hundred times as many for each unit of [`SOAK`].
pub fn seeds(count: u64) -> std::ops::RangeInclusive<u64> {
    let times = soak_factor().map_or(1.0, |factor| (factor * 100.0).max(1.0));
    1..=(count as f64 * times).round() as u64
}

/// Runs one check for each seed of [`seeds`] and adds the reports up, printing progress. Stops at the first
/// failure.
pub fn check_seeds(
    name: &str,
    count: u64,
    mut one: impl FnMut(u64) -> Result<CrashReport>,
) -> Result<CrashReport> {
    let started = std::time::Instant::now();
    let mut total = CrashReport::default();
    let seeds = seeds(count);
    let last = *seeds.end();
    for seed in seeds {
        total.add(&one(seed)?);
        // About twenty lines, however long it takes.
        if seed == last || seed.is_multiple_of((last / 20).max(1)) {
            let seconds = started.elapsed().as_secs_f64();
            let per_minute = total.states as f64 / seconds * 60.0;
            let left_s = seconds / seed as f64 * (last - seed) as f64;
            println!(
                "{name}: seed {seed} of {last} after {seconds:.0} s, {left_s:.0} s to go, {per_minute:.0} states/min, {total:?}"
            );
        }
    }
    Ok(total)
}

/// Runs `history` on a fresh crashing pool; opens states at every fence and at the end (which runs the pool's
/// own recovery) and calls `verify` on each. A failed or panicking verification is an error that names the
/// fence, the survivors and the seed.
pub fn check(
    options: &CrashOptions,
    history: impl FnOnce(&Arc<Pool>) -> Result<()>,
    verify: impl Fn(&Arc<Pool>) -> std::result::Result<(), String> + Send + Sync + 'static,
) -> Result<CrashReport> {
    check_at(options, history, || (), move |pool, ()| verify(pool))
}

/// As [`check`]; `legal_contents` is called once at each crash point of the history, in the thread that fences, and
/// its result is passed to `verify` with each state of that point. It must not wait for threads of the
/// history.
pub fn check_at<C: Send + Sync + 'static>(
    options: &CrashOptions,
    history: impl FnOnce(&Arc<Pool>) -> Result<()>,
    legal_contents: impl Fn() -> C + Send + 'static,
    verify: impl Fn(&Arc<Pool>, &C) -> std::result::Result<(), String> + Send + Sync + 'static,
) -> Result<CrashReport> {
    let explorer = Arc::new(Explorer::new(options, Arc::new(verify)));
    if explorer.is_other_seed() {
        return Ok(CrashReport { replayed: true, ..CrashReport::default() });
    }
    let observer: Observer = {
        let explorer = Arc::clone(&explorer);
        Box::new(move |point| explorer.history_point(point, legal_contents()))
    };
    let pool = Pool::crashing(&pool_options(options), None, Some(observer))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| history(&pool)));
    if let Ok(Ok(())) = outcome {
        pool.observe_crash();
    }
    drop(pool);
    let report = explorer.finish().map_err(|what| Error::Invalid(format!("crash check failed: {what}")))?;
    match outcome {
        Ok(outcome) => outcome.map(|()| report),
        Err(panic) => {
            let what = panic_text(&*panic);
            Err(Error::Invalid(format!("crash check failed: the history {what} (seed {})", options.seed)))
        }
    }
}

fn pool_options(options: &CrashOptions) -> PoolOptions {
    PoolOptions {
        extent_bytes: options.extent_bytes,
        address_space_bytes: 64 << 20,
        env: Env::simulated(options.seed),
        ..PoolOptions::default()
    }
}
