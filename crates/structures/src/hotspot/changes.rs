//! Who may bring a value into DRAM: words that count the changes of the keys that hash to them.
//!
//! ```text
//! bits 63..16   changes begun
//! bits 15..0    changes under way
//! ```
//!
//! A writer counts itself in, changes the index behind, settles the key's entry (to the new value if it was alone, else
//! out with it), and counts itself out. A reader notes the word first. It believes an entry, and brings a value in that
//! it read from the index behind, only if the word is then still the same with nobody under way; the latter under
//! the shard's latch.
//!
//! Why no get goes back in time: two looks at the word that see the same, with nobody under way, mean that no writer of
//! the key was between its beginning and its end in between. So what the reader has is the key's value at its second
//! look. A writer that begins after the second look of somebody who brings a value in finds the entry when it settles:
//! its beginning and its look at the latch, and the other's latch and second look, are sequentially consistent, so one
//! of them sees the other.

use super::sync::{AtomicU64, SeqCst};

/// Words; a key's is chosen by its hash. 32 KiB: they stay in the first cache levels.
pub(super) const CHANGE_WORDS: usize = 4096;
/// A writer that begins: one more change, one more under way.
const BEGIN: u64 = (1 << 16) + 1;
const UNDER_WAY: u64 = 0xFFFF;

/// See the [module](self).
pub(super) struct Changes(Box<[AtomicU64]>);

/// A word of changes, and what it was when somebody looked.
#[derive(Clone, Copy)]
pub(super) struct Noted<'c> {
    word: &'c AtomicU64,
    was: u64,
}

/// A change under way; dropping it ends it.
pub(super) struct UnderWay<'c>(Noted<'c>);

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

    /// Notes the changes of a key, before its value is read.
    #[inline]
    pub(super) fn note(&self, hash: u64) -> Noted<'_> {
        let word = self.word(hash);
        Noted { word, was: word.load(SeqCst) }
    }

    /// Counts a change of a key, before it is made.
    #[inline]
    pub(super) fn begin(&self, hash: u64) -> UnderWay<'_> {
        let word = self.word(hash);
        UnderWay(Noted { word, was: word.fetch_add(BEGIN, SeqCst).wrapping_add(BEGIN) })
    }
}

impl Noted<'_> {
    /// Whether no change of such a key was under way, nor began or ended since.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.was & UNDER_WAY == 0 && self.word.load(SeqCst) == self.was
    }
}

impl UnderWay<'_> {
    /// Whether no other change of such a key was under way since it began.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.0.was & UNDER_WAY == 1 && self.0.word.load(SeqCst) == self.0.was
    }
}

impl Drop for UnderWay<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.word.fetch_sub(1, SeqCst);
    }
}
