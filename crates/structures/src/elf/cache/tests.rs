//! Searches with a cache beside those without, whatever its policy has copied or removed.

use super::*;
use crate::elf::tests::{Codes, Random, build, codes_of, condition, kinds};
use crate::elf::{CodeCondition, Elf, ElfPiece, ElfPieces};
use entresol_memory::{Pool, PoolOptions};
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

const POLICIES: [&str; 13] = [
    "levels:1",
    "levels:3",
    "probability",
    "probability:0.01",
    "naive",
    "fifo",
    "lru",
    "lfu",
    "2q",
    "lla",
    "levels:2+lla",
    "probability:0.05+lru",
    "levels:2+2q",
];

fn in_place(elf: &Elf) -> ElfInPlace<&[u32]> {
    ElfInPlace::open(elf.words()).unwrap()
}

fn options(policy: &str, bytes_max: usize) -> ListCacheOptions {
    ListCacheOptions::new(bytes_max, policy.parse().unwrap())
}

fn conditions_of(codes: &[Vec<u32>], random: &mut Random) -> Vec<CodeCondition> {
    let used = random.below(codes.len() as u64 + 1) as usize;
    codes[..used].iter().map(|codes| condition(codes, random)).collect()
}

/// Conditions that one tuple meets.
fn exact(codes: &[Vec<u32>], tuple: usize) -> Vec<CodeCondition> {
    codes.iter().map(|codes| CodeCondition::equals(codes[tuple])).collect()
}

fn found(elf: &ElfInPlace<&[u32]>, cache: Option<&ListCache>, conditions: &[CodeCondition]) -> Vec<u32> {
    let mut ids = Vec::new();
    elf.collect(cache, conditions, &mut ids).unwrap();
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_policy_finds_what_no_cache_finds(
        schema in proptest::collection::vec(kinds(), 1..=8),
        tuples in prop_oneof![0_usize..3, 3..60_usize, 60..2000_usize],
        policy in 0..POLICIES.len(),
        bytes_max in prop_oneof![0_usize..300, 300..4000_usize, 4000..200_000_usize],
        mono_lists: bool,
        is_warm: bool,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let codes: Vec<Vec<u32>> =
            schema.iter().map(|kind| codes_of(*kind, tuples, &mut random)).collect();
        let elf = build(&codes);
        let elf = in_place(&elf);
        let options = ListCacheOptions { mono_lists, is_warm, ..options(POLICIES[policy], bytes_max) };
        let cache = ListCache::new(&elf, options);
        cache.check();
        for step in 0..60 {
            let conditions = match tuples {
                0 => Vec::new(),
                tuples if step % 2 == 0 => exact(&codes, random.below(tuples as u64) as usize),
                _ => conditions_of(&codes, &mut random),
            };
            let expected = found(&elf, None, &conditions);
            prop_assert_eq!(found(&elf, Some(&cache), &conditions), &expected[..], "{:?}", conditions);
            let mut in_parallel = elf.collect_by(Some(&cache), &conditions, 2).unwrap();
            in_parallel.sort_unstable();
            let mut expected = expected;
            expected.sort_unstable();
            prop_assert_eq!(in_parallel, expected);
            if random.below(20) == 0 {
                cache.clear();
            }
            cache.check();
        }
    }

    #[test]
    fn damaged_words_end_a_search_in_place(
        schema in proptest::collection::vec(kinds(), 1..=6),
        tuples in 1..80_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..40_u32, any::<u32>()), 1..4),
        policy in 0..POLICIES.len(),
        seed: u64,
    ) {
        let mut random = Random(seed);
        let codes: Vec<Vec<u32>> =
            schema.iter().map(|kind| codes_of(*kind, tuples, &mut random)).collect();
        let mut words = build(&codes).words().to_vec();
        for (at, bit, other) in changes {
            let at = at.index(words.len());
            words[at] = if bit < 32 { words[at] ^ (1 << bit) } else { other };
        }
        let Ok(elf) = ElfInPlace::open(&words[..]) else { return Ok(()) };
        let cache = ListCache::new(&elf, options(POLICIES[policy], 4000));
        for _ in 0..10 {
            let conditions = conditions_of(&codes, &mut random);
            let mut ids = Vec::new();
            let plain = elf.collect(None, &conditions, &mut ids);
            prop_assert!(ids.len() <= words.len() * words.len() && plain.is_ok() | plain.is_err());
            let _ = elf.collect(Some(&cache), &conditions, &mut ids);
            cache.check();
        }
    }
}

/// Tuples of four dimensions with 20 codes each.
fn uniform(tuples: usize) -> Vec<Vec<u32>> {
    let mut random = Random(5);
    (0..4).map(|_| codes_of(Codes::Few(20), tuples, &mut random)).collect()
}

#[test]
fn readers_agree_while_copies_come_and_go() {
    let codes = uniform(20_000);
    let elf = build(&codes);
    for policy in ["lru", "lfu", "fifo", "2q", "lla", "levels:2+lru"] {
        let elf = in_place(&elf);
        let options = ListCacheOptions { mono_lists: true, is_warm: false, ..options(policy, 40_000) };
        let (cache, stop) = (ListCache::new(&elf, options), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (elf, cache, codes, stop) = (&elf, &cache, &codes, &stop);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for step in 0..3000 {
                        let tuple = random.below(2000) as usize;
                        let conditions = exact(codes, tuple);
                        let ids = found(elf, Some(cache), &conditions);
                        assert!(ids.contains(&(tuple as u32)), "{policy}");
                        assert_eq!(ids, found(elf, None, &conditions), "{policy}");
                        if step % 64 == 0 {
                            let range =
                                [CodeCondition::Any, CodeCondition::Between { least: 3, greatest: 5 }];
                            assert_eq!(found(elf, Some(cache), &range), found(elf, None, &range), "{policy}");
                        }
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            while !stop.load(Ordering::Relaxed) {
                cache.clear();
                std::thread::yield_now();
            }
        });
        cache.check();
        let stats = cache.stats();
        assert!(stats.made > 0 && stats.hits > 0, "{policy}: {stats:?}");
    }
}

#[test]
fn what_is_found_may_be_searched_for_within_a_search() {
    let codes = uniform(2000);
    let elf = build(&codes);
    let elf = in_place(&elf);
    let cache = ListCache::new(&elf, options("lru", 20_000));
    let mut count = 0;
    let ended = elf.search(Some(&cache), &[CodeCondition::equals(3)], |id| {
        assert!(found(&elf, Some(&cache), &exact(&codes, id as usize)).contains(&id));
        count += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert!(ended.unwrap().is_continue() && count > 0);
    cache.check();
}

#[test]
fn the_most_likely_lists_are_copied_and_found_there() {
    let codes = uniform(20_000);
    let elf = build(&codes);
    let elf = in_place(&elf);
    let all = elf.levels().iter().map(|level| u64::from(level.lists)).collect::<Vec<_>>();
    let levels = ListCache::new(&elf, options("levels:2", 1 << 20)).stats();
    assert_eq!(levels.lists, [all[0], all[1], 0, 0]);
    // One and twenty lists of up to twenty codes, most of which are slots.
    assert!(levels.bytes < 21 * 4 * 28, "{levels:?}");
    let likely = ListCache::new(&elf, options("probability:0.02", 1 << 20)).stats();
    assert_eq!(likely.lists, [all[0], all[1], 0, 0], "a twentieth of the tuples is below each of them");
    let whole = ListCache::new(&elf, options("probability", 4 << 20));
    assert_eq!(whole.stats().lists, all);
    found(&elf, Some(&whole), &exact(&codes, 7));
    let stats = whole.stats();
    assert!(stats.hits >= 3 && stats.misses == 0, "MonoLists are not counted: {stats:?}");
    // All lists do not fit: those of the last dimension are left out, as they are the least likely.
    let some = ListCache::new(&elf, options("lla", 200_000));
    let lists = some.stats().lists;
    assert_eq!((lists[0], lists[1], lists[2]), (all[0], all[1], all[2]));
    assert!(lists[3] > 0 && lists[3] < all[3], "{lists:?}");
}

#[test]
fn copies_make_room_for_others() {
    let codes = uniform(20_000);
    let elf = build(&codes);
    let elf = in_place(&elf);
    for policy in ["naive", "fifo", "lru", "lfu", "2q", "lla"] {
        let options = ListCacheOptions { is_warm: false, ..options(policy, 40_000) };
        let cache = ListCache::new(&elf, options);
        let mut random = Random(9);
        for _ in 0..30_000 {
            found(&elf, Some(&cache), &exact(&codes, random.below(20_000) as usize));
        }
        cache.check();
        let stats = cache.stats();
        assert!(stats.bytes > 30_000, "{policy}: {stats:?}");
        let is_replaced = !["naive", "lla"].contains(&policy);
        assert!(!is_replaced || stats.removed > 0, "{policy}: {stats:?}");
        assert!(policy != "naive" || stats.removed == 0, "{stats:?}");
        cache.clear();
        assert_eq!(cache.stats().lists[1..], [0, 0, 0]);
    }
}

#[test]
fn lists_that_come_back_stay_under_2q_and_lru() {
    let codes = uniform(40_000);
    let elf = build(&codes);
    let elf = in_place(&elf);
    for policy in ["lru", "lfu", "2q"] {
        let options = ListCacheOptions { is_warm: false, ..options(policy, 50_000) };
        let cache = ListCache::new(&elf, options);
        let mut random = Random(2);
        // Nine of ten searches are for a few tuples.
        let mut search = |times: usize| {
            for _ in 0..times {
                let among = if random.below(10) == 0 { 40_000 } else { 100 };
                found(&elf, Some(&cache), &exact(&codes, random.below(among) as usize));
            }
        };
        search(40_000);
        let before = cache.stats();
        search(4000);
        let after = cache.stats();
        let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
        assert!(hits > 10 * misses, "{policy}: {hits} hits, {misses} misses");
    }
}

#[test]
fn words_in_a_pool_are_those_of_the_array() {
    let codes = uniform(5000);
    let elf = build(&codes);
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    const SHIFT: u32 = 10;
    let mut pieces = Vec::new();
    for (number, words) in elf.words().chunks(1 << SHIFT).enumerate() {
        let skipped = number % 3;
        let mut bytes = vec![7; 4 * skipped];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut publication = pool.publication();
        let offset = publication.allocate(pool.reserve(bytes.len().next_multiple_of(8)).unwrap());
        pool.store_flushed(offset, &bytes);
        publication.publish().unwrap();
        pieces.push(ElfPiece { offset, skipped });
    }
    let stored = ElfPieces::new(&pool, pieces.into_iter(), SHIFT, elf.words().len());
    assert_eq!(stored.to_vec(), elf.words());
    assert!((0..elf.words().len()).all(|at| stored.word(at) == elf.words()[at]));
    assert_eq!(stored.word(elf.words().len() + 5000), 0);
    let stored = ElfInPlace::open(stored).unwrap();
    let cache = ListCache::new(&stored, options("levels:2+lla", 20_000));
    let mut random = Random(4);
    for _ in 0..300 {
        let conditions = conditions_of(&codes, &mut random);
        let (mut expected, mut plain, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        elf.collect(&conditions, &mut expected);
        stored.collect(None, &conditions, &mut plain).unwrap();
        stored.collect(Some(&cache), &conditions, &mut cached).unwrap();
        assert_eq!((&plain, &cached), (&expected, &expected));
    }
}
