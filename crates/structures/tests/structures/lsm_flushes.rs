//! Costs of each operation of the LSM-tree in flushed ranges and fences on persistent memory, pinned in
//! `lsm_flushes.txt`, so that a change of the cost is a change of that file.

use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance, RunWriting};
use std::fmt::Write;

#[test]
fn operations_cost_what_the_text_file_says() {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(1), ..PoolOptions::default() };
    let pool = Pool::crashing(&options, None, None).unwrap();
    let parameters =
        LsmParameters { buffer_entries: 150, buffers: 2, runs_per_level: 4, pool_levels: 2, disk_levels: 0 };
    let mut publication = pool.publication();
    let root = LsmTree::<u64>::create(&pool, &parameters, &mut publication).unwrap();
    publication.publish().unwrap();
    let mut text = String::from("# operation                      flushes fences\n");
    for path in [RunWriting::ThroughDram, RunWriting::Direct] {
        writeln!(text, "# runs written: {path:?}").unwrap();
        let options = LsmOptions { maintenance: Maintenance::InCaller, path, ..LsmOptions::default() };
        let tree = LsmTree::<u64>::open(&pool, root, &options).unwrap();
        let mut count = |name: &str, operation: &dyn Fn()| {
            let before = pool.stats();
            operation();
            let after = pool.stats();
            let (flushes, fences) = (after.flushes - before.flushes, after.fences - before.fences);
            writeln!(text, "{name:32} {flushes:7} {fences:6}").unwrap();
        };
        let upsert = |keys: std::ops::Range<u64>| {
            keys.for_each(|key| tree.upsert(key, key, pool.publication()).unwrap())
        };
        upsert(0..100);
        count("get", &|| assert_eq!(tree.get(4).unwrap(), Some(4)));
        count("upsert", &|| upsert(100..101));
        count("update", &|| assert_eq!(tree.update(100, 7, pool.publication()).unwrap(), Some(100)));
        count("delete", &|| tree.delete(100, pool.publication()).unwrap());
        count("move of a buffer of 100", &|| tree.settle().unwrap());
        (0..2).for_each(|run| {
            upsert(run * 150..(run + 1) * 150 - 1);
            tree.settle().unwrap();
        });
        upsert(300..400);
        count("move, and merge of 500 entries", &|| tree.settle().unwrap());
        assert_eq!(tree.stats().levels[0].runs, 0);
    }
    let path = format!("{}/tests/structures/lsm_flushes.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("UPDATE_PINS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, pinned, "the cost changed; if that is meant, run with UPDATE_PINS=1");
}
