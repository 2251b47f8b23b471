//! Costs of each operation of the hash table in flushed ranges and fences on persistent memory, pinned in
//! `hash_flushes.txt`, so that a change of the cost is a change of that file.

use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{HashTable, WordKey};
use std::fmt::Write;

#[test]
fn operations_cost_what_the_text_file_says() {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(1), ..PoolOptions::default() };
    let pool = Pool::crashing(&options, None, None).unwrap();
    let mut publication = pool.publication();
    let root = HashTable::<WordKey>::create(&pool, &mut publication).unwrap();
    publication.publish().unwrap();
    let table = HashTable::<WordKey>::open(&pool, root).unwrap();
    let mut text = String::from("# operation                      flushes fences\n");
    let mut count = |name: &str, operation: &dyn Fn()| {
        let before = pool.stats();
        operation();
        let after = pool.stats();
        let (flushes, fences) = (after.flushes - before.flushes, after.fences - before.fences);
        writeln!(text, "{name:32} {flushes:7} {fences:6}").unwrap();
    };
    let insert = |keys: std::ops::Range<u64>| {
        for key in keys {
            table.insert(key, key, pool.publication()).unwrap();
        }
    };
    insert(0..100);
    assert_eq!(table.stats().displaced, 0);
    count("get", &|| assert_eq!(table.get(4), Some(4)));
    count("insert", &|| insert(1000..1001));
    // The first of a size class makes a slab, which is not measured here.
    drop(pool.reserve(1024).unwrap());
    count("insert with an allocated value", &|| {
        let object = pool.reserve(1024).unwrap();
        let mut with = pool.publication();
        let value = with.allocate(object);
        table.insert(1001, value.to_word(), with).unwrap();
    });
    count("replace", &|| {
        table.replace(1000, 2, pool.publication()).unwrap();
    });
    count("remove", &|| {
        table.remove(1000, pool.publication()).unwrap();
    });
    count("opening", &|| drop(HashTable::<WordKey>::open(&pool, root).unwrap()));
    insert(100..600);
    let displaced = table.stats().displaced;
    assert!(displaced > 0 && table.stats().segments == 1);
    count("600 removals, some displaced", &|| {
        for key in 0..600 {
            table.remove(key, pool.publication()).unwrap();
        }
    });
    count("3000 inserts, with splits", &|| insert(5000..8000));
    assert!(table.stats().segments > 3);
    let path = format!("{}/tests/structures/hash_flushes.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("UPDATE_PINS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, pinned, "the cost changed; if that is meant, run with UPDATE_PINS=1");
}
