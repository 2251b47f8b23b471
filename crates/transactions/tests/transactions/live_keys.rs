//! Counts of live keys that commits keep: each equals what a scan at the same snapshot finds.

use crate::common::{context, delete, key, put, scan, soak, two_states, volatile};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{
    ChangeLog, Error, Isolation, KeyRange, Protocol, State, StateContext, StateId, Transaction,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys of the random transactions.
const KEYS: u64 = 400;

/// Number of keys that a scan finds.
fn scanned(transaction: &Transaction, state: &Arc<State>) -> u64 {
    scan(transaction, state, &KeyRange::full()).len() as u64
}

/// Count of a new transaction, compared with what it finds.
fn counted(context: &Arc<StateContext>, state: &Arc<State>) -> Option<u64> {
    let reader = context.begin().unwrap();
    let told = reader.live_keys(state).unwrap();
    told.inspect(|told| assert_eq!(*told, scanned(&reader, state), "at {}", reader.snapshot()))
}

/// Random transaction: some keys, or enough of them for a commit that others need not wait for.
fn change(context: &Arc<StateContext>, states: &[Arc<State>; 2], random: &Env) {
    let transaction = context.begin().unwrap();
    let below = |bound: u64| random.random_u64() % bound;
    let keys = if below(12) == 0 { 65 + below(100) } else { 1 + below(5) };
    let deletes = below(2) == 0;
    for _ in 0..keys {
        let value = (!deletes || below(4) == 0).then(|| vec![7; below(60) as usize]);
        transaction.write(&states[below(2) as usize], &key(below(KEYS)), value.as_deref()).unwrap();
    }
    if below(6) == 0 {
        return transaction.abort();
    }
    let durability = [Durability::None, Durability::Sync][below(2) as usize];
    match transaction.commit(durability) {
        Ok(_) | Err(Error::Conflict { .. }) => (),
        Err(error) => panic!("{error}"),
    }
}

/// Readers compare counts with scans while writers commit, and vacuum runs; `learns`: readers tell what they found.
fn race(context: &Arc<StateContext>, states: &[Arc<State>; 2], learns: bool) {
    let (stop, known) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = soak(500, 20_000);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let random = Env::simulated(writer);
                    (0..rounds).for_each(|_| change(context, states, &random));
                })
            })
            .collect();
        for reader in 0..3 {
            let (stop, known) = (&stop, &known);
            scope.spawn(move || {
                let random = Env::simulated(100 + reader);
                let mut held: Vec<Arc<Transaction>> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let state = &states[(random.random_u64() % 2) as usize];
                    let transaction = context.begin().unwrap();
                    let told = transaction.live_keys(state).unwrap();
                    let found = scanned(&transaction, state);
                    match told {
                        Some(told) => {
                            known.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(told, found, "at {}", transaction.snapshot());
                        }
                        None if learns => transaction.tell_live_keys(state, found),
                        None => (),
                    }
                    held.push(transaction);
                    if held.len() > 5 {
                        let old = held.remove((random.random_u64() % 5) as usize);
                        let found = scanned(&old, &states[0]);
                        let told = old.live_keys(&states[0]).unwrap();
                        assert!(told.is_none_or(|told| told == found), "{told:?}, not {found}");
                    }
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert!(known.load(Ordering::Relaxed) > 0, "no count was known");
    context.vacuum().unwrap();
    for state in states {
        assert!(counted(context, state).is_some(), "the newest snapshot knows it");
    }
}

#[test]
fn counts_are_those_of_the_snapshot_beside_commits() {
    let (context, first, second) = two_states(KeyWidth::Eight);
    race(&context, &[first, second], false);
}

#[test]
fn counts_over_two_groups_and_widths() {
    let context = context();
    let state = |width| context.create_state(context.create_group().unwrap(), width).unwrap();
    let states = [state(KeyWidth::Sixteen), state(KeyWidth::Variable)];
    race(&context, &states, false);
}

fn open(dir: &Path) -> Arc<StateContext> {
    let options =
        PoolOptions { domain: DomainChoice::Journal, extent_bytes: 1 << 20, ..PoolOptions::default() };
    StateContext::open_or_create(Pool::open_or_create(dir, &options).unwrap()).unwrap()
}

#[test]
fn counts_are_learned_behind_a_restart_beside_commits() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let context = open(dir.path());
        if round == 0 {
            let group = context.create_group().unwrap();
            (0..2).for_each(|_| drop(context.create_state(group, KeyWidth::Eight).unwrap()));
        }
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        if round > 0 {
            assert_eq!(counted(&context, &states[0]), None, "it was not counted in this run");
        }
        race(&context, &states, true);
        if round % 2 == 0 {
            context.pool().close().unwrap();
        }
    }
}

#[test]
fn own_writes_and_other_protocols_are_not_counted() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    (0..10).for_each(|number| put(&context, &state, number, b"value"));
    let transaction = context.begin().unwrap();
    let mark = transaction.mark();
    transaction.write(&state, &key(77), Some(b"own")).unwrap();
    assert_eq!(transaction.live_keys(&state).unwrap(), None);
    transaction.tell_live_keys(&state, 11);
    transaction.rollback_to(mark);
    assert_eq!(transaction.live_keys(&state).unwrap(), Some(10));
    delete(&context, &state, 3);
    assert_eq!(transaction.live_keys(&state).unwrap(), Some(10), "it is of the snapshot");
    drop(transaction);
    assert_eq!(counted(&context, &state), Some(9));
    for protocol in [Protocol::MvccOutOfPlace, Protocol::S2pl, Protocol::Bocc] {
        let group = context.create_group_with(protocol).unwrap();
        let other = context.create_state(group, KeyWidth::Eight).unwrap();
        put(&context, &other, 1, b"value");
        assert_eq!(counted(&context, &other), None, "{protocol:?}");
        assert_eq!(other.newest_live_keys(), None, "{protocol:?}");
    }
}

#[test]
fn logs_and_uncounted_states_have_no_count() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let log = context.create_state(state.group(), ChangeLog::KEY_WIDTH).unwrap();
    drop(ChangeLog::open(Arc::clone(&log), None));
    other.leave_uncounted();
    put(&context, &other, 1, b"value");
    assert_eq!((counted(&context, &log), counted(&context, &other)), (None, None));
    context.begin().unwrap().tell_live_keys(&other, 1);
    assert_eq!(counted(&context, &other), None);
}

#[test]
fn a_load_counts_from_its_commit_on() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let before = context.begin().unwrap();
    let tx = context.begin().unwrap();
    assert!(tx.begin_load(std::slice::from_ref(&state)).unwrap());
    // The second part lies between the keys of the first.
    for step in [0, 1] {
        let keys: Vec<KeyBytes> =
            (0..700).map(|number| KeyBytes::from_slice(&key(2 * number + step))).collect();
        tx.load_many(state.id(), keys, |_| b"loaded").unwrap();
    }
    assert_eq!(counted(&context, &state), Some(0));
    tx.commit(Durability::Sync).unwrap();
    assert_eq!(counted(&context, &state), Some(1400));
    assert_eq!(before.live_keys(&state).unwrap(), Some(0));
    delete(&context, &state, 5);
    put(&context, &state, 6, b"updated");
    put(&context, &state, 5000, b"new");
    assert_eq!(counted(&context, &state), Some(1400));
}

#[test]
fn a_count_of_a_serializable_transaction_is_a_read_of_all_keys() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"value");
    let transaction = context.begin_at(Isolation::Serializable).unwrap();
    assert_eq!(transaction.live_keys(&state).unwrap(), Some(1));
    transaction.write(&other, &key(1), Some(b"depends on the count")).unwrap();
    put(&context, &state, 2, b"phantom");
    let error = transaction.commit(Durability::None).unwrap_err();
    assert!(matches!(error, Error::ReadConflict { .. }), "{error}");
}

#[test]
fn commits_without_room_count_nothing() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 1 << 20,
        address_space_bytes: 4 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let (mut number, mut failed) = (0, 0);
    while failed < 5 {
        let transaction = context.begin().unwrap();
        for _ in 0..40 {
            transaction.write(&state, &key(number), Some(&[1; 900])).unwrap();
            number += 1;
        }
        failed += u64::from(transaction.commit(Durability::None).is_err());
    }
    assert!(counted(&context, &state).is_some_and(|keys| keys >= 40));
}

#[test]
fn a_dropped_state_has_no_count() {
    let context = StateContext::open_or_create(volatile()).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    put(&context, &state, 1, b"value");
    let before = context.begin().unwrap();
    context.drop_state(state.id()).unwrap();
    assert_eq!(before.live_keys(&state).unwrap(), Some(1));
    let error = context.begin().unwrap().live_keys(&state).unwrap_err();
    assert!(matches!(error, Error::NoSuchState(_)), "{error}");
}
