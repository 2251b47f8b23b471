//! The indirection layout (wB+-tree; dissertation 3.2.2, figure 3.2 c, algorithms 3, 4): entries in any
//! order, a bitmap, and an array of their slot numbers in key order, a byte each, the first of which is their
//! number.
//!
//! The bitmap has one bit more, which marks the slot array as valid. Without it only the bitmap is valid, and
//! searches are linear; the next change of the node rebuilds the array.
//!
//! Order of stores:
//! - insert: validity bit cleared, flush, fence; entry and slot array, flush, fence; then the entry's bit
//!   together with the validity bit (one word in nodes of up to 63 entries);
//! - erase, truncate, drop first: validity bit cleared, flush, fence; slot array, flush, fence; then the
//!   bits;
//! - append, prepend: as insert, with several entries.
//!
//! A crash leaves the entries before or after the commit, perhaps without the validity bit.

use super::bits::{self, Map};
use super::geometry::Front;
use super::{FixedKey, Geometry, Layout, Medium, Node, search};
use crate::error::Result;
use crate::points::INVALID_BEFORE_IT_CHANGES;
use entresol_memory::order;

/// Unsorted entries with a sorted slot array; nodes of `BYTES`. Read by counting smaller keys, or
/// with binary search through the indirection.
#[derive(Debug)]
pub struct Indirection<const BYTES: usize>;

const FRONT: Front = Front { bit_per_entry: true, further_bits: 1, byte_per_entry: true, further_bytes: 1 };

/// Returns the word with the validity bit, and the bit: after those of the slots.
const fn validity(geometry: &Geometry) -> (usize, u64) {
    (geometry.capacity / 64, 1 << (geometry.capacity % 64))
}

#[inline]
fn is_valid(node: Node<'_>, geometry: &Geometry) -> bool {
    let (word, bit) = validity(geometry);
    node.load(word) & bit != 0
}

/// Returns a byte of the slot array.
#[inline]
fn array_byte(node: Node<'_>, geometry: &Geometry, index: usize) -> usize {
    (node.load(geometry.bytes + index / 8) >> (index % 8 * 8) & 0xFF) as usize
}

/// Returns the number of entries, by the slot array.
#[inline]
fn array_count(node: Node<'_>, geometry: &Geometry) -> usize {
    array_byte(node, geometry, 0).min(geometry.capacity)
}

/// Returns the slot of the entry with this position in key order, by the slot array.
#[inline]
fn array_slot(node: Node<'_>, geometry: &Geometry, place: usize) -> usize {
    array_byte(node, geometry, place + 1).min(geometry.capacity - 1)
}

/// Bytes of the largest node's slot array.
const ARRAY_BYTES: usize = 264;

/// A slot array outside of the node: slot numbers in key order, and their number.
#[derive(PartialEq, Eq)]
struct Slots {
    bytes: [u8; ARRAY_BYTES],
}

impl Slots {
    fn empty() -> Slots {
        Slots { bytes: [0; ARRAY_BYTES] }
    }

    /// Loads the slots of a node's entries, by its array if that is valid, else by its bits and keys.
    fn load<K: FixedKey>(node: Node<'_>, geometry: &Geometry) -> Slots {
        let mut slots = Slots::empty();
        if is_valid(node, geometry) {
            for (i, bytes) in slots.bytes.chunks_exact_mut(8).take(geometry.byte_words).enumerate() {
                bytes.copy_from_slice(&node.load(geometry.bytes + i).to_le_bytes());
            }
            slots.bytes[0] = slots.bytes[0].min(geometry.capacity as u8);
            // Damage must not lead outside of the node.
            let last = geometry.capacity as u8 - 1;
            slots.bytes[1..].iter_mut().for_each(|slot| *slot = (*slot).min(last));
        } else {
            bits::sorted_slots::<K>(node, geometry).iter().for_each(|(_, slot)| slots.push(*slot));
        }
        slots
    }

    fn len(&self) -> usize {
        usize::from(self.bytes[0])
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bytes[1..=self.len()].iter().map(|slot| usize::from(*slot))
    }

    fn get(&self, place: usize) -> usize {
        usize::from(self.bytes[1 + place])
    }

    fn push(&mut self, slot: usize) {
        self.insert(self.len(), slot);
    }

    fn insert(&mut self, place: usize, slot: usize) {
        debug_assert!(
            place <= self.len() && self.len() < usize::from(u8::MAX) && slot < usize::from(u8::MAX),
            "the slot {slot} fits at {place} among {}",
            self.len()
        );
        let end = 1 + self.len();
        self.bytes.copy_within(1 + place..end, 2 + place);
        self.bytes[1 + place] = slot as u8;
        self.bytes[0] += 1;
    }

    fn remove(&mut self, place: usize) {
        debug_assert!(place < self.len(), "the position {place} is one of {}", self.len());
        let end = 1 + self.len();
        self.bytes.copy_within(2 + place..end, 1 + place);
        self.bytes[0] -= 1;
    }

    /// Returns its words; the bytes after the last slot number are undefined.
    fn words(&self, geometry: &Geometry) -> impl Iterator<Item = u64> {
        self.bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).take(geometry.byte_words)
    }
}

/// Counts the keys that are not greater, by comparing where the processor compares complete lines, else by
/// binary search through the slot array.
#[inline]
fn place_of<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    key: K,
    count: impl Fn() -> usize,
    slot_at: impl Fn(usize) -> usize,
) -> usize {
    let ranks = (0..geometry.state_words).map(|word| {
        search::rank_unordered(node, geometry, word * 64, bits::map_word(node, geometry, word), key)
    });
    let counted: Option<usize> = ranks.sum();
    counted.unwrap_or_else(|| search::binary(count(), key, |place| node.key::<K>(geometry, slot_at(place))))
}

/// Clears the validity bit, before the slot array or an entry changes.
fn invalidate(node: Node<'_>, geometry: &Geometry, medium: &mut Medium<'_, '_>) {
    let (word, bit) = validity(geometry);
    if node.load(word) & bit != 0 {
        order::step(INVALID_BEFORE_IT_CHANGES, || medium.step(node, word, node.load(word) & !bit));
    }
}

/// Writes the slot array and commits the bitmap that belongs to it.
fn commit(node: Node<'_>, geometry: &Geometry, slots: &Slots, map: &Map, medium: &mut Medium<'_, '_>) {
    debug_assert!(map.is_of(geometry), "the committed bits are of slots that exist");
    debug_assert!(slots.iter().all(|slot| slot < geometry.capacity), "the slot array names slots that exist");
    for (i, word) in slots.words(geometry).enumerate() {
        if node.load(geometry.bytes + i) != word {
            medium.write(node, geometry.bytes + i, word);
        }
    }
    let (validity_word, bit) = validity(geometry);
    for word in 0..geometry.state_words {
        let after = map.word(word) | if word == validity_word { bit } else { 0 };
        if node.load(word) != after {
            medium.set(node, word, after);
        }
    }
}

impl<const BYTES: usize> Indirection<BYTES> {
    /// Adds sorted entries at a position in key order.
    fn add<K: FixedKey>(
        node: Node<'_>,
        mut slots: Slots,
        place: usize,
        entries: &[(K, u64)],
        medium: &mut Medium<'_, '_>,
    ) {
        let geometry = Self::geometry::<K>();
        let mut map = Map::load(node, geometry);
        invalidate(node, geometry, medium);
        for (i, (key, value)) in entries.iter().enumerate() {
            let slot = map.free_slot(geometry).expect("the caller has checked that there is room");
            debug_assert!(!map.contains(slot), "the slot {slot} of the new entry is free");
            map.insert(slot);
            slots.insert(place + i, slot);
            for i in 0..K::WORDS {
                medium.write(node, geometry.keys + slot * K::WORDS + i, key.word(i));
            }
            medium.write(node, geometry.values + slot, *value);
        }
        commit(node, geometry, &slots, &map, medium);
    }

    /// Keeps only the entries with these positions in key order.
    fn keep<K: FixedKey>(node: Node<'_>, kept: impl Fn(usize) -> bool, medium: &mut Medium<'_, '_>) {
        let geometry = Self::geometry::<K>();
        let mut slots = Slots::empty();
        let before = Slots::load::<K>(node, geometry);
        before.iter().enumerate().filter(|(i, _)| kept(*i)).for_each(|(_, slot)| slots.push(slot));
        invalidate(node, geometry, medium);
        commit(node, geometry, &slots, &Map::of(slots.iter()), medium);
    }
}

impl<const BYTES: usize> Layout for Indirection<BYTES> {
    const NAME: &'static str = "indirection";
    const NUMBER: u8 = 4;
    const BYTES: usize = BYTES;

    #[inline]
    fn geometry<K: FixedKey>() -> &'static Geometry {
        const { &Geometry::new(BYTES, K::WORDS, FRONT) }
    }

    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
        let geometry = Self::geometry::<K>();
        assert!(entries.len() <= geometry.capacity, "{} entries fit into the node", entries.len());
        (0..geometry.next).for_each(|word| node.store(word, 0));
        for (slot, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, slot, *key, *value);
        }
        let mut slots = Slots::empty();
        (0..entries.len()).for_each(|slot| slots.push(slot));
        commit(node, geometry, &slots, &Map::of(0..entries.len()), &mut Medium::Dram);
    }

    #[inline]
    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        bits::count(node, Self::geometry::<K>())
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        if search::compares_lines::<K>() {
            return (0..geometry.state_words).find_map(|word| {
                search::find_valid(node, geometry, word * 64, bits::map_word(node, geometry, word), key)
            });
        }
        let slot = Self::floor(node, key)?;
        (node.key::<K>(geometry, slot) == key).then_some(slot)
    }

    #[inline]
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        if !is_valid(node, geometry) {
            return bits::floor(node, geometry, key);
        }
        let slot_at = |place| array_slot(node, geometry, place);
        let place = place_of(node, geometry, key, || array_count(node, geometry), slot_at);
        place.checked_sub(1).map(|before| array_slot(node, geometry, before))
    }

    /// By the bitmap: faster than by the slot array (dissertation E3).
    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let geometry = Self::geometry::<K>();
        bits::for_each(node, geometry, |slot| visit(node.key(geometry, slot), node.value(geometry, slot)));
    }

    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut super::Entries<K>) {
        let geometry = Self::geometry::<K>();
        entries.extend(Slots::load::<K>(node, geometry).iter().map(|slot| node.entry(geometry, slot)));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let slots = Slots::load::<K>(node, geometry);
        let place = place_of(node, geometry, key, || slots.len(), |place| slots.get(place));
        Self::add(node, slots, place, &[(key, value)], medium);
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let mut slots = Slots::load::<K>(node, geometry);
        let place = slots.iter().position(|other| other == slot);
        if let Some(place) = place {
            slots.remove(place);
        }
        let mut map = Map::load(node, geometry);
        debug_assert!(map.contains(slot), "the erased slot {slot} holds an entry");
        map.remove(slot);
        invalidate(node, geometry, medium);
        commit(node, geometry, &slots, &map, medium);
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::keep::<K>(node, |place| place < keep, medium);
        Ok(())
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let slots = Slots::load::<K>(node, Self::geometry::<K>());
        let end = slots.len();
        Self::add(node, slots, end, entries, medium);
        Ok(())
    }

    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let slots = Slots::load::<K>(node, Self::geometry::<K>());
        Self::add(node, slots, 0, entries, medium);
        Ok(())
    }

    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::keep::<K>(node, |place| place >= count, medium);
        Ok(())
    }

    fn copy_upper<K: FixedKey>(from: Node<'_>, keep: usize, fresh: Node<'_>) -> bool {
        let geometry = Self::geometry::<K>();
        debug_assert!(keep <= bits::count(from, geometry), "the {keep} entries that are left out are there");
        (0..geometry.words).for_each(|word| fresh.store(word, from.load(word)));
        Self::keep::<K>(fresh, |place| place >= keep, &mut Medium::Dram);
        true
    }

    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
        let geometry = Self::geometry::<K>();
        let (word, bit) = validity(geometry);
        bits::check::<K>(node, geometry, if word + 1 == geometry.state_words { bit } else { 0 })?;
        if !is_valid(node, geometry) {
            return Ok(());
        }
        let by_array: Vec<usize> = Slots::load::<K>(node, geometry).iter().collect();
        let by_bits: Vec<usize> =
            bits::sorted_slots::<K>(node, geometry).into_iter().map(|(_, slot)| slot).collect();
        if by_array != by_bits {
            return Err(format!("its slot array {by_array:?} differs from its bits and keys {by_bits:?}"));
        }
        Ok(())
    }
}
