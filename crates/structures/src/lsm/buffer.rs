//! The DRAM buffer: the newest writes, unsorted, with a hash index; sorted when it is moved (dissertation E6:
//! keeping a buffer sorted costs more than sorting it once).
//!
//! The buffer is an array in the order of the log. A writer claims the next index, and its entry is visible
//! to readers once the hash index leads to it, which is after it is in the log. Entries never change or move,
//! so readers need no lock and no validation; a newer entry of a key replaces it in the hash index.
//!
//! Ordered scans take a *view*: array indexes sorted by key. The order of the last view is stored; it grows
//! when 256 entries were added since, so a scan sorts few entries however large the buffer is.
//!
//! Memory: 33 to 41 bytes an entry, 4 more once it is scanned.

use super::files::block::LsmEntry;
use super::files::filter::KeyHash;
use crate::latch;
use crate::node::FixedKey;
use parking_lot::Mutex;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Entries that a view sorts on its own before it extends the stored order.
const TAIL_MAX: usize = 256;
/// Claims from here on mean a sealed buffer.
const SEALED: u64 = 1 << 40;

/// States of an array index.
const NOTHING: u8 = 0;
const VALUE: u8 = 1;
const TOMBSTONE: u8 = 2;
/// A writer claimed it and failed.
const VOID: u8 = 3;

pub(super) struct Buffer<K> {
    /// Number of the log with the same entries at the same indexes.
    pub(super) log: usize,
    pub(super) generation: u64,
    capacity: u32,
    claimed: AtomicU64,
    done: AtomicU64,
    /// Number of valid claims, once it is sealed.
    limit: AtomicU64,
    /// Index + 1 of the newest entry of a key, open addressing.
    index: Box<[AtomicU32]>,
    /// Key and value of each index.
    words: Box<[AtomicU64]>,
    kinds: Box<[AtomicU8]>,
    sorted: Mutex<SortedOrder>,
    key: PhantomData<K>,
}

#[derive(Default)]
struct SortedOrder {
    /// All indexes before this one are in the order.
    upto: usize,
    order: Arc<Vec<u32>>,
}

/// Indexes sorted by key, each key once; the second list is newer.
pub(super) struct View {
    pub(super) order: Arc<Vec<u32>>,
    pub(super) tail: Vec<u32>,
}

impl<K: FixedKey> Buffer<K> {
    const ENTRY_WORDS: usize = K::WORDS + 1;

    pub(super) fn new(log: usize, generation: u64, capacity: u32) -> Buffer<K> {
        let capacity_words = capacity as usize * Self::ENTRY_WORDS;
        Buffer {
            log,
            generation,
            capacity,
            claimed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            index: (0..(capacity as usize * 2).next_power_of_two()).map(|_| AtomicU32::new(0)).collect(),
            words: (0..capacity_words).map(|_| AtomicU64::new(0)).collect(),
            kinds: (0..capacity).map(|_| AtomicU8::new(NOTHING)).collect(),
            sorted: Mutex::default(),
            key: PhantomData,
        }
    }

    /// Returns the buffer of a log's records. Indexes without a record stay void.
    pub(super) fn recovered(
        log: usize,
        generation: u64,
        capacity: u32,
        records: &[(u32, LsmEntry<K>)],
    ) -> Buffer<K> {
        let buffer = Buffer::new(log, generation, capacity);
        let claimed = records.last().map_or(0, |(place, _)| place + 1);
        (0..claimed).for_each(|place| buffer.kinds[place as usize].store(VOID, Relaxed));
        for (place, entry) in records {
            buffer.fill(*place, entry);
            buffer.point_to(*place, entry.key, KeyHash::of(entry.key));
        }
        buffer.claimed.store(u64::from(claimed), Relaxed);
        buffer.done.store(u64::from(claimed), Relaxed);
        buffer
    }

    /// Claims the next index; none if the buffer is full or sealed. The claimer must call [`Buffer::put`] or
    /// [`Buffer::void`].
    #[inline]
    pub(super) fn claim(&self) -> Option<u32> {
        let place = self.claimed.fetch_add(1, AcqRel);
        (place < u64::from(self.capacity)).then_some(place as u32)
    }

    /// Makes the entry of a claimed index visible. The caller excludes other writers of this key.
    #[inline]
    pub(super) fn put(&self, place: u32, entry: &LsmEntry<K>, hash: KeyHash) {
        self.fill(place, entry);
        self.point_to(place, entry.key, hash);
        self.done.fetch_add(1, Release);
    }

    /// Voids a claimed index.
    #[cold]
    pub(super) fn void(&self, place: u32) {
        self.kinds[place as usize].store(VOID, Release);
        self.done.fetch_add(1, Release);
    }

    #[inline]
    fn fill(&self, place: u32, entry: &LsmEntry<K>) {
        let words = &self.words[place as usize * Self::ENTRY_WORDS..][..Self::ENTRY_WORDS];
        for (index, word) in words[..K::WORDS].iter().enumerate() {
            word.store(entry.key.word(index), Relaxed);
        }
        words[K::WORDS].store(entry.value, Relaxed);
        let kind = if entry.is_tombstone { TOMBSTONE } else { VALUE };
        self.kinds[place as usize].store(kind, Release);
    }

    /// Returns the slots of the hash index for a hash, in order.
    #[inline]
    fn slots(&self, hash: KeyHash) -> impl Iterator<Item = &AtomicU32> {
        let mask = self.index.len() - 1;
        let home = hash.0 as usize;
        (0..self.index.len()).map(move |step| &self.index[(home + step) & mask])
    }

    #[inline]
    fn point_to(&self, place: u32, key: K, hash: KeyHash) {
        for slot in self.slots(hash) {
            let mut found = slot.load(Acquire);
            if found == 0 {
                match slot.compare_exchange(0, place + 1, AcqRel, Acquire) {
                    Ok(_) => return,
                    // Another key took it meanwhile.
                    Err(taken) => found = taken,
                }
            }
            if self.key(found - 1) == key {
                return slot.store(place + 1, Release);
            }
        }
        unreachable!("the hash index has twice as many slots as the buffer has entries");
    }

    #[inline]
    pub(super) fn key(&self, place: u32) -> K {
        K::load(&self.words[place as usize * Self::ENTRY_WORDS..][..K::WORDS])
    }

    #[inline]
    pub(super) fn entry(&self, place: u32) -> LsmEntry<K> {
        let words = &self.words[place as usize * Self::ENTRY_WORDS..][..Self::ENTRY_WORDS];
        LsmEntry {
            key: K::load(words),
            value: words[K::WORDS].load(Relaxed),
            is_tombstone: self.kinds[place as usize].load(Acquire) == TOMBSTONE,
        }
    }

    /// Returns the newest entry of a key.
    #[inline]
    pub(super) fn find(&self, key: K, hash: KeyHash) -> Option<LsmEntry<K>> {
        for slot in self.slots(hash) {
            let found = slot.load(Acquire);
            if found == 0 {
                return None;
            }
            if self.key(found - 1) == key {
                return Some(self.entry(found - 1));
            }
        }
        None
    }

    /// Number of claimed indexes.
    pub(super) fn claimed(&self) -> usize {
        (self.claimed.load(Acquire) % SEALED).min(u64::from(self.capacity)) as usize
    }

    pub(super) fn is_full(&self) -> bool {
        self.claimed.load(Acquire) >= u64::from(self.capacity)
    }

    /// Seals the buffer: it accepts no more entries. Idempotent.
    pub(super) fn seal(&self) {
        let before = self.claimed.fetch_or(SEALED, AcqRel);
        if before < SEALED {
            self.limit.store(before.min(u64::from(self.capacity)), Release);
        }
    }

    /// Waits for the writers that have claimed indexes of a sealed buffer.
    pub(super) fn wait_for_writers(&self) {
        let mut spins = 0;
        while self.done.load(Acquire) < self.limit.load(Acquire) {
            latch::pause(&mut spins);
        }
    }

    fn is_there(&self, place: usize) -> bool {
        matches!(self.kinds[place].load(Acquire), VALUE | TOMBSTONE)
    }

    /// Sorts indexes by key, without those of superseded entries.
    fn sort(&self, places: &mut Vec<u32>) {
        places.sort_unstable_by(|a, b| self.key(*a).cmp(&self.key(*b)).then(b.cmp(a)));
        places.dedup_by(|later, first| self.key(*later) == self.key(*first));
    }

    /// Returns a view for a scan: all entries so far, and perhaps some that are being written.
    pub(super) fn view(&self) -> View {
        let claimed = self.claimed();
        let mut sorted = self.sorted.lock();
        let mut done = sorted.upto;
        while done < claimed && self.kinds[done].load(Acquire) != NOTHING {
            done += 1;
        }
        if done - sorted.upto >= TAIL_MAX {
            let news = (sorted.upto..done).filter(|place| self.is_there(*place)).map(|place| place as u32);
            let mut order: Vec<u32> = sorted.order.iter().copied().chain(news).collect();
            // Mostly sorted already: the standard sort merges runs.
            order.sort_by(|a, b| self.key(*a).cmp(&self.key(*b)).then(b.cmp(a)));
            order.dedup_by(|later, first| self.key(*later) == self.key(*first));
            *sorted = SortedOrder { upto: done, order: Arc::new(order) };
        }
        let order = Arc::clone(&sorted.order);
        let upto = sorted.upto;
        drop(sorted);
        let mut tail = (upto..claimed).filter(|p| self.is_there(*p)).map(|p| p as u32).collect();
        self.sort(&mut tail);
        View { order, tail }
    }

    /// Returns all entries of a sealed buffer without writers, sorted, each key once.
    pub(super) fn sorted_entries(&self) -> Vec<LsmEntry<K>> {
        let mut entries: Vec<(K, u32)> = (0..self.claimed())
            .filter(|place| self.is_there(*place))
            .map(|place| (self.key(place as u32), place as u32))
            .collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        entries.dedup_by(|later, first| later.0 == first.0);
        entries.into_iter().map(|(_, place)| self.entry(place)).collect()
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> usize {
        self.index.len() * 4 + self.words.len() * 8 + self.kinds.len() + self.sorted.lock().order.len() * 4
    }
}
