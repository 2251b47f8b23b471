//! A directory that grows, and commits over more groups than one publication takes.

use super::{LATER_VALUE, Rows, check_recorded, check_sound, create_and_drop, key, nothing_leaks};
use crate::{Error, KeyRange, Result, State, StateContext, StateId};
use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::KeyWidth;
use std::collections::BTreeMap;
use std::sync::Arc;

/// States, each with a group of its own: half of them in the first segments of the directory, half in the
/// second ones.
const STATES: u32 = 18;
const KEYS: u64 = 2;
const LATER_KEY: u64 = 1000;
/// More than a segment of the directory.
const JUNK_BYTES: usize = 40 << 10;

/// The rows that all states have; none before all of them are there.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<Rows>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the states.
    Create,
    /// Sets a key in all of them.
    Set(u64, Vec<u8>),
}

impl Model for Content {
    type Operation = Operation;

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create => self.0 = Some(Rows::new()),
            Operation::Set(number, value) => {
                self.0.iter_mut().for_each(|rows| drop(rows.insert(key(*number), value.clone())));
            }
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// Makes the directory grow, and commits `rounds` times to all states.
pub fn check_directory(rounds: u64, options: &CrashOptions) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(options, move |pool, recorder| run(pool, recorder, rounds, seed), verify)
}

fn id(number: u32) -> StateId {
    StateId(if number < STATES / 2 { number } else { 1024 + number - STATES / 2 })
}

fn run(pool: &Arc<Pool>, recorder: &Recorder<Content>, rounds: u64, seed: u64) -> Result<()> {
    leave_junk(pool)?;
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    let states = recorder.run(Operation::Create, || create(&context))?;
    let random = Env::simulated(seed);
    for round in 0..rounds {
        let (number, value) = (random.random_u64() % KEYS, vec![round as u8; 8]);
        let transaction = context.begin()?;
        for state in &states {
            transaction.write(state, &key(number), Some(&value))?;
        }
        recorder.run(Operation::Set(number, value), || transaction.commit(Durability::Sync))?;
        drop(transaction);
        if round % 3 == 1 {
            create_and_drop(&context, states[STATES as usize - 1].group())?;
            context.vacuum()?;
        }
    }
    Ok(())
}

/// Leaves junk in the space that segments are made of later.
fn leave_junk(pool: &Arc<Pool>) -> Result<()> {
    for _ in 0..4 {
        let reservation = pool.reserve(JUNK_BYTES)?;
        let words = pool.words(reservation.offset(), JUNK_BYTES / 8);
        words.iter().for_each(|word| word.store(u64::MAX, std::sync::atomic::Ordering::Relaxed));
        pool.flush(reservation.offset(), JUNK_BYTES);
        pool.fence();
    }
    Ok(())
}

fn create(context: &Arc<StateContext>) -> Result<Vec<Arc<State>>> {
    let mut states = Vec::new();
    for number in 0..STATES {
        if number == STATES / 2 {
            context.directory.skip_all();
        }
        let state = context.create_state(context.create_group()?, KeyWidth::Eight)?;
        assert_eq!(state.id(), id(number));
        states.push(state);
    }
    context.keep_history(id(STATES - 1), None)?;
    Ok(states)
}

fn verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let found: Vec<_> = (0..STATES).filter_map(|number| context.state(id(number))).collect();
    let is_there = found.len() == STATES as usize && found.last().is_some_and(|last| last.past().is_some());
    if !is_there {
        return if legal.contains(&&Content(None)) {
            Ok(())
        } else {
            Err(format!("{} states of {STATES} are there", found.len()))
        };
    }
    let mut rows = common_rows(&context, &found)?;
    let mut before = rows.clone();
    before.remove(&key(LATER_KEY));
    if !legal.iter().any(|legal| legal.0.as_ref() == Some(&before)) {
        return Err(format!("found {rows:?}, legal is {legal:?}"));
    }
    let writer = context.begin().map_err(text)?;
    for state in &found {
        writer.write(state, &key(LATER_KEY), Some(LATER_VALUE)).map_err(text)?;
    }
    writer.commit(Durability::Sync).map_err(text)?;
    drop(writer);
    rows.insert(key(LATER_KEY), LATER_VALUE.to_vec());
    let now = common_rows(&context, &found)?;
    if now != rows {
        return Err(format!("after a later commit: {now:?} in place of {rows:?}"));
    }
    let fresh = context.create_state(found[0].group(), KeyWidth::Eight).map_err(text)?;
    if !rows_of(&context, &fresh)?.is_empty() {
        return Err("a new state is not empty".to_owned());
    }
    context.drop_state(fresh.id()).map_err(text)?;
    context.vacuum().map_err(text)?;
    nothing_leaks(pool, &context).map_err(text)?
}

/// Rows that all states have.
fn common_rows(context: &Arc<StateContext>, states: &[Arc<State>]) -> std::result::Result<Rows, String> {
    let first = rows_of(context, &states[0])?;
    for state in &states[1..] {
        let rows = rows_of(context, state)?;
        if rows != first {
            return Err(format!("{} has {rows:?}, the first {first:?}", state.id()));
        }
    }
    Ok(first)
}

/// All rows of a state.
pub(super) fn rows_of(context: &Arc<StateContext>, state: &Arc<State>) -> std::result::Result<Rows, String> {
    let text = |error: Error| error.to_string();
    let (mut rows, mut from) = (BTreeMap::new(), None);
    let reader = context.begin().map_err(text)?;
    let mut take = |key: &[u8], value: &[u8]| drop(rows.insert(key.to_vec(), value.to_vec()));
    while reader.scan_batch(state, &KeyRange::full(), &mut from, &mut take).map_err(text)? {}
    Ok(rows)
}
