//! Ranges and partial matches by one thread and by two, in DRAM, by the clock (Jibril et al. 2021, figure 8).

use super::tuples::{DIMENSIONS, Tuples};
use super::{PARTIAL, build, differs};
use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::elf::{CodeCondition, ElfInPlace, ListCache, ListCacheOptions, ListPolicy};
use serde_json::json;
use std::time::Instant;

const THREADS: usize = 2;
const CARDINALITIES: [u32; 3] = [20, 50, 100];
const RANGES: [u32; 3] = [5, 25, 100];
/// Rounds of each query, in which the ways take turns: the smallest take microseconds.
const ROUNDS: usize = 9;

/// Mean milliseconds of queries, each at its median, by one thread, by two, and as the estimate chooses.
struct Times([f64; 3]);

/// Runs the experiment.
pub(crate) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let count = if options.quick { 5000 } else { 1_000_000 };
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    let mut worst_choice = 0.0_f64;
    for codes in CARDINALITIES {
        let tuples = Tuples::with_codes(count, codes, options.seed);
        let elf = build(&tuples)?;
        let placed = ElfInPlace::open(elf.words())?;
        let policy: ListPolicy = "levels:3".parse().map_err(|error| Error::Invalid(format!("{error}")))?;
        let cache = ListCache::new(&placed, ListCacheOptions::new(4 * elf.words().len(), policy));
        for (name, dimensions) in [("range", super::ALL), ("partial match", &PARTIAL[..])] {
            for percent in RANGES {
                let queries = queries(&tuples, dimensions, codes * percent / 100, options);
                for (caching, cache) in [("none", None), ("levels:3", Some(&cache))] {
                    let Times([one, two, chosen]) = measure(&placed, cache, &queries, codes, report)?;
                    report.row(json!({ "query": name, "codes": codes, "range_percent": percent,
                        "cache": caching, "sequential_ms": one, "parallel_ms": two, "chosen_ms": chosen,
                        "times_as_fast": one / two }));
                    (least, most) = (least.min(one / two), most.max(one / two));
                    worst_choice = worst_choice.max(chosen / one.min(two));
                }
            }
        }
    }
    report.paper(
        "Jibril et al., figure 8",
        "parallel beside sequential, at best, 20 threads",
        "12",
        Some(most),
    );
    report.asked(AskedFigure::at_least("two threads beside one, at best", most, 1.5));
    report.asked(AskedFigure::at_most("time as chosen to the better of both, at worst", worst_choice, 1.2));
    if !options.quick {
        differs(
            report,
            "the smallest queries take a hundred times as long in parallel",
            "more than twice as long, and they are not run in parallel: the estimate says how much they read",
            least < 0.5,
            "Threads are started for a query, as in the paper; by estimate only for one that reads enough.",
        );
    }
    Ok(())
}

fn queries(
    tuples: &Tuples,
    dimensions: &[usize],
    width: u32,
    options: &RunOptions,
) -> Vec<Vec<CodeCondition>> {
    let mut random = Random::new(options.seed + 7);
    let count = if options.quick { 2 } else { 5 };
    (0..count)
        .map(|_| {
            let tuple = random.below(tuples.len() as u64) as usize;
            super::conditions(dimensions, width.max(1), tuples, tuple)
        })
        .collect()
}

fn measure(
    elf: &ElfInPlace<&[u32]>,
    cache: Option<&ListCache>,
    queries: &[Vec<CodeCondition>],
    codes: u32,
    report: &mut Report,
) -> Result<Times, Error> {
    let mut sums = [0.0; 3];
    let mut same = true;
    for conditions in queries {
        let share = |condition: &CodeCondition| match condition {
            CodeCondition::Between { least, greatest } => f64::from(greatest - least + 1) / f64::from(codes),
            _ => 1.0,
        };
        let shares: Vec<f64> = conditions.iter().map(|condition| share(condition).min(1.0)).collect();
        let (mut times, mut found) = ([const { Vec::new() }; 3], Vec::new());
        for _ in 0..ROUNDS {
            for (way, times) in times.iter_mut().enumerate() {
                let begin = Instant::now();
                let ids = match way {
                    0 => elf.collect_by(cache, conditions, 1)?,
                    1 => elf.collect_by(cache, conditions, THREADS)?,
                    _ => elf.collect_parallel(cache, conditions, &shares, THREADS)?,
                };
                times.push(begin.elapsed().as_secs_f64() * 1e3);
                found.push(ids.len());
            }
        }
        sums.iter_mut().zip(&times).for_each(|(sum, times)| *sum += median(times));
        same &= found.iter().all(|count| *count == found[0]) && conditions.len() == DIMENSIONS;
    }
    if !same {
        report.check("threads find what one finds", false);
    }
    Ok(Times(sums.map(|sum| sum / queries.len() as f64)))
}
