//! Lists as a search sees them: codes in ascending order, each with a child, whatever holds them.

use super::MARK;
use super::cache::copies::CopyRegion;
use super::storage::ElfStorage;

/// Entries of a list up to which it is searched from its beginning.
const SHORT_LIST: usize = 8;

/// DimensionList. A child is as in the array, or a copy of a cache; 0 if no tuple has the code.
pub(super) trait ListView: Copy {
    /// Number of entries.
    fn count(&self) -> usize;

    fn code(&self, at: usize) -> u32;

    fn child(&self, at: usize) -> u32;

    /// Reports that codes are used.
    fn touch_codes(&self, from: usize, to: usize);

    /// Reports that children are used.
    fn touch_children(&self, from: usize, to: usize);

    /// Region of copies that the list is in, and the word in which it has a child; none if it is no copy.
    fn slot(&self, at: usize) -> Option<(CopyRegion<'_>, usize)>;

    /// Word at which a copy begins; 0 if the list is no copy.
    fn header(&self) -> usize {
        0
    }

    /// Position of the first code from an entry on that is not below another one.
    #[inline]
    fn lower_bound(&self, from: usize, code: u32) -> usize {
        let count = self.count();
        if count - from <= SHORT_LIST {
            self.touch_codes(from, count);
            return (from..count).find(|at| self.code(*at) >= code).unwrap_or(count);
        }
        self.touch_codes(from, from + 1);
        let first = self.code(from);
        if code <= first {
            return from;
        }
        // Codes differ, so no more of them are below than there are numbers below. In a list with most codes the
        // position is near that bound.
        let (mut low, mut high) = (from, count.min(from + (code - first) as usize));
        let mut step = 1;
        while high - low > 1 {
            let probe = if step > 0 { high.saturating_sub(step).max(low + 1) } else { low.midpoint(high) };
            self.touch_codes(probe, probe + 1);
            if self.code(probe) >= code {
                (high, step) = (probe, 2 * step);
            } else {
                (low, step) = (probe, 0);
            }
        }
        high
    }

    /// Position of the first code from an entry on that is above another one.
    #[inline]
    fn upper_bound(&self, from: usize, code: u32) -> usize {
        let count = self.count();
        let near = count.min(from + SHORT_LIST);
        let to = (from..near).find(|at| self.code(*at) > code).unwrap_or(near);
        self.touch_codes(from, (to + 1).min(near));
        if to < near || near == count || code == u32::MAX {
            return if code == u32::MAX { count } else { to };
        }
        self.lower_bound(near, code + 1)
    }
}

/// List of the array: codes, then children.
pub(super) struct StoredList<'s, S: ?Sized> {
    pub(super) storage: &'s S,
    /// Word of the first code.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<S: ?Sized> Clone for StoredList<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ?Sized> Copy for StoredList<'_, S> {}

impl<S: ElfStorage + ?Sized> ListView for StoredList<'_, S> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn code(&self, at: usize) -> u32 {
        self.storage.word(self.first + at)
    }

    #[inline]
    fn child(&self, at: usize) -> u32 {
        self.storage.word(self.first + self.count + at)
    }

    #[inline]
    fn touch_codes(&self, from: usize, to: usize) {
        self.storage.touch(self.first + from, to - from);
    }

    #[inline]
    fn touch_children(&self, from: usize, to: usize) {
        self.storage.touch(self.first + self.count + from, to - from);
    }

    #[inline]
    fn slot(&self, _at: usize) -> Option<(CopyRegion<'_>, usize)> {
        None
    }
}

/// Slots of the first dimension of the array: a child for each code.
pub(super) struct StoredSlots<'s, S: ?Sized> {
    pub(super) storage: &'s S,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<S: ?Sized> Clone for StoredSlots<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ?Sized> Copy for StoredSlots<'_, S> {}

impl<S: ElfStorage + ?Sized> ListView for StoredSlots<'_, S> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn code(&self, at: usize) -> u32 {
        at as u32
    }

    #[inline]
    fn child(&self, at: usize) -> u32 {
        self.storage.word(self.first + at)
    }

    #[inline]
    fn touch_codes(&self, _from: usize, _to: usize) {}

    #[inline]
    fn touch_children(&self, from: usize, to: usize) {
        self.storage.touch(self.first + from, to - from);
    }

    #[inline]
    fn slot(&self, _at: usize) -> Option<(CopyRegion<'_>, usize)> {
        None
    }

    #[inline]
    fn lower_bound(&self, from: usize, code: u32) -> usize {
        (code as usize).clamp(from, self.count)
    }

    #[inline]
    fn upper_bound(&self, from: usize, code: u32) -> usize {
        (code as usize).saturating_add(1).clamp(from, self.count)
    }
}

/// Returns true if a child is a MonoList of the array.
#[inline]
pub(super) fn is_mono(child: u32) -> bool {
    child & MARK != 0
}
