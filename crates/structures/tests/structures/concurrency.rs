//! Several threads on one index: nothing is lost, only written values are read.

use entresol_memory::crash::{ConcurrentRecorder, MapOperation, apply_to_key};
use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{Inserted, KeyBytes, KeyWidth, OrderedIndex};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: u64 = 20_261;

fn create(pool: &Arc<Pool>, width: KeyWidth) -> OrderedIndex {
    let mut publication = pool.publication();
    let root = OrderedIndex::create(pool, width, &mut publication).unwrap();
    publication.set_root("index", root).unwrap();
    publication.publish().unwrap();
    OrderedIndex::open(pool, root).unwrap()
}

fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [number.to_be_bytes(), [7; 8]].concat(),
        KeyWidth::Variable => format!("number {number:08}").into_bytes(),
    }
}

/// Writers own the keys of one residue class each, so each knows the values of its keys; readers check that
/// every value belongs to its key.
fn churn(width: KeyWidth, operations: u64) {
    const WRITERS: u64 = 3;
    const KEYS: u64 = 3000;
    println!("seed {SEED}");
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let index = create(&pool, width);
    let stop = AtomicBool::new(false);
    let models: Vec<BTreeMap<Vec<u8>, u64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (index, pool) = (&index, &pool);
                scope.spawn(move || {
                    let env = Env::simulated(SEED + writer);
                    let mut model = BTreeMap::new();
                    for operation in 0..operations {
                        let number = env.random_u64() % KEYS / WRITERS * WRITERS + writer;
                        let key = key(width, number);
                        let value = number << 32 | operation;
                        // Phases of growth and of decay, so that leaves split and are freed.
                        let decays = operation / 4000 % 2 == 1;
                        if env.random_u64() % 10 < if decays { 7 } else { 2 } {
                            let old = index.remove(&key, pool.publication()).unwrap();
                            assert_eq!(old, model.remove(&key));
                        } else if let Some(old) = model.get(&key).copied() {
                            let replaced = index.replace(&key, value, pool.publication()).unwrap();
                            assert_eq!(replaced, Some(old));
                            model.insert(key, value);
                        } else {
                            let inserted = index.insert(&key, value, pool.publication()).unwrap();
                            assert_eq!(inserted, Inserted::New);
                            model.insert(key, value);
                        }
                    }
                    model
                })
            })
            .collect();
        for reader in 0..2 {
            let (index, stop) = (&index, &stop);
            scope.spawn(move || read_along(index, width, KEYS, SEED ^ reader, stop));
        }
        let models = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        models
    });
    let model: BTreeMap<Vec<u8>, u64> = models.into_iter().flatten().collect();
    index.check(|_| {}).unwrap();
    for number in 0..KEYS {
        let key = key(width, number);
        assert_eq!(index.get(&key).unwrap(), model.get(&key).copied(), "key {number}");
    }
    let rebuilt = OrderedIndex::open(&pool, pool.root("index").unwrap()).unwrap();
    rebuilt.check(|_| {}).unwrap();
    assert_eq!(rebuilt.stats().keys, model.len() as u64);
}

fn read_along(index: &OrderedIndex, width: KeyWidth, keys: u64, seed: u64, stop: &AtomicBool) {
    let env = Env::simulated(seed);
    let mut values = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let numbers: Vec<u64> = (0..40).map(|_| env.random_u64() % keys).collect();
        let wanted: Vec<Vec<u8>> = numbers.iter().map(|number| key(width, *number)).collect();
        index.get_many(&wanted, &mut values).unwrap();
        for (number, value) in numbers.iter().zip(&values) {
            assert!(value.is_none_or(|value| value >> 32 == *number), "key {number} has value {value:?}");
        }
        let mut entries = Vec::new();
        let enough = [1, 100, 1000][numbers[0] as usize % 3];
        index.scan(Bound::Included(&wanted[0]), enough, &mut entries).unwrap();
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        index.scan_back(Bound::Included(&wanted[1]), enough, &mut entries).unwrap();
        for (found, value) in &entries {
            assert_eq!(found.as_slice(), key(width, value >> 32));
        }
    }
}

/// Scans in both directions return every key that stays, in order, while those between come and go.
#[test]
fn scans_in_both_directions_miss_no_key_that_stays() {
    const KEYS: u64 = 20_000;
    const EVERY: u64 = 5;
    for width in [KeyWidth::Eight, KeyWidth::Variable] {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let index = create(&pool, width);
        for number in (0..KEYS).step_by(EVERY as usize) {
            index.insert(&key(width, number), number, pool.publication()).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (index, pool, stop) = (&index, &pool, &stop);
            scope.spawn(move || {
                // Waves through the whole range: leaves fill and split, then merge and are freed.
                while !stop.load(Ordering::Relaxed) {
                    for number in (0..KEYS).filter(|number| number % EVERY != 0) {
                        index.insert(&key(width, number), number, pool.publication()).unwrap();
                    }
                    for number in (0..KEYS).filter(|number| number % EVERY != 0) {
                        index.remove(&key(width, number), pool.publication()).unwrap();
                    }
                }
            });
            for round in 0..30 {
                let (mut forward, mut backward) = (Vec::new(), Vec::new());
                let mut from: Bound<KeyBytes> = Bound::Unbounded;
                while let Some(next) =
                    index.scan(from.as_ref().map(|key| &key[..]), 1 + round, &mut forward).unwrap()
                {
                    from = Bound::Included(next);
                }
                let mut before: Bound<KeyBytes> = Bound::Unbounded;
                while let Some(next) =
                    index.scan_back(before.as_ref().map(|key| &key[..]), 1 + round, &mut backward).unwrap()
                {
                    before = Bound::Excluded(next);
                }
                backward.reverse();
                for entries in [forward, backward] {
                    assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
                    let stay = entries.iter().filter(|(_, value)| value % EVERY == 0).count() as u64;
                    assert_eq!(stay, KEYS / EVERY, "round {round}");
                }
                assert!(index.split_points(16).is_sorted_by(|a, b| a < b));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn writers_and_readers_agree_on_eight_byte_keys() {
    churn(KeyWidth::Eight, 60_000);
}

#[test]
fn writers_and_readers_agree_on_sixteen_byte_keys() {
    churn(KeyWidth::Sixteen, 20_000);
}

#[test]
fn writers_and_readers_agree_on_keys_of_any_length() {
    churn(KeyWidth::Variable, 20_000);
}

/// The results of the threads must be those of one order of all operations on each key.
#[test]
fn histories_of_shared_keys_are_linearizable() {
    const KEYS: u64 = 200;
    for width in [KeyWidth::Eight, KeyWidth::Variable] {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let index = create(&pool, width);
        let recorder = ConcurrentRecorder::new(3, apply_to_key);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (index, pool, recorder) = (&index, &pool, &recorder);
                scope.spawn(move || {
                    let env = Env::simulated(SEED * 3 + thread as u64);
                    for i in 0..20_000 {
                        let (key, value) = (key(width, env.random_u64() % KEYS), i << 8 | thread as u64);
                        // Phases of growth and of decay, so that leaves split and are freed.
                        let removes = if i / 2000 % 2 == 1 { 6 } else { 1 };
                        let operation = match env.random_u64() % 10 {
                            n if n < removes => MapOperation::Remove(key.clone()),
                            6 => MapOperation::Replace(key.clone(), value),
                            7 | 8 => MapOperation::Get(key.clone()),
                            _ => MapOperation::Insert(key.clone(), value),
                        };
                        let with = pool.publication();
                        recorder.run(thread, key.clone(), operation.clone(), || match operation {
                            MapOperation::Insert(..) => index.insert(&key, value, with).unwrap().before(),
                            MapOperation::Replace(..) => index.replace(&key, value, with).unwrap(),
                            MapOperation::Remove(_) => index.remove(&key, with).unwrap(),
                            _ => index.get(&key).unwrap(),
                        });
                    }
                });
            }
        });
        let mut entries = Vec::new();
        assert_eq!(index.scan(Bound::Unbounded, usize::MAX, &mut entries).unwrap(), None);
        let content = entries.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
        recorder.legal().judge(&content).unwrap_or_else(|wrong| panic!("{width:?}: {wrong}"));
    }
}
