//! The LSM-tree against a model, with threads, with damage, with failing files and full pools.

mod concurrency;
mod damage;
mod failures;
mod model;

use entresol_memory::{Env, Pool, PoolOffset, PoolOptions};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use entresol_structures::node::FixedKey;
use std::path::Path;
use std::sync::Arc;

fn volatile_pool(seed: u64) -> Arc<Pool> {
    let env = Env::simulated(seed);
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, env, ..PoolOptions::default() }).unwrap()
}

fn create<K: FixedKey>(pool: &Arc<Pool>, parameters: &LsmParameters) -> PoolOffset {
    let mut publication = pool.publication();
    let root = LsmTree::<K>::create(pool, parameters, &mut publication).unwrap();
    publication.set_root("tree", root).unwrap();
    publication.publish().unwrap();
    root
}

fn in_caller(directory: Option<&Path>) -> LsmOptions {
    LsmOptions {
        maintenance: Maintenance::InCaller,
        directory: directory.map(Path::to_path_buf),
        cache_bytes: 64 << 10,
        ..LsmOptions::default()
    }
}

/// Verifies that every allocated object belongs to the tree, once.
fn owns_all<K: FixedKey>(pool: &Pool, tree: &LsmTree<K>) {
    let (mut own, mut allocated) = (Vec::new(), Vec::new());
    tree.check(|offset| own.push(offset)).unwrap();
    pool.for_each_object(|offset, _| allocated.push(offset));
    own.sort_unstable();
    allocated.sort_unstable();
    assert_eq!(own, allocated);
}
