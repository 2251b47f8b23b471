//! Steady update loads: what goes to the device for what was changed, and how long a writer is held up while
//! checkpoints run.

use super::{OBJECT_BYTES, Sizes, make_objects, pool_options, update};
use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, JournalOptions, Pool, PoolOffset};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Distribution of updates over objects.
#[derive(Debug, Clone, Copy)]
enum Load {
    Uniform,
    /// Object i with a probability that falls as 1/i.
    Zipf,
}

impl Load {
    fn pick(self, random: &mut Random, objects: &[PoolOffset]) -> PoolOffset {
        let index = match self {
            Load::Uniform => random.below(objects.len() as u64),
            Load::Zipf => {
                // The inverse of the continuous distribution with density 1/x.
                let u = random.next_u64() as f64 / u64::MAX as f64;
                ((objects.len() as f64).powf(u) - 1.0) as u64
            }
        };
        // Spread: hot objects are not neighbours.
        let spread = (index as usize).wrapping_mul(0x9E37_79B1) % objects.len();
        objects[spread]
    }
}

fn journal_options(options: &RunOptions) -> JournalOptions {
    let usual = JournalOptions::default();
    if !options.quick {
        return usual;
    }
    JournalOptions { slot_bytes: 256 << 10, checkpoint_bytes: 2 << 20, journal_bytes_max: 8 << 20, ..usual }
}

/// Bytes to the device over bytes of changed lines.
pub(super) fn amplification(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let [small, large] = sizes.objects;
    let group = Durability::Group { interval_ms: 10 };
    for (load, objects, durability, asked) in [
        (Load::Uniform, small, group, true),
        (Load::Zipf, large, Durability::None, true),
        (Load::Uniform, large, group, false),
    ] {
        let dir = options.database_dir()?;
        let pool = Pool::create(dir.path(), &pool_options(journal_options(options)))?;
        let offsets = make_objects(&pool, objects)?;
        pool.checkpoint()?;
        let before = pool.stats();
        let start = Instant::now();
        let updates = sizes.update_bytes / (OBJECT_BYTES as u64 + 8);
        let mut random = Random::new(options.seed);
        for i in 0..updates {
            update(&pool, load.pick(&mut random, &offsets), i);
            if i % 16 == 0 {
                pool.persist(durability)?;
            }
        }
        // What the changes still owe: the pages that are changed now.
        pool.checkpoint()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = pool.stats();
        let checkpoints = after.checkpoints - before.checkpoints;
        let journal = after.journal_stored_bytes - before.journal_stored_bytes;
        let pages = after.checkpoint_bytes - before.checkpoint_bytes;
        let headers = 4096 * (checkpoints + journal / pool_slot_bytes(options));
        let written = (journal + pages + headers) as f64 / (updates * OBJECT_BYTES as u64) as f64;
        report.row(json!({
            "updates": format!("{load:?}, {objects} objects, {durability}"),
            "updates_per_s": updates as f64 / seconds,
            "checkpoints": checkpoints,
            "journal_bytes_per_changed": journal as f64 / (updates * OBJECT_BYTES as u64) as f64,
            "page_bytes_per_changed": pages as f64 / (updates * OBJECT_BYTES as u64) as f64,
        }));
        let many = if objects == small { "small" } else { "large" };
        if asked {
            let name = format!("bytes written per byte changed, {load:?}, {many} set of objects");
            report.asked(AskedFigure::at_most(name, written, 3.0));
        } else {
            report.row(json!({"bytes_written_per_byte_changed": written}));
        }
        report
            .check(&format!("checkpoints were made ({load:?}, {objects})"), options.quick || checkpoints > 1);
    }
    Ok(())
}

fn pool_slot_bytes(options: &RunOptions) -> u64 {
    journal_options(options).slot_bytes
}

/// Nanoseconds that updates took, sorted.
struct Latencies(Vec<u32>);

impl Latencies {
    fn of_share(&self, share: f64) -> f64 {
        f64::from(self.0[((self.0.len() - 1) as f64 * share) as usize])
    }
}

/// Updates at a steady pace, below what the device can take.
fn paced(pool: &Pool, objects: &[PoolOffset], updates: u64, seed: u64) -> Result<Latencies, Error> {
    const PER_BURST: u64 = 64;
    const BURST_EVERY: Duration = Duration::from_micros(320);
    let mut random = Random::new(seed);
    let mut taken = Vec::with_capacity(updates as usize);
    let start = Instant::now();
    for burst in 0..(updates / PER_BURST) as u32 {
        for i in 0..PER_BURST {
            let object = Load::Uniform.pick(&mut random, objects);
            let before = Instant::now();
            update(pool, object, u64::from(burst) * PER_BURST + i);
            taken.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        pool.persist(Durability::Group { interval_ms: 10 })?;
        while start.elapsed() < BURST_EVERY * burst {
            std::hint::spin_loop();
        }
    }
    taken.sort_unstable();
    Ok(Latencies(taken))
}

/// Runs `beside` again and again in a second thread while `work` runs.
fn beside<T>(
    beside: impl Fn() -> Result<(), Error> + Sync,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                beside()?;
            }
            Ok::<(), Error>(())
        });
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        other.join().expect("the thread beside panicked")?;
        worked
    })
}

/// Latency of one update: alone, beside a thread that only copies memory, and beside checkpoints back to
/// back. The second is what the machine takes away when another thread runs.
pub(super) fn stalls(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let updates = sizes.update_bytes / 1024;
    let dir = options.database_dir()?;
    let roomy = JournalOptions {
        checkpoint_bytes: 4 << 30,
        journal_bytes_max: 8 << 30,
        recovery_ms_target: 100_000,
        ..JournalOptions::default()
    };
    let pool = Pool::create(dir.path(), &pool_options(roomy))?;
    let objects = make_objects(&pool, sizes.objects[0])?;
    pool.checkpoint()?;
    let measure = || paced(&pool, &objects, updates, options.seed);
    let alone = measure()?;
    let from = vec![1u8; 8 << 20];
    let copies = || {
        std::hint::black_box(from.clone());
        Ok(())
    };
    let (mut busy, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let before = pool.stats().checkpoints;
    for _ in 0..sizes.rounds.min(5) {
        let beside_copies = beside(copies, measure)?;
        let beside_checkpoints = beside(|| Ok(pool.checkpoint()?), measure)?;
        ratios.push(beside_copies.of_share(0.9999) / beside_checkpoints.of_share(0.9999));
        busy.push(beside_copies);
        with.push(beside_checkpoints);
    }
    let checkpoints = pool.stats().checkpoints - before;
    for (what, runs) in
        [("alone", &[alone][..]), ("beside copies of memory", &busy[..]), ("beside checkpoints", &with[..])]
    {
        let middle = |share| median(&runs.iter().map(|run| run.of_share(share)).collect::<Vec<_>>());
        report.row(json!({
            "updates": what,
            "median_ns": middle(0.5),
            "p999_us": middle(0.999) / 1e3,
            "p9999_us": middle(0.9999) / 1e3,
            "longest_us": middle(1.0) / 1e3,
        }));
    }
    report.row(json!({"checkpoints_beside": checkpoints}));
    report.ratio("p99.99 of an update: beside copies to beside checkpoints", median(&ratios));
    report.check("checkpoints were made beside the updates", checkpoints > 0);
    Ok(())
}
