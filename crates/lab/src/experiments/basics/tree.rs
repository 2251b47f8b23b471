//! The FPTree on `journal` with durability `none`, beside the standard library's volatile B-tree: one thread,
//! random 8-byte keys, turn by turn.

use super::{BATCH, Sizes};
use crate::asked::AskedFigure;
use crate::measure::{Random, median, ns_per_operation};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::{FpTree, WordKey};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Samples {
    insert: Vec<f64>,
    get: Vec<f64>,
    get_many: Vec<f64>,
}

pub(super) fn beside_map(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let mut random = Random::new(options.seed);
    let keys: Vec<u64> = (0..sizes.keys).map(|_| random.next_u64()).collect();
    let mut wanted = keys.clone();
    random.shuffle(&mut wanted);
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let mut all_found = true;
    for _ in 0..sizes.rounds {
        all_found &= measure_map(&keys, &wanted, &mut theirs);
        all_found &= measure_tree(options, &keys, &wanted, &mut ours, report)?;
    }
    for (name, samples) in [("FPTree, journal, none", &ours), ("std BTreeMap, volatile", &theirs)] {
        report.row(json!({
            "structure": name,
            "keys": sizes.keys,
            "insert_ns": median(&samples.insert),
            "get_ns": median(&samples.get),
            "get_many_ns": samples.get_many.first().map(|_| median(&samples.get_many)),
        }));
    }
    let ratio = |theirs: &[f64], ours: &[f64]| median(theirs) / median(ours);
    report.asked(AskedFigure::at_least("get, FPTree/BTreeMap", ratio(&theirs.get, &ours.get), 1.2));
    report.asked(AskedFigure::at_least(
        "get_many, FPTree/BTreeMap get",
        ratio(&theirs.get, &ours.get_many),
        4.0,
    ));
    report.asked(AskedFigure::at_least("insert, FPTree/BTreeMap", ratio(&theirs.insert, &ours.insert), 0.7));
    report.check("every key was found with its value, in tree and map", all_found);
    Ok(())
}

fn measure_map(keys: &[u64], wanted: &[u64], samples: &mut Samples) -> bool {
    let mut map = BTreeMap::new();
    let done: Result<f64, ()> = ns_per_operation(keys.len(), || {
        for key in keys {
            map.insert(*key, key ^ 1);
        }
        Ok(())
    });
    samples.insert.extend(done);
    let mut found = 0;
    let done: Result<f64, ()> = ns_per_operation(wanted.len(), || {
        found = wanted.iter().filter(|key| map.get(key) == Some(&(*key ^ 1))).count();
        Ok(())
    });
    samples.get.extend(done);
    found == wanted.len()
}

fn measure_tree(
    options: &RunOptions,
    keys: &[u64],
    wanted: &[u64],
    samples: &mut Samples,
    report: &mut Report,
) -> Result<bool, Error> {
    let dir = options.database_dir()?;
    let pool_options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &pool_options)?;
    let tree = new_tree(&pool)?;
    samples.insert.push(ns_per_operation(keys.len(), || {
        for batch in keys.chunks(BATCH) {
            // As a commit does: one guard for its whole write set.
            let _pinned = pool.pin();
            for key in batch {
                tree.insert(*key, key ^ 1, pool.publication())?;
            }
        }
        pool.persist(Durability::None)?;
        Ok::<(), Error>(())
    })?);
    let mut found = 0;
    samples.get.push(ns_per_operation(wanted.len(), || {
        for batch in wanted.chunks(BATCH) {
            // As a reader with many keys does: pinning is a full fence, which would keep lookups apart.
            let _pinned = pool.pin();
            found +=
                batch.iter().filter(|key| tree.get(**key).is_ok_and(|value| value == Some(*key ^ 1))).count();
        }
        Ok::<(), Error>(())
    })?);
    let mut found_together = 0;
    let mut values = Vec::new();
    samples.get_many.push(ns_per_operation(wanted.len(), || {
        for batch in wanted.chunks(BATCH) {
            tree.get_many(batch.iter().copied(), &mut values)?;
            let right = batch.iter().zip(&values).filter(|(key, value)| **value == Some(*key ^ 1));
            found_together += right.count();
        }
        Ok::<(), Error>(())
    })?);
    let stats = pool.stats();
    report.row(json!({
        "structure": "FPTree, journal, none",
        "pool_bytes_per_key": stats.pool_bytes as f64 / keys.len() as f64,
        "journal_bytes_per_key": stats.journal_appended_bytes as f64 / keys.len() as f64,
        "checkpoint_bytes_per_key": stats.checkpoint_bytes as f64 / keys.len() as f64,
        "checkpoints": stats.checkpoints,
    }));
    Ok(found == wanted.len() && found_together == wanted.len())
}

fn new_tree(pool: &Arc<Pool>) -> Result<FpTree<WordKey>, Error> {
    let mut publication = pool.publication();
    let root = FpTree::<WordKey>::create(pool, 0, &mut publication)?;
    publication.set_root("tree", root)?;
    publication.publish()?;
    Ok(FpTree::open(pool, root, 0)?)
}
