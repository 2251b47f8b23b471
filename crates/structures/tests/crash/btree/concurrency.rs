//! Several threads on one tree: nothing is lost, only written values are read, scans return entries that
//! exist throughout exactly once.

use super::{Instance, Tree, small_instances, volatile_pool};
use entresol_memory::crash::{ConcurrentRecorder, MapOperation, apply_to_key};
use entresol_memory::{Env, Pool};
use entresol_structures::Inserted;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: u64 = 20_262;
const WRITERS: u64 = 3;
const KEYS: u64 = 1200;
/// Every fourth key exists all the time.
const STRIDE: u64 = WRITERS + 1;

/// One writer's history: the keys of one residue class, so that it knows their values.
fn write(tree: &dyn Tree, pool: &Arc<Pool>, writer: u64, operations: u64) -> BTreeMap<u64, u64> {
    let env = Env::simulated(SEED + writer);
    let mut model = BTreeMap::new();
    for operation in 0..operations {
        let key = env.random_u64() % (KEYS / STRIDE) * STRIDE + writer;
        let value = key << 32 | operation;
        // Phases of growth and of decay, so that nodes split and merge.
        let decays = operation / 1000 % 2 == 1;
        if env.random_u64() % 10 < if decays { 8 } else { 2 } {
            assert_eq!(tree.remove(key, pool.publication()).unwrap(), model.remove(&key));
        } else if let Some(old) = model.get(&key).copied() {
            assert_eq!(tree.update(key, value, pool.publication()).unwrap(), Some(old));
            model.insert(key, value);
        } else {
            assert_eq!(tree.insert(key, value, pool.publication()).unwrap(), Inserted::New);
            model.insert(key, value);
        }
    }
    model
}

fn read_along(tree: &dyn Tree, seed: u64, stop: &AtomicBool) -> u64 {
    let env = Env::simulated(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = env.random_u64() % KEYS;
        let value = tree.get(key).unwrap();
        assert!(value.is_none_or(|value| value >> 32 == key), "key {key} has value {value:?}");
        assert!(value.is_some() || key % STRIDE != WRITERS, "key {key} was there all the time");
        let wanted: Vec<u64> = (0..40).map(|_| env.random_u64() % KEYS).collect();
        for (key, value) in wanted.iter().zip(tree.get_many(&wanted).unwrap()) {
            assert!(value.is_none_or(|value| value >> 32 == *key), "key {key} has value {value:?}");
            assert!(value.is_some() || key % STRIDE != WRITERS, "key {key} was there all the time");
        }
        let range = key..=key + 200;
        let descending = env.random_u64() % 2 == 1;
        let mut entries = tree.range(range.clone(), descending).unwrap();
        if descending {
            entries.reverse();
        }
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "{entries:?}");
        assert!(entries.iter().all(|(key, value)| range.contains(key) && value >> 32 == *key));
        let lasting = entries.iter().map(|(key, _)| *key).filter(|key| key % STRIDE == WRITERS);
        let expected = range.filter(|key| *key < KEYS && key % STRIDE == WRITERS);
        assert!(lasting.eq(expected), "a scan misses keys that were there all the time: {entries:?}");
        reads += 1;
    }
    reads
}

fn churn(instance: &Instance, underflow: bool, operations: u64) {
    println!("{}, underflow {underflow}, seed {SEED}", instance.name);
    let pool = volatile_pool();
    let tree = instance.new_tree(&pool);
    tree.set_underflow_handling(underflow);
    let mut model = BTreeMap::new();
    for key in (WRITERS..KEYS).step_by(STRIDE as usize) {
        tree.insert(key, key << 32, pool.publication()).unwrap();
        model.insert(key, key << 32);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, pool, stop) = (&*tree, &pool, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(tree, pool, writer, operations))).collect();
        for reader in 0..2 {
            scope.spawn(move || read_along(tree, SEED ^ reader, stop));
        }
        for writer in writers {
            let written = writer.join();
            // Readers stop also when a writer failed.
            if written.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            model.extend(written.unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    tree.check(&mut |_| {}).unwrap();
    assert!(tree.range(0..=KEYS, false).unwrap().into_iter().eq(model));
    drop(tree);
    instance.reopen(&pool).check(&mut |_| {}).unwrap();
}

#[test]
fn writers_and_readers_agree() {
    for instance in small_instances() {
        churn(&instance, false, 20_000);
    }
}

#[test]
fn writers_and_readers_agree_while_underflow_is_handled() {
    for instance in small_instances() {
        churn(&instance, true, 20_000);
    }
}

type Operation = MapOperation<u64, u64>;

/// Applies an operation; returns the value before it.
fn apply(tree: &dyn Tree, pool: &Arc<Pool>, operation: &Operation) -> Option<u64> {
    let with = pool.publication();
    match *operation {
        MapOperation::Insert(key, value) => tree.insert(key, value, with).unwrap().before(),
        MapOperation::Replace(key, value) => tree.update(key, value, with).unwrap(),
        MapOperation::Remove(key) => tree.remove(key, with).unwrap(),
        // A batch of one lookup among others.
        MapOperation::Get(key) if key.is_multiple_of(2) => {
            tree.get_many(&[key + 1, key, key + 2]).unwrap()[1]
        }
        MapOperation::Get(key) => tree.get(key).unwrap(),
        MapOperation::Put(..) => unreachable!("a tree has no such operation"),
    }
}

/// The results of the threads must be those of one order of all operations on each key.
#[test]
fn histories_of_shared_keys_are_linearizable() {
    const KEYS: u64 = 60;
    for (number, instance) in small_instances().iter().enumerate() {
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        tree.set_underflow_handling(number % 2 == 0);
        let recorder = ConcurrentRecorder::new(3, apply_to_key);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (tree, pool, recorder) = (&*tree, &pool, &recorder);
                scope.spawn(move || {
                    let env = Env::simulated(SEED * 3 + thread as u64);
                    for i in 0..3000 {
                        let (key, value) = (env.random_u64() % KEYS, i << 8 | thread as u64);
                        // Phases of growth and of decay.
                        let removes = if i / 500 % 2 == 1 { 5 } else { 2 };
                        let operation = match env.random_u64() % 10 {
                            n if n < removes => MapOperation::Remove(key),
                            6 => MapOperation::Replace(key, value),
                            7 | 8 => MapOperation::Get(key),
                            _ => MapOperation::Insert(key, value),
                        };
                        recorder.run(thread, key, operation.clone(), || apply(tree, pool, &operation));
                    }
                });
            }
        });
        let content: BTreeMap<u64, u64> = tree.range(0..=KEYS, false).unwrap().into_iter().collect();
        recorder.legal().judge(&content).unwrap_or_else(|wrong| panic!("{}: {wrong}", instance.name));
    }
}
