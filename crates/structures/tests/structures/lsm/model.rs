//! Any operation history with any parameters gives the results of a `BTreeMap`, also with reopening.

use super::{create, in_caller, owns_all, volatile_pool};
use entresol_structures::Inserted;
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance, MergeAlgorithm, RunWriting};
use entresol_structures::node::FixedKey;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tempfile::TempDir;

#[derive(Debug, Clone)]
enum Step {
    Upsert(u64, u64),
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Delete(u64),
    Get(u64),
    Range(u64, u64, bool),
    Settle,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u64..120;
    prop_oneof![
        12 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Step::Upsert(k, v)),
        3 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Step::Insert(k, v)),
        3 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Step::Update(k, v)),
        3 => key.clone().prop_map(Step::Remove),
        3 => key.clone().prop_map(Step::Delete),
        3 => key.clone().prop_map(Step::Get),
        2 => (key.clone(), 0u64..60, any::<bool>()).prop_map(|(k, n, down)| Step::Range(k, n, down)),
        1 => Just(Step::Settle),
        1 => Just(Step::Reopen),
    ]
}

fn parameters() -> impl Strategy<Value = LsmParameters> {
    (4u32..20, 2u32..4, 2u32..5, 0u32..4, 0u32..3).prop_map(
        |(buffer_entries, buffers, runs_per_level, pool, disk)| {
            let pool_levels = if pool + disk == 0 { 1 } else { pool };
            LsmParameters { buffer_entries, buffers, runs_per_level, pool_levels, disk_levels: disk }
        },
    )
}

fn options() -> impl Strategy<Value = LsmOptions> {
    (any::<bool>(), any::<bool>(), prop_oneof![Just(0u32), Just(3), Just(10)], any::<bool>()).prop_map(
        |(two_way, direct, filter_bits, background)| LsmOptions {
            merge: if two_way { MergeAlgorithm::TwoWay } else { MergeAlgorithm::KWay },
            path: if direct { RunWriting::Direct } else { RunWriting::ThroughDram },
            filter_bits,
            maintenance: if background { Maintenance::Background } else { Maintenance::InCaller },
            ..LsmOptions::default()
        },
    )
}

trait Numbered: FixedKey {
    fn of(number: u64) -> Self;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number << 50
    }
}

impl Numbered for u128 {
    fn of(number: u64) -> u128 {
        u128::from(number / 4) << 64 | u128::from(number)
    }
}

fn follows_the_model<K: Numbered>(parameters: LsmParameters, options: LsmOptions, steps: Vec<Step>) {
    let (pool, dir) = (volatile_pool(1), TempDir::new().unwrap());
    let options = LsmOptions { directory: Some(dir.path().to_path_buf()), ..options };
    let root = create::<K>(&pool, &parameters);
    let mut tree = LsmTree::<K>::open(&pool, root, &options).unwrap();
    let mut model = BTreeMap::<K, u64>::new();
    for step in steps {
        let with = pool.publication();
        match step {
            Step::Upsert(key, value) => {
                tree.upsert(K::of(key), value, with).unwrap();
                model.insert(K::of(key), value);
            }
            Step::Insert(key, value) => {
                let expected = model.get(&K::of(key)).map_or(Inserted::New, |v| Inserted::Exists(*v));
                assert_eq!(tree.insert(K::of(key), value, with).unwrap(), expected);
                model.entry(K::of(key)).or_insert(value);
            }
            Step::Update(key, value) => {
                let before = model.get_mut(&K::of(key)).map(|slot| std::mem::replace(slot, value));
                assert_eq!(tree.update(K::of(key), value, with).unwrap(), before);
            }
            Step::Remove(key) => {
                assert_eq!(tree.remove(K::of(key), with).unwrap(), model.remove(&K::of(key)))
            }
            Step::Delete(key) => {
                tree.delete(K::of(key), with).unwrap();
                model.remove(&K::of(key));
            }
            Step::Get(key) => assert_eq!(tree.get(K::of(key)).unwrap(), model.get(&K::of(key)).copied()),
            Step::Range(from, count, down) => {
                let range = K::of(from)..=K::of(from + count);
                let expected = model.range(range.clone()).map(|(k, v)| (*k, *v));
                let found = tree.range(range);
                if down {
                    assert!(found.rev().map(Result::unwrap).eq(expected.rev()));
                } else {
                    assert!(found.map(Result::unwrap).eq(expected));
                }
            }
            Step::Settle => tree.settle().unwrap(),
            Step::Reopen => {
                drop(tree);
                tree = LsmTree::open(&pool, root, &options).unwrap();
            }
        }
    }
    let keys: Vec<K> = (0..130).map(K::of).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).copied()).collect();
    assert_eq!(tree.get_many(&keys).unwrap(), expected);
    tree.settle().unwrap();
    assert_eq!(tree.get_many(&keys).unwrap(), expected);
    let all = tree.range(K::of(0)..=K::of(130)).map(Result::unwrap);
    assert!(all.eq(model.into_iter()));
    owns_all(&pool, &tree);
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let in_files = tree.stats().levels.iter().filter(|level| !level.is_in_pool).map(|level| level.runs).sum();
    assert_eq!(files(), in_files, "a file for each run on disk");
    drop(tree);
    LsmTree::<K>::destroy(&pool, root, Some(dir.path())).unwrap();
    let mut left = Vec::new();
    pool.for_each_object(|offset, _| left.push(offset));
    assert_eq!((left, files()), (vec![root], 0), "destroying leaves the header");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_history_follows_the_model(
        parameters in parameters(),
        options in options(),
        steps in prop::collection::vec(step(), 1..500),
        wide: bool,
    ) {
        if wide {
            follows_the_model::<u128>(parameters, options, steps);
        } else {
            follows_the_model::<u64>(parameters, options, steps);
        }
    }
}

#[test]
fn a_buffer_of_tombstones_alone_leaves_no_file() {
    for disk_levels in [1, 2] {
        let parameters =
            LsmParameters { buffer_entries: 4, buffers: 2, runs_per_level: 2, pool_levels: 0, disk_levels };
        follows_the_model::<u64>(parameters, in_caller(None), vec![Step::Delete(0), Step::Update(0, 0)]);
    }
}

#[test]
fn many_keys_go_through_all_levels() {
    for (disk_levels, two_way) in [(0, false), (2, true)] {
        let (pool, dir) = (volatile_pool(2), TempDir::new().unwrap());
        let parameters =
            LsmParameters { buffer_entries: 512, buffers: 2, runs_per_level: 3, pool_levels: 2, disk_levels };
        let root = create::<u64>(&pool, &parameters);
        let merge = if two_way { MergeAlgorithm::TwoWay } else { MergeAlgorithm::KWay };
        let options =
            LsmOptions { merge, maintenance: Maintenance::Background, ..in_caller(Some(dir.path())) };
        let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
        let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        const KEYS: u64 = 60_000;
        for n in 0..KEYS {
            tree.upsert(key(n), n, pool.publication()).unwrap();
        }
        for n in (0..KEYS).step_by(3) {
            tree.delete(key(n), pool.publication()).unwrap();
        }
        let read_all = |tree: &LsmTree<u64>| {
            for n in 0..KEYS {
                assert_eq!(tree.get(key(n)).unwrap(), (n % 3 != 0).then_some(n), "key {n}");
            }
            assert_eq!(tree.range(0..=u64::MAX).count() as u64, KEYS / 3 * 2);
        };
        read_all(&tree);
        tree.settle().unwrap();
        let stats = tree.stats();
        assert!(stats.merges > 20 && stats.filter_bytes > 0, "{stats:?}");
        drop(tree);
        let tree = LsmTree::<u64>::open(&pool, root, &in_caller(Some(dir.path()))).unwrap();
        read_all(&tree);
        owns_all(&pool, &tree);
    }
}
