//! Nodes of several sizes, by one and two threads, ours and through the undo log.

use super::undo_log::{Lane, Metadata, UndoHeap};
use super::{Medium, RUN, Sizes};
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool, PoolOffset};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tempfile::TempDir;

/// The node of the figure.
const NODE_BYTES: u64 = 256;
const THREADS_MAX: usize = 2;

/// Method of allocating nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AllocationMethod {
    Ours,
    Undo(Metadata),
}

impl AllocationMethod {
    const ALL: [AllocationMethod; 3] = [
        AllocationMethod::Ours,
        AllocationMethod::Undo(Metadata::Undone),
        AllocationMethod::Undo(Metadata::Redone),
    ];

    fn name(self) -> &'static str {
        match self {
            AllocationMethod::Ours => "reserve, initialise, publish",
            AllocationMethod::Undo(Metadata::Undone) => "undo-log transaction",
            AllocationMethod::Undo(Metadata::Redone) => "undo-log transaction, bit by itself",
        }
    }
}

/// One point: a size, a way and a number of threads.
struct Point {
    bytes: u64,
    threads: usize,
    way: AllocationMethod,
    first_ns: f64,
    samples: Vec<f64>,
}

pub(super) fn beside_undo_log(
    options: &RunOptions,
    sizes: &Sizes,
    medium: Medium,
    report: &mut Report,
) -> Result<(), Error> {
    let mut node_ns = Vec::new();
    let (mut all_listed, mut none_leaks) = (true, true);
    for (bytes, threads) in [(64, 1), (NODE_BYTES, 1), (NODE_BYTES, THREADS_MAX), (1024, 1), (4096, 1)] {
        let dir = options.database_dir()?;
        let Some(pool) = medium.pool(&dir)? else { return Ok(()) };
        let new = |way| Point { bytes, threads, way, first_ns: 0.0, samples: Vec::new() };
        let mut points = AllocationMethod::ALL.map(new);
        let anchors = anchors(&pool)?;
        let before = allocated(&pool);
        // A large object has at most an extent: fewer runs of large nodes.
        let runs = sizes.runs.min((12 << 20) / ((bytes as usize + 16) * RUN * threads)).max(1);
        let (mut known, right) = measure(&pool, sizes, runs, &anchors, &mut points)?;
        known.extend(before);
        all_listed &= right;
        none_leaks &= is_whole_after_reopening(medium, &dir, pool, &anchors, known)?;
        for point in points {
            let ns = median(&point.samples);
            if point.bytes == NODE_BYTES && point.threads == 1 {
                node_ns.push(ns);
            }
            report.row(json!({
                "medium": medium.name(),
                "way": point.way.name(),
                "node_bytes": point.bytes,
                "threads": point.threads,
                "ns": ns,
                "ns_in_fresh_memory": point.first_ns,
            }));
        }
    }
    let name = medium.name();
    report.check(
        &format!("{name}: every node is in its thread's list, once, and in the heap's bitmap"),
        all_listed,
    );
    report.check(&format!("{name}: after opening again, what is allocated is what is reachable"), none_leaks);
    let ratio = |index: usize| node_ns[index] / node_ns[0];
    let figure = format!("256 B, {name}: undo log/ours");
    if medium == Medium::Journal {
        report.asked(AskedFigure::at_least(figure, ratio(1), 3.0));
    } else {
        report.ratio(&figure, ratio(1));
    }
    report.ratio(&format!("256 B, {name}: undo log, bit alone/ours"), ratio(2));
    if medium == Medium::Journal {
        report
            .asked(AskedFigure::at_most("256 B, reserve, initialise, publish", node_ns[0], 150.0).unit("ns"));
    }
    Ok(())
}

/// A root object with the head of a list of nodes for each thread: the offset of the node, behind the word
/// that the undo log's pointers have in front.
fn anchors(pool: &Pool) -> Result<Vec<PoolOffset>, Error> {
    let object = pool.reserve(THREADS_MAX * 64)?;
    let at = object.offset();
    pool.words(at, THREADS_MAX * 8).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(at, THREADS_MAX * 64);
    let mut publication = pool.publication();
    publication.allocate(object);
    publication.set_root("anchors", at)?;
    publication.publish()?;
    Ok((0..THREADS_MAX as u64).map(|thread| at.plus(thread * 64 + 8)).collect())
}

/// Fills a node: its first word leads to the node before.
fn fill(words: &[AtomicU64], before: u64) {
    words[0].store(before, Ordering::Relaxed);
    for (word, value) in words[1..].iter().zip(before..) {
        word.store(value, Ordering::Relaxed);
    }
}

/// All ways in turn, round by round. Returns the objects that the undo log's heaps consist of, and whether
/// every node was found in its list. A few nodes of ours stay as well.
fn measure(
    pool: &Pool,
    sizes: &Sizes,
    runs: usize,
    anchors: &[PoolOffset],
    points: &mut [Point],
) -> Result<(BTreeSet<PoolOffset>, bool), Error> {
    let (bytes, threads) = (points[0].bytes, points[0].threads);
    let before = allocated(pool);
    let heap = |metadata| UndoHeap::new(pool, bytes, (runs * RUN * threads) as u64, metadata);
    let heaps = [heap(Metadata::Undone)?, heap(Metadata::Redone)?];
    let lanes = (0..threads).map(|_| Ok(Mutex::new(heaps[0].lane()?))).collect::<Result<Vec<_>, Error>>()?;
    let heap_objects = &allocated(pool) - &before;
    let (mut nodes, mut right) = (BTreeSet::new(), true);
    for round in 0..=sizes.rounds {
        for point in &mut *points {
            free_all(pool, anchors, &mut nodes)?;
            let samples = on_threads(threads, |thread| match point.way {
                AllocationMethod::Ours => ours(pool, anchors[thread], bytes, runs),
                AllocationMethod::Undo(metadata) => {
                    let lane = &mut lanes[thread].lock().expect("no thread panics with its lane");
                    theirs(&heaps[metadata as usize], lane, anchors[thread], bytes, runs)
                }
            })?;
            match round {
                0 => point.first_ns = median(&samples),
                _ => point.samples.extend(samples),
            }
            let listed: BTreeSet<PoolOffset> =
                anchors.iter().flat_map(|anchor| list(pool, *anchor)).collect();
            right &= listed.len() == runs * RUN * threads;
            match point.way {
                AllocationMethod::Ours => nodes = listed,
                AllocationMethod::Undo(metadata) => {
                    let heap = &heaps[metadata as usize];
                    right &= heap.allocated() == listed.len() as u64;
                    anchors.iter().for_each(|anchor| pool.word(*anchor).store(0, Ordering::Relaxed));
                    heap.clear();
                }
            }
            pool.persist(Durability::None)?;
        }
    }
    // What is left for the check after reopening.
    for anchor in &anchors[..threads] {
        ours(pool, *anchor, bytes, 1)?;
    }
    Ok((heap_objects, right))
}

/// The offsets of all allocated objects.
fn allocated(pool: &Pool) -> BTreeSet<PoolOffset> {
    let mut objects = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        objects.insert(offset);
    });
    objects
}

/// Frees the nodes of the round before.
fn free_all(pool: &Pool, anchors: &[PoolOffset], objects: &mut BTreeSet<PoolOffset>) -> Result<(), Error> {
    if let Some(last) = objects.last().copied() {
        for object in &*objects {
            let mut publication = pool.publication();
            publication.free(*object);
            if *object == last {
                anchors.iter().for_each(|anchor| publication.set(*anchor, 0));
            }
            publication.publish()?;
        }
    }
    objects.clear();
    Ok(())
}

fn on_threads(
    threads: usize,
    work: impl Fn(usize) -> Result<Vec<f64>, Error> + Sync,
) -> Result<Vec<f64>, Error> {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic")).collect()
    });
    let mut samples = Vec::new();
    for outcome in outcomes {
        samples.extend(outcome?);
    }
    Ok(samples)
}

/// Nanoseconds per node of each run.
fn timed_runs(runs: usize, mut one: impl FnMut() -> Result<(), Error>) -> Result<Vec<f64>, Error> {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            (0..RUN).try_for_each(|_| one())?;
            Ok(start.elapsed().as_nanos() as f64 / RUN as f64)
        })
        .collect()
}

fn ours(pool: &Pool, anchor: PoolOffset, bytes: u64, runs: usize) -> Result<Vec<f64>, Error> {
    let mut before = 0;
    timed_runs(runs, || {
        let node = pool.reserve(bytes as usize)?;
        fill(pool.words(node.offset(), (bytes / 8) as usize), before);
        let mut publication = pool.publication();
        publication.flush(node.offset(), bytes as usize);
        before = publication.allocate(node).to_word();
        publication.set(anchor, before);
        Ok(publication.publish()?)
    })
}

fn theirs<'p>(
    heap: &UndoHeap<'p>,
    lane: &mut Lane<'p>,
    anchor: PoolOffset,
    bytes: u64,
    runs: usize,
) -> Result<Vec<f64>, Error> {
    let mut before = 0;
    timed_runs(runs, || {
        let node = heap.allocate(lane, anchor.minus(8), bytes, |words| fill(words, before));
        before = node.expect("the heap has a block for every node of a round").to_word();
        Ok(())
    })
}

/// The nodes that an anchor leads to.
fn list(pool: &Pool, anchor: PoolOffset) -> Vec<PoolOffset> {
    let mut nodes = Vec::new();
    let mut at = PoolOffset::from_word(pool.word(anchor).load(Ordering::Acquire));
    while !at.is_null() {
        nodes.push(at);
        at = PoolOffset::from_word(pool.word(at).load(Ordering::Acquire));
    }
    nodes
}

/// Opens the pool again, without closing it before, and compares what is allocated with what is reachable:
/// what is known, and the nodes.
fn is_whole_after_reopening(
    medium: Medium,
    dir: &TempDir,
    pool: Arc<Pool>,
    anchors: &[PoolOffset],
    mut known: BTreeSet<PoolOffset>,
) -> Result<bool, Error> {
    let pool = match medium {
        Medium::Volatile => pool,
        _ => {
            pool.sync()?;
            drop(pool);
            medium.pool(dir)?.expect("it could be opened before")
        }
    };
    known.extend(anchors.iter().flat_map(|anchor| list(&pool, *anchor)));
    let objects = allocated(&pool);
    let mut bytes = 0;
    pool.for_each_object(|_, object_bytes| bytes += object_bytes);
    Ok(objects == known && pool.space().used_bytes() == bytes)
}
