//! Failing calls and exhausted space: the tree stays unchanged, the error names the cause, and the tree works
//! again when the cause is gone.

use super::{create, in_caller, owns_all};
use entresol_memory::env::{CallFailure, FailingFiles};
use entresol_memory::{DomainChoice, Env, Pool, PoolOptions};
use entresol_structures::Error;
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

const PARAMETERS: LsmParameters =
    LsmParameters { buffer_entries: 8, buffers: 2, runs_per_level: 2, pool_levels: 1, disk_levels: 2 };
const KEYS: u64 = 50;

fn key(operation: u64) -> u64 {
    operation * 7 % KEYS
}

fn holds(tree: &LsmTree<u64>, model: &BTreeMap<u64, u64>) {
    assert!(tree.range(0..=u64::MAX).map(Result::unwrap).eq(model.iter().map(|(k, v)| (*k, *v))));
    (0..KEYS).for_each(|key| assert_eq!(tree.get(key).unwrap(), model.get(&key).copied()));
}

/// Creates a directory in memory, if the system has one: thousands of syncs are not under test.
fn quick_dir() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Fails one call, or all from one on, while levels are merged; the pool itself is in DRAM.
fn fails_at(call: u64, how: CallFailure) -> bool {
    let dir = quick_dir();
    let files = FailingFiles::new();
    let env = Env::simulated(3).with_files(Arc::new(files.clone()));
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, env, ..PoolOptions::default() }).unwrap();
    let root = create::<u64>(&pool, &PARAMETERS);
    let options = in_caller(Some(dir.path()));
    let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
    files.fail(files.calls() + call, how);
    let mut model = BTreeMap::new();
    let mut refused = None;
    for operation in 0..100 {
        match tree.upsert(key(operation), operation, pool.publication()) {
            Ok(()) => drop(model.insert(key(operation), operation)),
            Err(error) => refused = Some(error),
        }
    }
    let Some((_, path)) = files.failed() else { return false };
    files.mend();
    if let Some(error) = refused {
        let text = error.to_string();
        assert!(matches!(error, Error::Memory(_)), "{text}");
        assert!(text.contains(dir.path().to_str().unwrap()), "{text}, failed at {}", path.display());
    }
    holds(&tree, &model);
    tree.upsert(1, 1, pool.publication()).unwrap();
    model.insert(1, 1);
    tree.settle().unwrap();
    assert!(tree.failure().is_none() || tree.stats().levels[0].runs < 2);
    holds(&tree, &model);
    owns_all(&pool, &tree);
    drop(tree);
    let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
    holds(&tree, &model);
    let in_files: usize = tree.stats().levels[1..].iter().map(|level| level.runs).sum();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), in_files, "no file is left over");
    true
}

#[test]
fn every_call_may_fail_in_every_way() {
    for how in [
        CallFailure::Io,
        CallFailure::ShortWrite,
        CallFailure::DeviceGone,
        CallFailure::DiskFull,
        CallFailure::ReadOnly,
    ] {
        let calls = (1..400).take_while(|call| fails_at(*call, how)).count();
        assert!(calls > 20, "{calls} calls were made to fail: {how:?}");
    }
}

#[test]
fn a_full_disk_reaches_writers_with_a_thread_too() {
    let dir = TempDir::new().unwrap();
    let files = FailingFiles::new();
    let env = Env::simulated(3).with_files(Arc::new(files.clone()));
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, env, ..PoolOptions::default() }).unwrap();
    let root = create::<u64>(&pool, &PARAMETERS);
    let options = LsmOptions { maintenance: Maintenance::Background, ..in_caller(Some(dir.path())) };
    let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
    files.fail(files.calls() + 1, CallFailure::DiskFull);
    let mut model = BTreeMap::new();
    let refused = (0..10_000).find_map(|operation| {
        let outcome = tree.upsert(key(operation), operation, pool.publication());
        if outcome.is_ok() {
            model.insert(key(operation), operation);
        }
        outcome.err()
    });
    let text = refused.expect("the disk is full").to_string();
    assert!(text.starts_with("out of space: write to") && text.contains("lsm-"), "{text}");
    assert!(tree.failure().is_some());
    holds(&tree, &model);
    files.mend();
    tree.upsert(3, 3, pool.publication()).unwrap();
    model.insert(3, 3);
    tree.settle().unwrap();
    holds(&tree, &model);
    owns_all(&pool, &tree);
}

#[test]
fn a_full_pool_refuses_writes_and_keeps_what_it_has() {
    let options = PoolOptions {
        extent_bytes: 256 << 10,
        address_space_bytes: 1 << 20,
        env: Env::simulated(4),
        ..PoolOptions::default()
    };
    let pool = Pool::volatile(&options).unwrap();
    let parameters =
        LsmParameters { buffer_entries: 256, buffers: 2, runs_per_level: 2, pool_levels: 3, disk_levels: 0 };
    let root = create::<u64>(&pool, &parameters);
    for maintenance in [Maintenance::InCaller, Maintenance::Background] {
        let options = LsmOptions { maintenance, ..in_caller(None) };
        let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
        let start = tree.range(0..=u64::MAX).count() as u64;
        let (written, error) = (start..1_000_000)
            .find_map(|key| Some((key, tree.upsert(key, key, pool.publication()).err()?)))
            .expect("the pool is small");
        assert!(error.to_string().contains("out of space"), "{error}");
        assert!(tree.range(0..=u64::MAX).map(Result::unwrap).eq((0..written).map(|key| (key, key))));
        owns_all(&pool, &tree);
    }
}

#[test]
fn writes_survive_without_a_close() {
    for domain in [DomainChoice::Journal, DomainChoice::DaxEmulated] {
        let dir = TempDir::new().unwrap();
        let options = PoolOptions { domain, extent_bytes: 1 << 20, ..PoolOptions::default() };
        let lsm = LsmOptions { maintenance: Maintenance::Background, ..in_caller(Some(dir.path())) };
        let root = {
            let pool = match Pool::create(dir.path(), &options) {
                Ok(pool) => pool,
                // Processors without a supported flush instruction.
                Err(entresol_memory::Error::Unsupported(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            let root = create::<u64>(&pool, &PARAMETERS);
            let tree = LsmTree::<u64>::open(&pool, root, &lsm).unwrap();
            (0..500).for_each(|operation| tree.upsert(operation, operation, pool.publication()).unwrap());
            pool.sync().unwrap();
            root
        };
        let pool = Pool::open(dir.path(), &options).unwrap();
        let tree = LsmTree::<u64>::open(&pool, root, &lsm).unwrap();
        assert!(tree.range(0..=u64::MAX).map(Result::unwrap).eq((0..500).map(|key| (key, key))));
        owns_all(&pool, &tree);
    }
}
