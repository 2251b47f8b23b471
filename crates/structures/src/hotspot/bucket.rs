//! A bucket of the cache: some entries and the query features of the keys that hash to it, in two
//! neighbouring lines.
//!
//! ```text
//! line 0   latch (8)  order (8)  features (8 of 2)  entries
//! line 1   entries: key and value, words
//!
//! order    a slot plus one in each nibble, from the oldest entry to the youngest; 0: none
//!          oldest ──── warm ──── ┆ ──── hot ──── youngest
//!          hit: becomes the youngest
//! feature  tag (9 bits), period (3), queries (4)
//! ```
//!
//! Both lines are prefetched together, so a hit waits once. Readers validate the latch's version and write
//! nothing but features, which may lose a count. Entries and their order change under the latch.

use super::sync::{Acquire, AtomicU16, AtomicU64, Relaxed, Release, SeqCst, fence, pause};
use crate::simd::prefetch;

/// Words of all entries.
const ENTRY_WORDS: usize = 12;
const FEATURES: usize = 8;
/// Maximum of queries that a feature counts.
pub(super) const QUERIES_MAX: u64 = 15;
const NIBBLES: u32 = 16;
/// Periods that a feature distinguishes, less one.
const PERIODS: u16 = 7;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 128;

/// Entries of a bucket, for keys of `key_words` words.
#[inline]
pub(super) const fn slots(key_words: usize) -> usize {
    ENTRY_WORDS / (key_words + 1)
}

/// Slots from the oldest entry to the youngest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueueOrder(u64);

impl QueueOrder {
    #[inline]
    fn len(self) -> u32 {
        NIBBLES - self.0.leading_zeros() / 4
    }

    /// Returns the number of entries older than that of a slot, if it has one.
    #[inline]
    fn age(self, slot: usize) -> Option<u32> {
        (0..self.len()).find(|age| self.0 >> (4 * age) & 0xF == slot as u64 + 1)
    }

    fn oldest(self) -> usize {
        (self.0 & 0xF) as usize - 1
    }

    fn without(self, age: u32) -> QueueOrder {
        let younger = self.0 >> (4 * age) >> 4;
        QueueOrder(self.0 & ((1 << (4 * age)) - 1) | younger << (4 * age))
    }

    fn with_youngest(self, slot: usize) -> QueueOrder {
        QueueOrder(self.0 | (slot as u64 + 1) << (4 * self.len()))
    }
}

#[repr(align(128))]
pub(super) struct CacheBucket {
    /// Odd while locked.
    latch: AtomicU64,
    order: AtomicU64,
    features: [AtomicU16; FEATURES],
    entries: [AtomicU64; ENTRY_WORDS],
}

/// The scheduler's atomics, in tests, are larger.
#[cfg(not(test))]
const _: () = assert!(size_of::<CacheBucket>() == BUCKET_BYTES);

/// The words of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) words: [u64; 2],
    pub(super) count: usize,
}

/// An entry that was found.
pub(super) struct CachedEntry {
    pub(super) value: u64,
    /// Number of older entries.
    pub(super) age: u32,
    pub(super) entries: u32,
}

/// Result of an optimistic read of a bucket: a slot and an age, and the version to validate.
#[derive(Clone, Copy)]
pub(super) struct BucketSnapshot {
    version: u64,
    place: Option<(usize, u32)>,
}

/// Bucket that this thread has latched; dropping it releases the latch.
pub(super) struct BucketGuard<'b> {
    bucket: &'b CacheBucket,
    version: u64,
}

impl Drop for BucketGuard<'_> {
    fn drop(&mut self) {
        debug_assert_eq!(self.bucket.latch.load(Relaxed), self.version + 1, "the latch is held to its end");
        self.bucket.latch.store(self.version + 2, Release);
    }
}

impl CacheBucket {
    pub(super) fn new() -> CacheBucket {
        CacheBucket {
            latch: AtomicU64::new(0),
            order: AtomicU64::new(0),
            features: std::array::from_fn(|_| AtomicU16::new(0)),
            entries: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Prefetches both lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.latch);
        prefetch(&self.entries[ENTRY_WORDS - 1]);
    }

    #[inline]
    fn order(&self) -> QueueOrder {
        QueueOrder(self.order.load(Relaxed))
    }

    /// Returns the slot and age of a key's entry.
    #[inline]
    fn place_of(&self, key: Key) -> Option<(usize, u32)> {
        let order = self.order();
        if order.0 == 0 {
            return None;
        }
        let entries = self.entries.chunks_exact(key.count + 1).enumerate();
        let is_of = |entry: &[AtomicU64]| {
            entry[0].load(Relaxed) == key.words[0]
                && (key.count == 1 || entry[1].load(Relaxed) == key.words[1])
        };
        // The words of a removed entry stay in its slot.
        entries.filter(|(_, entry)| is_of(entry)).find_map(|(slot, _)| order.age(slot).map(|age| (slot, age)))
    }

    #[inline]
    fn value(&self, slot: usize, key: Key) -> &AtomicU64 {
        &self.entries[slot * (key.count + 1) + key.count]
    }

    /// Returns the entry of a key. None also on a conflict with a writer.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<CachedEntry> {
        let version = self.latch.load(Acquire);
        let (slot, age) = self.place_of(key)?;
        let found =
            CachedEntry { value: self.value(slot, key).load(Relaxed), age, entries: self.order().len() };
        // Keeps the reads before it before the second read of the version.
        fence(Acquire);
        let is_stable = version & 1 == 0 && self.latch.load(Relaxed) == version;
        is_stable.then_some(found)
    }

    /// Returns the position of a key's entry, for [`CacheBucket::settle`]; none if it certainly has none, and
    /// no writer is active.
    #[inline]
    pub(super) fn snapshot(&self, key: Key) -> Option<BucketSnapshot> {
        let version = self.latch.load(SeqCst);
        let place = self.place_of(key);
        fence(Acquire);
        let is_stable = version & 1 == 0 && self.latch.load(Relaxed) == version;
        (place.is_some() || !is_stable).then_some(BucketSnapshot { version, place })
    }

    fn lock_at(&self, version: u64) -> Option<BucketGuard<'_>> {
        let is_locked =
            version & 1 == 0 && self.latch.compare_exchange(version, version + 1, SeqCst, Relaxed).is_ok();
        fence(Release);
        is_locked.then(|| BucketGuard { bucket: self, version })
    }

    pub(super) fn try_lock(&self) -> Option<BucketGuard<'_>> {
        self.lock_at(self.latch.load(Relaxed))
    }

    /// Updates the key's entry, if it has one, to the result of `value` under the latch, or removes it.
    /// Returns true if there was one.
    pub(super) fn settle(&self, key: Key, look: BucketSnapshot, value: impl FnOnce() -> Option<u64>) -> bool {
        let (latched, place) = match self.lock_at(look.version) {
            Some(latched) => (latched, look.place),
            None => {
                let latched = self.lock();
                (latched, self.place_of(key))
            }
        };
        let Some(place) = place else { return false };
        latched.settle(key, place, value());
        true
    }

    /// Latches the bucket, waiting for it. It is held for a few dozen nanoseconds.
    pub(super) fn lock(&self) -> BucketGuard<'_> {
        let mut spins = 0;
        loop {
            if let Some(latched) = self.try_lock() {
                return latched;
            }
            pause(&mut spins);
        }
    }

    /// Number of valid entries.
    pub(super) fn len(&self) -> usize {
        self.order().len() as usize
    }

    /// Counts a query for a key without entry; returns its queries in this period and the one before.
    /// Concurrent threads may lose counts. In a full bucket the key with the fewest queries is replaced.
    #[inline]
    pub(super) fn note_query(&self, hash: u64, period: u64) -> u64 {
        let (period, tag) = (period as u16 & PERIODS, (hash as u16) << 7);
        let (mut least, mut victim) = (u16::MAX, 0);
        for (lane, feature) in self.features.iter().enumerate() {
            let word = feature.load(Relaxed);
            let age = period.wrapping_sub(word >> 4) & PERIODS;
            let queries = if age <= 1 { word & 0xF } else { 0 };
            if queries > 0 && word & 0xFF80 == tag {
                let queries = (queries + 1).min(QUERIES_MAX as u16);
                feature.store(tag | period << 4 | queries, Relaxed);
                return u64::from(queries);
            }
            if queries < least {
                (least, victim) = (queries, lane);
            }
        }
        self.features[victim].store(tag | period << 4 | 1, Relaxed);
        1
    }
}

impl BucketGuard<'_> {
    fn set_order(&self, order: QueueOrder) {
        debug_assert!(
            (0..order.len()).all(|age| {
                let slot = (order.0 >> (4 * age) & 0xF).wrapping_sub(1);
                slot < slots(1) as u64 && order.age(slot as usize) == Some(age)
            }),
            "each slot is once in the order {:#x}",
            order.0
        );
        self.bucket.order.store(order.0, Relaxed);
    }

    /// Makes a key's entry the youngest, if it has one.
    pub(super) fn renew(&self, key: Key) {
        let Some((slot, age)) = self.bucket.place_of(key) else { return };
        self.set_order(self.bucket.order().without(age).with_youngest(slot));
    }

    /// Adds an entry, if the key has none. A full bucket evicts its oldest.
    pub(super) fn add(&self, key: Key, value: u64) {
        if self.bucket.place_of(key).is_some() {
            return;
        }
        let order = self.bucket.order();
        let free = (0..slots(key.count)).find(|slot| order.age(*slot).is_none());
        let (order, slot) = match free {
            Some(slot) => (order, slot),
            None => (order.without(0), order.oldest()),
        };
        debug_assert!(slot < slots(key.count) && order.age(slot).is_none(), "the slot {slot} is free");
        for (word, content) in
            self.bucket.entries[slot * (key.count + 1)..].iter().zip(&key.words[..key.count])
        {
            word.store(*content, Relaxed);
        }
        self.bucket.value(slot, key).store(value, Relaxed);
        self.set_order(order.with_youngest(slot));
    }

    /// Changes the value of a key's entry, or removes it.
    fn settle(&self, key: Key, (slot, age): (usize, u32), value: Option<u64>) {
        debug_assert_eq!(self.bucket.order().age(slot), Some(age), "a latched bucket keeps its order");
        match value {
            Some(value) => self.bucket.value(slot, key).store(value, Relaxed),
            None => self.set_order(self.bucket.order().without(age)),
        }
    }

    pub(super) fn clear(&self) {
        self.set_order(QueueOrder(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_ages() {
        let order = [3, 0, 5].into_iter().fold(QueueOrder(0), QueueOrder::with_youngest);
        assert_eq!((order.len(), order.oldest()), (3, 3));
        assert_eq!([3, 0, 5, 1].map(|slot| order.age(slot)), [Some(0), Some(1), Some(2), None]);
        let renewed = order.without(0).with_youngest(3);
        assert_eq!([3, 0, 5].map(|slot| renewed.age(slot)), [Some(2), Some(0), Some(1)]);
        assert_eq!(order.without(1).without(1).without(0), QueueOrder(0));
    }

    #[test]
    fn entries_of_both_widths_fit() {
        assert_eq!([1, 2].map(slots), [6, 4]);
    }
}
