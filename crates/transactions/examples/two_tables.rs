//! Two writers of different states, each with a group of its own, beside one: commits of ten updates at
//! `none`.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example two_tables -- DIRECTORY [ROUNDS] [volatile]
//! ```
//! Rounds of one and two take turns; medians, by the clock and by the writers' time on processors. On a
//! machine that is busy with other things the second shows what the two cost each other, without what they
//! wait for.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const KEYS: u64 = 100_000;
const UPDATES: u64 = 10;
const ROUND: Duration = Duration::from_millis(500);

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Commits until told to stop; returns their number, and nanoseconds of processor time.
fn write(context: &Arc<StateContext>, state: &Arc<State>, stop: &AtomicBool) -> Outcome<(u64, u64)> {
    let (mut commits, mut number, began) = (0, 0, processor_ns()?);
    while !stop.load(Relaxed) {
        let transaction = context.begin()?;
        for _ in 0..UPDATES {
            number = (number + 61_813) % KEYS;
            transaction.write(state, &number.to_be_bytes(), Some(&[commits as u8; 32]))?;
        }
        transaction.commit(Durability::None)?;
        commits += 1;
    }
    Ok((commits, processor_ns()? - began))
}

/// Commits a second of all writers, by the clock; and as many as they would make on a processor each.
fn round(context: &Arc<StateContext>, states: &[Arc<State>]) -> Outcome<[f64; 2]> {
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            states.iter().map(|state| scope.spawn(move || write(context, state, stop))).collect();
        thread::sleep(ROUND);
        stop.store(true, Relaxed);
        let mut rates = [0.0, 0.0];
        for thread in threads {
            let (commits, busy_ns) = thread.join().map_err(|_| "a writer panicked")??;
            rates[0] += commits as f64 / began.elapsed().as_secs_f64();
            rates[1] += commits as f64 * 1e9 / busy_ns as f64;
        }
        Ok(rates)
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
    let pool = match arguments.next().as_deref() {
        Some("volatile") => Pool::volatile(&PoolOptions::default())?,
        _ => {
            let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
            Pool::create(directory.as_ref(), &options)?
        }
    };
    let context = StateContext::open_or_create(pool)?;
    let mut states = Vec::new();
    for _ in 0..2 {
        let state = context.create_state(context.create_group()?, KeyWidth::Eight)?;
        for from in (0..KEYS).step_by(1000) {
            let load = context.begin()?;
            (from..from + 1000).try_for_each(|key| load.write(&state, &key.to_be_bytes(), Some(&[0; 32])))?;
            load.commit(Durability::None)?;
        }
        states.push(state);
    }
    let mut measured = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for number in 0..=rounds {
        for (writers, found) in (1..=2).zip(&mut measured) {
            let rates = round(&context, &states[..writers])?;
            if number > 0 {
                found.iter_mut().zip(rates).for_each(|(all, one)| all.push(one));
            }
        }
    }
    let [one, two] = measured.map(|found| found.map(median));
    for (at, name) in ["by the clock", "by processors"].into_iter().enumerate() {
        let (one, two) = (one[at], two[at]);
        println!("{name:<14} one {one:>8.0} commits/s, two {two:>8.0}, {:.2} times", two / one);
    }
    Ok(())
}
