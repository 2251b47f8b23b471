//! Cache of column pages and summaries in DRAM, one for all tables of a catalog.
//!
//! Pages are written once, and their numbers not used again while a store is open, so a cached page stays right
//! for ever: a transaction sees it if it sees its row group. Each open store has a number of its own, since
//! numbers of states are used again; time travel goes around the cache, since it may see row groups of earlier
//! runs. The cache takes at most a quarter of the memory budget, or less if it is limited, out of which it reserves
//! what it has ([`MemoryConsumer::ColumnPages`]); what does not fit is read and not cached.
//!
//! Replacement is up to a [`ReplacementPolicy`] ([`policy`]); proportional caching has its shares from a thread
//! ([`tuner`]) that solves a linear program ([`program`]) over the last pipelines ([`advisor`], [`model`]). Cost
//! of a look-up: one lock, one hash, and what the policy notes.

pub(crate) mod advisor;
#[cfg(feature = "testkit")]
mod device;
pub(crate) mod frames;
mod frequency;
mod loads;
pub(crate) mod model;
pub(crate) mod page_key;
pub(crate) mod policy;
pub(crate) mod program;
mod proportional;
mod queue;
mod recency;
mod s3_fifo;
mod tuner;
mod two_queues;

use crate::columns::elf::ElfHead;
use crate::columns::elf::lists::ElfLists;
use crate::columns::group::GroupSummary;
use crate::columns::objects::ObjectStores;
use crate::columns::page::ColumnPage;
use advisor::ShareAdvisor;
use entresol_memory::Env;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer};
use entresol_structures::elf::Elf;
use frames::{ColumnUse, Frames};
use loads::LoadMeter;
use model::{Bandwidths, Pipeline, Share, Shares};
use page_key::{ColumnKey, PageKey, StoreNumber};
use parking_lot::Mutex;
use policy::CachePolicy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tuner::Tuner;

/// Share of the memory budget that the cache takes at most, as a divisor.
const BUDGET_SHARE: u64 = 4;

/// Cached object.
#[derive(Debug, Clone)]
pub(crate) enum CachedObject {
    Page(Arc<ColumnPage>),
    Summary(Arc<GroupSummary>),
    ElfHead(Arc<ElfHead>),
    Elf(Arc<Elf>),
    ElfLists(Arc<ElfLists>),
}

impl CachedObject {
    fn memory_bytes(&self) -> u64 {
        let bytes = match self {
            CachedObject::Page(page) => page.memory_bytes(),
            CachedObject::Summary(summary) => summary.memory_bytes(),
            CachedObject::ElfHead(head) => head.memory_bytes(),
            CachedObject::Elf(elf) => elf.memory_bytes(),
            CachedObject::ElfLists(lists) => lists.memory_bytes(),
        };
        (bytes + ENTRY_BYTES) as u64
    }
}

/// Bytes of an entry beside its object, those of the policy included.
const ENTRY_BYTES: usize = 256;

/// Use of the cache by a column of a table, or by an Elf index.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedColumn {
    /// Name of the table.
    pub table: String,
    /// Name of the column, or of the index.
    pub column: String,
    /// Pages, bytes, hits and misses; of an Elf of which lists are cached, of the lists.
    pub counts: ColumnUse,
    /// Share that proportional caching gives the column, once it is known.
    pub share: Option<Share>,
    /// Number of lists of each dimension, of an Elf of which lists are cached.
    pub lists: Option<Vec<u64>>,
    /// Seconds by which pages in DRAM shorten the last scans, once the share is known; of an Elf of which lists are cached,
    /// seconds that hits have saved: each of them the difference of a line of the pool's medium and one of DRAM.
    pub gain_seconds: Option<f64>,
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
    frames: Frames<CachedObject>,
    policy: CachePolicy,
    shares: Shares,
    /// Bytes that shares and summaries need, where the goal is the least memory.
    needed_bytes: Option<u64>,
}

/// Cache of column pages; see the [module](self).
pub(crate) struct PageCache {
    pages: Mutex<Pages>,
    advisor: Mutex<ShareAdvisor>,
    loads: LoadMeter,
    /// Object stores of row groups, and the meter of loads from them.
    objects: Arc<ObjectStores>,
    object_loads: LoadMeter,
    tuner: Tuner,
    budget: Option<Arc<MemoryBudget>>,
    /// Limit that the user set.
    limit_bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl PageCache {
    /// Empty cache within a memory budget; without one it caches nothing. Without an environment, or with a
    /// simulated one, it has no thread, and proportional caching no shares.
    pub(crate) fn new(budget: Option<&Arc<MemoryBudget>>, env: Option<&Env>) -> Arc<PageCache> {
        let policy = CachePolicy::default();
        let reserved = budget.map(|budget| budget.empty(MemoryConsumer::ColumnPages));
        let pages = Pages {
            frames: Frames::new(policy, reserved),
            policy,
            shares: Shares::new(),
            needed_bytes: None,
        };
        Arc::new(PageCache {
            pages: Mutex::new(pages),
            advisor: Mutex::default(),
            loads: LoadMeter::default(),
            objects: Arc::default(),
            object_loads: LoadMeter::default(),
            tuner: Tuner::new(env.filter(|env| !env.is_simulated())),
            budget: budget.cloned(),
            limit_bytes: AtomicU64::new(u64::MAX),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// Sets the policy; pages stay, earlier pipelines are forgotten.
    pub(crate) fn set_policy(&self, policy: CachePolicy) {
        self.advisor.lock().forget_all();
        let mut pages = self.pages.lock();
        pages.policy = policy;
        pages.shares.clear();
        pages.needed_bytes = None;
        pages.frames.set_policy(policy);
    }

    /// Policy in effect.
    pub(crate) fn policy(&self) -> CachePolicy {
        self.pages.lock().policy
    }

    /// Takes a bandwidth of storage, in bytes per second, until loads have shown another one.
    pub(crate) fn expect_bandwidth(&self, bytes_per_second: f64) {
        if bytes_per_second.is_finite() && bytes_per_second > 0.0 {
            self.loads.expect(bytes_per_second);
        }
    }

    /// Emulates storage of a bandwidth in bytes per second, or none.
    #[cfg(feature = "testkit")]
    pub(crate) fn emulate_storage(&self, bytes_per_second: Option<f64>) {
        self.loads.device().set(bytes_per_second);
    }

    /// Limits the bytes of the cache. It never takes more than a quarter of the memory budget.
    pub(crate) fn limit(&self, bytes_max: u64) {
        self.limit_bytes.store(bytes_max, Ordering::Relaxed);
        self.pages.lock().frames.evict_to(self.max_bytes());
    }

    fn max_bytes(&self) -> u64 {
        let share = self.budget.as_ref().map_or(0, |budget| budget.max_bytes() / BUDGET_SHARE);
        share.min(self.limit_bytes.load(Ordering::Relaxed))
    }

    /// Memory budget of the cache.
    pub(crate) fn budget(&self) -> Option<&Arc<MemoryBudget>> {
        self.budget.as_ref()
    }

    /// Meter of loads from the pool.
    pub(crate) fn loads(&self) -> &LoadMeter {
        &self.loads
    }

    /// Meter of loads from object stores, or of those from the pool.
    pub(crate) fn loads_of(&self, is_in_store: bool) -> &LoadMeter {
        if is_in_store { &self.object_loads } else { &self.loads }
    }

    /// Object stores of row groups.
    pub(crate) fn objects(&self) -> &Arc<ObjectStores> {
        &self.objects
    }

    /// Bandwidth of loads from object stores, in bytes per second; none before the first one.
    pub(crate) fn object_bandwidth(&self) -> Option<f64> {
        self.object_loads.storage()
    }

    /// Returns true if there is an object with this key. It does not count as a use.
    pub(crate) fn contains(&self, key: &PageKey) -> bool {
        self.pages.lock().frames.contains(key)
    }

    /// Returns true if an object of so many bytes could be added, if others made room.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        bytes + ENTRY_BYTES as u64 <= self.max_bytes()
    }

    /// Objects of a column, in no order. It does not count as a use.
    pub(crate) fn of_column(&self, column: &ColumnKey) -> Vec<CachedObject> {
        self.pages.lock().frames.of_column(column).cloned().collect()
    }

    /// Object with this key.
    pub(crate) fn get(&self, key: &PageKey) -> Option<CachedObject> {
        let found = self.pages.lock().frames.get(key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Adds an object, if there is room for it or can be made.
    pub(crate) fn put(&self, key: PageKey, cached: CachedObject) {
        let (bytes, max_bytes) = (cached.memory_bytes(), self.max_bytes());
        let mut pages = self.pages.lock();
        let needed = pages.needed_bytes.filter(|_| !key.column.is_of_summaries());
        let max_bytes = needed.map_or(max_bytes, |needed| needed.min(max_bytes));
        pages.frames.put(key, cached, bytes, max_bytes);
    }

    /// Notes a pipeline, or what is known better of a running one by now; see [`ShareAdvisor::observe`].
    pub(crate) fn observe(self: &Arc<PageCache>, number: u64, pipeline: Pipeline) {
        if self.policy().goal().is_some() && self.max_bytes() > 0 {
            self.advisor.lock().observe(number, pipeline);
            self.tuner.wake(self);
        }
    }

    /// Bandwidths of storage and memory; none before the first load.
    pub(crate) fn bandwidths(&self) -> Option<Bandwidths> {
        let sample: Vec<CachedObject> =
            self.pages.lock().frames.values().take(loads::SAMPLE_PAGES).cloned().collect();
        let storage = self.loads.storage().or_else(|| self.object_loads.storage())?;
        Some(loads::bandwidths(storage, &sample))
    }

    /// Gives columns the shares that suit the last pipelines.
    fn tune(&self) {
        let Some(goal) = self.policy().goal() else { return };
        let Some(bandwidths) = self.bandwidths() else { return };
        let workload = self.advisor.lock().workload(bandwidths);
        let Some(workload) = workload else { return };
        let summaries = self.summary_bytes();
        let budget_bytes = self.max_bytes().saturating_sub(summaries);
        let before = self.pages.lock().shares.clone();
        let Some(shares) = advisor::advise_after(&workload, &before, budget_bytes, goal) else {
            tracing::debug!("no shares of the page cache were found; those before stay");
            return;
        };
        let mut pages = self.pages.lock();
        if pages.policy.goal() != Some(goal) {
            return;
        }
        if goal != policy::CacheGoal::LeastTime {
            let of_shares: u64 = shares.values().map(|share| share.bytes).sum();
            pages.needed_bytes = Some(of_shares + summaries);
        }
        if tuner::has_changed(&pages.shares, &shares) {
            pages.frames.set_shares(&shares);
        }
        pages.shares = shares;
        let needed_bytes = pages.needed_bytes.unwrap_or(u64::MAX);
        pages.frames.shrink_to(needed_bytes);
    }

    fn summary_bytes(&self) -> u64 {
        let pages = self.pages.lock();
        let of_summaries = pages.frames.columns().iter().filter(|(column, _)| column.is_of_summaries());
        of_summaries.map(|(_, counts)| counts.bytes).sum()
    }

    /// Removes the objects of a row group, which no new transaction sees.
    pub(crate) fn forget(&self, store: StoreNumber, group: u32) {
        self.pages.lock().frames.remove_if(|page| page.column.store == store && page.group == group);
    }

    /// Removes the objects of a store that is closed.
    pub(crate) fn forget_store(&self, store: StoreNumber) {
        self.advisor.lock().forget_store(store);
        let mut pages = self.pages.lock();
        pages.frames.remove_if(|page| page.column.store == store);
        pages.frames.forget_columns(|column| column.store == store);
        pages.shares.retain(|column, _| column.store != store);
    }

    /// Use by column, with the share of each.
    pub(crate) fn columns(&self) -> BTreeMap<ColumnKey, (ColumnUse, Option<Share>)> {
        let pages = self.pages.lock();
        let of_frames = pages.frames.columns().iter();
        let with_share =
            of_frames.map(|(column, counts)| (*column, (*counts, pages.shares.get(column).copied())));
        with_share.collect()
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

#[cfg(test)]
mod tests;
