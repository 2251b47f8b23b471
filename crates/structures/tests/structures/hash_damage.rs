//! Damaged hash tables: a clear error, no panic, and nothing is written to them.

use entresol_memory::{Env, Pool, PoolOffset, PoolOptions};
use entresol_structures::{Error, FpTree, HashTable, PairKey, WordKey};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Offset in a table's header of the reference to its first segment.
const FIRST_SEGMENT: u64 = 24;
/// Offset in a segment of the reference to the next one.
const NEXT_SEGMENT: u64 = 16;
const SEGMENT_BYTES: u64 = 16 << 10;
const KEYS: u64 = 1500;

struct Whole {
    pool: Arc<Pool>,
    root: PoolOffset,
    segments: Vec<PoolOffset>,
}

fn whole() -> Whole {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(9), ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(&pool, &mut publication).unwrap();
    publication.publish().unwrap();
    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
    for key in 0..KEYS {
        table.insert(key, !key, pool.publication()).unwrap();
    }
    let word = |offset| PoolOffset::from_word(pool.word(offset).load(Ordering::Relaxed));
    let follow = |segment: &PoolOffset| word(segment.plus(NEXT_SEGMENT)).non_null();
    let segments: Vec<PoolOffset> =
        std::iter::successors(Some(word(root.plus(FIRST_SEGMENT))), follow).collect();
    assert!(segments.len() >= 3);
    Whole { pool, root, segments }
}

/// Flips a bit, calls a function, and flips it back.
fn flipped<T>(pool: &Pool, word: PoolOffset, bit: u32, look: impl FnOnce() -> T) -> T {
    pool.word(word).fetch_xor(1 << bit, Ordering::Relaxed);
    let seen = look();
    pool.word(word).fetch_xor(1 << bit, Ordering::Relaxed);
    seen
}

#[test]
fn every_flipped_bit_of_a_header_is_found_when_the_table_is_opened() {
    let Whole { pool, root, segments } = whole();
    let header = (0..5).map(|word| root.plus(word * 8));
    let segment_headers = segments.iter().flat_map(|segment| (0..3).map(move |word| segment.plus(word * 8)));
    for word in header.chain(segment_headers) {
        for bit in 0..64 {
            if segments.contains(&word) && bit == 8 {
                // "Divided": opening searches for moved entries, finds none, and clears the mark.
                flipped(&pool, word, bit, || {
                    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
                    table.check(|_| {}).unwrap();
                    pool.word(word).fetch_xor(1 << bit, Ordering::Relaxed);
                });
                continue;
            }
            let error = flipped(&pool, word, bit, || HashTable::<WordKey>::open(&pool, root).err());
            assert!(matches!(error, Some(Error::Corrupt { .. })), "bit {bit} of {word:#x}: {error:?}");
        }
    }
    HashTable::<WordKey>::open(&pool, root).unwrap().check(|_| {}).unwrap();
}

#[test]
fn flipped_bits_of_buckets_are_found_by_the_check_or_change_a_value() {
    let Whole { pool, root, segments } = whole();
    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
    let sum = || (0..KEYS).filter(|key| table.get(*key) == Some(!key)).count() as u64;
    let env = Env::simulated(4);
    let (mut found, mut unused) = (0, 0);
    for round in 0..4000 {
        let segment = segments[(env.random_u64() % segments.len() as u64) as usize];
        let word = segment.plus(128 + env.random_u64() % ((SEGMENT_BYTES - 128) / 8) * 8);
        let bit = (env.random_u64() % 64) as u32;
        let (check, right) = flipped(&pool, word, bit, || (table.check(|_| {}), sum()));
        // One bit affects one entry; or none, where nothing is stored, or a distance without an entry.
        assert!(right + 1 >= KEYS, "round {round}: bit {bit} of {word:#x} hides {} keys", KEYS - right);
        match check {
            Err(Error::Corrupt { .. }) => found += 1,
            Err(other) => panic!("{other}"),
            Ok(()) => unused += 1,
        }
    }
    assert!(found > 400 && unused > 400, "{found} found, {unused} values or unused words");
    assert_eq!(sum(), KEYS);
    table.check(|_| {}).unwrap();
}

#[test]
fn operations_on_damaged_buckets_do_not_panic() {
    let env = Env::simulated(5);
    for round in 0..40 {
        let Whole { pool, root, segments } = whole();
        let table = HashTable::<WordKey>::open(&pool, root).unwrap();
        for _ in 0..200 {
            let segment = segments[(env.random_u64() % segments.len() as u64) as usize];
            let word = segment.plus(128 + env.random_u64() % 127 * 128 + if round % 2 == 0 { 0 } else { 56 });
            pool.word(word).fetch_xor(env.random_u64(), Ordering::Relaxed);
        }
        // Bits and fingerprints, or distances; of the latter some may be wrong without harm.
        assert!(round % 2 == 1 || table.check(|_| {}).is_err());
        for number in 0..3000 {
            let key = env.random_u64() % (2 * KEYS);
            match number % 4 {
                0 => drop(table.insert(key, 1, pool.publication())),
                1 => drop(table.replace(key, 2, pool.publication())),
                2 => drop(table.remove(key, pool.publication())),
                _ => {
                    table.get(key);
                }
            }
        }
        drop(table.check(|_| {}));
        table.stats();
        table.scan_batch(0, &mut Vec::new());
    }
}

#[test]
fn wild_references_and_rings_are_found() {
    for wild in [1 << 40, 3, u64::MAX - 63, 64] {
        let Whole { pool, root, segments } = whole();
        pool.word(segments[1].plus(NEXT_SEGMENT)).store(wild, Ordering::Relaxed);
        assert!(matches!(HashTable::<WordKey>::open(&pool, root), Err(Error::Corrupt { .. })));
        assert!(matches!(
            HashTable::<WordKey>::open(&pool, PoolOffset::from_word(wild)),
            Err(Error::Corrupt { .. })
        ));
    }
    let Whole { pool, root, segments } = whole();
    pool.word(segments[1].plus(NEXT_SEGMENT)).store(segments[0].to_word(), Ordering::Relaxed);
    let error = HashTable::<WordKey>::open(&pool, root).err().unwrap();
    assert!(error.to_string().contains("cycle"), "{error}");
}

#[test]
fn other_kinds_of_keys_and_of_structures_are_refused() {
    let Whole { pool, root, .. } = whole();
    let error = HashTable::<PairKey>::open(&pool, root).err().unwrap();
    assert!(error.to_string().contains("keys have 8 bytes; it was opened for keys of 16"), "{error}");
    let error = HashTable::<PairKey>::destroy_step(&pool, root, true, 1).unwrap_err();
    assert!(error.to_string().contains("keys have 8 bytes"), "{error}");
    assert!(matches!(FpTree::<WordKey>::open(&pool, root, 0), Err(Error::Corrupt { .. })));
    let mut publication = pool.publication();
    let tree = FpTree::<WordKey>::create(&pool, 0, &mut publication).unwrap();
    publication.publish().unwrap();
    let error = HashTable::<WordKey>::open(&pool, tree).err().unwrap();
    assert!(error.to_string().contains("header"), "{error}");
}
