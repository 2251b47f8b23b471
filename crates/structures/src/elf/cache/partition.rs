//! Copies that are replaced, below some of the entries of the first dimension.
//!
//! Searches read them under a lock that they share; a change has it alone. A copy's place is in the list
//! above it and nowhere else, so when a copy goes, its place there becomes the child of the array again, and the copies
//! below it, which no search would find, go first.

use super::arena::Arena;
use super::copies::{COPY, CopyRegion, ENTRY, MissedList, OFFSET, PLACE_MAX, Parent, REPLACEABLE, UNIT};
use super::encode::{children, copy_list, words_below};
use super::policy::{Candidate, ListReplacement, Notes, ReplaceLists, UseCounts};
use crate::elf::storage::ElfStorage;
use crate::elf::{ElfShape, MARK};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a copy takes beside its words: its entry, its uses, what the policy and the free runs have of it.
pub(super) const ENTRY_BYTES: usize = 96;
/// Copies that are removed to make room for one, at most.
const EVICTIONS_MAX: usize = 16;
/// Lists that are met of which one is looked at, once the room is taken.
const FULL_GATE: u32 = 8;
/// Number of no entry.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct CopyEntry {
    header: u32,
    /// 0: the entry is free.
    words: u32,
    /// Number of the entry that it is below; [`NONE`]: a fixed copy.
    parent: u32,
    /// Word of the list above that has its place.
    slot: u32,
    /// Copies right below.
    below: u32,
    dimension: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) arena: Arena,
    entries: Vec<CopyEntry>,
    free: Vec<u32>,
    /// Uses by number.
    uses: Vec<AtomicU32>,
    clock: AtomicU32,
    policy: Box<dyn ReplaceLists>,
    notes: Notes,
    bytes_max: usize,
    /// True once a list has found no room.
    is_full: bool,
    replaces: bool,
    /// Copies made and removed so far.
    pub(super) made: u64,
    pub(super) removed: u64,
}

impl Partition {
    pub(super) fn new(replacement: ListReplacement, bytes_max: usize) -> Partition {
        let policy = replacement.start(bytes_max / ENTRY_BYTES);
        Partition {
            arena: Arena::default(),
            entries: Vec::new(),
            free: Vec::new(),
            uses: Vec::new(),
            clock: AtomicU32::new(0),
            notes: policy.notes(),
            policy,
            bytes_max,
            is_full: false,
            replaces: replacement != ListReplacement::Naive,
            made: 0,
            removed: 0,
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        4 * self.arena.words.len() + ENTRY_BYTES * self.entries.len()
    }

    /// Returns true once a list has found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Number of lists that are met of which one is looked at; 0: none is.
    pub(super) fn gate(&self) -> u32 {
        if !self.is_full { 1 } else { FULL_GATE * u32::from(self.replaces) }
    }

    /// Time of a search.
    pub(super) fn tick(&self) -> u32 {
        let is_used = self.notes == Notes::Recency || self.gate() > 1;
        if is_used { self.clock.fetch_add(1, Ordering::Relaxed) } else { 0 }
    }

    /// Notes the use of a copy at a time.
    #[inline]
    pub(super) fn note(&self, child: u32, now: u32) {
        if self.notes != Notes::Nothing {
            self.note_use(child, now);
        }
    }

    fn note_use(&self, child: u32, now: u32) {
        let number = self.word(CopyRegion::header(child) + ENTRY);
        let Some(uses) = self.uses.get(number as usize) else { return };
        match self.notes {
            Notes::Recency => uses.store(now, Ordering::Relaxed),
            // A use that is lost now and then does not matter.
            _ => uses.store(uses.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed),
        }
    }

    fn word(&self, at: usize) -> u32 {
        self.arena.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Number of the entry of a copy that others are below; none if it is gone. [`NONE`] of fixed ones.
    fn entry_of(&self, parent: Parent) -> Option<u32> {
        let Parent::Copy { header, offset } = parent else { return Some(NONE) };
        let number = self.word(header + ENTRY);
        let entry = self.entries.get(number as usize)?;
        let is_it =
            entry.words > 0 && entry.header as usize == header && self.word(header + OFFSET) == offset;
        is_it.then_some(number)
    }

    /// Makes a copy of a list that was met and missed, if the policy wants it and there is room.
    pub(super) fn met<S: ElfStorage + ?Sized>(
        &mut self,
        elf: (&S, &ElfShape),
        fixed: &[AtomicU32],
        missed: &MissedList,
        copy: &mut Vec<u32>,
    ) {
        let list = Candidate { child: missed.child, words: words_below(elf.0, missed.child) };
        if self.is_missed(fixed, missed) && self.policy.admits(list) {
            self.admit(elf, fixed, (missed, list), copy);
        }
    }

    /// Makes a copy of a list, if it is still missed and there is room; returns its first word. `copy` is room for it.
    pub(super) fn admit<S: ElfStorage + ?Sized>(
        &mut self,
        (storage, shape): (&S, &ElfShape),
        fixed: &[AtomicU32],
        (missed, list): (&MissedList, Candidate),
        copy: &mut Vec<u32>,
    ) -> Option<usize> {
        let list_of = (missed.child, missed.dimension);
        if !self.is_missed(fixed, missed) || !copy_list(storage, list_of, shape, copy) {
            return None;
        }
        let (number, header) = self.room(copy.len(), list, fixed, missed)?;
        copy[ENTRY] = number;
        for (word, value) in self.arena.words[header..].iter().zip(&*copy) {
            word.store(*value, Ordering::Relaxed);
        }
        let parent = self.entry_of(missed.parent).unwrap_or(NONE);
        if let Some(parent) = self.entries.get_mut(parent as usize) {
            parent.below += 1;
        }
        let (words, dimension) = (copy.len() as u32, missed.dimension as u8);
        let slot = missed.slot as u32;
        self.entries[number as usize] =
            CopyEntry { header: header as u32, words, parent, slot, below: 0, dimension };
        let first_use = if self.notes == Notes::Recency { self.clock.load(Ordering::Relaxed) } else { 1 };
        self.uses[number as usize].store(first_use, Ordering::Relaxed);
        self.policy.insert(number, list);
        let place = (header / UNIT) as u32;
        self.slot(fixed, parent, slot).store(COPY | REPLACEABLE | place, Ordering::Relaxed);
        self.made += 1;
        Some(header)
    }

    /// Word that has the place of a copy.
    fn slot<'s>(&'s self, fixed: &'s [AtomicU32], parent: u32, slot: u32) -> &'s AtomicU32 {
        let words = if parent == NONE { fixed } else { &self.arena.words };
        &words[slot as usize]
    }

    fn is_missed(&self, fixed: &[AtomicU32], missed: &MissedList) -> bool {
        self.entry_of(missed.parent).is_some_and(|parent| {
            self.slot(fixed, parent, missed.slot as u32).load(Ordering::Relaxed) == missed.child
        })
    }

    /// Entry and words for a copy, of which others are removed if need be.
    fn room(
        &mut self,
        words: usize,
        list: Candidate,
        fixed: &[AtomicU32],
        missed: &MissedList,
    ) -> Option<(u32, usize)> {
        let mut taken = None;
        for _ in 0..EVICTIONS_MAX {
            taken = taken.or_else(|| self.take_words(words));
            if taken.is_some()
                && let Some(number) = self.take_entry()
            {
                return taken.map(|header| (number, header));
            }
            self.is_full = true;
            let (uses, now) = (&self.uses, self.clock.load(Ordering::Relaxed));
            let of = |number: u32| uses.get(number as usize).map_or(0, |uses| uses.load(Ordering::Relaxed));
            let Some(victim) = self.policy.victim(list, &UseCounts { of: &of, now }) else { break };
            self.remove(victim, fixed);
            if self.entry_of(missed.parent).is_none() {
                break;
            }
        }
        if let Some(header) = taken {
            self.arena.release(header, words);
        }
        None
    }

    fn take_words(&mut self, words: usize) -> Option<usize> {
        self.arena.take(words).or_else(|| {
            let of_entries = ENTRY_BYTES * self.entries.len();
            let words_max = (self.bytes_max.saturating_sub(of_entries) / 4).min(PLACE_MAX as usize * UNIT);
            self.arena.grow(words, words_max)
        })
    }

    fn take_entry(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        if self.bytes() + ENTRY_BYTES > self.bytes_max {
            return None;
        }
        self.entries.push(CopyEntry { header: 0, words: 0, parent: NONE, slot: 0, below: 0, dimension: 0 });
        self.uses.push(AtomicU32::new(0));
        Some(self.entries.len() as u32 - 1)
    }

    /// Removes a copy, and first those below it.
    fn remove(&mut self, number: u32, fixed: &[AtomicU32]) {
        let entry = self.entries[number as usize];
        debug_assert!(entry.words > 0, "a policy names copies that are there");
        let (header, words) = (entry.header as usize, entry.words as usize);
        if entry.below > 0 {
            let copy: Vec<u32> = (header..header + words).map(|at| self.word(at)).collect();
            let places = copy[children(&copy)].iter().filter(|child| *child & (MARK | COPY) == COPY);
            for place in places {
                self.remove(self.word(CopyRegion::header(*place) + ENTRY), fixed);
            }
        }
        let child = self.word(header + OFFSET);
        self.slot(fixed, entry.parent, entry.slot).store(child, Ordering::Relaxed);
        if let Some(parent) = self.entries.get_mut(entry.parent as usize) {
            parent.below -= 1;
        }
        self.entries[number as usize].words = 0;
        self.policy.remove(number);
        self.free.push(number);
        self.arena.release(header, words);
        self.removed += 1;
    }

    /// Removes all copies.
    pub(super) fn clear(&mut self, fixed: &[AtomicU32]) {
        let is_first = |entry: &CopyEntry| entry.words > 0 && entry.parent == NONE;
        let first = (0..self.entries.len()).filter(|number| is_first(&self.entries[*number]));
        let first: Vec<u32> = first.map(|number| number as u32).collect();
        first.into_iter().for_each(|number| self.remove(number, fixed));
        debug_assert!(self.entries.iter().all(|entry| entry.words == 0), "no copy is left");
        (self.arena, self.is_full) = (Arena::default(), false);
        self.entries.clear();
        self.uses.clear();
        self.free.clear();
    }

    /// Adds the number of copies of each dimension.
    pub(super) fn count(&self, lists: &mut [u64]) {
        for entry in self.entries.iter().filter(|entry| entry.words > 0) {
            if let Some(lists) = lists.get_mut(usize::from(entry.dimension)) {
                *lists += 1;
            }
        }
    }

    /// Checks that places and entries agree.
    #[cfg(test)]
    pub(super) fn check(&self, fixed: &[AtomicU32]) {
        use super::copies::HEADER;
        assert!(self.bytes() <= self.bytes_max, "{} bytes of {}", self.bytes(), self.bytes_max);
        let mut below = vec![0; self.entries.len()];
        for (number, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.words > 0) {
            assert_eq!(self.word(entry.header as usize + ENTRY), number as u32);
            let place = self.slot(fixed, entry.parent, entry.slot).load(Ordering::Relaxed);
            assert_eq!(place, COPY | REPLACEABLE | (entry.header / UNIT as u32));
            if entry.parent != NONE {
                below[entry.parent as usize] += 1;
                let parent = self.entries[entry.parent as usize];
                let words = parent.header as usize + HEADER..(parent.header + parent.words) as usize;
                assert!(words.contains(&(entry.slot as usize)));
            }
        }
        let live = self.entries.iter().zip(&below).filter(|(entry, _)| entry.words > 0);
        live.for_each(|(entry, below)| assert_eq!(entry.below, *below));
    }
}
