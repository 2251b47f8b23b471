//! Recovery: from opening the files to the first answer, for states of two sizes, after a kill and after a
//! close (dissertation 5.5 and figure 5.16, which gives the shares of the steps).
//!
//! A kill is a pool that is dropped without being closed: the files are what a killed process leaves after
//! its last sync, with the journal of the commits since the last checkpoint, here 100 or 1,000 of ten random
//! updates each. What is to be replayed grows with them and not with the state; its bound is
//! `JournalOptions::recovery_ms_target`, so the longer one is reported and not judged. The steps: the pool
//! (files, journal, allocation maps), the state context (groups, states, upper inner nodes), the first read
//! of a key that was not loaded before. Then how long the rest of the index takes, in the background.

use crate::asked::AskedFigure;
use crate::measure::{Random, back_memory, median};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::env::{Files, OpenMode, RealFiles};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext, StateId};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 32;
const UPDATES_PER_COMMIT: u64 = 10;
/// Asked of opening, in ms, and of the larger size beside the smaller.
const OPEN_MS_MAX: f64 = 50.0;
const GROWTH_MAX: f64 = 1.2;
/// Asked of building all inner nodes of an index that was just opened, in M tuples a second.
const REBUILD_MIN: f64 = 100.0;

/// Memory that the machine has ready when the files are opened.
const BACKED_BYTES: usize = 128 << 20;

struct Sizes {
    tuples: [u64; 2],
    rounds: usize,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick {
            Sizes { tuples: [5_000, 60_000], rounds: 2 }
        } else {
            Sizes { tuples: [1_000_000, 10_000_000], rounds: 9 }
        }
    }
}

/// End of the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    /// With ten times as much to replay.
    KilledLate,
    Closed,
    /// Closed, and nothing of the files is in the page cache.
    Cold,
}

impl End {
    const ALL: [End; 4] = [End::Killed, End::KilledLate, End::Closed, End::Cold];

    fn is_judged(self) -> bool {
        matches!(self, End::Killed | End::Closed)
    }

    /// Commits since the last checkpoint.
    fn commits(self) -> u64 {
        if self == End::KilledLate { 1_000 } else { 100 }
    }

    fn name(self) -> &'static str {
        match self {
            End::Killed => "killed",
            End::KilledLate => "killed late",
            End::Closed => "closed",
            End::Cold => "closed, cold",
        }
    }
}

/// The times of one opening, in ms.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    pool: f64,
    context: f64,
    query: f64,
    rest: f64,
    replay: f64,
    parts: u64,
}

impl Times {
    fn first_answer_ms(&self) -> f64 {
        self.pool + self.context + self.query
    }
}

/// Names of the two sizes.
const SIZES: [&str; 2] = ["small", "large"];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let mut totals: Vec<[f64; 2]> = vec![[0.0; 2]; End::ALL.len()];
    let mut steps: [Series; 4] = ["pool", "context", "first read", "in all"]
        .map(|name| Series { name: name.to_string(), points: Vec::new() });
    for (size, tuples) in sizes.tuples.into_iter().enumerate() {
        let mut bench = Bench::fill(options, tuples)?;
        for (number, end) in End::ALL.into_iter().enumerate() {
            let times = (0..sizes.rounds).map(|_| bench.round(end)).collect::<Result<Vec<_>, _>>()?;
            let of = |get: fn(&Times) -> f64| median(&times.iter().map(get).collect::<Vec<_>>());
            let (total, rest) = (of(Times::first_answer_ms), of(|times| times.rest));
            totals[number][size] = total;
            let label = format!("{} {}", short(tuples), end.name());
            let values = [of(|times| times.pool), of(|times| times.context), of(|times| times.query), total];
            for (series, value) in steps.iter_mut().zip(values) {
                series.points.push((label.clone(), value));
            }
            let parts = times.iter().map(|times| times.parts).max().unwrap_or(0);
            report.row(json!({
                "tuples": tuples,
                "end": end.name(),
                "pool_ms": values[0],
                "of_it_replay_ms": of(|times| times.replay),
                "context_ms": values[1],
                "first_read_ms": values[2],
                "to_first_answer_ms": total,
                "longest_ms": times.iter().map(Times::first_answer_ms).fold(0.0, f64::max),
                "index_parts_left": parts,
                "rest_of_index_ms": rest,
            }));
            if end == End::Closed && parts > 0 {
                let rate = tuples as f64 / 1e3 / rest;
                let name = format!("inner nodes, {} database", SIZES[size]);
                if size == 1 {
                    report.asked(AskedFigure::at_least(name, rate, REBUILD_MIN).unit("M/s"));
                } else {
                    report.ratio(&format!("{name}, M tuples/s"), rate);
                }
            }
        }
        report.check(&format!("{}: every committed value is there", short(tuples)), bench.is_right);
    }
    for (end, [small, large]) in End::ALL.into_iter().zip(&totals) {
        if !end.is_judged() {
            report.note(&format!("{}: to the first answer {small:.1} and {large:.1} ms", end.name()));
            continue;
        }
        let name = format!("{}, large database: to the first answer", end.name());
        report.asked(AskedFigure::at_most(name, *large, OPEN_MS_MAX).unit("ms"));
        let name = format!("{}: to the first answer, large to small database", end.name());
        report.asked(AskedFigure::at_most(name, large / small, GROWTH_MAX));
    }
    report.figure(Figure {
        title: "from opening the files to the first answer".to_string(),
        x_label: "tuples, and how the run before ended".to_string(),
        y_label: "ms".to_string(),
        series: steps.into(),
    });
    let closed = End::ALL.iter().zip(&totals).find(|(end, _)| **end == End::Closed);
    report.paper(
        "dissertation, figure 5.16",
        "restart after a close: from opening the pools to the first answer, ms",
        "a few",
        closed.map(|(_, [_, large])| *large),
    );
    Ok(())
}

fn short(tuples: u64) -> String {
    if tuples.is_multiple_of(1_000_000) {
        format!("{} M", tuples / 1_000_000)
    } else {
        format!("{} k", tuples / 1000)
    }
}

/// A state with values that say of which key and of which round they are.
struct Bench {
    dir: tempfile::TempDir,
    tuples: u64,
    random: Random,
    /// The round of the last update of a key; 0 for others.
    round: u64,
    updated: Vec<u64>,
    is_right: bool,
}

struct RecoveredIndex {
    pool: Arc<Pool>,
    context: Arc<StateContext>,
    state: Arc<State>,
}

impl Bench {
    fn fill(options: &RunOptions, tuples: u64) -> Result<Bench, Error> {
        let dir = options.database_dir()?;
        let pool = Pool::create(dir.path(), &pool_options())?;
        let context = StateContext::open_or_create(pool.clone())?;
        let group = context.create_group()?;
        let state = context.create_state(group, KeyWidth::Eight)?;
        // In random order: neighbours in the key are not neighbours in the pool.
        let step = 7_368_787;
        assert!(!tuples.is_multiple_of(step), "every key comes once");
        for from in (0..tuples).step_by(1000) {
            let transaction = context.begin()?;
            for i in from..(from + 1000).min(tuples) {
                let key = i * step % tuples;
                transaction.write(&state, &key.to_be_bytes(), Some(&value(key, 0)))?;
            }
            transaction.commit(Durability::None)?;
        }
        pool.checkpoint()?;
        pool.close()?;
        let random = Random::new(options.seed);
        Ok(Bench { dir, tuples, random, round: 0, updated: Vec::new(), is_right: true })
    }

    /// Opens, makes commits, ends as asked, opens again: that is timed.
    fn round(&mut self, end: End) -> Result<Times, Error> {
        let opened = open(self.dir.path(), &mut Times::default())?;
        opened.pool.checkpoint()?;
        self.update(&opened, end.commits())?;
        if matches!(end, End::Killed | End::KilledLate) {
            opened.pool.sync()?;
        } else {
            opened.pool.close()?;
        }
        drop(opened);
        if end == End::Cold {
            make_cold(self.dir.path())?;
        }
        back_memory(BACKED_BYTES);
        let mut times = Times::default();
        let key = self.random.below(self.tuples);
        let opened = open(self.dir.path(), &mut times)?;
        let began = Instant::now();
        let found = read(&opened, key)?;
        times.query = ms(began);
        self.is_right &= found.is_some_and(|found| found.0 == key && found.1 <= self.round);
        while opened.context.opening().is_running {
            std::thread::sleep(Duration::from_micros(100));
        }
        times.rest = ms(began);
        self.is_right &= opened.context.opening().parts_left == 0;
        for key in &self.updated {
            self.is_right &= read(&opened, *key)? == Some((*key, self.round));
        }
        for _ in 0..1_000 {
            let key = self.random.below(self.tuples);
            self.is_right &= read(&opened, key)?.is_some_and(|found| found.0 == key);
        }
        Ok(times)
    }

    fn update(&mut self, opened: &RecoveredIndex, commits: u64) -> Result<(), Error> {
        self.round += 1;
        self.updated.clear();
        for _ in 0..commits {
            let transaction = opened.context.begin()?;
            for _ in 0..UPDATES_PER_COMMIT {
                let key = self.random.below(self.tuples);
                transaction.write(&opened.state, &key.to_be_bytes(), Some(&value(key, self.round)))?;
                self.updated.push(key);
            }
            transaction.commit(Durability::None)?;
        }
        Ok(())
    }
}

fn value(key: u64, round: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..16].copy_from_slice(&round.to_le_bytes());
    value
}

/// Key and round that the value of a key names.
fn read(opened: &RecoveredIndex, key: u64) -> Result<Option<(u64, u64)>, Error> {
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
    let transaction = opened.context.begin()?;
    Ok(transaction.read(&opened.state, &key.to_be_bytes(), |value| (word(value), word(&value[8..])))?)
}

fn pool_options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() }
}

fn open(dir: &Path, times: &mut Times) -> Result<RecoveredIndex, Error> {
    let began = Instant::now();
    let pool = Pool::open(dir, &pool_options())?;
    times.pool = ms(began);
    let began = Instant::now();
    let context = StateContext::open_or_create(pool.clone())?;
    times.context = ms(began);
    times.parts = context.recovery().index_parts_left;
    times.replay = pool.stats().replay_us as f64 / 1e3;
    let state = context
        .state(StateId(0))
        .ok_or_else(|| Error::Invalid("state 0 is missing after opening".to_string()))?;
    Ok(RecoveredIndex { pool, context, state })
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// Drops what the page cache holds of the database.
fn make_cold(dir: &Path) -> Result<(), Error> {
    for name in ["pool.entresol", "journal.entresol", "checksums.entresol"] {
        RealFiles
            .open(&dir.join(name), OpenMode::Open)
            .and_then(|file| file.forget_cached())
            .map_err(|error| Error::Io { action: format!("drop the page cache of {name}"), error })?;
    }
    Ok(())
}
