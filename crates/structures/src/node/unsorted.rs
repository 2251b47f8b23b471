//! The unsorted layout (dissertation 3.2.2, figure 3.2 a): entries in the order of their insertion, and their
//! number.
//!
//! Erasing moves the last entry into the free slot (dissertation E8), which in place would show an entry half
//! moved. The state word therefore also names one slot as a *hole*: naming it is the erase. The next insert
//! fills it; the next erase first moves the last entry there.
//!
//! Order of stores:
//! - insert: entry into the hole or behind the last, flush, fence; then the state word;
//! - erase: if there is a hole, the last entry is copied into it, flush, fence; then the state word, which
//!   shortens the node and names the new hole;
//! - append, prepend: the hole is filled so; entries behind the last, flush, fence; then the state word;
//! - truncate, drop first: entries change places, two by two, in publications of their own (there is no free
//!   slot to order it by, and no bit to leave one out); then the state word.
//!
//! A crash leaves entries in other places.

use super::geometry::WORD_OF_STATE;
use super::{FixedKey, Geometry, Layout, Medium, Node, search};
use crate::error::Result;
use crate::points::{APPENDED_ENTRIES, ENTRY_COPY, STATE_AFTER_COPIES};
use entresol_memory::PUBLICATION_WORDS_MAX;

/// Unsorted entries with a hole; nodes of `BYTES`. Read with linear search.
#[derive(Debug)]
pub struct Unsorted<const BYTES: usize>;

const STATE: usize = 0;

/// Used slots, one of which may be a hole.
#[derive(Clone, Copy)]
struct UsedSlots {
    slots: usize,
    hole: Option<usize>,
}

impl UsedSlots {
    /// Loads it from the node, clamped to the capacity.
    #[inline]
    fn load(node: Node<'_>, geometry: &Geometry) -> UsedSlots {
        let word = node.load(STATE);
        let slots = ((word & 0xFFFF) as usize).min(geometry.capacity);
        let hole = ((word >> 16 & 0xFFFF) as usize).checked_sub(1).filter(|hole| *hole < slots);
        UsedSlots { slots, hole }
    }

    fn encode(self) -> u64 {
        debug_assert!(
            self.slots <= 0xFFFF && self.hole.is_none_or(|hole| hole < self.slots),
            "the hole {:?} is one of {} slots",
            self.hole,
            self.slots
        );
        self.slots as u64 | self.hole.map_or(0, |hole| hole as u64 + 1) << 16
    }

    #[inline]
    fn entries(self) -> usize {
        self.slots - usize::from(self.hole.is_some())
    }

    /// Removes holes at the end.
    fn trimmed(self) -> UsedSlots {
        match self.hole {
            Some(hole) if hole + 1 == self.slots => UsedSlots { slots: self.slots - 1, hole: None },
            _ => self,
        }
    }

    /// Iterates over the slots that hold entries.
    #[inline]
    fn valid(self) -> impl Iterator<Item = usize> {
        let hole = self.hole.unwrap_or(usize::MAX);
        (0..self.slots).filter(move |slot| *slot != hole)
    }
}

fn write_entry<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    slot: usize,
    (key, value): (K, u64),
    medium: &mut Medium<'_, '_>,
) {
    debug_assert!(slot < geometry.capacity, "the slot {slot} is one of {}", geometry.capacity);
    for i in 0..K::WORDS {
        medium.write(node, geometry.keys + slot * K::WORDS + i, key.word(i));
    }
    medium.write(node, geometry.values + slot, value);
}

/// Moves the last entry into the hole, if there is one.
fn fill_hole<K: FixedKey>(node: Node<'_>, geometry: &Geometry, medium: &mut Medium<'_, '_>) -> usize {
    let used = UsedSlots::load(node, geometry);
    let Some(hole) = used.hole else { return used.slots };
    let last = used.slots - 1;
    if hole != last {
        node.copy_entry::<K>(geometry, last, hole);
        let key = (geometry.keys + hole * K::WORDS, K::WORDS);
        medium.flush_both(node, key, (geometry.values + hole, 1), ENTRY_COPY);
        medium.fence(STATE_AFTER_COPIES);
    }
    medium.step(node, STATE, UsedSlots { slots: last, hole: None }.encode());
    last
}

/// Moves the entries with these positions in key order to the front, and keeps only those.
fn keep<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    kept: impl FnOnce(usize) -> std::ops::Range<usize>,
    medium: &mut Medium<'_, '_>,
) -> Result<()> {
    let count = fill_hole::<K>(node, geometry, medium);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|slot| node.key::<K>(geometry, *slot));
    let staying = kept(count);
    debug_assert!(staying.end <= count, "the entries {staying:?} that stay are there");
    let mut stays = vec![false; count];
    order[staying.clone()].iter().for_each(|slot| stays[*slot] = true);
    let leaving = (0..staying.len()).filter(|slot| !stays[*slot]);
    let coming = (staying.len()..count).filter(|slot| stays[*slot]);
    let pairs: Vec<(usize, usize)> = leaving.zip(coming).collect();
    for pairs in pairs.chunks(PUBLICATION_WORDS_MAX / (2 * (K::WORDS + 1))) {
        let mut words = Vec::with_capacity(PUBLICATION_WORDS_MAX);
        for &(a, b) in pairs {
            for (to, from) in [(a, b), (b, a)] {
                let key = node.key::<K>(geometry, from);
                words.extend((0..K::WORDS).map(|i| (geometry.keys + to * K::WORDS + i, key.word(i))));
                words.push((geometry.values + to, node.value(geometry, from)));
            }
        }
        medium.exchange(node, &words)?;
    }
    medium.set(node, STATE, UsedSlots { slots: staying.len(), hole: None }.encode());
    Ok(())
}

impl<const BYTES: usize> Layout for Unsorted<BYTES> {
    const NAME: &'static str = "unsorted";
    const NUMBER: u8 = 2;
    const BYTES: usize = BYTES;

    #[inline]
    fn geometry<K: FixedKey>() -> &'static Geometry {
        const { &Geometry::new(BYTES, K::WORDS, WORD_OF_STATE) }
    }

    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
        let geometry = Self::geometry::<K>();
        assert!(entries.len() <= geometry.capacity, "{} entries fit into the node", entries.len());
        (0..geometry.next).for_each(|word| node.store(word, 0));
        for (slot, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, slot, *key, *value);
        }
        node.store(STATE, UsedSlots { slots: entries.len(), hole: None }.encode());
    }

    #[inline]
    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        UsedSlots::load(node, Self::geometry::<K>()).entries()
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        let used = UsedSlots::load(node, geometry);
        (0..used.slots).step_by(64).find_map(|first| {
            let in_use = (used.slots - first).min(64);
            let bits = if in_use == 64 { u64::MAX } else { (1 << in_use) - 1 };
            let hole = used.hole.and_then(|hole| hole.checked_sub(first)).filter(|hole| *hole < 64);
            search::find_valid(node, geometry, first, bits & !hole.map_or(0, |hole| 1 << hole), key)
        })
    }

    fn floor<K: FixedKey>(node: Node<'_>, wanted: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        let keys = UsedSlots::load(node, geometry).valid().map(|slot| (node.key::<K>(geometry, slot), slot));
        keys.filter(|(key, _)| *key <= wanted).max_by_key(|(key, _)| *key).map(|(_, slot)| slot)
    }

    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let geometry = Self::geometry::<K>();
        UsedSlots::load(node, geometry)
            .valid()
            .for_each(|slot| visit(node.key(geometry, slot), node.value(geometry, slot)));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let used = UsedSlots::load(node, geometry);
        let (slot, after) = match used.hole {
            Some(hole) => (hole, UsedSlots { hole: None, ..used }),
            None => (used.slots, UsedSlots { slots: used.slots + 1, hole: None }),
        };
        write_entry(node, geometry, slot, (key, value), medium);
        medium.set(node, STATE, after.encode());
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let used = UsedSlots::load(node, geometry);
        debug_assert!(
            slot < used.slots && used.hole != Some(slot),
            "the erased slot {slot} holds one of the entries in {} slots",
            used.slots
        );
        let last = used.slots.saturating_sub(1);
        let after = match used.hole {
            None => UsedSlots { slots: used.slots, hole: Some(slot) }.trimmed(),
            // The hole is the new last slot, or not the last: dropping the last leaves it as it is.
            Some(hole) if slot == last => UsedSlots { slots: last, hole: Some(hole) }.trimmed(),
            Some(hole) => {
                write_entry::<K>(node, geometry, hole, node.entry(geometry, last), medium);
                UsedSlots { slots: last, hole: Some(slot) }.trimmed()
            }
        };
        medium.set(node, STATE, after.encode());
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        keep::<K>(node, Self::geometry::<K>(), |_| 0..count, medium)
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let count = fill_hole::<K>(node, geometry, medium);
        assert!(
            count + entries.len() <= geometry.capacity,
            "{} entries fit behind {count} others",
            entries.len()
        );
        for (i, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, count + i, *key, *value);
        }
        let keys = (geometry.keys + count * K::WORDS, entries.len() * K::WORDS);
        medium.flush(node, keys.0, keys.1, APPENDED_ENTRIES);
        medium.flush(node, geometry.values + count, entries.len(), APPENDED_ENTRIES);
        medium.set(node, STATE, UsedSlots { slots: count + entries.len(), hole: None }.encode());
        Ok(())
    }

    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        Self::append(node, entries, medium)
    }

    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        keep::<K>(node, Self::geometry::<K>(), |all| count..all, medium)
    }

    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
        let geometry = Self::geometry::<K>();
        let used = UsedSlots::load(node, geometry);
        if node.load(STATE) != used.encode() {
            return Err(format!("its state {:#x} has slots beyond its capacity", node.load(STATE)));
        }
        let entries = Self::sorted::<K>(node);
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!("the key {:?} is duplicated", pair[0].0)),
            None => Ok(()),
        }
    }
}
