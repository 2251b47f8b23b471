//! Tables of the directory: entries of 32 bytes in segments, which come as they are needed and stay where
//! they are.
//!
//! The header has the offset of the first segment of each table; the extension, an object that is made
//! together with the first further segment, has those of the others:
//!
//! ```text
//! extension   a list of LastCTS (offset; 0: none) | - | segments 1 to 97 of groups | of states | of histories
//! ```
//! Memory: 32 KiB a segment.

use super::{ENTRY_BYTES, ENTRY_WORDS, FREE};
use entresol_memory::{AtomicPoolOffset, Pool, PoolOffset};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

/// Entries of a segment.
pub(super) const SEGMENT_ENTRIES: usize = 1024;
pub(super) const SEGMENT_WORDS: usize = SEGMENT_ENTRIES * ENTRY_WORDS;
pub(super) const SEGMENT_BYTES: usize = SEGMENT_WORDS * 8;
/// The most segments of a table.
const SEGMENTS_MAX: usize = 98;
/// The most entries of a table.
pub(super) const ENTRIES_MAX: usize = SEGMENTS_MAX * SEGMENT_ENTRIES;

/// Word of the extension with the offset of a list of `LastCTS`.
pub(super) const LIST_WORD: usize = 0;
/// Words of the extension before the segments.
const EXTENSION_HEAD: usize = 2;
const SEGMENTS_LATER: usize = SEGMENTS_MAX - 1;
pub(super) const EXTENSION_WORDS: usize = EXTENSION_HEAD + 3 * SEGMENTS_LATER;

/// The tables that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    Groups,
    States,
    Histories,
}

impl TableKind {
    pub(super) const ALL: [TableKind; 3] = [TableKind::Groups, TableKind::States, TableKind::Histories];

    /// Word of the extension with the offset of a segment; not of the first one.
    pub(super) fn extension_word(self, segment: usize) -> usize {
        assert!((1..SEGMENTS_MAX).contains(&segment), "the extension knows no segment {segment}");
        EXTENSION_HEAD + self as usize * SEGMENTS_LATER + segment - 1
    }
}

/// Offsets of the segments of a table; 0: there is none.
pub(super) struct Table {
    segments: [AtomicPoolOffset; SEGMENTS_MAX],
    /// No entry before this one is free.
    free_from: Mutex<usize>,
}

impl Table {
    pub(super) fn new(first: PoolOffset) -> Table {
        let segments = [const { AtomicPoolOffset::new(PoolOffset::NULL) }; SEGMENTS_MAX];
        let table = Table { segments, free_from: Mutex::new(0) };
        table.set_segment(0, first);
        table
    }

    pub(super) fn set_segment(&self, segment: usize, offset: PoolOffset) {
        debug_assert!(
            self.segments[segment].load(Ordering::Acquire).is_null(),
            "segment {segment} stays where it is"
        );
        self.segments[segment].store(offset, Ordering::Release);
    }

    fn segment(&self, segment: usize) -> Option<PoolOffset> {
        self.segments.get(segment)?.load(Ordering::Acquire).non_null()
    }

    /// The segments that are there.
    pub(super) fn segments(&self) -> impl Iterator<Item = PoolOffset> {
        (0..SEGMENTS_MAX).filter_map(|segment| self.segment(segment))
    }

    /// Offset of an entry; None: its segment does not exist.
    #[inline]
    pub(super) fn try_offset(&self, index: usize) -> Option<PoolOffset> {
        let segment = self.segment(index / SEGMENT_ENTRIES)?;
        Some(segment.block((index % SEGMENT_ENTRIES) as u64, ENTRY_BYTES))
    }

    #[inline]
    pub(super) fn offset(&self, index: usize) -> PoolOffset {
        self.try_offset(index).expect("the entry is there")
    }

    /// The numbers and offsets of the entries of all segments.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, PoolOffset)> {
        let of_segment = |segment: usize| {
            let first = self.segment(segment);
            let entry = move |first: PoolOffset| {
                (0..SEGMENT_ENTRIES)
                    .map(move |at| (segment * SEGMENT_ENTRIES + at, first.block(at as u64, ENTRY_BYTES)))
            };
            first.into_iter().flat_map(entry)
        };
        (0..SEGMENTS_MAX).flat_map(of_segment)
    }

    /// The first free entry, perhaps of a segment that has to be made; None: all are in use. It stays free
    /// until it is used: callers take turns.
    pub(super) fn first_free(&self, pool: &Pool) -> Option<usize> {
        let mut free_from = self.free_from.lock();
        let is_free = |index: &usize| {
            self.try_offset(*index).is_none_or(|at| pool.words(at, 1)[0].load(Ordering::Acquire) == FREE)
        };
        let found = (*free_from..ENTRIES_MAX).find(is_free);
        *free_from = found.unwrap_or(ENTRIES_MAX);
        found
    }

    /// An entry is free again.
    pub(super) fn freed(&self, index: usize) {
        debug_assert!(self.try_offset(index).is_some(), "the freed entry {index} is there");
        let mut free_from = self.free_from.lock();
        *free_from = index.min(*free_from);
    }

    /// Counts all entries that are there as used, until the next open.
    #[cfg(feature = "testkit")]
    pub(super) fn skip_all(&self) {
        let segments = (0..SEGMENTS_MAX).take_while(|&segment| self.segment(segment).is_some()).count();
        *self.free_from.lock() = segments * SEGMENT_ENTRIES;
    }
}
