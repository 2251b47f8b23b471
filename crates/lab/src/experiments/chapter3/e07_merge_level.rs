//! E7, merge of four sorted nodes into a fresh one (figure 3.13): 2-way or K-way, directly or through a
//! buffer in DRAM, unique keys or every key in all nodes; with individual and transactional failure
//! atomicity.
//!
//! A direct merge stores each entry into the fresh node when it is known; through DRAM, all are merged into a
//! buffer that is then copied. Either reads its sources as streams, a few lines ahead. Of a 2-way merge, the
//! first two results are in DRAM, and only the last merge differs.

use super::bench::{LINE_BYTES, average, cool, free, instances, journal, object, optane, settle, so_far};
use super::claims::{differs, holds};
use super::points::{Point, Points};
use super::undo::{Atomicity, Target};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, ModelledCost, Pool, PoolOffset};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const SOURCES: usize = 4;
const SIZES: [usize; 4] = [512, 1024, 2048, 4096];
const UNIQUE: &str = "unique keys";
const DUPLICATES: &str = "all keys in all nodes";

type Entries = Vec<(u64, u64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeMethod {
    Two,
    All,
}

/// Strategy of a merge.
#[derive(Debug, Clone, Copy)]
struct Strategy {
    way: MergeMethod,
    buffered: bool,
    atomicity: Atomicity,
}

impl Strategy {
    fn all() -> Vec<Strategy> {
        let mut all = Vec::new();
        for atomicity in [Atomicity::Individual, Atomicity::Transaction] {
            for way in [MergeMethod::Two, MergeMethod::All] {
                all.extend([false, true].map(|buffered| Strategy { way, buffered, atomicity }));
            }
        }
        all
    }

    fn name(self) -> String {
        let way = if self.way == MergeMethod::Two { "2-way" } else { "K-way" };
        let path = if self.buffered { "through DRAM" } else { "directly" };
        format!("{way} {path}, {}", self.atomicity.name())
    }

    /// Bytes that a transaction logs: what the result may become, as far as the merge knows before it writes.
    fn logged_bytes(self, result: usize, last_two: usize, node_bytes: usize) -> usize {
        match (self.buffered, self.way) {
            (true, _) => result,
            (false, MergeMethod::Two) => last_two,
            (false, MergeMethod::All) => SOURCES * node_bytes,
        }
    }
}

/// Takes merged entries.
trait Sink {
    fn push(&mut self, entry: (u64, u64));
}

impl Sink for Entries {
    fn push(&mut self, entry: (u64, u64)) {
        Vec::push(self, entry);
    }
}

/// A fresh node into which entries are stored as they come.
struct FreshNode<'p> {
    words: &'p [AtomicU64],
    entries: usize,
}

impl Sink for FreshNode<'_> {
    fn push(&mut self, (key, value): (u64, u64)) {
        self.words[2 * self.entries].store(key, Relaxed);
        self.words[2 * self.entries + 1].store(value, Relaxed);
        self.entries += 1;
    }
}

/// Entries of a source node, read as a stream: lines are asked for before they are used.
struct Stream<'p> {
    pool: &'p Pool,
    offset: PoolOffset,
    words: &'p [AtomicU64],
    entry: usize,
    lines_ahead: u64,
    is_modelled: bool,
}

/// Lines that a core has in flight; the streams of a merge share them.
const LINES_IN_FLIGHT: u64 = 12;
const ENTRIES_OF_A_LINE: usize = LINE_BYTES as usize / 16;

impl<'p> Stream<'p> {
    /// One of several streams that are read together.
    fn new(pool: &'p Pool, offset: PoolOffset, bytes: usize, streams: u64) -> Stream<'p> {
        Stream {
            pool,
            offset,
            words: pool.view(offset, bytes / 8),
            entry: 0,
            lines_ahead: LINES_IN_FLIGHT / streams,
            is_modelled: pool.modelled_cost().is_some(),
        }
    }

    fn bill_line(&self) {
        let (line, lines) = ((self.entry / ENTRIES_OF_A_LINE) as u64, self.words.len() as u64 / 8);
        let last = line + self.lines_ahead;
        let ahead = if line == 0 { 0..last } else { last - 1..last };
        ahead
            .filter(|ahead| *ahead < lines)
            .for_each(|line| self.pool.prefetch(self.offset.plus(line * LINE_BYTES)));
        self.pool.touch(self.offset.plus(line * LINE_BYTES), 8);
    }
}

impl Iterator for Stream<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let pair = self.words.get(2 * self.entry..2 * self.entry + 2)?;
        if self.is_modelled && self.entry.is_multiple_of(ENTRIES_OF_A_LINE) {
            self.bill_line();
        }
        self.entry += 1;
        Some((pair[0].load(Relaxed), pair[1].load(Relaxed)))
    }
}

/// Merges two runs; the later one's value counts.
fn two_way<I: Iterator<Item = (u64, u64)>>(mut older: I, mut newer: I, into: &mut impl Sink) {
    let (mut left, mut right) = (older.next(), newer.next());
    loop {
        match (left, right) {
            (Some(a), Some(b)) => {
                into.push(if a.0 < b.0 { a } else { b });
                if a.0 <= b.0 {
                    left = older.next();
                }
                if b.0 <= a.0 {
                    right = newer.next();
                }
            }
            (Some(a), None) => {
                into.push(a);
                left = older.next();
            }
            (None, Some(b)) => {
                into.push(b);
                right = newer.next();
            }
            (None, None) => return,
        }
    }
}

/// Merges all runs at once; the latest one's value counts.
fn k_way<I: Iterator<Item = (u64, u64)>>(mut runs: Vec<I>, into: &mut impl Sink) {
    let mut heads: Vec<_> = runs.iter_mut().map(Iterator::next).collect();
    loop {
        let known =
            heads.iter().enumerate().filter_map(|(run, head)| head.map(|(key, value)| (key, run, value)));
        // Of equal keys that of the latest run.
        let Some((least, _, value)) = known.min_by_key(|(key, run, _)| (*key, SOURCES - run)) else { return };
        into.push((least, value));
        for (head, run) in heads.iter_mut().zip(&mut runs) {
            if head.is_some_and(|(key, _)| key == least) {
                *head = run.next();
            }
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

fn merge_all(
    pool: &Pool,
    strategy: Strategy,
    count: usize,
    bytes: usize,
    duplicates: bool,
) -> Result<(f64, Option<ModelledCost>, bool), Error> {
    let runs = runs(bytes, duplicates);
    let mut expected = Entries::new();
    k_way(runs.iter().map(|run| run.iter().copied()).collect(), &mut expected);
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
        merge(pool, strategy, &target, sources, *result, bytes);
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    let cost = before.map(|before| so_far(pool) - before);
    let right =
        instances.last().is_some_and(|(_, result)| target.holds(strategy.atomicity, *result, &expected));
    free(pool, instances.into_iter().flat_map(|(sources, result)| sources.into_iter().chain([result])))?;
    target.free()?;
    Ok((ns, cost, right))
}

/// Merges the sources of one instance.
fn merge(
    pool: &Pool,
    strategy: Strategy,
    target: &Target<'_>,
    sources: &[PoolOffset],
    result: PoolOffset,
    bytes: usize,
) {
    let together = if strategy.way == MergeMethod::Two { 2 } else { SOURCES as u64 };
    let stream = |source: usize| Stream::new(pool, sources[source], bytes, together);
    let mut halves = [Entries::new(), Entries::new()];
    if strategy.way == MergeMethod::Two {
        two_way(stream(0), stream(1), &mut halves[0]);
        two_way(stream(2), stream(3), &mut halves[1]);
    }
    let last_two = halves.iter().map(Vec::len).sum::<usize>() * 16;
    let [older, newer] = halves;
    if strategy.buffered {
        let mut merged = Entries::new();
        match strategy.way {
            MergeMethod::Two => two_way(older.into_iter(), newer.into_iter(), &mut merged),
            MergeMethod::All => k_way((0..SOURCES).map(stream).collect(), &mut merged),
        }
        let logged = strategy.logged_bytes(merged.len() * 16, last_two, bytes);
        target.write(strategy.atomicity, result, logged, &merged);
        return;
    }
    target.begin(strategy.atomicity, result, strategy.logged_bytes(0, last_two, bytes));
    let mut node = FreshNode { words: pool.view(result, SOURCES * bytes / 8), entries: 0 };
    match strategy.way {
        MergeMethod::Two => two_way(older.into_iter(), newer.into_iter(), &mut node),
        MergeMethod::All => k_way((0..SOURCES).map(stream).collect(), &mut node),
    }
    target.commit(strategy.atomicity, result, node.entries * 16);
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
                [MergeMethod::Two, MergeMethod::All].iter().all(|way| {
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
            ns(MergeMethod::Two, false, transaction, DUPLICATES, bytes)
                < ns(MergeMethod::All, false, transaction, DUPLICATES, bytes)
        }),
    );
    holds(
        report,
        "transactions should make use of the DRAM buffer where there are duplicates, to minimise the logged region",
        points.at_all_sizes(|bytes| {
            [MergeMethod::Two, MergeMethod::All].iter().all(|way| {
                ns(*way, true, transaction, DUPLICATES, bytes)
                    < ns(*way, false, transaction, DUPLICATES, bytes)
            })
        }),
    );
    holds(
        report,
        "with a buffer in DRAM both strategies perform quite similarly, within a fifth",
        points.at_all_sizes(|bytes| {
            (ns(MergeMethod::All, true, own, UNIQUE, bytes) / ns(MergeMethod::Two, true, own, UNIQUE, bytes)
                - 1.0)
                .abs()
                < 0.2
        }),
    );
    holds(
        report,
        "the direct 2-way merge performs better than the K-way merge, which reads all nodes at once",
        points.at_all_sizes(|bytes| {
            [UNIQUE, DUPLICATES].iter().all(|at| {
                ns(MergeMethod::Two, false, own, at, bytes) < ns(MergeMethod::All, false, own, at, bytes)
            })
        }),
    );
    let clock =
        |way, buffered| points.clock(&Strategy { way, buffered, atomicity: own }.name(), UNIQUE, 4096);
    let source = "dissertation, figure 3.13";
    let direct = clock(MergeMethod::Two, false);
    for (name, paper, ours) in [
        ("2-way, through DRAM to direct", "well above 1", clock(MergeMethod::Two, true) / direct),
        (
            "K-way, through DRAM to direct",
            "not so clear",
            clock(MergeMethod::All, true) / clock(MergeMethod::All, false),
        ),
        ("direct, K-way to 2-way", "above 1", clock(MergeMethod::All, false) / direct),
    ] {
        report.paper(source, &format!("by the clock, unique keys, 4 KiB: {name}"), paper, Some(ours));
    }
    differs(
        report,
        "a direct 2-way merge of unique keys is significantly faster than one through DRAM",
        "on the device they take the same time, within a tenth",
        points.at_all_sizes(|bytes| {
            (ns(MergeMethod::Two, true, own, UNIQUE, bytes) / ns(MergeMethod::Two, false, own, UNIQUE, bytes)
                - 1.0)
                .abs()
                < 0.1
        }),
        "Either reads each line of its sources once, as a stream, and flushes the result once. The model bills neither the \
         processor's work nor copies in its caches, so it cannot show the paper's statement; the ratios by the clock can, \
         on DRAM.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_merge_alike_and_the_latest_counts() {
        for duplicates in [false, true] {
            let runs = runs(512, duplicates);
            let of = |run: usize| runs[run].iter().copied();
            let (mut older, mut newer, mut once, mut all) =
                (Entries::new(), Entries::new(), Entries::new(), Entries::new());
            two_way(of(0), of(1), &mut older);
            two_way(of(2), of(3), &mut newer);
            two_way(older.into_iter(), newer.into_iter(), &mut once);
            k_way((0..SOURCES).map(of).collect(), &mut all);
            assert_eq!(once, all);
            assert_eq!(once.len(), if duplicates { 32 } else { 128 });
            assert!(once.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(!duplicates || once.iter().all(|(_, value)| value & 0xFF == 3));
        }
    }
}
