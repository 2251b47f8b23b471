//! Costs of each operation of skip-lists, tries and PMwCAS in flushed ranges and fences on persistent memory,
//! pinned in `lists_flushes.txt`, so that a change of the cost is a change of that file.

use entresol_memory::{Env, Pool, PoolOffset, PoolOptions, Publication};
use entresol_structures::pmwcas::{PmwCas, Swap};
use entresol_structures::skiplist::{BucketSkipList, HybridBucketSkipList, HybridPairSkipList, PairSkipList};
use entresol_structures::trie::{Patricia, Trie};
use entresol_structures::{Inserted, Result};
use std::fmt::Write;
use std::sync::Arc;

/// Counts of operations, each with a name.
struct Counted<'p> {
    pool: &'p Arc<Pool>,
    text: String,
}

impl Counted<'_> {
    fn count(&mut self, structure: &str, operation: &str, work: impl FnOnce()) {
        let before = self.pool.stats();
        work();
        let after = self.pool.stats();
        let (flushes, fences) = (after.flushes - before.flushes, after.fences - before.fences);
        let name = format!("{structure}, {operation}");
        writeln!(self.text, "{name:44} {flushes:7} {fences:6}").unwrap();
    }
}

type Create<'p> = fn(&'p Arc<Pool>, &mut Publication<'p>) -> Result<PoolOffset>;

fn created<'p>(pool: &'p Arc<Pool>, create: Create<'p>) -> PoolOffset {
    let mut publication = pool.publication();
    let root = create(pool, &mut publication).unwrap();
    publication.publish().unwrap();
    root
}

macro_rules! count_map {
    ($counted:ident, $name:literal, $map:ty, $key:expr) => {{
        let pool = $counted.pool;
        let root = created(pool, <$map>::create);
        let map = <$map>::open(pool, root).unwrap();
        let insert = |i: u64| map.insert($key(i), i, pool.publication()).unwrap();
        (0..200).step_by(2).for_each(|i| assert_eq!(insert(i), Inserted::New));
        $counted.count($name, "get", || assert_eq!(map.get($key(4)).unwrap(), Some(4)));
        $counted.count($name, "100 inserts between", || {
            (1..200).step_by(2).for_each(|i| assert_eq!(insert(i), Inserted::New));
        });
        $counted.count($name, "update", || {
            assert_eq!(map.update($key(4), 5, pool.publication()).unwrap(), Some(4))
        });
        $counted.count($name, "200 removals", || {
            (0..200).for_each(|i| assert!(map.remove($key(i), pool.publication()).unwrap().is_some()));
        });
        drop(map);
        $counted.count($name, "opening", || drop(<$map>::open(pool, root).unwrap()));
    }};
}

#[test]
fn operations_cost_what_the_text_file_says() {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(1), ..PoolOptions::default() };
    let pool = Pool::crashing(&options, None, None).unwrap();
    let heading = "# operation                                    flushes fences\n";
    let mut counted = Counted { pool: &pool, text: String::from(heading) };
    let number = |i: u64| i;
    count_map!(counted, "pairs", PairSkipList<u64>, number);
    count_map!(counted, "pairs, DRAM towers", HybridPairSkipList<u64>, number);
    count_map!(counted, "buckets", BucketSkipList<u64>, number);
    count_map!(counted, "buckets, DRAM towers", HybridBucketSkipList<u64>, number);
    let texts: Vec<Vec<u8>> = (0..200).map(|i: u64| format!("key {:06}", i * 7919).into_bytes()).collect();
    let text = |i: u64| &texts[i as usize][..];
    count_map!(counted, "PATRICIA", Patricia, text);
    count_map!(counted, "trie", Trie, text);
    let root = created(&pool, |pool, publication| PmwCas::create(pool, 16, publication));
    let pmwcas = PmwCas::open(&pool, root).unwrap();
    let mut publication = pool.publication();
    let at = publication.allocate(pool.reserve(64).unwrap());
    (0..8).for_each(|word| publication.set(at.plus(word * 8), 0));
    publication.publish().unwrap();
    for (words, value) in [(1, 0), (4, 1), (8, 2)] {
        let swap = |word: u64| {
            let at = at.plus(word * 8);
            Swap { at, old: pmwcas.read(at).unwrap(), new: value + 1 }
        };
        let swaps: Vec<Swap> = (0..words).map(swap).collect();
        counted
            .count("PMwCAS", &format!("{words} words"), || assert!(pmwcas.compare_and_swap(&swaps).unwrap()));
    }
    counted.count("PMwCAS", "a read", || assert_eq!(pmwcas.read(at).unwrap(), 3));
    let path = format!("{}/tests/structures/lists_flushes.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("UPDATE_PINS").is_some() {
        std::fs::write(&path, &counted.text).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(counted.text, pinned, "the cost changed; if that is meant, run with UPDATE_PINS=1");
}
