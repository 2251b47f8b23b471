//! The `journal` domain beside the device it runs on: commits of one and of many, what a flush costs, what
//! recovery and checkpoints cost, and whether what was acknowledged is there after the process ends anywhere.

mod commits;
mod device;
mod recovery;
mod updates;

use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of an object that is updated.
const OBJECT_BYTES: usize = 256;

struct Sizes {
    /// Commits of one committer in a round.
    commits: usize,
    /// Repetitions of a measurement.
    rounds: usize,
    /// Time that many committers commit, in ms.
    commit_ms: u64,
    /// Objects of the update loads, small and large.
    objects: [usize; 2],
    /// Bytes of journal that the update loads append.
    update_bytes: u64,
    /// Bytes of journal that recoveries replay.
    replay_bytes: u64,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick {
            Sizes {
                commits: 50,
                rounds: 1,
                commit_ms: 50,
                objects: [2_000, 10_000],
                update_bytes: 8 << 20,
                replay_bytes: 4 << 20,
            }
        } else {
            Sizes {
                commits: 1_000,
                rounds: 9,
                commit_ms: 400,
                objects: [100_000, 1_000_000],
                update_bytes: 1 << 30,
                replay_bytes: 160 << 20,
            }
        }
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    commits::beside_the_device(options, &sizes, report)?;
    commits::flush_beside_store(options, &sizes, report)?;
    updates::amplification(options, &sizes, report)?;
    updates::stalls(options, &sizes, report)?;
    device::pages_one_by_one_and_many(options, &sizes, report)?;
    recovery::replay(options, &sizes, report)
}

fn pool_options(journal: JournalOptions) -> PoolOptions {
    PoolOptions { domain: DomainChoice::Journal, journal, ..PoolOptions::default() }
}

/// Offsets of new objects, which the pool will find again through an object that the root "objects" names.
fn make_objects(pool: &Arc<Pool>, count: usize) -> Result<Vec<PoolOffset>, Error> {
    const PER_PAGE: usize = 3_000;
    let mut objects = Vec::with_capacity(count);
    for page in 0..count.div_ceil(PER_PAGE) {
        let here = PER_PAGE.min(count - page * PER_PAGE);
        let table = pool.reserve((here + 2) * 8)?;
        let at = table.offset();
        let mut publication = pool.publication();
        for i in 0..here {
            let object = pool.reserve(OBJECT_BYTES)?;
            publication.write(at.plus(16 + i as u64 * 8), object.offset().to_word());
            objects.push(object.offset());
            if publication.len() > 40 {
                publication.publish()?;
                publication = pool.publication();
            }
            publication.allocate(object);
        }
        publication.write(at, pool.root("objects").map_or(0, PoolOffset::to_word));
        publication.write(at.plus(8), here as u64);
        publication.allocate(table);
        publication.set_root("objects", at)?;
        publication.publish()?;
    }
    Ok(objects)
}

/// The offsets of the objects of a pool, in the order in which they were made.
fn find_objects(pool: &Pool) -> Vec<PoolOffset> {
    let load = |offset: PoolOffset| pool.word(offset).load(Ordering::Acquire);
    let mut tables = Vec::new();
    let mut at = pool.root("objects").unwrap_or(PoolOffset::NULL);
    while !at.is_null() {
        tables.push(at);
        at = PoolOffset::from_word(load(at));
    }
    let entries = |table: &PoolOffset| {
        let (first, count) = (table.plus(16), load(table.plus(8)));
        (0..count).map(move |i| PoolOffset::from_word(load(first.plus(i * 8))))
    };
    tables.iter().rev().flat_map(entries).collect()
}

/// Writes a number into all words of an object and flushes it.
fn update(pool: &Pool, object: PoolOffset, number: u64) {
    for word in pool.words(object, OBJECT_BYTES / 8) {
        word.store(number, Ordering::Relaxed);
    }
    pool.flush(object, OBJECT_BYTES);
    pool.fence();
}

/// Opens a copy of a database's files as they are now: as after the process was killed.
fn open_killed(
    options: &RunOptions,
    dir: &Path,
    pool_options: &PoolOptions,
) -> Result<(tempfile::TempDir, Arc<Pool>), Error> {
    let copy = options.database_dir()?;
    for name in ["journal.entresol", "pool.entresol"] {
        std::fs::copy(dir.join(name), copy.path().join(name))
            .map_err(|error| Error::Io { action: format!("copy {name}"), error })?;
    }
    let pool = Pool::open(copy.path(), pool_options)?;
    Ok((copy, pool))
}
