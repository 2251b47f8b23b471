//! Operation histories of states with version histories: after every crash each readable point in time is as
//! it was.
//!
//! Each commit writes its number into both states, so a read AS OF a timestamp says which commit it is to be
//! compared with. Versions are retained for a few microseconds of a clock that moves by one with each
//! reading, so most of them are pruned while the history runs.

use super::{Changes, Groups, Rows, check_recorded, check_sound, key, nothing_leaks, random_changes, write};
use crate::history::Record;
use crate::{
    ContextOptions, Error, GroupId, INFINITY, KeyRange, Result, State, StateContext, StateId, Timestamp,
    Transaction,
};
use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder};
use entresol_memory::{Durability, Env, Pool, PoolOffset};
use entresol_structures::{KeyBytes, KeyWidth};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Retention of versions while the history runs.
const RETENTION: Duration = Duration::from_micros(16);
/// Key under which a commit writes its number.
const NUMBER_KEY: u64 = 77;
/// Commits of a verification: as often, this much is added to the number.
const LATER: u64 = 1000;
const LATER_KEY: u64 = 1;
const LATER_VALUE: &[u8] = b"after the crash";

/// Rows of both states after each commit; none before they keep a version history.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<Vec<Rows>>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the two states, with their histories.
    Create,
    /// Commits the same changes to both states.
    Commit(Changes),
    /// Starts their histories anew: nothing before can be read.
    Restart,
}

impl Model for Content {
    type Operation = Operation;

    fn apply(&mut self, operation: &Operation) {
        match (operation, &mut self.0) {
            (Operation::Create, _) => self.0 = Some(vec![Rows::new()]),
            (Operation::Commit(changes), Some(all)) => {
                let mut rows = all.last().cloned().unwrap_or_default();
                for (number, value) in changes {
                    match value {
                        Some(value) => drop(rows.insert(key(*number), value.clone())),
                        None => drop(rows.remove(&key(*number))),
                    }
                }
                rows.insert(key(NUMBER_KEY), (all.len() as u64).to_le_bytes().to_vec());
                all.push(rows);
            }
            (Operation::Commit(_) | Operation::Restart, _) => (),
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

impl Content {
    /// Rows after a commit, or after one of a verification.
    fn after(&self, number: u64) -> Option<Rows> {
        let mut rows = self.0.as_ref()?.get((number % LATER) as usize)?.clone();
        if number >= LATER {
            rows.insert(key(LATER_KEY), LATER_VALUE.to_vec());
            rows.insert(key(NUMBER_KEY), number.to_le_bytes().to_vec());
        }
        Some(rows)
    }

    fn commits(&self) -> Option<u64> {
        self.0.as_ref().map(|all| all.len() as u64 - 1)
    }
}

/// Runs `rounds` commits into two states with histories, which are pruned meanwhile.
pub fn check_past(
    groups: Groups,
    context_options: ContextOptions,
    rounds: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let seed = options.seed;
    check_recorded(
        options,
        move |pool, recorder| run(pool, recorder, groups, context_options, rounds, seed),
        verify,
    )
}

fn run(
    pool: &Arc<Pool>,
    recorder: &Recorder<Content>,
    groups: Groups,
    context_options: ContextOptions,
    rounds: u64,
    seed: u64,
) -> Result<()> {
    let context = StateContext::open_or_create_with(Arc::clone(pool), context_options)?;
    let states = recorder.run(Operation::Create, || -> Result<_> {
        let group = context.create_group()?;
        let other = if groups == Groups::One { group } else { context.create_group()? };
        let first = context.create_state(group, KeyWidth::Eight)?;
        let states = [first, context.create_state(other, KeyWidth::Variable)?];
        states.iter().try_for_each(|state| context.keep_history(state.id(), Some(RETENTION)))?;
        Ok(states)
    })?;
    let random = Env::simulated(seed);
    let mut reader = None;
    for round in 0..rounds {
        if round % 6 == 1 {
            // Holds the horizon back for a while.
            reader = Some(context.begin_as_of(context.newest_commit())?);
        }
        let changes = random_changes(&random, round);
        let transaction = context.begin()?;
        write(&transaction, &states, &changes)?;
        number(&transaction, &states, round + 1)?;
        recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
        if round % 6 == 4 {
            drop(reader.take());
        }
        if round % 8 == 6 {
            context.vacuum()?;
        }
        if round % 12 == 9 {
            create_and_drop(&context, states[0].group())?;
        }
        if round % 14 == 12 {
            recorder.run(Operation::Restart, || -> Result<()> {
                for state in &states {
                    context.drop_history(state.id())?;
                    context.keep_history(state.id(), Some(RETENTION))?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn number(transaction: &Transaction, states: &[Arc<State>; 2], number: u64) -> Result<()> {
    for state in states {
        transaction.write(state, &key(NUMBER_KEY), Some(&number.to_le_bytes()))?;
    }
    Ok(())
}

/// Creates, fills and drops a state with a version history.
fn create_and_drop(context: &Arc<StateContext>, group: GroupId) -> Result<()> {
    let state = context.create_state(group, KeyWidth::Sixteen)?;
    context.keep_history(state.id(), None)?;
    for value in [&b"first"[..], b"second"] {
        let transaction = context.begin()?;
        (0..3).try_for_each(|number| transaction.write(&state, &key(number), Some(value)))?;
        transaction.commit(Durability::Sync)?;
    }
    context.drop_state(state.id())
}

fn verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let states = [0, 1].map(|id| context.state(StateId(id)).filter(|state| state.past().is_some()));
    let [Some(first), Some(second)] = states else {
        // While histories are started anew there is none for a short time; before they were made, too.
        let may_be = legal.iter().any(|content| content.0.is_none()) || restarts(&context, legal);
        return if may_be { Ok(()) } else { Err("a state or its history is gone".to_string()) };
    };
    let states = [first, second];
    let now = context.begin().and_then(|reader| content(&reader, &states)).map_err(text)?;
    let known = legal.iter().copied().max_by_key(|content| content.commits()).unwrap_or(legal[0]);
    let newest = number_of(&now[0]);
    if !legal.iter().any(|content| content.commits() == Some(newest % LATER)) {
        return Err(format!("commit {newest} is the last one, legal is {legal:?}"));
    }
    // Before anything is pruned: the horizon that the crash left.
    points_in_time(&context, &states, known, 1).map_err(text)??;
    // A commit that ends versions of commits that did not finish.
    let writer = context.begin().map_err(text)?;
    write(&writer, &states, &vec![(LATER_KEY, Some(LATER_VALUE.to_vec()))]).map_err(text)?;
    number(&writer, &states, newest + LATER).map_err(text)?;
    writer.commit(Durability::Sync).map_err(text)?;
    points_in_time(&context, &states, known, usize::MAX).map_err(text)??;
    context.vacuum().map_err(text)?;
    points_in_time(&context, &states, known, 2).map_err(text)??;
    pruned(&context, &states).map_err(text)??;
    nothing_leaks(pool, &context).map_err(text)?
}

/// Tells whether a history may be missing because histories are being started anew. The present of the states
/// is right in any case.
fn restarts(context: &Arc<StateContext>, legal: &[&Content]) -> bool {
    // Operations that do not change the content: with and without the one in flight it is the same.
    legal.len() == 2
        && legal[0] == legal[1]
        && (0..2).all(|id| {
            let state = context.state(StateId(id));
            let rows =
                state.and_then(|state| context.begin().ok().and_then(|reader| rows(&reader, &state).ok()));
            rows.is_some_and(|rows| legal[0].after(number_of(&rows)) == Some(rows))
        })
}

fn number_of(rows: &Rows) -> u64 {
    let number = rows.get(&key(NUMBER_KEY)).map(|value| <[u8; 8]>::try_from(&value[..]));
    number.and_then(std::result::Result::ok).map_or(0, u64::from_le_bytes)
}

/// Checks the newest readable commits, AS OF their timestamp and the last ones just before the next: the
/// content of both states is what the model has for them, in order.
fn points_in_time(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    known: &Content,
    newest_max: usize,
) -> Result<std::result::Result<(), String>> {
    let horizons = states.each_ref().map(|state| state.past().map_or(INFINITY, |past| past.horizon));
    let horizon = horizons[0].max(horizons[1]);
    for (state, horizon) in states.iter().zip(horizons) {
        let before = context.begin_as_of(horizon.previous())?;
        if !matches!(before.read(state, &key(0), |_| ()), Err(Error::SnapshotTooOld { .. })) {
            return Ok(Err(format!("{state:?} answers before its horizon {horizon}")));
        }
    }
    let mut commits: Vec<Timestamp> =
        commits_of(context, &states[0])?.into_iter().filter(|&cts| cts > horizon).collect();
    commits.drain(..commits.len().saturating_sub(newest_max));
    let mut asked = commits.clone();
    asked.extend(commits.iter().rev().take(2).map(|cts| cts.previous()));
    asked.push(context.newest_commit());
    asked.push(horizon);
    asked.sort_unstable();
    asked.dedup();
    let mut last = None;
    for at in asked {
        let reader = context.begin_as_of(at)?;
        let [first, second] = content(&reader, states)?;
        let number = number_of(&first);
        if first != second || known.after(number).as_ref() != Some(&first) {
            let expected = known.after(number);
            return Ok(Err(format!(
                "as of {at}, commit {number}: {first:?} and {second:?}, not {expected:?}"
            )));
        }
        // Between the horizon and the newest ones some are left out.
        if newest_max < usize::MAX {
            if last.is_some_and(|last| number < last) {
                return Ok(Err(format!(
                    "as of {at} commit {number} is the last one, before it was {last:?}"
                )));
            }
            last = Some(number);
            continue;
        }
        // The commits are those that were made, one after another.
        let follows = last.is_none_or(|last| number == last || number == last + 1 || number == last + LATER);
        let changes = commits.contains(&at);
        if !follows
            || (changes && last == Some(number))
            || (!changes && last.is_some_and(|last| last != number))
        {
            return Ok(Err(format!("as of {at} commit {number} is the last one, before it was {last:?}")));
        }
        last = Some(number);
    }
    Ok(Ok(()))
}

/// The timestamps of the commits that the history or the present of a state has: each has written the number.
fn commits_of(context: &Arc<StateContext>, state: &Arc<State>) -> Result<Vec<Timestamp>> {
    let mut found: Vec<Timestamp> = state.newest(&state.normalise(&key(NUMBER_KEY))?)?.into_iter().collect();
    for (key, cts, _, dts) in records(context, state)? {
        if key[..] == super::key(NUMBER_KEY)[..] && !state.group.invalid.contains(dts) {
            found.push(cts);
        }
    }
    found.retain(|&cts| cts > Timestamp::START);
    found.sort_unstable();
    Ok(found)
}

/// Key, CTS, offset and DTS of all records of a history.
fn records(
    context: &StateContext,
    state: &State,
) -> Result<Vec<(KeyBytes, Timestamp, PoolOffset, Timestamp)>> {
    let Some(history) = state.history() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    crate::recovery::for_each_entry(&history.index, |entry, offset| {
        let record = Record::try_open(context.pool(), offset);
        if let (Some((key, cts)), Some(record)) = (history.keys().decode(entry), record) {
            assert_eq!(record.cts(), cts, "a record lies under its key");
            found.push((key, cts, offset, record.dts()));
        }
    })?;
    Ok(found)
}

/// Checks that after a vacuum no unreadable version is left.
fn pruned(context: &StateContext, states: &[Arc<State>; 2]) -> Result<std::result::Result<(), String>> {
    for state in states {
        let horizon = state.past().map_or(Timestamp::START, |past| past.horizon);
        let left = records(context, state)?.into_iter().find(|&(.., dts)| dts <= horizon);
        if let Some((key, cts, _, dts)) = left {
            return Ok(Err(format!("[{cts}, {dts}) of {key:x?} is left before the horizon {horizon}")));
        }
    }
    Ok(Ok(()))
}

fn content(reader: &Transaction, states: &[Arc<State>; 2]) -> Result<[Rows; 2]> {
    Ok([rows(reader, &states[0])?, rows(reader, &states[1])?])
}

/// The rows of a state; by key they are the same.
fn rows(reader: &Transaction, state: &Arc<State>) -> Result<Rows> {
    let (mut rows, mut from): (Rows, _) = (BTreeMap::new(), None);
    let mut take = |key: &[u8], value: &[u8]| drop(rows.insert(key.to_vec(), value.to_vec()));
    while reader.scan_batch(state, &KeyRange::full(), &mut from, &mut take)? {}
    for number in [0, 1, 2, NUMBER_KEY] {
        let read = reader.read(state, &key(number), <[u8]>::to_vec)?;
        assert_eq!(read.as_ref(), rows.get(&key(number)), "scan and look-up agree");
    }
    Ok(rows)
}
