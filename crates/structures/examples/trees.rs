//! Compares the instances of the B+-tree with `BTreeMap`, the FPTree of this crate among them: M operations a
//! second on random 8-byte keys, and bytes per tuple.
//!
//! ```text
//! cargo run --release -p entresol-structures --example trees -- [KEYS] [DOMAIN] [TREES]
//! ```
//!
//! KEYS defaults to 1,000,000; DOMAIN is `journal` (durability `none`: nothing is synced), `dax` (cache-line
//! flushes and fences on an ordinary file in `/dev/shm`) or `volatile`; TREES are names, or parts of names,
//! with commas between. Every result is checked. Times are processor times of the measuring thread, so that a
//! busy machine disturbs them less; background threads are not included.

use crossbeam_epoch::Guard;
use entresol_memory::{DomainChoice, Env, Pool, PoolOptions};
use entresol_structures::btree::instances::*;
use entresol_structures::btree::{BTree, Placement};
use entresol_structures::node::Layout;
use entresol_structures::{FpTree, Scan, WordKey};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tuples of one scan.
const SCAN: usize = 100;
/// Keys of one call of `get_many`.
const BATCH: u64 = 512;

/// Operations of all maps.
trait Map {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()>;
    fn get(&self, key: u64) -> Outcome<Option<u64>>;
    /// Returns the values of keys, one by one if there is no better method.
    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<u64>>) -> Outcome<()>;
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>>;
    /// Returns the sum of the values of the tuples from a key on.
    fn scan(&self, from: u64) -> Outcome<u64>;
    /// Guard of a caller with many operations, as a commit or a query has: pinning for each is a full fence.
    fn pin(&self) -> Option<Guard>;
    /// Bytes of nodes.
    fn bytes(&self) -> Outcome<Option<u64>>;
}

impl Map for BTreeMap<u64, u64> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        BTreeMap::insert(self, key, value);
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::get(self, &key).copied())
    }
    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<u64>>) -> Outcome<()> {
        values.clear();
        values.extend(keys.iter().map(|key| BTreeMap::get(self, key).copied()));
        Ok(())
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::remove(self, &key))
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        Ok(self.range(from..).take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
    fn pin(&self) -> Option<Guard> {
        None
    }
    fn bytes(&self) -> Outcome<Option<u64>> {
        Ok(None)
    }
}

/// A tree and its pool.
struct Pooled<T>(Arc<Pool>, T);

impl<L: Layout, I: Layout, P: Placement> Map for Pooled<BTree<u64, L, I, P>> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        self.1.insert(key, value, self.0.publication())?;
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.get(key)?)
    }
    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<u64>>) -> Outcome<()> {
        Ok(self.1.get_many(keys, values)?)
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.remove(key, self.0.publication())?)
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        let mut entries = Vec::with_capacity(2 * SCAN);
        self.1.scan(from..=u64::MAX, SCAN, &mut entries)?;
        Ok(entries.iter().take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
    fn pin(&self) -> Option<Guard> {
        Some(self.0.pin())
    }
    fn bytes(&self) -> Outcome<Option<u64>> {
        let stats = self.1.stats()?;
        Ok(Some(stats.pool_bytes + stats.dram_bytes))
    }
}

impl Map for Pooled<FpTree<WordKey>> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        self.1.insert(key, value, self.0.publication())?;
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.get(key)?)
    }
    fn get_many(&self, keys: &[u64], values: &mut Vec<Option<u64>>) -> Outcome<()> {
        Ok(self.1.get_many(keys.iter().copied(), values)?)
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.remove(key, self.0.publication())?)
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        let (mut sum, mut left) = (0, SCAN);
        self.1.visit(std::ops::Bound::Included(from), SCAN, |_, value| {
            if left > 0 {
                (sum, left) = (sum ^ value, left - 1);
            }
        })?;
        Ok(sum)
    }
    fn pin(&self) -> Option<Guard> {
        Some(self.0.pin())
    }
    fn bytes(&self) -> Outcome<Option<u64>> {
        let stats = self.1.stats();
        Ok(Some(stats.leaves * entresol_structures::LEAF_BYTES as u64 + stats.inner_bytes as u64))
    }
}

/// A bijection of 64-bit words: the i-th random key.
fn key(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(first.parse()?)
}

/// Calls a function for a range of numbers, with a guard for each batch of them.
fn in_batches(
    map: &mut dyn Map,
    count: u64,
    mut work: impl FnMut(&mut dyn Map, u64) -> Outcome<()>,
) -> Outcome<()> {
    for first in (0..count).step_by(BATCH as usize) {
        let _guard = map.pin();
        (first..count.min(first + BATCH)).try_for_each(|i| work(map, i))?;
    }
    Ok(())
}

/// Measures M operations a second of this thread's processor time.
fn rate(operations: u64, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = processor_ns()?;
    work()?;
    Ok(operations as f64 * 1e3 / (processor_ns()? - start) as f64)
}

fn measure(name: &str, keys: u64, mut map: Box<dyn Map>, expected_sum: &mut Option<u64>) -> Outcome<()> {
    let order = Env::simulated(7);
    let insert = rate(keys, || in_batches(&mut *map, keys, |map, i| map.insert(key(i), i)))?;
    let bytes = map.bytes()?.map_or("-".to_string(), |bytes| format!("{:.1}", bytes as f64 / keys as f64));
    let get = rate(keys, || {
        in_batches(&mut *map, keys, |map, _| {
            let i = order.random_u64() % keys;
            if map.get(key(i))? == Some(i) { Ok(()) } else { Err(format!("key {i} is wrong").into()) }
        })
    })?;
    let mut values = Vec::new();
    let get_many = rate(keys, || {
        for _ in 0..keys.div_ceil(BATCH) {
            let numbers: Vec<u64> = (0..BATCH).map(|_| order.random_u64() % keys).collect();
            let wanted: Vec<u64> = numbers.iter().map(|i| key(*i)).collect();
            map.get_many(&wanted, &mut values)?;
            if !values.iter().copied().eq(numbers.into_iter().map(Some)) {
                return Err("a batch of keys is wrong".into());
            }
        }
        Ok(())
    })?;
    let scans = keys / 20;
    let mut sum = 0;
    let scan = rate(scans, || {
        for _ in 0..scans {
            sum ^= map.scan(key(order.random_u64() % keys))?;
        }
        Ok(())
    })?;
    if *expected_sum.get_or_insert(sum) != black_box(sum) {
        return Err(format!("{name}: the scans found other tuples").into());
    }
    let remove = rate(keys, || {
        in_batches(&mut *map, keys, |map, i| {
            // In another order than that of the inserts.
            let i = i * 7_368_787 % keys;
            if map.remove(key(i))? == Some(i) { Ok(()) } else { Err(format!("key {i} was gone").into()) }
        })
    })?;
    println!("{name:20} {insert:7.2} {get:7.2} {get_many:8.2} {scan:7.3} {remove:7.2} {bytes:>7}");
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let domain = match arguments.next().as_deref() {
        None | Some("journal") => DomainChoice::Journal,
        Some("dax") => DomainChoice::DaxEmulated,
        Some("volatile") => DomainChoice::Volatile,
        Some(other) => return Err(format!("there is no domain '{other}'").into()),
    };
    if keys == 0 || keys.is_multiple_of(7_368_787) {
        return Err("KEYS must be above 0 and no multiple of 7,368,787".into());
    }
    println!("{keys} random keys, {domain:?}; M/s, scans of {SCAN} tuples, bytes per tuple before removing");
    let named = arguments.next().unwrap_or_default();
    let is_named = |name: &str| named.split(',').any(|part| name.contains(part));
    println!(
        "{:20} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7}",
        "", "insert", "get", "get_many", "scan", "remove", "bytes"
    );
    let mut sum = None;
    measure("BTreeMap", keys, Box::new(BTreeMap::new()), &mut sum)?;
    macro_rules! measure_trees {
        ($($name:literal: $tree:ty, $create:expr, $open:expr;)*) => { $( if is_named($name) {
            let directory = match domain {
                DomainChoice::DaxEmulated => tempfile::tempdir_in("/dev/shm")?,
                _ => tempfile::tempdir()?,
            };
            let pool = pool(directory.path(), domain)?;
            let mut publication = pool.publication();
            let root = $create(&pool, &mut publication)?;
            publication.set_root("tree", root)?;
            publication.publish()?;
            let tree: $tree = $open(&pool, root)?;
            measure($name, keys, Box::new(Pooled(pool, tree)), &mut sum)?;
        } )* };
    }
    measure_trees! {
        "FpTree (tuned)": FpTree<WordKey>, |pool, with| FpTree::<WordKey>::create(pool, 1, with), |pool, root| FpTree::open(pool, root, 1);
        "FP-like": FpLikeTree<u64>, FpLikeTree::<u64>::create, FpLikeTree::open;
        "wB+": WbTree<u64>, WbTree::<u64>::create, WbTree::open;
        "hybrid wB+": HybridWbTree<u64>, HybridWbTree::<u64>::create, HybridWbTree::open;
        "PBP": PbpTree<u64>, PbpTree::<u64>::create, PbpTree::open;
        "hybrid PBP": HybridPbpTree<u64>, HybridPbpTree::<u64>::create, HybridPbpTree::open;
        "unsorted": UnsortedTree<u64, 512, 512>, UnsortedTree::<u64, 512, 512>::create, UnsortedTree::open;
        "hybrid unsorted": HybridUnsortedTree<u64>, HybridUnsortedTree::<u64>::create, HybridUnsortedTree::open;
        "bitmap": BitmapTree<u64, 512, 512>, BitmapTree::<u64, 512, 512>::create, BitmapTree::open;
        "hybrid bitmap": HybridBitmapTree<u64>, HybridBitmapTree::<u64>::create, HybridBitmapTree::open;
        "FAST and FAIR": FastFairTree<u64>, FastFairTree::<u64>::create, FastFairTree::open;
    }
    Ok(())
}

fn pool(directory: &std::path::Path, domain: DomainChoice) -> Outcome<Arc<Pool>> {
    let options = PoolOptions { domain, ..PoolOptions::default() };
    Ok(if domain == DomainChoice::Volatile {
        Pool::volatile(&options)?
    } else {
        Pool::create(directory, &options)?
    })
}
