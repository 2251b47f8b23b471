//! Durable states beside volatile ones.
//!
//! While the context is open, commits over both are there in both or in neither. After every crash the durable state is as if
//! the volatile one had never been, and that one is there, empty, and can be written.

use std::sync::Arc;

use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::KeyWidth;

use super::directory::rows_of;
use super::{
    Changes, Groups, LATER_KEYS, LATER_VALUE, Rows, check_recorded, check_sound, key, nothing_leaks,
    random_changes, write,
};
use crate::{ContextOptions, Error, GroupId, Result, State, StateContext, StateId, StateOptions, TierChoice};

/// Keys that are written in the volatile state alone.
const OWN_KEYS: u64 = 100;
/// Commits before there is a durable state.
const EARLY_COMMITS: u64 = 3;

/// The rows of the durable state; none before it is there.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<Rows>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the durable state.
    Create,
    /// Commits the same changes to both.
    Commit(Changes),
}

impl Model for Content {
    type Operation = Operation;

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create => self.0 = Some(Rows::new()),
            Operation::Commit(changes) => {
                for (number, value) in changes {
                    let rows = self.0.iter_mut();
                    match value {
                        Some(value) => rows.for_each(|rows| drop(rows.insert(key(*number), value.clone()))),
                        None => rows.for_each(|rows| drop(rows.remove(&key(*number)))),
                    }
                }
            }
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// Runs `rounds` commits over a durable state and a volatile one, in one group or in two, beside commits over the volatile
/// one alone, a history of it, readers, vacuums, and volatile states that come and go.
pub fn check_volatile(
    groups: Groups,
    context_options: ContextOptions,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(
        options,
        move |pool, recorder| {
            let context = StateContext::open_or_create_with(Arc::clone(pool), context_options)?;
            run(&context, recorder, groups, rounds, seed)
        },
        verify,
    )
}

/// The first state and the second one.
const VOLATILE: StateId = StateId(0);
const DURABLE: StateId = StateId(1);

fn create_volatile(context: &Arc<StateContext>, group: GroupId) -> Result<Arc<State>> {
    context.create_state_with(StateOptions { group, width: KeyWidth::Eight, tier: TierChoice::Dram })
}

fn run(
    context: &Arc<StateContext>,
    recorder: &Recorder<Content>,
    groups: Groups,
    rounds: u64,
    seed: u64,
) -> Result<()> {
    let group = context.create_group()?;
    let volatile = create_volatile(context, group)?;
    let own = |number: u64| -> Result<()> {
        let writer = context.begin()?;
        writer.write(&volatile, &key(OWN_KEYS + number % 5), Some(&number.to_le_bytes()))?;
        writer.commit(Durability::Sync).map(drop)
    };
    (0..EARLY_COMMITS).try_for_each(own)?;
    let durable = recorder.run(Operation::Create, || -> Result<_> {
        let other = if groups == Groups::One { group } else { context.create_group()? };
        context.create_state(other, KeyWidth::Eight)
    })?;
    assert_eq!((volatile.id(), durable.id()), (VOLATILE, DURABLE));
    let states = [durable, volatile.clone()];
    let random = Env::simulated(seed);
    let mut reader = None;
    for round in 0..rounds {
        if round % 5 == 1 {
            reader = Some(context.begin()?);
        }
        let changes = random_changes(&random, round);
        let transaction = context.begin()?;
        write(&transaction, &states, &changes)?;
        recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
        own(round)?;
        assert_alike(context, &states);
        match round % 10 {
            3 => context.keep_history(VOLATILE, None)?,
            4 | 9 => {
                drop(reader.take());
                context.vacuum()?;
            }
            7 => come_and_go(context, group)?,
            8 => context.drop_history(VOLATILE)?,
            _ => (),
        }
    }
    Ok(())
}

fn assert_alike(context: &Arc<StateContext>, states: &[Arc<State>; 2]) {
    let [durable, mut volatile] = states.each_ref().map(|state| rows_of(context, state).expect("it is read"));
    volatile.retain(|found, _| *found < key(OWN_KEYS));
    assert_eq!(durable, volatile, "a commit is in both");
}

fn come_and_go(context: &Arc<StateContext>, group: GroupId) -> Result<()> {
    let state = create_volatile(context, group)?;
    let writer = context.begin()?;
    (0..3).try_for_each(|number| writer.write(&state, &key(number), Some(b"gone soon")))?;
    writer.commit(Durability::None)?;
    context.drop_state(state.id())
}

fn verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let volatile = context.state(VOLATILE);
    if let Some(volatile) = &volatile {
        let rows = rows_of(&context, volatile)?;
        if !rows.is_empty() || !volatile.is_volatile() {
            return Err(format!("after a crash the volatile state has {rows:?}"));
        }
    }
    let (Some(volatile), Some(durable)) = (volatile, context.state(DURABLE)) else {
        return match legal.contains(&&Content(None)) {
            true => Ok(()),
            false => Err("a state is gone".to_owned()),
        };
    };
    let mut found = rows_of(&context, &durable)?;
    if !may_be(legal, &found) {
        return Err(format!("found {found:?}, legal is {legal:?}"));
    }
    let states = [durable, volatile];
    let mut new = Rows::new();
    for number in LATER_KEYS {
        let writer = context.begin().map_err(text)?;
        write(&writer, &states, &vec![(number, Some(LATER_VALUE.to_vec()))]).map_err(text)?;
        writer.commit(Durability::Sync).map_err(text)?;
        for rows in [&mut found, &mut new] {
            rows.insert(key(number), LATER_VALUE.to_vec());
        }
        for (state, expected) in states.iter().zip([&found, &new]) {
            let now = rows_of(&context, state)?;
            if now != *expected {
                return Err(format!("after a later commit: {now:?} in place of {expected:?}"));
            }
        }
    }
    context.vacuum().map_err(text)?;
    for (state, expected) in states.iter().zip([&found, &new]) {
        let now = rows_of(&context, state)?;
        if now != *expected {
            return Err(format!("after a vacuum: {now:?} in place of {expected:?}"));
        }
    }
    check_sound(&context)?;
    nothing_leaks(pool, &context).map_err(text)?
}

/// Whether rows are legal, perhaps with commits of a verification that was itself cut short.
fn may_be(legal: &[&Content], found: &Rows) -> bool {
    legal.iter().filter_map(|content| content.0.as_ref()).any(|legal| {
        let mut later = legal.clone();
        legal == found
            || LATER_KEYS.iter().any(|number| {
                later.insert(key(*number), LATER_VALUE.to_vec());
                later == *found
            })
    })
}
