//! Operations that change nodes, on all layouts and sizes: what E4, E5, E8, E9 and E10 have in common.

use super::bench::{
    LINE_BYTES, average, cool, fetch, free, instances, journal, node, object, optane, settle, so_far,
};
use super::points::{Cost, Point, Points};
use crate::measure::Random;
use crate::{Error, RunOptions};
use entresol_memory::{Durability, Pool, PoolOffset, PoolOptions};
use entresol_structures::node::{Bitmap, Hashing, Indirection, Layout, Medium, Node, Sorted, Unsorted};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Sizes of nodes, in bytes.
pub(super) const SIZES: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Entries of a node.
pub(super) type Entries = Vec<(u64, u64)>;

/// A micro-operation.
pub(super) trait NodeOperation {
    /// Its variants.
    fn variants(&self) -> &'static [&'static str];

    /// Entries of the nodes of one instance before, given how many fit.
    fn before(&self, variant: usize, capacity: usize) -> Vec<Entries>;

    /// All entries afterwards, in key order.
    fn after(&self, variant: usize, capacity: usize) -> Entries;

    /// Returns true if it reads all of its nodes. If not, only the lines that it changes are fetched: a
    /// search is not part of it.
    fn reads_all(&self) -> bool {
        false
    }

    /// Returns true if it needs a fresh node.
    fn takes_fresh(&self) -> bool {
        false
    }

    /// Carries it out.
    fn act<L: Layout>(
        &self,
        variant: usize,
        nodes: &[Node<'_>],
        fresh: Option<Node<'_>>,
        medium: &mut Medium<'_, '_>,
    ) -> Result<(), Error>;
}

/// Measures an operation on five layouts of five sizes.
pub(super) fn measure<O: NodeOperation>(
    operation: &O,
    title: &'static str,
    options: &RunOptions,
) -> Result<Points, Error> {
    let mut points = Points::new(title, "node bytes");
    let (clocked, _dir) = journal(options)?;
    macro_rules! sizes {
        ($($bytes:literal)*) => { $(
            layout::<O, Sorted<$bytes>>(operation, &clocked, options, &mut points)?;
            layout::<O, Unsorted<$bytes>>(operation, &clocked, options, &mut points)?;
            layout::<O, Indirection<$bytes>>(operation, &clocked, options, &mut points)?;
            layout::<O, Hashing<$bytes>>(operation, &clocked, options, &mut points)?;
            layout::<O, Bitmap<$bytes>>(operation, &clocked, options, &mut points)?;
        )* };
    }
    sizes!(256 512 1024 2048 4096);
    Ok(points)
}

/// Carries an operation out on nodes; returns the fresh node.
type Act<O> = fn(&O, usize, &Arc<Pool>, &[PoolOffset]) -> Result<Option<PoolOffset>, Error>;

/// An operation on one layout: what depends on the layout as functions, so that the measuring is compiled
/// once.
struct LayoutOperation<'o, O> {
    operation: &'o O,
    bytes: usize,
    instance: fn(&O, usize, &Pool) -> Result<Vec<PoolOffset>, Error>,
    act: Act<O>,
    holds: fn(&O, usize, &Pool, &[PoolOffset], Option<PoolOffset>) -> bool,
}

fn layout<O: NodeOperation, L: Layout>(
    operation: &O,
    clocked: &Arc<Pool>,
    options: &RunOptions,
    points: &mut Points,
) -> Result<(), Error> {
    let on = LayoutOperation {
        operation,
        bytes: L::BYTES,
        instance: instance::<O, L>,
        act: act::<O, L>,
        holds: holds::<O, L>,
    };
    let modelled = optane()?;
    for (variant, name) in operation.variants().iter().enumerate() {
        let changed = on.changed_words(variant, points)?;
        let cost = on.modelled(variant, &modelled, instances(options, false, L::BYTES), &changed)?;
        let clock_ns = on.by_clock(variant, clocked, instances(options, true, L::BYTES), points)?;
        points.all.push(Point {
            what: L::NAME.to_string(),
            at: name.to_string(),
            size: L::BYTES,
            modelled: cost,
            clock_ns: Some(clock_ns),
        });
    }
    Ok(())
}

/// The nodes of one instance, filled.
fn instance<O: NodeOperation, L: Layout>(
    operation: &O,
    variant: usize,
    pool: &Pool,
) -> Result<Vec<PoolOffset>, Error> {
    let before = operation.before(variant, L::geometry::<u64>().capacity);
    let fill = |entries: &Entries| {
        let offset = object(pool, L::BYTES)?;
        L::fill(node::<L>(pool, offset), entries);
        settle(pool, offset, L::BYTES);
        Ok(offset)
    };
    before.iter().map(fill).collect()
}

/// Carries the operation out and commits it; returns the fresh node.
fn act<O: NodeOperation, L: Layout>(
    operation: &O,
    variant: usize,
    pool: &Arc<Pool>,
    offsets: &[PoolOffset],
) -> Result<Option<PoolOffset>, Error> {
    let nodes: Vec<Node<'_>> = offsets.iter().map(|offset| node::<L>(pool, *offset)).collect();
    let mut with = pool.publication();
    let fresh = if operation.takes_fresh() { Some(with.allocate(pool.reserve(L::BYTES)?)) } else { None };
    let fresh_node = fresh.map(|offset| node::<L>(pool, offset));
    operation.act::<L>(variant, &nodes, fresh_node, &mut Medium::Pool(pool, &mut with))?;
    if let Some(offset) = fresh {
        pool.flush(offset, L::BYTES);
    }
    with.publish()?;
    Ok(fresh)
}

/// Returns true if the nodes are sound and hold together what they should.
fn holds<O: NodeOperation, L: Layout>(
    operation: &O,
    variant: usize,
    pool: &Pool,
    offsets: &[PoolOffset],
    fresh: Option<PoolOffset>,
) -> bool {
    let mut entries = Entries::new();
    for offset in offsets.iter().copied().chain(fresh) {
        let node = node::<L>(pool, offset);
        if L::check::<u64>(node).is_err() {
            return false;
        }
        L::append_sorted(node, &mut entries);
    }
    entries.sort_unstable();
    entries == operation.after(variant, L::geometry::<u64>().capacity)
}

impl<O: NodeOperation> LayoutOperation<'_, O> {
    fn instances(&self, variant: usize, pool: &Pool, count: usize) -> Result<Vec<Vec<PoolOffset>>, Error> {
        let one = |_| (self.instance)(self.operation, variant, pool);
        let mut all = (0..count).map(one).collect::<Result<Vec<_>, Error>>()?;
        Random::new(count as u64).shuffle(&mut all);
        Ok(all)
    }

    /// The words that an instance's nodes have changed afterwards: node and word. Also verifies what the
    /// nodes hold.
    fn changed_words(&self, variant: usize, points: &mut Points) -> Result<Vec<(usize, u64)>, Error> {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() })?;
        let offsets = (self.instance)(self.operation, variant, &pool)?;
        let words = |offset: PoolOffset| {
            pool.view(offset, self.bytes / 8).iter().map(|word| word.load(Relaxed)).collect::<Vec<u64>>()
        };
        let before: Vec<Vec<u64>> = offsets.iter().map(|offset| words(*offset)).collect();
        let fresh = (self.act)(self.operation, variant, &pool, &offsets)?;
        let mut changed = Vec::new();
        for (node, (offset, before)) in offsets.iter().zip(&before).enumerate() {
            let both = words(*offset).into_iter().zip(before).enumerate();
            changed.extend(both.filter(|(_, (now, then))| now != *then).map(|(word, _)| (node, word as u64)));
        }
        if let Some(offset) = fresh {
            // A fresh node is new to the medium as far as it is used.
            let used = words(offset).into_iter().enumerate().filter(|(_, value)| *value != 0);
            changed.extend(used.map(|(word, _)| (offsets.len(), word as u64)));
        }
        points.right &= (self.holds)(self.operation, variant, &pool, &offsets, fresh);
        Ok(changed)
    }

    fn modelled(
        &self,
        variant: usize,
        pool: &Arc<Pool>,
        count: usize,
        changed: &[(usize, u64)],
    ) -> Result<Cost, Error> {
        let all = self.instances(variant, pool, count)?;
        cool(pool);
        let before = so_far(pool);
        for offsets in &all {
            let lines: BTreeSet<u64> = if self.operation.reads_all() {
                let lines = |at: &PoolOffset| {
                    at.block_number(LINE_BYTES)..at.plus(self.bytes as u64).block_number(LINE_BYTES)
                };
                offsets.iter().flat_map(lines).collect()
            } else {
                let old = changed.iter().filter(|(node, _)| *node < offsets.len());
                old.map(|(node, word)| offsets[*node].plus(word * 8).block_number(LINE_BYTES)).collect()
            };
            fetch(pool, &lines.into_iter().collect::<Vec<_>>());
            (self.act)(self.operation, variant, pool, offsets)?;
        }
        Ok(average(so_far(pool) - before, count, changed.len() * 8))
    }

    fn by_clock(
        &self,
        variant: usize,
        pool: &Arc<Pool>,
        count: usize,
        points: &mut Points,
    ) -> Result<f64, Error> {
        let all = self.instances(variant, pool, count)?;
        pool.persist(Durability::None)?;
        let mut fresh = Vec::with_capacity(count);
        let start = Instant::now();
        for offsets in &all {
            fresh.extend((self.act)(self.operation, variant, pool, offsets)?);
        }
        let ns = start.elapsed().as_nanos() as f64 / count as f64;
        pool.persist(Durability::None)?;
        if let Some(offsets) = all.last() {
            points.right &= (self.holds)(self.operation, variant, pool, offsets, fresh.last().copied());
        }
        // The next point has the space.
        free(pool, all.into_iter().flatten().chain(fresh))?;
        Ok(ns)
    }
}

/// Keys 2, 4, 6, ...: between any two there is room for one more.
pub(super) fn even_keys(numbers: std::ops::Range<usize>) -> Entries {
    numbers.map(|i| (2 * i as u64 + 2, i as u64)).collect()
}

/// The first, the middle and the last of so many.
pub(super) fn place(variant: usize, count: usize) -> usize {
    [0, count / 2, count - 1][variant]
}

/// The variants of operations on one entry.
pub(super) const PLACES: [&str; 3] = ["first", "middle", "last"];
