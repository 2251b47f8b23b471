//! Writes that are collected before their transaction begins.
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{DetachedWrites, Error, State, StateContext, Transaction};
use std::sync::Arc;

fn context() -> (Arc<StateContext>, Arc<State>) {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let context = StateContext::open_or_create(pool).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    (context, state)
}

fn detached(
    context: &Arc<StateContext>,
    state: &Arc<State>,
    keys: std::ops::Range<u64>,
    value: &[u8],
) -> DetachedWrites {
    let keys: Vec<[u8; 8]> = keys.map(u64::to_be_bytes).collect();
    let mut detached = DetachedWrites::new(context);
    detached.write_many(state, keys.iter().map(|key| (&key[..], value))).unwrap();
    detached
}

fn value(tx: &Transaction, state: &Arc<State>, key: u64) -> Option<Vec<u8>> {
    tx.read(state, &key.to_be_bytes(), <[u8]>::to_vec).unwrap()
}

#[test]
fn writes_of_before_a_commit_are_made_behind_it() {
    let (context, state) = context();
    // Both of the same keys; the second ones are made while the first transaction is open.
    let first = context.begin().unwrap();
    first.take_over(detached(&context, &state, 0..100, b"one")).unwrap();
    let second = detached(&context, &state, 50..150, b"two");
    assert_eq!(value(&context.begin().unwrap(), &state, 0), None);
    first.commit(Durability::None).unwrap();
    let later = context.begin().unwrap();
    later.take_over(second).unwrap();
    assert_eq!(value(&later, &state, 50).as_deref(), Some(&b"two"[..]));
    later.commit(Durability::None).unwrap();
    let tx = context.begin().unwrap();
    let found: Vec<_> = [49, 50, 149, 150].map(|key| value(&tx, &state, key)).into();
    assert_eq!(found, [Some(b"one".to_vec()), Some(b"two".to_vec()), Some(b"two".to_vec()), None]);
}

#[test]
fn a_transaction_that_began_before_the_commit_is_refused_with_them() {
    let (context, state) = context();
    let early = context.begin().unwrap();
    let other = context.begin().unwrap();
    other.take_over(detached(&context, &state, 0..10, b"other")).unwrap();
    other.commit(Durability::None).unwrap();
    early.take_over(detached(&context, &state, 9..20, b"early")).unwrap();
    assert!(matches!(early.commit(Durability::None), Err(Error::Conflict { .. })));
    assert_eq!(value(&context.begin().unwrap(), &state, 15), None);
}

#[test]
fn they_come_behind_what_was_written_and_can_be_taken_back() {
    let (context, state) = context();
    let tx = context.begin().unwrap();
    tx.write(&state, &5u64.to_be_bytes(), Some(b"own")).unwrap();
    tx.write(&state, &500u64.to_be_bytes(), Some(b"own")).unwrap();
    let mark = tx.mark();
    tx.take_over(detached(&context, &state, 0..40, b"taken")).unwrap();
    assert_eq!(value(&tx, &state, 5).as_deref(), Some(&b"taken"[..]));
    assert_eq!(tx.changes(state.id()).len(), 41);
    tx.rollback_to(mark);
    assert_eq!(value(&tx, &state, 5).as_deref(), Some(&b"own"[..]));
    assert_eq!(tx.changes(state.id()).len(), 2);
    tx.take_over(DetachedWrites::new(&context)).unwrap();
    tx.commit(Durability::None).unwrap();
}
