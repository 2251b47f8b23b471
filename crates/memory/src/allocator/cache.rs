//! Per-thread caches: reserved objects ready to be handed out, and freed objects until no reader can hold
//! them.
//!
//! Every thread has a number, the lowest that no live thread has, and uses the pool's cache of that number.
//! With at most [`CACHES`] threads the lock of a cache is never contended. The lock makes sharing safe all
//! the same: a pool that is short of space empties all caches, and a new thread may take over the number, and
//! the cache, of one that ended. Nothing here is persistent: after a crash these objects are free.
//!
//! Memory: per thread and size class at most two batches ([`batch_of`]), of together at most 4 MiB of the
//! pool.

use super::size_class::{CLASSES, class_bytes};
use crate::offset::PoolOffset;
use crate::spin::{SpinGuard, SpinLock};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Maximum number of caches of a pool; further threads share.
const CACHES: usize = 64;
const BATCH_OBJECTS_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 32 << 10;
const RETIRED_OBJECTS_MAX: usize = 64;
const RETIRED_BYTES_MAX: u64 = 64 << 10;

/// Number of objects of a class that a thread takes at once.
pub(super) fn batch_of(class: usize) -> usize {
    (BATCH_BYTES_MAX / class_bytes(class)).clamp(1, BATCH_OBJECTS_MAX as u64) as usize
}

/// Freed object that a reader may still hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetiredObject {
    pub(super) offset: PoolOffset,
    pub(super) bytes: u64,
}

/// Objects of one class ready to be handed out.
#[derive(Default)]
struct Magazine {
    /// Offsets; the last is handed out next.
    offsets: Vec<PoolOffset>,
    reserved: u64,
    requested_bytes: u64,
}

/// Objects of one thread.
pub(super) struct ThreadCache {
    magazines: [Magazine; CLASSES],
    retired: Vec<RetiredObject>,
    retired_bytes: u64,
}

impl ThreadCache {
    fn new() -> ThreadCache {
        ThreadCache {
            magazines: std::array::from_fn(|_| Magazine::default()),
            retired: Vec::new(),
            retired_bytes: 0,
        }
    }

    /// Takes an object of the class, if the cache has one.
    #[inline]
    pub(super) fn take(&mut self, class: usize, requested_bytes: usize) -> Option<PoolOffset> {
        let magazine = &mut self.magazines[class];
        let offset = magazine.offsets.pop()?;
        magazine.reserved += 1;
        magazine.requested_bytes += requested_bytes as u64;
        debug_assert!(offset.is_aligned(64), "objects begin at cache lines, not at {offset:#x}");
        Some(offset)
    }

    /// Adds a fresh batch and takes its first object.
    pub(super) fn refill(
        &mut self,
        class: usize,
        requested_bytes: usize,
        batch: &[PoolOffset],
    ) -> Option<PoolOffset> {
        let magazine = &mut self.magazines[class];
        if magazine.offsets.capacity() == 0 {
            magazine.offsets.reserve_exact(2 * batch_of(class));
        }
        debug_assert!(batch.len() <= batch_of(class), "a batch has at most {} objects", batch_of(class));
        magazine.offsets.extend(batch.iter().rev());
        self.take(class, requested_bytes)
    }

    /// Takes an unused object back. Returns the objects that exceed the cache's limit.
    pub(super) fn put_back(&mut self, class: usize, offset: PoolOffset) -> Vec<PoolOffset> {
        let offsets = &mut self.magazines[class].offsets;
        debug_assert!(!offsets.contains(&offset), "the object at {offset:#x} was put back twice");
        offsets.push(offset);
        let batch = batch_of(class);
        if offsets.len() > 2 * batch { offsets.drain(..batch).collect() } else { Vec::new() }
    }

    /// Takes a free object if the cache has less than a batch of the class.
    pub(super) fn top_up(&mut self, class: usize, offset: PoolOffset) -> bool {
        let offsets = &mut self.magazines[class].offsets;
        debug_assert!(!offsets.contains(&offset), "the object at {offset:#x} is handed out twice");
        let has_room = offsets.len() < batch_of(class);
        if has_room {
            offsets.push(offset);
        }
        has_room
    }

    /// Adds a freed object; returns a batch that is to wait for readers once it is full.
    #[inline]
    pub(super) fn retire(&mut self, retired: RetiredObject) -> Option<Vec<RetiredObject>> {
        debug_assert!(retired.bytes > 0, "a freed object has bytes: {:#x}", retired.offset);
        self.retired.push(retired);
        self.retired_bytes += retired.bytes;
        let full = self.retired.len() >= RETIRED_OBJECTS_MAX || self.retired_bytes >= RETIRED_BYTES_MAX;
        full.then(|| self.take_retired())
    }

    pub(super) fn take_retired(&mut self) -> Vec<RetiredObject> {
        debug_assert_eq!(
            self.retired.iter().map(|object| object.bytes).sum::<u64>(),
            self.retired_bytes,
            "the bytes of freed objects are counted"
        );
        self.retired_bytes = 0;
        std::mem::take(&mut self.retired)
    }

    /// Takes the objects of a class that are ready and lie at or behind an offset.
    pub(super) fn take_from(&mut self, class: usize, offset: PoolOffset) -> Vec<PoolOffset> {
        let mut behind = Vec::new();
        self.magazines[class].offsets.retain(|&other| {
            if other >= offset {
                behind.push(other);
            }
            other < offset
        });
        behind
    }

    /// Takes all objects that are ready, by class.
    pub(super) fn drain(&mut self, mut take: impl FnMut(usize, Vec<PoolOffset>)) {
        for (class, magazine) in self.magazines.iter_mut().enumerate() {
            if !magazine.offsets.is_empty() {
                take(class, std::mem::take(&mut magazine.offsets));
            }
        }
    }

    /// Number of cached objects of a class; number and bytes of the reservations since open.
    pub(super) fn counts(&self, class: usize) -> (u64, u64, u64) {
        let magazine = &self.magazines[class];
        (magazine.offsets.len() as u64, magazine.reserved, magazine.requested_bytes)
    }

    /// Freed objects that do not wait in an epoch yet.
    pub(super) fn retired(&self) -> &[RetiredObject] {
        &self.retired
    }
}

/// Caches of a pool, created on first use.
pub(super) struct ThreadCaches {
    caches: [OnceLock<Box<CachePadded<SpinLock<ThreadCache>>>>; CACHES],
}

impl ThreadCaches {
    pub(super) fn new() -> ThreadCaches {
        ThreadCaches { caches: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// Number of the calling thread's cache.
    #[inline]
    pub(super) fn own_number() -> usize {
        thread_number() % CACHES
    }

    #[inline]
    pub(super) fn lock(&self, number: usize) -> SpinGuard<'_, ThreadCache> {
        self.caches[number]
            .get_or_init(|| Box::new(CachePadded::new(SpinLock::new(ThreadCache::new()))))
            .lock()
    }

    /// Cache of the calling thread. The caller must not block while holding the guard.
    #[inline]
    pub(super) fn own(&self) -> SpinGuard<'_, ThreadCache> {
        self.lock(ThreadCaches::own_number())
    }

    /// Visits all caches that were used.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, &mut ThreadCache)) {
        for (number, cache) in self.caches.iter().enumerate() {
            if let Some(cache) = cache.get() {
                visit(number, &mut cache.lock());
            }
        }
    }
}

/// Numbers without a thread: all from `next` on, and those in the set.
struct FreeNumbers {
    returned: BTreeSet<usize>,
    next: usize,
}

static NUMBERS: Mutex<FreeNumbers> = Mutex::new(FreeNumbers { returned: BTreeSet::new(), next: 0 });
const NO_NUMBER: usize = usize::MAX;

/// Number of a thread; released when the thread ends.
struct ThreadNumber(usize);

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NUMBER.set(NO_NUMBER);
        NUMBERS.lock().returned.insert(self.0);
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NO_NUMBER) };
    static HELD: ThreadNumber = ThreadNumber(claim_number());
}

fn claim_number() -> usize {
    let mut numbers = NUMBERS.lock();
    numbers.returned.pop_first().unwrap_or_else(|| {
        numbers.next += 1;
        numbers.next - 1
    })
}

#[inline]
fn thread_number() -> usize {
    let number = NUMBER.get();
    if number == NO_NUMBER { claim_for_thread() } else { number }
}

#[cold]
fn claim_for_thread() -> usize {
    match HELD.try_with(|held| held.0) {
        Ok(number) => {
            NUMBER.set(number);
            number
        }
        // An ending thread has no number any more and shares the first cache.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_threads_have_different_numbers_and_ended_ones_give_theirs_back() {
        let numbers = |count: usize| {
            let barrier = std::sync::Barrier::new(count);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count)
                    .map(|_| {
                        scope.spawn(|| {
                            let number = thread_number();
                            barrier.wait();
                            assert_eq!(thread_number(), number);
                            number
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<BTreeSet<_>>()
            })
        };
        let most = (0..20).map(|_| numbers(8)).map(|set| {
            assert_eq!(set.len(), 8, "live threads have their own numbers");
            set.into_iter().next_back().unwrap()
        });
        // Other tests of this process have threads, too.
        assert!(most.max().unwrap() < 160 - 8, "numbers are used again");
    }

    #[test]
    fn batches_come_out_in_address_order_and_too_many_go_back() {
        let mut cache = ThreadCache::new();
        assert_eq!(cache.take(3, 200), None);
        let at = PoolOffset::new;
        let batch: Vec<PoolOffset> = (0..64).map(|i| at(i * 256)).collect();
        assert_eq!(cache.refill(3, 200, &batch), Some(at(0)));
        assert_eq!(cache.take(3, 250), Some(at(256)));
        assert_eq!(cache.counts(3), (62, 2, 450));
        assert!((0..66).all(|i| cache.put_back(3, at(1 << 20 | i << 8)).is_empty()));
        assert_eq!(cache.put_back(3, at(2 << 20)).len(), 64);
        assert_eq!(cache.take(3, 256), Some(at(2 << 20)));
        assert!(!cache.top_up(3, at(0)) || cache.counts(3).0 <= 64);
    }

    #[test]
    fn freed_objects_are_handed_over_in_batches_by_number_and_by_size() {
        let mut cache = ThreadCache::new();
        let of = |bytes| RetiredObject { offset: PoolOffset::new(0), bytes };
        assert!((1..RETIRED_OBJECTS_MAX).all(|_| cache.retire(of(64)).is_none()));
        assert_eq!(cache.retire(of(64)).unwrap().len(), RETIRED_OBJECTS_MAX);
        assert_eq!(cache.retire(of(1 << 20)).unwrap(), [of(1 << 20)]);
        assert!(cache.retire(of(32 << 10)).is_none());
        assert_eq!(cache.retire(of(32 << 10)).unwrap().len(), 2);
    }
}
