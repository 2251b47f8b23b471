//! The figures that everything else stands on: the FPTree beside the standard library's volatile B-tree (one
//! thread, random 8-byte keys, on `journal` with durability `none`), snapshot reads, and opening a large database.

use crate::measure::{Random, median, ns_per_operation};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::{FpTree, WordKey};
use entresol_tables::{Catalog, Column, DataType, Schema, Table, TableOptions, Value};
use entresol_transactions::StateContext;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Keys of one call of `get_many`: what a commit or a lookup join would ask for at once.
const BATCH: usize = 1024;

struct Sizes {
    keys: usize,
    rounds: usize,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick { Sizes { keys: 100_000, rounds: 1 } } else { Sizes { keys: 10_000_000, rounds: 1 } }
    }
}

#[derive(Default)]
struct Samples {
    insert: Vec<f64>,
    get: Vec<f64>,
    get_many: Vec<f64>,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    tree_beside_map(options, &sizes, report)?;
    snapshot_reads(options, report)?;
    opening(options, &sizes, report)
}

/// Two columns: a key and a payload.
fn schema() -> Result<Schema, Error> {
    let column = |name: &str| Column { name: name.to_string(), data_type: DataType::BigInt, nullable: false };
    Ok(Schema::new(vec![column("id"), column("payload")], &["id"])?)
}

fn row(id: u64) -> [Value; 2] {
    [Value::BigInt(id.cast_signed()), Value::BigInt((id ^ 1).cast_signed())]
}

fn open_catalog(dir: &Path) -> Result<Arc<Catalog>, Error> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(dir, &options)?;
    Ok(Catalog::open_or_create(StateContext::open_or_create(pool)?)?)
}

fn fill(catalog: &Catalog, table: &Table, ids: std::ops::Range<u64>) -> Result<(), Error> {
    let ids: Vec<u64> = ids.collect();
    for batch in ids.chunks(BATCH) {
        let rows: Vec<[Value; 2]> = batch.iter().map(|id| row(*id)).collect();
        let transaction = catalog.begin()?;
        table.upsert_many(&transaction, &rows)?;
        transaction.commit(Durability::None)?;
    }
    Ok(())
}

/// One key of a small table that stays in the processor's caches, read at a snapshot through the Rust API.
fn snapshot_reads(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    const ROWS: u64 = 1000;
    const READS: usize = 1_000_000;
    let dir = options.database_dir()?;
    let catalog = open_catalog(dir.path())?;
    let table = catalog.create_table("hot", schema()?, TableOptions::default())?;
    fill(&catalog, &table, 0..ROWS)?;
    let transaction = catalog.begin()?;
    let mut random = Random::new(options.seed);
    let keys: Vec<[Value; 1]> =
        (0..READS).map(|_| [Value::BigInt(random.below(ROWS).cast_signed())]).collect();
    let mut samples = Vec::new();
    let mut right = true;
    for _ in 0..5 {
        samples.push(ns_per_operation(READS, || {
            for key in &keys {
                let payload = table.get_with(&transaction, key, |row| row.bigint(1))?;
                let Value::BigInt(id) = key[0] else { unreachable!("keys are BIGINT") };
                right &= payload == Some(id ^ 1);
            }
            Ok::<(), Error>(())
        })?);
    }
    report.row(json!({"snapshot_read_ns": median(&samples), "rows": ROWS, "reads": READS}));
    report.limit("snapshot read of one key, ns", median(&samples), 500.0);
    report.check("every snapshot read returned its row", right);
    Ok(())
}

/// Opening a database and answering the first query, after closing it and after a crash.
fn opening(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let rows = sizes.keys as u64;
    let mut right = true;
    {
        let catalog = open_catalog(dir.path())?;
        let table = catalog.create_table("large", schema()?, TableOptions::default())?;
        let ns = ns_per_operation(sizes.keys, || fill(&catalog, &table, 0..rows))?;
        let stats = catalog.context().pool().stats();
        report.row(json!({
            "rows": rows,
            "load_ns_per_row": ns,
            "pool_bytes_per_row": stats.pool_bytes as f64 / rows as f64,
        }));
        catalog.context().pool().close()?;
    }
    for (after, closes) in [("after closing", true), ("after a crash", false)] {
        let mut samples = Vec::new();
        for round in 0..3 {
            let start = Instant::now();
            let catalog = open_catalog(dir.path())?;
            let table = catalog.table("large")?;
            let transaction = catalog.begin()?;
            let id = Random::new(options.seed + round).below(rows);
            let found = table.get(&transaction, &[Value::BigInt(id.cast_signed())])?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
            right &= found.as_deref() == Some(&row(id)[..]);
            drop(transaction);
            let pool = catalog.context().pool().clone();
            if closes && round < 2 {
                pool.close()?;
            } else {
                // Changes that the next open has to replay, then no close: as after a crash.
                fill(&catalog, &table, 0..rows.min(200_000))?;
                pool.sync()?;
            }
        }
        report.row(json!({"open": after, "rows": rows, "first_query_ms": median(&samples)}));
        report.limit(&format!("open and first query {after}, ms"), median(&samples), 250.0);
    }
    report.check("the first query after opening found its row", right);
    Ok(())
}

fn tree_beside_map(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
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
    report.ratio("get, FPTree/BTreeMap", ratio(&theirs.get, &ours.get), Some(1.2));
    report.ratio("get_many, FPTree/BTreeMap get", ratio(&theirs.get, &ours.get_many), Some(4.0));
    report.ratio("insert, FPTree/BTreeMap", ratio(&theirs.insert, &ours.insert), Some(0.7));
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
        found = wanted.iter().filter(|key| tree.get(**key) == Some(*key ^ 1)).count();
        Ok::<(), Error>(())
    })?);
    let mut found_together = 0;
    let mut values = Vec::new();
    samples.get_many.push(ns_per_operation(wanted.len(), || {
        for batch in wanted.chunks(BATCH) {
            tree.get_many(batch.iter().copied(), &mut values);
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
