//! Measures gains and costs of the hotspot index: plain FPTree and hash table beside the same with the
//! hotspot index in front, alternating, medians of three rounds. Slow memory is emulated: every get that
//! reaches the index waits for a number of additional nanoseconds.
//!
//! ```text
//! cargo run --release -p entresol-structures --example hotspot_bench [KEYS] [EXTRA_NS]
//! ```

use entresol_memory::{Env, Pool, PoolOptions, Publication};
use entresol_structures::{
    FpTree, HashTable, HotspotIndex, HotspotOptions, Inserted, PointIndex, Result, WordKey,
};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const OPERATIONS: usize = 200_000;

/// An index on slower memory.
struct Slow<I> {
    behind: I,
    extra: Duration,
}

impl<I: PointIndex<Key = u64>> PointIndex for Slow<I> {
    type Key = u64;
    const KEY_WORDS: usize = 1;

    fn key_words(key: u64) -> [u64; 2] {
        [key, 0]
    }

    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        let value = self.behind.get(key);
        if !self.extra.is_zero() {
            let start = Instant::now();
            while start.elapsed() < self.extra {
                std::hint::spin_loop();
            }
        }
        value
    }

    fn insert<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Inserted> {
        self.behind.insert(key, value, with)
    }

    fn replace<'p>(&'p self, key: u64, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.replace(key, value, with)
    }

    fn remove<'p>(&'p self, key: u64, with: Publication<'p>) -> Result<Option<u64>> {
        self.behind.remove(key, with)
    }
}

fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the nanoseconds that this thread has run so far: on a busy machine steadier than wall-clock time.
fn on_processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// Nanoseconds on a processor, an operation.
fn time(numbers: &[u64], operation: impl Fn(u64) -> bool) -> f64 {
    let before_ns = on_processor_ns();
    assert!(numbers.iter().all(|number| operation(key(*number))), "every key is there");
    (on_processor_ns() - before_ns) / numbers.len() as f64
}

fn compare<I: PointIndex<Key = u64>>(
    name: &str,
    pool: &Arc<Pool>,
    plain: &Slow<I>,
    hot: &HotspotIndex<Slow<I>>,
    keys: u64,
) {
    let env = Env::simulated(11);
    let draw = |hot_percent: u64| -> Vec<u64> {
        let one = || {
            if env.random_u64() % 100 < hot_percent {
                env.random_u64() % (keys / 5)
            } else {
                env.random_u64() % keys
            }
        };
        (0..OPERATIONS).map(|_| one()).collect()
    };
    // Warm, as the paper's measurements are: 80% of the gets go to 20% of the keys.
    for _ in 0..20 {
        time(&draw(80), |key| hot.get(key).is_ok_and(|value| value.is_some()));
    }
    let mut rows: [(&str, Vec<f64>, Vec<f64>); 4] =
        ["get, 80% on 20% of the keys", "update, 80% on 20%", "get, uniform", "update, uniform"]
            .map(|row| (row, vec![], vec![]));
    println!("{name:10} {:?}", hot.stats());
    for (index, (_, theirs, ours)) in rows.iter_mut().enumerate() {
        let percent = if index < 2 { 80 } else { 0 };
        if index == 2 {
            for _ in 0..30 {
                time(&draw(0), |key| hot.get(key).is_ok_and(|value| value.is_some()));
            }
        }
        for _ in 0..ROUNDS {
            let numbers = draw(percent);
            if index % 2 == 0 {
                theirs.push(time(&numbers, |key| plain.get(key).is_ok_and(|value| value.is_some())));
                ours.push(time(&numbers, |key| hot.get(key).is_ok_and(|value| value.is_some())));
            } else {
                theirs.push(time(&numbers, |key| {
                    matches!(plain.replace(key, 1, pool.publication()), Ok(Some(_)))
                }));
                ours.push(time(&numbers, |key| {
                    matches!(hot.replace(key, 1, pool.publication()), Ok(Some(_)))
                }));
            }
        }
    }
    for (row, theirs, ours) in &mut rows {
        theirs.sort_by(f64::total_cmp);
        ours.sort_by(f64::total_cmp);
        let (theirs, ours) = (theirs[ROUNDS / 2], ours[ROUNDS / 2]);
        println!("{name:10} {row:28} {theirs:8.1} {ours:8.1} {:6.2}", theirs / ours);
    }
    println!("{name:10} {:?}", hot.stats());
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let extra = Duration::from_nanos(arguments.next().map_or(Ok(300), |text| text.parse())?);
    let pool = Pool::volatile(&PoolOptions::default())?;
    // Room for a fifth of the keys.
    let budget_bytes = HotspotIndex::<FpTree<WordKey>>::budget_bytes(keys as usize / 5);
    let options = HotspotOptions { budget_bytes, ..HotspotOptions::default() };
    println!("{keys} keys, {extra:?} more for each get behind: ns plain, ns with the hotspot index, times");
    let mut publication = pool.publication();
    let roots = [0, 1].map(|_| FpTree::<WordKey>::create(&pool, 0, &mut publication));
    let tables = [0, 1].map(|_| HashTable::<WordKey>::create(&pool, &mut publication));
    let [tree, other_tree] = roots;
    let [table, other_table] = tables;
    let (tree, other_tree, table, other_table) = (tree?, other_tree?, table?, other_table?);
    publication.publish()?;
    let plain = Slow { behind: FpTree::<WordKey>::open(&pool, tree, 0)?, extra };
    let behind = Slow { behind: FpTree::<WordKey>::open(&pool, other_tree, 0)?, extra };
    let hot = HotspotIndex::new(behind, options.clone())?;
    for number in 0..keys {
        plain.insert(key(number), number, pool.publication())?;
        hot.insert(key(number), number, pool.publication())?;
    }
    compare("FPTree", &pool, &plain, &hot, keys);
    let plain = Slow { behind: HashTable::<WordKey>::open(&pool, table)?, extra };
    let hot =
        HotspotIndex::new(Slow { behind: HashTable::<WordKey>::open(&pool, other_table)?, extra }, options)?;
    for number in 0..keys {
        plain.insert(key(number), number, pool.publication())?;
        hot.insert(key(number), number, pool.publication())?;
    }
    compare("hash table", &pool, &plain, &hot, keys);
    Ok(())
}
