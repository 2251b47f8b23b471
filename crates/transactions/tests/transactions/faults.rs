//! Failing devices and full pools: reported commits stay, failed ones are gone, reads go on.

use crate::common::{Rows, key, put, rows};
use entresol_memory::env::{Fault, FaultyFiles};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::crash_histories::check_sound;
use entresol_transactions::{Error, INVALID_RANGES_MAX, State, StateContext, StateId};
use std::path::Path;
use std::sync::Arc;

fn open(dir: &Path, files: &FaultyFiles) -> Arc<StateContext> {
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        env: Env::real().with_files(Arc::new(files.clone())),
        ..PoolOptions::default()
    };
    StateContext::open_or_create(Pool::open_or_create(dir, &options).unwrap()).unwrap()
}

fn write_both(context: &Arc<StateContext>, states: &[Arc<State>; 2], number: u64) -> Result<(), Error> {
    let writer = context.begin()?;
    for state in states {
        writer.write(state, &key(number % 20), Some(&number.to_le_bytes()))?;
    }
    writer.commit(Durability::Sync).map(|_| ())
}

fn both(context: &Arc<StateContext>, states: &[Arc<State>; 2]) -> [Rows; 2] {
    let reader = context.begin().unwrap();
    [0, 1].map(|state| rows(&reader, &states[state]))
}

#[test]
fn a_commit_that_cannot_be_made_durable_is_never_seen_and_latches() {
    for (fault, grace) in
        [(Fault::SyncError, 0), (Fault::SyncError, 7), (Fault::WriteError, 3), (Fault::DiskFull, 5)]
    {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new();
        let context = open(dir.path(), &files);
        let group = context.create_group().unwrap();
        let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
        write_both(&context, &states, 0).unwrap();
        files.arm(fault, grace);
        let mut reported = both(&context, &states);
        let mut in_doubt = None;
        for number in 1..500 {
            let mut after = reported.clone();
            after
                .iter_mut()
                .for_each(|rows| drop(rows.insert(key(number % 20).to_vec(), number.to_le_bytes().to_vec())));
            match write_both(&context, &states, number) {
                Ok(()) => reported = after,
                Err(error) => {
                    assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Memory(_)), "{error}");
                    in_doubt = Some(after);
                    break;
                }
            }
        }
        let in_doubt = in_doubt.expect("the fault is met");
        assert_eq!(both(&context, &states), reported, "reads go on, without the commit in doubt");
        assert!(write_both(&context, &states, 7).is_err(), "no later commit succeeds");
        assert_eq!(both(&context, &states), reported);
        drop(context);
        drop(states);
        files.arm(Fault::None, 0);
        let context = open(dir.path(), &files);
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        let found = both(&context, &states);
        assert!(found == reported || found == in_doubt, "{fault:?}: {found:?}");
        write_both(&context, &states, 1).unwrap();
    }
}

/// A vacuum that finds a full disk or a failing device returns an error, and removes nothing that is not
/// dead.
#[test]
fn a_failing_vacuum_removes_only_dead_versions() {
    const KEYS: u64 = 3000;
    let mut failed = 0;
    let grace = [0, 1, 4, 15, 60];
    for (fault, grace) in
        [Fault::SyncError, Fault::WriteError, Fault::DiskFull].into_iter().flat_map(|f| grace.map(|g| (f, g)))
    {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new();
        let context = open(dir.path(), &files);
        let group = context.create_group().unwrap();
        let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
        for value in [Some(&b"a value of some length"[..]), None] {
            let writer = context.begin().unwrap();
            // Every tenth key stays.
            for number in (0..KEYS).filter(|number| value.is_some() || number % 10 != 0) {
                states.iter().for_each(|state| writer.write(state, &key(number), value).unwrap());
            }
            writer.commit(Durability::Sync).unwrap();
        }
        let doomed = context.create_state(group, KeyWidth::Eight).unwrap();
        (0..200).for_each(|number| put(&context, &doomed, number, b"x"));
        context.drop_state(doomed.id()).unwrap();
        context.pool().sync().unwrap();
        let expected = both(&context, &states);
        files.arm(fault, grace);
        let vacuumed = context.vacuum().and_then(|_| Ok(context.pool().checkpoint()?));
        let vacuumed = vacuumed.and_then(|()| Ok(context.pool().return_space().map(drop)?));
        failed += u32::from(vacuumed.is_err());
        assert_eq!(both(&context, &states), expected, "{fault:?} after {grace}: {vacuumed:?}");
        drop((context, doomed, states));
        files.arm(Fault::None, 0);
        let context = open(dir.path(), &files);
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        assert_eq!(both(&context, &states), expected, "{fault:?} after {grace}: {vacuumed:?}");
        states.iter().for_each(|state| state.check_index().unwrap());
        context.vacuum().unwrap();
        let counts: Vec<u64> = context.reclamation().iter().map(|of| of.dead_keys).collect();
        assert_eq!(counts, [0, 0], "{fault:?} after {grace}");
        assert_eq!(both(&context, &states), expected);
    }
    assert!(failed >= 6, "only {failed} faults were met");
}

/// Loads two states; the keys of the second one are not in order.
fn load_both(context: &Arc<StateContext>, states: &[Arc<State>; 2], keys: u64) -> Result<(), Error> {
    let tx = context.begin()?;
    assert!(tx.begin_load(states)?, "they are empty");
    for (state, step) in states.iter().zip([1, 7919]) {
        for first in (0..keys).step_by(200) {
            let numbers = (first..keys.min(first + 200)).map(|at| at * step % keys);
            let numbers: Vec<[u8; 8]> = numbers.map(key).collect();
            let of_load = numbers.iter().map(|number| KeyBytes::from_slice(number)).collect();
            tx.load_many(state.id(), of_load, |at| &numbers[at])?;
        }
    }
    tx.commit(Durability::Sync).map(drop)
}

/// A load that meets a full disk or a failing device is there as a whole after a restart, or not at all.
#[test]
fn a_failing_load_leaves_all_of_its_rows_or_none() {
    const KEYS: u64 = 20_000;
    let (mut failed, mut there) = (0, 0);
    let grace = [0, 1, 4, 9, 15, 30, 1000];
    for (fault, grace) in
        [Fault::SyncError, Fault::WriteError, Fault::DiskFull].into_iter().flat_map(|f| grace.map(|g| (f, g)))
    {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new();
        let context = open(dir.path(), &files);
        let group = context.create_group().unwrap();
        let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
        context.pool().sync().unwrap();
        context.sort_loads_after(200_000);
        files.arm(fault, grace);
        let loaded = load_both(&context, &states, KEYS);
        failed += u32::from(loaded.is_err());
        let now = both(&context, &states);
        assert!(now.iter().all(|rows| rows.len() == if loaded.is_ok() { KEYS as usize } else { 0 }));
        drop((context, states));
        files.arm(Fault::None, 0);
        let context = open(dir.path(), &files);
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        let found = both(&context, &states);
        let is_there = found[0].len() == KEYS as usize;
        let of_load: Rows = (0..KEYS).map(|number| (key(number).to_vec(), key(number).to_vec())).collect();
        let expected = if is_there { of_load } else { Rows::new() };
        assert!(found.iter().all(|rows| *rows == expected), "{fault:?} after {grace}: {loaded:?}");
        assert!(is_there || loaded.is_err(), "{fault:?} after {grace}: a reported load is gone");
        there += u32::from(is_there);
        check_sound(&context).unwrap();
        context.vacuum().unwrap();
        check_sound(&context).unwrap();
        if !is_there {
            load_both(&context, &states, 500).unwrap();
        }
    }
    assert!(failed >= 6 && there >= 2, "{failed} failed, {there} are there");
}

/// A load for which a pool has no room fails, and gives back what it took.
#[test]
fn a_load_that_fills_the_pool_gives_its_space_back() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 256 << 10,
        address_space_bytes: 2 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let group = context.create_group().unwrap();
    let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    for _ in 0..3 {
        let error = load_both(&context, &states, 100_000).unwrap_err();
        assert!(error.is_out_of_space(), "{error}");
        assert!(both(&context, &states).iter().all(Rows::is_empty));
        context.vacuum().unwrap();
    }
    check_sound(&context).unwrap();
    load_both(&context, &states, 5000).unwrap();
    assert!(both(&context, &states).iter().all(|rows| rows.len() == 5000));
}

/// Commits that fail half-way, when the index cannot split, alternate with commits that succeed. Each failure
/// needs a range of invalid timestamps; there are more failures than ranges.
#[test]
fn commits_that_fail_half_way_never_count() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 256 << 10,
        address_space_bytes: 1 << 20,
        ..PoolOptions::default()
    };
    let pool = Pool::volatile(&options).unwrap();
    let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
    let group = context.create_group().unwrap();
    let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    let scattered = |number: u64| key(1 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) / 2);
    let dense = |number: u64| key(1 << 63 | number);
    let insert = |key: &[u8; 8]| {
        let writer = context.begin().unwrap();
        for state in &states {
            writer.write(state, &crate::common::key(0), Some(b"touched by a failure")).unwrap();
            writer.write(state, key, Some(b"inserted")).unwrap();
        }
        writer.commit(Durability::Sync)
    };
    // Fill the pool with objects and leaves (each state has one), then make room for objects alone.
    let filled = (1..).find(|&number| insert(&scattered(number)).is_err()).unwrap();
    while context.create_state(group, KeyWidth::Eight).is_ok() {}
    for number in (1..filled).step_by(2) {
        let writer = context.begin().unwrap();
        states.iter().for_each(|state| writer.write(state, &scattered(number), None).unwrap());
        writer.commit(Durability::Sync).unwrap();
    }
    context.vacuum().unwrap();
    let mut expected = both(&context, &states);
    let (mut half_way, mut number) = (0, 0);
    while half_way <= 2 * INVALID_RANGES_MAX {
        match insert(&dense(number)) {
            Ok(_) => {
                for rows in &mut expected {
                    rows.insert(dense(number).to_vec(), b"inserted".to_vec());
                    rows.insert(key(0).to_vec(), b"touched by a failure".to_vec());
                }
                number += 1;
                assert!(number < filled, "the index never fails to split");
            }
            Err(Error::Structures(_)) => half_way += 1,
            Err(other) => panic!("{other}"),
        }
        // A commit in between, so that ranges cannot be joined.
        let value = format!("failures so far: {half_way:04}");
        for (state, rows) in states.iter().zip(&mut expected) {
            put(&context, state, 0, value.as_bytes());
            rows.insert(key(0).to_vec(), value.clone().into_bytes());
        }
        if half_way % 64 == 63 {
            assert_eq!(both(&context, &states), expected);
        }
    }
    assert_eq!(both(&context, &states), expected);
    drop(context);
    for _ in 0..2 {
        let context = StateContext::open_or_create(Arc::clone(&pool)).unwrap();
        let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        println!("{:?}", context.recovery());
        assert!(context.recovery().invalid_ranges <= INVALID_RANGES_MAX / 2, "{:?}", context.recovery());
        assert_eq!(both(&context, &states), expected);
        put(&context, &states[0], 0, b"again");
        expected[0].insert(key(0).to_vec(), b"again".to_vec());
        assert_eq!(both(&context, &states), expected);
    }
}
