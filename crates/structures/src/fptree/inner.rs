//! Inner nodes: sorted, in DRAM, read without locks.
//!
//! ```text
//! word (of 128)     content (W = words of a key)
//! 0                 version latch
//! 1                 number of children
//! 2..8              pivots: the low keys of the second, third, ... group (6 or 3 of them)
//! 8..               groups of 8 children each (7 or 4 of them): 8 low keys, then 8 children
//! 127               lowest nodes: offset of the first leaf's entry in the sparse index; 0: none
//! ```
//!
//! A child is a reference to an inner node (odd), the offset of a leaf (a multiple of four) or a segment
//! without inner node yet. It has the keys from its low key up to the next child's; the first child's low key
//! is ignored. A search reads the first line, then the two or three lines of one group, which can be
//! prefetched together: that is the purpose of the layout.
//!
//! Nodes live in an arena that only grows; a freed node stays a node with a version, so a reader that still
//! has its number reads stale words at worst and notices when it validates.

use crate::key::TreeKey;
use crate::simd::{Line, prefetch};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_memory::{Pool, PoolOffset};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, OnceLock};

const NODE_WORDS: usize = 128;
const PIVOTS: usize = 2;
const GROUPS: usize = 8;
/// Children of a group: a line of child references.
const GROUP: usize = 8;
const SPARSE_PLACE: usize = NODE_WORDS - 1;

/// A child: an inner node, a leaf, or a number of a segment of leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Child {
    Inner(u32),
    Leaf(PoolOffset),
    Segment(u32),
}

impl Child {
    #[inline]
    pub(super) fn decode(word: u64) -> Child {
        match word & 3 {
            0 => Child::Leaf(PoolOffset::from_word(word)),
            2 => Child::Segment((word >> 2) as u32),
            _ => Child::Inner((word >> 1) as u32),
        }
    }

    pub(super) fn encode(self) -> u64 {
        debug_assert!(
            !matches!(self, Child::Leaf(offset) if offset.is_null() || !offset.is_aligned(4)),
            "{self:x?} is not an offset of a leaf"
        );
        match self {
            Child::Inner(id) => (u64::from(id) << 1) | 1,
            Child::Leaf(offset) => offset.to_word(),
            Child::Segment(number) => (u64::from(number) << 2) | 2,
        }
    }
}

#[repr(align(64))]
struct NodeWords([AtomicU64; NODE_WORDS]);

/// An inner node, seen as words.
pub(super) struct InnerWords<'a, K: TreeKey> {
    words: &'a [AtomicU64; NODE_WORDS],
    key: PhantomData<K>,
}

impl<'a, K: TreeKey> InnerWords<'a, K> {
    const PIVOT_COUNT: usize = 6 / K::WORDS;
    const GROUP_WORDS: usize = GROUP * (K::WORDS + 1);
    /// Children that fit.
    pub(super) const CAPACITY: usize = GROUP * (Self::PIVOT_COUNT + 1);

    const LAYOUT_FITS: () =
        assert!(GROUPS + (Self::PIVOT_COUNT + 1) * Self::GROUP_WORDS <= SPARSE_PLACE, "groups fit the node");

    #[inline]
    pub(super) fn latch(&self) -> &'a AtomicU64 {
        &self.words[0]
    }

    /// Number of children; in range even when read while a writer is inside.
    #[inline]
    pub(super) fn count(&self) -> usize {
        // Pairs with the stores of the count: a reader that sees a slot in use sees its key.
        (self.words[1].load(Acquire) as usize).clamp(1, Self::CAPACITY)
    }

    const fn key_word(index: usize) -> usize {
        GROUPS + index / GROUP * Self::GROUP_WORDS + index % GROUP * K::WORDS
    }

    const fn child_word(index: usize) -> usize {
        GROUPS + index / GROUP * Self::GROUP_WORDS + GROUP * K::WORDS + index % GROUP
    }

    /// Returns the low key of a child other than the first.
    #[inline]
    pub(super) fn key(&self, index: usize) -> K::Stored {
        let word = Self::key_word(index);
        K::load(&self.words[word..word + K::WORDS])
    }

    pub(super) fn set_key(&self, index: usize, key: K::Stored) {
        debug_assert!(index < Self::CAPACITY, "child {index} lies in the node");
        let word = Self::key_word(index);
        K::store(&self.words[word..word + K::WORDS], key);
        if index.is_multiple_of(GROUP) && index > 0 {
            let pivot = PIVOTS + (index / GROUP - 1) * K::WORDS;
            K::store(&self.words[pivot..pivot + K::WORDS], key);
        }
    }

    #[inline]
    pub(super) fn child(&self, index: usize) -> Child {
        Child::decode(self.words[Self::child_word(index)].load(Relaxed))
    }

    pub(super) fn set_child(&self, index: usize, child: Child) {
        debug_assert!(index < Self::CAPACITY, "child {index} lies in the node");
        self.words[Self::child_word(index)].store(child.encode(), Relaxed);
    }

    /// Returns the offset of the first leaf's entry in the sparse index; 0: none. The caller holds the
    /// structure lock.
    pub(super) fn sparse_place(&self) -> PoolOffset {
        PoolOffset::from_word(self.words[SPARSE_PLACE].load(Relaxed))
    }

    pub(super) fn set_sparse_place(&self, place: PoolOffset) {
        debug_assert!(place.is_aligned(8), "an entry of the sparse index begins at a word: {place:#x}");
        self.words[SPARSE_PLACE].store(place.to_word(), Relaxed);
    }

    fn pivot(&self, group: usize) -> K::Stored {
        let word = PIVOTS + (group - 1) * K::WORDS;
        K::load(&self.words[word..word + K::WORDS])
    }

    /// Same as [`InnerWords::group_of`], a pivot at a time.
    #[inline]
    fn group(&self, goes_right: impl Fn(K::Stored) -> bool) -> usize {
        let used = self.count().div_ceil(GROUP);
        (1..=Self::PIVOT_COUNT).map(|g| counted::<K>(g < used, || goes_right(self.pivot(g)))).sum()
    }

    /// Same as [`InnerWords::position_of`], a key at a time.
    #[inline]
    fn position_in_group(&self, group: usize, goes_right: impl Fn(K::Stored) -> bool) -> usize {
        let first = group * GROUP;
        let used = self.count().saturating_sub(first).min(GROUP);
        let steps = (1..GROUP).map(|i| counted::<K>(i < used, || goes_right(self.key(first + i))));
        first + steps.sum::<usize>()
    }

    /// Returns the line that begins at a word.
    #[inline]
    fn line(&self, first: usize) -> &Line {
        self.words[first..].first_chunk().expect("a node is whole lines")
    }

    /// Returns the group of the child for the key: reads the first line only.
    #[inline]
    pub(super) fn group_of(&self, pool: &Pool, key: K::Key<'_>) -> usize {
        match K::line_not_greater(self.line(0), key) {
            Some(bits) => leading(bits >> PIVOTS, self.count().div_ceil(GROUP)),
            None => self.group(|stored| K::compare(pool, stored, key) != Ordering::Greater),
        }
    }

    /// Returns the child for the key, given its group.
    #[inline]
    pub(super) fn position_of(&self, pool: &Pool, group: usize, key: K::Key<'_>) -> usize {
        let first = group * GROUP;
        match K::line_not_greater(self.line(GROUPS + group * Self::GROUP_WORDS), key) {
            Some(bits) => first + leading(bits >> 1, self.count().saturating_sub(first).min(GROUP)),
            None => {
                self.position_in_group(group, |stored| K::compare(pool, stored, key) != Ordering::Greater)
            }
        }
    }

    /// Returns the child for the key.
    #[inline]
    pub(super) fn position(&self, pool: &Pool, key: K::Key<'_>) -> usize {
        let group = self.group_of(pool, key);
        self.prefetch_group(group);
        self.position_of(pool, group, key)
    }

    pub(super) fn position_of_stored(&self, pool: &Pool, key: K::Stored) -> usize {
        self.position_by(|stored| K::compare_stored(pool, stored, key) != Ordering::Greater)
    }

    /// Returns the last child whose low key goes right, or the first; those that do are in front.
    pub(super) fn position_by(&self, goes_right: impl Fn(K::Stored) -> bool) -> usize {
        self.position_in_group(self.group(&goes_right), goes_right)
    }

    /// Prefetches the first line.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.words[0]);
    }

    /// Prefetches the lines of a group.
    #[inline]
    pub(super) fn prefetch_group(&self, group: usize) {
        let first = GROUPS + group * Self::GROUP_WORDS;
        for line in 0..=K::WORDS {
            prefetch(&self.words[first + line * 8]);
        }
    }

    /// Returns the children with their low keys; the first low key is undefined.
    fn load_all(&self) -> Vec<(K::Stored, Child)> {
        (0..self.count()).map(|i| (self.key(i), self.child(i))).collect()
    }

    fn store_all(&self, children: &[(K::Stored, Child)]) {
        let () = Self::LAYOUT_FITS;
        assert!(
            (1..=Self::CAPACITY).contains(&children.len()),
            "a node has 1 to {} children, not {}",
            Self::CAPACITY,
            children.len()
        );
        for (index, (low, child)) in children.iter().enumerate() {
            self.set_key(index, *low);
            self.set_child(index, *child);
        }
        self.words[1].store(children.len() as u64, Release);
    }

    /// Fills a fresh node with these children and their low keys.
    pub(super) fn fill(&self, children: &[(K::Stored, Child)]) {
        debug_assert!(self.latch().load(Relaxed) & 1 == 0, "no thread has latched a fresh node");
        self.store_all(children);
    }

    /// Adds a child behind the one at `index`. The node is latched and has room.
    pub(super) fn insert_after(&self, index: usize, low: K::Stored, child: Child) {
        let count = self.count();
        assert!(
            count < Self::CAPACITY && index < count,
            "there is room for a child behind number {index} of {count}"
        );
        for i in (index + 1..count).rev() {
            self.set_key(i + 1, self.key(i));
            self.set_child(i + 1, self.child(i));
        }
        self.set_key(index + 1, low);
        self.set_child(index + 1, child);
        self.words[1].store(count as u64 + 1, Release);
    }

    /// Adds a child to a full, latched node by moving the upper half to a fresh one; returns the low key of
    /// the fresh one.
    pub(super) fn split_insert(
        &self,
        fresh: &InnerWords<'_, K>,
        index: usize,
        low: K::Stored,
        child: Child,
    ) -> K::Stored {
        let mut children = self.load_all();
        assert!(index < children.len(), "child {index} of {} is split", children.len());
        children.insert(index + 1, (low, child));
        let (left, right) = children.split_at(children.len() / 2);
        debug_assert!(!left.is_empty() && left.len() <= right.len(), "both halves have children");
        fresh.store_all(right);
        self.store_all(left);
        right[0].0
    }

    /// Removes a child. If it was the first, returns the low key of the new first one. The node is latched
    /// and has at least two children.
    pub(super) fn remove(&self, index: usize) -> Option<K::Stored> {
        let mut children = self.load_all();
        assert!(
            index < children.len() && children.len() > 1,
            "a node keeps a child: number {index} of {} is removed",
            children.len()
        );
        children.remove(index);
        self.store_all(&children);
        (index == 0).then(|| children[0].0)
    }
}

/// Counts the keys after the first of `used` that go right; their bits are in order, as the keys are.
#[inline]
fn leading(bits: u64, used: usize) -> usize {
    let in_use = bits & ((1 << used.saturating_sub(1)) - 1);
    in_use.trailing_ones() as usize
}

/// Returns 1 if the key at a used index goes right. Keys that are plain words are compared even where the
/// index is not in use, which costs no branch; others must not be, since their records may be freed.
#[inline]
fn counted<K: TreeKey>(in_use: bool, goes_right: impl FnOnce() -> bool) -> usize {
    if K::PLAIN { usize::from(in_use & goes_right()) } else { usize::from(in_use && goes_right()) }
}

/// Number of chunks. Chunks double in size, so their number is small and nodes never move.
const CHUNKS: usize = 24;
const FIRST_CHUNK: usize = 64;

/// All inner nodes of a tree.
pub(super) struct Arena<K: TreeKey> {
    chunks: [OnceLock<Box<[NodeWords]>>; CHUNKS],
    next: AtomicU32,
    free: Mutex<Vec<u32>>,
    /// Reservation of the chunks in the pool's memory budget, if it has one.
    memory: Option<Mutex<MemoryReservation>>,
    key: PhantomData<K>,
}

impl<K: TreeKey> Arena<K> {
    pub(super) fn new(memory: Option<&Arc<MemoryBudget>>) -> Arena<K> {
        Arena {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            next: AtomicU32::new(0),
            free: Mutex::default(),
            memory: memory.map(|memory| Mutex::new(memory.empty(MemoryConsumer::InnerNodes))),
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
    pub(super) fn node(&self, id: u32) -> InnerWords<'_, K> {
        let (chunk, index) = Self::place(id);
        let nodes = self.chunks[chunk].get().expect("the chunks of referenced nodes are allocated");
        InnerWords { words: &nodes[index].0, key: PhantomData }
    }

    /// Allocates a node.
    pub(super) fn allocate(&self) -> (u32, InnerWords<'_, K>) {
        let recycled = self.free.lock().pop();
        let id = recycled.unwrap_or_else(|| self.next.fetch_add(1, Relaxed));
        let (chunk, _) = Self::place(id);
        assert!(chunk < CHUNKS, "a tree has at most {} inner nodes", FIRST_CHUNK << CHUNKS);
        self.chunks[chunk].get_or_init(|| {
            if let Some(memory) = &self.memory {
                // In the middle of a split, which must not fail: pages of the pool are evicted instead.
                memory.lock().grow_unchecked(((FIRST_CHUNK << chunk) * size_of::<NodeWords>()) as u64);
            }
            let fresh = || NodeWords(std::array::from_fn(|_| AtomicU64::new(0)));
            (0..FIRST_CHUNK << chunk).map(|_| fresh()).collect()
        });
        let node = self.node(id);
        debug_assert!(node.latch().load(Relaxed) & 1 == 0, "a node without references is not latched");
        node.set_sparse_place(PoolOffset::NULL);
        (id, node)
    }

    /// Frees a node without references to it.
    pub(super) fn free(&self, id: u32) {
        debug_assert!(id < self.next.load(Relaxed), "node {id} was never allocated");
        self.free.lock().push(id);
    }

    /// Bytes of nodes in use.
    pub(super) fn bytes(&self) -> usize {
        let used = self.next.load(Relaxed) as usize - self.free.lock().len();
        used * size_of::<NodeWords>()
    }
}
