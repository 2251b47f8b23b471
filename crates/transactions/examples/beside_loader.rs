//! Loss of a writer of one key beside a loader that commits 10,000 keys of another state at a time: rounds
//! alone and beside it, in turns.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example beside_loader -- DIRECTORY [ROUNDS]
//! ```
//! Prints medians of the rates by the clock, and of commits for a second of the writer's own processor time,
//! which other load on the machine disturbs less; the longest commit of a round; and the loader's keys for a
//! second of its processor time. Both are at `none`, in one group.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const KEYS: u64 = 10_000;
const ROUND: Duration = Duration::from_millis(400);

/// Commits of some updates each until told to stop: their number, processor time, and the longest in
/// microseconds.
fn write(
    context: &Arc<StateContext>,
    state: &Arc<State>,
    keys: u64,
    stop: &AtomicBool,
) -> Outcome<(u64, Duration, f64)> {
    let (mut commits, mut longest, before) = (0_u64, Duration::ZERO, processor_time()?);
    while !stop.load(Relaxed) {
        let writer = context.begin()?;
        for key in 0..keys {
            writer.write(state, &((commits + key) % KEYS).to_be_bytes(), Some(&commits.to_le_bytes()))?;
        }
        let began = Instant::now();
        writer.commit(Durability::None)?;
        longest = longest.max(began.elapsed());
        commits += 1;
    }
    Ok((commits, processor_time()? - before, longest.as_secs_f64() * 1e6))
}

/// Processor time of this thread.
fn processor_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = stat.split_whitespace().next().ok_or("no time in schedstat")?.parse()?;
    Ok(Duration::from_nanos(ns))
}

/// A round: commits a second by the clock, and by the processor; the longest commit; keys of the loader a
/// second of its processor.
fn round(context: &Arc<StateContext>, states: &[Arc<State>; 2], beside: bool) -> Outcome<[f64; 4]> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let own = scope.spawn(|| write(context, &states[0], 1, &stop));
        let loader = beside.then(|| scope.spawn(|| write(context, &states[1], KEYS, &stop)));
        let began = Instant::now();
        thread::sleep(ROUND);
        stop.store(true, Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let (commits, busy, longest) = own.join().map_err(|_| "the writer panicked")??;
        let loaded = match loader {
            Some(loader) => {
                let (commits, busy, _) = loader.join().map_err(|_| "the loader panicked")??;
                (commits * KEYS) as f64 / busy.as_secs_f64()
            }
            None => 0.0,
        };
        Ok([commits as f64 / seconds, commits as f64 / busy.as_secs_f64(), longest, loaded])
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let rounds: usize = arguments.next().map_or(Ok(9), |rounds| rounds.parse())?;
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::create(directory.as_ref(), &options)?;
    let context = StateContext::open_or_create(pool)?;
    let group = context.create_group()?;
    let states =
        [context.create_state(group, KeyWidth::Eight)?, context.create_state(group, KeyWidth::Eight)?];
    let mut measured = [Vec::new(), Vec::new()];
    for number in 0..2 * rounds + 2 {
        let beside = number % 2 == 1;
        let rates = round(&context, &states, beside)?;
        // The first two make the objects.
        if number >= 2 {
            measured[usize::from(beside)].push(rates);
        }
    }
    let of = |beside: usize, what: usize| median(measured[beside].iter().map(|rates| rates[what]).collect());
    for (name, what) in [("by the clock", 0), ("by the processor", 1)] {
        let (alone, beside) = (of(0, what), of(1, what));
        println!("{name}: alone {alone:.0}/s, beside {beside:.0}/s, {:.2} of it", beside / alone);
    }
    println!("the longest commit: alone {:.0} us, beside {:.0} us", of(0, 2), of(1, 2));
    println!("the loader: {:.0} keys for a second of a processor", of(1, 3));
    Ok(())
}
