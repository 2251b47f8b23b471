//! Compares the LSM-tree with the generic B+-tree (fingerprints, inner nodes in DRAM) and the FPTree:
//! nanoseconds on the processor an operation, random 8-byte keys.
//!
//! ```text
//! cargo run --release -p entresol-structures --example lsm_bench -- [KEYS] [DOMAIN] [RUNS_PER_LEVEL] [DISK_LEVELS]
//! ```
//!
//! KEYS defaults to 1,000,000; DOMAIN is `journal` (durability `none`: nothing is synced) or `volatile`.
//! Every result is checked. "writer" is the time of the writing thread alone; the work of the tree's own
//! thread is included in the wall-clock time until all is merged.

use entresol_memory::{DomainChoice, Pool, PoolOptions};
use entresol_structures::btree::instances::FpLikeTree;
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree};
use entresol_structures::{FpTree, Scan, WordKey};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A bijection of 64-bit words: the i-th random key.
fn key(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Returns the nanoseconds that this thread has been on the processor, as the scheduler counts them.
fn on_processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Prints the time of an operation, by this thread's processor time and by the clock.
fn measure(name: &str, operations: u64, work: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let (start, before) = (Instant::now(), on_processor_ns());
    work()?;
    let clock = start.elapsed().as_nanos() as f64 / operations as f64;
    let ns = (on_processor_ns() - before) as f64 / operations as f64;
    println!("  {name:34} {ns:8.0} ns   {clock:8.0} ns by the clock");
    Ok(())
}

fn pool(domain: &str, dir: &TempDir) -> Outcome<Arc<Pool>> {
    Ok(match domain {
        "volatile" => Pool::volatile(&PoolOptions::default())?,
        _ => {
            let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
            Pool::create(dir.path(), &options)?
        }
    })
}

fn lsm(keys: u64, domain: &str, runs_per_level: u32, disk_levels: u32) -> Outcome<()> {
    let dir = TempDir::new()?;
    let pool = pool(domain, &dir)?;
    let mut parameters = LsmParameters { runs_per_level, disk_levels, ..LsmParameters::default() };
    if disk_levels > 0 {
        parameters.pool_levels = 1;
    }
    let mut publication = pool.publication();
    let root = LsmTree::<u64>::create(&pool, &parameters, &mut publication)?;
    publication.set_root("tree", root)?;
    publication.publish()?;
    let options = LsmOptions { directory: Some(dir.path().to_path_buf()), ..LsmOptions::default() };
    let tree = LsmTree::<u64>::open(&pool, root, &options)?;
    println!("LSM-tree, {parameters:?}");
    measure("writer: upsert", keys, || {
        (0..keys).try_for_each(|i| Ok(tree.upsert(key(i), i, pool.publication())?))
    })?;
    measure("until merged", keys, || Ok(tree.settle()?))?;
    let stats = tree.stats();
    let levels: Vec<_> = stats.levels.iter().map(|level| (level.runs, level.entries)).collect();
    println!(
        "  runs and entries {levels:?}, {:.1} times written, {} stalls, filters {} KiB, index {} KiB",
        stats.write_amplification(),
        stats.stalls,
        stats.filter_bytes >> 10,
        stats.index_bytes >> 10
    );
    measure("get", keys, || {
        (0..keys).for_each(|i| assert_eq!(tree.get(key(i * 7919 % keys)).ok(), Some(Some(i * 7919 % keys))));
        Ok(())
    })?;
    measure("get, absent", keys, || {
        (0..keys).for_each(|i| assert_eq!(tree.get(key(keys + i)).ok(), Some(None)));
        Ok(())
    })?;
    measure("get_many, 64 at a time", keys, || {
        for from in (0..keys - 63).step_by(64) {
            let group: Vec<u64> = (from..from + 64).map(|i| key(i * 7919 % keys)).collect();
            assert_eq!(tree.get_many(&group)?[5], Some((from + 5) * 7919 % keys));
        }
        Ok(())
    })?;
    measure("an entry of a scan of all", keys, || {
        assert_eq!(tree.range(0..=u64::MAX).count() as u64, keys);
        Ok(())
    })?;
    measure("a scan of 100", keys / 100, || {
        for i in 0..keys / 100 {
            let mut entries = Vec::with_capacity(100);
            tree.scan(key(i)..=u64::MAX, 100, &mut entries)?;
            assert!(entries[0].0 == key(i));
        }
        Ok(())
    })?;
    drop(tree);
    let before = Instant::now();
    let tree = LsmTree::<u64>::open(&pool, root, &options)?;
    println!("  opened in {:.1} ms", before.elapsed().as_secs_f64() * 1e3);
    assert_eq!(tree.get(key(1))?, Some(1));
    Ok(())
}

fn trees(keys: u64, domain: &str) -> Outcome<()> {
    let dir = TempDir::new()?;
    let pool = pool(domain, &dir)?;
    let mut publication = pool.publication();
    let root = FpLikeTree::<u64>::create(&pool, &mut publication)?;
    publication.publish()?;
    let tree = FpLikeTree::<u64>::open(&pool, root)?;
    println!("B+-tree, hashing leaves, inner nodes in DRAM");
    measure("insert", keys, || {
        (0..keys).try_for_each(|i| tree.insert(key(i), i, pool.publication()).map(drop).map_err(Into::into))
    })?;
    measure("get", keys, || {
        (0..keys).for_each(|i| assert_eq!(tree.get(key(i * 7919 % keys)).ok(), Some(Some(i * 7919 % keys))));
        Ok(())
    })?;
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(&pool, 1, &mut publication)?;
    publication.publish()?;
    let tree = FpTree::<WordKey>::open(&pool, root, 1)?;
    println!("FPTree");
    measure("insert", keys, || {
        (0..keys).try_for_each(|i| tree.insert(key(i), i, pool.publication()).map(drop).map_err(Into::into))
    })?;
    measure("get", keys, || {
        (0..keys).for_each(|i| assert_eq!(tree.get(key(i * 7919 % keys)).ok(), Some(Some(i * 7919 % keys))));
        Ok(())
    })
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let domain = arguments.next().unwrap_or_else(|| "journal".to_string());
    let runs: u32 =
        arguments.next().map_or(Ok(LsmParameters::default().runs_per_level), |runs| runs.parse())?;
    let disk: u32 = arguments.next().map_or(Ok(0), |levels| levels.parse())?;
    println!("{keys} keys, {domain}");
    lsm(keys, &domain, runs, disk)?;
    trees(keys, &domain)
}
