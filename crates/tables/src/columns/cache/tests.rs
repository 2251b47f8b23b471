//! Policies beside plain models of them, random traces, closed forms of the model of proportional caching, programs
//! beside a grid, threads.
#![allow(clippy::unwrap_used)]

use super::model::{Bandwidths, Division, Pipeline, Proportions, Share, Shares, Workload};
use super::policy::{CacheGoal, CachePolicy};
use super::*;
use frames::Frames;
use program::{least_memory, least_time};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};

const STORE: StoreNumber = StoreNumber(1);

fn page(column: u16, group: u32) -> PageKey {
    PageKey::of_page(STORE, column, group)
}

fn column(column: u16) -> ColumnKey {
    ColumnKey { store: STORE, column }
}

fn summary(keys: usize) -> CachedObject {
    let block_keys = vec![entresol_structures::KeyBytes::new(); keys];
    CachedObject::Summary(Arc::new(GroupSummary { columns: Vec::new(), block_keys, object: None }))
}

/// Cached object under the key of a page, of a few hundred bytes.
fn object() -> CachedObject {
    summary(8)
}

#[test]
fn the_cache_holds_its_budget_and_retains_pages_in_use() {
    let budget = MemoryBudget::tiny(64 << 10);
    let cache = PageCache::new(Some(&budget), None);
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
    let nothing = PageCache::new(None, None);
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
            CachePolicy::Proportional(_) => unreachable!("it has no model"),
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
            if policy.goal().is_some() {
                continue;
            }
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
        proportions in prop::collection::vec(0.0_f64..1.1, 4),
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
                    2 => frames.set_shares(&shares(&proportions, bytes_max)),
                    3 => {
                        frames.shrink_to(bytes_max / 2);
                    }
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

/// Shares of the first columns within a budget, each of so much of what all its pages may take.
fn shares(proportions: &[f64], bytes_max: u64) -> Shares {
    let share = |(at, proportion): (usize, &f64)| {
        let bytes = (*proportion * bytes_max as f64 / proportions.len() as f64) as u64;
        (column(at as u16), Share { proportion: *proportion, bytes, gain_seconds: 0.0 })
    };
    proportions.iter().enumerate().map(share).collect()
}

#[test]
fn columns_have_their_shares_and_the_free_list_goes_first() {
    let mut frames = Frames::new(CachePolicy::default(), None);
    let read = |frames: &mut Frames<u32>, of: u16| {
        let missed = (1..=100).filter(|group| {
            let is_missed = frames.get(&page(of, *group)).is_none();
            if is_missed {
                frames.put(page(of, *group), *group, 1, 100);
            }
            is_missed
        });
        missed.count()
    };
    let pages = |frames: &Frames<u32>, of: u16| frames.columns().get(&column(of)).map_or(0, |of| of.pages);
    assert_eq!(read(&mut frames, 0), 100);
    assert_eq!(read(&mut frames, 0), 0, "without shares the room is there for all");
    let of = |proportion: f64| Share { proportion, bytes: (proportion * 100.0) as u64, gain_seconds: 0.0 };
    frames.set_shares(&Shares::from([(column(0), of(0.6)), (column(1), of(0.4))]));
    assert_eq!(read(&mut frames, 0), 0, "pages of the free list are found until they go");
    read(&mut frames, 1);
    assert!((38..=40).contains(&pages(&frames, 1)), "{}", pages(&frames, 1));
    let missed = read(&mut frames, 0);
    assert!((38..=41).contains(&missed), "{missed}");
    // Retained pages lie between the others: no ten row groups are without one.
    let found: BTreeSet<u32> = (1..=100).filter(|group| frames.get(&page(0, *group)).is_some()).collect();
    assert!((1..=91).all(|first| found.range(first..first + 10).count() >= 4), "{found:?}");
    // A larger share has the pages of a smaller one.
    frames.set_shares(&Shares::from([(column(0), of(0.7)), (column(1), of(0.3))]));
    read(&mut frames, 0);
    assert!(found.iter().all(|group| frames.get(&page(0, *group)).is_some()));
    // A column that no scan has read has what the others leave.
    read(&mut frames, 2);
    let before = pages(&frames, 0) + pages(&frames, 1);
    assert!(before >= 98, "{before} pages of columns with shares stay");
    frames.set_shares(&Shares::from([(column(0), of(0.5)), (column(1), of(0.0))]));
    frames.shrink_to(50);
    assert!(frames.bytes() <= 51 && pages(&frames, 1) == 0);
}

fn pipeline(columns: &[(u16, f64)], bytes_per_second: f64) -> Pipeline {
    let columns = columns.iter().map(|(id, bytes)| (column(*id), *bytes)).collect();
    Pipeline { columns, bytes_per_second, storage: None }
}

fn workload(pipelines: Vec<Pipeline>, storage: f64, memory: f64, division: Division) -> Workload {
    Workload { pipelines, bandwidths: Bandwidths { storage, memory }, division }
}

fn assert_near(value: f64, expected: f64, what: &str) {
    assert!((value - expected).abs() <= 2e-3 * expected.abs().max(1.0), "{what}: {value}, not {expected}");
}

/// Query 2.1 of the paper's figure 5, in GB: 96 of input, 14.7 per second in memory.
#[test]
fn one_query_needs_what_storage_cannot_deliver() {
    const DRIVE: f64 = 5780.0 * 1.048_576e-3;
    for division in Division::ALL {
        let read = vec![pipeline(&[(0, 24.0), (1, 24.0), (2, 24.0), (3, 24.0)], 14.7)];
        let of = |storage: f64| workload(read.clone(), storage, 100.0, division);
        let (one, four) = (of(DRIVE), of(DRIVE + 3.0 * 4970.0 * 1.048_576e-3));
        assert_near(one.seconds(&Proportions::new()), 96.0 / DRIVE, "the drive decides");
        let found = least_time(&one, 1000.0).unwrap();
        assert_near(one.seconds(&found), 96.0 / 14.7, "processing decides");
        assert_near(one.cached_bytes(&found), (1.0 - DRIVE / 14.7) * 96.0, "and no more is cached");
        let found = least_time(&four, 1000.0).unwrap();
        assert_near(four.cached_bytes(&found), 0.0, "four drives are faster than the query");
        // Half as long again as the least time.
        let found = least_memory(&one, 1000.0, 0.5).unwrap();
        let expected = (1.0 - 1.5 * DRIVE / 14.7) * 96.0;
        assert_near(one.cached_bytes(&found), expected, "a slower query needs less");
        // Below that the time falls with each byte.
        let found = least_time(&one, 20.0).unwrap();
        assert_near(one.seconds(&found), (96.0 - 20.0) / DRIVE, "a small budget is used up");
    }
    let bandwidths = Bandwidths { storage: 2.0, memory: 8.0 };
    assert_eq!(bandwidths.seconds(16.0, 0.0, 4.0), 8.0);
    assert_eq!(bandwidths.seconds(16.0, 0.5, 4.0), 4.0);
    assert_eq!(bandwidths.seconds(16.0, 1.0, 32.0), 2.0);
}

#[test]
fn a_pipeline_over_slower_storage_gets_the_cache() {
    let [near, far] = [0, 1].map(|at| pipeline(&[(at, 24.0)], 14.7));
    let far = Pipeline { storage: Some(0.5), ..far };
    let both = workload(vec![near, far], 10.0, 100.0, Division::BySize);
    assert_near(both.seconds(&Proportions::new()), 24.0 / 10.0 + 24.0 / 0.5, "each by its storage");
    let found = least_time(&both, 12.0).unwrap();
    assert_near(found[&column(1)], 0.5, "the column of the slower storage");
    assert_near(found[&column(0)], 0.0, "the other one");
}

#[test]
fn columns_of_two_queries_share_a_proportion_and_repetition_counts() {
    // Equation 2: A reads i and j, B reads j and k; all the same otherwise. The shared column is worth twice.
    let (a, b) = (pipeline(&[(0, 10.0), (1, 10.0)], 100.0), pipeline(&[(1, 10.0), (2, 10.0)], 100.0));
    let both = workload(vec![a.clone(), b], 10.0, 1000.0, Division::BySize);
    let found = least_time(&both, 9.0).unwrap();
    assert_near(found[&column(1)], 0.9, "the shared column");
    assert_near(found[&column(0)] + found[&column(2)], 0.0, "the others");
    let slowest = Workload { division: Division::Slowest, ..both };
    let x = |i: f64, j: f64, k: f64| Proportions::from([(column(0), i), (column(1), j), (column(2), k)]);
    assert_near(slowest.seconds(&x(0.5, 0.2, 0.9)), 1.6 + 1.6, "the least proportion decides");
    // A query that is processed slowly gains nothing, however often it runs.
    let slow = pipeline(&[(3, 10.0)], 5.0);
    let read = vec![slow.clone(), slow.clone(), slow.clone(), slow, a];
    let found = least_time(&workload(read, 10.0, 1000.0, Division::BySize), 15.0).unwrap();
    assert_near(found[&column(3)], 0.0, "of the slow query");
    assert_near(found[&column(0)] + found[&column(1)], 1.5, "of the fast one");
    // Of two that gain the same by a byte, the one that runs more often has the memory.
    let (often, seldom) = (pipeline(&[(4, 10.0)], 100.0), pipeline(&[(5, 10.0)], 100.0));
    let read = vec![often.clone(), seldom, often];
    let found = least_time(&workload(read, 10.0, 1000.0, Division::BySize), 5.0).unwrap();
    assert_near(found[&column(4)], 0.5, "often");
    assert_near(found[&column(5)], 0.0, "seldom");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn programs_are_as_good_as_the_best_point_of_a_grid(
        pipelines in prop::collection::vec(
            (prop::collection::btree_map(0_u16..3, 1.0_f64..50.0, 1..4), 1.0_f64..60.0),
            1..5,
        ),
        storage in 2.0_f64..20.0,
        memory in 20.0_f64..100.0,
        share in 0.05_f64..1.0,
        division in 0_usize..3,
    ) {
        const STEPS: usize = 20;
        let read = pipelines.iter().map(|(columns, speed)| {
            pipeline(&columns.iter().map(|(id, bytes)| (*id, *bytes)).collect::<Vec<_>>(), *speed)
        });
        let workload = workload(read.collect(), storage, memory, Division::ALL[division]);
        let budget = share * workload.columns().values().sum::<f64>();
        let fastest = least_time(&workload, budget).unwrap();
        let frugal = least_memory(&workload, budget, 0.1).unwrap();
        let seconds = workload.seconds(&fastest);
        for found in [&fastest, &frugal] {
            prop_assert!(workload.cached_bytes(found) <= budget * (1.0 + 1e-9));
            prop_assert!(found.values().all(|value| (0.0..=1.0).contains(value)));
        }
        prop_assert!(workload.seconds(&frugal) <= seconds * 1.101);
        let columns: Vec<ColumnKey> = workload.columns().into_keys().collect();
        let points = (STEPS + 1).pow(columns.len() as u32);
        for point in 0..points {
            let at = |column: usize| point / (STEPS + 1).pow(column as u32) % (STEPS + 1);
            let x = columns.iter().enumerate();
            let x: Proportions = x.map(|(id, key)| (*key, at(id) as f64 / STEPS as f64)).collect();
            let bytes = workload.cached_bytes(&x);
            if bytes > budget {
                continue;
            }
            let at_point = workload.seconds(&x);
            prop_assert!(at_point >= seconds * (1.0 - 1e-3), "{at_point} at {x:?}, {seconds} at {fastest:?}");
            if at_point <= seconds * 1.0999 {
                let least = workload.cached_bytes(&frugal);
                prop_assert!(bytes >= least - 2e-3 * budget, "{bytes} at {x:?}, {least} at {frugal:?}");
            }
        }
        let shares = advisor::advise(&workload, budget as u64, CacheGoal::LeastTime).unwrap();
        prop_assert!(shares.values().all(|share| share.gain_seconds >= -1e-9 * seconds));
    }
}

#[test]
fn shares_follow_the_last_pipelines() {
    let bandwidths = Bandwidths { storage: 10.0, memory: 1000.0 };
    let mut advisor = ShareAdvisor::default();
    assert_eq!(advisor.workload(bandwidths), None);
    for number in 0..200 {
        advisor.observe(number, pipeline(&[(0, 100.0)], 50.0));
    }
    // What is known of a running pipeline is replaced, and nonsense is left out.
    advisor.observe(199, pipeline(&[(0, 100.0)], 20.0));
    advisor.observe(200, pipeline(&[(0, 100.0)], f64::INFINITY));
    advisor.observe(201, pipeline(&[], 1.0));
    let workload = advisor.workload(bandwidths).unwrap();
    assert_eq!(workload.pipelines.len(), advisor::PIPELINES_MAX);
    assert_eq!(workload.pipelines.last().unwrap().bytes_per_second, 20.0);
    for number in 300..300 + advisor::PIPELINES_MAX as u64 {
        advisor.observe(number, pipeline(&[(1, 100.0)], 50.0));
    }
    let shares = advisor::advise(&advisor.workload(bandwidths).unwrap(), 50, CacheGoal::LeastTime).unwrap();
    assert_eq!(shares.keys().copied().collect::<Vec<_>>(), [column(1)], "earlier queries are forgotten");
    assert!(shares[&column(1)].gain_seconds > 0.0);
    advisor.forget_store(STORE);
    assert_eq!(advisor.workload(bandwidths), None);
}

#[test]
fn shares_stay_unless_others_gain_enough() {
    // Two queries that gain the same by a byte, one of which ran once more than the other.
    let read = |often: usize, seldom: usize| {
        let often = std::iter::repeat_n(pipeline(&[(0, 100.0)], 1000.0), often);
        let both = often.chain(std::iter::repeat_n(pipeline(&[(1, 100.0)], 1000.0), seldom));
        workload(both.collect(), 10.0, 1000.0, Division::BySize)
    };
    let goal = CacheGoal::LeastTime;
    let bytes = |shares: &Shares| [0, 1].map(|id| shares[&column(id)].bytes);
    let even =
        Shares::from([0, 1].map(|id| (column(id), Share { proportion: 0.1, bytes: 10, gain_seconds: 0.0 })));
    let after = advisor::advise_after(&read(11, 10), &even, 20, goal).unwrap();
    assert_eq!(bytes(&after), [10, 10], "half a percent is not worth it");
    assert!(after[&column(0)].gain_seconds > after[&column(1)].gain_seconds, "what they gain is known anew");
    let after = advisor::advise_after(&read(30, 10), &even, 20, goal).unwrap();
    assert_eq!(bytes(&after), [20, 0], "5% is");
    let after = advisor::advise_after(&read(11, 10), &even, 10, goal).unwrap();
    assert_eq!(bytes(&after), [10, 0], "the budget is smaller");
    let other = Shares::from([(column(0), even[&column(0)])]);
    let after = advisor::advise_after(&read(11, 10), &other, 20, goal).unwrap();
    assert_eq!(bytes(&after), [20, 0], "another column is read");
    // Queries that are slow anyway need no memory, and the second goal needs less of it.
    let slow = workload(vec![pipeline(&[(0, 100.0), (1, 100.0)], 5.0)], 10.0, 1000.0, Division::BySize);
    assert_eq!(bytes(&advisor::advise_after(&slow, &even, 20, goal).unwrap()), [0, 0]);
    let goal = CacheGoal::LeastMemory { slowdown_percent: 5 };
    let after = advisor::advise_after(&read(10, 10), &even, 20, goal).unwrap();
    assert!(bytes(&after).iter().sum::<u64>() < 20, "{after:?}");
}

#[test]
fn threads_share_a_cache_while_shares_change() {
    let budget = MemoryBudget::tiny(256 << 10);
    let env = Env::default();
    let cache = PageCache::new(Some(&budget), Some(&env));
    cache.loads().load(|| std::thread::sleep(std::time::Duration::from_millis(1)), |()| 1 << 20);
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
                            cache.observe(thread << 32 | round, pipeline(&[(id, 50_000.0)], 1e12));
                            cache.forget(STORE, group);
                            cache.tune();
                        }
                    }
                });
            }
        });
        let used = budget.usage().consumers[MemoryConsumer::ColumnPages as usize].used_bytes;
        assert_eq!(used, cache.stats().bytes, "{policy}");
        let has_shares = cache.columns().values().any(|(_, share)| share.is_some());
        assert_eq!(has_shares, policy.goal().is_some(), "{policy}");
    }
    drop(cache);
}
