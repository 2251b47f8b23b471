//! Inner nodes: sorted, in DRAM, read without locks.
//!
//! ```text
//! word (of 128)     what (W = words of a key, N = keys that fit)
//! 0                 version latch
//! 1                 number of keys
//! 2..2+N*W          separators: child i+1 holds the keys that are not smaller than separator i
//! 2+N*W..           children: references to inner nodes (odd) or offsets of leaves (even)
//! ```
//!
//! Nodes live in an arena that only grows; a node that is given back keeps being a node with a version, so a
//! reader that still holds its number reads stale words at worst and notices when it validates.

use crate::key::TreeKey;
use crate::simd::prefetch;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use entresol_memory::Pool;

const NODE_WORDS: usize = 128;
const KEYS: usize = 2;

/// A child: an inner node or a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Child {
    Inner(u32),
    Leaf(u64),
}

impl Child {
    #[inline]
    pub(super) fn decode(word: u64) -> Child {
        if word & 1 == 1 { Child::Inner((word >> 1) as u32) } else { Child::Leaf(word) }
    }

    pub(super) fn encode(self) -> u64 {
        match self {
            Child::Inner(id) => u64::from(id) << 1 | 1,
            Child::Leaf(offset) => offset,
        }
    }
}

#[repr(align(64))]
struct NodeWords([AtomicU64; NODE_WORDS]);

/// An inner node, seen as words.
pub(super) struct Inner<'a, K: TreeKey> {
    words: &'a [AtomicU64; NODE_WORDS],
    key: PhantomData<K>,
}

impl<'a, K: TreeKey> Inner<'a, K> {
    /// Keys that fit.
    pub(super) const CAPACITY: usize = (NODE_WORDS - KEYS - 1) / (K::WORDS + 1);
    const CHILDREN: usize = KEYS + Self::CAPACITY * K::WORDS;

    #[inline]
    pub(super) fn latch(&self) -> &'a AtomicU64 {
        &self.words[0]
    }

    /// Number of keys; never more than fit, even when read while a writer is inside.
    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.words[1].load(Relaxed) as usize).min(Self::CAPACITY)
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> K::Stored {
        let word = KEYS + index * K::WORDS;
        K::load(&self.words[word..word + K::WORDS])
    }

    pub(super) fn set_key(&self, index: usize, key: K::Stored) {
        let word = KEYS + index * K::WORDS;
        K::store(&self.words[word..word + K::WORDS], key);
    }

    #[inline]
    pub(super) fn child(&self, index: usize) -> Child {
        Child::decode(self.words[Self::CHILDREN + index].load(Relaxed))
    }

    /// How many separators are not greater than the key: the child to go to.
    #[inline]
    pub(super) fn position(&self, pool: &Pool, key: K::Key<'_>) -> usize {
        self.partition(|stored| K::compare(pool, stored, key) != Ordering::Greater)
    }

    pub(super) fn position_of_stored(&self, pool: &Pool, key: K::Stored) -> usize {
        self.partition(|stored| K::compare_stored(pool, stored, key) != Ordering::Greater)
    }

    /// Binary search without branches that the processor could mispredict.
    #[inline]
    fn partition(&self, goes_right: impl Fn(K::Stored) -> bool) -> usize {
        let mut length = self.count();
        let mut base = 0;
        while length > 1 {
            let half = length / 2;
            base += if goes_right(self.key(base + half - 1)) { half } else { 0 };
            length -= half;
        }
        base + usize::from(length == 1 && goes_right(self.key(base)))
    }

    /// Asks for the lines that a search touches first.
    #[inline]
    pub(super) fn prefetch(&self) {
        for line in [0, 2, 4, 6] {
            prefetch(&self.words[line * 8]);
        }
    }

    fn store_all(&self, keys: &[K::Stored], children: &[u64]) {
        for (index, key) in keys.iter().enumerate() {
            self.set_key(index, *key);
        }
        for (word, child) in self.words[Self::CHILDREN..].iter().zip(children) {
            word.store(*child, Relaxed);
        }
        self.words[1].store(keys.len() as u64, Relaxed);
    }

    fn load_all(&self) -> (Vec<K::Stored>, Vec<u64>) {
        let count = self.count();
        let children = &self.words[Self::CHILDREN..=Self::CHILDREN + count];
        ((0..count).map(|i| self.key(i)).collect(), children.iter().map(|w| w.load(Relaxed)).collect())
    }

    /// Makes a fresh node of these children and the separators between them.
    pub(super) fn fill(&self, keys: &[K::Stored], children: &[Child]) {
        debug_assert!(children.len() == keys.len() + 1 && keys.len() <= Self::CAPACITY);
        self.store_all(keys, &children.iter().map(|child| child.encode()).collect::<Vec<_>>());
    }

    /// Adds a separator and the child to its right. The node is latched and has room.
    pub(super) fn insert(&self, index: usize, key: K::Stored, right: Child) {
        let count = self.count();
        debug_assert!(count < Self::CAPACITY && index <= count);
        for i in (index..count).rev() {
            self.set_key(i + 1, self.key(i));
            let child = self.words[Self::CHILDREN + i + 1].load(Relaxed);
            self.words[Self::CHILDREN + i + 2].store(child, Relaxed);
        }
        self.set_key(index, key);
        self.words[Self::CHILDREN + index + 1].store(right.encode(), Relaxed);
        self.words[1].store(count as u64 + 1, Relaxed);
    }

    /// Adds a separator and child to a full, latched node by moving the upper half to a fresh one; returns the
    /// separator between the two.
    pub(super) fn split_insert(
        &self,
        fresh: &Inner<'_, K>,
        index: usize,
        key: K::Stored,
        right: Child,
    ) -> K::Stored {
        let (mut keys, mut children) = self.load_all();
        keys.insert(index, key);
        children.insert(index + 1, right.encode());
        let middle = keys.len() / 2;
        fresh.store_all(&keys[middle + 1..], &children[middle + 1..]);
        self.store_all(&keys[..middle], &children[..=middle]);
        keys[middle]
    }

    /// Takes out a child and the separator beside it: the one on its left, or for the first child the one on
    /// its right, which is returned. The node is latched and has at least two children.
    pub(super) fn remove(&self, index: usize) -> Option<K::Stored> {
        let (mut keys, mut children) = self.load_all();
        children.remove(index);
        let right_of_first = (index == 0).then(|| keys[0]);
        keys.remove(index.saturating_sub(1));
        self.store_all(&keys, &children);
        right_of_first
    }
}

/// Chunks double in size, so their number is small and nodes never move.
const CHUNKS: usize = 24;
const FIRST_CHUNK: usize = 64;

/// All inner nodes of a tree.
pub(super) struct Arena<K: TreeKey> {
    chunks: [OnceLock<Box<[NodeWords]>>; CHUNKS],
    next: AtomicU32,
    free: Mutex<Vec<u32>>,
    key: PhantomData<K>,
}

impl<K: TreeKey> Arena<K> {
    pub(super) fn new() -> Arena<K> {
        Arena {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            next: AtomicU32::new(0),
            free: Mutex::default(),
            key: PhantomData,
        }
    }

    #[inline]
    fn place(id: u32) -> (usize, usize) {
        let shifted = id as usize + FIRST_CHUNK;
        let chunk = (shifted.ilog2() - FIRST_CHUNK.ilog2()) as usize;
        (chunk, shifted - (FIRST_CHUNK << chunk))
    }

    #[inline]
    pub(super) fn node(&self, id: u32) -> Inner<'_, K> {
        let (chunk, index) = Self::place(id);
        let nodes = self.chunks[chunk].get().expect("references name nodes that were allocated");
        Inner { words: &nodes[index].0, key: PhantomData }
    }

    /// A node that nobody else has.
    pub(super) fn allocate(&self) -> (u32, Inner<'_, K>) {
        let recycled = self.free.lock().pop();
        let id = recycled.unwrap_or_else(|| self.next.fetch_add(1, Relaxed));
        let (chunk, _) = Self::place(id);
        assert!(chunk < CHUNKS, "a tree has at most {} inner nodes", FIRST_CHUNK << CHUNKS);
        self.chunks[chunk].get_or_init(|| {
            let fresh = || NodeWords(std::array::from_fn(|_| AtomicU64::new(0)));
            (0..FIRST_CHUNK << chunk).map(|_| fresh()).collect()
        });
        (id, self.node(id))
    }

    /// Takes a node back that no other node refers to any more.
    pub(super) fn give_back(&self, id: u32) {
        self.free.lock().push(id);
    }

    /// Bytes of nodes in use.
    pub(super) fn bytes(&self) -> usize {
        let used = self.next.load(Relaxed) as usize - self.free.lock().len();
        used * size_of::<NodeWords>()
    }
}
