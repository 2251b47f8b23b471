//! `independence`: what commits and readers cost others that have nothing to do with them.
//!
//! - A writer at `none` beside a writer at `sync` of another table, and alone, in turns.
//! - Two writers of different tables at `none` beside one, in turns.
//! - Reads of a hot leaf beside a writer that overloads a small journal: percentiles of their time.
//!
//! Rates are by the clock; those by the processor time of the writers, which other load on the machine disturbs
//! less, stand beside them.

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Durability, JournalOptions, Pool, PoolOptions};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use entresol_transactions::{State, StateContext};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 100_000;
const KEYS_PER_LOAD: u64 = 1000;
/// Keys of one leaf.
const HOT_KEYS: u64 = 20;

struct Sizes {
    rounds: usize,
    round: Duration,
    reads: usize,
}

/// Writer of one table.
struct Writer<'w> {
    state: &'w Arc<State>,
    updates_per_commit: u64,
    durability: Durability,
}

/// Commits a second: by the clock, and as many as a processor of its own would make.
#[derive(Clone, Copy, Default)]
struct Rates {
    clock: f64,
    processor: f64,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = if options.quick {
        Sizes { rounds: 2, round: Duration::from_millis(50), reads: 20_000 }
    } else {
        Sizes { rounds: 9, round: Duration::from_millis(500), reads: 2_000_000 }
    };
    let directory = options.database_dir()?;
    writers(&directory.path().join("writers"), &sizes, report)?;
    readers(&directory.path().join("readers"), &sizes, report)
}

fn writers(directory: &Path, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::create(directory, &options)?)?;
    let states = [loaded_state(&context)?, loaded_state(&context)?];
    let none = |state| Writer { state, updates_per_commit: 1, durability: Durability::None };
    let sync = |state| Writer { state, updates_per_commit: 1, durability: Durability::Sync };
    let ten = |state| Writer { state, updates_per_commit: 10, durability: Durability::None };

    let pairs = [vec![none(&states[0])], vec![none(&states[0]), sync(&states[1])]];
    let [alone, beside] = in_turns(&context, sizes, &pairs)?;
    let first = |rates: &[Vec<Rates>], of: fn(&Rates) -> f64| median_of(rates, |round| of(&round[0]));
    for (case, rates) in [("none, alone", &alone), ("none, beside sync", &beside)] {
        report.row(json!({ "case": case, "commits_per_s": first(rates, |rates| rates.clock),
            "commits_per_processor_s": first(rates, |rates| rates.processor) }));
    }
    report.row(
        json!({ "case": "sync, beside none", "commits_per_s": median_of(&beside, |round| round[1].clock) }),
    );
    let kept = first(&beside, |rates| rates.clock) / first(&alone, |rates| rates.clock);
    report.asked(AskedFigure::at_least("a writer at none beside one at sync of another table", kept, 0.9));

    let pairs = [vec![ten(&states[0])], vec![ten(&states[0]), ten(&states[1])]];
    let [one, two] = in_turns(&context, sizes, &pairs)?;
    let all =
        |rates: &[Vec<Rates>], of: fn(&Rates) -> f64| median_of(rates, |round| round.iter().map(of).sum());
    for (case, rates) in [("one table, ten updates", &one), ("two tables, ten updates", &two)] {
        report.row(json!({ "case": case, "commits_per_s": all(rates, |rates| rates.clock),
            "commits_per_processor_s": all(rates, |rates| rates.processor) }));
    }
    let times = all(&two, |rates| rates.clock) / all(&one, |rates| rates.clock);
    report.asked(AskedFigure::at_least("two writers of different tables beside one", times, 1.7));
    Ok(())
}

fn loaded_state(context: &Arc<StateContext>) -> Result<Arc<State>, Error> {
    let state = context.create_state(context.create_group()?, KeyWidth::Eight)?;
    for from in (0..KEYS).step_by(KEYS_PER_LOAD as usize) {
        let load = context.begin()?;
        for key in from..from + KEYS_PER_LOAD {
            load.write(&state, &key.to_be_bytes(), Some(&[0; 32]))?;
        }
        load.commit(Durability::None)?;
    }
    Ok(state)
}

/// Rates of the writers of both sets, round by round; the first round of each is left out.
fn in_turns(
    context: &Arc<StateContext>,
    sizes: &Sizes,
    sets: &[Vec<Writer<'_>>; 2],
) -> Result<[Vec<Vec<Rates>>; 2], Error> {
    let mut measured = [Vec::new(), Vec::new()];
    for round in 0..=sizes.rounds {
        for (writers, measured) in sets.iter().zip(&mut measured) {
            let rates = run_round(context, writers, sizes.round)?;
            if round > 0 {
                measured.push(rates);
            }
        }
    }
    Ok(measured)
}

fn run_round(
    context: &Arc<StateContext>,
    writers: &[Writer<'_>],
    length: Duration,
) -> Result<Vec<Rates>, Error> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            writers.iter().map(|writer| scope.spawn(move || writer.run(context, stop))).collect();
        thread::sleep(length);
        stop.store(true, Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|rates| rates.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Writer<'_> {
    fn run(&self, context: &Arc<StateContext>, stop: &AtomicBool) -> Result<Rates, Error> {
        let (mut commits, mut key) = (0_u64, 0);
        let (began, busy) = (Instant::now(), processor_ns()?);
        while !stop.load(Relaxed) {
            let transaction = context.begin()?;
            for _ in 0..self.updates_per_commit {
                // Prime to the number of keys.
                key = (key + 61_813) % KEYS;
                transaction.write(self.state, &key.to_be_bytes(), Some(&[commits as u8; 32]))?;
            }
            transaction.commit(self.durability)?;
            commits += 1;
        }
        let busy = (processor_ns()? - busy).max(1);
        Ok(Rates {
            clock: commits as f64 / began.elapsed().as_secs_f64(),
            processor: commits as f64 * 1e9 / busy as f64,
        })
    }
}

/// Nanoseconds that this thread has had a processor.
pub(super) fn processor_ns() -> Result<u64, Error> {
    let invalid = |error: String| Error::Invalid(format!("/proc/thread-self/schedstat: {error}"));
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").map_err(|error| invalid(error.to_string()))?;
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| invalid("no time".to_owned()))
}

fn median_of(rounds: &[Vec<Rates>], of: impl Fn(&[Rates]) -> f64) -> f64 {
    median(&rounds.iter().map(|round| of(round)).collect::<Vec<_>>())
}

/// Reads of a leaf beside a writer of it that waits for room in the journal again and again.
fn readers(directory: &Path, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let journal = JournalOptions {
        slot_bytes: 256 << 10,
        checkpoint_bytes: 512 << 10,
        journal_bytes_max: 1 << 20,
        ..JournalOptions::default()
    };
    let options = PoolOptions { domain: DomainChoice::Journal, journal, ..PoolOptions::default() };
    let pool = Pool::create(directory, &options)?;
    let mut publication = pool.publication();
    let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication)?;
    publication.publish()?;
    let index = OrderedIndex::open(&pool, root)?;
    let mut right = true;
    for key in 0..HOT_KEYS {
        right &= index.insert(&key.to_be_bytes(), 0, pool.publication())? == Inserted::New;
    }
    let stop = AtomicBool::new(false);
    let (mut times_us, written) = thread::scope(|scope| {
        let (index, pool, stop) = (&index, &pool, &stop);
        let writer = scope.spawn(move || -> Result<u64, Error> {
            let mut written = 0;
            while !stop.load(Relaxed) {
                index.replace(&(written % HOT_KEYS).to_be_bytes(), written, pool.publication())?;
                written += 1;
            }
            Ok(written)
        });
        let read = || -> Result<(Vec<f64>, bool), Error> {
            let (mut times_us, mut found) = (Vec::with_capacity(sizes.reads), true);
            for number in 0..sizes.reads as u64 {
                let began = Instant::now();
                found &= index.get(&(number % HOT_KEYS).to_be_bytes())?.is_some();
                times_us.push(began.elapsed().as_secs_f64() * 1e6);
            }
            Ok((times_us, found))
        };
        let read = read();
        stop.store(true, Relaxed);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (times_us, found) = read?;
        right &= found;
        Ok::<_, Error>((times_us, written))
    })?;
    times_us.sort_by(f64::total_cmp);
    let at = |part: f64| times_us[((times_us.len() - 1) as f64 * part) as usize];
    report.row(
        json!({ "case": "reads of a hot leaf, journal overloaded", "reads": times_us.len(), "writes": written,
        "p50_us": at(0.5), "p99_us": at(0.99), "p99.9_us": at(0.999), "longest_us": at(1.0) }),
    );
    report.check("every key of the hot leaf was found", right);
    report.asked(
        AskedFigure::at_most("reads of a hot leaf beside an overloaded journal, p99.9", at(0.999) / 1e3, 1.0)
            .unit("ms"),
    );
    Ok(pool.close()?)
}
