//! Tries over byte strings of variable length (dissertation 3.2.4): the standard trie and PATRICIA.
//!
//! | | [`Trie`] | [`Patricia`] |
//! | --- | --- | --- |
//! | a node | one letter of four bits: 16 pointers | the number of the next bit that differs: two pointers |
//! | a key | the path to a node with a value | a leaf of its own, which holds the complete key |
//! | nodes of a key | two a byte that it shares with no other key | two |
//! | a lookup | two misses a byte | one miss a branch, and the leaf |
//!
//! Both are ordered as `memcmp` orders, with a key before those that it is a prefix of. Letters have four
//! bits, since with 256 pointers nodes of 2 KiB would be nearly empty. PATRICIA's dissertation form has the
//! common prefix in its inner nodes; here they have the number of the bit alone, so that they have one size,
//! and the skipped bits are compared in the leaf only.
//!
//! **After a crash.** Every change is one publication that swings one pointer, or sets one word, together
//! with the allocation and the freeing of the nodes around it: the key exists or not. Only a key of a
//! [`Trie`] that needs more than [`PIECE_NODES`] new nodes is made in pieces from the top: a crash between
//! leaves a path that ends without a value. It is harmless, and freed by the next removal along it. There is
//! no recovery.
//!
//! **Concurrency.** Readers write nothing: they read each pointer while its node's latch is free, so the
//! pointers they follow are durable. A removed node is marked; a reader that finds one starts again. A writer
//! latches the one to three nodes whose words it changes (of a [`Trie`] also those that it removes). Latches
//! are in DRAM.
//!
//! Memory: 128 KiB of latches; nodes are in the pool.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::trie::Patricia;
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = Patricia::create(&pool, &mut publication)?;
//! publication.set_root("words", root)?;
//! publication.publish()?;
//! let words = Patricia::open(&pool, root)?;
//! for (number, word) in (0..).zip(["romane", "romanus", "romulus", "rubens", "ruber"]) {
//!     words.insert(word.as_bytes(), number, pool.publication())?;
//! }
//! assert_eq!(words.get(b"romulus")?, Some(2));
//! assert_eq!(words.get(b"rom")?, None);
//! assert_eq!(words.prefix(b"roman").count(), 2);
//! # Ok::<(), entresol_structures::Error>(())
//! ```

mod frame;
mod patricia;
mod plain;
mod range;
#[cfg(test)]
mod tests;

pub use patricia::{PATRICIA_CARRIED_WORDS_MAX, Patricia, PatriciaIndex, PatriciaStats};
pub use plain::{PIECE_NODES, Trie, TrieStats};
pub use range::{TrieEntry, TrieRange, TrieScan};

/// Maximum of changes that a caller's publication may carry into an operation of a trie.
pub const CARRIED_WORDS_MAX: usize = 24;

/// Mixes words into a checksum of them.
fn seal(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0x07E1_E5EA_u64, |seal, word| {
        let mixed = (seal.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    })
}
