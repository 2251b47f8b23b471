//! Searches with the copies of a cache.

use super::ListCache;
use super::copies::{Copies, CopyKind, CopyRegion, MissedList, REPLACEABLE};
use super::partition::Partition;
use crate::elf::lists::{ListView, is_mono};
use crate::elf::search::{ElfSearch, Flow};
use crate::elf::storage::ElfStorage;
use crate::elf::{CodeCondition, ElfShape};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Lists that are noted of those that a search misses below an entry of the first dimension, at most.
const MISSED_MAX: usize = 32;

/// Copies below an entry of the first dimension, or the fixed ones only.
struct CopiesBelow<'c> {
    fixed: CopyRegion<'c>,
    partition: Option<(&'c Partition, CopyRegion<'c>)>,
    /// Time of the search.
    now: u32,
    missed: Vec<MissedList>,
    gate: u32,
    mono_lists: bool,
    hits: u64,
    misses: u64,
}

impl<'c> Copies<'c> for CopiesBelow<'c> {
    const HAS: bool = true;

    #[inline]
    fn region(&self, child: u32) -> CopyRegion<'c> {
        match &self.partition {
            Some((_, region)) if child & REPLACEABLE != 0 => *region,
            _ => self.fixed,
        }
    }

    #[inline]
    fn hit(&mut self, child: u32) {
        self.hits += 1;
        if child & REPLACEABLE != 0
            && let Some((partition, _)) = self.partition
        {
            partition.note(child, self.now);
        }
    }

    #[inline]
    fn wants(&mut self, child: u32) -> bool {
        if is_mono(child) && !self.mono_lists {
            return false;
        }
        self.misses += 1;
        let is_seen = self.gate > 0 && self.misses.wrapping_add(self.now.into()) % u64::from(self.gate) == 0;
        is_seen && self.missed.len() < MISSED_MAX
    }

    fn missed(&mut self, missed: MissedList) {
        self.missed.push(missed);
    }
}

impl ListCache {
    /// Searches with the copies, below those entries of the first dimension that are claimed.
    pub(in crate::elf) fn search<S, F>(
        &self,
        storage: &S,
        shape: &ElfShape,
        conditions: &[CodeCondition],
        found: F,
        mut claims: impl FnMut() -> bool,
    ) -> Flow
    where
        S: ElfStorage + ?Sized,
        F: FnMut(u32) -> ControlFlow<()>,
    {
        let copies = self.held(None);
        let mut search = ElfSearch { storage, shape, conditions, copies, found, left: storage.len() };
        if self.fixed.is_empty() {
            return search.root(claims);
        }
        let exact = match conditions.first() {
            Some(CodeCondition::Between { least, greatest }) if least == greatest => Some(*least),
            _ => None,
        };
        search.copies.hits += 1;
        let flow = match search.copies.fixed.kind(0, exact) {
            CopyKind::Slots(list) => {
                search.each(list, 0, |search, list, at| self.claimed(search, list, at, &mut claims))
            }
            CopyKind::List(list) => {
                search.each(list, 0, |search, list, at| self.claimed(search, list, at, &mut claims))
            }
            CopyKind::Mono { .. } => ControlFlow::Continue(()),
        };
        self.note(&search.copies);
        flow
    }

    fn claimed<'c, S, F, L>(
        &'c self,
        search: &mut ElfSearch<'_, S, CopiesBelow<'c>, F>,
        list: L,
        at: usize,
        claims: &mut impl FnMut() -> bool,
    ) -> Flow
    where
        S: ElfStorage + ?Sized,
        F: FnMut(u32) -> ControlFlow<()>,
        L: ListView,
    {
        match (claims(), self.partitions.len()) {
            (false, _) => ControlFlow::Continue(()),
            (true, 0) => search.child(list, at, 1),
            (true, count) => self.below(search, list, at, at % count),
        }
    }

    /// Searches below an entry of the first dimension, whose partition has copies; then copies what was missed.
    fn below<S, F, L>(
        &self,
        search: &mut ElfSearch<'_, S, CopiesBelow<'_>, F>,
        list: L,
        at: usize,
        number: usize,
    ) -> Flow
    where
        S: ElfStorage + ?Sized,
        F: FnMut(u32) -> ControlFlow<()>,
        L: ListView,
    {
        let (storage, shape, conditions) = (search.storage, search.shape, search.conditions);
        let (flow, mut missed) = {
            // No one waits to have the lock alone, so what is found may be searched for again meanwhile.
            let partition = self.partitions[number].read_recursive();
            let copies = self.held(Some((number, &*partition)));
            let (found, left) = (&mut search.found, search.left);
            let mut below = ElfSearch { storage, shape, conditions, copies, found, left };
            let flow = below.child(list, at, 1);
            search.left = below.left;
            self.note(&below.copies);
            (flow, below.copies.missed)
        };
        if !missed.is_empty()
            && let Some(mut partition) = self.partitions[number].try_write()
        {
            let mut copy = Vec::new();
            missed.drain(..).for_each(|list| partition.met((storage, shape), &self.fixed, &list, &mut copy));
        }
        flow
    }

    fn held<'c>(&'c self, partition: Option<(usize, &'c Partition)>) -> CopiesBelow<'c> {
        let meter = self.meter.as_deref();
        let region = |(number, partition): (usize, &'c Partition)| {
            let words = &partition.arena.words[..];
            (partition, CopyRegion { words, number: number as u32 + 1, meter })
        };
        CopiesBelow {
            fixed: CopyRegion { words: &self.fixed, number: 0, meter },
            now: partition.map_or(0, |(_, partition)| partition.tick()),
            gate: partition.map_or(0, |(_, partition)| partition.gate()),
            partition: partition.map(region),
            missed: Vec::new(),
            mono_lists: self.options.mono_lists,
            hits: 0,
            misses: 0,
        }
    }

    fn note(&self, copies: &CopiesBelow<'_>) {
        self.hits.fetch_add(copies.hits, Ordering::Relaxed);
        self.misses.fetch_add(copies.misses, Ordering::Relaxed);
    }
}
