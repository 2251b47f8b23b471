//! Cache of column pages and summaries in DRAM, one for all tables of a catalog.
//!
//! Pages are written once, and their numbers not used again while a store is open, so a cached page stays right
//! for ever: a transaction sees it if it sees its row group. Each open store has a number of its own, since
//! numbers of states are used again; time travel goes around the cache, since it may see row groups of earlier
//! runs. The cache takes at most a quarter of the memory budget, out of
//! which it reserves what it has ([`MemoryConsumer::ColumnPages`]); what does not fit is read and not cached.
//!
//! Replacement is up to a [`policy::ReplacementPolicy`]. Cost of a look-up: one lock, one hash, and what the policy
//! notes.

pub(crate) mod frames;
mod frequency;
pub(crate) mod page_key;
pub(crate) mod policy;
mod queue;
mod recency;
mod s3_fifo;
#[cfg(test)]
mod tests;
mod two_queues;

use crate::columns::group::GroupSummary;
use crate::columns::page::ColumnPage;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer};
use frames::{ColumnUse, Frames};
use page_key::{ColumnKey, PageKey, StoreNumber};
use parking_lot::Mutex;
use policy::CachePolicy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Share of the memory budget that the cache takes at most, as a divisor.
const BUDGET_SHARE: u64 = 4;

/// Cached object.
#[derive(Debug, Clone)]
pub(crate) enum Cached {
    Page(Arc<ColumnPage>),
    Summary(Arc<GroupSummary>),
}

impl Cached {
    fn memory_bytes(&self) -> u64 {
        let bytes = match self {
            Cached::Page(page) => page.memory_bytes(),
            Cached::Summary(summary) => summary.memory_bytes(),
        };
        (bytes + ENTRY_BYTES) as u64
    }
}

/// Bytes of an entry beside its object, those of the policy included.
const ENTRY_BYTES: usize = 256;

/// Use of the cache by a column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedColumn {
    /// Name of the table.
    pub table: String,
    /// Name of the column.
    pub column: String,
    /// Pages, bytes, hits and misses.
    pub counts: ColumnUse,
}

/// Statistics of a [`PageCache`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCacheStats {
    /// Pages and summaries in the cache.
    pub entries: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Maximum of the bytes.
    pub max_bytes: u64,
    /// Number of look-ups that found their page.
    pub hits: u64,
    /// Number of look-ups that did not.
    pub misses: u64,
}

/// Objects and what decides about them.
struct Pages {
    frames: Frames<Cached>,
    policy: CachePolicy,
}

/// Cache of column pages; see the [module](self).
pub(crate) struct PageCache {
    pages: Mutex<Pages>,
    budget: Option<Arc<MemoryBudget>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl PageCache {
    /// Empty cache within a memory budget; without one it caches nothing.
    pub(crate) fn new(budget: Option<&Arc<MemoryBudget>>) -> Arc<PageCache> {
        let policy = CachePolicy::default();
        let reserved = budget.map(|budget| budget.empty(MemoryConsumer::ColumnPages));
        let pages = Pages { frames: Frames::new(policy, reserved), policy };
        Arc::new(PageCache {
            pages: Mutex::new(pages),
            budget: budget.cloned(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// Sets the policy; pages stay.
    pub(crate) fn set_policy(&self, policy: CachePolicy) {
        let mut pages = self.pages.lock();
        pages.policy = policy;
        pages.frames.set_policy(policy);
    }

    /// Policy in effect.
    pub(crate) fn policy(&self) -> CachePolicy {
        self.pages.lock().policy
    }

    fn max_bytes(&self) -> u64 {
        self.budget.as_ref().map_or(0, |budget| budget.max_bytes() / BUDGET_SHARE)
    }

    /// Object with this key.
    pub(crate) fn get(&self, key: &PageKey) -> Option<Cached> {
        let found = self.pages.lock().frames.get(key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Adds an object, if there is room for it or can be made.
    pub(crate) fn put(&self, key: PageKey, cached: Cached) {
        let (bytes, max_bytes) = (cached.memory_bytes(), self.max_bytes());
        let mut pages = self.pages.lock();
        pages.frames.put(key, cached, bytes, max_bytes);
    }

    /// Removes the objects of a row group, which no new transaction sees.
    pub(crate) fn forget(&self, store: StoreNumber, group: u32) {
        self.pages.lock().frames.remove_if(|page| page.column.store == store && page.group == group);
    }

    /// Removes the objects of a store that is closed.
    pub(crate) fn forget_store(&self, store: StoreNumber) {
        let mut pages = self.pages.lock();
        pages.frames.remove_if(|page| page.column.store == store);
        pages.frames.forget_columns(|column| column.store == store);
    }

    /// Use by column.
    pub(crate) fn columns(&self) -> BTreeMap<ColumnKey, ColumnUse> {
        self.pages.lock().frames.columns().clone()
    }

    /// Statistics since the catalog was opened.
    pub(crate) fn stats(&self) -> PageCacheStats {
        let pages = self.pages.lock();
        PageCacheStats {
            entries: pages.frames.len() as u64,
            bytes: pages.frames.bytes(),
            max_bytes: self.max_bytes(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}
