//! Persistent index structures.
//!
//! Contents:
//! - the FPTree (dissertation 3.2.2): leaves with fingerprints in persistent memory, sorted inner nodes in
//!   DRAM that are built when they are needed. Keys are 8 bytes, 16 bytes, or of variable length; values are
//!   one word. [`OrderedIndex`] is the interface for the crates above: byte keys in memcmp order;
//! - [node layouts](node) with their micro-operations, the parts that trees are made of;
//! - one [B+-tree](btree) over any of them, with the designs of the papers as
//!   [instances](btree::instances). The crate's `README.md` says which to choose;
//! - the extendible hash table ([`HashTable`]): one bucket of two neighbouring lines a lookup;
//! - the LSM-tree ([`lsm::LsmTree`]): a buffer and its log, levels in the pool and in files;
//! - [skip-lists](skiplist) with a pair or a bucket in each node, towers in the pool or in DRAM;
//! - [tries](trie) over byte strings: the standard one and PATRICIA;
//! - [PMwCAS](pmwcas): a compare-and-swap over several words, for structures without latches;
//! - [Elf](elf): tuples of codes by conditions on any of their dimensions, in one array that is written once;
//! - the hotspot index ([`HotspotIndex`]): the hot entries of any of them in DRAM.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::{KeyWidth, OrderedIndex};
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication)?;
//! publication.set_root("index", root)?;
//! publication.publish()?;
//! let index = OrderedIndex::open(&pool, root)?;
//! index.insert(&7u64.to_be_bytes(), 49, pool.publication())?;
//! assert_eq!(index.get(&7u64.to_be_bytes())?, Some(49));
//! # Ok::<(), entresol_structures::Error>(())
//! ```
//!
//! The generic tree takes numbers:
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::btree::instances::HybridPbpTree;
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = HybridPbpTree::<u64>::create(&pool, &mut publication)?;
//! publication.set_root("squares", root)?;
//! publication.publish()?;
//! let tree = HybridPbpTree::<u64>::open(&pool, root)?;
//! for key in 0..1000 {
//!     tree.insert(key, key * key, pool.publication())?;
//! }
//! assert_eq!(tree.get(12)?, Some(144));
//! assert_eq!(tree.range(10..=19).count(), 10);
//! # Ok::<(), entresol_structures::Error>(())
//! ```
//!
//! Locks and versions live in DRAM, never in persistent memory; every operation is failure-atomic by the
//! order of its own stores and one publication.

pub mod btree;
#[cfg(feature = "testkit")]
pub mod crash_histories;
pub mod elf;
mod error;
mod fptree;
mod hash;
mod hotspot;
mod index;
mod key;
mod latch;
#[cfg(test)]
mod latch_protocol;
mod leaf;
#[cfg(all(test, feature = "mutants"))]
#[path = "../tests/crash/points/mod.rs"]
mod listed;
pub mod lsm;
#[cfg(test)]
mod map_tests;
pub mod node;
mod note;
pub mod pmwcas;
mod points;
mod range;
mod simd;
pub mod skiplist;
pub mod trie;

pub use error::{Error, Result};
pub use fptree::{FpTree, TreeStats};
pub use hash::{HashKey, HashStats, HashTable};
pub use hotspot::{Clock as HotspotClock, HotspotIndex, HotspotOptions, HotspotStats, PointIndex};
pub use index::{HotMemory, IndexContent, IndexStructure, KeyWidth, OrderedIndex};
pub use key::{ByteKey, KEY_BYTES_MAX, KeyBytes, PairKey, TreeKey, WordKey};
pub use leaf::LEAF_BYTES;
#[cfg(feature = "mutants")]
pub use points::POINTS;
pub use range::{Range, Scan};
pub use simd::{BitSet, CHUNK_VALUES, LANES, append_positions_in, append_positions_within, unpack_chunk};

/// Result of [`OrderedIndex::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The key was added.
    New,
    /// The key exists, with this value; nothing was changed.
    Exists(u64),
}

impl Inserted {
    /// Returns the value that the key had.
    #[inline]
    pub fn before(self) -> Option<u64> {
        match self {
            Inserted::New => None,
            Inserted::Exists(value) => Some(value),
        }
    }
}

/// Change of a key by [`OrderedIndex::apply_many`], [`FpTree::apply_many`] and [`HashTable::apply_many`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds the key with a value; no change if it exists.
    Insert(u64),
    /// Changes the value; no change if the key is missing.
    Replace(u64),
    /// Removes the key.
    Remove,
}
