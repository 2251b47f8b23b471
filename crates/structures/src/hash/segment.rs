//! Segments and their buckets in the pool.
//!
//! A segment is 16 KiB: a header and 127 buckets of two cache lines. All keys whose hash starts with its
//! prefix are in it, in the bucket that the hash names (their *home*) or, displaced, in one of the 15 after
//! it.
//!
//! ```text
//! header word   content
//! 0             "SEGM" (high 32 bits), 1 if divided (bit 8), depth: bits of the prefix (low 8 bits)
//! 1             the prefix, aligned at the top
//! 2             offset of the next segment; 0: last
//!
//! bucket word   content (W = words of a key; 1 or 2)
//! 0             valid entries (bits of the low byte), then a byte of fingerprint for each
//! 1..7          entries 0 to 2 (W = 1) or 0 to 1 (W = 2): key, value
//! 7             distances of displaced entries of this home
//! 8..16         entries 3 to 6 (W = 1) or 2 to 3 (W = 2)
//! ```
//!
//! *Divided* means that half of its keys moved to a segment of their own and may still be here as well: they
//! are not valid here (their hash does not start with the prefix) and their slots have to be cleared.
//!
//! One word makes an entry valid, with its fingerprint: bit and byte change together. The entry's words, and
//! the distance in its home's word 7 if it is displaced, are flushed before. So a crash leaves an entry
//! complete or none, and at worst a distance without an entry.

use super::displaced::DisplacedDistances;
use super::key::{Hash, HashKey};
use crate::leaf::bits;
use crate::points::{BUCKET_META, FORGOTTEN_PLACE, NEW_SEGMENT, SLOT_AFTER_ITS_ENTRY};
use crate::simd::matching_bytes_of_word;
use entresol_memory::order::{OrderPoint, Step};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// Bytes of a segment.
pub(super) const SEGMENT_BYTES: usize = 16 << 10;
/// Buckets of a segment.
pub(super) const BUCKETS: usize = SEGMENT_BYTES / BUCKET_BYTES - 1;
pub(super) const BUCKET_BYTES: usize = 128;
const SEGMENT_WORDS: usize = SEGMENT_BYTES / 8;
const BUCKET_WORDS: usize = BUCKET_BYTES / 8;
const LINE_WORDS: usize = 8;

const STATE: u64 = 0;
const PREFIX: usize = 1;
const NEXT: u64 = 2;

const META: usize = 0;
const FIRST_ENTRIES: usize = 1;
const DISPLACED: usize = 7;

const STATE_MAGIC: u64 = u32::from_le_bytes(*b"SEGM") as u64;

/// State of a segment; changes in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentState {
    /// Bits of the prefix.
    pub(super) depth: u32,
    /// True if moved entries may still be here.
    pub(super) divided: bool,
}

impl SegmentState {
    pub(super) fn encode(self) -> u64 {
        STATE_MAGIC << 32 | u64::from(self.divided) << 8 | u64::from(self.depth)
    }

    pub(super) fn decode(word: u64) -> Option<SegmentState> {
        let state = SegmentState { depth: (word & 0xFF) as u32, divided: word & 0x100 != 0 };
        (state.encode() == word && state.depth <= super::directory::DEPTH_MAX).then_some(state)
    }
}

/// A segment in the pool, seen as words.
pub(super) struct Segment<'p, K: HashKey> {
    words: &'p [AtomicU64; SEGMENT_WORDS],
    offset: PoolOffset,
    key: PhantomData<K>,
}

impl<'p, K: HashKey> Segment<'p, K> {
    #[inline]
    pub(super) fn at(pool: &'p Pool, offset: PoolOffset) -> Segment<'p, K> {
        let words = pool.words(offset, SEGMENT_WORDS).try_into().expect("the slice has that many words");
        Segment { words, offset, key: PhantomData }
    }

    pub(super) fn offset(&self) -> PoolOffset {
        self.offset
    }

    pub(super) fn state(&self) -> Option<SegmentState> {
        SegmentState::decode(self.words[STATE as usize].load(Acquire))
    }

    /// Bits of the prefix; the state was sound when the segment was opened.
    pub(super) fn depth(&self) -> u32 {
        self.state().map_or(0, |state| state.depth)
    }

    pub(super) fn prefix(&self) -> u64 {
        self.words[PREFIX].load(Relaxed)
    }

    pub(super) fn next(&self) -> PoolOffset {
        PoolOffset::from_word(self.words[NEXT as usize].load(Acquire))
    }

    pub(super) fn set_state(&self, state: SegmentState, with: &mut Publication<'_>) {
        assert!(
            state.depth <= super::directory::DEPTH_MAX,
            "a segment of depth {} could not be read",
            state.depth
        );
        with.set(self.offset.plus(STATE * 8), state.encode());
    }

    pub(super) fn set_next(&self, next: PoolOffset, with: &mut Publication<'_>) {
        with.set(self.offset.plus(NEXT * 8), next.to_word());
    }

    /// Initialises a fresh, unreachable segment as empty. Words of free slots are undefined.
    pub(super) fn clear(&self, depth: u32, prefix: u64, next: PoolOffset) {
        assert!(depth <= super::directory::DEPTH_MAX, "a segment of depth {depth} could not be read");
        debug_assert_ne!(next, self.offset, "a segment does not lead to itself");
        for bucket in self.buckets() {
            bucket.words[META].store(0, Relaxed);
            bucket.words[DISPLACED].store(0, Relaxed);
        }
        for word in &self.words[..BUCKET_WORDS] {
            word.store(0, Relaxed);
        }
        self.words[STATE as usize].store(SegmentState { depth, divided: false }.encode(), Relaxed);
        self.words[PREFIX].store(prefix, Relaxed);
        self.words[NEXT as usize].store(next.to_word(), Relaxed);
    }

    /// Flushes a fresh segment: of each bucket only the used part.
    pub(super) fn flush(&self, pool: &Pool) {
        let mut fresh = Ranges::new(pool, NEW_SEGMENT);
        fresh.add((self.offset, BUCKET_BYTES));
        for bucket in self.buckets() {
            let used = (u64::BITS - bucket.valid().leading_zeros()) as usize;
            let words = if used > 0 { Bucket::<K>::entry_word(used - 1) + K::WORDS + 1 } else { 0 };
            fresh.add((bucket.offset, words.max(DISPLACED + 1) * 8));
        }
        fresh.flush();
    }

    /// Returns true if keys of this hash belong here.
    pub(super) fn has(&self, hash: Hash) -> bool {
        hash.starts_with(self.prefix(), self.depth())
    }

    #[inline]
    pub(super) fn bucket(&self, index: usize) -> Bucket<'p, K> {
        let (buckets, _) = self.words.as_chunks::<BUCKET_WORDS>();
        let offset = bucket_offset(self.offset, index);
        Bucket { words: &buckets[index + 1], offset, key: PhantomData }
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket<'p, K>> {
        (0..BUCKETS).map(|index| self.bucket(index))
    }

    /// Returns the bucket at a distance after another.
    #[inline]
    pub(super) fn behind(home: usize, distance: usize) -> usize {
        (home + distance) % BUCKETS
    }

    /// Returns the distance of a bucket after another.
    pub(super) fn distance(home: usize, index: usize) -> usize {
        (index + BUCKETS - home) % BUCKETS
    }
}

/// Returns the pool offset of a segment's bucket.
#[inline]
pub(super) fn bucket_offset(segment: PoolOffset, index: usize) -> PoolOffset {
    segment.block(index as u64 + 1, BUCKET_BYTES as u64)
}

/// A bucket in the pool, seen as words.
pub(super) struct Bucket<'p, K: HashKey> {
    words: &'p [AtomicU64; BUCKET_WORDS],
    offset: PoolOffset,
    key: PhantomData<K>,
}

/// A bucket's word of valid entries and fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u64);

impl Meta {
    #[inline]
    pub(super) fn valid(self) -> u64 {
        self.0 & 0x7F
    }

    /// Returns the valid slots with this fingerprint.
    #[inline]
    fn candidates(self, fingerprint: u8) -> u64 {
        (matching_bytes_of_word(self.0, fingerprint) >> 1) & self.valid()
    }

    #[inline]
    pub(super) fn fingerprint(self, slot: usize) -> u8 {
        self.0.to_le_bytes()[slot + 1]
    }

    #[inline]
    pub(super) fn with(self, slot: usize, fingerprint: u8) -> Meta {
        debug_assert!(slot < 7, "a bucket has no slot {slot}");
        let cleared = self.without(slot).0;
        Meta(cleared | 1 << slot | u64::from(fingerprint) << (8 * (slot + 1)))
    }

    pub(super) fn without(self, slot: usize) -> Meta {
        Meta(self.0 & !(1 << slot | 0xFF << (8 * (slot + 1))))
    }

    /// Returns only the slots of a mask.
    pub(super) fn only(self, keep: u64) -> Meta {
        bits(self.valid() & !keep).fold(self, |meta, slot| meta.without(slot))
    }
}

impl<'p, K: HashKey> Bucket<'p, K> {
    const FIRST_SLOTS: usize = (DISPLACED - FIRST_ENTRIES) / (K::WORDS + 1);
    /// Entries that fit.
    pub(super) const CAPACITY: usize = Self::FIRST_SLOTS + LINE_WORDS / (K::WORDS + 1);
    /// All slots.
    pub(super) const FULL: u64 = (1 << Self::CAPACITY) - 1;

    const LAYOUT_FITS: () = assert!(Self::CAPACITY <= 7, "a byte of fingerprint for each entry");

    #[inline]
    pub(super) fn meta(&self) -> Meta {
        let () = Self::LAYOUT_FITS;
        Meta(self.words[META].load(Acquire))
    }

    /// Slots that hold entries.
    #[inline]
    pub(super) fn valid(&self) -> u64 {
        self.meta().valid() & Self::FULL
    }

    #[inline]
    pub(super) fn displaced(&self) -> DisplacedDistances {
        DisplacedDistances(self.words[DISPLACED].load(Acquire))
    }

    #[inline]
    fn entry_word(slot: usize) -> usize {
        let first = if slot < Self::FIRST_SLOTS { FIRST_ENTRIES } else { LINE_WORDS };
        let slot = if slot < Self::FIRST_SLOTS { slot } else { slot - Self::FIRST_SLOTS };
        first + slot * (K::WORDS + 1)
    }

    #[inline]
    pub(super) fn key(&self, slot: usize) -> K::Stored {
        let word = Self::entry_word(slot);
        K::load(&self.words[word..word + K::WORDS])
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.words[Self::entry_word(slot) + K::WORDS].load(Acquire)
    }

    pub(super) fn value_offset(&self, slot: usize) -> PoolOffset {
        self.offset.word(Self::entry_word(slot) + K::WORDS)
    }

    /// The slot of a key in this bucket.
    #[inline]
    pub(super) fn find(&self, fingerprint: u8, key: K::Stored) -> Option<usize> {
        let mut candidates = self.meta().candidates(fingerprint) & Self::FULL;
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            let word = Self::entry_word(slot);
            let same = |index: usize| self.words[word + index].load(Relaxed) == K::word(key, index);
            if (0..K::WORDS).all(same) {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// A slot without an entry.
    #[inline]
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = !self.valid() & Self::FULL;
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Adds an entry: its words, then the word that makes it valid.
    #[inline]
    pub(super) fn add(
        &self,
        slot: usize,
        (key, fingerprint): (K::Stored, u8),
        value: u64,
        with: &mut Publication<'_>,
    ) {
        let entry = self.offset.word(Self::entry_word(slot));
        for index in 0..K::WORDS {
            with.write(entry.word(index), K::word(key, index));
        }
        with.write(entry.word(K::WORDS), value);
        debug_assert!(slot < Self::CAPACITY, "a bucket has no slot {slot}");
        with.after(SLOT_AFTER_ITS_ENTRY);
        self.set_meta(self.meta().with(slot, fingerprint), with);
    }

    pub(super) fn set_meta(&self, meta: Meta, with: &mut Publication<'_>) {
        with.set_at(self.offset.word(META), meta.0, BUCKET_META);
    }

    /// Stores a word that the publication's changes rely on.
    pub(super) fn write_displaced(&self, displaced: DisplacedDistances, with: &mut Publication<'_>) {
        with.write(self.offset.word(DISPLACED), displaced.0);
    }

    /// Removes the distance of an entry that is removed already.
    pub(super) fn forget_displaced(&self, displaced: DisplacedDistances, pool: &Pool) {
        self.words[DISPLACED].store(displaced.0, Relaxed);
        pool.flush_word_at(self.offset.word(DISPLACED), FORGOTTEN_PLACE);
    }

    /// Copies entries of another bucket into the first free slots of one of an unreachable segment.
    pub(super) fn put(&self, from: &Bucket<'_, K>, from_slots: u64) {
        let (mut meta, from_meta) = (self.meta(), from.meta());
        for from_slot in bits(from_slots) {
            let slot = (!meta.valid()).trailing_zeros() as usize;
            assert!(slot < Self::CAPACITY, "the moved entries were counted");
            let (to, at) = (Self::entry_word(slot), Self::entry_word(from_slot));
            for index in 0..=K::WORDS {
                self.words[to + index].store(from.words[at + index].load(Relaxed), Relaxed);
            }
            meta = meta.with(slot, from_meta.fingerprint(from_slot));
        }
        self.words[META].store(meta.0, Relaxed);
    }

    /// Stores the distances of displaced entries; returns the range to flush.
    pub(super) fn put_displaced(&self, displaced: DisplacedDistances) -> (PoolOffset, usize) {
        self.words[DISPLACED].store(displaced.0, Relaxed);
        (self.offset.word(DISPLACED), 8)
    }

    /// Stores the valid slots; returns the range to flush.
    pub(super) fn store_meta(&self, meta: Meta) -> (PoolOffset, usize) {
        self.words[META].store(meta.0, Relaxed);
        (self.offset.word(META), 8)
    }
}

/// Ranges to flush, batched: on `journal` each call takes a lock.
pub(super) struct Ranges<'p> {
    pool: &'p Pool,
    point: OrderPoint<Step>,
    waiting: [(PoolOffset, usize); RANGES],
    count: usize,
}

/// Ranges of a batch: a segment's header and buckets are eight times as many.
const RANGES: usize = 16;

impl<'p> Ranges<'p> {
    /// Ranges that are flushed at a point.
    pub(super) fn new(pool: &'p Pool, point: OrderPoint<Step>) -> Ranges<'p> {
        Ranges { pool, point, waiting: [(PoolOffset::NULL, 0); RANGES], count: 0 }
    }

    pub(super) fn add(&mut self, range: (PoolOffset, usize)) {
        self.waiting[self.count] = range;
        self.count += 1;
        if self.count == RANGES {
            self.pool.flush_ranges_at(self.waiting, self.point);
            self.count = 0;
        }
    }

    pub(super) fn flush(self) {
        let waiting = &self.waiting[..self.count];
        waiting.iter().for_each(|range| self.pool.flush_ranges_at([*range], self.point));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{PairKey, WordKey};

    #[test]
    fn entries_fill_both_lines_and_spare_the_other_words() {
        fn check<K: HashKey>() {
            let mut used = std::collections::BTreeSet::from([META, DISPLACED]);
            for slot in 0..Bucket::<K>::CAPACITY {
                let first = Bucket::<K>::entry_word(slot);
                for word in first..=first + K::WORDS {
                    assert!(used.insert(word), "word {word} of slot {slot} is used twice");
                    assert_eq!(word / LINE_WORDS, first / LINE_WORDS, "an entry is in one line");
                }
            }
            assert!(used.len() <= BUCKET_WORDS && used.last() < Some(&BUCKET_WORDS));
        }
        check::<WordKey>();
        check::<PairKey>();
        assert_eq!((Bucket::<WordKey>::CAPACITY, Bucket::<PairKey>::CAPACITY), (7, 4));
    }

    #[test]
    fn a_meta_word_holds_bits_and_fingerprints() {
        let meta = Meta(0).with(0, 7).with(6, 7).with(3, 9);
        assert_eq!(meta.candidates(7), 0b100_0001);
        assert_eq!(meta.candidates(9), 0b1000);
        assert_eq!(meta.candidates(0), 0, "the bytes of free slots do not match");
        assert_eq!(meta.without(6).candidates(7), 1);
        assert_eq!(meta.with(6, 9).candidates(7), 1);
        assert_eq!(meta.only(0b1000), Meta(0).with(3, 9));
    }

    #[test]
    fn states_survive_their_encoding_and_others_are_refused() {
        for state in [SegmentState { depth: 0, divided: false }, SegmentState { depth: 20, divided: true }] {
            assert_eq!(SegmentState::decode(state.encode()), Some(state));
        }
        for bit in (0..64).filter(|bit| ![0, 1, 2, 3, 4, 8].contains(bit)) {
            assert_eq!(
                SegmentState::decode(SegmentState { depth: 7, divided: false }.encode() ^ 1 << bit),
                None,
                "bit {bit}"
            );
        }
        assert_eq!(SegmentState::decode(SegmentState { depth: 33, divided: false }.encode()), None);
    }
}
