//! Writers, readers and the tree's own thread: nothing is lost, only written values are read, and a reader
//! never reads an older value than before.

use super::{create, in_caller, owns_all, volatile_pool};
use entresol_memory::{Env, Pool};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const WRITERS: u64 = 2;
const KEYS: u64 = 300;
/// Every third key exists all the time.
const STRIDE: u64 = WRITERS + 1;

/// Writes the keys of one residue class; values grow.
fn write(tree: &LsmTree<u64>, pool: &Pool, writer: u64, operations: u64) -> BTreeMap<u64, u64> {
    let env = Env::simulated(100 + writer);
    let mut model = BTreeMap::new();
    for operation in 0..operations {
        let key = env.random_u64() % (KEYS / STRIDE) * STRIDE + writer;
        let value = key << 32 | operation;
        match env.random_u64() % 10 {
            0 => assert_eq!(tree.remove(key, pool.publication()).unwrap(), model.remove(&key)),
            1 => {
                tree.delete(key, pool.publication()).unwrap();
                model.remove(&key);
            }
            2 => {
                let before = tree.update(key, value, pool.publication()).unwrap();
                assert_eq!(before, model.get(&key).copied());
                model.entry(key).and_modify(|slot| *slot = value);
            }
            _ => {
                tree.upsert(key, value, pool.publication()).unwrap();
                model.insert(key, value);
            }
        }
    }
    model
}

fn read_along(tree: &LsmTree<u64>, seed: u64, stop: &AtomicBool) -> u64 {
    let env = Env::simulated(seed);
    let mut newest = BTreeMap::new();
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = env.random_u64() % KEYS;
        let value = tree.get(key).unwrap();
        assert!(value.is_none_or(|value| value >> 32 == key), "key {key} has value {value:?}");
        assert!(value.is_some() || key % STRIDE != WRITERS, "key {key} was there all the time");
        if let Some(value) = value {
            let before = newest.insert(key, value);
            assert!(
                before.is_none_or(|before| before <= value),
                "key {key} went back from {before:?} to {value}"
            );
        }
        let range = key..=key + 60;
        let mut entries: Vec<_> = if reads % 2 == 0 {
            tree.range(range.clone()).map(Result::unwrap).collect()
        } else {
            tree.range(range.clone()).rev().map(Result::unwrap).collect()
        };
        if reads % 2 == 1 {
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

fn stress(maintenance: Maintenance, disk_levels: u32) {
    let (pool, dir): (Arc<Pool>, _) = (volatile_pool(5), TempDir::new().unwrap());
    let parameters =
        LsmParameters { buffer_entries: 64, buffers: 3, runs_per_level: 3, pool_levels: 2, disk_levels };
    let root = create::<u64>(&pool, &parameters);
    let options = LsmOptions { maintenance, ..in_caller(Some(dir.path())) };
    let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
    let mut model: BTreeMap<u64, u64> =
        (0..KEYS).filter(|key| key % STRIDE == WRITERS).map(|key| (key, key << 32)).collect();
    model.iter().for_each(|(key, value)| tree.upsert(*key, *value, pool.publication()).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [7, 8].map(|seed| {
            let (tree, stop) = (&tree, &stop);
            scope.spawn(move || read_along(tree, seed, stop))
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (tree, pool) = (&tree, &pool);
                scope.spawn(move || write(tree, pool, writer, 25_000))
            })
            .collect();
        writers.into_iter().for_each(|writer| model.extend(writer.join().unwrap()));
        stop.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    let stats = tree.stats();
    assert!(stats.merges > 50, "{stats:?}");
    assert!(tree.failure().is_none());
    assert!(tree.range(0..=u64::MAX).map(Result::unwrap).eq(model.clone()));
    owns_all(&pool, &tree);
    drop(tree);
    let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
    assert!(tree.range(0..=u64::MAX).map(Result::unwrap).eq(model));
}

#[test]
fn writers_and_readers_with_the_trees_own_thread() {
    stress(Maintenance::Background, 0);
}

#[test]
fn writers_and_readers_that_merge_themselves() {
    stress(Maintenance::InCaller, 0);
}

#[test]
fn writers_and_readers_over_files() {
    stress(Maintenance::Background, 1);
}

#[test]
fn writers_of_one_key_agree_with_the_log() {
    let pool = volatile_pool(6);
    let parameters =
        LsmParameters { buffer_entries: 40, buffers: 2, runs_per_level: 2, pool_levels: 2, disk_levels: 0 };
    let root = create::<u64>(&pool, &parameters);
    let tree = LsmTree::<u64>::open(&pool, root, &in_caller(None)).unwrap();
    // After a thread has added the key, no other can until it is removed.
    let added = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (tree, pool, added) = (&tree, &pool, &added);
            scope.spawn(move || {
                for n in 0..4000 {
                    let value = n * 3 + writer;
                    if tree.insert(1, value, pool.publication()).unwrap()
                        == entresol_structures::Inserted::New
                    {
                        assert_eq!(added.fetch_add(1, Ordering::SeqCst), 0, "two added it");
                        added.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(tree.remove(1, pool.publication()).unwrap(), Some(value));
                    }
                }
            });
        }
    });
    tree.upsert(1, 77, pool.publication()).unwrap();
    drop(tree);
    let tree = LsmTree::<u64>::open(&pool, root, &in_caller(None)).unwrap();
    assert_eq!(tree.get(1).unwrap(), Some(77));
}
