//! Benefit of towers in DRAM and of buckets on a modelled device: lines that a lookup reads from it.

use entresol_memory::env::Env;
use entresol_memory::profile::Profile;
use entresol_memory::{Pool, PoolOptions};
use entresol_structures::skiplist::{BucketSkipList, HybridBucketSkipList, HybridPairSkipList, PairSkipList};

const KEYS: u64 = 20_000;

/// In no order.
fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

macro_rules! lines_and_ns {
    ($list:ty) => {{
        // A small cache, so that nearly every node comes from the device.
        let mut profile = Profile::embedded("optane-dcpmm").unwrap();
        profile.caches.truncate(1);
        // Heights of towers are random, the same in each run.
        let options = PoolOptions { env: Env::simulated(1), ..PoolOptions::default() };
        let pool = Pool::modelled(&options, &profile).unwrap();
        let mut publication = pool.publication();
        let root = <$list>::create(&pool, &mut publication).unwrap();
        publication.publish().unwrap();
        let list = <$list>::open(&pool, root).unwrap();
        for i in 0..KEYS {
            list.insert(key(i), i, pool.publication()).unwrap();
        }
        let before = pool.modelled_cost().unwrap();
        for i in 0..KEYS {
            let i = i * 7919 % KEYS;
            assert_eq!(list.get(key(i)).unwrap(), Some(i));
        }
        let cost = pool.modelled_cost().unwrap() - before;
        let (lines, ns) = (cost.lines_read as f64 / KEYS as f64, cost.ns() / KEYS as f64);
        println!("{}: {lines:.1} lines, {ns:.0} ns a lookup", <$list>::describe());
        (lines, ns)
    }};
}

#[test]
fn towers_in_dram_and_buckets_spare_the_device() {
    let pairs = lines_and_ns!(PairSkipList<u64>);
    let hybrid_pairs = lines_and_ns!(HybridPairSkipList<u64>);
    let buckets = lines_and_ns!(BucketSkipList<u64>);
    let hybrid_buckets = lines_and_ns!(HybridBucketSkipList<u64>);
    assert!(hybrid_pairs.0 < pairs.0 && hybrid_pairs.1 < pairs.1);
    assert!(hybrid_buckets.1 < buckets.1 && buckets.1 < pairs.1);
}
