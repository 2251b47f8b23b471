//! The LSM-tree of dissertation 3.2.3: moving a buffer to the pool (E6), merging a level (E7) in all ways,
//! and what levels, media and Bloom filters do to writes and lookups. On `journal` (durability `none`, by the
//! clock) and on modelled Optane (time of the memory alone, and what is written).

mod levels;
mod merges;

use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, ModelledCost, Pool, PoolOptions};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree, Maintenance};
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;

/// Medium of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Journal,
    Optane,
}

impl Medium {
    const ALL: [Medium; 2] = [Medium::Journal, Medium::Optane];

    fn name(self) -> &'static str {
        match self {
            Medium::Journal => "journal, none",
            Medium::Optane => "modelled Optane",
        }
    }
}

/// A tree in a pool of its own.
struct Bench {
    tree: LsmTree<u64>,
    pool: Arc<Pool>,
    // Removed after the pool is closed.
    _dir: TempDir,
}

/// Cost of an operation.
struct Cost {
    /// By the clock, or by the model.
    ns: f64,
    /// Of this thread on the processor, which does not depend on other threads. In steps of a few
    /// milliseconds.
    processor_ns: f64,
    /// Of the model; none on other media.
    modelled: Option<ModelledCost>,
    journal_bytes: u64,
}

impl Bench {
    /// All moving and merging happens in the call that makes it due, so that its cost can be told.
    fn new(
        options: &RunOptions,
        medium: Medium,
        parameters: &LsmParameters,
        lsm: LsmOptions,
    ) -> Result<Bench, Error> {
        let dir = options.database_dir()?;
        let pool = match medium {
            Medium::Journal => {
                let journal = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
                Pool::create(dir.path(), &journal)?
            }
            Medium::Optane => Pool::modelled(&PoolOptions::default(), &Profile::embedded("optane-dcpmm")?)?,
        };
        let mut publication = pool.publication();
        let root = LsmTree::<u64>::create(&pool, parameters, &mut publication)?;
        publication.set_root("lsm", root)?;
        publication.publish()?;
        let directory = Some(dir.path().to_path_buf());
        let lsm = LsmOptions { maintenance: Maintenance::InCaller, directory, ..lsm };
        Ok(Bench { tree: LsmTree::open(&pool, root, &lsm)?, pool, _dir: dir })
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Error> {
        Ok(self.tree.upsert(key, value, self.pool.publication())?)
    }

    /// Cost of `work`: by the clock, or by the model.
    fn cost(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Cost, Error> {
        let before = self.pool.modelled_cost();
        let appended = self.pool.stats().journal_appended_bytes;
        let (start, on_processor) = (Instant::now(), on_processor_ns());
        work()?;
        let ns = start.elapsed().as_nanos() as f64;
        let processor_ns = on_processor_ns() - on_processor;
        let modelled = self.pool.modelled_cost().zip(before).map(|(after, before)| after - before);
        let journal_bytes = self.pool.stats().journal_appended_bytes - appended;
        Ok(Cost { ns: modelled.map_or(ns, |cost| cost.ns()), processor_ns, modelled, journal_bytes })
    }
}

/// Nanoseconds that this thread has been on the processor, as the scheduler counts them.
fn on_processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

/// The i-th random key; all differ.
fn key(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    merges::run(options, report)?;
    levels::run(options, report)?;

    Ok(())
}
