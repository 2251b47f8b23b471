//! The sorted layout (dissertation 3.2.2, figure 3.2 a), failure-atomic without a log: the free slots are not
//! at the end but form a *gap* that moves.
//!
//! ```text
//!  slots   0 ... gap.start ... gap.end ... capacity
//!          │ lower entries │  free   │ upper entries │      state word: gap.start, gap.end
//! ```
//!
//! In place, shifting entries by one overwrites the only copy of each, so it would need a before or after
//! image (dissertation 3.3.4). Entries that move across the gap are copied into free slots, and one store of
//! the state word makes the copies valid instead. A gap of `g` slots lets `g` entries move for two fences;
//! the inserted entry is written with them. Nodes are mostly not full, so an insert mostly has two fences, as
//! in the unsorted layouts, and moves a third of the entries instead of half.
//!
//! Order of stores:
//! - a move: copies into the gap, flush, fence; state word, flush, fence; repeated while the gap is too
//!   small;
//! - insert: the rest of the move and the entry, flush, fence; then the state word;
//! - erase: the entries between the gap and it, flush, fence; then the state word, which adds its slot to the
//!   gap;
//! - truncate, drop first: the gap moves there; then the state word;
//! - append, prepend: the gap moves to the end or to the start; entries, flush, fence; then the state word.
//!
//! A crash in between leaves the gap somewhere else.

use super::geometry::WORD_OF_STATE;
use super::{FixedKey, Geometry, Layout, Medium, Node, search};
use crate::error::Result;
use crate::points::{GAP_COPIES, STATE_AFTER_COPIES};

/// Sorted entries with a gap; nodes of `BYTES`. Read with binary search.
#[derive(Debug)]
pub struct Sorted<const BYTES: usize>;

const STATE: usize = 0;

/// The free slots: `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gap {
    start: usize,
    end: usize,
}

impl Gap {
    /// Loads the gap from the node, clamped to valid slots.
    #[inline]
    fn load(node: Node<'_>, geometry: &Geometry) -> Gap {
        let word = node.load(STATE);
        let end = (word >> 16 & 0xFFFF) as usize;
        let end = end.min(geometry.capacity);
        Gap { start: ((word & 0xFFFF) as usize).min(end), end }
    }

    fn encode(self) -> u64 {
        debug_assert!(self.start <= self.end && self.end <= 0xFFFF, "{self:?} is a gap");
        self.start as u64 | (self.end as u64) << 16
    }

    #[inline]
    fn width(self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn count(self, geometry: &Geometry) -> usize {
        geometry.capacity - self.width()
    }

    /// Returns the slot of the entry with this position in key order.
    #[inline]
    fn slot(self, place: usize) -> usize {
        if place < self.start { place } else { place + self.width() }
    }

    /// Returns the position in key order of an entry.
    fn place(self, slot: usize) -> usize {
        if slot < self.start { slot } else { slot - self.width() }
    }
}

/// Counts the keys that are not greater: the position of a key, after those that equal it.
#[inline]
fn place_of<K: FixedKey>(node: Node<'_>, geometry: &Geometry, gap: Gap, key: K) -> usize {
    if gap.end < geometry.capacity && node.key::<K>(geometry, gap.end) <= key {
        gap.start + search::rank(node, geometry, gap.end, geometry.capacity - gap.end, key)
    } else {
        search::rank(node, geometry, 0, gap.start, key)
    }
}

fn flush_slots<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    first: usize,
    count: usize,
    medium: &mut Medium<'_, '_>,
) {
    if count > 0 {
        let keys = (geometry.keys + first * K::WORDS, count * K::WORDS);
        medium.flush_both(node, keys, (geometry.values + first, count), GAP_COPIES);
    }
}

/// Copies the `count` entries beside the gap into its other side, towards `place`, and flushes them. Returns
/// the new gap.
fn copy_across<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    gap: Gap,
    place: usize,
    count: usize,
    medium: &mut Medium<'_, '_>,
) -> Gap {
    debug_assert!(
        count <= gap.width() && count <= gap.start.abs_diff(place),
        "the copies of {count} entries overwrite no entry beside {gap:?}, and do not pass {place}"
    );
    if place < gap.start {
        let after = Gap { start: gap.start - count, end: gap.end - count };
        for i in 0..count {
            node.copy_entry::<K>(geometry, after.start + i, after.end + i);
        }
        flush_slots::<K>(node, geometry, after.end, count, medium);
        after
    } else {
        for i in 0..count {
            node.copy_entry::<K>(geometry, gap.end + i, gap.start + i);
        }
        flush_slots::<K>(node, geometry, gap.start, count, medium);
        Gap { start: gap.start + count, end: gap.end + count }
    }
}

/// Moves the gap until it is at most `distance_max` entries away from `place`.
fn approach<K: FixedKey>(
    node: Node<'_>,
    geometry: &Geometry,
    place: usize,
    distance_max: usize,
    medium: &mut Medium<'_, '_>,
) -> Gap {
    let mut gap = Gap::load(node, geometry);
    if gap.width() == 0 {
        // An empty gap may be anywhere.
        return Gap { start: place, end: place };
    }
    debug_assert!(place <= gap.count(geometry), "the position {place} is one in the order of keys");
    while gap.start.abs_diff(place) > distance_max {
        let count = (gap.start.abs_diff(place) - distance_max).min(gap.width());
        let after = copy_across::<K>(node, geometry, gap, place, count, medium);
        medium.fence(STATE_AFTER_COPIES);
        medium.step(node, STATE, after.encode());
        gap = after;
    }
    gap
}

impl<const BYTES: usize> Layout for Sorted<BYTES> {
    const NAME: &'static str = "sorted";
    const NUMBER: u8 = 1;
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
        node.store(STATE, Gap { start: entries.len(), end: geometry.capacity }.encode());
    }

    #[inline]
    fn count<K: FixedKey>(node: Node<'_>) -> usize {
        let geometry = Self::geometry::<K>();
        Gap::load(node, geometry).count(geometry)
    }

    #[inline]
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let slot = Self::floor(node, key)?;
        (node.key::<K>(Self::geometry::<K>(), slot) == key).then_some(slot)
    }

    #[inline]
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
        let geometry = Self::geometry::<K>();
        let gap = Gap::load(node, geometry);
        let place = place_of(node, geometry, gap, key);
        place.checked_sub(1).map(|before| gap.slot(before))
    }

    fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
        let geometry = Self::geometry::<K>();
        let gap = Gap::load(node, geometry);
        for slot in (0..gap.start).chain(gap.end..geometry.capacity) {
            visit(node.key(geometry, slot), node.value(geometry, slot));
        }
    }

    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut super::Entries<K>) {
        Self::iterate(node, |key, value| entries.push((key, value)));
    }

    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let gap = Gap::load(node, geometry);
        let place = place_of(node, geometry, gap, key);
        assert!(gap.width() > 0, "a node that an entry is added to has room");
        // The entries that move last and the entry itself use the gap together.
        let gap = approach::<K>(node, geometry, place, gap.width() - 1, medium);
        let moved = gap.start.abs_diff(place);
        debug_assert!(moved < gap.width(), "{moved} moved entries leave a slot of {gap:?} to the new one");
        let after = copy_across::<K>(node, geometry, gap, place, moved, medium);
        // The entry is written to the side where the gap has been free all along.
        let (slot, after) = if place < gap.start {
            (after.end - 1, Gap { start: after.start, end: after.end - 1 })
        } else {
            (after.start, Gap { start: after.start + 1, end: after.end })
        };
        for i in 0..K::WORDS {
            medium.write(node, geometry.keys + slot * K::WORDS + i, key.word(i));
        }
        medium.write(node, geometry.values + slot, value);
        medium.set(node, STATE, after.encode());
        Ok(())
    }

    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let gap = Gap::load(node, geometry);
        debug_assert!(!(gap.start..gap.end).contains(&slot), "the erased slot {slot} is not in {gap:?}");
        let place = gap.place(slot);
        let after = if gap.width() == 0 {
            Gap { start: place, end: place + 1 }
        } else if place < gap.start {
            // The gap moves next to the entry, whose slot is then added to it.
            let gap = approach::<K>(node, geometry, place + 1, gap.width(), medium);
            let moved = gap.start - (place + 1);
            let after = copy_across::<K>(node, geometry, gap, place + 1, moved, medium);
            Gap { start: after.start - 1, end: after.end }
        } else {
            let gap = approach::<K>(node, geometry, place, gap.width(), medium);
            let after = copy_across::<K>(node, geometry, gap, place, place - gap.start, medium);
            Gap { start: after.start, end: after.end + 1 }
        };
        medium.set(node, STATE, after.encode());
        Ok(())
    }

    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        approach::<K>(node, geometry, keep, 0, medium);
        medium.set(node, STATE, Gap { start: keep, end: geometry.capacity }.encode());
        Ok(())
    }

    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let gap = approach::<K>(node, geometry, Self::count::<K>(node), 0, medium);
        assert!(entries.len() <= gap.width(), "{} entries fit into {gap:?}", entries.len());
        for (i, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, gap.start + i, *key, *value);
        }
        flush_slots::<K>(node, geometry, gap.start, entries.len(), medium);
        medium.set(node, STATE, Gap { start: gap.start + entries.len(), end: gap.end }.encode());
        Ok(())
    }

    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let gap = approach::<K>(node, geometry, 0, 0, medium);
        assert!(entries.len() <= gap.width(), "{} entries fit into {gap:?}", entries.len());
        let first = gap.end - entries.len();
        for (i, (key, value)) in entries.iter().enumerate() {
            node.store_entry(geometry, first + i, *key, *value);
        }
        flush_slots::<K>(node, geometry, first, entries.len(), medium);
        medium.set(node, STATE, Gap { start: 0, end: first }.encode());
        Ok(())
    }

    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
        let geometry = Self::geometry::<K>();
        let gap = approach::<K>(node, geometry, count, 0, medium);
        medium.set(node, STATE, Gap { start: 0, end: gap.end }.encode());
        Ok(())
    }

    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
        let geometry = Self::geometry::<K>();
        let gap = Gap::load(node, geometry);
        if node.load(STATE) != gap.encode() {
            return Err(format!("its state {:#x} has an invalid gap", node.load(STATE)));
        }
        let entries = Self::sorted::<K>(node);
        match entries.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            Some(place) => Err(format!("the keys at positions {place} and {} are not in order", place + 1)),
            None => Ok(()),
        }
    }
}
