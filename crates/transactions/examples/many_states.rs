//! Cost of a database with many states, each with a group of its own, of which few are used.
//!
//! ```text
//! cargo run --release -p entresol-transactions --example many_states -- DIRECTORY [STATES]
//! ```
//! Makes them, opens the database again, commits ten updates over one group and over two, and opens it again
//! as a crash would leave it. Prints times, resident memory, and the size of the pool, after each step.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext, StateId};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const COMMITS: u64 = 50_000;

/// Resident bytes of this process, in MiB.
fn resident_mib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<f64>()? / 1024.0)
}

fn open(directory: &Path) -> Outcome<Arc<StateContext>> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    Ok(StateContext::open_or_create(Pool::open_or_create(directory, &options)?)?)
}

fn step(name: &str, context: &StateContext, began: Instant) -> Outcome<()> {
    let (seconds, pool_mib) = (began.elapsed().as_secs_f64(), context.pool().bytes() >> 20);
    println!("{name:<36} {seconds:>9.3} s, {:>7.0} MiB resident, pool {pool_mib} MiB", resident_mib()?);
    Ok(())
}

/// Microseconds for a commit of ten updates, and for beginning and dropping a transaction.
fn commits(context: &Arc<StateContext>, states: &[Arc<State>]) -> Outcome<[f64; 2]> {
    let began = Instant::now();
    for number in 0..COMMITS {
        let writer = context.begin()?;
        for update in 0..10 {
            let key = (number * 10 + update) % 1000;
            writer.write(&states[update as usize % states.len()], &key.to_be_bytes(), Some(&[1; 32]))?;
        }
        writer.commit(Durability::None)?;
    }
    let commit = began.elapsed();
    let began = Instant::now();
    for _ in 0..COMMITS {
        drop(context.begin()?);
    }
    Ok([commit, began.elapsed()].map(|time| time.as_secs_f64() * 1e6 / COMMITS as f64))
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let directory = Path::new(&directory);
    let count: u32 = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let began = Instant::now();
    let context = open(directory)?;
    step("new", &context, began)?;
    let began = Instant::now();
    for _ in 0..count {
        context.create_state(context.create_group()?, KeyWidth::Eight)?;
    }
    step("states made", &context, began)?;
    let pool = Arc::clone(context.pool());
    drop(context);
    pool.close()?;
    drop(pool);
    let began = Instant::now();
    let context = open(directory)?;
    step("opened after a close", &context, began)?;
    let states: Vec<_> = [0, count - 1].into_iter().filter_map(|id| context.state(StateId(id))).collect();
    for (name, states) in [("one group", &states[..1]), ("two groups", &states[..])] {
        commits(&context, states)?;
        let [commit, begin] = commits(&context, states)?;
        println!("{name:<36} {commit:>9.2} us a commit, {begin:.2} us to begin and drop");
    }
    context.pool().sync()?;
    drop((states, context));
    let began = Instant::now();
    let context = open(directory)?;
    step("opened after no close", &context, began)?;
    Ok(())
}
