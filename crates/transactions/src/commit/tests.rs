use super::{QUICK_KEYS_MAX, STRIPED_KEYS_MAX};
use crate::reclamation::reclaim::WaitPolicy;
use crate::visibility::snapshot::Class;
use crate::{Error, Protocol, StateContext};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// An older commit ends in doubt while a younger one, which is complete, waits to become visible.
#[test]
fn a_commit_held_back_by_an_older_one_has_not_failed() {
    let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    let group = context.create_group().unwrap();
    let state = context.create_state(group, KeyWidth::Eight).unwrap();
    let (slot, _) = context.claim().unwrap();
    let older = context.active.stamp(slot, Class::Slow);
    let before = context.last_cts(group);
    let failed = thread::scope(|scope| {
        let younger = scope.spawn(|| {
            let writer = context.begin().unwrap();
            writer.write(&state, &7_u64.to_be_bytes(), Some(b"whole")).unwrap();
            writer.commit(Durability::Sync).unwrap_err()
        });
        while context.last_cts(group) == before {
            thread::sleep(Duration::from_micros(100));
        }
        drop(older);
        younger.join().unwrap()
    });
    let cts = context.last_cts(group);
    assert!(matches!(failed, Error::OutcomeUnknown { cts: of, .. } if of == cts), "{failed}");
    assert!(!failed.is_retryable());
    let refused = context.begin().unwrap();
    refused.write(&state, &8_u64.to_be_bytes(), Some(b"refused")).unwrap();
    let refused = refused.commit(Durability::Sync).unwrap_err();
    assert!(matches!(refused, Error::Poisoned(_)), "what was not begun has failed: {refused}");
    assert!(matches!(context.drop_state(state.id()), Err(Error::OutcomeUnknown { .. })));
    context.active.release(slot);
    drop((state, context));
    let context = StateContext::open_or_create(pool).unwrap();
    assert!(context.states().is_empty(), "it was dropped");
}

#[test]
fn small_commits_of_several_groups_hold_only_their_keys() {
    let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = || context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let states = [state(), state()];
    let commit = |number: u64| {
        let (context, states) = (Arc::clone(&context), states.clone());
        let key = number.to_be_bytes();
        thread::spawn(move || {
            let writer = context.begin().unwrap();
            states.iter().for_each(|state| writer.write(state, &key, Some(b"1")).unwrap());
            writer.commit(Durability::None).unwrap();
        })
    };
    let key = 1_u64.to_be_bytes();
    let own = || std::iter::once((states[1].id, &key[..]));
    let locks = states[1].group.hold_keys(own, WaitPolicy::Waits).unwrap();
    commit(2).join().unwrap();
    let same = commit(1);
    thread::sleep(Duration::from_millis(20));
    assert!(!same.is_finished(), "the key is held");
    drop(locks);
    same.join().unwrap();
}

#[test]
fn classes_depend_on_keys_and_durability() {
    let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = |protocol| {
        let group = context.create_group_with(protocol).unwrap();
        context.create_state(group, KeyWidth::Eight).unwrap()
    };
    let [own, locked] = [Protocol::MvccInPlace, Protocol::S2pl].map(state);
    let class = |state, keys: usize, durability| {
        let writer = context.begin().unwrap();
        (0..keys as u64).for_each(|key| writer.write(state, &key.to_be_bytes(), Some(b"1")).unwrap());
        Class::number_of(writer.commit(durability).unwrap().cts)
    };
    for durability in [Durability::None, Durability::Group { interval_ms: 10 }, Durability::Sync] {
        let waits = durability == Durability::Sync;
        let (small, large) =
            if waits { (Class::Slow, Class::LargeSlow) } else { (Class::Quick, Class::Large) };
        assert_eq!(class(&own, STRIPED_KEYS_MAX, durability), small as usize);
        assert_eq!(class(&own, STRIPED_KEYS_MAX + 1, durability), large as usize);
        assert_eq!(class(&own, QUICK_KEYS_MAX, durability), large as usize);
        assert_eq!(class(&own, QUICK_KEYS_MAX + 1, durability), Class::LargeSlow as usize);
        assert_eq!(class(&locked, 1, durability), Class::Slow as usize);
        assert_eq!(class(&locked, STRIPED_KEYS_MAX + 1, durability), Class::Slow as usize);
    }
}

/// A commit is complete and not visible yet: a transaction that begins after writers were cut off has to see
/// it, whatever its class.
#[test]
fn cutting_off_writers_waits_until_older_commits_are_visible() {
    let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    for class in [Class::Quick, Class::Slow, Class::Large, Class::LargeSlow] {
        let (slot, _) = context.claim().unwrap();
        let older = context.active.stamp(slot, class);
        let cts = older.cts();
        thread::scope(|scope| {
            let cutting = scope.spawn(|| context.refuse_older_writers(state.id(), |_| ()).unwrap());
            thread::sleep(Duration::from_millis(20));
            assert!(!cutting.is_finished(), "{class:?}");
            older.finish();
            cutting.join().unwrap();
            assert!(context.begin().unwrap().sees(cts));
        });
        context.active.release(slot);
    }
}
