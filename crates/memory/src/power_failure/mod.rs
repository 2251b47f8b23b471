//! Power failures on the level of files: states of the journal and the pool file that may remain, at every
//! call that changes one of them.
//!
//! [`check`] runs a history once on [`SimulatedFiles`] and records its calls. After each of them it makes the
//! states that a power failure could leave there: everything, nothing that was not synced, any subset of the
//! unsynced sectors, lengths and names, and the last write torn at every byte. Each is opened by the real
//! recovery and verified. From all but the torn ones the scenario goes on and is opened once more: nothing
//! that was truncated may return. The recovery of every n-th state is itself interrupted in the same way,
//! with what the scenario does after it.
//!
//! A scenario reports the operations that it has begun and that were acknowledged ([`Run::begin`],
//! [`Run::acknowledge`]); a state must hold every acknowledged operation, and none that was not begun.
//!
//! Memory: the record, and for each thread the files three times.

mod medium;

use crate::env::{Env, FileEvent, FilesImage, SimulatedFiles};
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};
use medium::SimulatedMedium;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// History whose crash states are checked. Its operations are numbered from 1.
pub trait Scenario: Sync {
    /// Creates the pool and changes it.
    fn history(&self, run: &Run) -> Result<()>;
    /// Checks a recovered pool, and returns the number of operations that it holds.
    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String>;
    /// Continues after a recovery that found `found` operations. Its last operation must be acknowledged.
    /// Crashes in here are checked as well.
    fn resume(&self, _run: &Run, _pool: &Arc<Pool>, _found: u64) -> Result<()> {
        Ok(())
    }
}

/// Run of a scenario: its directory, and the record of its operations.
pub struct Run {
    directory: PathBuf,
    files: SimulatedFiles,
    options: PoolOptions,
}

impl Run {
    /// The directory of the pool.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Options with the simulated files.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Notes that operation `number` begins: from here on a crash may leave it.
    pub fn begin(&self, number: u64) {
        self.files.note(number, false);
    }

    /// Notes that all operations up to `number` are durable: no crash from here on may lose them.
    pub fn acknowledge(&self, number: u64) {
        self.files.note(number, true);
    }

    /// Number of calls that have changed files so far.
    pub fn recorded(&self) -> usize {
        self.files.recorded()
    }
}

/// Thoroughness of [`check`].
#[derive(Debug, Clone)]
pub struct PowerFailureOptions {
    /// Seed of random subsets; printed when a check fails.
    pub seed: u64,
    /// Number of random subsets after every call.
    pub random_states: u32,
    /// True to tear the last write at every byte as well.
    pub torn: bool,
    /// Interval, in states, of crashes during the recovery; 0: never.
    pub crash_recovery_every: u64,
    /// Number of threads that open and verify states.
    pub threads: usize,
}

impl Default for PowerFailureOptions {
    fn default() -> Self {
        PowerFailureOptions { seed: 1, random_states: 8, torn: true, crash_recovery_every: 101, threads: 2 }
    }
}

/// Summary of a passed check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerFailureReport {
    /// Number of calls of the history that changed files.
    pub events: u64,
    /// Number of states that were opened and verified.
    pub states: u64,
    /// Number of these states that crashes during recovery left.
    pub recovery_states: u64,
}

/// Runs the scenario's history, then opens and verifies the states that power failures may leave. The first
/// wrong state is an error that names the call and the seed.
pub fn check(
    options: &PowerFailureOptions,
    pool_options: &PoolOptions,
    scenario: &dyn Scenario,
) -> Result<PowerFailureReport> {
    let scratch = Scratch::make(options.seed)?;
    let run = Run::new(scratch.0.clone(), SimulatedFiles::new(), pool_options, options.seed);
    run.files.record();
    scenario.history(&run)?;
    let events = run.files.take_record();
    let shared = ScenarioState { options, pool_options, scenario, failed: AtomicBool::new(false) };
    let findings = Mutex::new(Findings::default());
    std::thread::scope(|scope| {
        for thread in 0..options.threads.max(1) {
            let (shared, events, findings, directory) = (&shared, &events, &findings, &scratch.0);
            scope.spawn(move || {
                let mut explorer = StateExplorer::new(shared, directory.join(thread.to_string()), thread);
                let outcome = explorer.explore(events);
                let mut findings = findings.lock();
                findings.report.states += explorer.report.states;
                findings.report.recovery_states += explorer.report.recovery_states;
                if let Err(failure) = outcome {
                    findings.failure.get_or_insert(failure);
                }
            });
        }
    });
    let mut findings = findings.into_inner();
    findings.report.events = events.iter().filter(|e| !matches!(e, FileEvent::Noted { .. })).count() as u64;
    match findings.failure {
        Some(failure) => {
            Err(Error::Invalid(format!("power failure check failed: {failure} (seed {})", options.seed)))
        }
        None => Ok(findings.report),
    }
}

#[derive(Default)]
struct Findings {
    report: PowerFailureReport,
    failure: Option<String>,
}

/// A real directory for lock files; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make(seed: u64) -> Result<Scratch> {
        let unique = Env::real().random_u64();
        let name = format!("entresol-power-failure-{}-{seed}-{unique:x}", std::process::id());
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let directory = above.join(name);
        std::fs::create_dir(&directory).map_err(|e| Error::io("create directory", &directory, &e))?;
        Ok(Scratch(directory))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: it holds empty lock files only.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Run {
    fn new(directory: PathBuf, files: SimulatedFiles, options: &PoolOptions, seed: u64) -> Run {
        let env = Env::simulated(seed).with_files(Arc::new(files.clone()));
        Run { directory, files, options: PoolOptions { env, ..options.clone() } }
    }
}

struct ScenarioState<'s> {
    options: &'s PowerFailureOptions,
    pool_options: &'s PoolOptions,
    scenario: &'s dyn Scenario,
    failed: AtomicBool,
}

/// Operations that the history has begun and acknowledged before a crash.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    begun: u64,
    acknowledged: u64,
}

impl Progress {
    fn note(&mut self, event: &FileEvent) {
        match event {
            FileEvent::Noted { value, acknowledged: true } => self.acknowledged = *value,
            FileEvent::Noted { value, .. } => self.begun = *value,
            _ => {}
        }
    }
}

/// Worker for one thread's share of the states.
struct StateExplorer<'s> {
    shared: &'s ScenarioState<'s>,
    run: Run,
    thread: usize,
    random: Env,
    report: PowerFailureReport,
    image: FilesImage,
}

impl<'s> StateExplorer<'s> {
    fn new(shared: &'s ScenarioState<'s>, directory: PathBuf, thread: usize) -> StateExplorer<'s> {
        let seed = shared.options.seed;
        let run = Run::new(directory, SimulatedFiles::new(), shared.pool_options, seed);
        let random = Env::simulated(seed ^ (thread as u64) << 48);
        StateExplorer {
            shared,
            run,
            thread,
            random,
            report: PowerFailureReport::default(),
            image: FilesImage::new(),
        }
    }

    /// Moves the names of an event from the history's directory to this thread's.
    fn here(&self, event: &FileEvent) -> FileEvent {
        let moved = |path: &PathBuf| self.run.directory.join(path.file_name().unwrap_or_default());
        match event {
            FileEvent::Created { file, path } => FileEvent::Created { file: *file, path: moved(path) },
            FileEvent::Renamed { from, to } => FileEvent::Renamed { from: moved(from), to: moved(to) },
            FileEvent::Removed { path } => FileEvent::Removed { path: moved(path) },
            other => other.clone(),
        }
    }

    fn explore(&mut self, events: &[FileEvent]) -> std::result::Result<(), String> {
        std::fs::create_dir_all(&self.run.directory).map_err(|e| e.to_string())?;
        let mut medium = SimulatedMedium::default();
        let mut progress = Progress::default();
        let mut seen = HashSet::new();
        for (index, event) in events.iter().enumerate() {
            progress.note(event);
            let has_states = medium.apply(&self.here(event));
            if !has_states || index % self.shared.options.threads.max(1) != self.thread {
                continue;
            }
            let torn = self.shared.options.torn;
            for choice in medium.choices(self.shared.options.random_states, torn, &self.random) {
                if self.shared.failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if !seen.insert(medium.fingerprint(&choice)) {
                    continue;
                }
                let mut image = std::mem::take(&mut self.image);
                medium.image(&choice, &mut image);
                let verdict = self.open_and_verify(&image, progress, !choice.is_torn());
                self.image = image;
                verdict.map_err(|what| {
                    self.shared.failed.store(true, Ordering::Relaxed);
                    format!("after call {index}, {}: {what}", describe(event))
                })?;
            }
        }
        Ok(())
    }

    fn open_and_verify(
        &mut self,
        image: &FilesImage,
        progress: Progress,
        go_on: bool,
    ) -> std::result::Result<(), String> {
        self.report.states += 1;
        let every = self.shared.options.crash_recovery_every;
        let crash_again = every > 0 && self.report.states.is_multiple_of(every);
        self.run.files.load(image).map_err(|e| e.to_string())?;
        let numbers = self.run.files.file_numbers();
        if go_on || crash_again {
            self.run.files.record();
        }
        let (found, pool) = self.recover(progress)?;
        if !go_on && !crash_again {
            return Ok(());
        }
        self.shared
            .scenario
            .resume(&self.run, &pool, found)
            .map_err(|e| format!("continuing after a recovery that found {found}: {e}"))?;
        drop(pool);
        let events = self.run.files.take_record();
        let mut after = Progress { begun: found, acknowledged: found };
        events.iter().for_each(|event| after.note(event));
        let known = |what| format!("{what} (a recovery before it found {found}, {progress:?})");
        self.recover(after).map_err(|what| known(format!("opened once more: {what}")))?;
        if crash_again {
            self.crash_recovery(image, &numbers, &events, found).map_err(known)?;
        }
        Ok(())
    }

    fn recover(&self, progress: Progress) -> std::result::Result<(u64, Arc<Pool>), String> {
        let pool =
            Pool::open_or_create(&self.run.directory, &self.run.options).map_err(|e| format!("open: {e}"))?;
        let found = self.shared.scenario.verify(&pool)?;
        if !(progress.acknowledged..=progress.begun).contains(&found) {
            return Err(format!("{found} operations are there, {progress:?}"));
        }
        Ok((found, pool))
    }

    /// Crashes during the recovery of an image, and during what followed. Everything that the recovery found
    /// must still be found.
    fn crash_recovery(
        &mut self,
        image: &FilesImage,
        numbers: &BTreeMap<PathBuf, usize>,
        events: &[FileEvent],
        found: u64,
    ) -> std::result::Result<(), String> {
        let mut medium = SimulatedMedium::holding(image, numbers);
        let mut progress = Progress { begun: found, acknowledged: found };
        let mut seen = HashSet::new();
        for (index, event) in events.iter().enumerate() {
            progress.note(event);
            if !medium.apply(event) {
                continue;
            }
            for choice in medium.choices(2, false, &self.random) {
                if !seen.insert(medium.fingerprint(&choice)) {
                    continue;
                }
                let mut inner = std::mem::take(&mut self.image);
                medium.image(&choice, &mut inner);
                self.report.states += 1;
                self.report.recovery_states += 1;
                let verdict = self
                    .run
                    .files
                    .load(&inner)
                    .map_err(|e| e.to_string())
                    .and_then(|()| self.recover(progress));
                self.image = inner;
                verdict.map(drop).map_err(|what| {
                    format!("in the recovery, after its call {index}, {}: {what}", describe(event))
                })?;
            }
        }
        Ok(())
    }
}

fn describe(event: &FileEvent) -> String {
    match event {
        FileEvent::Wrote { file, offset, bytes } => {
            format!("a write of {} bytes at {offset} of file {file}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests;
