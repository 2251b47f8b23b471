//! Many groups and states: a directory that grows, commits over several groups beside each other.

use crate::common::{get, key, put, volatile};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{Error, KeyRange, Protocol, State, StateContext, StateId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const GROUPS: u64 = 24;
const KEYS: u64 = 4;
const TOTAL: u64 = GROUPS * KEYS * 100;

fn amount(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn states(context: &Arc<StateContext>, protocol: Protocol) -> Vec<Arc<State>> {
    let state = |_| {
        let group = context.create_group_with(protocol).unwrap();
        let state = context.create_state(group, KeyWidth::Eight).unwrap();
        let load = context.begin().unwrap();
        (0..KEYS).for_each(|number| load.write(&state, &key(number), Some(&100_u64.to_le_bytes())).unwrap());
        load.commit(Durability::None).unwrap();
        state
    };
    (0..GROUPS).map(state).collect()
}

/// Moves amounts from one state to some others; true if it was committed.
fn transfer(context: &Arc<StateContext>, states: &[Arc<State>], random: &Env) -> bool {
    let below = |bound: u64| random.random_u64() % bound;
    // One publication takes sixteen groups.
    let others = [1, 2, 20][below(3) as usize];
    let transaction = context.begin().unwrap();
    let number = key(below(KEYS));
    let first = below(GROUPS);
    let moved = || -> Result<(), Error> {
        let from = &states[first as usize];
        let there = transaction.read(from, &number, amount)?.unwrap();
        let taken = there.min(others);
        transaction.write(from, &number, Some(&(there - taken).to_le_bytes()))?;
        for other in 1..=taken {
            let to = &states[((first + other) % GROUPS) as usize];
            let there = transaction.read(to, &number, amount)?.unwrap();
            transaction.write(to, &number, Some(&(there + 1).to_le_bytes()))?;
        }
        transaction.commit([Durability::None, Durability::Sync][below(2) as usize]).map(|_| ())
    };
    match moved() {
        Ok(()) => true,
        Err(error) if error.is_retryable() => false,
        Err(error) => panic!("{error}"),
    }
}

fn total(context: &Arc<StateContext>, states: &[Arc<State>]) -> u64 {
    let reader = context.begin().unwrap();
    let mut sum = 0;
    for state in states {
        let mut from = None;
        while reader.scan_batch(state, &KeyRange::full(), &mut from, |_, value| sum += amount(value)).unwrap()
        {
        }
    }
    sum
}

fn side_by_side(protocol: Protocol) {
    let context = StateContext::open_or_create(volatile()).unwrap();
    let states = states(&context, protocol);
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (context, states, stop, commits) = (&context, &states, &stop, &commits);
            scope.spawn(move || {
                let random = Env::simulated(thread);
                while !stop.load(Relaxed) {
                    commits.fetch_add(u64::from(transfer(context, states, &random)), Relaxed);
                }
            });
        }
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(2) {
            if matches!(protocol, Protocol::MvccInPlace | Protocol::MvccOutOfPlace) {
                assert_eq!(total(&context, &states), TOTAL);
            }
            thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(total(&context, &states), TOTAL);
    assert!(commits.into_inner() > 100);
}

#[test]
fn commits_over_groups_are_atomic_beside_each_other() {
    Protocol::ALL.into_iter().for_each(side_by_side);
}

fn journal(directory: &std::path::Path) -> Arc<Pool> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    Pool::open_or_create(directory, &options).unwrap()
}

#[test]
fn more_states_than_one_segment_takes() {
    const STATES: u64 = 2100;
    let directory = tempfile::tempdir().unwrap();
    let context = StateContext::open_or_create(journal(directory.path())).unwrap();
    for number in 0..STATES {
        let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
        assert_eq!(u64::from(state.id().0), number);
        put(&context, &state, 1, &number.to_le_bytes());
    }
    // Numbers that are free are used first, wherever they are.
    for number in [2000, 7] {
        context.drop_state(StateId(number)).unwrap();
        context.vacuum().unwrap();
        let state = context.create_state(context.groups()[0], KeyWidth::Eight).unwrap();
        assert_eq!(state.id(), StateId(number));
        put(&context, &state, 1, &u64::from(number).to_le_bytes());
    }
    context.keep_history(StateId(2099), None).unwrap();
    put(&context, &context.state(StateId(2099)).unwrap(), 1, &2099_u64.to_le_bytes());
    let pool = Arc::clone(context.pool());
    pool.close().unwrap();
    drop((context, pool));
    let context = StateContext::open_or_create(journal(directory.path())).unwrap();
    assert_eq!((context.states().len() as u64, context.groups().len() as u64), (STATES, STATES));
    let reader = context.begin().unwrap();
    for state in context.states() {
        assert_eq!(get(&reader, &state, 1), Some(u64::from(state.id().0).to_le_bytes().to_vec()));
    }
    assert!(context.state(StateId(2099)).unwrap().past().is_some());
    entresol_transactions::crash_histories::check_sound(&context).unwrap();
}
