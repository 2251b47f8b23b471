//! Power failures on the level of files: runs in files, beside the pool's journal. After every call that
//! changes a file, each possible state of all files is opened and checked.

use super::super::files::file::path_of;
use super::super::files::manifest::IDENTITY;
use super::super::{LsmOptions, LsmParameters, LsmTree};
use super::{ROOT, in_caller};
use entresol_memory::power_failure::{PowerFailureOptions, PowerFailureReport, Run, Scenario, check};
use entresol_memory::{DomainChoice, JournalOptions, Pool, PoolOptions, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One level in the pool, two in files.
const PARAMETERS: LsmParameters =
    LsmParameters { buffer_entries: 4, buffers: 2, runs_per_level: 2, pool_levels: 1, disk_levels: 2 };

/// Operation `n` sets key `n % KEYS` to `n`, or deletes it.
const KEYS: u64 = 11;

fn value_of(operation: u64) -> Option<u64> {
    // Deletes begin when there are keys to delete: each operation has an effect.
    (!operation.is_multiple_of(5) || operation <= KEYS).then_some(operation)
}

struct Merging {
    operations: u64,
}

fn options(directory: &Path) -> LsmOptions {
    LsmOptions { directory: Some(directory.to_path_buf()), cache_bytes: 0, ..in_caller() }
}

fn write(tree: &LsmTree<u64>, pool: &Pool, run: &Run, operation: u64) -> Result<()> {
    run.begin(operation);
    let key = operation % KEYS;
    match value_of(operation) {
        Some(value) => tree.upsert(key, value, pool.publication()).unwrap(),
        None => tree.delete(key, pool.publication()).unwrap(),
    }
    if operation.is_multiple_of(3) {
        pool.sync()?;
        run.acknowledge(operation);
    }
    Ok(())
}

impl Scenario for Merging {
    fn history(&self, run: &Run) -> Result<()> {
        let pool = Pool::create(run.directory(), run.options())?;
        let tree = super::create::<u64>(&pool, &PARAMETERS, &options(run.directory()))?;
        (1..=self.operations).try_for_each(|operation| write(&tree, &pool, run, operation))?;
        pool.sync()?;
        run.acknowledge(self.operations);
        Ok(())
    }

    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String> {
        let directory = pool.file().and_then(Path::parent).ok_or("the pool has a directory")?.to_path_buf();
        let Some(tree) = super::open::<u64>(pool, &options(&directory))? else { return Ok(0) };
        let content = super::content(&tree)?;
        // Each operation has an effect, so the content determines their number.
        let expected = |count: u64| {
            let last = move |key: u64| (1..=count).rev().find(|operation| operation % KEYS == key);
            (0..KEYS).filter_map(move |key| Some((key, value_of(last(key)?)?)))
        };
        let newest = content.values().copied().max().unwrap_or(0);
        let found =
            (newest..newest + 2).find(|count| content.iter().map(|(k, v)| (*k, *v)).eq(expected(*count)));
        let found = found.ok_or_else(|| format!("{content:?} is no prefix of the history"))?;
        only_known_files(pool, &tree, &directory)?;
        Ok(found)
    }

    fn resume(&self, run: &Run, pool: &Arc<Pool>, found: u64) -> Result<()> {
        let Some(root) = pool.root(ROOT) else { return Ok(()) };
        let tree = LsmTree::<u64>::open(pool, root, &options(run.directory())).unwrap();
        (found + 1..found + 6).try_for_each(|operation| write(&tree, pool, run, operation))?;
        pool.sync()?;
        run.acknowledge(found + 5);
        Ok(())
    }
}

/// Verifies that no file of a run is left without a reference in the tree.
fn only_known_files(pool: &Pool, tree: &LsmTree<u64>, directory: &Path) -> std::result::Result<(), String> {
    let identity = pool.word(tree.root_offset().plus(IDENTITY)).load(Ordering::Relaxed);
    let version = tree.core.versions.current();
    let own: Vec<u64> = version.runs().map(|run| run.record.number).collect();
    let is_there = |number: &u64| pool.env().files().exists(&path_of(directory, identity, *number));
    let orphans: Vec<u64> = (0..200).filter(|number| !own.contains(number)).filter(is_there).collect();
    if orphans.is_empty() {
        Ok(())
    } else {
        Err(format!("files of runs {orphans:?} are left, known are {own:?}"))
    }
}

fn run(operations: u64) -> Result<PowerFailureReport> {
    let pool = PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        journal: JournalOptions { slot_bytes: 64 << 10, preallocated_slots: 1, ..JournalOptions::default() },
        ..PoolOptions::default()
    };
    let options =
        PowerFailureOptions { random_states: 3, torn: false, crash_recovery_every: 43, ..Default::default() };
    check(&options, &pool, &Merging { operations })
}

#[test]
fn files_of_runs_survive_every_power_failure() {
    let report = run(44).unwrap();
    println!("{report:?}");
    assert!(report.states > 1000 && report.recovery_states > 100, "{report:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_files_of_runs_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    assert!(check_all(crate::POINTS, LIST, Test::LsmFiles, || run(44)) >= 4);
}
