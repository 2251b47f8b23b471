//! Tests of tables under the crash checker, with the mutants that it must find.
//!
//! All keys belong to a few neighbouring homes, so that a handful of them fills a segment: short histories
//! have displaced entries, splits and a directory that doubles, and the checker can crash at every fence of
//! them.

#![allow(clippy::unwrap_used)]

use super::key::Hash;
use super::*;
use crate::key::{PairKey, WordKey};
use entresol_memory::crash::{CrashOptions, CrashReport, check, seeds};
use entresol_memory::{Env, Error as MemoryError, PoolOptions};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

/// Keys that tests make from numbers.
trait Numbered: HashKey {
    fn numbered(number: u64) -> Self::Stored;
    fn key(stored: Self::Stored) -> Self::Key<'static>;
}

impl Numbered for WordKey {
    fn numbered(number: u64) -> u64 {
        number
    }

    fn key(stored: u64) -> u64 {
        stored
    }
}

impl Numbered for PairKey {
    fn numbered(number: u64) -> [u64; 2] {
        [number / 5, number]
    }

    fn key(stored: [u64; 2]) -> [u64; 2] {
        stored
    }
}

fn new_table<K: HashKey>(pool: &Arc<Pool>) -> HashTable<K> {
    let mut publication = pool.publication();
    let root = HashTable::<K>::create(pool, &mut publication).unwrap();
    publication.set_root("table", root).unwrap();
    publication.publish().unwrap();
    HashTable::open(pool, root).unwrap()
}

/// Returns the first keys, as numbers, whose homes are among the first few.
fn crowded<K: Numbered>(table: &HashTable<K>, homes: usize, count: usize) -> Vec<u64> {
    (0..).filter(|number| table.hash(K::numbered(*number)).home() < homes).take(count).collect()
}

type Model = BTreeMap<u64, u64>;

#[derive(Debug, Clone, Copy)]
enum Step {
    Insert(u64, u64),
    Replace(u64, u64),
    Remove(u64),
}

impl Step {
    fn apply(self, model: &mut Model) {
        match self {
            Step::Insert(number, value) => {
                model.entry(number).or_insert(value);
            }
            Step::Replace(number, value) => {
                if let Some(slot) = model.get_mut(&number) {
                    *slot = value;
                }
            }
            Step::Remove(number) => {
                model.remove(&number);
            }
        }
    }

    fn apply_to<K: Numbered>(self, table: &HashTable<K>, pool: &Arc<Pool>) {
        let key = |number| K::key(K::numbered(number));
        match self {
            Step::Insert(number, value) => {
                table.insert(key(number), value, pool.publication()).unwrap();
            }
            Step::Replace(number, value) => {
                table.replace(key(number), value, pool.publication()).unwrap();
            }
            Step::Remove(number) => {
                table.remove(key(number), pool.publication()).unwrap();
            }
        }
    }
}

#[derive(Default)]
struct Progress {
    model: Model,
    in_flight: Option<Step>,
    depth: u32,
    displaced: u64,
}

fn contents<K: Numbered>(table: &HashTable<K>) -> Result<Model> {
    let (mut entries, mut position) = (Vec::new(), Some(0));
    while let Some(from) = position {
        position = table.scan_batch(from, &mut entries);
    }
    let model: Model = entries.iter().map(|(key, value)| (K::word(*key, K::WORDS - 1), *value)).collect();
    assert_eq!(model.len(), entries.len(), "no key is seen twice");
    Ok(model)
}

fn verify<K: Numbered>(pool: &Arc<Pool>, progress: &Progress) -> std::result::Result<(), String> {
    let Some(root) = pool.root("table") else {
        return if progress.model.is_empty() { Ok(()) } else { Err("the table is gone".to_string()) };
    };
    let table = HashTable::<K>::open(pool, root).map_err(|e| e.to_string())?;
    let mut own = BTreeSet::new();
    let mut claim = |offset| {
        own.insert(offset);
    };
    table.check(&mut claim).map_err(|e| e.to_string())?;
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own != allocated {
        return Err(format!("the table owns {own:?}, allocated are {allocated:?}"));
    }
    let mut found = contents(&table).map_err(|e| e.to_string())?;
    // From the probe below, when the power failed again during it.
    found.remove(&u64::MAX);
    let mut after = progress.model.clone();
    if let Some(step) = progress.in_flight {
        step.apply(&mut after);
    }
    if found != progress.model && found != after {
        return Err(format!("found {found:?}, expected {:?} or {after:?}", progress.model));
    }
    // No latch or partial change blocks a writer afterwards.
    let probe = K::key(K::numbered(u64::MAX));
    table.insert(probe, 1, pool.publication()).map_err(|e| e.to_string())?;
    if table.get(probe) != Some(1) {
        return Err(format!("a key inserted after the crash has the value {:?}", table.get(probe)));
    }
    Ok(())
}

/// A seeded history that grows, churns and shrinks.
fn history(numbers: &[u64], steps: u64, seed: u64) -> Vec<Step> {
    let env = Env::simulated(seed);
    let grown = numbers.len() as u64;
    let churn = (grown..steps).map(|i| {
        let number = numbers[(env.random_u64() % grown) as usize];
        match env.random_u64() % 8 {
            0..3 => Step::Remove(number),
            3..5 => Step::Replace(number, i),
            _ => Step::Insert(number, i),
        }
    });
    let growth = numbers.iter().zip(0..).map(|(number, i)| Step::Insert(*number, i));
    growth.chain(churn).collect()
}

fn run<K: Numbered>(
    homes: usize,
    keys: usize,
    steps: u64,
    options: &CrashOptions,
) -> (std::result::Result<CrashReport, MemoryError>, Progress) {
    let progress = Arc::new(RwLock::new(Progress::default()));
    let (seen, shared) = (progress.clone(), progress.clone());
    let seed = options.seed;
    let report = check(
        options,
        move |pool| {
            let table = new_table::<K>(pool);
            for step in history(&crowded(&table, homes, keys), steps, seed) {
                progress.write().in_flight = Some(step);
                step.apply_to(&table, pool);
                let stats = table.stats();
                let mut progress = progress.write();
                step.apply(&mut progress.model);
                progress.in_flight = None;
                progress.depth = stats.depth;
                progress.displaced = stats.displaced.max(progress.displaced);
            }
            Ok(())
        },
        move |pool| verify::<K>(pool, &seen.read_recursive()),
    );
    (report, Arc::try_unwrap(shared).map_or_else(|_| Progress::default(), RwLock::into_inner))
}

fn options() -> CrashOptions {
    CrashOptions { random_states: 2, crash_recovery_every: 41, ..CrashOptions::default() }
}

/// Checks histories of several seeds, until enough states were checked.
fn survives<K: Numbered>(homes: usize, keys: usize, steps: u64, states_min: u64) {
    let mut total = CrashReport::default();
    let (mut depth, mut displaced) = (0, 0);
    for seed in seeds(4) {
        let (report, progress) = run::<K>(homes, keys, steps, &CrashOptions { seed, ..options() });
        total.add(&report.unwrap());
        depth = progress.depth.max(depth);
        displaced = progress.displaced.max(displaced);
    }
    println!("{total:?}, depth {depth}, {displaced} displaced");
    assert!(total.explored(states_min), "{total:?}");
    assert!(total.replayed || (depth >= 3 && displaced > 5), "the histories split, double and displace");
}

#[test]
fn eight_byte_keys_survive_every_fence_of_splits_and_doublings() {
    survives::<WordKey>(2, 120, 1100, 10_000);
}

#[test]
fn sixteen_byte_keys_survive_every_fence_of_splits_and_doublings() {
    survives::<PairKey>(3, 120, 1100, 10_000);
}

/// Among them bugs of Level Hashing, CCEH and P-CLHT: entries that count before they are flushed, lost bits
/// and removals, displaced entries that are not found, splits that lose keys or leave them twice.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_the_table_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let short =
        || run::<WordKey>(1, 30, 60, &CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() }).0;
    short().unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::Hash, short) >= 9);
}

#[test]
fn room_that_is_reserved_survives_every_fence() {
    let options = CrashOptions { random_states: 3, crash_recovery_every: 13, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        let table = new_table::<WordKey>(pool);
        (0..20).for_each(|number| {
            table.insert(number, number, pool.publication()).expect("room for a key");
        });
        table.reserve(5000).expect("room for segments");
        let stats = table.stats();
        assert!(stats.segments == 8 && stats.depth == 3 && stats.slots * 3 / 4 >= 5000, "{stats:?}");
        Ok(())
    };
    let full: Model = (0..20).map(|number| (number, number)).collect();
    let verified = move |pool: &Arc<Pool>| {
        let Some(root) = pool.root("table") else { return Ok(()) };
        let table = HashTable::<WordKey>::open(pool, root).map_err(|e| e.to_string())?;
        let mut own = BTreeSet::new();
        let mut claim = |offset| {
            own.insert(offset);
        };
        table.check(&mut claim).map_err(|e| e.to_string())?;
        let mut allocated = BTreeSet::new();
        pool.for_each_object(|offset, _| {
            allocated.insert(offset);
        });
        let found = contents(&table).map_err(|e| e.to_string())?;
        let is_whole = own == allocated
            && found.iter().zip(&full).all(|(a, b)| a == b)
            && (own.len() == 2 || found.len() == full.len());
        if is_whole { Ok(()) } else { Err(format!("{} segments with {found:?}", own.len() - 1)) }
    };
    let report = check(&options, history, verified).unwrap();
    assert!(report.states > 200, "{report:?}");
}

/// Verifies that every allocated object belongs to the table, once: as header, segment or value of a valid
/// key.
fn owns_all(pool: &Arc<Pool>) -> std::result::Result<(), String> {
    let mut own = Vec::new();
    if let Some(root) = pool.root("table") {
        let seed = pool.word(root.plus(8)).load(std::sync::atomic::Ordering::Relaxed);
        own.push(root);
        let mut at =
            PoolOffset::from_word(pool.word(root.plus(24)).load(std::sync::atomic::Ordering::Relaxed));
        while !at.is_null() {
            let segment = Segment::<WordKey>::at(pool, at);
            own.push(at);
            for bucket in segment.buckets() {
                let slots = crate::leaf::bits(bucket.valid());
                let counts = |slot: &usize| segment.has(Hash::of::<WordKey>(bucket.key(*slot), seed));
                own.extend(slots.filter(counts).map(|slot| PoolOffset::from_word(bucket.value(slot))));
            }
            at = segment.next();
        }
    }
    let mut allocated = Vec::new();
    pool.for_each_object(|offset, _| allocated.push(offset));
    own.sort_unstable();
    if own == allocated {
        Ok(())
    } else {
        Err(format!("the table owns {own:x?}, allocated are {allocated:x?}"))
    }
}

#[test]
fn a_table_that_is_being_destroyed_owns_what_is_left() {
    let options = CrashOptions { random_states: 3, crash_recovery_every: 13, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        let table = new_table::<WordKey>(pool);
        for number in crowded(&table, 3, 120) {
            let object = pool.reserve(64)?;
            let mut with = pool.publication();
            let value = with.allocate(object);
            table.insert(number, value.to_word(), with).expect("room for a key");
        }
        let root = table.root_offset();
        assert!(table.stats().segments > 2);
        drop(table);
        while !HashTable::<WordKey>::destroy_step(pool, root, true, 1).expect("the table is sound") {}
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root("table", PoolOffset::NULL)?;
        publication.publish()
    };
    let report = check(&options, history, owns_all).unwrap();
    assert!(report.states > 2000, "{report:?}");
}

/// Inverse of [`super::key::scramble`].
fn unscramble(mut word: u64) -> u64 {
    // The odd factor's inverse modulo 2^64, by Newton's iteration.
    let factor = 0xD6E8_FEB8_6659_FD93u64;
    let inverse = (0..6).fold(factor, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
    word ^= word >> 32;
    for _ in 0..2 {
        word = word.wrapping_mul(inverse);
        word ^= word >> 32;
    }
    word
}

#[test]
fn keys_made_to_collide_are_refused_before_they_take_all_memory() {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(3), ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    let table = new_table::<WordKey>(&pool);
    // With a known seed one could make hashes that differ in their last bits only.
    let key = |number: u64| unscramble(number) ^ table.seed;
    assert_eq!(table.hash(key(17)), Hash(17));
    let refused = (0..100).find_map(|number| table.insert(key(number), number, pool.publication()).err());
    let error = refused.expect("no split can part them");
    assert!(error.to_string().contains("not uniformly distributed"), "{error}");
    let stats = table.stats();
    assert!(stats.directory_bytes < 1 << 20, "{stats:?}");
    assert_eq!(stats.keys, 15, "what fits a home and its places");
    table.check(|_| {}).unwrap();
    HashTable::<WordKey>::open(&pool, table.root_offset()).unwrap().check(|_| {}).unwrap();
}

/// Displaced keys, missing ones beside them and keys at home, mixed: each value is returned at its key's
/// index.
#[test]
fn many_lookups_find_displaced_keys_at_their_places() {
    fn agree<K: Numbered>() {
        let options = PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() };
        let pool = Pool::volatile(&options).unwrap();
        let table = new_table::<K>(&pool);
        for number in
            (0..3_000).step_by(2).chain(crowded(&table, 6, 80).into_iter().map(|number| number & !1))
        {
            table.insert(K::key(K::numbered(number)), number + 7, pool.publication()).unwrap();
        }
        assert!(table.stats().displaced > 20, "{:?}", table.stats());
        let env = Env::simulated(3);
        let mut values = Vec::new();
        for count in [0, 1, 30, 500] {
            let wanted: Vec<u64> = (0..count).map(|_| env.random_u64() % 3_000).collect();
            table.get_many(wanted.iter().map(|number| K::key(K::numbered(*number))), &mut values);
            let right = wanted.iter().map(|number| number.is_multiple_of(2).then_some(number + 7));
            assert!(right.eq(values.iter().copied()), "{count} keys");
        }
    }
    agree::<WordKey>();
    agree::<PairKey>();
}
