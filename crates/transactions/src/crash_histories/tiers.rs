//! States of the main pool beside others: volatile ones, and those on disk.
//!
//! While the context is open, commits over both are there in both or in neither. After every crash the state
//! in the main pool is as if a volatile one had never been, and that one is there, empty, and can be written.
//! A state on disk has after every crash what the other has.

use super::directory::rows_of;
use super::simulated_disk::{Disk, DiskImages};
use super::{
    Changes, Groups, LATER_KEYS, LATER_VALUE, Rows, check_recorded, check_sound, key, nothing_leaks,
    random_changes, write,
};
use crate::{ContextOptions, Error, GroupId, Result, State, StateContext, StateId, StateOptions, TierChoice};
use entresol_memory::crash::{CrashOptions, CrashReport, LegalContents, Model, Recorder, check_at};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::KeyWidth;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From here on keys are written in the state beside the main pool alone.
const OWN_KEYS: u64 = 100;
/// Keys of a large commit.
const LARGE_KEYS: std::ops::Range<u64> = 20..86;
/// Commits before there is a state in the main pool.
const EARLY_COMMITS: u64 = 3;

/// The rows of the state in the main pool; none before it is there.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<Rows>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the state in the main pool.
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

/// Runs `rounds` commits over a state of the main pool and a volatile one, in one group or in two, beside
/// commits over the volatile one alone, a history of it, readers, vacuums, and volatile states that come and
/// go.
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
            run(&context, recorder, TierChoice::Dram, groups, rounds, seed)
        },
        |pool, legal| {
            let opened = StateContext::open_or_create(Arc::clone(pool));
            verify(&opened.map_err(|error| error.to_string())?, legal)
        },
    )
}

/// The same with states on a disk beside the main pool, whose files lie in a directory that is there. At each
/// crash point of the main pool the disk has either what was synced or all that was written; it does not
/// crash in recoveries.
pub fn check_disk(
    groups: Groups,
    context_options: ContextOptions,
    rounds: u64,
    directory: &Path,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    assert_eq!(options.crash_recovery_every, 0, "what recoveries write on the disk is not followed");
    let seed = options.seed;
    let recorder = Recorder::new(Content::default());
    let disk = Arc::new(Disk::new(directory, seed));
    let history = {
        let (recorder, disk) = (Arc::clone(&recorder), Arc::clone(&disk));
        move |pool: &Arc<Pool>| {
            let beside = Some(disk.create()?);
            let context = StateContext::open_or_create_beside(Arc::clone(pool), beside, context_options);
            context
                .and_then(|context| run(&context, &recorder, TierChoice::Disk, groups, rounds, seed))
                .map_err(|error| entresol_memory::Error::Invalid(error.to_string()))
        }
    };
    let legal_contents = {
        let (legal, disk) = (recorder.legal_contents(), Arc::clone(&disk));
        move || (legal(), disk.images())
    };
    let turn = AtomicUsize::new(0);
    check_at(
        options,
        history,
        legal_contents,
        move |pool, (legal, images): &(LegalContents<Content>, DiskImages)| {
            let image = &images[turn.fetch_add(1, Ordering::Relaxed) % images.len()];
            let beside = Some(disk.load(image)?);
            let opened = StateContext::open_or_create_beside(Arc::clone(pool), beside, context_options);
            let legal = [Some(&legal.returned), legal.with_next.as_ref().map(|(_, after)| after)];
            let legal: Vec<&Content> = legal.into_iter().flatten().map(|content| &**content).collect();
            verify(&opened.map_err(|error| error.to_string())?, &legal)
        },
    )
}

/// The first state and the second one.
const BESIDE: StateId = StateId(0);
const IN_MAIN: StateId = StateId(1);

fn create_in(context: &Arc<StateContext>, group: GroupId, tier: TierChoice) -> Result<Arc<State>> {
    context.create_state_with(StateOptions::new(group, KeyWidth::Eight, tier))
}

fn run(
    context: &Arc<StateContext>,
    recorder: &Recorder<Content>,
    tier: TierChoice,
    groups: Groups,
    rounds: u64,
    seed: u64,
) -> Result<()> {
    let group = context.create_group()?;
    let beside = create_in(context, group, tier)?;
    let own = |number: u64| -> Result<()> {
        let writer = context.begin()?;
        writer.write(&beside, &key(OWN_KEYS + number % 5), Some(&number.to_le_bytes()))?;
        writer.commit(Durability::None).map(drop)
    };
    (0..EARLY_COMMITS).try_for_each(own)?;
    let in_main = recorder.run(Operation::Create, || -> Result<_> {
        let other = if groups == Groups::One { group } else { context.create_group()? };
        context.create_state(other, KeyWidth::Eight)
    })?;
    assert_eq!((beside.id(), in_main.id()), (BESIDE, IN_MAIN));
    let states = [in_main, beside.clone()];
    let random = Env::simulated(seed);
    let mut reader = None;
    for round in 0..rounds {
        if round % 5 == 1 {
            reader = Some(context.begin()?);
        }
        let mut changes = random_changes(&random, round);
        if round % 10 == 6 {
            // With so many keys it is in no queue.
            changes.extend(LARGE_KEYS.map(|number| (number, Some(vec![round as u8; 8]))));
        }
        let transaction = context.begin()?;
        write(&transaction, &states, &changes)?;
        recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
        own(round)?;
        assert_alike(context, &states);
        match round % 10 {
            3 => context.keep_history(BESIDE, None)?,
            4 | 9 => {
                drop(reader.take());
                context.vacuum()?;
            }
            7 => create_and_drop(context, group, tier)?,
            8 => context.drop_history(BESIDE)?,
            _ => (),
        }
    }
    Ok(())
}

fn assert_alike(context: &Arc<StateContext>, states: &[Arc<State>; 2]) {
    let [in_main, mut beside] = states.each_ref().map(|state| rows_of(context, state).expect("it is read"));
    beside.retain(|found, _| *found < key(OWN_KEYS));
    assert_eq!(in_main, beside, "a commit is in both");
}

fn create_and_drop(context: &Arc<StateContext>, group: GroupId, tier: TierChoice) -> Result<()> {
    let state = create_in(context, group, tier)?;
    let writer = context.begin()?;
    (0..3).try_for_each(|number| writer.write(&state, &key(number), Some(b"gone soon")))?;
    writer.commit(Durability::None)?;
    context.drop_state(state.id())
}

fn verify(context: &Arc<StateContext>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    check_sound(context)?;
    let own = |state: &Arc<State>| -> std::result::Result<Rows, String> {
        let mut rows = rows_of(context, state)?;
        rows.retain(|found, _| *found < key(OWN_KEYS) || *found == key(LATER_KEYS[1]));
        Ok(rows)
    };
    let beside = context.state(BESIDE);
    if let Some(beside) = beside.as_ref().filter(|beside| beside.is_volatile()) {
        let rows = rows_of(context, beside)?;
        if !rows.is_empty() {
            return Err(format!("after a crash the volatile state has {rows:?}"));
        }
    }
    let (Some(beside), Some(in_main)) = (beside, context.state(IN_MAIN)) else {
        return if legal.contains(&&Content(None)) { Ok(()) } else { Err("a state is gone".to_owned()) };
    };
    let mut found = rows_of(context, &in_main)?;
    if !may_be(legal, &found) {
        return Err(format!("found {found:?}, legal is {legal:?}"));
    }
    let mut found_beside = own(&beside)?;
    if !beside.is_volatile() && found_beside != found {
        return Err(format!("the disk has {found_beside:?}, the main pool {found:?}"));
    }
    let states = [in_main, beside];
    for number in LATER_KEYS {
        let writer = context.begin().map_err(text)?;
        write(&writer, &states, &vec![(number, Some(LATER_VALUE.to_vec()))]).map_err(text)?;
        writer.commit(Durability::Sync).map_err(text)?;
        for rows in [&mut found, &mut found_beside] {
            rows.insert(key(number), LATER_VALUE.to_vec());
        }
        for (state, expected) in states.iter().zip([&found, &found_beside]) {
            let now = own(state)?;
            if now != *expected {
                return Err(format!("after a later commit: {now:?} in place of {expected:?}"));
            }
        }
    }
    context.vacuum().map_err(text)?;
    for (state, expected) in states.iter().zip([&found, &found_beside]) {
        let now = own(state)?;
        if now != *expected {
            return Err(format!("after a vacuum: {now:?} in place of {expected:?}"));
        }
    }
    check_sound(context)?;
    nothing_leaks(context.pool(), context).map_err(text)?
}

/// Tells whether rows are legal, perhaps with commits of a verification that was itself interrupted.
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
