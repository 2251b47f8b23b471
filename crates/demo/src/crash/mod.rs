//! The crash loop: a child process runs the demo and is killed with SIGKILL at random times; the parent
//! reopens the database, verifies it, and goes on.
//!
//! After each kill:
//!
//! - *lost*: positions that the child, as any client, has seen committed and that are not stored. Only with
//!   `--durability sync` is that a promise; with the others, lost transactions are not counted.
//! - *torn*: states that are not exactly what the streams produce up to the stored positions ([`oracle`],
//!   [`verify`]), or a position inside a transaction. So an unreported transaction is there completely, over
//!   all states of its group, or not at all.
//!
//! - Findings of `entresol check` count as torn, too.
//!
//! The streams continue from the stored positions, so every cycle also tests exactly-once.

pub mod child;
pub mod oracle;
pub mod verify;
pub mod victim;

use super::feed::noise;
use super::setup::{self, Input};
use super::status::Positions;
use super::summary::Summary;
use super::{pool_bytes, score, snapshots};
use crate::SmartMeteringArguments;
use crate::error::{Error, Result};
use crate::input::InputFiles;
use entresol::{Durability, offline};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use verify::{Oracles, Verdict};
use victim::{Victim, VictimReport};

/// Noise streams of the loop.
const EARLY: u64 = 101;
const DELAY: u64 = 102;
/// Of so many kills, one may come before the child is ready.
const EARLY_ONE_IN: u64 = 8;
/// An early kill comes within so many milliseconds after the start.
const EARLY_MS_MAX: f64 = 40.0;
/// Others come within so many milliseconds after the child is ready.
const DELAY_MS_MAX: f64 = 150.0;
/// Readings of each stream without an end that a victim finds in its files.
const AHEAD: u64 = 100_000;
/// Duration of the run that ends the loop without a kill.
const LAST_RUN_MS: u64 = 300;

/// The state of the loop.
struct CrashLoop<'a> {
    arguments: &'a SmartMeteringArguments,
    base: &'a Path,
    input: Input,
    oracles: Oracles,
    files: Option<InputFiles>,
    positions: Positions,
    round: u32,
    summary: Summary,
}

/// Runs the loop.
pub fn run(arguments: &SmartMeteringArguments, dir: &Path) -> Result<Summary> {
    let input = setup::input(arguments, true)?;
    let rejected_rows = input.feeds.rejected_rows;
    let mut crash_loop = CrashLoop {
        arguments,
        base: dir,
        input,
        oracles: Oracles::default(),
        files: None,
        positions: Positions::default(),
        round: 0,
        summary: Summary { rejected_rows, cycles: Some(0), ..Summary::default() },
    };
    let started = Instant::now();
    crash_loop.begin_at_stored_positions()?;
    for cycle in 0..arguments.cycles {
        crash_loop.kill_once(cycle)?;
        crash_loop.print_progress(cycle, started);
    }
    crash_loop.run_last()?;
    let mut summary = crash_loop.summary;
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

impl CrashLoop<'_> {
    /// Each round has its own database: a new round begins when the streams have ended before the kills.
    fn dir(&self) -> PathBuf {
        match self.round {
            0 => self.base.to_path_buf(),
            round => self.base.join(format!("round-{round}")),
        }
    }

    /// A directory may hold a demo already: then it is where the loop goes on.
    fn begin_at_stored_positions(&mut self) -> Result<()> {
        let database = setup::open(&self.dir(), self.arguments, false)?;
        setup::check_settings(&mut database.session()?, self.arguments, true)?;
        self.positions = Positions::read(&database)?;
        let verdict = self.oracles.verify(&database, &mut self.input.feeds, self.positions)?;
        self.count_torn(&verdict);
        Ok(database.close()?)
    }

    /// Starts a victim, with as much input as it may read.
    fn victim(&mut self, stop_after_ms: Option<u64>) -> Result<Victim> {
        let dir = self.dir();
        let files = match &mut self.files {
            Some(files) => files,
            none => none.insert(InputFiles::open(&setup::input_folder(&dir))?),
        };
        let (shares, positions) = (self.input.shares, self.positions);
        let until = |share: u64, position: u64| if share == u64::MAX { position + AHEAD } else { share };
        let household = until(shares.household, positions.household);
        let infrastructure = until(shares.infrastructure, positions.infrastructure);
        files.extend(&mut self.input.feeds, household, infrastructure)?;
        Victim::start(self.arguments, &dir, stop_after_ms)
    }

    fn kill_once(&mut self, cycle: u32) -> Result<()> {
        let mut victim = self.victim(None)?;
        let seed = self.arguments.seed;
        let share = noise::unit(seed, DELAY, u64::from(cycle));
        if noise::word(seed, EARLY, u64::from(cycle)).is_multiple_of(EARLY_ONE_IN) {
            thread::sleep(Duration::from_secs_f64(share * EARLY_MS_MAX / 1000.0));
        } else {
            victim.wait_ready()?;
            thread::sleep(Duration::from_secs_f64(share * DELAY_MS_MAX / 1000.0));
        }
        let (reported, _) = victim.kill()?;
        self.summary.cycles = Some(cycle + 1);
        let ended = reported.end.is_some();
        self.examine(&reported)?;
        if ended {
            self.next_round()?;
        }
        Ok(())
    }

    /// Checks the database that the victim has left, reopens it, and compares it with the reports and with
    /// the oracle.
    fn examine(&mut self, reported: &VictimReport) -> Result<()> {
        let problems = offline::check(&self.dir(), |_| {})?.problems;
        problems.iter().for_each(|problem| tracing::error!("torn: a check finds {problem}"));
        self.summary.torn_transactions += u64::from(!problems.is_empty());
        let opening = Instant::now();
        let database = setup::open(&self.dir(), self.arguments, false)?;
        let recovery_ms = opening.elapsed().as_secs_f64() * 1000.0;
        self.summary.recovery_ms = self.summary.recovery_ms.max(recovery_ms);
        let before = self.positions;
        self.positions = Positions::read(&database)?;
        self.count_lost(reported);
        let mut verdict = self.oracles.verify(&database, &mut self.input.feeds, self.positions)?;
        let inside = !self.positions.household.is_multiple_of(u64::from(self.arguments.batch))
            && self.positions.household != self.input.shares.household
            && reported.end.is_none();
        if inside {
            let position = self.positions.household;
            verdict.household.push(format!("the position {position} of stream 1 is inside a transaction"));
        }
        self.count_torn(&verdict);
        if self.positions.household > 0 && self.positions.infrastructure > 0 {
            self.summary.snapshot_checks += 1;
            self.summary.snapshot_violations += u64::from(snapshots::is_violated(&mut database.session()?)?);
        }
        self.summary.readings += (self.positions.household - before.household.min(self.positions.household))
            + (self.positions.infrastructure - before.infrastructure.min(self.positions.infrastructure));
        self.summary.transactions += reported.seen.len() as u64;
        self.summary.pool_bytes = pool_bytes(&database);
        if self.positions.infrastructure > 0 {
            let feeds = &self.input.feeds;
            self.summary.failures = score::score(&database, &feeds.failures, &feeds.judged)?;
        }
        Ok(database.close()?)
    }

    fn count_torn(&mut self, verdict: &Verdict) {
        for differences in [&verdict.household, &verdict.infrastructure, &verdict.balances] {
            self.summary.torn_transactions += u64::from(!differences.is_empty());
            differences.iter().for_each(|difference| tracing::error!("torn: {difference}"));
        }
    }

    fn count_lost(&mut self, reported: &VictimReport) {
        if self.arguments.durability != Durability::Sync {
            return;
        }
        for (stream, (name, position)) in self.positions.by_stream().into_iter().enumerate() {
            let is_lost = |seen: &&Positions| seen.by_stream()[stream].1 > position;
            let lost = reported.seen.iter().filter(is_lost).count() as u64;
            if lost > 0 {
                tracing::error!("the position of {name} is {position}, but {lost} later commits were seen");
                self.summary.lost_transactions += lost;
            }
        }
    }

    /// The streams have ended before the kills: begin again in a new database.
    fn next_round(&mut self) -> Result<()> {
        self.summary.alarms += self.oracles.alarms();
        self.round += 1;
        self.oracles = Oracles::default();
        self.files = None;
        self.positions = Positions::default();
        let dir = self.dir();
        std::fs::create_dir_all(&dir).map_err(|error| Error::file("make", &dir, error))?;
        self.begin_at_stored_positions()
    }

    /// The last run is not killed: to the end of the readings, if there is one, else for a short time.
    fn run_last(&mut self) -> Result<()> {
        let endless = self.input.shares.household == u64::MAX;
        let victim = self.victim(endless.then_some(LAST_RUN_MS))?;
        let reported = victim.wait()?;
        self.examine(&reported)?;
        if let Some((aborts, p50_us, p99_us)) = reported.end {
            self.summary.aborts += aborts;
            (self.summary.commit_p50_us, self.summary.commit_p99_us) = (p50_us, p99_us);
        }
        self.summary.alarms += self.oracles.alarms();
        Ok(())
    }

    fn print_progress(&self, cycle: u32, started: Instant) {
        let summary = &self.summary;
        let line = format!(
            "{:5.1} s  {} of {} kills  {} readings  {} lost  {} torn  recovery {:.1} ms at most",
            started.elapsed().as_secs_f64(),
            cycle + 1,
            self.arguments.cycles,
            summary.readings,
            summary.lost_transactions,
            summary.torn_transactions,
            summary.recovery_ms,
        );
        let mut stderr = std::io::stderr().lock();
        let last = cycle + 1 == self.arguments.cycles;
        let _ = if stderr.is_terminal() {
            write!(stderr, "\r\x1b[K{line}{}", if last { "\n" } else { "" })
        } else if last || (cycle + 1).is_multiple_of(10) {
            writeln!(stderr, "{line}")
        } else {
            Ok(())
        };
    }
}
