//! Positions in the journal.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Position in the journal: the number of bytes of the records before it, over all opens of the pool. Records
/// are whole words, so positions are multiples of 8. Also called log sequence number (LSN).
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct JournalPosition(u64);

impl JournalPosition {
    /// Position before the first record of all.
    pub(crate) const START: JournalPosition = JournalPosition(0);
    /// Position behind all others.
    pub(crate) const END: JournalPosition = JournalPosition(u64::MAX);

    /// Decodes a stored word; none if it is not a position between records.
    pub(crate) fn from_word(word: u64) -> Option<JournalPosition> {
        word.is_multiple_of(8).then_some(JournalPosition(word))
    }

    /// Number of bytes of the records before the position; as a word, its stored form.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Position behind records of so many bytes from this one on.
    #[inline]
    pub(crate) fn plus(self, bytes: u64) -> JournalPosition {
        debug_assert!(bytes.is_multiple_of(8), "records are whole words, not {bytes} bytes");
        JournalPosition(self.0 + bytes)
    }

    /// Bytes of records since an earlier position; 0 if that is not earlier.
    #[inline]
    pub(crate) fn since(self, earlier: JournalPosition) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Number of the piece of 2 to the power of `shift` bytes that the position lies in.
    #[inline]
    pub(crate) fn piece(self, shift: u32) -> u64 {
        self.0 >> shift
    }
}

impl fmt::Display for JournalPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position that threads share.
#[repr(transparent)]
pub(crate) struct AtomicPosition(AtomicU64);

impl AtomicPosition {
    pub(crate) fn new(position: JournalPosition) -> AtomicPosition {
        AtomicPosition(AtomicU64::new(position.0))
    }

    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> JournalPosition {
        JournalPosition(self.0.load(order))
    }

    #[inline]
    pub(crate) fn store(&self, position: JournalPosition, order: Ordering) {
        self.0.store(position.0, order);
    }

    /// Moves it forwards, if the position lies behind it.
    pub(crate) fn advance(&self, position: JournalPosition) {
        self.0.fetch_max(position.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_lie_between_words_and_count_bytes() {
        assert_eq!(JournalPosition::from_word(12), None);
        let position = JournalPosition::from_word(64).unwrap();
        let later = position.plus(136);
        assert_eq!((later.bytes(), later.since(position), position.since(later)), (200, 136, 0));
        assert_eq!((position.piece(7), later.piece(7)), (0, 1));
        let shared = AtomicPosition::new(later);
        shared.advance(position);
        assert_eq!(shared.load(Ordering::Acquire), later, "it only moves forwards");
        assert!(JournalPosition::START < position && later < JournalPosition::END);
    }
}
