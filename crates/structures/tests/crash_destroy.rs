//! Destroying a tree under the crash checker: a crash leaves a sound tree that owns all allocated objects,
//! keys' records and values among them, so that destroying it again frees the rest.

#![allow(clippy::unwrap_used)]

use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::collections::BTreeSet;
use std::sync::Arc;

const KEYS: u64 = 150;

fn key(number: u64) -> Vec<u8> {
    format!("a key that needs a record, {number:04}").into_bytes()
}

/// Verifies that every allocated object belongs to the tree, once: as a node, a key's record or a value.
fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let mut own = BTreeSet::new();
    let root = pool.root("index");
    if let Some(root) = root {
        let mut values = Vec::new();
        let claim = |offset, _| if own.insert(offset) { Ok(()) } else { Err("it is used twice".to_string()) };
        OrderedIndex::check_remains(pool, root, claim, |_, value| values.push(value))
            .map_err(|e| e.to_string())?;
        if let Some(value) = values.into_iter().find(|value| !own.insert(*value)) {
            return Err(format!("the object at {value:#x} is used twice"));
        }
    }
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own == allocated { Ok(()) } else { Err(format!("the tree owns {own:?}, allocated are {allocated:?}")) }
}

#[test]
fn a_tree_that_is_being_destroyed_owns_what_is_left() {
    let options = CrashOptions { random_states: 4, crash_recovery_every: 7, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        let mut publication = pool.publication();
        let root = OrderedIndex::create(pool, KeyWidth::Variable, &mut publication).expect("room for a tree");
        publication.set_root("index", root)?;
        publication.publish()?;
        let index = OrderedIndex::open(pool, root).expect("just created");
        for number in 0..KEYS {
            let object = pool.reserve(64)?;
            let mut with = pool.publication();
            let value = with.allocate(object);
            index.insert(&key(number), value, with).expect("room for a key");
        }
        drop(index);
        while !OrderedIndex::destroy_step(pool, root, true, 1).expect("the tree is sound") {}
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root("index", 0)?;
        publication.publish()
    };
    let report = check(&options, history, verify).unwrap();
    assert!(report.states > 1000, "{report:?}");
}
