//! Compares the search primitives of `node::search` with the search of sorted nodes, in nodes that are in the
//! processor's caches: nanoseconds a search.
//!
//! ```text
//! cargo run --release -p entresol-structures --example search
//! ```

use entresol_memory::{Env, PoolOffset};
use entresol_structures::node::{Layout, Node, Sorted, search};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

const SEARCHES: usize = 2_000_000;
const ROUNDS: usize = 5;

/// Nanoseconds of the fastest round; the sum of all answers must be as expected.
fn measure(name: &str, wanted: &[u64], expected: u64, search: impl Fn(u64) -> usize) {
    let fastest = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let sum: u64 = wanted.iter().map(|key| search(black_box(*key)) as u64).sum();
            assert_eq!(sum, expected, "{name} found other places");
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    println!("  {name:28} {:6.1} ns", fastest * 1e9 / wanted.len() as f64);
}

fn compare<const BYTES: usize>(message: &str, keys: &[u64], wanted: &[u64]) {
    let expected = wanted.iter().map(|key| keys.partition_point(|other| other <= key) as u64).sum();
    println!("{} {message} keys, a node of {BYTES} bytes", keys.len());
    let at = |i: usize| keys[i];
    measure("binary", wanted, expected, |key| search::binary(keys.len(), key, at));
    measure("interpolation", wanted, expected, |key| search::interpolation(keys.len(), key, at));
    measure("exponential", wanted, expected, |key| search::exponential(keys.len(), key, at));
    // A node's words must start a cache line.
    let words: Vec<AtomicU64> = (0..BYTES / 8 + 8).map(|_| AtomicU64::new(0)).collect();
    let first = words.as_ptr().align_offset(64);
    let node = Node::new(&words[first..first + BYTES / 8], PoolOffset::NULL);
    let entries: Vec<(u64, u64)> = keys.iter().enumerate().map(|(i, key)| (*key, i as u64 + 1)).collect();
    Sorted::<BYTES>::fill(node, &entries);
    let geometry = Sorted::<BYTES>::geometry::<u64>();
    measure("sorted node, whole lines", wanted, expected, |key| {
        Sorted::<BYTES>::floor(node, key).map_or(0, |slot| node.value(geometry, slot) as usize)
    });
}

fn main() {
    let env = Env::simulated(5);
    let wanted: Vec<u64> = (0..SEARCHES).map(|_| env.random_u64()).collect();
    let random = |count: usize| {
        let mut keys: Vec<u64> = (0..count).map(|_| env.random_u64()).collect();
        keys.sort_unstable();
        keys
    };
    let even = |count: u64| -> Vec<u64> { (0..count).map(|i| i * (u64::MAX / count)).collect() };
    compare::<1024>("random", &random(60), &wanted);
    compare::<1024>("evenly spread", &even(60), &wanted);
    compare::<4096>("random", &random(252), &wanted);
    compare::<4096>("evenly spread", &even(252), &wanted);
}
