//! The hashing leaf layout (dissertation 3.2.2, FPTree; figure 3.2 e): unsorted entries, a bitmap of the valid
//! ones, and a one-byte fingerprint of each key, so that a search reads one cache line and the entry it wants.
//!
//! ```text
//! word          what (W = words of a key; 1 or 2)
//! 0             bitmap of valid entries
//! 1             offset of the next leaf; 0: last
//! 2..2+W        low key: no key of the leaf is smaller; set at creation, not set in the first leaf
//! 2+W..         fingerprints, a byte each
//! 8..64         entries: key (W words), value (1 word)
//! ```
//!
//! An entry counts once its bit is set; its words and its fingerprint are flushed and fenced before. So a crash
//! leaves an entry whole or not at all.

use crate::key::TreeKey;
use crate::simd::{load_four, matching_fingerprints};
use entresol_memory::mutants::intact;
use entresol_memory::{Pool, Publication};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// Bytes of a leaf: a multiple of 256, the block of persistent memory (dissertation 3.5).
pub const LEAF_BYTES: usize = 512;
const LEAF_WORDS: usize = LEAF_BYTES / 8;
const ENTRIES: usize = 8;

pub(crate) const BITMAP_WORD: u64 = 0;
pub(crate) const NEXT_WORD: u64 = 1;

/// A leaf in the pool, seen as words.
pub(crate) struct Leaf<'p, K: TreeKey> {
    words: &'p [AtomicU64; LEAF_WORDS],
    offset: u64,
    key: PhantomData<K>,
}

impl<'p, K: TreeKey> Leaf<'p, K> {
    /// Entries that fit.
    pub(crate) const CAPACITY: usize = (LEAF_WORDS - ENTRIES) / (K::WORDS + 1);
    /// All entries valid.
    pub(crate) const FULL: u64 = (1 << Self::CAPACITY) - 1;
    const FINGERPRINTS: usize = 2 + K::WORDS;

    const LAYOUT_FITS: () = assert!(
        Self::CAPACITY <= 32 && Self::FINGERPRINTS + 4 <= ENTRIES,
        "the fingerprints of all entries fit the first cache line"
    );

    #[inline]
    pub(crate) fn at(pool: &'p Pool, offset: u64) -> Leaf<'p, K> {
        let () = Self::LAYOUT_FITS;
        let words = pool.words(offset, LEAF_WORDS).try_into().expect("the slice has that many words");
        Leaf { words, offset, key: PhantomData }
    }

    #[inline]
    pub(crate) fn bitmap(&self) -> u64 {
        self.words[0].load(Acquire)
    }

    pub(crate) fn next(&self) -> u64 {
        self.words[1].load(Acquire)
    }

    pub(crate) fn low(&self) -> K::Stored {
        K::load(&self.words[2..2 + K::WORDS])
    }

    /// The pool offset of a word.
    pub(crate) fn word_offset(&self, word: u64) -> u64 {
        self.offset + word * 8
    }

    const fn entry_word(slot: usize) -> usize {
        ENTRIES + slot * (K::WORDS + 1)
    }

    pub(crate) fn entry_offset(&self, slot: usize) -> u64 {
        self.word_offset(Self::entry_word(slot) as u64)
    }

    pub(crate) fn value_offset(&self, slot: usize) -> u64 {
        self.entry_offset(slot) + K::WORDS as u64 * 8
    }

    fn fingerprint_word(slot: usize) -> usize {
        Self::FINGERPRINTS + slot / 8
    }

    pub(crate) fn fingerprint_offset(&self, slot: usize) -> u64 {
        self.word_offset(Self::fingerprint_word(slot) as u64)
    }

    #[inline]
    pub(crate) fn key(&self, slot: usize) -> K::Stored {
        let word = Self::entry_word(slot);
        K::load(&self.words[word..word + K::WORDS])
    }

    #[inline]
    pub(crate) fn value(&self, slot: usize) -> u64 {
        self.words[Self::entry_word(slot) + K::WORDS].load(Acquire)
    }

    fn fingerprint(&self, slot: usize) -> u8 {
        self.words[Self::fingerprint_word(slot)].load(Relaxed).to_le_bytes()[slot % 8]
    }

    /// The slots that may hold a key with this fingerprint.
    #[inline]
    pub(crate) fn candidates(&self, fingerprint: u8) -> u64 {
        let words: &[AtomicU64; 4] = self.words[Self::FINGERPRINTS..Self::FINGERPRINTS + 4]
            .try_into()
            .expect("four words of fingerprints");
        matching_fingerprints(load_four(words), fingerprint) & self.bitmap() & Self::FULL
    }

    /// The slot of a key among candidates.
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

    /// The slot of a key.
    #[inline]
    pub(crate) fn find(&self, pool: &Pool, key: K::Key<'_>) -> Option<usize> {
        self.confirm(pool, self.candidates(K::fingerprint(key)), key)
    }

    /// Adds an entry: its words and its fingerprint, then the bit that makes it count.
    #[inline]
    pub(crate) fn add_entry(
        &self,
        slot: usize,
        (key, fingerprint): (K::Stored, u8),
        value: u64,
        with: &mut Publication<'_>,
    ) {
        let entry = self.entry_offset(slot);
        for i in 0..K::WORDS {
            with.write(entry + i as u64 * 8, K::word(key, i));
        }
        with.write(entry + K::WORDS as u64 * 8, value);
        let mut bytes = self.words[Self::fingerprint_word(slot)].load(Relaxed).to_le_bytes();
        bytes[slot % 8] = fingerprint;
        if intact("fingerprint-not-written") {
            with.write(self.fingerprint_offset(slot), u64::from_le_bytes(bytes));
        }
        with.set(self.word_offset(BITMAP_WORD), self.bitmap() | (1 << slot));
    }

    /// Writes an entry and its fingerprint into a leaf that nobody else sees yet.
    fn write_entry(&self, slot: usize, key: K::Stored, value: u64, fingerprint: u8) {
        let word = Self::entry_word(slot);
        K::store(&self.words[word..word + K::WORDS], key);
        self.words[word + K::WORDS].store(value, Relaxed);
        let fingerprints = &self.words[Self::fingerprint_word(slot)];
        let mut bytes = fingerprints.load(Relaxed).to_le_bytes();
        bytes[slot % 8] = fingerprint;
        fingerprints.store(u64::from_le_bytes(bytes), Relaxed);
    }

    /// Valid slots, in order of their keys.
    pub(crate) fn sorted_slots(&self, pool: &Pool) -> Vec<(K::Stored, usize)> {
        let mut slots: Vec<_> = bits(self.bitmap()).map(|slot| (self.key(slot), slot)).collect();
        slots.sort_unstable_by(|a, b| K::compare_stored(pool, a.0, b.0));
        slots
    }

    /// Fills a fresh leaf with entries of another; nothing refers to it yet.
    pub(crate) fn fill_from(&self, from: &Leaf<'_, K>, slots: &[usize], low: K::Stored, next: u64) {
        for word in &self.words[..ENTRIES] {
            word.store(0, Relaxed);
        }
        for (to, slot) in slots.iter().enumerate() {
            self.write_entry(to, from.key(*slot), from.value(*slot), from.fingerprint(*slot));
        }
        K::store(&self.words[2..2 + K::WORDS], low);
        self.words[1].store(next, Relaxed);
        self.words[0].store((1 << slots.len()) - 1, Relaxed);
    }

    /// Makes a fresh leaf empty, as the first of a tree.
    pub(crate) fn clear(&self) {
        for word in &self.words[..ENTRIES] {
            word.store(0, Relaxed);
        }
    }
}

/// The positions of set bits.
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
