//! Tests of the pool's words under the crash checker: writes, moved buffers, merges at several levels, their
//! recovery, and destruction.

use super::super::{LsmOptions, LsmParameters, LsmTree, MergeAlgorithm, RunWriting};
use super::{Content, Numbered, Operation, ROOT, apply, content, create, in_caller, open, probe_recovered};
use entresol_memory::crash::{
    ConcurrentRecorder, CrashOptions, CrashReport, MapOperation, Recorder, apply_to_key, check, check_at,
    seeds, take_turns,
};
use entresol_memory::{Env, Error, Pool, PoolOffset};
use std::sync::Arc;

/// Four levels that a hundred operations fill.
const SMALL: LsmParameters =
    LsmParameters { buffer_entries: 5, buffers: 2, runs_per_level: 2, pool_levels: 4, disk_levels: 0 };

/// Generates a seeded operation history: keys are added, changed and removed; in its last third more are
/// removed than added.
fn operations(count: u64, keys: u64, seed: u64) -> Vec<Operation> {
    let env = Env::simulated(seed);
    let one = |step: u64| {
        let key = env.random_u64() % keys;
        match env.random_u64() % 10 + u64::from(step > count * 2 / 3) * 3 {
            0..=4 => MapOperation::Put(key, step),
            5 => MapOperation::Insert(key, step),
            6 => MapOperation::Replace(key, step),
            _ => MapOperation::Remove(key),
        }
    };
    (0..count).map(one).collect()
}

fn run<K: Numbered>(
    count: u64,
    lsm: &LsmOptions,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let recorder = Recorder::new(Content::new());
    let (recorded, seed, lsm) = (Arc::clone(&recorder), options.seed, lsm.clone());
    let for_states = lsm.clone();
    let history = move |pool: &Arc<Pool>| {
        let tree = create::<K>(pool, &SMALL, &lsm)?;
        for operation in operations(count, 37, seed) {
            recorded
                .run(operation.clone(), || apply(pool, &tree, &operation))
                .map_err(|error| Error::Invalid(error.to_string()))?;
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let Some(tree) = open::<K>(pool, &for_states)? else { return legal.judge(&Content::new()) };
        legal.judge(&content(&tree)?)?;
        probe_recovered(pool, &tree)
    })
}

fn options(seed: u64) -> CrashOptions {
    CrashOptions {
        seed,
        random_states: 2,
        adversarial_states_max: 6,
        crash_recovery_every: 67,
        ..CrashOptions::default()
    }
}

fn survives<K: Numbered>(states_min: u64) {
    let mut total = CrashReport::default();
    for seed in seeds(3) {
        let lsm = match seed % 3 {
            0 => LsmOptions { merge: MergeAlgorithm::TwoWay, path: RunWriting::Direct, ..in_caller() },
            1 => in_caller(),
            _ => LsmOptions { path: RunWriting::Direct, filter_bits: 0, ..in_caller() },
        };
        total.add(&run::<K>(150, &lsm, &options(seed)).unwrap());
    }
    println!("{total:?}");
    assert!(total.explored(states_min), "{total:?}");
    assert!(total.replayed || total.distinct > states_min / 2, "{total:?}");
}

#[test]
fn keys_of_8_bytes_survive_every_fence_of_moves_and_merges() {
    survives::<u64>(10_000);
}

#[test]
fn keys_of_16_bytes_survive_every_fence_of_moves_and_merges() {
    survives::<u128>(10_000);
}

#[test]
fn two_writers_in_turns_leave_the_result_of_some_order() {
    let mut total = CrashReport::default();
    for seed in seeds(3) {
        let recorder: Arc<ConcurrentRecorder<u64, u64, Operation, Option<u64>>> =
            ConcurrentRecorder::new(2, apply_to_key);
        let recorded = Arc::clone(&recorder);
        let history = move |pool: &Arc<Pool>| {
            let tree = create::<u64>(pool, &SMALL, &in_caller())?;
            let writer = |thread: usize| {
                let (tree, recorded) = (&tree, &recorded);
                move || {
                    for operation in operations(30, 9, seed * 2 + thread as u64) {
                        let operation = match operation {
                            // Every operation returns the previous value.
                            MapOperation::Put(key, value) => MapOperation::Insert(key, value),
                            other => other,
                        };
                        let (MapOperation::Insert(key, _)
                        | MapOperation::Replace(key, _)
                        | MapOperation::Remove(key)) = operation
                        else {
                            unreachable!("all others were replaced")
                        };
                        recorded.run(thread, key, operation.clone(), || answer(pool, tree, &operation));
                    }
                }
            };
            take_turns(seed, vec![Box::new(writer(0)), Box::new(writer(1))]);
            Ok(())
        };
        let report = check_at(&options(seed), history, recorder.legal_contents(), move |pool, legal| {
            let Some(tree) = open::<u64>(pool, &in_caller())? else { return legal.judge(&Content::new()) };
            legal.judge(&content(&tree)?)?;
            probe_recovered(pool, &tree)
        });
        total.add(&report.unwrap());
    }
    println!("{total:?}");
    assert!(total.explored(2_000), "{total:?}");
}

/// Applies an operation; returns the value before it.
fn answer(pool: &Pool, tree: &LsmTree<u64>, operation: &Operation) -> Option<u64> {
    let with = pool.publication();
    match *operation {
        MapOperation::Insert(key, value) => tree.insert(key, value, with).unwrap().before(),
        MapOperation::Replace(key, value) => tree.update(key, value, with).unwrap(),
        MapOperation::Remove(key) => tree.remove(key, with).unwrap(),
        _ => unreachable!("the writers have no such operation"),
    }
}

#[test]
fn a_tree_that_is_being_destroyed_owns_what_is_left() {
    let history = |pool: &Arc<Pool>| {
        let tree = create::<u64>(pool, &SMALL, &in_caller())?;
        (0..120).for_each(|key| tree.upsert(key, key, pool.publication()).unwrap());
        let root = tree.root_offset();
        drop(tree);
        LsmTree::<u64>::destroy(pool, root, None).unwrap();
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root(ROOT, PoolOffset::NULL)?;
        publication.publish()
    };
    let verify = |pool: &Arc<Pool>| {
        // Destroying a partly destroyed tree again frees everything.
        if let Some(root) = pool.root(ROOT) {
            LsmTree::<u64>::destroy(pool, root, None).map_err(|error| error.to_string())?;
            let mut publication = pool.publication();
            publication.free(root);
            publication.set_root(ROOT, PoolOffset::NULL).unwrap();
            publication.publish().unwrap();
        }
        let mut left = 0;
        pool.for_each_object(|_, _| left += 1);
        if left == 0 { Ok(()) } else { Err(format!("{left} objects are left")) }
    };
    let report = check(&options(1), history, verify).unwrap();
    println!("{report:?}");
    assert!(report.explored(1000), "{report:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_logs_and_runs_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let short = || {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() };
        // Block by block: so the checker sees each of them alone.
        run::<u64>(45, &LsmOptions { path: RunWriting::Direct, ..in_caller() }, &options)
    };
    short().unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::Lsm, short) >= 7);
}
