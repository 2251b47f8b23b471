//! Skip-lists and tries beside `BTreeMap` and the tuned tree, in one run.
//!
//! ```text
//! cargo run --release -p entresol-structures --example lists -- [KEYS] [journal|dax|volatile]
//! ```
//!
//! Numbers in random order: inserted, looked up, scanned, removed. Then the same with strings. M operations a
//! second of this thread's time on a processor, and what the pool holds for a key.

use entresol_memory::{DomainChoice, Env, Pool, PoolOptions};
use entresol_structures::skiplist::{
    BucketSkipList, Content, HybridBucketSkipList, HybridPairSkipList, PairSkipList, SkipList, Towers,
};
use entresol_structures::trie::{Patricia, Trie, TrieScan};
use entresol_structures::{FpTree, KeyWidth, OrderedIndex, Scan as _, WordKey};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Entries of a scan.
const SCAN: usize = 100;

/// Operations to measure. Keys are numbers; maps of strings derive them from these.
trait Map {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()>;
    fn get(&self, key: u64) -> Outcome<Option<u64>>;
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>>;
    /// All values of a scan, as one word.
    fn scan(&self, from: u64) -> Outcome<u64>;
}

/// A string of 20 to 26 bytes that shares its beginning with others.
fn text(key: u64) -> Vec<u8> {
    format!("user/{:03}/{:x}", key >> 54, key.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

impl Map for BTreeMap<u64, u64> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        BTreeMap::insert(self, key, value);
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::get(self, &key).copied())
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::remove(self, &key))
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        Ok(self.range(from..).take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
}

impl Map for BTreeMap<Vec<u8>, u64> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        BTreeMap::insert(self, text(key), value);
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::get(self, &text(key)).copied())
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(BTreeMap::remove(self, &text(key)))
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        Ok(self.range(text(from)..).take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
}

/// A structure in a pool.
struct Pooled<T>(Arc<Pool>, T);

impl<C: Content, T: Towers> Map for Pooled<SkipList<u64, C, T>> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        self.1.insert(key, value, self.0.publication())?;
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.get(key)?)
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.remove(key, self.0.publication())?)
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        let mut entries = Vec::with_capacity(2 * SCAN);
        self.1.scan(from..=u64::MAX, SCAN, &mut entries)?;
        Ok(entries.iter().take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
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
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.remove(key, self.0.publication())?)
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        let mut entries = Vec::with_capacity(2 * SCAN);
        let mut next = self.1.scan_batch(Bound::Included(from), &mut entries)?;
        while let Some(from) = next.take().filter(|_| entries.len() < SCAN) {
            next = self.1.scan_batch(Bound::Included(number(&from)), &mut entries)?;
        }
        Ok(entries.iter().take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
}

/// The number of a key of eight bytes.
fn number(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Map for Pooled<OrderedIndex> {
    fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
        self.1.insert(&text(key), value, self.0.publication())?;
        Ok(())
    }
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.get(&text(key))?)
    }
    fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
        Ok(self.1.remove(&text(key), self.0.publication())?)
    }
    fn scan(&self, from: u64) -> Outcome<u64> {
        let (mut entries, from) = (Vec::with_capacity(2 * SCAN), text(from));
        let mut next = self.1.scan_batch(Bound::Included(&from), &mut entries)?;
        while let Some(from) = next.take().filter(|_| entries.len() < SCAN) {
            next = self.1.scan_batch(Bound::Included(&from), &mut entries)?;
        }
        Ok(entries.iter().take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
    }
}

macro_rules! trie_map {
    ($trie:ident) => {
        impl Map for Pooled<$trie> {
            fn insert(&mut self, key: u64, value: u64) -> Outcome<()> {
                self.1.insert(&text(key), value, self.0.publication())?;
                Ok(())
            }
            fn get(&self, key: u64) -> Outcome<Option<u64>> {
                Ok(self.1.get(&text(key))?)
            }
            fn remove(&mut self, key: u64) -> Outcome<Option<u64>> {
                Ok(self.1.remove(&text(key), self.0.publication())?)
            }
            fn scan(&self, from: u64) -> Outcome<u64> {
                let mut entries = Vec::with_capacity(2 * SCAN);
                self.1.scan(&text(from), Bound::Unbounded, SCAN, &mut entries)?;
                Ok(entries.iter().take(SCAN).fold(0, |sum, (_, value)| sum ^ value))
            }
        }
    };
}

trie_map!(Patricia);
trie_map!(Trie);

/// A bijection of 64-bit words: the i-th random key.
fn key(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Returns the seconds that this thread has run so far: on a busy machine steadier than wall-clock time.
fn on_processor_s() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: u64 = text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?;
    Ok(ns as f64 / 1e9)
}

/// Measures M operations a second of processor time.
fn rate(operations: u64, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = on_processor_s()?;
    work()?;
    Ok(operations as f64 / (on_processor_s()? - start) / 1e6)
}

/// Measures a map of `keys` keys; all maps of a table must return the same.
fn measure(
    name: &str,
    keys: u64,
    mut map: impl Map,
    pool: Option<&Pool>,
    expected: &mut Option<u64>,
) -> Outcome<()> {
    let order = Env::simulated(7);
    let insert = rate(keys, || (0..keys).try_for_each(|i| map.insert(key(i), i)))?;
    let bytes = pool
        .map_or("-".to_string(), |pool| format!("{:.1}", pool.stats().allocated_bytes as f64 / keys as f64));
    let get = rate(keys, || {
        (0..keys).try_for_each(|_| {
            let i = order.random_u64() % keys;
            if map.get(key(i))? == Some(i) { Ok(()) } else { Err(format!("key {i} is wrong").into()) }
        })
    })?;
    let scans = keys / 4;
    let mut sum = 0;
    let scan = rate(scans, || {
        for _ in 0..scans {
            sum ^= map.scan(key(order.random_u64() % keys))?;
        }
        Ok(())
    })?;
    if *expected.get_or_insert(sum) != black_box(sum) {
        return Err(format!("{name}: the scans found other entries").into());
    }
    let remove = rate(keys, || {
        (0..keys).try_for_each(|i| {
            // In another order than that of the inserts.
            let i = i * 7_368_787 % keys;
            if map.remove(key(i))? == Some(i) { Ok(()) } else { Err(format!("key {i} was gone").into()) }
        })
    })?;
    println!("{name:24} {insert:7.2} {get:7.2} {scan:7.3} {remove:7.2} {bytes:>7}");
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let domain = match arguments.next().as_deref() {
        None | Some("journal") => DomainChoice::Journal,
        Some("dax") => DomainChoice::DaxEmulated,
        Some("volatile") => DomainChoice::Volatile,
        Some(other) => return Err(format!("there is no domain '{other}'").into()),
    };
    if keys < 50 || keys.is_multiple_of(7_368_787) {
        return Err("KEYS must be at least 50 and no multiple of 7,368,787".into());
    }
    println!(
        "{keys} random keys, {domain:?}; M/s, scans of {SCAN} entries, pool bytes per key before removing"
    );
    let heading = |keys: &str| {
        println!("{keys:24} {:>7} {:>7} {:>7} {:>7} {:>7}", "insert", "get", "scan", "remove", "bytes");
    };
    let mut sum = None;
    macro_rules! in_a_pool {
        ($($name:literal: $map:ty, $create:expr, $open:expr;)*) => { $( {
            let directory = tempfile::tempdir()?;
            let pool = new_pool(directory.path(), domain)?;
            let mut publication = pool.publication();
            let root = $create(&pool, &mut publication)?;
            publication.set_root("map", root)?;
            publication.publish()?;
            let map: $map = $open(&pool, root)?;
            measure($name, keys, Pooled(pool.clone(), map), Some(&pool), &mut sum)?;
        } )* };
    }
    heading("numbers");
    measure("BTreeMap", keys, BTreeMap::<u64, u64>::new(), None, &mut sum)?;
    in_a_pool! {
        "FpTree (tuned)": FpTree<WordKey>, |pool, with| FpTree::<WordKey>::create(pool, 1, with), |pool, root| FpTree::open(pool, root, 1);
        "skip-list, pairs": PairSkipList<u64>, PairSkipList::<u64>::create, PairSkipList::open;
        "... towers in DRAM": HybridPairSkipList<u64>, HybridPairSkipList::<u64>::create, HybridPairSkipList::open;
        "skip-list, buckets": BucketSkipList<u64>, BucketSkipList::<u64>::create, BucketSkipList::open;
        "... towers in DRAM, hash": HybridBucketSkipList<u64>, HybridBucketSkipList::<u64>::create, HybridBucketSkipList::open;
    }
    sum = None;
    heading("strings");
    measure("BTreeMap", keys, BTreeMap::<Vec<u8>, u64>::new(), None, &mut sum)?;
    in_a_pool! {
        "FpTree (tuned)": OrderedIndex, |pool, with| OrderedIndex::create(pool, KeyWidth::Variable, with), OrderedIndex::open;
        "PATRICIA": Patricia, Patricia::create, Patricia::open;
        "trie": Trie, Trie::create, Trie::open;
    }
    Ok(())
}

fn new_pool(directory: &std::path::Path, domain: DomainChoice) -> Outcome<Arc<Pool>> {
    let options = PoolOptions { domain, ..PoolOptions::default() };
    Ok(if domain == DomainChoice::Volatile {
        Pool::volatile(&options)?
    } else {
        Pool::create(directory, &options)?
    })
}
