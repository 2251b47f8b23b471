//! One shard of the cache: a circular queue of entries, an index into it, and the query features of a period.
//!
//! ```text
//!   head ──── warm ──── ┆ ──── hot ──── tail        oldest entries are warm, the next to go
//!            hit: goes to the tail again
//! ```
//!
//! Readers validate the shard's version and write nothing but counters; changes are made under its latch. A slot of
//! the queue whose entry moved or was forgotten is dead until the head has passed it. An index line that is full
//! loses one of its entries: the shard is a cache, it may forget.
//!
//! Memory: [`ENTRY_BYTES`] for each slot, fixed at creation.

use crate::latch;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};

const SLOT_WORDS: usize = 4;
const KEY: usize = 0;
const VALUE: usize = 2;
/// The word of the index that names the slot, plus one; 0: the slot is dead.
const PLACE: usize = 3;
/// Words of an index line.
const LANES: usize = 8;
/// Slot, two words of index and two of features.
pub(super) const ENTRY_BYTES: usize = (SLOT_WORDS + 2 + 2) * 8;

/// See the [module](self).
pub(super) struct Shard {
    latch: AtomicU64,
    slots: Box<[AtomicU64]>,
    /// High half: of the hash; low half: number of the slot plus one, 0: free.
    index: Box<[AtomicU64]>,
    /// Hash (high half), period, count (low byte) of keys that were asked for.
    features: Box<[AtomicU64]>,
    head: AtomicU64,
    tail: AtomicU64,
    pub(super) warm_percent: AtomicU64,
    pub(super) period: AtomicU64,
    pub(super) queries: AtomicU64,
    pub(super) hits: AtomicU64,
}

/// An entry that was found.
pub(super) struct Hit {
    pub(super) value: u64,
    pub(super) is_warm: bool,
}

/// The latch of a shard; dropping it lets go.
struct Held<'s>(&'s AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        latch::unlock(self.0);
    }
}

fn zeros(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

impl Shard {
    /// A shard for so many entries: a power of two of at least [`LANES`].
    pub(super) fn new(capacity: usize) -> Shard {
        debug_assert!(capacity.is_power_of_two() && capacity >= LANES);
        Shard {
            latch: AtomicU64::new(0),
            slots: zeros(capacity * SLOT_WORDS),
            index: zeros(capacity * 2),
            features: zeros(capacity * 2),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            warm_percent: AtomicU64::new(50),
            period: AtomicU64::new(1),
            queries: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        (self.slots.len() / SLOT_WORDS) as u64
    }

    pub(super) fn bytes(&self) -> usize {
        (self.slots.len() + self.index.len() + self.features.len()) * 8
    }

    fn slot(&self, number: u64) -> &[AtomicU64] {
        let at = number as usize * SLOT_WORDS;
        &self.slots[at..at + SLOT_WORDS]
    }

    fn line(&self, hash: u64) -> usize {
        // The upper bits chose the shard.
        (hash as usize & (self.index.len() / LANES - 1)) * LANES
    }

    fn lock(&self) -> Held<'_> {
        let mut spins = 0;
        while !latch::try_lock(&self.latch) {
            latch::pause(&mut spins);
        }
        Held(&self.latch)
    }

    /// The slot of a key.
    #[inline]
    fn slot_of(&self, hash: u64, key: [u64; 2]) -> Option<u64> {
        let line = self.line(hash);
        self.index[line..line + LANES].iter().find_map(|lane| {
            let word = lane.load(Relaxed);
            let number = (word & 0xFFFF_FFFF).checked_sub(1)?;
            if word >> 32 != hash >> 32 || number >= self.capacity() {
                return None;
            }
            let slot = self.slot(number);
            (slot[KEY].load(Relaxed) == key[0] && slot[KEY + 1].load(Relaxed) == key[1]).then_some(number)
        })
    }

    #[inline]
    fn hit(&self, number: u64) -> Hit {
        let (head, tail) = (self.head.load(Relaxed), self.tail.load(Relaxed));
        let warm = tail.wrapping_sub(head) * self.warm_percent.load(Relaxed) / 100;
        let age = number.wrapping_sub(head) & (self.capacity() - 1);
        Hit { value: self.slot(number)[VALUE].load(Relaxed), is_warm: age < warm }
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: [u64; 2]) -> Option<Hit> {
        let mut spins = 0;
        loop {
            let version = latch::read(&self.latch);
            let found = self.slot_of(hash, key).map(|number| self.hit(number));
            if latch::validate(&self.latch, version) {
                return found;
            }
            latch::pause(&mut spins);
        }
    }

    /// Puts a warm entry that was hit to the tail, if it is still there.
    pub(super) fn renew(&self, hash: u64, key: [u64; 2]) {
        if !latch::try_lock(&self.latch) {
            return;
        }
        let _held = Held(&self.latch);
        if let Some(number) = self.slot_of(hash, key) {
            let value = self.slot(number)[VALUE].load(Relaxed);
            self.kill(number);
            self.append(hash, key, value);
        }
    }

    /// Adds an entry if the word that counts its key's changes is what it was; the value was read, or written,
    /// in between.
    pub(super) fn fill(&self, hash: u64, key: [u64; 2], value: u64, changes: &AtomicU64, noted: u64) -> bool {
        let _held = self.lock();
        // A writer counts itself, then looks for the key here: it sees the latch or we see the count.
        fence(SeqCst);
        if changes.load(SeqCst) != noted {
            return false;
        }
        if let Some(number) = self.slot_of(hash, key) {
            self.kill(number);
        }
        self.append(hash, key, value);
        true
    }

    /// Drops the entry of a key; whether there was one. The caller has counted itself as a writer.
    pub(super) fn forget(&self, hash: u64, key: [u64; 2]) -> bool {
        fence(SeqCst);
        if self.find(hash, key).is_none() {
            return false;
        }
        let _held = self.lock();
        let number = self.slot_of(hash, key);
        number.into_iter().for_each(|number| self.kill(number));
        number.is_some()
    }

    /// Drops all entries.
    pub(super) fn clear(&self) {
        let _held = self.lock();
        for number in 0..self.capacity() {
            self.kill(number);
        }
    }

    /// Entries that count.
    pub(super) fn entries(&self) -> usize {
        self.index.iter().filter(|lane| lane.load(Relaxed) != 0).count()
    }

    /// Takes an entry out of the index; under the latch.
    fn kill(&self, number: u64) {
        let place = self.slot(number)[PLACE].swap(0, Relaxed);
        if place > 0 {
            self.index[place as usize - 1].store(0, Relaxed);
        }
    }

    /// Puts an entry at the tail; under the latch. A full queue loses its oldest.
    fn append(&self, hash: u64, key: [u64; 2], value: u64) {
        let (head, tail) = (self.head.load(Relaxed), self.tail.load(Relaxed));
        let number = tail & (self.capacity() - 1);
        if tail - head == self.capacity() {
            self.kill(number);
            self.head.store(head + 1, Relaxed);
        }
        self.tail.store(tail + 1, Relaxed);
        let line = self.line(hash);
        let free = (line..line + LANES).find(|place| self.index[*place].load(Relaxed) == 0);
        let place = free.unwrap_or(line + (tail as usize % LANES));
        if let Some(other) = (self.index[place].load(Relaxed) & 0xFFFF_FFFF).checked_sub(1) {
            self.kill(other);
        }
        let slot = self.slot(number);
        for (word, content) in slot.iter().zip([key[0], key[1], value, place as u64 + 1]) {
            word.store(content, Relaxed);
        }
        self.index[place].store(hash >> 32 << 32 | (number + 1), Relaxed);
    }

    /// Counts a query for a key that is not here; how often it was asked for in this period.
    #[inline]
    pub(super) fn note_query(&self, hash: u64) -> u64 {
        let feature = &self.features[hash as usize & (self.features.len() - 1)];
        let tag = (hash >> 32 << 32) | (self.period.load(Relaxed) & 0xFF_FFFF) << 8;
        let word = feature.load(Relaxed);
        // Keys that share a word push each other out; a hot one comes back.
        let count = if word & !0xFF == tag { (word & 0xFF).min(254) + 1 } else { 1 };
        feature.store(tag | count, Relaxed);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_a_renewed_one_stays() {
        let (shard, changes) = (Shard::new(8), AtomicU64::new(0));
        let hash = |i: u64| i | i << 32;
        for i in 0..8 {
            assert!(shard.fill(hash(i), [i, 0], i * 10, &changes, 0));
        }
        assert!(
            shard.find(hash(0), [0, 0]).unwrap().is_warm && !shard.find(hash(7), [7, 0]).unwrap().is_warm
        );
        shard.renew(hash(0), [0, 0]);
        assert!(!shard.find(hash(0), [0, 0]).unwrap().is_warm);
        shard.fill(hash(8), [8, 0], 80, &changes, 0);
        assert!(shard.find(hash(1), [1, 0]).is_none(), "the oldest that nobody asked for");
        assert_eq!(shard.find(hash(0), [0, 0]).unwrap().value, 0);
        assert_eq!(shard.entries(), 8);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let (shard, changes) = (Shard::new(8), AtomicU64::new(0));
        changes.store(1, SeqCst);
        assert!(!shard.fill(5, [5, 0], 1, &changes, 0));
        assert!(shard.find(5, [5, 0]).is_none());
        assert!(shard.fill(5, [5, 0], 1, &changes, 1) && shard.forget(5, [5, 0]) && !shard.forget(5, [5, 0]));
    }

    #[test]
    fn features_count_within_a_period() {
        let shard = Shard::new(8);
        assert_eq!([shard.note_query(9), shard.note_query(9), shard.note_query(9 | 1 << 40)], [1, 2, 1]);
        assert_eq!(shard.note_query(9), 1);
        shard.period.fetch_add(1, Relaxed);
        assert_eq!(shard.note_query(9), 1);
    }
}
