//! E2, traversal without search (figure 3.8): following pointers through nodes of 1 KiB, each a random one; inner nodes
//! in persistent memory or in DRAM, the last node always persistent.

use super::bench::{average, cool, instances, modelled, object, optane, settle, so_far};
use super::claims::holds;
use super::points::{Cost, Point, Points};
use crate::asked::Asked;
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Pool, PoolOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const NODE_BYTES: usize = 1024;
const LEVELS_MAX: usize = 8;
const PERSISTENT: &str = "inner nodes in persistent memory";
const DRAM: &str = "inner nodes in DRAM";

/// Nodes in random order, each with a pointer to the next.
struct Chain {
    pool: Arc<Pool>,
    first: u64,
    nodes: usize,
}

impl Chain {
    fn new(pool: Arc<Pool>, nodes: usize) -> Result<Chain, Error> {
        let mut offsets =
            (0..nodes).map(|_| object(&pool, NODE_BYTES)).collect::<Result<Vec<u64>, Error>>()?;
        Random::new(nodes as u64).shuffle(&mut offsets);
        for (i, offset) in offsets.iter().enumerate() {
            pool.view(*offset, 1)[0].store(offsets[(i + 1) % nodes], Relaxed);
            settle(&pool, *offset, 8);
        }
        Ok(Chain { pool, first: offsets[0], nodes })
    }

    /// Goes on by so many nodes.
    fn follow(&self, from: u64, nodes: usize) -> u64 {
        (0..nodes).fold(from, |at, _| self.pool.word(at).load(Relaxed))
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    let mut points = Points::new("E2, traversal", "levels");
    let walks = instances(options, false, NODE_BYTES);
    let on_clock = if options.quick { 4096 } else { 256 << 10 };
    let volatile = Chain::new(Pool::volatile(&PoolOptions::default())?, on_clock)?;
    for levels in 1..=LEVELS_MAX {
        for (what, dram_levels) in [(PERSISTENT, 0), (DRAM, levels - 1)] {
            // Every node is met once: none is cached.
            let persistent = Chain::new(optane()?, walks * LEVELS_MAX + 1)?;
            let inner = Chain::new(modelled("dram")?, walks * LEVELS_MAX + 1)?;
            let mut cost = Cost::default();
            for (chain, levels) in [(&inner, dram_levels), (&persistent, levels - dram_levels)] {
                cool(&chain.pool);
                let before = so_far(&chain.pool);
                let end = (0..walks).fold(chain.first, |at, _| chain.follow(at, levels));
                let part = average(so_far(&chain.pool) - before, walks, 0);
                points.right &= end == chain.follow(chain.first, walks * levels % chain.nodes);
                cost.ns += part.ns;
                cost.read_bytes += part.read_bytes;
            }
            // All of this machine's memory is DRAM: there is one clock for both.
            let clock_ns = (what == DRAM).then(|| {
                let walks = volatile.nodes / LEVELS_MAX;
                let start = Instant::now();
                let end = (0..walks).fold(volatile.first, |at, _| volatile.follow(at, levels));
                let ns = start.elapsed().as_nanos() as f64 / walks as f64;
                points.right &= end != 0;
                ns
            });
            points.all.push(Point {
                what: what.to_string(),
                at: String::new(),
                size: levels,
                modelled: cost,
                clock_ns,
            });
        }
    }
    Ok(points)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let a_level =
        |what: &str| (points.ns(what, "", LEVELS_MAX) - points.ns(what, "", 1)) / (LEVELS_MAX - 1) as f64;
    let (persistent, dram) = (a_level(PERSISTENT), a_level(DRAM));
    let asked =
        |name, ns, most| Asked::at_most(name, ns, most).unit("ns").tolerance(0.0).judged_at_small_sizes();
    report.asked(asked("a level in persistent memory", persistent, 500.0));
    report.asked(asked("a level in DRAM", dram, 100.0));
    let source = "dissertation, figure 3.8";
    report.paper(source, "a level in persistent memory, ns", "400 to 500", Some(persistent));
    report.paper(source, "a level in DRAM, ns", "50 to 100", Some(dram));
    holds(
        report,
        "each level in persistent memory adds about the idle random read latency",
        (300.0..=500.0).contains(&persistent),
    );
    holds(report, "each level in DRAM adds 50 to 100 ns", (50.0..=100.0).contains(&dram));
    holds(
        report,
        "all structures benefit greatly from a hybrid layout",
        (2..=LEVELS_MAX).all(|levels| points.ns(DRAM, "", levels) < 0.8 * points.ns(PERSISTENT, "", levels)),
    );
}
