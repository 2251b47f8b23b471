//! Versions, growth and giving space back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{delete, get, key, put, rows, two_states};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{Error, StateContext};

#[test]
fn a_long_reader_keeps_its_version_and_never_blocks_the_writer() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"0");
    let reader = context.begin().unwrap();
    for round in 1..2000_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
    }
    assert_eq!(get(&reader, &state, 1).unwrap(), b"0");
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 1999_u64.to_le_bytes());
}

#[test]
fn every_open_snapshot_keeps_its_own_version() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let mut readers = Vec::new();
    for round in 0..60_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
        readers.push((round, context.begin().unwrap()));
    }
    for (round, reader) in &readers {
        assert_eq!(get(reader, &state, 1).unwrap(), round.to_le_bytes());
    }
    readers.retain(|(round, _)| round % 2 == 0);
    for round in 60..100_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
    }
    for (round, reader) in &readers {
        assert_eq!(get(reader, &state, 1).unwrap(), round.to_le_bytes());
    }
    drop(readers);
    assert_eq!(context.vacuum().unwrap().objects_shrunk, 1);
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 99_u64.to_le_bytes());
}

#[test]
fn values_grow_and_shrink() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let before = context.begin().unwrap();
    let mut readers = Vec::new();
    for bytes in [0, 1, 8, 9, 100, 10, 1000, 0, 70_000, 5] {
        put(&context, &state, 1, &vec![bytes as u8; bytes]);
        readers.push((bytes, context.begin().unwrap()));
    }
    assert_eq!(get(&before, &state, 1), None);
    for (bytes, reader) in readers {
        assert_eq!(get(&reader, &state, 1).unwrap(), vec![bytes as u8; bytes]);
    }
}

#[test]
fn deleted_keys_are_removed_when_nobody_sees_them() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    let empty = context.pool().stats().allocated_bytes;
    for number in 0..100 {
        put(&context, &state, number, b"value");
    }
    let reader = context.begin().unwrap();
    for number in 0..100 {
        delete(&context, &state, number);
    }
    assert_eq!(context.vacuum().unwrap().keys_removed, 0, "the reader sees them");
    assert_eq!(rows(&reader, &state).len(), 100);
    drop(reader);
    assert_eq!(context.vacuum().unwrap().keys_removed, 100);
    assert!(rows(&context.begin().unwrap(), &state).is_empty());
    assert!(context.pool().stats().allocated_bytes <= empty + 8192);
    put(&context, &state, 7, b"back");
    assert_eq!(get(&context.begin().unwrap(), &state, 7).unwrap(), b"back");
}

#[test]
fn commits_clean_up_behind_themselves() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    for number in 0..200 {
        put(&context, &state, number, b"value");
        delete(&context, &state, number);
    }
    for _ in 0..30 {
        put(&context, &other, 1, b"x");
    }
    assert_eq!(context.vacuum().unwrap().keys_seen, 1, "only the other state's key is left");
}

#[test]
fn a_deleted_key_can_be_inserted_again_at_once() {
    let (context, state, _) = two_states(KeyWidth::Eight);
    put(&context, &state, 1, b"first");
    let reader = context.begin().unwrap();
    delete(&context, &state, 1);
    let gap = context.begin().unwrap();
    put(&context, &state, 1, b"second");
    assert_eq!(get(&reader, &state, 1).unwrap(), b"first");
    assert_eq!(get(&gap, &state, 1), None);
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), b"second");
}

#[test]
fn a_dropped_state_is_destroyed_after_its_last_reader() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    let before = context.pool().stats().allocated_bytes;
    let doomed = context.create_state(state.group(), KeyWidth::Variable).unwrap();
    for number in 0..500 {
        put(&context, &doomed, number, b"some value");
    }
    let reader = context.begin().unwrap();
    let writer = context.begin().unwrap();
    writer.write(&doomed, &key(1), Some(b"late")).unwrap();
    context.drop_state(doomed.id()).unwrap();
    assert!(context.state(doomed.id()).is_none());
    assert!(matches!(context.drop_state(doomed.id()), Err(Error::NoSuchState(_))));
    assert!(matches!(writer.commit(Durability::Sync), Err(Error::NoSuchState(_))));
    assert!(matches!(context.begin().unwrap().read(&doomed, &key(1), |_| ()), Err(Error::NoSuchState(_))));
    assert_eq!(context.vacuum().unwrap().states_waiting, 1);
    put(&context, &other, 1, b"x");
    assert_eq!(rows(&reader, &doomed).len(), 500);
    drop(reader);
    assert_eq!(context.vacuum().unwrap().states_destroyed, 1);
    let reused = context.create_state(state.group(), KeyWidth::Eight).unwrap();
    assert_eq!(reused.id(), doomed.id());
    assert!(rows(&context.begin().unwrap(), &reused).is_empty());
    context.drop_state(reused.id()).unwrap();
    context.vacuum().unwrap();
    assert!(context.pool().stats().allocated_bytes <= before + 1024);
}

/// Commits until space runs out: each failure must leave all of the earlier commits and nothing of itself.
#[test]
fn running_out_of_space_aborts_whole_transactions() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 256 << 10,
        address_space_bytes: 1 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let group = context.create_group().unwrap();
    let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    let mut committed = Vec::new();
    let mut failures = 0;
    for number in 0..20_000_u64 {
        let writer = context.begin().unwrap();
        for state in &states {
            // Scattered, so that all leaves fill and split.
            let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            writer.write(state, &key(scattered), Some(&number.to_le_bytes())).unwrap();
        }
        match writer.commit(Durability::Sync) {
            Ok(_) => committed.push(number),
            Err(Error::Memory(_) | Error::Structures(_)) => failures += 1,
            Err(other) => panic!("{other}"),
        }
        if failures == 300 {
            break;
        }
    }
    assert!(failures > 0 && committed.len() > 100, "{failures} failures, {} commits", committed.len());
    let reader = context.begin().unwrap();
    for state in &states {
        let mut seen: Vec<u64> = rows(&reader, state)
            .into_values()
            .map(|value| u64::from_le_bytes(value.try_into().unwrap()))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, committed);
    }
    drop(reader);
    context.vacuum().unwrap();
}
