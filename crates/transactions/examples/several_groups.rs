//! Cost of a commit over several state groups beside one into a single group, on `journal` at `none`.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example several_groups -- DIRECTORY [ROUNDS]
//! ```
//! A commit updates sixteen keys, spread over one, two, four or sixteen states, each with a group of its own;
//! one writer, then two of different keys in the same groups. Rounds take turns; medians, by the clock and by
//! the writers' time on processors.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const KEYS: u64 = 20_000;
const UPDATES: u64 = 16;
const GROUPS: [usize; 4] = [1, 2, 4, 16];
const ROUND: Duration = Duration::from_millis(400);

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Commits until told to stop; returns their number, and nanoseconds of processor time.
fn write(
    context: &Arc<StateContext>,
    states: &[Arc<State>],
    writer: u64,
    stop: &AtomicBool,
) -> Outcome<(u64, u64)> {
    let (mut commits, mut number, began) = (0, writer, processor_ns()?);
    while !stop.load(Relaxed) {
        let transaction = context.begin()?;
        for update in 0..UPDATES {
            let state = &states[update as usize % states.len()];
            number = (number + 2 * 7919) % KEYS;
            transaction.write(state, &number.to_be_bytes(), Some(&[commits as u8; 32]))?;
        }
        transaction.commit(Durability::None)?;
        commits += 1;
    }
    Ok((commits, processor_ns()? - began))
}

/// Microseconds a commit, by the clock and by the processor.
fn round(context: &Arc<StateContext>, states: &[Arc<State>], writers: u64) -> Outcome<[f64; 2]> {
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let (commits, busy_ns) = thread::scope(|scope| -> Outcome<(u64, u64)> {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn({
                    let stop = &stop;
                    move || write(context, states, writer, stop)
                })
            })
            .collect();
        thread::sleep(ROUND);
        stop.store(true, Relaxed);
        let mut sum = (0, 0);
        for thread in threads {
            let (commits, busy_ns) = thread.join().map_err(|_| "a writer panicked")??;
            sum = (sum.0 + commits, sum.1 + busy_ns);
        }
        Ok(sum)
    })?;
    let clock_us = began.elapsed().as_secs_f64() * 1e6;
    Ok([clock_us / commits as f64, busy_ns as f64 / 1e3 / commits as f64])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let rounds: usize = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::create(directory.as_ref(), &options)?)?;
    let mut states = Vec::new();
    for _ in 0..GROUPS[GROUPS.len() - 1] {
        let state = context.create_state(context.create_group()?, KeyWidth::Eight)?;
        for from in (0..KEYS).step_by(1000) {
            let load = context.begin()?;
            (from..from + 1000).try_for_each(|key| load.write(&state, &key.to_be_bytes(), Some(&[0; 32])))?;
            load.commit(Durability::None)?;
        }
        states.push(state);
    }
    let mut measured = vec![[Vec::new(), Vec::new()]; 2 * GROUPS.len()];
    for number in 0..=rounds {
        for (at, found) in measured.iter_mut().enumerate() {
            let spent = round(&context, &states[..GROUPS[at / 2]], 1 + at as u64 % 2)?;
            // The first one makes the objects.
            if number > 0 {
                found.iter_mut().zip(spent).for_each(|(all, one)| all.push(one));
            }
        }
    }
    println!("groups  writers  us a commit, by the clock   by the processor");
    for (at, found) in measured.into_iter().enumerate() {
        let [clock, processor] = found.map(median);
        println!("{:>6} {:>8} {clock:>27.2} {processor:>18.2}", GROUPS[at / 2], 1 + at % 2);
    }
    Ok(())
}
