//! Bitmaps of valid entries, of up to four words.

use super::{FixedKey, Geometry, Medium, Node};

/// Words of the largest node's bitmap.
const MAP_WORDS: usize = 4;

/// A bitmap outside of its node: bit `i` says that slot `i` holds an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Map([u64; MAP_WORDS]);

/// Returns the mask of existing slots in a word of the bitmap.
#[inline]
pub(super) const fn mask(geometry: &Geometry, word: usize) -> u64 {
    let slots = geometry.capacity.saturating_sub(word * 64);
    if slots >= 64 { u64::MAX } else { (1 << slots) - 1 }
}

/// Returns one word of the bitmap.
#[inline]
pub(super) fn map_word(node: Node<'_>, geometry: &Geometry, word: usize) -> u64 {
    node.load(word) & mask(geometry, word)
}

/// Returns the number of valid entries.
#[inline]
pub(super) fn count(node: Node<'_>, geometry: &Geometry) -> usize {
    (0..geometry.state_words).map(|word| map_word(node, geometry, word).count_ones() as usize).sum()
}

/// Visits the slots whose bits are set.
#[inline]
pub(super) fn for_each(node: Node<'_>, geometry: &Geometry, mut visit: impl FnMut(usize)) {
    for word in 0..geometry.state_words {
        let mut bits = map_word(node, geometry, word);
        while bits != 0 {
            visit(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Returns the slot of the greatest key that is not greater.
pub(super) fn floor<K: FixedKey>(node: Node<'_>, geometry: &Geometry, wanted: K) -> Option<usize> {
    let mut best: Option<(K, usize)> = None;
    for_each(node, geometry, |slot| {
        let key = node.key::<K>(geometry, slot);
        if key <= wanted && best.is_none_or(|(greatest, _)| greatest < key) {
            best = Some((key, slot));
        }
    });
    best.map(|(_, slot)| slot)
}

/// Returns entries with their slots, sorted.
pub(super) fn sorted_slots<K: FixedKey>(node: Node<'_>, geometry: &Geometry) -> Vec<(K, usize)> {
    let mut slots = Vec::with_capacity(geometry.capacity);
    for_each(node, geometry, |slot| slots.push((node.key::<K>(geometry, slot), slot)));
    slots.sort_unstable_by_key(|(key, _)| *key);
    slots
}

impl Map {
    pub(super) fn empty() -> Map {
        Map([0; MAP_WORDS])
    }

    pub(super) fn load(node: Node<'_>, geometry: &Geometry) -> Map {
        let mut map = Map::empty();
        for word in 0..geometry.state_words.min(MAP_WORDS) {
            map.0[word] = map_word(node, geometry, word);
        }
        map
    }

    /// Returns the map of these slots.
    pub(super) fn of(slots: impl Iterator<Item = usize>) -> Map {
        let mut map = Map::empty();
        slots.for_each(|slot| map.insert(slot));
        map
    }

    /// Returns true if a slot holds an entry.
    pub(super) fn contains(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if all of its bits are those of slots of the node.
    pub(super) fn is_of(&self, geometry: &Geometry) -> bool {
        (0..MAP_WORDS).all(|word| {
            let allowed = if word < geometry.state_words { mask(geometry, word) } else { 0 };
            self.0[word] & !allowed == 0
        })
    }

    pub(super) fn insert(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.0[slot / 64] &= !(1 << (slot % 64));
    }

    pub(super) fn word(&self, word: usize) -> u64 {
        self.0[word]
    }

    /// Returns the first free slot.
    pub(super) fn free_slot(&self, geometry: &Geometry) -> Option<usize> {
        (0..geometry.state_words).find_map(|word| {
            let free = !self.0[word] & mask(geometry, word);
            (free != 0).then(|| word * 64 + free.trailing_zeros() as usize)
        })
    }

    /// Returns the first free slot from one on, or else the first of all.
    pub(super) fn free_slot_from(&self, geometry: &Geometry, from: usize) -> Option<usize> {
        debug_assert!(from < geometry.capacity, "the preferred slot {from} is one of {}", geometry.capacity);
        let behind = (from / 64..geometry.state_words).find_map(|word| {
            let before = if word == from / 64 { (1 << (from % 64)) - 1 } else { 0 };
            let free = !self.0[word] & mask(geometry, word) & !before;
            (free != 0).then(|| word * 64 + free.trailing_zeros() as usize)
        });
        behind.or_else(|| self.free_slot(geometry))
    }

    /// Commits the differences to the node's map.
    pub(super) fn commit(&self, node: Node<'_>, geometry: &Geometry, medium: &mut Medium<'_, '_>) {
        debug_assert!(self.is_of(geometry), "the committed bits {:x?} are of slots that exist", self.0);
        for word in 0..geometry.state_words {
            if self.0[word] != node.load(word) {
                medium.set(node, word, self.0[word]);
            }
        }
    }

    /// Stores the map into an unreachable node.
    pub(super) fn store(&self, node: Node<'_>, geometry: &Geometry) {
        debug_assert!(self.is_of(geometry), "the stored bits {:x?} are of slots that exist", self.0);
        (0..geometry.state_words).for_each(|word| node.store(word, self.0[word]));
    }
}

/// Verifies the bitmap: an error for bits of slots that do not exist, beside `further`, and for duplicate
/// keys.
pub(super) fn check<K: FixedKey>(node: Node<'_>, geometry: &Geometry, further: u64) -> Result<(), String> {
    for word in 0..geometry.state_words {
        let last = word + 1 == geometry.state_words;
        let allowed = mask(geometry, word) | if last { further } else { 0 };
        if node.load(word) & !allowed != 0 {
            return Err(format!("its bitmap {:#x} has bits of slots that do not exist", node.load(word)));
        }
    }
    let sorted = sorted_slots::<K>(node, geometry);
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(format!("slots {} and {} hold the same key", pair[0].1, pair[1].1)),
        None => Ok(()),
    }
}
