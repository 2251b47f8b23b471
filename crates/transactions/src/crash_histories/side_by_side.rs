//! Small commits of two threads that take turns at flushes and fences: one store of `LastCTS` may complete commits
//! of both, so that what one thread returns counts on what the other has made durable.

use super::{Groups, LATER_VALUE, check_sound, key, nothing_leaks, rows};
use crate::{Error, Result, State, StateContext, StateId};
use entresol_memory::crash::{CrashOptions, CrashReport, check_at, take_turns};
use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const THREADS: usize = 2;
/// Key committed after a crash.
const LATER_KEY: u64 = 2000;

/// The commits of each thread: the number that have returned, and the number that began.
#[derive(Default)]
struct Progress {
    returned: [AtomicU64; THREADS],
    begun: [AtomicU64; THREADS],
}

/// The same at a crash.
struct LegalCounts {
    returned: [u64; THREADS],
    begun: [u64; THREADS],
}

/// Runs `rounds` commits of each of two threads, each of a key of its own in two states.
pub fn check_side_by_side(
    groups: Groups,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let progress = Arc::new(Progress::default());
    let (recorded, seed) = (Arc::clone(&progress), options.seed);
    let history = move |pool: &Arc<Pool>| {
        run(pool, &recorded, groups, rounds, seed)
            .map_err(|error| entresol_memory::Error::Invalid(error.to_string()))
    };
    let legal_contents = move || {
        let load = |counts: &[AtomicU64; THREADS]| counts.each_ref().map(|count| count.load(SeqCst));
        LegalCounts { returned: load(&progress.returned), begun: load(&progress.begun) }
    };
    check_at(options, history, legal_contents, verify)
}

fn run(pool: &Arc<Pool>, progress: &Progress, groups: Groups, rounds: u64, seed: u64) -> Result<()> {
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    let group = context.create_group()?;
    let other = if groups == Groups::One { group } else { context.create_group()? };
    let states =
        [context.create_state(group, KeyWidth::Eight)?, context.create_state(other, KeyWidth::Variable)?];
    let (context, states) = (&context, &states);
    let writer = |thread: usize| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            for number in 1..=rounds {
                commit(context, states, progress, thread, number).expect("no other thread writes this key");
            }
        })
    };
    take_turns(seed, (0..THREADS).map(writer).collect());
    Ok(())
}

fn commit(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    progress: &Progress,
    thread: usize,
    number: u64,
) -> Result<()> {
    let transaction = context.begin()?;
    for state in states {
        transaction.write(state, &key(thread as u64), Some(&number.to_le_bytes()))?;
    }
    progress.begun[thread].store(number, SeqCst);
    transaction.commit(Durability::Sync)?;
    progress.returned[thread].store(number, SeqCst);
    Ok(())
}

fn verify(pool: &Arc<Pool>, legal: &LegalCounts) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let [Some(first), Some(second)] = [0, 1].map(|id| context.state(StateId(id))) else {
        return if legal.begun == [0; THREADS] { Ok(()) } else { Err("a state is gone".to_owned()) };
    };
    let states = [first, second];
    let found = is_legal(&context, &states, legal)?;
    let writer = context.begin().map_err(text)?;
    for state in &states {
        writer.write(state, &key(LATER_KEY), Some(LATER_VALUE)).map_err(text)?;
    }
    writer.commit(Durability::Sync).map_err(text)?;
    context.vacuum().map_err(text)?;
    let now = is_legal(&context, &states, legal)?;
    if now != found {
        return Err(format!("after a later commit: {now:?} in place of {found:?}"));
    }
    nothing_leaks(pool, &context).map_err(text)?
}

/// The newest commit of each thread, if it is one that may be and both states have it.
fn is_legal(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    legal: &LegalCounts,
) -> std::result::Result<[u64; THREADS], String> {
    let found = rows(context, states).map_err(|error| error.to_string())?;
    let mut newest = [0; THREADS];
    for (thread, newest) in newest.iter_mut().enumerate() {
        let of_state = found.each_ref().map(|rows| {
            let value = rows.get(&key(thread as u64)).and_then(|value| value[..].try_into().ok());
            value.map_or(0, u64::from_le_bytes)
        });
        let may_be = legal.returned[thread]..=legal.begun[thread];
        if of_state[0] != of_state[1] || !may_be.contains(&of_state[0]) {
            return Err(format!("thread {thread} has {of_state:?}, legal is {may_be:?}"));
        }
        *newest = of_state[0];
    }
    Ok(newest)
}
