//! Bulk loads: what others see of them, what they conflict with, and that a failed one leaves nothing.

use crate::common::{Rows, context, delete, get, key, put, rows, scan, two_states, volatile};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{
    Cancellation, ContextOptions, Error, Interrupt, Isolation, KeyRange, Protocol, State, StateContext,
    Transaction,
};
use std::sync::Arc;

const KEYS: u64 = 1000;

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; (number % 90) as usize]
}

/// Adds rows to a load, some at a time.
fn load(tx: &Transaction, state: &Arc<State>, numbers: &[u64]) -> Result<(), Error> {
    numbers.chunks(170).try_for_each(|part| {
        let keys = part.iter().map(|number| KeyBytes::from_slice(&key(*number))).collect();
        let values: Vec<Vec<u8>> = part.iter().map(|number| value(*number)).collect();
        tx.load_many(state.id(), keys, |at| &values[at])
    })
}

fn begun(context: &Arc<StateContext>, state: &Arc<State>) -> Arc<Transaction> {
    let tx = context.begin().unwrap();
    assert!(tx.begin_load(std::slice::from_ref(state)).unwrap(), "it is empty");
    tx
}

fn commit(tx: &Transaction) -> Result<(), Error> {
    tx.commit(Durability::Sync).map(drop)
}

fn model(numbers: impl Iterator<Item = u64>) -> Rows {
    numbers.map(|number| (key(number).to_vec(), value(number))).collect()
}

fn shuffled(seed: u64, count: u64) -> Vec<u64> {
    let random = Env::simulated(seed);
    let mut numbers: Vec<u64> = (0..count).collect();
    (1..numbers.len()).for_each(|at| numbers.swap(at, (random.random_u64() % (at as u64 + 1)) as usize));
    numbers
}

fn allocated(context: &StateContext) -> u64 {
    context.vacuum().unwrap();
    context.pool().stats().allocated_bytes
}

#[test]
fn a_load_is_seen_by_later_snapshots_alone() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let before = context.begin().unwrap();
    let tx = begun(&context, &state);
    load(&tx, &state, &(0..KEYS).collect::<Vec<_>>()).unwrap();
    put(&context, &other, 7, b"meanwhile");
    let during = context.begin().unwrap();
    assert!(rows(&during, &state).is_empty() && get(&tx, &state, 7).is_none());
    commit(&tx).unwrap();
    let after = context.begin().unwrap();
    assert_eq!(rows(&after, &state), model(0..KEYS));
    for old in [&before, &during] {
        assert!(rows(old, &state).is_empty(), "it does not see the load");
        let keys: Vec<_> = (0..80).map(key).collect();
        old.read_many(&state, &keys, |_, value| assert_eq!(value, None)).unwrap();
    }
    assert_eq!(get(&during, &other, 7), Some(b"meanwhile".to_vec()));
    put(&context, &state, 7, b"new");
    delete(&context, &state, 8);
    put(&context, &state, 5000, b"another");
    assert_eq!(rows(&after, &state), model(0..KEYS), "its snapshot stays");
    let mut expected = model((0..KEYS).filter(|number| *number != 8));
    expected.insert(key(7).to_vec(), b"new".to_vec());
    expected.insert(key(5000).to_vec(), b"another".to_vec());
    assert_eq!(rows(&context.begin().unwrap(), &state), expected);
    assert!(rows(&before, &state).is_empty());
    drop((before, during, after));
    context.vacuum().unwrap();
    assert_eq!(rows(&context.begin().unwrap(), &state), expected);
}

#[test]
fn writers_that_have_not_seen_a_load_get_a_conflict() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let [of_a_row, of_a_new_row] = [7, 5000].map(|number| {
        let tx = context.begin().unwrap();
        tx.write(&state, &key(number), Some(b"blind")).unwrap();
        tx
    });
    let reader = context.begin_at(Isolation::Serializable).unwrap();
    assert_eq!(get(&reader, &state, 7), None);
    let scanner = context.begin_at(Isolation::Serializable).unwrap();
    assert!(scan(&scanner, &state, &KeyRange::full()).is_empty());
    for serializable in [&reader, &scanner] {
        serializable.write(&other, &key(1), Some(b"I saw nothing")).unwrap();
    }
    let tx = begun(&context, &state);
    load(&tx, &state, &(0..KEYS).collect::<Vec<_>>()).unwrap();
    commit(&tx).unwrap();
    for writer in [of_a_row, of_a_new_row] {
        assert!(matches!(commit(&writer), Err(Error::Conflict { .. })));
    }
    for serializable in [reader, scanner] {
        assert!(matches!(commit(&serializable), Err(Error::ReadConflict { .. })));
    }
    assert_eq!(rows(&context.begin().unwrap(), &state), model(0..KEYS));
}

#[test]
fn a_load_fails_if_another_transaction_has_written_the_state() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let before = allocated(&context);
    let first = begun(&context, &state);
    load(&first, &state, &[1, 2, 3]).unwrap();
    let second = context.begin().unwrap();
    assert!(!second.begin_load(std::slice::from_ref(&state)).unwrap(), "one load at a time");
    for number in [7, 8] {
        second.write(&state, &key(number), Some(&value(number))).unwrap();
    }
    commit(&second).unwrap();
    assert!(matches!(load(&first, &state, &[4]), Err(Error::Conflict { .. })), "the next batch finds out");
    assert!(!first.is_open());
    assert_eq!(rows(&context.begin().unwrap(), &state), model([7, 8].into_iter()));
    assert!(!context.begin().unwrap().begin_load(std::slice::from_ref(&state)).unwrap(), "it has rows");
    for number in [7, 8] {
        delete(&context, &state, number);
    }
    context.vacuum().unwrap();
    let third = begun(&context, &state);
    load(&third, &state, &[1]).unwrap();
    put(&context, &state, 9, b"first");
    assert!(matches!(commit(&third), Err(Error::Conflict { .. })));
    delete(&context, &state, 9);
    assert_eq!(allocated(&context), before, "what failed is gone");
}

#[test]
fn rows_in_any_order_and_in_many_runs_are_all_there() {
    for (seed, width) in (1..).zip([KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable]) {
        let (context, state, other) = two_states(width);
        context.sort_loads_after(20_000);
        let tx = context.begin().unwrap();
        assert!(tx.begin_load(&[Arc::clone(&state), Arc::clone(&other)]).unwrap());
        load(&tx, &state, &shuffled(seed, KEYS)).unwrap();
        load(&tx, &other, &(0..KEYS / 2).collect::<Vec<_>>()).unwrap();
        load(&tx, &other, &shuffled(seed, KEYS)[..]).unwrap_err();
        assert!(matches!(commit(&tx), Err(Error::Finished)), "an error ends it");
        let tx = context.begin().unwrap();
        assert!(tx.begin_load(&[Arc::clone(&state), Arc::clone(&other)]).unwrap());
        load(&tx, &state, &shuffled(seed, KEYS)).unwrap();
        load(&tx, &other, &(0..KEYS / 2).collect::<Vec<_>>()).unwrap();
        let committed = tx.commit(Durability::Sync).unwrap();
        assert_eq!((committed.states, committed.keys), (2, (KEYS + KEYS / 2) as usize));
        let reader = context.begin().unwrap();
        let padded =
            |key: &[u8]| if width == KeyWidth::Sixteen { [key, &[0; 8]].concat() } else { key.to_vec() };
        let expected =
            |count| model(0..count).into_iter().map(|(key, value)| (padded(&key), value)).collect();
        assert_eq!(rows(&reader, &state), expected(KEYS));
        assert_eq!(rows(&reader, &other), expected(KEYS / 2));
        state.check_index().unwrap();
        other.check_index().unwrap();
    }
}

#[test]
fn a_key_that_is_loaded_twice_is_an_error_that_leaves_nothing() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    context.sort_loads_after(5000);
    let before = allocated(&context);
    let all: Vec<u64> = (0..KEYS).collect();
    let (mut in_a_call, mut at_the_end) = (all.clone(), all.clone());
    in_a_call[30] = 29;
    at_the_end.push(500);
    let mut far_apart = shuffled(3, KEYS);
    let first = far_apart[0];
    far_apart.push(first);
    for numbers in [in_a_call, at_the_end, far_apart] {
        let tx = begun(&context, &state);
        let failed = load(&tx, &state, &numbers).and_then(|()| commit(&tx));
        assert!(
            matches!(&failed, Err(Error::LoadedTwice { state: of, .. }) if *of == state.id()),
            "{failed:?}"
        );
        assert!(!tx.is_open());
        drop(tx);
        assert!(rows(&context.begin().unwrap(), &state).is_empty());
        assert_eq!(allocated(&context), before);
    }
}

#[test]
fn a_load_that_is_not_committed_leaves_nothing() {
    let (context, state, _) = two_states(KeyWidth::Variable);
    let before = allocated(&context);
    let dropped = begun(&context, &state);
    load(&dropped, &state, &(0..KEYS).collect::<Vec<_>>()).unwrap();
    drop(dropped);
    assert_eq!(allocated(&context), before);
    let aborted = begun(&context, &state);
    load(&aborted, &state, &shuffled(2, KEYS)).unwrap();
    aborted.abort();
    assert!(load(&aborted, &state, &[1]).is_err());
    assert_eq!(allocated(&context), before);
    let stopped = begun(&context, &state);
    let statement = Arc::new(Cancellation::default());
    stopped.set_cancellation(Arc::clone(&statement));
    load(&stopped, &state, &[1, 2]).unwrap();
    assert!(statement.interrupt(Interrupt::Requested));
    assert!(matches!(load(&stopped, &state, &[3]), Err(Error::Interrupted(Interrupt::Requested))));
    assert!(!stopped.is_open());
    drop(stopped);
    assert_eq!(allocated(&context), before);
    assert!(rows(&context.begin().unwrap(), &state).is_empty());
}

#[test]
fn a_transaction_that_loads_does_nothing_else() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let tx = begun(&context, &state);
    assert!(matches!(tx.write(&other, &key(1), Some(b"x")), Err(Error::Invalid(_))));
    assert!(!tx.begin_load(std::slice::from_ref(&other)).unwrap());
    assert_eq!(tx.written_states(), [state.id()]);
    assert!(matches!(load(&tx, &other, &[1]), Err(Error::NoSuchState(_))));
    let tx = context.begin().unwrap();
    assert!(matches!(load(&tx, &state, &[1]), Err(Error::Invalid(_))), "it has not begun");
    tx.write(&other, &key(1), Some(b"x")).unwrap();
    assert!(!tx.begin_load(std::slice::from_ref(&state)).unwrap());
    let serializable = context.begin_at(Isolation::Serializable).unwrap();
    assert!(!serializable.begin_load(std::slice::from_ref(&state)).unwrap());
    let elsewhere = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let tx = context.begin().unwrap();
    assert!(!tx.begin_load(&[Arc::clone(&state), elsewhere]).unwrap(), "of one group");
    assert!(!tx.begin_load(&[]).unwrap());
    let nothing = begun(&context, &state);
    commit(&nothing).unwrap();
    assert!(rows(&context.begin().unwrap(), &state).is_empty());
    assert!(!context.begin().unwrap().is_loading());
}

#[test]
fn states_that_cannot_be_loaded_say_so() {
    for protocol in [Protocol::MvccOutOfPlace, Protocol::S2pl, Protocol::Bocc] {
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(volatile(), options).unwrap();
        let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
        assert!(!context.begin().unwrap().begin_load(&[state]).unwrap(), "{protocol:?}");
    }
    let context = context();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let tx = begun(&context, &state);
    load(&tx, &state, &[1]).unwrap();
    context.watch(&state);
    assert!(matches!(commit(&tx), Err(Error::Conflict { .. })), "it has readers of its changes now");
    assert!(!context.begin().unwrap().begin_load(&[state]).unwrap());
}

#[test]
fn a_state_that_is_dropped_meanwhile_is_not_loaded() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let tx = begun(&context, &state);
    load(&tx, &state, &[1, 2]).unwrap();
    context.refuse_older_writers(state.id(), |_| ()).unwrap();
    assert!(matches!(commit(&tx), Err(Error::Conflict { .. })), "another definition holds now");
    let tx = begun(&context, &state);
    load(&tx, &state, &[1, 2]).unwrap();
    context.drop_state(state.id()).unwrap();
    assert!(matches!(commit(&tx), Err(Error::NoSuchState(_))));
}

#[test]
fn values_of_all_lengths_and_what_is_too_long() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let lengths = [0, 1, 8, 4095, 4096, 40_000, 4 << 20];
    let tx = begun(&context, &state);
    let values: Vec<Vec<u8>> = lengths.iter().map(|length| vec![5; *length]).collect();
    let keys = (0..values.len() as u64).map(|number| KeyBytes::from_slice(&key(number))).collect();
    tx.load_many(state.id(), keys, |at| &values[at]).unwrap();
    commit(&tx).unwrap();
    let reader = context.begin().unwrap();
    for (number, value) in (0..).zip(&values) {
        assert_eq!(get(&reader, &state, number).as_ref(), Some(value));
        put(&context, &state, number, b"shorter");
        put(&context, &state, number, &[9; 200]);
    }
    let (context, state, _) = two_states(KeyWidth::Eight);
    let tx = begun(&context, &state);
    let long = vec![0; (4 << 20) + 1];
    let failed = tx.load_many(state.id(), vec![KeyBytes::from_slice(&key(1))], |_| &long);
    assert!(matches!(failed, Err(Error::ValueLength { .. })));
    let tx = begun(&context, &state);
    let failed = tx.load_many(state.id(), vec![KeyBytes::from_slice(&[1; 9])], |_| &[]);
    assert!(matches!(failed, Err(Error::KeyLength { .. })));
}

#[test]
fn a_load_survives_a_restart_with_all_that_is_written_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let open =
        || StateContext::open_or_create(Pool::open_or_create(directory.path(), &options).unwrap()).unwrap();
    let mut expected = model(0..20_000);
    let id = {
        let context = open();
        let state = context.create_state(context.create_group().unwrap(), KeyWidth::Variable).unwrap();
        let tx = begun(&context, &state);
        load(&tx, &state, &(0..20_000).collect::<Vec<_>>()).unwrap();
        commit(&tx).unwrap();
        put(&context, &state, 3, b"three");
        delete(&context, &state, 4);
        let given_up = context.create_state(state.group(), KeyWidth::Eight).unwrap();
        let tx = begun(&context, &given_up);
        load(&tx, &given_up, &(0..KEYS).collect::<Vec<_>>()).unwrap();
        context.pool().sync().unwrap();
        // The process ends before it is destroyed.
        drop(tx);
        context.pool().close().unwrap();
        state.id()
    };
    expected.insert(key(3).to_vec(), b"three".to_vec());
    expected.remove(key(4).as_slice());
    let context = open();
    // The commit may have destroyed what its load has left.
    let left = context.recovery().states_dropping;
    assert!((1..=2).contains(&left), "what the loads have left: {left}");
    let state = context.state(id).unwrap();
    assert_eq!(rows(&context.begin().unwrap(), &state), expected);
    assert_eq!(context.vacuum().unwrap().states_destroyed, left as u64);
    assert_eq!(rows(&context.begin().unwrap(), &state), expected);
    entresol_transactions::crash_histories::check_sound(&context).unwrap();
}

/// Objects of a load have one slot: one that moves when it is rewritten gets room for the version that it ends.
#[test]
fn loaded_rows_that_stay_after_a_burst_are_brought_together_by_updates() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let staying = || (0..80_000).filter(|number| number % 8 == 0);
    let tx = begun(&context, &state);
    let keys = (0..80_000).map(|number| KeyBytes::from_slice(&key(number))).collect();
    tx.load_many(state.id(), keys, |_| b"sixteen bytes it").unwrap();
    commit(&tx).unwrap();
    let tx = context.begin().unwrap();
    for number in (0..80_000).filter(|number| number % 8 != 0) {
        tx.write(&state, &key(number), None).unwrap();
    }
    commit(&tx).unwrap();
    context.vacuum().unwrap();
    let pool = context.pool();
    let slabs = || pool.space().classes.iter().map(|class| class.slabs).sum::<u64>();
    pool.return_space().unwrap();
    let spread = slabs();
    for round in 0..4 {
        pool.pack();
        for number in staying() {
            put(&context, &state, number, format!("updated, round {round}").as_bytes());
        }
        pool.return_space().unwrap();
    }
    assert!(slabs() < spread, "{} slabs, {spread} before", slabs());
    let reader = context.begin().unwrap();
    assert!(staying().all(|number| get(&reader, &state, number).unwrap() == b"updated, round 3"));
}
