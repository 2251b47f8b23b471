//! A log-structured merge-tree (dissertation 3.2.3): writes go to a DRAM buffer and its log; full buffers
//! become sorted, immutable runs; a level collects runs and merges them into one of the next (tiering). The
//! upper levels are in the pool, the lower ones in files; the number of each is fixed when the tree is
//! created.
//!
//! ```text
//!  write ──┬─ DRAM buffer ── sealed buffer          hash index, unsorted; sorted when it is moved
//!          └─ log in the pool: one record, one published word
//!                 │ move
//!  level 0     run run run                          pool: segments of 64 KiB, blocks of 256 B
//!                 │ merge when there are `runs_per_level`
//!  level 1     run run                              pool
//!                 │
//!  level 2     run                                  files: pages of 4 KiB
//!                                 in DRAM for each run: smallest keys, Bloom filter, least and greatest key
//! ```
//!
//! A write does not look its key up: it costs a record in the log and an entry of the buffer, whatever the
//! size of the tree. A lookup searches the buffers and then run after run, newest first; filters skip nearly
//! all runs without the key.
//!
//! Invariants:
//! 1. Of two entries of a key the newer one is in a newer buffer, at a later index of the same one, in a
//!    level further up, or in an earlier run of the same level.
//! 2. A record in a log is valid until the run of its buffer is: one publication changes both.
//! 3. Every segment, log, list and manifest belongs to exactly one of: the manifest, the runs being built,
//!    the obsolete runs, the header. A file exists only if one of the first three has its number.
//! 4. A file in the manifest is durable, with its name.
//!
//! **After a crash.** Writes: as they were published, the record complete or missing. A move or merge: the
//! manifest before or after it; opening frees incomplete and obsolete runs. No file is created before its
//! number is durable in the header, and none is removed before its removal from the manifest is durable.
//!
//! **Concurrency.** Readers take no lock that is held for longer than the store of a pointer. Writers of
//! different keys contend only in the journal. One thread moves and merges ([`Maintenance`]). Latches and
//! versions are in DRAM.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree};
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = LsmTree::<u64>::create(&pool, &LsmParameters::default(), &mut publication)?;
//! publication.set_root("measurements", root)?;
//! publication.publish()?;
//! let tree = LsmTree::<u64>::open(&pool, root, &LsmOptions::default())?;
//! for key in 0..1000 {
//!     tree.upsert(key, key * key, pool.publication())?;
//! }
//! tree.delete(13, pool.publication())?;
//! assert_eq!((tree.get(12)?, tree.get(13)?), (Some(144), None));
//! assert_eq!(tree.range(10..=19).rev().count(), 9);
//! # Ok::<(), entresol_structures::Error>(())
//! ```
//!
//! Memory: buffers (`buffers` times `buffer_entries` times 33 to 45 bytes), a key for each block of 15
//! entries, filters ([`LsmOptions::filter_bits`]), the page cache, and while files are merged 64 KiB a run. A
//! two-way merge has its intermediate results in DRAM.

mod buffer;
mod cache;
mod check;
mod compaction;
mod files;
mod lifecycle;
mod merge;
mod options;
mod pooled;
mod scan;
#[cfg(test)]
mod tests;

pub use check::{LevelStats, LsmStats};
pub use options::{LsmOptions, LsmParameters, Maintenance, MergeAlgorithm, RunWriting};
pub use pooled::PooledLsmTree;

use crate::Inserted;
use crate::error::{Error, Result};
use crate::latch::{self, LatchStripes};
use crate::node::FixedKey;
use cache::PageCache;
use compaction::maintain::MaintenanceState;
use compaction::version::Versions;
use compaction::worker::MaintenanceMonitor;
use entresol_memory::{Pool, PoolOffset, Publication};
use files::block::LsmEntry;
use files::filter::KeyHash;
use files::log::Log;
use files::run::Media;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

/// A persistent ordered map from keys of 8 or 16 bytes to words, made for writes; see the [module](self).
///
/// Values are plain words. Unlike the trees it replaces values without a lookup: [`LsmTree::upsert`] and
/// [`LsmTree::delete`] are the fast writes, [`LsmTree::insert`], [`LsmTree::update`] and [`LsmTree::remove`]
/// look the key up first.
pub struct LsmTree<K: FixedKey> {
    core: Arc<Core<K>>,
    thread: Option<JoinHandle<()>>,
}

/// Location of a tree.
struct TreeSite {
    pool: Arc<Pool>,
    header: PoolOffset,
    identity: u64,
    parameters: LsmParameters,
    directory: Option<PathBuf>,
}

impl TreeSite {
    /// Returns the directory of run files; a tree with disk levels is not opened without.
    fn directory(&self) -> &Path {
        self.directory.as_deref().expect("opening checks for a directory")
    }
}

/// State that the tree's thread shares with its users.
struct Core<K: FixedKey> {
    site: TreeSite,
    options: LsmOptions,
    logs: Vec<Log>,
    versions: Versions<K>,
    latches: LatchStripes,
    cache: PageCache,
    work: Mutex<MaintenanceState>,
    monitor: MaintenanceMonitor,
    counters: Counters,
}

/// Counters since open.
#[derive(Default)]
struct Counters {
    moves: AtomicU64,
    moved_entries: AtomicU64,
    merges: AtomicU64,
    merged_entries: AtomicU64,
    stalls: AtomicU64,
}

/// Latch of a key that this thread holds; dropping it releases the latch.
struct KeyLatch<'t>(&'t AtomicU64);

impl Drop for KeyLatch<'_> {
    #[inline]
    fn drop(&mut self) {
        latch::unlock(self.0);
    }
}

impl<K: FixedKey> Core<K> {
    fn media(&self) -> Media<'_> {
        Media { pool: &self.site.pool, cache: &self.cache }
    }

    /// Returns the newest entry of a key.
    #[inline]
    fn find(&self, key: K, hash: KeyHash) -> Result<Option<LsmEntry<K>>> {
        let _pinned = self.site.pool.pin();
        if self.site.parameters.disk_levels == 0 {
            return self.versions.read().find(&self.media(), key, hash);
        }
        // Reading a file may take long: not under a lock that blocks the next version.
        let version = self.versions.current();
        version.find(&self.media(), key, hash)
    }

    #[inline]
    fn latch(&self, hash: KeyHash) -> KeyLatch<'_> {
        let latch = self.latches.numbered(hash.0 >> 20);
        let mut spins = 0;
        while !latch::try_lock(latch) {
            latch::pause(&mut spins);
        }
        KeyLatch(latch)
    }

    /// Adds an entry to the log and the buffer, if the buffer has room; `entry` makes it then, and may add changes to
    /// the publication. The caller has the key's latch.
    #[inline]
    fn try_append<'p>(
        &'p self,
        hash: KeyHash,
        with: &mut Option<Publication<'p>>,
        entry: impl FnOnce(&mut Publication<'p>) -> LsmEntry<K>,
    ) -> Result<bool> {
        let version = self.versions.read();
        let buffer = version.active();
        let Some(place) = buffer.claim() else { return Ok(false) };
        let mut publication = with.take().expect("it is published once");
        let entry = &entry(&mut publication);
        self.logs[buffer.log].append(place, buffer.generation, entry, &mut publication);
        if let Err(error) = publication.publish() {
            buffer.void(place);
            return Err(error.into());
        }
        buffer.put(place, entry, hash);
        Ok(true)
    }

    /// Writes an entry if `decide` returns one for the previous value; blind writes do not look it up.
    fn write<'p, T>(
        &'p self,
        key: K,
        with: Publication<'p>,
        looks: bool,
        decide: impl Fn(Option<u64>) -> (Option<LsmEntry<K>>, T),
    ) -> Result<T> {
        let hash = KeyHash::of(key);
        let mut with = Some(with);
        loop {
            let held = self.latch(hash);
            let before = if looks { self.find(key, hash)?.and_then(|entry| entry.value()) } else { None };
            let (entry, answer) = decide(before);
            let Some(entry) = entry else { return Ok(answer) };
            if self.try_append(hash, &mut with, |_| entry)? {
                return Ok(answer);
            }
            drop(held);
            self.make_room()?;
        }
    }

    /// Adds a key; `value` is called once it is known to be new and there is room for it.
    fn insert_with<'p>(
        &'p self,
        key: K,
        with: Publication<'p>,
        value: &mut dyn FnMut(&mut Publication<'p>) -> u64,
    ) -> Result<Inserted> {
        let hash = KeyHash::of(key);
        let mut with = Some(with);
        loop {
            let held = self.latch(hash);
            if let Some(before) = self.find(key, hash)?.and_then(|entry| entry.value()) {
                return Ok(Inserted::Exists(before));
            }
            let entry =
                |with: &mut Publication<'p>| LsmEntry { key, value: value(with), is_tombstone: false };
            if self.try_append(hash, &mut with, entry)? {
                return Ok(Inserted::New);
            }
            drop(held);
            self.make_room()?;
        }
    }
}

impl<K: FixedKey> LsmTree<K> {
    /// Returns the pool offset of the tree's header, for [`LsmTree::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.core.site.header
    }

    /// Returns the parameters that the tree was created with.
    pub fn parameters(&self) -> LsmParameters {
        self.core.site.parameters
    }

    /// Returns the value of a key. Cost: a lookup in each buffer, a line of DRAM for each run whose key range
    /// contains it, and the block of the key.
    pub fn get(&self, key: K) -> Result<Option<u64>> {
        Ok(self.core.find(key, KeyHash::of(key))?.and_then(|entry| entry.value()))
    }

    /// Returns the values of many keys, as one lookup each would. The blocks of a group of keys are
    /// prefetched before any of them is read.
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<u64>>> {
        const GROUP: usize = 16;
        let core = &*self.core;
        let mut values = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP) {
            let _pinned = core.site.pool.pin();
            let version = core.versions.current();
            let media = core.media();
            for key in group {
                let hash = KeyHash::of(*key);
                if version.find_in_buffers(*key, hash).is_none()
                    && let Some(run) = version.runs().find(|run| run.candidate(*key, hash))
                {
                    run.prefetch(&core.site.pool, *key);
                }
            }
            for key in group {
                let found = version.find(&media, *key, KeyHash::of(*key))?;
                values.push(found.and_then(|entry| entry.value()));
            }
        }
        Ok(values)
    }

    /// Sets the value of a key, atomically with the changes in `with`. Cost: one record of the log and one
    /// published word; an existing entry is not read. Waits if all buffers are full; if moving them failed,
    /// returns that error without effect.
    #[inline]
    pub fn upsert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<()> {
        let entry = LsmEntry { key, value, is_tombstone: false };
        self.core.write(key, with, false, |_| (Some(entry), ()))
    }

    /// Removes a key, atomically with the changes in `with`, if it exists. Cost as [`LsmTree::upsert`].
    #[inline]
    pub fn delete<'p>(&'p self, key: K, with: Publication<'p>) -> Result<()> {
        let entry = LsmEntry { key, value: 0, is_tombstone: true };
        self.core.write(key, with, false, |_| (Some(entry), ()))
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped. Cost: a
    /// lookup more than [`LsmTree::upsert`].
    pub fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.core.insert_with(key, with, &mut |_| value)
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one. If the key is
    /// missing, `with` is dropped. Cost: a lookup more than [`LsmTree::upsert`].
    pub fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        let entry = LsmEntry { key, value, is_tombstone: false };
        self.core.write(key, with, true, |before| (before.map(|_| entry), before))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped. Cost: a lookup more than [`LsmTree::delete`].
    pub fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        let entry = LsmEntry { key, value: 0, is_tombstone: true };
        self.core.write(key, with, true, |before| (before.map(|_| entry), before))
    }

    /// Moves the buffers to the first level and merges full levels. For measurements, and before a long rest:
    /// lookups in runs need no log to be replayed. After an error everything stays readable.
    pub fn settle(&self) -> Result<()> {
        let core = &*self.core;
        while !core.rotate(|active| active.claimed() > 0)? {
            core.maintain()?;
        }
        core.maintain()
    }

    /// Returns the error of the last move or merge, if it failed.
    pub fn failure(&self) -> Option<Error> {
        self.core.failure()
    }
}

impl<K: FixedKey> Drop for LsmTree<K> {
    fn drop(&mut self) {
        self.core.monitor.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook; nothing persistent depends on it.
            let _ = thread.join();
        }
    }
}
