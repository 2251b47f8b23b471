//! Any operation history against a `BTreeMap`, for every instance and both kinds of underflow handling.

use super::{Instance, Tree, instances, journal_pool, volatile_pool};
use entresol_memory::{Env, Pool};
use entresol_structures::Inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Model = BTreeMap<u64, u64>;

fn assert_owns_all(pool: &Arc<Pool>, tree: &dyn Tree, name: &str) {
    let mut own = BTreeSet::new();
    tree.check(&mut |offset| {
        own.insert(offset);
    })
    .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(own, allocated, "{name}");
}

fn assert_holds(tree: &dyn Tree, model: &Model, name: &str) {
    let all = tree.range(0..=u64::MAX / 8, false).unwrap();
    assert!(all.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))), "{name}");
    let back = tree.range(0..=u64::MAX / 8, true).unwrap();
    assert!(back.into_iter().rev().eq(all), "{name}");
}

fn assert_ranges(tree: &dyn Tree, model: &Model, env: &Env, keys: u64, name: &str) {
    for _ in 0..5 {
        let (a, b) = (env.random_u64() % keys, env.random_u64() % keys);
        let expected: Vec<(u64, u64)> =
            if a <= b { model.range(a..=b).map(|(k, v)| (*k, *v)).collect() } else { Vec::new() };
        assert_eq!(tree.range(a..=b, false).unwrap(), expected, "{name}: {a}..={b}");
        let mut back = tree.range(a..=b, true).unwrap();
        back.reverse();
        assert_eq!(back, expected, "{name}: {a}..={b} from behind");
    }
}

/// Phases of growth, churn and decay, so that nodes split, balance and merge, and the tree grows and shrinks.
fn history(instance: &Instance, pool: &Arc<Pool>, underflow: bool, operations: u64, keys: u64, seed: u64) {
    let name = format!("{}, underflow {underflow}, seed {seed}", instance.name);
    let mut tree = instance.new_tree(pool);
    tree.set_underflow_handling(underflow);
    let env = Env::simulated(seed);
    let mut model = Model::new();
    for operation in 0..operations {
        let key = env.random_u64() % keys;
        let phase = operation * 8 / operations;
        let removes = [1, 2, 5, 8, 1, 5, 9, 9][phase as usize];
        match env.random_u64() % 10 {
            n if n < removes => {
                assert_eq!(tree.remove(key, pool.publication()).unwrap(), model.remove(&key), "{name}");
            }
            9 if model.contains_key(&key) => {
                let old = tree.update(key, operation, pool.publication()).unwrap();
                assert_eq!(old, model.insert(key, operation), "{name}");
            }
            _ => {
                let inserted = tree.insert(key, operation, pool.publication()).unwrap();
                match model.get(&key) {
                    Some(value) => assert_eq!(inserted, Inserted::Exists(*value), "{name}"),
                    None => assert_eq!(inserted, Inserted::New, "{name}"),
                }
                model.entry(key).or_insert(operation);
            }
        }
        let probe = env.random_u64() % keys;
        assert_eq!(tree.get(probe).unwrap(), model.get(&probe).copied(), "{name}");
        if operation % 100 == 0 {
            let wanted: Vec<u64> = (0..operation / 100).map(|_| env.random_u64() % keys).collect();
            let expected: Vec<Option<u64>> = wanted.iter().map(|key| model.get(key).copied()).collect();
            assert_eq!(tree.get_many(&wanted).unwrap(), expected, "{name}");
        }
        if operation % (operations / 12) == 0 {
            assert_owns_all(pool, &*tree, &name);
            assert_holds(&*tree, &model, &name);
            assert_ranges(&*tree, &model, &env, keys, &name);
            assert_eq!(tree.stats().unwrap().keys, model.len() as u64, "{name}");
            drop(tree);
            tree = instance.reopen(pool);
            tree.set_underflow_handling(underflow);
        }
    }
    // To the last key.
    for key in model.keys() {
        assert!(tree.remove(*key, pool.publication()).unwrap().is_some(), "{name}");
    }
    assert_owns_all(pool, &*tree, &name);
    let stats = tree.stats().unwrap();
    assert_eq!(stats.keys, 0, "{name}");
    if underflow {
        assert!(stats.leaves <= 2, "{name}: {stats:?}");
    }
}

#[test]
fn every_instance_holds_what_a_model_holds() {
    for (number, instance) in instances().iter().enumerate() {
        for underflow in [false, true] {
            history(instance, &volatile_pool(), underflow, 12_000, 3000, number as u64);
        }
    }
}

#[test]
fn trees_are_what_they_were_after_the_journal_was_replayed() {
    for instance in super::small_instances() {
        let directory = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        for round in 0..3 {
            let pool = journal_pool(directory.path());
            let tree = if round == 0 { instance.new_tree(&pool) } else { instance.reopen(&pool) };
            tree.set_underflow_handling(round == 1);
            assert_holds(&*tree, &model, instance.name);
            let env = Env::simulated(round);
            for _ in 0..1500 {
                let (key, value) = (env.random_u64() % 600, env.random_u64());
                if env.random_u64() % 5 < 2 + round % 2 {
                    tree.remove(key, pool.publication()).unwrap();
                    model.remove(&key);
                } else if tree.insert(key, value, pool.publication()).unwrap() == Inserted::New {
                    model.insert(key, value);
                }
            }
            // Dropped, not closed: opening replays.
        }
    }
}

#[test]
fn loaded_trees_are_like_others_and_fuller() {
    for instance in instances() {
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        let entries: Vec<(u64, u64)> = (0..5000).map(|i| (i * 3, i)).collect();
        assert_eq!(tree.load(&entries[..1], 90).unwrap(), 1);
        assert_eq!(tree.load(&entries[1..3000], 90).unwrap(), 2999);
        assert_eq!(tree.load(&entries[3000..], 100).unwrap(), 2000);
        let mut model: Model = entries.iter().copied().collect();
        assert_owns_all(&pool, &*tree, instance.name);
        assert_holds(&*tree, &model, instance.name);
        let bytes = tree.stats().unwrap().pool_bytes / 5000;
        // Keys of 8 bytes have tuples of 16; wide keys 24.
        let most = if instance.name.contains("u128") { 60 } else { 31 };
        assert!(bytes <= most, "{}: {bytes} bytes per tuple", instance.name);
        // Keys that are not above the last key are refused, and the tree stays unchanged.
        assert!(tree.load(&[(14_997, 0)], 90).is_err());
        assert!(tree.load(&[(20_000, 0), (20_000, 0)], 90).is_err());
        model.insert(20_000, 0);
        for key in [1, 7, 20_001] {
            tree.insert(key, key, pool.publication()).unwrap();
            model.insert(key, key);
        }
        assert_owns_all(&pool, &*tree, instance.name);
        assert_holds(&*tree, &model, instance.name);
    }
}

#[test]
fn keys_in_order_fill_the_leaves() {
    for instance in super::small_instances() {
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        for key in 0..3000 {
            tree.insert(key, key, pool.publication()).unwrap();
        }
        tree.check(&mut |_| {}).unwrap();
        let stats = tree.stats().unwrap();
        let most = if instance.name.contains("u128") { 3000 / 6 } else { 3000 / 9 };
        assert!(stats.leaves <= most, "{}: {stats:?}", instance.name);
    }
}

#[test]
fn a_destroyed_tree_leaves_its_header_alone() {
    for instance in super::small_instances() {
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        for key in 0..2000 {
            tree.insert(key * 7 % 2000, key, pool.publication()).unwrap();
        }
        drop(tree);
        let root = pool.root("tree").unwrap();
        (instance.destroy)(&pool, root).unwrap();
        (instance.destroy)(&pool, root).unwrap();
        let mut left = Vec::new();
        pool.for_each_object(|offset, _| left.push(offset));
        assert_eq!(left, [root], "{}", instance.name);
        assert!((instance.open)(&pool, root).is_err());
    }
}

#[test]
fn the_ends_of_the_key_space_are_keys() {
    for instance in super::small_instances().into_iter().filter(|instance| !instance.name.contains("u128")) {
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        for key in (0..100).chain(u64::MAX - 99..=u64::MAX) {
            tree.insert(key, !key, pool.publication()).unwrap();
        }
        assert_eq!(tree.get(u64::MAX).unwrap(), Some(0));
        assert_eq!(tree.get(0).unwrap(), Some(u64::MAX));
        assert_eq!(tree.range(0..=u64::MAX, false).unwrap().len(), 200);
        assert_eq!(tree.range(0..=u64::MAX, true).unwrap().len(), 200);
        assert_eq!(tree.range(u64::MAX..=u64::MAX, true).unwrap(), [(u64::MAX, 0)]);
        tree.check(&mut |_| {}).unwrap();
    }
}

/// Trees with more leaves than there are latches: neighbours share them.
#[test]
fn neighbours_may_share_a_latch() {
    const KEYS: u64 = 300_000;
    for name in ["FpLikeTree u64 256/256", "BitmapTree u64 256/256"] {
        let all = instances();
        let instance = all.iter().find(|instance| instance.name == name).unwrap();
        let pool = volatile_pool();
        let tree = instance.new_tree(&pool);
        tree.set_underflow_handling(true);
        // In no order, so that neighbours lie anywhere.
        let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
        for i in 0..KEYS {
            tree.insert(key(i), i, pool.publication()).unwrap();
        }
        assert!(tree.stats().unwrap().leaves > 1 << 14);
        for i in (0..KEYS).map(|i| i * 7_368_787 % KEYS) {
            assert_eq!(tree.remove(key(i), pool.publication()).unwrap(), Some(i));
        }
        assert_owns_all(&pool, &*tree, name);
        assert_eq!(tree.stats().unwrap().keys, 0);
    }
}
