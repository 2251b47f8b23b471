//! Operation histories of states with change logs: after every crash a log says how the content came about.
//!
//! Undone change by change, newest first, each log leads from the content of its state, over what its changes
//! say was there, to the content at its horizon. Each commit writes its number, so that is known.

use super::{Changes, Groups, Rows, check_recorded, check_sound, key, nothing_leaks, random_changes, write};
use crate::changes::{ChangeLog, LogPosition};
use crate::{ContextOptions, Error, INFINITY, KeyRange, Result, State, StateContext, StateId, Timestamp};
use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::KeyWidth;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key under which a commit writes its number.
const NUMBER_KEY: u64 = 77;
/// Keys that are written at once now and then, with long values: changes of several parts.
const MANY_KEYS: std::ops::Range<u64> = 100..104;
const LONG_BYTES: usize = 9000;
/// Number of a commit of a verification.
const LATER: u64 = 1000;

/// Rows of both states after each commit; none before they are there.
#[derive(Clone, PartialEq, Debug, Default)]
struct Content(Option<Vec<Rows>>);

#[derive(Clone, Debug)]
enum Operation {
    /// Makes the two states, with their logs.
    Create,
    /// Commits the same changes to both states.
    Commit(Changes),
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
                all.push(rows);
            }
            (Operation::Commit(_), None) => (),
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// Runs `rounds` commits into two states with change logs, which are pruned meanwhile.
pub fn check_changes(
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

fn run(
    context: &Arc<StateContext>,
    recorder: &Recorder<Content>,
    groups: Groups,
    rounds: u64,
    seed: u64,
) -> Result<()> {
    let (states, logs) = recorder.run(Operation::Create, || -> Result<_> {
        let group = context.create_group()?;
        let other = if groups == Groups::One { group } else { context.create_group()? };
        let first = context.create_state(group, KeyWidth::Eight)?;
        let states = [first, context.create_state(other, KeyWidth::Variable)?];
        let log = |group| -> Result<_> {
            Ok(ChangeLog::open(context.create_state(group, ChangeLog::KEY_WIDTH)?, None))
        };
        let logs = [log(group)?, log(other)?];
        // One from the beginning, one as if it were added later.
        context.resume_change_log(&states[0], &logs[0]);
        context.log_changes(&states[1], Some(Arc::clone(&logs[1])))?;
        Ok((states, logs))
    })?;
    let random = Env::simulated(seed);
    let mut commits: Vec<Timestamp> = Vec::new();
    for round in 0..rounds {
        let mut changes = random_changes(&random, round);
        if round % 6 == 3 {
            changes.extend(MANY_KEYS.map(|number| (number, Some(vec![round as u8; LONG_BYTES]))));
        }
        changes.push((NUMBER_KEY, Some((round + 1).to_le_bytes().to_vec())));
        let transaction = context.begin()?;
        write(&transaction, &states, &changes)?;
        let commit = recorder.run(Operation::Commit(changes), || transaction.commit(Durability::Sync))?;
        commits.push(commit.cts);
        if round % 5 == 4 {
            let horizon = commits[commits.len() - 3];
            logs.iter().try_for_each(|log| context.prune_log(log, horizon).map(drop))?;
            context.vacuum()?;
        }
    }
    Ok(())
}

fn verify(pool: &Arc<Pool>, legal: &[&Content]) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(text)?;
    check_sound(&context)?;
    let states = [0, 1, 2, 3].map(|id| context.state(StateId(id)));
    let [Some(first), Some(second), Some(first_log), Some(second_log)] = states else {
        let may_be = legal.iter().any(|content| content.0.is_none());
        return if may_be { Ok(()) } else { Err("a state or its log is gone".to_string()) };
    };
    let states = [first, second];
    let logs = [first_log, second_log].map(|state| ChangeLog::open(state, None));
    states.iter().zip(&logs).for_each(|(state, log)| context.resume_change_log(state, log));
    let known = legal.iter().filter_map(|content| content.0.as_ref()).max_by_key(|all| all.len());
    let Some(known) = known else { return Err("the states are there before they were made".to_string()) };
    undo(&context, &states, &logs, known).map_err(text)??;
    // Behind keys of the log that a commit may have left without a version.
    let writer = context.begin().map_err(text)?;
    let number = |number: u64| vec![(NUMBER_KEY, Some(number.to_le_bytes().to_vec()))];
    write(&writer, &states, &number(LATER)).map_err(text)?;
    writer.commit(Durability::Sync).map_err(text)?;
    undo(&context, &states, &logs, known).map_err(text)??;
    for log in &logs {
        while context.prune_log(log, INFINITY.previous()).map_err(text)? > 0 {}
    }
    context.vacuum().map_err(text)?;
    undo(&context, &states, &logs, known).map_err(text)??;
    nothing_leaks(pool, &context).map_err(text)?
}

/// Checks that undoing the changes of the logs leads back from the content to that at the horizon.
fn undo(
    context: &Arc<StateContext>,
    states: &[Arc<State>; 2],
    logs: &[Arc<ChangeLog>; 2],
    known: &[Rows],
) -> Result<std::result::Result<(), String>> {
    let reader = context.begin()?;
    for (state, log) in states.iter().zip(logs) {
        let (mut rows, mut from): (Rows, _) = (BTreeMap::new(), None);
        let mut take = |key: &[u8], value: &[u8]| drop(rows.insert(key.to_vec(), value.to_vec()));
        while reader.scan_batch(state, &KeyRange::full(), &mut from, &mut take)? {}
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let (mut changes, horizon) = (Vec::new(), log.horizon(&reader)?);
        log.read(&reader, LogPosition::after(horizon), INFINITY, |change, _| {
            changes.push((change.cts, change.key.to_vec(), owned(change.old), owned(change.new)));
            true
        })?;
        if !changes.is_sorted_by_key(|(cts, key, ..)| (*cts, key.clone())) {
            return Ok(Err(format!("not in the order of commits: {changes:?}")));
        }
        for (cts, key, old, new) in changes.iter().rev() {
            let now = match old {
                Some(old) => rows.insert(key.clone(), old.clone()),
                None => rows.remove(key),
            };
            if now != *new {
                return Ok(Err(format!("commit {cts} left {new:?} under {key:x?}, found {now:?}")));
            }
        }
        let number = rows.get(&key(NUMBER_KEY)).and_then(|value| value.first_chunk().copied());
        let number = number.map_or(0, u64::from_le_bytes);
        let expected = known.get((number % LATER) as usize);
        if number < LATER && expected != Some(&rows) {
            return Ok(Err(format!("at the horizon, commit {number}: {rows:?} in place of {expected:?}")));
        }
    }
    Ok(Ok(()))
}
