//! Selective caching: copies in DRAM of some lists of an Elf that is on slower memory (Jibril et al.: Selective
//! caching, 2021; dissertation 4.3.3).
//!
//! ```text
//!   fixed copies           first dimension ─▶ list ─▶ list          made with the cache, read without a lock
//!                               │              │
//!   partitions                  └─▶ list       └─▶ list ─▶ list     made as searches meet them, replaced
//!                                     │                      │
//!   the array                         └─▶ list ─▶ MonoList   └─▶ MonoList
//! ```
//!
//! - The place of a copy is in the copy of the list above it, instead of the child there (pointer swizzling): a hit
//!   looks nothing up, and a search comes from copies to the array once, and stays there. So a list is a copy only if all
//!   above it are.
//! - A copy of a list with most of the codes of its range has a child for each of them, and no codes: about half the
//!   bytes, and one access in place of a search.
//! - What is copied, and what makes room, is the policy's ([`policy`]). MonoLists may be copied as all others.
//! - Each partition has the copies below some entries of the first dimension, and its share of the bytes. Searches
//!   share its lock for as long as they are below one entry; what they missed is copied afterwards, if
//!   the lock is free at once, else not.
//! - A cache is only of time: without it, and whatever it has, searches find the same tuples.
//!
//! Memory: [`ListCacheOptions::bytes_max`], the descriptions of copies included; while it is made, as much again.

mod arena;
pub(super) mod copies;
mod encode;
mod fill;
mod partition;
mod policy;
mod replacement;
mod search;
#[cfg(test)]
mod tests;

pub use copies::CopyMeter;
pub use policy::{FixedLists, ListPolicy, ListReplacement, ParseListPolicyError};

use super::in_place::ElfInPlace;
use super::storage::ElfStorage;
use copies::CACHED_WORDS_MAX;
use parking_lot::RwLock;
use partition::Partition;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Partitions, unless their bytes were fewer than [`PARTITION_BYTES_MIN`].
const PARTITIONS: usize = 16;
const PARTITION_BYTES_MIN: usize = 16 << 10;

/// Options of a [`ListCache`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListCacheOptions {
    /// Bytes that it takes, at most.
    pub bytes_max: usize,
    /// Policy.
    pub policy: ListPolicy,
    /// True if MonoLists are copied, too.
    pub mono_lists: bool,
    /// True if lists that would be replaced are copied at once, the most likely ones, as long as there is room.
    pub is_warm: bool,
}

impl ListCacheOptions {
    /// Bytes for a policy; MonoLists are not copied.
    pub fn new(bytes_max: usize, policy: ListPolicy) -> ListCacheOptions {
        ListCacheOptions { bytes_max, policy, mono_lists: false, is_warm: true }
    }
}

/// Content and use of a [`ListCache`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListCacheStats {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Bytes that it may take.
    pub bytes_max: u64,
    /// Copies by dimension.
    pub lists: Vec<u64>,
    /// Lists that searches found as copies.
    pub hits: u64,
    /// Lists that they read from the array.
    pub misses: u64,
    /// Copies that were made for searches.
    pub made: u64,
    /// Copies that made room.
    pub removed: u64,
}

impl ListCacheStats {
    /// Adds those of another cache.
    pub fn add(&mut self, other: &ListCacheStats) {
        self.bytes += other.bytes;
        self.bytes_max += other.bytes_max;
        self.hits += other.hits;
        self.misses += other.misses;
        self.made += other.made;
        self.removed += other.removed;
        self.lists.resize(self.lists.len().max(other.lists.len()), 0);
        self.lists.iter_mut().zip(&other.lists).for_each(|(all, more)| *all += more);
    }
}

/// Copies of lists of an Elf; see the [module](self).
pub struct ListCache {
    options: ListCacheOptions,
    /// Fixed copies, the first dimension before all; empty if that alone is too long.
    fixed: Vec<AtomicU32>,
    fixed_lists: Vec<u64>,
    partitions: Box<[RwLock<Partition>]>,
    meter: Option<Arc<dyn CopyMeter>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl std::fmt::Debug for ListCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListCache")
            .field("options", &self.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl ListCache {
    /// Cache of an Elf, with the lists that its policy copies at once.
    pub fn new<S: ElfStorage>(elf: &ElfInPlace<S>, options: ListCacheOptions) -> ListCache {
        ListCache::metered(elf, options, None)
    }

    /// As [`ListCache::new`]; the accesses to copies are reported.
    pub fn metered<S: ElfStorage>(
        elf: &ElfInPlace<S>,
        options: ListCacheOptions,
        meter: Option<Arc<dyn CopyMeter>>,
    ) -> ListCache {
        let mut cache = ListCache {
            options,
            fixed: Vec::new(),
            fixed_lists: Vec::new(),
            partitions: Box::default(),
            meter,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        if elf.storage().len() <= CACHED_WORDS_MAX && elf.tuples() > 0 {
            cache.fill(elf.storage(), elf.shape());
        }
        cache
    }

    /// Options with which it was made.
    pub fn options(&self) -> &ListCacheOptions {
        &self.options
    }

    /// Removes all copies that can be replaced.
    pub fn clear(&self) {
        self.partitions.iter().for_each(|partition| partition.write().clear(&self.fixed));
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let of_partitions = self.partitions.iter().map(|partition| partition.read().bytes());
        4 * self.fixed.len() + of_partitions.sum::<usize>()
    }

    /// Statistics.
    pub fn stats(&self) -> ListCacheStats {
        let mut stats = ListCacheStats {
            bytes: 4 * self.fixed.len() as u64,
            bytes_max: self.options.bytes_max as u64,
            lists: self.fixed_lists.clone(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            made: 0,
            removed: 0,
        };
        for partition in &self.partitions {
            let partition = partition.read();
            stats.bytes += partition.bytes() as u64;
            stats.made += partition.made;
            stats.removed += partition.removed;
            partition.count(&mut stats.lists);
        }
        stats
    }

    /// Checks what the module says of places and bytes.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.bytes() <= self.options.bytes_max, "{:?}", self.stats());
        self.partitions.iter().for_each(|partition| partition.write().check(&self.fixed));
    }
}
