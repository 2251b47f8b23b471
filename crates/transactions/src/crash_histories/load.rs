//! Bulk loads: in order and out of it, some given up, of states that are emptied and loaded again.

use super::{Changes, Content, Operation, check_recorded, key, random_changes, verify, write};
use crate::{Result, State, StateContext};
use entresol_memory::crash::{CrashOptions, CrashReport, Recorder};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::{KeyBytes, KeyWidth};
use std::sync::Arc;

/// Keys of a load: several leaves.
const LOADED_KEYS: u64 = 90;
/// Bytes after which keys that are not in order are sorted: a load has several runs.
const RUN_BYTES: usize = 2500;

/// Runs `rounds` loads of two states, each with commits behind it and one that is given up before it.
pub fn check_loads(rounds: u64, options: &CrashOptions) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(options, move |pool, recorder| run(pool, recorder, rounds, seed), verify_loads)
}

/// As after any commits; and nothing that a load had begun is a state.
fn verify_loads(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    verify(pool, legal)?;
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let states = context.states().len();
    if states <= 2 { Ok(()) } else { Err(format!("there are {states} states in place of two")) }
}

fn run(pool: &Arc<Pool>, recorder: &Recorder<Content>, rounds: u64, seed: u64) -> Result<()> {
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    context.sort_loads_after(RUN_BYTES);
    let states = recorder.run(Operation::Create, || -> Result<_> {
        let group = context.create_group()?;
        let first = context.create_state(group, KeyWidth::Eight)?;
        Ok([first, context.create_state(group, KeyWidth::Variable)?])
    })?;
    let random = Env::simulated(seed);
    for round in 0..rounds {
        let rows = rows_to_load(&random, round);
        drop(load(&context, &states, &rows[..rows.len() / 2])?);
        if round % 2 == 1 {
            context.vacuum()?;
        }
        let transaction = load(&context, &states, &rows)?;
        let keys: Vec<u64> = rows.iter().map(|(number, _)| *number).collect();
        recorder.run(Operation::Commit(rows), || transaction.commit(Durability::Sync))?;
        for _ in 0..2 {
            commit(&context, recorder, &states, random_changes(&random, round))?;
        }
        let all: Changes = keys.into_iter().chain(0..super::KEYS).map(|number| (number, None)).collect();
        commit(&context, recorder, &states, all)?;
        context.vacuum()?;
    }
    Ok(())
}

/// Rows of a load: ascending, or in random order.
fn rows_to_load(random: &Env, round: u64) -> Changes {
    let bytes = |number: u64| [3, 8, 20, 90][(number % 4) as usize];
    let mut rows: Changes =
        (0..LOADED_KEYS).map(|number| (2 * number, Some(vec![round as u8; bytes(number)]))).collect();
    if round % 2 == 1 {
        for at in (1..rows.len()).rev() {
            rows.swap(at, (random.random_u64() % (at as u64 + 1)) as usize);
        }
    }
    rows
}

fn load(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    rows: &[(u64, Option<Vec<u8>>)],
) -> Result<Arc<crate::Transaction>> {
    let transaction = context.begin()?;
    assert!(transaction.begin_load(states)?, "empty states are loaded");
    for part in rows.chunks(40) {
        for state in states {
            let keys = part.iter().map(|(number, _)| KeyBytes::from_slice(&key(*number))).collect();
            transaction.load_many(state.id(), keys, |at| part[at].1.as_deref().unwrap_or_default())?;
        }
    }
    Ok(transaction)
}

fn commit(
    context: &Arc<StateContext>,
    recorder: &Recorder<Content>,
    states: &[Arc<State>; 2],
    changes: Changes,
) -> Result<()> {
    let transaction = context.begin()?;
    write(&transaction, states, &changes)?;
    recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
    Ok(())
}
