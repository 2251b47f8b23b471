//! Contents of a node: a single pair, or a bucket of several in one of the node layouts.

use super::{AUX, LOW, SHORT_HEAD_BYTES, TALL_HEAD_BYTES};
use crate::error::Result;
use crate::node::{Entries, FixedKey, Layout, Medium, Node};
use crate::points::ENTRY_AFTER_ITS_BOUND;
use entresol_memory::PoolOffset;
use std::marker::PhantomData;

/// The words of a node.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The head, as far as every node has one.
    pub(super) head: Node<'a>,
    /// The words after it.
    pub(super) body: Node<'a>,
    /// True if it may hold entries: the head of a list of pairs does not.
    pub(super) holds: bool,
}

/// Contents of a node. As in [`Layout`], commits go through the medium, and the caller excludes other
/// writers.
pub trait Content: Sized + Send + Sync + 'static {
    /// Name in messages.
    const NAME: &'static str;
    /// Number in headers.
    const NUMBER: u8;
    /// Bytes after the head.
    const BYTES: usize;
    /// True if the list's head holds entries as well.
    const IN_HEAD: bool;
    /// Returns the bytes of the head of a node with `height` levels in the pool.
    fn head_bytes(height: usize) -> usize;
    /// Returns the number of entries that fit.
    fn capacity<K: FixedKey>() -> usize;
    /// Returns the position of the value of a key, and the value.
    fn find<K: FixedKey>(parts: Parts<'_>, key: K) -> Option<(PoolOffset, u64)>;
    /// Returns the number of entries.
    fn count<K: FixedKey>(parts: Parts<'_>) -> usize;
    /// Returns true if another entry may not fit.
    fn is_full<K: FixedKey>(parts: Parts<'_>) -> bool;
    /// Appends all entries in key order.
    fn append_sorted<K: FixedKey>(parts: Parts<'_>, entries: &mut Entries<K>);
    /// Fills an unreachable node with these entries, at least one unless it is a head.
    fn fill<K: FixedKey>(parts: Parts<'_>, entries: &[(K, u64)]);
    /// Adds an entry; there must be room.
    fn insert<K: FixedKey>(parts: Parts<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()>;
    /// Removes an entry, which is not the only one.
    fn erase<K: FixedKey>(parts: Parts<'_>, key: K, medium: &mut Medium<'_, '_>) -> Result<()>;
    /// Keeps only the smallest entries.
    fn truncate<K: FixedKey>(
        parts: Parts<'_>,
        entries: &[(K, u64)],
        keep: usize,
        medium: &mut Medium<'_, '_>,
    ) -> Result<()>;
    /// Verifies its words; an error describes the damage.
    fn check<K: FixedKey>(parts: Parts<'_>) -> std::result::Result<(), String>;
}

/// A single pair: the low key is the key.
#[derive(Debug)]
pub struct OnePair;

impl Content for OnePair {
    const NAME: &'static str = "a pair";
    const NUMBER: u8 = 0;
    const BYTES: usize = 0;
    const IN_HEAD: bool = false;

    fn head_bytes(height: usize) -> usize {
        if height <= 4 { SHORT_HEAD_BYTES } else { TALL_HEAD_BYTES }
    }

    fn capacity<K: FixedKey>() -> usize {
        1
    }

    #[inline]
    fn find<K: FixedKey>(parts: Parts<'_>, key: K) -> Option<(PoolOffset, u64)> {
        let is_it = parts.holds && parts.head.load_key::<K>(LOW) == key;
        is_it.then(|| (parts.head.word_offset(AUX), parts.head.load(AUX)))
    }

    fn count<K: FixedKey>(parts: Parts<'_>) -> usize {
        usize::from(parts.holds)
    }

    fn is_full<K: FixedKey>(_parts: Parts<'_>) -> bool {
        true
    }

    fn append_sorted<K: FixedKey>(parts: Parts<'_>, entries: &mut Entries<K>) {
        if parts.holds {
            entries.push((parts.head.load_key(LOW), parts.head.load(AUX)));
        }
    }

    fn fill<K: FixedKey>(parts: Parts<'_>, entries: &[(K, u64)]) {
        assert!(entries.len() <= 1, "a node of a pair has one entry, not {}", entries.len());
        parts.head.store(AUX, entries.first().map_or(0, |(_, value)| *value));
    }

    fn insert<K: FixedKey>(_: Parts<'_>, _: K, _: u64, _: &mut Medium<'_, '_>) -> Result<()> {
        unreachable!("it is full")
    }

    fn erase<K: FixedKey>(_: Parts<'_>, _: K, _: &mut Medium<'_, '_>) -> Result<()> {
        unreachable!("its node is unlinked")
    }

    fn truncate<K: FixedKey>(_: Parts<'_>, _: &[(K, u64)], _: usize, _: &mut Medium<'_, '_>) -> Result<()> {
        unreachable!("it is not split")
    }

    fn check<K: FixedKey>(_: Parts<'_>) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Several entries in a node layout, and a bound of their keys.
#[derive(Debug)]
pub struct Bucket<L>(PhantomData<L>);

impl<L: Layout> Content for Bucket<L> {
    const NAME: &'static str = L::NAME;
    const NUMBER: u8 = L::NUMBER;
    const BYTES: usize = L::BYTES;
    const IN_HEAD: bool = true;

    fn head_bytes(_height: usize) -> usize {
        TALL_HEAD_BYTES
    }

    fn capacity<K: FixedKey>() -> usize {
        L::geometry::<K>().capacity
    }

    #[inline]
    fn find<K: FixedKey>(parts: Parts<'_>, key: K) -> Option<(PoolOffset, u64)> {
        if key.word(0) > parts.head.load(AUX) {
            return None;
        }
        let values = L::geometry::<K>().values;
        L::find(parts.body, key).map(|slot| {
            let word = values + slot;
            (parts.body.word_offset(word), parts.body.load(word))
        })
    }

    fn count<K: FixedKey>(parts: Parts<'_>) -> usize {
        L::count::<K>(parts.body)
    }

    fn is_full<K: FixedKey>(parts: Parts<'_>) -> bool {
        L::is_full::<K>(parts.body)
    }

    fn append_sorted<K: FixedKey>(parts: Parts<'_>, entries: &mut Entries<K>) {
        L::append_sorted(parts.body, entries);
    }

    fn fill<K: FixedKey>(parts: Parts<'_>, entries: &[(K, u64)]) {
        parts.head.store(AUX, entries.last().map_or(0, |(key, _)| key.word(0)));
        let geometry = L::geometry::<K>();
        assert_eq!(parts.body.words().len(), geometry.words, "a bucket has the size of its layout");
        // Links that a list has elsewhere.
        (geometry.next..geometry.keys).for_each(|word| parts.body.store(word, 0));
        L::fill(parts.body, entries);
    }

    fn insert<K: FixedKey>(parts: Parts<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()> {
        // A bound that is too high is harmless, so it may be stored before its key; after it, it must.
        if key.word(0) > parts.head.load(AUX) {
            medium.write(parts.head, AUX, key.word(0));
            medium.after(ENTRY_AFTER_ITS_BOUND);
        }
        L::insert(parts.body, key, value, medium)
    }

    fn erase<K: FixedKey>(parts: Parts<'_>, key: K, medium: &mut Medium<'_, '_>) -> Result<()> {
        let slot = L::find(parts.body, key).expect("the caller has found it");
        L::erase::<K>(parts.body, slot, medium)
    }

    fn truncate<K: FixedKey>(
        parts: Parts<'_>,
        entries: &[(K, u64)],
        keep: usize,
        medium: &mut Medium<'_, '_>,
    ) -> Result<()> {
        assert!((1..=entries.len()).contains(&keep), "a bucket keeps {keep} of {} entries", entries.len());
        medium.set(parts.head, AUX, entries[keep - 1].0.word(0));
        L::truncate::<K>(parts.body, keep, medium)
    }

    fn check<K: FixedKey>(parts: Parts<'_>) -> std::result::Result<(), String> {
        L::check::<K>(parts.body)?;
        let mut entries = Entries::<K>::new();
        L::append_sorted(parts.body, &mut entries);
        let bound = parts.head.load(AUX);
        match entries.last() {
            Some((key, _)) if key.word(0) > bound => {
                Err(format!("its key {key:?} is above its bound {bound:#x}"))
            }
            _ => Ok(()),
        }
    }
}
