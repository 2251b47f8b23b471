//! Looking at the states of crash points: each is laid out in a pool of its own, recovered, and judged.
//!
//! There is a pool's memory ([`Replica`]) for each worker and depth, reused from state to state: a state
//! differs from the persisted image in a few words, and what a recovery changed is found by comparing blocks.
//! The history stands still while its states are looked at, so whatever judges them may read what the history
//! has done.

use super::choice::{Caps, survivors};
use super::point::{Changes, CrashPoint, Survivors, mix};
use super::replay::{Trail, command};
use super::{CrashOptions, CrashReport, Judge, Observer, pool_options};
use crate::mapping::Mapping;
use crate::pool::Pool;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// From how many states on a point is worth several threads.
const PARALLEL_STATES_MIN: usize = 12;
/// Words that are compared together.
const BLOCK_WORDS: usize = 512;

/// A check that is under way.
pub(super) struct Explorer<C> {
    options: CrashOptions,
    judge: Judge<C>,
    replay: Option<Trail>,
    /// The name of the test, as its thread has it.
    test: Option<String>,
    /// Per worker, per depth.
    lanes: Vec<Vec<Mutex<Option<Replica>>>>,
    failed: AtomicBool,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    report: CrashReport,
    images: HashSet<u64>,
    failure: Option<String>,
}

/// A state to look at.
struct State {
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
            replay: Trail::asked_for(),
            test: std::thread::current().name().map(str::to_string),
            lanes,
            failed: AtomicBool::new(false),
            findings: Mutex::default(),
        }
    }

    /// Whether the environment asks for a state of another seed.
    pub(super) fn is_not_asked_for(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.seed != self.options.seed)
    }

    /// The report, or what failed and how to see it again.
    pub(super) fn finish(&self) -> Result<CrashReport, String> {
        let findings = self.findings.lock();
        let report = CrashReport {
            distinct: findings.images.len() as u64,
            replayed: self.replay.is_some(),
            ..findings.report
        };
        findings.failure.clone().map_or(Ok(report), Err)
    }

    /// Looks at a crash of the history.
    pub(super) fn history_point(self: &Arc<Self>, point: &CrashPoint<'_>, context: C) {
        self.findings.lock().report.fences = point.fence();
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

    /// The states to look at, each once; none if this point is not asked for.
    fn states(&self, point: &CrashPoint<'_>, trail: &Trail) -> Option<Vec<State>> {
        let depth = trail.crashes.len();
        if self.failed.load(Ordering::Acquire) {
            return None;
        }
        if let Some(replay) = &self.replay {
            let crash = replay.crashes.get(depth).filter(|crash| crash.fence == point.fence())?;
            let survivors = crash.survivors;
            return Some(vec![State { survivors, changes: point.changes(survivors) }]);
        }
        let (chosen, exhaustive) =
            survivors(point, &Caps::of(&self.options, depth), self.options.seed);
        let mut seen = HashSet::with_capacity(chosen.len());
        let states = chosen.into_iter().map(|s| State { survivors: s, changes: point.changes(s) });
        let states = states.filter(|state| seen.insert(hash(point.persisted(), &state.changes))).collect();
        let report = &mut self.findings.lock().report;
        report.points += 1;
        report.exhaustive_points += u64::from(exhaustive);
        Some(states)
    }

    fn work(
        self: &Arc<Self>,
        lane: usize,
        point: &CrashPoint<'_>,
        states: &[State],
        next: &AtomicUsize,
        trail: &Trail,
        context: &Arc<C>,
    ) {
        let mut replica = self.lanes[lane][trail.crashes.len()].lock();
        let replica = match &mut *replica {
            Some(replica) => replica,
            none => match Replica::new(&self.options) {
                Ok(replica) => none.insert(replica),
                Err(what) => return self.fail(trail, &what),
            },
        };
        if let Err(what) = replica.rebase(point.persisted(), &self.options) {
            return self.fail(trail, &what);
        }
        while let Some(state) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
            if self.failed.load(Ordering::Acquire) {
                return;
            }
            let trail = trail.with(point.fence(), state.survivors);
            let image = replica.hash.wrapping_add(hash(&replica.base, &state.changes));
            let verdict = replica.with(&state.changes, &self.options, |mapping| {
                self.recover_and_judge(lane, mapping, &trail, context)
            });
            if let Err(what) = verdict {
                return self.fail(&trail, &what);
            }
            let mut findings = self.findings.lock();
            findings.images.insert(image);
            findings.report.states += 1;
            findings.report.recovery_states += u64::from(trail.crashes.len() > 1);
        }
    }

    fn recover_and_judge(
        self: &Arc<Self>,
        lane: usize,
        mapping: &Arc<Mapping>,
        trail: &Trail,
        context: &Arc<C>,
    ) -> Result<(), String> {
        let observer = self.crashes_again(trail).then(|| {
            let (explorer, trail, context) = (Arc::clone(self), trail.clone(), Arc::clone(context));
            let observe: Observer = Box::new(move |point: &CrashPoint<'_>| {
                if let Some(states) = explorer.states(point, &trail) {
                    explorer.work(lane, point, &states, &AtomicUsize::new(0), &trail, &context);
                }
            });
            observe
        });
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let pool = Pool::crashing_in(&pool_options(&self.options), Arc::clone(mapping), observer);
            (self.judge)(&pool.map_err(|error| error.to_string())?, context)
        }));
        judged.unwrap_or_else(|panic| Err(panic_text(&*panic)))
    }

    /// Whether the recovery from a crash is itself to crash.
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
            "{}: {what} (seed {}). Again, alone:\n{}",
            places.join(", then during the recovery "),
            trail.seed,
            command(trail, self.test.as_deref())
        );
        findings.failure.get_or_insert(failure);
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("panicked: {text}")
}

fn word_hash(index: u32, value: u64) -> u64 {
    // Zero words count nothing, so that the length of an image does not matter.
    if value == 0 { 0 } else { mix(value ^ mix(u64::from(index) + 1)) }
}

/// How changes move the hash of an image.
fn hash(image: &[u64], changes: &Changes) -> u64 {
    changes.iter().fold(0, |sum: u64, &(index, value)| {
        let before = word_hash(index, image[index as usize]);
        sum.wrapping_add(word_hash(index, value)).wrapping_sub(before)
    })
}

/// The memory of a pool, and the image that it goes back to.
struct Replica {
    mapping: Arc<Mapping>,
    base: Vec<u64>,
    /// Of the base: the sum of its words' hashes.
    hash: u64,
}

impl Replica {
    fn new(options: &CrashOptions) -> Result<Replica, String> {
        let mapping = Mapping::reserve(pool_options(options).address_space_bytes);
        let mapping = Arc::new(mapping.map_err(|error| format!("reserve a replica: {error}"))?);
        Ok(Replica { mapping, base: Vec::new(), hash: 0 })
    }

    /// Makes the base another image.
    fn rebase(&mut self, image: &[u64], options: &CrashOptions) -> Result<(), String> {
        if self.base.len() != image.len() {
            *self = Replica::new(options)?;
            self.base = vec![0; image.len()];
            self.mapping.grow_zeroed(image.len() as u64 * 8).map_err(|error| format!("map a replica: {error}"))?;
        }
        let working = Arc::get_mut(&mut self.mapping).expect("nobody uses the replica between states");
        let working = working.exclusive_words();
        let blocks = self.base.chunks_mut(BLOCK_WORDS).zip(image.chunks(BLOCK_WORDS));
        for (block, (base, image)) in blocks.enumerate() {
            if *base == *image {
                continue;
            }
            for (i, (base, image)) in base.iter_mut().zip(image).enumerate() {
                let index = block * BLOCK_WORDS + i;
                let (old, new) = (word_hash(index as u32, *base), word_hash(index as u32, *image));
                self.hash = self.hash.wrapping_add(new).wrapping_sub(old);
                *base = *image;
                working[index] = *image;
            }
        }
        Ok(())
    }

    /// Lays out a state, uses it, and goes back to the base.
    fn with<T>(&mut self, changes: &Changes, options: &CrashOptions, work: impl FnOnce(&Arc<Mapping>) -> T) -> T {
        for &(index, value) in changes {
            self.mapping.words(u64::from(index) * 8, 1)[0].store(value, Ordering::Relaxed);
        }
        let result = work(&self.mapping);
        let base = &self.base;
        if let Some(mapping) = Arc::get_mut(&mut self.mapping) {
            mapping.shrink_to(base.len() as u64 * 8);
            let blocks = mapping.exclusive_words().chunks_mut(BLOCK_WORDS).zip(base.chunks(BLOCK_WORDS));
            for (working, base) in blocks {
                if *working != *base {
                    working.copy_from_slice(base);
                }
            }
            return result;
        }
        // Whoever looked at the state kept its pool: that memory is lost to us.
        let image = std::mem::take(&mut self.base);
        if let Ok(fresh) = Replica::new(options) {
            *self = fresh;
            // Leaves an empty base if it fails; the next state then fails with a message.
            let _ = self.rebase(&image, options);
        }
        result
    }
}
