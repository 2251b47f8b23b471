//! Any operation history against a `BTreeMap`, for all key widths, with reopening.

use entresol_memory::{DomainChoice, JournalOptions, Pool, PoolOptions};
use entresol_structures::{IndexStructure, Inserted, KeyBytes, KeyWidth, OrderedIndex};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 256 << 10,
            journal_bytes_max: 1 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

fn create(pool: &Arc<Pool>, width: KeyWidth) -> OrderedIndex {
    create_as(pool, IndexStructure::FpTree, width)
}

fn create_as(pool: &Arc<Pool>, structure: IndexStructure, width: KeyWidth) -> OrderedIndex {
    let mut publication = pool.publication();
    let root = OrderedIndex::create_as(pool, structure, width, &mut publication).unwrap();
    publication.set_root("index", root).unwrap();
    publication.publish().unwrap();
    OrderedIndex::open(pool, root).unwrap()
}

fn reopen(pool: &Arc<Pool>) -> OrderedIndex {
    OrderedIndex::open(pool, pool.root("index").unwrap()).unwrap()
}

/// A key by number; numbers that are near have long common prefixes.
fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [(number / 100).to_be_bytes(), (number % 100).to_be_bytes()].concat(),
        KeyWidth::Variable => {
            let mut text = format!("meter/{:04}/", number / 10).into_bytes();
            text.extend(std::iter::repeat_n(b'x', (number % 10) as usize * 3));
            text
        }
    }
}

fn whole(index: &OrderedIndex) -> Vec<(KeyBytes, u64)> {
    let mut entries = Vec::new();
    let mut from: Bound<KeyBytes> = Bound::Unbounded;
    loop {
        let bound = match &from {
            Bound::Included(key) => Bound::Included(key.as_slice()),
            _ => Bound::Unbounded,
        };
        match index.scan_batch(bound, &mut entries).unwrap() {
            Some(next) => from = Bound::Included(next),
            None => return entries,
        }
    }
}

/// All entries in descending order, by batches of any size.
fn backwards(index: &OrderedIndex) -> Vec<(KeyBytes, u64)> {
    let mut entries = Vec::new();
    let mut before: Bound<KeyBytes> = Bound::Unbounded;
    for enough in (1..).step_by(17) {
        let bound = before.as_ref().map(|key| &key[..]);
        match index.scan_back(bound, enough, &mut entries).unwrap() {
            Some(next) => before = Bound::Excluded(next),
            None => break,
        }
    }
    entries
}

fn assert_same(index: &OrderedIndex, model: &BTreeMap<Vec<u8>, u64>) {
    let entries = whole(index);
    let mut at_once = Vec::new();
    assert_eq!(index.scan(Bound::Unbounded, usize::MAX, &mut at_once).unwrap(), None);
    assert_eq!(at_once, entries);
    let expected: Vec<_> = model.iter().map(|(k, v)| (KeyBytes::from_slice(k), *v)).collect();
    assert_eq!(entries, expected);
    assert_eq!(backwards(index), expected.into_iter().rev().collect::<Vec<_>>());
    let cuts = index.split_points(8);
    assert!(cuts.is_sorted_by(|cut, next| cut < next), "{cuts:?}");
    assert_eq!(index.last_key().unwrap().as_deref(), model.last_key_value().map(|(k, _)| k.as_slice()));
    index.check(|_| {}).unwrap();
    assert_eq!(index.stats().keys, model.len() as u64);
    let leaves = index.stats().leaves;
    assert!((1..=leaves * 64).contains(&index.estimated_keys().max(1)), "{leaves} leaves");
    let whole = index.estimated_keys_between(Bound::Unbounded, Bound::Unbounded);
    assert_eq!(whole, index.estimated_keys());
    let half: Vec<&[u8]> = cuts.iter().take(cuts.len() / 2 + 1).map(|cut| &cut[..]).collect();
    let parts = half.iter().map(|cut| index.estimated_keys_between(Bound::Unbounded, Bound::Excluded(cut)));
    assert!(parts.clone().is_sorted() && parts.max() <= Some(whole), "{cuts:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u64),
    Replace(u64, u64),
    Remove(u64),
    RemoveRange(u64, u64),
    Get(u64),
    ScanFrom(u64, bool),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..600u64;
    let step = prop_oneof![
        30 => (number.clone(), any::<u64>()).prop_map(|(k, v)| Step::Insert(k, v)),
        5 => (number.clone(), any::<u64>()).prop_map(|(k, v)| Step::Replace(k, v)),
        8 => number.clone().prop_map(Step::Remove),
        2 => (number.clone(), 1..200u64).prop_map(|(k, n)| Step::RemoveRange(k, n)),
        5 => number.clone().prop_map(Step::Get),
        3 => (number, any::<bool>()).prop_map(|(k, inclusive)| Step::ScanFrom(k, inclusive)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..600)
}

fn run(structure: IndexStructure, width: KeyWidth, steps: &[Step]) {
    let dir = tempfile::TempDir::new().unwrap();
    let mut pool = Pool::create(dir.path(), &options()).unwrap();
    let mut index = create_as(&pool, structure, width);
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Insert(number, value) => {
                let key = key(width, number);
                let inserted = index.insert(&key, value, pool.publication()).unwrap();
                let expected = model.get(&key).map_or(Inserted::New, |old| Inserted::Exists(*old));
                assert_eq!(inserted, expected);
                model.entry(key).or_insert(value);
            }
            Step::Replace(number, value) => {
                let key = key(width, number);
                let old = index.replace(&key, value, pool.publication()).unwrap();
                assert_eq!(old, model.get(&key).copied());
                if old.is_some() {
                    model.insert(key, value);
                }
            }
            Step::Remove(number) => {
                let key = key(width, number);
                assert_eq!(index.remove(&key, pool.publication()).unwrap(), model.remove(&key));
            }
            Step::RemoveRange(first, count) => {
                for number in first..first + count {
                    let key = key(width, number);
                    assert_eq!(index.remove(&key, pool.publication()).unwrap(), model.remove(&key));
                }
            }
            Step::Get(number) => {
                let key = key(width, number);
                assert_eq!(index.get(&key).unwrap(), model.get(&key).copied());
            }
            Step::ScanFrom(number, inclusive) => {
                let key = key(width, number);
                let bound = if inclusive { Bound::Included(&key[..]) } else { Bound::Excluded(&key[..]) };
                let mut entries = Vec::new();
                index.scan_batch(bound, &mut entries).unwrap();
                let mut back = Vec::new();
                index.scan_back(bound, 1, &mut back).unwrap();
                let before = model.range::<[u8], _>((Bound::Unbounded, bound)).rev();
                assert_eq!(back.is_empty(), before.clone().next().is_none());
                for (entry, (key, value)) in back.iter().zip(before) {
                    assert_eq!((entry.0.as_slice(), entry.1), (key.as_slice(), *value));
                }
                let expected = model.range::<[u8], _>((bound, Bound::Unbounded));
                for (entry, (key, value)) in entries.iter().zip(expected.clone()) {
                    assert_eq!((entry.0.as_slice(), entry.1), (key.as_slice(), *value));
                }
                assert_eq!(entries.is_empty(), expected.clone().count() == 0);
                let mut several = Vec::new();
                let enough = number as usize % 150;
                let next = index.scan(bound, enough, &mut several).unwrap();
                for (entry, (key, value)) in several.iter().zip(expected.clone()) {
                    assert_eq!((entry.0.as_slice(), entry.1), (key.as_slice(), *value));
                }
                match next {
                    // The continuation key may have been removed meanwhile.
                    Some(next) => {
                        assert!(several.len() >= enough);
                        assert!(several.last().is_none_or(|(last, _)| *last < next));
                        let rest = expected.clone().nth(several.len());
                        assert!(rest.is_none_or(|(key, _)| key.as_slice() >= &next[..]));
                    }
                    None => assert_eq!(several.len(), expected.count()),
                }
            }
            Step::Reopen => {
                drop(index);
                drop(pool);
                pool = Pool::open(dir.path(), &options()).unwrap();
                index = reopen(&pool);
            }
        }
    }
    assert_same(&index, &model);
    // Nothing leaks: the tree's own objects are all allocated ones.
    let mut own = std::collections::BTreeSet::new();
    index.check(|offset| assert!(own.insert(offset), "an object has one owner")).unwrap();
    let mut allocated = std::collections::BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(allocated, own);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn eight_byte_keys_behave_like_a_map(steps in steps()) {
        run(IndexStructure::FpTree, KeyWidth::Eight, &steps);
    }

    #[test]
    fn sixteen_byte_keys_behave_like_a_map(steps in steps()) {
        run(IndexStructure::FpTree, KeyWidth::Sixteen, &steps);
    }

    #[test]
    fn keys_of_any_length_behave_like_a_map(steps in steps()) {
        run(IndexStructure::FpTree, KeyWidth::Variable, &steps);
    }

    #[test]
    fn every_structure_behaves_like_a_map(
        steps in steps(),
        structure in prop::sample::select(&IndexStructure::ALL[1..]),
        is_wide: bool,
    ) {
        let width = if is_wide { KeyWidth::Sixteen } else { KeyWidth::Eight };
        run(structure, if structure.supports(width) { width } else { KeyWidth::Eight }, &steps);
    }
}

#[test]
fn a_large_tree_holds_its_keys_through_growth_lookup_and_release() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let index = create(&pool, KeyWidth::Eight);
    let keys: Vec<u64> = (0..200_000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    for (value, key) in keys.iter().enumerate() {
        index.insert(&key.to_be_bytes(), value as u64, pool.publication()).unwrap();
    }
    let stats = index.stats();
    assert_eq!(stats.keys, 200_000);
    assert!(stats.levels >= 3, "{stats:?}");
    let mut values = Vec::new();
    let wanted: Vec<[u8; 8]> = keys.iter().flat_map(|key| [*key, *key ^ 1]).map(u64::to_be_bytes).collect();
    index.get_many(&wanted, &mut values).unwrap();
    for (number, pair) in values.chunks(2).enumerate() {
        assert_eq!(pair[0], Some(number as u64));
        assert_eq!(pair[1], index.get(&(keys[number] ^ 1).to_be_bytes()).unwrap());
    }
    index.check(|_| {}).unwrap();
    let rebuilt = reopen(&pool);
    rebuilt.check(|_| {}).unwrap();
    for key in &keys {
        assert!(rebuilt.remove(&key.to_be_bytes(), pool.publication()).unwrap().is_some());
    }
    let stats = rebuilt.stats();
    assert_eq!((stats.keys, stats.leaves, stats.levels), (0, 1, 0), "all leaves but the first are released");
    rebuilt.check(|_| {}).unwrap();
}

#[test]
fn a_destroyed_index_gives_everything_back_in_steps() {
    let widths = [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable];
    let all = IndexStructure::ALL.into_iter().flat_map(|of| widths.map(|width| (of, width)));
    for (structure, width) in all.filter(|(structure, width)| structure.supports(*width)) {
        let pool = Pool::volatile(&options_volatile()).unwrap();
        let index = create_as(&pool, structure, width);
        assert_eq!(index.structure(), structure);
        for number in 0..3000 {
            let object = pool.reserve(100).unwrap();
            let mut with = pool.publication();
            let value = with.allocate(object);
            assert_eq!(index.insert(&key(width, number), value.to_word(), with).unwrap(), Inserted::New);
        }
        drop(index);
        let root = pool.root("index").unwrap();
        let mut steps = 0;
        while !OrderedIndex::destroy_step(&pool, root, true, 10).unwrap() {
            steps += 1;
        }
        assert!(steps > 3, "{structure} {width:?}: {steps}");
        assert!(OrderedIndex::is_in_destruction(&pool, root).unwrap());
        let mut left = Vec::new();
        pool.for_each_object(|offset, _| left.push(offset));
        assert_eq!(left, [root]);
    }
}

fn options_volatile() -> PoolOptions {
    PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }
}

#[test]
fn keys_that_do_not_fit_are_refused_and_never_found() {
    let pool = Pool::volatile(&options_volatile()).unwrap();
    let index = create(&pool, KeyWidth::Eight);
    let error = index.insert(&[1; 9], 1, pool.publication()).unwrap_err();
    assert!(error.to_string().contains("9 bytes"), "{error}");
    assert_eq!(index.get(&[1; 9]).unwrap(), None);
    let mut values = Vec::new();
    index.get_many(&[vec![1u8; 9], vec![1u8; 8]], &mut values).unwrap();
    assert_eq!(values, [None, None]);
}
