//! Version latches: readers never write, writers lock one word.
//!
//! A latch is a counter: odd while a writer holds it, changed by every write. A reader reads the (even)
//! version, then the data, and accepts the data only if the version is still the same.

use entresol_memory::{Pool, PoolOffset};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

/// Returns the version to validate later; waits while a writer holds the latch.
#[inline]
pub(crate) fn read(latch: &AtomicU64) -> u64 {
    let mut spins = 0u32;
    loop {
        let version = latch.load(Ordering::Acquire);
        if version & 1 == 0 {
            return version;
        }
        pause(&mut spins);
    }
}

/// Returns true if nothing was written since [`read`].
#[inline]
pub(crate) fn validate(latch: &AtomicU64, version: u64) -> bool {
    // Keeps the reads before it before the second read of the version.
    fence(Ordering::Acquire);
    latch.load(Ordering::Relaxed) == version
}

/// Locks if nothing was written since [`read`].
#[inline]
pub(crate) fn try_lock_at(latch: &AtomicU64, version: u64) -> bool {
    debug_assert!(version & 1 == 0, "a latch is locked at a version at which it was free");
    let locked = latch.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    // Keeps the stores after it after the odd version.
    fence(Ordering::Release);
    locked
}

/// Locks if the latch is free.
pub(crate) fn try_lock(latch: &AtomicU64) -> bool {
    let version = latch.load(Ordering::Relaxed);
    version & 1 == 0 && try_lock_at(latch, version)
}

/// Locks a latch that no other writer can hold (its writers are serialised elsewhere).
pub(crate) fn lock_alone(latch: &AtomicU64) {
    let before = latch.fetch_add(1, Ordering::Acquire);
    assert!(before & 1 == 0, "a latch with one writer was locked twice");
    fence(Ordering::Release);
}

/// Releases the latch; overlapping readers will notice.
#[inline]
pub(crate) fn unlock(latch: &AtomicU64) {
    // No other thread changes a locked latch, and a plain store does not wait for the stores before it.
    let held = latch.load(Ordering::Relaxed);
    debug_assert!(held & 1 == 1, "an unlocked latch was unlocked");
    latch.store(held + 1, Ordering::Release);
}

/// Waits briefly, longer on each repetition.
#[inline]
pub(crate) fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        entresol_memory::order::waits();
        std::thread::yield_now();
    }
}

/// Latches that this thread holds; dropping it releases them.
#[derive(Default)]
pub(crate) struct LatchSet<'t>(SmallVec<[&'t AtomicU64; 4]>);

impl Drop for LatchSet<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|latch| unlock(latch));
    }
}

impl<'t> LatchSet<'t> {
    /// Locks a latch, if nothing was written since [`read`].
    pub(crate) fn at(latch: &'t AtomicU64, version: u64) -> Option<LatchSet<'t>> {
        try_lock_at(latch, version).then(|| LatchSet(SmallVec::from_slice(&[latch])))
    }

    /// Locks another latch, if it is free. Never waits, so threads never wait in a cycle.
    pub(crate) fn try_add(&mut self, latch: &'t AtomicU64) -> bool {
        // Nodes share latches.
        let has = self.0.iter().any(|own| std::ptr::eq(*own, latch));
        if !has {
            if !try_lock(latch) {
                return false;
            }
            self.0.push(latch);
        }
        true
    }
}

/// Latches for nodes of a pool, shared by hash of the node's offset. DRAM only.
#[derive(Clone)]
pub(crate) struct LatchStripes {
    latches: Arc<[AtomicU64]>,
}

/// Latches that structures of a pool share, by the pool's address: no other pool has it while the pool is
/// open.
static OF_POOLS: Mutex<Vec<(usize, Weak<[AtomicU64]>)>> = Mutex::new(Vec::new());

/// 128 KiB of latches: small enough for the second-level cache, many enough that threads rarely contend.
const STRIPES: usize = 1 << 14;

impl LatchStripes {
    pub(crate) fn new() -> LatchStripes {
        LatchStripes { latches: (0..STRIPES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns the latches that structures of a pool share, so that a pool of many small ones needs no more
    /// than a large one. For structures that hold latches of one structure at a time, and never wait for
    /// another while they hold one.
    pub(crate) fn of_pool(pool: &Arc<Pool>) -> LatchStripes {
        let address = Arc::as_ptr(pool) as usize;
        let mut known = OF_POOLS.lock();
        let shared = known.iter().find(|(of, _)| *of == address).and_then(|(_, latches)| latches.upgrade());
        if let Some(latches) = shared {
            return LatchStripes { latches };
        }
        known.retain(|(of, latches)| *of != address && latches.strong_count() > 0);
        let stripes = LatchStripes::new();
        known.push((address, Arc::downgrade(&stripes.latches)));
        stripes
    }

    /// Returns the latch with a number; neighbouring numbers have neighbouring latches.
    #[inline]
    pub(crate) fn at(&self, number: usize) -> &AtomicU64 {
        &self.latches[number % STRIPES]
    }

    #[inline]
    pub(crate) fn of(&self, leaf: PoolOffset) -> &AtomicU64 {
        self.numbered(leaf.block_number(crate::leaf::LEAF_BYTES as u64))
    }

    /// Returns the latch of an object with this number; neighbours should have neighbouring numbers.
    #[inline]
    pub(crate) fn numbered(&self, number: u64) -> &AtomicU64 {
        &self.latches[number as usize % STRIPES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_memory::{DomainChoice, PoolOptions};

    #[test]
    fn structures_of_a_pool_share_latches_and_pools_do_not() {
        let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
        let [pool, other] = [(); 2].map(|()| Pool::volatile(&options).unwrap());
        let [first, second] = [(); 2].map(|()| LatchStripes::of_pool(&pool));
        let leaf = PoolOffset::new(1 << 20);
        assert!(std::ptr::eq(first.of(leaf), second.of(leaf)));
        assert!(!std::ptr::eq(first.of(leaf), LatchStripes::of_pool(&other).of(leaf)));
        let weak = Arc::downgrade(&first.latches);
        drop((first, second));
        assert!(weak.upgrade().is_none(), "no structure holds them");
        LatchStripes::of_pool(&pool).of(leaf);
    }
}
