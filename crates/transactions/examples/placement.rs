//! Commits over a state in DRAM, over a durable one, and over both.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example placement -- DIRECTORY [COMMITS]
//! ```
//! Each commit updates one key of 1,000. Prints microseconds a commit, how much of that on a processor, and
//! the bytes that went to the journal.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext, StateOptions, TierChoice};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEYS: u64 = 1_000;

fn commits(
    context: &Arc<StateContext>,
    states: &[&Arc<State>],
    durability: Durability,
    count: u64,
) -> Outcome<()> {
    for number in 0..count {
        let writer = context.begin()?;
        for state in states {
            writer.write(state, &(number % KEYS).to_be_bytes(), Some(&[number as u8; 100]))?;
        }
        writer.commit(durability)?;
    }
    Ok(())
}

/// Microseconds that this thread was on a processor.
fn processor_micros() -> Outcome<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: f64 = times.split_whitespace().next().ok_or("no time")?.parse()?;
    Ok(nanos / 1e3)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let count: u64 = arguments.next().map_or(Ok(200_000), |count| count.parse())?;
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::open_or_create(Path::new(&directory), &options)?)?;
    let state = |tier| -> Outcome<Arc<State>> {
        let group = context.create_group()?;
        Ok(context.create_state_with(StateOptions::new(group, KeyWidth::Eight, tier))?)
    };
    let (durable, volatile) = (state(TierChoice::Disk)?, state(TierChoice::Dram)?);
    commits(&context, &[&durable, &volatile], Durability::None, KEYS)?;
    let cases: [(&str, &[&Arc<State>], Durability, u64); 4] = [
        ("dram", &[&volatile], Durability::Sync, count),
        ("disk, none", &[&durable], Durability::None, count),
        ("disk, sync", &[&durable], Durability::Sync, count / 100),
        ("dram and disk, none", &[&volatile, &durable], Durability::None, count),
    ];
    for (name, states, durability, count) in cases {
        let appended = || context.pool().stats().journal_appended_bytes;
        let (before, used, began) = (appended(), processor_micros()?, Instant::now());
        commits(&context, states, durability, count)?;
        let each = |sum: f64| sum / count as f64;
        let (micros, used) = (each(began.elapsed().as_secs_f64() * 1e6), each(processor_micros()? - used));
        let bytes = each((appended() - before) as f64);
        println!(
            "{name:<22} {micros:>8.2} us a commit, {used:>6.2} of a processor, {bytes:>5.0} bytes of journal"
        );
    }
    Ok(())
}
