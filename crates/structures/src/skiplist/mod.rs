//! Skip-lists (dissertation 3.2.4): one list for both forms, with a single pair in each node or a bucket of
//! several, and with towers in the pool, as the dissertation has them, or in DRAM, rebuilt at open.
//!
//! ```text
//!  level 2   head ──────────────────────────► 30 ─────────────► 0      towers: pool or DRAM
//!  level 1   head ──────► 10 ───────────────► 30 ──────► 50 ──► 0
//!  level 0   head ──► 5 ► 10 ──► 20 ──► 25 ──► 30 ──► 40 ► 50 ──► 0     nodes: pool, always
//!
//!  word of a node   content
//!  0                height in the pool (low byte) and a hash of it and the low key; 0: the node is removed
//!  1, 2             low key: no key of the node is smaller, and all keys of the next node are greater
//!  3                a pair's value; of a bucket a bound: no key's first word is greater (the SMA)
//!  4 ..             forward pointers, level 0 first
//!  behind them      of a bucket a node of one of the layouts of [`crate::node`]
//! ```
//!
//! Invariants:
//! 1. Level 0 links all nodes by ascending low key; a level above links those of the level below that are
//!    that high.
//! 2. A key is in the last node whose low key is not greater. No node but the head is empty.
//! 3. A low key never changes; nor does any other word of an unlinked node, until it has no readers.
//!
//! **After a crash.** An entry is added to a bucket by its layout: the entry, the bound, then one word. A new
//! node is filled and flushed, then one publication allocates it and links it on every level that is in the
//! pool; in a split that publication also removes the upper half from the old bucket. A node without entries
//! is unlinked and freed in one publication. Recovery finds the list before or after, and has nothing to
//! repair.
//!
//! **Concurrency.** Readers descend without latches, and validate the version of the final node, together
//! with its link: it proves that all other keys are elsewhere. A writer latches the nodes whose words it
//! changes, at most one a level and most often one altogether, by trying; if one is locked, or a link has
//! changed, it starts again. A new node is latched until it is durable. Latches are in DRAM. Freed nodes wait
//! for the pool's readers.
//!
//! **Cost.** With `n` nodes about `log4(n) * 2` hops a descent, each a cache miss where towers are in the
//! pool. An insert into a bucket has two fences, a new node four.
//!
//! Memory: DRAM towers about 9 bytes a node; 128 KiB of latches.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::skiplist::HybridBucketSkipList;
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = HybridBucketSkipList::<u64>::create(&pool, &mut publication)?;
//! publication.set_root("squares", root)?;
//! publication.publish()?;
//! let list = HybridBucketSkipList::<u64>::open(&pool, root)?;
//! for key in 0..1000 {
//!     list.insert(key, key * key, pool.publication())?;
//! }
//! assert_eq!(list.get(12)?, Some(144));
//! assert_eq!(list.range(10..=19).rev().count(), 10);
//! # Ok::<(), entresol_structures::Error>(())
//! ```

mod check;
mod content;
mod descent;
mod estimates;
mod lifecycle;
mod load;
mod many;
mod scan;
mod structure;
#[cfg(test)]
mod tests;
mod towers;

pub use content::{Bucket, Content, OnePair};
pub use towers::{DramTowers, PoolTowers, Towers};

use crate::Inserted;
use crate::error::{Error, Result};
use crate::latch::{self, LatchStripes};
use crate::node::{Bitmap, FixedKey, Hashing, Medium, Node};
use content::Parts;
use entresol_memory::{Pool, PoolOffset, Publication};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use towers::TowerArena;

/// Maximum of levels; every fourth node of one is in the next, so this suffices for sixteen million nodes and
/// more.
pub const LEVELS_MAX: usize = 12;

/// Maximum of changes that a caller's publication may carry into an insert or a removal: a node of the
/// greatest height needs the rest of a publication.
pub const CARRIED_WORDS_MAX: usize = 40;

/// Bytes of a head with four forward pointers, enough for most nodes.
const SHORT_HEAD_BYTES: usize = 64;
/// Bytes of a head with all forward pointers.
const TALL_HEAD_BYTES: usize = 128;
/// Words of a head.
const META: usize = 0;
const LOW: usize = 1;
const AUX: usize = 3;
const FORWARD: usize = 4;
const _: () = assert!((FORWARD + LEVELS_MAX) * 8 == TALL_HEAD_BYTES);

/// A pair in each node, towers in the pool: the dissertation's first form.
pub type PairSkipList<K> = SkipList<K, OnePair, PoolTowers>;
/// A pair in each node, towers in DRAM.
pub type HybridPairSkipList<K> = SkipList<K, OnePair, DramTowers>;
/// Unsorted buckets with a bitmap, towers in the pool: the dissertation's second form.
pub type BucketSkipList<K, const BUCKET: usize = 768> = SkipList<K, Bucket<Bitmap<BUCKET>>, PoolTowers>;
/// Buckets with fingerprints, towers in DRAM: the fewest accesses to the medium.
pub type HybridBucketSkipList<K, const BUCKET: usize = 768> =
    SkipList<K, Bucket<Hashing<BUCKET>>, DramTowers>;

/// Type parameters of a list, without values of them.
type ListTypes<K, C, T> = PhantomData<fn() -> (K, C, T)>;

/// A persistent ordered map from keys to words; see the [module](self). `C` is the content of nodes, `T` the
/// placement of towers.
pub struct SkipList<K: FixedKey, C: Content, T: Towers> {
    pool: Arc<Pool>,
    header: PoolOffset,
    /// The head's offset.
    head: PoolOffset,
    /// Towers, if they are in DRAM.
    arena: Arc<TowerArena>,
    latches: LatchStripes,
    /// Levels that nodes have had.
    levels: AtomicUsize,
    seed: AtomicU64,
    /// Number of unlinked nodes. A reader that finds a removed node must see this change.
    unlinked: AtomicU64,
    kinds: ListTypes<K, C, T>,
}

/// Sizes of a [`SkipList`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkipListStats {
    /// Keys.
    pub keys: u64,
    /// Nodes, without the head.
    pub nodes: u64,
    /// Levels in use.
    pub levels: u32,
    /// Forward pointers above level 0.
    pub tower_links: u64,
    /// Bytes of nodes in the pool.
    pub pool_bytes: u64,
    /// Bytes of towers in DRAM.
    pub dram_bytes: u64,
}

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Returns the pool offset of the list's header, for [`SkipList::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.header
    }

    /// Returns its pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn latch(&self, node: PoolOffset) -> &AtomicU64 {
        self.latches.numbered(node.block_number(SHORT_HEAD_BYTES as u64))
    }

    /// Returns the parts of a node whose head was read.
    #[inline]
    fn parts(&self, node: PoolOffset) -> Parts<'_> {
        let (head_bytes, in_head) = (C::head_bytes(1), node == self.head);
        // A pair's body is empty.
        let body: &[AtomicU64] = match C::BYTES {
            0 => &[],
            bytes => self.pool.words(node.plus(head_bytes as u64), bytes / 8),
        };
        Parts {
            head: Node::new(self.pool.words(node, FORWARD + 1), node),
            body: Node::new(body, node.plus(head_bytes as u64)),
            holds: C::IN_HEAD || !in_head,
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: K) -> Result<Option<u64>> {
        let _pinned = self.pool.pin();
        let mut spins = 0;
        loop {
            let found = self.descend(key)?;
            let value = C::find(self.parts(found.node), key).map(|(_, value)| value);
            if latch::validate(self.latch(found.node), found.version) {
                return Ok(value);
            }
            latch::pause(&mut spins);
        }
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped.
    pub fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        check_carried(&with)?;
        self.insert_with(key, with, &mut |_| value)
    }

    /// As [`SkipList::insert`]; `value` is called once the key is known to be new, and may add changes.
    fn insert_with<'p>(
        &'p self,
        key: K,
        with: Publication<'p>,
        value: &mut dyn FnMut(&mut Publication<'p>) -> u64,
    ) -> Result<Inserted> {
        let _pinned = self.pool.pin();
        let height = self.random_height();
        let mut with = Some(with);
        let mut spins = 0;
        loop {
            let path = self.descend(key)?;
            if let Some(mut held) = self.latch_node(path.node, path.version) {
                let parts = self.parts(path.node);
                if let Some((_, value)) = C::find(parts, key) {
                    return Ok(Inserted::Exists(value));
                }
                if !C::is_full::<K>(parts) {
                    let mut with = with.take().expect("it is published once");
                    let value = value(&mut with);
                    check_carried(&with)?;
                    C::insert(parts, key, value, &mut Medium::Pool(&self.pool, &mut with))?;
                    with.publish()?;
                    return Ok(Inserted::New);
                }
                if self.latch_predecessors(&mut held, &path, height)
                    && self.grow(&mut held, &path, height, (key, &mut *value), &mut with)?
                {
                    return Ok(Inserted::New);
                }
            }
            latch::pause(&mut spins);
        }
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one. If the key is
    /// missing, `with` is dropped.
    pub fn update<'p>(&'p self, key: K, value: u64, mut with: Publication<'p>) -> Result<Option<u64>> {
        let _pinned = self.pool.pin();
        let (_held, parts) = self.latch_node_of(key)?;
        let Some((at, old)) = C::find(parts, key) else { return Ok(None) };
        with.set(at, value);
        with.publish()?;
        Ok(Some(old))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped.
    pub fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        check_carried(&with)?;
        let _pinned = self.pool.pin();
        let mut with = Some(with);
        let mut spins = 0;
        loop {
            let low = if C::BYTES == 0 {
                key
            } else {
                let (_held, parts) = self.latch_node_of(key)?;
                let Some((_, old)) = C::find(parts, key) else { return Ok(None) };
                if C::count::<K>(parts) > 1 || parts.head.word_offset(0) == self.head {
                    let mut with = with.take().expect("it is published once");
                    C::erase(parts, key, &mut Medium::Pool(&self.pool, &mut with))?;
                    with.publish()?;
                    return Ok(Some(old));
                }
                parts.head.load_key(LOW)
            };
            if let Some(outcome) = self.try_unlink(low, key, &mut with)? {
                return Ok(outcome);
            }
            latch::pause(&mut spins);
        }
    }

    /// Latches the node of a key.
    fn latch_node_of(&self, key: K) -> Result<(latch::LatchSet<'_>, Parts<'_>)> {
        let mut spins = 0;
        loop {
            let path = self.descend(key)?;
            if let Some(held) = self.latch_node(path.node, path.version) {
                return Ok((held, self.parts(path.node)));
            }
            latch::pause(&mut spins);
        }
    }

    /// Chooses the height of a new node: a level more with a probability of a quarter each.
    fn random_height(&self) -> usize {
        let drawn = self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (drawn ^ drawn >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31).trailing_zeros() as usize / 2 + 1).min(LEVELS_MAX)
    }
}

/// Returns an error if the changes in `with` leave no room for the list's own.
fn check_carried(with: &Publication<'_>) -> Result<()> {
    if with.len() > CARRIED_WORDS_MAX {
        return Err(Error::Invalid(format!(
            "the publication carries {} changes; an operation of a skip-list allows {CARRIED_WORDS_MAX}",
            with.len()
        )));
    }
    Ok(())
}
