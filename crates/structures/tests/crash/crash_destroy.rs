//! Destroying a tree under the crash checker: a crash leaves a sound tree that owns all allocated objects,
//! keys' records and values among them, so that destroying it again frees the rest.

use entresol_memory::crash::{CrashOptions, CrashReport, check};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{IndexStructure, KeyWidth, OrderedIndex};
use std::collections::BTreeSet;
use std::sync::Arc;

const KEYS: u64 = 150;

fn key(structure: IndexStructure, number: u64) -> Vec<u8> {
    match structure {
        IndexStructure::FpTree => format!("a key that needs a record, {number:04}").into_bytes(),
        _ => number.to_be_bytes().to_vec(),
    }
}

/// Verifies that every allocated object belongs to one of the trees, once: as a node, a key's record or a value.
fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let mut own = BTreeSet::new();
    for root in ["index", "beside"].into_iter().filter_map(|name| pool.root(name)) {
        let mut values = Vec::new();
        let claim = |offset, _| if own.insert(offset) { Ok(()) } else { Err("it is used twice".to_string()) };
        OrderedIndex::check_remains(pool, root, claim, |_, value| values.push(PoolOffset::from_word(value)))
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

/// Inserts keys one by one and in batches, each with an object that only its value leads to; then destroys
/// the tree.
fn destroyed(structure: IndexStructure) -> entresol_memory::Result<CrashReport> {
    let options = CrashOptions { random_states: 4, crash_recovery_every: 7, ..CrashOptions::default() };
    let width = if structure == IndexStructure::FpTree { KeyWidth::Variable } else { KeyWidth::Eight };
    let history = move |pool: &Arc<Pool>| {
        let mut publication = pool.publication();
        let root =
            OrderedIndex::create_as(pool, structure, width, &mut publication).expect("room for a tree");
        publication.set_root("index", root)?;
        publication.publish()?;
        let index = OrderedIndex::open(pool, root).expect("just created");
        for number in 0..KEYS / 2 {
            let object = pool.reserve(64)?;
            let mut with = pool.publication();
            let value = with.allocate(object);
            index.insert(&key(structure, number), value.to_word(), with).expect("room for a key");
        }
        let keys: Vec<_> = (KEYS / 2..KEYS).map(|number| key(structure, number)).collect();
        for keys in keys.chunks(6) {
            let mut objects =
                keys.iter().map(|_| pool.reserve(64)).collect::<entresol_memory::Result<Vec<_>>>()?;
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            index
                .insert_many(
                    &keys,
                    |_, with| with.allocate(objects.pop().expect("one for each")).to_word(),
                    |_, _| (),
                )
                .expect("room for keys");
        }
        drop(index);
        while !OrderedIndex::destroy_step(pool, root, true, 1).expect("the tree is sound") {}
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root("index", PoolOffset::NULL)?;
        publication.publish()
    };
    check(&options, history, verify)
}

/// Creates a tree of keys of any length.
fn create(pool: &Arc<Pool>, name: &str) -> entresol_memory::Result<PoolOffset> {
    let mut publication = pool.publication();
    let root = OrderedIndex::create(pool, KeyWidth::Variable, &mut publication).expect("room for a tree");
    publication.set_root(name, root)?;
    publication.publish()?;
    Ok(root)
}

fn destroy(pool: &Arc<Pool>, name: &str, root: PoolOffset) -> entresol_memory::Result<()> {
    while !OrderedIndex::destroy_step(pool, root, true, 1).expect("the tree is sound") {}
    let mut publication = pool.publication();
    publication.free(root);
    publication.set_root(name, PoolOffset::NULL)?;
    publication.publish()
}

/// Builds a tree beside an empty one, exchanges them, adds keys in between, and destroys both.
fn built() -> entresol_memory::Result<CrashReport> {
    let options = CrashOptions { random_states: 4, crash_recovery_every: 7, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        let roots = [create(pool, "index")?, create(pool, "beside")?];
        let [index, beside] = roots.map(|root| OrderedIndex::open(pool, root).expect("just created"));
        let keys: Vec<_> = (0..KEYS).map(|number| key(IndexStructure::FpTree, 2 * number)).collect();
        for keys in keys.chunks(60) {
            let mut objects =
                keys.iter().map(|_| pool.reserve(64)).collect::<entresol_memory::Result<Vec<_>>>()?;
            beside
                .append_sorted(keys, |_, with| with.allocate(objects.pop().expect("one for each")).to_word())
                .expect("room for keys");
        }
        let mut publication = pool.publication();
        let content = index.take_content(&beside, &mut publication).expect("trees of one kind");
        publication.publish()?;
        index.use_content(content);
        drop(beside);
        for number in 0..10 {
            let object = pool.reserve(64)?;
            let mut with = pool.publication();
            let value = with.allocate(object).to_word();
            index.insert(&key(IndexStructure::FpTree, 14 * number + 1), value, with).expect("room for a key");
        }
        destroy(pool, "beside", roots[1])?;
        drop(index);
        destroy(pool, "index", roots[0])
    };
    check(&options, history, verify)
}

#[test]
fn trees_that_exchange_their_contents_own_each_object_once() {
    let report = built().unwrap();
    assert!(report.states > 1000, "{report:?}");
}

#[test]
fn a_tree_that_is_being_destroyed_owns_what_is_left() {
    for structure in IndexStructure::ALL {
        let report = destroyed(structure).unwrap();
        assert!(report.states > 1000, "{structure}: {report:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_what_a_tree_owns_is_caught() {
    use crate::points::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    assert!(
        check_all(entresol_structures::POINTS, LIST, Test::Destroyed, || {
            destroyed(IndexStructure::FpTree)?;
            built()
        }) >= 7
    );
}
