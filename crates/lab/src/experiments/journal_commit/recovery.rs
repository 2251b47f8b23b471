//! Recoveries: how fast the journal is replayed, and how long a recovery takes at the worst point of a load.

use super::device::read_rate;
use super::{Sizes, find_objects, make_objects, pool_options, update};
use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::env::{Files, OpenMode, RealFiles};
use entresol_memory::{Durability, JournalOptions, Pool, PoolOffset};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Drops what the page cache holds of the database, as after a power failure.
fn make_cold(dir: &Path) -> Result<(), Error> {
    for name in ["pool.entresol", "journal.entresol"] {
        RealFiles
            .open(&dir.join(name), OpenMode::Open)
            .and_then(|file| file.forget_cached())
            .map_err(|error| Error::Io { action: format!("drop the page cache of {name}"), error })?;
    }
    Ok(())
}

/// Opens after a crash, cold; checks the objects; reports.
fn recover(
    what: &str,
    dir: &Path,
    journal: &JournalOptions,
    expected: &[u64],
    report: &mut Report,
) -> Result<(f64, f64), Error> {
    make_cold(dir)?;
    let device_mb_per_s = read_rate(&dir.join("journal.entresol"))?;
    make_cold(dir)?;
    let start = Instant::now();
    let pool = Pool::open(dir, &pool_options(journal.clone()))?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let stats = pool.stats();
    let mb_per_s = stats.replayed_stored_bytes as f64 / stats.replay_us.max(1) as f64;
    let found: Vec<u64> =
        find_objects(&pool).iter().map(|at| pool.word(*at).load(Ordering::Acquire)).collect();
    report.check(&format!("{what}: every acknowledged update is there"), found == expected);
    report.row(json!({
        "recovery": what,
        "journal_mb": stats.replayed_stored_bytes as f64 / 1e6,
        "replay_ms": stats.replay_us as f64 / 1e3,
        "replay_mb_per_s": mb_per_s,
        "device_read_mb_per_s": device_mb_per_s,
        "open_ms": open_ms,
        "predicted_ms": stats.predicted_recovery_ms,
    }));
    Ok((mb_per_s, open_ms))
}

/// Values of the objects now.
fn values(pool: &Arc<Pool>, objects: &[PoolOffset]) -> Vec<u64> {
    objects.iter().map(|at| pool.word(*at).load(Ordering::Acquire)).collect()
}

/// The rate of replay, and the time of recovery under the usual policy at the worst point: just before a
/// checkpoint ends.
pub(super) fn replay(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let roomy = JournalOptions {
        checkpoint_bytes: 4 << 30,
        journal_bytes_max: 8 << 30,
        recovery_ms_target: 100_000,
        ..JournalOptions::default()
    };
    let updates = sizes.replay_bytes / 264;
    let dir = options.database_dir()?;
    let expected = fill(options, dir.path(), &roomy, sizes.objects[0], updates, None)?;
    let (mb_per_s, _) = recover("one journal of updates", dir.path(), &roomy, &expected, report)?;
    report.asked(AskedFigure::at_least("replay", mb_per_s, 500.0).unit("MB/s"));
    let usual = JournalOptions::default();
    let mut longest_ms: f64 = 0.0;
    for (what, objects, updates, commit_every) in [
        ("uniform updates, small", sizes.objects[0], updates * 3, None),
        ("uniform updates, large", sizes.objects[1], updates * 3, None),
        ("a commit each", 64, sizes.replay_bytes / 4096 / 8, Some(1)),
    ] {
        let dir = options.database_dir()?;
        let expected = fill(options, dir.path(), &usual, objects, updates, commit_every)?;
        longest_ms = longest_ms.max(recover(what, dir.path(), &usual, &expected, report)?.1);
    }
    report.asked(AskedFigure::at_most("longest recovery", longest_ms, 1000.0).unit("ms"));
    Ok(())
}

/// Updates a new database until just so many are in, commits, and drops it without closing.
fn fill(
    options: &RunOptions,
    dir: &Path,
    journal: &JournalOptions,
    objects: usize,
    updates: u64,
    commit_every: Option<u64>,
) -> Result<Vec<u64>, Error> {
    let pool = Pool::create(dir, &pool_options(journal.clone()))?;
    let offsets = make_objects(&pool, objects)?;
    pool.checkpoint()?;
    let mut random = Random::new(options.seed);
    let mut worst_ms = 0;
    for i in 0..updates {
        update(&pool, offsets[random.below(objects as u64) as usize], i);
        match commit_every {
            Some(every) if i % every == 0 => pool.sync()?,
            _ if i % 8192 == 0 => {
                pool.persist(Durability::None)?;
                // Stops where a recovery takes about as long as it may before a checkpoint comes.
                let predicted_ms = pool.stats().predicted_recovery_ms;
                worst_ms = worst_ms.max(predicted_ms);
                if i > updates * 2 / 3 && predicted_ms * 10 > worst_ms * 9 {
                    break;
                }
            }
            _ => {}
        }
    }
    pool.sync()?;
    Ok(values(&pool, &offsets))
}
