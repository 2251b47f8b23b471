//! The tree as the index of a table: all levels in the pool, so that a backup of the pool has all of it.
//!
//! Writers move full buffers and merge levels themselves, before they take a latch: nothing changes when no writer does,
//! so a check sees the tree at rest. A look-up precedes each write, since tables ask for the value before it.
//!
//! **After a crash** a write is there or not, as in any tree. One in destruction frees the objects of its values in the
//! order of the keys, each publication with a cursor in the header, and then its own parts.
//!
//! Memory: two buffers of [`BUFFER_ENTRIES`] writes, and for each 15 entries a key and filters of 150 bits, reserved in
//! the memory budget with each change of the runs.

use super::check::Claim;
use super::files::block::capacity;
use super::files::manifest::{CURSOR, DESTROYED, NOTE, magic};
use super::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use crate::error::Result;
use crate::fptree::TreeStats;
use crate::node::{Entries, FixedKey};
use crate::note;
use crate::range::Scan;
use crate::{Change, Inserted};
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_memory::{Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Writes of a buffer.
const BUFFER_ENTRIES: u32 = 1024;
/// Keys that are written between two looks whether the pool has room for them.
const GROUP: usize = 32;
/// Values that are freed in one publication.
const VALUES_FREED_MAX: usize = 24;
/// Values that are freed for each node that a caller asks to be.
const VALUES_OF_NODE: usize = 48;
/// Entries of a tree without runs that an estimate reads.
const SAMPLED_MAX: usize = 4 * BUFFER_ENTRIES as usize;

/// States of the header's word of destruction.
const PARTS_GO: u64 = 1;
const VALUES_GO: u64 = 2;
const VALUES_GO_BEHIND: u64 = 3;

const PARAMETERS: LsmParameters = LsmParameters {
    buffer_entries: BUFFER_ENTRIES,
    buffers: 2,
    runs_per_level: 4,
    pool_levels: 8,
    disk_levels: 0,
};

/// An [`LsmTree`] whose levels are all in the pool; see the [module](self).
pub struct PooledLsmTree<K: FixedKey> {
    tree: LsmTree<K>,
    memory: Option<Mutex<MemoryReservation>>,
    /// Moves and merges that the reservation knows of.
    known: AtomicU64,
}

/// Returns the greatest key.
fn greatest<K: FixedKey>() -> K {
    K::of_words(&[u64::MAX; 2][..K::WORDS])
}

fn options() -> LsmOptions {
    LsmOptions { maintenance: Maintenance::InCaller, cache_bytes: 0, ..LsmOptions::default() }
}

impl<K: FixedKey> PooledLsmTree<K> {
    /// Returns true for the first words of a header of this kind of tree.
    pub(crate) fn header_begins(found: u64, _: [u64; 2]) -> bool {
        found == magic(K::WORDS)
    }

    /// Creates an empty tree; it exists once the publication is published. Returns its root offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        LsmTree::<K>::create(pool, &PARAMETERS, with)
    }

    /// Opens a tree: replays the logs, and reads all of its blocks for the filters.
    pub fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<PooledLsmTree<K>> {
        let tree = LsmTree::open(pool, root, &options())?;
        let memory = pool.memory().map(|memory| Mutex::new(memory.empty(MemoryConsumer::InnerNodes)));
        let opened = PooledLsmTree { tree, memory, known: AtomicU64::new(0) };
        opened.reserve();
        Ok(opened)
    }

    /// Reserves the memory of buffers, keys of blocks and filters. In the middle of a write, which must not fail:
    /// pages of the pool are evicted instead.
    fn reserve(&self) {
        if let Some(memory) = &self.memory {
            let stats = self.tree.stats();
            let bytes = stats.buffer_bytes + stats.filter_bytes + stats.index_bytes;
            memory.lock().resize_unchecked(bytes as u64);
        }
    }

    /// Reserves again if runs have changed.
    fn note_changes(&self) {
        let counters = &self.tree.core.counters;
        let done = counters.moves.load(Relaxed) + counters.merges.load(Relaxed);
        if self.known.swap(done, Relaxed) != done {
            self.reserve();
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: K) -> Result<Option<u64>> {
        self.tree.get(key)
    }

    /// Returns the values of keys; `values` is cleared first.
    pub fn get_many(&self, keys: &[K], values: &mut Vec<Option<u64>>) -> Result<()> {
        *values = self.tree.get_many(keys)?;
        Ok(())
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped.
    pub fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.pool().wait_for_room();
        let inserted = self.tree.insert(key, value, with);
        self.note_changes();
        inserted
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one.
    pub fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool().wait_for_room();
        let before = self.tree.update(key, value, with);
        self.note_changes();
        before
    }

    /// Removes a key, atomically with the changes in `with`; returns its value.
    pub fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        self.pool().wait_for_room();
        let before = self.tree.remove(key, with);
        self.note_changes();
        before
    }

    /// Adds distinct keys in order, each failure-atomic together with the updates that it carries. `carried` is
    /// called with the index of a key once it is known to be new; it returns the value and adds updates to the
    /// publication. `existing` is called with those that exist already, and their values. After an error some of
    /// the keys are added.
    pub fn insert_many<'p>(
        &'p self,
        keys: &[K],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool().wait_for_room();
            }
            let mut value = |with: &mut Publication<'p>| carried(place, with);
            let with = self.tree.core.site.pool.publication();
            if let Inserted::Exists(value) = self.tree.core.insert_with(*key, with, &mut value)? {
                existing(place, value);
            }
        }
        self.note_changes();
        Ok(())
    }

    /// Applies changes in order, each failure-atomic on its own; `before` is cleared and gets the previous
    /// value of each key. After an error it holds as many values as changes were applied.
    pub fn apply_many(&self, changes: &[(K, Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        before.reserve(changes.len());
        for (place, (key, change)) in changes.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool().wait_for_room();
            }
            let with = self.tree.core.site.pool.publication();
            before.push(match *change {
                Change::Insert(value) => self.tree.insert(*key, value, with)?.before(),
                Change::Replace(value) => self.tree.update(*key, value, with)?,
                Change::Remove => self.tree.remove(*key, with)?,
            });
        }
        self.note_changes();
        Ok(())
    }

    /// Returns the run with the most entries, if there is one.
    fn with_largest<R>(&self, look: impl FnOnce(&super::files::run::Run<K>) -> R) -> Option<R> {
        let version = self.tree.core.versions.current();
        version.runs().max_by_key(|run| run.record.entries).map(|run| look(run))
    }

    /// Returns the keys of a tree without runs, in order.
    fn buffered_keys(&self) -> Vec<K> {
        let mut entries = Entries::<K>::new();
        // An estimate of what cannot be read is that of an empty tree; reading it says why.
        let _ = Scan::scan(&self.tree, K::MIN..=greatest(), SAMPLED_MAX, &mut entries);
        entries.into_iter().map(|(key, _)| key).collect()
    }

    /// Returns keys that divide it into parts of about equal size, in ascending order.
    pub fn split_points(&self, wanted: usize) -> Vec<K> {
        let keys = self.with_largest(|run| run.sample(wanted)).unwrap_or_else(|| {
            let keys = self.buffered_keys();
            keys.iter().step_by((keys.len() / wanted.max(1)).max(1)).copied().collect()
        });
        keys.into_iter().skip(1).collect()
    }

    /// Estimates the number of keys; those that were removed count until they are merged.
    pub fn estimated_keys(&self) -> u64 {
        let stats = self.tree.stats();
        stats.buffered_entries + stats.levels.iter().map(|level| level.entries).sum::<u64>()
    }

    /// Estimates the share of the keys below a key.
    pub fn estimated_share_below(&self, key: K) -> f64 {
        self.with_largest(|run| run.share_below(key)).unwrap_or_else(|| {
            let keys = self.buffered_keys();
            let below = keys.partition_point(|known| *known < key);
            if keys.is_empty() { 0.0 } else { below as f64 / keys.len() as f64 }
        })
    }

    /// Returns the keys of a block.
    pub(crate) fn usual_leaf_keys(&self) -> u64 {
        capacity::<K>() as u64
    }

    /// Counts sizes, the entries of the buffers as blocks too. Cost: a scan of all keys.
    pub(crate) fn sizes(&self) -> TreeStats {
        let stats = self.tree.stats();
        let blocks = stats.levels.iter().map(|level| level.bytes / 256).sum::<u64>();
        let buffered = stats.buffered_entries.div_ceil(self.usual_leaf_keys());
        let mut keys = 0;
        // Those up to the first block that cannot be read; a check says why.
        let _ = for_each_entry(&self.tree, Some(K::MIN), &mut |_, _| keys += 1);
        TreeStats {
            keys,
            leaves: (blocks + buffered).max(1),
            levels: stats.levels.iter().filter(|level| level.runs > 0).count() as u32,
            inner_bytes: stats.buffer_bytes + stats.filter_bytes + stats.index_bytes,
        }
    }

    /// Returns its pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.tree.core.site.pool
    }

    /// Returns the number that its owner stored last, 0 in a new tree. A hint: after a crash it may be any earlier
    /// one.
    pub fn note(&self) -> u64 {
        self.pool().word(self.tree.root_offset().plus(NOTE)).load(Acquire)
    }

    /// Stores a number.
    pub fn set_note(&self, number: u64) {
        note::store(self.pool(), self.tree.root_offset().plus(NOTE), number);
    }

    /// Verifies all invariants; see [`LsmTree::check`].
    pub fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        self.tree.check(object)
    }

    /// Same as [`PooledLsmTree::check`]. `claim` is called with offset and least bytes of every object of the tree, and
    /// returns an error text for a wrong one. Only if all of them are sound, `entry` gets the keys and values.
    pub fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(K, u64),
    ) -> Result<()> {
        self.tree.check_objects(claim)?;
        for_each_entry(&self.tree, Some(K::MIN), entry)
    }
}

impl<K: FixedKey> Scan for PooledLsmTree<K> {
    type Key = K;

    fn scan(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        Scan::scan(&self.tree, range, enough, entries)
    }

    fn scan_back(
        &self,
        range: RangeInclusive<K>,
        enough: usize,
        entries: &mut Entries<K>,
    ) -> Result<Option<RangeInclusive<K>>> {
        Scan::scan_back(&self.tree, range, enough, entries)
    }
}

/// Calls `entry` with the entries from a key on.
fn for_each_entry<K: FixedKey>(
    tree: &LsmTree<K>,
    from: Option<K>,
    entry: &mut dyn FnMut(K, u64),
) -> Result<()> {
    let mut rest = from.map(|from| from..=greatest());
    let mut entries = Entries::<K>::new();
    while let Some(range) = rest {
        rest = Scan::scan(tree, range, SAMPLED_MAX, &mut entries)?;
        entries.drain(..).for_each(|(key, value)| entry(key, value));
    }
    Ok(())
}

impl<K: FixedKey> PooledLsmTree<K> {
    /// Returns true once parts of the tree may be freed.
    pub(crate) fn is_in_destruction(pool: &Pool, root: PoolOffset) -> bool {
        pool.word(root.plus(DESTROYED)).load(Acquire) != 0
    }

    /// Returns the first key whose value is not freed in a tree in destruction; none behind the last.
    fn not_freed(pool: &Pool, root: PoolOffset) -> Option<K> {
        if pool.word(root.plus(DESTROYED)).load(Acquire) != VALUES_GO_BEHIND {
            return Some(K::MIN);
        }
        let words: Vec<u64> =
            (0..K::WORDS).map(|word| pool.word(root.plus(CURSOR).word(word)).load(Acquire)).collect();
        K::of_words(&words).next()
    }

    /// Frees some of the objects whose offsets the values of a closed tree are, if asked, and then its parts. Returns
    /// true when only its header is left. A crash in between leaves a tree that cannot be opened; call it again.
    pub fn destroy_step(
        pool: &Arc<Pool>,
        root: PoolOffset,
        free_values: bool,
        nodes_max: usize,
    ) -> Result<bool> {
        let site = LsmTree::<K>::site(pool, root, None)?;
        if free_values && pool.word(root.plus(DESTROYED)).load(Acquire) != PARTS_GO {
            if !Self::is_in_destruction(pool, root) {
                let mut mark = pool.publication();
                mark.set(root.plus(DESTROYED), VALUES_GO);
                mark.publish()?;
            }
            let tree = LsmTree::<K>::open_site(site, &options())?;
            let mut values_left = nodes_max.saturating_mul(VALUES_OF_NODE);
            let mut rest = Self::not_freed(pool, root).map(|from| from..=greatest());
            while let Some(range) = rest {
                if values_left == 0 {
                    return Ok(false);
                }
                let mut entries = Entries::<K>::new();
                rest = Scan::scan(&tree, range, VALUES_FREED_MAX, &mut entries)?;
                values_left = values_left.saturating_sub(entries.len());
                free_values_of(pool, root, &entries)?;
            }
        }
        LsmTree::<K>::destroy(pool, root, None)?;
        Ok(true)
    }

    /// Verifies what is left of a tree in destruction; see [`PooledLsmTree::check_damaged`].
    pub(crate) fn check_remains(
        pool: &Arc<Pool>,
        root: PoolOffset,
        mut claim: impl FnMut(PoolOffset, u64) -> Claim,
        mut entry: impl FnMut(K, u64),
    ) -> Result<()> {
        let site = LsmTree::<K>::site(pool, root, None)?;
        if pool.word(root.plus(DESTROYED)).load(Acquire) == PARTS_GO {
            return site.claim_parts(&mut claim);
        }
        let tree = LsmTree::<K>::open_site(site, &options())?;
        tree.check_objects(&mut claim)?;
        for_each_entry(&tree, Self::not_freed(pool, root), &mut entry)
    }
}

/// Frees the objects of the values of some entries, and notes the last key.
fn free_values_of<K: FixedKey>(pool: &Pool, root: PoolOffset, entries: &Entries<K>) -> Result<()> {
    let Some((last, _)) = entries.last() else { return Ok(()) };
    pool.wait_for_room();
    let mut with = pool.publication();
    entries.iter().for_each(|(_, value)| with.free(PoolOffset::from_word(*value)));
    for word in 0..K::WORDS {
        with.set(root.plus(CURSOR).word(word), last.word(word));
    }
    with.set(root.plus(DESTROYED), VALUES_GO_BEHIND);
    with.publish()?;
    Ok(())
}
