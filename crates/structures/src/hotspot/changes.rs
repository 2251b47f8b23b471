//! Validation of values read into DRAM: words that count the changes of the keys that hash to them.
//!
//! ```text
//! bits 63..16   changes begun
//! bits 15..0    changes in flight
//! ```
//!
//! A writer counts itself in, changes the backing index, updates the key's entry (to the new value if it was
//! the only writer, else it removes the entry), and counts itself out. A reader reads the word first. It
//! returns an entry, and caches a value read from the backing index, only if the word is then still the same
//! with no change in flight; the latter under the shard's latch.
//!
//! A get never returns an older value than a get before it: two equal reads of the word with no change in
//! flight mean that no writer of the key was active in between. So the reader has the key's value at its
//! second read. A writer that begins after the second read of a thread that caches a value finds the entry
//! when it updates entries: its count and its read of the latch, and the other thread's latch and second
//! read, are sequentially consistent, so one of them sees the other.

use super::sync::{AtomicU64, SeqCst};

/// Number of words; a key's is chosen by its hash. 32 KiB: they stay in the first cache levels.
pub(super) const CHANGE_WORDS: usize = 4096;
/// Increment of a beginning writer: one more change begun, one more in flight.
const BEGIN: u64 = (1 << 16) + 1;
const UNDER_WAY: u64 = 0xFFFF;

/// See the [module](self).
pub(super) struct Changes(Box<[AtomicU64]>);

/// A word of changes, and its value when it was read.
#[derive(Clone, Copy)]
pub(super) struct ChangeSnapshot<'c> {
    word: &'c AtomicU64,
    was: u64,
}

/// Change in flight; dropping it ends it.
pub(super) struct ChangeGuard<'c>(ChangeSnapshot<'c>);

impl Changes {
    pub(super) fn new() -> Changes {
        Changes((0..CHANGE_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn bytes() -> usize {
        CHANGE_WORDS * 8
    }

    #[inline]
    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.0[(hash >> 20) as usize % CHANGE_WORDS]
    }

    /// Reads the changes of a key, before its value is read.
    #[inline]
    pub(super) fn note(&self, hash: u64) -> ChangeSnapshot<'_> {
        let word = self.word(hash);
        ChangeSnapshot { word, was: word.load(SeqCst) }
    }

    /// Counts a change of a key, before it is made.
    #[inline]
    pub(super) fn begin(&self, hash: u64) -> ChangeGuard<'_> {
        let word = self.word(hash);
        let was = word.fetch_add(BEGIN, SeqCst).wrapping_add(BEGIN);
        debug_assert!(was & UNDER_WAY > 0, "the changes in flight fit their bits");
        ChangeGuard(ChangeSnapshot { word, was })
    }
}

impl ChangeSnapshot<'_> {
    /// Returns true if no change of such a key was in flight, nor began or ended since.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.was & UNDER_WAY == 0 && self.word.load(SeqCst) == self.was
    }
}

impl ChangeGuard<'_> {
    /// Returns true if no other change of such a key was in flight since it began.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.0.was & UNDER_WAY == 1 && self.0.word.load(SeqCst) == self.0.was
    }
}

impl Drop for ChangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let before = self.0.word.fetch_sub(1, SeqCst);
        debug_assert!(before & UNDER_WAY > 0, "a change that ends was in flight");
    }
}
