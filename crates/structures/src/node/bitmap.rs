//! The bitmap and the hashing layout (dissertation 3.2.2, figure 3.2 b and d): entries in any order, a bit
//! for each valid one; hashing adds a byte of hash for each, so that a search reads few keys (FPTree,
//! algorithms 1, 2).
//!
//! Order of stores:
//! - insert: entry (and hash), flush, fence; then the bit;
//! - erase, truncate, drop first: bits;
//! - append, prepend: entries, flush, fence; then the bits.
//!
//! A crash leaves an entry complete or none.

use super::bits::{self, Map};
use super::geometry::{Front, WORD_OF_STATE};
use super::{FixedKey, Geometry, Layout, Medium, Node, search};
use crate::error::Result;
use crate::points::{APPENDED_ENTRIES, APPENDED_FINGERPRINTS};
use crate::simd::matching_bytes;

/// Unsorted entries with a bitmap; nodes of `BYTES`.
#[derive(Debug)]
pub struct Bitmap<const BYTES: usize>;

/// Unsorted entries with a bitmap and fingerprints; nodes of `BYTES`.
#[derive(Debug)]
pub struct Hashing<const BYTES: usize>;

const BITS: Front = Front { bit_per_entry: true, ..WORD_OF_STATE };
const BITS_AND_BYTES: Front = Front { bit_per_entry: true, byte_per_entry: true, ..WORD_OF_STATE };

/// Returns the word after a change of a slot's fingerprint.
fn with_fingerprint(word: u64, slot: usize, fingerprint: u8) -> u64 {
    let shift = slot % 8 * 8;
    word & !(0xFF << shift) | u64::from(fingerprint) << shift
}

/// Returns the *home* slot of a key: the first of those whose keys share a cache line with the one that its
/// fingerprint names. An entry is written to the first free slot from there on, if there is one. A search
/// prefetches the home's lines and mostly finds the entry there; this is only an optimisation.
#[inline]
fn home<K: FixedKey>(geometry: &Geometry, key: K) -> usize {
    let slot = (usize::from(key.fingerprint()) * geometry.capacity) >> 8;
    slot - slot % (8 / K::WORDS)
}

/// Common parts of both layouts. `HASHED`: there is a fingerprint beside every key.
struct Unordered<const HASHED: bool>;

impl<const HASHED: bool> Unordered<HASHED> {
    /// Stores an entry into a free slot.
    fn store<K: FixedKey>(node: Node<'_>, geometry: &Geometry, slot: usize, (key, value): (K, u64)) {
        debug_assert!(
            bits::map_word(node, geometry, slot / 64) >> (slot % 64) & 1 == 0,
            "the slot {slot} of a new entry is free"
        );
        node.store_entry(geometry, slot, key, value);
        if HASHED {
            let word = geometry.bytes + slot / 8;
            node.store(word, with_fingerprint(node.load(word), slot, key.fingerprint()));
        }
    }

    /// Returns the preferred free slot of an entry.
    fn free_slot<K: FixedKey>(map: &Map, geometry: &Geometry, key: K) -> usize {
        let slot =
            if HASHED { map.free_slot_from(geometry, home(geometry, key)) } else { map.free_slot(geometry) };
        slot.expect("the caller has checked that there is room")
    }

    fn fill<K: FixedKey>(node: Node<'_>, geometry: &Geometry, entries: &[(K, u64)]) {
        assert!(entries.len() <= geometry.capacity, "{} entries fit into the node", entries.len());
        (0..geometry.next).for_each(|word| node.store(word, 0));
        let mut map = Map::empty();
        for entry in entries {
            let slot = Self::free_slot(&map, geometry, entry.0);
            Self::store(node, geometry, slot, *entry);
            map.insert(slot);
        }
        debug_assert_eq!(map.count(), entries.len(), "each entry has a slot of its own");
        map.store(node, geometry);
    }

    fn insert<K: FixedKey>(
        node: Node<'_>,
        geometry: &Geometry,
        key: K,
        value: u64,
        medium: &mut Medium<'_, '_>,
    ) {
        let mut map = Map::load(node, geometry);
        let slot = Self::free_slot(&map, geometry, key);
        debug_assert!(!map.contains(slot), "the slot {slot} of the new entry is free");
        for i in 0..K::WORDS {
            medium.write(node, geometry.keys + slot * K::WORDS + i, key.word(i));
        }
        medium.write(node, geometry.values + slot, value);
        if HASHED {
            let word = geometry.bytes + slot / 8;
            medium.write(node, word, with_fingerprint(node.load(word), slot, key.fingerprint()));
        }
        map.insert(slot);
        map.commit(node, geometry, medium);
    }

    /// Keeps only the entries with these positions in key order.
    fn keep<K: FixedKey>(
        node: Node<'_>,
        geometry: &Geometry,
        kept: impl FnOnce(usize) -> std::ops::Range<usize>,
        medium: &mut Medium<'_, '_>,
    ) {
        let sorted = bits::sorted_slots::<K>(node, geometry);
        let staying = kept(sorted.len());
        debug_assert!(staying.end <= sorted.len(), "the entries {staying:?} that stay are there");
        Map::of(sorted[staying].iter().map(|(_, slot)| *slot)).commit(node, geometry, medium);
    }

    fn add<K: FixedKey>(
        node: Node<'_>,
        geometry: &Geometry,
        entries: &[(K, u64)],
        medium: &mut Medium<'_, '_>,
    ) {
        let mut map = Map::load(node, geometry);
        for entry in entries {
            let slot = Self::free_slot(&map, geometry, entry.0);
            Self::store(node, geometry, slot, *entry);
            map.insert(slot);
            medium.flush(node, geometry.keys + slot * K::WORDS, K::WORDS, APPENDED_ENTRIES);
            medium.flush(node, geometry.values + slot, 1, APPENDED_ENTRIES);
        }
        debug_assert_eq!(
            map.count(),
            bits::count(node, geometry) + entries.len(),
            "each added entry gets a slot that was free"
        );
        if HASHED && !entries.is_empty() {
            medium.flush(node, geometry.bytes, geometry.byte_words, APPENDED_FINGERPRINTS);
        }
        map.commit(node, geometry, medium);
    }

    fn copy_upper<K: FixedKey>(from: Node<'_>, geometry: &Geometry, keep: usize, fresh: Node<'_>) {
        (0..geometry.words).for_each(|word| fresh.store(word, from.load(word)));
        let sorted = bits::sorted_slots::<K>(from, geometry);
        debug_assert!(keep <= sorted.len(), "{keep} of {} entries are left out", sorted.len());
        Map::of(sorted[keep..].iter().map(|(_, slot)| *slot)).store(fresh, geometry);
    }
}

macro_rules! unordered_layout {
    ($layout:ident, $name:literal, $number:literal, $front:expr, $hashed:literal, $find:path, $check:path) => {
        impl<const BYTES: usize> Layout for $layout<BYTES> {
            const NAME: &'static str = $name;
            const NUMBER: u8 = $number;
            const BYTES: usize = BYTES;
            const FILLS_IN_ORDER: bool = !$hashed;

            #[inline]
            fn geometry<K: FixedKey>() -> &'static Geometry {
                const { &Geometry::new(BYTES, K::WORDS, $front) }
            }

            #[inline]
            fn prefetch<K: FixedKey>(node: Node<'_>, key: K) {
                if !$hashed {
                    return super::prefetch_keys(node, Self::geometry::<K>());
                }
                let geometry = Self::geometry::<K>();
                let home = home(geometry, key);
                node.prefetch(0);
                node.prefetch(geometry.keys + home * K::WORDS);
                node.prefetch(geometry.values + home);
            }

            fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]) {
                Unordered::<$hashed>::fill(node, Self::geometry::<K>(), entries);
            }

            #[inline]
            fn count<K: FixedKey>(node: Node<'_>) -> usize {
                bits::count(node, Self::geometry::<K>())
            }

            #[inline]
            fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
                $find(node, Self::geometry::<K>(), key)
            }

            fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize> {
                bits::floor(node, Self::geometry::<K>(), key)
            }

            fn iterate<K: FixedKey>(node: Node<'_>, mut visit: impl FnMut(K, u64)) {
                let geometry = Self::geometry::<K>();
                bits::for_each(node, geometry, |slot| {
                    visit(node.key(geometry, slot), node.value(geometry, slot))
                });
            }

            fn insert<K: FixedKey>(
                node: Node<'_>,
                key: K,
                value: u64,
                medium: &mut Medium<'_, '_>,
            ) -> Result<()> {
                Unordered::<$hashed>::insert(node, Self::geometry::<K>(), key, value, medium);
                Ok(())
            }

            fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
                let geometry = Self::geometry::<K>();
                let mut map = Map::load(node, geometry);
                debug_assert!(map.contains(slot), "the erased slot {slot} holds an entry");
                map.remove(slot);
                map.commit(node, geometry, medium);
                Ok(())
            }

            fn replace<K: FixedKey>(
                node: Node<'_>,
                slot: usize,
                (key, value): (K, u64),
                medium: &mut Medium<'_, '_>,
            ) -> Result<()> {
                let geometry = Self::geometry::<K>();
                debug_assert!(
                    Map::load(node, geometry).contains(slot),
                    "the replaced slot {slot} holds an entry"
                );
                for i in 0..K::WORDS {
                    medium.set(node, geometry.keys + slot * K::WORDS + i, key.word(i));
                }
                medium.set(node, geometry.values + slot, value);
                if $hashed {
                    let word = geometry.bytes + slot / 8;
                    medium.set(node, word, with_fingerprint(node.load(word), slot, key.fingerprint()));
                }
                Ok(())
            }

            fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()> {
                Unordered::<$hashed>::keep::<K>(node, Self::geometry::<K>(), |_| 0..keep, medium);
                Ok(())
            }

            fn append<K: FixedKey>(
                node: Node<'_>,
                entries: &[(K, u64)],
                medium: &mut Medium<'_, '_>,
            ) -> Result<()> {
                Unordered::<$hashed>::add(node, Self::geometry::<K>(), entries, medium);
                Ok(())
            }

            fn prepend<K: FixedKey>(
                node: Node<'_>,
                entries: &[(K, u64)],
                medium: &mut Medium<'_, '_>,
            ) -> Result<()> {
                Unordered::<$hashed>::add(node, Self::geometry::<K>(), entries, medium);
                Ok(())
            }

            fn drop_first<K: FixedKey>(
                node: Node<'_>,
                count: usize,
                medium: &mut Medium<'_, '_>,
            ) -> Result<()> {
                Unordered::<$hashed>::keep::<K>(node, Self::geometry::<K>(), |all| count..all, medium);
                Ok(())
            }

            fn copy_upper<K: FixedKey>(from: Node<'_>, keep: usize, fresh: Node<'_>) -> bool {
                Unordered::<$hashed>::copy_upper::<K>(from, Self::geometry::<K>(), keep, fresh);
                true
            }

            fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String> {
                $check(node, Self::geometry::<K>())
            }
        }
    };
}

unordered_layout!(Bitmap, "bitmap", 3, BITS, false, find_with_bits, check_bitmap::<K>);
unordered_layout!(Hashing, "hashing", 5, BITS_AND_BYTES, true, find_with_hash, check_hashing::<K>);

/// Linear search with bit check.
#[inline]
fn find_with_bits<K: FixedKey>(node: Node<'_>, geometry: &Geometry, key: K) -> Option<usize> {
    (0..geometry.state_words).find_map(|word| {
        search::find_valid(node, geometry, word * 64, bits::map_word(node, geometry, word), key)
    })
}

/// Hash probe: compares the fingerprints of 64 entries at a time, then the keys of those that match.
#[inline]
fn find_with_hash<K: FixedKey>(node: Node<'_>, geometry: &Geometry, key: K) -> Option<usize> {
    let fingerprint = key.fingerprint();
    (0..geometry.state_words).find_map(|word| {
        // The last line of fingerprints may reach into the words after them; their bits are not in the map.
        let line = node.words()[geometry.bytes + word * 8..].first_chunk().expect("entries come behind");
        let bits = matching_bytes(line, fingerprint) & bits::map_word(node, geometry, word);
        let place = search::linear_with_bits(bits, key, |i| node.key(geometry, word * 64 + i));
        place.map(|place| word * 64 + place)
    })
}

fn check_bitmap<K: FixedKey>(node: Node<'_>, geometry: &Geometry) -> std::result::Result<(), String> {
    bits::check::<K>(node, geometry, 0)
}

fn check_hashing<K: FixedKey>(node: Node<'_>, geometry: &Geometry) -> std::result::Result<(), String> {
    check_bitmap::<K>(node, geometry)?;
    let mut wrong = None;
    bits::for_each(node, geometry, |slot| {
        let stored = (node.load(geometry.bytes + slot / 8) >> (slot % 8 * 8)) as u8;
        if stored != node.key::<K>(geometry, slot).fingerprint() {
            wrong = Some(slot);
        }
    });
    wrong.map_or(Ok(()), |slot| Err(format!("the fingerprint in slot {slot} is not its key's")))
}
