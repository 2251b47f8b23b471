//! Two writers and two readers on one hash table: nothing is lost, nothing is seen that was not written.

#![allow(clippy::unwrap_used)]

use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{HashKey, HashTable, Inserted, PairKey, WordKey};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: u64 = 20_262;
const WRITERS: u64 = 2;
const KEYS: u64 = 12_000;

/// Writers own the keys of one residue class each, so each knows what its keys must hold, whatever happens to
/// the keys beside them; readers check that every value belongs to its key.
fn churn<K: HashKey>(key: impl Fn(u64) -> K::Key<'static> + Sync, operations: u64) {
    println!("seed {SEED}");
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = HashTable::<K>::create(&pool, &mut publication).unwrap();
    publication.publish().unwrap();
    let table = HashTable::<K>::open(&pool, root).unwrap();
    let stop = AtomicBool::new(false);
    let (table, pool, key, stop) = (&table, &pool, &key, &stop);
    let models: Vec<HashMap<u64, u64>> = std::thread::scope(|scope| {
        let write = |writer: u64| {
            let env = Env::simulated(SEED + writer);
            let mut model = HashMap::new();
            for operation in 0..operations {
                let number = env.random_u64() % (KEYS / WRITERS) * WRITERS + writer;
                let value = number << 32 | operation;
                match env.random_u64() % 10 {
                    0..3 => {
                        let old = table.remove(key(number), pool.publication()).unwrap();
                        assert_eq!(old, model.remove(&number));
                    }
                    3..5 => {
                        let old = table.replace(key(number), value, pool.publication()).unwrap();
                        assert_eq!(old, model.get_mut(&number).map(|slot| std::mem::replace(slot, value)));
                    }
                    _ => {
                        let found = table.insert(key(number), value, pool.publication()).unwrap();
                        let expected = model.get(&number).map_or(Inserted::New, |old| Inserted::Exists(*old));
                        assert_eq!(found, expected);
                        model.entry(number).or_insert(value);
                    }
                }
                assert_eq!(table.get(key(number)), model.get(&number).copied(), "its own writes are seen");
            }
            model
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for reader in 0..2 {
            scope.spawn(move || {
                let env = Env::simulated(SEED ^ (reader + 77));
                let (mut values, mut entries) = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let numbers: Vec<u64> = (0..60).map(|_| env.random_u64() % KEYS).collect();
                    table.get_many(numbers.iter().map(|number| key(*number)), &mut values);
                    for (number, value) in numbers.iter().zip(&values) {
                        assert!(value.is_none_or(|value| value >> 32 == *number), "{number} has {value:?}");
                    }
                    entries.clear();
                    table.scan_batch(env.random_u64(), &mut entries);
                    let mut seen = std::collections::HashSet::new();
                    assert!(entries.iter().all(|(_, value)| seen.insert(value >> 32)), "a key is seen once");
                }
            });
        }
        let models = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        models
    });
    let model: HashMap<u64, u64> = models.into_iter().flatten().collect();
    table.check(|_| {}).unwrap();
    assert!((0..KEYS).all(|number| table.get(key(number)) == model.get(&number).copied()));
    let reopened = HashTable::<K>::open(pool, root).unwrap();
    reopened.check(|_| {}).unwrap();
    assert_eq!(reopened.stats().keys, model.len() as u64);
}

#[test]
fn writers_and_readers_agree_on_eight_byte_keys() {
    churn::<WordKey>(|number| number, 60_000);
}

#[test]
fn writers_and_readers_agree_on_sixteen_byte_keys() {
    churn::<PairKey>(|number| [number % 3, number], 40_000);
}

#[test]
fn a_key_is_inserted_by_one_of_two_writers() {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(&pool, &mut publication).unwrap();
    publication.publish().unwrap();
    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
    let write = |writer: u64| {
        let insert = |key: &u64| table.insert(*key, writer, pool.publication()).unwrap() == Inserted::New;
        (0..20_000).filter(insert).count()
    };
    let new: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(new, 20_000);
    assert_eq!(table.stats().keys, 20_000);
    table.check(|_| {}).unwrap();
}
