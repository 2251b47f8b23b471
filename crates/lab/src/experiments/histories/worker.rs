//! The process that gets killed: threads of random transactions, and a line on its output for each begin and
//! each end.
//!
//! A line is written as a whole before the transaction begins and after its commit is durable, so what the
//! reader of the pipe has when the process is gone is an order in which things really happened. Without its
//! input the process ends in order: it reads every key once more, closes the database, and is done. So it
//! never outlives its parent.

use super::operations::{Generator, Lists, Operation, Outcome, WINDOW, fatal, render};
use crate::Error;
use crate::measure::Random;
use clap::{Args, ValueEnum};
use entresol_memory::{DomainChoice, Durability, MemoryBudget, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::crash_histories::check_sound;
use entresol_transactions::{ContextOptions, Isolation, Protocol, Reclaimer, State, StateContext, StateId};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Operations of transactions on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Append numbers to lists, which show the order of all writes.
    Lists,
    /// Overwrite registers.
    Registers,
}

/// One life of the process.
#[derive(Clone, Debug, Args)]
pub struct Life {
    /// The database; created in the first life.
    #[arg(long)]
    pub dir: PathBuf,
    /// An index into the list of protocols.
    #[arg(long)]
    pub protocol: usize,
    /// An index into the list of levels.
    #[arg(long)]
    pub isolation: usize,
    /// Operations of transactions.
    #[arg(long)]
    pub workload: Workload,
    /// Number of lives before.
    #[arg(long)]
    pub life: u32,
    /// The first key of the window.
    #[arg(long)]
    pub first_key: u64,
    /// Number of threads.
    #[arg(long)]
    pub threads: u32,
    /// Ends by itself after so many transactions of each thread.
    #[arg(long)]
    pub transactions: u64,
    /// Every commit is on disk before it is reported.
    #[arg(long)]
    pub durable: bool,
    /// Seed of the threads' choices.
    #[arg(long)]
    pub seed: u64,
}

/// The levels, weakest first.
pub const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

/// Numbers that a life may take for a key.
const NUMBERS_PER_LIFE: u32 = 1 << 22;

/// Memory budget of half of the lives: fewer bytes than its pages have, so that each is evicted again and again.
const TIGHT_BYTES: u64 = 1 << 20;

impl Life {
    /// Returns true for half of the lives, which have little memory, and a thread that reclaims dead versions.
    fn is_tight(&self) -> bool {
        (u64::from(self.life) ^ self.seed) % 2 == 1
    }
}

/// Writes whole lines to the standard output.
struct Log {
    workload: Workload,
    /// False once the lines have no reader.
    is_read: AtomicBool,
}

impl Log {
    fn line(&self, kind: &str, process: u64, operations: &[Operation], reads: &[Option<Vec<u32>>]) {
        let value = render(self.workload, operations, reads);
        let line = format!("{{\"type\":\"{kind}\",\"f\":\"txn\",\"process\":{process},\"value\":{value}}}\n");
        let mut out = std::io::stdout().lock();
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.is_read.store(false, Ordering::Relaxed);
        }
    }
}

/// Lives one life.
pub fn run(life: &Life) -> Result<(), Error> {
    let lists = open(life)?;
    let stop = Arc::new(AtomicBool::new(false));
    let no_more_input = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Nothing is ever sent: this returns when the parent closes the pipe or ends.
        let _ = std::io::stdin().read(&mut [0]);
        no_more_input.store(true, Ordering::Relaxed);
    });
    let reclaimer = life.is_tight().then(|| Reclaimer::start(&lists.context));
    let log = Log { workload: life.workload, is_read: AtomicBool::new(true) };
    let last_key = AtomicU64::new(life.first_key + WINDOW);
    std::thread::scope(|scope| {
        let work = |thread| repeat(life, thread, &lists, &log, &stop, &last_key);
        let threads: Vec<_> = (0..life.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of the history panicked"))
    })?;
    read_all(life, last_key.into_inner(), &lists, &log)?;
    let pool = Arc::clone(lists.context.pool());
    drop(reclaimer);
    drop(lists);
    pool.close()?;
    Ok(())
}

fn open(life: &Life) -> Result<Lists, Error> {
    let wrong = || Error::Invalid(format!("no protocol {} or level {}", life.protocol, life.isolation));
    let protocol = *Protocol::ALL.get(life.protocol).ok_or_else(wrong)?;
    let isolation = *LEVELS.get(life.isolation).ok_or_else(wrong)?;
    let memory = life.is_tight().then(|| MemoryBudget::tiny(TIGHT_BYTES));
    let options = PoolOptions { domain: DomainChoice::Journal, memory, ..PoolOptions::default() };
    let pool =
        if life.life == 0 { Pool::create(&life.dir, &options)? } else { Pool::open(&life.dir, &options)? };
    let context =
        StateContext::open_or_create_with(pool, ContextOptions { protocol, ..ContextOptions::default() })?;
    // What the kill has left.
    check_sound(&context).map_err(Error::Invalid)?;
    let states: Vec<Arc<State>> = if life.life == 0 {
        let group = context.create_group()?;
        let states =
            (0..2).map(|_| context.create_state(group, KeyWidth::Eight)).collect::<Result<_, _>>()?;
        context.pool().sync()?;
        states
    } else {
        (0..2).filter_map(|number| context.state(StateId(number))).collect()
    };
    let states = states
        .try_into()
        .map_err(|_| Error::Invalid("the database lacks the states of the first life".to_string()))?;
    let durability = if life.durable { Durability::Sync } else { Durability::None };
    Ok(Lists { context, states, workload: life.workload, isolation, durability })
}

/// Runs the transactions of one thread.
fn repeat(
    life: &Life,
    thread: u32,
    lists: &Lists,
    log: &Log,
    stop: &AtomicBool,
    last_key: &AtomicU64,
) -> Result<(), Error> {
    let process = u64::from(life.life * (life.threads + 1) + thread);
    let mut generator = Generator {
        random: Random::new(life.seed ^ (process << 32)),
        first_key: life.first_key,
        next_number: life.life * NUMBERS_PER_LIFE + 1 + thread,
        step: life.threads,
        transactions: 0,
    };
    while generator.transactions < life.transactions
        && !stop.load(Ordering::Relaxed)
        && log.is_read.load(Ordering::Relaxed)
    {
        let operations = generator.draw();
        let aborts = generator.changes_its_mind();
        for operation in &operations {
            let (Operation::Read { key, .. } | Operation::Put { key, .. }) = *operation;
            last_key.fetch_max(key, Ordering::Relaxed);
        }
        log.line("invoke", process, &operations, &[]);
        match lists.perform(&operations, aborts) {
            Ok(Outcome::Committed(reads)) => log.line("ok", process, &operations, &reads),
            Ok(Outcome::Aborted) => log.line("fail", process, &operations, &[]),
            Err(error) => return Err(Error::Invalid(fatal(&error))),
        }
    }
    Ok(())
}

/// Every key once more, alone and at the end: what was acknowledged has to be there.
fn read_all(life: &Life, last_key: u64, lists: &Lists, log: &Log) -> Result<(), Error> {
    let process = u64::from(life.life * (life.threads + 1) + life.threads);
    let keys: Vec<u64> = (0..=last_key).collect();
    for keys in keys.chunks(WINDOW as usize) {
        let operations: Vec<_> =
            keys.iter().map(|&key| Operation::Read { key, by_range: key % 3 == 0 }).collect();
        log.line("invoke", process, &operations, &[]);
        match lists.perform(&operations, false) {
            Ok(Outcome::Committed(reads)) => log.line("ok", process, &operations, &reads),
            other => {
                return Err(Error::Invalid(format!(
                    "no other transaction runs, and reading all keys ended with {other:?}"
                )));
            }
        }
    }
    Ok(())
}
