//! Two writers and two readers on one hash table: nothing is lost, only written values are read.

use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{HashKey, HashTable, Inserted, PairKey, WordKey};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEED: u64 = 20_262;
const WRITERS: u64 = 2;
const KEYS: u64 = 12_000;

/// Writers own the keys of one residue class each, so each knows the values of its keys, whatever happens to
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

/// Two writers increment few keys, remove and insert some again; one thread splits segments meanwhile. The
/// result of each operation is recorded before the next begins, so a get must return at least that, and never
/// less than the get before.
#[test]
fn no_get_goes_back_while_segments_split() {
    const COUNTED: u64 = 128;
    println!("seed {SEED}");
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(&pool, &mut publication).unwrap();
    publication.publish().unwrap();
    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
    for key in 0..COUNTED {
        table.insert(key, 0, pool.publication()).unwrap();
    }
    let returned: Vec<AtomicU64> = (0..COUNTED).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let (table, pool, returned, stop) = (&table, &pool, &returned, &stop);
    std::thread::scope(|scope| {
        let write = |writer: u64| {
            let env = Env::simulated(SEED + writer);
            for count in 1..=40_000 {
                let key = env.random_u64() % (COUNTED / WRITERS) * WRITERS + writer;
                if count % 7 == 0 {
                    assert!(table.remove(key, pool.publication()).unwrap().is_some());
                    assert_eq!(table.get(key), None);
                    assert_eq!(table.insert(key, count, pool.publication()).unwrap(), Inserted::New);
                } else {
                    assert!(table.replace(key, count, pool.publication()).unwrap().is_some());
                }
                returned[key as usize].store(count, Ordering::SeqCst);
                // Other keys, so that the segments of the counted ones fill and split.
                table.insert(count << 32 | writer, 1, pool.publication()).unwrap();
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for reader in 0..2 {
            scope.spawn(move || {
                let env = Env::simulated(SEED ^ (reader + 5));
                let mut last = vec![0; COUNTED as usize];
                while !stop.load(Ordering::Relaxed) {
                    let key = env.random_u64() % COUNTED;
                    let at_least = returned[key as usize].load(Ordering::SeqCst).max(last[key as usize]);
                    if let Some(seen) = table.get(key) {
                        assert!(seen >= at_least, "key {key}: {seen} after {at_least}");
                        last[key as usize] = seen;
                    }
                }
            });
        }
        let making_room = scope.spawn(move || (1..40).for_each(|step| table.reserve(step * 2500).unwrap()));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        making_room.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    let counted = |key: &u64| table.get(*key) == Some(returned[*key as usize].load(Ordering::SeqCst));
    assert!((0..COUNTED).all(|key| counted(&key)));
    assert_eq!(table.stats().keys, COUNTED + WRITERS * 40_000);
    table.check(|_| {}).unwrap();
}
