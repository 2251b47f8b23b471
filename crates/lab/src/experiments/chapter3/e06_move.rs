//! E6, move from DRAM to a persistent node (figure 3.12): an array of key-value pairs, sorted before or on
//! the way; with no, individual and transactional failure atomicity.

use super::bench::{average, cool, free, instances, journal, object, optane, settle, so_far};
use super::claims::holds;
use super::points::{Point, Points};
use super::undo::{Atomicity, Target};
use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool, PoolOffset};
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

struct MoveFigures {
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
) -> Result<MoveFigures, Error> {
    let bytes = source.len() * 16;
    let target = Target::new(pool, bytes)?;
    let nodes = (0..count).map(|_| object(pool, bytes)).collect::<Result<Vec<PoolOffset>, Error>>()?;
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
    Ok(MoveFigures { ns, cost, right })
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let names @ [none, individual, transaction] = Atomicity::ALL.map(Atomicity::name);
    let source = "dissertation, figure 3.12";
    let to_none = |what, bytes| points.ns(what, SORTED, bytes) / points.ns(none, SORTED, bytes);
    for bytes in SIZES {
        let name = format!("modelled Optane, {bytes} B: transaction to none");
        report.paper(source, &name, "1.2 to 3", Some(to_none(transaction, bytes)));
        let name = format!("modelled Optane, {bytes} B: individual to none");
        report.paper(source, &name, "almost 1", Some(to_none(individual, bytes)));
    }
    sorting(points, names, report);
    holds(
        report,
        "transactions degrade performance by 1.2 to 3 times or more",
        points.at_all_sizes(|bytes| to_none(transaction, bytes) > 1.2),
    );
    holds(
        report,
        "individual failure atomicity has almost the same performance as none, from 4 KiB on",
        [4096, 16_384].iter().all(|bytes| to_none(individual, *bytes) < 1.2),
    );
    holds(
        report,
        "transactions weigh most on small nodes",
        to_none(transaction, 256) > to_none(transaction, 16_384),
    );
}

/// Adds the cost of sorting on the way. The model bills the device only, for which both ways are one; the
/// processor's part is the difference of both by the clock.
fn sorting(points: &Points, names: [&str; 3], report: &mut Report) {
    const PAPER: [&str; 3] = ["4 to 5", "3 to 5", "2 to 3.5"];
    report.note(
        "The model bills no processor time, so it cannot show what sorting costs: that is the difference between both \
         ways by the clock, alone and added to modelled Optane's time.",
    );
    let by_clock =
        |what: &str, bytes| points.clock(what, UNSORTED, bytes) / points.clock(what, SORTED, bytes);
    for (what, paper) in names.into_iter().zip(PAPER) {
        let bytes = 1024;
        let name = format!("by the clock, {bytes} B, {what}: sorted on the way to before");
        report.paper("dissertation, figure 3.12", &name, paper, Some(by_clock(what, bytes)));
        let sorting_ns = points.clock(what, UNSORTED, bytes) - points.clock(what, SORTED, bytes);
        let device_ns = points.ns(what, SORTED, bytes);
        let name =
            format!("modelled Optane and sorting by the clock, {bytes} B, {what}: on the way to before");
        let ours = (device_ns + sorting_ns) / device_ns;
        report.paper("dissertation, figure 3.12", &name, paper, Some(ours));
    }
    let none = names[0];
    let [smallest, largest] = [SIZES[0], SIZES[SIZES.len() - 1]].map(|bytes| by_clock(none, bytes));
    let name = "by the clock, no failure atomicity: sorted on the way to before, smallest node";
    report.asked(AskedFigure::at_least(name, smallest, 1.0));
    // "The relative overhead continues to increase as the node size increases."
    let name = "by the clock, no failure atomicity: sorting's share, largest to smallest node";
    report.asked(AskedFigure::at_least(name, largest / smallest, 1.0));
}
