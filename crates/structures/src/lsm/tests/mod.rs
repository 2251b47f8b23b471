//! Tests with mutants, which only this crate can switch: the crash checker and power failures of files. The
//! other tests are in `tests/lsm`.

#![allow(clippy::unwrap_used)]

mod crash;
mod pooled;
mod power_failure;

use super::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use crate::crash_histories::leave_junk;
use crate::lsm::files::log::log_bytes;
use crate::node::FixedKey;
use crate::range::Scan;
use entresol_memory::Pool;
use entresol_memory::crash::MapOperation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Content = BTreeMap<u64, u64>;
type Operation = MapOperation<u64, u64>;

const ROOT: &str = "tree";
/// Key of the probe of a recovered tree.
const LATER: u64 = 1 << 40;

/// Keys that tests make from numbers.
trait Numbered: FixedKey {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(self) -> u64 {
        self
    }
}

impl Numbered for u128 {
    fn of(number: u64) -> u128 {
        u128::from(number / 3) << 64 | u128::from(number)
    }

    fn number(self) -> u64 {
        self as u64
    }
}

/// Maintenance in the writer's call: one seed gives one run.
fn in_caller() -> LsmOptions {
    LsmOptions { maintenance: Maintenance::InCaller, ..LsmOptions::default() }
}

fn create<K: FixedKey>(
    pool: &Arc<Pool>,
    parameters: &LsmParameters,
    options: &LsmOptions,
) -> entresol_memory::Result<LsmTree<K>> {
    leave_junk(pool, log_bytes(parameters.buffer_entries) as usize)?;
    let mut publication = pool.publication();
    let root = LsmTree::<K>::create(pool, parameters, &mut publication).unwrap();
    publication.set_root(ROOT, root)?;
    publication.publish()?;
    Ok(LsmTree::open(pool, root, options).unwrap())
}

fn apply<K: Numbered>(pool: &Pool, tree: &LsmTree<K>, operation: &Operation) -> crate::Result<()> {
    let with = pool.publication();
    match operation {
        MapOperation::Put(key, value) => tree.upsert(K::of(*key), *value, with)?,
        MapOperation::Insert(key, value) => drop(tree.insert(K::of(*key), *value, with)?),
        MapOperation::Replace(key, value) => drop(tree.update(K::of(*key), *value, with)?),
        MapOperation::Remove(key) if key % 2 == 0 => tree.delete(K::of(*key), with)?,
        MapOperation::Remove(key) => drop(tree.remove(K::of(*key), with)?),
        MapOperation::Get(key) => drop(tree.get(K::of(*key))?),
    }
    Ok(())
}

/// Returns all entries, by scans in both directions and by lookups, without that of the probe of a recovered
/// tree.
fn content<K: Numbered>(tree: &LsmTree<K>) -> Result<Content, String> {
    let text = |error: crate::Error| error.to_string();
    let all = K::of(0)..=K::of(u64::MAX);
    let mut entries = Vec::new();
    let mut left = Some(all.clone());
    while let Some(range) = left {
        left = tree.scan(range, 7, &mut entries).map_err(text)?;
    }
    if !entries.is_sorted_by(|before, after| before.0 < after.0) {
        return Err("a scan does not ascend".to_string());
    }
    let mut back = Vec::new();
    tree.scan_back(all, usize::MAX, &mut back).map_err(text)?;
    back.reverse();
    if back != entries {
        return Err(format!("up the keys are {entries:?}, down {back:?}"));
    }
    for (key, value) in &entries {
        if tree.get(*key).map_err(text)? != Some(*value) {
            return Err(format!("{key:?} is scanned and not found"));
        }
    }
    let entries = entries.into_iter().map(|(key, value)| (key.number(), value));
    Ok(entries.filter(|(key, _)| *key != LATER).collect())
}

/// Opens the tree of a pool, if it has one; it must be sound and own all allocated objects.
fn open<K: Numbered>(pool: &Arc<Pool>, options: &LsmOptions) -> Result<Option<LsmTree<K>>, String> {
    let mut own = BTreeSet::new();
    let tree = match pool.root(ROOT) {
        None => None,
        Some(root) => {
            let tree = LsmTree::<K>::open(pool, root, options).map_err(|error| error.to_string())?;
            tree.check(|offset| assert!(own.insert(offset), "{offset:#x} is owned twice"))
                .map_err(|error| error.to_string())?;
            Some(tree)
        }
    };
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    if own == allocated { Ok(tree) } else { Err(format!("owned are {own:x?}, allocated {allocated:x?}")) }
}

/// Probes a recovered tree: adds a key, removes it, moves and merges. The power can fail again meanwhile.
fn probe_recovered<K: Numbered>(pool: &Pool, tree: &LsmTree<K>) -> Result<(), String> {
    let text = |error: crate::Error| error.to_string();
    let key = K::of(LATER);
    tree.upsert(key, 5, pool.publication()).map_err(text)?;
    tree.settle().map_err(text)?;
    if tree.get(key).map_err(text)? != Some(5) {
        return Err("what was written after a recovery is gone".to_string());
    }
    tree.delete(key, pool.publication()).map_err(text)?;
    match tree.get(key).map_err(text)? {
        None => Ok(()),
        Some(value) => Err(format!("what was deleted after a recovery is still {value}")),
    }
}
