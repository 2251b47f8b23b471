//! The FAST layout: sorted entries that shift by one with 8-byte stores (FAST and FAIR, Hwang et al. 2018, as
//! the dissertation describes it in 3.1.1). An entry may be duplicated, side by side; *the right one of equal
//! keys is valid* for every reader.
//!
//! The paper leaves the order of stores within a cache line to the processor. Here every word is ordered: a
//! pool's journal and the crash checker do not rely on lines, and a flush between two stores of one line may
//! persist the second only. Keys have one word: a longer one could be read half shifted.
//!
//! Order of stores:
//! - insert: the entries from its position on move one slot on, as many as fit in the commit, with the new
//!   one: an interrupted insert has no effect, and shifting 20 entries takes four fences instead of 40. Those
//!   further right, if there are too many, move before, each word flushed and fenced before the next: the
//!   last entry is copied behind itself; the number of entries; then from the back, for each entry, value and
//!   key one slot on;
//! - insert into a node with a duplicated entry: its left copy is a free slot, and only the entries from
//!   there to the position move;
//! - insert at the end: entry; commit: the number;
//! - erase: commit: the key becomes its right neighbour's, or the number;
//! - before any other change, a duplicated entry is removed: the entries right of it move one slot back, in
//!   publications that each leave one entry duplicated, the last of which shortens the node;
//! - truncate, append: as erase and insert at the end. Entries in front are not added or dropped in place.
//!
//! A crash leaves at most one duplicated entry. The flush after an erase is the publication's, and so is its
//! order before all later stores: omitting it is a published bug of the original.

use super::geometry::WORD_OF_STATE;
use super::{FixedKey, Geometry, Layout, Medium, Node, search};
use crate::error::Result;
use crate::points::{APPENDED_ENTRIES, ENTRY_COPY, ERASED_KEY, SHIFT_WITH_ITS_INSERT, STATE_AFTER_COPIES};
use entresol_memory::PUBLICATION_WORDS_MAX;
use smallvec::SmallVec;

/// Sorted entries, shifted in place; nodes of `BYTES`. For keys of one word.
#[derive(Debug)]
pub struct Fast<const BYTES: usize>;

const STATE: usize = 0;

/// Returns the number of used slots, clamped to the capacity.
#[inline]
fn slots(node: Node<'_>, geometry: &Geometry) -> usize {
    (node.load(STATE) as usize).min(geometry.capacity)
}

/// Returns the first of two slots with the same key.
fn duplicate<K: FixedKey>(node: Node<'_>, geometry: &Geometry) -> Option<usize> {
    (1..slots(node, geometry))
        .find(|i| node.key::<K>(geometry, i - 1) == node.key::<K>(geometry, *i))
        .map(|i| i - 1)
}

/// Removes a duplicated entry. Readers see no change.
fn remove_duplicate<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    medium: &mut Medium<'_, '_>,
) -> Result<()> {
    let Some(first) = duplicate::<K>(node, geometry) else { return Ok(()) };
    let last = slots(node, geometry) - 1;
    debug_assert!(first < last, "the copy at {first} is left of its entry");
    let mut from = first;
    loop {
        // Afterwards the entry at the end of the moved ones is duplicated, or the node is shorter.
        let to = last.min(from + (PUBLICATION_WORDS_MAX - 1) / 2);
        let moved = (from..to).flat_map(|slot| {
            let (key, value) = node.entry::<K>(geometry, slot + 1);
            [(geometry.keys + slot, key.word(0)), (geometry.values + slot, value)]
        });
        let shorter = (to == last).then_some((STATE, last as u64));
        let words: SmallVec<[(usize, u64); PUBLICATION_WORDS_MAX]> = moved.chain(shorter).collect();
        medium.exchange(node, &words)?;
        if to == last {
            return Ok(());
        }
        from = to;
    }
}

/// Moves an entry to a neighbouring slot with the commit.
fn shift<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    (from, to): (usize, usize),
    medium: &mut Medium<'_, '_>,
) {
    debug_assert!(
        from.abs_diff(to) == 1 && from.max(to) < geometry.capacity,
        "an entry shifts by one slot, from {from} to {to}"
    );
    medium.barrier(SHIFT_WITH_ITS_INSERT);
    medium.set(node, geometry.values + to, node.value(geometry, from));
    medium.set(node, geometry.keys + to, node.key::<K>(geometry, from).word(0));
}

/// Adds an entry with the commit.
fn set_entry<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    slot: usize,
    (key, value): (K, u64),
    medium: &mut Medium<'_, '_>,
) {
    debug_assert!(slot < geometry.capacity, "the slot {slot} is one of {}", geometry.capacity);
    medium.set(node, geometry.values + slot, value);
    medium.set(node, geometry.keys + slot, key.word(0));
}

/// Inserts into a node in which the entry at `free` is duplicated. False if the commit has no room for the
/// moved entries.
fn insert_at_duplicate<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    free: usize,
    (place, entry): (usize, (K, u64)),
    medium: &mut Medium<'_, '_>,
) -> bool {
    let distance = if place <= free { free - place } else { place - 1 - free };
    if 2 * distance + 2 > medium.room() {
        return false;
    }
    if place <= free {
        (place..free).rev().for_each(|slot| shift::<K>(node, geometry, (slot, slot + 1), medium));
        set_entry(node, geometry, place, entry, medium);
    } else {
        (free + 1..place).for_each(|slot| shift::<K>(node, geometry, (slot, slot - 1), medium));
        set_entry(node, geometry, place - 1, entry, medium);
    }
    true
}

impl<const BYTES: usize> Layout for Fast<BYTES> {
    const NAME: &'static str = "fast";
    const NUMBER: u8 = 6;
    const BYTES: usize = BYTES;
    const LINKS_INNER: bool = true;
    const SHIFTS_BLOCKS: bool = false;

    #[inline]
    fn geometry<K: FixedKey>() -> &'static Geometry {
        const {
            assert!(K::WORDS == 1, "a key of several words could be read half shifted");
            &Geometry::new(BYTES, K::WORDS, WORD_OF_STATE)
        }
    }

    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
        let geometry = Self::geometry::<K>();
        assert!(entries.len() <= geometry.capacity, "{} entries fit into the node", entries.len());
        (0..geometry.next).for_each(|word| node.store(word, 0));
        for (slot, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, slot, *key, *value);
        }
        node.store(STATE, entries.len() as u64);
    }

    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        let geometry = Self::geometry::<K>();
        let twins = (1..slots(node, geometry))
            .filter(|i| node.key::<K>(geometry, i - 1) == node.key::<K>(geometry, *i));
        slots(node, geometry) - twins.count()
    }

    fn has_fewer<K: FixedKey>(node: Node<'_>, than: usize) -> bool {
        // At most one entry is duplicated.
        slots(node, Self::geometry::<K>()) <= than && Self::count::<K>(node) < than
    }

    /// Counts a duplicated entry twice: there may be room for one more after all.
    #[inline]
    fn is_full<K: FixedKey>(node: Node<'_>) -> bool {
        let geometry = Self::geometry::<K>();
        slots(node, geometry) == geometry.capacity
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let slot = Self::floor(node, key)?;
        (node.key::<K>(Self::geometry::<K>(), slot) == key).then_some(slot)
    }

    /// Binary search ends at the right one of equal keys, the valid one.
    #[inline]
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        search::rank(node, geometry, 0, slots(node, geometry), key).checked_sub(1)
    }

    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let geometry = Self::geometry::<K>();
        let count = slots(node, geometry);
        for slot in 0..count {
            let key = node.key::<K>(geometry, slot);
            if slot + 1 == count || node.key::<K>(geometry, slot + 1) != key {
                visit(key, node.value(geometry, slot));
            }
        }
    }

    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut super::Entries<K>) {
        Self::iterate(node, |key, value| entries.push((key, value)));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        if let Some(free) = duplicate::<K>(node, geometry) {
            let place = search::rank(node, geometry, 0, slots(node, geometry), key);
            if insert_at_duplicate(node, geometry, free, (place, (key, value)), medium) {
                return Ok(());
            }
            remove_duplicate::<K>(node, geometry, medium)?;
        }
        let count = slots(node, geometry);
        debug_assert!(count < geometry.capacity, "a node that an entry is added to has room");
        let place = search::rank(node, geometry, 0, count, key);
        if place == count {
            medium.write(node, geometry.keys + place, key.word(0));
            medium.write(node, geometry.values + place, value);
            medium.set(node, STATE, count as u64 + 1);
            return Ok(());
        }
        // Value and key of each moved entry, those of the new one, and the number.
        let together = medium.room().saturating_sub(3) / 2;
        let mut end = count;
        if count - place > together {
            node.copy_entry::<K>(geometry, count - 1, count);
            let (key, value) = ((geometry.keys + count, 1), (geometry.values + count, 1));
            medium.flush_both(node, key, value, ENTRY_COPY);
            medium.fence(STATE_AFTER_COPIES);
            medium.step(node, STATE, count as u64 + 1);
            end = place + together;
            for slot in (end..count - 1).rev() {
                medium.step(node, geometry.values + slot + 1, node.value(geometry, slot));
                medium.step(node, geometry.keys + slot + 1, node.load(geometry.keys + slot));
            }
        }
        (place..end).rev().for_each(|slot| shift::<K>(node, geometry, (slot, slot + 1), medium));
        set_entry(node, geometry, place, (key, value), medium);
        if end == count {
            medium.set(node, STATE, count as u64 + 1);
        }
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let key = node.key::<K>(geometry, slot);
        remove_duplicate::<K>(node, geometry, medium)?;
        let slot = Self::find(node, key).expect("removing a duplicate loses no key");
        let count = slots(node, geometry);
        debug_assert!(slot < count, "the erased slot {slot} is one of {count} in use");
        if slot + 1 == count {
            medium.set(node, STATE, count as u64 - 1);
        } else {
            medium.set_at(node, geometry.keys + slot, node.load(geometry.keys + slot + 1), ERASED_KEY);
        }
        Ok(())
    }

    fn replace<K: FixedKey>(
        node: Node<'_>,
        slot: usize,
        (key, value): (K, u64),
        medium: &mut Medium<'_, '_>,
    ) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let before = node.key::<K>(geometry, slot);
        remove_duplicate::<K>(node, geometry, medium)?;
        let slot = Self::find(node, before).expect("removing a duplicate loses no key");
        medium.set(node, geometry.keys + slot, key.word(0));
        medium.set(node, geometry.values + slot, value);
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        remove_duplicate::<K>(node, geometry, medium)?;
        debug_assert!(keep <= slots(node, geometry), "the {keep} entries that stay are there");
        medium.set(node, STATE, keep as u64);
        Ok(())
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        remove_duplicate::<K>(node, geometry, medium)?;
        let count = slots(node, geometry);
        assert!(
            count + entries.len() <= geometry.capacity,
            "{} entries fit behind {count} others",
            entries.len()
        );
        for (i, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, count + i, *key, *value);
        }
        medium.flush(node, geometry.keys + count, entries.len(), APPENDED_ENTRIES);
        medium.flush(node, geometry.values + count, entries.len(), APPENDED_ENTRIES);
        medium.set(node, STATE, (count + entries.len()) as u64);
        Ok(())
    }

    fn prepend<K: FixedKey>(_: Node<'_>, _: &[(K, u64)], _: &mut Medium<'_, '_>) -> Result<()> {
        unreachable!("the caller checks SHIFTS_BLOCKS first")
    }

    fn drop_first<K: FixedKey>(_: Node<'_>, _: usize, _: &mut Medium<'_, '_>) -> Result<()> {
        unreachable!("the caller checks SHIFTS_BLOCKS first")
    }

    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
        let geometry = Self::geometry::<K>();
        if node.load(STATE) > geometry.capacity as u64 {
            return Err(format!("its number of entries, {}, exceeds its capacity", node.load(STATE)));
        }
        let keys: Vec<K> = (0..slots(node, geometry)).map(|slot| node.key(geometry, slot)).collect();
        if let Some(slot) = keys.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(format!("the keys in slots {slot} and {} are not in order", slot + 1));
        }
        if keys.windows(2).filter(|pair| pair[0] == pair[1]).count() > 1 {
            return Err("more than one entry is duplicated".to_string());
        }
        Ok(())
    }
}
