//! The indirection layout (wB+-tree; dissertation 3.2.2, figure 3.2 c, algorithms 3, 4): entries in any order, a
//! bitmap, and an array of their slot numbers in key order, a byte each, the first of which is their number.
//!
//! The bitmap has one bit more, which says that the slot array is valid. Without it the bitmap alone counts, and
//! searches are linear; whoever changes the node next makes the array anew.
//!
//! Order of stores:
//! - insert: validity bit cleared, flush, fence; entry and slot array, flush, fence; then the entry's bit together with
//!   the validity bit (one word in nodes of up to 63 entries);
//! - erase, truncate, drop first: validity bit cleared, flush, fence; slot array, flush, fence; then the bits;
//! - append, prepend: as insert, with several entries.
//!
//! A crash leaves the entries before or after the commit, perhaps without the validity bit.

use super::bits::{self, Map};
use super::shape::Front;
use super::{FixedKey, Layout, Medium, Node, Shape, search};
use crate::error::Result;
use smallvec::SmallVec;

/// Unsorted entries with a sorted slot array; nodes of `BYTES`. Read with binary search through the indirection.
#[derive(Debug)]
pub struct Indirection<const BYTES: usize>;

const FRONT: Front = Front { bit_per_entry: true, further_bits: 1, byte_per_entry: true, further_bytes: 1 };

/// Slot numbers in key order, outside of the node.
type Slots = SmallVec<[u8; 64]>;

/// The word with the validity bit, and the bit: behind those of the slots.
const fn validity(shape: &Shape) -> (usize, u64) {
    (shape.capacity / 64, 1 << (shape.capacity % 64))
}

#[inline]
fn is_valid(node: Node<'_>, shape: &Shape) -> bool {
    let (word, bit) = validity(shape);
    node.load(word) & bit != 0
}

/// A byte of the slot array.
#[inline]
fn array_byte(node: Node<'_>, shape: &Shape, index: usize) -> usize {
    (node.load(shape.bytes + index / 8) >> (index % 8 * 8) & 0xFF) as usize
}

/// Entries by the slot array.
#[inline]
fn array_count(node: Node<'_>, shape: &Shape) -> usize {
    array_byte(node, shape, 0).min(shape.capacity)
}

/// The slot of the entry with this place in key order, by the slot array.
#[inline]
fn array_slot(node: Node<'_>, shape: &Shape, place: usize) -> usize {
    array_byte(node, shape, place + 1).min(shape.capacity - 1)
}

/// The slots in key order, by the array if it is valid.
fn slots<K: FixedKey>(node: Node<'_>, shape: &Shape) -> Slots {
    if is_valid(node, shape) {
        (0..array_count(node, shape)).map(|place| array_slot(node, shape, place) as u8).collect()
    } else {
        bits::sorted_slots::<K>(node, shape).into_iter().map(|(_, slot)| slot as u8).collect()
    }
}

/// Clears the validity bit, before the slot array or an entry changes.
fn invalidate(node: Node<'_>, shape: &Shape, medium: &mut Medium<'_, '_>) {
    let (word, bit) = validity(shape);
    if node.load(word) & bit != 0 {
        medium.step(node, word, node.load(word) & !bit);
    }
}

/// The words of a slot array.
fn array_words(slots: &[u8], shape: &Shape) -> impl Iterator<Item = u64> {
    let bytes = [slots.len() as u8].into_iter().chain(slots.iter().copied());
    let mut words = [0u64; 33];
    for (i, byte) in bytes.enumerate() {
        words[i / 8] |= u64::from(byte) << (i % 8 * 8);
    }
    words.into_iter().take(shape.byte_words)
}

/// Writes the slot array and commits the bitmap that belongs to it.
fn commit(node: Node<'_>, shape: &Shape, slots: &[u8], medium: &mut Medium<'_, '_>) {
    for (i, word) in array_words(slots, shape).enumerate() {
        if node.load(shape.bytes + i) != word {
            medium.write(node, shape.bytes + i, word);
        }
    }
    let map = Map::of(slots.iter().map(|slot| usize::from(*slot)));
    let (validity_word, bit) = validity(shape);
    for word in 0..shape.state_words {
        let after = map.word(word) | if word == validity_word { bit } else { 0 };
        if node.load(word) != after {
            medium.set(node, word, after);
        }
    }
}

impl<const BYTES: usize> Indirection<BYTES> {
    /// Adds sorted entries at a place in key order.
    fn add<K: FixedKey>(node: Node<'_>, place: usize, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) {
        let shape = Self::shape::<K>();
        let mut slots = slots::<K>(node, shape);
        let mut map = Map::of(slots.iter().map(|slot| usize::from(*slot)));
        invalidate(node, shape, medium);
        for (i, (key, value)) in entries.iter().enumerate() {
            let slot = map.free_slot(shape).expect("the caller has seen that there is room");
            map.insert(slot);
            slots.insert(place + i, slot as u8);
            for i in 0..K::WORDS {
                medium.write(node, shape.keys + slot * K::WORDS + i, key.word(i));
            }
            medium.write(node, shape.values + slot, *value);
        }
        commit(node, shape, &slots, medium);
    }

    /// Keeps the entries with these places in key order.
    fn keep<K: FixedKey>(node: Node<'_>, kept: impl Fn(usize) -> bool, medium: &mut Medium<'_, '_>) {
        let shape = Self::shape::<K>();
        let slots = slots::<K>(node, shape);
        let slots: Slots =
            slots.into_iter().enumerate().filter(|(i, _)| kept(*i)).map(|(_, slot)| slot).collect();
        invalidate(node, shape, medium);
        commit(node, shape, &slots, medium);
    }
}

impl<const BYTES: usize> Layout for Indirection<BYTES> {
    const NAME: &'static str = "indirection";
    const NUMBER: u8 = 4;
    const BYTES: usize = BYTES;

    #[inline]
    fn shape<K: FixedKey>() -> &'static Shape {
        const { &Shape::new(BYTES, K::WORDS, FRONT) }
    }

    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
        let shape = Self::shape::<K>();
        (0..shape.next).for_each(|word| node.store(word, 0));
        for (slot, (key, value)) in entries.iter().enumerate() {
            node.store_entry(shape, slot, *key, *value);
        }
        commit(node, shape, &(0..entries.len() as u8).collect::<Slots>(), &mut Medium::Dram);
    }

    #[inline]
    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        bits::count(node, Self::shape::<K>())
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let slot = Self::floor(node, key)?;
        (node.key::<K>(Self::shape::<K>(), slot) == key).then_some(slot)
    }

    #[inline]
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let shape = Self::shape::<K>();
        if !is_valid(node, shape) {
            return bits::floor(node, shape, key);
        }
        let key_at = |place| node.key::<K>(shape, array_slot(node, shape, place));
        let place = search::binary(array_count(node, shape), key, key_at);
        place.checked_sub(1).map(|before| array_slot(node, shape, before))
    }

    /// By the bitmap: faster than by the slot array (dissertation E3).
    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let shape = Self::shape::<K>();
        bits::for_each(node, shape, |slot| visit(node.key(shape, slot), node.value(shape, slot)));
    }

    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut super::Entries<K>) {
        let shape = Self::shape::<K>();
        let slots = slots::<K>(node, shape);
        entries.extend(slots.into_iter().map(|slot| node.entry(shape, usize::from(slot))));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let shape = Self::shape::<K>();
        let slots = slots::<K>(node, shape);
        let place = search::binary(slots.len(), key, |i| node.key(shape, usize::from(slots[i])));
        Self::add(node, place, &[(key, value)], medium);
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let shape = Self::shape::<K>();
        let mut slots = slots::<K>(node, shape);
        slots.retain(|other| usize::from(*other) != slot);
        invalidate(node, shape, medium);
        commit(node, shape, &slots, medium);
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::keep::<K>(node, |place| place < keep, medium);
        Ok(())
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::add(node, Self::count::<K>(node), entries, medium);
        Ok(())
    }

    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::add(node, 0, entries, medium);
        Ok(())
    }

    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::keep::<K>(node, |place| place >= count, medium);
        Ok(())
    }

    fn copy_upper<K: FixedKey>(from: Node<'_>, keep: usize, fresh: Node<'_>) -> bool {
        let shape = Self::shape::<K>();
        (0..shape.words).for_each(|word| fresh.store(word, from.load(word)));
        Self::keep::<K>(fresh, |place| place >= keep, &mut Medium::Dram);
        true
    }

    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
        let shape = Self::shape::<K>();
        let (word, bit) = validity(shape);
        bits::check::<K>(node, shape, if word + 1 == shape.state_words { bit } else { 0 })?;
        if !is_valid(node, shape) {
            return Ok(());
        }
        let by_array = slots::<K>(node, shape);
        let by_bits: Slots =
            bits::sorted_slots::<K>(node, shape).into_iter().map(|(_, slot)| slot as u8).collect();
        if by_array != by_bits {
            return Err(format!("its slot array says {by_array:?}, its bits and keys {by_bits:?}"));
        }
        Ok(())
    }
}
