//! Placement of inner nodes: in the pool, or in DRAM, where they are rebuilt when a tree is opened.
//!
//! An inner node is referred to by an even number, in a child word by that number plus one; a leaf by its
//! pool offset. In DRAM nodes live in an arena that only grows; a freed node stays a node with a version, so
//! a reader that still has its number reads stale words at worst and notices when it validates.

use crate::error::{Error, Result};
use crate::latch::LatchStripes;
use crate::node::Node;
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_memory::{Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Target of a child word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildRef {
    /// An inner node.
    Inner(u64),
    /// A leaf's offset.
    Leaf(PoolOffset),
}

impl ChildRef {
    #[inline]
    pub(super) fn decode(word: u64) -> ChildRef {
        if word & 1 == 1 { ChildRef::Inner(word & !1) } else { ChildRef::Leaf(PoolOffset::from_word(word)) }
    }
}

/// The child word of an inner node.
#[inline]
pub(super) fn inner_word(reference: u64) -> u64 {
    debug_assert!(reference & 1 == 0, "the reference {reference:#x} leaves the tag of a child word free");
    reference | 1
}

/// Placement of a tree's inner nodes.
pub trait Placement: Sized + Send + Sync + 'static {
    /// Name in messages.
    const NAME: &'static str;
    /// Number in headers.
    const NUMBER: u8;
    /// True if inner nodes are in the pool.
    const PERSISTENT: bool;
    /// Creates an empty placement for nodes of `node_bytes` bytes; DRAM is reserved in the pool's memory budget.
    fn new(pool: &Pool, node_bytes: usize) -> Self;
    /// Returns the node with this reference, which was read from a sound one. An error if it cannot be a
    /// node.
    fn node<'a>(&'a self, pool: &'a Pool, reference: u64) -> Result<Node<'a>>;
    /// Returns a node's latch; `own` is the word for it in the node.
    fn latch<'a>(&'a self, node: Node<'a>, reference: u64, own: usize) -> &'a AtomicU64;
    /// Allocates a node, which is used once the publication is published.
    fn allocate<'p>(&'p self, pool: &'p Pool, with: &mut Publication<'p>) -> Result<u64>;
    /// Frees a node without references to it.
    fn free(&self, reference: u64, with: &mut Publication<'_>);
    /// Bytes of DRAM in use by nodes.
    fn bytes(&self) -> usize;
}

/// Returns an error unless a node of `bytes` bytes can be at an offset, and its pages are sound: damage is found
/// here, not by a stray access later.
#[inline]
pub(super) fn check_offset(pool: &Pool, offset: PoolOffset, bytes: usize) -> Result<()> {
    if offset.is_null() || !offset.is_aligned(64) || !pool.contains(offset, bytes as u64) {
        return Err(Error::Corrupt {
            offset,
            message: "the offset cannot hold a node, but a reference leads to it".into(),
        });
    }
    Ok(pool.verify(offset, bytes)?)
}

/// Inner nodes in the pool: nothing to rebuild.
pub struct Persistent {
    node_bytes: usize,
    latches: LatchStripes,
}

impl Placement for Persistent {
    const NAME: &'static str = "persistent";
    const NUMBER: u8 = 1;
    const PERSISTENT: bool = true;

    fn new(_pool: &Pool, node_bytes: usize) -> Persistent {
        Persistent { node_bytes, latches: LatchStripes::new() }
    }

    #[inline]
    fn node<'a>(&'a self, pool: &'a Pool, reference: u64) -> Result<Node<'a>> {
        let offset = PoolOffset::from_word(reference);
        check_offset(pool, offset, self.node_bytes)?;
        Ok(Node::new(pool.words(offset, self.node_bytes / 8), offset))
    }

    #[inline]
    fn latch<'a>(&'a self, _node: Node<'a>, reference: u64, _own: usize) -> &'a AtomicU64 {
        self.latches.numbered(PoolOffset::from_word(reference).block_number(self.node_bytes as u64))
    }

    fn allocate<'p>(&'p self, pool: &'p Pool, with: &mut Publication<'p>) -> Result<u64> {
        Ok(with.allocate(pool.reserve(self.node_bytes)?).to_word())
    }

    fn free(&self, reference: u64, with: &mut Publication<'_>) {
        with.free(PoolOffset::from_word(reference));
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Number of chunks. Chunks double in size, so their number is small and nodes never move.
const CHUNKS: usize = 24;
const FIRST_CHUNK: usize = 64;
const LINE_WORDS: usize = 8;

/// Inner nodes in DRAM.
pub struct Dram {
    node_words: usize,
    chunks: [OnceLock<Chunk>; CHUNKS],
    next: AtomicU32,
    free: Mutex<Vec<u32>>,
    /// Reservation of the chunks in the pool's memory budget, if it has one.
    memory: Option<Mutex<MemoryReservation>>,
}

/// Words of nodes, from the first that begins a cache line.
struct Chunk {
    words: Box<[AtomicU64]>,
    first: usize,
}

impl Chunk {
    fn new(words: usize) -> Chunk {
        let words: Box<[AtomicU64]> = (0..words + LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let misplaced = (words.as_ptr() as usize / 8) % LINE_WORDS;
        Chunk { words, first: (LINE_WORDS - misplaced) % LINE_WORDS }
    }
}

impl Dram {
    #[inline]
    fn place(id: u32) -> (usize, usize) {
        let shifted = id as usize + FIRST_CHUNK;
        let chunk = (shifted.ilog2() - FIRST_CHUNK.ilog2()) as usize;
        (chunk, shifted - (FIRST_CHUNK << chunk))
    }
}

impl Placement for Dram {
    const NAME: &'static str = "DRAM";
    const NUMBER: u8 = 2;
    const PERSISTENT: bool = false;

    fn new(pool: &Pool, node_bytes: usize) -> Dram {
        Dram {
            node_words: node_bytes / 8,
            chunks: std::array::from_fn(|_| OnceLock::new()),
            next: AtomicU32::new(0),
            free: Mutex::default(),
            memory: pool.memory().map(|memory| Mutex::new(memory.empty(MemoryConsumer::InnerNodes))),
        }
    }

    #[inline]
    fn node<'a>(&'a self, _pool: &'a Pool, reference: u64) -> Result<Node<'a>> {
        let (chunk, index) = Self::place((reference / 2) as u32);
        let chunk = self.chunks[chunk].get().expect("the chunks of referenced nodes are allocated");
        let first = chunk.first + index * self.node_words;
        Ok(Node::new(&chunk.words[first..first + self.node_words], PoolOffset::NULL))
    }

    #[inline]
    fn latch<'a>(&'a self, node: Node<'a>, _reference: u64, own: usize) -> &'a AtomicU64 {
        &node.words()[own]
    }

    fn allocate<'p>(&'p self, _pool: &'p Pool, _with: &mut Publication<'p>) -> Result<u64> {
        let recycled = self.free.lock().pop();
        let id = recycled.unwrap_or_else(|| self.next.fetch_add(1, Relaxed));
        let (chunk, _) = Self::place(id);
        assert!(chunk < CHUNKS, "a tree has at most {} inner nodes in DRAM", FIRST_CHUNK << CHUNKS);
        self.chunks[chunk].get_or_init(|| {
            let words = (FIRST_CHUNK << chunk) * self.node_words;
            if let Some(memory) = &self.memory {
                // In the middle of a split, which must not fail: pages of the pool are evicted instead.
                memory.lock().grow_unchecked(words as u64 * 8);
            }
            Chunk::new(words)
        });
        Ok(u64::from(id) * 2)
    }

    fn free(&self, reference: u64, _with: &mut Publication<'_>) {
        let mut free = self.free.lock();
        let id = (reference / 2) as u32;
        debug_assert!(id < self.next.load(Relaxed) && !free.contains(&id), "the node {id} is freed once");
        free.push(id);
    }

    fn bytes(&self) -> usize {
        (self.next.load(Relaxed) as usize - self.free.lock().len()) * self.node_words * 8
    }
}
