//! E7, merge of four sorted nodes into a fresh one (figure 3.13): 2-way or K-way, directly or through a buffer in DRAM,
//! unique keys or every key in all nodes; with individual and transactional failure atomicity.

use super::bench::{
    LINE_BYTES, average, cool, fetch, free, instances, journal, object, optane, settle, so_far,
};
use super::claims::{differs, holds};
use super::points::{Point, Points};
use super::undo::{Atomicity, Target};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, ModelledCost, Pool};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const SOURCES: usize = 4;
const SIZES: [usize; 4] = [512, 1024, 2048, 4096];
const UNIQUE: &str = "unique keys";
const DUPLICATES: &str = "all keys in all nodes";

type Entries = Vec<(u64, u64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Two,
    All,
}

/// Strategy of a merge.
#[derive(Debug, Clone, Copy)]
struct Strategy {
    way: Way,
    buffered: bool,
    atomicity: Atomicity,
}

impl Strategy {
    fn all() -> Vec<Strategy> {
        let mut all = Vec::new();
        for atomicity in [Atomicity::Individual, Atomicity::Transaction] {
            for way in [Way::Two, Way::All] {
                all.extend([false, true].map(|buffered| Strategy { way, buffered, atomicity }));
            }
        }
        all
    }

    fn name(self) -> String {
        let way = if self.way == Way::Two { "2-way" } else { "K-way" };
        let path = if self.buffered { "through DRAM" } else { "directly" };
        format!("{way} {path}, {}", self.atomicity.name())
    }

    /// Bytes that a transaction logs: what the result may become, as far as the merge knows before it writes.
    fn logged_bytes(self, result: usize, last_two: usize, node_bytes: usize) -> usize {
        match (self.buffered, self.way) {
            (true, _) => result,
            (false, Way::Two) => last_two,
            (false, Way::All) => SOURCES * node_bytes,
        }
    }
}

/// Merges two runs; the later one's value counts.
fn two_way(older: &[(u64, u64)], newer: &[(u64, u64)]) -> Entries {
    let mut merged = Entries::with_capacity(older.len() + newer.len());
    let (mut i, mut j) = (0, 0);
    while i < older.len() && j < newer.len() {
        let ((a, _), (b, _)) = (older[i], newer[j]);
        merged.push(if a < b { older[i] } else { newer[j] });
        i += usize::from(a <= b);
        j += usize::from(b <= a);
    }
    merged.extend_from_slice(&older[i..]);
    merged.extend_from_slice(&newer[j..]);
    merged
}

/// Merges all runs at once; the latest one's value counts.
fn k_way(runs: &[Entries]) -> Entries {
    let mut at = vec![0; runs.len()];
    let mut merged = Entries::new();
    loop {
        let heads = runs
            .iter()
            .zip(&at)
            .enumerate()
            .filter_map(|(run, (entries, at))| entries.get(*at).map(|(key, value)| (*key, run, *value)));
        // Of equal keys that of the latest run.
        let Some((least, _, value)) = heads.min_by_key(|(key, run, _)| (*key, runs.len() - run)) else {
            return merged;
        };
        merged.push((least, value));
        for (entries, at) in runs.iter().zip(&mut at) {
            *at += usize::from(entries.get(*at).is_some_and(|(key, _)| *key == least));
        }
    }
}

/// The runs of one instance.
fn runs(bytes: usize, duplicates: bool) -> Vec<Entries> {
    let count = bytes as u64 / 16;
    let run = |source: u64| {
        let key = |i| if duplicates { i + 1 } else { i * SOURCES as u64 + source + 1 };
        (0..count).map(|i| (key(i), i << 8 | source)).collect()
    };
    (0..SOURCES as u64).map(run).collect()
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    let mut points = Points::new("E7, merge of four nodes", "node bytes");
    let (clocked, _dir) = journal(options)?;
    for bytes in SIZES {
        for (at, duplicates) in [(UNIQUE, false), (DUPLICATES, true)] {
            for strategy in Strategy::all() {
                let modelled = optane()?;
                let count = instances(options, false, bytes);
                let (_, cost, right) = merge_all(&modelled, strategy, count, bytes, duplicates)?;
                points.right &= right;
                let many = instances(options, true, bytes * 2 * SOURCES);
                let (ns, _, right) = merge_all(&clocked, strategy, many, bytes, duplicates)?;
                points.right &= right;
                let result = if duplicates { bytes } else { SOURCES * bytes };
                points.all.push(Point {
                    what: strategy.name(),
                    at: at.to_string(),
                    size: bytes,
                    modelled: cost.map(|cost| average(cost, count, result)).unwrap_or_default(),
                    clock_ns: Some(ns),
                });
            }
        }
    }
    Ok(points)
}

/// Reads a run from the pool: its lines together, as a merge that reads ahead.
fn read_run(pool: &Pool, offset: u64, bytes: usize) -> Entries {
    if pool.modelled_cost().is_some() {
        fetch(pool, &(offset / LINE_BYTES..(offset + bytes as u64) / LINE_BYTES).collect::<Vec<_>>());
    }
    let words = pool.view(offset, bytes / 8);
    words.chunks_exact(2).map(|pair| (pair[0].load(Relaxed), pair[1].load(Relaxed))).collect()
}

fn merge_all(
    pool: &Pool,
    strategy: Strategy,
    count: usize,
    bytes: usize,
    duplicates: bool,
) -> Result<(f64, Option<ModelledCost>, bool), Error> {
    let runs = runs(bytes, duplicates);
    let expected = k_way(&runs);
    let target = Target::new(pool, SOURCES * bytes)?;
    let mut instances = Vec::with_capacity(count);
    for _ in 0..count {
        let mut sources = Vec::with_capacity(SOURCES);
        for run in &runs {
            let offset = object(pool, bytes)?;
            for (pair, (key, value)) in pool.view(offset, bytes / 8).chunks_exact(2).zip(run) {
                pair[0].store(*key, Relaxed);
                pair[1].store(*value, Relaxed);
            }
            settle(pool, offset, bytes);
            sources.push(offset);
        }
        instances.push((sources, object(pool, SOURCES * bytes)?));
    }
    pool.persist(Durability::None)?;
    if pool.modelled_cost().is_some() {
        cool(pool);
    }
    let before = pool.modelled_cost();
    let start = Instant::now();
    for (sources, result) in &instances {
        let runs: Vec<Entries> = sources.iter().map(|offset| read_run(pool, *offset, bytes)).collect();
        let (merged, last_two) = match strategy.way {
            Way::All => (k_way(&runs), 0),
            Way::Two => {
                let (older, newer) = (two_way(&runs[0], &runs[1]), two_way(&runs[2], &runs[3]));
                (two_way(&older, &newer), older.len() + newer.len())
            }
        };
        let logged = strategy.logged_bytes(merged.len() * 16, last_two * 16, bytes);
        target.write(strategy.atomicity, *result, logged, &merged);
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    let cost = before.map(|before| so_far(pool) - before);
    let right =
        instances.last().is_some_and(|(_, result)| target.holds(strategy.atomicity, *result, &expected));
    free(pool, instances.into_iter().flat_map(|(sources, result)| sources.into_iter().chain([result])))?;
    target.free()?;
    Ok((ns, cost, right))
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let ns = |way, buffered, atomicity, at: &str, bytes| {
        points.ns(&Strategy { way, buffered, atomicity }.name(), at, bytes)
    };
    let (own, transaction) = (Atomicity::Individual, Atomicity::Transaction);
    holds(
        report,
        "in any case, individual failure atomicity should be preferred to transactions",
        points.at_all_sizes(|bytes| {
            [UNIQUE, DUPLICATES].iter().all(|at| {
                [Way::Two, Way::All].iter().all(|way| {
                    [false, true].iter().all(|buffered| {
                        ns(*way, *buffered, own, at, bytes) < ns(*way, *buffered, transaction, at, bytes)
                    })
                })
            })
        }),
    );
    holds(
        report,
        "with transactions and duplicates the direct 2-way merge is faster than the direct K-way merge: it logs less",
        points.at_all_sizes(|bytes| {
            ns(Way::Two, false, transaction, DUPLICATES, bytes)
                < ns(Way::All, false, transaction, DUPLICATES, bytes)
        }),
    );
    holds(
        report,
        "transactions should make use of the DRAM buffer where there are duplicates, to minimise the logged region",
        points.at_all_sizes(|bytes| {
            [Way::Two, Way::All].iter().all(|way| {
                ns(*way, true, transaction, DUPLICATES, bytes)
                    < ns(*way, false, transaction, DUPLICATES, bytes)
            })
        }),
    );
    holds(
        report,
        "with a buffer in DRAM both strategies perform alike",
        points.at_all_sizes(|bytes| {
            (ns(Way::Two, true, own, UNIQUE, bytes) / ns(Way::All, true, own, UNIQUE, bytes) - 1.0).abs()
                < 0.1
        }),
    );
    let clock = |way| points.clock(&Strategy { way, buffered: false, atomicity: own }.name(), UNIQUE, 4096);
    report.ratio("by the clock, 4 KiB, unique, directly: K-way/2-way", clock(Way::All) / clock(Way::Two));
    differs(
        report,
        "a direct 2-way merge is significantly faster than one through DRAM, and than the K-way merge",
        "on the device all of them cost the same",
        points.at_all_sizes(|bytes| {
            [(Way::Two, true), (Way::All, false), (Way::All, true)].iter().all(|(way, buffered)| {
                (ns(*way, *buffered, own, UNIQUE, bytes) / ns(Way::Two, false, own, UNIQUE, bytes) - 1.0)
                    .abs()
                    < 0.1
            })
        }),
        "Sources are read whole lines ahead and the result is flushed once, so every strategy moves the same lines. The \
         difference is the processor's: the ratio by the clock.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_merge_alike_and_the_latest_counts() {
        for duplicates in [false, true] {
            let runs = runs(512, duplicates);
            let once = two_way(&two_way(&runs[0], &runs[1]), &two_way(&runs[2], &runs[3]));
            assert_eq!(once, k_way(&runs));
            assert_eq!(once.len(), if duplicates { 32 } else { 128 });
            assert!(once.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(!duplicates || once.iter().all(|(_, value)| value & 0xFF == 3));
        }
    }
}
