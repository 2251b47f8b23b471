//! Cost of transactions: two states of one group, keys of 8 bytes, values of 32, as in the dissertation's
//! 5.8.1.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example two_states -- TUPLES [volatile | journal]
//! ```
//! Prints reads beside reads of the bare index, commits of ten updates of one writer and of two on disjoint
//! keys. Two beside one is also said by the writers' time on processors: on a machine that is busy with other
//! things, what the two cost each other shows there, and what they wait for does not.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const VALUE: [u8; 32] = [7; 32];
const OPERATIONS: u64 = 10;
const PHASE: Duration = Duration::from_millis(1500);

/// SplitMix64.
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

fn load(context: &Arc<StateContext>, states: &[Arc<State>; 2], tuples: u64) -> Outcome<()> {
    for from in (0..tuples).step_by(1000) {
        let transaction = context.begin()?;
        for number in from..(from + 1000).min(tuples) {
            for state in states {
                transaction.write(state, &key(number), Some(&VALUE))?;
            }
        }
        transaction.commit(Durability::None)?;
    }
    Ok(())
}

/// Transactions of ten updates, of keys that are `writer` modulo `writers`, until told to stop.
fn write(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    tuples: u64,
    (writer, writers): (u64, u64),
    durability: Durability,
    stop: &AtomicBool,
) -> Outcome<u64> {
    let mut random = Random(writer);
    let mut commits = 0;
    while !stop.load(Relaxed) {
        let transaction = context.begin()?;
        for operation in 0..OPERATIONS {
            let number = random.below(tuples / writers) * writers + writer;
            transaction.write(&states[(operation % 2) as usize], &key(number), Some(&VALUE))?;
        }
        transaction.commit(durability)?;
        commits += 1;
    }
    Ok(commits)
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Commits a second, by the clock and by a processor.
struct Rates {
    clock: f64,
    processor: f64,
}

fn writers(
    name: &str,
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    tuples: u64,
    writers: u64,
    durability: Durability,
) -> Outcome<Rates> {
    let stop = AtomicBool::new(false);
    let commits = AtomicU64::new(0);
    let busy_ns = AtomicU64::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (stop, commits, busy_ns) = (&stop, &commits, &busy_ns);
                scope.spawn(move || -> Outcome<()> {
                    commits.fetch_add(
                        write(context, states, tuples, (writer, writers), durability, stop)?,
                        Relaxed,
                    );
                    busy_ns.fetch_add(processor_ns()?, Relaxed);
                    Ok(())
                })
            })
            .collect();
        thread::sleep(PHASE);
        stop.store(true, Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("writers do not panic"))
    })?;
    let rate = commits.load(Relaxed) as f64 / started.elapsed().as_secs_f64();
    let processor = commits.load(Relaxed) as f64 * 1e9 / busy_ns.load(Relaxed) as f64;
    println!("{name:<32} {rate:>12.0} commits/s, {processor:>9.0} by a processor");
    Ok(Rates { clock: rate, processor })
}

fn reads(context: &Arc<StateContext>, state: &Arc<State>, tuples: u64) -> Outcome<()> {
    let transaction = context.begin()?;
    let mut random = Random(99);
    let (mut count, mut sum, started) = (0u64, 0u64, Instant::now());
    while started.elapsed() < PHASE {
        for _ in 0..1000 {
            let value = transaction.read(state, &key(random.below(tuples)), |value| u64::from(value[0]))?;
            sum += value.unwrap_or(0);
        }
        count += 1000;
    }
    assert_eq!(sum, 7 * count, "every tuple is there");
    println!(
        "{:<32} {:>12.0} reads/s",
        "reads at a snapshot",
        count as f64 / started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let tuples: u64 = arguments.next().unwrap_or_else(|| "1000000".into()).parse()?;
    let dir = std::env::temp_dir().join(format!("two-states-{}", std::process::id()));
    let pool = match arguments.next().as_deref() {
        Some("volatile") => Pool::volatile(&PoolOptions::default())?,
        _ => {
            std::fs::create_dir_all(&dir)?;
            Pool::open_or_create(
                &dir,
                &PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() },
            )?
        }
    };
    let context = StateContext::open_or_create(pool)?;
    let group = context.create_group()?;
    let states =
        [context.create_state(group, KeyWidth::Eight)?, context.create_state(group, KeyWidth::Eight)?];
    let started = Instant::now();
    load(&context, &states, tuples)?;
    println!("{:<32} {:>12.0} tuples/s", "load", 2.0 * tuples as f64 / started.elapsed().as_secs_f64());
    reads(&context, &states[0], tuples)?;
    let one = writers("one writer, none", &context, &states, tuples, 1, Durability::None)?;
    let two = writers("two writers, none", &context, &states, tuples, 2, Durability::None)?;
    println!("{:<32} {:>12.2}", "two beside one", two.clock / one.clock);
    println!("{:<32} {:>12.2}", "by time on processors", 2.0 * two.processor / one.processor);
    writers("one writer, group(10)", &context, &states, tuples, 1, Durability::Group { interval_ms: 10 })?;
    drop(context);
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
