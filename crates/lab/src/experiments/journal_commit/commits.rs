//! Commits: one committer beside the device's own overwrites, many beside one, and what a flush costs.

use super::device::Device;
use super::{OBJECT_BYTES, Sizes, find_objects, make_objects, open_killed, pool_options};
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, JournalOptions, Pool, PoolOffset};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const COMMITTERS: [usize; 5] = [1, 2, 4, 16, 64];
const LEVELS: [Durability; 3] = [Durability::Sync, Durability::Group { interval_ms: 10 }, Durability::None];

/// Commits a second of one committer that stores, flushes and persists a line each time.
fn commit_rate(pool: &Pool, at: PoolOffset, commits: usize, durability: Durability) -> Result<f64, Error> {
    let start = Instant::now();
    for _ in 0..commits {
        count_up(pool, at);
        pool.persist(durability)?;
    }
    Ok(commits as f64 / start.elapsed().as_secs_f64())
}

fn count_up(pool: &Pool, at: PoolOffset) {
    let word = pool.word(at);
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
    pool.flush(at, 64);
    pool.fence();
}

/// Commits a second of several committers, each with a line of its own.
fn rate_of_many(
    pool: &Arc<Pool>,
    lines: &[PoolOffset],
    ms: u64,
    durability: Durability,
) -> Result<f64, Error> {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let commits = std::thread::scope(|scope| {
        let committer = |at: PoolOffset| {
            let stop = &stop;
            scope.spawn(move || {
                let mut commits = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    count_up(pool, at);
                    pool.persist(durability)?;
                    commits += 1;
                }
                Ok::<u64, Error>(commits)
            })
        };
        let committers: Vec<_> = lines.iter().map(|line| committer(*line)).collect();
        std::thread::sleep(Duration::from_millis(ms));
        stop.store(true, Ordering::Relaxed);
        committers
            .into_iter()
            .map(|thread| thread.join().expect("a committer panicked"))
            .sum::<Result<u64, Error>>()
    })?;
    Ok(commits as f64 / start.elapsed().as_secs_f64())
}

/// One committer beside the device, many beside one. The device's own speed changes from second to second on
/// a shared machine, so that every ratio is of two measurements right after each other.
pub(super) fn beside_the_device(
    options: &RunOptions,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let pool_options = pool_options(JournalOptions::default());
    let pool = Pool::create(&dir.path().join("database"), &pool_options)?;
    let lines = make_objects(&pool, 64)?;
    let overwritten = Device::new(&dir.path().join("overwritten"), 2_048, true)?;
    let growing = Device::new(&dir.path().join("growing"), usize::MAX, false)?;
    let (mut device, mut one, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        device.push(overwritten.rate(sizes.commits)?);
        one.push(commit_rate(&pool, lines[0], sizes.commits, Durability::Sync)?);
        ratios.push(one[one.len() - 1] / device[device.len() - 1]);
    }
    report.row(json!({
        "device_overwrites_per_s": median(&device),
        "device_growing_per_s": growing.rate(sizes.commits.min(200))?,
        "one_committer_per_s": median(&one),
    }));
    report.asked(AskedFigure::at_least(
        "sync: one committer to the device's overwrites",
        median(&ratios),
        0.8,
    ));
    let mut many_to_one = Vec::new();
    for durability in LEVELS {
        for committers in COMMITTERS {
            let mut rates = Vec::new();
            for _ in 0..sizes.rounds.min(3) {
                let one = rate_of_many(&pool, &lines[..1], sizes.commit_ms, durability)?;
                let syncs = pool.stats().syncs;
                let many = rate_of_many(&pool, &lines[..committers], sizes.commit_ms, durability)?;
                let syncs_per_s = (pool.stats().syncs - syncs) as f64 * 1e3 / sizes.commit_ms as f64;
                rates.push((many, many / syncs_per_s.max(1.0)));
                if committers == 64 && durability == Durability::Sync {
                    many_to_one.push(many / one);
                }
            }
            let of = |pick: fn(&(f64, f64)) -> f64| median(&rates.iter().map(pick).collect::<Vec<_>>());
            report.row(json!({
                "durability": durability.to_string(),
                "committers": committers,
                "commits_per_s": of(|rate| rate.0),
                "commits_per_sync": of(|rate| rate.1),
            }));
        }
    }
    report.asked(AskedFigure::at_least("sync: 64 committers to one", median(&many_to_one), 20.0));
    pool.sync()?;
    check_acknowledged(options, &dir.path().join("database"), &pool, &lines, report)
}

/// Checks that acknowledged commits survive if the process ends now.
fn check_acknowledged(
    options: &RunOptions,
    dir: &Path,
    pool: &Arc<Pool>,
    lines: &[PoolOffset],
    report: &mut Report,
) -> Result<(), Error> {
    let acknowledged: Vec<u64> = lines.iter().map(|line| pool.word(*line).load(Ordering::Acquire)).collect();
    let (_copy, killed) = open_killed(options, dir, &pool_options(JournalOptions::default()))?;
    let found: Vec<u64> =
        find_objects(&killed).iter().map(|line| killed.word(*line).load(Ordering::Acquire)).collect();
    report.check("every acknowledged commit is there after a kill", found == acknowledged);
    let stats = pool.stats();
    report.row(json!({"direct_io": stats.direct_io.to_string(), "io_uring": stats.io_uring.to_string()}));
    Ok(())
}

/// Measures what the flush and the fence of a line add to a store, in bursts that the buffers take up.
pub(super) fn flush_beside_store(
    options: &RunOptions,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<(), Error> {
    const LINES: usize = 4_096;
    let dir = options.database_dir()?;
    let pool = Pool::create(dir.path(), &pool_options(JournalOptions::default()))?;
    let objects = make_objects(&pool, LINES)?;
    pool.persist(Durability::None)?;
    let burst = |each: &dyn Fn(PoolOffset)| {
        let start = Instant::now();
        (0..8).for_each(|_| objects.iter().for_each(|at| each(*at)));
        start.elapsed().as_nanos() as f64 / (8 * LINES) as f64
    };
    let (mut stores, mut flushes, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..sizes.rounds as u64 * 11 {
        let store = |at: PoolOffset| pool.word(at).store(round, Ordering::Release);
        stores.push(burst(&store));
        flushes.push(burst(&|at| {
            store(at);
            pool.flush(at, 64);
            pool.fence();
        }));
        differences.push(flushes[flushes.len() - 1] - stores[stores.len() - 1]);
        pool.persist(Durability::None)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    report.row(json!({
        "store_ns": median(&stores),
        "store_flush_fence_ns": median(&flushes),
        "object_bytes": OBJECT_BYTES,
    }));
    report.asked(
        AskedFigure::at_most("none: flush and fence of a line over a store", median(&differences), 60.0)
            .unit("ns"),
    );
    Ok(())
}
