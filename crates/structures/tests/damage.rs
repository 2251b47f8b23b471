//! Damaged trees are found when they are opened, and never written to.

#![allow(clippy::unwrap_used)]

use entresol_memory::{Pool, PoolOptions};
use entresol_structures::{Error, KeyWidth, OrderedIndex};
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
