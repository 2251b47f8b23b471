//! Cache of column pages and summaries in DRAM, one for all tables of a catalog.
//!
//! Pages are written once, and their numbers not used again while a store is open, so a cached page stays right
//! for ever: a transaction sees it if it sees its row group. Each open store has a number of its own, since
//! numbers of states are used again; time travel goes around the cache, since it may see row groups of earlier
//! runs. The cache takes at most a quarter of the memory budget, out of
//! which it reserves what it has ([`MemoryConsumer::ColumnPages`]); what does not fit is read and not cached.
//!
//! Replacement: a clock. A page has a second chance if it was used since the hand came by. Cost of a look-up:
//! one lock and one hash.

use crate::columns::group::{GroupSummary, column_of};
use crate::columns::page::ColumnPage;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Share of the memory budget that the cache takes at most, as a divisor.
const BUDGET_SHARE: u64 = 4;

/// Number of an open column store; see [`StoreNumber::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StoreNumber(u64);

impl StoreNumber {
    /// Number that no other store of the process has.
    pub(crate) fn next() -> StoreNumber {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        StoreNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Column store and key of an entry.
pub(crate) type CacheKey = (StoreNumber, [u8; 8]);

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

/// Bytes of an entry beside its object.
const ENTRY_BYTES: usize = 96;

struct Entry {
    cached: Cached,
    is_used: bool,
}

struct Entries {
    by_key: HashMap<CacheKey, Entry>,
    /// Keys in the order of the hand; some may be gone.
    clock: VecDeque<CacheKey>,
    reserved: Option<MemoryReservation>,
    bytes: u64,
}

/// Cached pages of a column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedColumn {
    /// Name of the table.
    pub table: String,
    /// Name of the column.
    pub column: String,
    /// Number of pages.
    pub pages: u64,
    /// Bytes that they take.
    pub bytes: u64,
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

/// Cache of column pages; see the [module](self).
pub(crate) struct PageCache {
    entries: Mutex<Entries>,
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
        let entries = Entries {
            by_key: HashMap::new(),
            clock: VecDeque::new(),
            reserved: budget.map(|budget| budget.empty(MemoryConsumer::ColumnPages)),
            bytes: 0,
        };
        Arc::new(PageCache {
            entries: Mutex::new(entries),
            budget: budget.cloned(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    fn max_bytes(&self) -> u64 {
        self.budget.as_ref().map_or(0, |budget| budget.max_bytes() / BUDGET_SHARE)
    }

    /// Object with this key.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Cached> {
        let mut entries = self.entries.lock();
        let found = entries.by_key.get_mut(key).map(|entry| {
            entry.is_used = true;
            entry.cached.clone()
        });
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Adds an object, if there is room for it or can be made.
    pub(crate) fn put(&self, key: CacheKey, cached: Cached) {
        let (bytes, max_bytes) = (cached.memory_bytes(), self.max_bytes());
        let mut entries = self.entries.lock();
        if bytes > max_bytes || entries.by_key.contains_key(&key) {
            return;
        }
        while entries.bytes + bytes > max_bytes {
            if !entries.evict() {
                return;
            }
        }
        let reserve = |entries: &mut Entries| {
            entries.reserved.as_mut().is_some_and(|reserved| reserved.try_grow(bytes).is_ok())
        };
        while !reserve(&mut entries) {
            if !entries.evict() {
                return;
            }
        }
        entries.bytes += bytes;
        entries.clock.push_back(key);
        entries.by_key.insert(key, Entry { cached, is_used: false });
    }

    /// Removes the objects of a row group, which no new transaction sees.
    pub(crate) fn forget(&self, store: StoreNumber, group: u32) {
        let mut entries = self.entries.lock();
        let gone: Vec<CacheKey> = entries
            .by_key
            .keys()
            .filter(|(of, key)| *of == store && super::group::group_of(key) == group)
            .copied()
            .collect();
        gone.iter().for_each(|key| entries.remove(key));
    }

    /// Removes the objects of a store that is closed.
    pub(crate) fn forget_store(&self, store: StoreNumber) {
        let mut entries = self.entries.lock();
        let gone: Vec<CacheKey> = entries.by_key.keys().filter(|(of, _)| *of == store).copied().collect();
        gone.iter().for_each(|key| entries.remove(key));
    }

    /// Pages and bytes of each column of a column store.
    pub(crate) fn columns(&self) -> BTreeMap<(StoreNumber, u16), (u64, u64)> {
        let mut columns: BTreeMap<(StoreNumber, u16), (u64, u64)> = BTreeMap::new();
        for ((store, key), entry) in &self.entries.lock().by_key {
            if let (Cached::Page(_), Some(column)) = (&entry.cached, column_of(key)) {
                let (pages, bytes) = columns.entry((*store, column)).or_default();
                (*pages, *bytes) = (*pages + 1, *bytes + entry.cached.memory_bytes());
            }
        }
        columns
    }

    /// Statistics since the catalog was opened.
    pub(crate) fn stats(&self) -> PageCacheStats {
        let entries = self.entries.lock();
        PageCacheStats {
            entries: entries.by_key.len() as u64,
            bytes: entries.bytes,
            max_bytes: self.max_bytes(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

impl Entries {
    /// Removes one entry; false if there is none.
    fn evict(&mut self) -> bool {
        while let Some(key) = self.clock.pop_front() {
            match self.by_key.get_mut(&key) {
                None => {}
                Some(entry) if entry.is_used => {
                    entry.is_used = false;
                    self.clock.push_back(key);
                }
                Some(_) => {
                    self.remove(&key);
                    return true;
                }
            }
        }
        false
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.by_key.remove(key) {
            let bytes = entry.cached.memory_bytes();
            self.bytes -= bytes;
            if let Some(reserved) = &mut self.reserved {
                reserved.shrink(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(keys: usize) -> Cached {
        let block_keys = vec![entresol_structures::KeyBytes::new(); keys];
        Cached::Summary(Arc::new(GroupSummary { columns: Vec::new(), block_keys }))
    }

    fn key(group: u32) -> CacheKey {
        (StoreNumber(0), super::super::group::EntryKind::Summary.key(group))
    }

    #[test]
    fn the_cache_holds_its_budget_and_keeps_what_is_used() {
        let budget = MemoryBudget::tiny(64 << 10);
        let cache = PageCache::new(Some(&budget));
        for group in 0..1000 {
            cache.put(key(group), summary(8));
            assert!(cache.get(&key(0)).is_some(), "a page in use is retained, after {group}");
        }
        let stats = cache.stats();
        assert!(stats.bytes <= 16 << 10 && stats.entries > 4, "{stats:?}");
        let used = budget.usage().consumers[MemoryConsumer::ColumnPages as usize].used_bytes;
        assert_eq!(used, stats.bytes);
        assert_eq!(stats.hits, 1000);
        cache.forget(StoreNumber(0), 0);
        assert!(cache.get(&key(0)).is_none());
        cache.put(key(2000), summary(100_000));
        assert!(cache.get(&key(2000)).is_none(), "larger than the cache");
        let nothing = PageCache::new(None);
        nothing.put(key(1), summary(1));
        assert_eq!(nothing.stats().entries, 0);
    }
}
