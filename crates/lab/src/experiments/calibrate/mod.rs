//! Measures the media of this machine into device profiles, which the modelled domain and the placement
//! policy read.
//!
//! Two profiles come out: the memory, and the disk behind the page cache. What cannot be seen from a program
//! (buffers, queues) is taken from the profiles that come with the crate; the file says so beside each such
//! figure.

mod write;

use crate::media::file::DirectFile;
use crate::media::memory::Memory;
use crate::media::{CachedMedium, Medium, rounds};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::placement::{Limits, Policy};
use entresol_memory::profile::{Access, Direction, Pattern, Profile};
use entresol_memory::{DomainChoice, Pool, PoolOptions};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;
use write::{Latencies, profile_text};

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let scratch;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => {
            scratch = tempfile::TempDir::new().map_err(|error| Error::Io {
                action: "make a directory for the profiles".to_string(),
                error,
            })?;
            scratch.path().join("measured.toml")
        }
    };
    let base = Profile::embedded("dram")?;
    let policy = Policy::of_this_machine(&base)?;
    let (memory_mib, file_mib, steps, reads) =
        if options.quick { (64, 16, 200_000, 50) } else { (1024, 512, 4_000_000, 2000) };
    let rounds = rounds(options.quick);

    let (flush_ns, accept_ns) = flush_ns(options)?;
    let memory = Memory::new(memory_mib, rounds, &policy)?;
    let (sequential_ns, random_ns) = memory.read_latency_ns(options.seed, steps)?;
    let latencies = Latencies { sequential_ns, random_ns, flush_ns, accept_ns };
    finish("memory", &memory, &base, &latencies, &out, report)?;
    drop(memory);

    let file = DirectFile::new(options, file_mib, rounds, &policy)?;
    let (sequential_ns, random_ns, durable_ns) = file.latencies_ns(options.seed, reads)?;
    let latencies = Latencies { sequential_ns, random_ns, flush_ns: 1000.0, accept_ns: durable_ns };
    finish("disk", &file, &Profile::embedded("nvme")?, &latencies, &beside(&out), report)
}

/// `FILE-disk.toml` for `FILE.toml`.
fn beside(out: &Path) -> PathBuf {
    let stem =
        out.file_stem().map_or_else(|| "profile".to_string(), |stem| stem.to_string_lossy().into_owned());
    out.with_file_name(format!("{stem}-disk.toml"))
}

/// Measures the curves, writes the profile, reads it back and reports what it holds.
fn finish(
    what: &str,
    medium: &dyn Medium,
    base: &Profile,
    latencies: &Latencies,
    out: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let mut measured = CachedMedium::new(medium);
    let text = profile_text(&mut measured, base, latencies)?;
    std::fs::write(out, text)
        .map_err(|error| Error::Io { action: format!("write {}", out.display()), error })?;
    let profile = Profile::load(out)?;
    report.row(json!({
        "profile": what,
        "file": out.display().to_string(),
        "sequential_read_ns": profile.read.sequential_ns,
        "random_read_ns": profile.read.random_ns,
        "flush_ns": profile.write.flush_ns,
        "accept_ns": profile.write.accept_ns,
        "read_peak_gb_per_s": profile.bandwidth.read.individual.peak(),
        "write_peak_gb_per_s": profile.bandwidth.write.individual.peak(),
    }));
    let limits = Limits::of(&profile);
    report.row(json!({
        "policy": what,
        "writers": format!("{} to {}", limits.writers_min, limits.writers_max),
        "access_bytes": limits.access_bytes,
        "small_access_bytes": limits.small_access_bytes,
    }));
    report.check(&format!("{what}: the profile that was written is read back with the measured curves"), {
        let mut same = true;
        for direction in [Direction::Read, Direction::Write] {
            for pattern in [Pattern::Individual, Pattern::Grouped, Pattern::Random] {
                let access = Access::new(direction, pattern, medium.threads()[0], medium.access_bytes()[0]);
                let (now, then) =
                    (profile.bandwidth_gb_per_s(&access.near()), measured.gb_per_s(access.near())?);
                same &= (now - then).abs() <= 0.001 * then + 1e-5;
            }
        }
        same
    });
    for (direction, curve) in
        [("read", &profile.bandwidth.read.individual), ("write", &profile.bandwidth.write.individual)]
    {
        let series = curve.threads.iter().zip(&curve.gb_per_s).map(|(threads, row)| Series {
            name: format!("{threads} threads"),
            points: curve.access_bytes.iter().map(ToString::to_string).zip(row.iter().copied()).collect(),
        });
        report.figure(Figure {
            title: format!("{what}: individual {direction}"),
            x_label: "access size (bytes)".to_string(),
            y_label: "GB/s".to_string(),
            series: series.collect(),
        });
    }
    Ok(())
}

/// Nanoseconds of a flush, and of a flush and a fence, of a changed line in the caches, with this processor's
/// own instructions. Where there are none, 1 and 1.
fn flush_ns(options: &RunOptions) -> Result<(f64, f64), Error> {
    const LINES: u64 = 4096;
    let dir = options.database_dir()?;
    let pool_options = PoolOptions { domain: DomainChoice::DaxEmulated, ..PoolOptions::default() };
    let pool = match Pool::create(dir.path(), &pool_options) {
        Err(entresol_memory::Error::Unsupported(_)) => return Ok((1.0, 1.0)),
        pool => pool?,
    };
    let start = pool.reserve(LINES as usize * 64)?.offset();
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..if options.quick { 5 } else { 101 } {
        for (fenced, samples) in [false, true].into_iter().zip(&mut rounds) {
            (0..LINES).for_each(|line| pool.word(start.plus(line * 64)).store(round, Ordering::Relaxed));
            let began = Instant::now();
            for line in 0..LINES {
                pool.flush(start.plus(line * 64), 64);
                if fenced {
                    pool.fence();
                }
            }
            pool.fence();
            samples.push(began.elapsed().as_nanos() as f64 / LINES as f64);
        }
    }
    let [flush, fenced] = rounds.map(|samples| crate::measure::median(&samples));
    Ok((flush, fenced.max(flush)))
}
