//! Pools to measure on, and reading keys of a node so that each is billed.

use super::points::Cost;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, ModelledCost, Pool, PoolOffset, PoolOptions};
use entresol_structures::node::{FixedKey, Layout, Node};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;

pub(super) const LINE_BYTES: u64 = 64;

/// A pool in DRAM that is billed like Optane.
pub(super) fn optane() -> Result<Arc<Pool>, Error> {
    modelled("optane-dcpmm")
}

/// A pool in DRAM that is billed like the device of a profile.
pub(super) fn modelled(profile: &str) -> Result<Arc<Pool>, Error> {
    let options = PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::modelled(&options, &Profile::embedded(profile)?)?;
    let mut with = pool.publication();
    let offset = with.allocate(pool.reserve(SCRATCH_BYTES)?);
    with.set_root(SCRATCH, offset)?;
    with.publish()?;
    Ok(pool)
}

/// Caches as much smaller as there are fewer keys than ten million. What the hotspot index is compared with
/// must not be an index that the processor's caches hold.
pub(in crate::experiments) fn scaled(mut profile: Profile, keys: u64) -> Profile {
    let last = profile.caches.len() - 1;
    profile.caches.swap(1, last);
    profile.caches.truncate(2);
    let [inner, outer] = &mut profile.caches[..] else { unreachable!("two levels are left") };
    let whole_sets = |bytes: u64, ways: u64| (bytes / (ways * 64)).max(8) * ways * 64;
    let bytes = u128::from(outer.bytes) * u128::from(keys) / 10_000_000;
    outer.bytes = whole_sets(bytes as u64, outer.ways);
    inner.bytes = inner.bytes.min(whole_sets(outer.bytes / 2, inner.ways));
    profile
}

/// More than the buffers of the device's modules hold, all together.
const SCRATCH_BYTES: usize = 256 << 10;
const SCRATCH: &str = "scratch";

/// Fills the device's own buffers with lines that are not used later: nodes that were just written are not in
/// them any more, and what was to be written has been.
pub(super) fn cool(pool: &Pool) {
    let offset = pool.root(SCRATCH).expect("every modelled pool here has it");
    for word in pool.view(offset, SCRATCH_BYTES / 8) {
        word.fetch_add(1, Relaxed);
    }
    settle(pool, offset, SCRATCH_BYTES);
    for line in 0..SCRATCH_BYTES as u64 / LINE_BYTES {
        pool.touch(offset.plus(line * LINE_BYTES), 8);
    }
    settle(pool, offset, SCRATCH_BYTES);
}

/// Frees objects.
pub(super) fn free(pool: &Pool, offsets: impl IntoIterator<Item = PoolOffset>) -> Result<(), Error> {
    for offset in offsets {
        let mut with = pool.publication();
        with.free(offset);
        with.publish()?;
    }
    Ok(())
}

/// A pool on `journal`; its directory goes when it is dropped.
pub(super) fn journal(options: &RunOptions) -> Result<(Arc<Pool>, TempDir), Error> {
    let dir = options.database_dir()?;
    let on = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    Ok((Pool::create(dir.path(), &on)?, dir))
}

/// Number of nodes to act on: on the model few, since none of them is ever cached; by the clock more than
/// caches hold.
pub(super) fn instances(options: &RunOptions, by_clock: bool, bytes: usize) -> usize {
    match (options.quick, by_clock) {
        (true, _) => 12,
        (false, false) => 200,
        (false, true) => ((64 << 20) / bytes).max(200),
    }
}

/// A fresh object.
pub(super) fn object(pool: &Pool, bytes: usize) -> Result<PoolOffset, Error> {
    let mut with = pool.publication();
    let offset = with.allocate(pool.reserve(bytes)?);
    with.publish()?;
    Ok(offset)
}

/// The node at an offset; on the model nothing of it is billed.
pub(super) fn node<L: Layout>(pool: &Pool, offset: PoolOffset) -> Node<'_> {
    Node::new(pool.view(offset, L::BYTES / 8), offset)
}

/// Makes what is stored in an object known to the medium, and leaves nothing of it in the modelled caches.
pub(super) fn settle(pool: &Pool, offset: PoolOffset, bytes: usize) {
    pool.flush(offset, bytes);
    pool.fence();
}

/// Fetches lines together, as stores to them do, and waits for all.
pub(super) fn fetch(pool: &Pool, lines: &[u64]) {
    lines.iter().for_each(|line| pool.prefetch(PoolOffset::NULL.block(*line, LINE_BYTES)));
    lines.iter().for_each(|line| pool.touch(PoolOffset::NULL.block(*line, LINE_BYTES), 8));
}

/// Cost of all accesses to a modelled pool so far.
pub(super) fn so_far(pool: &Pool) -> ModelledCost {
    pool.modelled_cost().expect("the pool is modelled")
}

/// The average of a cost over operations.
pub(super) fn average(cost: ModelledCost, operations: usize, modified_bytes: usize) -> Cost {
    let each = |count: u64| count as f64 / operations as f64;
    Cost {
        ns: cost.ns() / operations as f64,
        modified_bytes: modified_bytes as f64,
        written_bytes: each(cost.lines_written * cost.line_bytes),
        read_bytes: each(cost.lines_read * cost.line_bytes),
        flushes: each(cost.flushes),
        fences: each(cost.fences),
    }
}

/// Order in which the keys of a node are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// A linear search: the next key does not depend on the one before, and their lines come together.
    Linear,
    /// A binary search: the next key depends on this one.
    Binary,
    /// A binary search by a slot array, of which a byte is read before each key: offset of its first byte.
    Indirect(PoolOffset),
}

struct CacheState {
    pool: Arc<Pool>,
    base: usize,
    access: Access,
    /// Lines that a linear search wants.
    lines: Vec<u64>,
    /// First key of the node, and how far keys are apart.
    keys: PoolOffset,
}

thread_local! {
    static READING: RefCell<Option<CacheState>> = const { RefCell::new(None) };
}

/// A key whose reads are billed to a modelled pool, one by one: node layouts read keys through
/// [`FixedKey::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BilledKey(pub(super) u64);

impl FixedKey for BilledKey {
    const WORDS: usize = 1;
    // Every read goes through `load`, as in the paper's algorithms.
    const IS_WORD: bool = false;
    const MIN: BilledKey = BilledKey(0);

    fn load(words: &[AtomicU64]) -> BilledKey {
        READING.with_borrow_mut(|reading| {
            if let Some(reading) = reading {
                let offset = PoolOffset::new((words.as_ptr() as usize - reading.base) as u64);
                reading.key_at(offset);
            }
        });
        BilledKey(words[0].load(Relaxed))
    }

    fn of_words(words: &[u64]) -> BilledKey {
        BilledKey(words[0])
    }

    fn word(self, _: usize) -> u64 {
        self.0
    }

    fn fingerprint(self) -> u8 {
        self.0.fingerprint()
    }

    fn previous(self) -> Option<BilledKey> {
        self.0.checked_sub(1).map(BilledKey)
    }

    fn next(self) -> Option<BilledKey> {
        self.0.checked_add(1).map(BilledKey)
    }

    fn as_number(self) -> u128 {
        u128::from(self.0)
    }
}

impl CacheState {
    fn key_at(&mut self, offset: PoolOffset) {
        match self.access {
            Access::Linear => {
                if self.lines.last() != Some(&offset.block_number(LINE_BYTES)) {
                    self.lines.push(offset.block_number(LINE_BYTES));
                }
            }
            Access::Binary => self.pool.touch(offset, 8),
            Access::Indirect(array) => {
                // Slots are in key order in these nodes: the place in the array is that of the key.
                self.pool.touch(array.plus(offset.since(self.keys) / 8 + 1).aligned_down(8), 8);
                self.pool.touch(offset, 8);
            }
        }
    }
}

/// Bills what `work` reads of the keys that begin at an offset; `front` is fetched with the keys of a linear
/// search, and before those of the others.
pub(super) fn billed<R>(
    pool: &Arc<Pool>,
    access: Access,
    front: &[u64],
    keys: PoolOffset,
    work: impl FnOnce() -> R,
) -> R {
    let base = pool.view(PoolOffset::new(0), 1).as_ptr() as usize;
    let first: &[u64] = if access == Access::Linear { &[] } else { front };
    fetch(pool, first);
    let reading = CacheState { pool: Arc::clone(pool), base, access, lines: Vec::new(), keys };
    READING.with_borrow_mut(|slot| *slot = Some(reading));
    let result = work();
    let done = READING.with_borrow_mut(Option::take).expect("it was put there");
    if access == Access::Linear {
        let lines: Vec<u64> = front.iter().copied().chain(done.lines).collect();
        fetch(pool, &lines);
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use entresol_structures::node::Sorted;

    #[test]
    fn reads_of_keys_are_billed_where_they_are() {
        let pool = optane().unwrap();
        let offset = object(&pool, 4096).unwrap();
        let words = node::<Sorted<4096>>(&pool, offset);
        let entries: Vec<(u64, u64)> = (0..240).map(|key| (key, key)).collect();
        Sorted::<4096>::fill(words, &entries);
        settle(&pool, offset, 4096);
        let keys = words.word_offset(Sorted::<4096>::geometry::<u64>().keys);
        let lines = |access| {
            let before = so_far(&pool);
            billed(&pool, access, &[], keys, || {
                assert_eq!(Sorted::<4096>::find(words, BilledKey(239)), Some(239));
            });
            settle(&pool, offset, 4096);
            (so_far(&pool) - before).lines_read
        };
        // Eight steps, the last three or four in one line.
        let binary = lines(Access::Binary);
        assert!((4..=7).contains(&binary), "{binary} lines");
        assert_eq!(lines(Access::Linear), binary, "the same lines, together");
    }
}
