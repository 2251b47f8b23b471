//! Node layouts and their micro-operations (dissertation 3.2.2, 3.3, figure 3.2): the parts that persistent trees
//! are made of.
//!
//! A node is a run of words: a multiple of 256 bytes, 256 B to 4 KiB, in a pool or in DRAM. What is searched
//! first stands in its first lines, then come two arrays, both of which start at a cache line's word grid:
//!
//! ```text
//!  state words │ a byte per entry │ next │ two spare words │ padding │ keys ... │ values ...
//!  └──────────────── first lines, depends on the layout ─────────────┘ └ 64-aligned ┘
//! ```
//!
//! | layout | state words | a byte per entry | order of entries |
//! | --- | --- | --- | --- |
//! | [`Sorted`] | where its gap is | | by key, but for the gap |
//! | [`Fast`] | their number | | by key; one may stand twice |
//! | [`Unsorted`] | their number, and a hole | | any |
//! | [`Bitmap`] | a bit per entry | | any |
//! | [`Hashing`] | a bit per entry | fingerprint | any |
//! | [`Indirection`] | validity bit and a bit per entry | sorted slot numbers | any |
//!
//! Every change is failure-atomic by ordered 8-byte stores, in two steps:
//!
//! 1. *prepare*: stores that do not change what the node holds (into free places, or moving what it holds
//!    without losing it), flushed and fenced where their order matters;
//! 2. *commit*: one word, or few that the pool publishes together.
//!
//! A crash in step 1 leaves the same entries; no layout needs a recovery of its own. Because a commit is a few
//! words, a tree can put those of several nodes, allocations and links into one [`Publication`]: that is how
//! splits and merges are atomic as a whole.
//!
//! Layouts know no locks: readers may look at a node while it changes, get nonsense, and must notice by its
//! version. No reading operation panics or reads outside the node, whatever the words are.
//!
//! [`Publication`]: entresol_memory::Publication

mod bitmap;
mod bits;
mod fast;
mod indirection;
mod key;
mod medium;
pub mod search;
mod shape;
mod sorted;
mod unsorted;

pub use bitmap::{Bitmap, Hashing};
pub use fast::Fast;
pub use indirection::Indirection;
pub use key::FixedKey;
pub use medium::Medium;
pub use shape::{NODE_BYTES_MAX, NODE_BYTES_MIN, Shape};
pub use sorted::Sorted;
pub use unsorted::Unsorted;

use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LINE_WORDS: usize = 8;
/// Keys of more words are not asked for together: a search through them reads few of their lines.
const PREFETCHED_WORDS_MAX: usize = 64;

/// Entries outside of a node, in key order.
pub type Entries<K> = Vec<(K, u64)>;

/// The words of a node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    words: &'a [AtomicU64],
    offset: u64,
}

impl<'a> Node<'a> {
    /// A node of these words; `offset` is their place in the pool, or anything for a node in DRAM.
    #[inline]
    pub fn new(words: &'a [AtomicU64], offset: u64) -> Node<'a> {
        Node { words, offset }
    }

    /// The pool offset of a word.
    #[inline]
    pub fn word_offset(&self, word: usize) -> u64 {
        self.offset + word as u64 * 8
    }

    /// A word's value.
    #[inline]
    pub fn load(&self, word: usize) -> u64 {
        self.words[word].load(Relaxed)
    }

    /// Asks for the line of a word.
    #[inline]
    pub(crate) fn prefetch(&self, word: usize) {
        crate::simd::prefetch(&self.words[word]);
    }

    /// Asks for all lines.
    #[inline]
    pub(crate) fn prefetch_whole(&self) {
        (0..self.words.len()).step_by(LINE_WORDS).for_each(|word| self.prefetch(word));
    }

    #[inline]
    pub(crate) fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Relaxed);
    }

    /// The words themselves.
    #[inline]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// A key that starts at a word.
    #[inline]
    pub(crate) fn load_key<K: FixedKey>(&self, word: usize) -> K {
        K::load(&self.words[word..word + K::WORDS])
    }

    pub(crate) fn store_key<K: FixedKey>(&self, word: usize, key: K) {
        (0..K::WORDS).for_each(|i| self.store(word + i, key.word(i)));
    }

    /// The key in a slot.
    #[inline]
    pub fn key<K: FixedKey>(&self, shape: &Shape, slot: usize) -> K {
        self.load_key(shape.keys + slot * K::WORDS)
    }

    /// The value in a slot.
    #[inline]
    pub fn value(&self, shape: &Shape, slot: usize) -> u64 {
        self.load(shape.values + slot)
    }

    fn store_entry<K: FixedKey>(&self, shape: &Shape, slot: usize, key: K, value: u64) {
        self.store_key(shape.keys + slot * K::WORDS, key);
        self.store(shape.values + slot, value);
    }

    /// Copies an entry to another slot.
    fn copy_entry<K: FixedKey>(&self, shape: &Shape, from: usize, to: usize) {
        self.store_entry(shape, to, self.key::<K>(shape, from), self.value(shape, from));
    }

    fn entry<K: FixedKey>(&self, shape: &Shape, slot: usize) -> (K, u64) {
        (self.key(shape, slot), self.value(shape, slot))
    }
}

/// A node layout and its micro-operations. `K` is the kind of key; `slot` numbers a place in the arrays.
///
/// Operations that change a node prepare it and hand the commit to the [`Medium`]; on a pool nothing has happened
/// until the publication is published, and the node must not be operated on again before. Whoever calls them
/// keeps other writers out. Costs are in `tests/nodes.txt`.
pub trait Layout: Sized + Send + Sync + 'static {
    /// How it is called.
    const NAME: &'static str;
    /// How it is written in headers.
    const NUMBER: u8;
    /// Bytes of a node.
    const BYTES: usize;
    /// Whether inner nodes of this layout are linked to their right siblings.
    const LINKS_INNER: bool = false;
    /// Whether [`Layout::prepend`] and [`Layout::drop_first`] work; if not, a tree moves entries into a fresh node.
    const SHIFTS_BLOCKS: bool = true;

    /// Whether [`Layout::fill`] uses the slots from 0 on; if not, it may use any.
    const FILLS_IN_ORDER: bool = true;

    /// Where things are.
    fn shape<K: FixedKey>() -> &'static Shape;

    /// Makes a node that nobody reaches yet hold these entries (sorted, at most as many as fit), from slot 0 on if it
    /// [fills in order](Layout::FILLS_IN_ORDER), and nothing else. The caller flushes it. The words of its links are the caller's.
    fn fill<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)]);

    /// Entries that it holds.
    fn count<K: FixedKey>(node: Node<'_>) -> usize;

    /// Whether it holds fewer entries than so many.
    fn has_fewer<K: FixedKey>(node: Node<'_>, than: usize) -> bool {
        Self::count::<K>(node) < than
    }

    /// Whether another entry may not fit.
    fn is_full<K: FixedKey>(node: Node<'_>) -> bool {
        Self::count::<K>(node) >= Self::shape::<K>().capacity
    }

    /// Search: the slot of a key.
    fn find<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize>;

    /// Asks for the lines that a search for a key reads, before anything is known of the node.
    #[inline]
    fn prefetch<K: FixedKey>(node: Node<'_>, _key: K) {
        prefetch_keys(node, Self::shape::<K>());
    }

    /// The slot of the greatest key that is not greater than `key`: search in inner nodes.
    fn floor<K: FixedKey>(node: Node<'_>, key: K) -> Option<usize>;

    /// Iterate: visits all entries, in the order in which they are stored.
    fn iterate<K: FixedKey>(node: Node<'_>, visit: impl FnMut(K, u64));

    /// Iterate in key order: adds all entries to those given.
    fn append_sorted<K: FixedKey>(node: Node<'_>, entries: &mut Entries<K>) {
        let before = entries.len();
        Self::iterate(node, |key, value| entries.push((key, value)));
        entries[before..].sort_unstable_by_key(|(key, _)| *key);
    }

    /// All entries in key order.
    fn sorted<K: FixedKey>(node: Node<'_>) -> Entries<K> {
        let mut entries = Entries::with_capacity(Self::shape::<K>().capacity);
        Self::append_sorted(node, &mut entries);
        entries
    }

    /// Insert: adds a key that is not there. There is room.
    fn insert<K: FixedKey>(node: Node<'_>, key: K, value: u64, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Erase: takes the entry in a slot out. The slot is one that was just found.
    fn erase<K: FixedKey>(node: Node<'_>, slot: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Changes the value in a slot: one word.
    fn update<K: FixedKey>(node: Node<'_>, slot: usize, value: u64, medium: &mut Medium<'_, '_>) {
        medium.set(node, Self::shape::<K>().values + slot, value);
    }

    /// Replaces the key in a slot by one between its neighbours, and its value.
    fn replace<K: FixedKey>(
        node: Node<'_>,
        slot: usize,
        (key, value): (K, u64),
        medium: &mut Medium<'_, '_>,
    ) -> Result<()> {
        let shape = Self::shape::<K>();
        (0..K::WORDS).for_each(|i| medium.set(node, shape.keys + slot * K::WORDS + i, key.word(i)));
        medium.set(node, shape.values + slot, value);
        Ok(())
    }

    /// Keeps the `keep` smallest entries: what a split leaves, and what balancing with the right leaves.
    fn truncate<K: FixedKey>(node: Node<'_>, keep: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Adds sorted entries that are all greater than those there: merge, and balance from the right.
    fn append<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Adds sorted entries that are all smaller than those there: balance from the left.
    fn prepend<K: FixedKey>(node: Node<'_>, entries: &[(K, u64)], medium: &mut Medium<'_, '_>) -> Result<()>;

    /// Takes the `count` smallest entries out: what balancing with the left leaves.
    fn drop_first<K: FixedKey>(node: Node<'_>, count: usize, medium: &mut Medium<'_, '_>) -> Result<()>;

    /// *Split copy*: makes a fresh node a copy of a whole one without its `keep` smallest entries, if the layout
    /// can leave entries out in place. The caller truncates the old node and flushes the fresh one.
    fn copy_upper<K: FixedKey>(_from: Node<'_>, _keep: usize, _fresh: Node<'_>) -> bool {
        false
    }

    /// What is wrong with the node's words, if something is.
    fn check<K: FixedKey>(node: Node<'_>) -> std::result::Result<(), String>;
}

/// Asks for the first line and those of the keys.
#[inline]
fn prefetch_keys(node: Node<'_>, shape: &Shape) {
    node.prefetch(0);
    if shape.values - shape.keys <= PREFETCHED_WORDS_MAX {
        (shape.keys..shape.values).step_by(LINE_WORDS).for_each(|word| node.prefetch(word));
    }
}

/// *Split move*: fills a fresh node with the upper half and takes it out of the old one. Returns the first key of
/// the fresh one. The caller flushes it and publishes both.
pub fn split_move<L: Layout, K: FixedKey>(
    node: Node<'_>,
    fresh: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<K> {
    let entries = L::sorted::<K>(node);
    let keep = entries.len() / 2;
    L::fill(fresh, &entries[keep..]);
    L::truncate::<K>(node, keep, medium)?;
    Ok(entries[keep].0)
}

/// *Split copy*: as [`split_move`], by copying the whole node where the layout can.
pub fn split_copy<L: Layout, K: FixedKey>(
    node: Node<'_>,
    fresh: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<K> {
    let entries = L::sorted::<K>(node);
    let keep = entries.len() / 2;
    if !L::copy_upper::<K>(node, keep, fresh) {
        L::fill(fresh, &entries[keep..]);
    }
    L::truncate::<K>(node, keep, medium)?;
    Ok(entries[keep].0)
}

/// *Merge*: appends all of a right node to the left one. They fit.
pub fn merge<L: Layout, K: FixedKey>(
    left: Node<'_>,
    right: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<()> {
    L::append(left, &L::sorted::<K>(right), medium)
}

/// *Balance*: moves entries between neighbours until both have half. Returns the first key of the right one; none
/// if there is nothing to move. For layouts that [shift blocks](Layout::SHIFTS_BLOCKS).
pub fn balance<L: Layout, K: FixedKey>(
    left: Node<'_>,
    right: Node<'_>,
    medium: &mut Medium<'_, '_>,
) -> Result<Option<K>> {
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
