//! The hash table on `journal` with durability `none`, and the FPTree likewise, beside the standard library's
//! volatile B-tree: one thread, random 8-byte keys, turn by turn, medians of three rounds.
//!
//! ```text
//! cargo run --release -p entresol-structures --example hash_bench [KEYS] [DIRECTORY] [journal|dax|volatile]
//! ```

use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::{Change, HashTable, WordKey};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 3;
const BATCH: usize = 1024;
const OPERATIONS: [&str; 8] = [
    "insert",
    "insert in batches",
    "get",
    "get_many",
    "get of absent keys",
    "update",
    "update in batches",
    "delete",
];
/// Index of the plain operation beside which a batch is shown: a volatile map has no call for batches.
const PLAIN: [usize; 8] = [0, 0, 2, 2, 4, 5, 5, 7];

/// Wall clock and time on a processor, in ns an operation: on a busy machine the second is the steadier one.
type Samples = [Vec<(f64, f64)>; OPERATIONS.len()];

struct Load {
    keys: Vec<u64>,
    wanted: Vec<u64>,
}

fn load(keys: usize) -> Load {
    let env = Env::simulated(7);
    let keys: Vec<u64> = (0..keys).map(|_| env.random_u64()).collect();
    let mut wanted = keys.clone();
    for i in (1..wanted.len()).rev() {
        wanted.swap(i, (env.random_u64() % (i as u64 + 1)) as usize);
    }
    Load { keys, wanted }
}

/// Returns the nanoseconds that this thread has run so far, if the system reports them.
fn on_processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

fn measure(samples: &mut Vec<(f64, f64)>, count: usize, work: impl FnOnce() -> usize) {
    let (start, before_ns) = (Instant::now(), on_processor_ns());
    let right = work();
    let wall_ns = start.elapsed().as_nanos() as f64;
    samples.push((wall_ns / count as f64, (on_processor_ns() - before_ns) / count as f64));
    assert_eq!(right, count, "every key was found with its value");
}

fn measure_map(load: &Load, samples: &mut Samples) {
    let (mut map, count) = (BTreeMap::new(), load.keys.len());
    let [insert, _, get, _, absent, update, _, delete] = samples;
    measure(insert, count, || load.keys.iter().filter(|key| map.insert(**key, **key ^ 1).is_none()).count());
    measure(get, count, || load.wanted.iter().filter(|key| map.get(key) == Some(&(**key ^ 1))).count());
    measure(absent, count, || load.wanted.iter().filter(|key| !map.contains_key(&(**key ^ 1))).count());
    measure(update, count, || {
        let mut update = |key: &&u64| map.get_mut(key).map(|value| *value = **key ^ 2).is_some();
        load.wanted.iter().filter(|key| update(key)).count()
    });
    measure(delete, count, || load.wanted.iter().filter(|key| map.remove(key) == Some(**key ^ 2)).count());
}

fn measure_table(load: &Load, pool: &Arc<Pool>, samples: &mut Samples) -> Result<(), Box<dyn Error>> {
    let table = new_table(pool, "one by one")?;
    let count = load.keys.len();
    let [insert, inserts, get, get_many, absent, update, updates, delete] = samples;
    let expect = "the pool has room";
    measure(insert, count, || {
        let new = |key: &&u64| table.insert(**key, **key ^ 1, pool.publication()).expect(expect);
        load.keys
            .iter()
            .map(|key| new(&key))
            .filter(|done| *done == entresol_structures::Inserted::New)
            .count()
    });
    measure(get, count, || load.wanted.iter().filter(|key| table.get(**key) == Some(**key ^ 1)).count());
    let mut values = Vec::new();
    measure(get_many, count, || {
        let mut right = 0;
        for batch in load.wanted.chunks(BATCH) {
            table.get_many(batch.iter().copied(), &mut values);
            right += batch.iter().zip(&values).filter(|(key, value)| **value == Some(**key ^ 1)).count();
        }
        right
    });
    measure(absent, count, || load.wanted.iter().filter(|key| table.get(**key ^ 1).is_none()).count());
    measure(update, count, || {
        let old = |key: &u64| table.replace(*key, key ^ 3, pool.publication()).expect(expect);
        load.wanted.iter().filter(|key| old(key) == Some(**key ^ 1)).count()
    });
    measure(updates, count, || {
        let mut right = 0;
        for batch in load.wanted.chunks(BATCH) {
            let changes = batch.iter().map(|key| (*key, Change::Replace(key ^ 2)));
            table.apply_many(changes, &mut values).expect(expect);
            right += batch.iter().zip(&values).filter(|(key, old)| **old == Some(**key ^ 3)).count();
        }
        right
    });
    let stats = table.stats();
    println!(
        "{stats:?}, {:.0}% full, {:.1}% displaced, {:.1} bytes a key",
        100.0 * stats.keys as f64 / stats.slots as f64,
        100.0 * stats.displaced as f64 / stats.keys as f64,
        stats.segments as f64 * 16384.0 / stats.keys as f64
    );
    let start = Instant::now();
    let table = HashTable::<WordKey>::open(pool, table.root_offset())?;
    println!("opening it again took {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    measure(delete, count, || {
        let old = |key: &u64| table.remove(*key, pool.publication()).expect(expect);
        load.wanted.iter().filter(|key| old(key) == Some(**key ^ 2)).count()
    });
    let table = new_table(pool, "in batches")?;
    measure(inserts, count, || {
        let mut right = 0;
        for batch in load.keys.chunks(BATCH) {
            let changes = batch.iter().map(|key| (*key, Change::Insert(key ^ 1)));
            table.apply_many(changes, &mut values).expect(expect);
            right += values.iter().filter(|old| old.is_none()).count();
        }
        right
    });
    measure_threads(load, pool, &table);
    pool.persist(Durability::None)?;
    Ok(())
}

/// Half gets, half updates, by one thread and by two on the same keys: ns on a processor, an operation. Zipf:
/// rank r with a probability that falls as r to the power of -0.99.
fn measure_threads(load: &Load, pool: &Arc<Pool>, table: &HashTable<WordKey>) {
    let keys = &load.keys;
    let rank = |random: u64, is_zipf: bool| {
        let u = random as f64 / u64::MAX as f64;
        let most = (keys.len() as f64).powf(0.01);
        let at = if is_zipf { (1.0 + u * (most - 1.0)).powf(100.0) - 1.0 } else { u * keys.len() as f64 };
        (at as usize).min(keys.len() - 1)
    };
    let work = &|seed: u64, is_zipf: bool| {
        let env = Env::simulated(seed);
        let picks: Vec<u64> = (0..1_000_000).map(|_| keys[rank(env.random_u64(), is_zipf)]).collect();
        let before_ns = on_processor_ns();
        for (index, key) in picks.iter().enumerate() {
            let is_there = match index % 2 {
                0 => table.get(*key).is_some(),
                _ => matches!(table.replace(*key, index as u64, pool.publication()), Ok(Some(_))),
            };
            assert!(is_there, "every key is there");
        }
        (on_processor_ns() - before_ns) / picks.len() as f64
    };
    for (name, is_zipf) in [("uniform", false), ("Zipf 0.99", true)] {
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let one = work(1, is_zipf);
                let two: f64 = std::thread::scope(|scope| {
                    let threads = [2, 3].map(|seed| scope.spawn(move || work(seed, is_zipf)));
                    threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
                });
                2.0 * one / (two / 2.0)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("two threads, {name}: {:.2} times one, by time on processors", times[ROUNDS / 2]);
    }
}

fn new_table(pool: &Arc<Pool>, name: &str) -> Result<HashTable<WordKey>, Box<dyn Error>> {
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(pool, &mut publication)?;
    publication.set_root(name, root)?;
    publication.publish()?;
    Ok(HashTable::open(pool, root)?)
}

fn median(samples: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let domain = match arguments.next().as_deref() {
        None | Some("journal") => DomainChoice::Journal,
        Some("dax") => DomainChoice::DaxEmulated,
        Some("volatile") => DomainChoice::Volatile,
        Some(other) => return Err(format!("no domain is called {other}").into()),
    };
    let load = load(keys);
    let (mut map, mut table) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        measure_map(&load, &mut map);
        let path = directory.join(format!("hash_bench.{}.{round}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        let options = PoolOptions { domain, ..PoolOptions::default() };
        let pool = match domain {
            DomainChoice::Volatile => Pool::volatile(&options)?,
            _ => Pool::create(&path, &options)?,
        };
        let measured = measure_table(&load, &pool, &mut table);
        drop(pool);
        std::fs::remove_dir_all(&path)?;
        measured?;
    }
    println!("{keys} keys, ns an operation, medians of {ROUNDS}");
    println!("{:20} {:>31}   {:>31}", "", "wall clock", "on a processor");
    println!(
        "{0:20} {1:>9} {2:>9} {3:>11}   {1:>9} {2:>9} {3:>11}",
        "operation", "BTreeMap", "hash", "times"
    );
    for (index, name) in OPERATIONS.iter().enumerate() {
        print!("{name:20}");
        for of in [|sample: &(f64, f64)| sample.0, |sample: &(f64, f64)| sample.1] {
            let (theirs, ours) = (median(&map[PLAIN[index]], of), median(&table[index], of));
            print!(" {theirs:9.1} {ours:9.1} {:11.2}  ", theirs / ours);
        }
        println!();
    }
    Ok(())
}
