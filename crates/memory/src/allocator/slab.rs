//! Free objects of slabs, in DRAM: those free in the persistent bitmaps, except the reserved ones, those
//! cached by threads, and freed ones that wait for an epoch.
//!
//! Only slabs with some, but not all, objects free have a map; a full slab needs none, and an empty one is a
//! number in a set. Objects are taken from the lowest slab first, so that slabs far back become empty.
//!
//! Memory: 144 bytes per partly free slab, about 0.2% of it.

use super::list_memory::List;
use super::size_class::{CLASSES, class_bytes};
use crate::layout::{BITMAP_WORDS, CHUNK_BYTES};
use crate::offset::PoolOffset;
use std::collections::{BTreeMap, BTreeSet};

/// Number of objects of a slab of a class.
pub(super) const fn objects_of(class: usize) -> u32 {
    (CHUNK_BYTES / class_bytes(class)) as u32
}

/// Bits of a slab's bitmap that represent objects.
pub(super) fn object_bits(class: usize) -> [u64; BITMAP_WORDS] {
    let mut bits = [0; BITMAP_WORDS];
    for (i, word) in bits.iter_mut().enumerate() {
        let count = objects_of(class).saturating_sub(i as u32 * 64).min(64);
        *word = if count == 64 { u64::MAX } else { (1 << count) - 1 };
    }
    bits
}

/// Free objects of one slab.
struct Slab {
    free: [u64; BITMAP_WORDS],
    free_count: u32,
}

impl Slab {
    /// Takes the first free objects until `into` has `most`.
    fn take(&mut self, into: &mut Vec<PoolOffset>, most: usize, offset_of: impl Fn(u64) -> PoolOffset) {
        debug_assert_eq!(self.free_count, self.counted(), "the number of free objects is that of set bits");
        for (i, word) in self.free.iter_mut().enumerate() {
            while *word != 0 {
                if into.len() == most {
                    return;
                }
                into.push(offset_of(i as u64 * 64 + u64::from(word.trailing_zeros())));
                *word &= *word - 1;
                self.free_count -= 1;
            }
        }
    }

    fn counted(&self) -> u32 {
        self.free.iter().map(|word| word.count_ones()).sum()
    }

    fn free_object(&mut self, index: u64) {
        assert!(index < BITMAP_WORDS as u64 * 64, "a slab has no object {index}");
        let (word, bit) = ((index / 64) as usize, 1u64 << (index % 64));
        assert!(self.free[word] & bit == 0, "object {index} of a slab was freed twice");
        self.free[word] |= bit;
        self.free_count += 1;
    }
}

/// Bytes of a map in `partial`, and of a number in `empty`, with their share of the tree's nodes.
const PARTIAL_BYTES: u64 = 144;
const EMPTY_BYTES: u64 = 16;

/// Slabs of one size class, by chunk number.
pub(super) struct ClassSlabs {
    class: usize,
    partial: BTreeMap<u64, Slab>,
    empty: BTreeSet<u64>,
    slabs: u64,
    /// Number of free objects in `partial` and `empty`.
    free: u64,
}

impl List for ClassSlabs {
    fn memory_bytes(&self) -> u64 {
        self.partial.len() as u64 * PARTIAL_BYTES + self.empty.len() as u64 * EMPTY_BYTES
    }
}

impl ClassSlabs {
    pub(super) fn new(class: usize) -> ClassSlabs {
        assert!(class < CLASSES, "there are {CLASSES} size classes, none is number {class}");
        ClassSlabs { class, partial: BTreeMap::new(), empty: BTreeSet::new(), slabs: 0, free: 0 }
    }

    /// Number of the class.
    pub(super) fn class(&self) -> usize {
        self.class
    }

    /// Slabs with some free objects and their number, the last chunk first.
    pub(super) fn partial_from_the_back(&self) -> impl Iterator<Item = (u64, u64)> {
        self.partial.iter().rev().map(|(&chunk, slab)| (chunk, u64::from(slab.free_count)))
    }

    /// Number of slabs, and number of their free objects.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.slabs, self.free)
    }

    /// Number of empty slabs.
    pub(super) fn empty_count(&self) -> u64 {
        self.empty.len() as u64
    }

    /// Adds a new slab, all of it free.
    pub(super) fn add_empty(&mut self, chunk: u64) {
        assert!(
            self.empty.insert(chunk) && !self.partial.contains_key(&chunk),
            "chunk {chunk} is a slab twice"
        );
        self.slabs += 1;
        self.free += u64::from(objects_of(self.class));
    }

    /// Adds a slab with these objects free.
    pub(super) fn add(&mut self, chunk: u64, free: [u64; BITMAP_WORDS]) {
        debug_assert!(
            free.iter().zip(object_bits(self.class)).all(|(free, objects)| free & !objects == 0),
            "free bits of chunk {chunk} stand for objects"
        );
        let free_count: u32 = free.iter().map(|word| word.count_ones()).sum();
        if free_count == objects_of(self.class) {
            return self.add_empty(chunk);
        }
        self.slabs += 1;
        self.free += u64::from(free_count);
        if free_count > 0 {
            let before = self.partial.insert(chunk, Slab { free, free_count });
            assert!(before.is_none(), "chunk {chunk} is a slab twice");
        }
    }

    /// Takes up to `most` objects, of partly used slabs first, in address order within a slab; none only if
    /// none is free.
    pub(super) fn take(&mut self, into: &mut Vec<PoolOffset>, most: usize) {
        debug_assert!(into.len() <= most, "{} objects were taken, {most} at most are wanted", into.len());
        let bytes = class_bytes(self.class);
        let before = into.len();
        while into.len() < most {
            if self.partial.is_empty() {
                let Some(chunk) = self.empty.pop_first() else { break };
                let slab = Slab { free: object_bits(self.class), free_count: objects_of(self.class) };
                self.partial.insert(chunk, slab);
            }
            let Some(mut first) = self.partial.first_entry() else { break };
            let start = PoolOffset::of_chunk(*first.key());
            first.get_mut().take(into, most, |index| start.plus(index * bytes));
            if first.get().free_count == 0 {
                first.remove();
            }
        }
        let taken = (into.len() - before) as u64;
        assert!(taken <= self.free, "{taken} objects were taken of {} free ones", self.free);
        self.free -= taken;
        debug_assert!(
            into[before..].iter().all(|offset| offset.within_chunk().is_multiple_of(bytes)),
            "objects of a slab begin at multiples of {bytes}"
        );
    }

    /// Makes an object free again.
    pub(super) fn free_object(&mut self, offset: PoolOffset) {
        let chunk = offset.chunk();
        let index = offset.within_chunk() / class_bytes(self.class);
        assert!(
            offset.within_chunk().is_multiple_of(class_bytes(self.class)),
            "no object of {} bytes begins at {offset:#x}",
            class_bytes(self.class)
        );
        assert!(index < u64::from(objects_of(self.class)), "{offset:#x} lies behind the objects of its slab");
        assert!(!self.empty.contains(&chunk), "the object at {offset:#x} was freed twice");
        let none_free = || Slab { free: [0; BITMAP_WORDS], free_count: 0 };
        let slab = self.partial.entry(chunk).or_insert_with(none_free);
        slab.free_object(index);
        self.free += 1;
        if slab.free_count == objects_of(self.class) {
            self.partial.remove(&chunk);
            self.empty.insert(chunk);
        }
    }

    /// Removes empty slabs, the last first, until `keep` are left.
    pub(super) fn take_empty(&mut self, keep: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        while self.empty_count() > keep {
            taken.extend(self.empty.pop_last());
        }
        assert!(taken.len() as u64 <= self.slabs, "no more slabs are removed than there are");
        self.slabs -= taken.len() as u64;
        self.free -= taken.len() as u64 * u64::from(objects_of(self.class));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_in_address_order_and_the_last_back_empties_the_slab() {
        let class = 3;
        let mut slabs = ClassSlabs::new(class);
        slabs.add_empty(9);
        slabs.add_empty(2);
        let mut taken = Vec::new();
        slabs.take(&mut taken, 300);
        let expected = (0..256).map(|i| (2, i)).chain((0..44).map(|i| (9, i)));
        let expected = expected.map(|(chunk, i)| PoolOffset::of_chunk(chunk).plus(i * 256));
        assert_eq!(taken, expected.collect::<Vec<_>>());
        assert_eq!((slabs.counts(), slabs.empty_count()), ((2, 212), 0));
        taken.iter().for_each(|offset| slabs.free_object(*offset));
        assert_eq!((slabs.counts(), slabs.empty_count()), ((2, 512), 2));
        assert_eq!(slabs.take_empty(1), [9]);
        assert_eq!(slabs.counts(), (1, 256));
    }

    #[test]
    fn every_class_counts_the_bits_that_stand_for_objects() {
        for class in 0..super::super::size_class::CLASSES {
            let bits: u32 = object_bits(class).iter().map(|word| word.count_ones()).sum();
            assert_eq!(bits, objects_of(class));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn an_object_is_not_freed_twice() {
        let mut slabs = ClassSlabs::new(0);
        slabs.add_empty(1);
        let mut taken = Vec::new();
        slabs.take(&mut taken, 1);
        slabs.free_object(taken[0]);
        slabs.free_object(taken[0]);
    }
}
