//! A full pool: an error, and a tree that works again as soon as there is room.

use super::{Instance, Tree, small_instances};
use entresol_memory::{Pool, PoolOptions};
use entresol_structures::{Error, Result};
use std::sync::Arc;

const EXTENT_BYTES: u64 = 1 << 18;

fn small_pool() -> Arc<Pool> {
    let options = PoolOptions {
        extent_bytes: EXTENT_BYTES,
        address_space_bytes: 2 * EXTENT_BYTES,
        ..PoolOptions::default()
    };
    Pool::volatile(&options).unwrap()
}

fn assert_no_room<T: std::fmt::Debug>(instance: &Instance, outcome: Result<T>) {
    match outcome {
        Err(Error::Memory(error @ entresol_memory::Error::OutOfSpace { .. })) => {
            assert!(error.to_string().contains("address range"), "{error}");
        }
        other => panic!("{}: {other:?}", instance.name),
    }
}

/// Returns the keys that the tree accepted before the pool was full.
fn fill(instance: &Instance, tree: &dyn Tree, pool: &Arc<Pool>) -> Vec<u64> {
    let keys = (0..).map(|i: u64| i * 7_919 % 65_537);
    let mut taken = Vec::new();
    for key in keys {
        match tree.insert(key, key + 1, pool.publication()) {
            Ok(_) => taken.push(key),
            refused => {
                assert_no_room(instance, refused);
                return taken;
            }
        }
    }
    unreachable!("a pool is full at some time")
}

/// Inserts a key once there is room: memory is freed when it has no readers any more, and other tests of this
/// process hold guards briefly, for longer where the machine is busy.
fn insert_soon(tree: &dyn Tree, key: u64, pool: &Arc<Pool>) {
    for _ in 0..2_000 {
        match tree.insert(key, 5, pool.publication()) {
            Err(Error::Memory(entresol_memory::Error::OutOfSpace { .. })) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            outcome => {
                outcome.unwrap();
                return;
            }
        }
    }
    panic!("no room for key {key} in ten seconds");
}

#[test]
fn a_full_pool_is_an_error_and_nothing_is_lost() {
    for instance in small_instances() {
        let pool = small_pool();
        let tree = instance.new_tree(&pool);
        let taken = fill(&instance, &*tree, &pool);
        assert!(taken.len() > 4_000, "{}: {}", instance.name, taken.len());
        let mut own = Vec::new();
        tree.check(&mut |offset| own.push(offset)).unwrap();
        let mut allocated = Vec::new();
        pool.for_each_object(|offset, _| allocated.push(offset));
        own.sort_unstable();
        allocated.sort_unstable();
        assert_eq!(own, allocated, "{}: what was reserved for the insert is given back", instance.name);
        for key in &taken {
            assert_eq!(tree.get(*key).unwrap(), Some(key + 1), "{}", instance.name);
        }
        let more: Vec<(u64, u64)> = (100_000..100_100).map(|key| (key, key)).collect();
        assert_no_room(&instance, tree.load(&more, 100));
        // Every second key is removed, with the leaves that become empty.
        let (gone, stays) = taken.split_at(taken.len() / 2);
        tree.set_underflow_handling(true);
        for key in gone {
            tree.remove(*key, pool.publication()).unwrap();
        }
        for key in gone.iter().take(100) {
            insert_soon(&*tree, *key, &pool);
        }
        assert_eq!(tree.range(0..=u64::MAX / 8, false).unwrap().len() as u64, stays.len() as u64 + 100);
        tree.check(&mut |_| {}).unwrap();
    }
}
