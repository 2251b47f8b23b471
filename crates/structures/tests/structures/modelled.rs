//! Costs of the tree's operations on a modelled device: pins the lines that they access.

use entresol_memory::profile::Profile;
use entresol_memory::{Pool, PoolOptions};
use entresol_structures::{FpTree, WordKey};

const KEYS: u64 = 100_000;

/// Keys in random order.
fn scattered() -> impl Iterator<Item = u64> {
    let mut keys: Vec<u64> = (0..KEYS).collect();
    keys.sort_by_key(|key| {
        let mixed = (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    });
    keys.into_iter()
}

fn tree(profile: &Profile) -> (std::sync::Arc<Pool>, FpTree<WordKey>) {
    let pool = Pool::modelled(&PoolOptions::default(), profile).unwrap();
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(&pool, 0, &mut publication).unwrap();
    publication.set_root("tree", root).unwrap();
    publication.publish().unwrap();
    let tree = FpTree::open(&pool, root, 0).unwrap();
    for key in scattered() {
        tree.insert(key, key, pool.publication()).unwrap();
    }
    (pool, tree)
}

/// A small cache, so that every leaf comes from the device.
fn cold(name: &str) -> Profile {
    let mut profile = Profile::embedded(name).unwrap();
    profile.caches.truncate(1);
    profile
}

/// Dissertation 3.2.2: a search in a hashing leaf reads the line of fingerprints and the entry.
#[test]
fn a_lookup_reads_two_lines_of_a_leaf() {
    let (pool, tree) = tree(&cold("optane-dcpmm"));
    let before = pool.modelled_cost().unwrap();
    for key in scattered() {
        assert_eq!(tree.get(key).unwrap(), Some(key));
    }
    let cost = pool.modelled_cost().unwrap() - before;
    let lines_read = cost.lines_read as f64 / KEYS as f64;
    assert!((1.9..2.3).contains(&lines_read), "{lines_read} lines a lookup");
    // Both are prefetched together, mostly.
    let ns = cost.ns() / KEYS as f64;
    assert!((300.0..1.5 * 325.0).contains(&ns), "{ns} ns a lookup");
}

#[test]
fn lookups_together_overlap() {
    let (pool, tree) = tree(&cold("optane-dcpmm"));
    let keys: Vec<u64> = scattered().collect();
    let before = pool.modelled_cost().unwrap();
    let mut values = Vec::new();
    tree.get_many(keys.iter().copied(), &mut values).unwrap();
    let together = pool.modelled_cost().unwrap();
    for key in &keys {
        tree.get(*key).unwrap();
    }
    let alone = pool.modelled_cost().unwrap() - together;
    let together = together - before;
    assert!(values.iter().zip(&keys).all(|(value, key)| *value == Some(*key)));
    assert!(together.ns() * 2.0 < alone.ns(), "{} and {}", together.ns(), alone.ns());
}

/// Dissertation, table 2.2: random reads take 325 ns and 88 ns; the tree's lookups consist of them.
#[test]
fn a_lookup_costs_as_much_more_as_the_device_is_slower() {
    let lookups = |name| {
        let (pool, tree) = tree(&cold(name));
        let before = pool.modelled_cost().unwrap();
        scattered().for_each(|key| assert_eq!(tree.get(key).unwrap(), Some(key)));
        (pool.modelled_cost().unwrap() - before).ns()
    };
    let ratio = lookups("optane-dcpmm") / lookups("dram");
    assert!((2.0..325.0 / 81.0).contains(&ratio), "{ratio}");
}
