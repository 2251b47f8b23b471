//! Loss of a writer at `none` beside a writer at `sync` of another state: rounds alone and beside it, in
//! turns.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example beside_sync -- DIRECTORY [ROUNDS]
//! ```
//! Prints the median of the rates by the clock, and of commits for a second of the writer's own processor
//! time, which other load on the machine disturbs less.

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

/// Commits of one update until told to stop; returns their number.
fn write(
    context: &Arc<StateContext>,
    state: &Arc<State>,
    durability: Durability,
    stop: &AtomicBool,
) -> Outcome<u64> {
    let mut commits = 0;
    while !stop.load(Relaxed) {
        let writer = context.begin()?;
        writer.write(state, &(commits % KEYS).to_be_bytes(), Some(&commits.to_le_bytes()))?;
        writer.commit(durability)?;
        commits += 1;
    }
    Ok(commits)
}

/// Processor time of this thread.
fn processor_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = stat.split_whitespace().next().ok_or("no time in schedstat")?.parse()?;
    Ok(Duration::from_nanos(ns))
}

/// A round: commits a second by the clock, and by the processor; commits a second of the other.
fn round(context: &Arc<StateContext>, states: &[Arc<State>; 2], beside: bool) -> Outcome<[f64; 3]> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let own = scope.spawn(|| -> Outcome<(u64, Duration)> {
            let before = processor_time()?;
            let commits = write(context, &states[0], Durability::None, &stop)?;
            Ok((commits, processor_time()? - before))
        });
        let other = beside.then(|| scope.spawn(|| write(context, &states[1], Durability::Sync, &stop)));
        let began = Instant::now();
        thread::sleep(ROUND);
        stop.store(true, Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let (commits, busy) = own.join().map_err(|_| "the writer panicked")??;
        let others = match other {
            Some(other) => other.join().map_err(|_| "the other writer panicked")??,
            None => 0,
        };
        Ok([commits as f64 / seconds, commits as f64 / busy.as_secs_f64(), others as f64 / seconds])
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
    println!("the other, at sync: {:.0}/s", of(1, 2));
    Ok(())
}
