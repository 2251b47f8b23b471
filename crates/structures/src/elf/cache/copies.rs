//! Copies of lists, as searches read them.
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | number of entries, or words of a MonoList; the kind in the two highest bits |
//! | 1 | least code, of slots |
//! | 2 | number of the entry in its partition |
//! | 3 | word of the array at which the list is; the highest bit is set for a MonoList |
//! | from 4 | slots: a child for each code from the least to the greatest, 0 where no tuple has it; a list: codes, then children; a MonoList: its words |
//!
//! A child is one of the array, or the place of its copy in four words: that is all there is to find it.

use crate::elf::MARK;
use crate::elf::lists::ListView;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of a header.
pub(in crate::elf) const HEADER: usize = 4;
pub(super) const LEAST: usize = 1;
pub(super) const ENTRY: usize = 2;
pub(super) const OFFSET: usize = 3;

/// Words at whose multiples copies begin.
pub(super) const UNIT: usize = 4;
/// Mark of a child that is a copy; MonoLists of the array have the highest bit besides.
pub(super) const COPY: u32 = 1 << 30;
/// Mark of a copy in a partition; others are fixed.
pub(super) const REPLACEABLE: u32 = 1 << 29;
/// Greatest place of a copy, in units.
pub(super) const PLACE_MAX: u32 = REPLACEABLE - 1;
/// Words of an Elf that is cached, at most: beyond, offsets would be taken for copies.
pub(super) const CACHED_WORDS_MAX: usize = COPY as usize;

pub(super) const KIND_SHIFT: u32 = 30;
pub(super) const KIND_LIST: u32 = 0;
pub(super) const KIND_SLOTS: u32 = 1;
pub(super) const KIND_MONO: u32 = 2;
const COUNT: u32 = (1 << KIND_SHIFT) - 1;

/// Receiver of the accesses to copies, for a model of the memory that they are in.
pub trait CopyMeter: Send + Sync {
    /// Reports words that are used together: region, first word, number of words.
    fn used(&self, ranges: &[(u32, usize, usize)]);
}

/// Memory with copies: the fixed ones, or those of a partition.
#[derive(Clone, Copy)]
pub(in crate::elf) struct CopyRegion<'c> {
    pub(super) words: &'c [AtomicU32],
    /// 0: the fixed ones.
    pub(super) number: u32,
    pub(super) meter: Option<&'c dyn CopyMeter>,
}

/// Copy by its kind.
pub(in crate::elf) enum CopyKind<'c> {
    Slots(CopySlots<'c>),
    List(CopyList<'c>),
    Mono { first: usize, count: usize },
}

impl<'c> CopyRegion<'c> {
    /// Word at which a copy begins.
    #[inline]
    pub(in crate::elf) fn header(child: u32) -> usize {
        (child & PLACE_MAX) as usize * UNIT
    }

    #[inline]
    pub(in crate::elf) fn word(&self, at: usize) -> u32 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(in crate::elf) fn touch(&self, at: usize, words: usize) {
        if let Some(meter) = self.meter {
            meter.used(&[(self.number, at, words)]);
        }
    }

    /// Copied list that begins at a word, by which a copy that is to hang below it finds it again.
    pub(in crate::elf) fn parent(&self, header: usize) -> Parent {
        if self.number == 0 {
            Parent::Fixed
        } else {
            Parent::Copy { header, offset: self.word(header + OFFSET) }
        }
    }

    /// Copy that begins at a word. If it is searched for one code, the line where that is in slots from 0 on is read
    /// together with the header.
    #[inline]
    pub(in crate::elf) fn kind(self, header: usize, exact: Option<u32>) -> CopyKind<'c> {
        let first = header + HEADER;
        if let Some(meter) = self.meter {
            let guess =
                exact.map_or((self.number, header, 0), |code| (self.number, first + code as usize, 1));
            meter.used(&[(self.number, header, HEADER), guess]);
        }
        let shape = self.word(header);
        let count = (shape & COUNT) as usize;
        match shape >> KIND_SHIFT {
            KIND_SLOTS => {
                let least = self.word(header + LEAST);
                CopyKind::Slots(CopySlots { region: self, header, count, least })
            }
            KIND_MONO => CopyKind::Mono { first, count },
            _ => CopyKind::List(CopyList { region: self, header, count }),
        }
    }
}

/// Copy with a child for each code of a range.
#[derive(Clone, Copy)]
pub(in crate::elf) struct CopySlots<'c> {
    region: CopyRegion<'c>,
    header: usize,
    count: usize,
    least: u32,
}

impl ListView for CopySlots<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn code(&self, at: usize) -> u32 {
        self.least + at as u32
    }

    #[inline]
    fn child(&self, at: usize) -> u32 {
        self.region.word(self.header + HEADER + at)
    }

    #[inline]
    fn touch_codes(&self, _from: usize, _to: usize) {}

    #[inline]
    fn touch_children(&self, from: usize, to: usize) {
        self.region.touch(self.header + HEADER + from, to - from);
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<(CopyRegion<'_>, usize)> {
        Some((self.region, self.header + HEADER + at))
    }

    #[inline]
    fn header(&self) -> usize {
        self.header
    }

    #[inline]
    fn lower_bound(&self, from: usize, code: u32) -> usize {
        (code.saturating_sub(self.least) as usize).clamp(from, self.count)
    }

    #[inline]
    fn upper_bound(&self, from: usize, code: u32) -> usize {
        let below = u64::from(code) + 1;
        (below.saturating_sub(self.least.into()) as usize).clamp(from, self.count)
    }
}

/// Copy with codes and children, as in the array.
#[derive(Clone, Copy)]
pub(in crate::elf) struct CopyList<'c> {
    region: CopyRegion<'c>,
    header: usize,
    count: usize,
}

impl ListView for CopyList<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn code(&self, at: usize) -> u32 {
        self.region.word(self.header + HEADER + at)
    }

    #[inline]
    fn child(&self, at: usize) -> u32 {
        self.region.word(self.header + HEADER + self.count + at)
    }

    #[inline]
    fn touch_codes(&self, from: usize, to: usize) {
        self.region.touch(self.header + HEADER + from, to - from);
    }

    #[inline]
    fn touch_children(&self, from: usize, to: usize) {
        self.region.touch(self.header + HEADER + self.count + from, to - from);
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<(CopyRegion<'_>, usize)> {
        Some((self.region, self.header + HEADER + self.count + at))
    }

    #[inline]
    fn header(&self) -> usize {
        self.header
    }
}

/// Copy that another one hangs below.
#[derive(Debug, Clone, Copy)]
pub(in crate::elf) enum Parent {
    /// A fixed one.
    Fixed,
    /// One of the same partition: its first word, and where it is in the array.
    Copy { header: usize, offset: u32 },
}

/// List that a search did not find in the cache, although the one that it is below is there.
#[derive(Debug, Clone, Copy)]
pub(in crate::elf) struct MissedList {
    pub(in crate::elf) parent: Parent,
    /// Word of the region that is to have its place.
    pub(in crate::elf) slot: usize,
    /// Child in the array.
    pub(in crate::elf) child: u32,
    pub(in crate::elf) dimension: usize,
}

/// Copies that a search may use.
pub(in crate::elf) trait Copies<'c> {
    /// False if there are none.
    const HAS: bool;

    /// Returns true if a child is a copy.
    #[inline]
    fn is_copy(child: u32) -> bool {
        child & (MARK | COPY) == COPY
    }

    /// Region of a copy.
    fn region(&self, child: u32) -> CopyRegion<'c>;

    /// Notes that a copy is used.
    fn hit(&mut self, child: u32);

    /// Counts a list that is no copy; returns true if it should be said which one.
    fn wants(&mut self, child: u32) -> bool;

    /// Notes a list that may become a copy.
    fn missed(&mut self, missed: MissedList);
}

/// No copies.
pub(in crate::elf) struct NoCopies;

impl<'c> Copies<'c> for NoCopies {
    const HAS: bool = false;

    fn region(&self, _child: u32) -> CopyRegion<'c> {
        CopyRegion { words: &[], number: 0, meter: None }
    }

    fn hit(&mut self, _child: u32) {}

    fn wants(&mut self, _child: u32) -> bool {
        false
    }

    fn missed(&mut self, _missed: MissedList) {}
}
