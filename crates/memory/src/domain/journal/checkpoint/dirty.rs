//! Dirty pages: pages of the pool that differ from the pool file.
//!
//! Marks are set and taken under the journal's append lock. So a mark and the store or record that it belongs
//! to are either both before a take, and then in the copied page, or both after it, and then still marked.

use crate::mapping::{Backing, Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use crate::order::check;
use crate::points::CLEAN_IS_DURABLE;
use crossbeam_utils::CachePadded;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of mark words taken under one hold of the append lock: a line of marks, about 30 ns.
const WORDS_PER_PIECE: usize = 8;

/// One bit per page, for the whole address range. It is mapped, not allocated: parts that are never touched
/// take no memory and no time.
pub(crate) struct DirtyPages {
    bits: Mapping,
    /// Pages whose marks were taken and that may not be in the file yet, if they are tracked.
    taken: Option<Mapping>,
    counts: CachePadded<MarkCounts>,
}

/// Number of marks, and number of words with marks. Changed under the append lock; in a line of their own,
/// since every marking thread reads where the bits are.
#[derive(Default)]
struct MarkCounts {
    pages: AtomicU64,
    groups: AtomicU64,
}

/// Number of pages, and number of groups of 64 neighbours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageCount {
    pub(crate) pages: u64,
    pub(crate) groups: u64,
}

impl DirtyPages {
    pub(crate) fn new(capacity_bytes: u64) -> io::Result<DirtyPages> {
        Ok(DirtyPages { bits: bits_for(capacity_bytes)?, taken: None, counts: CachePadded::default() })
    }

    /// As [`DirtyPages::new`], with tracking for [`DirtyPages::is_clean`].
    pub(crate) fn with_taken(capacity_bytes: u64) -> io::Result<DirtyPages> {
        Ok(DirtyPages { taken: Some(bits_for(capacity_bytes)?), ..DirtyPages::new(capacity_bytes)? })
    }

    /// Bytes of memory that the marks of pages below `end_bytes` take.
    pub(crate) fn memory_bytes(&self, end_bytes: u64) -> u64 {
        let maps = 1 + u64::from(self.taken.is_some());
        end_bytes / PAGE_BYTES / 8 * maps
    }

    /// Returns true if a page has no mark, and none that was taken and not [settled](DirtyPages::settle).
    pub(crate) fn is_clean(&self, page: u64) -> bool {
        let bit = 1 << (page % 64);
        let set = |bits: &Mapping| bits.words(page / 64 * 8, 1)[0].load(Ordering::Acquire) & bit != 0;
        // In this order: a mark that is no longer set is among the taken ones.
        let marked = set(&self.bits);
        let taken = self.taken.as_ref().is_none_or(set);
        !marked && check(!taken, CLEAN_IS_DURABLE)
    }

    /// Notes that the pages below `end_bytes` whose marks were taken are durable in the file.
    pub(crate) fn settle(&self, end_bytes: u64) {
        let Some(taken) = &self.taken else { return };
        debug_assert!(end_bytes.is_multiple_of(8), "a checkpoint ends behind a word: {end_bytes}");
        for word in taken.words(0, end_bytes.div_ceil(PAGE_BYTES * 64) as usize) {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Release);
            }
        }
    }

    /// Number of marked pages.
    pub(crate) fn count(&self) -> PageCount {
        let MarkCounts { pages, groups } = &*self.counts;
        PageCount { pages: pages.load(Ordering::Relaxed), groups: groups.load(Ordering::Relaxed) }
    }

    /// Marks the pages of a range. Only under the append lock, or while there is one thread.
    #[inline]
    pub(crate) fn mark(&self, offset: PoolOffset, bytes: u64) {
        debug_assert!(bytes > 0, "a range at {offset:#x} without bytes touches no page");
        let last = offset.plus(bytes - 1).bytes() / PAGE_BYTES;
        for page in offset.bytes() / PAGE_BYTES..=last {
            let (word, bit) = (&self.bits.words(page / 64 * 8, 1)[0], 1 << (page % 64));
            // Most marks repeat; a load is cheaper than a locked instruction.
            let marks = word.load(Ordering::Relaxed);
            if marks & bit == 0 {
                word.store(marks | bit, Ordering::Relaxed);
                add(&self.counts.pages, 1);
                add(&self.counts.groups, u64::from(marks == 0));
            }
        }
    }

    /// Returns true if all pages of a range are marked.
    #[inline]
    pub(crate) fn has(&self, offset: PoolOffset, bytes: u64) -> bool {
        debug_assert!(bytes > 0, "a range at {offset:#x} without bytes touches no page");
        let last = offset.plus(bytes - 1).bytes() / PAGE_BYTES;
        (offset.bytes() / PAGE_BYTES..=last)
            .all(|page| self.bits.words(page / 64 * 8, 1)[0].load(Ordering::Relaxed) & 1 << (page % 64) != 0)
    }

    /// Marks of the pages below `end_bytes`, one bit each.
    pub(crate) fn marked(&self, end_bytes: u64) -> Vec<u64> {
        let words = self.bits.words(0, end_bytes.div_ceil(PAGE_BYTES * 64) as usize);
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Takes the marks of at least `pages_min` pages (if there are so many), from the page `*from` on and
    /// below `end_bytes`: the pages, in order. Moves `*from` behind them. `locked` runs each piece of the
    /// work under the append lock; pieces are short, so that appenders do not wait.
    pub(crate) fn take(
        &self,
        from: &mut u64,
        end_bytes: u64,
        pages_min: usize,
        locked: impl Fn(&mut dyn FnMut()),
    ) -> Vec<u32> {
        let words = self.bits.words(0, end_bytes.div_ceil(PAGE_BYTES * 64) as usize);
        let mut pages = Vec::with_capacity(pages_min + WORDS_PER_PIECE * 64);
        let start = (*from / 64) as usize / WORDS_PER_PIECE;
        let mut piece = start;
        for words in words.chunks(WORDS_PER_PIECE).skip(start) {
            if pages.len() >= pages_min {
                break;
            }
            if words.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
                let first = (piece * WORDS_PER_PIECE) as u32;
                let taken = self.take_piece(words, u64::from(first), &locked);
                for (mut bits, index) in taken.into_iter().zip(first..) {
                    while bits != 0 {
                        pages.push(index * 64 + bits.trailing_zeros());
                        bits &= bits - 1;
                    }
                }
            }
            piece += 1;
        }
        *from = (piece * WORDS_PER_PIECE * 64) as u64;
        pages
    }

    fn take_piece(
        &self,
        words: &[AtomicU64],
        first: u64,
        locked: impl Fn(&mut dyn FnMut()),
    ) -> [u64; WORDS_PER_PIECE] {
        debug_assert!(words.len() <= WORDS_PER_PIECE, "a piece is short, since appenders wait for it");
        let kept = self.taken.as_ref().map(|taken| taken.words(first * 8, words.len()));
        let mut taken = [0; WORDS_PER_PIECE];
        locked(&mut || {
            let (mut pages, mut groups) = (0u64, 0u64);
            for (index, (word, to)) in words.iter().zip(&mut taken).enumerate() {
                *to = word.load(Ordering::Acquire);
                if let Some(kept) = kept {
                    kept[index].fetch_or(*to, Ordering::Release);
                }
                word.store(0, Ordering::Release);
                pages += u64::from(to.count_ones());
                groups += u64::from(*to != 0);
            }
            debug_assert!(
                self.counts.pages.load(Ordering::Relaxed) >= pages
                    && self.counts.groups.load(Ordering::Relaxed) >= groups,
                "no more marks are taken than were set"
            );
            add(&self.counts.pages, pages.wrapping_neg());
            add(&self.counts.groups, groups.wrapping_neg());
        });
        taken
    }
}

fn bits_for(capacity_bytes: u64) -> io::Result<Mapping> {
    assert!(capacity_bytes > 0, "a pool has an address range");
    let bytes = (capacity_bytes.div_ceil(PAGE_BYTES * 64) * 8).next_multiple_of(PAGE_BYTES);
    let bits = Mapping::reserve(bytes)?;
    bits.grow(bytes, &Backing::Sparse)?;
    Ok(bits)
}

/// Under the append lock, where a locked instruction is not needed.
#[inline]
fn add(count: &AtomicU64, change: u64) {
    let changed = count.load(Ordering::Relaxed).wrapping_add(change);
    debug_assert!(changed.cast_signed() >= 0, "no more marks are taken than were set: {changed:#x}");
    count.store(changed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_cover_ranges_that_cross_pages_and_are_taken_once() {
        let dirty = DirtyPages::new(1 << 20).unwrap();
        dirty.mark(PoolOffset::new(4088), 16);
        dirty.mark(PoolOffset::new(70 * PAGE_BYTES), 8);
        dirty.mark(PoolOffset::new(70 * PAGE_BYTES + 8), 8);
        assert_eq!(dirty.count(), PageCount { pages: 3, groups: 2 });
        let mut from = 0;
        assert_eq!(dirty.take(&mut from, 1 << 20, 100, |work| work()), [0, 1, 70]);
        assert_eq!(dirty.count(), PageCount::default());
        assert_eq!(dirty.take(&mut 0, 1 << 20, 100, |work| work()), [0u32; 0]);
    }

    #[test]
    fn a_page_is_clean_when_its_mark_was_taken_and_settled() {
        let dirty = DirtyPages::with_taken(1 << 26).unwrap();
        dirty.mark(PoolOffset::new(700 * PAGE_BYTES), 8);
        assert!(!dirty.is_clean(700) && dirty.is_clean(701));
        assert_eq!(dirty.take(&mut 0, 1 << 26, 100, |work| work()), [700]);
        assert!(!dirty.is_clean(700), "it is on its way to the file");
        dirty.mark(PoolOffset::new(700 * PAGE_BYTES), 8);
        dirty.settle(1 << 26);
        assert!(!dirty.is_clean(700), "it was changed again");
        assert_eq!(dirty.take(&mut 0, 1 << 26, 100, |work| work()), [700]);
        dirty.settle(1 << 26);
        assert!(dirty.is_clean(700));
    }

    #[test]
    fn marks_are_taken_bit_by_bit_and_none_twice() {
        let dirty = DirtyPages::new(1 << 26).unwrap();
        let marked: Vec<u32> = (0..10_000).filter(|page| page % 3 == 0).collect();
        marked.iter().for_each(|page| dirty.mark(PoolOffset::new(u64::from(*page) * PAGE_BYTES), 8));
        let (mut from, mut taken) = (0, Vec::new());
        loop {
            let part = dirty.take(&mut from, 1 << 26, 200, |work| work());
            if part.is_empty() {
                break;
            }
            // Marks behind the place are for the next round.
            dirty.mark(PoolOffset::new(0), 8);
            taken.extend(part);
        }
        assert_eq!(taken, marked);
        assert_eq!(dirty.count(), PageCount { pages: 1, groups: 1 });
    }
}
