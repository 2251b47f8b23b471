//! Searches: tuples that meet a condition on each of some dimensions.
//!
//! A list of a dimension with a condition is entered at the least code that can meet it, and left at the greatest.
//! Below the last dimension with a condition all tuples are results. Where words are read from a pool, the
//! beginnings of the next few lists are prefetched, so that the latencies of several paths pass together. Where
//! there is a cache, a list that it has is read there, and with it the places of those copies that follow
//! ([`super::cache`]).
//!
//! Lists and codes are checked to be inside of the array as they are read, and no search visits more lists than there
//! are words: so one of words that no one has checked as a whole ends, with an error if they are so damaged.

use super::cache::copies::{Copies, CopyKind, CopyRegion, MissedList, NoCopies};
use super::condition::CodeCondition;
use super::lists::{ListView, StoredList, StoredSlots, is_mono};
use super::storage::ElfStorage;
use super::{ElfShape, MARK, damaged};
use crate::error::Result;
use std::ops::ControlFlow;

/// Words that are prefetched of a list or a small subtree: a block of Optane.
const PREFETCH_WORDS: usize = 64;
/// Lists that are prefetched ahead of the one that is searched.
const PREFETCH_LISTS: usize = 4;

/// Reason to end a search.
pub(super) enum Stop {
    /// The caller has enough.
    Enough,
    /// Damage at a word.
    Damaged(usize),
}

pub(super) type Flow = ControlFlow<Stop>;

/// Result of a search for its caller.
pub(super) fn ended(flow: Flow) -> Result<ControlFlow<()>> {
    match flow {
        ControlFlow::Continue(()) => Ok(ControlFlow::Continue(())),
        ControlFlow::Break(Stop::Enough) => Ok(ControlFlow::Break(())),
        ControlFlow::Break(Stop::Damaged(word)) => {
            Err(damaged(word, "a list or a tuple id is not inside of it".to_owned()))
        }
    }
}

/// Conditions that matter: up to the last one that is one. None if no tuple can meet them.
pub(super) fn used<'c>(shape: &ElfShape, conditions: &'c [CodeCondition]) -> Option<&'c [CodeCondition]> {
    let last = conditions.iter().rposition(|condition| *condition != CodeCondition::Any);
    let conditions = &conditions[..last.map_or(0, |last| last + 1).min(shape.dimensions())];
    let is_possible = conditions.iter().all(|condition| condition.bounds().is_some());
    (shape.tuples > 0 && is_possible).then_some(conditions)
}

/// Search for the tuples that meet all conditions.
pub(super) struct ElfSearch<'e, S: ?Sized, C, F> {
    pub(super) storage: &'e S,
    pub(super) shape: &'e ElfShape,
    /// Conditions of the first dimensions; the last one is one.
    pub(super) conditions: &'e [CodeCondition],
    pub(super) copies: C,
    pub(super) found: F,
    /// Lists that it may visit yet.
    pub(super) left: usize,
}

/// Searches an array without a cache.
pub(super) fn search<S: ElfStorage + ?Sized, F: FnMut(u32) -> ControlFlow<()>>(
    storage: &S,
    shape: &ElfShape,
    conditions: &[CodeCondition],
    found: F,
) -> Flow {
    let Some(conditions) = used(shape, conditions) else { return ControlFlow::Continue(()) };
    ElfSearch { storage, shape, conditions, copies: NoCopies, found, left: storage.len() }.root(|| true)
}

impl<'e, 'c, S, C, F> ElfSearch<'e, S, C, F>
where
    S: ElfStorage + ?Sized,
    C: Copies<'c>,
    F: FnMut(u32) -> ControlFlow<()>,
{
    /// Searches from the first dimension on, below those of its entries that are claimed.
    pub(super) fn root(&mut self, mut claims: impl FnMut() -> bool) -> Flow {
        let (first, slots) = (self.shape.root(), self.shape.slots as usize);
        let storage = self.storage;
        if slots == 0 {
            let list = self.stored(first, 0)?;
            return self.each(list, 0, |search, list, at| search.claimed(list, at, &mut claims));
        }
        if first + slots > storage.len() {
            return ControlFlow::Break(Stop::Damaged(first));
        }
        let list = StoredSlots { storage, first, count: slots };
        self.each(list, 0, |search, list, at| search.claimed(list, at, &mut claims))
    }

    #[inline]
    fn claimed<L: ListView>(&mut self, list: L, at: usize, claims: &mut impl FnMut() -> bool) -> Flow {
        if claims() { self.child(list, at, 1) } else { ControlFlow::Continue(()) }
    }

    /// Calls `visit` for each child of a list that the condition of its dimension leaves.
    #[inline]
    pub(super) fn each<L: ListView>(
        &mut self,
        list: L,
        dimension: usize,
        mut visit: impl FnMut(&mut Self, L, usize) -> Flow,
    ) -> Flow {
        let conditions = self.conditions;
        match conditions.get(dimension).unwrap_or(&CodeCondition::Any) {
            CodeCondition::Any => {
                list.touch_children(0, list.count());
                self.ahead(list, 0..list.count(), visit)
            }
            CodeCondition::Between { least, greatest } => {
                let from = list.lower_bound(0, *least);
                let to = list.upper_bound(from, *greatest);
                list.touch_children(from, to);
                self.ahead(list, from..to, visit)
            }
            CodeCondition::Among(set) if set.codes().len() < list.count() => {
                let mut from = 0;
                for code in set.codes() {
                    from = list.lower_bound(from, *code);
                    if from == list.count() {
                        break;
                    }
                    if list.code(from) == *code {
                        list.touch_children(from, from + 1);
                        visit(self, list, from)?;
                    }
                }
                ControlFlow::Continue(())
            }
            CodeCondition::Among(set) => {
                list.touch_codes(0, list.count());
                list.touch_children(0, list.count());
                let mut entries = (0..list.count()).filter(|at| set.contains(list.code(*at)));
                entries.try_for_each(|at| visit(self, list, at))
            }
        }
    }

    /// Visits children while the next few are on their way.
    #[inline]
    fn ahead<L: ListView>(
        &mut self,
        list: L,
        entries: std::ops::Range<usize>,
        mut visit: impl FnMut(&mut Self, L, usize) -> Flow,
    ) -> Flow {
        if S::PREFETCHES {
            let first = entries.start..entries.end.min(entries.start + PREFETCH_LISTS);
            first.for_each(|at| self.prefetch(list, at));
        }
        for at in entries.clone() {
            if S::PREFETCHES && at + PREFETCH_LISTS < entries.end {
                self.prefetch(list, at + PREFETCH_LISTS);
            }
            visit(self, list, at)?;
        }
        ControlFlow::Continue(())
    }

    /// Prefetches the beginning of a child, as far as it and what is below it reach.
    fn prefetch<L: ListView>(&self, list: L, at: usize) {
        let child = list.child(at);
        if child == 0 || C::HAS && C::is_copy(child) {
            return;
        }
        let next = if at + 1 < list.count() { list.child(at + 1) } else { 0 };
        let offset = child & !MARK;
        let is_stored = next != 0 && !(C::HAS && C::is_copy(next));
        let words = if is_stored { (next & !MARK).saturating_sub(offset) as usize } else { PREFETCH_WORDS };
        let (at, words) = (offset as usize, words.min(PREFETCH_WORDS));
        if is_mono(child) { self.storage.prefetch_mono(at, words) } else { self.storage.prefetch(at, words) }
    }

    #[inline]
    fn entries<L: ListView>(&mut self, list: L, dimension: usize) -> Flow {
        self.each(list, dimension, |search, list, at| search.child(list, at, dimension + 1))
    }

    /// Searches below an entry of a list.
    #[inline]
    pub(super) fn child<L: ListView>(&mut self, list: L, at: usize, dimension: usize) -> Flow {
        let child = list.child(at);
        if child == 0 {
            return ControlFlow::Continue(());
        }
        if self.left == 0 {
            return ControlFlow::Break(Stop::Damaged((child & !MARK) as usize));
        }
        self.left -= 1;
        if C::HAS {
            if C::is_copy(child) {
                return self.copied(child, dimension);
            }
            if self.copies.wants(child)
                && let Some((region, slot)) = list.slot(at)
            {
                let parent = region.parent(list.header());
                self.copies.missed(MissedList { parent, slot, child, dimension });
            }
        }
        let offset = (child & !MARK) as usize;
        if is_mono(child) { self.mono(offset, dimension) } else { self.list(offset, dimension) }
    }

    /// DimensionList at a word of the array.
    #[inline]
    fn stored(&self, at: usize, dimension: usize) -> ControlFlow<Stop, StoredList<'e, S>> {
        let storage = self.storage;
        storage.touch(at, 1);
        let count = storage.word(at) as usize;
        if at + 2 * count >= storage.len() || dimension == self.shape.dimensions() {
            return ControlFlow::Break(Stop::Damaged(at));
        }
        ControlFlow::Continue(StoredList { storage, first: at + 1, count })
    }

    fn list(&mut self, at: usize, dimension: usize) -> Flow {
        let list = self.stored(at, dimension)?;
        self.entries(list, dimension)
    }

    #[inline]
    fn mono(&mut self, at: usize, dimension: usize) -> Flow {
        let Some(codes) = self.shape.dimensions().checked_sub(dimension) else {
            return ControlFlow::Break(Stop::Damaged(at));
        };
        let storage = self.storage;
        storage.touch_mono(at, codes + 1);
        let conditions = self.conditions.get(dimension..).unwrap_or_default();
        let mut of_codes = conditions.iter().zip(at..);
        if !of_codes.all(|(condition, at)| condition.is_met(storage.mono_word(at))) {
            return ControlFlow::Continue(());
        }
        for at in at + codes..storage.len() {
            let word = storage.mono_word(at);
            if word & !MARK >= self.shape.tuples {
                return ControlFlow::Break(Stop::Damaged(at));
            }
            if (self.found)(word & !MARK).is_break() {
                return ControlFlow::Break(Stop::Enough);
            }
            if word & MARK != 0 {
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(Stop::Damaged(at))
    }

    /// Searches a list that the cache has.
    fn copied(&mut self, child: u32, dimension: usize) -> Flow {
        self.copies.hit(child);
        let (region, header) = (self.copies.region(child), CopyRegion::header(child));
        let exact = match self.conditions.get(dimension) {
            Some(CodeCondition::Between { least, greatest }) if least == greatest => Some(*least),
            _ => None,
        };
        match region.kind(header, exact) {
            CopyKind::Slots(list) => self.entries(list, dimension),
            CopyKind::List(list) => self.entries(list, dimension),
            CopyKind::Mono { first, count } => self.copied_mono(region, first, count, dimension),
        }
    }

    fn copied_mono(&mut self, region: CopyRegion<'c>, first: usize, count: usize, dimension: usize) -> Flow {
        let codes = self.shape.dimensions() - dimension;
        region.touch(first, count);
        let conditions = self.conditions.get(dimension..).unwrap_or_default();
        let mut of_codes = conditions.iter().zip(first..);
        if !of_codes.all(|(condition, at)| condition.is_met(region.word(at))) {
            return ControlFlow::Continue(());
        }
        for at in first + codes..first + count {
            if (self.found)(region.word(at) & !MARK).is_break() {
                return ControlFlow::Break(Stop::Enough);
            }
        }
        ControlFlow::Continue(())
    }
}
