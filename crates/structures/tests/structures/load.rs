//! Trees that are built behind their last key, and take the place of an empty one.

use entresol_memory::{Env, Pool, PoolOffset, PoolOptions};
use entresol_structures::{IndexStructure, KeyWidth, OrderedIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

type Content = BTreeMap<Vec<u8>, u64>;

fn pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

fn create(pool: &Arc<Pool>, width: KeyWidth) -> (PoolOffset, OrderedIndex) {
    let mut with = pool.publication();
    let root = OrderedIndex::create(pool, width, &mut with).unwrap();
    with.publish().unwrap();
    (root, OrderedIndex::open(pool, root).unwrap())
}

fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [number.to_be_bytes(), [7; 8]].concat(),
        KeyWidth::Variable => format!("key {number:09} of a row").into_bytes(),
    }
}

fn append(pool: &Arc<Pool>, index: &OrderedIndex, keys: &[Vec<u8>], model: &mut Content) {
    let mut objects: Vec<_> = keys.iter().map(|_| Some(pool.reserve(64).unwrap())).collect();
    index
        .append_sorted(keys, |at, with| {
            let object = with.allocate(objects[at].take().unwrap()).to_word();
            assert_eq!(model.insert(keys[at].clone(), object), None, "each key is asked for once");
            object
        })
        .unwrap();
}

fn content(index: &OrderedIndex) -> Content {
    let (mut entries, mut from) = (Vec::new(), Bound::Unbounded);
    while let Some(next) =
        index.scan_batch(from.as_ref().map(|key: &Vec<u8>| &key[..]), &mut entries).unwrap()
    {
        from = Bound::Included(next.to_vec());
    }
    entries.into_iter().map(|(key, value)| (key.to_vec(), value)).collect()
}

/// Verifies that the trees are sound, and own all allocated objects with their values.
fn sound(pool: &Arc<Pool>, trees: &[&OrderedIndex]) {
    let mut own = BTreeSet::new();
    for index in trees {
        index.check(|object| assert!(own.insert(object), "twice")).unwrap();
        content(index)
            .into_values()
            .for_each(|object| assert!(own.insert(PoolOffset::from_word(object)), "twice"));
    }
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(own, allocated);
}

#[test]
fn a_built_tree_takes_the_place_of_an_empty_one() {
    for width in [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable] {
        for rows in [1, 40, 49, 50, 3000, 70_000] {
            let pool = pool();
            let ((_, index), (beside_root, beside)) = (create(&pool, width), create(&pool, width));
            let mut model = Content::new();
            let keys: Vec<Vec<u8>> = (0..rows).map(|number| key(width, 3 * number)).collect();
            let mut rest = &keys[..];
            for part in [1, 2, 700, 5, 100_000] {
                let (now, later) = rest.split_at(part.min(rest.len()));
                append(&pool, &beside, now, &mut model);
                rest = later;
            }
            assert_eq!(content(&beside), model, "{width:?}, {rows} rows");
            assert!(index.has_no_keys().unwrap() && !beside.has_no_keys().unwrap());
            let mut with = pool.publication();
            let taken = index.take_content(&beside, &mut with).unwrap();
            with.publish().unwrap();
            index.use_content(taken);
            drop(beside);
            assert_eq!(content(&index), model, "{width:?}, {rows} rows");
            let beside = OrderedIndex::open(&pool, beside_root).unwrap();
            assert!(beside.has_no_keys().unwrap() && !index.has_no_keys().unwrap());
            sound(&pool, &[&index, &beside]);
            index.open_more(usize::MAX).unwrap();
            assert_eq!(index.segments_left(), 0);
        }
    }
}

#[test]
fn a_tree_that_took_a_content_is_written_as_any_other() {
    for (seed, width) in (1..).zip([KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable]) {
        let (pool, random) = (pool(), Env::simulated(seed));
        let ((root, index), (beside_root, beside)) = (create(&pool, width), create(&pool, width));
        let mut model = Content::new();
        let keys: Vec<Vec<u8>> = (0..4000).map(|number| key(width, 3 * number)).collect();
        append(&pool, &beside, &keys, &mut model);
        let mut with = pool.publication();
        let taken = index.take_content(&beside, &mut with).unwrap();
        with.publish().unwrap();
        index.use_content(taken);
        drop(beside);
        for _ in 0..20_000 {
            let key = key(width, random.random_u64() % 14_000);
            let mut with = pool.publication();
            if let Some(object) = model.remove(&key) {
                with.free(PoolOffset::from_word(object));
                assert_eq!(index.remove(&key, with).unwrap(), Some(object));
            } else {
                let object = with.allocate(pool.reserve(64).unwrap()).to_word();
                index.insert(&key, object, with).unwrap();
                model.insert(key, object);
            }
        }
        assert_eq!(content(&index), model);
        let beside = OrderedIndex::open(&pool, beside_root).unwrap();
        sound(&pool, &[&index, &beside]);
        drop(index);
        assert_eq!(content(&OrderedIndex::open(&pool, root).unwrap()), model);
    }
}

#[test]
fn a_tree_with_a_key_has_keys_until_it_is_removed() {
    let pool = pool();
    let (_, index) = create(&pool, KeyWidth::Eight);
    for round in 0..3_u64 {
        let keys = 1 + 400 * round;
        for number in 0..keys {
            index.insert(&key(KeyWidth::Eight, number), 64, pool.publication()).unwrap();
        }
        for number in 0..keys {
            assert!(!index.has_no_keys().unwrap());
            index.remove(&key(KeyWidth::Eight, number), pool.publication()).unwrap();
        }
        assert!(index.has_no_keys().unwrap());
    }
    let mut with = pool.publication();
    let root = OrderedIndex::create_as(&pool, IndexStructure::ALL[1], KeyWidth::Eight, &mut with).unwrap();
    with.publish().unwrap();
    let other = OrderedIndex::open(&pool, root).unwrap();
    assert!(!other.takes_content() && !other.has_no_keys().unwrap());
    let mut with = pool.publication();
    assert!(index.take_content(&other, &mut with).is_err());
}
