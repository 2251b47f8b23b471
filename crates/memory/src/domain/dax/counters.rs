//! Counters of events in many threads, without a shared line and without a locked instruction.
//!
//! A locked instruction costs as much as the flush that it counts, and orders stores as a fence does: it
//! would hide a forgotten fence on every machine until the counter is removed. Each thread therefore counts
//! in a slot of its own. Threads beyond [`SLOTS_MAX`] share one and pay for it.
//!
//! Memory: 8 KiB a counter group.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS_MAX: usize = 127;

/// Slots of threads that have ended.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// First slot that was never used.
static UNUSED: Mutex<usize> = Mutex::new(0);

struct CounterSlot(usize);

impl CounterSlot {
    fn take() -> CounterSlot {
        if let Some(place) = FREE.lock().pop() {
            return CounterSlot(place);
        }
        let mut unused = UNUSED.lock();
        let place = (*unused).min(SLOTS_MAX);
        *unused = place + 1;
        CounterSlot(place)
    }
}

impl Drop for CounterSlot {
    fn drop(&mut self) {
        if self.0 < SLOTS_MAX {
            FREE.lock().push(self.0);
        }
    }
}

thread_local! {
    static SLOT: CounterSlot = CounterSlot::take();
}

/// Two counters: of flushes and of fences.
pub(super) struct Counters {
    places: Box<[CachePadded<[AtomicU64; 2]>]>,
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters { places: (0..=SLOTS_MAX).map(|_| CachePadded::default()).collect() }
    }

    #[inline]
    pub(super) fn add_flushes(&self, count: u64) {
        self.add(0, count);
    }

    #[inline]
    pub(super) fn add_fence(&self) {
        self.add(1, 1);
    }

    #[inline]
    fn add(&self, which: usize, count: u64) {
        // An ending thread that has released its slot counts in the shared one.
        let place = SLOT.try_with(|place| place.0).unwrap_or(SLOTS_MAX);
        let counter = &self.places[place][which];
        if place < SLOTS_MAX {
            // The slot is this thread's alone, so no increment is lost in between.
            counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        } else {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Number of flushes and fences so far.
    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |which: usize| self.places.iter().map(|place| place[which].load(Ordering::Relaxed)).sum();
        (sum(0), sum(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_with_more_threads_than_places() {
        let counters = Counters::new();
        let barrier = std::sync::Barrier::new(2 * SLOTS_MAX);
        std::thread::scope(|scope| {
            for _ in 0..2 * SLOTS_MAX {
                scope.spawn(|| {
                    barrier.wait();
                    (0..1000).for_each(|_| counters.add_flushes(2));
                    (0..10).for_each(|_| counters.add_fence());
                });
            }
        });
        assert_eq!(counters.sums(), (2 * 2000 * SLOTS_MAX as u64, 20 * SLOTS_MAX as u64));
        assert!(*UNUSED.lock() <= SLOTS_MAX + 1);
    }
}
