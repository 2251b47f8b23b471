//! Reads and commits beside the bare base table, in turns, by the thread's processor time: a measure that
//! holds on a busy machine too. The workload is that of `two_states`; the lab's `protocol-overhead` measures
//! the same by the clock.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example beside_base -- TUPLES [volatile | journal] [ROUNDS] [PART OF A NAME]
//! ```
//! Each row: nanoseconds of the base table and of the transactions, medians of the rounds, and the median of
//! their ratios.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOffset, PoolOptions};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use entresol_transactions::{ContextOptions, Protocol, State, StateContext};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const VALUE: [u8; 32] = [7; 32];
const OPERATIONS: usize = 10;
/// Operations of one measurement: some 100 ms.
const READS: usize = 200_000;
const COMMITS: usize = 20_000;
const HOT_COMMITS: usize = 50_000;
/// One measurement of several threads.
const PHASE: Duration = Duration::from_millis(300);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The same index over values without versions.
struct Base {
    pool: Arc<Pool>,
    index: OrderedIndex,
}

impl Base {
    fn new(pool: &Arc<Pool>, tuples: u64) -> Outcome<Base> {
        let mut publication = pool.publication();
        let root = OrderedIndex::create(pool, KeyWidth::Eight, &mut publication)?;
        publication.set_root("base", root)?;
        publication.publish()?;
        let base = Base { pool: Arc::clone(pool), index: OrderedIndex::open(pool, root)? };
        for number in 0..tuples {
            let reservation = pool.reserve(VALUE.len())?;
            base.store(reservation.offset());
            let mut publication = pool.publication();
            let record = publication.allocate(reservation);
            let inserted = base.index.insert(&key(number), record.to_word(), publication)?;
            assert!(matches!(inserted, Inserted::New), "tuple {number} was there");
        }
        Ok(base)
    }

    fn store(&self, record: PoolOffset) {
        for (word, bytes) in self.pool.words(record, VALUE.len() / 8).iter().zip(VALUE.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        self.pool.flush(record, VALUE.len());
    }

    #[inline]
    fn read<R>(&self, number: u64, f: impl FnOnce(&[u8]) -> R) -> Outcome<R> {
        let _guard = self.pool.pin();
        let word = self.index.get(&key(number))?.ok_or("every tuple is there")?;
        let record = PoolOffset::from_word(word);
        let mut value = [0; VALUE.len()];
        for (bytes, word) in value.chunks_exact_mut(8).zip(self.pool.words(record, VALUE.len() / 8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Ok(f(&value))
    }

    /// Nanoseconds of each of so many operations of random tuples.
    fn many(&self, round: u64, count: usize, tuples: u64, each: impl Fn(u64) -> Outcome<()>) -> Outcome<f64> {
        let mut random = Random(round);
        ns_of_each(count, || (0..count).try_for_each(|_| each(random.below(tuples))))
    }

    fn write(&self, number: u64) -> Outcome<()> {
        let _guard = self.pool.pin();
        let word = self.index.get(&key(number))?.ok_or("every tuple is there")?;
        let record = PoolOffset::from_word(word);
        self.store(record);
        self.pool.fence();
        Ok(())
    }
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse::<u64>()? as f64)
}

/// Nanoseconds of each of so many operations.
fn ns_of_each(count: usize, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    std::thread::yield_now();
    let before = processor_ns()?;
    work()?;
    Ok((processor_ns()? - before) / count as f64)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Arguments of a run.
struct Run {
    rounds: u64,
    /// Runs only benchmarks with this in their name.
    part: String,
}

/// Runs both in turns and prints them.
fn beside(
    name: &str,
    Run { rounds, part, .. }: &Run,
    mut base: impl FnMut(u64) -> Outcome<f64>,
    mut transactions: impl FnMut(u64) -> Outcome<f64>,
) -> Outcome<()> {
    if !name.contains(part) {
        return Ok(());
    }
    let (mut bases, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..*rounds {
        bases.push(base(round)?);
        others.push(transactions(round)?);
        ratios.push(bases[bases.len() - 1] / others[others.len() - 1]);
    }
    let (base, other) = (median(&bases), median(&others));
    println!("{name:<36} {base:>8.1} ns {other:>8.1} ns   {:>5.3} of its speed", median(&ratios));
    Ok(())
}

struct Bench {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
    tuples: u64,
}

impl Bench {
    fn new(pool: Arc<Pool>, protocol: Protocol, tuples: u64) -> Outcome<Bench> {
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(pool, options)?;
        let group = context.create_group()?;
        let states =
            [context.create_state(group, KeyWidth::Eight)?, context.create_state(group, KeyWidth::Eight)?];
        for from in (0..tuples).step_by(1000) {
            let transaction = context.begin()?;
            for number in from..(from + 1000).min(tuples) {
                for state in &states {
                    transaction.write(state, &key(number), Some(&VALUE))?;
                }
            }
            transaction.commit(Durability::None)?;
        }
        Ok(Bench { context, states, tuples })
    }

    fn read(&self, operations: usize, round: u64) -> Outcome<f64> {
        let mut random = Random(round);
        ns_of_each(READS, || {
            for _ in 0..READS / operations {
                let transaction = self.context.begin()?;
                for _ in 0..operations {
                    let at = key(random.below(self.tuples));
                    let value = transaction.read(&self.states[0], &at, |v| black_box(v[0]))?;
                    assert_eq!(value, Some(7), "every tuple is there");
                }
                transaction.commit(Durability::None)?;
            }
            Ok(())
        })
    }

    /// One commit of ten updates of keys that are `writer` modulo `writers`.
    fn commit(&self, random: &mut Random, (writer, writers): (u64, u64), level: Durability) -> Outcome<()> {
        let transaction = self.context.begin()?;
        for operation in 0..OPERATIONS {
            let number = random.below(self.tuples / writers) * writers + writer;
            transaction.write(&self.states[operation % 2], &key(number), Some(&VALUE))?;
        }
        transaction.commit(level)?;
        Ok(())
    }

    /// Commits of one key in both states; four of five times the same key, as with Zipf's theta of 2.9.
    fn write_hot(&self, round: u64) -> Outcome<f64> {
        let mut random = Random(round);
        ns_of_each(HOT_COMMITS, || {
            for _ in 0..HOT_COMMITS {
                let number = if random.below(5) == 0 { random.below(self.tuples) } else { 0 };
                let transaction = self.context.begin()?;
                for state in &self.states {
                    transaction.write(state, &key(number), Some(&VALUE))?;
                }
                transaction.commit(Durability::None)?;
            }
            Ok(())
        })
    }

    fn write(&self, round: u64, level: Durability) -> Outcome<f64> {
        let mut random = Random(round);
        ns_of_each(COMMITS * OPERATIONS, || {
            (0..COMMITS).try_for_each(|_| self.commit(&mut random, (0, 1), level))
        })
    }

    /// Commits a second of so many writers: by the clock, and of each by its processor.
    fn writers(&self, round: u64, writers: u64, level: Durability) -> Outcome<(f64, f64)> {
        let (stop, commits, busy_ns) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let started = Instant::now();
        std::thread::scope(|scope| {
            let writer = |writer: u64| {
                let (stop, commits, busy_ns) = (&stop, &commits, &busy_ns);
                move || -> Outcome<()> {
                    let mut random = Random(round << 8 | writer);
                    while !stop.load(Ordering::Relaxed) {
                        self.commit(&mut random, (writer, writers), level)?;
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                    busy_ns.fetch_add(processor_ns()? as u64, Ordering::Relaxed);
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..writers).map(|number| scope.spawn(writer(number))).collect();
            std::thread::sleep(PHASE);
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().try_for_each(|thread| thread.join().expect("writers do not panic"))
        })?;
        let commits = commits.into_inner() as f64;
        let busy = busy_ns.into_inner() as f64;
        Ok((commits / started.elapsed().as_secs_f64(), commits * 1e9 / busy))
    }

    fn two_beside_one(&self, name: &str, run: &Run, level: Durability) -> Outcome<()> {
        if !name.contains(&run.part) {
            return Ok(());
        }
        let (mut ones, mut clock, mut processor, mut shared) = (vec![], vec![], vec![], vec![]);
        for round in 0..run.rounds {
            let one = self.writers(round, 1, level)?;
            let syncs = self.context.pool().stats().syncs;
            let two = self.writers(round, 2, level)?;
            let syncs = (self.context.pool().stats().syncs - syncs).max(1) as f64;
            shared.push(two.0 * PHASE.as_secs_f64() / syncs);
            ones.push(one.0);
            clock.push(two.0 / one.0);
            processor.push(2.0 * two.1 / one.1);
        }
        println!(
            "{name:<36} {:>8.0} commits/s of one; two: {:>5.2} times by the clock, {:>5.2} by processors, {:>8.1} commits a sync",
            median(&ones),
            median(&clock),
            median(&processor),
            median(&shared)
        );
        Ok(())
    }
}

fn pool(domain: Option<&str>, dir: &Path) -> Outcome<Arc<Pool>> {
    let options = PoolOptions { address_space_bytes: 8 << 30, ..PoolOptions::default() };
    if domain == Some("volatile") {
        return Ok(Pool::volatile(&options)?);
    }
    std::fs::create_dir_all(dir)?;
    Ok(Pool::create(dir, &PoolOptions { domain: DomainChoice::Journal, ..options })?)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let tuples: u64 = arguments.next().unwrap_or_else(|| "1000000".into()).parse()?;
    let domain = arguments.next();
    let rounds = arguments.next().unwrap_or_else(|| "15".into()).parse()?;
    let run = Run { rounds, part: arguments.next().unwrap_or_default() };
    let dir = std::env::temp_dir().join(format!("beside-base-{}", std::process::id()));
    let in_place = Bench::new(pool(domain.as_deref(), &dir.join("in"))?, Protocol::MvccInPlace, tuples)?;
    let base = Base::new(in_place.context.pool(), tuples)?;
    println!("{:<36} {:>11} {:>11}", "a tuple", "base table", "transaction");
    let reads =
        |round| base.many(round, READS, tuples, |number| base.read(number, |v| black_box(v[0])).map(drop));
    beside("read, transactions of 10", &run, reads, |round| in_place.read(OPERATIONS, round))?;
    beside("read, one transaction", &run, reads, |round| in_place.read(READS, round))?;
    let writes = |round| base.many(round, COMMITS * OPERATIONS, tuples, |number| base.write(number));
    beside("update, commits of 10, none", &run, writes, |round| in_place.write(round, Durability::None))?;
    if dir.exists() {
        let group = Durability::Group { interval_ms: 10 };
        beside("update, commits of 10, group(10)", &run, writes, |round| in_place.write(round, group))?;
    }
    in_place.two_beside_one("commits of 10, none", &run, Durability::None)?;
    if dir.exists() {
        in_place.two_beside_one("commits of 10, sync", &run, Durability::Sync)?;
    }
    drop(base);
    let out_of_place = pool(domain.as_deref(), &dir.join("out"))?;
    let out_of_place = Bench::new(out_of_place, Protocol::MvccOutOfPlace, tuples)?;
    println!("{:<36} {:>11} {:>11}", "a commit", "out of place", "in place");
    let [out, inside] = [&out_of_place, &in_place].map(|bench| |round| bench.write_hot(round));
    beside("two updates, four of five of a key", &run, out, inside)?;
    drop((out_of_place, in_place));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
