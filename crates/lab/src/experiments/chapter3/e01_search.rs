//! E1, search in a node (figure 3.7): each layout by the access that suits it, the key first, in the middle,
//! last. And table 3.2: entries that fit.

use super::bench::{
    Access, BilledKey, LINE_BYTES, average, billed, cool, free, instances, journal, node, object, optane,
    settle, so_far,
};
use super::claims::{differs, holds};
use super::operation::{PLACES, SIZES, even_keys, place};
use super::points::{Cost, Point, Points};
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool, PoolOffset};
use entresol_structures::node::{Bitmap, Hashing, Indirection, Layout, Sorted, Unsorted};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    let mut points = Points::new("E1, search in a node", "node bytes");
    let (clocked, _dir) = journal(options)?;
    macro_rules! sizes {
        ($($bytes:literal)*) => { $(
            layout::<Sorted<$bytes>>(&clocked, options, &mut points)?;
            layout::<Unsorted<$bytes>>(&clocked, options, &mut points)?;
            layout::<Indirection<$bytes>>(&clocked, options, &mut points)?;
            layout::<Hashing<$bytes>>(&clocked, options, &mut points)?;
            layout::<Bitmap<$bytes>>(&clocked, options, &mut points)?;
        )* };
    }
    sizes!(256 512 1024 2048 4096);
    Ok(points)
}

fn layout<L: Layout>(clocked: &Arc<Pool>, options: &RunOptions, points: &mut Points) -> Result<(), Error> {
    let modelled = optane()?;
    let capacity = L::geometry::<u64>().capacity;
    let entries = even_keys(0..capacity);
    let filled = |pool: &Pool, count: usize| {
        let one = |_| {
            let offset = object(pool, L::BYTES)?;
            L::fill(node::<L>(pool, offset), &entries);
            settle(pool, offset, L::BYTES);
            Ok(offset)
        };
        let mut nodes = (0..count).map(one).collect::<Result<Vec<PoolOffset>, Error>>()?;
        Random::new(count as u64).shuffle(&mut nodes);
        Ok::<Vec<PoolOffset>, Error>(nodes)
    };
    let on_clock = filled(clocked, instances(options, true, L::BYTES))?;
    clocked.persist(Durability::None)?;
    for (variant, name) in PLACES.iter().enumerate() {
        let (key, value) = entries[place(variant, capacity)];
        let on_model = filled(&modelled, instances(options, false, L::BYTES))?;
        cool(&modelled);
        let before = so_far(&modelled);
        for offset in &on_model {
            points.right &= search::<L>(&modelled, *offset, key) == Some(value);
        }
        let modelled_cost: Cost = average(so_far(&modelled) - before, on_model.len(), 0);
        let start = Instant::now();
        for offset in &on_clock {
            let node = node::<L>(clocked, *offset);
            let found = L::find(node, key).map(|slot| node.value(L::geometry::<u64>(), slot));
            points.right &= found == Some(value);
        }
        points.all.push(Point {
            what: L::NAME.to_string(),
            at: name.to_string(),
            size: L::BYTES,
            modelled: modelled_cost,
            clock_ns: Some(start.elapsed().as_nanos() as f64 / on_clock.len() as f64),
        });
    }
    free(clocked, on_clock)
}

/// A search with its reads billed as the processor makes them, and the value.
fn search<L: Layout>(pool: &Arc<Pool>, offset: PoolOffset, key: u64) -> Option<u64> {
    let geometry = L::geometry::<BilledKey>();
    let node = node::<L>(pool, offset);
    let array = node.word_offset(geometry.bytes);
    let (access, front_words) = match L::NAME {
        "sorted" => (Access::Binary, 1),
        "indirection" => (Access::Indirect(array), 1),
        // Fingerprints say which key to look at: the key waits for them.
        "hashing" => (Access::Binary, geometry.bytes + geometry.byte_words),
        _ => (Access::Linear, geometry.state_words),
    };
    let front_end = offset.word(front_words).minus(1);
    let front: Vec<u64> = (offset.block_number(LINE_BYTES)..=front_end.block_number(LINE_BYTES)).collect();
    let slot =
        billed(pool, access, &front, node.word_offset(geometry.keys), || L::find(node, BilledKey(key)))?;
    pool.touch(node.word_offset(geometry.values + slot), 8);
    Some(node.value(geometry, slot))
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    table_3_2(report);
    let ns = |what: &str, at: &str, size| points.ns(what, at, size);
    let mean = |what: &str, size| points.mean(what, size, |cost| cost.ns);
    let read = |what: &str, size| points.mean(what, size, |cost| cost.read_bytes);
    let source = "dissertation, figure 3.7";
    for (what, paper) in [("sorted", "above 1"), ("indirection", "above 1"), ("unsorted", "mostly above 1")] {
        let name = format!("1 KiB, {what} to hashing, modelled Optane");
        report.paper(source, &name, paper, Some(mean(what, 1024) / mean("hashing", 1024)));
    }
    holds(
        report,
        "hashing is the best solution for searches in a persistent node: on average the fewest lines are loaded, from \
         1 KiB on, and binary search is slower at every size",
        points.at_all_sizes(|size| {
            let fewest = ["sorted", "indirection", "unsorted", "bitmap"]
                .iter()
                .all(|other| read("hashing", size) <= read(other, size));
            let fastest =
                ["sorted", "indirection"].iter().all(|other| mean("hashing", size) <= mean(other, size));
            fastest && (size < 1024 || fewest)
        }),
    );
    differs(
        report,
        "with one or two exceptions, hashing is the fastest of the linear methods",
        "up to 1 KiB a linear search of all keys takes less time, although it loads more",
        [256, 512, 1024].iter().all(|size| mean("unsorted", *size) <= mean("hashing", *size)),
        "The lines of a linear search do not wait for each other: the model has twelve under way at once and bills no \
         comparisons, while hash, key and value wait for one another. That is why our FPTree fetches the line where \
         the key most likely is together with the hashes.",
    );
    holds(
        report,
        "binary search performs worse than expected: at the first and last key linear search is faster",
        points.at_all_sizes(|size| {
            ["first", "last"].iter().all(|at| ns("unsorted", at, size) <= ns("sorted", at, size))
        }),
    );
    holds(
        report,
        "indirection does not yield any advantage over a direct binary search",
        points.at_all_sizes(|size| mean("indirection", size) >= mean("sorted", size)),
    );
    differs(
        report,
        "with the key exactly in the middle, binary search needs one access and keeps up with the linear ones",
        "it takes as many steps for that key as for any other",
        points.at_all_sizes(|size| ns("sorted", "middle", size) >= 0.5 * ns("sorted", "last", size)),
        "Our binary search has no branch that depends on a key: no branch is mispredicted, and none ends it early.",
    );
    holds(
        report,
        "with hashing and indirection latency rises where their search structure takes another line",
        points.cost("indirection", "last", 4096).ns > points.cost("indirection", "last", 256).ns
            && points.cost("hashing", "last", 4096).read_bytes
                > points.cost("hashing", "last", 512).read_bytes,
    );
}

/// Entries that fit, beside those of the paper, whose entries have 24 bytes in place of 16.
fn table_3_2(report: &mut Report) {
    const PAPER: [(usize, usize); 5] = [(8, 8), (18, 18), (40, 37), (82, 79), (168, 160)];
    let mut ours = Vec::new();
    macro_rules! capacities {
        ($($bytes:literal)*) => { $(
            let sorted = Sorted::<$bytes>::geometry::<u64>().capacity;
            let hashing = Hashing::<$bytes>::geometry::<u64>().capacity;
            report.row(json!({
                "table_3.2, node_bytes": $bytes,
                "sorted, unsorted": sorted,
                "bitmap": Bitmap::<$bytes>::geometry::<u64>().capacity,
                "hashing": hashing,
                "indirection": Indirection::<$bytes>::geometry::<u64>().capacity,
            }));
            ours.push((sorted, hashing));
        )* };
    }
    capacities!(256 512 1024 2048 4096);
    let mut compare = |name: String, paper: usize, ours: usize| {
        report.paper("dissertation, table 3.2", &name, &paper.to_string(), Some(ours as f64));
    };
    for ((bytes, paper), ours) in SIZES.iter().zip(PAPER).zip(ours) {
        compare(format!("entries of a node of {bytes} B, aligned (24 B there, 16 B here)"), paper.0, ours.0);
        compare(format!("entries of a node of {bytes} B, with a search structure"), paper.1, ours.1);
    }
}
