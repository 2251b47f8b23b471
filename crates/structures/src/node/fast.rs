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

use super::shape::WORD_OF_STATE;
use super::{FixedKey, Layout, Medium, Node, Shape, search};
use crate::error::Result;
use entresol_memory::PUBLICATION_WORDS_MAX;
use entresol_memory::mutants::active;
use smallvec::SmallVec;

/// Sorted entries, shifted in place; nodes of `BYTES`. For keys of one word.
#[derive(Debug)]
pub struct Fast<const BYTES: usize>;

const STATE: usize = 0;

/// Returns the number of used slots, clamped to the capacity.
#[inline]
fn slots(node: Node<'_>, shape: &Shape) -> usize {
    (node.load(STATE) as usize).min(shape.capacity)
}

/// Returns the first of two slots with the same key.
fn twin<K: FixedKey>(node: Node<'_>, shape: &Shape) -> Option<usize> {
    (1..slots(node, shape)).find(|i| node.key::<K>(shape, i - 1) == node.key::<K>(shape, *i)).map(|i| i - 1)
}

/// Removes a duplicated entry. Readers see no change.
fn tidy<K: FixedKey>(node: Node<'_>, shape: &Shape, medium: &mut Medium<'_, '_>) -> Result<()> {
    let Some(first) = twin::<K>(node, shape) else { return Ok(()) };
    let last = slots(node, shape) - 1;
    let mut from = first;
    loop {
        // Afterwards the entry at the end of the moved ones is duplicated, or the node is shorter.
        let to = last.min(from + (PUBLICATION_WORDS_MAX - 1) / 2);
        let moved = (from..to).flat_map(|slot| {
            let (key, value) = node.entry::<K>(shape, slot + 1);
            [(shape.keys + slot, key.word(0)), (shape.values + slot, value)]
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
    shape: &Shape,
    (from, to): (usize, usize),
    medium: &mut Medium<'_, '_>,
) {
    if active("fast-shift-before-commit") {
        node.copy_entry::<K>(shape, from, to);
        return medium.flush_both(node, (shape.keys + to, 1), (shape.values + to, 1));
    }
    medium.set(node, shape.values + to, node.value(shape, from));
    medium.set(node, shape.keys + to, node.key::<K>(shape, from).word(0));
}

/// Adds an entry with the commit.
fn set_entry<K: FixedKey>(
    node: Node<'_>,
    shape: &Shape,
    slot: usize,
    (key, value): (K, u64),
    medium: &mut Medium<'_, '_>,
) {
    medium.set(node, shape.values + slot, value);
    medium.set(node, shape.keys + slot, key.word(0));
}

/// Inserts into a node in which the entry at `free` is duplicated. False if the commit has no room for the
/// moved entries.
fn insert_at_twin<K: FixedKey>(
    node: Node<'_>,
    shape: &Shape,
    free: usize,
    (place, entry): (usize, (K, u64)),
    medium: &mut Medium<'_, '_>,
) -> bool {
    let distance = if place <= free { free - place } else { place - 1 - free };
    if 2 * distance + 2 > medium.room() {
        return false;
    }
    if place <= free {
        (place..free).rev().for_each(|slot| shift::<K>(node, shape, (slot, slot + 1), medium));
        set_entry(node, shape, place, entry, medium);
    } else {
        (free + 1..place).for_each(|slot| shift::<K>(node, shape, (slot, slot - 1), medium));
        set_entry(node, shape, place - 1, entry, medium);
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
    fn shape<K: FixedKey>() -> &'static Shape {
        const {
            assert!(K::WORDS == 1, "a key of several words could be read half shifted");
            &Shape::new(BYTES, K::WORDS, WORD_OF_STATE)
        }
    }

    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
        let shape = Self::shape::<K>();
        (0..shape.next).for_each(|word| node.store(word, 0));
        for (slot, (key, value)) in entries.iter().enumerate() {
            node.store_entry(shape, slot, *key, *value);
        }
        node.store(STATE, entries.len() as u64);
    }

    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        let shape = Self::shape::<K>();
        let twins =
            (1..slots(node, shape)).filter(|i| node.key::<K>(shape, i - 1) == node.key::<K>(shape, *i));
        slots(node, shape) - twins.count()
    }

    fn has_fewer<K: FixedKey>(node: Node<'_>, than: usize) -> bool {
        // At most one entry is duplicated.
        slots(node, Self::shape::<K>()) <= than && Self::count::<K>(node) < than
    }

    /// Counts a duplicated entry twice: there may be room for one more after all.
    #[inline]
    fn is_full<K: FixedKey>(node: Node<'_>) -> bool {
        let shape = Self::shape::<K>();
        slots(node, shape) == shape.capacity
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let slot = Self::floor(node, key)?;
        (node.key::<K>(Self::shape::<K>(), slot) == key).then_some(slot)
    }

    /// Binary search ends at the right one of equal keys, the valid one.
    #[inline]
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let shape = Self::shape::<K>();
        search::rank(node, shape, 0, slots(node, shape), key).checked_sub(1)
    }

    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let shape = Self::shape::<K>();
        let count = slots(node, shape);
        for slot in 0..count {
            let key = node.key::<K>(shape, slot);
            if slot + 1 == count || node.key::<K>(shape, slot + 1) != key {
                visit(key, node.value(shape, slot));
            }
        }
    }

    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut super::Entries<K>) {
        Self::iterate(node, |key, value| entries.push((key, value)));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let shape = Self::shape::<K>();
        if let Some(free) = twin::<K>(node, shape) {
            let place = search::rank(node, shape, 0, slots(node, shape), key);
            if insert_at_twin(node, shape, free, (place, (key, value)), medium) {
                return Ok(());
            }
            tidy::<K>(node, shape, medium)?;
        }
        let count = slots(node, shape);
        let place = search::rank(node, shape, 0, count, key);
        if place == count {
            medium.write(node, shape.keys + place, key.word(0));
            medium.write(node, shape.values + place, value);
            medium.set(node, STATE, count as u64 + 1);
            return Ok(());
        }
        // Value and key of each moved entry, those of the new one, and the number.
        let together = medium.room().saturating_sub(3) / 2;
        let mut end = count;
        if count - place > together {
            node.copy_entry::<K>(shape, count - 1, count);
            medium.flush_both(node, (shape.keys + count, 1), (shape.values + count, 1));
            medium.fence();
            medium.step(node, STATE, count as u64 + 1);
            end = place + together;
            for slot in (end..count - 1).rev() {
                medium.step(node, shape.values + slot + 1, node.value(shape, slot));
                medium.step(node, shape.keys + slot + 1, node.load(shape.keys + slot));
            }
        }
        (place..end).rev().for_each(|slot| shift::<K>(node, shape, (slot, slot + 1), medium));
        set_entry(node, shape, place, (key, value), medium);
        if end == count {
            medium.set(node, STATE, count as u64 + 1);
        }
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let shape = Self::shape::<K>();
        let key = node.key::<K>(shape, slot);
        tidy::<K>(node, shape, medium)?;
        let slot = Self::find(node, key).expect("removing a duplicate loses no key");
        let count = slots(node, shape);
        if active("fast-erase-not-flushed") && slot + 1 < count {
            node.store(shape.keys + slot, node.load(shape.keys + slot + 1));
        } else if slot + 1 == count {
            medium.set(node, STATE, count as u64 - 1);
        } else {
            medium.set(node, shape.keys + slot, node.load(shape.keys + slot + 1));
        }
        Ok(())
    }

    fn replace<K: FixedKey>(
        node: Node<'_>,
        slot: usize,
        (key, value): (K, u64),
        medium: &mut Medium<'_, '_>,
    ) -> Result<()> {
        let shape = Self::shape::<K>();
        let before = node.key::<K>(shape, slot);
        tidy::<K>(node, shape, medium)?;
        let slot = Self::find(node, before).expect("removing a duplicate loses no key");
        medium.set(node, shape.keys + slot, key.word(0));
        medium.set(node, shape.values + slot, value);
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        tidy::<K>(node, Self::shape::<K>(), medium)?;
        medium.set(node, STATE, keep as u64);
        Ok(())
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let shape = Self::shape::<K>();
        tidy::<K>(node, shape, medium)?;
        let count = slots(node, shape);
        for (i, (key, value)) in entries.iter().enumerate() {
            node.store_entry(shape, count + i, *key, *value);
        }
        medium.flush(node, shape.keys + count, entries.len());
        medium.flush(node, shape.values + count, entries.len());
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
        let shape = Self::shape::<K>();
        if node.load(STATE) > shape.capacity as u64 {
            return Err(format!("its number of entries, {}, exceeds its capacity", node.load(STATE)));
        }
        let keys: Vec<K> = (0..slots(node, shape)).map(|slot| node.key(shape, slot)).collect();
        if let Some(slot) = keys.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(format!("the keys in slots {slot} and {} are not in order", slot + 1));
        }
        if keys.windows(2).filter(|pair| pair[0] == pair[1]).count() > 1 {
            return Err("more than one entry is duplicated".to_string());
        }
        Ok(())
    }
}
