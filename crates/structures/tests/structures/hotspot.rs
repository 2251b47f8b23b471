//! The hotspot index: behaves like the index behind it, never returns stale values, stays within its budget,
//! follows the hot keys, and is bypassed when there are none.

use entresol_memory::{Env, Pool, PoolOptions, Publication};
use entresol_structures::{
    FpTree, HashTable, HotspotClock, HotspotIndex, HotspotOptions, Inserted, PointIndex, Result, WordKey,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

fn table(pool: &Arc<Pool>) -> HashTable<WordKey> {
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(pool, &mut publication).unwrap();
    publication.publish().unwrap();
    HashTable::open(pool, root).unwrap()
}

fn tree(pool: &Arc<Pool>) -> FpTree<WordKey> {
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(pool, 0, &mut publication).unwrap();
    publication.publish().unwrap();
    FpTree::open(pool, root, 0).unwrap()
}

/// An index that counts the gets that reach it.
struct Counting<I> {
    behind: I,
    gets: AtomicU64,
}

impl<I: PointIndex<Key = u64>> PointIndex for Counting<I> {
    type Key = u64;
    const KEY_WORDS: usize = I::KEY_WORDS;

    fn key_words(key: u64) -> [u64; 2] {
        I::key_words(key)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.behind.get(key)
    }

    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    fn replace<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.replace(key, value, with)
    }

    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.remove(key, with)
    }
}

const KEYS: u64 = 50_000;

/// Creates a counted table with a cache meant for 8,192 entries; a third of the gets must be hits for it to
/// pay.
fn counted(pool: &Arc<Pool>) -> HotspotIndex<Counting<HashTable<WordKey>>> {
    let behind = Counting { behind: table(pool), gets: AtomicU64::new(0) };
    let options = HotspotOptions {
        budget_bytes: HotspotIndex::<HashTable<WordKey>>::budget_bytes(8192),
        clock: HotspotClock::Known { behind_ns: 300, lookup_ns: 100 },
        ..HotspotOptions::default()
    };
    let index = HotspotIndex::new(behind, options).unwrap();
    for key in 0..KEYS {
        index.insert(key, key, pool.publication()).unwrap();
    }
    index
}

/// Makes a number of gets, 80% of them of `hot` keys from `first` on; returns how many reached the index
/// behind.
fn skewed(
    index: &HotspotIndex<Counting<HashTable<WordKey>>>,
    env: &Env,
    first: u64,
    hot: u64,
    gets: u64,
) -> u64 {
    let before = index.behind().gets.load(Ordering::Relaxed);
    for _ in 0..gets {
        let is_hot = env.random_u64() % 10 < 8;
        let key = if is_hot { first + env.random_u64() % hot } else { env.random_u64() % KEYS };
        assert_eq!(index.get(key).unwrap(), Some(key));
    }
    index.behind().gets.load(Ordering::Relaxed) - before
}

#[test]
fn hot_keys_are_served_from_memory_and_followed_when_they_move() {
    let (pool, env) = (pool(), Env::simulated(1));
    let index = counted(&pool);
    skewed(&index, &env, 0, 2000, 400_000);
    assert!(skewed(&index, &env, 0, 2000, 100_000) < 35_000, "at least 65 of 80 hot gets in a hundred hit");
    let moved = skewed(&index, &env, 30_000, 2000, 100_000);
    let settled = skewed(&index, &env, 30_000, 2000, 100_000);
    assert!(settled < 35_000, "{moved} while it moved, {settled} afterwards");
    let stats = index.stats();
    assert!(!stats.is_bypassed && stats.entries <= 12_288 && stats.entries_max == 12_288, "{stats:?}");
}

#[test]
fn it_steps_aside_under_uniform_load_and_comes_back() {
    let (pool, env) = (pool(), Env::simulated(2));
    let index = counted(&pool);
    for _ in 0..600_000 {
        index.get(env.random_u64() % KEYS).unwrap();
    }
    let stats = index.stats();
    assert!(stats.is_bypassed && stats.times_bypassed == 1 && stats.times_resumed == 0, "{stats:?}");
    assert!(stats.entries <= 128, "only the probe keeps entries: {stats:?}");
    let before = index.behind().gets.load(Ordering::Relaxed);
    for _ in 0..100_000 {
        index.get(env.random_u64() % KEYS).unwrap();
    }
    let reached = index.behind().gets.load(Ordering::Relaxed) - before;
    assert!(reached > 99_000, "{reached} of 100000 gets go straight to the index");
    skewed(&index, &env, 7000, 1000, 400_000);
    let stats = index.stats();
    assert!(!stats.is_bypassed && stats.times_resumed == 1, "{stats:?}");
    assert!(skewed(&index, &env, 7000, 1000, 100_000) < 35_000);
}

#[test]
fn the_budget_is_kept_and_too_small_a_one_refused() {
    let pool = pool();
    for budget_bytes in [400_000, 1 << 20, 5_000_000] {
        let options = HotspotOptions { budget_bytes, hot_after: 1, ..HotspotOptions::default() };
        let index = HotspotIndex::new(table(&pool), options).unwrap();
        for key in 0..100_000 {
            index.insert(key, key, pool.publication()).unwrap();
            index.get(key).unwrap();
        }
        let stats = index.stats();
        assert!(
            stats.bytes <= budget_bytes && stats.bytes > budget_bytes * 9 / 10,
            "{budget_bytes}: {stats:?}"
        );
    }
    let options = HotspotOptions { budget_bytes: 1000, ..HotspotOptions::default() };
    let error = HotspotIndex::new(table(&pool), options).err().unwrap();
    assert!(error.to_string().contains("1000 bytes"), "{error}");
}

fn behaves_like_a_map<I: PointIndex<Key = u64>>(
    index: &HotspotIndex<I>,
    pool: &Pool,
    steps: &[(u64, u8, u64)],
) {
    let mut model = HashMap::new();
    for &(key, kind, value) in steps {
        match kind % 8 {
            0 => {
                let expected = model.get(&key).map_or(Inserted::New, |old| Inserted::Exists(*old));
                assert_eq!(index.insert(key, value, pool.publication()).unwrap(), expected);
                model.entry(key).or_insert(value);
            }
            1 => {
                let old = model.get_mut(&key).map(|slot| std::mem::replace(slot, value));
                assert_eq!(index.replace(key, value, pool.publication()).unwrap(), old);
            }
            2 if value % 2 == 0 => {
                assert_eq!(index.remove(key, pool.publication()).unwrap(), model.remove(&key));
            }
            _ => assert_eq!(index.get(key).unwrap(), model.get(&key).copied()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_history_is_that_of_a_map(
        steps in prop::collection::vec((0..300u64, any::<u8>(), any::<u64>()), 1..4000),
        hot_after in 1..4u64,
    ) {
        let options = HotspotOptions {
            budget_bytes: 80_000,
            period_queries: 1000,
            hot_after,
            clock: HotspotClock::Known { behind_ns: 1900, lookup_ns: 100 },
        };
        let pool = pool();
        behaves_like_a_map(&HotspotIndex::new(table(&pool), options.clone()).unwrap(), &pool, &steps);
        behaves_like_a_map(&HotspotIndex::new(tree(&pool), options).unwrap(), &pool, &steps);
    }
}

/// An index whose gets race, on request, with an update: after a get has read its value, and before it
/// returns, an update of the same key begins and ends.
struct Overtaken {
    behind: HashTable<WordKey>,
    meeting: Option<Meeting>,
}

/// Tells the updating thread that the value was read; waits until it has returned.
struct Meeting {
    was_read: std::sync::mpsc::SyncSender<()>,
    is_updated: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
    is_on: AtomicBool,
}

impl PointIndex for Overtaken {
    type Key = u64;
    const KEY_WORDS: usize = 1;

    fn key_words(key: u64) -> [u64; 2] {
        [key, 0]
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let value = self.behind.get(key);
        if let Some(meeting) = &self.meeting
            && meeting.is_on.swap(false, Ordering::SeqCst)
        {
            meeting.was_read.send(()).unwrap();
            meeting.is_updated.lock().unwrap().recv().unwrap();
        }
        Ok(value)
    }

    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    fn replace<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.replace(key, value, with)
    }

    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.remove(key, with)
    }
}

#[test]
fn a_value_that_was_read_before_an_update_is_not_kept_after_it() {
    for removes in [false, true] {
        let pool = pool();
        let (was_read, on_read) = std::sync::mpsc::sync_channel(0);
        let (updated, is_updated) = std::sync::mpsc::sync_channel(0);
        let meeting =
            Meeting { was_read, is_updated: std::sync::Mutex::new(is_updated), is_on: AtomicBool::new(true) };
        let behind = Overtaken { behind: table(&pool), meeting: Some(meeting) };
        let options = HotspotOptions { hot_after: 1, ..HotspotOptions::default() };
        let index = HotspotIndex::new(behind, options).unwrap();
        index.insert(7, 1, pool.publication()).unwrap();
        let (index, pool) = (&index, &pool);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                on_read.recv().unwrap();
                let old = if removes {
                    index.remove(7, pool.publication()).unwrap()
                } else {
                    index.replace(7, 2, pool.publication()).unwrap()
                };
                assert_eq!(old, Some(1));
                updated.send(()).unwrap();
            });
            assert_eq!(index.get(7).unwrap(), Some(1), "it began before the update");
        });
        let expected = if removes { None } else { Some(2) };
        assert_eq!([index.get(7).unwrap(), index.get(7).unwrap()], [expected; 2]);
    }
}

/// Two writers increment few keys, all of them hot, and remove and insert others again. The result of an
/// update is recorded; a get that begins later must not return less.
fn no_get_is_stale<I: PointIndex<Key = u64>>(behind: I, pool: &Arc<Pool>) {
    const COUNTED: u64 = 64;
    let options = HotspotOptions { budget_bytes: 80_000, hot_after: 1, ..HotspotOptions::default() };
    let index = HotspotIndex::new(behind, options).unwrap();
    for key in 0..COUNTED {
        index.insert(key, 0, pool.publication()).unwrap();
    }
    let returned: Vec<AtomicU64> = (0..COUNTED).map(|_| AtomicU64::new(0)).collect();
    let (index, returned, stop) = (&index, &returned, AtomicBool::new(false));
    let stop = &stop;
    std::thread::scope(|scope| {
        let write = |writer: u64| {
            let env = Env::simulated(5 + writer);
            for value in 1..=60_000 {
                let key = env.random_u64() % (COUNTED / 2) * 2 + writer;
                if value % 5 == 0 {
                    // While it is removed, a get may find nothing, but never the value before.
                    assert!(index.remove(key, pool.publication()).unwrap().is_some());
                    assert_eq!(index.get(key).unwrap(), None);
                    index.insert(key, value, pool.publication()).unwrap();
                } else {
                    assert!(index.replace(key, value, pool.publication()).unwrap().is_some());
                }
                returned[key as usize].store(value, Ordering::SeqCst);
                assert_eq!(index.get(key).unwrap(), Some(value));
            }
        };
        let writers: Vec<_> = (0..2).map(|writer| scope.spawn(move || write(writer))).collect();
        for reader in 0..2 {
            scope.spawn(move || {
                let env = Env::simulated(50 + reader);
                while !stop.load(Ordering::Relaxed) {
                    let key = env.random_u64() % COUNTED;
                    let at_least = returned[key as usize].load(Ordering::SeqCst);
                    let seen = index.get(key).unwrap();
                    assert!(seen.is_none_or(|seen| seen >= at_least), "{seen:?} after {at_least}");
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    for (key, value) in (0..).zip(returned) {
        let value = Some(value.load(Ordering::SeqCst));
        assert_eq!((index.get(key).unwrap(), index.behind().get(key).unwrap()), (value, value));
    }
}

#[test]
fn no_get_is_older_than_a_returned_update_of_a_hash_table() {
    let pool = pool();
    no_get_is_stale(table(&pool), &pool);
}

#[test]
fn no_get_is_older_than_a_returned_update_of_a_tree() {
    let pool = pool();
    no_get_is_stale(tree(&pool), &pool);
}
