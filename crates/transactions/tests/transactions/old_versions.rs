//! Readers that stay while keys change: their versions move beside the objects, and neither waits for the
//! other.

use crate::common::{get, key, put, rows, volatile};
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{ContextOptions, Error, State, StateContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn opened(options: ContextOptions) -> (Arc<StateContext>, Arc<State>) {
    let context = StateContext::open_or_create_with(volatile(), options).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    (context, state)
}

fn slots(slots: usize, slots_max: usize) -> ContextOptions {
    ContextOptions { version_slots: slots, version_slots_max: slots_max, ..ContextOptions::default() }
}

#[test]
fn a_reader_sees_its_snapshot_during_ten_thousand_updates() {
    for options in [slots(2, 2), slots(2, 64), slots(8, 8)] {
        let (context, state) = opened(options);
        put(&context, &state, 1, b"before");
        let reader = context.begin().unwrap();
        for round in 0..10_000_u64 {
            put(&context, &state, 1, &round.to_le_bytes());
            if round % 997 == 0 {
                assert_eq!(get(&reader, &state, 1).unwrap(), b"before");
            }
        }
        assert_eq!(rows(&reader, &state).into_values().collect::<Vec<_>>(), [b"before"]);
        assert_eq!(context.stats().old_versions, usize::from(options.version_slots_max == 2));
        drop(reader);
        assert_eq!((context.stats().old_versions, context.stats().old_version_bytes), (0, 0));
        assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 9_999_u64.to_le_bytes());
    }
}

/// More snapshots than an object can have versions.
#[test]
fn two_hundred_readers_keep_their_own_versions() {
    let (context, state) = opened(ContextOptions::default());
    let mut readers = Vec::new();
    for round in 0..200_u64 {
        put(&context, &state, 1, &round.to_le_bytes().repeat(1 + round as usize % 9));
        readers.push((round, context.begin().unwrap()));
    }
    assert!(context.stats().old_versions > 100, "{:?}", context.stats());
    let all_see_theirs = |readers: &[(u64, Arc<entresol_transactions::Transaction>)]| {
        for (round, reader) in readers {
            let expected = round.to_le_bytes().repeat(1 + *round as usize % 9);
            assert_eq!(get(reader, &state, 1).unwrap(), expected, "round {round}");
        }
    };
    all_see_theirs(&readers);
    readers.retain(|(round, _)| round % 3 == 0);
    all_see_theirs(&readers);
    for round in 0..200_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
    }
    all_see_theirs(&readers);
    // A deletion, and a vacuum that must leave it to the readers.
    crate::common::delete(&context, &state, 1);
    context.vacuum().unwrap();
    all_see_theirs(&readers);
    readers.clear();
    context.vacuum().unwrap();
    assert_eq!(context.stats().old_versions, 0);
    assert!(state.keys().unwrap().is_empty());
}

#[test]
fn beyond_the_bound_the_writer_is_told_and_gets_through_later() {
    let (context, state) = opened(ContextOptions { old_version_bytes_max: 10_000, ..slots(2, 2) });
    let mut readers = Vec::new();
    let failed = (0..150_u64).find_map(|round| {
        let writer = context.begin().unwrap();
        writer.write(&state, &key(1), Some(&[round as u8; 200])).unwrap();
        let result = writer.commit(Durability::Sync);
        readers.push((round, context.begin().unwrap()));
        result.err()
    });
    match failed {
        Some(error @ Error::OldVersionsFull { max: 10_000, .. }) => assert!(error.is_retryable(), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(context.stats().old_version_bytes <= 10_000);
    let (last, newest) = readers.pop().unwrap();
    assert_eq!(get(&newest, &state, 1).unwrap(), [last as u8 - 1; 200], "nothing of the one that failed");
    for (round, reader) in &readers {
        assert_eq!(get(reader, &state, 1).unwrap(), [*round as u8; 200]);
    }
    readers.clear();
    put(&context, &state, 1, b"again");
}

/// Readers of all ages beside writers; every snapshot stays what it is while versions move under it.
#[test]
fn snapshots_stand_still_while_versions_move() {
    const KEYS: u64 = 4;
    let (context, state) = opened(slots(2, 3));
    let stop = AtomicBool::new(false);
    let checks = AtomicU64::new(0);
    let write_all = |round: u64| {
        let writer = context.begin().unwrap();
        for at in 0..KEYS {
            let value = round.to_le_bytes().repeat(1 + (round + at) as usize % 6);
            writer.write(&state, &key(at), Some(&value)).unwrap();
        }
        writer.commit(Durability::None).unwrap();
    };
    write_all(0);
    thread::scope(|scope| {
        for lifetime in [1, 7, 40, 200] {
            let (context, state, stop, checks) = (&context, &state, &stop, &checks);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reader = context.begin().unwrap();
                    let rounds = (0..lifetime * KEYS).map(|at| {
                        let value = get(&reader, state, at % KEYS).unwrap();
                        assert!(value.chunks(8).all(|word| word == &value[..8]), "torn {value:?}");
                        value[..8].to_vec()
                    });
                    let rounds: std::collections::BTreeSet<_> = rounds.collect();
                    assert_eq!(rounds.len(), 1, "one snapshot, one round");
                    checks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..crate::common::soak(6_000, 60_000) {
            write_all(round);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(checks.into_inner() > 100);
    assert_eq!(context.stats().old_versions, 0);
}

/// They lie in DRAM: a crash ends the snapshots that need them, and the rest is complete.
#[test]
fn after_a_crash_they_are_not_needed() {
    let options =
        PoolOptions { extent_bytes: 256 << 10, address_space_bytes: 64 << 20, ..PoolOptions::default() };
    let (image, taken) = (Arc::new(std::sync::Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (slot, armed) = (Arc::clone(&image), Arc::clone(&taken));
    let observer = move |point: &entresol_memory::crash::CrashPoint<'_>| {
        if armed.swap(false, Ordering::SeqCst) {
            *slot.lock().unwrap() = Some(point.image(entresol_memory::crash::Survivors::Fenced));
        }
    };
    let pool = Pool::crashing(&options, None, Some(Box::new(observer))).unwrap();
    let context = StateContext::open_or_create_with(pool, slots(2, 2)).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let mut readers = Vec::new();
    for round in 0..20_u64 {
        put(&context, &state, 1, &round.to_le_bytes());
        readers.push(context.begin().unwrap());
    }
    assert!(context.stats().old_versions >= 18);
    taken.store(true, Ordering::SeqCst);
    put(&context, &state, 2, b"the power fails in here");
    let image = image.lock().unwrap().take().unwrap();
    let pool = Pool::crashing(&options, Some(image), None).unwrap();
    let context = StateContext::open_or_create(pool).unwrap();
    let state = context.state(state.id()).unwrap();
    assert_eq!(context.stats().old_versions, 0);
    assert_eq!(get(&context.begin().unwrap(), &state, 1).unwrap(), 19_u64.to_le_bytes());
    let reports = context.check(|_, _, _| Ok(()), |_| {}).unwrap();
    assert!(reports.iter().all(|report| report.problems.is_empty()), "{reports:?}");
}
