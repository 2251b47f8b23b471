//! Filling a cache: the fixed copies, and those that can be replaced if it begins warm.
//!
//! Lists come in the order of their dimensions, or of the words below them, the most first. Only as many wait as could
//! find room.

use super::copies::{COPY, MissedList, Parent, UNIT};
use super::encode::{children, copy_list, copy_root};
use super::partition::Partition;
use super::policy::{Candidate, FixedLists};
use super::{ListCache, PARTITION_BYTES_MIN, PARTITIONS};
use crate::elf::storage::ElfStorage;
use crate::elf::{ElfShape, MARK};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

/// Bytes of the least copy.
const COPY_BYTES_MIN: usize = 32;

/// List that waits for room.
#[derive(Debug, Clone, Copy)]
struct WaitingList {
    missed: MissedList,
    /// Words of it and what is below.
    words: u32,
    /// Entry of the first dimension that it is below.
    entry: u32,
}

/// Lists that wait, the next one first, and how many may.
struct Queue {
    waiting: BTreeMap<(u32, u32), WaitingList>,
    lists_max: usize,
    by_dimension: bool,
    mono_lists: bool,
}

impl Queue {
    fn push(&mut self, list: WaitingList) {
        if list.missed.child & MARK != 0 && !self.mono_lists {
            return;
        }
        let rank = if self.by_dimension { list.missed.dimension as u32 } else { u32::MAX - list.words };
        self.waiting.insert((rank, list.missed.child & !MARK), list);
        if self.waiting.len() > self.lists_max {
            self.waiting.pop_last();
        }
    }

    /// Adds the children of a copy at a word of its region, which ends at a word of the array.
    fn push_children(
        &mut self,
        copy: &[u32],
        (at, end): (usize, u32),
        list: impl Fn(usize) -> (Parent, usize, u32),
    ) {
        let places: Vec<usize> = children(copy).filter(|place| copy[*place] != 0).collect();
        for (order, place) in places.iter().enumerate() {
            let child = copy[*place];
            let next = places.get(order + 1).map_or(end, |next| copy[*next] & !MARK);
            let (parent, dimension, entry) = list(*place);
            let missed = MissedList { parent, slot: at + place, child, dimension };
            self.push(WaitingList { missed, words: next.saturating_sub(child & !MARK), entry });
        }
    }

    fn pop(&mut self) -> Option<WaitingList> {
        self.waiting.pop_first().map(|(_, list)| list)
    }
}

/// Fixed copies while they are made.
struct FixedCopies {
    words: Vec<u32>,
    bytes_max: usize,
}

impl FixedCopies {
    /// Adds a copy; returns its first word, or none if there is no room.
    fn add(&mut self, copy: &[u32]) -> Option<usize> {
        let first = self.words.len();
        if 4 * (first + copy.len().next_multiple_of(UNIT)) > self.bytes_max {
            return None;
        }
        self.words.extend_from_slice(copy);
        self.words.resize(self.words.len().next_multiple_of(UNIT), 0);
        Some(first)
    }
}

impl ListCache {
    /// Makes the copies that the policy has from the beginning.
    pub(super) fn fill<S: ElfStorage + ?Sized>(&mut self, storage: &S, shape: &ElfShape) {
        let options = self.options;
        // Where both kinds share the bytes, the others have some, whatever the fixed ones would take.
        let fixed_max = match (options.policy.fixed, options.policy.replacement) {
            (Some(FixedLists::Levels(_)), Some(_)) => options.bytes_max / 4 * 3,
            (_, Some(_)) => options.bytes_max / 2,
            (_, None) => options.bytes_max,
        };
        let mut fixed = FixedCopies { words: Vec::new(), bytes_max: fixed_max };
        let mut copy = Vec::new();
        self.fixed_lists = vec![0; shape.dimensions()];
        if !copy_root(storage, shape, &mut copy) || fixed.add(&copy).is_none() {
            return;
        }
        self.fixed_lists[0] = 1;
        let mut queue = Queue {
            waiting: BTreeMap::new(),
            lists_max: options.bytes_max / COPY_BYTES_MIN,
            by_dimension: matches!(options.policy.fixed, Some(FixedLists::Levels(_))),
            mono_lists: options.mono_lists,
        };
        let first = children(&copy).start;
        queue.push_children(&copy, (0, storage.len() as u32), |place| {
            (Parent::Fixed, 1, (place - first) as u32)
        });
        let later = self.fill_fixed((storage, shape), &mut fixed, &mut queue, &mut copy);
        fixed.words.shrink_to_fit();
        self.fixed = fixed.words.into_iter().map(AtomicU32::new).collect();
        self.start_partitions();
        if options.is_warm && !self.partitions.is_empty() {
            queue.by_dimension = false;
            queue.waiting.clear();
            later.into_iter().for_each(|list| queue.push(list));
            self.warm((storage, shape), &mut queue, &mut copy);
        }
    }

    /// Makes the fixed copies; returns the lists right below them that are none.
    fn fill_fixed<S: ElfStorage + ?Sized>(
        &mut self,
        (storage, shape): (&S, &ElfShape),
        fixed: &mut FixedCopies,
        queue: &mut Queue,
        copy: &mut Vec<u32>,
    ) -> Vec<WaitingList> {
        let (mut later, mut is_full) = (Vec::new(), false);
        let least_words = match self.options.policy.fixed {
            Some(FixedLists::Probability { millionths }) => {
                (storage.len() as u64 * u64::from(millionths) / 1_000_000) as u32
            }
            _ => 0,
        };
        while let Some(list) = queue.pop() {
            let MissedList { slot, child, dimension, .. } = list.missed;
            let is_wanted = !is_full
                && match self.options.policy.fixed {
                    Some(FixedLists::Levels(levels)) => dimension < usize::from(levels),
                    Some(FixedLists::Probability { .. }) => list.words >= least_words,
                    None => false,
                };
            if !is_wanted {
                if self.options.policy.replacement.is_some() {
                    later.push(list);
                }
                continue;
            }
            if !copy_list(storage, (child, dimension), shape, copy) {
                continue;
            }
            let Some(first) = fixed.add(copy) else {
                is_full = true;
                later.push(list);
                continue;
            };
            fixed.words[slot] = COPY | (first / UNIT) as u32;
            self.fixed_lists[dimension.min(shape.dimensions() - 1)] += 1;
            let end = (child & !MARK) + list.words;
            queue.push_children(copy, (first, end), |_| (Parent::Fixed, dimension + 1, list.entry));
        }
        later
    }

    fn start_partitions(&mut self) {
        let Some(replacement) = self.options.policy.replacement else { return };
        let left = self.options.bytes_max - 4 * self.fixed.len();
        let count = (left / PARTITION_BYTES_MIN).clamp(1, PARTITIONS);
        let partition = |_| RwLock::new(Partition::new(replacement, left / count));
        self.partitions = (0..count).map(partition).collect();
    }

    /// Makes copies that can be replaced, until there is no more room.
    fn warm<S: ElfStorage + ?Sized>(
        &mut self,
        (storage, shape): (&S, &ElfShape),
        queue: &mut Queue,
        copy: &mut Vec<u32>,
    ) {
        let count = self.partitions.len();
        while let Some(list) = queue.pop() {
            let partition = self.partitions[list.entry as usize % count].get_mut();
            if partition.is_full() {
                continue;
            }
            let incoming = Candidate { child: list.missed.child, words: list.words };
            let made = partition.admit((storage, shape), &self.fixed, (&list.missed, incoming), copy);
            let Some(header) = made else { continue };
            let parent = Parent::Copy { header, offset: list.missed.child };
            let end = (list.missed.child & !MARK) + list.words;
            let dimension = list.missed.dimension + 1;
            queue.push_children(copy, (header, end), |_| (parent, dimension, list.entry));
        }
    }
}
