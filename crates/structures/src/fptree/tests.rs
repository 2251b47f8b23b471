//! Tests of trees with inner nodes of few children and pages of one entry, so that small histories reach all
//! of the sparse index, and of trees that are opened part by part.

#![allow(clippy::unwrap_used)]

use super::sparse::{FIRST_PAGE, SparseIndex};
use super::{FpTree, Limits};
use crate::key::TreeKey;
use crate::map_tests::{self, NumberMap};
use crate::{ByteKey, Error, Inserted, KeyBytes, PairKey, Result, WordKey};
use entresol_memory::{
    DomainChoice, DomainKind, Env, MemoryBudget, MemoryConsumer, Pool, PoolOffset, PoolOptions, Publication,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NARROW: Limits =
    Limits { children_max: 3, segments_opened_at_once: 0, page_entries_max: 1, moves_to_neighbours: true };

/// A tree whose inner nodes have up to three children, and whose segments are opened on first access.
struct Narrow<K: TreeKey>(FpTree<K>);

/// Numbers as bytes that fit every kind of key.
fn bytes(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(bytes: &KeyBytes) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

impl<K: TreeKey> NumberMap for Narrow<K> {
    fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        // What pages of the sparse index are made of.
        crate::crash_histories::leave_junk(pool, 4096)?;
        FpTree::<K>::create(pool, 7, with)
    }
    fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<Self> {
        FpTree::open_with(pool, root, 7, NARROW).map(Narrow)
    }
    fn destroy(pool: &Arc<Pool>, root: PoolOffset) -> Result<()> {
        while !FpTree::<K>::destroy_step(pool, root, false, 1)? {}
        Ok(())
    }
    fn get(&self, key: u64) -> Result<Option<u64>> {
        let one = self.0.get(K::from_bytes(&bytes(key))?)?;
        let mut many = Vec::new();
        self.0.get_many([K::from_bytes(&bytes(key))?].into_iter(), &mut many)?;
        assert_eq!(many, [one]);
        Ok(one)
    }
    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.0.insert(K::from_bytes(&bytes(key))?, value, with)
    }
    fn update<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.0.replace(K::from_bytes(&bytes(key))?, value, with)
    }
    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.0.remove(K::from_bytes(&bytes(key))?, with)
    }
    fn range(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        let mut next = self.0.scan_batch(Bound::Included(K::from_bytes(&bytes(from))?), &mut entries)?;
        while let Some(from) = next {
            next = self.0.scan_batch(Bound::Included(K::from_bytes(&from)?), &mut entries)?;
        }
        let entries = entries.iter().map(|(key, value)| (number(key), *value));
        Ok(entries.filter(|(key, _)| (from..=to).contains(key)).collect())
    }
    fn range_back(&self, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
        let mut entries = self.range(from, to)?;
        entries.reverse();
        Ok(entries)
    }
    fn check(&self, object: &mut dyn FnMut(PoolOffset)) -> Result<()> {
        self.0.check(object)
    }
    fn keys(&self) -> Result<u64> {
        Ok(self.0.stats().keys)
    }
}

#[test]
fn narrow_trees_agree_with_a_model() {
    map_tests::agrees_with_a_model::<Narrow<WordKey>>(60_000, 6_000, 1);
    map_tests::agrees_with_a_model::<Narrow<PairKey>>(30_000, 3_000, 2);
    map_tests::agrees_with_a_model::<Narrow<ByteKey>>(30_000, 3_000, 3);
}

#[test]
fn the_sparse_index_survives_every_fence() {
    map_tests::survives_crashes::<Narrow<WordKey>>(3, 1_600, 400, 10_000);
}

#[test]
fn the_sparse_index_of_keys_with_records_survives_every_fence() {
    map_tests::survives_crashes::<Narrow<ByteKey>>(1, 900, 225, 2_000);
}

#[test]
fn a_sparse_index_is_destroyed_before_the_leaves_that_it_names() {
    map_tests::survives_being_destroyed::<Narrow<WordKey>>(500, 500);
}

/// Leaves that have lost most of their keys are merged, whatever the order of the removals.
#[test]
fn a_tree_that_has_lost_most_keys_has_few_leaves() {
    for random in [false, true] {
        let pool = map_tests::small_pool();
        let root = filled::<ByteKey>(&pool, 20_000);
        let tree = opened::<ByteKey>(&pool, root).unwrap();
        let before = tree.stats().leaves;
        let order = Env::simulated(9);
        let mut going: Vec<u64> = (0..20_000).filter(|i| i % 20 != 0).map(|i| i * 2).collect();
        if random {
            (1..going.len()).for_each(|i| going.swap(i, order.random_u64() as usize % (i + 1)));
        }
        for key in going {
            assert_eq!(tree.remove(&bytes(key), pool.publication()).unwrap(), Some(key ^ 1));
        }
        tree.check(|_| {}).unwrap();
        let stats = tree.stats();
        assert_eq!(stats.keys, 1_000);
        assert!(stats.leaves * 6 < before, "{} of {before} leaves for a twentieth of the keys", stats.leaves);
        drop(tree);
        let tree = opened::<ByteKey>(&pool, root).unwrap();
        tree.check(|_| {}).unwrap();
        assert!((0..20_000).step_by(20).all(|i| tree.get(&bytes(i * 2)).unwrap() == Some((i * 2) ^ 1)));
    }
}

/// Readers find the remaining keys, and writers their own, while leaves beside theirs are merged.
#[test]
fn leaves_are_merged_beside_readers_and_writers() {
    let pool = map_tests::small_pool();
    let root = filled::<WordKey>(&pool, 20_000);
    let tree = opened::<WordKey>(&pool, root).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, pool, stop) = (&tree, &pool, &stop);
        let removers: Vec<_> = (1..4u64)
            .map(|part| {
                scope.spawn(move || {
                    for round in 0..3 {
                        let own = (0..20_000).filter(|i| i % 20 != 0 && i % 3 == part - 1);
                        for key in own.map(|i| i * 2) {
                            assert_eq!(tree.remove(key, pool.publication()).unwrap(), Some(key ^ 1));
                        }
                        let back = (0..20_000).filter(|i| i % 20 != 0 && i % 3 == part - 1 && round < 2);
                        for key in back.map(|i| i * 2) {
                            assert_eq!(tree.insert(key, key ^ 1, pool.publication()).unwrap(), Inserted::New);
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2u64 {
            scope.spawn(move || {
                let random = Env::simulated(reader);
                while !stop.load(Ordering::Relaxed) {
                    let stays = random.random_u64() % 1_000 * 40;
                    assert_eq!(tree.get(stays).unwrap(), Some(stays ^ 1));
                    let (mut entries, mut from) = (Vec::new(), stays);
                    for _ in 0..3 {
                        tree.visit(Bound::Included(from), 60, |key, value| entries.push((key, value)))
                            .unwrap();
                        from += 400;
                    }
                    assert!(entries.iter().all(|(_, value)| value % 2 == 1));
                }
            });
        }
        removers.into_iter().for_each(|remover| remover.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    tree.check(|_| {}).unwrap();
    assert_eq!(tree.stats().keys, 1_000);
}

/// A check of a partly destroyed tree finds all objects and adds none.
#[test]
fn a_partly_destroyed_tree_owns_all_allocated_objects() {
    let pool = map_tests::small_pool();
    let root = filled::<ByteKey>(&pool, 600);
    let mut steps = 0;
    loop {
        let mut map = pool.allocation_map().unwrap();
        let mut left = 0;
        FpTree::<ByteKey>::check_remains(&pool, root, |at, size| map.claim(at, size), |_, _| left += 1)
            .unwrap();
        assert_eq!(map.unclaimed().collect::<Vec<_>>(), [], "after {steps} steps, with {left} keys left");
        if FpTree::<ByteKey>::destroy_step(&pool, root, false, 1).unwrap() {
            assert_eq!(left, 0);
            break;
        }
        steps += 1;
    }
    assert!(steps > 20, "{steps} steps: pages of the sparse index, then leaves");
}

/// Creates a tree of `keys` even numbers and closes it; returns its root.
fn filled<K: TreeKey>(pool: &Arc<Pool>, keys: u64) -> PoolOffset {
    let tree: Narrow<K> = map_tests::new_map(pool).unwrap();
    let order = Env::simulated(5);
    let mut numbers: Vec<u64> = (0..keys).map(|i| i * 2).collect();
    (1..numbers.len()).for_each(|i| numbers.swap(i, order.random_u64() as usize % (i + 1)));
    for number in numbers {
        tree.insert(number, number ^ 1, pool.publication()).unwrap();
    }
    tree.0.root_offset()
}

fn opened<K: TreeKey>(pool: &Arc<Pool>, root: PoolOffset) -> Result<FpTree<K>> {
    FpTree::open_with(pool, root, 7, NARROW)
}

#[test]
fn an_open_tree_answers_before_its_segments_are_opened() {
    let pool = map_tests::small_pool();
    let root = filled::<WordKey>(&pool, 20_000);
    let tree = opened::<WordKey>(&pool, root).unwrap();
    let segments = tree.segments_left();
    assert!(segments > 100, "{segments}");
    assert_eq!(tree.get(17_000).unwrap(), Some(17_001));
    assert_eq!(tree.segments_left(), segments - 1, "only the one that was asked for");
    assert_eq!(tree.last_key().unwrap().map(|key| number(&key)), Some(39_998));
    assert_eq!(tree.open_more(10).unwrap(), segments - 10, "what is open already does not count again");
    tree.open_more(usize::MAX).unwrap();
    assert_eq!(tree.segments_left(), 0);
    tree.check(|_| {}).unwrap();
}

#[test]
fn threads_come_to_segments_while_others_open_and_empty_them() {
    let pool = map_tests::small_pool();
    let root = filled::<ByteKey>(&pool, 30_000);
    for round in 0..3u64 {
        let tree = opened::<ByteKey>(&pool, root).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (tree, pool, stop) = (&tree, &pool, &stop);
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    scope.spawn(move || {
                        // Runs of keys, from the middle down and up: leaves are freed at segments' edges.
                        let part = 10_000 * round;
                        for i in 0..2_500 {
                            let key = 2 * (part + if writer == 0 { 4_999 - i } else { 5_000 + i });
                            let before = tree.remove(&bytes(key), pool.publication()).unwrap();
                            assert_eq!(before, Some(key ^ 1));
                        }
                    })
                })
                .collect();
            scope.spawn(move || while tree.open_more(3).unwrap() > 0 {});
            scope.spawn(move || {
                let random = Env::simulated(round);
                while !stop.load(Ordering::Relaxed) {
                    let key = random.random_u64() % 60_000;
                    let found = tree.get(&bytes(key)).unwrap();
                    assert!(
                        found.is_none() || (key.is_multiple_of(2) && found == Some(key ^ 1)),
                        "{key}: {found:?}"
                    );
                    // Above the keys that the writers remove.
                    let kept = 20_000 * round + 15_002 + key % 2_000 * 2;
                    assert_eq!(tree.get(&bytes(kept)).unwrap(), Some(kept ^ 1));
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
        tree.check(|_| {}).unwrap();
    }
    let tree = opened::<ByteKey>(&pool, root).unwrap();
    tree.check(|_| {}).unwrap();
    assert_eq!(tree.stats().keys, 15_000);
}

#[test]
fn a_tree_of_the_format_before_gets_its_sparse_index_when_it_is_opened() {
    let pool = map_tests::small_pool();
    let root = filled::<WordKey>(&pool, 5_000);
    while SparseIndex::<WordKey>::destroy_page(&pool, root).unwrap() {}
    let magic = pool.word(root).load(Ordering::Relaxed);
    pool.word(root).store(magic & !(0xF0 << 56), Ordering::Relaxed);
    // That word is undefined in the format before.
    pool.word(root.plus(FIRST_PAGE)).store(0xDEAD_BEEF, Ordering::Relaxed);
    let tree = opened::<WordKey>(&pool, root).unwrap();
    assert_eq!(tree.segments_left(), 0, "what has no sparse index is read whole");
    assert_eq!((0..5_000).filter(|i| tree.get(i * 2).unwrap() == Some((i * 2) ^ 1)).count(), 5_000);
    tree.check(|_| {}).unwrap();
    drop(tree);
    let tree = opened::<WordKey>(&pool, root).unwrap();
    assert!(tree.segments_left() > 30, "{}", tree.segments_left());
    tree.check(|_| {}).unwrap();
}

/// Leaves that move entries to neighbours are fuller than those that are only split, on the domains that do
/// so. Keys that ascend leave full leaves behind either way.
#[test]
fn leaves_are_fuller_where_they_give_to_their_neighbours() {
    let fill = |limits: Limits, is_random: bool| {
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let mut publication = pool.publication();
        let root = FpTree::<WordKey>::create(&pool, 7, &mut publication).unwrap();
        publication.set_root("tree", root).unwrap();
        publication.publish().unwrap();
        let tree = FpTree::<WordKey>::open_with(&pool, root, 7, limits).unwrap();
        let order = Env::simulated(11);
        for i in 0..60_000 {
            let key = if is_random { order.random_u64() } else { i };
            tree.insert(key, i, pool.publication()).unwrap();
        }
        tree.check(|_| {}).unwrap();
        let stats = tree.stats();
        assert_eq!(stats.keys, 60_000);
        stats.keys as f64 / (stats.leaves * crate::leaf::Leaf::<WordKey>::CAPACITY as u64) as f64
    };
    let gives = Limits::of::<WordKey>(DomainKind::Journal);
    let splits = Limits::of::<WordKey>(DomainKind::Dax);
    for (is_random, before, least) in [(true, 0.66..0.75, 0.76), (false, 0.86..0.90, 0.86)] {
        let (only_split, given) = (fill(splits, is_random), fill(gives, is_random));
        assert!(before.contains(&only_split), "{only_split}");
        assert!(given > least, "{given}");
    }
}

/// Words of the sparse index: the offsets of all valid entries, each with its words.
fn entry_words(pool: &Pool, root: PoolOffset) -> Vec<PoolOffset> {
    let (_, entries) = SparseIndex::<WordKey>::read(pool, root, 3).unwrap();
    entries.iter().flat_map(|entry| [entry.place, entry.place.plus(8)]).collect()
}

#[test]
fn no_flipped_bit_of_the_sparse_index_leads_to_a_wrong_answer() {
    let pool = map_tests::small_pool();
    let keys = 3_000u64;
    let root = filled::<WordKey>(&pool, keys);
    let words = entry_words(&pool, root);
    assert!(words.len() > 40);
    let (mut errors, mut harmless) = (0, 0);
    for (index, word) in words.iter().enumerate() {
        for bit in [0, 1, 4, 6, 9, 11, 12, 14, 17, 20, 33, 63] {
            let before = pool.word(*word).fetch_xor(1 << bit, Ordering::Relaxed);
            let mut failed = false;
            match opened::<WordKey>(&pool, root) {
                Err(Error::Corrupt { .. }) => failed = true,
                Err(other) => panic!("{other}"),
                Ok(tree) => {
                    for key in (0..2 * keys).step_by(if index % 8 == 0 { 1 } else { 7 }) {
                        let right = key.is_multiple_of(2).then_some(key ^ 1);
                        match tree.get(key) {
                            Ok(found) => assert_eq!(found, right, "bit {bit} of {word:#x}, key {key}"),
                            Err(Error::Corrupt { .. }) => failed = true,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    failed |= tree.open_more(usize::MAX).is_err();
                }
            }
            *(if failed { &mut errors } else { &mut harmless }) += 1;
            pool.word(*word).store(before, Ordering::Relaxed);
        }
    }
    assert!(errors > 100 && harmless == 0, "{errors} found, {harmless} not");
    opened::<WordKey>(&pool, root).unwrap().check(|_| {}).unwrap();
}

#[test]
fn a_lost_entry_only_makes_a_segment_longer() {
    let pool = map_tests::small_pool();
    let root = filled::<WordKey>(&pool, 3_000);
    let (_, entries) = SparseIndex::<WordKey>::read(&pool, root, 3).unwrap();
    for entry in entries.iter().step_by(3) {
        pool.word(entry.place).store(0, Ordering::Relaxed);
    }
    let tree = opened::<WordKey>(&pool, root).unwrap();
    assert!((0..3_000).all(|i| tree.get(i * 2).unwrap() == Some((i * 2) ^ 1)));
    tree.check(|_| {}).unwrap();
}

#[test]
fn a_damaged_page_is_an_error_of_its_readers_only() {
    let dir = tempfile::tempdir().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let root = filled::<WordKey>(&pool, 40_000);
    let leaf_in_the_middle = {
        let tree = opened::<WordKey>(&pool, root).unwrap();
        tree.find_leaf(40_000).unwrap().leaf
    };
    pool.close().unwrap();
    drop(pool);
    let path = dir.path().join("pool.entresol");
    let mut file = std::fs::read(&path).unwrap();
    file[leaf_in_the_middle.bytes() as usize + 700] ^= 0x10;
    std::fs::write(&path, file).unwrap();
    let pool = Pool::open(dir.path(), &options).unwrap();
    let tree = opened::<WordKey>(&pool, root).unwrap();
    let mut found = BTreeMap::new();
    for key in (0..80_000).step_by(2) {
        match tree.get(key) {
            Ok(value) => assert_eq!(value, Some(key ^ 1)),
            Err(error) => *found.entry(error.to_string()).or_insert(0) += 1,
        }
    }
    assert!(found.keys().all(|error| error.contains("checksum")), "{found:?}");
    let failed: i32 = found.values().sum();
    assert!((1..4_000).contains(&failed), "{failed} of 40,000");
    // Background opening finds it too, and continues with the others.
    let left = tree.segments_left();
    assert!(left > 0);
    assert!((0..=left).any(|_| tree.open_more(1).is_err()));
    let scanned = tree.visit(Bound::Unbounded, usize::MAX, |_, _| {});
    assert!(matches!(scanned, Err(Error::Memory(_))), "{scanned:?}");
}

/// Damaged slabs: leaves that become empty cannot be freed. Keys that are inserted again are found, also
/// after the tree was opened again.
#[test]
fn a_leaf_that_cannot_be_freed_stays_where_it_is() {
    const EXTENT_BYTES: u64 = 256 << 10;
    const CHUNK_BYTES: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let options =
        PoolOptions { domain: DomainChoice::Journal, extent_bytes: EXTENT_BYTES, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    // So that the pool is too large for its maps to be read when it is opened.
    let beside = (0..40).map(|_| pool.reserve(3 * CHUNK_BYTES as usize).unwrap());
    beside.for_each(|object| {
        let mut publication = pool.publication();
        publication.allocate(object);
        publication.publish().unwrap();
    });
    let root = filled::<WordKey>(&pool, 6_000);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(dir.path(), &options).unwrap();
    let tree = opened::<WordKey>(&pool, root).unwrap();
    tree.open_more(usize::MAX).unwrap();
    // A bit without an object, in the last word of the bitmap of each slab of leaves.
    let gone = || (4_000..6_000).step_by(2);
    let stray: BTreeSet<PoolOffset> = gone()
        .map(|key| {
            let chunk = tree.find_leaf(key).unwrap().leaf.block_number(CHUNK_BYTES);
            let in_extent = chunk % (EXTENT_BYTES / CHUNK_BYTES);
            let extent = PoolOffset::new((chunk - in_extent) * CHUNK_BYTES);
            extent.plus(22_528 + in_extent * 128 + 120)
        })
        .collect();
    let flip = || {
        stray.iter().for_each(|word| {
            pool.word(*word).fetch_xor(1 << 63, Ordering::Relaxed);
        })
    };
    flip();
    let leaves = tree.stats().leaves;
    for key in gone() {
        assert_eq!(tree.remove(key, pool.publication()).unwrap(), Some(key ^ 1));
    }
    assert_eq!(tree.stats().leaves, leaves, "none can be freed");
    for key in gone() {
        assert_eq!(tree.insert(key, key ^ 1, pool.publication()).unwrap(), Inserted::New);
    }
    flip();
    tree.check(|_| {}).unwrap();
    let mut tree = Some(tree);
    for _ in 0..2 {
        let tree = tree.take().unwrap_or_else(|| opened::<WordKey>(&pool, root).unwrap());
        let lost = (0..12_000).step_by(2).filter(|key| tree.get(*key).unwrap() != Some(key ^ 1)).count();
        assert_eq!(lost, 0, "keys that cannot be found");
        // Leaves that could not be freed then can be now.
        gone().for_each(|key| {
            tree.remove(key, pool.publication()).unwrap();
        });
        assert!(tree.stats().leaves < leaves - 15);
        tree.check(|_| {}).unwrap();
        gone().for_each(|key| {
            tree.insert(key, key ^ 1, pool.publication()).unwrap();
        });
    }
}

/// The histories of this module, with each fault that they come by.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_the_sparse_index_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::crash::CrashOptions;
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let run = || {
        let options = CrashOptions { seed: 1, random_states: 4, ..CrashOptions::default() };
        map_tests::crashes::<Narrow<WordKey>>(1_600, 400, &options)
    };
    run().unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::SparseIndex, run) >= 6);
}

#[test]
fn inner_nodes_are_counted_in_the_memory_budget() {
    let memory = MemoryBudget::new(64 << 20).unwrap();
    let pool =
        Pool::volatile(&PoolOptions { memory: Some(memory.clone()), ..PoolOptions::default() }).unwrap();
    let used = || memory.usage().consumers[MemoryConsumer::InnerNodes as usize].used_bytes;
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(&pool, 7, &mut publication).unwrap();
    publication.publish().unwrap();
    let tree = FpTree::<WordKey>::open(&pool, root, 7).unwrap();
    for key in 0..200_000u64 {
        tree.insert(key, key, pool.publication()).unwrap();
    }
    let in_use = tree.stats().inner_bytes as u64;
    assert!(in_use > 64 << 10, "{in_use}");
    assert!((in_use..4 * in_use).contains(&used()), "{} for {in_use}", used());
    drop(tree);
    assert_eq!(used(), 0);
}
