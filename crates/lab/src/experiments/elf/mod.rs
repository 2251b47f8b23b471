//! Elf, the multi-dimensional index (dissertation 4.3, Jibril et al. 2021): building, exact matches, ranges, partial
//! matches on uniform tuples of ten dimensions; and scans in SQL with and without one.
//!
//! The papers have 100 million tuples on Optane and DRAM; here are 5 million in DRAM, 0.4 GB with the codes. Queries
//! are drawn from the tuples with Zipf's distribution, as in the papers. The same queries run on modelled Optane, with
//! selective caching under each policy and without ([`cached`], [`policies`]).

mod cached;
mod machine;
mod parallel;
mod policies;
#[cfg(feature = "database")]
mod sql;
mod tuples;

use super::chapter3::claims::{differs, holds};
use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::workload::Zipf;
use crate::{Error, RunOptions};
use cached::Figures;
use entresol_structures::elf::{CodeCondition, Elf};
pub(super) use parallel::run as run_parallel;
pub(super) use policies::run as run_policies;
use serde_json::json;
#[cfg(feature = "database")]
pub(super) use sql::run as sql;
use std::time::Instant;
use tuples::{DIMENSIONS, Tuples};

/// Skew of the queries.
const THETA: f64 = 0.5;
/// Dimensions of a partial match.
const PARTIAL: [usize; 3] = [1, 4, 7];

/// Kind of a query.
struct Query {
    name: &'static str,
    /// Dimensions that have conditions.
    dimensions: &'static [usize],
    /// Part of the codes that a condition spans, in hundredths.
    width: u32,
    /// Number of queries at full size.
    queries: usize,
    /// Asked of it beside a scan of the columns: times as fast.
    asked: Option<f64>,
}

/// Kind of a query on modelled memory.
struct ModelledQuery {
    name: &'static str,
    dimensions: &'static [usize],
    /// Codes that a condition spans.
    width: u32,
    /// Queries before those that are measured, and these.
    warm: usize,
    modelled: usize,
}

const EXACT: ModelledQuery =
    ModelledQuery { name: "exact match", dimensions: ALL, width: 1, warm: 300_000, modelled: 50_000 };
const RANGE: ModelledQuery =
    ModelledQuery { name: "range 2%", dimensions: ALL, width: 2, warm: 50_000, modelled: 10_000 };
const PARTIAL_MATCH: ModelledQuery =
    ModelledQuery { name: "partial match 2%", dimensions: &PARTIAL, width: 2, warm: 40, modelled: 20 };

const ALL: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

fn build(tuples: &Tuples) -> Result<Elf, Error> {
    Elf::build(&tuples.columns()).map_err(|error| Error::Invalid(error.to_string()))
}

fn size(options: &RunOptions) -> usize {
    if options.quick { 20_000 } else { 5_000_000 }
}

/// Building by one thread and by two, opening what was stored, and the size.
pub(super) fn run_build(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let tuples = Tuples::uniform(size(options), options.seed);
    let (mut one, mut two, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut words = 0;
    for _ in 0..if options.quick { 1 } else { 5 } {
        let begin = Instant::now();
        let elf = build(&tuples)?;
        one.push(tuples.len() as f64 / begin.elapsed().as_secs_f64() / 1e6);
        words = elf.words().len();
        let stored = elf.words().to_vec();
        let begin = Instant::now();
        let opened = Elf::open(stored).map_err(|error| Error::Invalid(error.to_string()))?;
        open.push(begin.elapsed().as_secs_f64() * 1e3);
        report.check("what was opened is what was stored", opened == elf);
        drop((elf, opened));
        let halves = tuples.halves();
        let begin = Instant::now();
        let built: Vec<Result<Elf, Error>> = std::thread::scope(|scope| {
            let builders = halves.iter().map(|half| scope.spawn(|| build(half))).collect::<Vec<_>>();
            let ended = builders.into_iter().map(|builder| builder.join());
            ended
                .map(|built| built.unwrap_or_else(|_| Err(Error::Invalid("a builder panicked".into()))))
                .collect()
        });
        two.push(tuples.len() as f64 / begin.elapsed().as_secs_f64() / 1e6);
        let found: usize = built.into_iter().map(|elf| Ok(elf?.tuples())).sum::<Result<usize, Error>>()?;
        report.check("two builders have all tuples", found == tuples.len());
    }
    let (one, two, open_ms) = (median(&one), median(&two), median(&open));
    let bytes = 4.0 * words as f64 / tuples.len() as f64;
    report.row(json!({ "tuples": tuples.len(), "one_thread_million_tuples_per_s": one,
        "two_threads_million_tuples_per_s": two, "open_ms": open_ms, "bytes_per_tuple": bytes }));
    report.paper("Jibril et al., 5.3", "tuples built a second, Optane", "1.77 M/s of 100 M", Some(one * 1e6));
    report.paper("dissertation, 4.3.3", "tuples built a second, DRAM", "2.1 M/s of 100 M", Some(one * 1e6));
    report.paper("dissertation, 4.3.3", "bytes of the columns, a tuple", "40", Some(bytes));
    report.asked(AskedFigure::at_least("tuples built by two threads", two, 5.0).unit("M/s"));
    report.asked(AskedFigure::at_least("tuples built by one thread beside the paper's", one / 1.77, 1.0));
    Ok(())
}

/// Exact matches.
pub(super) fn run_exact(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let exact =
        Query { name: "exact match", dimensions: ALL, width: 0, queries: 200_000, asked: Some(100.0) };
    run_queries(&[exact], options, report)?;
    let variants = cached::run(&EXACT, options, report)?;
    cached::judge(&EXACT, &Figures { without: 223.0, with: 150.0, asked: 50.0 }, &variants, report);
    if options.quick {
        return Ok(());
    }
    let time = |name: &str| variants.of(name).ns();
    let fewer = time("levels:3") / time("none");
    holds(report, "fixed copies of the upper levels take at least a quarter off the time", fewer < 0.8);
    holds(
        report,
        "copies of the first level alone hardly change the time, since the processor's caches have it",
        time("levels:1") / time("none") > 0.9,
    );
    Ok(())
}

/// Ranges on all dimensions.
pub(super) fn run_range(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let range = |name, width, queries, asked| Query { name, dimensions: ALL, width, queries, asked };
    let queries = [
        range("range, 2 of 100 codes", 2, 10_000, Some(100.0)),
        range("range, 20 of 100 codes", 20, 200, Some(5.0)),
        range("range, 100 of 100 codes", 100, 20, None),
    ];
    run_queries(&queries, options, report)?;
    let variants = cached::run(&RANGE, options, report)?;
    cached::judge(&RANGE, &Figures { without: 210.0, with: 110.0, asked: 60.0 }, &variants, report);
    Ok(())
}

/// Ranges on some dimensions.
pub(super) fn run_partial(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let partial = |name, width, queries, asked| Query { name, dimensions: &PARTIAL, width, queries, asked };
    let queries = [
        partial("partial match, 2 of 100 codes", 2, 1000, Some(3.0)),
        partial("partial match, 20 of 100 codes", 20, 100, None),
        partial("partial match, 100 of 100 codes", 100, 20, None),
        Query {
            name: "first dimension, 2 of 100 codes",
            dimensions: &[0],
            width: 2,
            queries: 500,
            asked: Some(3.0),
        },
    ];
    run_queries(&queries, options, report)?;
    let variants = cached::run(&PARTIAL_MATCH, options, report)?;
    let figures = Figures { without: 236.0, with: 140.0, asked: 80.0 };
    cached::judge(&PARTIAL_MATCH, &figures, &variants, report);
    Ok(())
}

fn run_queries(queries: &[Query], options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let tuples = Tuples::uniform(size(options), options.seed);
    let elf = build(&tuples)?;
    let zipf = Zipf::new(tuples.len() as u64, THETA);
    let mut random = Random::new(options.seed + 1);
    for query in queries {
        let count = if options.quick { 5 } else { query.queries };
        let drawn: Vec<Vec<CodeCondition>> = (0..count)
            .map(|_| conditions(query.dimensions, query.width, &tuples, zipf.rank(&mut random) as usize))
            .collect();
        let begin = Instant::now();
        let found: usize = drawn.iter().map(|conditions| elf.count(conditions)).sum();
        let us = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
        let scanned = &drawn[..count.min(5)];
        let begin = Instant::now();
        let by_scan: Vec<usize> = scanned.iter().map(|conditions| tuples.count(conditions)).collect();
        let scan_us = begin.elapsed().as_secs_f64() * 1e6 / scanned.len() as f64;
        let same = scanned.iter().zip(&by_scan).all(|(conditions, found)| elf.count(conditions) == *found);
        report.check(&format!("{}: the tuples are those of a scan", query.name), same);
        report.row(json!({ "query": query.name, "us": us, "queries_per_s": 1e6 / us,
            "found": found as f64 / count as f64, "scan_us": scan_us, "times_as_fast": scan_us / us }));
        if let Some(asked) = query.asked {
            report.asked(AskedFigure::at_least(
                format!("{}, beside a scan", query.name),
                scan_us / us,
                asked,
            ));
        }
    }
    Ok(())
}

/// Conditions around a tuple, on so many codes of some dimensions.
fn conditions(dimensions: &[usize], width: u32, tuples: &Tuples, tuple: usize) -> Vec<CodeCondition> {
    let of = |dimension: usize| {
        if !dimensions.contains(&dimension) {
            return CodeCondition::Any;
        }
        let least = if width >= tuples.codes() { 0 } else { tuples.code(dimension, tuple) };
        CodeCondition::Between { least, greatest: least + width.max(1) - 1 }
    };
    (0..DIMENSIONS).map(of).collect()
}
