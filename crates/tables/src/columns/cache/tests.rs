//! Policies beside plain models of them, random traces, threads.
#![allow(clippy::unwrap_used)]

use super::policy::CachePolicy;
use super::*;
use frames::Frames;
use proptest::prelude::*;
use std::collections::HashSet;

const STORE: StoreNumber = StoreNumber(1);

fn page(column: u16, group: u32) -> PageKey {
    PageKey::of_page(STORE, column, group)
}

fn summary(keys: usize) -> Cached {
    let block_keys = vec![entresol_structures::KeyBytes::new(); keys];
    Cached::Summary(Arc::new(GroupSummary { columns: Vec::new(), block_keys }))
}

/// Cached object under the key of a page, of a few hundred bytes.
fn object() -> Cached {
    summary(8)
}

#[test]
fn the_cache_holds_its_budget_and_retains_pages_in_use() {
    let budget = MemoryBudget::tiny(64 << 10);
    let cache = PageCache::new(Some(&budget));
    cache.set_policy(CachePolicy::Lru);
    for group in 0..1000 {
        cache.put(page(0, group), object());
        assert!(cache.get(&page(0, 0)).is_some(), "a page in use is retained, after {group}");
    }
    let stats = cache.stats();
    assert!(stats.bytes <= 16 << 10 && stats.entries > 4, "{stats:?}");
    let used = || budget.usage().consumers[MemoryConsumer::ColumnPages as usize].used_bytes;
    assert_eq!(used(), stats.bytes);
    assert_eq!(stats.hits, 1000);
    cache.forget(STORE, 0);
    assert!(cache.get(&page(0, 0)).is_none());
    cache.put(page(0, 2000), summary(100_000));
    assert!(cache.get(&page(0, 2000)).is_none(), "larger than the cache");
    cache.forget_store(STORE);
    assert_eq!((cache.stats().bytes, used()), (0, 0));
    let nothing = PageCache::new(None);
    nothing.put(page(0, 1), object());
    assert_eq!(nothing.stats().entries, 0);
}

/// Plain model of a policy over pages of one byte: lists, oldest first.
#[derive(Default)]
struct Model {
    first: Vec<PageKey>,
    second: Vec<PageKey>,
    ghosts: Vec<PageKey>,
    uses: BTreeMap<PageKey, u64>,
    counted: u64,
}

fn take(list: &mut Vec<PageKey>, page: &PageKey) -> bool {
    let at = list.iter().position(|of| of == page);
    at.map(|at| list.remove(at)).is_some()
}

fn keep_last(list: &mut Vec<PageKey>, most: usize) {
    list.drain(..list.len().saturating_sub(most));
}

impl Model {
    /// Uses a page; true if it was there.
    fn touch(&mut self, policy: CachePolicy, capacity: usize, page: PageKey) -> bool {
        let found = self.first.contains(&page) || self.second.contains(&page);
        match policy {
            CachePolicy::Lru | CachePolicy::Mru => {
                take(&mut self.first, &page);
                if !found && self.first.len() == capacity {
                    let at = if policy == CachePolicy::Lru { 0 } else { capacity - 1 };
                    self.first.remove(at);
                }
                self.first.push(page);
            }
            CachePolicy::Lfu => self.touch_lfu(capacity, page, found),
            CachePolicy::TwoQueues => self.touch_two_queues(capacity, page, found),
            CachePolicy::S3Fifo => self.touch_s3_fifo(capacity, page, found),
        }
        found
    }

    fn touch_lfu(&mut self, capacity: usize, page: PageKey, found: bool) {
        take(&mut self.first, &page);
        if !found && self.first.len() == capacity {
            let least = self.first.iter().map(|page| self.uses[page]).min().unwrap();
            let at = self.first.iter().position(|page| self.uses[page] == least).unwrap();
            let evicted = self.first.remove(at);
            take(&mut self.ghosts, &evicted);
            self.ghosts.push(evicted);
            keep_last(&mut self.ghosts, self.first.len().max(1));
        }
        let is_known = found || take(&mut self.ghosts, &page);
        let before = if is_known { self.uses[&page] } else { 0 };
        self.first.push(page);
        self.uses.insert(page, before + 1);
        self.counted += 1;
        if self.counted > 10 * self.first.len() as u64 + 10 {
            self.counted = 0;
            for page in &self.first {
                self.uses.entry(*page).and_modify(|uses| *uses = uses.div_ceil(2));
            }
            for page in &self.ghosts {
                self.uses.entry(*page).and_modify(|uses| *uses /= 2);
            }
        }
    }

    /// `first` is A1in, `second` Am.
    fn touch_two_queues(&mut self, capacity: usize, page: PageKey, found: bool) {
        if found {
            if take(&mut self.second, &page) {
                self.second.push(page);
            }
            return;
        }
        if self.first.len() + self.second.len() == capacity {
            if self.first.len() > capacity / 4 || self.second.is_empty() {
                let evicted = self.first.remove(0);
                self.ghosts.push(evicted);
                keep_last(&mut self.ghosts, capacity / 2);
            } else {
                self.second.remove(0);
            }
        }
        let list = if take(&mut self.ghosts, &page) { &mut self.second } else { &mut self.first };
        list.push(page);
    }

    /// `first` is the small queue, `second` the main one.
    fn touch_s3_fifo(&mut self, capacity: usize, page: PageKey, found: bool) {
        if found {
            self.uses.entry(page).and_modify(|uses| *uses = (*uses + 1).min(3));
            return;
        }
        if self.first.len() + self.second.len() == capacity {
            let mut is_done = self.first.len() > capacity / 10 && self.evict_small(capacity);
            while !is_done && !self.second.is_empty() {
                let oldest = self.second.remove(0);
                is_done = self.uses[&oldest] == 0;
                if !is_done {
                    self.uses.entry(oldest).and_modify(|uses| *uses -= 1);
                    self.second.push(oldest);
                }
            }
            assert!(is_done || self.evict_small(capacity));
        }
        let list = if take(&mut self.ghosts, &page) { &mut self.second } else { &mut self.first };
        list.push(page);
        self.uses.insert(page, 0);
    }

    fn evict_small(&mut self, capacity: usize) -> bool {
        while !self.first.is_empty() {
            let oldest = self.first.remove(0);
            if self.uses.insert(oldest, 0) == Some(0) {
                self.ghosts.push(oldest);
                keep_last(&mut self.ghosts, capacity - capacity / 10);
                return true;
            }
            self.second.push(oldest);
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn policies_evict_the_pages_that_their_models_evict(
        trace in prop::collection::vec((0_u16..3, 0_u32..12), 1..600),
        capacity in 4_usize..24,
    ) {
        for policy in CachePolicy::ALL {
            let (mut frames, mut model) = (Frames::new(policy, None), Model::default());
            for (at, (column, group)) in trace.iter().enumerate() {
                let page = page(*column, *group);
                let found = model.touch(policy, capacity, page);
                let cached = frames.get(&page);
                prop_assert_eq!(cached.is_some(), found, "{} at {}", policy, at);
                if cached.is_none() {
                    prop_assert!(frames.put(page, page, 1, capacity as u64));
                }
                prop_assert!(frames.bytes() <= capacity as u64);
            }
        }
    }

    #[test]
    fn random_traces_hold_the_budget_and_find_their_pages(
        trace in prop::collection::vec((0_u8..20, 0_u16..4, 0_u32..40), 1..800),
        bytes_max in 200_u64..3000,
    ) {
        let bytes_of = |page: &PageKey| 10 + u64::from(page.group) * 3 + u64::from(page.column.column);
        for policy in CachePolicy::ALL {
            let mut frames = Frames::new(policy, None);
            let mut gone: HashSet<PageKey> = HashSet::new();
            for (action, column_id, group) in &trace {
                let page = page(*column_id, *group);
                match action {
                    0 => {
                        frames.remove_if(|of| of.group == *group);
                        gone.extend((0..4).map(|column| PageKey { group: *group, ..self::page(column, 0) }));
                    }
                    1 => frames.set_policy(policy),
                    _ => match frames.get(&page) {
                        Some(found) => {
                            prop_assert_eq!(found, page);
                            prop_assert!(!gone.contains(&page), "a removed page is not found");
                        }
                        None => {
                            gone.remove(&page);
                            if !frames.put(page, page, bytes_of(&page), bytes_max) {
                                gone.insert(page);
                            }
                        }
                    },
                }
                prop_assert!(frames.bytes() <= bytes_max, "{}", policy);
                let sum: u64 = frames.values().map(bytes_of).sum();
                prop_assert_eq!(sum, frames.bytes());
                let by_column: u64 = frames.columns().values().map(|counts| counts.bytes).sum();
                prop_assert_eq!(by_column, frames.bytes());
            }
            frames.remove_if(|_| true);
            prop_assert!(frames.is_empty() && frames.bytes() == 0);
        }
    }
}

#[test]
fn threads_share_a_cache() {
    let budget = MemoryBudget::tiny(256 << 10);
    let cache = PageCache::new(Some(&budget));
    for policy in CachePolicy::ALL {
        cache.set_policy(policy);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = 77 + thread;
                    for round in 0..2000_u64 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (id, group) = ((random >> 40) as u16 % 4, (random >> 50) as u32 % 200);
                        if cache.get(&page(id, group)).is_none() {
                            cache.put(page(id, group), object());
                        }
                        assert!(cache.stats().bytes <= 64 << 10);
                        if round % 100 == 0 {
                            cache.forget(STORE, group);
                        }
                    }
                });
            }
        });
        let used = budget.usage().consumers[MemoryConsumer::ColumnPages as usize].used_bytes;
        assert_eq!(used, cache.stats().bytes, "{policy}");
    }
}
