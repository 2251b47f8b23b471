//! Damaged trees, and trees of another kind, are clear errors; nothing panics.

use super::{Instance, Tree, instances, small_instances, volatile_pool};
use entresol_memory::{Env, Pool, PoolOffset};
use entresol_structures::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const ROOT: u64 = 3 * 8;
const FIRST_LEAF: u64 = 4 * 8;

/// Creates a tree of several levels and closes it; returns its header.
fn tree(instance: &Instance) -> (Arc<Pool>, PoolOffset) {
    let pool = volatile_pool();
    let tree = instance.new_tree(&pool);
    for key in 0..400 {
        tree.insert(key * 7 % 400, key, pool.publication()).unwrap();
    }
    let root = pool.root("tree").unwrap();
    (pool, root)
}

/// Returns true if inner nodes are in DRAM: then the header refers to none.
fn is_hybrid(pool: &Pool, root: PoolOffset) -> bool {
    pool.word(root.plus(ROOT)).load(Relaxed) & 1 == 0
}

/// Opens and checks.
fn look(instance: &Instance, pool: &Arc<Pool>, root: PoolOffset) -> Result<Box<dyn Tree>, Error> {
    let tree = (instance.open)(pool, root)?;
    tree.check(&mut |_| {})?;
    Ok(tree)
}

fn assert_damaged(instance: &Instance, pool: &Arc<Pool>, root: PoolOffset, message: &str) {
    match look(instance, pool, root) {
        Err(Error::Corrupt { .. } | Error::Invalid(_)) => {}
        Err(error) => panic!("{}, {message}: {error}", instance.name),
        Ok(_) => panic!("{}, {message}: nothing was found", instance.name),
    }
}

#[test]
fn another_kind_of_tree_is_refused() {
    let all = instances();
    for created in small_instances() {
        let pool = volatile_pool();
        drop(created.new_tree(&pool));
        let root = pool.root("tree").unwrap();
        for opened in &all {
            let opened_as = (opened.open)(&pool, root);
            assert_eq!(opened_as.is_ok(), opened.name == created.name, "{} as {}", created.name, opened.name);
            if let Err(error) = opened_as {
                assert!(error.to_string().contains("another kind"), "{error}");
            }
        }
    }
}

#[test]
fn flipped_bits_of_the_header_are_found() {
    for instance in small_instances() {
        let (pool, root) = tree(&instance);
        for word in 0..5 {
            // Trees with inner nodes in DRAM do not use a root's word.
            if is_hybrid(&pool, root) && word * 8 == ROOT {
                continue;
            }
            for bit in 0..64 {
                pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Relaxed);
                assert_damaged(&instance, &pool, root, &format!("bit {bit} of header word {word}"));
                pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Relaxed);
            }
        }
        look(&instance, &pool, root).unwrap();
        for wild in [0, 8, 1 << 40, u64::MAX - 63].map(PoolOffset::new) {
            assert!(matches!((instance.open)(&pool, wild), Err(Error::Corrupt { .. })));
        }
    }
}

#[test]
fn wild_links_and_impossible_states_are_found() {
    for instance in small_instances() {
        let (pool, root) = tree(&instance);
        let mut objects = Vec::new();
        pool.for_each_object(|offset, _| objects.push(offset));
        let first = PoolOffset::from_word(pool.word(root.plus(FIRST_LEAF)).load(Relaxed));
        // The words in front of the entries that refer to another leaf: the link to the next one.
        let leads_to = |at: &PoolOffset| PoolOffset::from_word(pool.word(*at).load(Relaxed));
        let links: Vec<PoolOffset> =
            (0..8).map(|word| first.word(word)).filter(|at| objects.contains(&leads_to(at))).collect();
        let [link] = links[..] else { panic!("{}: links at {links:?}", instance.name) };
        let next = pool.word(link).load(Relaxed);
        for wild in [0, 3, 1 << 40, u64::MAX - 63, first.to_word(), root.to_word(), next ^ 0x100] {
            pool.word(link).store(wild, Relaxed);
            // A chain that ends early or skips leaves cannot be distinguished from a short one where the
            // inner nodes are built from it.
            if is_hybrid(&pool, root) && (wild == 0 || wild == next ^ 0x100) {
                continue;
            }
            assert_damaged(&instance, &pool, root, &format!("next leaf at {wild:#x}"));
        }
        pool.word(link).store(next, Relaxed);
        for node in [first, PoolOffset::from_word(next)] {
            let state = pool.word(node).swap(u64::MAX, Relaxed);
            assert_damaged(&instance, &pool, root, "a state of ones");
            pool.word(node).store(state, Relaxed);
        }
        look(&instance, &pool, root).unwrap();
    }
}

/// Any flipped bit is found, or harmless, or a wrong entry; never a panic, never an endless loop.
#[test]
fn no_flipped_bit_makes_a_reader_panic() {
    for instance in small_instances() {
        let (pool, root) = tree(&instance);
        let mut objects = Vec::new();
        pool.for_each_object(|offset, bytes| objects.push((offset, bytes)));
        let env = Env::simulated(3);
        let (mut found, mut flips) = (0, 0);
        for _ in 0..1500 {
            let (offset, bytes) = objects[(env.random_u64() % objects.len() as u64) as usize];
            // Half of them in the first line, where the structure is.
            let words = if env.random_u64().is_multiple_of(2) { 8 } else { bytes / 8 };
            let at = offset.plus(env.random_u64() % words * 8);
            let bit = 1 << (env.random_u64() % 64);
            pool.word(at).fetch_xor(bit, Relaxed);
            flips += 1;
            match (instance.open)(&pool, root) {
                Err(_) => found += 1,
                Ok(tree) => {
                    found += u32::from(tree.check(&mut |_| {}).is_err());
                    let _ = tree.stats();
                    for key in (0..400).step_by(37) {
                        let _ = tree.get(key);
                    }
                }
            }
            pool.word(at).fetch_xor(bit, Relaxed);
        }
        println!("{}: {found} of {flips} flips were found", instance.name);
        assert!(found > flips / 10);
        look(&instance, &pool, root).unwrap();
    }
}
