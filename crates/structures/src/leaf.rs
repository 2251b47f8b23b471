//! The hashing leaf layout (dissertation 3.2.2, FPTree; figure 3.2 e): unsorted entries, a bitmap of the
//! valid ones, and a one-byte fingerprint of each key, so that a search reads one cache line and the entry it
//! wants.
//!
//! ```text
//! word          content (W = words of a key; 1 or 2)
//! 0             bitmap of valid entries
//! 1..8          fingerprints, a byte each
//! 8             offset of the next leaf; 0: last
//! 9..9+W        low key: no key of the leaf is smaller; not set in the first leaf
//! 16..128       entries: key (W words), value (1 word)
//! ```
//!
//! If there is a choice, an entry is written to the first free slot from its *home* slot on, which its
//! fingerprint determines: a search prefetches the home's line together with the fingerprints, and mostly
//! finds the entry there, instead of waiting for two lines in a row. This is only an optimisation: an entry
//! may be in any slot.
//!
//! An entry is valid once its bit is set; its words and its fingerprint are flushed and fenced before. So a
//! crash leaves an entry complete or none.

use crate::key::TreeKey;
use crate::points::{BIT_WITH_ITS_ENTRY, FINGERPRINT, MOVED_FINGERPRINTS};
use crate::simd::matching_bytes;
use entresol_memory::order::{Flush, OrderPoint, step};
use entresol_memory::{Pool, PoolOffset, Publication};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// Bytes of a leaf: a multiple of 256, the block of persistent memory, and not above 1 KiB (dissertation
/// 3.5). Leaves of 1 KiB need half as many inner nodes as leaves of 512 B, of which more stay in the caches.
pub const LEAF_BYTES: usize = 1024;
const LEAF_WORDS: usize = LEAF_BYTES / 8;
const LINE_WORDS: usize = 8;

pub(crate) const BITMAP_WORD: u64 = 0;
const FINGERPRINTS: usize = 1;
pub(crate) const NEXT_WORD: u64 = 8;
const LOW: usize = 9;
const ENTRIES: usize = 16;

/// Slots with their keys: as many as a leaf has at most.
pub(crate) type SlotPartition<K> = SmallVec<[(<K as TreeKey>::Stored, usize); 64]>;

/// A leaf in the pool, as words. The accessors report the lines they use to a modelled pool; on other domains
/// that is one test of a cached word.
pub(crate) struct Leaf<'p, K: TreeKey> {
    pool: &'p Pool,
    words: &'p [AtomicU64; LEAF_WORDS],
    offset: PoolOffset,
    key: PhantomData<K>,
}

impl<'p, K: TreeKey> Leaf<'p, K> {
    /// Entries that fit.
    pub(crate) const CAPACITY: usize = (LEAF_WORDS - ENTRIES) / (K::WORDS + 1);
    /// All entries valid.
    pub(crate) const FULL: u64 = (1 << Self::CAPACITY) - 1;

    const LAYOUT_FITS: () = assert!(
        Self::CAPACITY <= (LINE_WORDS - FINGERPRINTS) * 8 && LOW + K::WORDS <= ENTRIES,
        "the first line holds the bitmap and a fingerprint of every entry"
    );

    #[inline]
    pub(crate) fn at(pool: &'p Pool, offset: PoolOffset) -> Leaf<'p, K> {
        let () = Self::LAYOUT_FITS;
        let words = pool.view(offset, LEAF_WORDS).try_into().expect("the slice has that many words");
        Leaf { pool, words, offset, key: PhantomData }
    }

    /// Reports an access to the first cache line: bitmap and fingerprints.
    #[inline]
    fn touch_head(&self) {
        self.pool.touch(self.offset, LINE_WORDS * 8);
    }

    /// Reports an access to the second one: next leaf and low key.
    fn touch_link(&self) {
        self.pool.touch(self.word_offset(NEXT_WORD), (1 + K::WORDS) * 8);
    }

    /// Reports an access to the words of an entry.
    #[inline]
    fn touch_entry(&self, slot: usize) {
        self.pool.touch(self.entry_offset(slot), (K::WORDS + 1) * 8);
    }

    #[inline]
    pub(crate) fn bitmap(&self) -> u64 {
        self.touch_head();
        self.words[BITMAP_WORD as usize].load(Acquire)
    }

    pub(crate) fn next(&self) -> PoolOffset {
        self.touch_link();
        PoolOffset::from_word(self.words[NEXT_WORD as usize].load(Acquire))
    }

    pub(crate) fn low(&self) -> K::Stored {
        self.touch_link();
        K::load(&self.words[LOW..LOW + K::WORDS])
    }

    /// Prefetches the line in which an entry with this fingerprint is most likely.
    #[inline]
    pub(crate) fn prefetch_home(pool: &Pool, offset: PoolOffset, fingerprint: u8) {
        pool.prefetch(offset.word(Self::entry_word(Self::home(fingerprint))));
    }

    /// Prefetches all lines of a leaf.
    #[inline]
    pub(crate) fn prefetch_whole(pool: &Pool, offset: PoolOffset) {
        (0..LEAF_BYTES as u64).step_by(LINE_WORDS * 8).for_each(|byte| pool.prefetch(offset.plus(byte)));
    }

    /// Returns the home slot of this fingerprint: the first of a cache line's.
    #[inline]
    fn home(fingerprint: u8) -> usize {
        let slot = (usize::from(fingerprint) * Self::CAPACITY) >> 8;
        let entries_per_line = LINE_WORDS / (K::WORDS + 1);
        slot - slot % entries_per_line
    }

    /// Returns the slot for a new entry with this fingerprint; there must be a free one.
    #[inline]
    pub(crate) fn free_slot(bitmap: u64, fingerprint: u8) -> usize {
        let free = !bitmap & Self::FULL;
        debug_assert!(free != 0, "the leaf is full");
        let from_home = free & (u64::MAX << Self::home(fingerprint));
        let candidates = if from_home == 0 { free } else { from_home };
        let slot = candidates.trailing_zeros() as usize;
        debug_assert!(slot < Self::CAPACITY, "slot {slot} lies in the leaf");
        slot
    }

    /// Returns the pool offset of a word.
    pub(crate) fn word_offset(&self, word: u64) -> PoolOffset {
        debug_assert!(word < LEAF_WORDS as u64, "word {word} lies in the leaf");
        self.offset.plus(word * 8)
    }

    const fn entry_word(slot: usize) -> usize {
        ENTRIES + slot * (K::WORDS + 1)
    }

    pub(crate) fn entry_offset(&self, slot: usize) -> PoolOffset {
        debug_assert!(slot < Self::CAPACITY, "slot {slot} lies in the leaf");
        self.word_offset(Self::entry_word(slot) as u64)
    }

    pub(crate) fn value_offset(&self, slot: usize) -> PoolOffset {
        self.entry_offset(slot).word(K::WORDS)
    }

    fn fingerprint_word(slot: usize) -> usize {
        FINGERPRINTS + slot / 8
    }

    pub(crate) fn fingerprint_offset(&self, slot: usize) -> PoolOffset {
        self.word_offset(Self::fingerprint_word(slot) as u64)
    }

    #[inline]
    pub(crate) fn key(&self, slot: usize) -> K::Stored {
        self.touch_entry(slot);
        let word = Self::entry_word(slot);
        K::load(&self.words[word..word + K::WORDS])
    }

    #[inline]
    pub(crate) fn value(&self, slot: usize) -> u64 {
        self.pool.touch(self.value_offset(slot), 8);
        self.words[Self::entry_word(slot) + K::WORDS].load(Acquire)
    }

    fn fingerprint(&self, slot: usize) -> u8 {
        self.words[Self::fingerprint_word(slot)].load(Relaxed).to_le_bytes()[slot % 8]
    }

    /// Returns the slots that may hold a key with this fingerprint.
    #[inline]
    pub(crate) fn candidates(&self, fingerprint: u8) -> u64 {
        let line = self.words.first_chunk().expect("a leaf has more than one line");
        let matches = matching_bytes(line, fingerprint) >> (FINGERPRINTS * 8);
        matches & self.bitmap() & Self::FULL
    }

    /// Returns the slot of a key among candidates.
    #[inline]
    pub(crate) fn confirm(&self, pool: &Pool, mut candidates: u64, key: K::Key<'_>) -> Option<usize> {
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if K::compare(pool, self.key(slot), key) == Ordering::Equal {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// Returns the slot of a key.
    #[inline]
    pub(crate) fn find(&self, pool: &Pool, key: K::Key<'_>) -> Option<usize> {
        self.confirm(pool, self.candidates(K::fingerprint(key)), key)
    }

    /// Adds an entry: its words and its fingerprint, then the bit that makes it valid.
    #[inline]
    pub(crate) fn add_entry(
        &self,
        slot: usize,
        (key, fingerprint): (K::Stored, u8),
        value: u64,
        with: &mut Publication<'_>,
    ) {
        self.put_words(slot, key, value, with);
        let mut bytes = self.words[Self::fingerprint_word(slot)].load(Relaxed).to_le_bytes();
        bytes[slot % 8] = fingerprint;
        step(FINGERPRINT, || with.write(self.fingerprint_offset(slot), u64::from_le_bytes(bytes)));
        with.barrier(BIT_WITH_ITS_ENTRY);
        let bitmap = self.bitmap();
        assert!(
            bitmap & (1 << slot) == 0,
            "an entry goes into a free slot, not into {slot} of {:#x}",
            self.offset
        );
        with.set(self.word_offset(BITMAP_WORD), bitmap | (1 << slot));
    }

    #[inline]
    fn put_words(&self, slot: usize, key: K::Stored, value: u64, with: &mut Publication<'_>) {
        let entry = self.entry_offset(slot);
        for i in 0..K::WORDS {
            with.write(entry.word(i), K::word(key, i));
        }
        with.write(entry.word(K::WORDS), value);
    }

    /// Writes an entry into a free slot of an unreachable leaf; returns the bitmap with it.
    pub(crate) fn put_fresh(&self, bitmap: u64, (key, fingerprint): (K::Stored, u8), value: u64) -> u64 {
        let slot = Self::free_slot(bitmap, fingerprint);
        self.write_entry(slot, key, value, fingerprint);
        bitmap | 1 << slot
    }

    /// Completes an unreachable leaf that was [cleared](Leaf::clear) before its entries were put.
    pub(crate) fn complete_fresh(&self, bitmap: u64, low: K::Stored, next: PoolOffset) {
        assert!(
            bitmap != 0 && bitmap & !Self::FULL == 0,
            "a new leaf has entries, in slots that it has: {bitmap:#x}"
        );
        K::store(&self.words[LOW..LOW + K::WORDS], low);
        self.words[NEXT_WORD as usize].store(next.to_word(), Relaxed);
        self.words[BITMAP_WORD as usize].store(bitmap, Relaxed);
    }

    /// Flushes all lines of the leaf.
    pub(crate) fn flush_whole(&self, point: OrderPoint<Flush>) {
        debug_assert!(
            self.offset.is_aligned(LINE_WORDS as u64 * 8),
            "a leaf has whole lines: {:#x}",
            self.offset
        );
        self.pool.flush_at(self.offset, LEAF_BYTES, point);
    }

    /// Writes an entry and its fingerprint into an unreachable leaf.
    fn write_entry(&self, slot: usize, key: K::Stored, value: u64, fingerprint: u8) {
        debug_assert!(slot < Self::CAPACITY, "slot {slot} lies in the leaf");
        self.touch_entry(slot);
        let word = Self::entry_word(slot);
        K::store(&self.words[word..word + K::WORDS], key);
        self.words[word + K::WORDS].store(value, Relaxed);
        let fingerprints = &self.words[Self::fingerprint_word(slot)];
        let mut bytes = fingerprints.load(Relaxed).to_le_bytes();
        bytes[slot % 8] = fingerprint;
        fingerprints.store(u64::from_le_bytes(bytes), Relaxed);
    }

    /// Returns the valid slots, in order of their keys.
    pub(crate) fn sorted_slots(&self, pool: &Pool) -> Vec<(K::Stored, usize)> {
        let mut slots: Vec<_> = bits(self.bitmap()).map(|slot| (self.key(slot), slot)).collect();
        slots.sort_unstable_by(|a, b| K::compare_stored(pool, a.0, b.0));
        slots
    }

    /// Returns the valid slots with their keys: the `lower` slots with the lowest keys, in any order, then
    /// the others, the lowest of these first. There must be more than `lower`.
    pub(crate) fn parted_slots(&self, pool: &Pool, lower: usize) -> SlotPartition<K> {
        let mut slots: SlotPartition<K> = bits(self.bitmap()).map(|slot| (self.key(slot), slot)).collect();
        assert!(
            lower < slots.len(),
            "{lower} of the {} entries of {:#x} are not a part of them",
            slots.len(),
            self.offset
        );
        slots.select_nth_unstable_by(lower, |a, b| K::compare_stored(pool, a.0, b.0));
        slots
    }

    /// Fills a fresh leaf with entries of another; nothing refers to it yet.
    pub(crate) fn fill_from(
        &self,
        from: &Leaf<'_, K>,
        slots: impl Iterator<Item = usize>,
        low: K::Stored,
        next: PoolOffset,
    ) {
        assert_ne!(self.offset, from.offset, "a leaf is filled with entries of another");
        self.touch_head();
        self.touch_link();
        for word in &self.words[..ENTRIES] {
            word.store(0, Relaxed);
        }
        let mut bitmap = 0;
        for slot in slots {
            let fingerprint = from.fingerprint(slot);
            let to = Self::free_slot(bitmap, fingerprint);
            self.write_entry(to, from.key(slot), from.value(slot), fingerprint);
            bitmap |= 1 << to;
        }
        self.complete_fresh(bitmap, low, next);
    }

    /// Number of valid entries. Reports no access.
    fn present(&self) -> usize {
        self.words[BITMAP_WORD as usize].load(Acquire).count_ones() as usize
    }

    /// Number of free slots.
    pub(crate) fn room(&self) -> usize {
        (!self.bitmap() & Self::FULL).count_ones() as usize
    }

    /// Writes entries of another leaf into free slots, to be flushed by the publication; returns the bitmap
    /// that makes them valid. There must be room for them.
    pub(crate) fn take_over(
        &self,
        from: &Leaf<'_, K>,
        slots: impl Iterator<Item = usize>,
        with: &mut Publication<'_>,
    ) -> u64 {
        let mut bitmap = self.bitmap();
        let mut added: SmallVec<[(usize, usize); 32]> = SmallVec::new();
        for slot in slots {
            let to = Self::free_slot(bitmap, from.fingerprint(slot));
            bitmap |= 1 << to;
            added.push((to, slot));
        }
        // Neighbours are flushed together.
        added.sort_unstable();
        assert_eq!(
            bitmap.count_ones() as usize,
            self.present() + added.len(),
            "each moved entry gets a slot that was free"
        );
        debug_assert!(bitmap & !Self::FULL == 0, "slots exist: {bitmap:#x}");
        let mut fingerprints: [u64; LINE_WORDS - FINGERPRINTS] =
            std::array::from_fn(|word| self.words[FINGERPRINTS + word].load(Relaxed));
        for &(to, slot) in &added {
            let entry = self.entry_offset(to);
            let key = from.key(slot);
            (0..K::WORDS).for_each(|i| with.write(entry.word(i), K::word(key, i)));
            with.write(entry.word(K::WORDS), from.value(slot));
            let mut bytes = fingerprints[to / 8].to_le_bytes();
            bytes[to % 8] = from.fingerprint(slot);
            fingerprints[to / 8] = u64::from_le_bytes(bytes);
        }
        step(MOVED_FINGERPRINTS, || {
            let all = (FINGERPRINTS as u64..).map(|word| self.word_offset(word));
            all.zip(fingerprints).for_each(|(offset, word)| with.write(offset, word));
        });
        bitmap
    }

    /// Changes the low key.
    pub(crate) fn set_low(&self, low: K::Stored, with: &mut Publication<'_>) {
        (0..K::WORDS).for_each(|i| with.set(self.word_offset((LOW + i) as u64), K::word(low, i)));
    }

    /// Makes a fresh leaf empty.
    pub(crate) fn clear(&self) {
        self.touch_head();
        self.touch_link();
        for word in &self.words[..ENTRIES] {
            word.store(0, Relaxed);
        }
    }
}

/// Entries that are being added to a leaf, several at once: its bitmap and fingerprints as they will be. The
/// caller has exclusive access to the leaf.
pub(crate) struct PendingEntries {
    before: u64,
    bitmap: u64,
    fingerprints: [u64; LINE_WORDS - FINGERPRINTS],
}

impl PendingEntries {
    pub(crate) fn of<K: TreeKey>(leaf: &Leaf<'_, K>) -> PendingEntries {
        let bitmap = leaf.bitmap();
        let mut fingerprints = [0; LINE_WORDS - FINGERPRINTS];
        for (copy, word) in fingerprints.iter_mut().zip(&leaf.words[FINGERPRINTS..LINE_WORDS]) {
            *copy = word.load(Relaxed);
        }
        debug_assert!(bitmap & !Leaf::<K>::FULL == 0, "slots exist: {bitmap:#x}");
        PendingEntries { before: bitmap, bitmap, fingerprints }
    }

    pub(crate) fn is_full<K: TreeKey>(&self) -> bool {
        self.bitmap & Leaf::<K>::FULL == Leaf::<K>::FULL
    }

    pub(crate) fn has_new(&self) -> bool {
        self.bitmap != self.before
    }

    /// Adds an entry; there is room.
    pub(crate) fn add<K: TreeKey>(
        &mut self,
        leaf: &Leaf<'_, K>,
        (key, fingerprint): (K::Stored, u8),
        value: u64,
        with: &mut Publication<'_>,
    ) {
        let slot = Leaf::<K>::free_slot(self.bitmap, fingerprint);
        assert!(self.bitmap & (1 << slot) == 0, "an entry goes into a free slot, not into {slot}");
        leaf.put_words(slot, key, value, with);
        let word = &mut self.fingerprints[slot / 8];
        let mut bytes = word.to_le_bytes();
        bytes[slot % 8] = fingerprint;
        *word = u64::from_le_bytes(bytes);
        self.bitmap |= 1 << slot;
    }

    /// Writes the fingerprints of the added entries, then the bits that make them valid.
    pub(crate) fn finish<K: TreeKey>(&self, leaf: &Leaf<'_, K>, with: &mut Publication<'_>) {
        let new = self.bitmap & !self.before;
        if new == 0 {
            return;
        }
        for (index, word) in self.fingerprints.iter().enumerate() {
            if new >> (8 * index) & 0xff != 0 {
                with.write(leaf.word_offset((FINGERPRINTS + index) as u64), *word);
            }
        }
        assert_eq!(self.bitmap & self.before, self.before, "the entries of before stay valid");
        debug_assert_eq!(
            leaf.words[BITMAP_WORD as usize].load(Relaxed),
            self.before,
            "a latched leaf is changed by its holder alone"
        );
        with.set(leaf.word_offset(BITMAP_WORD), self.bitmap);
    }
}

/// Iterates over the positions of set bits.
pub(crate) fn bits(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if bitmap == 0 {
            return None;
        }
        let bit = bitmap.trailing_zeros() as usize;
        bitmap &= bitmap - 1;
        Some(bit)
    })
}
