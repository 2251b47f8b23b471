//! Content of a database when it is opened again: after a close, and after the process was killed.

use crate::common::{delete, get, key, put, rows};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{GroupId, StateContext, StateId, Timestamp};
use std::path::Path;
use std::sync::Arc;

fn open(dir: &Path) -> Arc<StateContext> {
    let options =
        PoolOptions { domain: DomainChoice::Journal, extent_bytes: 1 << 20, ..PoolOptions::default() };
    StateContext::open_or_create(Pool::open_or_create(dir, &options).unwrap()).unwrap()
}

#[test]
fn commits_survive_a_close_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut last_cts = Timestamp::START;
    for round in 0..8_u64 {
        let context = open(dir.path());
        let report = context.recovery();
        if round == 0 {
            let group = context.create_group().unwrap();
            context.create_state(group, KeyWidth::Eight).unwrap();
            context.create_state(group, KeyWidth::Variable).unwrap();
        } else {
            assert_eq!(report.clean, round % 2 == 1, "round {round}: {report:?}");
            assert_eq!((report.groups, report.states, report.invalid_ranges), (1, 2, 0));
        }
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        let reader = context.begin().unwrap();
        for state in &states {
            assert_eq!(rows(&reader, state).len() as u64, round * 9);
            for number in 0..round * 10 {
                let expected = (number % 10 != 3).then(|| [number as u8; 100].to_vec());
                assert_eq!(get(&reader, state, number), expected, "round {round}, key {number}");
            }
        }
        drop(reader);
        assert_eq!(context.last_cts(GroupId(0)), last_cts);
        for number in round * 10..round * 10 + 10 {
            for state in &states {
                put(&context, state, number, &[0; 7]);
                put(&context, state, number, &[number as u8; 100]);
            }
        }
        for state in &states {
            delete(&context, state, round * 10 + 3);
        }
        assert!(context.last_cts(GroupId(0)) > last_cts);
        last_cts = context.last_cts(GroupId(0));
        // Not committed: never there.
        let lost = context.begin().unwrap();
        lost.write(&states[0], &key(10_000), Some(b"lost")).unwrap();
        drop(lost);
        if round % 2 == 0 {
            context.pool().close().unwrap();
        }
    }
}

#[test]
fn dropping_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let context = open(dir.path());
        let group = context.create_group().unwrap();
        let doomed = context.create_state(group, KeyWidth::Eight).unwrap();
        for number in 0..300 {
            put(&context, &doomed, number, b"value");
        }
        let reader = context.begin().unwrap();
        context.drop_state(doomed.id()).unwrap();
        assert_eq!(rows(&reader, &doomed).len(), 300);
        context.pool().sync().unwrap();
    }
    let context = open(dir.path());
    assert_eq!((context.recovery().states, context.recovery().states_dropping), (0, 1));
    let before = context.pool().stats().allocated_bytes;
    assert_eq!(context.vacuum().unwrap().states_destroyed, 1);
    assert!(context.pool().stats().allocated_bytes < before - 300 * 64);
}

#[test]
fn a_closed_pool_refuses_commits() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path());
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    put(&context, &state, 1, b"1");
    let late = context.begin().unwrap();
    late.write(&state, &key(1), Some(b"2")).unwrap();
    context.pool().close().unwrap();
    assert!(late.commit(Durability::Sync).is_err());
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), b"1");
}
