//! Common tests of every ordered map of this crate, by numbers as keys: a model, crashes, threads, damage, a
//! full pool. A structure's tests implement [`NumberMap`], and call these.

#![allow(clippy::unwrap_used)]

use crate::{Error, Inserted, Result};
use entresol_memory::crash::{
    ConcurrentRecorder, CrashOptions, CrashReport, MapOperation, Recorder, apply_to_key, check, check_at,
    seeds, take_turns,
};
use entresol_memory::{DomainChoice, Env, JournalOptions, Pool, PoolOffset, PoolOptions, Publication};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) type Model = BTreeMap<u64, u64>;
type Operation = MapOperation<u64, u64>;

/// Greater than any number that tests use as a key.
pub(crate) const NUMBERS_END: u64 = 1 << 24;
const ROOT: &str = "map";
/// Key of the probe of a recovered map.
const LATER: u64 = NUMBERS_END - 1;

/// An ordered map with numbers as keys, in their order.
pub(crate) trait NumberMap: Sized + Send + Sync {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset>;
    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self>;
    fn destroy(pool: &Arc<Pool>, root: PoolOffset) -> Result<()>;
    fn get(&self, key: u64) -> Result<Option<u64>>;
    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted>;
    fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>>;
    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>>;
    /// Returns the entries from one key up to another, ascending.
    fn range(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>>;
    /// Same as `range`, in descending order.
    fn range_back(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>>;
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()>;
    fn keys(&self) -> Result<u64>;
}

pub(crate) fn small_pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

pub(crate) fn new_map<M: NumberMap>(pool: &Arc<Pool>) -> Result<M> {
    let mut publication = pool.publication();
    let root = M::create(pool, &mut publication)?;
    publication.set_root(ROOT, root)?;
    publication.publish()?;
    M::open(pool, root)
}

/// Verifies that the map is sound and owns all allocated objects.
fn sound<M: NumberMap>(pool: &Arc<Pool>, map: &M) -> std::result::Result<(), String> {
    let mut own = BTreeSet::new();
    let mut twice = None;
    map.check(&mut |offset| {
        if !own.insert(offset) {
            twice = Some(offset);
        }
    })
    .map_err(|error| error.to_string())?;
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own != allocated || twice.is_some() {
        return Err(format!("the map owns {own:?} ({twice:?} twice), allocated are {allocated:?}"));
    }
    Ok(())
}

fn apply<M: NumberMap>(pool: &Arc<Pool>, map: &M, operation: &Operation) -> Result<Option<u64>> {
    let with = pool.publication();
    match *operation {
        MapOperation::Insert(key, value) => Ok(map.insert(key, value, with)?.before()),
        MapOperation::Replace(key, value) => map.update(key, value, with),
        MapOperation::Remove(key) => map.remove(key, with),
        MapOperation::Get(key) => map.get(key),
        MapOperation::Put(..) => unreachable!("no map has it"),
    }
}

/// Phases of growth, churn and decay against a `BTreeMap`; reopened and verified periodically.
pub(crate) fn agrees_with_a_model<M: NumberMap>(operations: u64, keys: u64, seed: u64) {
    let pool = small_pool();
    let mut map: M = new_map(&pool).unwrap();
    let env = Env::simulated(seed);
    let mut model = Model::new();
    for number in 0..operations {
        let key = env.random_u64() % keys;
        let removes = [1, 2, 5, 8, 1, 5, 9, 9][(number * 8 / operations) as usize];
        let operation = match env.random_u64() % 10 {
            n if n < removes => MapOperation::Remove(key),
            9 => MapOperation::Replace(key, number),
            _ => MapOperation::Insert(key, number),
        };
        let found = apply(&pool, &map, &operation).unwrap();
        let mut value = model.get(&key).copied();
        assert_eq!(found, apply_to_key(&mut value, &operation), "{operation:?}, seed {seed}");
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
        let probe = env.random_u64() % keys;
        assert_eq!(map.get(probe).unwrap(), model.get(&probe).copied(), "seed {seed}");
        if number % (operations / 10).max(1) == 0 {
            sound(&pool, &map).unwrap();
            assert_eq!(map.keys().unwrap(), model.len() as u64);
            drop(map);
            map = M::open(&pool, pool.root(ROOT).unwrap()).unwrap();
            holds(&map, &model);
            for _ in 0..5 {
                let (a, b) = (env.random_u64() % keys, env.random_u64() % keys);
                let expected: Vec<_> = model.range(a.min(b)..=b.max(a)).map(|(k, v)| (*k, *v)).collect();
                let mut back = map.range_back(a.min(b), a.max(b)).unwrap();
                back.reverse();
                assert_eq!(map.range(a.min(b), a.max(b)).unwrap(), expected, "seed {seed}");
                assert_eq!(back, expected, "seed {seed}");
                if a > b {
                    assert_eq!(map.range(a, b).unwrap(), []);
                    assert_eq!(map.range_back(a, b).unwrap(), []);
                }
            }
        }
    }
    for key in std::mem::take(&mut model).into_keys() {
        assert!(map.remove(key, pool.publication()).unwrap().is_some());
    }
    sound(&pool, &map).unwrap();
    holds(&map, &model);
}

fn holds<M: NumberMap>(map: &M, model: &Model) {
    let all = map.range(0, NUMBERS_END).unwrap();
    assert!(all.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))), "{all:?} and {model:?}");
    assert!(map.range_back(0, NUMBERS_END).unwrap().into_iter().rev().eq(all));
}

/// Generates a seeded operation history over a quarter as many keys as operations: it grows, churns, and then
/// removes all keys.
fn operations(count: u64, keys: u64, seed: u64) -> Vec<Operation> {
    let env = Env::simulated(seed);
    let random = |i: u64, inserts: u64| {
        let key = env.random_u64() % keys;
        match env.random_u64() % 10 {
            n if n < inserts => MapOperation::Insert(key, i),
            9 => MapOperation::Replace(key, i),
            _ => MapOperation::Remove(key),
        }
    };
    let grows = (0..count / 2).map(|i| random(i, 8));
    let churns = (count / 2..count * 3 / 4).map(|i| random(i, 5));
    let shrinks = (0..keys).rev().map(MapOperation::Remove);
    grows.chain(churns).chain(shrinks).collect()
}

fn of_memory(error: Error) -> entresol_memory::Error {
    entresol_memory::Error::Invalid(error.to_string())
}

/// Opens a map after a crash: it is sound; returns its content.
fn recovered<M: NumberMap>(pool: &Arc<Pool>) -> std::result::Result<Option<(M, Model)>, String> {
    let Some(root) = pool.root(ROOT) else {
        let mut left = Vec::new();
        pool.for_each_object(|offset, _| left.push(offset));
        return if left.is_empty() { Ok(None) } else { Err(format!("nobody owns {left:?}")) };
    };
    let map = M::open(pool, root).map_err(|error| error.to_string())?;
    sound(pool, &map)?;
    let entries = map.range(0, NUMBERS_END).map_err(|error| error.to_string())?;
    if !entries.is_sorted_by(|before, after| before.0 < after.0) {
        return Err("a scan does not ascend".to_string());
    }
    // From the trial below, if the power failed again during it.
    let content = entries.into_iter().filter(|(key, _)| *key != LATER).collect();
    Ok(Some((map, content)))
}

/// Probes a recovered map: adds keys beside the existing ones, and removes them.
fn probe_recovered<M: NumberMap>(pool: &Arc<Pool>, map: &M) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    map.insert(LATER, 1, pool.publication()).map_err(text)?;
    if map.get(LATER).map_err(text)? != Some(1) {
        return Err("what was inserted after a recovery is not there".to_string());
    }
    map.remove(LATER, pool.publication()).map_err(text)?;
    if map.get(LATER).map_err(text)?.is_some() {
        return Err("what was removed after a recovery is there".to_string());
    }
    sound(pool, map)
}

/// Checks one history under the crash checker.
pub(crate) fn crashes<M: NumberMap + 'static>(
    count: u64,
    keys: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let recorder = Recorder::new(Model::new());
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let map: M = new_map(pool).map_err(of_memory)?;
        for operation in operations(count, keys, seed) {
            recorded.run(operation.clone(), || apply(pool, &map, &operation)).map_err(of_memory)?;
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), |pool, legal| match recovered::<M>(pool)? {
        None => legal.judge(&Model::new()),
        Some((map, content)) => {
            legal.judge(&content)?;
            probe_recovered(pool, &map)
        }
    })
}

/// Checks histories of several seeds; fails unless enough distinct states were checked.
pub(crate) fn survives_crashes<M: NumberMap + 'static>(
    histories: u64,
    count: u64,
    keys: u64,
    distinct_min: u64,
) {
    let mut total = CrashReport::default();
    for seed in seeds(histories) {
        let options =
            CrashOptions { seed, random_states: 4, crash_recovery_every: 29, ..CrashOptions::default() };
        total.add(&crashes::<M>(count, keys, &options).unwrap());
    }
    println!("{total:?}");
    assert!(total.replayed || total.distinct >= distinct_min, "{total:?}");
}

/// Two writers in turns on a few keys under the crash checker: the result is that of some order.
pub(crate) fn two_writers_survive_crashes<M: NumberMap + 'static>(
    histories: u64,
    count: u64,
    states_min: u64,
) {
    let mut total = CrashReport::default();
    for seed in seeds(histories) {
        let options =
            CrashOptions { seed, random_states: 4, crash_recovery_every: 0, ..CrashOptions::default() };
        total.add(&two_writers::<M>(count, &options).unwrap());
    }
    println!("{total:?}");
    assert!(total.explored(states_min), "{total:?}");
}

fn two_writers<M: NumberMap + 'static>(
    count: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let recorder: Arc<ConcurrentRecorder<u64, u64, Operation, Option<u64>>> =
        ConcurrentRecorder::new(2, apply_to_key);
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let map: M = new_map(pool).map_err(of_memory)?;
        let writer = |thread: usize| {
            let (map, recorded) = (&map, &recorded);
            move || {
                let env = Env::simulated(seed * 2 + thread as u64);
                for i in 0..count {
                    let (key, value) = (env.random_u64() % 12, i * 2 + thread as u64);
                    let operation = match env.random_u64() % 10 {
                        0..=4 => MapOperation::Insert(key, value),
                        5 => MapOperation::Replace(key, value),
                        6 => MapOperation::Get(key),
                        _ => MapOperation::Remove(key),
                    };
                    recorded.run(thread, key, operation.clone(), || apply(pool, map, &operation).unwrap());
                }
            }
        };
        take_turns(seed, vec![Box::new(writer(0)), Box::new(writer(1))]);
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), |pool, legal| match recovered::<M>(pool)? {
        None => legal.judge(&Model::new()),
        Some((map, content)) => {
            legal.judge(&content)?;
            probe_recovered(pool, &map)
        }
    })
}

/// Destroying under the crash checker: nothing leaks, and an interrupted destruction can be repeated.
pub(crate) fn survives_being_destroyed<M: NumberMap + 'static>(keys: u64, states_min: u64) {
    let history = |pool: &Arc<Pool>| {
        let map: M = new_map(pool).map_err(of_memory)?;
        (0..keys)
            .try_for_each(|key| map.insert(key, key, pool.publication()).map(drop))
            .map_err(of_memory)?;
        drop(map);
        let root = pool.root(ROOT).unwrap();
        M::destroy(pool, root).map_err(of_memory)?;
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root(ROOT, PoolOffset::NULL)?;
        publication.publish()
    };
    let options = CrashOptions { random_states: 3, crash_recovery_every: 13, ..CrashOptions::default() };
    let report = check(&options, history, |pool| {
        if let Some(root) = pool.root(ROOT) {
            M::destroy(pool, root).map_err(|error| error.to_string())?;
            assert!(M::open(pool, root).is_err(), "a destroyed map is not opened");
            let mut left = Vec::new();
            pool.for_each_object(|offset, _| left.push(offset));
            if left != [root] {
                return Err(format!("left are {left:?}"));
            }
        }
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.explored(states_min), "{report:?}");
}

const WRITERS: u64 = 2;
/// Every third key is there all the time.
const STRIDE: u64 = WRITERS + 1;

fn write<M: NumberMap>(map: &M, pool: &Arc<Pool>, writer: u64, count: u64, keys: u64) -> Model {
    let env = Env::simulated(writer + 77);
    let mut model = Model::new();
    for i in 0..count {
        let key = env.random_u64() % (keys / STRIDE) * STRIDE + writer;
        let value = key << 32 | i;
        let decays = i / 1000 % 2 == 1;
        if env.random_u64() % 10 < if decays { 8 } else { 2 } {
            assert_eq!(map.remove(key, pool.publication()).unwrap(), model.remove(&key));
        } else if let Some(old) = model.get(&key).copied() {
            assert_eq!(map.update(key, value, pool.publication()).unwrap(), Some(old));
            model.insert(key, value);
        } else {
            assert_eq!(map.insert(key, value, pool.publication()).unwrap(), Inserted::New);
            model.insert(key, value);
        }
    }
    model
}

fn read_along<M: NumberMap>(map: &M, seed: u64, keys: u64, stop: &AtomicBool) {
    let env = Env::simulated(seed);
    while !stop.load(Ordering::Relaxed) {
        let key = env.random_u64() % keys;
        let value = map.get(key).unwrap();
        assert!(value.is_none_or(|value| value >> 32 == key), "key {key} has value {value:?}");
        assert!(value.is_some() || key % STRIDE != WRITERS, "key {key} was there all the time");
        let to = key + 100;
        let mut entries = if seed.is_multiple_of(2) {
            map.range(key, to).unwrap()
        } else {
            map.range_back(key, to).unwrap()
        };
        if seed % 2 == 1 {
            entries.reverse();
        }
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "{entries:?}");
        assert!(entries.iter().all(|(k, value)| (key..=to).contains(k) && value >> 32 == *k));
        let lasting = entries.iter().map(|(key, _)| *key).filter(|key| key % STRIDE == WRITERS);
        let expected = (key..=to).filter(|key| *key < keys && key % STRIDE == WRITERS);
        assert!(lasting.eq(expected), "a scan misses keys that were there all the time: {entries:?}");
    }
}

/// Writers and readers at once: nothing is lost, only written values are read, every returned value is right.
pub(crate) fn threads_agree<M: NumberMap>(count: u64, keys: u64) {
    let pool = small_pool();
    let map: M = new_map(&pool).unwrap();
    let mut model = Model::new();
    for key in (WRITERS..keys).step_by(STRIDE as usize) {
        map.insert(key, key << 32, pool.publication()).unwrap();
        model.insert(key, key << 32);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (map, pool, stop) = (&map, &pool, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(map, pool, writer, count, keys))).collect();
        for reader in 0..2 {
            scope.spawn(move || read_along(map, reader, keys, stop));
        }
        for writer in writers {
            let written = writer.join();
            stop.store(written.is_err() || stop.load(Ordering::Relaxed), Ordering::Relaxed);
            model.extend(written.unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    sound(&pool, &map).unwrap();
    holds(&map, &model);
}

/// Threads that insert and remove the same few keys: each change is made by one thread, once.
pub(crate) fn threads_fight<M: NumberMap>(count: u64, keys: u64) {
    let pool = small_pool();
    let map: M = new_map(&pool).unwrap();
    let fight = |thread: u64| {
        let env = Env::simulated(thread);
        let mut balance = vec![0i64; keys as usize];
        for _ in 0..count {
            let key = env.random_u64() % keys;
            if env.random_u64().is_multiple_of(2) {
                let inserted = map.insert(key, key, pool.publication()).unwrap();
                balance[key as usize] += i64::from(inserted == Inserted::New);
            } else {
                balance[key as usize] -= i64::from(map.remove(key, pool.publication()).unwrap().is_some());
            }
        }
        balance
    };
    let balances: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || fight(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for key in 0..keys {
        let balance: i64 = balances.iter().map(|balance| balance[key as usize]).sum();
        let is_there = map.get(key).unwrap().is_some();
        assert_eq!(balance, i64::from(is_there), "key {key}: as often in as out, or once more");
    }
    sound(&pool, &map).unwrap();
}

/// Any flipped bit is found, or harmless, or a wrong entry; never a panic, never an endless loop. Returns how
/// many of a hundred were found.
pub(crate) fn flipped_bits_are_no_panic<M: NumberMap>(flips: u64, keys: u64) -> u64 {
    let pool = small_pool();
    let map: M = new_map(&pool).unwrap();
    (0..keys).for_each(|key| {
        assert_eq!(map.insert(key * 7 % keys, key, pool.publication()).unwrap(), Inserted::New)
    });
    drop(map);
    let root = pool.root(ROOT).unwrap();
    let mut objects = Vec::new();
    pool.for_each_object(|offset, bytes| objects.push((offset, bytes)));
    let env = Env::simulated(3);
    let mut found = 0;
    for _ in 0..flips {
        let (offset, bytes) = objects[(env.random_u64() % objects.len() as u64) as usize];
        let words = if env.random_u64().is_multiple_of(2) { 8 } else { bytes / 8 };
        let (at, bit) = (offset.plus(env.random_u64() % words * 8), 1 << (env.random_u64() % 64));
        pool.word(at).fetch_xor(bit, Ordering::Relaxed);
        let looked = M::open(&pool, root).and_then(|map| {
            let checked = map.check(&mut |_| {});
            for key in (0..keys).step_by(13) {
                map.get(key)?;
            }
            map.range(0, NUMBERS_END)?;
            map.range_back(keys / 2, NUMBERS_END)?;
            checked
        });
        found += u64::from(looked.is_err());
        pool.word(at).fetch_xor(bit, Ordering::Relaxed);
    }
    let map = M::open(&pool, root).unwrap();
    sound(&pool, &map).unwrap();
    found * 100 / flips
}

/// Every flipped bit of the header's used words is found at open, and so are offsets without a map.
pub(crate) fn a_wrong_header_is_refused<M: NumberMap>(header_words: u64) {
    let pool = small_pool();
    let map: M = new_map(&pool).unwrap();
    map.insert(1, 1, pool.publication()).unwrap();
    drop(map);
    let root = pool.root(ROOT).unwrap();
    for (word, bit) in (0..header_words).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Ordering::Relaxed);
        let opened = M::open(&pool, root).err();
        assert!(
            matches!(opened, Some(Error::Corrupt { .. } | Error::Invalid(_))),
            "bit {bit} of header word {word}: {opened:?}"
        );
        pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Ordering::Relaxed);
    }
    for wild in [0, 8, 64, 1 << 40, u64::MAX - 63].map(PoolOffset::new) {
        assert!(matches!(M::open(&pool, wild), Err(Error::Corrupt { .. })), "{wild:#x}");
        assert!(M::destroy(&pool, wild).is_err(), "{wild:#x}");
    }
    M::open(&pool, root).unwrap();
}

/// A full pool refuses operations that need room, and the map stays unchanged.
pub(crate) fn a_full_pool_changes_nothing<M: NumberMap>() {
    let options =
        PoolOptions { extent_bytes: 256 << 10, address_space_bytes: 512 << 10, ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    let map: M = new_map(&pool).unwrap();
    let mut model = Model::new();
    let error = loop {
        let key = model.len() as u64 * 31 % 65_521;
        match map.insert(key, key, pool.publication()) {
            Ok(_) => drop(model.insert(key, key)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Memory(entresol_memory::Error::OutOfSpace { .. })), "{error}");
    assert!(model.len() > 500);
    sound(&pool, &map).unwrap();
    holds(&map, &model);
    for key in model.keys() {
        assert_eq!(map.remove(*key, pool.publication()).unwrap(), Some(*key));
    }
    sound(&pool, &map).unwrap();
    assert_eq!(map.keys().unwrap(), 0);
}

/// The journal restores everything, also changes that were only in the journal.
pub(crate) fn the_journal_brings_it_back<M: NumberMap>() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::new();
    for round in 0..3 {
        let options = PoolOptions {
            domain: DomainChoice::Journal,
            extent_bytes: 1 << 20,
            journal: JournalOptions {
                slot_bytes: 64 << 10,
                checkpoint_bytes: 256 << 10,
                journal_bytes_max: 1 << 20,
                preallocated_slots: 2,
                ..JournalOptions::default()
            },
            ..PoolOptions::default()
        };
        let pool = Pool::open_or_create(directory.path(), &options).unwrap();
        let map: M = match pool.root(ROOT) {
            Some(root) => M::open(&pool, root).unwrap(),
            None => new_map(&pool).unwrap(),
        };
        holds(&map, &model);
        let env = Env::simulated(round);
        for _ in 0..1000 {
            let (key, value) = (env.random_u64() % 400, env.random_u64());
            if env.random_u64() % 5 < 2 {
                assert_eq!(map.remove(key, pool.publication()).unwrap(), model.remove(&key));
            } else if map.insert(key, value, pool.publication()).unwrap() == Inserted::New {
                model.insert(key, value);
            }
        }
        // Dropped, not closed: opening replays.
    }
}

/// The changes in a caller's publication are applied with the operation or not at all.
pub(crate) fn carries_the_changes_of_the_caller<M: NumberMap>() {
    let pool = small_pool();
    let map: M = new_map(&pool).unwrap();
    let objects = || {
        let mut count = 0;
        pool.for_each_object(|_, _| count += 1);
        count
    };
    let carrying = |key: u64| {
        let object = pool.reserve(64).unwrap();
        let mut with = pool.publication();
        let value = with.allocate(object);
        map.insert(key, value.to_word(), with).map(|inserted| (inserted, value))
    };
    let (inserted, value) = carrying(5).unwrap();
    assert_eq!((inserted, map.get(5).unwrap()), (Inserted::New, Some(value.to_word())));
    let before = objects();
    // The key exists: the second object is freed.
    assert_eq!(carrying(5).unwrap().0, Inserted::Exists(value.to_word()));
    assert_eq!(objects(), before);
    let mut with = pool.publication();
    with.free(value);
    assert_eq!(map.update(6, 1, with).unwrap(), None);
    assert_eq!(objects(), before);
    let mut with = pool.publication();
    with.free(value);
    assert_eq!(map.remove(5, with).unwrap(), Some(value.to_word()));
    sound(&pool, &map).unwrap();
}
