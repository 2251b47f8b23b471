//! `race-tsp`: transactional stream processing as the dissertation's section 5.8.1 has it, beside what people
//! use: a writer that changes two states together, a reader that must see them in one snapshot, at the same
//! time.
//!
//! Two states of a million tuples, keys of 8 bytes, values of 32. A transaction writes or reads ten of them:
//! five keys, each in both states, drawn evenly. The value says in which transaction it was written, so a
//! reader can tell whether both states were of one snapshot; every transaction of every store is checked.
//! Stores take turns, for each class of durability; the ratio is that of the medians, to the best peer in the
//! class.
//!
//! The peers are built with the feature `peers`; `make race-tsp` does that.

#[cfg(feature = "peers")]
mod lmdb;
mod ours;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod rocksdb;
#[cfg(feature = "peers")]
mod sqlite;

use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::peers::{Class, GROUP_MS};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 32;
/// Keys of a transaction; each is used in both states.
const KEYS: usize = 5;
/// Keys that a transaction of the load writes.
const LOAD_KEYS: u32 = 1_000;
/// Asked of writing, beside the best peer.
const ASKED: f64 = 5.0;
const OURS: &str = "Entresol";

/// A store with two states.
trait States: Sync {
    /// Session of a thread.
    fn session(&self) -> Result<Box<dyn Session + '_>, Error>;

    /// Makes all that was committed durable.
    fn sync(&self) -> Result<(), Error>;

    /// Returns true if it keeps [`Class::Group`] without being called.
    fn syncs_by_itself(&self) -> bool {
        false
    }

    /// Brings background work to rest.
    fn settle(&self) -> Result<(), Error> {
        self.sync()
    }
}

/// A thread's transactions.
trait Session {
    /// Writes the round to the keys in both states, as one transaction.
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error>;

    /// Reads the keys in both states in one snapshot: whether each was there, complete, and the same in both.
    fn read(&mut self, keys: &[u32]) -> Result<bool, Error>;
}

type OpenStore = fn(&Path, Class) -> Result<Box<dyn States>, Error>;

fn contenders() -> Vec<(&'static str, OpenStore)> {
    #[allow(unused_mut, reason = "without peers there is one")]
    let mut all: Vec<(&'static str, OpenStore)> = vec![(OURS, ours::open)];
    #[cfg(feature = "peers")]
    all.extend([
        ("LMDB", lmdb::open as OpenStore),
        ("redb", redb::open),
        ("RocksDB", rocksdb::open),
        ("SQLite", sqlite::open),
    ]);
    all
}

#[cfg_attr(not(feature = "peers"), allow(dead_code, reason = "used by a peer too"))]
fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_be_bytes()
}

/// A value that says the same in all its words.
fn value(round: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&round.to_le_bytes()));
    value
}

/// The round in a value; None if it is torn.
fn round_of(value: &[u8]) -> Option<u64> {
    let (words, rest) = value.as_chunks::<8>();
    let first = *words.first()?;
    let is_whole =
        rest.is_empty() && words.len() == VALUE_BYTES / 8 && words.iter().all(|word| *word == first);
    is_whole.then_some(u64::from_le_bytes(first))
}

struct Sizes {
    tuples: u32,
    phase: Duration,
    rounds: usize,
}

/// Rates of one store in one phase.
#[derive(Clone, Copy, Default)]
struct Rates {
    writes_per_s: f64,
    reads_per_s: f64,
    wrong: u64,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = if options.quick {
        Sizes { tuples: 4_000, phase: Duration::from_millis(15), rounds: 1 }
    } else {
        Sizes { tuples: 1_000_000, phase: Duration::from_millis(500), rounds: 5 }
    };
    if !cfg!(feature = "peers") {
        report.note(
            "This build has no peers: ours alone. `make race-tsp` builds RocksDB, SQLite, LMDB and redb.",
        );
    }
    let contenders = contenders();
    let names: Vec<&str> = contenders.iter().map(|(name, _)| *name).collect();
    let mut curves: Vec<Series> =
        names.iter().map(|name| Series { name: name.to_string(), points: Vec::new() }).collect();
    let mut wrong = 0;
    for class in [Class::None, Class::Group, Class::Sync] {
        let rates = of_class(class, &contenders, &sizes, options)?;
        let middle = |which: usize, pick: fn(&Rates) -> f64| {
            median(&rates[which].iter().map(pick).collect::<Vec<_>>())
        };
        for (which, name) in names.iter().enumerate() {
            let (writes, reads) = (middle(which, |r| r.writes_per_s), middle(which, |r| r.reads_per_s));
            curves[which].points.push((class.name().to_string(), writes / 1e3));
            wrong += rates[which].iter().map(|rates| rates.wrong).sum::<u64>();
            report.row(json!({
                "store": name,
                "class": class.name(),
                "write_transactions_per_s": writes.round(),
                "read_transactions_per_s": reads.round(),
            }));
        }
        let best =
            |pick: fn(&Rates) -> f64| (1..names.len()).map(|which| middle(which, pick)).fold(0.0, f64::max);
        if names.len() > 1 {
            let writes = middle(0, |r| r.writes_per_s) / best(|r| r.writes_per_s);
            let reads = middle(0, |r| r.reads_per_s) / best(|r| r.reads_per_s);
            let both =
                middle(0, |r| r.writes_per_s + r.reads_per_s) / best(|r| r.writes_per_s + r.reads_per_s);
            report.asked(AskedFigure::at_least(
                format!("{}: writes beside the best peer", class.name()),
                writes,
                ASKED,
            ));
            report.ratio(&format!("{}: reads beside the best peer", class.name()), reads);
            report.ratio(&format!("{}: both beside the best peer", class.name()), both);
        }
    }
    report.check("every reader of every store saw both states in one snapshot", wrong == 0);
    report.figure(Figure {
        title: "transactions of ten writes, one writer beside one reader".to_string(),
        x_label: "class of durability".to_string(),
        y_label: "thousand a second".to_string(),
        series: curves,
    });
    Ok(())
}

/// The rates of each contender in each round.
fn of_class(
    class: Class,
    contenders: &[(&'static str, OpenStore)],
    sizes: &Sizes,
    options: &RunOptions,
) -> Result<Vec<Vec<Rates>>, Error> {
    let mut stores = Vec::new();
    for (_, open) in contenders {
        let dir = options.database_dir()?;
        let store = open(dir.path(), class)?;
        {
            let mut session = store.session()?;
            for from in (0..sizes.tuples).step_by(LOAD_KEYS as usize) {
                let keys: Vec<u32> = (from..(from + LOAD_KEYS).min(sizes.tuples)).collect();
                session.write(&keys, 0)?;
            }
        }
        store.settle()?;
        stores.push((store, dir));
    }
    let mut rates = vec![Vec::new(); stores.len()];
    for round in 0..sizes.rounds {
        for ((store, _), rates) in stores.iter().zip(&mut rates) {
            rates.push(phase(&**store, class, sizes, options.seed + round as u64)?);
        }
    }
    Ok(rates)
}

/// One writer and one reader for a while.
fn phase(store: &dyn States, class: Class, sizes: &Sizes, seed: u64) -> Result<Rates, Error> {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(3));
    let syncing = Mutex::new(Ok(()));
    let thread = |writes: bool| {
        let (stop, start) = (&stop, &start);
        move || -> Result<(u64, u64), Error> {
            let session = store.session();
            start.wait();
            repeat(&mut *session?, writes, sizes, seed, stop)
        }
    };
    let (written, read, seconds) = std::thread::scope(|scope| {
        let (writer, reader) = (scope.spawn(thread(true)), scope.spawn(thread(false)));
        if class == Class::Group && !store.syncs_by_itself() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(u64::from(GROUP_MS)));
                    if let Err(error) = store.sync() {
                        *syncing.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                        return;
                    }
                }
            });
        }
        start.wait();
        let started = Instant::now();
        std::thread::sleep(sizes.phase);
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().expect("the writer panicked");
        let seconds = started.elapsed().as_secs_f64();
        (written, reader.join().expect("the reader panicked"), seconds)
    });
    syncing.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let ((written, _), (read, wrong)) = (written?, read?);
    Ok(Rates { writes_per_s: written as f64 / seconds, reads_per_s: read as f64 / seconds, wrong })
}

/// Runs transactions for a phase; returns how many, and how many of them were wrong.
fn repeat(
    session: &mut dyn Session,
    writes: bool,
    sizes: &Sizes,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(u64, u64), Error> {
    let mut random = Random::new(seed ^ u64::from(writes) << 40);
    let (mut done, mut wrong, mut keys) = (0, 0, [0; KEYS]);
    // At least one, however short the phase.
    while done == 0 || !stop.load(Ordering::Relaxed) {
        keys.fill_with(|| random.below(u64::from(sizes.tuples)) as u32);
        done += 1;
        if writes {
            session.write(&keys, seed << 32 | done)?;
        } else {
            wrong += u64::from(!session.read(&keys)?);
        }
    }
    Ok((done, wrong))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Every store does what it should, in every class, and a difference between the states is seen.
    #[test]
    fn all_stores_agree() {
        for class in [Class::None, Class::Group, Class::Sync] {
            for (name, open) in contenders() {
                let dir = tempfile::TempDir::new().unwrap();
                let store = open(dir.path(), class).unwrap();
                let mut session = store.session().unwrap();
                session.write(&[1, 2, 3], 7).unwrap();
                assert!(session.read(&[3, 1]).unwrap(), "{name}");
                assert!(!session.read(&[3, 4]).unwrap(), "{name}: 4 is not there");
                drop(session);
                store.sync().unwrap();
                store.settle().unwrap();
            }
        }
        assert_eq!(round_of(&value(9)), Some(9));
        let mut torn = value(9);
        torn[31] = 1;
        assert_eq!(round_of(&torn), None);
    }
}
