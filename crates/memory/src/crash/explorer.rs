//! Exploring the states of crash points: each is laid out in a pool of its own, recovered, and judged.
//!
//! There is a pool's memory ([`Replica`]) for each worker and depth, reused from state to state: a state
//! differs from the history's persisted image in a few words, and the changes of a recovery are found by
//! comparing the blocks that it has touched. The image itself follows the fences of the history. The history
//! stands still while its states are checked, so a verification may read what the history has done.

use super::choice::{StateLimits, survivors};
use super::point::{Changes, CrashPoint, Survivors, mix};
use super::replay::{Trail, command};
use super::{CrashOptions, CrashReport, Judge, Observer, pool_options};
use crate::domain::crashing::Image;
use crate::mapping::Mapping;
use crate::pool::Pool;
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of states from which on a point is explored by several threads.
const PARALLEL_STATES_MIN: usize = 12;

/// Check in progress.
pub(super) struct Explorer<C> {
    options: CrashOptions,
    judge: Judge<C>,
    replay: Option<Trail>,
    /// Name of the test, taken from its thread.
    test: Option<String>,
    /// Replicas per worker, per depth.
    lanes: Vec<Vec<Mutex<Option<Replica>>>>,
    failed: AtomicBool,
    /// All words that the history has fenced, in order.
    log: RwLock<FenceLog>,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct FenceLog {
    fenced: Vec<(u32, u64)>,
    /// Hash of the persisted image: the sum of its words' hashes.
    hash: u64,
}

#[derive(Default)]
struct Findings {
    report: CrashReport,
    images: HashSet<u64>,
    failure: Option<String>,
}

/// State to check.
struct CrashState {
    survivors: Survivors,
    changes: Changes,
}

impl<C: Send + Sync + 'static> Explorer<C> {
    pub(super) fn new(options: &CrashOptions, judge: Judge<C>) -> Explorer<C> {
        let depths = options.recovery_depth as usize + 1;
        let lanes = (0..options.workers()).map(|_| (0..depths).map(|_| Mutex::new(None)).collect()).collect();
        Explorer {
            options: options.clone(),
            judge,
            replay: Trail::from_environment(),
            test: std::thread::current().name().map(str::to_string),
            lanes,
            failed: AtomicBool::new(false),
            log: RwLock::default(),
            findings: Mutex::default(),
        }
    }

    /// Returns true if the environment names a state of another seed.
    pub(super) fn is_other_seed(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.seed != self.options.seed)
    }

    /// Returns the report, or the failure and the command that reproduces it.
    pub(super) fn finish(&self) -> Result<CrashReport, String> {
        let findings = self.findings.lock();
        let report = CrashReport {
            distinct: findings.images.len() as u64,
            replayed: self.replay.is_some(),
            ..findings.report
        };
        findings.failure.clone().map_or(Ok(report), Err)
    }

    /// Explores a crash of the history.
    pub(super) fn history_point(self: &Arc<Self>, point: &CrashPoint<'_>, context: C) {
        self.findings.lock().report.fences = point.fence();
        {
            let log = &mut *self.log.write();
            for &(index, before, after) in point.fenced() {
                log.fenced.push((index, after));
                log.hash =
                    log.hash.wrapping_add(word_hash(index, after)).wrapping_sub(word_hash(index, before));
            }
        }
        let trail = Trail { seed: self.options.seed, crashes: Vec::new() };
        let Some(states) = self.states(point, &trail) else { return };
        let context = Arc::new(context);
        let next = AtomicUsize::new(0);
        let work = |lane: usize| self.work(lane, point, &states, &next, &trail, &context);
        if states.len() < PARALLEL_STATES_MIN || self.lanes.len() == 1 {
            return work(0);
        }
        std::thread::scope(|scope| {
            for lane in 1..self.lanes.len() {
                let work = &work;
                scope.spawn(move || work(lane));
            }
            work(0);
        });
    }

    /// States to check, each once; none if [`REPLAY`](super::REPLAY) names another point.
    fn states(&self, point: &CrashPoint<'_>, trail: &Trail) -> Option<Vec<CrashState>> {
        let depth = trail.crashes.len();
        if self.failed.load(Ordering::Acquire) {
            return None;
        }
        if let Some(replay) = &self.replay {
            let crash = replay.crashes.get(depth).filter(|crash| crash.fence == point.fence())?;
            let survivors = crash.survivors;
            return Some(vec![CrashState { survivors, changes: point.changes(survivors) }]);
        }
        let (chosen, exhaustive) =
            survivors(point, &StateLimits::of(&self.options, depth), self.options.seed);
        let mut seen = HashSet::with_capacity(chosen.len());
        let states = chosen.into_iter().map(|s| CrashState { survivors: s, changes: point.changes(s) });
        let states = states.filter(|state| seen.insert(hash(point.base(), &state.changes))).collect();
        let report = &mut self.findings.lock().report;
        report.points += 1;
        report.exhaustive_points += u64::from(exhaustive);
        Some(states)
    }

    fn work(
        self: &Arc<Self>,
        lane: usize,
        point: &CrashPoint<'_>,
        states: &[CrashState],
        next: &AtomicUsize,
        trail: &Trail,
        context: &Arc<C>,
    ) {
        let mut replica = self.lanes[lane][trail.crashes.len()].lock();
        let log = self.log.read();
        let mut image = match replica.take().map_or_else(|| Replica::new(point, &self.options), Ok) {
            Ok(replica) => replica,
            Err(what) => return self.fail(trail, &what),
        };
        if let Err(what) = image.follow(&log.fenced, point.base().len()) {
            return self.fail(trail, &what);
        }
        let base_hash = log.hash;
        drop(log);
        while let Some(state) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
            if self.failed.load(Ordering::Acquire) {
                return;
            }
            let trail = trail.with(point.fence(), state.survivors);
            let verdict = image
                .lay_out(point.length(), &state.changes)
                .and_then(|()| self.recover_and_judge(lane, &image.mapping, point, state, &trail, context))
                .and_then(|()| image.restore(point.base()));
            if let Err(what) = verdict {
                return self.fail(&trail, &what);
            }
            let mut findings = self.findings.lock();
            findings.images.insert(base_hash.wrapping_add(hash(point.base(), &state.changes)));
            findings.report.states += 1;
            findings.report.recovery_states += u64::from(trail.crashes.len() > 1);
        }
        *replica = Some(image);
    }

    fn recover_and_judge(
        self: &Arc<Self>,
        lane: usize,
        mapping: &Arc<Mapping>,
        point: &CrashPoint<'_>,
        state: &CrashState,
        trail: &Trail,
        context: &Arc<C>,
    ) -> Result<(), String> {
        let observed = self.crashes_again(trail).then(|| {
            let (explorer, trail, context) = (Arc::clone(self), trail.clone(), Arc::clone(context));
            let observe: Observer = Box::new(move |point: &CrashPoint<'_>| {
                if let Some(states) = explorer.states(point, &trail) {
                    explorer.work(lane, point, &states, &AtomicUsize::new(0), &trail, &context);
                }
            });
            (observe, Image::over(point.base(), &state.changes, point.length()))
        });
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let pool = Pool::crashing_in(&pool_options(&self.options), Arc::clone(mapping), observed);
            (self.judge)(&pool.map_err(|error| error.to_string())?, context)
        }));
        judged.unwrap_or_else(|panic| Err(panic_text(&*panic)))
    }

    /// Returns true if the recovery from a crash is itself to crash.
    fn crashes_again(&self, trail: &Trail) -> bool {
        let depth = trail.crashes.len();
        if let Some(replay) = &self.replay {
            return replay.crashes.len() > depth;
        }
        let every = self.options.crash_recovery_every;
        depth <= self.options.recovery_depth as usize
            && every > 0
            && trail.crashes[0].fence.is_multiple_of(every)
    }

    fn fail(&self, trail: &Trail, what: &str) {
        self.failed.store(true, Ordering::Release);
        let mut findings = self.findings.lock();
        let places: Vec<String> = trail
            .crashes
            .iter()
            .map(|crash| format!("before fence {}, survivors {}", crash.fence, crash.survivors))
            .collect();
        let failure = format!(
            "after {} states, {}: {what} (seed {}). Again, alone:\n{}",
            findings.report.states,
            places.join(", then during the recovery "),
            trail.seed,
            command(trail, self.test.as_deref())
        );
        findings.failure.get_or_insert(failure);
    }
}

/// Message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("panicked: {text}")
}

fn word_hash(index: u32, value: u64) -> u64 {
    // Zero words count nothing, so that the length of an image does not matter.
    if value == 0 { 0 } else { mix(value ^ mix(u64::from(index) + 1)) }
}

/// Change of an image's hash by changes of its words.
fn hash(base: &[u64], changes: &Changes) -> u64 {
    changes.iter().fold(0, |sum: u64, &(index, value)| {
        let before = word_hash(index, base.get(index as usize).copied().unwrap_or(0));
        sum.wrapping_add(word_hash(index, value)).wrapping_sub(before)
    })
}

/// Memory of a pool that holds the history's persisted image between states.
struct Replica {
    mapping: Arc<Mapping>,
    /// Number of the history's fenced words that it includes.
    followed: usize,
}

impl Replica {
    /// Replica of the first image: all words that were never fenced.
    fn new(point: &CrashPoint<'_>, options: &CrashOptions) -> Result<Replica, String> {
        let wrong = |error: std::io::Error| format!("the memory of a replica: {error}");
        let mapping = Mapping::reserve_tracked(pool_options(options).address_space_bytes).map_err(wrong)?;
        mapping.grow_zeroed(point.base().len() as u64 * 8).map_err(wrong)?;
        let mut replica = Replica { mapping: Arc::new(mapping), followed: 0 };
        replica.exclusive(|words| words.copy_from_slice(point.base()))?;
        Ok(replica)
    }

    fn exclusive<T>(&mut self, work: impl FnOnce(&mut [u64]) -> T) -> Result<T, String> {
        let mapping = Arc::get_mut(&mut self.mapping);
        mapping.map(|mapping| work(mapping.exclusive_words())).ok_or_else(|| KEPT.to_string())
    }

    /// Applies the words that the history has fenced since.
    fn follow(&mut self, fenced: &[(u32, u64)], words: usize) -> Result<(), String> {
        self.grow(words)?;
        let news = &fenced[self.followed..];
        self.followed = fenced.len();
        self.exclusive(|words| news.iter().for_each(|(index, value)| words[*index as usize] = *value))
    }

    /// Lays a state out: a pool of this length that differs from the persisted image in these words.
    fn lay_out(&mut self, words: usize, changes: &Changes) -> Result<(), String> {
        self.grow(words)?;
        for &(index, value) in changes {
            self.mapping.words(u64::from(index) * 8, 1)[0].store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    fn grow(&mut self, words: usize) -> Result<(), String> {
        self.mapping
            .grow_zeroed(words as u64 * 8)
            .map_err(|error| format!("the memory of a replica: {error}"))
    }

    /// Restores the persisted image.
    fn restore(&mut self, base: &[u64]) -> Result<(), String> {
        let mapping = Arc::get_mut(&mut self.mapping).ok_or(KEPT)?;
        mapping.shrink_to(base.len() as u64 * 8);
        let touched = mapping.touched_words();
        let words = mapping.exclusive_words();
        for range in touched {
            words[range.clone()].copy_from_slice(&base[range]);
        }
        mapping.forget_touched();
        Ok(())
    }
}

const KEPT: &str = "the verification retains a pool; it must drop every pool that it opened";
