//! Which pages of the pool differ from the pool file.
//!
//! Marks are set and taken under the journal's append lock. So a mark and the store or record that it stands for
//! are either both before a take, and then in the copied page, or both after it, and then marked still.

use crate::mapping::{Backing, Mapping};
use std::io;
use std::sync::atomic::Ordering;

/// Bytes of a page: what a checkpoint copies at once.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Words of marks that are taken under one hold of the append lock.
const WORDS_PER_PIECE: usize = 256;

/// One bit a page, for the whole address range. It is mapped, not allocated: parts that are never touched take
/// no memory and no time.
pub(super) struct DirtyPages {
    bits: Mapping,
}

impl DirtyPages {
    pub(super) fn new(capacity_bytes: u64) -> io::Result<DirtyPages> {
        let bytes = (capacity_bytes.div_ceil(PAGE_BYTES * 64) * 8).next_multiple_of(PAGE_BYTES);
        let bits = Mapping::reserve(bytes)?;
        bits.grow(bytes, &Backing::Anonymous)?;
        Ok(DirtyPages { bits })
    }

    /// Marks the pages of a range.
    #[inline]
    pub(super) fn mark(&self, offset: u64, bytes: u64) {
        let last = (offset + bytes - 1) / PAGE_BYTES;
        for page in offset / PAGE_BYTES..=last {
            let (word, bit) = (&self.bits.words(page / 64 * 8, 1)[0], 1 << (page % 64));
            // Most marks repeat; a load is cheaper than a locked instruction.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// The marks of the pages below `end_bytes`, a bit each.
    pub(super) fn marked(&self, end_bytes: u64) -> Vec<u64> {
        let words = self.bits.words(0, end_bytes.div_ceil(PAGE_BYTES * 64) as usize);
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Takes the marks of the pages below `end_bytes`: the pages, in order. `locked` runs each piece of the work
    /// under the append lock; pieces are short, so that appenders do not wait long.
    pub(super) fn take(&self, end_bytes: u64, locked: impl Fn(&mut dyn FnMut())) -> Vec<u32> {
        let words = self.bits.words(0, end_bytes.div_ceil(PAGE_BYTES * 64) as usize);
        let mut pages = Vec::new();
        for (piece, words) in words.chunks(WORDS_PER_PIECE).enumerate() {
            if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
                continue;
            }
            let first = (piece * WORDS_PER_PIECE) as u32;
            locked(&mut || {
                for (word, index) in words.iter().zip(first..) {
                    let mut bits = word.swap(0, Ordering::AcqRel);
                    while bits != 0 {
                        pages.push(index * 64 + bits.trailing_zeros());
                        bits &= bits - 1;
                    }
                }
            });
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_cover_ranges_that_cross_pages_and_are_taken_once() {
        let dirty = DirtyPages::new(1 << 20).unwrap();
        dirty.mark(4088, 16);
        dirty.mark(70 * PAGE_BYTES, 8);
        assert_eq!(dirty.take(1 << 20, |work| work()), [0, 1, 70]);
        assert_eq!(dirty.take(1 << 20, |work| work()), [0u32; 0]);
    }
}
