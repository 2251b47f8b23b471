//! Tree operations under the crash checker: before every fence of a history, several states that a power
//! failure may leave. After each the tree is sound, owns all allocated objects, holds the keys of the
//! operations that had returned, with or without the one in flight, and can be written to.

use super::{Instance, small_instances};
use entresol_memory::crash::{CrashOptions, CrashReport, check};
use entresol_memory::{Env, Pool, PoolOffset};
use entresol_structures::Inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

type Model = BTreeMap<u64, u64>;

#[derive(Debug, Clone)]
pub enum Step {
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    /// Bulk load of keys from here on.
    Load(u64, u64),
    /// Handle underflow from now on.
    HandleUnderflow,
}

impl Step {
    fn apply(&self, model: &mut Model) {
        match *self {
            Step::Insert(key, value) => {
                model.entry(key).or_insert(value);
            }
            Step::Update(key, value) => {
                if let Some(slot) = model.get_mut(&key) {
                    *slot = value;
                }
            }
            Step::Remove(key) => {
                model.remove(&key);
            }
            Step::Load(from, count) => model.extend((from..from + count).map(|key| (key, key))),
            Step::HandleUnderflow => {}
        }
    }
}

/// Operations that had returned, and the one in flight, when the power failed.
#[derive(Default, Clone)]
struct Progress {
    model: Model,
    in_flight: Option<Step>,
}

impl Progress {
    /// Verifies that a tree may hold these entries now.
    fn allows(&self, found: &Model) -> Result<(), String> {
        if *found == self.model {
            return Ok(());
        }
        let mut after = self.model.clone();
        if let Some(step) = &self.in_flight {
            step.apply(&mut after);
        }
        if *found == after {
            return Ok(());
        }
        if let Some(Step::Load(..)) = self.in_flight {
            // A prefix of what is loaded.
            let is_prefix = found.iter().all(|(key, value)| after.get(key) == Some(value))
                && self.model.keys().all(|key| found.contains_key(key))
                && after.keys().take(found.len()).eq(found.keys());
            if is_prefix {
                return Ok(());
            }
        }
        let missing: Vec<_> = after.iter().filter(|(k, v)| found.get(*k) != Some(v)).collect();
        let extra: Vec<_> = found.iter().filter(|(k, _)| !after.contains_key(*k)).collect();
        Err(format!("missing {missing:?}, extra {extra:?}, in flight {:?}", self.in_flight))
    }
}

fn owned(pool: &Arc<Pool>, tree: &dyn super::Tree) -> Result<(), String> {
    let mut own = BTreeSet::new();
    tree.check(&mut |offset| {
        own.insert(offset);
    })
    .map_err(|error| error.to_string())?;
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own != allocated {
        return Err(format!("the tree owns {own:?}, allocated are {allocated:?}"));
    }
    Ok(())
}

fn verify(instance: &Instance, pool: &Arc<Pool>, progress: &Progress, writes: bool) -> Result<(), String> {
    let text = |error: entresol_structures::Error| error.to_string();
    let Some(root) = pool.root("tree") else {
        return if progress.model.is_empty() { Ok(()) } else { Err("the tree is gone".to_string()) };
    };
    let tree = (instance.open)(pool, root).map_err(text)?;
    owned(pool, &*tree)?;
    let mut found: Model = tree.range(0..=u64::MAX / 8, false).map_err(text)?.into_iter().collect();
    progress.allows(&found)?;
    if !writes {
        return Ok(());
    }
    // The recovered tree is written to: beside the operation in flight, where damage would show.
    let key = match progress.in_flight {
        Some(Step::Insert(key, _) | Step::Update(key, _) | Step::Remove(key)) => key,
        _ => 7,
    };
    tree.set_underflow_handling(true);
    for key in [key, key + 1, key.saturating_sub(1)] {
        match found.remove(&key) {
            Some(value) => {
                let removed = tree.remove(key, pool.publication()).map_err(text)?;
                if removed != Some(value) {
                    return Err(format!("removing {key} found {removed:?} instead of {value}"));
                }
            }
            None => {
                let inserted = tree.insert(key, 1, pool.publication()).map_err(text)?;
                if inserted != Inserted::New {
                    return Err(format!("inserting {key} found {inserted:?}"));
                }
                found.insert(key, 1);
            }
        }
    }
    owned(pool, &*tree)?;
    let after: Model = tree.range(0..=u64::MAX / 8, false).map_err(text)?.into_iter().collect();
    if after != found {
        return Err("writing after the crash changed other keys".to_string());
    }
    Ok(())
}

/// Runs steps on a fresh tree under the crash checker. Recoveries that are crashed themselves only read.
pub fn run(instance: Instance, steps: Vec<Step>, options: &CrashOptions) -> CrashReport {
    let writes = options.crash_recovery_every == 0;
    let progress = Arc::new(Mutex::new(Progress::default()));
    let seen = progress.clone();
    let report = check(
        options,
        |pool| {
            let tree = instance.new_tree(pool);
            for step in steps {
                progress.lock().unwrap().in_flight = Some(step.clone());
                let with = pool.publication();
                match step {
                    Step::Insert(key, value) => drop(tree.insert(key, value, with).unwrap()),
                    Step::Update(key, value) => drop(tree.update(key, value, with).unwrap()),
                    Step::Remove(key) => drop(tree.remove(key, with).unwrap()),
                    Step::Load(from, count) => {
                        let entries: Vec<(u64, u64)> = (from..from + count).map(|key| (key, key)).collect();
                        tree.load(&entries, 90).unwrap();
                    }
                    Step::HandleUnderflow => tree.set_underflow_handling(true),
                }
                let mut progress = progress.lock().unwrap();
                step.apply(&mut progress.model);
                progress.in_flight = None;
            }
            Ok(())
        },
        move |pool| {
            // Not under the lock: one recovery may crash while another reads.
            let progress = seen.lock().unwrap().clone();
            verify(&instance, pool, &progress, writes)
        },
    );
    report.unwrap_or_else(|error| panic!("{}: {error}", instance.name))
}

/// A seeded history that grows, churns and shrinks, so that nodes of every level split, balance and merge.
fn history(count: u64, keys: u64, seed: u64) -> Vec<Step> {
    let env = Env::simulated(seed);
    let mut steps: Vec<Step> = (0..count)
        .map(|i| {
            let key = env.random_u64() % keys;
            let removes = [0, 1, 4, 9][(i * 4 / count) as usize];
            match env.random_u64() % 10 {
                n if n < removes => Step::Remove(key),
                n if n == removes => Step::Update(key, i),
                _ => Step::Insert(key, i),
            }
        })
        .collect();
    steps.insert(steps.len() / 2, Step::HandleUnderflow);
    steps.insert(0, Step::Load(0, 40));
    steps
}

fn survives(design: &str, states_min: u64) {
    let instances = small_instances();
    let mut of_design = instances.iter().filter(|instance| instance.name.starts_with(design)).peekable();
    assert!(of_design.peek().is_some(), "there is a design {design}");
    for instance in of_design {
        // Wide keys go through the same code: fewer states do.
        let states_min = if instance.name.contains("u128") { states_min / 5 } else { states_min };
        let (mut states, mut seed) = (0, 0);
        while states < states_min {
            let options =
                CrashOptions { seed, random_states: 2, crash_recovery_every: 0, ..CrashOptions::default() };
            let report = run(*instance, history(400, 200, seed), &options);
            println!("{}: {report:?}", instance.name);
            states += report.states;
            seed += 1;
            let again = CrashOptions { random_states: 0, crash_recovery_every: 11, ..options };
            states += run(*instance, history(60, 100, seed), &again).states;
        }
    }
}

macro_rules! survive_every_fence {
    ($($test:ident: $design:literal)*) => { $(
        #[test]
        fn $test() {
            survives($design, 10_000);
        }
    )* };
}

survive_every_fence! {
    fp_like_trees_survive_every_fence: "FpLikeTree"
    wb_trees_survive_every_fence: "WbTree"
    hybrid_wb_trees_survive_every_fence: "HybridWbTree"
    pbp_trees_survive_every_fence: "PbpTree"
    hybrid_pbp_trees_survive_every_fence: "HybridPbpTree"
    unsorted_trees_survive_every_fence: "UnsortedTree"
    hybrid_unsorted_trees_survive_every_fence: "HybridUnsortedTree"
    bitmap_trees_survive_every_fence: "BitmapTree"
    hybrid_bitmap_trees_survive_every_fence: "HybridBitmapTree"
    fast_and_fair_survives_every_fence: "FastFairTree"
}

/// A crash while a tree is destroyed leaves one that can be destroyed, and nothing leaks.
#[test]
fn destroying_survives_every_fence() {
    for instance in small_instances() {
        let options = CrashOptions { random_states: 1, crash_recovery_every: 0, ..CrashOptions::default() };
        check(
            &options,
            |pool| {
                let tree = instance.new_tree(pool);
                for key in 0..50 {
                    tree.insert(key * 31 % 50, key, pool.publication()).unwrap();
                }
                drop(tree);
                let root = pool.root("tree").unwrap();
                (instance.destroy)(pool, root).unwrap();
                let mut last = pool.publication();
                last.set_root("tree", PoolOffset::NULL)?;
                last.free(root);
                last.publish()
            },
            move |pool| {
                if let Some(root) = pool.root("tree") {
                    (instance.destroy)(pool, root).map_err(|error| error.to_string())?;
                    let mut last = pool.publication();
                    last.set_root("tree", PoolOffset::NULL).map_err(|error| error.to_string())?;
                    last.free(root);
                    last.publish().map_err(|error| error.to_string())?;
                }
                let mut left = Vec::new();
                pool.for_each_object(|offset, _| left.push(offset));
                if left.is_empty() { Ok(()) } else { Err(format!("left are {left:?}")) }
            },
        )
        .unwrap_or_else(|error| panic!("{}: {error}", instance.name));
    }
}
