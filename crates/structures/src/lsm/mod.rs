//! A log-structured merge-tree (dissertation 3.2.3): writes go to a DRAM buffer and its log; full buffers become
//! sorted, immutable runs; a level collects runs and merges them into one of the next (tiering). The upper levels are
//! in the pool, the lower ones in files; how many of each is chosen when the tree is created.
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
//! A write does not look where its key is: it costs a record in the log and a place in the buffer, whatever the size of
//! the tree. A lookup asks the buffers and then run after run, newest first; filters turn it away from nearly all that
//! do not have the key.
//!
//! Invariants:
//! 1. Of two entries of a key the newer one is in a newer buffer, at a later place of the same one, in a level further
//!    up, or in an earlier run of the same level.
//! 2. A record in a log counts until the run of its buffer does: one publication does both.
//! 3. Every segment, log, list and manifest belongs to exactly one of: the manifest, what is being built, what is
//!    obsolete, the header. A file exists only if one of the first three has its number.
//! 4. A file that the manifest has is durable, with its name.
//!
//! **What a crash leaves.** Writes: as they were published, the record whole or not there. A move or merge: the
//! manifest before or after it; opening frees what was being built or is obsolete. No file is made before the note of
//! it is durable, and none is removed before it is durable that the manifest does not have it.
//!
//! **Concurrency.** Readers take no lock that is held for longer than a pointer takes to store. Writers of
//! different keys meet only in the journal. One thread moves and merges ([`Maintenance`]). Latches and versions
//! are in DRAM.
//!
//! ```
//! use entresol_memory::{Pool, PoolOptions};
//! use entresol_structures::lsm::{LsmOptions, LsmShape, LsmTree};
//!
//! let pool = Pool::volatile(&PoolOptions::default())?;
//! let mut publication = pool.publication();
//! let root = LsmTree::<u64>::create(&pool, &LsmShape::default(), &mut publication)?;
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
//! Memory: buffers (`buffers` times `buffer_entries` times 33 to 45 bytes), a key for each block of 15 entries, filters
//! ([`LsmOptions::filter_bits`]), the page cache, and while files are merged 64 KiB a run. A merge in two ways has its
//! intermediate results in DRAM.

mod block;
mod buffer;
mod cache;
mod check;
mod file;
mod filter;
mod lifecycle;
mod log;
mod maintain;
mod manifest;
mod merge;
mod mutants;
mod obsolete;
mod options;
mod run;
mod scan;
mod segments;
#[cfg(test)]
mod tests;
mod version;
mod worker;
mod writer;

pub use check::{LevelStats, LsmStats};
pub use options::{LsmOptions, LsmShape, Maintenance, MergeWay, RunPath};

use crate::Inserted;
use crate::error::{Error, Result};
use crate::latch::{self, LatchStripes};
use crate::node::FixedKey;
use block::Entry;
use cache::PageCache;
use entresol_memory::{Pool, Publication};
use filter::KeyHash;
use log::Log;
use maintain::Work;
use mutants::Mutant;
use parking_lot::Mutex;
use run::Media;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use version::Versions;
use worker::Desk;

/// A persistent ordered map from keys of 8 or 16 bytes to words, made for writes; see the [module](self).
///
/// Values are plain words. Unlike the trees it does not know, without a lookup, what a write replaces:
/// [`LsmTree::upsert`] and [`LsmTree::delete`] are the fast writes, [`LsmTree::insert`], [`LsmTree::update`] and
/// [`LsmTree::remove`] look first.
pub struct LsmTree<K: FixedKey> {
    core: Arc<Core<K>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a tree is.
struct Site {
    pool: Arc<Pool>,
    header: u64,
    identity: u64,
    shape: LsmShape,
    directory: Option<PathBuf>,
}

impl Site {
    /// Where files of runs are; a tree with disk levels is not opened without.
    fn directory(&self) -> &Path {
        self.directory.as_deref().expect("opening has made sure of it")
    }
}

/// What the tree's thread shares with its users.
struct Core<K: FixedKey> {
    site: Site,
    options: LsmOptions,
    logs: Vec<Log>,
    versions: Versions<K>,
    latches: LatchStripes,
    cache: PageCache,
    work: Mutex<Work>,
    desk: Desk,
    counters: Counters,
}

/// What was done since open.
#[derive(Default)]
struct Counters {
    moves: AtomicU64,
    moved_entries: AtomicU64,
    merges: AtomicU64,
    merged_entries: AtomicU64,
    stalls: AtomicU64,
}

/// A latch of a key that this thread holds; dropping it lets go.
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

    /// The newest entry of a key.
    #[inline]
    fn find(&self, key: K, hash: KeyHash) -> Result<Option<Entry<K>>> {
        let _pinned = self.site.pool.pin();
        if self.site.shape.disk_levels == 0 {
            return self.versions.read().find(&self.media(), key, hash);
        }
        // A file may take long to read: not with a lock that holds up the next version.
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

    /// Adds an entry to the log and the buffer, if the buffer has room. The caller has the key's latch.
    #[inline]
    fn try_append<'p>(
        &'p self,
        entry: &Entry<K>,
        hash: KeyHash,
        with: &mut Option<Publication<'p>>,
    ) -> Result<bool> {
        let version = self.versions.read();
        let buffer = version.active();
        let Some(place) = buffer.claim() else { return Ok(false) };
        let mut publication = with.take().expect("it is published once");
        self.logs[buffer.log].append(place, buffer.generation, entry, &mut publication);
        if mutants::is(Mutant::StampBeforeRecord) {
            self.logs[buffer.log].append_badly(&self.site.pool, place, buffer.generation, entry);
        }
        if let Err(error) = publication.publish() {
            buffer.give_up(place);
            return Err(error.into());
        }
        buffer.put(place, entry, hash);
        Ok(true)
    }

    /// Writes an entry, if `decide` says so when it is told the value before; it is not asked for blind writes.
    fn write<'p, T>(
        &'p self,
        key: K,
        with: Publication<'p>,
        looks: bool,
        decide: impl Fn(Option<u64>) -> (Option<Entry<K>>, T),
    ) -> Result<T> {
        let hash = KeyHash::of(key);
        let mut with = Some(with);
        loop {
            let held = self.latch(hash);
            let before = if looks { self.find(key, hash)?.and_then(|entry| entry.value()) } else { None };
            let (entry, answer) = decide(before);
            let Some(entry) = entry else { return Ok(answer) };
            if self.try_append(&entry, hash, &mut with)? {
                return Ok(answer);
            }
            drop(held);
            self.make_room()?;
        }
    }
}

impl<K: FixedKey> LsmTree<K> {
    /// The pool offset of the tree's header: what [`LsmTree::open`] takes.
    pub fn root_offset(&self) -> u64 {
        self.core.site.header
    }

    /// What the tree was created as.
    pub fn shape(&self) -> LsmShape {
        self.core.site.shape
    }

    /// The value of a key. Cost: a lookup in each buffer, a line of DRAM for each run whose keys span this one, and
    /// the block where it is.
    pub fn get(&self, key: K) -> Result<Option<u64>> {
        Ok(self.core.find(key, KeyHash::of(key))?.and_then(|entry| entry.value()))
    }

    /// The values of many keys, as one lookup each would give them. The blocks of a group of keys are asked for before
    /// any of them is looked at.
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

    /// Sets the value of a key, together with all that `with` carries. Cost: one record of the log and one published
    /// word; what is there already is not looked at. Waits if all buffers are full; if moving them failed, returns
    /// that error, and nothing has happened.
    #[inline]
    pub fn upsert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<()> {
        let entry = Entry { key, value, is_tombstone: false };
        self.core.write(key, with, false, |_| (Some(entry), ()))
    }

    /// Takes a key out, together with all that `with` carries, whether it is there or not. Cost as
    /// [`LsmTree::upsert`].
    #[inline]
    pub fn delete<'p>(&'p self, key: K, with: Publication<'p>) -> Result<()> {
        let entry = Entry { key, value: 0, is_tombstone: true };
        self.core.write(key, with, false, |_| (Some(entry), ()))
    }

    /// Adds a key, together with all that `with` carries; if the key is there already, `with` is dropped. Cost: a
    /// lookup more than [`LsmTree::upsert`].
    pub fn insert<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Inserted> {
        let entry = Entry { key, value, is_tombstone: false };
        self.core.write(key, with, true, |before| match before {
            Some(before) => (None, Inserted::Exists(before)),
            None => (Some(entry), Inserted::New),
        })
    }

    /// Changes the value of a key, together with all that `with` carries; returns the old one. Without the key,
    /// `with` is dropped. Cost: a lookup more than [`LsmTree::upsert`].
    pub fn update<'p>(&'p self, key: K, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        let entry = Entry { key, value, is_tombstone: false };
        self.core.write(key, with, true, |before| (before.map(|_| entry), before))
    }

    /// Removes a key, together with all that `with` carries; returns its value. Without the key, `with` is dropped.
    /// Cost: a lookup more than [`LsmTree::delete`].
    pub fn remove<'p>(&'p self, key: K, with: Publication<'p>) -> Result<Option<u64>> {
        let entry = Entry { key, value: 0, is_tombstone: true };
        self.core.write(key, with, true, |before| (before.map(|_| entry), before))
    }

    /// Moves what is in buffers to the first level and merges what is due. For measurements, and before a long rest:
    /// lookups in runs need no log to be replayed. An error leaves everything readable.
    pub fn settle(&self) -> Result<()> {
        let core = &*self.core;
        while !core.rotate(|active| active.claimed() > 0)? {
            core.maintain()?;
        }
        core.maintain()
    }

    /// Why moving or merging failed, if the last attempt did.
    pub fn failure(&self) -> Option<Error> {
        self.core.failure()
    }
}

impl<K: FixedKey> Drop for LsmTree<K> {
    fn drop(&mut self) {
        self.core.desk.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook; nothing persistent depends on it.
            let _ = thread.join();
        }
    }
}
