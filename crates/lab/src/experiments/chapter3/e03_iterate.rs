//! E3, iterating through linked leaves of 1 KiB (figure 3.9): directly, by the bitmap, by the indirection
//! array.

use super::bench::{LINE_BYTES, average, cool, fetch, free, journal, node, object, optane, settle, so_far};
use super::claims::{differs, holds};
use super::operation::even_keys;
use super::points::{Cost, Point, Points};
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool, PoolOffset};
use entresol_structures::node::{Bitmap, Indirection, Layout, Sorted};
use std::sync::Arc;
use std::time::Instant;

const LEAF_BYTES: usize = 1024;
/// As many as fit with every search structure.
const ENTRIES: usize = 54;

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    let mut points = Points::new("E3, iteration, all of the leaves", "leaves");
    let (clocked, _dir) = journal(options)?;
    let sizes: &[usize] = if options.quick { &[10, 100] } else { &[10, 100, 1000, 10_000, 50_000] };
    for leaves in sizes {
        way::<Sorted<LEAF_BYTES>>("direct", *leaves, false, &clocked, &mut points)?;
        way::<Bitmap<LEAF_BYTES>>("bitmap", *leaves, false, &clocked, &mut points)?;
        way::<Indirection<LEAF_BYTES>>("indirection", *leaves, true, &clocked, &mut points)?;
    }
    Ok(points)
}

fn way<L: Layout>(
    name: &str,
    leaves: usize,
    by_array: bool,
    clocked: &Arc<Pool>,
    points: &mut Points,
) -> Result<(), Error> {
    let modelled = optane()?;
    // The model needs no more than what its buffers hold many times over.
    let on_model = chain::<L>(&modelled, leaves.min(2000))?;
    cool(&modelled);
    let before = so_far(&modelled);
    let mut right = true;
    for leaf in &on_model {
        fetch(&modelled, &lines::<L>(*leaf, by_array));
        right &= sum::<L>(&modelled, *leaf, by_array) == EXPECTED;
    }
    let one = average(so_far(&modelled) - before, on_model.len(), 0);
    let all = Cost { ns: one.ns * leaves as f64, read_bytes: one.read_bytes * leaves as f64, ..one };
    let on_clock = chain::<L>(clocked, leaves)?;
    clocked.persist(Durability::None)?;
    let start = Instant::now();
    for leaf in &on_clock {
        right &= sum::<L>(clocked, *leaf, by_array) == EXPECTED;
    }
    let clock_ns = Some(start.elapsed().as_nanos() as f64);
    points.right &= right;
    points.all.push(Point {
        what: name.to_string(),
        at: String::new(),
        size: leaves,
        modelled: all,
        clock_ns,
    });
    free(clocked, on_clock)
}

/// The sum of keys and values of a leaf.
const EXPECTED: u64 = {
    let last = ENTRIES as u64;
    last * (last + 1) + last * (last - 1) / 2
};

fn chain<L: Layout>(pool: &Arc<Pool>, leaves: usize) -> Result<Vec<PoolOffset>, Error> {
    let entries = even_keys(0..ENTRIES);
    let mut offsets = Vec::with_capacity(leaves);
    for _ in 0..leaves {
        let offset = object(pool, LEAF_BYTES)?;
        L::fill(node::<L>(pool, offset), &entries);
        settle(pool, offset, LEAF_BYTES);
        offsets.push(offset);
    }
    Random::new(leaves as u64).shuffle(&mut offsets);
    Ok(offsets)
}

/// The lines that an iteration reads: state, slot array, the entries. They do not depend on one another.
fn lines<L: Layout>(leaf: PoolOffset, by_array: bool) -> Vec<u64> {
    let geometry = L::geometry::<u64>();
    let front = if by_array { geometry.bytes + geometry.byte_words } else { geometry.state_words };
    let parts = [(0, front), (geometry.keys, ENTRIES), (geometry.values, ENTRIES)];
    let line_of = |word: usize| leaf.word(word).block_number(LINE_BYTES);
    let mut lines: Vec<u64> =
        parts.into_iter().flat_map(|(word, count)| line_of(word)..=line_of(word + count - 1)).collect();
    lines.dedup();
    lines
}

fn sum<L: Layout>(pool: &Pool, leaf: PoolOffset, by_array: bool) -> u64 {
    let node = node::<L>(pool, leaf);
    let mut sum = 0;
    if by_array {
        let mut entries = Vec::with_capacity(ENTRIES);
        L::append_sorted::<u64>(node, &mut entries);
        entries.iter().for_each(|(key, value)| sum += key + value);
    } else {
        L::iterate::<u64>(node, |key, value| sum += key + value);
    }
    sum
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let largest = points.sizes().last().copied().unwrap_or(0);
    let clock = |what: &str| points.clock(what, "", largest);
    for (access, paper) in [("bitmap", "1.31"), ("indirection", "1.58")] {
        let name = format!("by the clock: {access}/direct");
        report.paper("dissertation, figure 3.9", &name, paper, Some(clock(access) / clock("direct")));
    }
    let ns = |what: &str, size| points.ns(what, "", size);
    holds(
        report,
        "direct iteration is the fastest, by the indirection is the slowest",
        points.at_all_sizes(|size| {
            ns("direct", size) <= 1.02 * ns("bitmap", size)
                && ns("bitmap", size) <= 1.02 * ns("indirection", size)
        }),
    );
    differs(
        report,
        "alternating between bitmap, keys and values costs 31%",
        "memory's share of that is below 10%",
        ns("bitmap", largest) < 1.1 * ns("direct", largest),
        "Our bitmaps stand in one line with the node's other words, and set bits are found without a branch for \
         each slot. What is left is the processor's work, which the clock shows.",
    );
}
