//! Tree operations under the crash checker: before every fence of a history, several states that a power
//! failure may leave. After each the tree is sound, owns all that is allocated, and holds the keys of the
//! operations that had returned, with or without the one in flight.

#![allow(clippy::unwrap_used)]

use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

type Model = BTreeMap<Vec<u8>, u64>;

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, u64),
    Replace(Vec<u8>, u64),
    Remove(Vec<u8>),
}

impl Step {
    fn apply(&self, model: &mut Model) {
        match self {
            Step::Insert(key, value) => {
                model.entry(key.clone()).or_insert(*value);
            }
            Step::Replace(key, value) => {
                if let Some(slot) = model.get_mut(key) {
                    *slot = *value;
                }
            }
            Step::Remove(key) => {
                model.remove(key);
            }
        }
    }
}

fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [(number / 7).to_be_bytes(), number.to_be_bytes()].concat(),
        KeyWidth::Variable => format!("a common prefix, then {number:03}").into_bytes(),
    }
}

/// A seeded history that grows, churns and shrinks, so that leaves split and are released.
fn history(width: KeyWidth, count: u64, seed: u64) -> Vec<Step> {
    let env = entresol_memory::Env::simulated(seed);
    (0..count)
        .map(|i| {
            let key = key(width, env.random_u64() % (count / 4));
            let removes = if i < count / 2 { 2 } else { 6 };
            match env.random_u64() % 10 {
                n if n < removes => Step::Remove(key),
                n if n == removes => Step::Replace(key, i),
                _ => Step::Insert(key, i),
            }
        })
        .collect()
}

/// What had returned, and what was in flight, when the power failed.
#[derive(Default)]
struct Progress {
    model: Model,
    in_flight: Option<Step>,
}

fn verify(pool: &Arc<Pool>, progress: &Progress) -> Result<(), String> {
    let Some(root) = pool.root("index") else {
        return if progress.model.is_empty() { Ok(()) } else { Err("the index is gone".to_string()) };
    };
    let index = OrderedIndex::open(pool, root).map_err(|e| e.to_string())?;
    let mut own = BTreeSet::new();
    index
        .check(|offset| {
            own.insert(offset);
        })
        .map_err(|e| e.to_string())?;
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own != allocated {
        return Err(format!("the tree owns {own:?}, allocated are {allocated:?}"));
    }
    let mut entries = Vec::new();
    let mut next = index.scan_batch(Bound::Unbounded, &mut entries);
    while let Some(from) = next {
        next = index.scan_batch(Bound::Included(&from), &mut entries);
    }
    let found: Model = entries.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
    if found == progress.model {
        return Ok(());
    }
    let mut after = progress.model.clone();
    if let Some(step) = &progress.in_flight {
        step.apply(&mut after);
    }
    if found == after {
        return Ok(());
    }
    let missing: Vec<_> = after.iter().filter(|(k, v)| found.get(*k) != Some(v)).collect();
    let extra: Vec<_> = found.iter().filter(|(k, _)| !after.contains_key(*k)).collect();
    Err(format!("missing {missing:?}, extra {extra:?}, in flight {:?}", progress.in_flight))
}

fn run(width: KeyWidth, count: u64, options: &CrashOptions) {
    let steps = history(width, count, options.seed);
    let progress = Arc::new(Mutex::new(Progress::default()));
    let seen = progress.clone();
    let report = check(
        options,
        |pool| {
            let mut publication = pool.publication();
            let root = OrderedIndex::create(pool, width, &mut publication).expect("room for a tree");
            publication.set_root("index", root)?;
            publication.publish()?;
            let index = OrderedIndex::open(pool, root).expect("just created");
            for step in steps {
                progress.lock().unwrap().in_flight = Some(step.clone());
                let with = pool.publication();
                match &step {
                    Step::Insert(key, value) => drop(index.insert(key, *value, with)),
                    Step::Replace(key, value) => drop(index.replace(key, *value, with)),
                    Step::Remove(key) => drop(index.remove(key, with)),
                }
                let mut progress = progress.lock().unwrap();
                step.apply(&mut progress.model);
                progress.in_flight = None;
            }
            Ok(())
        },
        move |pool| verify(pool, &seen.lock().unwrap()),
    )
    .unwrap();
    println!("{width:?}: {report:?}");
    assert!(report.fences >= count, "every operation has a fence: {report:?}");
}

#[test]
fn two_thousand_operations_on_eight_byte_keys_survive_every_fence() {
    let options = CrashOptions { random_states: 2, crash_recovery_every: 97, ..CrashOptions::default() };
    run(KeyWidth::Eight, 2000, &options);
}

#[test]
fn sixteen_byte_keys_survive_every_fence() {
    let options = CrashOptions { random_states: 2, crash_recovery_every: 97, ..CrashOptions::default() };
    run(KeyWidth::Sixteen, 600, &options);
}

#[test]
fn keys_of_any_length_survive_every_fence() {
    let options = CrashOptions { random_states: 2, crash_recovery_every: 97, ..CrashOptions::default() };
    run(KeyWidth::Variable, 600, &options);
}
