//! Tries in the common tests of maps, and the mutants that the crash checker must find.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::{Error, Result};
use crate::key::KEY_BYTES_MAX;
use crate::map_tests::{self, NUMBERS_END, NumberMap};
use crate::{Inserted, KeyBytes};
use entresol_memory::crash::CrashOptions;
use entresol_memory::{Pool, PoolOffset, Publication};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Numbers as strings of several lengths, some of which begin others, in the order of the numbers.
fn text(number: u64) -> Vec<u8> {
    if number == NUMBERS_END {
        return vec![0xFF; 4];
    }
    let mut text = vec![b'k', (number / 65_536) as u8, (number / 256) as u8];
    match number % 256 % 3 {
        // A key, the same and a byte more, the same and many more.
        0 => text.push(number as u8),
        1 => text.extend([number as u8 - 1, 0]),
        _ => {
            text.extend([number as u8 - 2, 1]);
            text.extend(b"and some more of it, which no other key has".iter().take(number as usize % 40));
        }
    }
    text
}

fn number(text: &[u8]) -> u64 {
    let high = u64::from(text[1]) * 65_536 + u64::from(text[2]) * 256 + u64::from(text[3]);
    high + match text.get(4) {
        None => 0,
        Some(0) => 1,
        Some(_) => 2,
    }
}

macro_rules! number_map {
    ($trie:ident) => {
        impl NumberMap for $trie {
            fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
                $trie::create(pool, with)
            }
            fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self> {
                $trie::open(pool, root)
            }
            fn destroy(pool: &Arc<Pool>, root: PoolOffset) -> Result<()> {
                $trie::destroy(pool, root)
            }
            fn get(&self, key: u64) -> Result<Option<u64>> {
                self.get(&text(key))
            }
            fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
                self.insert(&text(key), value, with)
            }
            fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
                self.update(&text(key), value, with)
            }
            fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
                self.remove(&text(key), with)
            }
            fn range(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
                let (from, to) = (text(from), text(to));
                let range = self.range(Bound::Included(&from), Bound::Included(&to));
                range.map(|entry| entry.map(|(key, value)| (number(&key), value))).collect()
            }
            fn range_back(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
                let mut entries = NumberMap::range(self, from, to)?;
                entries.reverse();
                Ok(entries)
            }
            fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
                self.check(object)
            }
            fn keys(&self) -> Result<u64> {
                self.stats().map(|stats| stats.keys)
            }
        }
    };
}

number_map!(Trie);
number_map!(Patricia);

#[test]
fn both_agree_with_a_model() {
    assert!((0..100_000).all(|i| number(&text(i)) == i && (i == 0 || text(i - 1) < text(i))));
    map_tests::agrees_with_a_model::<Patricia>(8000, 1500, 1);
    map_tests::agrees_with_a_model::<Trie>(8000, 1500, 2);
}

#[test]
fn patricia_survives_crashes() {
    map_tests::survives_crashes::<Patricia>(1, 440, 80, 10_000);
}

#[test]
fn the_trie_survives_crashes() {
    map_tests::survives_crashes::<Trie>(1, 240, 50, 10_000);
}

#[test]
fn two_writers_survive_crashes() {
    map_tests::two_writers_survive_crashes::<Patricia>(3, 60, 3000);
    map_tests::two_writers_survive_crashes::<Trie>(2, 50, 3000);
}

#[test]
fn destroying_survives_crashes() {
    map_tests::survives_being_destroyed::<Patricia>(30, 500);
    map_tests::survives_being_destroyed::<Trie>(12, 500);
}

#[test]
fn threads_agree_and_fight() {
    map_tests::threads_agree::<Patricia>(8000, 900);
    map_tests::threads_agree::<Trie>(5000, 900);
    map_tests::threads_fight::<Patricia>(8000, 20);
    map_tests::threads_fight::<Trie>(5000, 20);
}

#[test]
fn damage_is_an_error() {
    map_tests::a_wrong_header_is_refused::<Patricia>(5);
    map_tests::a_wrong_header_is_refused::<Trie>(5);
    let found = map_tests::flipped_bits_are_no_panic::<Patricia>(1500, 200);
    assert!(found > 25, "{found}%");
    let found = map_tests::flipped_bits_are_no_panic::<Trie>(1000, 100);
    assert!(found > 30, "{found}%");
}

#[test]
fn full_pools_journals_and_carried_changes() {
    map_tests::a_full_pool_changes_nothing::<Patricia>();
    map_tests::carries_the_changes_of_the_caller::<Patricia>();
    map_tests::carries_the_changes_of_the_caller::<Trie>();
    map_tests::the_journal_brings_it_back::<Patricia>();
    map_tests::the_journal_brings_it_back::<Trie>();
}

#[test]
fn a_trie_is_not_opened_as_another_kind() {
    let pool = map_tests::small_pool();
    let trie: Trie = map_tests::new_map(&pool).unwrap();
    let error = Patricia::open(&pool, trie.root_offset()).err().unwrap();
    assert!(error.to_string().contains("of another kind"), "{error}");
}

/// Keys longer than a publication's worth of nodes.
#[test]
fn long_keys_are_added_and_removed_completely() {
    let pool = map_tests::small_pool();
    let trie: Trie = map_tests::new_map(&pool).unwrap();
    let patricia = {
        let mut with = pool.publication();
        let root = Patricia::create(&pool, &mut with).unwrap();
        with.publish().unwrap();
        Patricia::open(&pool, root).unwrap()
    };
    let longest = vec![7; KEY_BYTES_MAX];
    let too_long = vec![7; KEY_BYTES_MAX + 1];
    assert!(matches!(trie.insert(&too_long, 1, pool.publication()), Err(Error::KeyTooLong { .. })));
    assert!(matches!(patricia.get(&too_long), Err(Error::KeyTooLong { .. })));
    for (value, bytes) in [(1, KEY_BYTES_MAX), (2, 1000), (3, 0), (4, KEY_BYTES_MAX - 1)] {
        assert_eq!(trie.insert(&longest[..bytes], value, pool.publication()).unwrap(), Inserted::New);
        assert_eq!(patricia.insert(&longest[..bytes], value, pool.publication()).unwrap(), Inserted::New);
    }
    let values = |range: Vec<(KeyBytes, u64)>| range.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(values(trie.prefix(&[]).map(Result::unwrap).collect()), [3, 2, 4, 1]);
    assert_eq!(values(patricia.prefix(&[7]).map(Result::unwrap).collect()), [2, 4, 1]);
    trie.check(|_| {}).unwrap();
    for bytes in [KEY_BYTES_MAX, KEY_BYTES_MAX - 1, 0, 1000] {
        assert!(trie.remove(&longest[..bytes], pool.publication()).unwrap().is_some());
    }
    let stats = trie.stats().unwrap();
    assert_eq!((stats.keys, stats.nodes, stats.dead_ends), (0, 1, 0), "the root is left");
}

/// A crash in a long key leaves at most a dead end, and the next removal frees it.
#[test]
fn a_crash_in_a_long_key_leaves_a_harmless_rest() {
    let options = CrashOptions { random_states: 2, crash_recovery_every: 0, ..CrashOptions::default() };
    let long = vec![0xA5; 60];
    let known = long.clone();
    let history = move |pool: &Arc<Pool>| {
        let trie: Trie = map_tests::new_map(pool).unwrap();
        trie.insert(&long[..2], 1, pool.publication()).unwrap();
        trie.insert(&long, 2, pool.publication()).unwrap();
        assert_eq!(trie.remove(&long, pool.publication()).unwrap(), Some(2));
        Ok(())
    };
    let report = entresol_memory::crash::check(&options, history, move |pool| {
        let Some(root) = pool.root("map") else { return Ok(()) };
        let trie = Trie::open(pool, root).map_err(|error| error.to_string())?;
        trie.check(|_| {}).map_err(|error| error.to_string())?;
        trie.insert(&known, 3, pool.publication()).map_err(|error| error.to_string())?;
        trie.remove(&known, pool.publication()).map_err(|error| error.to_string())?;
        let stats = trie.stats().unwrap();
        if stats.dead_ends > 0 || stats.nodes > 5 { Err(format!("{stats:?}")) } else { Ok(()) }
    });
    assert!(report.unwrap().explored(100));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn any_keys_are_kept_in_order(
        keys in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7F, 0x80, 0xFE, 0xFF]), 0..6), 1..80),
        from in prop::collection::vec(any::<u8>(), 0..3),
        prefix in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xFF]), 0..3),
        removed in 0usize..80,
    ) {
        let pool = map_tests::small_pool();
        let trie: Trie = map_tests::new_map(&pool).unwrap();
        let patricia = {
            let mut with = pool.publication();
            let root = Patricia::create(&pool, &mut with).unwrap();
            with.publish().unwrap();
            Patricia::open(&pool, root).unwrap()
        };
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (value, key) in (0..).zip(&keys) {
            let expected = model.get(key).map_or(Inserted::New, |value| Inserted::Exists(*value));
            prop_assert_eq!(trie.insert(key, value, pool.publication()).unwrap(), expected);
            prop_assert_eq!(patricia.insert(key, value, pool.publication()).unwrap(), expected);
            model.entry(key.clone()).or_insert(value);
        }
        for key in keys.iter().take(removed) {
            let expected = model.remove(key);
            prop_assert_eq!(trie.remove(key, pool.publication()).unwrap(), expected);
            prop_assert_eq!(patricia.remove(key, pool.publication()).unwrap(), expected);
        }
        let plain = |entry: Result<(KeyBytes, u64)>| entry.map(|(key, value)| (key.to_vec(), value)).unwrap();
        let ranges = [(Bound::Included(&from[..]), Bound::Unbounded), (Bound::Excluded(&from[..]), Bound::Excluded(&[0xFE][..]))];
        for (low, high) in ranges {
            let expected: Vec<_> = model
                .iter()
                .filter(|(key, _)| std::ops::RangeBounds::<[u8]>::contains(&(low, high), &key[..]))
                .map(|(key, value)| (key.clone(), *value))
                .collect();
            prop_assert_eq!(trie.range(low, high).map(plain).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(patricia.range(low, high).map(plain).collect::<Vec<_>>(), expected);
        }
        let expected: Vec<_> =
            model.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(k, v)| (k.clone(), *v)).collect();
        prop_assert_eq!(trie.prefix(&prefix).map(plain).collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(patricia.prefix(&prefix).map(plain).collect::<Vec<_>>(), expected);
        trie.check(|_| {}).unwrap();
        patricia.check(|_| {}).unwrap();
    }
}

/// Among them bugs of WOART, P-ART, Level Hashing and FAST and FAIR: nodes that are reachable before they are
/// flushed, a flag before its value, a pointer before its nodes, a removal that is not flushed.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_tries_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() };
    let plain = || map_tests::crashes::<Trie>(80, 12, &options);
    let patricia = || map_tests::crashes::<Patricia>(80, 12, &options);
    plain().and_then(|_| patricia()).unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::Trie, || plain().and_then(|_| patricia())) >= 5);
}
