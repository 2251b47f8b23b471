//! Time of operations: by the clock, or by the model.

use super::load::key;
use crate::Error;
use crate::measure::ns_per_operation;
use entresol_memory::{Pool, Publication};
use entresol_structures::{HotspotClock, HotspotIndex, HotspotOptions, Inserted, PointIndex, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Source of the time of operations.
pub(super) enum Meter {
    /// This machine's clock.
    Real,
    /// A modelled pool's device, and what a hotspot index adds to it.
    Modelled { pool: Arc<Pool>, dram_ns: f64, own: OwnWork },
}

/// Processor time of an index' operations, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessorCost {
    pub(super) get: f64,
    pub(super) update: f64,
    pub(super) delete: f64,
    pub(super) insert: f64,
}

/// Time of a hotspot index' operations where its lines are in the processor's caches and the index behind
/// takes nothing, in ns.
pub(super) struct OwnWork {
    hit: f64,
    miss: f64,
    change: f64,
}

impl Meter {
    /// On a modelled pool, with the latency of DRAM.
    pub(super) fn modelled(pool: &Arc<Pool>, dram_ns: f64) -> Meter {
        Meter::Modelled { pool: pool.clone(), dram_ns, own: OwnWork::measure() }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Meter::Real => "journal",
            Meter::Modelled { .. } => "modelled Optane",
        }
    }

    pub(super) fn is_modelled(&self) -> bool {
        matches!(self, Meter::Modelled { .. })
    }

    /// By what a hotspot index judges itself.
    pub(super) fn clock(&self) -> HotspotClock {
        match self {
            Meter::Real => HotspotClock::Real,
            Meter::Modelled { pool, dram_ns, .. } => {
                HotspotClock::Modelled { pool: pool.clone(), lookup_ns: *dram_ns as u64 }
            }
        }
    }

    /// ns of an operation; each must succeed.
    pub(super) fn ns(
        &self,
        numbers: &[u64],
        mut operation: impl FnMut(u64) -> std::result::Result<bool, Error>,
    ) -> std::result::Result<f64, Error> {
        let mut all = || {
            for number in numbers {
                if !operation(*number)? {
                    return Err(Error::Invalid(format!(
                        "an operation on key {number} found another state than expected"
                    )));
                }
            }
            Ok(())
        };
        let Meter::Modelled { pool, .. } = self else { return ns_per_operation(numbers.len(), all) };
        let cost = || pool.modelled_cost().unwrap_or_default();
        let before = cost();
        all()?;
        Ok((cost() - before).ns() / numbers.len() as f64)
    }

    /// Time of a get that the model does not bill: a wait for the lines of a lookup in DRAM, and processor
    /// time.
    pub(super) fn own_get_ns(&self, hits: f64, is_bypassed: bool) -> f64 {
        match self {
            Meter::Real => 0.0,
            Meter::Modelled { own, .. } if is_bypassed => own.miss,
            Meter::Modelled { dram_ns, own, .. } => dram_ns + hits * own.hit + (1.0 - hits) * own.miss,
        }
    }

    /// Time of a change that the model does not bill: processor time. The lines arrive while the change is
    /// carried out.
    pub(super) fn own_change_ns(&self) -> f64 {
        match self {
            Meter::Real => 0.0,
            Meter::Modelled { own, .. } => own.change,
        }
    }
}

/// ns of an operation on the numbers below `keys`: the best of several rounds, since what disturbs the
/// machine only adds.
fn best_ns(keys: u64, mut operation: impl FnMut(u64)) -> f64 {
    let mut round = |_| {
        let start = std::time::Instant::now();
        (0..keys).for_each(&mut operation);
        start.elapsed().as_nanos() as f64 / keys as f64
    };
    (0..ROUNDS).map(&mut round).fold(f64::INFINITY, f64::min)
}

const ROUNDS: u64 = 15;
/// Keys of an index that fits the processor's caches.
const SMALL: u64 = 4096;

impl ProcessorCost {
    /// Of an empty index on DRAM.
    pub(super) fn of_index(
        index: &impl PointIndex<Key = u64>,
        pool: &Pool,
    ) -> std::result::Result<ProcessorCost, Error> {
        for number in 0..SMALL {
            index.insert(key(number), number, pool.publication())?;
        }
        let get = best_ns(SMALL, |number| assert!(matches!(index.get(key(number)), Ok(Some(_)))));
        let update = best_ns(SMALL, |number| {
            assert!(matches!(index.replace(key(number), number, pool.publication()), Ok(Some(_))));
        });
        let mut work = ProcessorCost { get, update, delete: f64::INFINITY, insert: f64::INFINITY };
        for _ in 0..ROUNDS {
            let start = std::time::Instant::now();
            for number in 0..SMALL {
                index.remove(key(number), pool.publication())?;
            }
            work.delete = work.delete.min(start.elapsed().as_nanos() as f64 / SMALL as f64);
            let start = std::time::Instant::now();
            for number in 0..SMALL {
                index.insert(key(number), number, pool.publication())?;
            }
            work.insert = work.insert.min(start.elapsed().as_nanos() as f64 / SMALL as f64);
        }
        Ok(work)
    }
}

impl OwnWork {
    fn measure() -> OwnWork {
        const KEYS: u64 = 64;
        let best = |operation: &mut dyn FnMut(u64)| best_ns(KEYS * 100, |step| operation(step % KEYS));
        let pool = Pool::volatile(&entresol_memory::PoolOptions::default()).expect("DRAM for a pool");
        let clock = || HotspotClock::Known { behind_ns: 1_000_000, lookup_ns: 1 };
        let index = |behind| {
            let options = HotspotOptions {
                budget_bytes: 256 << 10,
                hot_after: 1,
                clock: clock(),
                ..Default::default()
            };
            HotspotIndex::new(behind, options).expect("a budget that suffices")
        };
        let (hitting, missing) = (index(FreeIndex { has_keys: true }), index(FreeIndex { has_keys: false }));
        let hit = best(&mut |key| assert!(matches!(hitting.get(key), Ok(Some(_)))));
        // Only keys that are there are brought in.
        let miss = best(&mut |key| assert!(matches!(missing.get(key), Ok(None))));
        let change = best(&mut |key| {
            assert!(matches!(hitting.replace(key, key, pool.publication()), Ok(Some(_))));
        });
        let nothing = best(&mut |key| {
            assert!(matches!(
                std::hint::black_box(FreeIndex { has_keys: true }).replace(key, key, pool.publication()),
                Ok(Some(_))
            ));
        });
        OwnWork { hit, miss, change: (change - nothing).max(0.0) }
    }
}

/// An index that takes no time: every key is there, or none.
struct FreeIndex {
    has_keys: bool,
}

impl PointIndex for FreeIndex {
    type Key = u64;
    const KEY_WORDS: usize = 1;

    fn key_words(key: u64) -> [u64; 2] {
        [key, 0]
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.has_keys.then_some(key))
    }

    fn insert<'p>(&'p self, key: u64, _: u64, _: Publication<'p>) -> Result<Inserted> {
        Ok(Inserted::Exists(key))
    }

    fn replace<'p>(&'p self, key: u64, _: u64, _: Publication<'p>) -> Result<Option<u64>> {
        Ok(Some(key))
    }

    fn remove<'p>(&'p self, key: u64, _: Publication<'p>) -> Result<Option<u64>> {
        Ok(Some(key))
    }
}

/// An index that counts the gets that reach it.
pub(super) struct CountingIndex<'i, I> {
    index: &'i I,
    gets: AtomicU64,
}

impl<'i, I> CountingIndex<'i, I> {
    pub(super) fn new(index: &'i I) -> CountingIndex<'i, I> {
        CountingIndex { index, gets: AtomicU64::new(0) }
    }

    pub(super) fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }
}

impl<I: PointIndex<Key = u64>> PointIndex for CountingIndex<'_, I> {
    type Key = u64;
    const KEY_WORDS: usize = 1;

    fn key_words(key: u64) -> [u64; 2] {
        [key, 0]
    }

    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        // One thread measures; a locked instruction would count as the index'.
        self.gets.store(self.gets.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.index.get(key)
    }

    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.index.insert(key, value, with)
    }

    fn replace<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.index.replace(key, value, with)
    }

    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.index.remove(key, with)
    }
}
