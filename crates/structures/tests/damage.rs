//! Damaged trees are found when they are opened, and never written to.

#![allow(clippy::unwrap_used)]

use entresol_memory::{Pool, PoolOptions};
use entresol_structures::{Error, KeyWidth, OrderedIndex};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a leaf has the offset of the next one.
const NEXT_LEAF: u64 = 64;

/// A tree of so many keys; its root offset and that of its first leaf.
fn tree(keys: u64) -> (Arc<Pool>, u64, u64) {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication).unwrap();
    publication.set_root("index", root).unwrap();
    publication.publish().unwrap();
    let index = OrderedIndex::open(&pool, root).unwrap();
    for key in 0..keys {
        index.insert(&key.to_be_bytes(), key, pool.publication()).unwrap();
    }
    let first = pool.word(root + 8).load(Ordering::Relaxed);
    (pool, root, first)
}

fn assert_corrupt(pool: &Arc<Pool>, root: u64) {
    assert!(matches!(OrderedIndex::open(pool, root), Err(Error::Corrupt { .. })));
}

#[test]
fn wild_references_are_found() {
    for wild in [1 << 40, 3, u64::MAX - 63] {
        let (pool, root, first) = tree(200);
        pool.word(first + NEXT_LEAF).store(wild, Ordering::Relaxed);
        assert_corrupt(&pool, root);
        let (pool, root, _) = tree(200);
        pool.word(root + 8).store(wild, Ordering::Relaxed);
        assert_corrupt(&pool, root);
        assert_corrupt(&pool, wild);
    }
    let (pool, root, _) = tree(200);
    pool.word(root + 8).store(0, Ordering::Relaxed);
    assert_corrupt(&pool, root);
}

#[test]
fn a_ring_of_leaves_and_a_stray_bit_are_found() {
    let (pool, root, first) = tree(200);
    pool.word(first + NEXT_LEAF).store(first, Ordering::Relaxed);
    assert_corrupt(&pool, root);
    let (pool, root, first) = tree(27);
    pool.word(first).fetch_or(1 << 60, Ordering::Relaxed);
    assert_corrupt(&pool, root);
}

/// Key `number`: the first eight bytes tell it from the others.
fn long_key(number: u64) -> Vec<u8> {
    [&(PREFIX + number).to_be_bytes()[..], b" and a tail"].concat()
}

const PREFIX: u64 = 0xABCD_EF01_0000_0000;

#[test]
fn a_wild_key_record_is_reported_and_matches_nothing() {
    const KEYS: u64 = 200;
    for (damaged, wild) in [(0, 1 << 40), (20, 3), (77, 0), (199, u64::MAX - 63), (120, 64)] {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let mut publication = pool.publication();
        let root = OrderedIndex::create(&pool, KeyWidth::Variable, &mut publication).unwrap();
        publication.publish().unwrap();
        let index = OrderedIndex::open(&pool, root).unwrap();
        for number in 0..KEYS {
            index.insert(&long_key(number), number, pool.publication()).unwrap();
        }
        index.check(|_| {}).unwrap();
        // Wherever it is stored: in its leaf, and as the low key of one.
        let words = (0..pool.bytes() / 8 - 1).map(|word| word * 8);
        let stored: Vec<u64> =
            words.filter(|at| pool.word(*at).load(Ordering::Relaxed) == PREFIX + damaged).collect();
        assert!(!stored.is_empty());
        stored.iter().for_each(|at| pool.word(at + 8).store(wild, Ordering::Relaxed));
        for index in [index, OrderedIndex::open(&pool, root).unwrap()] {
            for number in 0..KEYS {
                let expected = Some(number).filter(|number| *number != damaged);
                assert_eq!(index.get(&long_key(number)), expected);
            }
            assert_eq!(index.get(&(PREFIX + damaged).to_be_bytes()), None);
            let mut entries = Vec::new();
            let mut next = index.scan_batch(Bound::Unbounded, &mut entries);
            while let Some(from) = next {
                next = index.scan_batch(Bound::Included(&from), &mut entries);
            }
            let values: Vec<u64> = entries.iter().map(|(_, value)| *value).collect();
            assert_eq!(values, (0..KEYS).collect::<Vec<_>>());
            assert!(matches!(index.check(|_| {}), Err(Error::Corrupt { .. })));
            assert_eq!(index.remove(&long_key(damaged), pool.publication()).unwrap(), None);
        }
        // Others are inserted all around it; a split right there is an error, and changes nothing.
        let index = OrderedIndex::open(&pool, root).unwrap();
        for number in 0..2_000 {
            let key = [long_key(damaged), number.to_string().into_bytes()].concat();
            match index.insert(&key, number, pool.publication()) {
                Ok(_) => assert_eq!(index.get(&key), Some(number)),
                Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
            }
        }
        drop(index);
        while !OrderedIndex::destroy_step(&pool, root, false, 10).unwrap() {}
    }
}
