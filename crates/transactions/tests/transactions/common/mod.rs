//! Helpers that the tests share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it; tests unwrap")]

pub(crate) mod interleavings;

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{KeyRange, State, StateContext, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn volatile() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() }).unwrap()
}

pub(crate) fn context() -> Arc<StateContext> {
    StateContext::open_or_create(volatile()).unwrap()
}

/// A context with two states of one group.
pub(crate) fn two_states(width: KeyWidth) -> (Arc<StateContext>, Arc<State>, Arc<State>) {
    let context = context();
    let group = context.create_group().unwrap();
    let first = context.create_state(group, width).unwrap();
    let second = context.create_state(group, width).unwrap();
    (context, first, second)
}

pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

pub(crate) fn put(context: &Arc<StateContext>, state: &Arc<State>, number: u64, value: &[u8]) {
    let transaction = context.begin().unwrap();
    transaction.write(state, &key(number), Some(value)).unwrap();
    transaction.commit(Durability::Sync).unwrap();
}

pub(crate) fn delete(context: &Arc<StateContext>, state: &Arc<State>, number: u64) {
    let transaction = context.begin().unwrap();
    transaction.write(state, &key(number), None).unwrap();
    transaction.commit(Durability::Sync).unwrap();
}

pub(crate) fn get(transaction: &Transaction, state: &Arc<State>, number: u64) -> Option<Vec<u8>> {
    transaction.read(state, &key(number), <[u8]>::to_vec).unwrap()
}

pub(crate) fn scan(
    transaction: &Transaction,
    state: &Arc<State>,
    range: &KeyRange,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut from = None;
    while transaction.scan_batch(state, range, &mut from, |k, v| rows.push((k.to_vec(), v.to_vec()))).unwrap()
    {
    }
    assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    rows
}

pub(crate) fn rows(transaction: &Transaction, state: &Arc<State>) -> Rows {
    let rows: Rows = scan(transaction, state, &KeyRange::full()).into_iter().collect();
    for (key, value) in &rows {
        assert_eq!(transaction.read(state, key, <[u8]>::to_vec).unwrap().as_ref(), Some(value));
    }
    rows
}

/// The small size, or the large one when the environment asks for it with ENTRESOL_SOAK=1.
pub(crate) fn soak(small: u64, large: u64) -> u64 {
    if std::env::var_os(entresol_memory::crash::SOAK).is_some() { large } else { small }
}
