//! Node layouts and their micro-operations (dissertation 3.2.2, 3.3, figure 3.2): the parts of persistent
//! trees.
//!
//! A node is a run of words: a multiple of 256 bytes, 256 B to 4 KiB, in a pool or in DRAM. Its first lines
//! have the parts that are searched first, then follow two arrays, both of which begin at a cache line's word
//! grid:
//!
//! ```text
//!  state words │ a byte per entry │ next │ two spare words │ padding │ keys ... │ values ...
//!  └──────────────── first lines, depends on the layout ─────────────┘ └ 64-aligned ┘
//! ```
//!
//! | layout | state words | a byte per entry | order of entries |
//! | --- | --- | --- | --- |
//! | [`Sorted`] | position of its gap | | by key, but for the gap |
//! | [`Fast`] | their number | | by key; one may be duplicated |
//! | [`Unsorted`] | their number, and a hole | | any |
//! | [`Bitmap`] | a bit per entry | | any |
//! | [`Hashing`] | a bit per entry | fingerprint | any |
//! | [`Indirection`] | validity bit and a bit per entry | sorted slot numbers | any |
//!
//! Every change is failure-atomic by ordered 8-byte stores, in two steps:
//!
//! 1. *prepare*: stores that do not change the entries of the node (into free slots, or moving entries
//!    without losing them), flushed and fenced where their order matters;
//! 2. *commit*: one word, or few that the pool publishes together.
//!
//! A crash in step 1 leaves the same entries; no layout needs a recovery of its own. Because a commit is a
//! few words, a tree can put those of several nodes, allocations and links into one [`Publication`]: that
//! makes splits and merges atomic.
//!
//! Layouts take no locks: readers may read a node while it changes, get inconsistent words, and must detect
//! that by its version. No reading operation panics or reads outside the node, whatever the words are.
//!
//! [`Publication`]: entresol_memory::Publication

mod bitmap;
mod bits;
mod fast;
mod geometry;
mod indirection;
mod key;
mod medium;
pub mod search;
mod sorted;
mod unsorted;

pub use bitmap::{Bitmap, Hashing};
pub use fast::Fast;
pub use geometry::{Geometry, NODE_BYTES_MAX, NODE_BYTES_MIN};
pub use indirection::Indirection;
pub use key::FixedKey;
pub use medium::Medium;
pub use sorted::Sorted;
pub use unsorted::Unsorted;

use crate::error::Result;
use entresol_memory::PoolOffset;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LINE_WORDS: usize = 8;
/// Bound on the words of prefetched keys: a search through more reads few of their lines.
const PREFETCHED_WORDS_MAX: usize = 64;

/// Entries outside of a node, in key order.
pub type Entries<K> = Vec<(K, u64)>;

/// The words of a node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    words: &'a [AtomicU64],
    offset: PoolOffset,
}

impl<'a> Node<'a> {
    /// Creates a node of these words; `offset` is their position in the pool, or anything for a node in DRAM.
    #[inline]
    pub fn new(words: &'a [AtomicU64], offset: PoolOffset) -> Node<'a> {
        Node { words, offset }
    }

    /// Returns the pool offset of a word.
    #[inline]
    pub fn word_offset(&self, word: usize) -> PoolOffset {
        self.offset.word(word)
    }

    /// Returns a word's value.
    #[inline]
    pub fn load(&self, word: usize) -> u64 {
        self.words[word].load(Relaxed)
    }

    /// Returns the pool offset in a word.
    #[inline]
    pub(crate) fn load_offset(&self, word: usize) -> PoolOffset {
        PoolOffset::from_word(self.load(word))
    }

    /// Prefetches the line of a word.
    #[inline]
    pub(crate) fn prefetch(&self, word: usize) {
        crate::simd::prefetch(&self.words[word]);
    }

    /// Prefetches all lines.
    #[inline]
    pub(crate) fn prefetch_whole(&self) {
        (0..self.words.len()).step_by(LINE_WORDS).for_each(|word| self.prefetch(word));
    }

    #[inline]
    pub(crate) fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Relaxed);
    }

    /// Returns the words.
    #[inline]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Loads the key that begins at a word.
    #[inline]
    pub(crate) fn load_key<K: FixedKey>(&self, word: usize) -> K {
        K::load(&self.words[word..word + K::WORDS])
    }

    pub(crate) fn store_key<K: FixedKey>(&self, word: usize, key: K) {
        debug_assert!(word + K::WORDS <= self.words.len(), "the key at word {word} lies in the node");
        (0..K::WORDS).for_each(|i| self.store(word + i, key.word(i)));
    }

    /// Returns the key in a slot.
    #[inline]
    pub fn key<K: FixedKey>(&self, geometry: &Geometry, slot: usize) -> K {
        self.load_key(geometry.keys + slot * K::WORDS)
    }

    /// Returns the value in a slot.
    #[inline]
    pub fn value(&self, geometry: &Geometry, slot: usize) -> u64 {
        self.load(geometry.values + slot)
    }

    fn store_entry<K: FixedKey>(&self, geometry: &Geometry, slot: usize, key: K, value: u64) {
        debug_assert!(slot < geometry.capacity, "the slot {slot} is one of {}", geometry.capacity);
        self.store_key(geometry.keys + slot * K::WORDS, key);
        self.store(geometry.values + slot, value);
    }

    /// Copies an entry to another slot.
    fn copy_entry<K: FixedKey>(&self, geometry: &Geometry, from: usize, to: usize) {
        debug_assert!(from < geometry.capacity, "the slot {from} is one of {}", geometry.capacity);
        self.store_entry(geometry, to, self.key::<K>(geometry, from), self.value(geometry, from));
    }

    fn entry<K: FixedKey>(&self, geometry: &Geometry, slot: usize) -> (K, u64) {
        (self.key(geometry, slot), self.value(geometry, slot))
    }
}

/// A node layout and its micro-operations. `K` is the kind of key; `slot` is an index of the arrays.
///
/// Operations that change a node prepare it and pass the commit to the [`Medium`]; on a pool nothing has
/// changed until the publication is published, and the node must not be operated on again before. The caller
/// excludes other writers. Costs are in `tests/structures/nodes.txt`.
pub trait Layout: Sized + Send + Sync + 'static {
    /// Name in messages.
    const NAME: &'static str;
    /// Number in headers.
    const NUMBER: u8;
    /// Bytes of a node.
    const BYTES: usize;
    /// True if inner nodes of this layout are linked to their right siblings.
    const LINKS_INNER: bool = false;
    /// True if [`Layout::prepend`] and [`Layout::drop_first`] work; if not, a tree moves entries into a fresh
    /// node.
    const SHIFTS_BLOCKS: bool = true;

    /// True if [`Layout::fill`] uses the slots from 0 on; if not, it may use any.
    const FILLS_IN_ORDER: bool = true;

    /// Returns the positions of the parts of a node.
    fn geometry<K: FixedKey>() -> &'static Geometry;

    /// Fills an unreachable node with these entries (sorted, at most as many as fit), from slot 0 on if it
    /// [fills in order](Layout::FILLS_IN_ORDER). The caller flushes it and sets the words of its links.
    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]);

    /// Returns the number of entries.
    fn count<K: FixedKey>(node: Node<'_>) -> usize;

    /// Returns true if it holds fewer than `than` entries.
    fn has_fewer<K: FixedKey>(node: Node<'_>, than: usize) -> bool {
        Self::count::<K>(node) < than
    }

    /// Returns true if another entry may not fit.
    fn is_full<K: FixedKey>(node: Node<'_>) -> bool {
        Self::count::<K>(node) >= Self::geometry::<K>().capacity
    }

    /// Search: returns the slot of a key.
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize>;

    /// Prefetches the lines that a search for a key reads, before any line of the node was read.
    #[inline]
    fn prefetch<K: FixedKey>(node: Node<'_>, _key: K) {
        prefetch_keys(node, Self::geometry::<K>());
    }

    /// Returns the slot of the greatest key that is not greater than `key`: search in inner nodes.
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize>;

    /// Iterate: visits all entries, in the order in which they are stored.
    fn iterate<K: FixedKey>(node: Node<'_>, visit: impl FnMut(K, u64));

    /// Iterate in key order: appends all entries.
    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut Entries<K>) {
        let before = entries.len();
        Self::iterate(node, |key, value| entries.push((key, value)));
        entries[before..].sort_unstable_by_key(|(key, _)| *key);
    }

    /// Returns all entries in key order.
    fn sorted<K: FixedKey>(node: Node<'_>) -> Entries<K> {
        let mut entries = Entries::with_capacity(Self::geometry::<K>().capacity);
        Self::append_sorted(node, &mut entries);
        entries
    }

    /// Insert: adds a missing key. There must be room.
    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Erase: removes the entry in a slot. The slot was just found.
    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Changes the value in a slot: one word.
    fn update<K: FixedKey>(node: Node<'_>, slot: usize, value: u64, medium: &mut Medium<'_, '_>) {
        let geometry = Self::geometry::<K>();
        debug_assert!(slot < geometry.capacity, "the changed slot {slot} is one of {}", geometry.capacity);
        medium.set(node, geometry.values + slot, value);
    }

    /// Replaces the key in a slot by one between its neighbours, and its value.
    fn replace<K: FixedKey>(
        node: Node<'_>,
        slot: usize,
        (key, value): (K, u64),
        medium: &mut Medium<'_, '_>,
    ) -> Result<()> {
        let geometry = Self::geometry::<K>();
        debug_assert!(slot < geometry.capacity, "the replaced slot {slot} is one of {}", geometry.capacity);
        (0..K::WORDS).for_each(|i| medium.set(node, geometry.keys + slot * K::WORDS + i, key.word(i)));
        medium.set(node, geometry.values + slot, value);
        Ok(())
    }

    /// Keeps only the `keep` smallest entries: the left part of a split, and of balancing with the right
    /// neighbour.
    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Adds sorted entries that are all greater than the present ones: merge, and balance from the right.
    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Adds sorted entries that are all smaller than the present ones: balance from the left.
    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Removes the `count` smallest entries: the right part of balancing with the left neighbour.
    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// *Split copy*: fills a fresh node as a copy of a complete one without its `keep` smallest entries, if
    /// the layout can omit entries in place. The caller truncates the old node and flushes the fresh one.
    fn copy_upper<K: FixedKey>(_from: Node<'_>, _keep: usize, _fresh: Node<'_>) -> bool {
        false
    }

    /// Verifies the node's words; an error describes the damage.
    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String>;
}

/// Prefetches the first line and those of the keys.
#[inline]
fn prefetch_keys(node: Node<'_>, geometry: &Geometry) {
    node.prefetch(0);
    if geometry.values - geometry.keys <= PREFETCHED_WORDS_MAX {
        (geometry.keys..geometry.values).step_by(LINE_WORDS).for_each(|word| node.prefetch(word));
    }
}

/// *Split move*: fills a fresh node with the upper half and removes it from the old one. Returns the first
/// key of the fresh one. The caller flushes it and publishes both.
pub fn split_move<L: Layout, K: FixedKey>(
    node: Node<'_>,
    fresh: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<K> {
    let entries = L::sorted::<K>(node);
    assert!(!entries.is_empty(), "a node that is split has entries");
    let keep = entries.len() / 2;
    L::fill(fresh, &entries[keep..]);
    debug_assert_eq!(L::count::<K>(fresh), entries.len() - keep, "the fresh node has the upper half");
    L::truncate::<K>(node, keep, medium)?;
    Ok(entries[keep].0)
}

/// *Split copy*: same as [`split_move`], by copying the complete node where the layout can.
pub fn split_copy<L: Layout, K: FixedKey>(
    node: Node<'_>,
    fresh: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<K> {
    let entries = L::sorted::<K>(node);
    assert!(!entries.is_empty(), "a node that is split has entries");
    let keep = entries.len() / 2;
    if !L::copy_upper::<K>(node, keep, fresh) {
        L::fill(fresh, &entries[keep..]);
    }
    debug_assert_eq!(L::count::<K>(fresh), entries.len() - keep, "the fresh node has the upper half");
    L::truncate::<K>(node, keep, medium)?;
    Ok(entries[keep].0)
}

/// *Merge*: appends all entries of a right node to the left one. They must fit.
pub fn merge<L: Layout, K: FixedKey>(
    left: Node<'_>,
    right: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<()> {
    let moved = L::sorted::<K>(right);
    debug_assert!(
        L::count::<K>(left) + moved.len() <= L::geometry::<K>().capacity,
        "the entries of two nodes that are merged fit into one"
    );
    L::append(left, &moved, medium)
}

/// *Balance*: moves entries between neighbours until both have half. Returns the first key of the right one;
/// none if no entry has to move. For layouts that [shift blocks](Layout::SHIFTS_BLOCKS).
pub fn balance<L: Layout, K: FixedKey>(
    left: Node<'_>,
    right: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<Option<K>> {
    assert!(L::SHIFTS_BLOCKS, "{} nodes are rewritten, not balanced in place", L::NAME);
    let (lower, upper) = (L::sorted::<K>(left), L::sorted::<K>(right));
    if lower.len() + 1 < upper.len() {
        let moved = (upper.len() - lower.len()) / 2;
        L::append(left, &upper[..moved], medium)?;
        L::drop_first::<K>(right, moved, medium)?;
        return Ok(Some(upper[moved].0));
    }
    if upper.len() + 1 < lower.len() {
        let keep = lower.len() - (lower.len() - upper.len()) / 2;
        L::prepend(right, &lower[keep..], medium)?;
        L::truncate::<K>(left, keep, medium)?;
        return Ok(Some(lower[keep].0));
    }
    Ok(None)
}
