//! Power failures at every fence of a history of commits: what was reported is there, whole over all states;
//! what was not is there whole or not at all; and what a crash undid stays undone after later commits.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Rows, key, rows};
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Env, Pool};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext, StateId};

/// What a crash may leave: the reported rows of the two states, or those with the commit in work.
#[derive(Clone, Default)]
struct Expected {
    created: bool,
    reported: [Rows; 2],
    in_work: Option<[Rows; 2]>,
}

/// What is committed after a crash: to a key of the history and to another one.
const LATER_KEYS: [u64; 2] = [1, 1000];
const LATER_VALUE: &[u8] = b"after the crash";

type Shared = Arc<Mutex<Expected>>;

struct History {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
    expected: Shared,
}

impl History {
    fn start(pool: &Arc<Pool>, expected: &Shared, one_group: bool) -> History {
        let context = StateContext::open_or_create(Arc::clone(pool)).unwrap();
        let group = context.create_group().unwrap();
        let other = if one_group { group } else { context.create_group().unwrap() };
        let first = context.create_state(group, KeyWidth::Eight).unwrap();
        let second = context.create_state(other, KeyWidth::Variable).unwrap();
        expected.lock().unwrap().created = true;
        History { context, states: [first, second], expected: Arc::clone(expected) }
    }

    /// Commits the same changes to both states.
    fn commit(&self, changes: &[(u64, Option<Vec<u8>>)]) {
        let transaction = self.context.begin().unwrap();
        let mut after = self.expected.lock().unwrap().reported.clone();
        for (number, value) in changes {
            for (state, rows) in self.states.iter().zip(&mut after) {
                transaction.write(state, &key(*number), value.as_deref()).unwrap();
                match value {
                    Some(value) => rows.insert(key(*number).to_vec(), value.clone()),
                    None => rows.remove(&key(*number)[..]),
                };
            }
        }
        self.expected.lock().unwrap().in_work = Some(after.clone());
        transaction.commit(Durability::Sync).unwrap();
        let mut expected = self.expected.lock().unwrap();
        expected.reported = after;
        expected.in_work = None;
    }
}

fn verify(pool: &Arc<Pool>, expected: &Shared) -> Result<(), String> {
    let expected = expected.lock().unwrap().clone();
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    let states = [0, 1].map(|id| context.state(StateId(id)));
    let [Some(first), Some(second)] = states else {
        return if expected.created { Err("a state is gone".into()) } else { Ok(()) };
    };
    let states = [first, second];
    let read = || {
        let reader = context.begin().unwrap();
        [0, 1].map(|state| rows(&reader, &states[state]))
    };
    let mut found = read();
    // A crash can come again during this very check: then its own commits may be there too.
    let mut legal = vec![expected.reported.clone()];
    legal.extend(expected.in_work.clone());
    for number in LATER_KEYS {
        let mut after = legal.clone();
        after
            .iter_mut()
            .flatten()
            .for_each(|rows| drop(rows.insert(key(number).to_vec(), LATER_VALUE.to_vec())));
        legal.extend(after);
    }
    if !legal.contains(&found) {
        return Err(format!(
            "found {found:?}, reported {:?}, in work {:?}",
            expected.reported, expected.in_work
        ));
    }
    // Later commits must not bring back what the crash undid: of the same keys, and of others.
    for number in LATER_KEYS {
        let writer = context.begin().unwrap();
        for (state, rows) in states.iter().zip(&mut found) {
            writer.write(state, &key(number), Some(LATER_VALUE)).unwrap();
            rows.insert(key(number).to_vec(), LATER_VALUE.to_vec());
        }
        writer.commit(Durability::Sync).map_err(|error| error.to_string())?;
        let now = read();
        if now != found {
            return Err(format!("after a later commit: {now:?} in place of {found:?}"));
        }
    }
    context.vacuum().map_err(|error| error.to_string())?;
    if read() != found {
        return Err("the vacuum changed what is seen".into());
    }
    Ok(())
}

fn random_changes(random: &Env, round: u64) -> Vec<(u64, Option<Vec<u8>>)> {
    let mut changes = std::collections::BTreeMap::new();
    for _ in 0..1 + random.random_u64() % 3 {
        let bytes = [3, 8, 20, 90][(random.random_u64() % 4) as usize];
        let value = (!random.random_u64().is_multiple_of(4)).then(|| vec![round as u8; bytes]);
        changes.insert(random.random_u64() % 6, value);
    }
    changes.into_iter().collect()
}

fn run(seed: u64, one_group: bool) {
    let expected = Shared::default();
    let seen = Arc::clone(&expected);
    let report = check(
        &CrashOptions { seed, crash_recovery_every: 23, ..CrashOptions::default() },
        move |pool| {
            let history = History::start(pool, &expected, one_group);
            let random = Env::simulated(seed);
            let mut reader = None;
            for round in 0..25 {
                if round % 5 == 1 {
                    reader = Some(history.context.begin().unwrap());
                }
                history.commit(&random_changes(&random, round));
                if round % 5 == 4 {
                    drop(reader.take());
                    history.context.vacuum().unwrap();
                }
            }
            Ok(())
        },
        move |pool| verify(pool, &seen),
    )
    .unwrap();
    println!("seed {seed}: {report:?}");
    assert!(report.fences > 100 && report.states > 500, "{report:?}");
}

#[test]
fn commits_of_one_group_survive_whole_or_not_at_all() {
    (1..common::soak(3, 40)).for_each(|seed| run(seed, true));
}

#[test]
fn commits_of_two_groups_survive_whole_or_not_at_all() {
    (3..common::soak(4, 40)).for_each(|seed| run(seed, false));
}
