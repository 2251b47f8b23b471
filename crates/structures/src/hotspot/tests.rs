//! Tests under a scheduler that chooses the next thread at every atomic access: no get returns an older value
//! than a get before it.

#![allow(clippy::unwrap_used)]

use super::*;
use entresol_memory::{Pool, PoolOptions};
use shuttle::thread;
use std::sync::{Arc, Mutex};

/// A register for each key; an access is one step, and is recorded.
struct Registers {
    /// For each key: values in the order in which they were written.
    written: [Mutex<Vec<Option<u64>>>; 2],
}

impl Registers {
    fn change(&self, key: u64, value: Option<u64>) -> Option<u64> {
        thread::yield_now();
        let mut written = self.written[(key >> 40) as usize].lock().unwrap();
        let old = *written.last().unwrap();
        if old.is_some() {
            written.push(value);
        }
        drop(written);
        thread::yield_now();
        old
    }

    fn now(&self, key: u64) -> (Option<u64>, usize) {
        let written = self.written[(key >> 40) as usize].lock().unwrap();
        (*written.last().unwrap(), written.len() - 1)
    }

    /// Returns the position of a value among those written.
    fn position(&self, key: u64, value: Option<u64>) -> usize {
        let written = self.written[(key >> 40) as usize].lock().unwrap();
        written.iter().rposition(|other| *other == value).expect("only what was written is seen")
    }
}

impl PointIndex for Arc<Registers> {
    type Key = u64;
    const KEY_WORDS: usize = 1;

    fn key_words(key: u64) -> [u64; 2] {
        [key, 0]
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        thread::yield_now();
        let value = self.now(key).0;
        thread::yield_now();
        Ok(value)
    }

    fn insert<'p>(&'p self, key: u64, value: u64, _: Publication<'p>) -> Result<Inserted> {
        let mut written = self.written[(key >> 40) as usize].lock().unwrap();
        match *written.last().unwrap() {
            Some(old) => Ok(Inserted::Exists(old)),
            None => {
                written.push(Some(value));
                Ok(Inserted::New)
            }
        }
    }

    fn replace<'p>(&'p self, key: u64, value: u64, _: Publication<'p>) -> Result<Option<u64>> {
        Ok(self.change(key, Some(value)))
    }

    fn remove<'p>(&'p self, key: u64, _: Publication<'p>) -> Result<Option<u64>> {
        Ok(self.change(key, None))
    }
}

/// Keys of the same shard and the same word of changes, or just of the same shard.
fn keys(same_word: bool) -> [u64; 2] {
    let hash = |key: u64| HashedKey::new([key, 0], 1).hash;
    let first = hash(1);
    let fits = |key: &u64| {
        let word = |hash: u64| (hash >> 20) as usize % changes::CHANGE_WORDS;
        hash(*key) >> 56 == first >> 56 && (word(hash(*key)) == word(first)) == same_word
    };
    [1, (1 << 40..).find(fits).unwrap()]
}

type Index = HotspotIndex<Arc<Registers>>;

/// An index over two registers, in which every get makes a key hot.
fn index() -> (Arc<Index>, Arc<Registers>) {
    let registers = Arc::new(Registers { written: [Mutex::new(vec![Some(0)]), Mutex::new(vec![Some(0)])] });
    let options = HotspotOptions {
        budget_bytes: 96 << 10,
        period_queries: 1 << 20,
        hot_after: 1,
        clock: Clock::Known { behind_ns: 1, lookup_ns: 1 },
    };
    (Arc::new(HotspotIndex::new(registers.clone(), options).unwrap()), registers)
}

fn pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

/// Two writers, two readers that fill and hit, and a thread that empties the shards as a bypass does.
fn nothing_goes_back(pool: &Arc<Pool>, same_word: bool, removes: bool) {
    let (index, registers) = index();
    let keys = keys(same_word);
    let writer = |number: u64| {
        let (index, registers, pool) = (index.clone(), registers.clone(), pool.clone());
        thread::spawn(move || {
            for step in 0..3 {
                let (key, value) = (keys[(number + step) as usize % 2], 10 * (number + 1) + step);
                // While one thread has removed it, the other finds no key to change.
                let has_written = if removes && step == 1 && number == 0 {
                    index.remove(key, pool.publication()).unwrap();
                    index.insert(key, value, pool.publication()).unwrap() == Inserted::New
                } else {
                    index.replace(key, value, pool.publication()).unwrap().is_some()
                };
                if !has_written {
                    continue;
                }
                let written = registers.position(key, Some(value));
                let seen = registers.position(key, index.get(key).unwrap());
                assert!(seen >= written, "a writer sees its own write, or a later one");
            }
        })
    };
    let reader = |rounds: usize| {
        let (index, registers) = (index.clone(), registers.clone());
        thread::spawn(move || {
            let mut before = [0; 2];
            for round in 0..rounds {
                let key = keys[round % 2];
                let value = index.get(key).unwrap();
                let seen = registers.position(key, value);
                assert!(seen >= before[round % 2], "{value:?} is older than what the last get saw");
                before[round % 2] = seen;
            }
        })
    };
    let clearing = {
        let index = index.clone();
        thread::spawn(move || {
            let shard = &index.shards[HashedKey::new([1, 0], 1).hash as usize >> 56];
            shard.close();
            shard.open();
        })
    };
    let all = [writer(0), writer(1), reader(6), reader(6), clearing];
    all.into_iter().for_each(|thread| thread.join().unwrap());
    for key in keys {
        assert_eq!(index.get(key).unwrap(), registers.now(key).0, "nothing stale stays");
    }
}

fn any_schedule(same_word: bool, removes: bool) {
    let pool = pool();
    let other = pool.clone();
    shuttle::check_random(move || nothing_goes_back(&pool, same_word, removes), 1500);
    shuttle::check_pct(move || nothing_goes_back(&other, same_word, removes), 700, 4);
}

#[test]
fn no_get_goes_back_under_any_schedule_of_keys_that_share_a_word() {
    any_schedule(true, false);
}

#[test]
fn no_get_goes_back_under_any_schedule_of_keys_of_one_shard() {
    any_schedule(false, true);
}

mod shards {
    use super::super::shard::*;
    use super::*;

    fn wanted(number: u64) -> HashedKey {
        HashedKey { hash: number | number << 33, ..HashedKey::new([number, 0], 1) }
    }

    #[test]
    fn the_oldest_is_evicted_and_a_renewed_one_stays() {
        shuttle::check_random(
            || {
                let (shard, changes) = (Shard::new(1, 1), Changes::new());
                let fill = |i: u64| shard.fill(wanted(i), i * 10, changes.note(wanted(i).hash));
                assert!((0..6).all(fill));
                let warm = |i: u64| shard.find(wanted(i)).unwrap().is_warm;
                assert!(warm(0) && !warm(5));
                shard.renew(wanted(0));
                assert!(!warm(0));
                assert!(fill(6));
                assert!(shard.find(wanted(1)).is_none(), "the oldest that nobody asked for");
                assert_eq!(shard.find(wanted(0)).unwrap().value, 0);
                assert_eq!(shard.entries(), 6);
                shard.close();
                assert!(shard.entries() == 0 && !fill(6), "a closed one takes nothing");
                shard.open();
                assert!(fill(6) && shard.find(wanted(6)).is_some());
            },
            1,
        );
    }

    #[test]
    fn values_read_before_a_change_are_not_cached_and_updates_reach_entries() {
        shuttle::check_random(
            || {
                let (shard, changes) = (Shard::new(2, 1), Changes::new());
                let five = wanted(5);
                let snapshot = changes.note(five.hash);
                drop(changes.begin(five.hash));
                assert!(!shard.fill(five, 1, snapshot) && shard.find(five).is_none());
                assert!(shard.fill(five, 1, changes.note(five.hash)));
                let change = changes.begin(five.hash);
                assert!(!changes.note(five.hash).holds(), "while a change is under way nothing is believed");
                assert!(!shard.fill(five, 1, changes.note(five.hash)));
                assert!(shard.settle(five, Some(2), &change));
                assert_eq!(shard.find(five).unwrap().value, 2);
                drop(changes.begin(five.hash));
                assert!(
                    shard.settle(five, Some(3), &change) && shard.find(five).is_none(),
                    "it is not alone"
                );
                drop(change);
                assert!(shard.fill(five, 1, changes.note(five.hash)));
                assert!(shard.settle(five, None, &changes.begin(five.hash)) && shard.find(five).is_none());
            },
            1,
        );
    }

    /// An entry removed by a change must not reappear at another place.
    #[test]
    fn an_entry_that_moves_does_not_escape_a_change() {
        let round = || {
            let (shard, changes) = (Arc::new(Shard::new(2, 1)), Arc::new(Changes::new()));
            assert!((0..3).all(|i| shard.fill(wanted(i), i, changes.note(wanted(i).hash))));
            let (moved, changed) = (shard.clone(), shard.clone());
            let moving = thread::spawn(move || moved.renew(wanted(0)));
            let changing = thread::spawn(move || {
                let change = changes.begin(wanted(0).hash);
                changed.settle(wanted(0), None, &change);
                assert!(changed.find(wanted(0)).is_none());
            });
            moving.join().unwrap();
            changing.join().unwrap();
            assert!(shard.find(wanted(0)).is_none());
        };
        shuttle::check_pct(round, 10_000, 3);
    }

    #[test]
    fn features_count_within_a_period_and_keep_the_hottest() {
        shuttle::check_random(
            || {
                let shard = Shard::new(1, 1);
                assert_eq!([9, 9, 11].map(|hash| shard.note_query(hash, 1)), [1, 2, 1]);
                (100..120).for_each(|hash| assert_eq!(shard.note_query(hash, 1), 1));
                assert_eq!(shard.note_query(9, 1), 3, "keys that were asked for once make room first");
                assert_eq!(
                    [2, 4, 4, 6].map(|period| shard.note_query(9, period)),
                    [4, 1, 2, 1],
                    "and the one before"
                );
            },
            1,
        );
    }
}
