//! E6, move from DRAM to a persistent node (figure 3.12): an array of key-value pairs, sorted before or on the way; with
//! no, individual and transactional failure atomicity.

use super::bench::{average, cool, free, instances, journal, object, optane, settle, so_far};
use super::claims::{differs, holds};
use super::points::{Point, Points};
use super::undo::{Atomicity, Target};
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool};
use std::time::Instant;

const SIZES: [usize; 6] = [256, 512, 1024, 2048, 4096, 16_384];
const SORTED: &str = "sorted before";
const UNSORTED: &str = "sorted on the way";

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    let mut points = Points::new("E6, move from DRAM to a node", "node bytes");
    let mut random = Random::new(options.seed);
    let (clocked, _dir) = journal(options)?;
    for bytes in SIZES {
        let sorted: Vec<(u64, u64)> = (0..bytes as u64 / 16).map(|i| (i + 1, i ^ 1)).collect();
        let mut shuffled = sorted.clone();
        random.shuffle(&mut shuffled);
        for (at, source) in [(SORTED, &sorted), (UNSORTED, &shuffled)] {
            for atomicity in Atomicity::ALL {
                let modelled = optane()?;
                let count = instances(options, false, bytes);
                let moved = move_all(&modelled, atomicity, count, source, &sorted)?;
                points.right &= moved.right;
                let timed = move_all(&clocked, atomicity, instances(options, true, bytes), source, &sorted)?;
                points.right &= timed.right;
                points.all.push(Point {
                    what: atomicity.name().to_string(),
                    at: at.to_string(),
                    size: bytes,
                    modelled: moved.cost.map(|cost| average(cost, count, bytes)).unwrap_or_default(),
                    clock_ns: Some(timed.ns),
                });
            }
        }
    }
    Ok(points)
}

struct Moved {
    ns: f64,
    cost: Option<entresol_memory::ModelledCost>,
    right: bool,
}

fn move_all(
    pool: &Pool,
    atomicity: Atomicity,
    count: usize,
    source: &[(u64, u64)],
    sorted: &[(u64, u64)],
) -> Result<Moved, Error> {
    let bytes = source.len() * 16;
    let target = Target::new(pool, bytes)?;
    let nodes = (0..count).map(|_| object(pool, bytes)).collect::<Result<Vec<u64>, Error>>()?;
    nodes.iter().for_each(|offset| settle(pool, *offset, bytes));
    pool.persist(Durability::None)?;
    if pool.modelled_cost().is_some() {
        cool(pool);
    }
    let before = pool.modelled_cost();
    let start = Instant::now();
    for offset in &nodes {
        if source == sorted {
            target.write(atomicity, *offset, bytes, source);
        } else {
            let mut entries = source.to_vec();
            entries.sort_unstable();
            target.write(atomicity, *offset, bytes, &entries);
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    let cost = before.map(|before| so_far(pool) - before);
    let right = nodes.last().is_some_and(|offset| target.holds(atomicity, *offset, sorted));
    free(pool, nodes)?;
    target.free()?;
    Ok(Moved { ns, cost, right })
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let [none, individual, transaction] = Atomicity::ALL.map(Atomicity::name);
    for bytes in [1024, 4096] {
        for what in [none, individual, transaction] {
            report.ratio(
                &format!("by the clock, {bytes} B, {what}: sorted on the way/before"),
                points.clock(what, UNSORTED, bytes) / points.clock(what, SORTED, bytes),
            );
        }
        report.ratio(
            &format!("modelled Optane, {bytes} B: transaction/individual"),
            points.ns(transaction, SORTED, bytes) / points.ns(individual, SORTED, bytes),
        );
    }
    holds(
        report,
        "transactions degrade performance by 1.2 to 3 times or more",
        points.at_all_sizes(|bytes| {
            points.ns(transaction, SORTED, bytes) > 1.2 * points.ns(none, SORTED, bytes)
        }),
    );
    holds(
        report,
        "individual failure atomicity has almost the same performance as none, from 4 KiB on",
        [4096, 16_384]
            .iter()
            .all(|bytes| points.ns(individual, SORTED, *bytes) < 1.2 * points.ns(none, SORTED, *bytes)),
    );
    holds(
        report,
        "transactions weigh most on small nodes",
        points.ns(transaction, SORTED, 256) / points.ns(none, SORTED, 256)
            > points.ns(transaction, SORTED, 16_384) / points.ns(none, SORTED, 16_384),
    );
    differs(
        report,
        "sorting on the way takes four to five times as long",
        "on the device it costs nothing: the same bytes are written",
        points.at_all_sizes(|bytes| {
            points.cost(none, SORTED, bytes).written_bytes == points.cost(none, UNSORTED, bytes).written_bytes
        }),
        "Sorting is the processor's work in DRAM, which the model does not bill; the ratios by the clock have it.",
    );
}
