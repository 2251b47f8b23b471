//! Skip-lists in the common tests of maps, and the mutants that the crash checker must find.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::map_tests::{self, NumberMap};
use crate::node::{Indirection, Sorted};
use entresol_memory::PoolOffset;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

trait Numbered: FixedKey {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number
    }
    fn number(self) -> u64 {
        self
    }
}

impl Numbered for u128 {
    fn of(number: u64) -> u128 {
        u128::from(number / 5) << 64 | u128::from(number % 5) << 60
    }
    fn number(self) -> u64 {
        (self >> 64) as u64 * 5 + (self as u64 >> 60)
    }
}

impl<K: Numbered, C: Content, T: Towers> NumberMap for SkipList<K, C, T> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        SkipList::<K, C, T>::create(pool, with)
    }
    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self> {
        SkipList::open(pool, root)
    }
    fn destroy(pool: &Arc<Pool>, root: PoolOffset) -> Result<()> {
        SkipList::<K, C, T>::destroy(pool, root)
    }
    fn get(&self, key: u64) -> Result<Option<u64>> {
        self.get(K::of(key))
    }
    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.insert(K::of(key), value, with)
    }
    fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.update(K::of(key), value, with)
    }
    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.remove(K::of(key), with)
    }
    fn range(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
        self.range(K::of(from)..=K::of(to))
            .map(|entry| entry.map(|(key, value)| (key.number(), value)))
            .collect()
    }
    fn range_back(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
        let range = self.range(K::of(from)..=K::of(to)).rev();
        range.map(|entry| entry.map(|(key, value)| (key.number(), value))).collect()
    }
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        self.check(object)
    }
    fn keys(&self) -> Result<u64> {
        self.stats().map(|stats| stats.keys)
    }
}

type SmallBuckets<K> = BucketSkipList<K, 256>;
type SmallHybridBuckets<K> = HybridBucketSkipList<K, 256>;
type SortedBuckets = SkipList<u64, Bucket<Sorted<256>>, PoolTowers>;
type IndirectionBuckets = SkipList<u64, Bucket<Indirection<256>>, DramTowers>;

macro_rules! all_forms {
    ($function:ident($($argument:expr),*)) => {
        map_tests::$function::<PairSkipList<u64>>($($argument),*);
        map_tests::$function::<PairSkipList<u128>>($($argument),*);
        map_tests::$function::<HybridPairSkipList<u64>>($($argument),*);
        map_tests::$function::<SmallBuckets<u64>>($($argument),*);
        map_tests::$function::<SmallHybridBuckets<u64>>($($argument),*);
        map_tests::$function::<SmallHybridBuckets<u128>>($($argument),*);
        map_tests::$function::<SortedBuckets>($($argument),*);
        map_tests::$function::<IndirectionBuckets>($($argument),*);
    };
}

#[test]
fn every_form_agrees_with_a_model() {
    all_forms!(agrees_with_a_model(6000, 1200, 1));
}

#[test]
fn every_form_survives_crashes_with_pairs() {
    map_tests::survives_crashes::<PairSkipList<u64>>(1, 440, 80, 10_000);
    map_tests::survives_crashes::<HybridPairSkipList<u128>>(1, 440, 80, 10_000);
}

#[test]
fn every_form_survives_crashes_with_buckets() {
    map_tests::survives_crashes::<SmallBuckets<u64>>(2, 600, 120, 10_000);
    map_tests::survives_crashes::<SmallHybridBuckets<u128>>(2, 600, 120, 10_000);
}

#[test]
fn every_form_survives_crashes_with_buckets_in_order() {
    map_tests::survives_crashes::<SortedBuckets>(2, 200, 120, 10_000);
    map_tests::survives_crashes::<IndirectionBuckets>(2, 250, 120, 10_000);
}

#[test]
fn two_writers_survive_crashes() {
    map_tests::two_writers_survive_crashes::<PairSkipList<u64>>(3, 60, 3000);
    map_tests::two_writers_survive_crashes::<SmallHybridBuckets<u64>>(3, 60, 1000);
}

#[test]
fn destroying_survives_crashes() {
    map_tests::survives_being_destroyed::<PairSkipList<u64>>(40, 500);
    map_tests::survives_being_destroyed::<SmallHybridBuckets<u64>>(60, 100);
}

#[test]
fn threads_agree() {
    all_forms!(threads_agree(6000, 900));
}

#[test]
fn threads_fight_over_few_keys() {
    all_forms!(threads_fight(6000, 20));
}

#[test]
fn damage_is_an_error() {
    all_forms!(a_wrong_header_is_refused(5));
    let found = map_tests::flipped_bits_are_no_panic::<PairSkipList<u64>>(1500, 200);
    assert!(found > 30, "{found}%");
    let found = map_tests::flipped_bits_are_no_panic::<SmallHybridBuckets<u64>>(1500, 200);
    assert!(found > 10, "{found}%");
}

#[test]
fn a_ring_of_nodes_is_an_error_of_the_node_that_it_leads_back_to() {
    fn check<C: Content, T: Towers>(list: &SkipList<u64, C, T>) {
        for key in 1..=3 {
            assert_eq!(list.insert(key, key, list.pool.publication()).unwrap(), Inserted::New);
        }
        let first = list.next_of(list.head);
        let last = list.next_of(list.next_of(first));
        list.pool.word(last.word(FORWARD)).store(first.to_word(), Relaxed);
        let error = list.get(9).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == first), "{error}");
    }
    let pool = map_tests::small_pool();
    check(&map_tests::new_map::<PairSkipList<u64>>(&pool).unwrap());
    let pool = map_tests::small_pool();
    check(&map_tests::new_map::<HybridPairSkipList<u64>>(&pool).unwrap());
}

#[test]
fn full_pools_journals_and_carried_changes() {
    all_forms!(a_full_pool_changes_nothing());
    all_forms!(carries_the_changes_of_the_caller());
    map_tests::the_journal_brings_it_back::<PairSkipList<u64>>();
    map_tests::the_journal_brings_it_back::<SmallHybridBuckets<u128>>();
}

#[test]
fn another_kind_of_list_is_refused() {
    let pool = map_tests::small_pool();
    let list: PairSkipList<u64> = map_tests::new_map(&pool).unwrap();
    let root = list.root_offset();
    drop(list);
    let refused = [
        PairSkipList::<u128>::open(&pool, root).err(),
        HybridPairSkipList::<u64>::open(&pool, root).err(),
        BucketSkipList::<u64>::open(&pool, root).err(),
        SkipList::<u64, Bucket<Sorted<768>>, PoolTowers>::open(&pool, root).err(),
    ];
    for error in refused {
        assert!(error.unwrap().to_string().contains("of another kind"));
    }
    let list = BucketSkipList::<u64, 512>::create(&pool, &mut pool.publication()).unwrap();
    assert!(BucketSkipList::<u64, 768>::open(&pool, list).is_err());
}

#[test]
fn keys_in_order_fill_the_nodes_and_loading_fills_them_as_asked() {
    let pool = map_tests::small_pool();
    let list: BucketSkipList<u64> = map_tests::new_map(&pool).unwrap();
    let capacity = <Bucket<Bitmap<768>> as Content>::capacity::<u64>() as u64;
    (0..1000).for_each(|key| assert_eq!(list.insert(key, key, pool.publication()).unwrap(), Inserted::New));
    assert_eq!(list.stats().unwrap().nodes, (1000 - capacity).div_ceil(capacity));
    assert_eq!(list.load((1000..2000).map(|key| (key, key)), 100).unwrap(), 1000);
    list.check(|_| {}).unwrap();
    assert!(list.iter().map(|entry| entry.unwrap().0).eq(0..2000));
    assert!(list.iter().rev().map(|entry| entry.unwrap().0).eq((0..2000).rev()));
    let error = list.load([(1500, 1)], 100).unwrap_err();
    assert!(error.to_string().contains("1500"), "{error}");
    assert!(list.load([(3000, 1), (3000, 2)], 100).is_err());
    assert_eq!(list.get(3000).unwrap(), Some(1));
    assert!(list.load([(4000, 1)], 9).is_err());
    let pairs: HybridPairSkipList<u64> = {
        let mut with = pool.publication();
        let root = HybridPairSkipList::<u64>::create(&pool, &mut with).unwrap();
        with.publish().unwrap();
        HybridPairSkipList::open(&pool, root).unwrap()
    };
    pairs.load((0..5000).map(|key| (key, key)), 100).unwrap();
    let stats = pairs.stats().unwrap();
    assert_eq!((stats.keys, stats.nodes), (5000, 5000));
    // A third of a pointer a node, roughly.
    assert!((1300..2100).contains(&stats.tower_links), "{stats:?}");
}

#[test]
fn a_publication_that_is_too_full_is_refused() {
    let pool = map_tests::small_pool();
    let list: PairSkipList<u64> = map_tests::new_map(&pool).unwrap();
    let object = pool.reserve(4096).unwrap();
    let with = |words: usize| {
        let mut with = pool.publication();
        (0..words as u64).for_each(|word| with.set(object.offset().plus(word * 8), word));
        with
    };
    assert!(matches!(list.insert(1, 1, with(CARRIED_WORDS_MAX + 1)), Err(Error::Invalid(_))));
    for key in 0..100 {
        assert_eq!(list.insert(key, 1, with(CARRIED_WORDS_MAX)).unwrap(), Inserted::New);
    }
    assert_eq!(list.remove(50, with(CARRIED_WORDS_MAX)).unwrap(), Some(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_keys_are_kept_in_order(keys in prop::collection::vec(any::<u64>(), 1..300), from: u64, to: u64) {
        let pool = map_tests::small_pool();
        let list: SmallHybridBuckets<u64> = map_tests::new_map(&pool).unwrap();
        let mut model = BTreeMap::new();
        for (value, key) in (0..).zip(&keys) {
            list.insert(*key, value, pool.publication()).unwrap();
            model.entry(*key).or_insert(value);
        }
        let (from, to) = (from.min(to), from.max(to));
        let found: Vec<_> = list.range(from..=to).map(Result::unwrap).collect();
        let expected: Vec<_> = model.range(from..=to).map(|(key, value)| (*key, *value)).collect();
        prop_assert_eq!(found, expected);
        for key in [0, u64::MAX] {
            list.insert(key, 7, pool.publication()).unwrap();
            prop_assert!(list.get(key).unwrap().is_some());
        }
        list.check(|_| {}).unwrap();
    }
}

/// Among them bugs of FAST and FAIR and of Level Hashing: nodes that are linked before they are flushed,
/// removals that are not flushed, a bound that comes after its entry.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_lists_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::crash::CrashOptions;
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let run = || {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() };
        map_tests::crashes::<PairSkipList<u64>>(100, 40, &options)?;
        map_tests::crashes::<SmallBuckets<u64>>(100, 40, &options)?;
        map_tests::crashes::<HybridPairSkipList<u64>>(100, 40, &options)?;
        map_tests::crashes::<SmallHybridBuckets<u64>>(100, 40, &options)
    };
    run().unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::List, run) >= 7);
}
