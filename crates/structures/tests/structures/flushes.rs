//! Costs of each operation of the FPTree in flushed ranges and fences on persistent memory, pinned in
//! `flushes.txt`, so that a change of the cost is a change of that file.

use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::fmt::Write;
use std::sync::Arc;

struct Counted {
    pool: Arc<Pool>,
    index: OrderedIndex,
    text: String,
}

impl Counted {
    fn new(width: KeyWidth, text: String) -> Counted {
        let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(1), ..PoolOptions::default() };
        let pool = Pool::crashing(&options, None, None).unwrap();
        let mut publication = pool.publication();
        let root = OrderedIndex::create(&pool, width, &mut publication).unwrap();
        publication.set_root("index", root).unwrap();
        publication.publish().unwrap();
        let index = OrderedIndex::open(&pool, root).unwrap();
        Counted { pool, index, text }
    }

    fn count(&mut self, name: &str, operation: impl FnOnce(&OrderedIndex, &Arc<Pool>)) {
        let before = self.pool.stats();
        operation(&self.index, &self.pool);
        let after = self.pool.stats();
        let (flushes, fences) = (after.flushes - before.flushes, after.fences - before.fences);
        let width = format!("{:?}", self.index.width());
        writeln!(self.text, "{width:9} {name:34} {flushes:3} {fences:3}").unwrap();
    }
}

fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        _ => format!("key {number:05}").into_bytes(),
    }
}

#[test]
fn operations_cost_what_the_text_file_says() {
    let mut text = String::from("# keys     operation                       flushes fences\n");
    for width in [KeyWidth::Eight, KeyWidth::Variable] {
        let mut counted = Counted::new(width, text);
        // The first of a size class makes a slab, which is not measured here. Leaves have 1,024 bytes.
        for number in 0..40 {
            counted.index.insert(&key(width, number * 2), number, counted.pool.publication()).unwrap();
        }
        counted.count("get", |index, _| assert_eq!(index.get(&key(width, 4)).unwrap(), Some(2)));
        counted.count("insert", |index, pool| {
            index.insert(&key(width, 1), 1, pool.publication()).unwrap();
        });
        counted.count("insert with an allocated value", |index, pool| {
            let object = pool.reserve(1024).unwrap();
            let mut with = pool.publication();
            let value = with.allocate(object);
            index.insert(&key(width, 3), value.to_word(), with).unwrap();
        });
        counted.count("replace", |index, pool| {
            index.replace(&key(width, 1), 2, pool.publication()).unwrap();
        });
        counted.count("remove", |index, pool| {
            index.remove(&key(width, 1), pool.publication()).unwrap();
        });
        counted.count("1000 inserts in order, with splits", |index, pool| {
            for number in 1000..2000 {
                index.insert(&key(width, number), number, pool.publication()).unwrap();
            }
        });
        text = counted.text;
    }
    let path = format!("{}/tests/structures/flushes.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("UPDATE_PINS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, pinned, "the cost changed; if that is meant, run with UPDATE_PINS=1");
}
