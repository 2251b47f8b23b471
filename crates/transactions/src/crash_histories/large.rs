//! Commits of many keys beside small ones of other keys: two threads that take turns at flushes and fences,
//! so that each is in the middle of its commits while the other one ends its own.

use super::{Groups, LATER_VALUE, check_sound, key, nothing_leaks, rows};
use crate::context::group::STRIPED_KEYS_MAX;
use crate::visibility::in_flight::CommitsInFlight;
use crate::visibility::snapshot::Class;
use crate::{Error, Result, State, StateContext, StateId};
use entresol_memory::crash::{CrashOptions, CrashReport, check_at, take_turns};
use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Keys of the large commits in each of the states: more than a small one has.
const LARGE: [u64; 2] = [STRIPED_KEYS_MAX as u64 - 2, 4];
/// The key of the small commits, in both states.
const SMALL_KEY: u64 = 1000;
/// Key committed after a crash.
const LATER_KEY: u64 = 2000;
/// Small commits for each large one.
const SMALL_ONES: u64 = 12;

/// The commits of each thread: the number that have returned, and the number that began.
#[derive(Default)]
struct Progress {
    large: [AtomicU64; 2],
    small: [AtomicU64; 2],
}

/// The same at a crash.
struct LegalSets {
    large: [u64; 2],
    small: [u64; 2],
}

/// Runs `rounds` commits of many keys, over two states, beside small ones.
pub fn check_large_commits(
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
        let load = |counts: &[AtomicU64; 2]| counts.each_ref().map(|count| count.load(SeqCst));
        LegalSets { large: load(&progress.large), small: load(&progress.small) }
    };
    check_at(options, history, legal_contents, verify)
}

fn run(pool: &Arc<Pool>, progress: &Progress, groups: Groups, rounds: u64, seed: u64) -> Result<()> {
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    let group = context.create_group()?;
    let other = if groups == Groups::One { group } else { context.create_group()? };
    let states =
        [context.create_state(group, KeyWidth::Eight)?, context.create_state(other, KeyWidth::Variable)?];
    // One after the other first: nothing has passed the large one when it is complete.
    commit(&context, &states, &progress.small, 1, small)?;
    commit(&context, &states, &progress.large, 1, large)?;
    commit(&context, &states, &progress.small, 2, small)?;
    let (context, states) = (&context, &states);
    let large_ones =
        move || (2..=rounds).try_for_each(|number| commit(context, states, &progress.large, number, large));
    let small_ones = move || {
        (3..rounds * SMALL_ONES).try_for_each(|number| {
            // Each time: before another small one is complete, or it would have passed the large one already.
            fail(context, &states[number as usize % 2])?;
            if number % 10 == 0 {
                context.vacuum()?;
            }
            commit(context, states, &progress.small, number, small)
        })
    };
    take_turns(
        seed,
        vec![
            Box::new(|| large_ones().expect("no other thread writes these keys")),
            Box::new(|| small_ones().expect("no other thread writes this key")),
        ],
    );
    Ok(())
}

/// Writes of a commit: state, key, value.
type CommitWrites = Vec<(usize, u64, Option<Vec<u8>>)>;

fn commit(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    [returned, begun]: &[AtomicU64; 2],
    number: u64,
    writes: fn(u64) -> CommitWrites,
) -> Result<()> {
    let transaction = context.begin()?;
    for (state, number, value) in writes(number) {
        transaction.write(&states[state], &key(number), value.as_deref())?;
    }
    begun.store(number, SeqCst);
    transaction.commit(Durability::Sync)?;
    returned.store(number, SeqCst);
    Ok(())
}

/// A small commit that fails before it has written anything.
fn fail(context: &StateContext, state: &State) -> Result<()> {
    let (slot, _) = context.claim()?;
    let (entry, stamp) = CommitsInFlight::enter(std::iter::once(&*state.group.in_flight), || {
        let stamp = context.active.stamp(slot, Class::Slow);
        context.directory.announce(&state.group, stamp.cts());
        (stamp.cts(), stamp)
    });
    entry.fail(|| context.declare_invalid(&state.group, stamp.cts()), |_| Ok(()))?;
    stamp.finish();
    context.active.release(slot);
    Ok(())
}

/// New values of each size, then no values.
fn large(number: u64) -> CommitWrites {
    let bytes = [8, 40, 8, 8][number as usize % 4];
    let value = (number % 4 != 3).then(|| vec![number as u8; bytes]);
    let of_state = |state| (0..LARGE[state]).map(move |key| (state, key));
    of_state(0).chain(of_state(1)).map(|(state, key)| (state, key, value.clone())).collect()
}

fn small(number: u64) -> CommitWrites {
    let value = (number % 5 != 4).then(|| number.to_le_bytes().to_vec());
    [0, 1].map(|state| (state, SMALL_KEY, value.clone())).into()
}

fn verify(pool: &Arc<Pool>, legal: &LegalSets) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let [Some(first), Some(second)] = [0, 1].map(|id| context.state(StateId(id))) else {
        return if legal.small[0] == 0 { Ok(()) } else { Err("a state is gone".to_owned()) };
    };
    let states = [first, second];
    is_legal(&context, &states, legal)?;
    // Others pass what was in flight, and its leftovers are reclaimed.
    for _ in 0..2 {
        let writer = context.begin().map_err(text)?;
        for state in &states {
            writer.write(state, &key(LATER_KEY), Some(LATER_VALUE)).map_err(text)?;
        }
        writer.commit(Durability::Sync).map_err(text)?;
        is_legal(&context, &states, legal).map_err(|what| format!("after a later commit: {what}"))?;
    }
    context.vacuum().map_err(text)?;
    is_legal(&context, &states, legal).map_err(|what| format!("after a vacuum: {what}"))?;
    nothing_leaks(pool, &context).map_err(text)?
}

/// Tells whether the rows are what some number of large commits and some number of small ones have written.
fn is_legal(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    legal: &LegalSets,
) -> std::result::Result<(), String> {
    let mut found = rows(context, states).map_err(|error| error.to_string())?;
    found.iter_mut().for_each(|rows| drop(rows.remove(&key(LATER_KEY))));
    let any = |[returned, begun]: [u64; 2]| returned..=begun;
    for many in any(legal.large) {
        for few in any(legal.small) {
            let mut expected = <[super::Rows; 2]>::default();
            let written = [(many, large(many)), (few, small(few))];
            for (state, number, value) in
                written.into_iter().filter(|(number, _)| *number > 0).flat_map(|(_, writes)| writes)
            {
                value.into_iter().for_each(|value| drop(expected[state].insert(key(number), value)));
            }
            if expected == found {
                return Ok(());
            }
        }
    }
    let keys = found.each_ref().map(|rows| rows.len());
    let few = found.each_ref().map(|rows| rows.get(&key(SMALL_KEY)));
    Err(format!(
        "{keys:?} keys, of small commits {few:?}, the first of large ones {:?}; large commits {:?}, small ones {:?}",
        found[0].first_key_value(),
        legal.large,
        legal.small
    ))
}
