//! Measures the throughput of two threads on one FPTree against one, and the rebuild of inner nodes at open.
//!
//! ```text
//! cargo run --release -p entresol-structures --example fptree_two_threads -- [KEYS] [ROUNDS]
//! ```
//!
//! The load is mixed: of eight operations four look up, two replace, one inserts and one removes; keys are
//! random, evenly or after Zipf's law (0.99). The pool is a journal with durability `none`. A thread's time
//! is that for which it had a processor, so that a busy machine disturbs less; `speed-up` is what two threads
//! do in the time in which one does one half of it. Every lookup is checked.

use entresol_memory::{DomainChoice, Env, Pool, PoolOptions};
use entresol_structures::{FpTree, WordKey};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A bijection of 64-bit words: the i-th random key.
fn key(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(first.parse()?)
}

/// Ranks after Zipf's law (Gray et al., Quickly generating billion-record synthetic databases, 1994).
#[derive(Clone)]
struct Zipf {
    items: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64, theta: f64) -> Zipf {
        let zeta: f64 = (1..=items).map(|i| (i as f64).powf(-theta)).sum();
        let two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - two / zeta);
        Zipf { items: items as f64, theta, zeta, eta }
    }

    fn rank(&self, random: u64) -> u64 {
        let share = (random >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        (self.items * (self.eta * share - self.eta + 1.0).powf(1.0 / (1.0 - self.theta))) as u64
    }
}

/// One thread's load; returns its nanoseconds for each operation.
fn run(
    pool: &Arc<Pool>,
    tree: &FpTree<WordKey>,
    keys: u64,
    zipf: Option<&Zipf>,
    seed: u64,
    operations: u64,
) -> Outcome<f64> {
    let env = Env::simulated(seed);
    let wanted: Vec<u64> = (0..operations)
        .map(|_| {
            zipf.map_or_else(|| env.random_u64() % keys, |zipf| zipf.rank(env.random_u64()).min(keys - 1))
        })
        .collect();
    // Keys of its own, which come and go.
    let fresh = |i: u64| key(keys * (seed + 2) + i);
    let (mut inserted, mut removed) = (0, 0);
    let start = processor_ns()?;
    for (number, wanted) in wanted.iter().enumerate() {
        match number % 8 {
            0 | 4 => drop(tree.replace(key(*wanted), *wanted, pool.publication())?),
            2 => {
                tree.insert(fresh(inserted), 0, pool.publication())?;
                inserted += 1;
            }
            6 => {
                tree.remove(fresh(removed), pool.publication())?;
                removed += 1;
            }
            _ if tree.get(key(*wanted))? == Some(*wanted) => {}
            _ => return Err(format!("key {wanted} is wrong").into()),
        }
    }
    Ok((processor_ns()? - start) as f64 / operations as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(
    name: &str,
    pool: &Arc<Pool>,
    tree: &FpTree<WordKey>,
    keys: u64,
    zipf: Option<&Zipf>,
    rounds: u64,
) -> Outcome<()> {
    let operations = keys.min(2_000_000);
    let mut speed_ups = Vec::new();
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let one = run(pool, tree, keys, zipf, round * 3, operations)?;
        let two: Outcome<Vec<f64>> = std::thread::scope(|scope| {
            let threads = [1, 2].map(|thread| {
                scope.spawn(move || run(pool, tree, keys, zipf, round * 3 + thread, operations))
            });
            threads.map(|thread| thread.join().expect("the load does not panic")).into_iter().collect()
        });
        let two = two?;
        ones.push(one);
        twos.push((two[0] + two[1]) / 2.0);
        speed_ups.push(one / two[0] + one / two[1]);
    }
    println!(
        "{name:12} one thread {:5.0} ns, two {:5.0} ns each, speed-up {:.2}",
        median(ones),
        median(twos),
        median(speed_ups)
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let rounds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::create(directory.path(), &options)?;
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(&pool, 1, &mut publication)?;
    publication.set_root("tree", root)?;
    publication.publish()?;
    let tree = FpTree::<WordKey>::open(&pool, root, 1)?;
    for i in 0..keys {
        tree.insert(key(i), i, pool.publication())?;
    }
    compare("uniform", &pool, &tree, keys, None, rounds)?;
    compare("Zipf 0.99", &pool, &tree, keys, Some(&Zipf::new(keys, 0.99)), rounds)?;
    drop(tree);
    let rate = |name: &str, pool: &Arc<Pool>| -> Outcome<()> {
        let (start, wall) = (processor_ns()?, Instant::now());
        let tree = FpTree::<WordKey>::open(pool, root, 1)?;
        let (used, wall) = (processor_ns()? - start, wall.elapsed());
        let stats = tree.stats();
        println!(
            "open, {name:18} {:6.1} M tuples/s of the thread's time, {:6.1} of wall time; {} leaves",
            stats.keys as f64 * 1e3 / used as f64,
            stats.keys as f64 / 1e6 / wall.as_secs_f64(),
            stats.leaves
        );
        Ok(())
    };
    for _ in 0..rounds {
        rate("pool in use", &pool)?;
    }
    pool.close()?;
    drop(pool);
    for _ in 0..rounds {
        let pool = Pool::open(directory.path(), &options)?;
        rate("pool just opened", &pool)?;
    }
    Ok(())
}
