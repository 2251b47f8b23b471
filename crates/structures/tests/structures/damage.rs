//! Damaged trees are found when they are opened, and never written to.

use entresol_memory::{Env, Pool, PoolOffset, PoolOptions};
use entresol_structures::{ByteKey, Error, FpTree, KEY_BYTES_MAX, KeyWidth, OrderedIndex, PairKey, WordKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Offset in a leaf of the reference to the next one.
const NEXT_LEAF: u64 = 64;

/// Creates a tree of `keys` keys; returns it with its root offset and that of its first leaf.
fn tree(keys: u64) -> (Arc<Pool>, PoolOffset, PoolOffset) {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication).unwrap();
    publication.set_root("index", root).unwrap();
    publication.publish().unwrap();
    let index = OrderedIndex::open(&pool, root).unwrap();
    for key in 0..keys {
        index.insert(&key.to_be_bytes(), key, pool.publication()).unwrap();
    }
    let first = PoolOffset::from_word(pool.word(root.plus(8)).load(Ordering::Relaxed));
    (pool, root, first)
}

fn assert_corrupt(pool: &Arc<Pool>, root: PoolOffset) {
    assert!(matches!(OrderedIndex::open(pool, root), Err(Error::Corrupt { .. })));
}

#[test]
fn wild_references_are_found() {
    for wild in [1 << 40, 3, u64::MAX - 63] {
        let (pool, root, first) = tree(200);
        pool.word(first.plus(NEXT_LEAF)).store(wild, Ordering::Relaxed);
        assert_corrupt(&pool, root);
        let (pool, root, _) = tree(200);
        pool.word(root.plus(8)).store(wild, Ordering::Relaxed);
        assert_corrupt(&pool, root);
        assert_corrupt(&pool, PoolOffset::from_word(wild));
    }
    let (pool, root, _) = tree(200);
    pool.word(root.plus(8)).store(0, Ordering::Relaxed);
    assert_corrupt(&pool, root);
}

#[test]
fn a_ring_of_leaves_and_a_stray_bit_are_found() {
    let (pool, root, first) = tree(200);
    pool.word(first.plus(NEXT_LEAF)).store(first.to_word(), Ordering::Relaxed);
    assert_corrupt(&pool, root);
    let (pool, root, first) = tree(27);
    pool.word(first).fetch_or(1 << 60, Ordering::Relaxed);
    assert_corrupt(&pool, root);
}

/// Key `number`: the first eight bytes are unique.
fn long_key(number: u64) -> Vec<u8> {
    [&(PREFIX + number).to_be_bytes()[..], b" and a tail"].concat()
}

const PREFIX: u64 = 0xABCD_EF01_0000_0000;

#[test]
fn a_wild_key_record_is_reported_and_matches_nothing() {
    const KEYS: u64 = 200;
    for (damaged, wild) in [(0, 1 << 40), (20, 3), (77, 0), (199, u64::MAX - 63), (120, 64)] {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let mut publication = pool.publication();
        let root = OrderedIndex::create(&pool, KeyWidth::Variable, &mut publication).unwrap();
        publication.publish().unwrap();
        let index = OrderedIndex::open(&pool, root).unwrap();
        for number in 0..KEYS {
            index.insert(&long_key(number), number, pool.publication()).unwrap();
        }
        index.check(|_| {}).unwrap();
        // All copies of it: in its leaf, and as the low key of one.
        let words = (0..pool.bytes() / 8 - 1).map(|word| PoolOffset::new(word * 8));
        let stored: Vec<PoolOffset> =
            words.filter(|at| pool.word(*at).load(Ordering::Relaxed) == PREFIX + damaged).collect();
        assert!(!stored.is_empty());
        stored.iter().for_each(|at| pool.word(at.plus(8)).store(wild, Ordering::Relaxed));
        for index in [index, OrderedIndex::open(&pool, root).unwrap()] {
            for number in 0..KEYS {
                let expected = Some(number).filter(|number| *number != damaged);
                assert_eq!(index.get(&long_key(number)).unwrap(), expected);
            }
            assert_eq!(index.get(&(PREFIX + damaged).to_be_bytes()).unwrap(), None);
            let mut entries = Vec::new();
            let mut next = index.scan_batch(Bound::Unbounded, &mut entries).unwrap();
            while let Some(from) = next {
                next = index.scan_batch(Bound::Included(&from), &mut entries).unwrap();
            }
            let values: Vec<u64> = entries.iter().map(|(_, value)| *value).collect();
            assert_eq!(values, (0..KEYS).collect::<Vec<_>>());
            assert!(matches!(index.check(|_| {}), Err(Error::Corrupt { .. })));
            assert_eq!(index.remove(&long_key(damaged), pool.publication()).unwrap(), None);
        }
        // Others are inserted all around it; a split right there is an error, and changes nothing.
        let index = OrderedIndex::open(&pool, root).unwrap();
        for number in 0..2_000 {
            let key = [long_key(damaged), number.to_string().into_bytes()].concat();
            match index.insert(&key, number, pool.publication()) {
                Ok(_) => assert_eq!(index.get(&key).unwrap(), Some(number)),
                Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
            }
        }
        drop(index);
        while !OrderedIndex::destroy_step(&pool, root, false, 10).unwrap() {}
    }
}

/// An index of 300 keys whose widest have 16 bytes.
fn index_of(width: KeyWidth) -> (Arc<Pool>, PoolOffset, Vec<Vec<u8>>) {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let mut publication = pool.publication();
    let root = OrderedIndex::create(&pool, width, &mut publication).unwrap();
    publication.set_root("index", root).unwrap();
    publication.publish().unwrap();
    let index = OrderedIndex::open(&pool, root).unwrap();
    let key = |number: u64| match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        _ => format!("number {number:06}").into_bytes(),
    };
    let keys: Vec<Vec<u8>> = (0..300).map(|i| key(i * 7 % 300)).collect();
    for key in &keys {
        index.insert(key, 1, pool.publication()).unwrap();
    }
    (pool, root, keys)
}

/// One flipped bit anywhere: opening and checking end, with an error or with a readable tree.
#[test]
fn flipped_bits_are_errors_or_harmless_and_never_panic() {
    for width in [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable] {
        let (pool, root, keys) = index_of(width);
        let mut objects = BTreeMap::new();
        pool.for_each_object(|offset, bytes| {
            objects.insert(offset, bytes);
        });
        let offsets: Vec<PoolOffset> = objects.keys().copied().collect();
        let env = Env::simulated(11);
        let (mut found, mut flips) = (0, 0);
        for _ in 0..1500 {
            let offset = offsets[(env.random_u64() % offsets.len() as u64) as usize];
            // Half of them in the first lines, where the structure is.
            let words = if env.random_u64().is_multiple_of(2) { 10 } else { objects[&offset] / 8 };
            let at = offset.plus(env.random_u64() % words.min(objects[&offset] / 8) * 8);
            let bit = 1 << (env.random_u64() % 64);
            pool.word(at).fetch_xor(bit, Ordering::Relaxed);
            flips += 1;
            let mut claimed = BTreeSet::new();
            let claim = |offset: PoolOffset, bytes: u64| match objects.get(&offset) {
                Some(there) if *there >= bytes && claimed.insert(offset) => Ok(()),
                _ => Err(format!("there is no object of {bytes} bytes that is not taken")),
            };
            match OrderedIndex::open(&pool, root) {
                Err(_) => found += 1,
                Ok(index) => match index.check_damaged(claim, |_, _| {}) {
                    Err(_) => found += 1,
                    Ok(()) => keys.iter().step_by(7).for_each(|key| {
                        index.get(key).unwrap();
                    }),
                },
            }
            pool.word(at).fetch_xor(bit, Ordering::Relaxed);
        }
        println!("{width:?}: {found} of {flips} flips were found");
        assert!(found > flips / 10, "{width:?}: {found} of {flips}");
        OrderedIndex::open(&pool, root).unwrap().check(|_| {}).unwrap();
    }
}

#[test]
fn keys_of_another_kind_are_refused_with_both_kinds_named() {
    let (pool, root, _) = index_of(KeyWidth::Sixteen);
    let message = |opened: Result<(), Error>| match opened {
        Err(Error::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    let as_eight = message(FpTree::<WordKey>::open(&pool, root, 1).map(drop));
    assert!(
        as_eight.contains("kind 2 that take 2 words") && as_eight.contains("kind 1 that take 1"),
        "{as_eight}"
    );
    let as_any = message(FpTree::<ByteKey>::open(&pool, root, 3).map(drop));
    assert!(as_any.contains("kind 3 that take 2"), "{as_any}");
    FpTree::<PairKey>::open(&pool, root, 2).unwrap();
    for wild in [0, 8, 1 << 40, u64::MAX - 63].map(PoolOffset::new) {
        assert!(matches!(FpTree::<WordKey>::open(&pool, wild, 1), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn keys_that_are_too_long_are_errors_and_are_not_there() {
    for (width, limit) in [(KeyWidth::Eight, 8), (KeyWidth::Sixteen, 16), (KeyWidth::Variable, KEY_BYTES_MAX)]
    {
        let (pool, root, keys) = index_of(width);
        let index = OrderedIndex::open(&pool, root).unwrap();
        assert_eq!(index.key_bytes_max(), limit);
        let (longest, longer) = (vec![b'x'; limit], vec![b'x'; limit + 1]);
        index.insert(&longest, 5, pool.publication()).unwrap();
        assert_eq!(index.get(&longest).unwrap(), Some(5));
        let refused = [
            index.insert(&longer, 1, pool.publication()).map(drop),
            index.replace(&longer, 1, pool.publication()).map(drop),
            index.remove(&longer, pool.publication()).map(drop),
        ];
        for refused in refused {
            let Err(error @ Error::KeyTooLong { .. }) = refused else { panic!("{refused:?}") };
            assert!(error.to_string().contains(&format!("{} bytes", limit + 1)), "{error}");
        }
        assert_eq!(index.get(&longer).unwrap(), None);
        let mut values = Vec::new();
        index.get_many(&[longer, longest], &mut values).unwrap();
        assert_eq!(values, [None, Some(5)]);
        assert_eq!(index.stats().keys, keys.len() as u64 + 1);
    }
}
