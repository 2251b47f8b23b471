//! The transaction protocol from a user's view: snapshots, atomicity, conflicts, own writes, undo, votes.

use crate::common::{context, delete, get, key, put, rows, scan, two_states};
use entresol_memory::{DomainChoice, Durability, MemoryBudget, MemoryConsumer, Pool, PoolOptions};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{Error, KeyRange, StateContext, TRANSACTIONS_MAX, Timestamp, Vote};
use std::ops::Bound;

#[test]
fn a_snapshot_does_not_move() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let before = context.begin().unwrap();
    put(&context, &state, 1, b"one");
    let between = context.begin().unwrap();
    put(&context, &state, 1, b"two");
    assert_eq!(get(&before, &state, 1), None);
    assert_eq!(get(&between, &state, 1).unwrap(), b"one");
    let after = context.begin().unwrap();
    assert_eq!(get(&after, &state, 1).unwrap(), b"two");
    delete(&context, &state, 1);
    assert_eq!(get(&between, &state, 1).unwrap(), b"one");
    assert_eq!(get(&after, &state, 1).unwrap(), b"two");
    assert_eq!(get(&context.begin().unwrap(), &state, 1), None);
}

#[test]
fn nothing_is_visible_before_the_commit_and_all_states_after() {
    let (context, meters, alarms) = two_states(KeyWidth::Eight);
    let writer = context.begin().unwrap();
    writer.write(&meters, &key(1), Some(b"17")).unwrap();
    writer.write(&alarms, &key(1), Some(b"high")).unwrap();
    let during = context.begin().unwrap();
    assert!(rows(&during, &meters).is_empty() && rows(&during, &alarms).is_empty());
    let commit = writer.commit(Durability::Sync).unwrap();
    assert_eq!((commit.states, commit.keys), (2, 2));
    assert!(rows(&during, &meters).is_empty() && rows(&during, &alarms).is_empty());
    let after = context.begin().unwrap();
    assert!(after.snapshot() >= commit.cts && after.sees(commit.cts));
    assert_eq!(get(&after, &meters, 1).unwrap(), b"17");
    assert_eq!(get(&after, &alarms, 1).unwrap(), b"high");
    assert_eq!(context.last_cts(meters.group()), commit.cts);
}

#[test]
fn a_commit_spans_groups() {
    let context = context();
    let groups = [context.create_group().unwrap(), context.create_group().unwrap()];
    let states = groups.map(|group| context.create_state(group, KeyWidth::Variable).unwrap());
    let writer = context.begin().unwrap();
    for state in &states {
        writer.write(state, b"k", Some(b"v")).unwrap();
    }
    let cts = writer.commit(Durability::Sync).unwrap().cts;
    assert_eq!(groups.map(|group| context.last_cts(group)), [cts, cts]);
    let reader = context.begin().unwrap();
    for state in &states {
        assert_eq!(reader.read(state, b"k", <[u8]>::to_vec).unwrap().unwrap(), b"v");
    }
}

#[test]
fn the_first_committer_wins() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"0");
    let [first, second, third] = [(); 3].map(|()| context.begin().unwrap());
    first.write(&state, &key(1), Some(b"first")).unwrap();
    second.write(&other, &key(9), Some(b"second")).unwrap();
    second.write(&state, &key(1), Some(b"second")).unwrap();
    third.write(&state, &key(2), Some(b"third")).unwrap();
    first.commit(Durability::Sync).unwrap();
    match second.commit(Durability::Sync) {
        Err(Error::Conflict { state: at, key: on, .. }) => {
            assert_eq!((at, &on[..]), (state.id(), &key(1)[..]))
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(second.commit(Durability::Sync), Err(Error::Finished)));
    third.commit(Durability::Sync).expect("another key is no conflict");
    let reader = context.begin().unwrap();
    assert_eq!(get(&reader, &state, 1).unwrap(), b"first");
    assert!(rows(&reader, &other).is_empty(), "a failed commit leaves no trace in any state");
}

#[test]
fn a_deletion_is_a_conflict_too() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"0");
    let late = context.begin().unwrap();
    late.write(&state, &key(1), Some(b"late")).unwrap();
    delete(&context, &state, 1);
    context.vacuum().unwrap();
    assert!(matches!(late.commit(Durability::Sync), Err(Error::Conflict { .. })));
    // Inserted and deleted since: still not the key that the snapshot knows.
    let late = context.begin().unwrap();
    late.write(&state, &key(2), Some(b"late")).unwrap();
    put(&context, &state, 2, b"x");
    delete(&context, &state, 2);
    context.vacuum().unwrap();
    assert!(matches!(late.commit(Durability::Sync), Err(Error::Conflict { .. })));
}

#[test]
fn own_writes_come_first() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    for number in 0..10 {
        put(&context, &state, number * 2, b"old");
    }
    let transaction = context.begin().unwrap();
    transaction.write(&state, &key(4), Some(b"new")).unwrap();
    transaction.write(&state, &key(5), Some(b"own")).unwrap();
    transaction.write(&state, &key(6), None).unwrap();
    transaction.write(&state, &key(99), Some(b"last")).unwrap();
    assert_eq!(get(&transaction, &state, 4).unwrap(), b"new");
    assert_eq!(get(&transaction, &state, 6), None);
    let seen: Vec<u64> = rows(&transaction, &state)
        .into_keys()
        .map(|key| u64::from_be_bytes(key.try_into().unwrap()))
        .collect();
    assert_eq!(seen, [0, 2, 4, 5, 8, 10, 12, 14, 16, 18, 99]);
    let mut many = Vec::new();
    let keys: Vec<[u8; 8]> = (0..200).map(key).collect();
    transaction.read_many(&state, &keys, |at, value| many.push((at, value.map(<[u8]>::to_vec)))).unwrap();
    assert_eq!(many.len(), 200);
    for (number, (at, value)) in many.into_iter().enumerate() {
        assert_eq!(at, number);
        assert_eq!(value, get(&transaction, &state, number as u64), "key {number}");
    }
    assert_eq!(transaction.changes(state.id()).len(), 4);
    transaction.commit(Durability::Sync).unwrap();
    assert_eq!(transaction.changes(state.id()).len(), 4, "the changes can be read after the commit");
    assert!(matches!(transaction.read(&state, &key(4), |_| ()), Err(Error::Finished)));
}

#[test]
fn scans_respect_their_range() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let load = context.begin().unwrap();
    for number in 0..1000_u64 {
        load.write(&state, &key(number), Some(&number.to_le_bytes())).unwrap();
    }
    load.commit(Durability::Sync).unwrap();
    let reader = context.begin().unwrap();
    let count = |lower, upper| scan(&reader, &state, &KeyRange { lower, upper }).len();
    let at = |number: u64| KeyBytes::from_slice(&key(number));
    assert_eq!(count(Bound::Unbounded, Bound::Unbounded), 1000);
    assert_eq!(count(Bound::Included(at(10)), Bound::Excluded(at(500))), 490);
    assert_eq!(count(Bound::Excluded(at(10)), Bound::Included(at(500))), 490);
    assert_eq!(count(Bound::Included(at(10)), Bound::Included(at(10))), 1);
    assert_eq!(count(Bound::Excluded(at(10)), Bound::Excluded(at(10))), 0);
    assert_eq!(count(Bound::Included(at(20)), Bound::Included(at(10))), 0);
    assert_eq!(count(Bound::Included(at(990)), Bound::Unbounded), 10);
}

#[test]
fn many_own_writes_are_merged_batch_by_batch() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    for number in (0..5000).step_by(97) {
        put(&context, &state, number, b"old");
    }
    let transaction = context.begin().unwrap();
    for number in 0..5000 {
        transaction.write(&state, &key(number), Some(b"own")).unwrap();
    }
    let seen = rows(&transaction, &state);
    assert_eq!(seen.len(), 5000);
    assert!(seen.values().all(|value| value == b"own"));
}

#[test]
fn callbacks_may_use_the_transaction() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"1");
    let transaction = context.begin().unwrap();
    transaction.write(&state, &key(2), Some(b"2")).unwrap();
    let mut from = None;
    let bump = |key: &[u8], _: &[u8]| transaction.write(&state, key, Some(b"bumped")).unwrap();
    while transaction.scan_batch(&state, &KeyRange::full(), &mut from, bump).unwrap() {}
    let copied = transaction.read(&state, &key(1), |value| transaction.write(&state, &key(3), Some(value)));
    copied.unwrap().unwrap().unwrap();
    assert_eq!(rows(&transaction, &state).len(), 3);
    assert_eq!(get(&transaction, &state, 3).unwrap(), b"bumped");
}

#[test]
fn rolling_back_to_a_mark() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let transaction = context.begin().unwrap();
    transaction.write(&state, &key(1), Some(b"a")).unwrap();
    let outer = transaction.mark();
    transaction.write(&state, &key(1), Some(b"b")).unwrap();
    transaction.write(&other, &key(7), Some(b"x")).unwrap();
    let inner = transaction.mark();
    transaction.write(&state, &key(1), None).unwrap();
    transaction.write(&state, &key(2), Some(b"c")).unwrap();
    transaction.rollback_to(inner);
    assert_eq!(get(&transaction, &state, 1).unwrap(), b"b");
    assert_eq!(get(&transaction, &state, 2), None);
    assert_eq!(get(&transaction, &other, 7).unwrap(), b"x");
    transaction.rollback_to(outer);
    assert_eq!(transaction.written_states(), [state.id()]);
    let commit = transaction.commit(Durability::Sync).unwrap();
    assert_eq!((commit.states, commit.keys), (1, 1));
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), b"a");
}

#[test]
fn undo_of_savepoints_has_its_own_part_of_the_memory_budget() {
    let budget = MemoryBudget::new(64 << 20).unwrap();
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        memory: Some(budget.clone()),
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let group = context.create_group().unwrap();
    let state = context.create_state(group, KeyWidth::Eight).unwrap();
    let used = |consumer| budget.usage().consumers[consumer as usize].used_bytes;
    let parts = || (used(MemoryConsumer::WriteSets), used(MemoryConsumer::Undo));
    const ROWS: u64 = 1_000;
    let rows_bytes = ROWS * 1000;
    let transaction = context.begin().unwrap();
    let write_all =
        |byte| (0..ROWS).for_each(|n| transaction.write(&state, &key(n), Some(&[byte; 1000])).unwrap());
    write_all(1);
    let (writes, undo) = parts();
    assert!(writes > rows_bytes && undo == 0, "{writes} {undo}");
    let mark = transaction.mark();
    write_all(2);
    write_all(3);
    let (writes, undo) = parts();
    assert!(writes > rows_bytes && writes < 2 * rows_bytes, "{writes}: what is held for the undo is undo");
    assert!(undo > 2 * rows_bytes && undo < 3 * rows_bytes, "{undo}");
    // One more of each row does not fit beside others.
    let others = budget.try_reserve(MemoryConsumer::Queries, budget.free_bytes() - (1 << 20)).unwrap();
    let refused = (0..ROWS * 4).map(|n| transaction.write(&state, &key(n % ROWS), Some(&[4; 1000])));
    let error = refused.into_iter().find_map(Result::err).unwrap().to_string();
    assert!(
        error.contains("need 256KiB more") && error.contains("undo") && error.contains("queries"),
        "{error}"
    );
    drop(others);
    transaction.rollback_to(mark);
    assert_eq!(get(&transaction, &state, 7).unwrap(), [1; 1000]);
    write_all(5);
    let (_, undo) = parts();
    assert!(undo < 2 * rows_bytes + (1 << 20), "what was taken back is given up: {undo}");
    transaction.commit(Durability::Sync).unwrap();
    drop(transaction);
    assert_eq!(parts(), (0, 0));
}

#[test]
fn aborting_leaves_no_trace() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let allocated = context.pool().stats().allocated_bytes;
    let transaction = context.begin().unwrap();
    transaction.write(&state, &key(1), Some(&[7; 500])).unwrap();
    transaction.abort();
    transaction.abort();
    assert!(matches!(transaction.commit(Durability::Sync), Err(Error::Finished)));
    assert!(matches!(transaction.write(&state, &key(1), None), Err(Error::Finished)));
    drop(context.begin().unwrap());
    assert!(rows(&context.begin().unwrap(), &state).is_empty());
    assert_eq!(context.pool().stats().allocated_bytes, allocated);
}

#[test]
fn votes_decide_together() {
    let (context, first, second) = two_states(KeyWidth::Eight);
    let begin = || {
        let transaction = context.begin().unwrap();
        transaction.write(&first, &key(1), Some(b"1")).unwrap();
        transaction.write(&second, &key(1), Some(b"1")).unwrap();
        transaction
    };
    let transaction = begin();
    assert!(!transaction.vote(first.id(), Vote::Commit).unwrap());
    assert!(!transaction.vote(second.id(), Vote::Active).unwrap());
    assert!(transaction.vote(second.id(), Vote::Commit).unwrap(), "the last one coordinates");
    transaction.commit(Durability::Sync).unwrap();
    let transaction = begin();
    assert!(!transaction.vote(first.id(), Vote::Abort).unwrap());
    assert!(!transaction.vote(first.id(), Vote::Commit).unwrap(), "an abort stays");
    assert!(!transaction.vote(second.id(), Vote::Commit).unwrap());
    assert!(matches!(transaction.commit(Durability::Sync), Err(Error::VotedAbort(id)) if id == first.id()));
}

#[test]
fn short_keys_are_padded_and_long_ones_refused() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let transaction = context.begin().unwrap();
    transaction.write(&state, b"ab", Some(b"1")).unwrap();
    assert_eq!(transaction.read(&state, b"ab\0\0", <[u8]>::to_vec).unwrap().unwrap(), b"1");
    assert!(matches!(transaction.write(&state, b"123456789", None), Err(Error::KeyLength { bytes: 9, .. })));
    assert!(matches!(transaction.read(&state, b"123456789", |_| ()), Err(Error::KeyLength { .. })));
    transaction.commit(Durability::Sync).unwrap();
    assert_eq!(context.begin().unwrap().read(&state, b"ab", <[u8]>::to_vec).unwrap().unwrap(), b"1");
}

#[test]
fn too_many_transactions_are_busy() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let mut open: Vec<_> = (0..TRANSACTIONS_MAX).map(|_| context.begin().unwrap()).collect();
    assert!(matches!(context.begin(), Err(Error::Busy(_))));
    open.pop();
    put(&context, &state, 1, b"1");
}

#[test]
fn an_empty_commit_changes_nothing() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let transaction = context.begin().unwrap();
    assert_eq!(transaction.commit(Durability::Sync).unwrap().keys, 0);
    delete(&context, &state, 5);
    assert_eq!(context.last_cts(state.group()), Timestamp::START);
}
