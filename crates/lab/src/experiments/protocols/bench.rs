//! Two states under one protocol, one writer beside readers, and whether readers saw one snapshot.

use super::skew::Skew;
use crate::measure::{Random, median};
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{ContextOptions, Protocol, State, StateContext, Transaction};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Words of a value.
const VALUE_WORDS: usize = 4;
pub(super) const VALUE_BYTES: usize = 8 * VALUE_WORDS;
/// Keys that a thread draws before it begins; it takes them in turn.
const DRAWN: usize = 1 << 17;
/// Tuples that a transaction loads.
const LOAD_TUPLES: u64 = 1_000;
/// Wait of a restarted transaction for each of its operations (the paper's best compromise).
const PENALTY_NS: u64 = 500;

pub(super) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A value that says the same in all its words.
pub(super) fn value(round: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&round.to_le_bytes()));
    value
}

/// The number in a value; None if it is torn.
pub(super) fn round_of(value: &[u8]) -> Option<u64> {
    let whole = value.len() == VALUE_BYTES && value.chunks_exact(8).all(|word| word == &value[..8]);
    whole.then(|| u64::from_le_bytes(value[..8].try_into().expect("eight bytes")))
}

/// Medium of the states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Dram,
    Journal,
}

impl Medium {
    pub(super) const ALL: [Medium; 2] = [Medium::Dram, Medium::Journal];

    pub(super) fn name(self) -> &'static str {
        match self {
            Medium::Dram => "DRAM",
            Medium::Journal => "journal, none",
        }
    }

    /// A pool on it; the directory goes with the second part.
    pub(super) fn pool(self, options: &RunOptions) -> Result<(Arc<Pool>, Option<tempfile::TempDir>), Error> {
        if self == Medium::Dram {
            return Ok((Pool::volatile(&PoolOptions::default())?, None));
        }
        let dir = options.database_dir()?;
        let journal = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
        Ok((Pool::create(dir.path(), &journal)?, Some(dir)))
    }
}

/// Two loaded states.
pub(super) struct Bench {
    pub(super) context: Arc<StateContext>,
    pub(super) states: [Arc<State>; 2],
    pub(super) tuples: u64,
    _dir: Option<tempfile::TempDir>,
}

/// Transactions of one thread or of all in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) committed: u64,
    /// Attempts that the protocol ended.
    pub(super) restarts: u64,
    /// Committed transactions that saw two snapshots, or a torn value, or missed a tuple.
    pub(super) wrong: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.committed += other.committed;
        self.restarts += other.restarts;
        self.wrong += other.wrong;
    }
}

/// Transactions a second, and how many were restarted for each that was not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) reads_per_s: f64,
    pub(super) writes_per_s: f64,
    pub(super) reader_restarts: f64,
    pub(super) writer_restarts: f64,
    pub(super) wrong: u64,
}

impl Rates {
    pub(super) fn total_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// The middle of several, each figure by itself; what was wrong adds up.
    pub(super) fn middle(all: &[Rates]) -> Rates {
        let of = |pick: fn(&Rates) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>());
        Rates {
            reads_per_s: of(|r| r.reads_per_s),
            writes_per_s: of(|r| r.writes_per_s),
            reader_restarts: of(|r| r.reader_restarts),
            writer_restarts: of(|r| r.writer_restarts),
            wrong: all.iter().map(|r| r.wrong).sum(),
        }
    }
}

/// Load of a phase.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) readers: usize,
    pub(super) writers: usize,
    /// Operations of a transaction: even, since a key is used in both states.
    pub(super) operations: usize,
    pub(super) durability: Durability,
    pub(super) phase: Duration,
    pub(super) seed: u64,
}

impl Bench {
    pub(super) fn new(
        pool: Arc<Pool>,
        dir: Option<tempfile::TempDir>,
        options: ContextOptions,
        tuples: u64,
    ) -> Result<Bench, Error> {
        let context = StateContext::open_or_create_with(pool, options)?;
        let group = context.create_group()?;
        let first = context.create_state(group, KeyWidth::Eight)?;
        let states = [first, context.create_state(group, KeyWidth::Eight)?];
        let bench = Bench { context, states, tuples, _dir: dir };
        bench.load()?;
        bench.load()?;
        Ok(bench)
    }

    /// Writes all tuples once. The first load makes objects with room for one version and the second gives them the
    /// place of an update: what is measured is the updates that follow.
    fn load(&self) -> Result<(), Error> {
        for from in (0..self.tuples).step_by(LOAD_TUPLES as usize) {
            let load = self.context.begin()?;
            for tuple in from..(from + LOAD_TUPLES).min(self.tuples) {
                for state in &self.states {
                    load.write(state, &key(tuple), Some(&value(0)))?;
                }
            }
            load.commit(Durability::None)?;
        }
        Ok(())
    }

    pub(super) fn of(
        protocol: Protocol,
        medium: Medium,
        tuples: u64,
        options: &RunOptions,
    ) -> Result<Bench, Error> {
        let (pool, dir) = medium.pool(options)?;
        Bench::new(pool, dir, ContextOptions { protocol, ..ContextOptions::default() }, tuples)
    }

    /// Reads `keys` in both states and commits: None if the protocol ended it, else whether it saw one
    /// snapshot.
    pub(super) fn read(&self, keys: &[u32]) -> Result<Option<bool>, Error> {
        let transaction = self.context.begin()?;
        let done = self.read_in(&transaction, keys).and_then(|one_snapshot| {
            transaction.commit(Durability::None)?;
            Ok(one_snapshot)
        });
        unless_restarted(done)
    }

    fn read_in(&self, transaction: &Transaction, keys: &[u32]) -> Result<bool, entresol_transactions::Error> {
        let mut one_snapshot = true;
        for number in keys {
            let at = key(u64::from(*number));
            let [first, second] = &self.states;
            let first = transaction.read(first, &at, round_of)?.flatten();
            let second = transaction.read(second, &at, round_of)?.flatten();
            one_snapshot &= first.is_some() && first == second;
        }
        Ok(one_snapshot)
    }

    /// Writes a number to `keys` in both states and commits.
    pub(super) fn write(
        &self,
        keys: &[u32],
        round: u64,
        durability: Durability,
    ) -> Result<Option<bool>, Error> {
        let transaction = self.context.begin()?;
        let write = || {
            for number in keys {
                for state in &self.states {
                    transaction.write(state, &key(u64::from(*number)), Some(&value(round)))?;
                }
            }
            transaction.commit(durability)
        };
        unless_restarted(write().map(|_| true))
    }

    /// Runs readers and writers together.
    pub(super) fn run(&self, skew: &Skew, load: &Load) -> Result<Rates, Error> {
        let (stop, start) =
            (AtomicBool::new(false), std::sync::Barrier::new(load.readers + load.writers + 1));
        let thread = |number: usize| {
            let (stop, start) = (&stop, &start);
            move || -> Result<Count, Error> {
                let mut random = Random::new(load.seed ^ (number as u64) << 40);
                let drawn = skew.draw(&mut random, DRAWN.min(64 * self.tuples as usize));
                start.wait();
                self.repeat(&drawn, load, number < load.writers, stop)
            }
        };
        let (mut writers, mut readers) = (Count::default(), Count::default());
        let seconds = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..load.writers + load.readers).map(|number| scope.spawn(thread(number))).collect();
            start.wait();
            let started = Instant::now();
            std::thread::sleep(load.phase);
            stop.store(true, Ordering::Relaxed);
            let seconds = started.elapsed().as_secs_f64();
            for (number, thread) in threads.into_iter().enumerate() {
                let count = thread.join().expect("a thread of the measurement panicked")?;
                if number < load.writers { writers.add(count) } else { readers.add(count) }
            }
            Ok::<f64, Error>(seconds)
        })?;
        let share = |count: Count| count.restarts as f64 / count.committed.max(1) as f64;
        Ok(Rates {
            reads_per_s: readers.committed as f64 / seconds,
            writes_per_s: writers.committed as f64 / seconds,
            reader_restarts: share(readers),
            writer_restarts: share(writers),
            wrong: readers.wrong + writers.wrong,
        })
    }

    fn repeat(&self, drawn: &[u32], load: &Load, writes: bool, stop: &AtomicBool) -> Result<Count, Error> {
        let penalty = Duration::from_nanos(PENALTY_NS * load.operations as u64);
        let mut count = Count::default();
        let mut round = 0;
        for keys in drawn.chunks_exact((load.operations / 2).max(1)).cycle() {
            loop {
                // A phase may be shorter than a transaction; readers may starve, a writer must not.
                if stop.load(Ordering::Relaxed) && (count.committed > 0 || !writes) {
                    return Ok(count);
                }
                round += 1;
                let done = if writes { self.write(keys, round, load.durability)? } else { self.read(keys)? };
                if let Some(right) = done {
                    count.committed += 1;
                    count.wrong += u64::from(!right);
                    break;
                }
                count.restarts += 1;
                let since = Instant::now();
                while since.elapsed() < penalty {
                    spin_loop();
                }
            }
        }
        Ok(count)
    }
}

fn unless_restarted(done: Result<bool, entresol_transactions::Error>) -> Result<Option<bool>, Error> {
    match done {
        Ok(right) => Ok(Some(right)),
        Err(error) if error.is_retryable() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
