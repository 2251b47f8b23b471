//! Version latches: readers never write, writers lock one word.
//!
//! A latch is a counter: odd while a writer holds it, changed by every write. A reader notes the (even)
//! version, reads, and accepts what it read only if the version is still the same.

use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The version to validate later; waits while a writer is inside.
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

/// Whether nothing was written since [`read`].
#[inline]
pub(crate) fn validate(latch: &AtomicU64, version: u64) -> bool {
    // Keeps the reads before it before the second look at the version.
    fence(Ordering::Acquire);
    latch.load(Ordering::Relaxed) == version
}

/// Locks if nothing was written since [`read`].
#[inline]
pub(crate) fn try_lock_at(latch: &AtomicU64, version: u64) -> bool {
    let locked = latch.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    // Keeps the stores after it after the odd version.
    fence(Ordering::Release);
    locked
}

/// Locks if nobody holds it.
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

/// Lets go; readers that overlapped will notice.
#[inline]
pub(crate) fn unlock(latch: &AtomicU64) {
    // Nobody else changes a latch that is held, and a plain store does not wait for the stores before it.
    let held = latch.load(Ordering::Relaxed);
    debug_assert!(held & 1 == 1, "an unlocked latch was unlocked");
    latch.store(held + 1, Ordering::Release);
}

/// Waits a little, longer as it repeats.
#[inline]
pub(crate) fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 {
        std::hint::spin_loop();
    } else {
        entresol_memory::crash::waits();
        std::thread::yield_now();
    }
}

/// Latches that this thread holds; dropping it lets go.
#[derive(Default)]
pub(crate) struct Held<'t>(SmallVec<[&'t AtomicU64; 4]>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|latch| unlock(latch));
    }
}

impl<'t> Held<'t> {
    /// A latch, if nothing was written since [`read`].
    pub(crate) fn at(latch: &'t AtomicU64, version: u64) -> Option<Held<'t>> {
        try_lock_at(latch, version).then(|| Held(SmallVec::from_slice(&[latch])))
    }

    /// Takes another latch, unless somebody else has it. Never waits, so that nobody waits in a ring.
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

/// Latches for nodes of a pool, shared by hash of the node's place. DRAM only.
pub(crate) struct LatchStripes {
    latches: Box<[AtomicU64]>,
}

/// 128 KiB of latches: small enough for the second-level cache, many enough that threads rarely meet.
const STRIPES: usize = 1 << 14;

impl LatchStripes {
    pub(crate) fn new() -> LatchStripes {
        LatchStripes { latches: (0..STRIPES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The latch with a number; neighbouring numbers have neighbouring latches.
    #[inline]
    pub(crate) fn at(&self, number: usize) -> &AtomicU64 {
        &self.latches[number % STRIPES]
    }

    #[inline]
    pub(crate) fn of(&self, leaf: u64) -> &AtomicU64 {
        self.numbered(leaf / crate::leaf::LEAF_BYTES as u64)
    }

    /// The latch of whatever has this number; neighbours should have neighbouring numbers.
    #[inline]
    pub(crate) fn numbered(&self, number: u64) -> &AtomicU64 {
        &self.latches[number as usize % STRIPES]
    }
}
