//! The crash checker: runs a history on the `crashing` domain and, before every fence, looks at states that a
//! power failure could leave there.
//!
//! ```
//! use entresol_memory::crash::{CrashOptions, check};
//! use entresol_memory::{Pool, Result};
//! use std::sync::Arc;
//! use std::sync::atomic::Ordering;
//!
//! // Two words that must change together: b only ever follows a.
//! let report = check(
//!     &CrashOptions::default(),
//!     |pool: &Arc<Pool>| {
//!         let object = pool.reserve(128)?;
//!         let at = object.offset();
//!         pool.words(at, 16).iter().for_each(|w| w.store(0, Ordering::Relaxed));
//!         pool.flush(at, 128);
//!         let mut publication = pool.publication();
//!         publication.allocate(object);
//!         publication.set_root("pair", at)?;
//!         publication.publish()?;
//!         for round in 1..20 {
//!             for word in [at, at + 64] {
//!                 pool.words(word, 1)[0].store(round, Ordering::Release);
//!                 pool.flush(word, 8);
//!                 pool.fence();
//!             }
//!         }
//!         Ok(())
//!     },
//!     |pool: &Arc<Pool>| {
//!         let Some(at) = pool.root("pair") else { return Ok(()) };
//!         let read = |offset| pool.words(offset, 1)[0].load(Ordering::Acquire);
//!         let (a, b) = (read(at), read(at + 64));
//!         if a == b || a == b + 1 { Ok(()) } else { Err(format!("a = {a}, b = {b}")) }
//!     },
//! ).unwrap();
//! assert!(report.states > 100);
//! ```
//!
//! Memory: one pool image per state, one at a time; keep the history's pool small
//! ([`CrashOptions::extent_bytes`]).

use crate::env::Env;
use crate::error::{Error, Result};
use crate::layout::EXTENT_BYTES_MIN;
use crate::mapping::Mapping;
use crate::pool::{Pool, PoolOptions};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Called before every fence of an observed pool; see [`Pool::crashing`].
pub type Observer = Box<dyn FnMut(&CrashPoint<'_>) + Send>;

/// A moment at which the power could fail.
pub struct CrashPoint<'a> {
    fence: u64,
    persisted: &'a [u64],
    noted: &'a [(u32, u64)],
    mapping: &'a Mapping,
}

/// Which of the words that may survive do survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// Only what was fenced.
    Fenced,
    /// What was fenced and flushed.
    Flushed,
    /// All that was stored: every cache line was evicted just in time.
    Everything,
    /// What was fenced and all that was stored but not flushed: the newest without the flushed.
    OnlyEvicted,
    /// A random subset of the flushed and of the stored words, from this seed.
    Random(u64),
}

impl<'a> CrashPoint<'a> {
    pub(crate) fn new(
        fence: u64,
        persisted: &'a [u64],
        noted: &'a [(u32, u64)],
        mapping: &'a Mapping,
    ) -> CrashPoint<'a> {
        CrashPoint { fence, persisted, noted, mapping }
    }

    /// The number of the fence that was about to happen, from 1.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The pool image that a crash here leaves.
    pub fn image(&self, survivors: Survivors) -> Vec<u64> {
        let mut image = self.persisted.to_vec();
        let mut random = match survivors {
            Survivors::Random(seed) => Some(Env::simulated(seed ^ self.fence.rotate_left(40))),
            _ => None,
        };
        // Each random state has its own density, so that "nearly all" and "nearly none" come up as well.
        let density = random.as_ref().map_or(0, |env| env.random_u64() % 9);
        let mut lives = |kept: bool| match &mut random {
            Some(env) => env.random_u64() % 8 < density,
            None => kept,
        };
        let flushed = matches!(survivors, Survivors::Flushed | Survivors::Everything);
        for &(index, value) in self.noted {
            if lives(flushed) {
                image[index as usize] = value;
            }
        }
        let evicted = matches!(survivors, Survivors::Everything | Survivors::OnlyEvicted);
        let noted_not_evicted = survivors == Survivors::OnlyEvicted;
        let working = self.mapping.words(0, image.len());
        for (index, word) in working.iter().enumerate() {
            let value = word.load(Ordering::Acquire);
            if value != image[index] && lives(evicted) {
                let noted = noted_not_evicted && self.noted.iter().any(|(i, _)| *i as usize == index);
                if !noted {
                    image[index] = value;
                }
            }
        }
        image
    }
}

/// How thoroughly [`check`] looks.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    /// Randomness of subsets; printed when a check fails.
    pub seed: u64,
    /// Random subsets per fence, beside the four extreme ones.
    pub random_states: u32,
    /// At every n-th fence, crash again during the recoveries, at each of their fences; 0: never.
    pub crash_recovery_every: u64,
    /// Size of the pool's extents: the history's data should fit one or two.
    pub extent_bytes: u64,
}

impl Default for CrashOptions {
    fn default() -> Self {
        CrashOptions { seed: 1, random_states: 3, crash_recovery_every: 5, extent_bytes: EXTENT_BYTES_MIN }
    }
}

/// What a passed check looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Fences of the history.
    pub fences: u64,
    /// States that were recovered and verified.
    pub states: u64,
    /// States left by crashes during recovery, of these.
    pub recovery_states: u64,
}

#[derive(Default)]
struct Findings {
    report: CrashReport,
    failure: Option<String>,
}

/// Runs `history` on a fresh crashing pool; for states at every fence opens the left image (which runs the
/// pool's own recovery) and calls `verify` on it. A failed verification ends with an error that names the
/// fence and the seed.
pub fn check(
    options: &CrashOptions,
    history: impl FnOnce(&Arc<Pool>) -> Result<()>,
    verify: impl Fn(&Arc<Pool>) -> std::result::Result<(), String> + Send + Sync + 'static,
) -> Result<CrashReport> {
    let findings = Arc::new(Mutex::new(Findings::default()));
    let verify: Verify = Arc::new(verify);
    let observer: Observer = {
        let (findings, verify, options) = (findings.clone(), verify.clone(), options.clone());
        Box::new(move |point| examine(point, &options, &verify, &findings, 0))
    };
    let pool_options = PoolOptions {
        extent_bytes: options.extent_bytes,
        address_space_bytes: 64 << 20,
        env: Env::simulated(options.seed),
        ..PoolOptions::default()
    };
    let pool = Pool::crashing(&pool_options, None, Some(observer))?;
    let outcome = history(&pool);
    drop(pool);
    let findings = findings.lock();
    if let Some(failure) = &findings.failure {
        return Err(Error::Invalid(format!("crash check failed: {failure} (seed {})", options.seed)));
    }
    outcome.map(|()| findings.report)
}

type Verify = Arc<dyn Fn(&Arc<Pool>) -> std::result::Result<(), String> + Send + Sync>;

/// Recovers and verifies states at one crash point; `depth` counts crashes during recovery.
fn examine(
    point: &CrashPoint<'_>,
    options: &CrashOptions,
    verify: &Verify,
    findings: &Arc<Mutex<Findings>>,
    depth: u32,
) {
    if findings.lock().failure.is_some() {
        return;
    }
    if depth == 0 {
        findings.lock().report.fences = point.fence();
    }
    let mut survivors =
        vec![Survivors::Fenced, Survivors::Flushed, Survivors::Everything, Survivors::OnlyEvicted];
    // Below the first level the extremes alone: the states multiply.
    let random_states = if depth == 0 { options.random_states } else { 0 };
    survivors.extend((0..u64::from(random_states)).map(|i| Survivors::Random(options.seed ^ i << 32)));
    for survivor in survivors {
        let every = options.crash_recovery_every;
        let crash_again = depth == 0 && every > 0 && point.fence().is_multiple_of(every);
        let observer: Option<Observer> = crash_again.then(|| {
            let (findings, verify, options) = (findings.clone(), verify.clone(), options.clone());
            let observe: Observer =
                Box::new(move |inner: &CrashPoint<'_>| examine(inner, &options, &verify, &findings, 1));
            observe
        });
        let verdict = recover_and_verify(point.image(survivor), options, verify, observer);
        let mut findings = findings.lock();
        findings.report.states += 1;
        findings.report.recovery_states += u64::from(depth > 0);
        if let Err(what) = verdict {
            let level = if depth == 0 { "" } else { " of a recovery" };
            findings.failure =
                Some(format!("before fence {}{level}, survivors {survivor:?}: {what}", point.fence()));
            return;
        }
    }
}

fn recover_and_verify(
    image: Vec<u64>,
    options: &CrashOptions,
    verify: &Verify,
    observer: Option<Observer>,
) -> std::result::Result<(), String> {
    let pool_options = PoolOptions {
        extent_bytes: options.extent_bytes,
        address_space_bytes: 64 << 20,
        env: Env::simulated(options.seed),
        ..PoolOptions::default()
    };
    let pool = Pool::crashing(&pool_options, Some(image), observer).map_err(|e| e.to_string())?;
    verify(&pool)
}
