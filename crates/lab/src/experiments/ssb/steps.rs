//! Table 1 of the bandwidth paper (SIGMOD 2021): query 2.1 by one thread, by all processors, and pinned. Steps that
//! need a second socket are left out on a machine that has one.
//!
//! DRAM is measured: the input is in the cache. Of persistent memory the table has what the profile of Optane allows:
//! the time of processing, or that in which so many threads read the input from it, whichever is longer.

use super::{QUERY, Star, make, scale, text};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::placement::{allowed_cpus, pin_thread};
use entresol_memory::profile::{Access, Direction, Pattern, Profile};
use entresol_ssb::Layout;
use serde_json::json;
use std::path::Path;

/// Step of the table, with the paper's seconds on PMEM and DRAM.
const PAPER: [(&str, f64, f64); 5] = [
    ("1 thread", 306.7, 221.2),
    ("all processors of a socket", 25.1, 15.2),
    ("2 sockets", 12.3, 9.2),
    ("near memory", 9.4, 5.2),
    ("pinned", 8.6, 5.2),
];

/// Bytes of an access of a scan: pages are read from their first byte to the last.
const ACCESS_BYTES: u64 = 4096;

/// Seconds of the query by so many threads, and bytes of its input; `cpus` are those that may run it.
fn measure(dir: &Path, threads: usize, cpus: &[usize], runs: usize) -> Result<(f64, f64, bool), Error> {
    let work = || -> Result<(f64, f64, bool), Error> {
        // Threads that this one starts inherit its processors.
        pin_thread(cpus)?;
        let mut star = Star::open(dir, Some(threads))?;
        let sql = text(QUERY)?;
        let bytes = star.input_bytes(&[(QUERY, sql)])?;
        let seconds = star.least(QUERY, sql, runs)?;
        let is_right = star.is_right;
        star.close()?;
        Ok((seconds, bytes as f64, is_right))
    };
    let failed = |_| Error::Invalid("the thread of the query panicked".to_owned());
    std::thread::scope(|scope| scope.spawn(work).join()).map_err(failed)?
}

/// Runs the experiment.
pub(in crate::experiments) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    make(dir.path(), scale(options), &[("columns", Layout::Columns)], options.seed)?;
    let database = dir.path().join("columns");
    let runs = if options.quick { 2 } else { 15 };
    let cpus = allowed_cpus()?;
    let optane = Profile::embedded("optane-dcpmm")?;
    let steps = [
        ("1 thread", 1, &cpus[..]),
        ("1 thread, pinned", 1, &cpus[..1]),
        ("all processors of a socket", cpus.len(), &cpus[..]),
    ];
    let (mut times, mut is_right) = (Vec::new(), true);
    for (name, threads, cpus) in steps {
        let (seconds, bytes, right) = measure(&database, threads, cpus, runs)?;
        is_right &= right;
        let access = Access::new(Direction::Read, Pattern::Individual, threads as u64, ACCESS_BYTES);
        let of_medium = bytes / 1e9 / optane.bandwidth_gb_per_s(&access.near());
        let pmem = seconds.max(of_medium);
        report
            .row(json!({ "step": name, "threads": threads, "dram_ms": 1e3 * seconds, "pmem_ms": 1e3 * pmem,
            "input_bytes": bytes }));
        times.push((name, seconds, pmem));
    }
    let time = |step: &str| times.iter().find(|(name, ..)| *name == step).copied();
    let first = time("1 thread");
    let (_, paper_pmem, paper_dram) = PAPER[0];
    for (step, pmem, dram) in &PAPER[1..] {
        let ours = time(step).zip(first);
        let faster = |paper: f64, of: f64, ours: Option<f64>, medium: &str, report: &mut Report| {
            let name = format!("query 2.1 on {medium}, {step}: times as fast as 1 thread");
            report.paper("table 1", &name, &format!("{:.1}", paper / of), ours);
        };
        let of_dram = ours.map(|((_, now, _), (_, before, _))| before / now);
        let of_pmem = ours.map(|((.., now), (.., before))| before / now);
        faster(paper_dram, *dram, of_dram, "DRAM", report);
        faster(paper_pmem, *pmem, of_pmem, "PMEM", report);
    }
    for (step, pmem, dram) in &PAPER[..2] {
        let ours = time(step).map(|(_, now, of_pmem)| of_pmem / now);
        let name = format!("query 2.1, {step}: PMEM to DRAM");
        report.paper("table 1", &name, &format!("{:.2}", pmem / dram), ours);
    }
    let pinned = time("1 thread, pinned").zip(first).map(|((_, pinned, _), (_, free, _))| free / pinned);
    report.ratio("1 thread, pinned: times as fast as not pinned", pinned.unwrap_or(f64::NAN));
    report.ratio("processors of this machine", cpus.len() as f64);
    report.note("2 sockets and near memory need a machine with several memory nodes.");
    report.check("all results are those of the first run", is_right);
    Ok(())
}
