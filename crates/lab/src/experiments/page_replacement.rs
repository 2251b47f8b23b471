//! Replacement of pages when a pool is larger than memory: clock, 2Q and S3-FIFO on a real pool, beside an
//! LRU that sees every access.
//!
//! A policy of the product learns only of pages that come back. So the traces are loads from a pool in the
//! journal's domain with a budget, and a miss is a page fault of the thread that loads. LRU is computed for
//! the same trace and as many pages as the pool had on average: what a cache gives that is told of every
//! access.
//!
//! The file is in the system's cache, so a miss takes microseconds; with a disk behind it, it would take its
//! read.

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::workload::{Distribution, Zipf};
use crate::{Error, RunOptions};
use entresol_memory::{
    DomainChoice, JournalOptions, MemoryBudget, MemoryConsumer, PageReplacement, Pool, PoolOffset,
    PoolOptions,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const OBJECT_BYTES: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// Accesses between two looks at how many pages there are.
const LOOK_EVERY: usize = 4096;

struct Sizes {
    budget_bytes: u64,
    pool_bytes: u64,
    accesses: usize,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        let (budget_bytes, accesses) =
            if options.quick { (64 << 20, 200_000) } else { (256 << 20, 1_500_000) };
        Sizes { budget_bytes, pool_bytes: 4 * budget_bytes, accesses }
    }

    fn pages(&self) -> u64 {
        self.pool_bytes / PAGE_BYTES
    }

    /// About as many pages as stay, beside the journal's buffers and the room that the keeper makes.
    fn memory_pages(&self) -> u64 {
        (self.budget_bytes - (28 << 20)) / PAGE_BYTES / 5 * 4
    }
}

const TRACES: [&str; 4] = ["uniform", "Zipf 0.9", "scan beside a hot set", "loop"];

/// The pages that a trace touches, in order.
fn trace(name: &str, sizes: &Sizes, seed: u64) -> Vec<u32> {
    let (pages, memory) = (sizes.pages(), sizes.memory_pages());
    let mut random = Random::new(seed);
    let zipf = Distribution::Zipf(Zipf::new(pages, 0.9));
    let mut next = |index: u64| match name {
        "uniform" => random.below(pages),
        "Zipf 0.9" => zipf.draw(&mut random, pages),
        // A hot set of half of what fits, spread over all pages; every other access goes on with the scan.
        "scan beside a hot set" if index.is_multiple_of(2) => index / 2 % pages,
        "scan beside a hot set" => random.below(memory / 2) * (pages / (memory / 2)),
        // Half as much again as fits.
        _ => index % (memory * 3 / 2),
    };
    (0..sizes.accesses as u64).map(|index| next(index) as u32).collect()
}

fn name_of(policy: PageReplacement) -> &'static str {
    match policy {
        PageReplacement::Clock => "clock",
        PageReplacement::TwoQueues => "2Q",
        PageReplacement::S3Fifo => "S3-FIFO",
    }
}

/// Page faults of this thread so far.
fn faults() -> Result<u64, Error> {
    let io = |error| Error::Io { action: "read /proc/thread-self/stat".to_string(), error };
    let stat = std::fs::read_to_string("/proc/thread-self/stat").map_err(io)?;
    // The name of the thread may have spaces; behind it are the state, then numbers.
    let numbers: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let number = |at: usize| numbers.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(number(7) + number(9))
}

/// Outcome of a run of a trace.
struct Outcome {
    hit_rate: f64,
    ns_per_access: f64,
    /// Pages that were there, on average.
    pages: u64,
    peak_bytes: u64,
}

fn run_trace(
    options: &RunOptions,
    sizes: &Sizes,
    policy: PageReplacement,
    accesses: &[u32],
) -> Result<Outcome, Error> {
    let dir = options.database_dir()?;
    let memory = MemoryBudget::new(sizes.budget_bytes).map_err(|error| Error::Invalid(error.to_string()))?;
    let pool_options = PoolOptions {
        domain: DomainChoice::Journal,
        journal: JournalOptions { page_replacement: policy, ..JournalOptions::default() },
        memory: Some(memory.clone()),
        ..PoolOptions::default()
    };
    let pool = Pool::create(dir.path(), &pool_options)?;
    let objects = fill(&pool, sizes)?;
    // All of the file's: then every page can go at any time.
    pool.close()?;
    drop(pool);
    let pool = Pool::open(dir.path(), &pool_options)?;
    let at = |page: u32| {
        let per_object = (OBJECT_BYTES / PAGE_BYTES) as u32;
        objects[(page / per_object) as usize].block(u64::from(page % per_object), PAGE_BYTES)
    };
    let load = |page: u32| pool.word(at(page)).load(Ordering::Relaxed) == u64::from(page);
    // A third warms up.
    let (warm, measured) = accesses.split_at(accesses.len() / 3);
    let mut right = warm.iter().all(|page| load(*page));
    let (mut there, mut looks) = (0, 0);
    let (before, began) = (faults()?, Instant::now());
    for part in measured.chunks(LOOK_EVERY) {
        right &= part.iter().all(|page| load(*page));
        there += memory.usage().consumers[MemoryConsumer::PoolPages as usize].used_bytes / PAGE_BYTES;
        looks += 1;
    }
    let (elapsed, missed) = (began.elapsed(), faults()? - before);
    if !right {
        return Err(Error::Invalid("a page has another content than was written".to_string()));
    }
    let peak_bytes = memory.usage().consumers[MemoryConsumer::PoolPages as usize].peak_bytes;
    pool.close()?;
    Ok(Outcome {
        hit_rate: 1.0 - missed as f64 / measured.len() as f64,
        ns_per_access: elapsed.as_secs_f64() * 1e9 / measured.len() as f64,
        pages: there / looks,
        peak_bytes,
    })
}

/// Writes its number to each page; returns the objects.
fn fill(pool: &Arc<Pool>, sizes: &Sizes) -> Result<Vec<PoolOffset>, Error> {
    let mut objects = Vec::new();
    for first in (0..sizes.pages()).step_by((OBJECT_BYTES / PAGE_BYTES) as usize) {
        let object = pool.reserve(OBJECT_BYTES as usize)?;
        let at = object.offset();
        for page in 0..OBJECT_BYTES / PAGE_BYTES {
            pool.word(at.plus(page * PAGE_BYTES)).store(first + page, Ordering::Relaxed);
        }
        let mut publication = pool.publication();
        publication.flush(at, OBJECT_BYTES as usize);
        publication.allocate(object);
        publication.publish()?;
        objects.push(at);
    }
    Ok(objects)
}

/// The hit rate of an LRU of so many pages after the same warming up.
fn lru(accesses: &[u32], pages: u64, capacity: u64) -> f64 {
    const NONE: u32 = u32::MAX;
    // A ring through a sentinel: the most recent page behind it, the oldest before it.
    let sentinel = pages as u32;
    let mut links = vec![(NONE, NONE); pages as usize + 1];
    links[sentinel as usize] = (sentinel, sentinel);
    let unlink = |links: &mut Vec<(u32, u32)>, page: u32| {
        let (before, after) = links[page as usize];
        links[before as usize].1 = after;
        links[after as usize].0 = before;
        links[page as usize] = (NONE, NONE);
    };
    let (mut there, mut hits) = (0, 0usize);
    let warm = accesses.len() / 3;
    for (index, &page) in accesses.iter().enumerate() {
        if links[page as usize].0 != NONE {
            hits += usize::from(index >= warm);
            unlink(&mut links, page);
        } else if there == capacity {
            let oldest = links[sentinel as usize].0;
            unlink(&mut links, oldest);
        } else {
            there += 1;
        }
        let first = links[sentinel as usize].1;
        links[page as usize] = (sentinel, first);
        links[first as usize].0 = page;
        links[sentinel as usize].1 = page;
    }
    hits as f64 / (accesses.len() - warm) as f64
}

/// Nanoseconds of a dependent load from a random page, best of several rounds.
fn load_ns(pool: &Pool, objects: &[PoolOffset]) -> f64 {
    const LOADS: u64 = 1_000_000;
    const ROUNDS: usize = 5;
    let words = OBJECT_BYTES / 8;
    let round = || {
        let (mut state, began) = (0x9E37_79B9_7F4A_7C15u64, Instant::now());
        for _ in 0..LOADS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let object = objects[(state % objects.len() as u64) as usize];
            // What was loaded decides where the next load goes, as in a search.
            state =
                state.wrapping_add(pool.word(object.plus((state >> 32) % words * 8)).load(Ordering::Relaxed));
        }
        std::hint::black_box(state);
        began.elapsed().as_secs_f64() * 1e9 / LOADS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Loads from a pool that fits: new, opened again, and some seconds later.
fn reopened(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    const SETTLE: Duration = Duration::from_secs(5);
    let dir = options.database_dir()?;
    let invalid = |error: entresol_memory::budget::InvalidBudget| Error::Invalid(error.to_string());
    let pool_options = PoolOptions {
        domain: DomainChoice::Journal,
        memory: Some(MemoryBudget::new(3 * sizes.pool_bytes).map_err(invalid)?),
        ..PoolOptions::default()
    };
    let pool = Pool::create(dir.path(), &pool_options)?;
    let objects = fill(&pool, sizes)?;
    let fresh = load_ns(&pool, &objects);
    pool.close()?;
    drop(pool);
    let pool = Pool::open(dir.path(), &pool_options)?;
    let at_once = load_ns(&pool, &objects);
    std::thread::sleep(SETTLE);
    let later = load_ns(&pool, &objects);
    report.row(json!({
        "pool_bytes": sizes.pool_bytes,
        "new_load_ns": fresh,
        "reopened_load_ns": at_once,
        "reopened_later_load_ns": later,
    }));
    report.asked(AskedFigure::at_least(
        "loads of a pool opened some seconds ago to a new one",
        fresh / later,
        0.95,
    ));
    pool.close()?;
    Ok(())
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    reopened(options, &sizes, report)?;
    let mut hit_rates: Vec<Series> = Vec::new();
    let mut times: Vec<Series> = Vec::new();
    let put = |series: &mut Vec<Series>, name: &str, point: (String, f64)| match series
        .iter_mut()
        .find(|series| series.name == name)
    {
        Some(series) => series.points.push(point),
        None => series.push(Series { name: name.to_owned(), points: vec![point] }),
    };
    for name in TRACES {
        let accesses = trace(name, &sizes, options.seed);
        let mut pages = 0;
        for policy in PageReplacement::ALL {
            let outcome = run_trace(options, &sizes, policy, &accesses)?;
            report.row(json!({
                "trace": name,
                "policy": name_of(policy),
                "hit_rate": outcome.hit_rate,
                "ns_per_access": outcome.ns_per_access,
                "pages": outcome.pages,
                "peak_bytes": outcome.peak_bytes,
            }));
            put(&mut hit_rates, name_of(policy), (name.to_owned(), outcome.hit_rate));
            put(&mut times, name_of(policy), (name.to_owned(), outcome.ns_per_access));
            pages += outcome.pages / PageReplacement::ALL.len() as u64;
        }
        let told = lru(&accesses, sizes.pages(), pages.max(1));
        report.row(json!({ "trace": name, "policy": "LRU, told of all", "hit_rate": told, "pages": pages }));
        put(&mut hit_rates, "LRU, told of all", (name.to_owned(), told));
    }
    let figure = |title: &str, unit: &str, series| Figure {
        title: title.to_owned(),
        x_label: "trace".to_owned(),
        y_label: unit.to_owned(),
        series,
    };
    report.figure(figure("hit rate", "share of accesses", hit_rates));
    report.figure(figure("time of an access", "ns", times));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lru_keeps_what_was_used_last() {
        // A third warms up: 0, 1, 2.
        assert_eq!(lru(&[0, 1, 2, 0, 1, 2, 0, 1, 2], 3, 3), 1.0);
        assert_eq!(lru(&[0, 1, 2, 0, 1, 2, 0, 1, 2], 3, 2), 0.0, "a loop larger than memory");
        assert_eq!(lru(&[0, 1, 0, 2, 0, 1], 3, 2), 0.5);
    }
}
